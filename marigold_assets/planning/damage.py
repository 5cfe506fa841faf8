"""What is wrong with a plan that was read from a file; pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import lru_cache
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from marigold_assets.planning.model import AssetPlan, BackfillPlan, Bill, Estimate, Key, Request


def damage_of(plan: BackfillPlan) -> str | None:
    """The first thing in a plan that no plan has: a value of another type, a count below zero, a place out of range.

    Args:
        plan: The plan, made of whatever a file held.

    Returns:
        In words, with the name of the field; ``None`` if there is nothing.
    """
    return next(_of_types(plan, BackfillPlan, "plan"), None) or next(_of_values(plan), None)


def _of_types(value: Any, kind: Any, name: str) -> Iterator[str]:
    """What is not of the type that the model says."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in {Union, UnionType}:
        if not any(next(_of_types(value, one, name), None) is None for one in arguments):
            yield f"{name} is {_shown(value)}"
    elif origin is tuple:
        yield from _of_tuple(value, arguments, name)
    elif origin is Mapping:
        yield from _of_mapping(value, arguments, name)
    elif is_dataclass(kind) and isinstance(kind, type) and isinstance(value, kind):
        hints = _hints(kind)
        for one in fields(kind):
            yield from _of_types(getattr(value, one.name), hints[one.name], f"{name}.{one.name}")
    elif not _is_a(value, kind):
        yield f"{name} is {_shown(value)}"


def _of_mapping(value: Any, arguments: tuple[Any, ...], name: str) -> Iterator[str]:
    if not isinstance(value, Mapping):
        yield f"{name} is {_shown(value)}"
        return
    for key, one in value.items():
        yield from _of_types(key, arguments[0], f"a name in {name}")
        yield from _of_types(one, arguments[1], f"{name}.{key}")


def _of_tuple(value: Any, arguments: tuple[Any, ...], name: str) -> Iterator[str]:
    if not isinstance(value, tuple):
        yield f"{name} is {_shown(value)}"
    elif arguments[-1] is Ellipsis:
        for one in value:
            yield from _of_types(one, arguments[0], f"a value in {name}")
    elif len(value) != len(arguments):
        yield f"{name} has {len(value)} values"
    else:
        for one, argument in zip(value, arguments, strict=True):
            yield from _of_types(one, argument, f"a value in {name}")


def _is_a(value: Any, kind: Any) -> bool:
    if kind is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, kind) if isinstance(kind, type) else False


@lru_cache
def _hints(kind: type[Any]) -> Mapping[str, Any]:
    return get_type_hints(kind)


def _shown(value: Any) -> str:
    """A value as messages have it: a plan may be large."""
    if isinstance(value, (str, int, float, Enum)) or value is None:
        return repr(value)[:60]
    return f"a {type(value).__name__}"


def _of_values(plan: BackfillPlan) -> Iterator[str]:
    """What is of the right type and can all the same not be."""
    yield from _of_request(plan.request)
    yield from _of_bill(plan.bill)
    yield from (f"positions.{owner} is {at}" for owner, at in plan.positions.items() if at < 0)
    before: dict[str, AssetPlan] = {}
    for one in plan.assets:
        if one.owner in before:
            yield f"the asset {one.owner} is there twice"
        yield from (f"{one.owner}: {what}" for what in _of_asset(one, before))
        before[one.owner] = one


def _of_request(request: Request) -> Iterator[str]:
    if not request.selection.strip():
        yield "request.selection is empty"
    if request.lookback < 0:
        yield f"request.lookback is {request.lookback}"


def _of_bill(bill: Bill) -> Iterator[str]:
    limits = bill.limits
    durations: list[tuple[str, float]] = [
        ("limits.slots", limits.slots or 0),
        ("limits.tick_seconds", limits.tick_seconds),
        ("limits.dequeue_seconds", limits.dequeue_seconds),
    ]
    for one in fields(Bill):
        value = getattr(bill, one.name)
        if isinstance(value, Estimate):
            durations += [(f"{one.name}.median", value.median), (f"{one.name}.p90", value.p90)]
        elif isinstance(value, (int, float)):
            durations.append((one.name, value))
    durations += [
        (f"best_keys_per_run.{owner}", min(size - 1, wall)) for owner, (size, wall) in bill.best_keys_per_run.items()
    ]
    yield from (f"bill.{name} is below what it can be" for name, value in durations if value < 0)


def _of_asset(one: AssetPlan, before: Mapping[str, AssetPlan]) -> Iterator[str]:
    named: list[Key] = [*(each.key for each in one.keys), *(each.key for each in one.skipped)]
    if len(set(named)) != len(named):
        yield "a partition is there twice"
    if one.keys_per_run is not None and one.keys_per_run < 1:
        yield f"keys_per_run is {one.keys_per_run}"
    yield from (f"after names {owner}, which is not before it" for owner in one.after if owner not in before)
    yield from (f"lacks of {lack.owner} block {lack.blocked}" for lack in one.lacks if lack.blocked < 1)
    if one.in_run_of is not None and one.in_run_of not in before:
        yield f"in_run_of names {one.in_run_of}, which is not before it"
    elif one.in_run_of is not None and len(before[one.in_run_of].keys) != len(one.keys):
        yield f"in_run_of names {one.in_run_of}, which has other partitions"
    for name, places in (("breaks", one.breaks), ("restarts", one.restarts)):
        if list(places) != sorted(set(places)) or any(not 0 < at < len(one.keys) for at in places):
            yield f"{name} are no places of its partitions"
    for owner, spans in one.spans.items():
        if owner not in one.after or len(spans) != len(one.keys):
            yield f"spans of {owner} are not those of its partitions"
        elif any(not 0 <= first <= stop <= len(before[owner].keys) for first, stop in spans):
            yield f"spans of {owner} are no places of its partitions"
