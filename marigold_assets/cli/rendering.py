"""The report for people: a table of stretches, and a section for everything that may be wrong."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TextIO

from rich.console import Console
from rich.text import Text

from marigold_assets.cli.columns import moment, plain, shown, tabulated
from marigold_assets.content import ContentChange
from marigold_assets.model import Acceptance, Place
from marigold_assets.planning.naming import counted
from marigold_assets.surveying.agreement import Disagreement, Key
from marigold_assets.surveying.survey import Survey, Written, consecutive, runs_of, stale_alike
from marigold_assets.uniformity import PRICE, rebuild_command
from marigold_assets.versions import Stale

MOST = 20
"""Lines of a kind that are shown unless all are wanted."""
_WIDE = 10_000  # of a file or a pipe: nothing is cut and nothing is wrapped there
_MOST_COMMANDS = 5


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Leave it to the command: rich would end the process as if something had been found."""
        raise  # noqa: PLE0704 - rich calls this where it has caught the error


def console(file: TextIO | None = None) -> Console:
    """Where a report goes: coloured on a terminal, and as it is into everything else."""
    made = _Console(file=file, highlight=False, markup=False, emoji=False, soft_wrap=True)
    if not made.is_terminal:
        made.width = _WIDE
    return made


def dots(to: Console) -> str:
    """What stands for more of the same, in letters that the output can carry."""
    return "…" if to.encoding.startswith("utf") else "..."


def shown_range(keys: Sequence[Key]) -> str:
    """Partitions that follow each other."""
    if len(keys) == 1:
        return shown(keys[0])
    return f"{shown(keys[0])} to {shown(keys[-1])} ({counted(len(keys))})"


def words(one: Acceptance) -> str:
    """By whom, why and until when something is accepted."""
    until = "" if one.until is None else f", until {moment(one.until)} UTC"
    return f"by {plain(one.accepted_by)}{until}: {plain(one.reason)}"


def rebuild(report: Survey, keys: Sequence[Key]) -> str:
    """The command that builds some partitions again."""
    built_anyway = {key for one in report.code_stale if one.counts for key in one.keys}
    built_anyway |= {one.partition_key for one in report.stale}
    evidence = report.evidence
    return rebuild_command(evidence.owner, keys, restate=not built_anyway.issuperset(keys), arguments=evidence.options)


def render(report: Survey, *, to: Console, most: int | None = MOST) -> None:
    """Print a report.

    Args:
        report: The report.
        to: Where.
        most: How many lines of a kind; ``None``: all.
    """
    _Page(report, to, most).show()


def render_acceptances(
    owner: str, recorded: Sequence[Acceptance], keys: Sequence[Key], *, to: Console, withdrawn: bool
) -> None:
    """Print what was accepted, or withdrawn.

    Args:
        owner: The asset.
        recorded: What was recorded, all by one word.
        keys: The partitions of the asset, in order.
        to: Where.
        withdrawn: Whether they are accepted no longer.
    """
    if not recorded:
        to.print(Text(f"Nothing to accept: no partition of {owner} is odd."))
        return
    verb = "Accepted no longer" if withdrawn else "Accepted"
    to.print(Text(f"{verb}: {counted(len(recorded))} of {owner}", overflow="ignore", no_wrap=True))
    definition = {one.partition_key: one.definition for one in recorded}
    for run in consecutive(definition, keys):
        for part in runs_of(run, definition.__getitem__):
            to.print(Text(f"  {shown_range(part)}: {plain(str(definition[part[0]]))}", overflow="ignore", no_wrap=True))
    first = recorded[0]
    to.print(Text(f"By {plain(first.accepted_by)}, for: {plain(first.reason)}", overflow="ignore", no_wrap=True))
    if first.until is not None and not withdrawn:
        to.print(
            Text(
                f"Until {moment(first.until)} UTC; from then on they are accepted no longer.",
                overflow="ignore",
                no_wrap=True,
            )
        )


class _Page:
    def __init__(self, report: Survey, to: Console, most: int | None) -> None:
        self._report, self._evidence, self._to, self._most = report, report.evidence, to, most

    def show(self) -> None:
        self._head()
        self._table("Built under", self._report.written)
        if self._report.retired:
            self._table("No longer partitions of the asset", self._report.retired)
        self._rows()
        self._mixture()
        self._code()
        self._inputs()
        self._events()
        for note in self._evidence.notes:
            self._line(f"Note: {note}.")

    def _line(self, text: str = "", style: str = "") -> None:
        self._to.print(Text(text, style=style, overflow="ignore", no_wrap=True))

    def _section(self, title: str, verdict: str, *, is_well: bool) -> None:
        self._line()
        line = Text(f"{title}: ", style="bold", overflow="ignore", no_wrap=True)
        line.append(verdict, style="not bold" if is_well else "not bold yellow")
        self._to.print(line)

    def _lines(self, lines: Sequence[str]) -> None:
        """So many lines, and how many there are more."""
        most = len(lines) if self._most is None else self._most
        for line in lines[:most]:
            self._line(f"  {line}")
        if len(lines) > most:
            self._line(f"  {dots(self._to)} and {len(lines) - most:,} more; --all shows them")

    def _head(self) -> None:
        present = self._evidence.present
        self._line(f"{self._evidence.owner} (table {self._evidence.table})", "bold")
        version = "not declared" if present.version is None else present.version
        self._line(f"Code version now: {plain(version)}" + (f", {present.fingerprint}" if present.fingerprint else ""))
        missing = len(self._evidence.keys) - self._report.built
        self._line(
            f"{counted(len(self._evidence.keys))}: {self._report.built:,} built, {missing:,} not built;"
            f" {counted(self._report.row_count, 'row')}"
        )

    def _table(self, title: str, stretches: Sequence[Written]) -> None:
        if not stretches:
            return
        self._line()
        most = len(stretches) if self._most is None else self._most
        width = self._to.width if self._to.is_terminal else None
        titles, *lines = tabulated(title, stretches[:most], width, dots=dots(self._to))
        self._line(titles, "bold")
        for one, line in zip(stretches, lines, strict=False):
            self._line(line)
            if one.accepted is not None:
                self._line(f"  accepted {words(one.accepted)}")
        if len(stretches) > most:
            self._line(f"{dots(self._to)} and {len(stretches) - most:,} more; --all shows them")

    def _rows(self) -> None:
        """How many rows the table really has, where that is not what the ledger says."""
        found = self._report.table
        if found.agrees:
            return
        if found.stored is None:
            self._section("Table", "does not exist, although the ledger has rows in it: it was dropped", is_well=False)
            self._line("  Remedy: restore it, or materialize its partitions again without early_cutoff")
            return
        span = f"{found.least:,}" if found.least == found.most else f"{found.least:,} to {found.most:,}"
        verdict = f"holds {counted(found.stored, 'row')}, and the ledger has {span}: another tool has changed it"
        self._section("Table", verdict, is_well=False)
        self._line("  Remedy: correct what was changed, or materialize the partitions again without early_cutoff")

    def _mixture(self) -> None:
        found = self._report.mixture
        if not found.definitions:
            self._section("Definitions", "nothing is built", is_well=True)
            return
        odd = sum(len(one.keys) for one in found.odd)
        accepted = sum(len(one.keys) for one in found.accepted)
        verb = "is" if accepted == 1 else "are"
        by_word = f"{counted(accepted)} under others, which {verb} accepted"
        also = f"; {by_word}" if accepted else ""
        wanted = "unknown" if found.wanted is None else plain(str(found.wanted))
        if not odd:
            verdict = f"{by_word}; all the rest under {wanted}" if accepted else f"all under {wanted}"
            self._section("Definitions", verdict, is_well=True)
        else:
            verdict = f"{counted(odd)} under others than {wanted}, in {found.difference}{also}"
            if found.wanted is None:
                verdict = f"{counted(odd)} built by code that nobody has recorded{also}"
            self._section("Definitions", verdict, is_well=False)
            self._lines([f"{shown_range(one.keys)}: {plain(str(one.definition))}" for one in found.odd])
            self._remedies([one.keys for one in found.odd], accepting=["--all-odd"])
        self._lines([_content(one) for one in found.content])
        self._lines([f"not as marigold/column_versions declares: {_content(one)}" for one in found.contradicted])

    def _remedies(self, runs: Sequence[Sequence[Key]], *, accepting: Sequence[str] = (), after: str = "") -> None:
        """The commands that rebuild what is wrong; and how that is accepted, if it may be."""
        own = set(self._evidence.keys)
        commands = [rebuild(self._report, run) for run in runs if set(run) <= own]
        if not commands:
            return
        accept = ["marigold", "versions", "accept", *self._evidence.options, self._evidence.owner, *accepting]
        other = f"; or accept them: {shlex.join(accept)} --reason ..." if accepting else ""
        if len(commands) == 1:
            self._line(f"  Remedy: {after}{commands[0]} ({PRICE}){other}")
            return
        most = len(commands) if self._most is None else _MOST_COMMANDS
        self._line(f"  Remedy: {after}build them again ({PRICE}){other}")
        for command in commands[:most]:
            self._line(f"    {command}")
        if len(commands) > most:
            self._line(f"    {dots(self._to)} and so on for {len(commands) - most:,} more; --all shows them")

    def _code(self) -> None:
        found, built = self._report.code_stale, self._report.built
        count = sum(len(one.keys) for one in found)
        wrong, unjudged = [one for one in found if one.counts], self._report.code_unjudged
        verdict = f"{counted(count)} not built by the present code version"
        if not count:
            known = built if self._evidence.present.version else built - len(self._report.code_unknown)
            verdict = f"the present code version has built all {known:,} that are built"
            if not known:
                verdict = "nobody knows which code has built them" if built else "nothing is built"
            elif unjudged:
                verdict = f"{counted(len(unjudged))} cannot be judged; the present code has built the others"
        elif not wrong:
            verdict += ", which is accepted or declared to be the same"
        self._section("Code", verdict, is_well=not wrong and not unjudged)
        odd = {key for one in self._report.mixture.odd for key in one.keys}
        is_told = bool(wrong) and {key for one in found for key in one.keys} <= odd
        if is_told:
            self._line("  the same that Definitions names, with the remedy")
        else:
            self._lines(
                [
                    f"{shown_range(one.keys)}: {plain(str(one.before))} -> {plain(str(one.after))}"
                    + (" (accepted)" if one.accepted else "")
                    for one in found
                ]
            )
            due = [key for one in wrong for key in one.keys if key not in odd]
            self._remedies(consecutive(due, self._evidence.keys))
        for keys, what in (
            (self._report.other_code, "under this version, but by code that was not the same"),
            (self._report.code_unknown, "by code that nobody has recorded, or another release in another way"),
        ):
            if keys:
                self._line(f"  {counted(len(keys))} {what}:")
                self._lines([f"  {shown_range(run)}" for run in consecutive(keys, self._evidence.keys)])
        runs = consecutive([key for key in unjudged if key not in odd], self._evidence.keys)
        self._remedies(runs, accepting=_accepting(runs))

    def _inputs(self) -> None:
        stale, unjudged = self._report.stale, self._report.unjudged
        verdict = f"{counted(len(stale))} built from what has changed since" if stale else "none has changed since"
        if unjudged:
            verdict = f"{verdict if stale else 'not judged'}; nothing is known any more of {', '.join(unjudged)}"
        elif self._evidence.unknown and not stale:
            verdict = "none of those known has changed since"
        if not self._evidence.related or not self._report.built:
            verdict = "nothing is built"
        elif len(self._report.unrecorded) == self._report.built:
            verdict = "not recorded: nothing can be said of them"
        self._section("Inputs", verdict, is_well=not stale and not unjudged)
        self._lines(list(_stale_lines(stale, self._evidence.keys)))
        above = {one.because[0] for one in stale if one.depth > 1} - {self._evidence.owner}
        runs = consecutive([one.partition_key for one in stale], self._evidence.keys)
        self._remedies(runs, after="".join(f"after what is stale of {name}: " for name in sorted(above)))
        if self._report.unrecorded:
            self._line(f"  {counted(len(self._report.unrecorded))} whose inputs are not recorded:")
            self._lines([f"  {shown_range(run)}" for run in consecutive(self._report.unrecorded, self._evidence.keys)])
        self._lines([f"nothing is known of {owner}: {why}" for owner, why in self._evidence.unknown.items()])

    def _events(self) -> None:
        found = self._report.disagreement
        if found is None:
            self._section("Event log", f"not compared: {self._evidence.no_events}", is_well=True)
            return
        verdict = "does not agree with the ledger" if found.counts else "agrees with the ledger"
        self._section("Event log", verdict, is_well=not found.counts)
        if self._evidence.home is not None and found.counts:
            self._line(f"  compared with that of the instance in {plain(self._evidence.home)} (DAGSTER_HOME)")
        if found.is_everywhere:
            self._line("  Nothing agrees: is that the instance, and the database, that these definitions run in?")
        for keys, what, remedy in _disagreements(found):
            if keys:
                self._line(f"  {counted(len(keys))}: {what}")
                self._lines([f"  {shown_range(run)}" for run in consecutive(keys, self._evidence.keys)])
                if remedy:
                    self._line(f"    Remedy: {remedy}")


def _accepting(runs: Sequence[Sequence[Key]]) -> list[str]:
    """What names partitions that are not odd to ``accept``, which a whole table cannot be."""
    named = [run for run in runs if run[0] is not None]
    if len(named) > _MOST_COMMANDS:
        return ["--range", "FIRST...LAST"]
    return [word for run in named for word in ("--range", f"{run[0]}...{run[-1]}")]


def _content(one: ContentChange) -> str:
    names = [f"{plain(name)} ({count:,})" for name, count in sorted(one.columns.items())]
    if one.moved:
        names.append(f"which values stand in one row together ({one.moved:,})")
    if one.row_counts:
        names.append(f"the number of rows ({one.row_counts:,})")
    what = f"other content in {', '.join(names)}" if names else "the same content"
    return f"{one.before} -> {one.after}: {counted(one.partitions)} rebuilt from the same inputs had {what}"


def _stale_lines(stale: Sequence[Stale], keys: Sequence[Key]) -> Iterator[str]:
    by_key = {one.partition_key: one for one in stale}
    for run in consecutive(by_key, keys):
        for _, found in groupby(run, key=lambda key: stale_alike(by_key[key])):
            part = tuple(found)
            yield f"{shown_range(part)}: {_because([by_key[key] for key in part])}"


def _because(stale: Sequence[Stale]) -> str:
    first, last = stale[0], stale[-1]
    many = len({one.origin for one in stale}) > 1
    origin = f"{first.origin[0]} of the same partition" if many else _place(first.origin)
    if first.depth == 1:
        return f"{origin} was restated"
    depths = sorted({one.depth for one in stale})
    steps = f"{depths[0]}" if len(depths) == 1 else f"{depths[0]} to {depths[-1]}"
    through = "" if first.because[0] == last.origin[0] else f"through {first.because[0]}, "
    return f"{through}{origin} was restated, {steps} steps away"


def _place(place: Place) -> str:
    return place[0] if place[1] is None else f"{place[0]} {shown(place[1])}"


def _disagreements(found: Disagreement) -> Iterator[tuple[tuple[Key, ...], str, str]]:
    what = "the ledger has them and the event log has no event: events were wiped, or lost when a run died"
    remedy = (
        "the rows are there; materialize them again with early_cutoff 'on', which writes the events and computes"
        " nothing where code and inputs are what they were"
    )
    yield found.event_missing, what, remedy
    what = (
        "the event log has them and the ledger does not: the database was restored or replaced, another one is"
        " configured, or another tool has made them"
    )
    remedy = "check which database is configured; if it is the right one, materialize them again"
    yield found.ledger_missing, what, remedy
    what = (
        "the newest event tells of other content than the ledger: the database was restored from an older copy, or a"
        " run died before it wrote its event"
    )
    yield found.differing, what, "materialize them again"
    what = (
        "the newest event tells of the same content, but of another swap than the ledger, perhaps under another"
        " version: a run died before it wrote its event, or the database was restored"
    )
    yield found.other_swap, what, "materialize them again"
    yield found.unknown, "the newest event has no data version of one partition alone: nothing can be said", ""
