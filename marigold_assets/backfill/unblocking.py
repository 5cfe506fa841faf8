"""What would let blocked partitions be built, in words: read from the plan that blocks them."""

from __future__ import annotations

import re
from collections.abc import Iterable

from marigold_assets.planning.model import Absence, BackfillPlan, Lack

_PLAIN = re.compile(r"[^\s+*:()\"',]+")


def unblocking(plan: BackfillPlan) -> list[str]:
    """What the blocked partitions of a plan lack and how to get it, a line for each of it.

    What several assets lack is told once, with the last of them, which may read the others.
    """
    found: dict[tuple[str, Absence], list[tuple[str, Lack]]] = {}
    for asset in plan.assets:
        for lack in asset.lacks:
            found.setdefault((lack.owner, lack.absence), []).append((asset.owner, lack))
    return [_line(some) for some in found.values()]


def remedy_of(lack: Lack, owner: str) -> str:
    """How to get what partitions of an asset lack; a clause for the end of a sentence."""
    if lack.absence is Absence.NOT_SELECTED:
        selection = f"*{owner}" if _PLAIN.fullmatch(owner) else f'+key:"{owner}"'
        return f"take it along: {selection!r} is {owner} and all that it reads"
    if lack.absence is Absence.BEFORE:
        return f"begin earlier: --from {lack.first}"
    if lack.absence is Absence.BEHIND:
        return f"end later: --to {lack.last}"
    if lack.absence is Absence.NOT_STALE:
        return "plan without --stale, which leaves out what was never built"
    if lack.absence is Absence.LEFT_OUT:
        return f"build {lack.owner} first, by a range of its own: the range of this plan leaves that out"
    return "nothing can build that: its definition has no such partition"


def _line(some: Iterable[tuple[str, Lack]]) -> str:
    *others, (owner, last) = some
    every = [*(lack for _, lack in others), last]
    count = sum(lack.blocked for lack in every)
    names = ", ".join([*(name for name, _ in others), owner])
    what = f"{count:,} partition{'' if count == 1 else 's'} of {names} lack{'s' if count == 1 else ''}"
    first, final = min(str(lack.first) for lack in every), max(str(lack.last) for lack in every)
    span = "" if last.first is None else f" {first}" + (f" to {final}" if final != first else "")
    return f"Blocked: {what} {last.owner}{span}; {remedy_of(last, owner)}"
