"""Which partitions a plan builds and which it leaves alone, each with its reason; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from graphlib import CycleError, TopologicalSorter

from marigold_assets.errors import ConfigurationError
from marigold_assets.planning.judging import Judged, judge
from marigold_assets.planning.model import AssetPlan, PlannedKey, Request
from marigold_assets.planning.shape import breaks_of, in_run_of, restarts_of, spans_of
from marigold_assets.planning.states import AssetState


def wanted(states: Sequence[AssetState], request: Request) -> tuple[AssetPlan, ...]:
    """Decide about every partition that somebody asks for.

    What a plan builds makes stale what reads it: such partitions are taken along where they are asked for, and named in
    a note where they are not. So are those that somebody has accepted as they were, and those of which nobody knows
    what has built them.

    Args:
        states: The assets asked for, and all that they read, in any order.
        request: What is asked for.

    Returns:
        The assets asked for, each behind those of them that it reads. Every partition asked for is planned or skipped,
        once. Partitions before those asked for are planned as far as a lookback reaches, with those that must be built
        upon them.

    Raises:
        ConfigurationError: Assets read each other, or a partition is asked for that is none.
    """
    ordered = _ordered(states)
    judged: dict[str, Judged] = {}
    for state in ordered:
        judged[state.owner] = judge(state, request, judged)
    plans: dict[str, AssetPlan] = {}
    for state in ordered:
        if state.wanted:
            plans[state.owner] = _plan(state, judged[state.owner], plans, judged)
    return tuple(plans.values())


def _plan(state: AssetState, own: Judged, plans: Mapping[str, AssetPlan], judged: Mapping[str, Judged]) -> AssetPlan:
    keys = tuple(PlannedKey(key=key, reason=how[0], because=how[1]) for key, how in own.planned.items())
    read = tuple(owner for owner in state.reads if owner in plans and owner != state.owner)
    after = tuple(owner for owner in plans if owner in read and plans[owner].keys) if keys else ()
    planned = tuple(own.planned)
    left = [owner for owner in state.reads if owner in judged and owner not in plans and owner != state.owner]
    plan = AssetPlan(
        owner=state.owner,
        keys=keys,
        skipped=tuple(own.skipped),
        is_chain=state.is_chain,
        keys_per_run=state.keys_per_run,
        after=after,
        notes=(*state.notes, *own.notes, *(note for owner in left for note in judged[owner].notes)),
        breaks=breaks_of(state, planned),
        restarts=restarts_of(state, planned) if state.is_chain else (),
        spans=spans_of(state, planned, {owner: tuple(judged[owner].planned) for owner in after}),
        code=state.code,
        fingerprint=state.fingerprint,
        lacks=own.lacks,
    )
    shared = in_run_of(plan, plans, {owner: one.state for owner, one in judged.items()})
    return plan if shared is None else replace(plan, in_run_of=shared)


def _ordered(states: Sequence[AssetState]) -> list[AssetState]:
    by_owner = {state.owner: state for state in states}
    sorter: TopologicalSorter[str] = TopologicalSorter()
    for state in states:
        sorter.add(state.owner, *(one for one in state.reads if one in by_owner and one != state.owner))
    try:
        return [by_owner[owner] for owner in sorter.static_order()]
    except CycleError as error:
        circle = " -> ".join(map(str, error.args[1]))
        raise ConfigurationError(
            f"assets read each other in a circle: {circle}", remedy="have one of them read something else"
        ) from None
