"""The resource for assets that write for themselves."""

from __future__ import annotations

import dagster as dg
import duckdb
import pandas as pd
import pyarrow as pa
import pytest
from dagster_duckdb import DuckDBResource

from marigold_assets import FencedPartitionResource
from marigold_assets.model import Claim
from marigold_assets.stores.duckdb import DuckDBStore

DAYS = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-02-01")
D1, D2, D3 = "2024-01-01", "2024-01-02", "2024-01-03"
BY_DAY = {"partition_expr": "d"}
pytestmark = [
    pytest.mark.slow,
    # Dagster's words about what these assets themselves use.
    pytest.mark.filterwarnings("ignore:Parameter `backfill_policy`"),
]


@pytest.fixture
def run(warehouse):
    def run(*assets, settings=None, **options):
        resource = FencedPartitionResource(database=warehouse.path, **(settings or {}))
        return warehouse.materialize(*assets, resources={"warehouse": resource}, **options)

    return run


@dg.asset(key=["s", "t"], partitions_def=DAYS, metadata=BY_DAY, code_version="2")
def days(context, warehouse: FencedPartitionResource) -> dg.MaterializeResult:
    rows = pd.DataFrame({"d": pd.to_datetime([context.partition_key] * 2), "v": [1, 2]})
    return warehouse.swap(context, rows, metadata={"mine": "yes"})


@dg.asset(key=["s", "t"], partitions_def=DAYS, metadata=BY_DAY, code_version="2")
def days_returning_none(context, warehouse: FencedPartitionResource) -> None:
    warehouse.swap(
        context, pa.table({"d": pa.array([context.partition_key] * 2).cast(pa.timestamp("us")), "v": [1, 2]})
    )


@pytest.mark.parametrize("asset", [days, days_returning_none], ids=["result", "None"])
def test_a_swap_is_reported_once_whatever_the_asset_returns(warehouse, run, asset):
    for key in (D1, D2, D1):
        run(asset, key=key)
    assert warehouse.rows("SELECT v FROM s.t ORDER BY d, v") == [(1,), (2,), (1,), (2,)]
    events = [event for _, event in warehouse.events(["s", "t"])]
    assert [event.partition for event in events] == [D1, D2, D1]
    ledger = FencedPartitionResource(database=warehouse.path).ledger(["s", "t"])
    for event, entry in zip(events, ledger, strict=True):
        assert event.metadata["dagster/partition_row_count"].value == 2
        assert event.metadata["marigold/swap_id"].value == entry.swap_id
        assert event.metadata["marigold/fencing_token"].value == entry.token
        assert event.tags["dagster/data_version"] == entry.content_hash
        assert event.tags["dagster/code_version"] == entry.provenance.code_version == "2"
    assert ("mine" in events[0].metadata) == (asset is days)


def test_a_range_run_swaps_at_once_and_reports_each_partition(warehouse, run):
    @dg.asset(key=["s", "t"], partitions_def=DAYS, metadata=BY_DAY, backfill_policy=dg.BackfillPolicy.single_run())
    def t(context, warehouse: FencedPartitionResource) -> dg.MaterializeResult:
        warehouse.claim(context)
        keys = [key for number, key in enumerate(context.partition_keys) for _ in range(number)]
        return warehouse.swap(context, pd.DataFrame({"d": pd.to_datetime(keys), "v": range(len(keys))}))

    run(t, keys=(D1, D3))
    events = [event for _, event in warehouse.events(["s", "t"])]
    assert [event.partition for event in events] == [D1, D2, D3]
    assert [event.metadata["dagster/partition_row_count"].value for event in events] == [0, 1, 2]
    ledger = FencedPartitionResource(database=warehouse.path).ledger("s/t")
    assert [event.metadata["marigold/content_hash"].value for event in events] == [e.content_hash for e in ledger]


def test_an_asset_that_makes_several_swaps_each(warehouse, run):
    @dg.multi_asset(
        specs=[
            dg.AssetSpec(["s", "left"], partitions_def=DAYS, metadata=BY_DAY),
            dg.AssetSpec(["s", "right"], partitions_def=DAYS, metadata=BY_DAY),
        ],
        partitions_def=DAYS,
    )
    def both(context, warehouse: FencedPartitionResource):
        for name, rows in (("left", 1), ("right", 2)):
            frame = pd.DataFrame({"d": pd.to_datetime([context.partition_key] * rows)})
            yield warehouse.swap(context, frame, asset_key=["s", name])

    run(both, key=D1)
    for name, rows in (("left", 1), ("right", 2)):
        [(_, event)] = warehouse.events(["s", name])
        assert event.metadata["dagster/partition_row_count"].value == rows
        assert event.tags["dagster/data_version"].startswith("mh1:")


@pytest.mark.parametrize(("given", "remedy"), [(None, "asset_key=['s', 'a']"), ("c", "['s', 'a'], ['s', 'b']")])
def test_a_step_of_several_assets_has_to_say_which_of_them_it_swaps(run, given, remedy):
    @dg.multi_asset(specs=[dg.AssetSpec(["s", "a"]), dg.AssetSpec(["s", "b"])])
    def unclear(context, warehouse: FencedPartitionResource):
        yield warehouse.swap(context, pd.DataFrame({"v": [1]}), asset_key=given)

    [event] = run(unclear, raise_on_error=False).get_step_failure_events()
    assert remedy in event.step_failure_data.user_failure_data.description


def test_keys_of_an_asset_whose_partitions_nobody_told_are_refused(run):
    @dg.asset
    def reader(context, warehouse: FencedPartitionResource) -> None:
        warehouse.read(context, ["s", "t"], keys=[D1])

    run(days, key=D1)
    [event] = run(reader, raise_on_error=False).get_step_failure_events()
    assert "deps=[['s', 't']]" in event.step_failure_data.user_failure_data.description


def test_what_other_assets_stored_is_read_as_any_frame_for_the_partitions_that_map(warehouse, run):
    seen = {}

    @dg.asset(partitions_def=DAYS, deps=[days])
    def reader(context, warehouse: FencedPartitionResource) -> None:
        seen["mapped"] = warehouse.read(context, ["s", "t"], pd.DataFrame)
        seen["columns"] = warehouse.read(context, ["s", "t"], columns=["v"]).column_names
        seen["keys"] = warehouse.read(context, ["s", "t"], dict[str, pa.Table], keys=[D1, D3])
        seen["sql"] = warehouse.read(context, ["s", "t"], str)

    run(days, key=D1)
    run(days, reader, key=D2)
    assert seen["mapped"]["d"].tolist() == [pd.Timestamp(D2)] * 2
    assert seen["columns"] == ["v"]
    assert {key: table.num_rows for key, table in seen["keys"].items()} == {D1: 2, D3: 0}
    assert warehouse.rows(seen["sql"]) == [(pd.Timestamp(D2), 1), (pd.Timestamp(D2), 2)]


def test_an_asset_that_is_no_dependency_is_read_whole_or_by_keys(warehouse, run):
    seen = []

    @dg.asset
    def reader(context, warehouse: FencedPartitionResource) -> None:
        seen.append(warehouse.read(context, ["s", "t"]).num_rows)
        warehouse.read(context, ["s", "nothing"])

    run(days, key=D1)
    result = run(reader, raise_on_error=False)
    assert seen == [2]
    assert not result.success
    [event] = result.get_step_failure_events()
    assert "'s/nothing'" in event.step_failure_data.user_failure_data.description


def test_a_swap_of_wrong_rows_is_refused_with_the_place(warehouse, run):
    @dg.asset(key=["s", "t"], partitions_def=DAYS, metadata=BY_DAY)
    def wrong(context, warehouse: FencedPartitionResource) -> dg.MaterializeResult:
        return warehouse.swap(context, pd.DataFrame({"d": [pd.Timestamp(D3)], "v": [1]}))

    run(days, key=D1)
    before = warehouse.dump()
    result = run(wrong, key=D1, raise_on_error=False)
    [event] = result.get_step_failure_events()
    line = event.step_failure_data.user_failure_data.description.splitlines()[0]
    assert line.startswith("asset 's/t', partition '2024-01-01', table 's.t': 1 of 1 rows")
    assert warehouse.dump() == before
    assert len(warehouse.events(["s", "t"])) == 1


def test_a_swap_that_a_later_run_overtook_is_refused_and_not_retried(warehouse, run):
    tries = []

    @dg.asset(key=["s", "t"], partitions_def=DAYS, metadata=BY_DAY, retry_policy=dg.RetryPolicy(max_retries=2))
    def overtaken(context, warehouse: FencedPartitionResource) -> dg.MaterializeResult:
        tries.append(1)
        DuckDBStore(warehouse.database).draw_token("later run", [Claim(owner="s/t", partition_key=D1)])
        return warehouse.swap(context, pd.DataFrame({"d": [pd.Timestamp(D1)]}))

    result = run(overtaken, key=D1, raise_on_error=False)
    assert not result.success
    assert tries == [1]
    assert warehouse.events(["s", "t"]) == []
    assert warehouse.instance.get_runs()[0].tags["marigold/fenced_out_by"] == "later run"


def test_two_swaps_of_one_step_are_two_swaps(warehouse, run):
    @dg.asset(key=["s", "t"], partitions_def=DAYS, metadata=BY_DAY)
    def twice(context, warehouse: FencedPartitionResource) -> dg.MaterializeResult:
        warehouse.swap(context, pd.DataFrame({"d": [pd.Timestamp(D1)], "v": [1]}))
        return warehouse.swap(context, pd.DataFrame({"d": [pd.Timestamp(D1)], "v": [2]}))

    run(twice, key=D1)
    assert warehouse.rows("SELECT v FROM s.t") == [(2,)]
    assert len(FencedPartitionResource(database=warehouse.path).ledger()) == 2
    [(_, event)] = warehouse.events(["s", "t"])
    assert event.tags["dagster/data_version"] == event.metadata["marigold/content_hash"].value


def test_the_resource_and_the_io_manager_share_one_database(warehouse, run, loader):
    seen = []
    reader = loader(days.key, seen, pd.DataFrame, partitions_def=DAYS)
    run(days, reader, key=D1)
    assert len(seen[0]) == 2

    @dg.asset(key=["s", "u"], partitions_def=DAYS, metadata=BY_DAY)
    def mixed(context, warehouse: FencedPartitionResource) -> pd.DataFrame:
        return warehouse.read(context, ["s", "t"], pd.DataFrame, keys=[D1])

    run(mixed, days, key=D1)
    assert warehouse.rows("SELECT count(*) FROM s.u") == [(2,)]


def test_it_stands_in_for_the_resource_of_dagster_duckdb(warehouse):
    @dg.asset
    def old(duckdb_resource: DuckDBResource) -> None:
        with duckdb_resource.get_connection() as connection:
            connection.execute("CREATE OR REPLACE TABLE t AS SELECT current_setting('threads') AS threads")

    @dg.asset(deps=[old])
    def reading(duckdb_resource: DuckDBResource) -> None:
        with duckdb_resource.get_connection() as connection:
            assert connection.execute("SELECT threads FROM t").fetchall() == [(1,)]

    settings = {"database": warehouse.path, "connection_config": {"threads": "1"}}
    for kind in (DuckDBResource, FencedPartitionResource):
        assert warehouse.materialize(old, reading, resources={"duckdb_resource": kind(**settings)}).success
    assert FencedPartitionResource.model_fields.keys() > DuckDBResource.model_fields.keys()


def test_a_connection_is_closed_when_its_block_fails(warehouse):
    resource = FencedPartitionResource(database=warehouse.path)
    with pytest.raises(duckdb.CatalogException), resource.get_connection() as connection:
        connection.execute("CREATE TABLE t AS SELECT 1 AS v").execute("FROM no_such_table")
    with duckdb.connect(warehouse.path, config={"threads": "1"}) as other:  # refused while another config is open
        assert other.execute("SELECT v FROM t").fetchall() == [(1,)]


def test_the_schema_of_the_resource_is_that_of_tables_that_name_none(warehouse, run):
    @dg.asset
    def plain(context, warehouse: FencedPartitionResource) -> dg.MaterializeResult:
        return warehouse.swap(context, "SELECT 1 AS v")

    run(plain, settings={"schema": "shop"})
    assert warehouse.rows("SELECT v FROM shop.plain") == [(1,)]
    [(_, event)] = warehouse.events("plain")
    assert event.metadata["dagster/row_count"].value == 1


def test_the_data_version_of_a_range_changes_with_what_it_holds_and_with_nothing_else(warehouse, run):
    @dg.asset(key=["s", "t"], partitions_def=DAYS, metadata=BY_DAY, backfill_policy=dg.BackfillPolicy.single_run())
    def many_days(context, warehouse: FencedPartitionResource):
        days = pd.to_datetime(list(context.partition_keys))
        return warehouse.swap(context, pd.DataFrame({"d": days, "v": int(context.run.tags.get("value", 1))}))

    for value in ("1", "1", "2"):
        run(many_days, keys=(D1, D3), tags={"value": value})
    events = [event for _, event in warehouse.events(["s", "t"], D2)]
    first, second, third = (event.tags["dagster/data_version"] for event in events)
    assert first == second != third
    assert len({event.tags["marigold/fencing_token"] for event in events}) == 3


def test_an_asset_reads_its_own_past_from_its_first_partition_on(warehouse, run):
    before = dg.AssetDep(["s", "t"], partition_mapping=dg.TimeWindowPartitionMapping(start_offset=-1, end_offset=-1))

    @dg.asset(key=["s", "t"], partitions_def=DAYS, metadata=BY_DAY, deps=[before], backfill_policy=None)
    def growing(context, warehouse: FencedPartitionResource):
        past = warehouse.read(context, ["s", "t"], pa.Table)
        total = sum(past["v"].to_pylist()) if past.num_rows else 0
        rows = pd.DataFrame({"d": pd.to_datetime([context.partition_key]), "v": [total + 10]})
        return warehouse.swap(context, rows)

    for key in (D2, D3):  # not even the first of the calendar
        run(growing, key=key)
    assert warehouse.rows("SELECT v FROM s.t ORDER BY d") == [(10,), (20,)]


def test_a_context_that_is_no_assets_is_refused_before_anything_is_swapped(warehouse, run):
    @dg.op
    def write(context, warehouse: FencedPartitionResource):
        return warehouse.swap(context, pd.DataFrame({"v": [2]}))

    @dg.graph_asset(key=["s", "t"])
    def graph():
        return write()

    line = warehouse.refused(graph, resources={"warehouse": FencedPartitionResource(database=warehouse.path)})
    assert "OpExecutionContext" in line
    assert "context: dg.AssetExecutionContext" in line


def test_an_asset_check_reads_by_keys(warehouse, run):
    seen = []

    @dg.asset_check(asset=days)
    def check(context, warehouse: FencedPartitionResource):
        seen.append(warehouse.read(context, ["s", "t"], pa.Table, keys=[D1]).num_rows)
        return dg.AssetCheckResult(passed=True)

    @dg.asset_check(asset=days)
    def without_keys(context, warehouse: FencedPartitionResource):
        with pytest.raises(dg.Failure) as caught:
            warehouse.read(context, ["s", "t"], pa.Table)
        seen.append("keys=[...]" in caught.value.description)
        return dg.AssetCheckResult(passed=True)

    run(days, key=D1)
    assert run(days, check, without_keys, key=D2).success
    assert sorted(seen) == [True, 2]
