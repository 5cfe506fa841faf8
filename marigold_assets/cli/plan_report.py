"""A plan for people: what is built and why, what is left alone and why, how it runs, and what it costs."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.text import Text

from marigold_assets.backfill.request import words_of
from marigold_assets.backfill.unblocking import unblocking
from marigold_assets.cli.bill_words import bill_lines
from marigold_assets.cli.columns import moment, plain, shown
from marigold_assets.cli.rendering import dots
from marigold_assets.planning.model import AssetPlan, BackfillPlan, Key, Order, PlannedKey, Skip, SkippedKey
from marigold_assets.planning.naming import counted

_BRACKETS = re.compile(r"\[([^\[\]]*)\]")
_GAP = "  "
_COUNT = 3  # the column of numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Partitions that follow each other and are in a plan, or left alone, for one reason.

    Attributes:
        reason: The reason.
        because: The same in words that hold for all of them.
        keys: The partitions, in order.
    """

    reason: str
    because: str
    keys: tuple[Key, ...]


def stretches(found: Iterable[PlannedKey | SkippedKey], order: Sequence[Key], *, alike: bool = False) -> list[Stretch]:
    """Partitions in stretches of one reason.

    Args:
        found: The partitions, in order.
        order: All partitions of the asset, in order.
        alike: Whether the reason must be the same in words as well.
    """
    places = {key: place for place, key in enumerate(order)}
    made: list[list[tuple[PlannedKey | SkippedKey, str]]] = []
    last = -2
    for one in found:
        place = places.get(one.key, -2)
        words = _in_general(one, order[place - 1] if place > 0 else None)
        before, before_words = made[-1][-1] if made else (None, "")
        is_same = before is not None and before.reason is one.reason and (not alike or before_words == words)
        if is_same and place == last + 1:
            made[-1].append((one, words))
        else:
            made.append([(one, words)])
        last = place
    return [
        Stretch(reason=some[0][0].reason.value, because=_together(some), keys=tuple(one.key for one, _ in some))
        for some in made
    ]


def _together(some: Sequence[tuple[PlannedKey | SkippedKey, str]]) -> str:
    if len(some) == 1:
        return some[0][0].because
    [(words, _), *others] = Counter(words for _, words in some).most_common()
    return f"{words}, and {counted(len(others), 'other cause')}" if others else words


def _in_general(one: PlannedKey | SkippedKey, before: Key) -> str:
    """Why, in words that hold for the neighbours as well."""

    def put(found: re.Match[str]) -> str:
        if found[1] == one.key:
            return " of the same partition"
        return " of the partition before" if found[1] == before else found[0]

    return _BRACKETS.sub(put, one.because) if "[" in one.because else one.because


class Page:
    """A plan, printed.

    Args:
        plan: The plan.
        orders: By asset, all of its partitions in order.
        to: Where.
        most: How many lines of a kind; ``None``: all.
    """

    def __init__(
        self, plan: BackfillPlan, *, orders: Mapping[str, Sequence[Key]], to: Console, most: int | None
    ) -> None:
        self._plan, self._orders, self._to, self._most = plan, orders, to, most

    def show(self) -> None:
        """Print all of it: what is built, what is left alone, how it runs, and the bill."""
        self._head()
        for asset in self._plan.assets:
            self._asset(asset)
        if not self._plan.is_empty:
            self._bill()
        for note in self._plan.notes:
            self._line(f"Note: {note}.")

    def show_next(self, arguments: Sequence[str], *, saved: Path | None = None) -> None:
        """Print what to do with it.

        Args:
            arguments: What names the code location to commands.
            saved: The file in which the plan is.
        """
        words = words_of(self._plan.request) if saved is None else ["--plan", str(saved)]
        self._line()
        if self._plan.is_blocked:
            words.append("--skip-blocked")
        for line in unblocking(self._plan):
            self._line(plain(line) + ".")
        if self._plan.is_empty:
            return
        self._line(f"Launch it: {shlex.join(['marigold', 'launch', *words, *arguments])}")

    def _line(self, text: str = "", style: str = "") -> None:
        self._to.print(Text(text, style=style, overflow="ignore", no_wrap=True))

    def _head(self) -> None:
        plan, request = self._plan, self._plan.request
        first, last = request.first, request.last
        span = "" if first is None and last is None else f", {first or 'the first'} to {last or 'the last'}"
        self._line(f"Plan of {plain(request.selection)}{plain(span)}", "bold")
        assets = [one for one in plan.assets if one.keys]
        blocked, stale = plan.left(Skip.BLOCKED), plan.left(Skip.STALE)
        left = plan.left(*Skip)
        parts = [f"{number:,} {what}" for number, what in ((blocked, "blocked"), (stale, "stale")) if number]
        of_them = f", {', '.join(parts)}" if parts else ""
        if assets:
            self._line(
                f"{counted(plan.size)} of {counted(len(assets), 'asset')} to build in {counted(plan.bill.runs, 'run')};"
                f" {left:,} left alone{of_them}"
            )
        elif blocked:
            others = f" ({stale:,} of them stale)" if stale else ""
            more = f", {left - blocked:,} left alone{others}" if left > blocked else ""
            self._line(f"Nothing can be built: {counted(blocked)} blocked{more}.")
        elif stale:
            self._line(f"Nothing to build, and not all is well: {counted(left)} left alone{of_them}.")
        else:
            self._line(f"Nothing to build: {counted(left)} left alone.")
        positions = ", ".join(f"{owner} {number}" for owner, number in sorted(plan.positions.items()))
        if positions:
            self._line(f"Made {moment(plan.made_at)} UTC from ledger positions: {positions}")

    def _asset(self, asset: AssetPlan) -> None:
        self._line()
        line = Text(asset.owner, style="bold", overflow="ignore", no_wrap=True)
        line.append(f": {len(asset.keys):,} to build, {len(asset.skipped):,} left alone", style="not bold")
        self._to.print(line)
        order = self._orders.get(asset.owner, ())
        self._stretches(stretches(asset.keys, order), "")
        self._stretches(stretches(asset.skipped, order), "left alone: ")
        if asset.keys:
            self._line(f"  {shape(asset, self._plan.request.order)}")
        for note in asset.notes:
            self._line(f"  Note: {note}.")

    def _stretches(self, found: Sequence[Stretch], word: str) -> None:
        most = len(found) if self._most is None else self._most
        rows = [
            (
                f"{word}{one.reason}",
                shown(one.keys[0]),
                shown(one.keys[-1]) if len(one.keys) > 1 else "",
                f"{len(one.keys):,}",
                plain(one.because),
            )
            for one in found[:most]
        ]
        for line in _aligned(rows):
            self._line(f"  {line}")
        if len(found) > most:
            left = sum(len(one.keys) for one in found[most:])
            self._line(f"  {dots(self._to)} and {counted(left)} in {len(found) - most:,} more lines; --all shows them")

    def _bill(self) -> None:
        self._line()
        self._line("Price", "bold")
        for title, text in bill_lines(self._plan):
            self._line(f"  {title + ':':<15}{text}")


def _aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    if not rows:
        return
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [text.ljust(width) for text, width in zip(row, widths, strict=True)]
        cells[_COUNT] = row[_COUNT].rjust(widths[_COUNT])
        yield _GAP.join(cells).rstrip()


def _after(owners: Sequence[str]) -> str:
    return f", after {', '.join(owners)}" if owners else ""


def shape(asset: AssetPlan, order: Order) -> str:
    """In which runs an asset is built, and in which order."""
    after = _after(asset.after)
    if asset.keys[0].key is None:
        return f"one run{after}"
    if asset.in_run_of is not None:
        behind = ", behind it" if asset.in_run_of in asset.after else ""
        others = [one for one in asset.after if one != asset.in_run_of]
        return f"in the runs of {asset.in_run_of}{behind}{_after(others)}"
    if asset.keys_per_run is None:
        size = "one run for all that are ready and follow each other"
    elif asset.keys_per_run == 1:
        size = "one run for each partition"
    else:
        size = f"runs of up to {asset.keys_per_run:,} partitions"
    if asset.is_chain:
        return f"{size}; a chain: one partition after another, oldest first{after}"
    return f"{size}; in any order, started {order.value.replace('-', ' ')}{after}"
