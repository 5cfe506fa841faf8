"""Paths, secrets, locks and other programs: what surrounds the database."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from pathlib import Path

import dagster as dg
import duckdb
import pandas as pd
import pytest

from marigold_assets import FencedPartitionIOManager, FencedPartitionResource

DAYS = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-02-01")
pytestmark = pytest.mark.slow
D1, D2 = "2024-01-01", "2024-01-02"


@dg.asset(key=["s", "t"], partitions_def=DAYS, metadata={"partition_expr": "d"})
def days(context):
    return pd.DataFrame({"d": [pd.Timestamp(context.partition_key)], "v": [1]})


@dg.asset(key=["s", "broken"], partitions_def=DAYS, metadata={"partition_expr": "no_such_column"})
def broken(context):
    return pd.DataFrame({"d": [pd.Timestamp(context.partition_key)], "v": [1]})


def run(assets, database, *, instance, key=D1, **options):
    return dg.materialize(
        assets,
        partition_key=key,
        instance=instance,
        resources={"io_manager": FencedPartitionIOManager(database=database, **options)},
        raise_on_error=False,
    )


def everything_logged(instance):
    """The whole event log with all messages, tags and metadata, as text."""
    return "\n".join(repr(entry) for run in instance.get_runs() for entry in instance.all_logs(run.run_id))


@pytest.mark.parametrize("resource", [FencedPartitionIOManager, FencedPartitionResource])
def test_a_relative_path_is_one_file_for_a_process_and_says_which(tmp_path, monkeypatch, resource):
    (tmp_path / "data").mkdir()
    monkeypatch.chdir(tmp_path)

    @dg.asset(required_resource_keys={"warehouse"})
    def nothing(context) -> None: ...

    with dg.DagsterInstance.ephemeral() as instance:
        dg.materialize([nothing], instance=instance, resources={"warehouse": resource(database="data/x.duckdb")})
        found = everything_logged(instance)
    assert f"here it is {tmp_path / 'data' / 'x.duckdb'}" in found
    assert (tmp_path / "data" / "x.duckdb").exists()


def test_a_relative_path_in_another_working_directory_is_never_silently_a_second_file(tmp_path, monkeypatch):
    (tmp_path / "data").mkdir()
    (tmp_path / "elsewhere").mkdir()
    with dg.DagsterInstance.ephemeral() as instance:
        monkeypatch.chdir(tmp_path)
        assert run([days], "data/x.duckdb", instance=instance).success
        monkeypatch.chdir(tmp_path / "elsewhere")
        assert not run([days], "data/x.duckdb", instance=instance).success  # there is no such folder
        assert run([days], "x.duckdb", instance=instance).success
        assert str(tmp_path / "elsewhere" / "x.duckdb") in everything_logged(instance)


def test_an_absolute_path_and_one_from_home_need_no_warning(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    for database in (str(tmp_path / "a.duckdb"), "~/b.duckdb", f"file://{tmp_path}/c.duckdb"):
        with dg.DagsterInstance.ephemeral() as instance:
            assert run([days], database, instance=instance).success
            assert "relative path" not in everything_logged(instance)
    assert {path.name for path in tmp_path.glob("*.duckdb")} == {"a.duckdb", "b.duckdb", "c.duckdb"}


@pytest.mark.parametrize("relative", [False, True])
def test_a_database_named_by_an_environment_variable_is_shown_nowhere(tmp_path, monkeypatch, caplog, capfd, relative):
    caplog.set_level(logging.DEBUG)
    folder = tmp_path / "SECRET123-folder"
    folder.mkdir()
    monkeypatch.chdir(tmp_path)
    path = "SECRET123-folder/x.duckdb" if relative else str(folder / "SECRET123.duckdb")
    monkeypatch.setenv("DB", path)
    database = dg.EnvVar("DB")
    with dg.DagsterInstance.ephemeral() as instance:
        assert run([days], database, instance=instance).success
        assert not run([broken], database, instance=instance).success
        Path(path).rename(tmp_path / "away")
        Path(path).mkdir()  # no database, but a folder
        assert not run([days], database, instance=instance).success
        Path(path).rmdir()
        Path(path).write_text("no database either, but long enough to be read as one " * 100)
        assert not run([days], database, instance=instance).success
        found = everything_logged(instance)
    written = capfd.readouterr()
    for text in (found, caplog.text, written.out, written.err):
        assert "SECRET123" not in text
    assert "$DB" in found


def test_a_secret_setting_of_the_connection_is_shown_nowhere(tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("WORD", "SECRET123")
    config = {"custom_user_agent": "shop", "no_such_setting_password": dg.EnvVar("WORD")}
    with dg.DagsterInstance.ephemeral() as instance:
        result = run([days], str(tmp_path / "x.duckdb"), instance=instance, connection_config=config)
        assert not result.success
        assert "SECRET123" not in everything_logged(instance)
    written = capfd.readouterr()
    assert "SECRET123" not in written.out + written.err


def test_a_remote_database_is_refused_without_showing_its_token(monkeypatch):
    monkeypatch.setenv("DB", "md:sales?motherduck_token=SECRET123")
    with dg.DagsterInstance.ephemeral() as instance:
        assert not run([days], dg.EnvVar("DB"), instance=instance).success
        assert not run([days], "md:sales?motherduck_token=SECRET123", instance=instance).success
        found = everything_logged(instance)
    assert "remote database" in found
    # Dagster itself logs no configuration; what is written in the code is not a secret of the environment.
    assert "SECRET123" not in found


HOLD = """
import sys, duckdb
connection = duckdb.connect(sys.argv[1], read_only=sys.argv[2] == "read")
print("held", flush=True)
sys.stdin.readline()
"""


class Holder:
    """Another program that has the database open until told to let go."""

    def __init__(self, path, mode="write"):
        self.process = subprocess.Popen(
            [sys.executable, "-c", HOLD, str(path), mode], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout.readline() == "held\n"

    @property
    def pid(self):
        return self.process.pid

    def let_go(self):
        self.process.communicate("\n")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.let_go()


@pytest.mark.parametrize("mode", ["write", "read"])
def test_a_database_that_another_program_holds_is_refused_in_the_configured_time_by_its_name(warehouse, mode):
    warehouse.materialize(days, key=D1)
    with Holder(warehouse.path, mode) as holder:
        result = run([days], warehouse.path, instance=warehouse.instance, key=D2, lock_timeout_seconds=0.3)
        assert not result.success
        errors = everything_logged(warehouse.instance)
    assert str(holder.pid) in errors
    assert "asset 's/t', partition '2024-01-02'" in errors
    assert "for 0.3 s" in errors
    assert warehouse.rows("SELECT count(*) FROM s.t") == [(1,)]
    assert len(warehouse.events(["s", "t"])) == 1


def test_a_database_that_is_taken_while_a_step_computes_is_refused_with_asset_partition_and_table(warehouse):
    holders = []

    @dg.asset(key=["s", "t"], partitions_def=DAYS, metadata={"partition_expr": "d"})
    def t(context):
        holders.append(Holder(warehouse.path))
        return pd.DataFrame({"d": [pd.Timestamp(context.partition_key)]})

    manager = warehouse.io_manager(lock_timeout_seconds=0.3)
    result = warehouse.materialize(t, key=D1, resources={"io_manager": manager}, raise_on_error=False)
    [holder] = holders
    with holder:
        assert not result.success
        [event] = result.get_step_failure_events()
        message = event.step_failure_data.error.to_string()
    assert "asset 's/t', partition '2024-01-01', table 's.t'" in message
    assert f"process {holder.pid}" in message
    assert "lock_timeout_seconds" in message


def test_a_run_waits_for_a_program_that_lets_go(warehouse):
    warehouse.materialize(days, key=D1)
    holder = Holder(warehouse.path)
    waiter = threading.Timer(0.5, holder.let_go)
    waiter.start()
    try:
        assert run([days], warehouse.path, instance=warehouse.instance, key=D2, lock_timeout_seconds=60).success
    finally:
        waiter.join()
    assert warehouse.rows("SELECT count(*) FROM s.t") == [(2,)]


POLL = """
import sys, duckdb
from marigold_assets.stores.duckdb import DuckDBStore
from marigold_assets.model import TableName
seen = set()
print("polling", flush=True)
store = DuckDBStore(sys.argv[1])
while True:
    table = store.read(TableName(schema="s", name="t"), columns=["v"])
    values = table.column("v").to_pylist()
    seen.add((len(values), len(set(values))))
    import os
    if os.path.exists(sys.argv[2]):
        break
print(sorted(seen))
"""


@pytest.mark.processes
def test_a_reader_that_polls_sees_only_whole_partitions_and_stops_nobody(warehouse, tmp_path):
    value = [0]

    @dg.asset(key=["s", "t"], partitions_def=DAYS, metadata={"partition_expr": "d"})
    def t(context):
        value[0] += 1
        return pd.DataFrame({"d": [pd.Timestamp(context.partition_key)] * 1_000, "v": value[0]})

    warehouse.materialize(t, key=D1)
    stop = tmp_path / "stop"
    poller = subprocess.Popen(
        [sys.executable, "-c", POLL, warehouse.path, str(stop)], stdout=subprocess.PIPE, text=True, env=os.environ
    )
    try:
        assert poller.stdout.readline() == "polling\n"
        for _ in range(20):
            assert warehouse.materialize(t, key=D1).success
    finally:
        stop.touch()
        out, _ = poller.communicate(timeout=60)
    assert out.strip() == "[(1000, 1)]"


def test_no_connection_stays_open_after_a_step(warehouse):
    open_after = []

    @dg.asset(deps=[days], partitions_def=DAYS)
    def other(context) -> None:
        outcome = subprocess.run(
            [sys.executable, "-c", "import sys, duckdb; duckdb.connect(sys.argv[1]).close()", warehouse.path],
            capture_output=True,
            text=True,
            check=False,
        )
        open_after.append(outcome.stderr)

    assert warehouse.materialize(days, other, key=D1).success
    assert open_after == [""]


def test_settings_of_the_connection_reach_duckdb(warehouse):
    @dg.asset(key=["s", "settings"])
    def settings():
        return "SELECT current_setting('threads') AS threads, current_setting('custom_user_agent') AS agent"

    manager = warehouse.io_manager(connection_config={"threads": "1"})
    warehouse.materialize(settings, resources={"io_manager": manager})
    assert warehouse.rows("SELECT threads, agent FROM s.settings") == [(1, "dagster")]


def test_settings_can_come_from_the_environment_and_from_run_configuration(tmp_path, monkeypatch):
    monkeypatch.setenv("DB", str(tmp_path / "x.duckdb"))
    monkeypatch.setenv("SCHEMA", "from_env")

    @dg.asset
    def t():
        return pd.DataFrame({"v": [1]})

    manager = FencedPartitionIOManager.configure_at_launch()
    with dg.DagsterInstance.ephemeral() as instance:
        config = {"database": {"env": "DB"}, "schema": {"env": "SCHEMA"}, "lock_timeout_seconds": 5.5}
        result = dg.materialize(
            [t],
            instance=instance,
            resources={"io_manager": manager},
            run_config={"resources": {"io_manager": {"config": config}}},
        )
        assert result.success
        assert str(tmp_path) not in everything_logged(instance)
    with duckdb.connect(str(tmp_path / "x.duckdb")) as connection:
        assert connection.execute("SELECT v FROM from_env.t").fetchall() == [(1,)]


@pytest.mark.parametrize("database", ["", ":memory:", ":memory:name"])
def test_a_database_that_keeps_nothing_is_refused(database):
    with dg.DagsterInstance.ephemeral() as instance:
        assert not run([days], database, instance=instance).success
        assert "'database'" in everything_logged(instance)


# Root is refused nothing; whoever is not root, as on most machines, is tested.
@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everything")
def test_a_read_only_file_is_refused_with_the_remedy(warehouse):
    warehouse.materialize(days, key=D1)
    Path(warehouse.path).chmod(0o444)
    result = run([days], warehouse.path, instance=warehouse.instance, key=D2)
    assert not result.success
    assert "write access" in everything_logged(warehouse.instance)
