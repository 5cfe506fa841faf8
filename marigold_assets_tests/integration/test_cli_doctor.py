"""``marigold doctor``: what it finds, how it says so, and with which exit code."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from itertools import count
from pathlib import Path

import dagster as dg
import pytest
from click.testing import CliRunner
from dagster._daemon.types import DaemonHeartbeat

from marigold_assets import FencedPartitionIOManager, build_sentinel_job, sentinel
from marigold_assets.cli.main import main
from marigold_assets.loading import LocationOptions
from marigold_assets.preflight.finding import Level
from marigold_assets.preflight.live import examine
from marigold_assets.preflight.location_findings import examine_location
from marigold_assets.preflight.places import Place, Premises, network_file_system
from marigold_assets.preflight.settings import InstanceSettings, read_settings
from marigold_assets.sentinel import DEFAULT_NAME, DONE_TAG, WATCHED_TAG
from marigold_assets.testing import ForkServer

PROJECT = Path(__file__).parents[2]
CHILDREN = Path(__file__).with_name("doctor_children.py")
LOCATION = """
import dagster as dg
from marigold_assets import FencedPartitionIOManager, build_sentinel_job

DAYS = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-02-01")

@dg.asset(partitions_def=DAYS, metadata={{"partition_expr": "d"}}{pool})
def orders(): ...

@dg.asset(partitions_def=DAYS, io_manager_key="other")
def files(): ...

defs = dg.Definitions(
    assets=[orders, files],
    jobs=[build_sentinel_job()],
    resources={{"io_manager": FencedPartitionIOManager(database={database}{settings}), "other": dg.mem_io_manager}},
)
"""

TWO = """
import dagster as dg
from marigold_assets import FencedPartitionIOManager, FencedPartitionResource

class Outer(dg.ConfigurableResource):
    inner: FencedPartitionResource

@dg.asset(required_resource_keys={{"warehouse"}})
def orders(): ...

io_manager = FencedPartitionIOManager(database={first!r}, max_backfill_writers=1)
warehouse = FencedPartitionResource(database={second!r}, max_backfill_writers={bound})
defs = dg.Definitions(assets=[orders], resources={{"io_manager": io_manager, "warehouse": {warehouse}}})
"""


@pytest.fixture
def doctor(tmp_path, monkeypatch):
    """Runs the command in a folder of its own; gives what it prints."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "home").mkdir()
    shutil.copy(PROJECT / "dagster.yaml", tmp_path / "home")

    def run(*arguments, code=0, home=True):
        env = {"DAGSTER_HOME": str(tmp_path / "home") if home else None, "COLUMNS": None}
        ran = CliRunner(env=env).invoke(main, ["doctor", *arguments], catch_exceptions=False)
        assert ran.exit_code == code, ran.output
        return ran.stderr if code == 2 else ran.stdout

    return run


@pytest.fixture
def located(tmp_path):
    """Writes a code location; gives the arguments that name it."""
    numbers = count()

    def write(settings="", *, pool="", database=None):
        path = tmp_path / f"location_{tmp_path.name}_{next(numbers)}.py"  # a process imports a file once
        text = LOCATION.format(settings=settings, pool=pool, database=database or repr(str(tmp_path / "shop.duckdb")))
        path.write_text(textwrap.dedent(text))
        return "-f", str(path)

    return write


def _rewrite(tmp_path, *, without="", extra=""):
    file = tmp_path / "home" / "dagster.yaml"
    text = file.read_text()
    assert without in text
    file.write_text(text.replace(without, "") + extra)


def _of(found, code):
    return [(one["level"], one["message"]) for one in json.loads(found)["findings"] if one["code"] == code]


def test_the_settings_of_the_project_are_bounded_and_it_says_what_was_looked_at(doctor, located):
    found = json.loads(doctor(*located(), "--json"))
    assert (found["is_well"], found["is_bounded"], found["backfill_slots"], found["proof"]) == (True, True, 2, None)
    codes = {one["code"] for one in found["findings"]}
    assert codes == {
        "queue", "backfill-limit", "free-slots", "range-limit", "pools", "run-monitoring", "retries", "catch-up",
        "dequeue", "storage", "daemon", "admission", "lock-files",
    }  # fmt: skip
    # The one thing that is not as it should be: nobody has started a daemon; and an asset is stored elsewhere.
    odd = {(one["code"], one["level"]) for one in found["findings"]} - {(code, "ok") for code in codes}
    assert odd == {("daemon", "warning"), ("admission", "warning")}
    doctor(*located(), "--strict", code=1)


def test_people_read_what_is_wrong_and_the_lines_that_mend_it(doctor, tmp_path):
    _rewrite(tmp_path, without="      - key: dagster/backfill\n        limit: 2\n")
    said = doctor("--instance-only", code=1)
    assert "ERROR   backfill-limit  No limit on tag dagster/backfill is set" in said
    assert "Remedy: set this in dagster.yaml and restart the daemon" in said
    assert said.count("tag_concurrency_limits:") == 1
    assert "Not well: 2 errors, 1 warning." in said
    assert not json.loads(doctor("--instance-only", "--json", code=1))["is_bounded"]


def test_what_cannot_be_looked_at_is_no_clean_bill(doctor, tmp_path, located):
    assert "DAGSTER_HOME" in doctor(home=False, code=2)
    assert _of(doctor("-f", "nowhere.py", "--json", code=1), "location")[0][0] == "error"
    (tmp_path / "home" / "dagster.yaml").write_text("run_coordinator: {module: dagster, class: Nothing}")
    found = doctor("--instance-only", "--json", code=1)
    assert [level for level, _ in _of(found, "unreadable")] == ["error", "error"]
    (tmp_path / "home" / "dagster.yaml").write_text("concurrency: {runs: {max_concurrent_runs: many}}")
    said = doctor("--instance-only", code=2)
    assert "max_concurrent_runs" in said
    assert "Traceback" not in said


@pytest.mark.slow
def test_how_many_may_write_is_set_beside_what_the_instance_starts(doctor, located):
    [bound, *_] = _of(doctor(*located(), "--json"), "admission")
    assert bound[0] == "ok"
    assert "at most 4 runs of backfills write at once" in bound[1]
    [few, *_] = _of(doctor(*located(", max_backfill_writers=1"), "--json"), "admission")
    assert few[0] == "warning"
    assert "admits 1 writers, and the instance starts 2" in few[1]
    [none, *_] = _of(doctor(*located(", max_backfill_writers=None"), "--json"), "admission")
    assert none[0] == "warning"
    assert "no max_backfill_writers" in none[1]
    late = _of(doctor(*located(", admission_timeout_seconds=9000"), "--json"), "admission")
    assert any("may wait 9,000 s for its turn, and is ended after 7,200 s" in message for _, message in late)


@pytest.mark.slow
def test_pools_of_the_code_that_bound_nothing_or_production(doctor, located, tmp_path):
    assert "no limit" in _of(doctor(*located(pool=', pool="warehouse"'), "--json"), "pools")[-1][1]
    _rewrite(tmp_path, without="concurrency:\n", extra="")
    text = (tmp_path / "home" / "dagster.yaml").read_text()
    pools = "concurrency:\n  pools: {default_limit: 1, granularity: run}\n  runs:\n"
    (tmp_path / "home" / "dagster.yaml").write_text(text.replace("  runs:\n", pools, 1))
    found = _of(doctor(*located(pool=', pool="warehouse"'), "--json"), "pools")
    assert [level for level, _ in found] == ["warning", "warning"]
    assert "used for the first time" in found[0][1]
    assert "production waits" in found[1][1]


@pytest.mark.slow
def test_every_resource_of_an_asset_is_looked_at_for_its_bound_and_its_database(doctor, tmp_path):
    numbers = count()

    def found(second, bound, warehouse="warehouse"):
        path = tmp_path / f"two_{tmp_path.name}_{next(numbers)}.py"
        first, second = str(tmp_path / "shop.duckdb"), str(tmp_path / second)
        path.write_text(TWO.format(first=first, second=second, bound=bound, warehouse=warehouse))
        return _of(doctor("-f", str(path), "--json"), "admission")

    # The IO manager admits one; whatever a resource of the same file says, it holds.
    [few, good] = found("shop.duckdb", None)
    assert (few[0], good[0]) == ("warning", "ok")
    assert "at most 1 runs of backfills write at once" in good[1]
    for warehouse in ("warehouse", "Outer(inner=warehouse)"):
        other = [one for one in found("another.duckdb", None, warehouse) if "another" in one[1]]
        assert [level for level, _ in other] == ["warning"]
        assert "no max_backfill_writers" in other[0][1]
    assert "64 writers, so many" in found("another.duckdb", 64)[0][1]


def test_a_secret_path_is_told_to_nobody(doctor, located, tmp_path, monkeypatch):
    monkeypatch.setenv("MARIGOLD_TEST_DATABASE", str(tmp_path / "SECRET123.duckdb"))
    arguments = located(database='dg.EnvVar("MARIGOLD_TEST_DATABASE")')
    said = doctor(*arguments) + doctor(*arguments, "--json")
    assert "SECRET123" not in said
    assert "$MARIGOLD_TEST_DATABASE" in said


def test_nothing_is_written_beside_the_database(doctor, located, tmp_path):
    doctor(*located())
    assert not list(tmp_path.glob("shop.duckdb*"))


# --- where the locks are ---------------------------------------------------------------------------------------------


def _place(folder, **given):
    settings = {"writers": frozenset({2}), "waits_seconds": 3600.0, "follows_working_directory": False}
    path = folder / "shop.duckdb.lock"
    return Place(name="shop", folder=folder, lock_path=path, **{**settings, **given})


def _findings(*places):
    found = examine_location(Premises(places=places, elsewhere=(), pools={}), InstanceSettings())
    return [(one.code, one.level.value) for one in found if one.code == "lock-files"]


@pytest.mark.parametrize(
    ("kind", "shared"),
    [(one, None) for one in ("ext4", "tmpfs", "xfs", "overlay", "fuseblk", "fuse.mergerfs", "fuse.ntfs-3g")]
    + [(one, one) for one in ("nfs4", "cifs", "9p", "virtiofs", "vboxsf", "fuse.sshfs", "fuse.encfs-over-s3")],
)
def test_locks_on_shared_file_systems_are_found_out(tmp_path, kind, shared):
    mounts = tmp_path / "mounts"
    at = str(tmp_path / "with space").replace(" ", "\\040")
    mounts.write_text(f"/dev/a / ext4 rw 0 0\nserver:/b {at} {kind} rw 0 0\nnone {at}/other nfs rw 0 0\n")
    assert network_file_system(tmp_path / "with space" / "deep", mounts) == shared
    assert network_file_system(tmp_path / "elsewhere", mounts) is None


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not tell")
def test_this_machine_has_locks_to_rely_on(tmp_path):
    assert _findings(_place(tmp_path)) == [("lock-files", "ok")]


def test_paths_that_are_no_place(tmp_path):
    assert _findings(_place(tmp_path / "missing")) == [("lock-files", "warning")]
    found = _findings(_place(tmp_path, follows_working_directory=True))
    assert found[0] == ("lock-files", "warning")


@pytest.mark.slow
def test_files_and_folders_that_are_closed_to_this_user_are_an_error(tmp_path):
    with tempfile.TemporaryDirectory() as folder, ForkServer(CHILDREN) as others:
        Path(folder).chmod(0o777)
        locked = Path(folder, "shop.duckdb.lock.slots")

        def look(folder):
            outcome = others.call("look_without_rights", folder=str(folder))
            assert outcome.error is None, outcome.trace
            return outcome.value

        assert look(folder) == ["ok"]
        locked.touch()
        locked.chmod(0o644)
        assert look(folder) == ["error"]
        locked.unlink()
        Path(folder).chmod(0o755)
        assert look(folder) == ["error"]
        Path(folder).chmod(0o700)
        assert look(folder) == ["error"]


# --- proving ---------------------------------------------------------------------------------------------------------


def test_nothing_is_proven_without_a_daemon_or_a_bound(doctor, located, tmp_path):
    assert "No daemon" in doctor(*located(), "--prove", "--yes", code=2)
    _rewrite(tmp_path, without="      - key: dagster/backfill\n        limit: 2\n")
    assert "Nothing was launched to prove a bound: there is none." in doctor(*located(), "--prove", "--yes", code=1)


@pytest.fixture
def instance(doctor, tmp_path):
    """The instance, on which a daemon has said that it works, and then works no more."""
    with dg.DagsterInstance.from_config(str(tmp_path / "home")) as found:
        for daemon in ("BACKFILL", "QUEUED_RUN_COORDINATOR"):
            found.add_daemon_heartbeat(DaemonHeartbeat(time.time(), daemon, "test", []))
        yield found


@pytest.mark.slow
def test_a_proof_that_takes_too_long_proves_nothing_and_leaves_nothing_behind(doctor, located, instance):
    said = doctor(*located(), "--prove", "--yes", "--timeout", "1", code=2)
    [backfill] = instance.get_backfills()
    assert instance.get_runs() == []
    assert "Nothing is proven" in said
    assert backfill.status.value == "CANCELING"
    assert backfill.title == "marigold doctor: sentinels that do nothing"


@pytest.mark.slow
@pytest.mark.processes
def test_a_proof_that_is_terminated_leaves_nothing_behind(located, instance, tmp_path):
    program = "from marigold_assets.cli.main import main; main()"
    with subprocess.Popen(
        [sys.executable, "-c", program, "doctor", *located(), "--prove", "--yes"],
        env={**os.environ, "DAGSTER_HOME": str(tmp_path / "home")},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as command:
        try:
            assert next(line for line in command.stderr if "Launched" in line)
            command.send_signal(signal.SIGTERM)
            assert "Ending what was launched." in command.communicate(timeout=30)[1]
        finally:
            command.kill()
    assert command.returncode == 130
    assert [one.status.value for one in instance.get_backfills()] == ["CANCELING"]


@pytest.mark.slow
def test_sentinels_of_somebody_else_are_not_taken_for_ones_own(doctor, located, instance):
    instance.create_run_for_job(
        build_sentinel_job(), status=dg.DagsterRunStatus.STARTED, tags={"dagster/backfill": "x"}
    )
    # What was found is told, though nothing is proven.
    env = {"DAGSTER_HOME": instance.root_directory}
    ran = CliRunner(env=env).invoke(main, ["doctor", *located(), "--prove", "--yes", "--json"])
    found = json.loads(ran.stdout)
    assert (ran.exit_code, found["is_bounded"], found["proof"]) == (2, True, None)
    assert "1 sentinels of another proof have not ended" in found["not_proven"]
    assert "1 sentinels of another proof have not ended" in ran.stderr
    assert instance.get_backfills() == []


@pytest.mark.slow
def test_a_sentinel_ends_soon_after_nobody_watches_it(monkeypatch):
    monkeypatch.setattr(sentinel, "PATIENCE_SECONDS", 1.0)
    monkeypatch.setattr(sentinel, "_POLL_SECONDS", 0.05)
    with tempfile.TemporaryDirectory() as folder, dg.DagsterInstance.local_temp(folder) as instance:

        def watch():
            for number in range(8):
                time.sleep(0.3)
                for run in instance.get_runs():
                    instance.add_run_tags(run.run_id, {WATCHED_TAG: str(number)})

        watcher = threading.Thread(target=watch)
        begun = time.monotonic()
        watcher.start()
        assert build_sentinel_job().execute_in_process(instance=instance, partition_key="01").success
        assert 2.4 < time.monotonic() - begun < 20.0
        watcher.join()


def test_a_sentinel_needs_nothing_of_the_definitions_that_it_stands_in():
    # Were the IO manager set up, it would not find its folder.
    with dg.DagsterInstance.ephemeral() as instance:
        job = dg.Definitions(
            jobs=[build_sentinel_job()], resources={"io_manager": FencedPartitionIOManager(database="/nowhere/x")}
        ).resolve_job_def(DEFAULT_NAME)
        assert job.execute_in_process(instance=instance, partition_key="01", tags={DONE_TAG: "yes"}).success


@pytest.mark.slow
def test_a_code_location_that_does_not_load_is_an_error_beside_what_is_known(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "good.py").write_text("import dagster as dg\ndefs = dg.Definitions()\n", encoding="utf-8")
    (tmp_path / "bad.py").write_text("raise RuntimeError('the till is closed')\n", encoding="utf-8")
    (tmp_path / "w.yaml").write_text("load_from: [python_file: good.py, python_file: bad.py]\n", encoding="utf-8")
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        found = examine(instance, read_settings(instance), LocationOptions(workspace=("w.yaml",)))
    assert ["the till is closed" in one.message for one in found if one.code == "location"] == [True]
    assert all(one.level is Level.ERROR for one in found if one.code == "location")
