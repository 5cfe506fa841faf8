"""What rows are computed from, as DuckDB finds it out: also where other tools have written."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import duckdb
import pyarrow as pa
import pytest

from marigold_assets.errors import ConfigurationError, ContentDiffersError, FencedOutError, MissingInputError
from marigold_assets.model import (
    CutOff,
    Equals,
    InputPartition,
    Interval,
    PartitionSlice,
    Provenance,
    SwapOptions,
    TableName,
)
from marigold_assets.stores.base import Query, Read
from marigold_assets.stores.duckdb import DuckDBStore
from marigold_assets.testing import record
from marigold_assets.testing.strategies import slice_of, table_of

TABLE = TableName(schema="sales", name="daily")
FOREIGN = TableName(schema="lake", name="events")
BERLIN = "Europe/Berlin"


def day(number, zone="UTC", expression="CAST(moment AS DATE)"):
    start = datetime(2024, 3, number, tzinfo=UTC) - timedelta(hours=1 if zone == BERLIN else 0)
    interval = Interval(expression=expression, start=start, end=start + timedelta(days=1), timezone=zone)
    return PartitionSlice(table=FOREIGN, partition_key=f"{zone} {number}", conditions=(interval,), owner="events")


@pytest.fixture
def foreign(path):
    """A table that another tool has written."""
    with duckdb.connect(str(path)) as connection:
        connection.execute(
            "CREATE SCHEMA lake; CREATE TABLE lake.events AS SELECT * FROM (VALUES"
            " (TIMESTAMPTZ '2024-03-01 12:00:00+00', 'x'), (TIMESTAMPTZ '2024-03-01 23:30:00+00', 'y'))"
            " AS v (moment, kind)"
        )


def test_rows_that_another_tool_wrote_are_hashed(duck, foreign):
    wanted = [day(1), day(2), day(2, BERLIN), day(1, BERLIN)]
    found = duck.inputs(wanted)
    hashes = [one.content_hash for one in found]
    assert hashes[1] is None  # no rows
    assert [hashes[0], hashes[2], hashes[3]] == [duck.content_hash(s) for s in (day(1), day(2, BERLIN), day(1, BERLIN))]
    assert len({hashes[0], hashes[2], hashes[3]}) == 3


def test_slices_that_are_cut_in_different_ways_are_hashed_too(duck, foreign):
    whole = PartitionSlice(table=FOREIGN, partition_key=None, owner="events")
    kind = PartitionSlice(
        table=FOREIGN, partition_key="y", conditions=(Equals(expression="kind", value="y"),), owner="events"
    )
    found = duck.inputs([whole, kind, day(1)])
    assert [one.content_hash for one in found] == [duck.content_hash(s) for s in (whole, kind, day(1))]
    assert found[0].content_hash != found[1].content_hash


def test_an_expression_that_the_table_does_not_know_is_refused(duck, foreign):
    with pytest.raises(ConfigurationError, match="'nothing'"):
        duck.inputs([day(1, expression="nothing")])


def test_the_heads_of_many_slices_are_one_query_a_table(path, duck, draw):
    keys = [f"{number}" for number in range(30)]
    rows = table_of([{"key": key, "value": 1} for key in keys])
    duck.swap([slice_of(key) for key in keys], rows, attempt=draw(), swap_id="x")
    labels = []
    found = DuckDBStore(str(path), observer=record(labels)).inputs([slice_of(key) for key in keys])
    assert labels == ["format", "begin reading", "read heads", "describe", "count"]
    assert len({one.content_hash for one in found}) == 30


@pytest.mark.parametrize("expression", ["CAST(moment AS DATE)", "moment"], ids=["date", "instant"])
def test_heads_are_compared_with_the_rows_of_their_windows_each_in_its_zone(duck, draw, path, expression):
    """Of one table, asked for together; only what no longer holds is measured."""
    moments = [datetime(2024, 3, 1, 12, tzinfo=UTC), datetime(2024, 3, 4, 12, tzinfo=UTC)]
    given = [pa.table({"moment": pa.array([one], pa.timestamp("us", tz="UTC"))}) for one in moments]
    attempt = draw()
    wanted = [*(day(number, expression=expression) for number in (1, 2, 3)), day(4, BERLIN, expression)]
    first = duck.swap(wanted[:3], given[0], attempt=attempt, swap_id="1")
    last = duck.swap(wanted[3:], given[1], attempt=attempt, swap_id="2")
    stored = [receipt.entry.content_hash for receipt in (*first, *last)]
    assert [one.content_hash for one in duck.inputs(wanted)] == stored
    with duckdb.connect(str(path)) as connection:  # the third of March in UTC, the fourth in Berlin
        connection.execute("INSERT INTO lake.events VALUES (TIMESTAMPTZ '2024-03-03 23:30:00+00')")
    hashes = [one.content_hash for one in duck.inputs(wanted)]
    assert hashes[:2] == stored[:2]
    assert hashes[2:] == [duck.content_hash(slice_) for slice_ in wanted[2:]]
    assert hashes[3] != stored[3]


def test_keys_that_a_collation_takes_for_equal_are_counted_apart(duck, draw, path):
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE SCHEMA sales; CREATE TABLE sales.daily (key VARCHAR COLLATE NOCASE, value BIGINT)")
    wanted = [slice_of("a"), slice_of("A")]
    rows = table_of([{"key": "a", "value": 1}, {"key": "A", "value": 2}, {"key": "A", "value": 3}])
    receipts = duck.swap(wanted, rows, attempt=draw(), swap_id="x")
    assert [one.content_hash for one in duck.inputs(wanted)] == [receipt.entry.content_hash for receipt in receipts]
    with duckdb.connect(str(path)) as connection:
        connection.execute("DELETE FROM sales.daily WHERE value = 1")
    assert [one.content_hash for one in duck.inputs(wanted)] == [None, receipts[1].entry.content_hash]


def test_a_head_counts_after_the_table_has_grown(duck, draw):
    """The rows are those that it tells of, though they hash to something else now."""
    attempt = draw()
    [receipt] = duck.swap([slice_of("a")], table_of([{"key": "a", "value": 1}]), attempt=attempt, swap_id="1")
    more = pa.table({"key": ["b"], "value": [2], "more": [3]})
    duck.swap([slice_of("b")], more, attempt=attempt, swap_id="2", options=SwapOptions(evolve=True))
    assert duck.inputs([slice_of("a")])[0].content_hash == receipt.entry.content_hash
    assert duck.content_hash(slice_of("a")) != receipt.entry.content_hash


def test_sql_that_reads_a_partition_whose_rows_were_deleted_is_refused(duck, draw, path, raws):
    with duckdb.connect(str(path)) as connection:
        connection.execute("DELETE FROM sales.raw WHERE key = 'a'")
    query = Query(sql=COPY.format("'a'"), reads={"a": (Read(slice_=raw("a")),)})
    with pytest.raises(MissingInputError, match="partition 'a' of asset 'raw'"):
        duck.swap([slice_of("a")], query, attempt=draw(), swap_id="x")


def test_a_view_is_read_like_a_table(duck, path, foreign):
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE VIEW lake.seen AS FROM lake.events")
    view = PartitionSlice(table=TableName(schema="LAKE", name="Seen"), partition_key=None, owner="seen")
    assert duck.inputs([view])[0].content_hash == duck.content_hash(view)


def test_keys_with_a_comma_or_a_quote_are_only_keys(duck, draw):
    keys = ["a,b", "it's", "a", ""]
    rows = pa.table({"key": keys, "value": [1, 2, 3, 4]})
    receipts = duck.swap([slice_of(key) for key in keys], rows, attempt=draw(), swap_id="x")
    assert [one.content_hash for one in duck.inputs([slice_of(key) for key in keys])] == [
        receipt.entry.content_hash for receipt in receipts
    ]


# What SQL reads

RAW = TableName(schema="sales", name="raw")
COPY = "SELECT key, sum(value)::BIGINT AS value FROM sales.raw WHERE key IN ({}) GROUP BY key"
ON = SwapOptions(cut_off=CutOff.ON)


def raw(key):
    return slice_of(key, table=RAW, owner="raw")


@pytest.fixture
def raws(duck, draw):
    """Two partitions to read from; returns their hashes by key."""
    rows = table_of([{"key": "a", "value": 1}, {"key": "a", "value": 2}, {"key": "b", "value": 3}])
    receipts = duck.swap([raw("a"), raw("b")], rows, attempt=draw(), swap_id="raw")
    return {receipt.entry.partition_key: receipt.entry.content_hash for receipt in receipts}


def test_a_swap_of_sql_records_what_each_of_its_slices_is_computed_from(duck, draw, raws):
    reads = {
        "a": (Read(slice_=raw("a")), Read(slice_=raw("z"), required=False)),
        "b": (Read(slice_=raw("b")), Read(slice_=raw("a"))),
    }
    before = InputPartition(owner="elsewhere", partition_key=None, content_hash=None)
    query = Query(sql=COPY.format("'a', 'b'"), reads=reads)
    given = Provenance(code_version="1", inputs=(before,))
    slices = [slice_of("b"), slice_of("a"), slice_of("c")]
    receipts = duck.swap(slices, query, attempt=draw(), swap_id="x", provenance=given)
    found = {r.entry.partition_key: r.entry.provenance for r in receipts}

    def of_raw(key):
        return InputPartition(owner="raw", partition_key=key, content_hash=raws.get(key))

    assert found["a"].inputs == (before, of_raw("a"), of_raw("z"))
    assert found["b"].inputs == (before, of_raw("b"), of_raw("a"))
    assert found["c"] == given
    assert duck.ledger(TABLE) == tuple(receipt.entry for receipt in receipts)


@pytest.mark.parametrize("table", [RAW, TableName(schema="sales", name="nothing")], ids=["partition", "table"])
@pytest.mark.parametrize("options", [SwapOptions(), ON], ids=["off", "on"])
@pytest.mark.usefixtures("raws")
def test_sql_that_reads_what_was_never_materialized_is_refused(duck, draw, path, table, options):
    duck.swap([slice_of("a")], table_of([{"key": "a", "value": 7}]), attempt=draw(), swap_id="old")
    before = duck.ledger()
    labels = []
    reads = {"a": (Read(slice_=raw("a")), Read(slice_=slice_of("2024", table=table, owner="raw orders")))}
    with pytest.raises(MissingInputError) as caught:
        DuckDBStore(str(path), observer=record(labels)).swap(
            [slice_of("a")], Query(sql=COPY.format("'a'"), reads=reads), attempt=draw(), swap_id="x", options=options
        )
    first = str(caught.value).splitlines()[0]
    assert first.startswith("asset 'daily', partition 'a', table 'sales.daily': ")
    assert "partition '2024' of asset 'raw orders', which was never materialized" in first
    assert "Remedy: materialize partition '2024' of 'raw orders' first." in first
    assert "delete" not in labels
    assert duck.ledger() == before
    assert duck.read(TABLE)["value"].to_pylist() == [7]


def test_sql_may_do_without_a_table_that_does_not_exist(duck, draw, raws):
    nothing = slice_of("a", table=TableName(schema="sales", name="nothing"), owner="nothing")
    query = Query(sql=COPY.format("'a'"), reads={"a": (Read(slice_=nothing, required=False),)})
    [receipt] = duck.swap([slice_of("a")], query, attempt=draw(), swap_id="x")
    assert receipt.entry.provenance.inputs == (InputPartition(owner="nothing", partition_key="a", content_hash=None),)


def test_sql_that_reads_rows_of_another_tool_in_another_zone_is_swapped_in_its_own(duck, draw, foreign):
    """To measure what is read, the session's zone changes for a while."""
    at = Interval(
        expression="CAST(moment AS DATE)",
        start=datetime(2024, 3, 1, tzinfo=UTC),
        end=datetime(2024, 3, 2, tzinfo=UTC),
    )
    target = PartitionSlice(table=TABLE, partition_key="1", conditions=(at,), owner="daily")
    reads = {"1": (Read(slice_=day(1)), Read(slice_=day(2, BERLIN)))}
    query = Query(sql="SELECT * FROM lake.events", reads=reads)
    [receipt] = duck.swap([target], query, attempt=draw(), swap_id="x")
    assert receipt.entry.row_count == 2
    hashes = [one.content_hash for one in receipt.entry.provenance.inputs]
    assert hashes == [duck.content_hash(day(1)), duck.content_hash(day(2, BERLIN))]


def test_what_is_read_is_looked_up_after_the_fence_and_not_for_a_repeated_swap(duck, draw, raws):
    old, new = draw("old"), draw("new")
    missing = Query(sql=COPY.format("'a'"), reads={"a": (Read(slice_=raw("z")),)})
    good = Query(sql=COPY.format("'a'"))
    duck.swap([slice_of("a")], good, attempt=new, swap_id="x")
    [again] = duck.swap([slice_of("a")], missing, attempt=new, swap_id="x")
    assert again.replayed
    with pytest.raises(FencedOutError):
        duck.swap([slice_of("a")], missing, attempt=old, swap_id="y")


# Cut-off, as DuckDB does it


def test_sql_whose_rows_are_stored_is_confirmed_with_what_it_has_read_now(duck, draw, raws):
    query = Query(sql=COPY.format("'a'"), reads={"a": (Read(slice_=raw("a")),)})
    [first] = duck.swap([slice_of("a")], query, attempt=draw("1"), swap_id="1", options=ON)
    rows = table_of([{"key": "a", "value": 3}])
    [other] = duck.swap([raw("a")], rows, attempt=draw("2"), swap_id="2")
    [second] = duck.swap([slice_of("a")], query, attempt=draw("3"), swap_id="3", options=ON)
    assert [first.entry.confirmed, second.entry.confirmed] == [False, True]
    assert [r.entry.provenance.inputs[0].content_hash for r in (first, second)] == [
        raws["a"],
        other.entry.content_hash,
    ]


def test_sql_that_reads_its_own_slice_is_compared_with_what_it_makes_of_it(duck, draw, raws):
    distinct = Query(sql="SELECT DISTINCT * FROM sales.raw WHERE key = 'b'")
    [receipt] = duck.swap([raw("b")], distinct, attempt=draw(), swap_id="x", options=ON)
    assert receipt.entry.confirmed
    more = Query(sql="SELECT key, value + 1 AS value FROM sales.raw WHERE key = 'b'")
    [receipt] = duck.swap([raw("b")], more, attempt=draw(), swap_id="y", options=ON)
    assert not receipt.entry.confirmed
    assert duck.read(RAW, [raw("b")])["value"].to_pylist() == [4]


def test_rows_that_another_tool_wrote_are_confirmed_or_refused(duck, draw, path):
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE SCHEMA sales; CREATE TABLE sales.daily AS SELECT 'a' AS key, 1::BIGINT AS value")
    verify = SwapOptions(cut_off=CutOff.VERIFY)
    with pytest.raises(ContentDiffersError, match="1 rows computed differ from the 1 rows stored"):
        duck.swap([slice_of("a")], table_of([{"key": "a", "value": 2}]), attempt=draw(), swap_id="x", options=verify)
    [receipt] = duck.swap(
        [slice_of("a")], table_of([{"key": "a", "value": 1}]), attempt=draw(), swap_id="y", options=verify
    )
    assert receipt.entry.confirmed


@pytest.mark.parametrize(
    "declared",
    [
        "key VARCHAR COLLATE NOCASE, value BIGINT",
        "key VARCHAR, value BIGINT PRIMARY KEY",
        "value HUGEINT NOT NULL CHECK (value > 0), key VARCHAR DEFAULT 'x'",
        "key ENUM('a', 'b'), value DECIMAL(9, 2)",
    ],
)
def test_tables_of_others_with_types_and_constraints_are_compared(duck, draw, path, declared):
    with duckdb.connect(str(path)) as connection:
        connection.execute(f"CREATE SCHEMA sales; CREATE TABLE sales.daily ({declared})")
    confirmed = []
    for values in ([1, 2], [2, 1], [2, 3], [3, 2]):
        rows = table_of([{"key": "a", "value": value} for value in values])
        attempt = draw(f"{values}")
        [receipt] = duck.swap([slice_of("a")], rows, attempt=attempt, swap_id="x", options=ON)
        confirmed.append(receipt.entry.confirmed)
    assert confirmed == [False, True, False, True]
    assert duck.content_hash(slice_of("a")) == receipt.entry.content_hash


def test_values_that_moved_between_rows_are_no_confirmation(duck, draw):
    first = pa.table({"key": ["a", "a"], "x": [1, 2], "y": [1, 2]})
    moved = pa.table({"key": ["a", "a"], "x": [1, 2], "y": [2, 1]})
    duck.swap([slice_of("a")], first, attempt=draw(), swap_id="1")
    with pytest.raises(ContentDiffersError, match="which values stand in one row together"):
        duck.swap([slice_of("a")], moved, attempt=draw(), swap_id="2", options=SwapOptions(cut_off=CutOff.VERIFY))
    [receipt] = duck.swap([slice_of("a")], moved, attempt=draw(), swap_id="3", options=ON)
    assert not receipt.entry.confirmed
