"""How many write to a database at once: the bound, the order, what a crash gives back, and who is not bounded."""

# No `from __future__ import annotations` here: Dagster compares the annotation of `context` with its classes.

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from contextlib import suppress
from pathlib import Path
from statistics import median

import dagster as dg
import pandas as pd
import pytest
from dagster._core.storage.tags import TAGS_TO_MAYBE_OMIT_ON_RETRY

from marigold_assets import FencedPartitionIOManager, FencedPartitionResource, StoreBusyError, StoreUnavailableError
from marigold_assets.admitting import is_production
from marigold_assets.stores.admission import admit
from marigold_assets.stores.connection import Connector
from marigold_assets.testing import ForkServer

pytestmark = pytest.mark.slow  # processes wait for each other

CHILDREN = Path(__file__).with_name("admission_children.py")
DAYS = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-01-05")
RANGE = {"dagster/asset_partition_range_start": "2024-01-01", "dagster/asset_partition_range_end": "2024-01-03"}


@pytest.fixture(scope="module")
def others():
    """Runs functions in processes of their own."""
    with ForkServer(CHILDREN) as server:
        yield server


@pytest.fixture
def database(tmp_path):
    return str(tmp_path / "market.duckdb")


@pytest.fixture
def take(database):
    """Takes slots in this process, and gives them back when the test is over."""
    taken, told = [], []

    def take(slots=1, timeout_seconds=5.0, owner="run a", path=database):
        lease = admit(Connector(path), slots=slots, timeout_seconds=timeout_seconds, owner=owner, say=told.append)
        taken.append(lease)
        return lease

    take.told = told
    yield take
    for lease in taken:
        lease.release()


@pytest.fixture
def sitting(others, database, tmp_path):
    """A process that has the only slot; gives its pid."""

    def sit(*, forks=False, slots=1):
        told = tmp_path / "told"
        given = {"database": database, "told": str(told), "forks": forks, "slots": slots}
        caller = threading.Thread(target=others.call, args=("sit",), kwargs=given)
        caller.start()
        deadline = time.monotonic() + 10
        while not told.exists() or not told.read_text():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        pid, fork = map(int, told.read_text().split())
        pids.extend(one for one in (pid, fork) if one)
        callers.append(caller)
        return pid

    pids, callers = [], []
    yield sit
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    for caller in callers:
        caller.join()


@pytest.mark.processes
def test_eight_processes_are_never_more_than_the_slots(others, database, tmp_path):
    log, slots = tmp_path / "log", 3
    calls = [("come_and_go", {"database": database, "log": str(log), "slots": slots, "rounds": 8, "seconds": 0.004})]
    assert {outcome.error for outcome in others.call_together(calls * 8)} == {None}
    inside, most, together = 0, 0, set()
    for line in log.read_text().splitlines():
        word, pid = line.split()
        inside += 1 if word == "in" else -1
        together.add(pid)
        most = max(most, inside)
    assert len(together) == 8
    assert most == slots


@pytest.mark.processes
def test_whoever_comes_first_is_admitted_first(others, database, tmp_path):
    log = tmp_path / "log"
    # The first stays until all others have come.
    stays = [(0.0, 0.9), (0.15, 0.06), (0.3, 0.0), (0.45, 0.06), (0.6, 0.0)]
    given = {"database": database, "log": str(log), "begin": time.time() + 0.5}  # by when all of them have started
    calls = [("come_later", {**given, "after_seconds": after, "stays_seconds": seconds}) for after, seconds in stays]
    others.call_together([calls[number] for number in (3, 1, 4, 0, 2)])
    assert [float(line.split()[1]) for line in log.read_text().splitlines()] == [after for after, _ in stays]


@pytest.mark.processes
@pytest.mark.parametrize("forks", [False, True], ids=["alone", "with a fork that lives on"])
def test_a_process_that_is_killed_gives_its_slot_back_at_once(database, sitting, take, forks):
    pid = sitting(forks=forks)
    with pytest.raises(StoreBusyError):
        take(timeout_seconds=0.0)
    os.kill(pid, signal.SIGKILL)
    begun = time.monotonic()
    take(timeout_seconds=30.0)
    assert time.monotonic() - begun < 2.0


@pytest.mark.processes
def test_who_waits_is_told_once_who_is_in_and_in_the_end_what_to_do(sitting, take, database):
    pid = sitting()
    with pytest.raises(StoreBusyError) as caught:
        take(timeout_seconds=1.2)
    [told] = take.told
    assert f"process {pid} (run 4711)" in told
    assert database in told
    assert "at most 1 run of a backfill may write" in told
    line = str(caught.value).splitlines()[0]
    assert f"process {pid} (run 4711)" in line
    assert "for 1.2 s" in line
    assert "'max_backfill_writers'" in line
    assert "'admission_timeout_seconds'" in line
    assert caught.value.retryable


@pytest.mark.processes
def test_two_that_need_two_databases_in_other_orders_do_not_wait_for_each_other(others, tmp_path):
    one, two = str(tmp_path / "a.duckdb"), str(tmp_path / "b.duckdb")
    calls = [("need_two", {"first": one, "second": two, "rounds": 8})]
    calls += [("need_two", {"first": two, "second": one, "rounds": 8})]
    begun = time.monotonic()
    assert {outcome.error for outcome in others.call_together(calls)} == {None}
    assert time.monotonic() - begun < 20.0


def test_a_process_needs_one_slot_however_much_it_does(others, database, take):
    first, second = take(owner="run a"), take(owner="run b")
    again = take(owner="run a")
    for lease in (first, again):
        lease.release()
        lease.release()
        assert others.call("try_slot", database=database).value
    second.release()
    assert others.call("try_slot", database=database).value == ""


@pytest.mark.processes
def test_the_smallest_number_of_those_who_are_in_counts_for_whoever_comes(sitting, take):
    sitting()  # allows one
    with pytest.raises(StoreBusyError, match="At most 1 run of a backfill"):
        take(slots=4, timeout_seconds=0.0)


def test_many_keep_one_out_who_allows_one_and_he_them(take, others, database):
    wide = take(slots=4)
    assert others.call("try_slot", database=database, slots=4).value == ""
    assert "At most 1 run" in others.call("try_slot", database=database, slots=1).value
    take(slots=1)  # of the same process, which has its slot already
    wide.release()
    assert "At most 1 run" in others.call("try_slot", database=database, slots=4).value


def test_a_process_that_waits_for_the_one_that_has_started_it_says_so(others, database, take):
    take(owner="run outer")
    said = others.call("try_slot", database=database).value
    assert f"Process {os.getpid()} has started this one" in said
    assert "start other runs only when it is done" in said


def test_a_forked_process_has_no_slot_of_its_own(others, database):
    outcome = others.call("fork_and_look", database=database)
    assert "StoreBusyError" not in (outcome.error or "")
    assert outcome.value.startswith("At most 1 run of a backfill")
    assert others.call("try_slot", database=database).value == ""


def test_where_there_can_be_no_slots_nobody_writes_without_one(tmp_path, take):
    with pytest.raises(StoreUnavailableError, match="does not exist"):
        take(path=str(tmp_path / "missing" / "market.duckdb"))
    assert not (tmp_path / "missing").exists()


def test_the_name_of_a_secret_database_is_told_to_nobody(tmp_path, sitting, take, database, monkeypatch):
    monkeypatch.setenv("MARIGOLD_TEST_DATABASE", database)
    sitting()
    with pytest.raises(StoreBusyError) as caught:
        take(timeout_seconds=1.1)
    assert "market.duckdb" not in str(caught.value) + "".join(take.told)
    assert "$MARIGOLD_TEST_DATABASE" in str(caught.value)


def test_admission_costs_next_to_nothing(take):
    seconds = []
    for _ in range(100):
        begun = time.perf_counter()
        take().release()
        seconds.append(time.perf_counter() - begun)
    assert median(seconds) < 0.002


# --- runs ------------------------------------------------------------------------------------------------------------


def _asset(look):
    @dg.asset(partitions_def=DAYS, metadata={"partition_expr": "d"})
    def daily(context: dg.AssetExecutionContext) -> pd.DataFrame:
        look()
        return pd.DataFrame({"d": [pd.Timestamp(key) for key in context.partition_keys]})

    return daily


@pytest.fixture
def run(database):
    """Materializes an asset by hand; gives whether that went well, and what it failed for."""
    with dg.DagsterInstance.ephemeral() as instance:

        def run(look=lambda: None, *, key="2024-01-01", tags=None, resources=None, **settings):
            settings = {"max_backfill_writers": 1, "admission_timeout_seconds": 0.0, **settings}
            result = dg.materialize(
                [_asset(look)],
                partition_key=key,
                tags=tags,
                instance=instance,
                resources={"io_manager": FencedPartitionIOManager(database=database, **settings), **(resources or {})},
                run_config={"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}},
                raise_on_error=False,
            )
            failures = [event for event in result.all_events if event.is_failure]
            return result.success, " ".join(str(event.event_specific_data) for event in failures)

        yield run


def test_a_run_keeps_its_slot_until_it_is_done_and_then_gives_it_back(others, database, run):
    seen = []
    assert run(lambda: seen.append(others.call("try_slot", database=database).value))[0]
    assert seen[0].startswith("At most 1 run")
    assert others.call("try_slot", database=database).value == ""


def test_a_run_that_fails_gives_its_slot_back(others, database, run):
    assert not run(lambda: 1 / 0)[0]
    assert others.call("try_slot", database=database).value == ""


@pytest.mark.parametrize(
    "tags",
    [
        {},
        {"dagster/backfill": "abc"},
        {"dagster/backfill": "abc", "dagster/sensor_name": "launches_backfills"},
        RANGE,
    ],
    ids=["one partition by hand", "backfill", "backfill of a sensor", "range by hand"],
)
def test_what_nobody_has_set_to_run_at_a_time_waits_for_its_turn(others, sitting, run, tags):
    sitting(slots=2)
    key = None if tags is RANGE else "2024-01-01"
    success, problem = run(tags=tags, key=key)
    assert not success
    assert "at most 1 run of a backfill" in problem
    assert run(tags=tags, key=key, max_backfill_writers=2)[0]
    assert run(tags=tags, key=key, max_backfill_writers=None)[0]


def _reexecuted(instance, parent, **tags):
    """A run that executes another one again, with the tags that Dagster has it inherit."""
    kept = {tag: value for tag, value in parent.tags.items() if tag != "dagster/retry_number"}
    parents = {"parent_run_id": parent.run_id, "root_run_id": parent.root_run_id or parent.run_id}
    return instance.create_run_for_job(dg.job(name="nightly")(lambda: None), tags=kept | tags, **parents)


def test_what_somebody_executes_again_is_no_production_and_a_retry_is():
    assert "dagster/retry_number" in TAGS_TO_MAYBE_OMIT_ON_RETRY  # or it would be inherited, too
    with dg.DagsterInstance.ephemeral() as instance:
        tags = {"dagster/schedule_name": "nightly"}
        scheduled = instance.create_run_for_job(dg.job(name="nightly")(lambda: None), tags=tags)
        retry = _reexecuted(instance, scheduled, **{"dagster/retry_number": "1"})
        retried_twice = _reexecuted(instance, retry, **{"dagster/retry_number": "2"})
        assert [is_production(one, instance) for one in (scheduled, retry, retried_twice)] == [True, True, True]
        again = _reexecuted(instance, scheduled)
        retry_of_again = _reexecuted(instance, again, **{"dagster/retry_number": "1"})
        found = [is_production(one, instance) for one in (again, _reexecuted(instance, retry), retry_of_again)]
        assert found == [False, False, False]


@pytest.mark.parametrize(
    "tag",
    ["dagster/schedule_name", "dagster/sensor_name", "dagster/auto_materialize", "dagster/from_automation_condition"],
)
def test_production_passes_at_once(sitting, run, tag):
    sitting()
    assert run(tags={tag: "nightly"})[0]


def test_what_waits_has_drawn_no_token_and_claimed_nothing(sitting, run, database):
    sitting()
    assert not run()[0]
    assert not Path(database).exists()


def test_io_manager_and_resource_of_one_run_share_a_slot(others, database):
    settings = {"max_backfill_writers": 1, "admission_timeout_seconds": 0.0}

    @dg.asset
    def written(context: dg.AssetExecutionContext, warehouse: FencedPartitionResource) -> dg.MaterializeResult:
        return warehouse.swap(context, pd.DataFrame({"a": [1]}))

    @dg.asset(deps=[written])
    def stored() -> pd.DataFrame:
        assert others.call("try_slot", database=database).value
        return pd.DataFrame({"a": [1]})

    result = dg.materialize(
        [written, stored],
        resources={
            "io_manager": FencedPartitionIOManager(database=database, **settings),
            "warehouse": FencedPartitionResource(database=database, **settings),
        },
    )
    assert result.success
    assert others.call("try_slot", database=database).value == ""


def _uses(database, *writers):
    """Materializes an asset that needs two resources beside its IO manager; whether that went well."""

    @dg.asset(required_resource_keys={"a_warehouse", "z_warehouse"})
    def stored() -> pd.DataFrame:
        return pd.DataFrame({"a": [1]})

    named = dict(zip(("io_manager", "a_warehouse", "z_warehouse"), writers, strict=True))
    made = {
        key: (FencedPartitionIOManager if key == "io_manager" else FencedPartitionResource)(
            database=database, max_backfill_writers=many, admission_timeout_seconds=0.0
        )
        for key, many in named.items()
    }
    quiet = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
    return dg.materialize([stored], resources=made, raise_on_error=False, run_config=quiet).success


@pytest.mark.parametrize("writers", [(1, None, None), (None, 1, None), (None, None, 1)], ids=str)
def test_no_other_resource_of_a_run_frees_it_from_the_bound(others, sitting, database, writers):
    assert _uses(database, *writers)
    assert others.call("try_slot", database=database).value == ""  # and it has given back whatever it had
    sitting()
    assert not _uses(database, *writers)


def test_one_who_is_in_by_a_larger_number_does_not_let_a_smaller_one_in(sitting, database):
    sitting(slots=4)
    assert _uses(database, 4, 4, 4)
    for writers in [(1, 4, 4), (4, 1, 4), (4, 4, 1)]:
        assert not _uses(database, *writers)


def test_a_resource_that_fails_behind_its_place_gives_it_back(others, database):
    class Failing(FencedPartitionResource):
        def setup_for_execution(self, context: dg.InitResourceContext) -> None:
            super().setup_for_execution(context)
            raise ValueError("it has no network")

    @dg.asset
    def stored(warehouse: Failing) -> pd.DataFrame:
        return pd.DataFrame({"a": [1]})

    result = dg.materialize(
        [stored],
        resources={"io_manager": dg.mem_io_manager, "warehouse": Failing(database=database, max_backfill_writers=1)},
        raise_on_error=False,
    )
    assert not result.success
    assert others.call("try_slot", database=database).value == ""


def test_no_bound_of_less_than_one_can_be_set(database):
    with pytest.raises(ValueError, match="max_backfill_writers"):
        FencedPartitionIOManager(database=database, max_backfill_writers=0)


_LOCATION = """
import dagster as dg, pandas as pd
from marigold_assets import FencedPartitionIOManager

@dg.asset
def stored() -> pd.DataFrame:
    return pd.DataFrame({"a": [1]})

defs = dg.Definitions(
    assets=[stored],
    resources={"io_manager": FencedPartitionIOManager(database=%r, max_backfill_writers=1)},
)
"""


@pytest.mark.processes
def test_a_run_that_waits_says_so_and_can_be_cancelled(tmp_path, sitting, database):
    pid = sitting()
    (tmp_path / "location.py").write_text(textwrap.dedent(_LOCATION % database))
    (tmp_path / "home").mkdir()
    with subprocess.Popen(
        [sys.executable, "-m", "dagster", "asset", "materialize", "-f", "location.py", "--select", "stored"],
        cwd=tmp_path,
        env={**os.environ, "DAGSTER_HOME": str(tmp_path / "home")},
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    ) as command:
        try:
            said = next(line for line in command.stderr if "Waiting for a place" in line)
            assert f"process {pid} (run 4711)" in said
            command.send_signal(signal.SIGTERM)
            begun = time.monotonic()
            command.communicate(timeout=30)
            assert time.monotonic() - begun < 10.0
        finally:
            command.kill()
    with dg.DagsterInstance.from_config(str(tmp_path / "home")) as instance:
        [run] = instance.get_runs()
    assert run.status in {dg.DagsterRunStatus.CANCELED, dg.DagsterRunStatus.FAILURE}
    assert not Path(database).exists()
