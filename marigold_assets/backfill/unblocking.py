"""What would let blocked partitions be built, in words: read from the plan that blocks them."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from marigold_assets.gaps import selection_of
from marigold_assets.planning.model import Absence, BackfillPlan, Lack
from marigold_assets.planning.naming import counted


def unblocking(plan: BackfillPlan) -> list[str]:
    """What the blocked partitions of a plan lack and how to get it, a line for each of it.

    What several assets lack alike is told once, where the same helps all of them.
    """
    found: dict[tuple[str, str, str], list[tuple[str, Lack]]] = {}
    for asset in plan.assets:
        for lack in asset.lacks:
            found.setdefault((lack.owner, _span(lack), remedy_of(lack, asset.owner)), []).append((asset.owner, lack))
    return [_line(span, remedy, some) for (_, span, remedy), some in found.items()]


def remedy_of(lack: Lack, owner: str) -> str:
    """How to get what partitions of an asset lack; a clause for the end of a sentence."""
    if lack.absence is Absence.NOT_SELECTED:
        itself = selection_of([owner])
        selection = f"+{itself}" if itself.startswith("key:") else f"*{itself}"
        return f"take it along: {selection!r} is {owner} and all that it reads"
    if lack.absence is Absence.BEFORE:
        return f"begin earlier: --from {shlex.quote(str(lack.first))}"
    if lack.absence is Absence.BEHIND:
        return f"end later: --to {shlex.quote(str(lack.last))}"
    if lack.absence is Absence.NOT_STALE:
        return "plan without --stale, which leaves out what was never built"
    if lack.absence is Absence.LEFT_OUT:
        return f"build {lack.owner} first, by a range of its own: the range of this plan leaves that out"
    return "nothing can build that: its definition has no such partition"


def _span(lack: Lack) -> str:
    if lack.first is None:
        return ""
    return f" {lack.first}" + (f" to {lack.last}" if lack.last != lack.first else "")


def _line(span: str, remedy: str, some: Sequence[tuple[str, Lack]]) -> str:
    count = sum(lack.blocked for _, lack in some)
    names = ", ".join(owner for owner, _ in some)
    what = f"{counted(count)} of {names} lack{'s' if count == 1 else ''}"
    return f"Blocked: {what} {some[0][1].owner}{span}; {remedy}"
