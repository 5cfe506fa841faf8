"""``@partitioned_asset`` when things go wrong: failures, lost events, late runs, keys that are gone, secrets."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace

import dagster as dg
import duckdb
import pandas as pd
import polars as pl
import pytest

from marigold_assets import FencedPartitionIOManager, report
from marigold_assets.asset import partitioned_asset
from marigold_assets_tests.integration.conftest import RANGE_END, RANGE_START, failure_of

pytestmark = pytest.mark.slow  # the quick tests have test_partitioned_asset.py


DAYS = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-01-16")


def day(number):
    return f"2024-01-{number:02d}"


def days(first, last):
    return [day(number) for number in range(first, last + 1)]


class Till:
    """A chain whose function a test can have do something before it returns its rows."""

    def __init__(self, *, partitions_def=DAYS, **options):
        self.calls = []
        self.before = lambda key: None
        self.step = 1
        till = self

        @partitioned_asset(partitions_def=partitions_def, partition_expr="day", code_version="1", **options)
        def till_balance(context: dg.AssetExecutionContext, previous: pl.DataFrame | None):
            till.calls.append(context.partition_key)
            till.before(context.partition_key)
            before = 0 if previous is None else previous["cents"].item()
            at = pd.Timestamp(context.partition_key).to_pydatetime()
            return pl.DataFrame({"day": [at], "cents": [before + till.step]})

        self.asset = till_balance


def balances(warehouse):
    return [cents for (cents,) in warehouse.rows("SELECT cents FROM public.till_balance ORDER BY day")]


def partitions_of(warehouse):
    return [event.partition for _, event in warehouse.events("till_balance")]


def test_a_retry_policy_continues_where_it_failed_and_reports_no_key_twice(warehouse):
    till = Till(retry_policy=dg.RetryPolicy(max_retries=2))
    left = [1, 1]

    def fail_twice(key):
        if key == day(3) and left:
            left.pop()
            raise ConnectionError("the till does not answer")

    till.before = fail_twice
    warehouse.materialize(till.asset, keys=(day(1), day(5)))
    assert till.calls == [*days(1, 2), day(3), day(3), *days(3, 5)]
    assert balances(warehouse) == [1, 2, 3, 4, 5]
    assert partitions_of(warehouse) == days(1, 5)


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, RuntimeError, duckdb.Error, dg.Failure, MemoryError])
def test_whatever_is_raised_keeps_what_was_built_and_reported(warehouse, error):
    till = Till()

    def stop(key):
        if key == day(3):
            raise error("stop")

    till.before = stop
    with pytest.raises(BaseException, match=r"stop|^$"):
        warehouse.materialize(till.asset, keys=(day(1), day(5)))
    assert balances(warehouse) == [1, 2]
    assert partitions_of(warehouse) == days(1, 2)
    till.before = lambda key: None
    warehouse.materialize(till.asset, keys=(day(3), day(5)))
    assert balances(warehouse) == [1, 2, 3, 4, 5]


def test_the_error_of_the_function_says_where(warehouse):
    till = Till()

    def stop(key):
        if key == day(2):
            raise RuntimeError("the till is closed")

    till.before = stop
    result = warehouse.materialize(till.asset, keys=(day(1), day(3)), raise_on_error=False)
    text = str(result.get_step_failure_events()[0].step_failure_data.error.to_string())
    for word in ("the till is closed", "till_balance", day(2), "continues here"):
        assert word in text


class Forgetful:
    """Has the event log refuse the materialization of some partitions, as a full disk would."""

    def __init__(self, instance, monkeypatch, keys):
        storage, store = instance.event_log_storage, instance.event_log_storage.store_event
        self.keys = set(keys)

        def store_event(event):
            found = event.dagster_event
            if found is not None and found.is_step_materialization and found.partition in self.keys:
                raise OSError("no space left for events")
            return store(event)

        monkeypatch.setattr(storage, "store_event", store_event)


def test_a_lost_event_fails_the_run_and_is_made_up_for_without_computing_again(warehouse, monkeypatch):
    till = Till()
    forgetful = Forgetful(warehouse.instance, monkeypatch, [day(2)])
    result = warehouse.materialize(till.asset, keys=(day(1), day(3)), raise_on_error=False)
    assert not result.success
    assert day(2) not in partitions_of(warehouse)
    built = list(till.calls)
    forgetful.keys.clear()
    warehouse.materialize(till.asset, keys=(day(1), day(5)))
    assert built == days(1, 3)
    assert till.calls == [*built, *days(4, 5)]
    assert set(partitions_of(warehouse)) == set(days(1, 5))
    assert balances(warehouse) == [1, 2, 3, 4, 5]


def test_an_event_that_is_written_to_the_log_of_its_run_alone_is_written_again(warehouse, monkeypatch):
    """Dagster's SQLite storage writes an event twice: a process may die in between."""
    till = Till(retry_policy=dg.RetryPolicy(max_retries=1))
    with dg.DagsterInstance.local_temp() as instance:
        on_disk, storage = replace(warehouse, instance=instance), instance.event_log_storage
        store, connection, left = storage.store_event, storage.index_connection, [day(2)]

        @contextmanager
        def dying():
            raise OSError("the process dies here")
            yield

        def store_event(event):
            found = event.dagster_event
            if found is not None and found.is_step_materialization and found.partition in left:
                left.clear()
                storage.index_connection = dying
            try:
                return store(event)
            finally:
                storage.index_connection = connection

        monkeypatch.setattr(storage, "store_event", store_event)
        assert on_disk.materialize(till.asset, keys=(day(1), day(3)), raise_on_error=False).success
        assert not left
        assert sorted(partitions_of(on_disk)) == days(1, 3)
    assert balances(warehouse) == [1, 2, 3]


def other_run(warehouse, till, *, keys, **config):
    """Another run, from within the function of a running one."""
    return warehouse.materialize(till.asset, keys=keys, config={"till_balance": config}, raise_on_error=False)


def test_an_older_run_is_fenced_out_where_a_newer_one_came_in_between(warehouse):
    old, new = Till(), Till()
    new.step = 100

    def overtaken(key):
        if key == day(2) and not new.calls:
            assert other_run(warehouse, new, keys=(day(1), day(3))).success

    old.before = overtaken
    result = warehouse.materialize(old.asset, keys=(day(1), day(3)), raise_on_error=False)
    first = failure_of(result).splitlines()[0]
    for word in ("till_balance", day(2), "superseded"):
        assert word in first
    assert balances(warehouse) == [100, 200, 300]
    assert old.calls == days(1, 2)


def test_a_confirmed_day_under_a_newer_token_fences_an_older_run_out(warehouse):
    first, old, new = Till(), Till(), Till()
    warehouse.materialize(first.asset, keys=(day(1), day(3)))
    old.step = 7

    def confirmed(key):
        if key == day(1) and not new.calls:
            assert other_run(warehouse, new, keys=(day(1), day(1)), early_cutoff="verify").success

    old.before = confirmed
    result = warehouse.materialize(old.asset, keys=(day(1), day(3)), raise_on_error=False)
    assert "superseded" in failure_of(result)
    assert balances(warehouse) == [1, 2, 3]
    assert warehouse.io_manager().store.ledger()[-1].confirmed


def test_two_runs_over_parts_that_overlap_leave_every_day_whole_and_by_one_of_them(warehouse):
    old, new = Till(), Till()

    def overlap(key):
        if key == day(2) and not new.calls:
            assert not other_run(warehouse, new, keys=(day(3), day(5))).success  # its past is not there yet

    old.before = overlap
    result = warehouse.materialize(old.asset, keys=(day(1), day(4)), raise_on_error=False)
    assert "superseded" in failure_of(result)
    assert balances(warehouse) == [1, 2]
    warehouse.materialize(old.asset, keys=(day(1), day(5)))
    assert balances(warehouse) == [1, 2, 3, 4, 5]


def test_what_is_stamped_is_the_version_of_the_code_that_ran(warehouse):
    versions = {}

    def of(version):
        @partitioned_asset(partitions_def=DAYS, partition_expr="day", code_version=version, name="deployed")
        def deployed(context):
            if version == "1" and context.partition_key == day(2):
                versions["2"] = of("2")  # a deploy while the old code runs, which builds another day
                warehouse.materialize(versions["2"], key=day(9))
            return pd.DataFrame({"day": [pd.Timestamp(context.partition_key)], "by": [version]})

        return deployed

    warehouse.materialize(of("1"), keys=(day(1), day(3)))
    heads = {e.partition_key: e.provenance for e in warehouse.io_manager().store.ledger()}
    assert {key: found.code_version for key, found in heads.items()} == {**dict.fromkeys(days(1, 3), "1"), day(9): "2"}
    events = {event.partition: event.tags["dagster/code_version"] for _, event in warehouse.events("deployed")}
    assert events == {**dict.fromkeys(days(1, 3), "1"), day(9): "2"}
    assert heads[day(1)].code_fingerprint == heads[day(3)].code_fingerprint != heads[day(9)].code_fingerprint


def launched(warehouse, asset, tags):
    """A run whose tags name partitions, as one has them that was launched before the definition changed."""
    return dg.materialize(
        [asset],
        instance=warehouse.instance,
        resources={"io_manager": warehouse.io_manager()},
        tags=tags,
        raise_on_error=False,
    )


@pytest.mark.parametrize(
    "tags",
    [
        {"dagster/partition": "2024-02-20"},
        {RANGE_START: "2024-01-14", RANGE_END: "2024-02-20"},
        {RANGE_START: "2023-12-31", RANGE_END: "2024-01-02"},
    ],
)
def test_a_key_that_has_left_the_definition_is_refused_before_anything_is_computed(warehouse, tags):
    till = Till()
    result = launched(warehouse, till.asset, tags)
    first = failure_of(result).splitlines()[0]
    for word in ("till_balance", "partition", "launch the run again"):
        assert word in first
    assert not till.calls
    assert not warehouse.events("till_balance")


def test_a_dynamic_key_that_was_deleted_is_refused(warehouse):
    shops = dg.DynamicPartitionsDefinition(name="shops")
    warehouse.instance.add_dynamic_partitions("shops", ["a", "b", "c"])

    @partitioned_asset(partitions_def=shops, partition_expr="shop")
    def shop_sales(context):
        if context.partition_key == "a":
            warehouse.instance.delete_dynamic_partition("shops", "b")
        return pd.DataFrame({"shop": [context.partition_key]})

    warehouse.materialize(shop_sales, keys=("a", "c"))  # the set of a run is what it was when it started
    assert warehouse.rows("SELECT shop FROM public.shop_sales ORDER BY ALL") == [("a",), ("b",), ("c",)]
    first = failure_of(launched(warehouse, shop_sales, {"dagster/partition": "b"})).splitlines()[0]
    for word in ("shop_sales", "'b'", "Remedy"):
        assert word in first


def everything_logged(instance):
    return "\n".join(repr(entry) for run in instance.get_runs() for entry in instance.all_logs(run.run_id))


@pytest.mark.parametrize("place", ["folder", "name"])
@pytest.mark.parametrize("kind", [duckdb.DuckDBPyRelation, str, pd.DataFrame])
def test_no_secret_of_the_path_is_shown_in_success_or_failure(tmp_path, caplog, capfd, place, kind):
    folder = tmp_path / ("SECRET123" if place == "folder" else "plain")
    folder.mkdir()
    path = str(folder / ("SECRET123.duckdb" if place == "name" else "market.duckdb"))

    @partitioned_asset(partitions_def=DAYS, partition_expr="day")
    def source(context):
        return pd.DataFrame({"day": [pd.Timestamp(context.partition_key)], "cents": [1]})

    def made(context, source):
        number = context.partition_time_window.start.day
        if number == 2:
            return (
                "SELECT * FROM public.nowhere"
                if kind is str
                else source.project("nothing")
                if kind is not pd.DataFrame
                else source.assign(more=1)
            )
        return source

    made.__annotations__ = {"source": kind}
    asset = partitioned_asset(partitions_def=DAYS, partition_expr="day")(made)
    manager = FencedPartitionIOManager(database=dg.EnvVar("MARKET_PATH"))
    with dg.DagsterInstance.ephemeral() as instance, pytest.MonkeyPatch.context() as patch:
        patch.setenv("MARKET_PATH", path)
        for assets, selection in (([source], None), ([source, asset], ["made"])):
            dg.materialize(
                assets,
                instance=instance,
                selection=selection,
                resources={"io_manager": manager},
                tags={RANGE_START: day(1), RANGE_END: day(2)},
                raise_on_error=False,
            )
        assert [run.is_success for run in reversed(instance.get_runs())] == [True, False]
        found = everything_logged(instance)
    shown = capfd.readouterr()
    assert "SECRET123" not in found.replace(str(tmp_path), "")
    assert "SECRET123" not in caplog.text
    assert "SECRET123" not in shown.out + shown.err


def test_outcomes_name_what_was_done(warehouse):
    till = Till()
    warehouse.materialize(till.asset, keys=(day(1), day(2)))
    for choice in ("off", "verify"):
        warehouse.materialize(till.asset, keys=(day(1), day(2)), config={"till_balance": {"early_cutoff": choice}})
    outcomes = [event.metadata[report.OUTCOME].value for _, event in warehouse.events("till_balance")]
    assert outcomes == ["swapped"] * 4 + ["confirmed"] * 2
