"""Cron schedules moved to a later moment, as far as cron can say that."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from itertools import pairwise

_HOUR, _DAY = 60, 24 * 60
_WEEK = 7 * _DAY
_DAYS_OF_EVERY_MONTH = 28


def later(cron: str, by: timedelta) -> str | None:
    """The schedule whose every tick is so much later than one of the given, by the clock on the wall.

    Args:
        cron: Five fields.
        by: Whole minutes, fewer than lie between two ticks.

    Returns:
        The schedule; ``None`` where there is none: ticks lie too close to each other, or cron cannot say it.
    """
    fields = cron.split()
    seconds = by.total_seconds()
    if len(fields) != 5 or fields[3] != "*" or seconds < 0 or seconds % 60:
        return None
    minutes, hours = _numbers(fields[0], range(60)), _numbers(fields[1], range(24))
    if minutes is None or hours is None:
        return None
    if not seconds:
        return cron
    by_minutes = int(seconds // 60)
    date, weekday = fields[2], fields[4]
    if len(hours) == 24 and (date, weekday) == ("*", "*"):
        moved = _moved(minutes, by_minutes, _HOUR)
        return None if moved is None else f"{_listed(moved)} * * * *"
    if len(minutes) != 1:
        return None
    [minute] = minutes
    moments = [hour * _HOUR + minute for hour in hours]
    if (date, weekday) == ("*", "*"):
        return _daily(_moved(moments, by_minutes, _DAY))
    if len(moments) != 1:
        return None
    if date == "*" and weekday.isdigit():
        moved = _moved([int(weekday) % 7 * _DAY + moments[0]], by_minutes, _WEEK)
        return None if moved is None else _clock(moved[0] % _DAY, "*", str(moved[0] // _DAY))
    if weekday == "*" and date.isdigit():
        day, moment = divmod(moments[0] + by_minutes, _DAY)
        last = int(date) + day
        return None if last > _DAYS_OF_EVERY_MONTH else _clock(moment, str(last), "*")
    return None


def _daily(moments: Sequence[int] | None) -> str | None:
    if moments is None:
        return None
    hours = sorted(one // _HOUR for one in moments)
    return f"{moments[0] % _HOUR} {_listed(hours)} * * *"


def _clock(moment: int, date: str, weekday: str) -> str:
    hour, minute = divmod(moment, _HOUR)
    return f"{minute} {hour} {date} * {weekday}"


def _moved(moments: Sequence[int], by: int, period: int) -> list[int] | None:
    """Moments of a period that comes again and again, all later; ``None`` if one would come to the next one."""
    if any(by >= after - before for before, after in pairwise([*moments, moments[0] + period])):
        return None
    return sorted((one + by) % period for one in moments)


def _listed(numbers: Sequence[int]) -> str:
    return ",".join(map(str, numbers))


def _numbers(field: str, known: range) -> list[int] | None:
    """What a field stands for; ``None`` where it says more than numbers, ranges and steps."""
    found: set[int] = set()
    for part in field.split(","):
        which, _, step = part.partition("/")
        first, _, last = which.partition("-")
        if which == "*":
            span = known
        elif first.isdigit() and (last or first).isdigit():
            span = range(int(first), (int(last) if last else known[-1] if step else int(first)) + 1)
        else:
            return None
        if step and (not step.isdigit() or step == "0"):
            return None
        found |= set(span[:: int(step or 1)])
    return sorted(found) if found and found <= set(known) else None
