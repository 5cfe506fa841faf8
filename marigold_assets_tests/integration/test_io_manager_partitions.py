"""Which rows belong to which partition, for every kind of partition and every way to ask for some of them."""

from __future__ import annotations

import decimal
from datetime import timedelta
from zoneinfo import ZoneInfo

import dagster as dg
import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from marigold_assets.resource import FencedPartitionResource

pytestmark = [
    pytest.mark.slow,
    # Dagster's words about what these assets themselves use
    pytest.mark.filterwarnings("ignore:Parameter `backfill_policy`"),
    pytest.mark.filterwarnings("ignore:Class `MultiPartitionMapping`"),
]

DAYS = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-02-01")
D1, D2, D3 = "2024-01-01", "2024-01-02", "2024-01-03"


def asset_of(make, partitions_def, partition_expr, *, key=("s", "t"), **options):
    """An asset that stores what a function of the partition key returns."""

    @dg.asset(key=list(key), partitions_def=partitions_def, metadata={"partition_expr": partition_expr}, **options)
    def t(context):
        return make(context.partition_key)

    return t


def test_days_of_text_are_refused_with_a_cast_to_use_instead(warehouse):
    def texts(key):
        return pd.DataFrame({"d": [key], "v": [1]})

    line = warehouse.refused(asset_of(texts, DAYS, "d"), key="2024-01-09")
    assert "text" in line
    assert "CAST(d AS DATE)" in line
    cast = asset_of(texts, DAYS, "CAST(d AS DATE)")
    for key in ("2024-01-09", "2024-01-10", "2024-01-09"):
        warehouse.materialize(cast, key=key)
    assert warehouse.rows("SELECT d FROM s.t ORDER BY d") == [("2024-01-09",), ("2024-01-10",)]


STYLES = {
    "timestamp column": ("d", pd.Timestamp),
    "date column": ("d", lambda key: pd.Timestamp(key).date()),
    "upper-case name": ("D", pd.Timestamp),
    "quoted name": ('"d"', pd.Timestamp),
    "epoch seconds": ("to_timestamp(d)", lambda key: int(pd.Timestamp(key).timestamp()) + 3600),
    "parsed text": ("strptime(d, '%Y-%m-%d')", lambda key: key),
    "cast text": ("CAST(d AS DATE)", lambda key: f"{key} 13:00:00"),
    "cast with colons": ("d::TIMESTAMP", lambda key: f"{key} 23:59:59"),
    "truncated": ("date_trunc('day', d)", lambda key: pd.Timestamp(f"{key} 23:59:59.999999")),
    "with a comment": ("d -- the day", pd.Timestamp),
}


@pytest.mark.parametrize("style", STYLES)
def test_every_style_of_partition_expression_tells_the_days_apart(warehouse, loader, style):
    expression, value = STYLES[style]
    asset = asset_of(lambda key: pd.DataFrame({"d": [value(key)] * 2, "key": [key] * 2}), DAYS, expression)
    for key in (D1, D2, D1):
        warehouse.materialize(asset, key=key)
    assert warehouse.rows("SELECT key, count(*) FROM s.t GROUP BY key ORDER BY key") == [(D1, 2), (D2, 2)]
    seen = []
    warehouse.materialize(asset.to_source_asset(), loader(asset.key, seen, pd.DataFrame, partitions_def=DAYS), key=D1)
    assert seen[0]["key"].tolist() == [D1, D1]


@pytest.mark.parametrize(
    "expression", ["no_such_column", "d)", "d; DROP TABLE s.other; --", "sum(d)", "", None, 7, ["d"], "v", "v > 0"]
)
def test_a_partition_expression_that_makes_no_sense_is_refused(warehouse, expression):
    warehouse.rows("CREATE SCHEMA s")
    warehouse.rows("CREATE TABLE s.other AS SELECT 1 AS v")
    asset = asset_of(lambda key: pd.DataFrame({"d": [pd.Timestamp(key)], "v": [1]}), DAYS, expression)
    line = warehouse.refused(asset, key=D1)
    assert "'s/t'" in line
    assert "partition" in line.split(":", 1)[1]


def test_a_missing_partition_expression_is_refused_by_name(warehouse):
    asset = asset_of(lambda key: pd.DataFrame({"d": [pd.Timestamp(key)]}), DAYS, None)
    assert "partition_expr" in warehouse.refused(asset, key=D1)


def hours_of(partitions_def, key):
    """The full hours of a window, as instants."""
    window = partitions_def.time_window_for_partition_key(key)
    return pd.date_range(window.start, window.end, freq="h", inclusive="left")


BERLIN = dg.DailyPartitionsDefinition("2024-03-01", timezone="Europe/Berlin", end_date="2025-01-01")
NEW_YORK = dg.DailyPartitionsDefinition("2024-01-01", timezone="America/New_York", end_date="2025-01-01")


def local_day(partitions_def, zone, session_zone):
    def frame(key):
        hours = hours_of(partitions_def, key)
        return pd.DataFrame({"ts": hours.tz_convert(session_zone or zone), "key": key})

    return frame


@pytest.mark.parametrize("column_zone", [None, "UTC", "Asia/Kolkata"])
def test_a_local_day_of_instants_is_whole_and_its_own_in_any_zone(warehouse, loader, column_zone):
    asset = asset_of(local_day(NEW_YORK, "America/New_York", column_zone), NEW_YORK, "ts")
    for key in ("2024-01-02", "2024-01-03") * 2:
        warehouse.materialize(asset, key=key)
    assert warehouse.rows("SELECT count(*), count(DISTINCT ts) FROM s.t") == [(48, 48)]
    seen = []
    reader = loader(asset.key, seen, pd.DataFrame, partitions_def=NEW_YORK)
    warehouse.materialize(asset.to_source_asset(), reader, key="2024-01-02")
    local = seen[0]["ts"].dt.tz_convert("America/New_York").sort_values()
    assert local.iloc[0] == pd.Timestamp("2024-01-02", tz="America/New_York")
    assert local.iloc[-1] == pd.Timestamp("2024-01-02 23:00", tz="America/New_York")
    assert len(local) == 24


CLOCK_CHANGES = {
    "2024-03-30": 24,
    "2024-03-31": 23,
    "2024-04-01": 24,
    "2024-10-26": 24,
    "2024-10-27": 25,
    "2024-10-28": 24,
}


def test_days_of_23_and_25_hours_are_whole_and_written_twice_without_doubles(warehouse, loader):
    asset = asset_of(local_day(BERLIN, "Europe/Berlin", None), BERLIN, "ts")
    for key in [*CLOCK_CHANGES] * 2:
        warehouse.materialize(asset, key=key)
    found = warehouse.rows("SELECT key, count(*), count(DISTINCT ts) FROM s.t GROUP BY key ORDER BY key")
    assert found == [(key, hours, hours) for key, hours in CLOCK_CHANGES.items()]
    seen = []
    reader = loader(asset.key, seen, dict[str, pd.DataFrame], partitions_def=BERLIN, backfill_policy=single_run())
    for keys in (("2024-03-30", "2024-04-01"), ("2024-10-26", "2024-10-28")):
        warehouse.materialize(asset.to_source_asset(), reader, keys=keys)
    assert {key: len(frame) for days in seen for key, frame in days.items()} == CLOCK_CHANGES


def single_run():
    return dg.BackfillPolicy.single_run()


def test_days_across_a_clock_change_can_be_written_as_one_range(warehouse):
    @dg.asset(
        key=["s", "t"],
        partitions_def=BERLIN,
        metadata={"partition_expr": "ts"},
        backfill_policy=single_run(),
    )
    def t(context):
        return pd.concat(pd.DataFrame({"ts": hours_of(BERLIN, key), "key": key}) for key in context.partition_keys)

    for _ in range(2):
        warehouse.materialize(t, keys=("2024-10-26", "2024-10-28"))
    counts = {key: m.metadata["dagster/partition_row_count"].value for key, m in newest(warehouse, ["s", "t"]).items()}
    assert counts == {"2024-10-26": 24, "2024-10-27": 25, "2024-10-28": 24}
    assert warehouse.rows("SELECT count(*), count(DISTINCT ts) FROM s.t") == [(73, 73)]


def newest(warehouse, key):
    """The newest materialization of every partition."""
    return {materialization.partition: materialization for _, materialization in warehouse.events(key)}


def test_wall_times_of_a_zoned_day_stay_in_their_day_when_the_clock_changes(warehouse):
    def frame(key):
        return pd.DataFrame({"d": pd.date_range(key, periods=24, freq="h"), "key": key})

    asset = asset_of(frame, BERLIN, "d")
    for key in ("2024-10-26", "2024-10-27", "2024-10-27", "2024-03-31"):
        warehouse.materialize(asset, key=key)
    assert warehouse.rows("SELECT key, count(*) FROM s.t GROUP BY key ORDER BY key") == [
        ("2024-03-31", 24),
        ("2024-10-26", 24),
        ("2024-10-27", 24),
    ]


def test_hours_that_wall_times_cannot_tell_apart_are_refused(warehouse):
    hourly = dg.HourlyPartitionsDefinition("2024-10-27-00:00", timezone="Europe/Berlin", end_date="2024-10-28-00:00")
    keys = hourly.get_partition_keys()
    asset = asset_of(lambda key: pd.DataFrame({"d": [pd.Timestamp(2024, 10, 27, 2)]}), hourly, "d")
    ambiguous = [key for key in keys if hourly.time_window_for_partition_key(key).start.hour == 2]
    assert len(ambiguous) == 2
    for key in ambiguous:
        assert "TIMESTAMPTZ" in warehouse.refused(asset, key=key)
    zoned = asset_of(lambda key: pd.DataFrame({"d": [hourly.time_window_for_partition_key(key).start]}), hourly, "d")
    for key in ambiguous * 2:
        warehouse.materialize(zoned, key=key)
    assert warehouse.rows("SELECT count(*), count(DISTINCT d) FROM s.t") == [(2, 2)]


WINDOWS = {
    "hourly": dg.HourlyPartitionsDefinition("2024-01-01-00:00", end_date="2024-01-03-00:00"),
    "hourly at :45": dg.HourlyPartitionsDefinition("2024-01-01-00:00", minute_offset=45, end_date="2024-01-03-00:00"),
    "weekly": dg.WeeklyPartitionsDefinition("2024-01-01", end_date="2024-03-01"),
    "weekly from Wednesday 06:30": dg.WeeklyPartitionsDefinition(
        "2024-01-01", day_offset=3, hour_offset=6, minute_offset=30, end_date="2024-03-01"
    ),
    "monthly": dg.MonthlyPartitionsDefinition("2024-01-01", end_date="2024-06-01"),
    "daily from 06:15": dg.DailyPartitionsDefinition(
        "2024-01-01", hour_offset=6, minute_offset=15, end_date="2024-02-01"
    ),
    "daily from 06:15 in a zone": dg.DailyPartitionsDefinition(
        "2024-03-29", hour_offset=6, minute_offset=15, timezone="Europe/Berlin", end_date="2024-04-10"
    ),
    "every five minutes": dg.TimeWindowPartitionsDefinition(
        start="2024-01-01-00:00", fmt="%Y-%m-%d-%H:%M", cron_schedule="*/5 * * * *", end="2024-01-01-02:00"
    ),
}


@pytest.mark.parametrize("zoned", [False, True], ids=["wall time", "instant"])
@pytest.mark.parametrize("kind", WINDOWS)
def test_the_instant_where_a_window_ends_belongs_to_the_next_one_only(warehouse, kind, zoned):
    partitions_def = WINDOWS[kind]
    over = timedelta(0)

    def frame(key):
        window = partitions_def.time_window_for_partition_key(key)
        last = (window.end.astimezone(ZoneInfo("UTC")) - timedelta(microseconds=1)).astimezone(window.end.tzinfo)
        ends = [window.start, last, *([window.end] if over is None else [])]
        values = ends if zoned else [end.replace(tzinfo=None) for end in ends]
        return pd.DataFrame({"d": pd.to_datetime(values, utc=zoned), "key": key})

    first, second = partitions_def.get_partition_keys()[:2]
    asset = asset_of(frame, partitions_def, "d")
    for key in (first, second, first):
        warehouse.materialize(asset, key=key)
    assert warehouse.rows("SELECT key, count(*) FROM s.t GROUP BY key ORDER BY key") == sorted(
        [(first, 2), (second, 2)]
    )
    over = None
    assert "1 of 3 rows" in warehouse.refused(asset, key=first)


ODD_KEYS = [
    "O'Brien & Sons",
    'a"b',
    "'; DROP TABLE s.t; --",
    "x\\y",
    "naïve-日本",
    "a|b",
    "x" * 300,
    '{"json": [1, "é"]}',
    " leading and trailing ",
    "%s ? $1 {}",
    "NULL",
    "a/b c",
]


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
def test_odd_keys_are_kept_apart_exactly_and_never_run_as_sql(warehouse, loader, dynamic):
    partitions_def = dg.DynamicPartitionsDefinition(name="odd") if dynamic else dg.StaticPartitionsDefinition(ODD_KEYS)
    if dynamic:
        warehouse.instance.add_dynamic_partitions("odd", ODD_KEYS)
    asset = asset_of(lambda key: pd.DataFrame({"k": [key], "v": [len(key)]}), partitions_def, "k")
    seen = []
    reader = loader(asset.key, seen, pd.DataFrame, partitions_def=partitions_def)
    for key in ODD_KEYS:
        warehouse.materialize(asset, key=key)
        warehouse.materialize(asset, reader, key=key)
    assert warehouse.rows("SELECT k FROM s.t ORDER BY k") == [(key,) for key in sorted(ODD_KEYS)]
    assert [frame["k"].tolist() for frame in seen] == [[key] for key in ODD_KEYS]


def test_keys_that_differ_by_case_or_blanks_or_composition_are_different(warehouse):
    keys = ["a", "A", " a", "é", "e\u0301", ""]
    try:
        partitions_def = dg.StaticPartitionsDefinition(keys)
        warehouse.materialize(asset_of(lambda key: pd.DataFrame({"k": [key]}), partitions_def, "k"), key="")
    except dg.DagsterError:
        keys = keys[:-1]
        partitions_def = dg.StaticPartitionsDefinition(keys)
    asset = asset_of(lambda key: pd.DataFrame({"k": [key]}), partitions_def, "k")
    for key in keys:
        warehouse.materialize(asset, key=key)
    assert warehouse.rows("SELECT k FROM s.t ORDER BY k") == [(key,) for key in sorted(keys)]


def test_static_keys_over_a_column_of_numbers(warehouse, loader):
    partitions_def = dg.StaticPartitionsDefinition(["1", "2", "10"])
    asset = asset_of(lambda key: pd.DataFrame({"store": [int(key)] * 2}), partitions_def, "store")
    for key in ("1", "10", "2", "1"):
        warehouse.materialize(asset, key=key)
    assert warehouse.rows("SELECT store, count(*) FROM s.t GROUP BY 1 ORDER BY 1") == [(1, 2), (2, 2), (10, 2)]
    seen = []
    warehouse.materialize(asset, loader(asset.key, seen, pd.DataFrame, partitions_def=partitions_def), key="10")
    assert seen[0]["store"].tolist() == [10, 10]


def test_a_null_key_lies_outside_of_every_static_partition(warehouse):
    asset = asset_of(lambda key: pd.DataFrame({"k": [key, None]}), dg.StaticPartitionsDefinition(["a"]), "k")
    assert "1 of 2 rows" in warehouse.refused(asset, key="a")


CELLS = dg.MultiPartitionsDefinition({"date": DAYS, "region": dg.StaticPartitionsDefinition(["a", "b", "c"])})
CELL_EXPR = {"date": "d", "region": "r"}


def cells(key):
    parts = key.keys_by_dimension
    return pd.DataFrame({"d": [pd.Timestamp(parts["date"])], "r": [parts["region"]], "v": [1]})


def cell(date, region):
    return dg.MultiPartitionKey({"date": date, "region": region})


def test_every_cell_of_two_dimensions_is_its_own(warehouse):
    asset = asset_of(cells, CELLS, CELL_EXPR)
    for date, region in [(D1, "a"), (D1, "b"), (D2, "a"), (D1, "a")]:
        warehouse.materialize(asset, key=cell(date, region))
    assert warehouse.rows("SELECT strftime(d, '%Y-%m-%d'), r, count(*) FROM s.t GROUP BY ALL ORDER BY ALL") == [
        (D1, "a", 1),
        (D1, "b", 1),
        (D2, "a", 1),
    ]


def test_a_dimension_without_a_column_is_refused_before_anything_is_written(warehouse):
    for expression in ({"date": "d"}, {"date": "d", "region": None}, "d", None):
        asset = asset_of(cells, CELLS, expression)
        assert "'region'" in warehouse.refused(asset, key=cell(D1, "a"))


def test_a_time_and_a_dynamic_dimension(warehouse):
    shops = dg.DynamicPartitionsDefinition(name="shops")
    warehouse.instance.add_dynamic_partitions("shops", ["x", "y|z"])
    both = dg.MultiPartitionsDefinition({"date": DAYS, "shop": shops})
    asset = asset_of(
        lambda key: pd.DataFrame(
            {"d": [pd.Timestamp(key.keys_by_dimension["date"])], "s": [key.keys_by_dimension["shop"]]}
        ),
        both,
        {"date": "d", "shop": "s"},
    )
    for shop in ("x", "x"):
        warehouse.materialize(asset, key=dg.MultiPartitionKey({"date": D1, "shop": shop}))
    assert warehouse.rows("SELECT s FROM s.t") == [("x",)]


def fill_cells(warehouse):
    asset = asset_of(cells, CELLS, CELL_EXPR)
    for date in (D1, D2):
        for region in "abc":
            warehouse.materialize(asset, key=cell(date, region))
    return asset.to_source_asset()


def test_a_single_dimension_downstream_gets_all_cells_of_its_key(warehouse, loader):
    upstream, seen = fill_cells(warehouse), []
    reader = loader(upstream.key, seen, pd.DataFrame, partitions_def=DAYS)
    warehouse.materialize(upstream, reader, key=D2)
    by_region = loader(
        upstream.key,
        seen,
        pd.DataFrame,
        name="by_region",
        partitions_def=CELLS.get_partitions_def_for_dimension("region"),
    )
    warehouse.materialize(upstream, by_region, key="b")
    # yesterday's rows of the same region
    mapping = dg.MultiPartitionMapping(
        {
            "date": dg.DimensionPartitionMapping("date", dg.TimeWindowPartitionMapping(start_offset=-1, end_offset=-1)),
            "region": dg.DimensionPartitionMapping("region", dg.IdentityPartitionMapping()),
        }
    )
    yesterday = loader(upstream.key, seen, pd.DataFrame, name="yesterday", partitions_def=CELLS, mapping=mapping)
    warehouse.materialize(upstream, yesterday, key=cell(D2, "c"))
    found = [[(str(d.date()), r) for d, r in zip(f["d"], f["r"], strict=True)] for f in seen]
    assert [sorted(rows) for rows in found] == [
        [(D2, "a"), (D2, "b"), (D2, "c")],
        [(D1, "b"), (D2, "b")],
        [(D1, "c")],
    ]


@pytest.mark.parametrize(
    ("first", "second", "column"),
    [
        ("1", "01", pa.array([1], pa.int32())),
        ("1.5", "1.50", pa.array([1.5])),
        ("1.5", "1.50", pa.array([decimal.Decimal("1.50")], pa.decimal128(9, 2))),
        ("true", "t", pa.array([True])),
        ("2024-01-01", "2024-1-1", pa.array([pd.Timestamp(D1).date()])),
    ],
    ids=lambda value: str(getattr(value, "type", value)),
)
def test_keys_that_name_one_value_do_not_overwrite_each_other(warehouse, first, second, column):
    keys = dg.StaticPartitionsDefinition([first, second, "7"])
    asset = asset_of(lambda key: pa.table({"k": column, "key": [key]}), keys, "k")
    warehouse.materialize(asset, key=first)
    line = warehouse.refused(asset, key=second)
    assert f"partition '{second}'" in line
    assert f"as partition '{first}'" in line
    warehouse.materialize(asset, key=first)
    assert warehouse.rows("SELECT key FROM s.t") == [(first,)]
    warehouse.rows("DELETE FROM s.t")
    warehouse.materialize(asset, key=second)
    assert warehouse.rows("SELECT key FROM s.t") == [(second,)]


def test_an_expression_that_names_no_column_is_quoted_with_the_columns_there_are(warehouse):
    asset = asset_of(lambda key: pd.DataFrame({"d": [pd.Timestamp(key)], "v": [1]}), DAYS, "CAST(day AS DATE)")
    line = warehouse.refused(asset, key=D1)
    assert "partition expression 'CAST(day AS DATE)' cannot be evaluated" in line
    assert "columns, which are d, v" in line
    assert "DESCRIBE" not in line
    assert "^" not in line


def test_a_dimension_whose_keys_name_one_value_is_refused_where_the_others_agree(warehouse):
    keys = dg.MultiPartitionsDefinition(
        {"n": dg.StaticPartitionsDefinition(["1", "01"]), "c": dg.StaticPartitionsDefinition(["a", "b"])}
    )

    def make(key):
        letter, number = key.split("|")
        return pa.table({"n": [int(number)], "c": [letter]})

    asset = asset_of(make, keys, {"n": "n", "c": "c"})
    for letter, number in (("a", "1"), ("b", "01")):
        warehouse.materialize(asset, key=dg.MultiPartitionKey({"n": number, "c": letter}))
    line = warehouse.refused(asset, key=dg.MultiPartitionKey({"n": "01", "c": "a"}))
    assert "as partition 'a|1'" in line
    assert sorted(warehouse.rows("SELECT c, n FROM s.t")) == [("a", 1), ("b", 1)]


@pytest.mark.parametrize("config", [{}, {"default_collation": "NOCASE"}])
@pytest.mark.parametrize("expression", ["city", "city COLLATE NOACCENT", "lower(city) COLLATE NOCASE"])
def test_keys_that_a_collation_takes_for_equal_keep_their_own_rows(warehouse, loader, config, expression):
    keys = dg.StaticPartitionsDefinition(["muller", "müller", "MULLER"])
    options = {"resources": {"io_manager": warehouse.io_manager(connection_config=config)}}
    asset = asset_of(lambda key: pd.DataFrame({"city": [key]}), keys, expression)
    wanted = [key for key in keys.get_partition_keys() if not expression.startswith("lower") or key != "MULLER"]
    for key in wanted:
        warehouse.materialize(asset, key=key, **options)
    seen = []
    reader = loader(asset.key, seen, dict[str, pa.Table], partitions_def=keys)
    for key in wanted:
        warehouse.materialize(asset.to_source_asset(), reader, key=key, **options)
    assert [{key: table["city"].to_pylist() for key, table in one.items()} for one in seen] == [
        {key: [key]} for key in wanted
    ]


def test_a_column_with_a_collation_keeps_its_partitions_apart(warehouse):
    keys = dg.StaticPartitionsDefinition(["Madrid", "madrid"])
    asset = asset_of(lambda key: pd.DataFrame({"city": [key]}), keys, "city")
    warehouse.materialize(asset, key="Madrid")
    warehouse.rows("ALTER TABLE s.t ALTER city TYPE VARCHAR COLLATE NOCASE")
    warehouse.materialize(asset, key="madrid")
    assert sorted(warehouse.rows("SELECT city FROM s.t")) == [("Madrid",), ("madrid",)]
    assert "outside" in warehouse.refused(
        asset_of(lambda key: pd.DataFrame({"city": ["MADRID"]}), keys, "city"), key="madrid"
    )


def test_a_key_that_a_decimal_would_round_names_no_row(warehouse):
    keys = dg.StaticPartitionsDefinition(["1.01", "1.005"])
    asset = asset_of(lambda key: pa.table({"k": pa.array([decimal.Decimal("1.01")], pa.decimal128(9, 2))}), keys, "k")
    assert "outside the partition" in warehouse.refused(asset, key="1.005")
    warehouse.materialize(asset, key="1.01")


MADRID = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-02-01", timezone="Europe/Madrid")


def instants(key):
    at = (
        pd.to_datetime([f"{key} 00:30", f"{key} 23:30"])
        .tz_localize("Europe/Madrid")
        .astype("datetime64[us, Europe/Madrid]")
    )
    return pd.DataFrame({"sold": at, "v": [1, 2]})


def test_sql_of_an_input_is_refused_where_other_time_zones_would_read_other_rows(warehouse, loader):
    asset = asset_of(instants, MADRID, "CAST(sold AS DATE)")
    for key in (D1, D2):
        warehouse.materialize(asset, key=key)
    seen = []
    reader = loader(asset.key, seen, str, partitions_def=MADRID)
    line = warehouse.refused(asset.to_source_asset(), reader, key=D1)
    assert "depends on the time zone" in line
    assert "AT TIME ZONE 'Europe/Madrid'" in line
    warehouse.materialize(asset.to_source_asset(), loader(asset.key, seen, pa.Table, partitions_def=MADRID), key=D1)
    assert sorted(seen[0]["v"].to_pylist()) == [1, 2]


@pytest.mark.parametrize(
    "expression",
    ["sold", "CAST(sold AT TIME ZONE 'Europe/Madrid' AS DATE)", "CAST(timezone('Europe/Madrid', sold) AS DATE)"],
)
def test_sql_of_an_input_reads_the_same_rows_in_every_time_zone(warehouse, loader, expression):
    asset = asset_of(instants, MADRID, expression)
    for key in (D1, D2, D3):
        warehouse.materialize(asset, key=key)
    seen = []
    warehouse.materialize(asset.to_source_asset(), loader(asset.key, seen, str, partitions_def=MADRID), key=D2)
    with duckdb.connect(warehouse.path) as connection:
        for zone in ("Europe/Madrid", "UTC", "Asia/Tokyo", "America/New_York"):
            connection.execute(f"SET TimeZone = '{zone}'")
            found = connection.sql(
                f"SELECT CAST(sold AT TIME ZONE 'Europe/Madrid' AS VARCHAR) FROM ({seen[0]})"
            ).fetchall()
            assert sorted(found) == [(f"{D2} 00:30:00",), (f"{D2} 23:30:00",)]


def test_sql_of_an_input_is_refused_also_where_no_row_of_it_shows_why(warehouse, loader):
    """Rows in the middle of a month belong to it in every zone; those of its first hour do not."""
    months = dg.MonthlyPartitionsDefinition("2024-01-01", end_date="2024-04-01", timezone="Europe/Madrid")

    def make(key):
        at = pd.to_datetime([f"{key[:7]}-15 12:00"] * 2000 + [f"{key[:7]}-01 00:30"]).tz_localize("Europe/Madrid")
        return pd.DataFrame({"sold": at.astype("datetime64[us, Europe/Madrid]"), "v": 1})

    asset = asset_of(make, months, "CAST(date_trunc('month', sold) AS DATE)")
    warehouse.materialize(asset, key="2024-01-01")
    for key in ("2024-01-01", "2024-02-01"):
        reader = loader(asset.key, [], str, partitions_def=months)
        assert "depends on the time zone" in warehouse.refused(asset.to_source_asset(), reader, key=key)


@pytest.mark.parametrize("expression", ["sold", "CAST(sold AS DATE)"])
def test_the_query_shown_reads_the_partition_in_every_time_zone(warehouse, expression):
    asset = asset_of(instants, MADRID, expression)
    for key in (D1, D2, D3):
        warehouse.materialize(asset, key=key)
    [(_, shown)] = warehouse.events(asset.key, D2)
    for zone in ("UTC", "Asia/Tokyo", "America/New_York"):
        with duckdb.connect(warehouse.path) as connection:
            connection.execute(f"SET TimeZone = '{zone}'")
            rows = connection.execute(shown.metadata["Query"].value).fetchall()
            assert sorted(at.astimezone(ZoneInfo("Europe/Madrid")).isoformat() for at, _ in rows) == [
                f"{D2}T00:30:00+01:00",
                f"{D2}T23:30:00+01:00",
            ]


def test_a_downstream_of_scattered_partitions_gets_exactly_those(warehouse, loader):
    abc = dg.StaticPartitionsDefinition(["a", "b", "c"])
    asset = asset_of(lambda key: pd.DataFrame({"k": [key]}), abc, "k")
    for key in "abc":
        warehouse.materialize(asset, key=key)
    seen = []
    reader = loader(
        asset.key,
        seen,
        pd.DataFrame,
        partitions_def=dg.StaticPartitionsDefinition(["ends"]),
        mapping=dg.StaticPartitionMapping({"a": "ends", "c": "ends"}),
    )
    warehouse.materialize(asset.to_source_asset(), reader, key="ends")
    assert sorted(seen[0]["k"]) == ["a", "c"]


def test_days_with_gaps_between_them_load_as_exactly_those_days(warehouse, loader):
    asset = asset_of(lambda key: pd.DataFrame({"d": [pd.Timestamp(key)], "key": [key]}), DAYS, "d")
    for key in (D1, D2, D3, "2024-01-08"):
        warehouse.materialize(asset, key=key)
    mapping = dg.SpecificPartitionsPartitionMapping([D1, D3, "2024-01-08", "2024-01-09"])
    for annotation in (pd.DataFrame, dict[str, pd.DataFrame]):
        seen = []
        reader = loader(asset.key, seen, annotation, partitions_def=DAYS, mapping=mapping)
        warehouse.materialize(asset.to_source_asset(), reader, key="2024-01-10")
        if annotation is pd.DataFrame:
            assert sorted(seen[0]["key"]) == [D1, D3, "2024-01-08"]
        else:
            assert {key: len(frame) for key, frame in seen[0].items()} == {
                D1: 1,
                D3: 1,
                "2024-01-08": 1,
                "2024-01-09": 0,
            }


def test_an_unpartitioned_downstream_gets_all_partitions_or_the_one_it_names(warehouse, loader):
    asset = asset_of(lambda key: pd.DataFrame({"d": [pd.Timestamp(key)], "key": [key]}), DAYS, "d")
    for key in (D1, D3):
        warehouse.materialize(asset, key=key)
    seen = []
    for mapping in (
        None,
        dg.AllPartitionMapping(),
        dg.SpecificPartitionsPartitionMapping([D3]),
        dg.LastPartitionMapping(),
    ):
        warehouse.materialize(asset.to_source_asset(), loader(asset.key, seen, pd.DataFrame, mapping=mapping))
    assert [sorted(frame["key"]) for frame in seen] == [[D1, D3], [D1, D3], [D3], []]


@pytest.mark.parametrize("annotation", [pd.DataFrame, dict[str, pd.DataFrame], "unannotated"])
def test_a_running_total_starts_from_an_empty_frame(warehouse, annotation):
    def total(context, total):
        if annotation == dict[str, pd.DataFrame]:
            total = pd.concat(total.values()) if total else pd.DataFrame()
        balance = int(total["balance"].iloc[0]) if len(total) else 0
        return pd.DataFrame({"d": pd.to_datetime([context.partition_key]), "balance": [balance + 10]})

    total.__annotations__ = {} if annotation == "unannotated" else {"total": annotation}
    asset = dg.asset(
        partitions_def=DAYS,
        metadata={"partition_expr": "d"},
        ins={
            "total": dg.AssetIn(
                "total", partition_mapping=dg.TimeWindowPartitionMapping(start_offset=-1, end_offset=-1)
            )
        },
    )(total)
    for key in (D1, D2, D3, D2):
        warehouse.materialize(asset, key=key)
    assert warehouse.rows("SELECT balance FROM public.total ORDER BY d") == [(10,), (20,), (30,)]


def test_a_range_run_reports_every_partition_for_itself(warehouse):
    @dg.asset(
        key=["s", "t"],
        partitions_def=DAYS,
        metadata={"partition_expr": "d"},
        code_version="7",
        backfill_policy=single_run(),
    )
    def t(context):
        context.add_output_metadata({"weather": "fine"})
        days = [key for number, key in enumerate(context.partition_keys) for _ in range(number)]
        return pd.DataFrame({"d": pd.to_datetime(days), "v": range(len(days))})

    warehouse.materialize(t, keys=(D1, "2024-01-05"))
    found = warehouse.events(["s", "t"])
    assert [m.partition for _, m in found] == [f"2024-01-0{day}" for day in range(1, 6)]
    assert [m.metadata["dagster/partition_row_count"].value for _, m in found] == [0, 1, 2, 3, 4]
    assert all("WHERE" in m.metadata["Query"].value for _, m in found)
    assert len({m.metadata["Query"].value for _, m in found}) == 5
    versions = [m.tags["dagster/data_version"] for _, m in found]
    assert len(set(versions)) == 5
    assert versions == [m.metadata["marigold/content_hash"].value for _, m in found]
    assert {m.tags["dagster/code_version"] for _, m in found} == {"7"}
    assert {m.metadata["weather"].value for _, m in found} == {"fine"}


def test_a_range_run_gives_the_same_versions_as_runs_of_single_days(warehouse):
    def make(*, ranged):
        @dg.asset(key=["s", "t"], partitions_def=DAYS, metadata={"partition_expr": "d"}, backfill_policy=single_run())
        def t(context):
            return pd.DataFrame({"d": pd.to_datetime(list(context.partition_keys)), "v": 1})

        return t

    asset = make(ranged=True)
    warehouse.materialize(asset, keys=(D1, D3))
    for key in (D1, D2, D3):
        warehouse.materialize(asset, key=key)
    versions = [m.tags["dagster/data_version"] for _, m in warehouse.events(["s", "t"])]
    assert versions[:3] == versions[3:]


def test_a_range_of_two_years_takes_seconds(warehouse, loader):
    years = dg.DailyPartitionsDefinition("2023-01-01", end_date="2025-01-01")

    @dg.asset(key=["s", "t"], partitions_def=years, metadata={"partition_expr": "d"}, backfill_policy=single_run())
    def t(context):
        days = np.repeat(np.array(list(context.partition_keys), dtype="datetime64[us]"), 100)
        return pd.DataFrame({"d": days, "v": range(len(days))})

    seen = []
    reader = loader(t.key, seen, pd.DataFrame, partitions_def=years, backfill_policy=single_run())
    warehouse.materialize(t, reader, keys=("2023-01-01", "2024-12-31"))
    assert len(seen[0]) == 73_100
    assert len(warehouse.events(["s", "t"])) == 731
    resource = FencedPartitionResource(database=warehouse.path)
    assert {entry.row_count for entry in resource.ledger("s/t")} == {100}


def test_a_range_that_leaves_a_day_out_of_its_rows_empties_that_day(warehouse):
    asset = asset_of(lambda key: pd.DataFrame({"d": [pd.Timestamp(key)]}), DAYS, "d")
    for key in (D1, D2, D3, "2024-01-04"):
        warehouse.materialize(asset, key=key)

    @dg.asset(key=["s", "t"], partitions_def=DAYS, metadata={"partition_expr": "d"}, backfill_policy=single_run())
    def t(context):
        return pd.DataFrame({"d": pd.to_datetime([D1, D3])})

    warehouse.materialize(t, keys=(D1, D3))
    assert warehouse.rows("SELECT strftime(d, '%d') FROM s.t ORDER BY d") == [("01",), ("03",), ("04",)]
    assert "lie outside" in warehouse.refused(t, keys=(D1, D2))


def test_a_range_over_a_dimension_of_cells_writes_exactly_its_cells(warehouse):
    @dg.asset(
        key=["s", "t"], partitions_def=CELLS, metadata={"partition_expr": CELL_EXPR}, backfill_policy=single_run()
    )
    def t(context):
        return pd.concat(cells(key) for key in context.partition_keys)

    fill_cells(warehouse)
    warehouse.materialize(t, keys=(str(cell(D1, "a")), str(cell(D2, "b"))))
    assert warehouse.rows("SELECT count(*) FROM s.t") == [(6,)]
    events = warehouse.events(["s", "t"])
    assert all(m.partition for _, m in events)
    assert {m.metadata["dagster/partition_row_count"].value for _, m in events} == {1}


def test_the_partitions_of_a_changed_definition_stay_readable(warehouse, loader):
    """Days were kept first, and months later: what is stored does not depend on how it was cut."""
    asset = asset_of(lambda key: pd.DataFrame({"d": [pd.Timestamp(key)]}), DAYS, "d")
    for key in (D1, D2):
        warehouse.materialize(asset, key=key)
    months = dg.MonthlyPartitionsDefinition("2024-01-01", end_date="2024-03-01")
    seen = []
    monthly = asset_of(lambda key: pd.DataFrame({"d": [pd.Timestamp(key)]}), months, "d")
    warehouse.materialize(
        monthly.to_source_asset(), loader(asset.key, seen, pd.DataFrame, partitions_def=months), key=D1
    )
    assert len(seen[0]) == 2
    warehouse.materialize(monthly, key=D1)
    assert len(warehouse.rows("FROM s.t")) == 1


def test_an_asset_reads_its_own_past_wherever_it_begins(warehouse):
    mapping = dg.TimeWindowPartitionMapping(start_offset=-1, end_offset=-1)
    seen = []

    @dg.asset(
        key=["s", "t"],
        partitions_def=DAYS,
        metadata={"partition_expr": "d"},
        ins={"past": dg.AssetIn(["s", "t"], partition_mapping=mapping)},
        backfill_policy=dg.BackfillPolicy.single_run(),
    )
    def chain(context, past: pd.DataFrame):
        seen.append(len(past))
        return pd.DataFrame({"d": pd.to_datetime(list(context.partition_keys)), "v": 1})

    warehouse.materialize(chain, keys=(D2, D3))
    warehouse.materialize(chain, key="2024-01-04")
    assert seen == [0, 1]
