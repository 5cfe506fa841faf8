"""What rows are computed from, as DuckDB finds it out: also where other tools have written."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import duckdb
import pyarrow as pa
import pytest

from marigold_assets.errors import ConfigurationError
from marigold_assets.model import Equals, Interval, PartitionSlice, TableName
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
    assert labels == ["format", "begin reading", "read heads"]
    assert len({one.content_hash for one in found}) == 30


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
