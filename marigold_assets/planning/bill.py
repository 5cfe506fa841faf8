"""The price of a plan: simulated as things are, and once more for each thing that could be otherwise; pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from marigold_assets.planning.history import DEFAULTS, Defaults, asset_history
from marigold_assets.planning.model import AssetPlan, Bill, Estimate, History, Limits, Spread
from marigold_assets.planning.sharing import Group
from marigold_assets.planning.simulation import Outcome, Pace, Simulator, Terms

_GOOD_ENOUGH = 1.05
_MOST_SLOTS = 32
_MOST_KEYS = 10_000


def price(assets: Sequence[AssetPlan], limits: Limits, history: History, *, defaults: Defaults = DEFAULTS) -> Bill:
    """What a plan costs.

    One slot more never makes it dearer, up to a size: where runs wait for each other, a daemon that looks at a luckless
    moment may do worse with one slot more. What fewer slots achieve counts then, as slots may be left free. In plans of
    very many runs, or with very many slots, such a moment is lost among all the others, and is left in.

    Args:
        assets: The assets of the plan, each behind those that it reads.
        limits: What bounds the runs.
        history: How long past runs took.
        defaults: What is assumed of assets without history.
    """
    simulator = Simulator(assets)
    pace = _pace(assets, history, defaults, cautious=False)
    terms = Terms(slots=limits.slots, tick_seconds=limits.tick_seconds, dequeue_seconds=limits.dequeue_seconds)
    at_median = _best(simulator, pace, terms)
    late = replace(terms, first_look_seconds=limits.tick_seconds)
    at_p90 = _best(simulator, _pace(assets, history, defaults, cautious=True), late)
    wall = at_median.wall

    def saved(pace: Pace, terms: Terms) -> float:
        return max(0.0, wall - simulator.run(pace, terms).wall)

    is_bound = limits.slots is not None and at_median.peak >= limits.slots
    at_once = replace(pace, run_start=0.0)
    without_bounds = Terms(slots=None, tick_seconds=0.0, dequeue_seconds=0.0)
    return Bill(
        runs=at_median.runs,
        wall=Estimate(median=wall, p90=max(wall, at_p90.wall)),
        busy=Estimate(median=at_median.busy, p90=max(at_median.busy, at_p90.busy)),
        critical_path=min(wall, simulator.run(at_once, without_bounds).wall),
        saved_by_slots=saved(pace, replace(terms, slots=None)) if is_bound else 0.0,
        saved_by_ticks=saved(pace, replace(terms, tick_seconds=0.0)),
        saved_by_starts=saved(at_once, terms),
        parallel=_parallel(simulator, pace, terms, wall),
        one_more_slot=saved(pace, replace(terms, slots=(limits.slots or 0) + 1)) if is_bound else 0.0,
        best_keys_per_run=_best_keys_per_run(simulator, pace, terms),
        assumed=tuple(one.owner for one in assets if one.keys and asset_history(history, one.owner).is_assumed),
        limits=limits,
    )


def _pace(assets: Sequence[AssetPlan], history: History, defaults: Defaults, *, cautious: bool) -> Pace:
    def of(spread: Spread) -> float:
        return max(spread.median, spread.p90) if cautious else spread.median

    known = {one.owner: asset_history(history, one.owner, defaults=defaults) for one in assets}
    return Pace(
        run_start=of(history.run_start),
        run_end=of(history.run_end),
        first_key={owner: of(one.first_key) for owner, one in known.items()},
        next_key={owner: of(one.next_key) for owner, one in known.items()},
    )


def _best(simulator: Simulator, pace: Pace, terms: Terms) -> Outcome:
    """The shortest outcome with these slots, or with fewer."""
    best = simulator.run(pace, terms)
    if terms.slots is None or terms.slots > _MOST_SLOTS or simulator.size > _MOST_KEYS:
        return best
    if not simulator.waits:  # runs that are all requested at once never end later for one slot more
        return best
    busy = simulator.least_busy(pace)
    # With as many as there were at most at once, nothing is otherwise.
    for slots in range(min(terms.slots, best.peak) - 1, 0, -1):
        if busy / slots - pace.run_end > best.wall:  # nor can still fewer do the work in less time
            break
        other = simulator.run(pace, replace(terms, slots=slots))
        if other.wall < best.wall:
            best = other
    return best


def _parallel(simulator: Simulator, pace: Pace, terms: Terms, wall: float) -> float:
    """How long it would take, were there no order within assets, and chains cut so as to fill all slots."""
    chains = [group for group in simulator.groups if group.is_chain]
    if not chains:
        return wall
    free = replace(terms, keeps_order=False)
    walls = [wall, simulator.run(pace, free).wall]
    evenly = {group.owner: _evenly(group, terms.slots) for group in chains}
    walls.append(simulator.run(pace, replace(free, keys_per_run=evenly)).wall)
    return min(walls)


def _evenly(group: Group, slots: int | None) -> int:
    return 1 if slots is None else -(-group.size // slots)


def _best_keys_per_run(simulator: Simulator, pace: Pace, terms: Terms) -> dict[str, tuple[int, float]]:
    found: dict[str, tuple[int, float]] = {}
    for group in simulator.groups:
        longest = max(stop - first for first, stop in group.stretches)
        if group.is_chain or longest < 2:
            continue
        walls: dict[int, float] = {}
        for size in _sizes(longest, (1, 2, 5) if simulator.size <= _MOST_KEYS else (1,)):
            walls[size] = simulator.run(pace, replace(terms, keys_per_run={group.owner: size})).wall
        shortest = min(walls.values())
        size = next(size for size, wall in walls.items() if wall <= shortest * _GOOD_ENOUGH)
        found |= dict.fromkeys(group.members, (size, walls[size]))
    return found


def _sizes(longest: int, digits: Sequence[int]) -> list[int]:
    """Chunk sizes worth trying, the whole last."""
    sizes = [digit * 10**power for power in range(len(str(longest))) for digit in digits]
    return [*(size for size in sizes if size < longest), longest]
