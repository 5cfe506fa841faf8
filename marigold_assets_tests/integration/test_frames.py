"""What is between a frame and the rows of a swap, where a mistake would be green."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from marigold_assets.errors import MarigoldError, UnsupportedTypeError, Where
from marigold_assets.frames import load, to_rows
from marigold_assets.model import Attempt, PartitionSlice, TableName
from marigold_assets.stores.base import Query
from marigold_assets.stores.duckdb import DuckDBStore

TABLE = TableName(schema="sales", name="numbers")
WHOLE = PartitionSlice(table=TABLE, partition_key=None, owner="numbers")


@pytest.fixture
def store(tmp_path):
    return DuckDBStore(str(tmp_path / "warehouse.duckdb"))


def swap(store, rows, swap_id):
    attempt = Attempt(run_id=swap_id, token=store.draw_token(swap_id))
    store.swap([WHOLE], rows, attempt=attempt, swap_id=swap_id)


@pytest.mark.parametrize("name", ["sales.numbers", "query_table('sales.' || 'numb' || 'ers')"])
def test_a_query_reads_the_rows_that_it_replaces_however_it_names_them(store, name):
    swap(store, pa.table({"a": [1, 2, 3]}), "first")
    swap(store, Query(sql=f"SELECT a + 1 AS a FROM {name}"), "second")
    assert store.read(TABLE).column("a").to_pylist() == [2, 3, 4]


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


BIG = 2**53 + 1  # the first integer that a float cannot hold


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.list_(pa.int64()), [[BIG, None], [-BIG], None, []]),
        (pa.list_(pa.uint64()), [[2**64 - 1, None]]),
        (pa.list_(pa.int64(), 2), [[BIG, None], [1, BIG + 2]]),
        (pa.struct({"a": pa.int64(), "b": pa.string()}), [{"a": BIG, "b": "x"}, {"a": None, "b": None}, None]),
        (pa.map_(pa.string(), pa.int64()), [[("k", BIG), ("j", None)], None]),
        (pa.list_(pa.list_(pa.int64())), [[[BIG], None, [None]]]),
        (pa.list_(pa.struct({"a": pa.list_(pa.uint64())})), [[{"a": [2**64 - 1, None]}, {"a": None}, None], []]),
        (pa.map_(pa.string(), pa.struct({"a": pa.int64()})), [[("k", {"a": BIG}), ("j", {"a": None}), ("i", None)]]),
        (pa.struct({"a": pa.struct({"b": pa.int64(), "c": pa.int64()})}), [{"a": {"b": BIG, "c": 1}}, {"a": None}]),
        (pa.struct({"a": pa.list_(pa.int64()), "d": pa.date32()}), [{"a": [BIG], "d": None}, {"a": [None], "d": None}]),
    ],
    ids=str,
)
def test_big_integers_within_nested_values_beside_null_are_exact_in_pandas(store, kind, values):
    swap(store, pa.table({"v": pa.array(values, kind)}), "first")
    frame = load(store, (TABLE, None, None), pd.DataFrame, Where(table="sales.numbers"))
    assert plain(frame["v"].tolist()) == plain(values)


def plain(value):
    """A nested value as lists, tuples and dicts; missing is None."""
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [plain(inner) for inner in value]
    return None if value is None or value is pd.NA else value


def test_nested_integers_that_floats_hold_are_loaded_as_arrow_shows_them(store):
    given = pa.table({"v": [[1, None], [2]], "w": [[BIG], [BIG + 1]]})
    swap(store, given, "first")
    frame = load(store, (TABLE, None, None), pd.DataFrame, Where(table="sales.numbers"))
    assert [array.dtype for array in frame["v"]] == ["float64"] * 2
    assert [array.dtype for array in frame["w"]] == ["int64"] * 2


INTERVAL = pa.month_day_nano_interval()
FINE = (1, 2, 1_001)


@pytest.mark.parametrize("form", ["table", "reader"])
@pytest.mark.parametrize(
    "column",
    [
        pa.array([None, FINE], INTERVAL),
        pa.array([(0, 0, 5), FINE], INTERVAL).slice(1),
        pa.array([[FINE]], pa.list_(INTERVAL)),
        pa.array([[None, FINE]], pa.list_(INTERVAL, 2)),
        pa.array([{"a": {"b": FINE}}], pa.struct({"a": pa.struct({"b": INTERVAL})})),
        pa.array([[("k", FINE)]], pa.map_(pa.string(), INTERVAL)),
        pa.DictionaryArray.from_arrays(pa.array([0], pa.int8()), pa.array([FINE], INTERVAL)),
        pa.RunEndEncodedArray.from_arrays(pa.array([2], pa.int32()), pa.array([FINE], INTERVAL)),
    ],
    ids=lambda column: str(column.type),
)
def test_intervals_finer_than_microseconds_are_refused_because_the_database_would_cut_them(store, column, form):
    given = pa.table({"a": column})
    with pytest.raises(MarigoldError, match="'a' holds intervals finer than microseconds"):
        swap(store, to_rows(given if form == "table" else given.to_reader(), Where(table="sales.numbers")), "fine")
    assert store.columns(TABLE) is None


def test_null_hides_what_is_left_behind_it_in_memory(store):
    hidden = pa.array([[FINE], [(0, 1, 1_000)]], pa.list_(INTERVAL))
    masked = pa.ListArray.from_arrays(hidden.offsets, hidden.values, mask=pa.array([True, False]))
    swap(store, to_rows(pa.table({"a": masked}), Where(table="sales.numbers")), "first")
    assert store.read(TABLE).column("a").to_pylist() == [None, [(0, 1, 1_000)]]


RUNS = pa.array([2, 3, 5], pa.int32())


@pytest.mark.parametrize("form", ["table", "reader"])
@pytest.mark.parametrize(
    "values",
    [
        pa.array(["x", None, "y"]),
        pa.array(["x", None, "y"]).dictionary_encode(),
        pa.array([[1], None, []], pa.list_(pa.int64())),
        pa.array([{"a": 1}, None, {"a": 2}]),
        pa.array([None, None, None], pa.null()),
    ],
    ids=lambda values: str(values.type),
)
def test_run_end_encoded_columns_are_stored_as_their_values(store, values, form):
    given = pa.table({"a": pa.RunEndEncodedArray.from_arrays(RUNS, values), "n": range(5)}).slice(1, 3)
    swap(store, to_rows(given if form == "table" else given.to_reader(), Where(table="sales.numbers")), "first")
    first, second, third = values.to_pylist()
    assert store.read(TABLE).sort_by("n").column("a").to_pylist() == [first, second, third]


def test_run_end_encoding_within_nested_values_is_refused_before_anything_is_read(store):
    inner = pa.RunEndEncodedArray.from_arrays(RUNS, pa.array([1, 2, 3]))
    given = pa.table({"a": pa.StructArray.from_arrays([inner], ["f"])})
    for rows in (given, given.to_reader()):
        with pytest.raises(UnsupportedTypeError, match="'a' has type"):
            to_rows(rows, Where(table="sales.numbers"))


def test_a_table_without_partitions_is_no_dict_of_partitions(store):
    swap(store, pa.table({"a": [1]}), "first")
    with pytest.raises(UnsupportedTypeError, match="annotate the input"):
        load(store, (TABLE, None, None), dict[str, pd.DataFrame], Where(table="sales.numbers"))
