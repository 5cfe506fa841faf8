"""How long runs and partitions take, from what past runs have taken; pure.

Medians, and 90th percentiles by nearest rank. A value far beyond the others does not count, and at most one in ten of
them is that: what takes long more often than so is no exception.

Runs of one backfill resemble each other, as nothing else has changed between them, and say little about next week. So a
90th percentile is never nearer to the median than the number of values allows, and that of the occasions on which they
were measured: it is half as much again after one, a tenth more after five.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from marigold_assets.planning.model import AssetHistory, History, RunSample, Spread

_FAR = 8.0
_LEAST_SPREAD = 0.1
_APART_SECONDS = 3_600.0  # runs with nothing in between for so long are of different occasions
_UNSEEN_BY_ONE = 0.5  # how much of the median what was measured on one occasion may be wrong at least


@dataclass(frozen=True, slots=True, kw_only=True)
class Defaults:
    """What is assumed of what was never measured.

    Attributes:
        run_start: Of a run, until its first step could begin.
        run_end: Of a run, after its last swap.
        asset: Of an asset.
    """

    run_start: Spread
    run_end: Spread
    asset: AssetHistory


DEFAULTS = Defaults(
    run_start=Spread(median=5.0, p90=10.0, count=0),
    run_end=Spread(median=1.0, p90=2.0, count=0),
    asset=AssetHistory(first_key=Spread(median=5.0, p90=15.0, count=0), next_key=Spread(median=2.0, p90=10.0, count=0)),
)
"""Of small partitions on one machine; whoever uses them says so."""


def history_of(samples: Iterable[RunSample], *, defaults: Defaults = DEFAULTS) -> History:
    """What past runs tell.

    The time of a run from its start to its last swap is shared out: every partition gets that since the swap before its
    own, of whichever asset. So the parts of a run add up to the whole of it, also where its steps overlapped.

    Where no run of an asset had several partitions, a later partition of a run is taken to last as long as a first one,
    which can only be too long, as that includes what a step needs to start.

    Args:
        samples: Past runs, in any order.
        defaults: What is assumed where there are none.
    """
    ends: list[float] = []
    firsts: dict[str, list[float]] = {}
    nexts: dict[str, list[list[float]]] = {}
    known = list(samples)
    started = [one for one in known if one.started_at is not None]
    starts = [max(0.0, one.started_at - one.launched_at) for one in started if one.started_at is not None]
    usual_start = _spread(starts, defaults.run_start, occasions=_occasions(started))
    for sample in known:
        swaps = sorted((at, owner) for owner, some in sample.swaps.items() for at in some)
        if not swaps:
            continue
        ends.append(max(0.0, sample.ended_at - swaps[-1][0]))
        before = sample.started_at
        if before is None:  # it began at least before its first swap
            before = min(sample.launched_at + usual_start.median, swaps[0][0])
        in_run: dict[str, list[float]] = {}
        for at, owner in swaps:
            in_run.setdefault(owner, []).append(max(0.0, at - before))
            before = max(before, at)
        for owner, (first, *others) in in_run.items():
            firsts.setdefault(owner, []).append(first)
            if others:
                nexts.setdefault(owner, []).append(others)
    return History(
        run_start=usual_start,
        run_end=_spread(ends, defaults.run_end, occasions=_occasions(one for one in known if any(one.swaps.values()))),
        assets={
            owner: _asset(some, nexts.get(owner, []), _occasions(one for one in known if one.swaps.get(owner)))
            for owner, some in firsts.items()
        },
    )


def asset_history(history: History, owner: str, *, defaults: Defaults = DEFAULTS) -> AssetHistory:
    """How long partitions of an asset take, or what is assumed of that."""
    return history.assets.get(owner, defaults.asset)


def _occasions(samples: Iterable[RunSample]) -> int:
    """On how many occasions runs ran: those of one backfill are one."""
    count, until = 0, float("-inf")
    for one in sorted(samples, key=lambda one: one.launched_at):
        count += one.launched_at > until + _APART_SECONDS
        until = max(until, one.ended_at)
    return max(1, count)


def _asset(firsts: Sequence[float], runs: Sequence[Sequence[float]], occasions: int) -> AssetHistory:
    first = _spread(firsts, DEFAULTS.asset.first_key, occasions=occasions)
    if not runs:
        return AssetHistory(first_key=first, next_key=Spread(median=first.median, p90=first.p90, count=0))
    # A range takes the sum of its partitions. So of each run the mean, and of those the median.
    usual = median(fmean(_without_far(some)) for some in runs)
    pooled = _without_far([one for some in runs for one in some])
    p90 = max(_least_p90(usual, len(pooled), occasions), _p90(pooled))
    return AssetHistory(first_key=first, next_key=Spread(median=usual, p90=p90, count=sum(map(len, runs))))


def _spread(values: Sequence[float], default: Spread, *, occasions: int) -> Spread:
    if not values:
        return default
    kept = _without_far(values)
    usual = median(kept)
    p90 = max(_least_p90(usual, len(values), occasions), _p90(kept))
    return Spread(median=usual, p90=p90, count=len(values))


def _least_p90(usual: float, count: int, occasions: int) -> float:
    """What so few values leave possible."""
    return usual * (1.0 + max(_UNSEEN_BY_ONE / occasions, 1.0 / count))


def _p90(values: Sequence[float]) -> float:
    ranked = sorted(values)
    return ranked[-(-9 * len(ranked) // 10) - 1]


def _without_far(values: Sequence[float]) -> Sequence[float]:
    """Without the few that are far above the others."""
    if len(values) < 3:
        return values
    ranked = sorted(values)
    middle = median(ranked)
    spread = max(median(abs(one - middle) for one in ranked), _LEAST_SPREAD * middle)
    for _ in range(max(1, len(ranked) // 10)):
        if ranked[-1] <= middle + _FAR * spread:
            break
        ranked.pop()
    return ranked
