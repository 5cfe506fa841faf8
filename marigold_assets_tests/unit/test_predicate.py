"""Which rows belong to which slice, as SQL."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import pytest

from marigold_assets.errors import ConfigurationError
from marigold_assets.model import Equals, Interval, PartitionSlice, TableName
from marigold_assets.stores.predicate import ExpressionKind, ExpressionTypes, bounds_table, interval_bounds, predicate

TABLE = TableName(schema="s", name="t")
START = datetime(2024, 3, 1, tzinfo=UTC)
DAY = timedelta(days=1)


def slice_of(*conditions, key="k"):
    return PartitionSlice(table=TABLE, partition_key=key, conditions=conditions, owner="o")


def days(*numbers, timezone="UTC"):
    return [
        slice_of(
            Interval(expression="at", start=START + number * DAY, end=START + (number + 1) * DAY, timezone=timezone)
        )
        for number in numbers
    ]


def types(**kinds):
    return ExpressionTypes(sql={name: f'"{name}"' for name in kinds}, type=kinds)


def test_no_slices_are_no_rows_and_a_whole_table_is_every_row():
    assert predicate([], types()).sql == "false"
    assert predicate([slice_of()], types()).sql == "true"


def test_an_interval_is_half_open_and_bound():
    found = predicate(days(0), types(at="TIMESTAMP"))
    assert found.sql == '"at" >= ? AND "at" < ?'
    assert found.parameters == (datetime(2024, 3, 1), datetime(2024, 3, 2))
    assert found.display == "\"at\" >= TIMESTAMP '2024-03-01 00:00:00' AND \"at\" < TIMESTAMP '2024-03-02 00:00:00'"


def test_neighbouring_days_are_one_range_in_any_order():
    found = predicate(days(2, 0, 1, 5), types(at="DATE"))
    assert found.parameters == (date(2024, 3, 1), date(2024, 3, 4), date(2024, 3, 6), date(2024, 3, 7))
    assert found.sql.count(" OR ") == 1


def test_two_years_of_days_are_one_comparison():
    assert len(predicate(days(*range(730)), types(at="TIMESTAMP WITH TIME ZONE")).parameters) == 2


def test_days_merge_within_each_value_of_another_dimension():
    slices = [
        slice_of(day.conditions[0], Equals(expression="color", value=color))
        for day in days(0, 1)
        for color in ("red", "blue")
    ]
    found = predicate(slices, types(at="DATE", color="VARCHAR"))
    assert found.sql.count(" OR ") == 1
    assert [value for value in found.parameters if isinstance(value, str)] == ["red", "blue"]


def test_a_key_is_cast_to_the_type_of_its_column_and_never_raises():
    found = predicate([slice_of(Equals(expression="n", value="7"))], types(n="INTEGER"))
    assert found.sql == '"n" = TRY_CAST(? AS INTEGER)'


@pytest.mark.parametrize(
    ("kind", "key", "kept"),
    [
        ("INTEGER", "7", True),
        ("INTEGER", "-07", True),
        ("INTEGER", "1.6", False),
        ("INTEGER", "1e1", False),
        ("INTEGER", " 7", False),
        ("UBIGINT", "-7", False),
        ("DATE", "2024-01-31", True),
        ("DATE", "2024-01-31 23:59:59", False),
        ("VARCHAR", "1.6", True),
        ("DOUBLE", "1.6", True),
    ],
)
def test_a_key_that_would_be_rounded_names_no_row(kind, key, kept):
    found = predicate([slice_of(Equals(expression="n", value=key))], types(n=kind))
    assert found.parameters == (key if kept else None,)


@pytest.mark.parametrize("kind", ["VARCHAR", "INTEGER", "BOOLEAN", "TIME"])
def test_an_interval_over_something_else_than_time_is_refused_with_a_remedy(kind):
    with pytest.raises(ConfigurationError, match="partition_expr="):
        predicate(days(0), types(at=kind))


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("DATE", ExpressionKind.DATE),
        ("TIMESTAMP", ExpressionKind.WALL_TIME),
        ("TIMESTAMP_NS", ExpressionKind.WALL_TIME),
        ("TIMESTAMP_S", ExpressionKind.WALL_TIME),
        ("TIMESTAMP WITH TIME ZONE", ExpressionKind.INSTANT),
        ("TIMESTAMPTZ_NS", ExpressionKind.INSTANT),
        ("VARCHAR", ExpressionKind.TEXT),
        ("DATE[]", ExpressionKind.OTHER),
        ("TIME", ExpressionKind.OTHER),
    ],
)
def test_types_are_told_apart_by_what_they_say_about_time(name, kind):
    assert ExpressionKind.of(name) is kind


def test_a_day_that_a_zone_skipped_is_empty_and_its_neighbours_are_exact():
    """Samoa went from the 29th to the 31st of December 2011."""
    edges = [datetime(2011, 12, 29, 10, tzinfo=UTC), datetime(2011, 12, 30, 10, tzinfo=UTC)]
    interval = Interval(expression="at", start=edges[0], end=edges[1], timezone="Pacific/Apia")
    low, high = interval_bounds(interval, ExpressionKind.WALL_TIME, slice_of(interval))
    assert (low, high) == (datetime(2011, 12, 29), datetime(2011, 12, 31))


def test_slices_become_rows_to_join_with():
    slices = [
        slice_of(day.conditions[0], Equals(expression="n", value=value))
        for day, value in zip(days(0, 3), "7x", strict=True)
    ]
    table, join = bounds_table(slices, types(at="TIMESTAMP WITH TIME ZONE", n="INTEGER"))
    assert table.column("marigold_position").to_pylist() == [0, 1]
    assert table.column("marigold_low0").to_pylist() == [START, START + 3 * DAY]
    assert table.column("marigold_value1").to_pylist() == ["7", None]
    assert join == (
        '"at" >= bounds.marigold_low0 AND "at" < bounds.marigold_high0'
        ' AND "n" = TRY_CAST(bounds.marigold_value1 AS INTEGER)'
    )
