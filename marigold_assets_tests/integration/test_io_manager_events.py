"""What a run reports: exactly one materialization a partition, none on failure, and retries that make sense."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from pathlib import Path

import dagster as dg
import duckdb
import pandas as pd
import pytest

from marigold_assets import FencedPartitionIOManager, FencedPartitionResource
from marigold_assets.errors import MarigoldError
from marigold_assets.model import Claim
from marigold_assets.stores.duckdb import DuckDBStore

DAYS = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-02-01")
D1, D2 = "2024-01-01", "2024-01-02"
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:Parameter `backfill_policy`")]


def asset_of(make, **options):
    def t(context):
        return make(context)

    options = {"partitions_def": DAYS, "metadata": {"partition_expr": "d"}, **options}
    return dg.asset(key=["s", "t"], **options)(t)


def frame(context):
    days = pd.to_datetime([context.partition_key]).astype(
        "datetime64[us]"
    )  # which releases of pandas infer differently
    return pd.DataFrame({"d": days, "v": [1.5]})


class Extended(FencedPartitionIOManager):
    """Does more around what it inherits, as people extend the IO manager of dagster-duckdb."""

    def handle_output(self, context, obj):
        super().handle_output(context, obj.assign(v=obj["v"] + 1))
        context.add_output_metadata({"mine": 7})


@pytest.mark.parametrize("options", [{"key": D1}, {"keys": (D1, D2)}], ids=["one", "range"])
def test_an_io_manager_that_extends_this_one_stores_and_reports(warehouse, options):
    def make(context):
        days = pd.to_datetime(list(context.partition_keys)).astype("datetime64[us]")
        return pd.DataFrame({"d": days, "v": 1.5})

    asset = asset_of(make, backfill_policy=dg.BackfillPolicy.single_run())
    warehouse.materialize(asset, resources={"io_manager": Extended(database=warehouse.path)}, **options)
    keys = [D1, D2] if "keys" in options else [D1]
    assert warehouse.rows("SELECT v FROM s.t") == [(2.5,)] * len(keys)
    found = [event for _, event in warehouse.events(["s", "t"])]
    assert [event.partition for event in found] == keys
    hashes = {event.metadata["marigold/content_hash"].value for event in found}
    assert {event.tags["dagster/data_version"] for event in found} == hashes
    assert [event.metadata["mine"].value for event in found] == [7] * len(keys)


def test_a_materialization_says_what_is_stored_where_and_by_whom(warehouse):
    asset = asset_of(frame, code_version="2")
    for _ in range(2):
        result = warehouse.materialize(asset, key=D1)
    (_first_event, first), (_event, second) = warehouse.events(["s", "t"])
    metadata = {key: value.value for key, value in second.metadata.items()}
    assert metadata["dagster/partition_row_count"] == 1
    assert "dagster/row_count" not in metadata
    assert metadata["dagster/table_name"] == "s.t"
    assert metadata["dagster/storage_kind"] == "duckdb"
    stored = [("d", "TIMESTAMP"), ("v", "DOUBLE")]
    assert [(c.name, c.type) for c in metadata["dagster/column_schema"].columns] == stored
    given = [("d", "datetime64[us]"), ("v", "float64")]
    assert [(c.name, c.type) for c in metadata["dataframe_columns"].columns] == given
    with duckdb.connect(warehouse.path) as connection:
        assert connection.execute(metadata["Query"]).fetchall() == [(pd.Timestamp(D1), 1.5)]
    [head] = [e for e in FencedPartitionResource(database=warehouse.path).ledger("s/t") if e.run_id == result.run_id]
    assert metadata["marigold/fencing_token"] == head.token
    assert metadata["marigold/swap_id"] == second.tags["marigold/swap_id"] == head.swap_id
    assert metadata["marigold/content_hash"] == second.tags["dagster/data_version"] == head.content_hash
    assert (
        metadata["marigold/code_version"] == second.tags["dagster/code_version"] == head.provenance.code_version == "2"
    )
    assert first.tags["dagster/data_version"] == second.tags["dagster/data_version"]
    assert first.tags["marigold/swap_id"] != second.tags["marigold/swap_id"]


def test_an_asset_without_partitions_reports_its_rows(warehouse):
    @dg.asset
    def whole():
        return pd.DataFrame({"v": [1, 2, 3]})

    warehouse.materialize(whole)
    [(_, event)] = warehouse.events("whole")
    assert event.metadata["dagster/row_count"].value == 3
    assert "dagster/partition_row_count" not in event.metadata
    assert event.partition is None
    assert event.metadata["dagster/table_name"].value == "public.whole"


def test_input_versions_are_recorded_as_dagster_does(warehouse):
    numbers = [1]

    @dg.asset
    def upstream():
        return pd.DataFrame({"v": numbers})

    @dg.asset
    def downstream(upstream):
        return upstream

    for _ in range(2):
        warehouse.materialize(upstream, downstream)
        numbers.append(2)
    up, down = warehouse.events("upstream"), warehouse.events("downstream")
    found = [event.tags["dagster/input_data_version/upstream"] for _, event in down]
    assert found == [event.tags["dagster/data_version"] for _, event in up]
    assert len(set(found)) == 2


def test_a_range_run_reports_once_a_partition_and_once_only(warehouse):
    def frames(context):
        return pd.DataFrame({"d": pd.to_datetime(list(context.partition_keys)), "v": 1})

    asset = asset_of(frames, backfill_policy=dg.BackfillPolicy.single_run())
    result = warehouse.materialize(asset, keys=(D1, "2024-01-10"))
    assert len(result.asset_materializations_for_node("s__t")) == 10
    assert [m.partition for _, m in warehouse.events(["s", "t"])] == [f"2024-01-{day:02}" for day in range(1, 11)]
    assert warehouse.instance.get_materialized_partitions(dg.AssetKey(["s", "t"])) == {
        f"2024-01-{day:02}" for day in range(1, 11)
    }


def test_a_failed_run_reports_nothing_and_its_successor_once(warehouse):
    frames = {"frame": pd.DataFrame({"d": ["x"]})}
    asset = asset_of(lambda context: frames["frame"])
    warehouse.refused(asset, key=D1)
    assert warehouse.events(["s", "t"]) == []
    frames["frame"] = pd.DataFrame({"d": [pd.Timestamp(D1)]})
    warehouse.materialize(asset, key=D1)
    assert len(warehouse.events(["s", "t"])) == 1


def test_what_cannot_succeed_is_not_retried(warehouse):
    tries = []

    def bad(context):
        tries.append(context.retry_number)
        return pd.DataFrame({"d": ["x"]})

    asset = asset_of(bad, retry_policy=dg.RetryPolicy(max_retries=3))
    warehouse.refused(asset, key=D1)
    assert tries == [0]


def test_a_busy_store_is_retried_as_the_asset_wishes(warehouse):
    """The database is busy for as long as the first try lasts."""
    tries, other = [], []

    def slow(context):
        if not tries:
            # A connection of this very process with other settings keeps others out as another program would.
            other.append(duckdb.connect(warehouse.path, config={"custom_user_agent": "somebody else"}))
        else:
            other.pop().close()
        tries.append(context.retry_number)
        return frame(context)

    asset = asset_of(slow, retry_policy=dg.RetryPolicy(max_retries=1))
    manager = warehouse.io_manager(lock_timeout_seconds=0.2)
    result = warehouse.materialize(asset, key=D1, resources={"io_manager": manager})
    assert result.success
    assert tries == [0, 1]
    assert len(warehouse.events(["s", "t"])) == 1
    assert warehouse.rows("SELECT v FROM s.t") == [(1.5,)]


def test_a_run_that_a_later_one_overtook_fails_once_reports_nothing_and_is_not_retried(warehouse):
    tries = []

    def overtaken(context):
        tries.append(context.retry_number)
        store = DuckDBStore(warehouse.path)
        token = store.draw_token("later run", [Claim(owner="s/t", partition_key=D1)])
        tries.append(token)
        return frame(context)

    asset = asset_of(overtaken, retry_policy=dg.RetryPolicy(max_retries=3))
    line = warehouse.refused(asset, key=D1)
    assert "later run" in line
    assert f"(token {tries[1]})" in line
    assert len(tries) == 2
    [run] = warehouse.instance.get_runs()
    assert run.tags["dagster/retry_on_asset_or_op_failure"] == "false"
    assert run.tags["marigold/fenced_out_by"] == "later run"


def test_a_retry_in_the_same_process_keeps_its_token_and_swaps_again(warehouse):
    tries = []

    def flaky(context):
        tries.append(context.retry_number)
        if len(tries) == 1:
            raise dg.RetryRequested(max_retries=1)
        return frame(context)

    assert warehouse.materialize(asset_of(flaky), key=D1).success
    assert tries == [0, 1]
    assert len(warehouse.events(["s", "t"])) == 1


class EventsLost(FencedPartitionIOManager):
    """Commits, and dies before the events are written."""

    def _swap(self, *args):
        super()._swap(*args)
        raise RuntimeError("killed between commit and event")


def test_a_run_that_died_between_commit_and_event_is_made_good_by_its_retry(warehouse):
    asset = asset_of(frame, code_version="5")
    lost = EventsLost(database=warehouse.path)
    assert not warehouse.materialize(asset, key=D1, resources={"io_manager": lost}, raise_on_error=False).success
    assert warehouse.rows("SELECT v FROM s.t") == [(1.5,)]
    assert warehouse.events(["s", "t"]) == []
    warehouse.materialize(asset, key=D1)
    assert warehouse.rows("SELECT v FROM s.t") == [(1.5,)]
    [(_, event)] = warehouse.events(["s", "t"])
    assert event.metadata["dagster/partition_row_count"].value == 1
    assert event.tags["dagster/code_version"] == "5"
    ledger = FencedPartitionResource(database=warehouse.path).ledger("s/t")
    assert [entry.token for entry in ledger] == sorted(entry.token for entry in ledger)
    assert ledger[-1].content_hash == event.tags["dagster/data_version"]


def test_runs_of_different_days_and_a_range_beside_them_do_not_fence_each_other(warehouse):
    """A run of another day starts, and ends, in the middle of a run."""

    def ranged(context):
        warehouse.materialize(asset_of(frame), key="2024-01-31")
        return pd.DataFrame({"d": pd.to_datetime(list(context.partition_keys)), "v": 1.0})

    asset = asset_of(ranged, backfill_policy=dg.BackfillPolicy.single_run())
    assert warehouse.materialize(asset, keys=(D1, "2024-01-30")).success
    assert warehouse.rows("SELECT count(*) FROM s.t") == [(31,)]


class Outside(dg.ConfigurableIOManager):
    """Reads something that another author changes meanwhile."""

    path: str

    def handle_output(self, context, obj):
        raise NotImplementedError  # what it reads is stored by nobody here: to be asked would be a fault

    def load_input(self, context):
        return read_and_be_overtaken(self.path)


OVERTAKE = []


def read_and_be_overtaken(path):
    found = Path(path).read_text(encoding="utf-8")
    if OVERTAKE:
        OVERTAKE.pop()()
    return found


@pytest.mark.parametrize("way", ["outside first", "outside last", "resource"])
def test_a_later_step_that_has_read_elsewhere_first_is_as_old_as_its_run(warehouse, tmp_path, way):
    """In-process, a step draws a token of its own only where that comes before everything that it reads."""
    path = tmp_path / "outside.txt"
    resources = {
        "outside": Outside(path=str(path)),
        "warehouse": FencedPartitionResource(database=warehouse.path),
        "io_manager": warehouse.io_manager(),
    }
    outside = dg.AssetSpec("outside").with_io_manager_key("outside")

    @dg.asset(key=["s", "up"], partitions_def=DAYS, metadata={"partition_expr": "d"})
    def up(context):
        return frame(context)

    def report(found):
        return pd.DataFrame({"found": [found]})

    if way == "resource":

        @dg.asset(key=["s", "report"], deps=[up], required_resource_keys={"warehouse"})
        def last(context):
            found = read_and_be_overtaken(path)
            context.resources.warehouse.read(context, up.key, pd.DataFrame)
            return context.resources.warehouse.swap(context, report(found))

    elif way == "outside first":

        @dg.asset(key=["s", "report"], ins={"outside": dg.AssetIn("outside"), "up": dg.AssetIn(up.key)})
        def last(outside: str, up: pd.DataFrame) -> pd.DataFrame:
            return report(outside)

    else:

        @dg.asset(key=["s", "report"], ins={"up": dg.AssetIn(up.key), "outside": dg.AssetIn("outside")})
        def last(up: pd.DataFrame, outside: str) -> pd.DataFrame:
            return report(outside)

    path.write_text("old")
    warehouse.materialize(up, key=D1)

    def overtake():
        path.write_text("new")
        assert warehouse.materialize(up, last, outside, selection=[last], resources=resources).success

    OVERTAKE.append(overtake)
    result = warehouse.materialize(
        up, last, outside, selection=[up, last], key=D1, resources=resources, raise_on_error=False
    )
    assert not result.success
    assert warehouse.rows("SELECT found FROM s.report") == [("new",)]


def test_a_later_step_that_reads_from_here_first_is_as_new_as_that(warehouse):
    """Or the runs of many days, which all write one report, would refuse each other for no reason."""
    resources = {"io_manager": warehouse.io_manager()}
    days = asset_of(frame)

    @dg.asset(key=["s", "report"], ins={"t": dg.AssetIn(days.key)})
    def report(t: pd.DataFrame) -> pd.DataFrame:
        return pd.DataFrame({"n": [len(t)]})

    @dg.asset(key=["s", "wait"], deps=[days])
    def wait(context) -> None:
        if context.run.tags.get("overtaken"):
            assert warehouse.materialize(days, report, key=D2, resources=resources).success

    @dg.asset(key=["s", "last"], ins={"t": dg.AssetIn(days.key)}, deps=[wait])
    def last(t: pd.DataFrame) -> pd.DataFrame:
        return pd.DataFrame({"n": [len(t)]})

    assert warehouse.materialize(days, wait, last, key=D1, resources=resources, tags={"overtaken": "yes"}).success


def report_of(p, way, hold):
    """An asset that reads another one in some way, and holds while it has it."""
    options = {"key": ["s", "report"], "metadata": {"schema": "s"}}
    if way == "resource":

        @dg.asset(deps=[p], required_resource_keys={"warehouse"}, **options)
        def report(context):
            rows = hold(context, context.resources.warehouse.read(context, p.key, pd.DataFrame))
            return context.resources.warehouse.swap(context, rows)

    elif way == "other input first":

        @dg.asset(ins={"a_outside": dg.AssetIn("a_outside"), "p": dg.AssetIn(p.key)}, **options)
        def report(context, a_outside, p: pd.DataFrame):
            return hold(context, p)

    else:
        key = {"io_manager_key": "second"} if way == "two managers" else {}

        @dg.asset(ins={"p": dg.AssetIn(p.key)}, **key, **options)
        def report(context, p: pd.DataFrame):
            return hold(context, p)

    return report


@pytest.mark.slow
@pytest.mark.parametrize("way", ["plain", "other input first", "resource", "two managers"])
def test_a_run_that_started_first_and_has_read_last_is_not_overwritten(warehouse, tmp_path, way):
    """Run X starts, Y starts and reads, X reads and writes the report of both days, Y still holds that of its own."""
    x_may_go_on, y_has_read = threading.Event(), threading.Event()
    (tmp_path / "outside.txt").write_text("same")
    resources = {
        "io_manager": warehouse.io_manager(),
        "second": warehouse.io_manager(schema="other"),
        "outside": Outside(path=str(tmp_path / "outside.txt")),
        "warehouse": FencedPartitionResource(database=warehouse.path),
    }
    outside = dg.AssetSpec("a_outside").with_io_manager_key("outside")

    @dg.asset(key=["s", "p"], partitions_def=DAYS, metadata={"partition_expr": "d", "schema": "s"})
    def p(context):
        if context.partition_key == D1:
            x_may_go_on.wait(30)
        return frame(context)

    def hold(context, rows):
        if context.run.tags["who"] == "Y":
            y_has_read.set()
            x_may_go_on.set()
            x.join(60)
        return pd.DataFrame({"n": [len(rows)]})

    report = report_of(p, way, hold)

    def run(who, day):
        done[who] = warehouse.materialize(
            *(p, report, outside),
            selection=[p, report],
            key=day,
            resources=resources,
            tags={"who": who},
            raise_on_error=False,
        ).success

    done = {}
    x = threading.Thread(target=run, args=["X", D1])
    x.start()
    wait_for_token(warehouse)
    run("Y", D2)
    assert y_has_read.is_set()
    assert done == {"X": True, "Y": False}
    assert warehouse.rows("SELECT n FROM s.report") == [(2,)]


def wait_for_token(warehouse):
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        with suppress(MarigoldError):
            if DuckDBStore(warehouse.path).draw_token("a look") > 1:
                return
        time.sleep(0.05)
    raise TimeoutError


def test_a_run_of_a_range_may_carry_out_assets_without_partitions(warehouse):
    @dg.asset(key=["s", "a"])
    def a():
        return pd.DataFrame({"v": [1]})

    @dg.asset(key=["s", "b"], ins={"a": dg.AssetIn(a.key)})
    def b(a: pd.DataFrame):
        return a

    assert warehouse.materialize(a, b, keys=(D1, D2)).success
    assert warehouse.rows("SELECT v FROM s.b") == [(1,)]
