"""Every instant belongs to exactly one slice; wall time is told exactly, or refused."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo, available_timezones

from hypothesis import given
from hypothesis import strategies as st

from marigold_assets.errors import ConfigurationError
from marigold_assets.model import Interval, PartitionSlice, TableName
from marigold_assets.stores.predicate import ExpressionKind, interval_bounds
from marigold_assets.testing.strategies import instants

ZONES = sorted(name for name in available_timezones() if "/" in name and not name.startswith(("posix", "right", "Etc")))
zones = st.one_of(
    st.sampled_from(
        [
            "Europe/Berlin",
            "America/New_York",
            "America/Havana",
            "America/St_Johns",
            "Pacific/Apia",
            "Australia/Lord_Howe",
        ]
    ),
    st.sampled_from(ZONES),
)
MINUTE = timedelta(minutes=1)


def boundaries(period, zone, around):
    """The instants at which windows of a period start, as a scheduler would lay them: midnight or the hour, local."""
    local = around.astimezone(zone)
    if period == "hourly":
        first = around.replace(minute=0, second=0, microsecond=0) - timedelta(hours=6)
        return [first + timedelta(hours=number) for number in range(14)]
    midnight = datetime(local.year, local.month, local.day)
    if period == "daily":
        starts = [midnight + timedelta(days=number) for number in range(-3, 5)]
    elif period == "weekly":
        starts = [midnight + timedelta(days=7 * number - local.weekday()) for number in range(-2, 4)]
    else:
        months = [local.year * 12 + local.month - 1 + number for number in range(-2, 4)]
        starts = [datetime(month // 12, month % 12 + 1, 1) for month in months]
    found = {start.replace(tzinfo=zone).astimezone(UTC) for start in starts}
    return sorted(found)


def slices(period, zone_name, around):
    edges = boundaries(period, ZoneInfo(zone_name), around)
    return [Interval(expression="at", start=low, end=high, timezone=zone_name) for low, high in pairwise(edges)]


def bounds(interval, kind):
    slice_ = PartitionSlice(table=TableName(schema="s", name="t"), partition_key="k", conditions=(interval,), owner="o")
    return interval_bounds(interval, kind, slice_)


def probes(intervals, data):
    """Instants at and around every edge, every hour of the shortest stretch around it, and some at random."""
    edges = [interval.start for interval in intervals[1:]]
    near = [edge + shift for edge in edges for shift in (-MINUTE, -timedelta(microseconds=1), timedelta(0), MINUTE)]
    hours = [edge + timedelta(minutes=30 * number) for edge in edges for number in range(-8, 9)]
    inside = st.integers(0, int((intervals[-1].end - intervals[0].start) / MINUTE) - 1)
    drawn = [intervals[0].start + MINUTE * number for number in data.draw(st.lists(inside, min_size=3, max_size=10))]
    low, high = intervals[0].start, intervals[-1].end
    return [instant for instant in near + hours + drawn if low <= instant < high]


windows = st.sampled_from(["hourly", "daily", "weekly", "monthly"])
BERLIN_BACK, BERLIN_FORTH = datetime(2024, 10, 27, 12, tzinfo=UTC), datetime(2024, 3, 31, 12, tzinfo=UTC)


@given(period=windows, zone=zones, around=instants(), data=st.data())
def test_every_instant_belongs_to_exactly_one_slice(period, zone, around, data):
    intervals = slices(period, zone, around)
    pairs = [bounds(interval, ExpressionKind.INSTANT) for interval in intervals]
    for instant in probes(intervals, data):
        assert sum(low <= instant < high for low, high in pairs) == 1


@given(period=windows, zone=zones, around=instants(), data=st.data())
def test_wall_time_is_told_exactly_or_refused(period, zone, around, data):
    """If a slice is accepted, its bounds hold for the wall time of its own instants and of no others."""
    intervals = slices(period, zone, around)
    accepted = []
    for interval in intervals:
        with suppress(ConfigurationError):
            accepted.append((interval, *bounds(interval, ExpressionKind.WALL_TIME)))
    for instant in probes(intervals, data):
        wall = instant.astimezone(ZoneInfo(zone)).replace(tzinfo=None)
        for interval, low, high in accepted:
            assert (interval.start <= instant < interval.end) == (low <= wall < high), (interval, wall)


@given(period=windows, zone=zones, around=instants())
def test_wall_time_is_refused_only_near_a_change_of_the_clock(period, zone, around):
    for interval in slices(period, zone, around):
        info = ZoneInfo(zone)
        days = int((interval.end - interval.start) / timedelta(days=1)) + 4
        offsets = {
            (interval.start + timedelta(hours=number)).astimezone(info).utcoffset() for number in range(-48, 24 * days)
        }
        if len(offsets) == 1:
            bounds(interval, ExpressionKind.WALL_TIME)


@given(period=st.sampled_from(["daily", "weekly", "monthly"]), zone=zones, around=instants())
def test_every_date_belongs_to_exactly_one_slice(period, zone, around):
    pairs = [bounds(interval, ExpressionKind.DATE) for interval in slices(period, zone, around)]
    assert [high for _, high in pairs[:-1]] == [low for low, _ in pairs[1:]]
    assert all(type(low) is date and low < high for low, high in pairs)


@given(zone=zones, around=instants())
def test_hours_cannot_be_told_by_date(zone, around):
    refused = 0
    intervals = slices("hourly", zone, around)
    for interval in intervals:
        try:
            bounds(interval, ExpressionKind.DATE)
        except ConfigurationError:
            refused += 1
    assert refused == len(intervals)


def test_the_doubled_hour_of_wall_time_is_refused_and_its_day_is_not():
    refused = []
    for interval in slices("hourly", "Europe/Berlin", datetime(2024, 10, 27, 1, tzinfo=UTC)):
        try:
            bounds(interval, ExpressionKind.WALL_TIME)
        except ConfigurationError:
            refused.append(interval.start.hour)
    assert refused == [0, 1]
    for around in (BERLIN_BACK, BERLIN_FORTH):
        for interval in slices("daily", "Europe/Berlin", around):
            bounds(interval, ExpressionKind.WALL_TIME)
