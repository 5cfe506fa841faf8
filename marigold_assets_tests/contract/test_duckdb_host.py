"""One process that opens a file again and again, beside others and beside what its user does with the file."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
import threading

import duckdb
import pytest

from marigold_assets.errors import MarigoldError, StoreBusyError
from marigold_assets.model import Attempt, TableName
from marigold_assets.stores.duckdb import DuckDBStore
from marigold_assets.stores.host import Host, OpenedByOthersError, OpenedOtherwiseError
from marigold_assets.testing.strategies import slice_of, table_of

CONFIG = {"custom_user_agent": "dagster"}
OPEN = "import duckdb, sys; duckdb.connect(sys.argv[1]).execute('SELECT 1')"
pytestmark = pytest.mark.slow


def fill(store, value=1):
    attempt = Attempt(run_id=f"run {value}", token=store.draw_token(f"run {value}"))
    store.swap([slice_of("a")], table_of([{"key": "a", "value": value}]), attempt=attempt, swap_id=f"{value}")


def value_of(store):
    return store.read(slice_of("a").table, [slice_of("a")])["value"].to_pylist()


def opens_elsewhere(path):
    return subprocess.run([sys.executable, "-c", OPEN, str(path)], check=False, capture_output=True).returncode == 0


def test_a_file_is_locked_while_it_is_attached_and_free_afterwards(path):
    DuckDBStore(str(path)).draw_token("run")
    opened = Host.of(path).attach(path, CONFIG, read_only=False)
    assert opened is not None
    assert not opens_elsewhere(path)
    opened.close()
    assert opens_elsewhere(path)


def test_a_connection_given_to_a_user_is_shared_and_keeps_its_lock(path):
    store = DuckDBStore(str(path))
    fill(store)
    with store.connector.share() as given, duckdb.connect(str(path), config=CONFIG) as users:
        assert Host.of(path).attach(path, CONFIG, read_only=True) is None
        fill(store, 2)
        for connection in (given, users):
            assert connection.execute("SELECT value FROM sales.daily").fetchall() == [(2,)]
        assert value_of(store) == [2]
        assert not opens_elsewhere(path)
    assert opens_elsewhere(path)


def attached(path):
    connection = duckdb.connect()
    connection.execute(f"ATTACH '{path}'")
    return connection


def connected(path):
    return duckdb.connect(str(path), config=CONFIG)


@pytest.mark.slow
@pytest.mark.parametrize("open_", [attached, connected])
@pytest.mark.parametrize("use", [fill, value_of, lambda store: store.connector.share().__enter__()])
def test_what_others_have_open_in_this_process_keeps_its_lock(path, open_, use):
    """To open it a second time would let other processes in, beside a connection that believes itself alone."""
    store = DuckDBStore(str(path), lock_timeout_seconds=0.1)
    fill(store, 1)
    with open_(path):
        assert not opens_elsewhere(path)
        with pytest.raises(StoreBusyError, match="by a connection or an ATTACH of its own"):
            use(store)
        assert not opens_elsewhere(path)
    assert opens_elsewhere(path)
    fill(store, 2)
    assert value_of(store) == [2]


class Interrupting:
    """A connection under which an interrupt comes right after a statement."""

    def __init__(self, connection, word):
        self._connection, self._word = connection, word

    def execute(self, statement, *more):
        result = self._connection.execute(statement, *more)
        if statement.startswith(self._word):
            raise KeyboardInterrupt
        return result

    def __getattr__(self, name):
        return getattr(self._connection, name)


@pytest.mark.parametrize("word", ["ATTACH", "SELECT database_name", "DETACH"])
def test_an_interrupt_leaves_nothing_open(path, word):
    store = DuckDBStore(str(path))
    fill(store)
    host = Host.of(path)
    host._instance = Interrupting(host._instance, word)
    with pytest.raises(KeyboardInterrupt):
        value_of(store)
    assert not host.is_open
    assert opens_elsewhere(path)
    fill(store, 2)
    assert value_of(store) == [2]


def test_a_connection_that_nobody_closed_is_closed_with_its_last_name(path):
    DuckDBStore(str(path)).draw_token("run")
    host = Host.of(path)
    for open_ in (host.attach, host.connect):
        opened = open_(path, CONFIG, read_only=False)
        assert host.is_open
        assert opened is not None
        del opened
        assert not host.is_open
    assert opens_elsewhere(path)


@pytest.mark.slow
def test_a_forked_process_does_not_share_the_lock_of_an_open_file(path):
    code = """if True:
        import os, sys
        from marigold_assets.errors import StoreUnavailableError
        from marigold_assets.stores.duckdb import DuckDBStore
        store = DuckDBStore(sys.argv[1])
        with store.connector.share():
            if os.fork() == 0:
                try:
                    store.draw_token("child")
                except StoreUnavailableError as error:
                    os._exit(0 if "forked off" in str(error) else 2)
                os._exit(1)
            sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))
    """
    assert subprocess.run([sys.executable, "-c", code, str(path)], check=False, timeout=60).returncode == 0


@pytest.mark.parametrize("schema", ["memory", "temp", "system", "main"])
def test_a_schema_may_be_called_like_a_database_of_duckdb_itself(path, schema):
    table = TableName(schema=schema, name="daily")
    store = DuckDBStore(str(path))
    for value in (1, 2):
        attempt = Attempt(run_id=f"{value}", token=store.draw_token(f"{value}"))
        rows = table_of([{"key": "a", "value": value}])
        store.swap([slice_of("a", table=table)], rows, attempt=attempt, swap_id=f"{value}")
    assert store.read(table)["value"].to_pylist() == [2]


def test_what_is_attached_is_not_opened_a_second_time(path):
    """Or the process would lose its lock."""
    DuckDBStore(str(path)).draw_token("run")
    host = Host.of(path)
    reader = host.attach(path, CONFIG, read_only=True)
    for settings, read_only in ((CONFIG, False), ({"threads": 1}, True)):
        with pytest.raises(OpenedOtherwiseError):
            host.attach(path, settings, read_only=read_only)
    with pytest.raises(OpenedOtherwiseError):
        host.connect(path, CONFIG, read_only=True)
    second = host.attach(path, CONFIG, read_only=True)
    reader.close()
    assert not opens_elsewhere(path)
    second.close()
    assert opens_elsewhere(path)


def test_threads_that_read_and_write_wait_for_each_other(path):
    store, failures = DuckDBStore(str(path)), []
    fill(store)

    def work(number):
        try:
            for turn in range(5):
                if number % 2:
                    assert len(value_of(store)) == 1
                else:
                    store.draw_token(f"{number} {turn}")
        except MarigoldError as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=[number]) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert opens_elsewhere(path)


@pytest.mark.slow
@pytest.mark.parametrize("stem", ["memory", "temp", "system", "main", "marigold", "sales", "a b.c", "it's"])
def test_a_file_may_have_any_name(tmp_path, stem):
    store = DuckDBStore(str(tmp_path / f"{stem}.duckdb"))
    for value in (1, 2):
        fill(store, value)
    assert value_of(store) == [2]
    assert [entry.token for entry in store.ledger()] == [1, 2]


def test_a_schema_that_a_user_made_for_the_fence_is_taken(tmp_path):
    path = tmp_path / "marigold.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE SCHEMA marigold.marigold")
        connection.execute("CREATE SCHEMA marigold.sales")
    store = DuckDBStore(str(path))
    for value in (1, 2):
        fill(store, value)
    assert value_of(store) == [2]


@pytest.mark.parametrize(
    "config",
    [{"enable_external_access": "false"}, {"wal_autocheckpoint": "1MB"}, {"threads": 1, "memory_limit": "1GB"}],
)
def test_settings_hold_whatever_they_forbid(path, config):
    store = DuckDBStore(str(path), config=config)
    for value in (1, 2):
        fill(store, value)
    assert value_of(store) == [2]


def test_what_does_not_fit_into_memory_goes_beside_the_file(path):
    DuckDBStore(str(path)).draw_token("run")
    opened = Host.of(path).attach(path, {"memory_limit": "123MB"}, read_only=True)
    settings = "SELECT current_setting('temp_directory'), current_setting('memory_limit')"
    assert opened.connection.execute(settings).fetchall() == [(f"{path}.tmp", "117.3 MiB")]
    opened.close()


def test_names_and_views_of_the_file_mean_what_they_mean_to_its_user(path):
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE plain AS SELECT 7 AS a; CREATE VIEW seen AS SELECT * FROM plain")
        wanted = "SELECT current_database(), current_schema(), (SELECT a FROM seen), (SELECT a FROM market.main.plain)"
        theirs = connection.execute(wanted).fetchall()
    opened = Host.of(path).attach(path, CONFIG, read_only=False)
    assert opened.connection.execute(wanted).fetchall() == theirs == [("market", "main", 7, 7)]
    opened.close()


def test_a_file_that_was_none_can_be_opened_once_it_is_one(path):
    path.write_bytes(b"not a database" * 1000)
    store = DuckDBStore(str(path))
    with pytest.raises(MarigoldError, match="not a DuckDB file"):
        store.draw_token("run")
    path.unlink()
    fill(store)
    assert value_of(store) == [1]


@pytest.mark.slow
def test_only_some_instances_are_kept(tmp_path):
    """Each has threads and memory of its own, and a process may see a thousand files."""
    stores = [DuckDBStore(str(tmp_path / f"{number}.duckdb")) for number in range(12)]
    for store in stores:
        store.draw_token("first")
    running = [Host.of(store.connector.path)._instance is not None for store in stores]
    assert running == [False] * 8 + [True] * 4
    assert [store.draw_token("second") for store in stores] == [2] * 12


def test_settings_are_those_of_whoever_opens(path):
    for threads in (1, 2, 1):
        opened = Host.of(path).attach(path, {"threads": threads}, read_only=False)
        assert opened.connection.execute("SELECT current_setting('threads')").fetchall() == [(threads,)]
        opened.close()
    with duckdb.connect(str(path), config=CONFIG), pytest.raises(OpenedByOthersError):
        Host.of(path).attach(path, {"threads": 2}, read_only=False)
    opened = Host.of(path).attach(path, {"threads": 1}, read_only=True)
    assert opened.connection.execute("SELECT current_setting('threads')").fetchall() == [(1,)]
    opened.close()


def test_a_file_that_another_process_holds_is_waited_for_without_starting_instances(path):
    DuckDBStore(str(path)).draw_token("run")
    host = Host.of(path)
    before = host._instance
    code = "import duckdb, sys, time; c = duckdb.connect(sys.argv[1]); print('open', flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE) as other:
        assert other.stdout.readline() == b"open\n"
        for _ in range(3):
            with pytest.raises(duckdb.IOException, match="lock"):
                host.attach(path, CONFIG, read_only=True)
        other.kill()
    assert host._instance is before
    DuckDBStore(str(path)).draw_token("run")


def test_a_link_that_is_turned_leads_to_its_new_file_and_the_old_one_stays_itself(tmp_path):
    first, second, link = (tmp_path / name for name in ("v1.duckdb", "v2.duckdb", "current.duckdb"))
    link.symlink_to(first)
    fill(DuckDBStore(str(link)), 1)
    link.unlink()
    link.symlink_to(second)
    fill(DuckDBStore(str(link)), 2)
    assert value_of(DuckDBStore(str(first))) == [1]
    assert value_of(DuckDBStore(str(second))) == [2]
    fill(DuckDBStore(str(first)), 3)
    assert value_of(DuckDBStore(str(link))) == [2]


def test_a_reader_that_is_kept_does_not_keep_the_file(path):
    store = DuckDBStore(str(path))
    fill(store)
    with store.scan(slice_of("a").table) as kept:
        pass
    assert opens_elsewhere(path)
    fill(store, 2)
    del kept


def test_owners_differ_by_letter_whatever_the_default_collation(path):
    store = DuckDBStore(str(path), config={"default_collation": "NOCASE"})
    for number, owner in enumerate(("o", "O")):
        attempt = Attempt(run_id=f"{number}", token=store.draw_token(f"{number}"))
        rows = table_of([{"key": "a", "value": number}])
        if number:
            with pytest.raises(MarigoldError, match="belongs to"):
                store.swap([slice_of("a", owner=owner)], rows, attempt=attempt, swap_id=owner)
        else:
            store.swap([slice_of("a", owner=owner)], rows, attempt=attempt, swap_id=owner)


def test_an_instance_that_broke_is_replaced(path):
    store = DuckDBStore(str(path))
    fill(store)
    host = Host.of(path)
    host._instance.close()
    with pytest.raises(MarigoldError):
        fill(store, 2)
    fill(store, 3)
    assert value_of(store) == [3]


def _in_child(path, results):
    store = DuckDBStore(path)
    fill(store, 2)
    results.put(value_of(store))


def test_a_forked_process_opens_the_file_by_itself_and_ends(path):
    store = DuckDBStore(str(path))
    fill(store)
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    child = context.Process(target=_in_child, args=[str(path), results])
    child.start()
    assert results.get(timeout=30) == [2]
    child.join(timeout=30)
    assert child.exitcode == 0
    assert value_of(store) == [2]


@pytest.mark.slow
def test_a_forked_process_that_ends_like_any_other_does_not_hang(path):
    """Its interpreter tidies up, and the threads of the instance are not there to be waited for."""
    code = """if True:
        import os, sys
        from marigold_assets.stores.duckdb import DuckDBStore
        store = DuckDBStore(sys.argv[1])
        store.draw_token("parent")
        child = os.fork()
        store.draw_token("either")
        if child == 0:
            sys.exit(0)
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """
    done = subprocess.run([sys.executable, "-c", code, str(path)], check=False, timeout=60)
    assert done.returncode == 0
    assert DuckDBStore(str(path)).draw_token("next") == 4
