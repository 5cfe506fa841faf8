"""How planned partitions are cut into runs and which wait for which, as Dagster's backfills do it; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from marigold_assets.planning.model import AssetPlan, Key
from marigold_assets.planning.states import AssetState


def breaks_of(state: AssetState, planned: Sequence[Key]) -> tuple[int, ...]:
    """Where planned partitions do not follow each other.

    Args:
        state: The asset.
        planned: What is built, in order.

    Returns:
        Indices in ``planned``.
    """
    if not planned or (len(planned) == len(state.keys)):
        return ()
    places = {key: number for number, key in enumerate(state.keys)}
    numbers = [places[key] for key in planned]
    return tuple(at for at in range(1, len(numbers)) if numbers[at] != numbers[at - 1] + 1)


def restarts_of(state: AssetState, planned: Sequence[Key]) -> tuple[int, ...]:
    """Where a chain reads nothing any more that is built before.

    Args:
        state: The chain.
        planned: What is built, in order.

    Returns:
        Indices in ``planned``.
    """
    indices = {key: number for number, key in enumerate(planned)}
    inputs_of = state.reads[state.owner].inputs_of
    earliest = len(planned)
    found: list[int] = []
    for number in range(len(planned) - 1, 0, -1):
        read = (indices[key] for key in inputs_of(planned[number]) if key in indices)
        earliest = min(earliest, min(read, default=number))
        if earliest >= number:
            found.append(number)
    return tuple(reversed(found))


def spans_of(
    state: AssetState, planned: Sequence[Key], after: Mapping[str, Sequence[Key]]
) -> dict[str, tuple[tuple[int, int], ...]]:
    """For what partitions wait of assets that are not read under the partition's own name.

    Args:
        state: The asset.
        planned: What is built of it, in order.
        after: What is built of assets that it reads.

    Returns:
        As :attr:`marigold_assets.planning.model.AssetPlan.spans`.
    """
    found: dict[str, tuple[tuple[int, int], ...]] = {}
    for owner, keys in after.items():
        reads = state.reads[owner]
        if reads.same_keys:
            continue
        indices = {key: number for number, key in enumerate(keys)}
        last_inputs, span, spans = None, (0, 0), []
        for key in planned:
            inputs = reads.inputs_of(key)
            if inputs is not last_inputs:
                read = [indices[one] for one in inputs if one in indices]
                span = (min(read), max(read) + 1) if read else (0, 0)
                last_inputs = inputs
            spans.append(span)
        found[owner] = tuple(spans)
    return found


def in_run_of(plan: AssetPlan, plans: Mapping[str, AssetPlan], states: Mapping[str, AssetState]) -> str | None:
    """In whose runs an asset is built as well.

    Dagster puts assets of one grouping into one run where the same partitions of them are requested in one look of the
    daemon. A partition that waits for another one is requested with it only if it reads just that one.

    Args:
        plan: The asset.
        plans: Those before it.
        states: All of them as they stand.
    """
    own = states[plan.owner]
    if not plan.keys or own.grouping is None:
        return None
    names = [one.key for one in plan.keys]
    awaited = {plans[owner].in_run_of or owner for owner in plan.after}
    for root, other in plans.items():
        if (
            other.in_run_of is None
            and states[root].grouping == own.grouping
            and other.keys_per_run == plan.keys_per_run
            and other.breaks == plan.breaks
            and len(other.keys) == len(names)
            and all(one.key == name for one, name in zip(other.keys, names, strict=True))
            and (_joins(plan, root, plans, awaited) or _accompanies(plan, other, plans, awaited))
        ):
            return root
    return None


def _joins(plan: AssetPlan, root: str, plans: Mapping[str, AssetPlan], awaited: set[str]) -> bool:
    """Whether an asset is requested with those that it waits for."""
    if plan.is_chain or awaited != {root}:
        return False
    if plan.spans or plans[root].is_chain:  # only if all of them are requested at once
        whole = set(plan.breaks) <= set(plans[root].restarts) if plans[root].is_chain else True
        return plan.keys_per_run is None and not plans[root].after and whole
    return True


def _accompanies(plan: AssetPlan, other: AssetPlan, plans: Mapping[str, AssetPlan], awaited: set[str]) -> bool:
    """Whether assets that do not wait for each other are always ready at the same time."""
    if {plans[owner].in_run_of or owner for owner in other.after} != awaited:
        return False
    if awaited:
        return plan.is_chain == other.is_chain and plan.spans == other.spans and plan.restarts == other.restarts
    return plan.is_chain == other.is_chain or plan.keys_per_run is None
