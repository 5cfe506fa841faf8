"""Rows of a table and the versions of their partitions: the view for people, and the SELECT that is exact."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import duckdb
import pyarrow as pa
import pytest

from marigold_assets.errors import ConfigurationError, MissingTableError, StoreUnavailableError
from marigold_assets.model import (
    Acceptance,
    Attempt,
    CutOff,
    Definition,
    Equals,
    Interval,
    PartitionSlice,
    Provenance,
    SwapOptions,
    TableName,
)
from marigold_assets.stores.duckdb import DuckDBStore
from marigold_assets.testing.strategies import slice_of, table_of

TABLE = TableName(schema="market", name="daily_sales")
BERLIN = ZoneInfo("Europe/Berlin")
ARROW = {"DATE": pa.date32(), "TIMESTAMP": pa.timestamp("us"), "TIMESTAMPTZ": pa.timestamp("us", tz="UTC")}
KINDS = pytest.mark.parametrize("kind", list(ARROW))
pytestmark = pytest.mark.slow


@pytest.fixture
def path(tmp_path):
    """Not of the name of the schema, which is for a test of its own."""
    return tmp_path / "warehouse.duckdb"


def run_sql(path, query, **config):
    """What an analyst sees, who has nothing but DuckDB."""
    with duckdb.connect(str(path), config=config) as connection:
        return connection.execute(query).fetchall()


def swap(store, slices, rows, version="1", **more):
    attempt = Attempt(run_id="run", token=store.draw_token("run"))
    provenance = Provenance(code_version=version, code_fingerprint=more.pop("fingerprint", "f"))
    options = SwapOptions(cut_off=more.pop("cut_off", CutOff.OFF))
    return store.swap(
        slices, rows, attempt=attempt, swap_id=f"{attempt.token}", provenance=provenance, options=options, **more
    )


def part(key, *conditions, table=TABLE):
    return PartitionSlice(table=table, partition_key=key, conditions=conditions, owner="market/daily_sales")


def window(start, end, zone=BERLIN, expression="sold"):
    start, end = (datetime(*moment, tzinfo=zone) for moment in (start, end))
    return Interval(expression=expression, start=start, end=end, timezone=str(zone))


def days(first, count, zone=BERLIN, expression="sold"):
    found = [first + timedelta(days=number) for number in range(count + 1)]
    return [
        part(str(one), window((*one.timetuple()[:3],), (*after.timetuple()[:3],), zone, expression))
        for one, after in pairwise(found)
    ]


def hours_of(slices, kind, zone=BERLIN):
    """Every hour of some days, as values of a type; of a DATE, every day."""
    moment, stop, found = slices[0].conditions[0].start.astimezone(UTC), slices[-1].conditions[0].end, []
    while moment < stop:
        local = moment.astimezone(zone)
        value = {"DATE": local.date(), "TIMESTAMP": local.replace(tzinfo=None), "TIMESTAMPTZ": moment}[kind]
        found.append((value, str(local.date())))
        moment += timedelta(hours=1)
    # Of the hour that comes twice, wall time keeps one.
    return list(dict(found).items()) if kind == "DATE" else found


def given(slices, kind, zone=BERLIN):
    rows = hours_of(slices, kind, zone)
    return pa.table({"sold": pa.array([row[0] for row in rows], ARROW[kind]), "expected": [row[1] for row in rows]})


AROUND_THE_CHANGES = [date(2024, 3, 30), date(2024, 10, 26)]


def names(kind):
    return ("starts", "ends") if kind == "TIMESTAMPTZ" else ("local_starts", "local_ends")


@KINDS
@pytest.mark.parametrize("first", AROUND_THE_CHANGES, ids=["forward", "back"])
def test_an_analyst_joins_rows_to_the_code_that_built_them(duck, path, kind, first):
    slices = days(first, 3)
    rows = given(slices, kind)
    swap(duck, slices, rows, "1")
    last = rows.filter(pa.compute.equal(rows["expected"], slices[2].partition_key))
    swap(duck, slices[2:], last, "2")
    start, end = names(kind)
    found = run_sql(
        path,
        f"""SELECT s.expected, v.partition_key, v.code_version, count(*)
            FROM market.daily_sales AS s LEFT JOIN marigold.versions AS v
            ON v.table_schema = 'market' AND v.table_name = 'daily_sales' AND s.sold >= v.{start} AND s.sold < v.{end}
            GROUP BY ALL ORDER BY ALL""",
    )
    counts = {key: rows["expected"].to_pylist().count(key) for key in rows["expected"].to_pylist()}
    assert [row[:3] for row in found] == [(key, key, "2" if key == slices[2].partition_key else "1") for key in counts]
    assert {row[0]: row[3] for row in found} == counts


def test_a_day_without_midnight_starts_at_midnight_for_dates(duck, path):
    zone = ZoneInfo("America/Sao_Paulo")
    table = pa.table({"sold": [date(2018, 11, number) for number in (3, 4, 5)]})
    swap(duck, days(date(2018, 11, 3), 3, zone), table)
    found = run_sql(
        path,
        "SELECT s.sold::VARCHAR, v.partition_key FROM market.daily_sales s LEFT JOIN marigold.versions v"
        " ON s.sold >= v.local_starts AND s.sold < v.local_ends ORDER BY 1",
    )
    assert found == [(key, key) for key in ("2018-11-03", "2018-11-04", "2018-11-05")]


def test_wall_times_that_two_partitions_share_are_those_of_none(duck, path):
    first = datetime(2024, 10, 27, tzinfo=UTC)
    moments = [first + timedelta(hours=number) for number in range(-1, 3)]
    slices = [
        part(
            moment.isoformat(),
            Interval(
                expression="sold",
                start=moment.astimezone(BERLIN),
                end=(moment + timedelta(hours=1)).astimezone(BERLIN),
                timezone="Europe/Berlin",
            ),
        )
        for moment in moments
    ]
    swap(duck, slices, pa.table({"sold": pa.array(moments, ARROW["TIMESTAMPTZ"])}))
    found = run_sql(path, "SELECT epoch(starts), local_starts, local_ends FROM marigold.versions ORDER BY 1")
    assert [row[0] for row in found] == [moment.timestamp() for moment in moments]
    # 02:00 to 03:00 comes twice.
    wall = [(datetime(2024, 10, 27, hour), datetime(2024, 10, 27, hour + 1)) for hour in (1, 3)]
    assert [row[1:] for row in found] == [wall[0], (None, None), (None, None), wall[1]]


def test_the_view_has_a_row_for_the_newest_entry_of_every_partition(duck, path):
    swap(duck, [slice_of("a"), slice_of("b")], table_of([{"key": "a", "value": 1}]), "1")
    swap(duck, [slice_of("a")], table_of([{"key": "a", "value": 1}]), "2", cut_off=CutOff.ON)
    other = slice_of("a", table=TABLE)
    swap(duck, [other], table_of([{"key": "a", "value": 1}]), "3")
    columns = "table_schema, table_name, asset, partition_key, code_version, code_fingerprint, row_count, confirmed"
    found = run_sql(path, f"SELECT {columns} FROM marigold.versions ORDER BY ALL")
    assert found == [
        ("market", "daily_sales", "daily", "a", "3", "f", 1, False),
        ("sales", "daily", "daily", "a", "2", "f", 1, True),
        ("sales", "daily", "daily", "b", "1", "f", 0, False),
    ]
    heads = duck.heads(other.table) | duck.heads(slice_of("b").table)
    rest = run_sql(path, "SELECT partition_key, token, content_hash, run_id FROM marigold.versions ORDER BY token DESC")
    newest = sorted(heads.values(), key=lambda entry: -entry.token)
    assert rest[0] == ("a", duck.heads(TABLE)["a"].token, duck.heads(TABLE)["a"].content_hash, "run")
    assert {row[2] for row in rest} >= {entry.content_hash for entry in newest}


def test_the_view_tells_a_static_key_and_every_dimension(duck, path):
    both = part("2024-01-01|it's", window((2024, 1, 1), (2024, 1, 2)), Equals(expression="place", value="it's"))
    rows = pa.table({"sold": pa.array([date(2024, 1, 1)], pa.date32()), "place": ["it's"]})
    swap(duck, [both], rows)
    whole = PartitionSlice(table=TableName(schema="market", name="all"), partition_key=None, owner="all")
    swap(duck, [whole], rows)
    [(value, start, text), (_, none, empty)] = run_sql(
        path, "SELECT value, local_starts, slice FROM marigold.versions ORDER BY table_name DESC"
    )
    assert (value, start, none, empty) == ("it's", datetime(2024, 1, 1), None, "[]")
    assert json.loads(text) == [
        {
            "expression": "sold",
            "start": "2023-12-31T23:00:00+00:00",
            "end": "2024-01-01T23:00:00+00:00",
            "timezone": "Europe/Berlin",
            "local_start": "2024-01-01T00:00:00",
            "local_end": "2024-01-02T00:00:00",
        },
        {"expression": "place", "value": "it's"},
    ]
    found = run_sql(
        path,
        "SELECT count(*), count(v.asset) FROM market.daily_sales s LEFT JOIN marigold.versions v"
        " ON v.table_name = 'daily_sales' AND s.sold >= v.local_starts AND s.sold < v.local_ends AND s.place = v.value",
    )
    assert found == [(1, 1)]


@pytest.mark.parametrize("key", ["it's", "\x00", "\u65e5\u672c", '"\\', "a\n;b", "null"])
def test_any_value_is_told_as_it_is(duck, path, key):
    swap(duck, [slice_of(key, table=TABLE)], table_of([{"key": key, "value": 1}]))
    assert run_sql(path, "SELECT partition_key, value FROM marigold.versions") == [(key, key)]
    assert run_sql(path, f"SELECT key, marigold_partition_key FROM ({duck.versions_query(TABLE)})") == [(key, key)]


def test_letters_differ_whatever_the_collation(path):
    store = DuckDBStore(str(path), config={"default_collation": "NOCASE"})
    swap(store, [slice_of("a", table=TABLE)], table_of([{"key": "a", "value": 1}]), "1")
    swap(store, [slice_of("A", table=TABLE)], table_of([{"key": "A", "value": 2}]), "2")
    query = (
        "SELECT s.key, v.code_version FROM market.daily_sales s LEFT JOIN marigold.versions v"
        " ON v.table_name = 'daily_sales' AND s.key = v.value ORDER BY s.value"
    )
    assert run_sql(path, query, default_collation="NOCASE") == [("a", "1"), ("A", "2")]
    exact = f"SELECT key, marigold_code_version FROM ({store.versions_query(TABLE)}) ORDER BY value"
    assert run_sql(path, exact, default_collation="NOCASE") == [("a", "1"), ("A", "2")]


NOW = datetime.now(UTC)
BEFORE, AFTER = NOW - timedelta(days=1), NOW + timedelta(days=1)


def test_codes_of_one_version_that_are_accepted_one_by_one_are_each_accepted_alone(duck, path):
    swap(duck, [slice_of("a", table=TABLE)], table_of([{"key": "a", "value": 1}]))
    accepted(duck)
    accepted(duck, code_fingerprint="g", by="of g")
    query = "SELECT accepted_by FROM marigold.versions"
    assert run_sql(path, query) == [("nadia",)]
    accepted(duck, code_fingerprint="f", by="of f")
    assert run_sql(path, query) == [("of f",)]
    [row] = run_sql(path, duck.versions_query(TABLE))
    assert row[-3] == "of f"


def accepted(store, key="a", by="nadia", until=None, at=BEFORE, **definition):
    found = {"code_version": "1", "code_fingerprint": None, "config_hash": None} | definition
    one = Acceptance(
        table=TABLE,
        owner="daily",
        partition_key=key,
        definition=Definition(**found),
        accepted_by=by,
        accepted_at=at,
        reason="why",
        until=until,
    )
    store.accept([one])


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([{}], "nadia"),
        ([{"until": AFTER}], "nadia"),
        ([{"until": BEFORE}], None),
        ([{}, {"by": "tomás"}], "tomás"),
        ([{}, {"until": BEFORE}], None),
        ([{"until": BEFORE}, {}], "nadia"),
        ([{"key": "b"}, {"key": None}], None),
        ([{"code_version": "2"}], None),
        ([{"config_hash": "c"}], None),
        ([{}, {"code_version": "2", "by": "tomás"}], "nadia"),
    ],
)
def test_the_view_says_by_whom_a_partition_is_accepted(duck, path, given, expected):
    swap(duck, [slice_of("a", table=TABLE)], table_of([{"key": "a", "value": 1}]))
    for more in given:
        accepted(duck, **more)
    columns = "accepted_by, accepted_reason, accepted_at IS NOT NULL, accepted_until IS NOT NULL"
    [found] = run_sql(path, f"SELECT {columns} FROM marigold.versions")
    until = expected is not None and given[-1].get("until") is not None
    assert found == (expected, expected and "why", expected is not None, until)


def test_code_without_a_version_is_accepted_by_its_fingerprint(duck, path):
    whole = PartitionSlice(table=TABLE, partition_key=None, owner="daily")
    swap(duck, [whole], table_of([{"key": "a", "value": 1}]), None)
    accepted(duck, None, code_version=None, code_fingerprint="g")
    query = "SELECT accepted_by FROM marigold.versions"
    assert run_sql(path, query) == [(None,)]
    accepted(duck, None, code_version=None, code_fingerprint="f")
    assert run_sql(path, query) == [("nadia",)]
    # What was accepted is that of a definition: another one is not.
    swap(duck, [whole], table_of([{"key": "a", "value": 2}]), "2")
    assert run_sql(path, query) == [(None,)]


def test_of_code_that_nobody_has_recorded_only_what_was_there_is_accepted(duck, path):
    def build(value):
        swap(duck, [slice_of("a", table=TABLE)], table_of([{"key": "a", "value": value}]), None, fingerprint=None)

    build(1)
    unknown = {"code_version": None, "code_fingerprint": None}
    accepted(duck, at=datetime.now(UTC), **unknown)
    query = "SELECT accepted_by FROM marigold.versions"
    assert run_sql(path, query) == [("nadia",)]
    build(2)
    assert run_sql(path, query) == [(None,)]
    [row] = run_sql(path, duck.versions_query(TABLE))
    assert row[-3] is None


@pytest.mark.parametrize("name", ["market", "marigold"])
def test_view_and_query_work_in_a_file_of_any_name(tmp_path, name):
    path = tmp_path / f"{name}.duckdb"
    store = DuckDBStore(str(path))
    swap(store, [slice_of("a", table=TABLE)], table_of([{"key": "a", "value": 1}]))
    run_sql(path, "CREATE TABLE main.ledger (x INTEGER); CREATE TABLE main.acceptances (x INTEGER)")
    assert run_sql(path, store.versions_query(TABLE))[0][:4] == ("a", 1, "a", "1")
    for other in ("market", "marigold", "other"):
        folder = tmp_path / f"copy of {other}"
        folder.mkdir()
        copy = shutil.copy(path, folder / f"{other}.duckdb")
        assert run_sql(copy, f"SELECT partition_key FROM {other}.marigold.versions") == [("a",)]
        with duckdb.connect() as connection:
            for alias in ("market", "marigold", "w"):
                connection.execute(f"ATTACH '{copy}' AS {alias} (READ_ONLY)")
                query = f"SELECT v.partition_key FROM {alias}.market.daily_sales s JOIN {alias}.marigold.versions v"
                assert connection.execute(f"{query} ON s.key = v.value").fetchall() == [("a",)]
                connection.execute(f"USE {alias}")
                shown = "marigold.marigold" if alias == "marigold" else "marigold"
                assert connection.execute(f"SELECT count(*) FROM {shown}.versions").fetchall() == [(1,)]
                connection.execute(f"USE memory; DETACH {alias}")


def test_the_query_ends_with_what_is_told(duck, path):
    [receipt] = swap(duck, [slice_of("a", table=TABLE)], table_of([{"key": "a", "value": 1}]), "7")
    query = duck.versions_query(TABLE)
    with duckdb.connect(str(path)) as connection:
        found = connection.sql(query)
        told = ["partition_key", "code_version", "code_fingerprint", "committed_at", "run_id"]
        told += ["accepted_by", "accepted_until", "accepted_reason"]
        assert found.columns == ["key", "value", *(f"marigold_{name}" for name in told)]
        [row] = found.to_arrow_table().to_pylist()
    assert list(row.values()) == ["a", 1, "a", "7", "f", receipt.entry.committed_at, "run", None, None, None]


def joined(store, path, table=TABLE, wanted="expected, marigold_partition_key"):
    grouped = "GROUP BY ALL" if "count(" in wanted else ""
    return run_sql(path, f"SELECT {wanted} FROM ({store.versions_query(table)}) {grouped} ORDER BY ALL")


@KINDS
@pytest.mark.parametrize("first", AROUND_THE_CHANGES, ids=["forward", "back"])
def test_the_query_joins_every_row_to_its_window(duck, path, kind, first):
    slices = days(first, 3)
    rows = given(slices, kind)
    swap(duck, slices, rows)
    expected = sorted(rows["expected"].to_pylist())
    assert joined(duck, path) == [(key, key) for key in expected]


def test_the_query_joins_by_expression_and_by_every_dimension(duck, path):
    expression = "date_trunc('day', sold)::DATE"
    slices = [
        part(f"{day.partition_key}|{number}", *day.conditions, Equals(expression="number", value=number))
        for day in days(date(2024, 1, 1), 3, expression=expression)
        for number in ("1", "02")
    ]
    rows = pa.table(
        {
            "sold": pa.array([datetime(2024, 1, day, 23) for day in (1, 2, 3) for _ in "ab"], pa.timestamp("us")),
            "number": pa.array([1, 2] * 3, pa.int32()),
            "expected": [slice_.partition_key for slice_ in slices],
        }
    )
    swap(duck, slices, rows)
    assert joined(duck, path) == sorted((slice_.partition_key, slice_.partition_key) for slice_ in slices)


@pytest.mark.parametrize(
    ("values", "keys"),
    [
        (pa.array([1, -2, 30]), ["1", "-2", "30"]),
        (pa.array([True, False]), ["true", "false"]),
        (pa.array([date(2024, 1, 1)], pa.date32()), ["2024-01-01"]),
        (pa.array(["a", "A", ""]), ["a", "A", ""]),
    ],
    ids=["integer", "boolean", "date", "text"],
)
def test_the_query_joins_by_key(duck, path, values, keys):
    slices = [part(key, Equals(expression="sold", value=key)) for key in keys]
    swap(duck, slices, pa.table({"sold": values, "expected": keys}))
    assert joined(duck, path) == sorted((key, key) for key in keys)


def test_a_key_that_is_no_value_of_the_column_has_no_row(duck, path):
    slices = [part(key, Equals(expression="sold", value=key)) for key in ("2", "1.6")]
    swap(duck, slices, pa.table({"sold": [2], "expected": ["2"]}))
    assert joined(duck, path) == [("2", "2")]


def test_rows_of_no_partition_come_out_once_with_nulls(duck, path):
    slices = days(date(2024, 1, 1), 2)
    swap(duck, slices, given(slices, "DATE"))
    run_sql(path, "INSERT INTO market.daily_sales VALUES ('2025-01-01', 'x'), ('2025-01-01', 'x'), (NULL, 'y')")
    known = [(slice_.partition_key, slice_.partition_key) for slice_ in slices]
    assert joined(duck, path) == [*known, ("x", None), ("x", None), ("y", None)]


def test_of_two_partitions_with_a_row_the_one_written_last_counts(duck, path):
    slices = days(date(2024, 1, 1), 40)
    rows = given(slices, "DATE")
    swap(duck, slices, rows, "days")
    month = part("2024-01", window((2024, 1, 1), (2024, 2, 1)))
    swap(duck, [month], rows.slice(0, 31), "months")
    swap(duck, slices[4:5], rows.slice(4, 1), "a day")
    found = joined(duck, path, wanted="marigold_code_version, count(*)")
    # The fifth of January was written by itself afterwards.
    assert found == [("a day", 1), ("days", 9), ("months", 30)]


def test_a_table_written_whole_is_of_one_version(duck, path):
    slices = days(date(2024, 1, 1), 2)
    rows = given(slices, "DATE")
    swap(duck, slices, rows, "days")
    swap(duck, [PartitionSlice(table=TABLE, partition_key=None, owner="market/daily_sales")], rows, "whole")
    assert joined(duck, path, wanted="marigold_code_version, marigold_partition_key, count(*)") == [("whole", None, 2)]


def test_rows_of_partitions_written_by_an_older_release_come_out_with_nulls(duck, path):
    swap(duck, [slice_of("a", table=TABLE)], table_of([{"key": "a", "value": 1}]))
    swap(duck, [slice_of("b", table=TABLE)], table_of([{"key": "b", "value": 2}]))
    run_sql(path, "UPDATE marigold.ledger SET slice = NULL WHERE partition_key = 'a'")
    assert joined(duck, path, wanted="key, marigold_partition_key") == [("a", None), ("b", "b")]
    run_sql(path, "UPDATE marigold.ledger SET slice = NULL")
    with pytest.raises(ConfigurationError, match="does not say which rows"):
        duck.versions_query(TABLE)


@pytest.mark.parametrize("column", ["rowid", "ROWID", "marigold_run_id", "Marigold_marigold_x", 'a"b', "position"])
def test_no_column_of_the_table_is_taken_for_another(duck, path, column):
    rows = pa.table({"key": ["a", "a", "b"], column: [7, 7, 7]})
    swap(duck, [slice_of(key, table=TABLE) for key in "ab"], rows)
    query = duck.versions_query(TABLE)
    with duckdb.connect(str(path)) as connection:
        found = connection.sql(query)
        assert found.columns[:2] == ["key", column]
        assert len({name.lower() for name in found.columns}) == 10
        assert sorted(row[:3] for row in found.fetchall()) == [("a", 7, "a"), ("a", 7, "a"), ("b", 7, "b")]


def test_nothing_is_joined_that_is_not_known(duck, path):
    with pytest.raises(StoreUnavailableError):
        duck.versions_query(TABLE)
    duck.draw_token("x")
    with pytest.raises(MissingTableError):
        duck.versions_query(TABLE)
    run_sql(path, "CREATE SCHEMA market; CREATE TABLE market.daily_sales (key VARCHAR)")
    with pytest.raises(ConfigurationError, match="does not say which rows"):
        duck.versions_query(TABLE)


def test_an_expression_that_depends_on_the_zone_is_refused(duck):
    slices = days(date(2024, 1, 1), 2, expression="CAST(sold AS DATE)")
    swap(duck, slices, given(slices, "TIMESTAMPTZ"))
    with pytest.raises(ConfigurationError, match="time zone"):
        duck.versions_query(TABLE)


IN_README = (
    "SELECT s.expected, v.code_version FROM market.daily_sales AS s LEFT JOIN marigold.versions AS v"
    " ON v.table_schema = 'market' AND v.table_name = 'daily_sales'"
    " AND s.sold >= v.local_starts AND s.sold < v.local_ends ORDER BY ALL"
)


def test_the_view_gives_no_row_twice_where_months_came_after_days(duck, path):
    slices = days(date(2024, 1, 1), 40)
    rows = given(slices, "DATE")
    swap(duck, slices, rows, "days")
    swap(duck, [part("2024-01", window((2024, 1, 1), (2024, 2, 1)))], rows.slice(0, 31), "months")
    swap(duck, slices[35:36], rows.slice(35, 1), "again")
    found = run_sql(path, IN_README)
    assert [row[1] for row in found] == ["months"] * 31 + ["days"] * 4 + ["again"] + ["days"] * 4
    kept = run_sql(path, "SELECT partition_key, is_current, local_starts IS NULL, row_count FROM marigold.versions")
    assert sum(row[1] for row in kept) == 10
    assert all(row[1] is not row[2] and row[3] > 0 for row in kept)


def test_the_view_gives_no_row_twice_where_a_table_was_written_whole_or_cut_by_other_columns(duck, path):
    slices = days(date(2024, 1, 1), 2)
    rows = pa.table({"sold": [date(2024, 1, 1), date(2024, 1, 2)], "place": ["a", "a"], "expected": ["1", "2"]})
    swap(duck, slices, rows, "days")
    both = [part(f"{one.partition_key}|a", *one.conditions, Equals(expression="place", value="a")) for one in slices]
    swap(duck, both[:1], rows.slice(0, 1), "days and places")
    assert run_sql(path, IN_README) == [("1", "days and places"), ("2", "days")]
    swap(duck, [PartitionSlice(table=TABLE, partition_key=None, owner="market/daily_sales")], rows, "whole")
    assert run_sql(path, IN_README) == [("1", None), ("2", None)]
    swap(duck, slices[1:], rows.slice(1, 1), "again")
    assert run_sql(path, IN_README) == [("1", None), ("2", "again")]


def test_partitions_of_several_places_do_not_cover_each_other(duck, path):
    slices = [
        part(f"{day.partition_key}|{place}", *day.conditions, Equals(expression="place", value=place))
        for day in days(date(2024, 1, 1), 2)
        for place in ("a", "A")
    ]
    swap(duck, slices, pa.table({"sold": [date(2024, 1, 1)], "place": ["a"]}))
    assert run_sql(path, "SELECT count(*), count(v.starts) FROM marigold.versions v WHERE is_current") == [(4, 4)]


def test_a_query_that_was_kept_tells_what_has_built_the_rows_since_and_who_accepts_it(duck, path):
    slices = days(date(2024, 1, 1), 3)
    rows = given(slices, "DATE")
    swap(duck, slices[:2], rows.slice(0, 2), "1")
    kept = duck.versions_query(TABLE)
    swap(duck, slices[1:], rows.slice(1, 2), "2")
    accepted(duck, slices[0].partition_key)
    wanted = "expected, marigold_code_version, marigold_accepted_by"
    keys = [slice_.partition_key for slice_ in slices]
    assert run_sql(path, f"SELECT {wanted} FROM ({kept}) ORDER BY 1") == [
        (keys[0], "1", "nadia"),
        (keys[1], "2", None),
        (keys[2], None, None),
    ]
    assert "-- it knows the rows of the 2 partitions of that time" in kept
    assert f"Written {datetime.now(UTC):%Y-%m-%d}" in kept.splitlines()[0]


def test_partitions_that_the_table_can_no_longer_be_cut_into_are_named_and_spoil_no_other(duck, path):
    old = part("old\n; x", Equals(expression="lower(place)", value="a"))
    swap(duck, [old], pa.table({"sold": [date(2024, 1, 1)], "place": ["a"], "expected": ["2024-01-01"]}))
    run_sql(path, "ALTER TABLE market.daily_sales DROP place")
    with pytest.raises(ConfigurationError, match="lower"):
        duck.versions_query(TABLE)
    slices = days(date(2024, 1, 1), 1)
    swap(duck, slices, given(slices, "DATE"))
    assert joined(duck, path, wanted="expected, marigold_partition_key") == [("2024-01-01", "2024-01-01")]
    text = duck.versions_query(TABLE)
    assert "-- Not in it, as the table can no longer be cut by 'lower(place)': 'old\\n; x'." in text.splitlines()
