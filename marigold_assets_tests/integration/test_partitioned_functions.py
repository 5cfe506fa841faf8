"""What the functions of ``@partitioned_asset`` may look like, where they may come from, and what they see."""

from __future__ import annotations

import types

import dagster as dg
import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from marigold_assets import FencedPartitionResource
from marigold_assets.asset import partitioned_asset
from marigold_assets.errors import ConfigurationError
from marigold_assets.one_key import PartitionContext
from marigold_assets_tests.integration.conftest import failure_of

pytestmark = pytest.mark.slow  # the quick tests have test_partitioned_asset.py


DAYS = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-01-16")


def day(number):
    return f"2024-01-{number:02d}"


def asset_of(function, **options):
    return partitioned_asset(**{"partitions_def": DAYS, "partition_expr": "day", **options})(function)


@partitioned_asset(partitions_def=DAYS, partition_expr="day", code_version="1")
def orders(context: dg.AssetExecutionContext) -> pd.DataFrame:
    at = pd.Timestamp(context.partition_key)
    return pd.DataFrame({"day": [at], "cents": [at.day]})


@pytest.fixture
def stocked(warehouse):
    warehouse.materialize(orders, keys=(day(1), day(3)))
    return warehouse


class Plain:
    """Adds one to every amount, whatever it is given."""

    def __call__(self, rows):
        if isinstance(rows, dict):
            return self(next(iter(rows.values())))
        if isinstance(rows, pd.DataFrame):
            return rows.assign(cents=rows["cents"] + 1)
        if isinstance(rows, pl.DataFrame | pl.LazyFrame):
            return rows.with_columns(pl.col("cents") + 1)
        if isinstance(rows, pa.RecordBatchReader):
            batches = (self(pa.Table.from_batches([batch])).to_batches()[0] for batch in rows)
            return pa.RecordBatchReader.from_batches(rows.schema, batches)
        if isinstance(rows, pa.Table):
            added = pa.array([value + 1 for value in rows.column("cents").to_pylist()], pa.int64())
            return rows.set_column(rows.schema.get_field_index("cents"), rows.schema.field("cents"), added)
        if isinstance(rows, str):
            return f"SELECT * REPLACE (cents + 1 AS cents) FROM ({rows})"
        return rows.project("* REPLACE (cents + 1 AS cents)")


@pytest.mark.parametrize(
    "annotation",
    [
        None,
        pd.DataFrame,
        pd.DataFrame | None,
        pl.DataFrame,
        pl.LazyFrame,
        pa.Table,
        pa.RecordBatchReader,
        duckdb.DuckDBPyRelation,
        duckdb.DuckDBPyRelation | None,
        str,
        dict[str, pd.DataFrame],
        dict[str, pl.DataFrame] | None,
        dict[str, str],
        "pd.DataFrame",
        "pl.LazyFrame | None",
        "dict[str, str]",
    ],
    ids=str,
)
def test_an_annotation_decides_what_the_function_is_given_and_may_return(stocked, annotation):
    def made(orders):
        return Plain()(orders)

    made.__annotations__ = {} if annotation is None else {"orders": annotation}
    stocked.materialize(orders, asset_of(made), keys=(day(1), day(3)), selection=["made"])
    assert stocked.rows("SELECT cents FROM public.made ORDER BY day") == [(2,), (3,), (4,)]


@pytest.mark.parametrize(
    "annotation", [pd.Series, int, pd.DataFrame | pl.DataFrame, list[pd.DataFrame], dict[int, str]]
)
def test_an_annotation_that_no_input_can_be_loaded_as_is_refused_when_it_is_defined(annotation):
    def made(orders): ...

    made.__annotations__ = {"orders": annotation}
    with pytest.raises(ConfigurationError, match="orders"):
        asset_of(made)


def test_parameters_may_be_keyword_only_and_have_none_as_default(stocked):
    @partitioned_asset(partitions_def=DAYS, partition_expr="day")
    def made(_, *, orders: pd.DataFrame, previous: pd.DataFrame | None = None):
        assert _.partition_key
        before = 0 if previous is None else previous["cents"].item()
        return orders.assign(cents=orders["cents"] + before)

    stocked.materialize(orders, made, keys=(day(1), day(3)), selection=["made"])
    assert stocked.rows("SELECT cents FROM public.made ORDER BY day") == [(1,), (3,), (6,)]


def test_the_context_is_that_of_the_key_also_where_it_is_asked_for(stocked):
    seen = []

    @partitioned_asset(partitions_def=DAYS, partition_expr="day")
    def made(context: dg.AssetExecutionContext, orders: pd.DataFrame):
        got = dg.AssetExecutionContext.get()
        seen.append((context.partition_key, got.partition_key, context.asset_partition_key_for_input("orders")))
        assert got is context
        assert isinstance(context, PartitionContext)
        window = context.partition_time_window
        assert (day(window.start.day), day(window.end.day - 1)) == (context.partition_key, context.partition_key)
        assert context.asset_partition_keys_for_input("orders") == [context.partition_key]
        assert context.asset_partitions_time_window_for_input("orders").start == window.start
        assert context.partition_key_range == dg.PartitionKeyRange(context.partition_key, context.partition_key)
        with pytest.raises(ConfigurationError, match="nothing"):
            context.asset_partition_keys_for_input("nothing")
        context.add_asset_metadata({"of": context.partition_key})
        return orders

    stocked.materialize(orders, made, keys=(day(1), day(3)), selection=["made"])
    assert seen == [(day(n), day(n), day(n)) for n in (1, 2, 3)]
    assert [e.metadata["of"].value for _, e in stocked.events("made")] == [day(n) for n in (1, 2, 3)]


def chained():
    """Two assets in a module, as load_assets_from_modules finds them."""
    module = types.ModuleType("shop_assets")

    def daily(context):
        at = pd.Timestamp(context.partition_key)
        return pd.DataFrame({"day": [at], "cents": [at.day]})

    def to_date(daily, previous):
        before = 0 if previous is None else previous["cents"].item()
        return daily.assign(cents=daily["cents"] + before)

    module.daily, module.to_date = asset_of(daily), asset_of(to_date)
    return module


def test_assets_may_be_given_a_prefix_when_they_are_loaded(warehouse):
    found = dg.load_assets_from_modules([chained()], key_prefix=["eu", "shop"], group_name="money")
    assert {one.key.to_user_string() for one in found} == {"eu/shop/daily", "eu/shop/to_date"}
    warehouse.materialize(*found, keys=(day(1), day(3)), selection=["eu/shop/daily"])
    warehouse.materialize(*found, keys=(day(1), day(3)), selection=["eu/shop/to_date"])
    assert warehouse.rows("SELECT cents FROM shop.to_date ORDER BY day") == [(1,), (3,), (6,)]
    entry = warehouse.io_manager().store.ledger()[-1]
    assert {one.owner for one in entry.provenance.inputs} == {"eu/shop/daily", "eu/shop/to_date"}


def test_assets_may_be_given_other_attributes_and_other_inputs(warehouse):
    module = chained()
    renamed = {dg.AssetKey("daily"): dg.AssetKey(["x", "per_day"])}
    daily = module.daily.with_attributes(asset_key_replacements=renamed)
    to_date = module.to_date.with_attributes(asset_key_replacements=renamed)
    warehouse.materialize(daily, keys=(day(1), day(2)))
    warehouse.materialize(daily, to_date, keys=(day(1), day(2)), selection=["to_date"])
    assert warehouse.rows("SELECT cents FROM public.to_date ORDER BY day") == [(1,), (3,)]


@pytest.mark.filterwarnings("ignore:Asset job both materializes assets with varying BackfillPolicies")
def test_jobs_over_assets_run_them(warehouse):
    module = chained()
    definitions = dg.Definitions(
        assets=[module.daily, module.to_date],
        jobs=[dg.define_asset_job("both", ["daily", "to_date"])],
        resources={"io_manager": warehouse.io_manager()},
    )
    job = definitions.resolve_job_def("both")
    for number in (1, 2):
        assert job.execute_in_process(instance=warehouse.instance, partition_key=day(number)).success
    assert warehouse.rows("SELECT cents FROM public.to_date ORDER BY day") == [(1,), (3,)]
    result = job.execute_in_process(instance=warehouse.instance, partition_key=day(5), raise_on_error=False)
    assert f"from partition '{day(3)}' on" in failure_of(result).splitlines()[0]


def test_a_run_without_partitions_is_refused(warehouse):
    result = warehouse.materialize(orders, raise_on_error=False)
    first = failure_of(result).splitlines()[0]
    for word in ("orders", "no partition", "Remedy"):
        assert word in first


def test_an_io_manager_that_cannot_swap_is_refused(warehouse, tmp_path):
    result = warehouse.materialize(
        orders,
        key=day(1),
        resources={"io_manager": dg.FilesystemIOManager(base_dir=str(tmp_path))},
        raise_on_error=False,
    )
    first = failure_of(result).splitlines()[0]
    for word in ("orders", "io_manager", "FilesystemIOManager", "FencedPartitionIOManager"):
        assert word in first


def test_resources_may_be_asked_for_by_parameter_or_by_context(stocked):
    @partitioned_asset(partitions_def=DAYS, partition_expr="day", required_resource_keys={"word"})
    def made(context, market: FencedPartitionResource, other: dg.ResourceParam[str], orders: pd.DataFrame):
        entries = market.ledger("orders")
        return orders.assign(entries=len(entries), other=other + context.resources.word)

    resources = {"market": FencedPartitionResource(database=stocked.path), "other": "a", "word": "b"}
    stocked.materialize(orders, made, keys=(day(1), day(2)), selection=["made"], resources=resources)
    assert stocked.rows("SELECT DISTINCT entries, other FROM public.made") == [(3, "ab")]
