"""Making a plan, and telling what has changed between two plans of the same request; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from marigold_assets.planning.bill import price
from marigold_assets.planning.model import AssetPlan, BackfillPlan, History, Key, Limits, PlannedKey, Request
from marigold_assets.planning.naming import is_or_are, named
from marigold_assets.planning.ordering import refuse_order
from marigold_assets.planning.states import AssetState
from marigold_assets.planning.wanted import wanted

_MOST_NAMED = 3


def make_plan(
    request: Request,
    states: Sequence[AssetState],
    *,
    limits: Limits,
    history: History,
    positions: Mapping[str, int],
    made_at: datetime,
    notes: Sequence[str] = (),
) -> BackfillPlan:
    """Plan a backfill.

    Args:
        request: What is asked for.
        states: The assets asked for, and all that they read, as they stand.
        limits: What bounds the runs.
        history: How long past runs took.
        positions: By asset, the newest position of its ledger as the states were gathered; 0 where nothing is written.
        made_at: When that was (aware).
        notes: What else people should know.

    Raises:
        ConfigurationError: Assets read each other, a partition is asked for that is none, or the newest ones are to
            come first where later ones wait for earlier ones.
    """
    assets = wanted(states, request)
    refuse_order(assets, request.order)
    return BackfillPlan(
        request=request,
        assets=assets,
        bill=price(assets, limits, history),
        positions=dict(positions),
        made_at=made_at,
        notes=tuple(notes),
    )


def changed(plan: BackfillPlan, other: BackfillPlan) -> str | None:
    """What a plan made again would do otherwise.

    Args:
        plan: The plan as it was made.
        other: The same request planned again.

    Returns:
        In words, for people; ``None`` if both build the same partitions by the same code for the same reasons, in the
        same runs and order, whatever they leave alone.
    """
    before = {one.owner: one for one in plan.assets if one.keys}
    after = {one.owner: one for one in other.assets if one.keys}
    found = []
    for owner in dict.fromkeys((*before, *after)):
        if owner not in after:
            found.append(f"nothing of {owner} is to be built any more")
        elif owner not in before:
            new = [one.key for one in after[owner].keys]
            found.append(f"{_some(owner, new)} {is_or_are(new)} to be built as well")
        else:
            found += _changed(before[owner], after[owner])
    return "; ".join(found) or None


def _changed(before: AssetPlan, after: AssetPlan) -> list[str]:
    reasons = {one.key: one for one in before.keys}
    now = {one.key: one for one in after.keys}
    gone = [key for key in reasons if key not in now]
    new = [key for key in now if key not in reasons]
    others = [key for key, one in now.items() if reasons.get(key, one) != one]
    found = []
    if gone:
        found.append(f"{_some(before.owner, gone)} {is_or_are(gone)} not to be built any more")
    if new:
        found.append(f"{_some(before.owner, new)} {is_or_are(new)} to be built as well")
    if others:
        same = reasons[others[0]].reason is now[others[0]].reason
        was, is_now = (_why(one[others[0]], with_words=same) for one in (reasons, now))
        found.append(f"{_some(before.owner, others)} {is_or_are(others)} {is_now} instead of {was}")
    if before.code != after.code:
        found.append(
            f"{before.owner} is built by other code: {after.code or 'unknown'}, not {before.code or 'unknown'}"
        )
    elif before.fingerprint != after.fingerprint:
        called = f", though it is still called {after.code}" if after.code else ""
        found.append(f"{before.owner} is built by code that was not the same{called}")
    if _shape(before) != _shape(after):
        found.append(f"{before.owner} is built in other runs")
    elif not gone and not new and _waits(before) != _waits(after):  # by the places of partitions, which are the same
        found.append(f"{before.owner} is built in other runs, or in another order")
    return found


def _why(one: PlannedKey, *, with_words: bool) -> str:
    return f"{one.reason.value} ({one.because})" if with_words else one.reason.value


def _shape(one: AssetPlan) -> tuple[object, ...]:
    return one.keys_per_run, one.is_chain, one.in_run_of


def _waits(one: AssetPlan) -> tuple[object, ...]:
    return sorted(one.after), one.breaks, one.restarts, dict(one.spans)


def _some(owner: str, keys: Sequence[Key]) -> str:
    shown = ", ".join(named(owner, key) for key in keys[:_MOST_NAMED])
    return shown if len(keys) <= _MOST_NAMED else f"{shown} and {len(keys) - _MOST_NAMED:,} more"
