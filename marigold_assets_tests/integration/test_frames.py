"""What is between a frame and the rows of a swap, where a mistake would be green."""

from __future__ import annotations

import dataclasses
import threading
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from uuid import uuid4

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from marigold_assets.errors import MarigoldError, UnsupportedTypeError, Where
from marigold_assets.frames import load, to_rows
from marigold_assets.model import Attempt, Equals, Interval, PartitionSlice, SwapOptions, TableName
from marigold_assets.stores.base import Query
from marigold_assets.stores.duckdb import DuckDBStore
from marigold_assets.testing.strategies import slice_of

pytestmark = pytest.mark.slow

TABLE = TableName(schema="sales", name="numbers")
WHOLE = PartitionSlice(table=TABLE, partition_key=None, owner="numbers")


@pytest.fixture
def store(tmp_path):
    return DuckDBStore(str(tmp_path / "warehouse.duckdb"))


def swap(store, rows, swap_id, slice_=WHOLE, **options):
    attempt = Attempt(run_id=swap_id, token=store.draw_token(swap_id))
    store.swap([slice_], rows, attempt=attempt, swap_id=swap_id, options=SwapOptions(**options))


def part(key, expression="key"):
    return PartitionSlice(
        table=TABLE, partition_key=key, conditions=(Equals(expression=expression, value=key),), owner="numbers"
    )


def day(number, expression="key", timezone="UTC", hours=24):
    start = datetime(2024, 10, number, tzinfo=UTC)
    window = Interval(expression=expression, start=start, end=start + timedelta(hours=hours), timezone=timezone)
    return PartitionSlice(table=TABLE, partition_key=f"2024-10-{number}", conditions=(window,), owner="numbers")


def types(store):
    return {column.name: column.type for column in store.columns(TABLE)}


def write(store, key, value):
    """Swap one row of one value into a partition."""
    value = value if isinstance(value, pa.Array) else pa.array([value])
    swap(store, to_rows(pa.table({"key": [key], "v": value}), Where()), str(uuid4()), part(key))


def read(store):
    return {row["key"]: row["v"] for row in store.read(TABLE).to_pylist()}


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
    with pytest.raises(MarigoldError, match="'a' holds intervals finer than microseconds") as caught:
        swap(store, to_rows(given if form == "table" else given.to_reader(), Where(table="sales.numbers")), "fine")
    assert "Traceback" not in str(caught.value).splitlines()[0]
    assert store.columns(TABLE) is None


LONG = 2**63 // 1_000 + 1  # microseconds that nanoseconds in 64 bits cannot count


@pytest.mark.parametrize("form", ["table", "reader"])
@pytest.mark.parametrize("value", [LONG, -LONG])
@pytest.mark.parametrize("nested", [False, True])
def test_durations_that_would_not_come_back_are_refused(store, value, nested, form):
    kind = pa.list_(pa.duration("us")) if nested else pa.duration("us")
    given = pa.table({"a": pa.array([[value] if nested else value], kind)})
    with pytest.raises(MarigoldError, match="'a' holds durations of more than 292 years"):
        swap(store, to_rows(given if form == "table" else given.to_reader(), Where(table="sales.numbers")), "long")
    given = pa.table({"a": pa.array([value - 2 if value > 0 else value + 2], pa.duration("us"))})
    swap(store, to_rows(given, Where()), "longest")
    assert load(store, (TABLE, None, None), pa.Table, Where()).equals(given)


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


@pytest.mark.parametrize(
    "value",
    [
        7,
        2**40,
        2.5,
        True,
        "x",
        b"x",
        date(2024, 10, 1),
        [1],
        {"a": 1},
        [{"a": None}],
        pa.array([2**64 - 1], pa.uint64()),
    ],
    ids=str,
)
def test_a_column_of_nothing_but_null_takes_its_first_real_type(store, value):
    write(store, "a", None)
    write(store, "b", value)
    wanted = value[0].as_py() if isinstance(value, pa.Array) else value
    assert read(store) == {"a": None, "b": wanted}
    write(store, "c", None)
    write(store, "a", value)
    assert read(store) == {"a": wanted, "b": wanted, "c": None}


@pytest.mark.parametrize("value", [2**40, 2.5, True, "x", [1]], ids=str)
@pytest.mark.parametrize("form", ["sql", "relation"])
def test_null_in_sql_does_not_decide_a_type(store, form, value):
    text = "SELECT 'a' AS key, NULL AS v"
    swap(store, to_rows(text if form == "sql" else duckdb.sql(text), Where()), "a", part("a"))
    write(store, "b", value)
    assert read(store) == {"a": None, "b": value}


def test_the_first_real_type_stays_when_its_values_are_gone(store):
    write(store, "a", None)
    write(store, "b", 2**40)
    write(store, "b", None)
    with pytest.raises(MarigoldError, match="does not fit BIGINT"):
        write(store, "c", 2.5)


def test_a_type_declared_by_hand_is_never_changed_for_numbers_that_it_holds(store):
    write(store, "a", 1)  # makes the schema
    with duckdb.connect(str(store.connector.path), config={"custom_user_agent": "dagster"}) as connection:
        connection.execute("CREATE OR REPLACE TABLE sales.numbers (key VARCHAR, v INTEGER)")
    write(store, "b", 2)
    assert types(store)["v"] == "INTEGER"


@pytest.mark.parametrize(
    ("first", "then"),
    [
        ({"a": 1, "b": None}, {"a": 1, "b": "x"}),
        ({"a": 1, "b": None}, {"a": 2, "b": 2.5}),
        ({"a": 1, "b": None}, {"a": 2, "b": 2**40}),
        ({"a": 1, "b": None}, {"b": "x", "a": 2}),
        ({"a": None}, {"a": [1]}),
        ({"a": {"b": None}}, {"a": {"b": {"c": date(2024, 10, 1)}}}),
        ([{"a": 1, "b": None}], [{"a": 1, "b": {"z": 2}}]),
        ([None], ["x"]),
        ([None, None], [2.5]),
        ([], [2**40]),
        ([[], None], [["x"]]),
        ({"a": []}, {"a": [{"z": True}]}),
        (
            pa.array([[("k", None)]], pa.map_(pa.string(), pa.null())),
            pa.array([[("k", 2.5)]], pa.map_(pa.string(), pa.float64())),
        ),
        (pa.array([[None, None]], pa.list_(pa.null(), 2)), pa.array([["x", "y"]], pa.list_(pa.string(), 2))),
    ],
    ids=str,
)
def test_null_within_nested_values_does_not_decide_a_type(store, first, then):
    """And the other way round: a value first, then NULL."""
    plain_first, plain_then = (v[0].as_py() if isinstance(v, pa.Array) else v for v in (first, then))
    write(store, "a", first)
    write(store, "b", then)
    write(store, "c", first)
    assert read(store) == {"a": plain_first, "b": plain_then, "c": plain_first}
    write(store, "a", then)
    assert read(store) == {"a": plain_then, "b": plain_then, "c": plain_first}


def test_a_stored_value_is_never_lost_to_a_new_type(store):
    write(store, "a", {"a": None, "b": None})
    write(store, "b", {"a": pa.scalar(5, pa.int32()).as_py(), "b": None})
    for value in ({"a": "x", "b": 1}, {"a": [1], "b": 1}, {"a": date(2024, 10, 1), "b": 1}):
        with pytest.raises(MarigoldError, match="'v' is STRUCT"):
            write(store, "c", value)
    assert read(store) == {"a": {"a": None, "b": None}, "b": {"a": 5, "b": None}}


def test_an_integer_that_is_a_value_keeps_its_type(store):
    write(store, "a", None)
    write(store, "b", pa.array([{"n": 5, "m": None}], pa.struct([("n", pa.int32()), ("m", pa.null())])))
    with pytest.raises(MarigoldError, match="'v' is STRUCT"):
        write(store, "c", {"n": "x", "m": "x"})
    with pytest.raises(MarigoldError, match="does not fit"):
        write(store, "c", {"n": 2.5, "m": None})
    write(store, "c", {"n": 6, "m": "x"})
    assert read(store) == {"a": None, "b": {"n": 5, "m": None}, "c": {"n": 6, "m": "x"}}


@pytest.mark.parametrize("evolve", [False, True])
@pytest.mark.parametrize(
    ("first", "then"),
    [
        ({"a": 1, "b": 2}, {"b": 20, "a": 10}),
        ({"a": 1, "b": "x"}, {"B": "y", "A": 2}),
        ([{"a": 1, "b": "x"}, None], [{"b": "y", "a": 2}, {"b": None, "a": None}]),
        ({"o": {"a": 1, "b": 2}, "p": 1}, {"p": 3, "o": {"b": 5, "a": 4}}),
        (
            pa.array(
                [[("k", {"a": 1, "b": 2})]], pa.map_(pa.string(), pa.struct([("a", pa.int64()), ("b", pa.int64())]))
            ),
            pa.array(
                [[("k", {"b": 4, "a": 3})]], pa.map_(pa.string(), pa.struct([("b", pa.int64()), ("a", pa.int64())]))
            ),
        ),
    ],
    ids=str,
)
def test_keys_of_structs_go_by_name_and_never_by_position(store, first, then, evolve):
    write(store, "a", first)
    value = then if isinstance(then, pa.Array) else pa.array([then])
    swap(store, to_rows(pa.table({"key": ["b"], "v": value}), Where()), "b", part("b"), evolve=evolve)
    kinds = types(store)
    found = plain(read(store)["b"])
    assert found == lowered(plain(value[0].as_py()))
    assert types(store) == kinds
    with pytest.raises(MarigoldError, match="'v'"):
        write(store, "c", {"a": 1, "c": 2})


def lowered(value):
    """A nested value with the keys of its dicts in lower case."""
    if isinstance(value, dict):
        return {key.lower(): lowered(inner) for key, inner in value.items()}
    return [lowered(inner) for inner in value] if isinstance(value, list) else value


NO_ROWS = pd.DataFrame({"key": [], "v": []}, dtype=object)
MOMENT = datetime(2024, 10, 2, 5)


@pytest.mark.parametrize(
    ("expression", "values"),
    [
        ("key", pd.to_datetime([MOMENT])),
        ("key", pd.to_datetime([MOMENT], utc=True)),
        ("KEY", pa.array([MOMENT.date()])),
        ("CAST(key AS DATE)", ["2024-10-02"]),
        ("date_trunc('day', key)", pd.to_datetime([MOMENT])),
        ("strptime(key, '%Y-%m-%d')", ["2024-10-02"]),
        ("to_timestamp(key)", [int(MOMENT.replace(tzinfo=UTC).timestamp())]),
    ],
)
def test_an_untyped_empty_first_day_leaves_open_what_the_partitions_are_cut_by(store, expression, values):
    swap(store, to_rows(NO_ROWS, Where()), "first", day(1, expression))
    swap(store, to_rows(pd.DataFrame({"key": [], "v": []}, dtype=object), Where()), "again", day(3, expression))
    swap(store, to_rows(pd.DataFrame({"key": values, "v": ["x"]}), Where()), "second", day(2, expression))
    swap(store, to_rows(NO_ROWS, Where()), "third", day(3, expression))
    assert store.read(TABLE, [day(2, expression)]).column("v").to_pylist() == ["x"]


def test_an_empty_list_has_no_type_in_pandas_either(store):
    nothing = pd.DataFrame({"key": [], "v": []})
    swap(store, to_rows(nothing, Where()), "first", day(1))
    swap(store, to_rows(pd.DataFrame({"key": pd.to_datetime([MOMENT]), "v": ["x"]}), Where()), "second", day(2))
    swap(store, to_rows(nothing, Where()), "third", day(1))
    assert store.read(TABLE).column("v").to_pylist() == ["x"]


def test_a_relation_is_whole_whatever_else_its_connection_is_asked_for(store):
    done = threading.Event()

    def ask():
        while not done.is_set():
            with suppress(duckdb.Error):
                duckdb.sql("SELECT 1").fetchall()

    thread = threading.Thread(target=ask)
    relation = duckdb.sql("SELECT range AS a FROM range(2_000_000)")
    thread.start()
    try:
        rows = to_rows(relation, Where())
    except (MarigoldError, duckdb.Error):
        return  # refused, and not cut short
    finally:
        done.set()
        thread.join()
    swap(store, rows, "whole")
    assert store.read(TABLE).num_rows == 2_000_000


@pytest.mark.parametrize(
    "value", ["340282366920938463463374607431768211455::UHUGEINT", "'10'::BIT", "'12:00:00+02'::TIMETZ"]
)
@pytest.mark.parametrize("form", ["{}", "[{}]", "{{'a': {}}}"])
def test_values_that_arrow_would_change_are_refused(store, value, form):
    text = f"SELECT {form.format(value)} AS a, 1 AS b"
    with pytest.raises(UnsupportedTypeError, match="'a' has type"):
        to_rows(duckdb.sql(text), Where())
    swap(store, to_rows(text, Where()), "sql")
    for wanted in (pd.DataFrame, pa.RecordBatchReader):
        with pytest.raises(UnsupportedTypeError, match="'a' has type"):
            load(store, (TABLE, None, None), wanted, Where())
    assert load(store, (TABLE, None, ["b"]), pa.Table, Where())["b"].to_pylist() == [1]


def test_intervals_longer_than_durations_stay_intervals(store):
    given = pa.table({"a": pa.array([(0, 200_000_000, 0)], INTERVAL)})
    swap(store, to_rows(given, Where()), "first")
    assert load(store, (TABLE, None, None), pa.Table, Where()).column("a").to_pylist() == given["a"].to_pylist()


def test_decimals_of_a_negative_scale_are_stored_as_they_are(store):
    column = pa.array([Decimal("1.23E4"), None], pa.decimal128(3, -2))
    swap(store, to_rows(pa.table({"a": column}), Where()), "first")
    assert store.read(TABLE).column("a").to_pylist() == [Decimal(12300), None]


def test_an_untyped_empty_first_window_at_a_clock_change_is_no_ambiguity(store):
    change = day(27, timezone="Europe/Berlin", hours=1)
    swap(store, to_rows(NO_ROWS, Where()), "first", change)
    moments = pd.to_datetime([datetime(2024, 10, 27, 0, 30)], utc=True)
    swap(store, to_rows(pd.DataFrame({"key": moments, "v": ["x"]}), Where()), "second", change)
    assert store.read(TABLE, [change]).num_rows == 1


@pytest.mark.parametrize(("key", "value"), [("a", "a"), ("7", 7), ("2024-10-01", date(2024, 10, 1))])
def test_an_untyped_empty_first_key_leaves_open_what_the_partitions_are_cut_by(store, key, value):
    swap(store, to_rows(NO_ROWS, Where()), "first", part(key))
    assert types(store)["key"] == "VARCHAR"
    swap(store, to_rows(pd.DataFrame({"key": [value], "v": [1]}), Where()), "second", part(key))
    assert store.read(TABLE, [part(key)]).num_rows == 1


def test_a_row_without_a_partition_lies_outside_even_when_it_comes_first(store):
    for slice_ in (day(1), part("a")):
        with pytest.raises(MarigoldError, match="1 of 1 rows"):
            swap(store, to_rows(pd.DataFrame({"key": [None], "v": [1]}), Where()), "first", slice_)


def test_one_place_is_decided_and_another_one_widens_in_one_swap(store):
    write(store, "a", {"a": 1, "b": None})
    given = pa.table({"key": ["b"], "v": [{"a": 1.5, "b": "x"}]})
    with pytest.raises(MarigoldError, match="does not fit"):
        swap(store, given, "refused", part("b"))
    swap(store, given, "b", part("b"), evolve=True)
    assert read(store) == {"a": {"a": 1.0, "b": None}, "b": {"a": 1.5, "b": "x"}}


UNITS = ["s", "ms", "us", "ns"]


@pytest.mark.parametrize("evolve", [False, True])
@pytest.mark.parametrize("then", UNITS)
@pytest.mark.parametrize("first", UNITS)
def test_timestamps_of_any_unit_share_a_column_as_far_as_it_holds_them(store, first, then, evolve):
    def one(unit, nanoseconds):
        return pa.array([nanoseconds // 10 ** (9 - 3 * UNITS.index(unit))], pa.timestamp(unit))

    whole = 1_700_000_000 * 10**9
    write(store, "a", one(first, whole))
    swap(store, to_rows(pa.table({"key": ["b"], "v": one(then, whole)}), Where()), "b", part("b"), evolve=evolve)
    assert [pd.Timestamp(value) for value in read(store).values()] == [pd.Timestamp(whole)] * 2
    fine = pa.table({"key": ["c"], "v": one(then, whole + 10 ** (9 - 3 * UNITS.index(then)))})
    if evolve or UNITS.index(first) >= UNITS.index(then):
        swap(store, to_rows(fine, Where()), "c", part("c"), evolve=evolve)
        assert pd.Timestamp(read(store)["c"]) == pd.Timestamp(fine["v"][0].value, unit=then)
    else:
        with pytest.raises(MarigoldError, match="does not fit TIMESTAMP"):
            swap(store, to_rows(fine, Where()), "c", part("c"))


def test_a_column_of_nothing_but_null_that_a_table_grows_by_is_open_too(store):
    swap(store, pa.table({"key": ["a"]}), "a", part("a"))
    swap(store, pa.table({"key": ["b"], "v": [None]}), "b", part("b"), evolve=True)
    write(store, "c", 2**40)
    assert read(store) == {"a": None, "b": None, "c": 2**40}


def test_a_table_without_partitions_is_no_dict_of_partitions(store):
    swap(store, pa.table({"a": [1]}), "first")
    with pytest.raises(UnsupportedTypeError, match="annotate the input"):
        load(store, (TABLE, None, None), dict[str, pd.DataFrame], Where(table="sales.numbers"))
