"""The file: who holds it, what it is, whether it can be written, and what messages may say about it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from filelock import FileLock

from marigold_assets.errors import ConfigurationError, StoreBusyError, StoreUnavailableError
from marigold_assets.model import Equals, PartitionSlice, TableName
from marigold_assets.stores.base import Query
from marigold_assets.stores.duckdb import DuckDBStore
from marigold_assets.testing.strategies import attempt_of, slice_of, table_of

TABLE = TableName(schema="sales", name="daily")


def first_line(caught):
    return str(caught.value).splitlines()[0]


def test_a_missing_folder_fails_at_once_and_is_named(tmp_path):
    store = DuckDBStore(str(tmp_path / "nowhere" / "market.duckdb"), lock_timeout_seconds=60)
    started = time.monotonic()
    for call in (lambda: store.draw_token("run"), lambda: store.read(TABLE)):
        with pytest.raises(StoreUnavailableError, match="nowhere does not exist") as caught:
            call()
        assert "Remedy: create the folder" in first_line(caught)
        assert not caught.value.retryable
    assert time.monotonic() - started < 5


@pytest.mark.parametrize("kind", ["text file", "folder"])
def test_what_is_no_duckdb_file_is_refused_and_kept(path, duck, kind):
    if kind == "folder":
        path.mkdir()
    else:
        path.write_text("day,amount\n" * 2_000)
    with pytest.raises(StoreUnavailableError, match="is not a DuckDB file"):
        duck.draw_token("run")
    assert kind == "folder" or path.read_text() == "day,amount\n" * 2_000


def test_reading_before_the_first_write_says_what_to_do(duck, path):
    assert duck.columns(TABLE) is None
    assert duck.ledger() == duck.receipts("x") == ()
    with pytest.raises(StoreUnavailableError, match=r"does not exist yet.*materialize"):
        duck.read(TABLE)
    assert not path.exists()


@pytest.mark.parametrize("database", ["", ":memory:", ":memory:x", "md:market", "s3://bucket/x.duckdb", "postgres://x"])
def test_a_database_that_a_file_fence_cannot_protect_is_refused(database):
    with pytest.raises(ConfigurationError, match="database"):
        DuckDBStore(database)


def test_a_busy_queue_is_waited_for_and_its_holder_named(duck, path, draw):
    draw("the holder")
    with FileLock(f"{path}.lock"):
        started = time.monotonic()
        with pytest.raises(StoreBusyError, match=rf"process {os.getpid()} \(run the holder\)"):
            DuckDBStore(str(path), lock_timeout_seconds=0.2).draw_token("x")
        assert 0.2 <= time.monotonic() - started < 5


def test_whoever_waits_says_so_and_for_whom(path, draw, monkeypatch, caplog):
    monkeypatch.setattr("marigold_assets.stores.connection._SILENT_SECONDS", 0.05)
    draw("the holder")
    waiter = DuckDBStore(str(path), lock_timeout_seconds=0.3)
    with FileLock(f"{path}.lock"), pytest.raises(StoreBusyError):
        waiter.draw_token("x")
    [record] = caplog.records
    assert record.getMessage() == (
        f"waiting for database {path}, which is locked by process {os.getpid()} (run the holder), for up to 0 s more"
    )
    caplog.clear()
    code = "import duckdb, sys, time; c = duckdb.connect(sys.argv[1]); print('open', flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE) as other:
        assert other.stdout.readline() == b"open\n"
        with pytest.raises(StoreBusyError, match=f"process {other.pid}"):
            waiter.draw_token("x")
        other.kill()
    [record] = caplog.records
    assert f"locked by process {other.pid}" in record.getMessage()
    caplog.clear()
    waiter.draw_token("x")
    assert caplog.records == []


def test_two_spellings_of_one_path_share_one_queue(duck, path, tmp_path):
    (tmp_path / "link.duckdb").symlink_to(path)
    duck.draw_token("run")
    with FileLock(f"{path}.lock"), pytest.raises(StoreBusyError):
        DuckDBStore(str(tmp_path / "link.duckdb"), lock_timeout_seconds=0.1).draw_token("x")
    assert DuckDBStore(str(tmp_path / "link.duckdb")).draw_token("x") == 2


def test_a_reader_shares_the_file_with_a_reader(duck, path, draw):
    duck.swap([slice_of("a")], table_of([{"key": "a", "value": 1}]), attempt=draw(), swap_id="x")
    with duck.scan(TABLE) as reader, DuckDBStore(str(path), lock_timeout_seconds=0.2).scan(TABLE) as other:
        assert reader.read_all().num_rows == other.read_all().num_rows == 1


def test_a_connection_of_others_in_this_process_is_named(path, duck, draw):
    draw()
    refused = pytest.raises(StoreBusyError, match="open in this very process, by a connection or an ATTACH")
    with duckdb.connect(str(path), config={"threads": 1}), refused:
        DuckDBStore(str(path), lock_timeout_seconds=0.2).draw_token("x")


@pytest.fixture
def public_folder():
    """A folder that every user can enter; pytest keeps its own to one user."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.mark.parametrize("folder_too", [True, False], ids=["file and folder", "file"])
def test_a_read_only_file_is_read_and_not_written(processes, public_folder, folder_too):
    folder = public_folder
    path = folder / "market.duckdb"
    store = DuckDBStore(str(path))
    attempt_token = store.draw_token("run")
    store.swap(
        [slice_of("a")], table_of([{"key": "a", "value": 1}]), attempt=attempt_of("run", attempt_token), swap_id="x"
    )
    for each in folder.iterdir():
        each.chmod(0o444)
    folder.chmod(0o555 if folder_too else 0o777)
    try:
        child = processes.call("read_then_write_without_rights", path=str(path))
    finally:
        folder.chmod(0o755)
    assert child.error is None, child.trace
    rows, kind, message = child.value
    assert (rows, kind) == (1, "StoreUnavailableError")
    assert "is read-only for this process" in message
    assert str(path) in message
    assert store.ledger()[0].row_count == 1


@pytest.mark.parametrize("case", ["folder closed", "folder above closed", "file closed", "name too long", "loop"])
def test_a_file_that_cannot_be_looked_at_is_told_without_its_secret_path(processes, public_folder, case):
    path = public_folder / "s3cret" / "deep" / "s3cret.duckdb"
    path.parent.mkdir(parents=True)
    closed = {"folder closed": path.parent, "folder above closed": path.parent.parent, "file closed": path}.get(case)
    if case == "name too long":
        path = path.with_name("s3cret" * 100)
    elif case == "loop":
        path.symlink_to(path)
    else:
        path.touch()
    if closed is not None:
        closed.chmod(0o000)
    try:
        child = processes.call("ask_without_rights", path=str(path))
    finally:
        if closed is not None:
            closed.chmod(0o755)
    assert child.error is None, child.trace
    assert len(child.value) == 7
    for message in child.value:
        assert message.startswith("Database $MARIGOLD_TEST_DATABASE cannot be opened: ")
        assert "s3cret" not in message


def test_a_home_of_nobody_is_refused():
    with pytest.raises(ConfigurationError, match="a user whom this machine does not know"):
        DuckDBStore("~no_such_user_here/x.duckdb")


def test_a_full_disk_changes_nothing_and_says_so(processes, duck, path, draw):
    small = pa.table({"key": ["a"], "value": ["x"]})
    duck.swap([slice_of("a")], small, attempt=draw(), swap_id="small")
    kind, message = processes.call("swap_on_a_full_disk", path=str(path)).value
    assert kind == "StoreUnavailableError"
    assert "the disk is full" in message
    assert "partition 'a'" in message
    assert duck.read(TABLE).to_pylist() == [{"key": "a", "value": "x"}]
    assert [entry.swap_id for entry in duck.ledger()] == ["small"]
    duck.swap([slice_of("a")], small, attempt=draw("next"), swap_id="next")


def test_a_path_from_the_environment_is_in_no_message(tmp_path, monkeypatch, path):
    secret = tmp_path / "s3cret-customer" / "hidden.duckdb"
    monkeypatch.setenv("MARIGOLD_TEST_DATABASE", str(secret))
    store = DuckDBStore(str(secret), lock_timeout_seconds=0.1)
    messages = []

    def collect(call, kind):
        with pytest.raises(kind) as caught:
            call()
        messages.append(str(caught.value))
        assert caught.value.__cause__ is None
        assert caught.value.__context__ is None or caught.value.__suppress_context__

    collect(lambda: store.draw_token("x"), StoreUnavailableError)
    secret.parent.mkdir()
    secret.write_text("no database" * 1_000)
    collect(lambda: store.draw_token("x"), StoreUnavailableError)
    secret.unlink()
    collect(lambda: store.read(TABLE), StoreUnavailableError)
    store.draw_token("x")
    with FileLock(f"{secret}.lock"):
        collect(lambda: store.draw_token("x"), StoreBusyError)
    with duckdb.connect(str(secret), config={"threads": 1}):
        collect(lambda: store.draw_token("x"), StoreBusyError)
    for message in messages:
        assert "$MARIGOLD_TEST_DATABASE" in message
        assert "s3cret" not in message
        assert "hidden" not in message


@pytest.mark.parametrize("name", ["no_such_token", "custom_user_agent_key"])
def test_a_secret_setting_is_in_no_message(path, name):
    with pytest.raises(ConfigurationError) as caught:
        DuckDBStore(str(path), config={name: "hunter2hunter2", "threads": "hunter2hunter2"}).draw_token("x")
    assert "hunter2" not in str(caught.value)
    assert "'connection_config'" in first_line(caught)


def test_no_error_leaves_the_file_open(processes, path, duck, draw):
    """Whoever comes next, from another process, finds it free."""
    attempt = draw()
    with pytest.raises(Exception, match="outside"):
        duck.swap([slice_of("a")], table_of([{"key": "b", "value": 1}]), attempt=attempt, swap_id="x")
    assert processes.call("last_token", path=str(path)).value == attempt.token


@pytest.mark.parametrize(("file", "schema"), [("market", "market"), ("Market", "market"), ("marigold", "market")])
def test_a_file_may_be_called_like_a_schema(tmp_path, file, schema):
    """DuckDB names a database after its file, and cannot tell market.t from the t of database market."""
    store = DuckDBStore(str(tmp_path / f"{file}.duckdb"))
    table = TableName(schema=schema, name="daily")
    days = [
        PartitionSlice(table=table, partition_key=key, conditions=(Equals(expression="key", value=key),), owner="daily")
        for key in ("a", "b")
    ]
    attempt = attempt_of("run", store.draw_token("run"))
    both = table_of([{"key": "a", "value": 1}, {"key": "b", "value": 2}])
    receipts = store.swap(days, both, attempt=attempt, swap_id="both")
    copied = store.swap(days[:1], Query(sql=store.query(table, days[:1])), attempt=attempt, swap_id="copy")
    assert [receipt.entry.row_count for receipt in (*receipts, *copied)] == [1, 1, 1]
    assert store.read(table).sort_by("key").to_pylist() == both.to_pylist()
    with duckdb.connect(str(tmp_path / f"{file}.duckdb")) as connection:
        assert connection.sql(receipts[1].query).fetchall() == [("b", 2)]
