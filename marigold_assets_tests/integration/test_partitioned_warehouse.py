"""``@partitioned_asset`` over SQL and relations: whatever a function does with them, the rows are right."""

from __future__ import annotations

import warnings

import dagster as dg
import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from marigold_assets import FencedPartitionResource
from marigold_assets.asset import partitioned_asset
from marigold_assets_tests.integration.conftest import failure_of

pytestmark = pytest.mark.slow  # the quick tests have test_partitioned_asset.py


DAYS = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-01-16")
MANY = 5_000  # rows a day, more than DuckDB hands over at a time


def day(number):
    return f"2024-01-{number:02d}"


@partitioned_asset(partitions_def=DAYS, partition_expr="day", code_version="1")
def orders(context: dg.AssetExecutionContext) -> pd.DataFrame:
    at = pd.Timestamp(context.partition_key)
    return pd.DataFrame({"day": at, "cents": range(at.day * 100_000, at.day * 100_000 + MANY), "shop": "a"})


@pytest.fixture
def stocked(warehouse):
    warehouse.materialize(orders, keys=(day(1), day(4)))
    return warehouse


def over(function, *, annotation=duckdb.DuckDBPyRelation, **options):
    function.__annotations__ = {"orders": annotation}
    return partitioned_asset(partitions_def=DAYS, partition_expr="day", name="made", **options)(function)


def build(warehouse, asset, first=1, last=3, **options):
    return warehouse.materialize(orders, asset, keys=(day(first), day(last)), selection=["made"], **options)


def inputs_of(warehouse, key):
    entry = [e for e in warehouse.io_manager().store.ledger() if (e.owner, e.partition_key) == ("made", key)][-1]
    return [(one.owner, one.partition_key, one.content_hash is not None) for one in entry.provenance.inputs]


NAMES = pd.DataFrame({"shop": ["a", "b"], "name": ["Ann", "Bob"]})


def with_join_in_pandas(orders):
    return orders.df().merge(NAMES, on="shop").drop(columns="shop")


def with_values_relation(orders):
    return orders.project("day, cents, 'Ann' AS name")


def with_another_connection(orders):
    other = duckdb.connect()
    other.register("orders_here", orders.to_arrow_table())
    other.register("names", NAMES)
    return other.sql("SELECT day, cents, name FROM orders_here JOIN names USING (shop)")


def with_a_frame_in_its_own_query(orders):
    names = NAMES  # noqa: F841 - DuckDB finds it by its name
    return orders.query("o", "SELECT day, cents, name FROM o JOIN names USING (shop)")


def with_the_default_connection(orders):
    table, names = orders.to_arrow_table(), NAMES  # noqa: F841
    return duckdb.sql("SELECT day, cents, name FROM table JOIN names USING (shop)".replace("table", '"table"'))


def with_a_reader(orders):
    return orders.project("day, cents, 'Ann' AS name").to_arrow_reader(100)


def with_polars(orders):
    return orders.pl().join(pl.from_pandas(NAMES), on="shop").drop("shop")


def with_a_lazy_frame(orders):
    return orders.pl().lazy().with_columns(name=pl.lit("Ann")).drop("shop")


def with_an_open_result(orders):
    if hasattr(orders, "fetchone"):  # gone with duckdb 2
        orders.fetchone()
    return orders.project("day, cents, 'Ann' AS name")


def with_a_computed_relation(orders):
    made = orders.project("day, cents, 'Ann' AS name")
    (made.execute if hasattr(made, "execute") else made.materialize)()
    return made


def with_a_half_read_relation(orders):
    made = orders.project("day, cents, 'Ann' AS name")
    if hasattr(made, "fetchmany"):
        made.fetchmany(10)
    return made


def with_a_view_of_its_own(orders):
    return orders.create_view("mine", replace=True).query("mine", "SELECT day, cents, 'Ann' AS name FROM mine")


WAYS = [
    with_join_in_pandas,
    with_values_relation,
    with_another_connection,
    with_the_default_connection,
    with_a_reader,
    with_polars,
    with_a_lazy_frame,
    with_an_open_result,
    with_a_computed_relation,
    with_a_frame_in_its_own_query,
    with_a_half_read_relation,
    with_a_view_of_its_own,
]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize("together", [1, 2])
def test_rows_and_record_are_right_whatever_a_function_does_with_a_relation(stocked, way, together):
    def made(orders):
        return way(orders)

    build(stocked, over(made, keys_per_statement=together))
    [found] = stocked.rows(
        "SELECT count(*), count(DISTINCT cents), min(name), max(name), count(DISTINCT day) FROM public.made"
    )
    assert found == (3 * MANY, 3 * MANY, "Ann", "Ann", 3)
    assert [inputs_of(stocked, day(n)) for n in (1, 2, 3)] == [[("orders", day(n), True)] for n in (1, 2, 3)]


def test_a_variable_of_the_function_is_no_table_for_sql_text(stocked):
    def made(orders):
        names = NAMES  # noqa: F841
        return f"SELECT day, name FROM ({orders}) JOIN names USING (shop)"

    first = stocked.refused(orders, over(made, annotation=str), keys=(day(1), day(3)), selection=["made"])
    assert "names" in first


@pytest.mark.parametrize("annotation", [duckdb.DuckDBPyRelation, str])
@pytest.mark.parametrize("way", ["resource", "connection", "duckdb"])
def test_a_function_that_opens_the_file_itself_gets_right_rows_or_a_clear_error(stocked, annotation, way):
    def made(context, orders, market: FencedPartitionResource):
        query = f"SELECT count(*) FROM public.orders WHERE day = '{context.partition_key}'"
        if way == "resource":
            count = len(market.read(context, "orders", pd.DataFrame, keys=[context.partition_key]))
        elif way == "connection":
            with market.get_connection() as connection:
                [(count,)] = connection.execute(query).fetchall()
        else:
            with duckdb.connect(stocked.path, config={"custom_user_agent": "dagster"}) as connection:
                [(count,)] = connection.execute(query).fetchall()
        return pd.DataFrame({"day": [pd.Timestamp(context.partition_key)], "count": [count]})

    made.__annotations__ = {"orders": annotation, "market": FencedPartitionResource}
    asset = partitioned_asset(partitions_def=DAYS, partition_expr="day")(made)
    resources = {"market": FencedPartitionResource(database=stocked.path)}
    result = build(stocked, asset, resources=resources, raise_on_error=False)
    if result.success:
        assert stocked.rows("SELECT count FROM public.made") == [(MANY,)] * 3
    else:
        first = failure_of(result).splitlines()[0]
        for word in ("made", day(1), "locked", "Remedy"):
            assert word in first
        assert way != "duckdb"


@pytest.mark.parametrize("way", ["resource", "connection", "duckdb"])
def test_a_function_of_frames_opens_the_file_freely(stocked, way):
    def made(context, orders, market: FencedPartitionResource):
        query = f"SELECT count(*) FROM public.orders WHERE day = '{context.partition_key}'"
        if way == "resource":
            count = len(market.read(context, "orders", pd.DataFrame))
        elif way == "connection":
            with market.get_connection() as connection:
                [(count,)] = connection.execute(query).fetchall()
        else:
            with duckdb.connect(stocked.path) as connection:
                [(count,)] = connection.execute(query).fetchall()
        return pd.DataFrame({"day": [pd.Timestamp(context.partition_key)], "count": [count]})

    made.__annotations__ = {"orders": pd.DataFrame, "market": FencedPartitionResource}
    asset = partitioned_asset(partitions_def=DAYS, partition_expr="day")(made)
    build(stocked, asset, resources={"market": FencedPartitionResource(database=stocked.path)})
    assert stocked.rows("SELECT count FROM public.made") == [(MANY,)] * 3


def test_a_stream_that_reads_the_same_file_while_it_is_stored_is_refused_or_right(stocked):
    schema = pa.schema([("day", pa.timestamp("us")), ("count", pa.int64())])

    @partitioned_asset(partitions_def=DAYS, partition_expr="day")
    def made(context, orders: pd.DataFrame):
        def batches():
            with duckdb.connect(stocked.path) as connection:
                [(count,)] = connection.execute("SELECT count(*) FROM public.orders").fetchall()
            at = pd.Timestamp(context.partition_key).to_pydatetime()
            yield pa.record_batch({"day": pa.array([at], pa.timestamp("us")), "count": [count]})

        return pa.RecordBatchReader.from_batches(schema, batches())

    result = build(stocked, made, raise_on_error=False)
    if result.success:
        assert stocked.rows("SELECT count FROM public.made") == [(4 * MANY,)] * 3
    else:
        assert "made" in failure_of(result)
        assert stocked.events("made") == []
    assert stocked.rows("SELECT count(*) FROM public.orders") == [(4 * MANY,)]


def test_an_error_in_a_stream_is_that_of_its_author_and_names_the_partition(stocked):
    schema = pa.schema([("day", pa.timestamp("us"))])

    @partitioned_asset(partitions_def=DAYS, partition_expr="day")
    def made(context, orders: pd.DataFrame):
        def batches():
            yield pa.record_batch({"day": pa.array([pd.Timestamp(context.partition_key)], pa.timestamp("us"))})
            if context.partition_key == day(2):
                raise LookupError("no more rows")

        return pa.RecordBatchReader.from_batches(schema, batches())

    result = build(stocked, made, raise_on_error=False)
    assert "no more rows" in failure_of(result)
    assert [event.partition for _, event in stocked.events("made")] == [day(1)]
    assert stocked.rows("SELECT count(*) FROM public.made") == [(1,)]


def test_sql_that_reads_its_own_table_sees_it_as_it_was(stocked):
    @partitioned_asset(partitions_def=DAYS, partition_expr="day")
    def made(context, orders: str):
        own = f"SELECT n + 1 FROM public.made WHERE day = '{context.partition_key}'"
        before = f"coalesce(({own}), 1)" if context.run.tags.get("again") else "1"
        return f"SELECT DISTINCT day, {before}::BIGINT AS n FROM ({orders})"

    build(stocked, made)
    for n in (2, 3):
        build(stocked, made, tags={"again": "yes"})
        assert stocked.rows("SELECT n FROM public.made") == [(n,)] * 3


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("SELECT", "parser"),
        ("SELECT * FROM nowhere", "nowhere"),
        ("DELETE FROM public.orders", ""),
        ("SELECT 1 AS day; DROP TABLE public.orders", ""),
        ("SELECT 1 AS day; -- done", "semicolon"),
        ("", ""),
    ],
)
def test_text_that_is_no_select_is_refused_and_changes_nothing(stocked, sql, words):
    def made(orders):
        return sql

    first = stocked.refused(orders, over(made, annotation=str), keys=(day(1), day(3)), selection=["made"])
    assert "made" in first
    assert day(1) in first
    assert words.casefold() in first.casefold()


def test_a_chunk_with_a_row_outside_stores_none_of_it_and_what_was_before_stays(stocked):
    def made(orders):
        return f"SELECT CASE WHEN day = '{day(4)}' THEN day + INTERVAL 1 DAY ELSE day END AS day FROM ({orders})"

    result = build(stocked, over(made, annotation=str, keys_per_statement=2), last=4, raise_on_error=False)
    first = failure_of(result).splitlines()[0]
    for word in ("made", day(3), "outside"):
        assert word in first
    assert [event.partition for _, event in stocked.events("made")] == [day(1), day(2)]
    assert stocked.rows("SELECT count(DISTINCT day) FROM public.made") == [(2,)]


def test_a_chunk_stops_before_what_stands_and_goes_on_behind_it(stocked):
    seen = []

    def made(context, orders):
        seen.append(tuple(context.partition_keys))
        return orders

    def of(cut_off):
        made.__annotations__ = {"orders": str}
        return partitioned_asset(
            partitions_def=DAYS, partition_expr="day", keys_per_statement=9, code_version="1", early_cutoff=cut_off
        )(made)

    build(stocked, of("on"), first=2, last=2)
    build(stocked, of("on"), last=4)
    assert seen == [(day(2),), (day(1),), (day(3), day(4))]
    assert stocked.rows("SELECT count(*) FROM public.made") == [(4 * MANY,)]


def test_sql_one_text_a_partition_is_computed_inside_too(stocked):
    @partitioned_asset(
        partitions_def=DAYS,
        partition_expr="day",
        ins={"orders": dg.AssetIn(partition_mapping=dg.TimeWindowPartitionMapping(start_offset=-1, end_offset=0))},
    )
    def made(context, orders: dict[str, str]):
        counts = " UNION ALL ".join(f"SELECT count(*) AS n FROM ({text})" for text in orders.values())
        return f"SELECT DATE '{context.partition_key}' AS day, sum(n)::BIGINT AS n FROM ({counts})"

    build(stocked, made)
    assert stocked.rows("SELECT n FROM public.made ORDER BY day") == [(MANY,), (2 * MANY,), (2 * MANY,)]
    assert inputs_of(stocked, day(2)) == [("orders", day(1), True), ("orders", day(2), True)]


def test_sql_over_a_mere_dependency_records_what_it_read(stocked):
    @partitioned_asset(partitions_def=DAYS, partition_expr="day", deps=["orders"])
    def made(context):
        return f"SELECT day, cents FROM public.orders WHERE day = '{context.partition_key}'"

    build(stocked, made)
    assert stocked.rows("SELECT count(*) FROM public.made") == [(3 * MANY,)]
    assert inputs_of(stocked, day(2)) == [("orders", day(2), True)]


def test_awkward_names_and_zones_pass_through_relations(warehouse):
    zoned = dg.DailyPartitionsDefinition("2024-10-26", end_date="2024-10-29", timezone="Europe/Berlin")

    @partitioned_asset(partitions_def=zoned, partition_expr="At Time", key=["my-schema", "select"])
    def source(context: dg.AssetExecutionContext) -> pd.DataFrame:
        window = context.partition_time_window
        at = pd.date_range(window.start, window.end, freq="h", inclusive="left").tz_convert("UTC")
        return pd.DataFrame({"At Time": at, 'a"b': 1})

    made = []
    for kind in (duckdb.DuckDBPyRelation, str, pd.DataFrame):

        def copied(upstream):
            return f"SELECT * FROM ({upstream})" if isinstance(upstream, str) else upstream

        copied.__annotations__ = {"upstream": kind}
        made.append(
            partitioned_asset(
                partitions_def=zoned,
                partition_expr="At Time",
                name=f"order {kind.__name__}".lower().replace(" ", "_"),
                ins={"upstream": dg.AssetIn(["my-schema", "select"])},
            )(copied)
        )
    warehouse.materialize(source, *made, keys=("2024-10-26", "2024-10-28"))
    for asset in made:
        rows = [event.metadata["dagster/partition_row_count"].value for _, event in warehouse.events(asset.key)]
        assert rows == [24, 25, 24]


def test_a_warning_says_that_a_chunk_is_called_key_by_key(stocked, caplog):
    def made(context, orders):
        return orders.df()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = build(stocked, over(made, keys_per_statement=3))
    logged = [e.user_message for e in stocked.instance.all_logs(result.run_id) if "key by key" in e.user_message]
    assert len(logged) == 1
    assert "keys_per_statement is 3" in logged[0]
