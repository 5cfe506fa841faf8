"""From partition slices to predicates: which rows belong to which slice, given the type of the partition expression.

A wrong bound loses or doubles rows under a green run, so whatever cannot be told exactly is refused here.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from enum import Enum
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa

from marigold_assets.errors import ConfigurationError
from marigold_assets.model import Condition, Equals, Interval, PartitionSlice
from marigold_assets.stores import sql

Bound = date | datetime
_Value = Bound | str | None
_TRANSITION = timedelta(hours=26)  # no zone has ever moved its clock by more in one go (Samoa: 24 h)
_SAMPLE = timedelta(hours=1)  # and none has moved it twice within this time


class ExpressionKind(Enum):
    """What the type of a partition expression lets one say about time."""

    DATE = "date"
    WALL_TIME = "wall time"
    INSTANT = "instant"
    TEXT = "text"
    OTHER = "other"

    @classmethod
    def of(cls, type_name: str) -> ExpressionKind:
        """Classify a type by the name that the store gives it."""
        if type_name == "DATE":
            return cls.DATE
        if type_name in {"TIMESTAMP WITH TIME ZONE", "TIMESTAMPTZ", "TIMESTAMPTZ_NS"}:
            return cls.INSTANT
        if type_name.startswith("TIMESTAMP"):
            return cls.WALL_TIME
        return cls.TEXT if type_name == "VARCHAR" else cls.OTHER


def zone_of(slices: Sequence[PartitionSlice]) -> str:
    """The zone in which the slices' expressions are evaluated: that of their first time dimension."""
    zones = (c.timezone for slice_ in slices[:1] for c in slice_.conditions if isinstance(c, Interval))
    return next(zones, "UTC")


def interval_bounds(interval: Interval, kind: ExpressionKind, slice_: PartitionSlice) -> tuple[Bound, Bound]:
    """The two values that an expression of this kind is compared with.

    Args:
        interval: The interval.
        kind: What the expression's type can say.
        slice_: The slice, for errors.

    Returns:
        First value inside and first value beyond.

    Raises:
        ConfigurationError: The type cannot tell exactly which rows lie in the interval.
    """
    zone = ZoneInfo(interval.timezone)
    start, end = interval.start.astimezone(zone), interval.end.astimezone(zone)
    match kind:
        case ExpressionKind.INSTANT:
            return start.astimezone(UTC), end.astimezone(UTC)
        case ExpressionKind.WALL_TIME:
            if not _wall_time_is_exact(start, end, zone):
                raise ConfigurationError(
                    f"partition expression {interval.expression!r} is a timestamp without time zone, and the clock"
                    f" change in {interval.timezone} makes this partition's wall times ambiguous",
                    remedy="store the instant as TIMESTAMPTZ (a timezone-aware column)",
                    **slice_.where,
                )
            return start.replace(tzinfo=None), end.replace(tzinfo=None)
        case ExpressionKind.DATE:
            if not (_starts_a_day(start, zone) and _starts_a_day(end, zone)):
                raise ConfigurationError(
                    f"partition expression {interval.expression!r} is a DATE, which cannot tell the rows of"
                    f" [{start.isoformat()}, {end.isoformat()}) from those of its neighbours",
                    remedy="partition by a TIMESTAMP or TIMESTAMPTZ column",
                    **slice_.where,
                )
            return start.date(), end.date()
        case ExpressionKind.TEXT:
            raise ConfigurationError(
                f"partition expression {interval.expression!r} is text, which does not compare with time windows",
                remedy=f"store a DATE or TIMESTAMP column, or cast: partition_expr="
                f'"CAST({interval.expression} AS DATE)"',
                **slice_.where,
            )
        case _:
            raise ConfigurationError(
                f"partition expression {interval.expression!r} is neither DATE nor TIMESTAMP",
                remedy="use a DATE, TIMESTAMP or TIMESTAMPTZ column or an expression that makes one, such as"
                f' partition_expr="to_timestamp({interval.expression})" for epoch seconds',
                **slice_.where,
            )


def wall_times(interval: Interval, kind: ExpressionKind) -> tuple[datetime, datetime] | None:
    """The wall times between which the rows of an interval lie, to be compared with an expression of this kind.

    Args:
        interval: The interval.
        kind: What the expression's type can say; of a DATE, a day starts at midnight, whatever the clock says then.

    Returns:
        First inside and first beyond, without a zone; ``None`` where other rows have such wall times as well, since a
        clock is changed.
    """
    zone = ZoneInfo(interval.timezone)
    start, end = interval.start.astimezone(zone), interval.end.astimezone(zone)
    if kind is ExpressionKind.DATE:
        return datetime.combine(start, time()), datetime.combine(end, time())
    if not _wall_time_is_exact(start, end, zone):
        return None
    return start.replace(tzinfo=None), end.replace(tzinfo=None)


def _starts_a_day(instant: datetime, zone: ZoneInfo) -> bool:
    before = (instant.astimezone(UTC) - timedelta(microseconds=1)).astimezone(zone)
    return before.date() != instant.date()


def _wall_time_is_exact(start: datetime, end: datetime, zone: ZoneInfo) -> bool:
    """Whether the wall times in [start, end) are those of the instants in [start, end) and of no others."""
    first, last = start.astimezone(UTC), end.astimezone(UTC)
    around = [(edge - _TRANSITION, edge + _TRANSITION) for edge in (first, last)]
    if len({_offset(instant, zone) for stretch in around for instant in stretch}) == 1:
        return True
    low, high = start.replace(tzinfo=None), end.replace(tzinfo=None)
    for begin, stop in around:
        for since, until, offset in _stretches(begin, stop, zone):
            # Under one offset wall time runs like the instants: the two intervals must cut out the same piece.
            shift = timedelta(0) - offset
            wanted = _cut(first, last, since, until)
            if _cut((low + shift).replace(tzinfo=UTC), (high + shift).replace(tzinfo=UTC), since, until) != wanted:
                return False
    return True


def _offset(instant: datetime, zone: ZoneInfo) -> timedelta:
    return instant.astimezone(zone).utcoffset() or timedelta(0)


def _cut(low: datetime, high: datetime, since: datetime, until: datetime) -> tuple[datetime, datetime] | None:
    """The part of [low, high) within [since, until)."""
    low, high = max(low, since), min(high, until)
    return (low, high) if low < high else None


def _stretches(begin: datetime, stop: datetime, zone: ZoneInfo) -> Iterator[tuple[datetime, datetime, timedelta]]:
    """Cut [begin, stop) where the zone changes its offset from UTC."""
    since, now, offset = begin, begin, _offset(begin, zone)
    while now < stop:
        after = min(now + _SAMPLE, stop)
        if _offset(after, zone) != offset:
            change = _change(now, after, zone)
            yield since, change, offset
            since, offset = change, _offset(change, zone)
        now = after
    yield since, stop, offset


def _change(before: datetime, after: datetime, zone: ZoneInfo) -> datetime:
    """The first second of the offset that holds at ``after``."""
    low, high = 0, int((after - before).total_seconds())
    old = _offset(before, zone)
    while high - low > 1:
        middle = (low + high) // 2
        if _offset(before + timedelta(seconds=middle), zone) == old:
            low = middle
        else:
            high = middle
    return before.replace(microsecond=0) + timedelta(seconds=high)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpressionTypes:
    """The partition expressions of a table as SQL, with their types, by the author's text.

    Attributes:
        sql: Rendered expression by text.
        type: Type name by text.
    """

    sql: Mapping[str, str]
    type: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicate:
    """An SQL condition with its bound parameters, and the same condition with literals for display.

    Attributes:
        sql: The condition, with ``?`` placeholders.
        parameters: Their values.
        display: The condition with literals instead.
    """

    sql: str
    parameters: tuple[_Value, ...]
    display: str


def predicate(slices: Sequence[PartitionSlice], types: ExpressionTypes) -> Predicate:
    """The condition that holds for exactly the rows of the slices.

    Neighbouring intervals are merged, so that two years of days are one comparison and not 730.

    Raises:
        ConfigurationError: See :func:`interval_bounds`.
    """
    if not slices:
        return Predicate(sql="false", parameters=(), display="false")
    if any(not slice_.conditions for slice_ in slices):
        return Predicate(sql="true", parameters=(), display="true")
    parameters: list[_Value] = []

    def bind(value: _Value) -> str:
        parameters.append(value)
        return "?"

    conjunctions = _merged(slices, types)
    bound = _render(conjunctions, types, bind)
    return Predicate(sql=bound, parameters=tuple(parameters), display=_render(conjunctions, types, sql.literal))


_Range = tuple[str, Bound, Bound]
_Conjunction = tuple[tuple[Equals, ...], tuple[_Range, ...]]


def _merged(slices: Sequence[PartitionSlice], types: ExpressionTypes) -> list[_Conjunction]:
    """One conjunction of equalities and ranges for every run of slices that differ only by adjacent ranges."""
    groups: dict[tuple[Equals, ...], list[tuple[_Range, ...]]] = defaultdict(list)
    for slice_ in slices:
        equalities = tuple(c for c in slice_.conditions if isinstance(c, Equals))
        ranges = tuple(
            (c.expression, *interval_bounds(c, ExpressionKind.of(types.type[c.expression]), slice_))
            for c in slice_.conditions
            if isinstance(c, Interval)
        )
        groups[equalities].append(ranges)
    merged: list[_Conjunction] = []
    for equalities, alternatives in groups.items():
        if all(len(ranges) == 1 for ranges in alternatives):
            merged += [(equalities, (run,)) for run in _adjacent(sorted({r for (r,) in alternatives}, key=_order))]
        else:
            merged += [(equalities, ranges) for ranges in alternatives]
    return merged


def _order(range_: _Range) -> tuple[str, str]:
    return range_[0], range_[1].isoformat()


def _adjacent(ranges: Sequence[_Range]) -> list[_Range]:
    runs: list[_Range] = []
    for expression, low, high in ranges:
        if runs and runs[-1][0] == expression and runs[-1][2] == low:
            runs[-1] = (expression, runs[-1][1], high)
        else:
            runs.append((expression, low, high))
    return runs


def _render(conjunctions: Sequence[_Conjunction], types: ExpressionTypes, bind: Callable[[_Value], str]) -> str:
    rendered = []
    for equalities, ranges in conjunctions:
        parts = [_equality(types, c.expression, bind(_key_value(c, types))) for c in equalities]
        for expression, low, high in ranges:
            parts.append(f"{types.sql[expression]} >= {bind(low)}")
            parts.append(f"{types.sql[expression]} < {bind(high)}")
        rendered.append(" AND ".join(parts))
    return rendered[0] if len(rendered) == 1 else " OR ".join(f"({text})" for text in rendered)


def _equality(types: ExpressionTypes, expression: str, value: str) -> str:
    type_name = types.type[expression]
    # TRY_CAST: a key that is no value of the column's type has no rows, which is not an error when reading.
    if type_name == "VARCHAR":  # letter by letter, whatever the column's collation takes for equal
        return f"{types.sql[expression]} COLLATE C = {value}"
    return f"{types.sql[expression]} = TRY_CAST({value} AS {type_name})"


def _key_value(condition: Equals, types: ExpressionTypes) -> str | None:
    """The key, unless the database would round it to a value that another key names (1.6 to the INTEGER 2)."""
    type_name = types.type[condition.expression]
    if decimal := _DECIMAL.fullmatch(type_name):
        spelling: re.Pattern[str] | None = re.compile(rf"-?[0-9]*(\.[0-9]{{0,{decimal['scale']}}}0*)?")
    else:
        spelling = next((s for kinds, s in _EXACT_KEYS if type_name.startswith(kinds)), None)
    return condition.value if spelling is None or spelling.fullmatch(condition.value) else None


def key_casts(slices: Sequence[PartitionSlice], types: ExpressionTypes) -> tuple[str | None, ...]:
    """By dimension, the type to which keys are cast, so that several of them may name one value ("1" and "01").

    ``None`` where each key has a value of its own: text, and time windows.
    """
    kinds = [types.type[c.expression] if isinstance(c, Equals) else "VARCHAR" for c in slices[0].conditions]
    return tuple(None if kind == "VARCHAR" or kind.startswith("ENUM(") else kind for kind in kinds)


_DECIMAL = re.compile(r"DECIMAL\([0-9]+,(?P<scale>[0-9]+)\)")
_EXACT_KEYS = (
    (("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT"), re.compile(r"-?[0-9]+")),
    (("UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "UHUGEINT"), re.compile(r"[0-9]+")),
    (("DATE",), re.compile(r"[0-9]{4,}-[0-9]{1,2}-[0-9]{1,2}")),
)
"""How keys of types to which DuckDB rounds must be spelled; any other spelling names no row."""


def bounds_table(slices: Sequence[PartitionSlice], types: ExpressionTypes) -> tuple[pa.Table, str]:
    """The slices as rows to join with, for work that is grouped by slice.

    Args:
        slices: Slices with the same expressions, dimension by dimension.
        types: Their expressions.

    Returns:
        A table with one row a slice (its ``marigold_position``, and the bounds of every dimension), and the condition
        to join the sliced table with that table under the alias ``bounds``.

    Raises:
        ConfigurationError: See :func:`interval_bounds`.
    """
    columns: dict[str, pa.Array[Any]] = {"marigold_position": pa.array(range(len(slices)), pa.int32())}
    joins: list[str] = []
    for dimension, conditions in enumerate(zip(*(slice_.conditions for slice_ in slices), strict=True)):
        low, high, value = (f"marigold_{part}{dimension}" for part in ("low", "high", "value"))
        first: Condition = conditions[0]
        rendered = types.sql[first.expression]
        if isinstance(first, Interval):
            kind = ExpressionKind.of(types.type[first.expression])
            pairs = [
                interval_bounds(c, kind, s) for c, s in zip(conditions, slices, strict=True) if isinstance(c, Interval)
            ]
            arrow_type = _ARROW_TYPES[kind]
            columns[low] = pa.array([pair[0] for pair in pairs], arrow_type)
            columns[high] = pa.array([pair[1] for pair in pairs], arrow_type)
            joins.append(f"{rendered} >= bounds.{low} AND {rendered} < bounds.{high}")
        else:
            columns[value] = pa.array([_key_value(c, types) for c in conditions if isinstance(c, Equals)], pa.string())
            joins.append(_equality(types, first.expression, f"bounds.{value}"))
    return pa.table(columns), " AND ".join(joins)


_ARROW_TYPES = {
    ExpressionKind.DATE: pa.date32(),
    ExpressionKind.WALL_TIME: pa.timestamp("us"),
    ExpressionKind.INSTANT: pa.timestamp("us", tz="UTC"),
}
