"""What is between a frame and the rows of a swap, where a mistake would be green."""

from __future__ import annotations

import dataclasses

import pandas as pd
import pyarrow as pa
import pytest

from marigold_assets.errors import UnsupportedTypeError, Where
from marigold_assets.frames import load, to_rows
from marigold_assets.model import Attempt, PartitionSlice, TableName
from marigold_assets.stores.base import Query
from marigold_assets.stores.duckdb import DuckDBStore
from marigold_assets.testing.strategies import slice_of

TABLE = TableName(schema="sales", name="numbers")
WHOLE = PartitionSlice(table=TABLE, partition_key=None, owner="numbers")


@pytest.fixture
def store(tmp_path):
    return DuckDBStore(str(tmp_path / "warehouse.duckdb"))


def swap(store, rows, swap_id, whole=WHOLE):
    attempt = Attempt(run_id=swap_id, token=store.draw_token(swap_id))
    store.swap([whole], rows, attempt=attempt, swap_id=swap_id)


NAMES = {
    "plain": "sales.numbers",
    "text": "query_table('sales.' || 'numb' || 'ers')",
    "query": "query('SELECT * FROM sales.num' || 'bers')",
    "view": "sales.seen",
    "macro": "sales.made()",
    "recursive": "(WITH RECURSIVE r AS (FROM sales.numbers UNION SELECT a FROM r WHERE a < 0) FROM r)",
}


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
@pytest.mark.parametrize("table", ["numbers", 'Numb"ers'])
def test_a_query_reads_the_rows_that_it_replaces_however_it_names_them(store, name, table):
    if table != "numbers":
        name = 'sales."numb""ers"'  # as nobody writes it in another way
    whole = dataclasses.replace(WHOLE, table=TableName(schema="sales", name=table))
    swap(store, pa.table({"a": [1, 2, 3]}), "first", whole)
    with store.connector.share() as connection:
        connection.execute(f"CREATE VIEW sales.seen AS SELECT * FROM {name if table != 'numbers' else 'sales.numbers'}")
        connection.execute("CREATE MACRO sales.made() AS TABLE SELECT * FROM sales.seen")
    swap(store, Query(sql=f"SELECT a + 1 AS a FROM {name}"), "second", whole)
    assert sorted(store.read(whole.table).column("a").to_pylist()) == [2, 3, 4]
    swap(store, Query(sql=f"SELECT count(*) AS a FROM {name}"), "third", whole)
    assert store.read(whole.table).column("a").to_pylist() == [3]


def test_a_query_of_other_tables_is_not_held_in_memory_first(store, tmp_path):
    other = dataclasses.replace(WHOLE, table=TableName(schema="sales", name="others"))
    swap(store, pa.table({"a": [1]}), "first")
    swap(store, pa.table({"a": [2]}), "others", other)
    labels = []
    watched = DuckDBStore(str(tmp_path / "warehouse.duckdb"), observer=labels.append)
    swap(watched, Query(sql="SELECT a FROM sales.others"), "second")
    assert "insert" in labels
    assert "stage" not in labels
    swap(watched, Query(sql="SELECT a FROM sales.numbers"), "third")
    assert "stage" in labels


@pytest.mark.parametrize(
    "column",
    [
        pa.FixedSizeListArray.from_arrays(pa.array(["x", "y"]).dictionary_encode(), 2),
        pa.array([[1_700_000_000_123_456_789]], pa.list_(pa.timestamp("ns", "UTC"), 1)),
        pa.array([[("k", 1_700_000_000_123_456_789)]], pa.map_(pa.string(), pa.timestamp("ns", "UTC"))),
        pa.array([[1_000_000_001]], pa.list_(pa.duration("ns"), 1)),
        pa.array([["x"]], pa.list_view(pa.string())),
    ],
    ids=lambda column: str(column.type),
)
def test_nested_values_are_stored_as_they_are_or_refused(store, column):
    given = pa.table({"a": column})
    try:
        rows = to_rows(given, Where(table="sales.numbers"))
    except UnsupportedTypeError:
        return
    swap(store, rows, "nested")
    assert store.read(TABLE).column("a").to_pylist() == given.column("a").to_pylist()


def test_a_dict_of_frames_is_one_snapshot(store, tmp_path):
    slices = [slice_of("a", table=TABLE), slice_of("b", table=TABLE)]

    def fill(number):
        rows = pa.table({"key": ["a", "b"], "value": [number, number]})
        attempt = Attempt(run_id=f"run {number}", token=store.draw_token(f"run {number}"))
        store.swap(slices, rows, attempt=attempt, swap_id=f"{number}")

    fill(1)
    reads = []

    def swap_between_two_reads(label):
        if label == "read":
            reads.append(label)
            if len(reads) == 2:
                fill(2)

    watched = DuckDBStore(str(tmp_path / "warehouse.duckdb"), observer=swap_between_two_reads)
    with store.connector.share():  # with the file open for writing, another thread of this process may write, too
        loaded = load(watched, (TABLE, slices, None), dict[str, pd.DataFrame], Where(table="sales.numbers"))
    assert {key: frame["value"].tolist() for key, frame in loaded.items()} == {"a": [1], "b": [1]}
    assert store.read(TABLE)["value"].to_pylist() == [2, 2]


def test_a_table_without_partitions_is_no_dict_of_partitions(store):
    swap(store, pa.table({"a": [1]}), "first")
    with pytest.raises(UnsupportedTypeError, match="annotate the input"):
        load(store, (TABLE, None, None), dict[str, pd.DataFrame], Where(table="sales.numbers"))
