"""Whether a table carries one definition or a mixture: which partitions are odd, and in which columns; pure.

Definitions are compared as their author declares them. That one code version differs from another in some columns only
may be declared; partitions may be accepted as they are.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import pairwise

from marigold_assets.fingerprint import Comparison, compare
from marigold_assets.lineage import Code
from marigold_assets.model import Acceptance, Definition, InputPartition, LedgerEntry
from marigold_assets.versions import Stretch, definitions, stretches


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnChange:
    """What an author declares of a code version.

    Attributes:
        since: The code version that it is compared with.
        columns: The only columns that it makes otherwise.
    """

    since: str
    columns: frozenset[str]


Changes = Mapping[str, ColumnChange]
"""By code version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """In which columns two definitions differ.

    Attributes:
        columns: The columns; ``None`` where nobody says, so that all of them may.
    """

    columns: frozenset[str] | None

    def touches(self, columns: Collection[str] | None) -> bool:
        """Whether it is one for whoever uses some columns; ``None``: all."""
        if self.columns is None or columns is None:
            return self.columns is None or bool(self.columns)
        return not self.columns.isdisjoint(columns)

    def __str__(self) -> str:
        return "all columns" if self.columns is None else ", ".join(sorted(self.columns)) or "no column"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixture:
    """How far partitions were built under one definition.

    Attributes:
        wanted: The definition that all of them should have; ``None`` if there are none.
        definitions: All that they have, that of most partitions first.
        odd: Those under others, in stretches.
        accepted: Those under others that somebody accepts, in stretches.
        acceptances: By which that is, without repetitions.
        difference: In which columns the odd ones differ.
    """

    wanted: Definition | None
    definitions: tuple[Definition, ...] = ()
    odd: tuple[Stretch, ...] = ()
    accepted: tuple[Stretch, ...] = ()
    acceptances: tuple[Acceptance, ...] = ()
    difference: Difference = field(default_factory=lambda: Difference(columns=frozenset()))


def mixture(
    keys: Sequence[str | None],
    heads: Mapping[str | None, LedgerEntry],
    *,
    present: Code | None,
    now: datetime,
    acceptances: Iterable[Acceptance] = (),
    changes: Changes | None = None,
    content: Sequence[ContentChange] = (),
    columns: Collection[str] | None = None,
) -> Mixture:
    """Which partitions are odd.

    Args:
        keys: The partitions in the order of their definition; those that were never built are left out.
        heads: Their newest ledger entries.
        present: The present code, if it is known: if it has built any, its definition is the one wanted, and otherwise
            that of most partitions.
        now: When (aware): what was accepted may have ended.
        acceptances: What was accepted, in the order in which it was recorded.
        changes: What is declared of code versions.
        content: What really changed: a column that did so counts, whatever is declared.
        columns: The columns that count; ``None``: all.
    """
    built = {key: heads[key] for key in keys if key in heads}
    found = definitions(built)
    of_present = (one for one in found if present is not None and present.is_of(one))
    wanted = next(of_present, next(iter(found), None))
    if wanted is None:
        return Mixture(wanted=None)
    others = {one: _in_fact(one, wanted, changes or {}, content) for one in found if one != wanted}
    differing = {one: how for one, how in others.items() if how.touches(columns)}
    standing = _standing(acceptances, now)
    odd: list[Stretch] = []
    accepted: list[Stretch] = []
    used: dict[Acceptance, None] = {}
    for stretch in stretches(list(built), built):
        if stretch.definition not in differing:
            continue
        by = [standing.get((key, stretch.definition)) for key in stretch.keys]
        used |= dict.fromkeys(one for one in by if one is not None)
        odd += _part(stretch, by, built, accepted=False)
        accepted += _part(stretch, by, built, accepted=True)
    return Mixture(
        wanted=wanted,
        definitions=found,
        odd=tuple(odd),
        accepted=tuple(accepted),
        acceptances=_told_apart(used),
        difference=_together(differing[one.definition] for one in odd if one.definition is not None),
    )


def _in_fact(one: Definition, wanted: Definition, changes: Changes, content: Iterable[ContentChange]) -> Difference:
    """In which columns two definitions differ, by what is declared and by what was seen to change."""
    declared = difference(one, wanted, changes)
    if declared.columns is None:
        return declared
    seen = [set(change.columns) for change in content if {change.before, change.after} == {one, wanted}]
    return Difference(columns=declared.columns.union(*seen))


def _standing(acceptances: Iterable[Acceptance], now: datetime) -> dict[tuple[str | None, Definition], Acceptance]:
    newest = {(one.partition_key, one.definition): one for one in acceptances}
    return {place: one for place, one in newest.items() if one.holds(now)}


def _part(
    stretch: Stretch, by: Sequence[Acceptance | None], heads: Mapping[str | None, LedgerEntry], *, accepted: bool
) -> list[Stretch]:
    """The stretches of those that are accepted, or of the others."""
    edges = [0, *(n for n, (a, b) in enumerate(pairwise(by), 1) if (a is None) != (b is None)), len(by)]
    runs = [(start, end) for start, end in pairwise(edges) if start < end and (by[start] is not None) is accepted]
    return [one for start, end in runs for one in stretches(stretch.keys[start:end], heads)]


def _told_apart(acceptances: Iterable[Acceptance]) -> tuple[Acceptance, ...]:
    found: dict[tuple[object, ...], Acceptance] = {}
    for one in acceptances:
        found.setdefault((one.accepted_by, one.accepted_at, one.reason, one.until), one)
    return tuple(found.values())


def _together(differences: Iterable[Difference]) -> Difference:
    columns: frozenset[str] = frozenset()
    for one in differences:
        if one.columns is None:
            return one
        columns |= one.columns
    return Difference(columns=columns)


def difference(left: Definition, right: Definition, changes: Changes) -> Difference:
    """In which columns two definitions differ, by what is declared.

    Args:
        left: One.
        right: The other.
        changes: What is declared of code versions.
    """
    if left == right:
        return Difference(columns=frozenset())
    if left.config_hash != right.config_hash or left.code_version is None or right.code_version is None:
        return Difference(columns=None)
    ours, theirs = _ancestry(left.code_version, changes), _ancestry(right.code_version, changes)
    shared = [version for version in ours if version in theirs]
    if not shared:
        return Difference(columns=None)
    return Difference(columns=ours[shared[0]] | theirs[shared[0]])


def _ancestry(version: str, changes: Changes) -> dict[str, frozenset[str]]:
    """A version and those that it is declared to come from, each with the columns that differ since, the newest first.

    What is declared in a circle ends where it would begin anew.
    """
    found: dict[str, frozenset[str]] = {version: frozenset()}
    columns: frozenset[str] = frozenset()
    while (change := changes.get(version)) is not None and change.since not in found:
        columns |= change.columns
        version = change.since
        found[version] = columns
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class ContentChange:
    """What became of partitions that were built under one definition and then, from the same inputs, under another.

    Attributes:
        before: The older definition.
        after: The newer one.
        partitions: How many partitions that were.
        columns: Per column that has not the same content, how many partitions differ in it.
        moved: How many partitions differ only in which values stand in one row together.
    """

    before: Definition
    after: Definition
    partitions: int
    columns: Mapping[str, int]
    moved: int


def content_changes(entries: Iterable[LedgerEntry]) -> tuple[ContentChange, ...]:
    """Which columns really changed from one definition to the next, by the content hashes of each column.

    Partitions whose inputs were others, or are not known, say nothing about the code and are left out.

    Args:
        entries: Ledger entries of one table in the order of the ledger.
    """
    newest: dict[str | None, LedgerEntry] = {}
    compared: dict[tuple[Definition, Definition], list[tuple[LedgerEntry, LedgerEntry]]] = defaultdict(list)
    for entry in entries:
        before = newest.get(entry.partition_key)
        newest[entry.partition_key] = entry
        if before is None or not _from_the_same(before, entry):
            continue
        pair = Definition.of(before), Definition.of(entry)
        if pair[0] != pair[1] and compare(before.content_hash, entry.content_hash) is not Comparison.UNKNOWN:
            compared[pair].append((before, entry))
    return tuple(_content_change(pair, found) for pair, found in compared.items())


def contradictions(found: Iterable[ContentChange], changes: Changes) -> tuple[ContentChange, ...]:
    """What really changed although it is declared that it does not.

    Args:
        found: What really changed.
        changes: What is declared of code versions.

    Returns:
        The same, with no other columns than those.
    """
    told = []
    for one in found:
        declared = difference(one.before, one.after, changes).columns
        if declared is None:
            continue
        columns = {name: count for name, count in one.columns.items() if name not in declared}
        if columns or (one.moved and not declared):
            told.append(replace(one, columns=columns))
    return tuple(told)


def _content_change(
    pair: tuple[Definition, Definition], found: Sequence[tuple[LedgerEntry, LedgerEntry]]
) -> ContentChange:
    columns: Counter[str] = Counter()
    moved = 0
    for before, after in found:
        names = [*after.column_hashes, *(name for name in before.column_hashes if name not in after.column_hashes)]
        differing = [name for name in names if before.column_hashes.get(name) != after.column_hashes.get(name)]
        columns.update(differing)
        moved += not differing and compare(before.content_hash, after.content_hash) is Comparison.DIFFERENT
    return ContentChange(before=pair[0], after=pair[1], partitions=len(found), columns=dict(columns), moved=moved)


def _from_the_same(before: LedgerEntry, after: LedgerEntry) -> bool:
    """Whether both were computed from the same: what cannot be known of assets that name no inputs, is said of them."""
    ours, theirs = _contents(before.provenance.inputs), _contents(after.provenance.inputs)
    return ours == theirs and None not in ours.values()


def _contents(inputs: Iterable[InputPartition]) -> dict[tuple[str, str | None], str | None]:
    return {(one.owner, one.partition_key): one.content_hash for one in inputs}
