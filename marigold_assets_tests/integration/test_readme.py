"""What README.md prints runs as printed, from the first line of a file to the last."""

from __future__ import annotations

import importlib.util
import itertools
import re
import shlex
import subprocess
import sys
import textwrap
from datetime import timedelta
from pathlib import Path

import dagster as dg
import duckdb
import pytest
import yaml

from marigold_assets import latest_interval_condition

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
DAY = "2024-03-01"


def blocks(language):
    found = re.findall(rf"^ *```{language}\n(.*?)^ *```$", README, re.MULTILINE | re.DOTALL)
    return [textwrap.dedent(block) for block in found]


FILES = blocks("python")
PROVENANCE, VERSIONS, LEDGER = blocks("sql")
[RUN_CONFIG] = blocks("yaml")
COMMANDS = [line for block in blocks("bash") for line in block.splitlines()]
OF_A_DAY, OF_A_CHAIN = [line for line in COMMANDS if line.startswith("dagster asset materialize")]
both_files = pytest.mark.parametrize("text", FILES[:2], ids=["io manager", "resource"])
chain_file = pytest.mark.parametrize("text", FILES[2:3], ids=["partitioned asset"])
[LATEST] = FILES[3:]


@pytest.fixture
def definitions(tmp_path, text):
    file = tmp_path / "definitions.py"
    file.write_text(text, encoding="utf-8")
    return file


def assert_stored(folder):
    with duckdb.connect(str(folder / "warehouse.duckdb"), read_only=True) as connection:
        found = connection.execute("SELECT sale_date::DATE::TEXT, order_id, cents FROM market.daily_sales ORDER BY ALL")
        assert found.fetchall() == [(DAY, 1, 280), (DAY, 2, 890)]
        [entry] = connection.execute(LEDGER).fetchall()
        assert entry[:3] == (DAY, 2, "2")


def loaded(definitions):
    spec = importlib.util.spec_from_file_location("readme_definitions", definitions)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.defs


def materialize(defs, selection, first, last, **run_config):
    with dg.DagsterInstance.ephemeral() as instance:
        result = dg.materialize(
            list(defs.assets),
            selection=selection,
            resources=defs.resources,
            instance=instance,
            tags={"dagster/asset_partition_range_start": first, "dagster/asset_partition_range_end": last},
            run_config=run_config,
        )
    return [
        (event.partition, event.materialization.metadata["marigold/outcome"].value)
        for event in result.get_asset_materialization_events()
    ]


def run(command, folder):
    name, *arguments = shlex.split(command, comments=True)
    program = Path(sys.executable).with_name(name)
    done = subprocess.run([program, *arguments], cwd=folder, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


def asked(folder, query):
    with duckdb.connect(str(folder / "warehouse.duckdb"), read_only=True) as connection:
        return connection.execute(query).fetchall()


@both_files
def test_a_file_materializes_a_partition(definitions):
    job = loaded(definitions).resolve_implicit_global_asset_job_def()
    with dg.DagsterInstance.ephemeral() as instance:
        assert job.execute_in_process(partition_key=DAY, instance=instance).success
    assert_stored(definitions.parent)


@pytest.mark.slow
@pytest.mark.parametrize("text", FILES[:1], ids=["io manager"])
def test_the_command_beside_it_materializes_that_partition(definitions, monkeypatch):
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    run(OF_A_DAY, definitions.parent)
    assert_stored(definitions.parent)


@chain_file
def test_a_chain_sums_up_says_what_made_each_day_and_by_the_printed_config_leaves_alone_what_stands(definitions):
    defs, range_ = loaded(definitions), ("2024-01-01", "2024-01-03")
    days = [f"2024-01-0{n}" for n in (1, 2, 3)]
    materialize(defs, ["raw_orders", "daily_sales"], *range_)
    assert materialize(defs, ["sales_to_date"], *range_) == [(day, "swapped") for day in days]
    found = asked(definitions.parent, "SELECT sale_date::TEXT, cents FROM market.sales_to_date ORDER BY ALL")
    assert found == [(day, 1_170 * n) for n, day in enumerate(days, start=1)]
    made = asked(definitions.parent, PROVENANCE)
    inputs = [("daily_sales", days[0])]
    for before, day in itertools.pairwise(days):
        inputs += [("daily_sales", day), ("sales_to_date", before)]
    assert [row[-3:-1] for row in made] == inputs
    hashes = dict(asked(definitions.parent, "SELECT (owner, partition_key)::TEXT, content_hash FROM marigold.ledger"))
    assert all(row[-1] == hashes[f"({row[-3]}, {row[-2]})"] for row in made)
    assert {row[1] for row in made} == {"1"}
    config = yaml.safe_load(RUN_CONFIG)
    assert materialize(defs, ["sales_to_date"], *range_, **config) == [(day, "unchanged") for day in days]


@pytest.mark.slow
@chain_file
def test_the_command_of_a_chain_builds_its_range_in_order(definitions, monkeypatch):
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    first, last = OF_A_CHAIN.split()[-1].split("...")
    materialize(loaded(definitions), ["raw_orders", "daily_sales"], first, last)
    run(OF_A_CHAIN, definitions.parent)
    found = asked(definitions.parent, "SELECT cents FROM market.sales_to_date ORDER BY sale_date")
    assert found == [(1_170 * n,) for n in range(1, 8)]


@pytest.mark.slow
@chain_file
def test_the_commands_about_versions_work_as_printed_and_an_analyst_joins_them(definitions, monkeypatch):
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    monkeypatch.setenv("DAGSTER_PYTHON_FILE", definitions.name)  # instead of -f, which is not printed
    first, last = "2024-01-01", "2024-01-31"
    materialize(loaded(definitions), ["raw_orders", "daily_sales"], first, last)
    commands = [line for line in COMMANDS if line.startswith(("marigold versions", "marigold purity"))]
    said = {line: run(line, definitions.parent) for line in commands}
    show, accept, _, check, prove, purity = said.values()
    for text, word in [(show, "31 built"), (accept, "31 partitions"), (check, "3 assets"), (prove, "12 identical")]:
        assert word in text
    assert "daily_sales" in purity
    assert (definitions.parent / "code_versions.lock").is_file()
    joined = asked(definitions.parent, VERSIONS)
    assert {row[-3] for row in joined} == {"2"}
    assert {row[-1] for row in joined} == {"audited as it is"}
    assert len(joined) == 2 * 31
    exact = run("marigold versions daily_sales --sql", definitions.parent)
    assert len(asked(definitions.parent, exact)) == 2 * 31


@pytest.mark.slow
def test_the_commands_about_backfills_that_only_look_work_as_printed_and_nothing_catches_up(tmp_path, monkeypatch):
    file = tmp_path / "definitions.py"
    file.write_text(FILES[0].split("defs = ", 1)[0] + LATEST, encoding="utf-8")
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    found = loaded(file)
    assert [one.name for one in found.schedules] == ["nightly"]
    assert [str(one.name) for checks in found.asset_checks for one in checks.check_specs] == ["gaps"]
    [condition] = re.findall(r"`automation_condition=(.+?)` ", README.replace("\n", " "))
    names = {"latest_interval_condition": latest_interval_condition, "timedelta": timedelta}
    names["days"] = dg.DailyPartitionsDefinition("2024-01-01", timezone="Europe/Madrid")
    assert isinstance(eval(condition, names), dg.AutomationCondition)
    with dg.DagsterInstance.ephemeral() as instance:
        job = found.resolve_implicit_global_asset_job_def()
        assert job.execute_in_process(partition_key=DAY, instance=instance).success
    [plan] = [line for line in COMMANDS if line.startswith("marigold plan ")]
    [explain] = [line for line in COMMANDS if line.startswith("marigold explain ")]
    of_file = " -f definitions.py "
    assert "BLOCKED" in run(plan.replace(" #", f"{of_file}#"), tmp_path)
    assert "2024-02-01" in run(explain.replace(" #", f"{of_file}#"), tmp_path)
    gaps = run("marigold gaps daily_sales" + of_file, tmp_path)
    assert "2024-03-02" in gaps
    assert "marigold launch" in gaps


def test_every_command_of_dev_py_and_every_folder_of_tests_is_named():
    program = (Path(__file__).parents[2] / "dev.py").read_text(encoding="utf-8")
    used = {line.split()[2] for line in COMMANDS if line.startswith("python3 dev.py")}
    assert used
    assert all(f'command("{name}"' in program for name in used)
    suites = {folder.parent.name for folder in Path(__file__).parents[1].glob("*/test_*.py")}
    [row] = [line for line in README.splitlines() if line.startswith("| `marigold_assets_tests/`")]
    assert suites == set(re.findall(r"\w+", row.split("|")[2]))
