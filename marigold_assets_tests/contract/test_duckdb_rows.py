"""Rows, types and targets as DuckDB has them."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import duckdb
import pyarrow as pa
import pytest

from marigold_assets.errors import (
    ConfigurationError,
    InvalidDataError,
    RowsOutsidePartitionError,
    SchemaMismatchError,
    UnsupportedTypeError,
)
from marigold_assets.model import Equals, Interval, PartitionSlice, SwapOptions, TableName
from marigold_assets.stores.base import Query
from marigold_assets.testing.strategies import slice_of, table_of

TABLE = TableName(schema="sales", name="daily")


@pytest.fixture
def swap(duck, draw):
    """Swaps under a token of its own: ``swap(rows, "a")``."""

    def run(rows, *keys, **options):
        slices = [key if isinstance(key, PartitionSlice) else slice_of(key) for key in keys]
        attempt = draw()
        given = SwapOptions(**options)
        return duck.swap(slices, rows, attempt=attempt, swap_id=f"swap {attempt.token}", options=given)

    return run


@pytest.fixture
def sql(path):
    def run(statements):
        with duckdb.connect(str(path)) as connection:
            return connection.execute(statements).fetchall()

    return run


def day(number, expression="at", timezone="UTC"):
    start = datetime(2024, 3, number, tzinfo=UTC)
    interval = Interval(expression=expression, start=start, end=start + timedelta(days=1), timezone=timezone)
    return PartitionSlice(table=TABLE, partition_key=f"2024-03-{number:02}", conditions=(interval,), owner="daily")


def test_a_view_is_refused_and_kept(swap, sql, duck):
    sql("CREATE SCHEMA sales; CREATE TABLE sales.base AS SELECT 'a' AS key, 1::BIGINT AS value")
    sql("CREATE VIEW sales.daily AS FROM sales.base")
    with pytest.raises(ConfigurationError, match="is a view"):
        swap(table_of([{"key": "a", "value": 2}]), "a")
    assert sql("FROM sales.daily") == [("a", 1)]
    assert duck.ledger() == ()


def test_a_view_cannot_be_made_to_grow(swap, sql):
    sql("CREATE SCHEMA sales; CREATE VIEW sales.daily AS SELECT 'a' AS key")
    with pytest.raises(ConfigurationError, match="is a view"):
        swap(table_of([{"key": "a", "value": 2}]), "a", evolve=True)


def test_keys_deleted_and_inserted_again_satisfy_a_primary_key(swap, sql):
    sql("CREATE SCHEMA sales; CREATE TABLE sales.daily (key VARCHAR, value BIGINT PRIMARY KEY)")
    for values in ([1, 2], [2, 3]):
        swap(table_of([{"key": "a", "value": value} for value in values]), "a")
    assert sql("SELECT value FROM sales.daily ORDER BY ALL") == [(2,), (3,)]


def test_rows_that_break_a_constraint_are_refused(swap, sql, duck):
    sql("CREATE SCHEMA sales; CREATE TABLE sales.daily (key VARCHAR, value BIGINT PRIMARY KEY)")
    swap(table_of([{"key": "a", "value": 1}]), "a")
    with pytest.raises(InvalidDataError, match="constraint"):
        swap(table_of([{"key": "b", "value": 1}]), "b")
    assert sql("FROM sales.daily") == [("a", 1)]
    assert duck.heads(TABLE).keys() == {"a"}


def test_a_query_may_read_the_rows_that_it_replaces(swap, duck):
    swap(table_of([{"key": "a", "value": 1}] * 3 + [{"key": "b", "value": 1}]), "a", "b")
    [receipt] = swap(Query(sql="SELECT DISTINCT * FROM sales.daily WHERE key = 'a' -- dedupe"), "a")
    assert receipt.entry.row_count == 1
    assert duck.read(TABLE).num_rows == 2


def test_a_query_may_end_in_a_semicolon(swap):
    [receipt] = swap(Query(sql="SELECT 'a' AS key, 1 AS value ; "), "a")
    assert receipt.entry.row_count == 1


def test_a_query_may_read_the_rows_that_it_replaces_through_a_view(swap, duck, sql):
    swap(table_of([{"key": "a", "value": 1}]), "a")
    sql("CREATE VIEW everything AS FROM sales.daily")
    swap(Query(sql="SELECT key, value + 1 AS value FROM everything;"), "a")
    assert duck.read(TABLE).to_pylist() == [{"key": "a", "value": 2}]


@pytest.mark.parametrize(
    "text", ["SELECT 1; DROP TABLE sales.daily", "DROP TABLE sales.daily", "", "-- nothing", "SELEC"]
)
def test_a_query_that_is_no_select_is_refused(swap, duck, text):
    swap(table_of([{"key": "a", "value": 1}]), "a")
    with pytest.raises(ConfigurationError):
        swap(Query(sql=text), "a")
    assert duck.read(TABLE).num_rows == 1


@pytest.mark.parametrize(
    "text", ["key); DROP TABLE sales.daily; --", "key) OR (true", "nothing", "key || ", "sum(value)"]
)
def test_a_partition_expression_that_is_no_expression_of_the_table_is_refused(swap, duck, text):
    swap(table_of([{"key": "a", "value": 1}]), "a")
    slice_ = PartitionSlice(
        table=TABLE, partition_key="a", conditions=(Equals(expression=text, value="a"),), owner="daily"
    )
    with pytest.raises((ConfigurationError, InvalidDataError)):
        swap(table_of([{"key": "a", "value": 2}]), slice_)
    assert duck.read(TABLE).to_pylist() == [{"key": "a", "value": 1}]


def test_a_partition_expression_may_be_sql(swap, duck):
    slice_ = PartitionSlice(
        table=TABLE,
        partition_key="a",
        conditions=(Equals(expression="lower(key) -- folded", value="a"),),
        owner="daily",
    )
    swap(table_of([{"key": "A", "value": 1}, {"key": "a", "value": 2}]), slice_)
    assert duck.read(TABLE, [slice_]).num_rows == 2


@pytest.mark.parametrize(
    ("kind", "key", "value"),
    [(pa.int32(), "1.6", 2), (pa.int64(), "1e1", 10), (pa.date32(), "2024-03-01 23:00:00", date(2024, 3, 1))],
)
def test_a_key_that_the_database_would_round_names_no_row(swap, kind, key, value):
    rows = pa.table({"key": pa.array([value], kind), "value": [1]})
    with pytest.raises(RowsOutsidePartitionError):
        swap(rows, key)


def test_a_key_of_a_number_or_a_date_names_its_rows(swap, duck):
    swap(pa.table({"key": pa.array([7], pa.int8()), "at": [date(2024, 3, 1)]}), "07")
    assert duck.read(TABLE, [slice_of("7")]).num_rows == 1


def test_slices_that_share_a_row_are_refused(swap, duck):
    with pytest.raises(ConfigurationError, match=r"overlap|names the same"):
        swap(pa.table({"key": pa.array([1])}), "1", "01")
    assert duck.ledger() == ()


@pytest.mark.parametrize("kind", [pa.date32(), pa.timestamp("us"), pa.timestamp("us", tz="UTC"), pa.timestamp("ns")])
def test_days_are_cut_at_midnight_for_every_type_of_time(swap, duck, kind):
    naive = pa.array([datetime(2024, 3, 1), datetime(2024, 3, 2)], pa.timestamp("us"))
    moments = naive.cast(pa.timestamp("us", tz="UTC")) if getattr(kind, "tz", None) else naive.cast(kind)
    rows = pa.table({"at": moments, "value": [1, 2]})
    with pytest.raises(RowsOutsidePartitionError, match="1 of 2"):
        swap(rows, day(1))
    receipts = swap(rows, day(2), day(1))
    assert [receipt.entry.row_count for receipt in receipts] == [1, 1]
    assert duck.read(TABLE, [day(1)]).column("value").to_pylist() == [1]
    assert duck.read(TABLE, [day(1), day(2)]).num_rows == 2


@pytest.mark.parametrize("values", [["2024-03-01"], [20240301], [True]], ids=repr)
def test_a_time_partition_over_something_else_than_time_is_refused(swap, values, duck):
    with pytest.raises(ConfigurationError, match="'at'"):
        swap(pa.table({"at": values}), day(1))
    assert duck.columns(TABLE) is None


def test_a_receipt_and_a_query_spell_the_slice_out(swap, duck, sql):
    rows = pa.table({"at": [datetime(2024, 3, 1, 5)], "it's": ["x"]})
    [receipt] = swap(rows, day(1))
    for text in (receipt.query, duck.query(TABLE, [day(1)])):
        assert len(sql(text)) == 1
    assert sql(duck.query(TABLE, [day(2)], ["it's"])) == []


def test_two_dimensions_are_swapped_together(swap, duck):
    def cell(number, color):
        at = day(number).conditions[0]
        return PartitionSlice(
            table=TABLE,
            partition_key=f"{number}|{color}",
            conditions=(at, Equals(expression="color", value=color)),
            owner="daily",
        )

    rows = pa.table({"at": [datetime(2024, 3, n) for n in (1, 1, 2)], "color": ["red", "blue", "red"]})
    receipts = swap(rows, *(cell(number, color) for number in (1, 2) for color in ("red", "blue")))
    assert [receipt.entry.row_count for receipt in receipts] == [1, 1, 1, 0]
    assert duck.read(TABLE, [cell(2, "red")]).num_rows == 1


def test_empty_lists_take_the_first_real_type(swap, duck):
    swap(pa.table({"key": ["a"], "tags": pa.array([[]], pa.list_(pa.null()))}), "a")
    swap(pa.table({"key": ["b"], "tags": [["x"]]}), "b")
    swap(pa.table({"key": ["c"], "tags": pa.array([[]], pa.list_(pa.null()))}), "c")
    assert sorted(map(tuple, (row.values() for row in duck.read(TABLE).to_pylist()))) == [
        ("a", []),
        ("b", ["x"]),
        ("c", []),
    ]


def test_nested_values_of_another_shape_are_refused_by_name(swap):
    swap(pa.table({"key": ["a"], "who": [{"name": "x"}]}), "a")
    with pytest.raises(SchemaMismatchError, match=r"added .*'age'"):
        swap(pa.table({"key": ["a"], "who": [{"name": "x", "age": 1}]}), "a")


@pytest.mark.parametrize("kind", [pa.float16(), pa.decimal256(50, 2)], ids=str)
def test_a_type_that_duckdb_has_not_is_refused_as_such(swap, kind, duck):
    with pytest.raises(UnsupportedTypeError, match=r"(?s)type.*Remedy"):
        swap(pa.table({"key": ["a"], "value": pa.nulls(1, kind)}), "a")
    assert duck.columns(TABLE) is None


@pytest.mark.parametrize("names", [["key", "a", "a"], ["key", "a", "A"]])
def test_two_columns_of_one_name_are_refused_even_for_a_new_table(swap, names, duck):
    with pytest.raises(SchemaMismatchError, match="cannot tell apart"):
        swap(pa.table([["a"], [1], [2]], names=names), "a")
    assert duck.columns(TABLE) is None


def test_a_stream_that_breaks_changes_nothing_and_shows_why(swap, duck):
    swap(table_of([{"key": "a", "value": 1}]), "a")

    def batches():
        yield from table_of([{"key": "a", "value": 2}]).to_batches()
        raise ValueError("the source went away")

    with pytest.raises(ValueError, match="the source went away"):
        swap(pa.RecordBatchReader.from_batches(table_of([]).schema, batches()), "a")
    assert duck.read(TABLE).to_pylist() == [{"key": "a", "value": 1}]


def test_a_value_that_does_not_fit_is_shown_with_both_types(swap):
    swap(pa.table({"key": ["a"], "value": pa.array([1], pa.int8())}), "a")
    with pytest.raises(InvalidDataError, match="'value': BIGINT value '300' does not fit TINYINT"):
        swap(pa.table({"key": ["a"], "value": [300]}), "a")


def test_a_renamed_column_is_guessed(swap):
    swap(pa.table({"key": ["a"], "amount": [1]}), "a")
    with pytest.raises(SchemaMismatchError, match="was 'amount' renamed to 'amounts'"):
        swap(pa.table({"key": ["a"], "amounts": [1]}), "a")


def test_the_schema_of_the_fence_cannot_be_written(swap):
    with pytest.raises(ConfigurationError, match="fence"):
        swap(table_of([]), slice_of("a", table=TableName(schema="Marigold", name="fence")))


def test_a_python_variable_is_no_table(swap):
    secrets = pa.table({"key": ["a"]})
    with pytest.raises(ConfigurationError):
        swap(Query(sql="SELECT * FROM secrets"), "a")
    assert secrets.num_rows == 1


def test_the_zone_of_the_machine_does_not_matter(swap, duck):
    """An expression over an instant is evaluated in the partition's zone."""
    at = datetime(2024, 3, 1, 23, 30, tzinfo=UTC)  # already the 2nd in Berlin
    berlin = "Europe/Berlin"
    start = datetime(2024, 3, 1, 23, tzinfo=UTC)
    interval = Interval(expression="CAST(moment AS DATE)", start=start, end=start + timedelta(days=1), timezone=berlin)
    slice_ = PartitionSlice(table=TABLE, partition_key="2024-03-02", conditions=(interval,), owner="daily")
    swap(pa.table({"moment": pa.array([at], pa.timestamp("us", tz="UTC"))}), slice_)
    assert duck.read(TABLE, [slice_]).num_rows == 1
