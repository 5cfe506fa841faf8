"""What happens to rows on their way into a partition and back: never lost, never changed, never doubled."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import dagster as dg
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from marigold_assets.model import Attempt
from marigold_assets.stores.duckdb import DuckDBStore
from marigold_assets.testing.strategies import slice_of

DAYS = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-02-01")
D1, D2, D3 = "2024-01-01", "2024-01-02", "2024-01-03"


class Table:
    """An asset whose rows of every day a test decides."""

    def __init__(self, key=("s", "t"), partitions_def=DAYS, metadata=None):
        self.frames = {}
        frames = self.frames

        @dg.asset(key=list(key), partitions_def=partitions_def, metadata={"partition_expr": "d", **(metadata or {})})
        def t(context):
            return frames[context.partition_key]

        self.asset = t

    def day(self, key, **columns):
        """Rows of one day; a column ``d`` is added unless given."""
        size = len(next(iter(columns.values())))
        self.frames[key] = pd.DataFrame({"d": pd.to_datetime([key] * size), **columns})
        return self.frames[key]


@pytest.fixture
def table():
    return Table()


@pytest.fixture
def write(warehouse, table):
    def write(key, **columns):
        if columns:
            table.day(key, **columns)
        return warehouse.materialize(table.asset, key=key)

    return write


@pytest.fixture
def refused(warehouse, table):
    def refused(key, **columns):
        if columns:
            table.day(key, **columns)
        line = warehouse.refused(table.asset, key=key)
        assert "'s/t'" in line
        assert f"'{key}'" in line
        assert "'s.t'" in line
        assert "Remedy: " in line
        return line

    return refused


@pytest.fixture
def read(warehouse, table, loader):
    """Loads a day downstream."""

    def read(key, annotation=pd.DataFrame):
        seen = []
        reader = loader(table.asset.key, seen, annotation, partitions_def=DAYS)
        warehouse.materialize(table.asset.to_source_asset(), reader, key=key)
        return seen[0]

    return read


def test_values_of_another_kind_are_refused_and_the_old_partition_stays(warehouse, write, refused):
    write(D1, v=[1, 2, 3])
    write(D2, v=[1, 2, 3])
    line = refused(D2, v=["x", "y", "z"])
    assert "'v'" in line
    assert len(warehouse.events(["s", "t"], D2)) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "bad",
    [
        [1, 2, 2**40],
        [True, False, True],
        [dt.date(2024, 1, 1)] * 3,
        [b"x"] * 3,
        [[1], [2], [3]],
        [{"a": 1}] * 3,
        [object()] * 3,
        [1, "x", 2.5],
        [Decimal("1.5")] * 3,
        [1 + 2j] * 3,
    ],
    ids=lambda value: str(value[0])[:20],
)
def test_a_value_that_a_column_cannot_hold_is_refused_and_nothing_is_lost(warehouse, table, write, refused, bad):
    table.day(D1, v=pd.array([1, 2, 3], "int32"))
    write(D1)
    if bad == [True, False, True]:
        write(D1, v=bad)  # 1, 0, 1: nothing is lost
        assert warehouse.rows("SELECT v FROM s.t ORDER BY ALL") == [(0,), (1,), (1,)]
    else:
        refused(D1, v=bad)


def test_an_added_column_is_refused_by_name_with_the_way_to_allow_it(write, refused):
    write(D1, v=[1])
    for day in (D2, D1):
        line = refused(day, v=[1], extra=[9])
        assert "'extra'" in line
        assert "marigold/evolve" in line


def test_a_missing_and_a_renamed_column_are_refused_by_name(write, refused):
    write(D1, gross=[1], net=[2])
    assert "'net'" in refused(D1, gross=[1])
    assert "'net' renamed to 'nett'" in refused(D2, gross=[1], nett=[2])


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["rows outside", "stream"])
def test_a_table_does_not_grow_for_rows_that_do_not_come(warehouse, fault):
    """Or the code that is right, and has no such column, would be refused from then on."""

    def grown(key):
        day = pd.Timestamp("2030-01-01" if fault == "rows outside" else key)
        table = pa.Table.from_pandas(pd.DataFrame({"d": [day], "v": [1.5], "new": ["x"]}))

        def batches():
            yield from table.to_batches()
            raise ValueError("the source went away")

        return table if fault == "rows outside" else pa.RecordBatchReader.from_batches(table.schema, batches())

    @dg.asset(key=["s", "t"], partitions_def=DAYS, metadata={"partition_expr": "d"})
    def plain(context):
        return pd.DataFrame({"d": [pd.Timestamp(context.partition_key)], "v": [1.5]})

    @dg.asset(key=["s", "t"], partitions_def=DAYS, metadata={"partition_expr": "d", "marigold/evolve": True})
    def growing(context):
        return grown(context.partition_key)

    warehouse.materialize(plain, key=D1)
    warehouse.refused(growing, key=D1)
    warehouse.materialize(plain, key=D2)
    assert [row[0] for row in warehouse.rows("DESCRIBE s.t")] == ["d", "v"]


def test_an_asset_that_opted_in_grows_its_table_and_old_rows_hold_null(warehouse):
    table = Table(metadata={"marigold/evolve": True})
    table.day(D1, v=[1, 2])
    warehouse.materialize(table.asset, key=D1)
    table.day(D2, v=[1.5], extra=["new"])
    warehouse.materialize(table.asset, key=D2)
    assert warehouse.rows("SELECT v, extra FROM s.t ORDER BY d, v") == [(1, None), (2, None), (1.5, "new")]
    table.day(D1, v=[7], extra=["old"])
    warehouse.materialize(table.asset, key=D1)
    assert warehouse.rows("SELECT v, extra FROM s.t ORDER BY d, v") == [(7, "old"), (1.5, "new")]
    table.day(D1, v=[7])
    assert "'extra'" in warehouse.refused(table.asset, key=D1)


def test_columns_go_by_name_and_never_by_position(warehouse, table, write):
    write(D1, gross=[100], net=[80])
    table.day(D2, gross=[100], net=[80])
    table.frames[D2] = table.frames[D2][["net", "d", "gross"]]
    write(D2)
    table.frames[D2] = table.frames[D2].rename(columns={"net": "NET"})
    write(D2)
    assert warehouse.rows("SELECT gross, net FROM s.t") == [(100, 80)] * 2


def test_a_first_day_without_rows_makes_a_table_with_columns_and_types(warehouse, table, read):
    table.frames[D1] = table.day(D1, v=[1], name=["x"]).head(0)
    result = warehouse.materialize(table.asset, key=D1)
    [event] = result.asset_materializations_for_node("s__t")
    assert event.metadata["dagster/partition_row_count"].value == 0
    loaded = read(D1)
    assert list(loaded.columns) == ["d", "v", "name"]
    assert len(loaded) == 0
    table.day(D2, v=[1, 2], name=["a", "b"])
    warehouse.materialize(table.asset, key=D2)
    assert warehouse.rows("SELECT v, name, typeof(v) FROM s.t ORDER BY ALL") == [
        (1, "a", "BIGINT"),
        (2, "b", "BIGINT"),
    ]


def test_an_untyped_empty_first_day_does_not_decide_the_types(warehouse, table, write):
    table.frames[D1] = pd.DataFrame({"d": pd.to_datetime([]), "name": pd.Series([], dtype=object)})
    write(D1)
    write(D2, name=["a", "b"])
    assert warehouse.rows("SELECT name FROM s.t ORDER BY ALL") == [("a",), ("b",)]


def test_a_first_day_of_nulls_does_not_decide_the_types(warehouse, write):
    write(D1, name=[None], amount=[None], seen=[None])
    write(D2, name=["a"], amount=[1.25], seen=[pd.Timestamp("2024-01-02 10:00", tz="UTC")])
    assert warehouse.rows("SELECT name, amount, seen IS NULL FROM s.t ORDER BY d") == [
        (None, None, True),
        ("a", 1.25, False),
    ]


@pytest.mark.slow
def test_an_untyped_empty_first_day_does_not_decide_how_the_table_is_cut(warehouse, table, write, read):
    table.frames[D1] = pd.DataFrame(columns=["d", "v"])
    write(D1)
    assert len(read(D1)) == 0
    write(D2, v=["x"])
    write(D1)
    assert read(D2)["v"].tolist() == ["x"]


def test_a_frame_without_any_column_is_refused(table, refused):
    table.frames[D1] = pd.DataFrame()
    assert "no columns" in refused(D1)


def test_an_empty_day_replaces_a_full_one_and_no_other(warehouse, table, write):
    write(D1, v=[1, 2])
    write(D2, v=[3])
    table.frames[D1] = table.frames[D1].head(0)
    [event] = write(D1).asset_materializations_for_node("s__t")
    assert event.metadata["dagster/partition_row_count"].value == 0
    assert warehouse.rows("SELECT v FROM s.t") == [(3,)]


def test_fractions_are_never_rounded_into_an_integer_column(warehouse, write, refused):
    write(D1, amount=[1, 2])
    line = refused(D2, amount=[1.6, 2.4])
    assert "'amount'" in line
    assert "1.6" in line
    write(D2, amount=[3.0, 4.0])
    assert warehouse.rows("SELECT amount FROM s.t ORDER BY d, amount") == [(1,), (2,), (3,), (4,)]


@pytest.mark.slow
def test_an_asset_that_opted_in_widens_its_columns_exactly(warehouse):
    table = Table(metadata={"marigold/evolve": True})
    table.day(D1, amount=[1, 2])
    warehouse.materialize(table.asset, key=D1)
    table.day(D2, amount=[1.6, 2.4])
    warehouse.materialize(table.asset, key=D2)
    assert warehouse.rows("SELECT amount FROM s.t ORDER BY d, amount") == [(1.0,), (2.0,), (1.6,), (2.4,)]


def test_integers_that_a_widened_column_could_not_hold_are_refused(warehouse):
    table = Table(metadata={"marigold/evolve": True})
    table.day(D1, amount=[2**53 + 1])
    warehouse.materialize(table.asset, key=D1)
    table.day(D2, amount=[1.5])
    line = warehouse.refused(table.asset, key=D2)
    assert f"'amount' would have to become DOUBLE for the rows, but holds the BIGINT value '{2**53 + 1}'" in line
    assert "marigold:" not in line
    assert f"'{D2}'" in line
    assert warehouse.rows("SELECT amount FROM s.t") == [(2**53 + 1,)]


@pytest.mark.slow
@pytest.mark.parametrize(
    "tie",
    [
        "CREATE INDEX i ON s.t (amount)",
        "CREATE OR REPLACE TABLE s.t (d TIMESTAMP, amount INTEGER UNIQUE)",
        "CREATE OR REPLACE TABLE s.t (d TIMESTAMP, amount INTEGER CHECK (amount < 9))",
        "CREATE OR REPLACE TABLE s.t (d TIMESTAMP, amount INTEGER, twice INTEGER AS (amount * 2))",
    ],
)
def test_a_column_that_cannot_widen_because_something_depends_on_it_is_named(warehouse, tie):
    table = Table(metadata={"marigold/evolve": True})
    table.day(D1, amount=[1])
    warehouse.materialize(table.asset, key=D1)
    warehouse.rows(tie)
    table.day(D2, amount=[1.5], **({"twice": [3]} if "twice" in tie else {}))
    line = warehouse.refused(table.asset, key=D2)
    assert "'amount' would have to become DOUBLE" in line
    assert "an index, a constraint or a generated column" in line
    assert f"'{D2}'" in line


@pytest.mark.slow
def test_decimals_come_back_exactly_and_wider_ones_are_refused_or_widen_the_column(warehouse, write, refused, read):
    write(D1, price=[Decimal("0.10"), Decimal("19.99")])
    assert read(D1)["price"].tolist() == [Decimal("0.10"), Decimal("19.99")]
    assert "12345678.123" in refused(D2, price=[Decimal("12345678.123")])
    growing = Table(metadata={"marigold/evolve": True})
    growing.day(D2, price=[Decimal("12345678.123")])
    warehouse.materialize(growing.asset, key=D2)
    assert read(D1)["price"].tolist() == [Decimal("0.10"), Decimal("19.99")]
    assert read(D2)["price"].tolist() == [Decimal("12345678.123")]


def test_nested_values_come_back_equal(table, write, read):
    write(D1, items=[[{"sku": "A", "q": 1}], []])
    write(D2, items=[[{"sku": "B", "q": 2}, {"sku": "C", "q": 3}]])
    assert [list(items) for items in read(D1)["items"]] == [[{"sku": "A", "q": 1}], []]
    assert [list(items) for items in read(D2)["items"]] == [[{"sku": "B", "q": 2}, {"sku": "C", "q": 3}]]


@pytest.mark.slow
def test_a_new_key_in_nested_values_is_refused_by_column_and_key(write, refused):
    write(D1, items=[[{"sku": "A", "q": 1}], []])
    for items in ([[{"sku": "B", "q": 2, "gift": True}]], [[{"sku": "B", "q": 2}, {"sku": "C", "q": 2, "gift": True}]]):
        line = refused(D2, items=items)
        assert "'items'" in line
        assert "gift" in line


def test_differing_keys_deep_within_nested_values_are_refused(write, refused):
    line = refused(D1, order=[{"lines": [{"sku": "A"}]}, {"lines": [{"sku": "B", "gift": True}]}])
    assert "'order'" in line
    assert "gift" in line


@pytest.mark.slow
def test_a_first_day_of_empty_lists_does_not_decide_what_the_lists_hold(warehouse, write, read):
    write(D1, items=[[], []])
    write(D2, items=[[{"sku": "A", "q": 1}]])
    assert [list(items) for items in read(D1)["items"]] == [[], []]
    assert [list(items) for items in read(D2)["items"]] == [[{"sku": "A", "q": 1}]]


EDGES = {
    "nan": np.array([float("nan"), 1.0]),
    "infinite": np.array([float("inf"), float("-inf")]),
    "unsigned": np.array([2**64 - 1, 0], dtype="uint64"),
    "smallest": np.array([-(2**63), 2**63 - 1], dtype="int64"),
    "nanoseconds": np.array(["2024-01-01T00:00:00.123456789", "NaT"], dtype="datetime64[ns]"),
    "old": [dt.date(1700, 1, 1), dt.date(9999, 12, 31)],
    "bytes": [b"\x00\xff", b""],
    "duration": pd.to_timedelta(["1 days 00:00:01", "-00:00:00.000001"]),
    "zoned": pd.to_datetime(["2024-01-01 12:34:56.789012", "1969-12-31 00:00:00.0"], utc=True),
    "text": ["", "a\x00b'\"\\\n日本"],
    "flag": [True, False],
    "category": pd.Categorical(["a", None]),
    "nullable": pd.array([2**62 + 1, None], "Int64"),
    "half": np.array([0.5, 65504], dtype="float16"),
    "time": [dt.time(12, 30), dt.time(23, 59, 59, 999999)],
}


def test_values_at_the_edge_of_their_type_come_back_equal(write, read):
    write(D1, **EDGES)
    found = read(D1)
    assert set(found.columns) == {"d", *EDGES}
    expected = {
        **{name: list(pd.Series(values)) for name, values in EDGES.items()},
        "old": [np.datetime64("1700-01-01"), np.datetime64("9999-12-31")],
        "category": ["a", None],
    }
    for name, values in expected.items():
        for wanted, got in zip(values, found[name], strict=True):
            assert (pd.isna(wanted) and pd.isna(got)) or got == wanted, name


def test_a_missing_float_of_pandas_is_null(warehouse, write):
    """Pandas itself cannot tell NaN from a missing value."""
    write(D1, v=pd.array([float("nan")], "float64"))
    assert warehouse.rows("SELECT v FROM s.t") == [(None,)]


def test_a_missing_value_in_arrow_and_a_nan_in_arrow_stay_what_they_are(warehouse, table, write):
    table.frames[D1] = pa.table({"d": pa.array([D1] * 2).cast(pa.timestamp("us")), "v": [float("nan"), None]})
    write(D1)
    assert warehouse.rows("SELECT isnan(v) FROM s.t ORDER BY v") == [(True,), (None,)]


def test_nanoseconds_with_a_time_zone_are_refused_because_the_database_would_cut_them(refused):
    line = refused(D1, v=pd.to_datetime(["2024-01-01 00:00:00.123456789"], utc=True))
    assert "v" in line


@pytest.mark.parametrize("stray", [pd.Timestamp(2024, 1, 2), pd.Timestamp(2023, 12, 31, 23, 59, 59), pd.NaT])
def test_rows_outside_the_partition_are_refused_with_their_number(warehouse, table, write, refused, stray):
    write(D2, v=[5])
    table.frames[D1] = pd.DataFrame({"d": [pd.Timestamp(2024, 1, 1), stray], "v": [1, 2]})
    for _ in range(3):
        assert "1 of 2 rows" in refused(D1)
    assert warehouse.rows("SELECT v FROM s.t") == [(5,)]


def test_a_first_write_that_is_refused_leaves_no_table(warehouse, table):
    table.frames[D1] = pd.DataFrame({"d": [pd.Timestamp(2024, 1, 2)], "v": [1]})
    warehouse.materialize(table.asset, key=D1, raise_on_error=False)
    assert warehouse.rows("SELECT table_name FROM duckdb_tables() WHERE schema_name = 's'") == []


def test_writing_a_day_three_times_leaves_one_copy(warehouse, write):
    for _ in range(3):
        write(D1, v=[1, 2])
    write(D2, v=[3])
    assert warehouse.rows("SELECT v FROM s.t ORDER BY v") == [(1,), (2,), (3,)]


def test_the_index_of_a_frame_is_not_stored(warehouse, table, write):
    table.day(D1, v=[1, 2, 3])
    table.frames[D1] = table.frames[D1].set_index(pd.Index(["a", "b", "c"], name="index")).iloc[1:]
    write(D1)
    assert [name for name, *_ in warehouse.rows("DESCRIBE s.t")] == ["d", "v"]


def test_two_columns_of_one_name_are_refused(table, refused):
    frame = table.day(D1, v=[1], w=[2])
    frame.columns = ["d", "v", "v"]
    assert "name" in refused(D1)
    frame.columns = ["d", "v", "V"]
    assert "'V'" in refused(D1)
    frame.columns = ["d", "v", ""]
    assert "name" in refused(D1)


def test_column_names_that_are_no_text_become_text(warehouse, table, write, read):
    frame = table.day(D1, v=[1], w=[2])
    frame.columns = ["d", 0, 1]
    write(D1)
    assert list(read(D1).columns) == ["d", "0", "1"]


CREATE = """
CREATE SCHEMA s;
CREATE TABLE s.t (id INTEGER PRIMARY KEY, d TIMESTAMP, v BIGINT DEFAULT 7 CHECK (v < 100), u VARCHAR UNIQUE);
COMMENT ON TABLE s.t IS 'by hand'; COMMENT ON COLUMN s.t.v IS 'the value';
"""


def test_a_table_made_by_hand_keeps_its_keys_defaults_checks_and_comments(warehouse, table, write, refused):
    for statement in CREATE.strip().split(";"):
        warehouse.rows(statement) if statement.strip() else None
    before = warehouse.rows("SELECT sql, comment FROM duckdb_tables() WHERE table_name = 't'")
    for value in (1, 2, 3):
        write(D1, id=[1, 2], v=[value, value], u=["a", "b"])
    write(D2, id=[3], v=[9], u=["c"])
    assert warehouse.rows("SELECT id, v FROM s.t ORDER BY id") == [(1, 3), (2, 3), (3, 9)]
    assert warehouse.rows("SELECT sql, comment FROM duckdb_tables() WHERE table_name = 't'") == before
    assert warehouse.rows("SELECT comment FROM duckdb_columns() WHERE table_name = 't' AND column_name = 'v'") == [
        ("the value",)
    ]
    assert "constraint" in refused(D2, id=[1], v=[9], u=["c"])  # a key of another day
    assert "constraint" in refused(D2, id=[3], v=[900], u=["c"])
    assert "constraint" in refused(D2, id=[3], v=[9], u=["a"])


def test_a_view_is_refused_as_a_target_and_left_as_it_is(warehouse, table, refused):
    warehouse.rows("CREATE SCHEMA s")
    warehouse.rows("CREATE TABLE s.base AS SELECT TIMESTAMP '2024-01-01' AS d, 1 AS v")
    warehouse.rows("CREATE VIEW s.t AS SELECT * FROM s.base")
    assert "view" in refused(D1, v=[1])
    assert warehouse.rows("SELECT v FROM s.t") == [(1,)]
    assert warehouse.rows("SELECT view_name FROM duckdb_views() WHERE schema_name = 's'") == [("t",)]


@pytest.mark.slow
def test_a_file_does_not_grow_with_every_rerun(tmp_path):
    store, numbers, sizes = DuckDBStore(str(tmp_path / "market.duckdb")), np.random.default_rng(0), []
    for number in range(50):
        store.swap(
            [slice_of("a")],
            pa.table({"key": ["a"] * 20_000, "value": numbers.random(20_000)}),
            attempt=Attempt(run_id=str(number), token=store.draw_token(str(number))),
            swap_id=str(number),
        )
        sizes.append(store.connector.path.stat().st_size)
    assert max(sizes) <= 3 * sizes[0]
