"""Assets as they might stand, for tests of plans."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

from marigold_assets.planning.history import history_of
from marigold_assets.planning.making import make_plan
from marigold_assets.planning.model import Limits, Reason, Request
from marigold_assets.planning.states import AssetState, Reads, Verdict
from marigold_assets.planning.wanted import wanted

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SAME = Reads(inputs_of=lambda key: (key,), same_keys=True)
STALE = Verdict(reason=Reason.STALE_CODE, because="code 1 -> 2")


def days(count, first=date(2024, 1, 1)):
    return tuple((first + timedelta(days=number)).isoformat() for number in range(count))


def shifted(keys, *offsets, required=True):
    """Reads other days than its own."""
    places = {key: number for number, key in enumerate(keys)}

    def inputs_of(key):
        numbers = (places[key] + offset for offset in offsets)
        return tuple(keys[number] for number in numbers if 0 <= number < len(keys))

    return Reads(inputs_of=inputs_of, is_required=required)


def all_of(keys, *, required=True):
    return Reads(inputs_of=lambda key: keys, is_required=required)


def asset(owner, keys, *, reads=None, chain=False, **values):
    """An asset of days; of a chain each reads the one before."""
    reads = dict(reads or {})
    if chain:
        reads[owner] = shifted(keys, -1)
    return AssetState(owner=owner, keys=keys, reads=reads, **{"wanted": keys, "grouping": "days", **values})


def request(**values):
    return Request(selection="*", **values)


def planned(states, **values):
    """By asset, each planned key with its reason."""
    return {one.owner: {key.key: key.reason.value for key in one.keys} for one in wanted(states, request(**values))}


def skipped(states, **values):
    return {one.owner: {key.key: key.reason.value for key in one.skipped} for one in wanted(states, request(**values))}


def plan_of(states, *, slots=2, samples=(), made_at=NOW, **values):
    return make_plan(
        request(**values),
        states,
        limits=Limits(slots=slots),
        history=history_of(samples),
        positions={one.owner: 7 for one in states},
        made_at=made_at,
    )
