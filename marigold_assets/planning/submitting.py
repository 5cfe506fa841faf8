"""Cutting a plan into what is handed to Dagster, one backfill after the other; pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from marigold_assets.planning.model import AssetPlan, BackfillPlan, Key, Order
from marigold_assets.planning.ordering import refuse_order
from marigold_assets.planning.sharing import Group, groups_of

_MOST_WAVES = 32
_BARE = re.compile(r"(?P<up>[+*]*)(?P<name>[^\s+*:()\"',]+)(?P<down>[+*]*)")
_FURTHER = {
    (False, False): "",
    (True, False): " and all upstream",
    (False, True): " and all downstream",
    (True, True): " and all upstream and downstream",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """A backfill of Dagster that is part of a launch.

    Attributes:
        title: Its title.
        keys: By asset, what is built, in order; assets in the order of the plan.
        priority: Its ``dagster/priority``: negative, so that production goes first.
        is_canary: Whether the others wait until it has ended well.
        number: Its place among all submissions of the launch, from 0.
    """

    title: str
    keys: Mapping[str, tuple[Key, ...]]
    priority: int
    is_canary: bool = False
    number: int = 0

    @property
    def size(self) -> int:
        """How many partitions it builds."""
        return sum(map(len, self.keys.values()))


_Part = dict[str, list[int]]
"""By asset, indices in its keys."""


def submissions(plan: BackfillPlan, *, canary: int = 0) -> tuple[Submission, ...]:
    """Cut a plan into backfills.

    Usually it is one. The newest partitions come first through several, of which those of newer partitions have a
    higher priority; where there would be too many, each holds several runs, and among these the oldest come first.

    Canaries are some partitions of every asset whose inputs are not left to the others: spread over all that the plan
    builds and over the reasons for it, or the first ones if anything in the plan is a chain.

    Args:
        plan: The plan.
        canary: How many partitions of an asset are built before the others.

    Returns:
        In the order of their launch. Together they build exactly what the plan does.

    Raises:
        ConfigurationError: The newest partitions are to come first, and some wait for others.
    """
    refuse_order(plan.assets, plan.request.order)
    everything = {one.owner: list(range(len(one.keys))) for one in plan.assets if one.keys}
    parts: list[_Part] = []
    if canary > 0 and everything:
        first = _canaries(plan.assets, canary)
        parts.append(first)
        taken = {owner: set(indices) for owner, indices in first.items()}
        everything = {
            owner: [at for at in indices if at not in taken.get(owner, ())] for owner, indices in everything.items()
        }
    has_canary = bool(parts)
    if plan.request.order is Order.NEWEST_FIRST:
        parts += _waves(groups_of(plan.assets), everything)
    else:
        parts.append(everything)
    parts = [part for part in parts if any(part.values())]
    return tuple(
        Submission(
            title=_title(plan, number, len(parts), is_canary=has_canary and number == 0),
            keys={
                one.owner: tuple(one.keys[at].key for at in part[one.owner])
                for one in plan.assets
                if part.get(one.owner)
            },
            priority=-1 - number,
            is_canary=has_canary and number == 0,
            number=number,
        )
        for number, part in enumerate(parts)
    )


def _title(plan: BackfillPlan, number: int, count: int, *, is_canary: bool) -> str:
    request = plan.request
    title = f"marigold: {_in_words(request.selection)}"
    if request.first is not None or request.last is not None:
        title += f", {request.first or 'first'} to {request.last or 'last'}"
    if is_canary:
        return f"{title} (canary)"
    return title if count == 1 else f"{title} ({number + 1} of {count})"


def _in_words(selection: str) -> str:
    """A selection as a title has it: Dagster takes none with a star or a double quote."""
    text = selection.strip()
    if text == "*":
        return "everything"
    bare = _BARE.fullmatch(text)
    if bare is None:
        return text.replace('"', "").replace("*", "...")
    up, down = "*" in bare["up"], "*" in bare["down"]
    left = ("" if up else bare["up"]) + bare["name"] + ("" if down else bare["down"])
    return left + _FURTHER[up, down]


def _waves(groups: Sequence[Group], left: _Part) -> Iterator[_Part]:
    """The newest first: waves of whole runs, of all groups alike."""
    cut = [(group, _runs(group, left[group.owner])) for group in groups]
    count = min(_MOST_WAVES, max((len(runs) for _, runs in cut), default=0))
    for wave in range(count):
        part: _Part = {}
        for group, runs in cut:
            first, stop = -(-wave * len(runs) // count), -(-(wave + 1) * len(runs) // count)
            indices = sorted(at for run in runs[first:stop] for at in run)
            part |= dict.fromkeys(group.members, indices)
        yield part


def _runs(group: Group, indices: Sequence[int]) -> list[list[int]]:
    """The runs of some keys, the newest first."""
    starts = {first for first, _ in group.stretches}
    runs: list[list[int]] = []
    for at in indices:
        follows = runs and at == runs[-1][-1] + 1 and at not in starts
        if follows and (group.keys_per_run is None or len(runs[-1]) < group.keys_per_run):
            runs[-1].append(at)
        else:
            runs.append([at])
    return runs[::-1]


def _canaries(assets: Sequence[AssetPlan], count: int) -> _Part:
    groups = groups_of(assets)
    by_owner = {one.owner: one for one in assets}
    are_first = any(group.is_chain for group in groups)
    chosen: _Part = {}
    for group in groups:
        eligible = list(range(group.size))
        for wait in group.waits_for:
            ready = set(chosen[wait.owner])
            spans = wait.spans or tuple((at, at + 1) for at in range(group.size))
            eligible = [at for at in eligible if all(one in ready for one in range(*spans[at]))]
        if group.links:
            eligible = _closed(group, eligible)
        if not are_first and not group.waits_for:
            eligible = _spread(by_owner[group.owner], eligible, count)
        chosen |= dict.fromkeys(group.members, eligible[:count])
    return chosen


def _closed(group: Group, eligible: Sequence[int]) -> list[int]:
    """Those of some keys of a chain that need none but these."""
    ready = set(eligible)
    found = []
    for first, stop in group.links:
        for at in range(first, stop):
            if at not in ready:
                break
            found.append(at)
    return found


def _spread(one: AssetPlan, indices: Sequence[int], count: int) -> list[int]:
    """Some keys from all over: of every reason at least one, and else evenly, the first and the last among them."""
    if len(indices) <= count:
        return list(indices)
    reasons: dict[object, list[int]] = {}
    for at in indices:
        reasons.setdefault(one.keys[at].reason, []).append(at)
    rarest_first = sorted(reasons.values(), key=len)
    found: list[int] = []
    for number, some in enumerate(rarest_first):
        left = count - len(found)
        strata = len(rarest_first) - number
        share = max(1, round(left * len(some) / sum(map(len, rarest_first[number:])))) if left else 0
        found += _evenly(some, min(share, left, max(left - strata + 1, 1)))
    return sorted(found)


def _evenly(some: Sequence[int], count: int) -> list[int]:
    """As many of a sequence, from end to end."""
    if count >= len(some):
        return list(some)
    if count == 1:
        return [some[len(some) // 2]]
    return [some[round(number * (len(some) - 1) / (count - 1))] for number in range(count)] if count else []
