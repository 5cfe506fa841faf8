"""``@partitioned_asset`` by real processes: Dagster's command line and executor, and two of them at once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import dagster as dg
import duckdb
import pytest

from marigold_assets_tests.integration.partitioned_location import daily, defs

pytestmark = pytest.mark.slow

LOCATION = Path(__file__).with_name("partitioned_location.py")


@pytest.fixture
def home(tmp_path):
    """The environment of the processes."""
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "dagster.yaml").touch()
    return {
        **os.environ,
        "DAGSTER_HOME": str(tmp_path / "home"),
        "MARKET_PATH": str(tmp_path / "market.duckdb"),
        "DAGSTER_DISABLE_TELEMETRY": "1",
    }


def started(home, *options, command=("asset", "materialize")):
    program = [sys.executable, "-W", "ignore", "-m", "dagster", *command, "-f", str(LOCATION), *options]
    folder = home["DAGSTER_HOME"]  # and not that of the project, whose .env names another home
    return subprocess.Popen(program, env=home, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def finished(process):
    out, _ = process.communicate(timeout=120)
    return process.returncode, out


def materialize(home, *options):
    return finished(started(home, *options))


@pytest.fixture
def upstream(home, monkeypatch):
    """Nine days that the chain reads, built in this process: to start another one takes longer than its work."""
    monkeypatch.setenv("MARKET_PATH", home["MARKET_PATH"])
    tags = {"dagster/asset_partition_range_start": "2024-01-01", "dagster/asset_partition_range_end": "2024-01-09"}
    with dg.DagsterInstance.from_config(home["DAGSTER_HOME"]) as instance:
        assert dg.materialize([daily], instance=instance, resources=defs.resources, tags=tags).success


def totals(home):
    with duckdb.connect(home["MARKET_PATH"]) as connection:
        return [n for (n,) in connection.execute("SELECT cents FROM public.to_date ORDER BY day").fetchall()]


def events(home, asset):
    with dg.DagsterInstance.from_config(home["DAGSTER_HOME"]) as instance:
        found = instance.fetch_materializations(dg.AssetKey(asset), limit=100).records
        return [record.partition_key for record in reversed(found)]


def days(first, last):
    return [f"2024-01-{number:02d}" for number in range(first, last + 1)]


def test_the_command_line_builds_a_partition_and_a_range(home, upstream):
    for partition in (("--partition", "2024-01-01"), ("--partition-range", "2024-01-02...2024-01-05")):
        code, out = materialize(home, "--select", "to_date", *partition)
        assert code == 0, out
    assert totals(home) == [1, 3, 6, 10, 15]
    assert events(home, "to_date") == days(1, 5)
    code, out = materialize(home, "--select", "to_date", "--partition", "2024-01-09")
    assert code != 0
    assert "--from 2024-01-06 --to 2024-01-09" in out


def test_a_failure_is_retried_within_the_run_and_the_next_run_goes_on(home, upstream):
    days_ = ("--partition-range", "2024-01-01...2024-01-05")
    code, out = materialize({**home, "FAIL_AT": "2024-01-03"}, "--select", "to_date", *days_)
    assert code == 0, out
    assert totals(home) == [1, 3, 6, 10, 15]
    assert events(home, "to_date") == days(1, 5)


def test_two_processes_over_ranges_that_overlap_leave_a_chain_whole(home, upstream):
    options = [("--partition-range", f"2024-01-01...2024-01-0{last}") for last in (6, 9)]
    outcomes = [finished(one) for one in [started(home, "--select", "to_date", *each) for each in options]]
    assert 0 in [code for code, _ in outcomes], outcomes
    assert all(code == 0 or "superseded" in out for code, out in outcomes), outcomes
    code, out = materialize(home, "--select", "to_date", *options[1])
    assert code == 0, out
    assert totals(home) == [1, 3, 6, 10, 15, 21, 28, 36, 45]


EXECUTE = """
import sys
import dagster as dg
sys.path.insert(0, {folder!r})
from partitioned_location import both
if __name__ == "__main__":
    with dg.DagsterInstance.get() as instance:
        tags = {{"dagster/asset_partition_range_start": {first!r}, "dagster/asset_partition_range_end": {last!r}}}
        job = dg.reconstructable(both)
        result = dg.execute_job(job, instance=instance, tags=tags, raise_on_error=False)
        sys.exit(0 if result.success else 1)
"""


@pytest.mark.parametrize("trouble", [None, "FAIL_AT", "DIE_AT"])
def test_the_multiprocess_executor_builds_both_assets_and_retries_in_a_new_process(home, tmp_path, trouble):
    program = tmp_path / "execute.py"
    program.write_text(EXECUTE.format(folder=str(LOCATION.parent), first="2024-01-01", last="2024-01-04"))
    environment = {**home, **({trouble: "2024-01-03"} if trouble else {})}

    command = [sys.executable, "-W", "ignore", str(program)]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)
    assert ran.returncode == 0, ran.stderr
    assert totals(home) == [1, 3, 6, 10]
    assert events(home, "to_date") == days(1, 4)  # what a process that died has not reported is made up for
