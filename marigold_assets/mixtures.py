"""Whether a table carries one definition or a mixture: which partitions are odd, and in which columns; pure.

Definitions are told apart as their author declares them, as long as the ledger bears that out: where partitions that
were computed again from the same inputs hold something else, although the code version is the same or declares not to
change these columns, the declaration does not count. Partitions may be accepted as they are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import pairwise

from marigold_assets.content import ContentChange, content_changes
from marigold_assets.lineage import Code
from marigold_assets.model import Acceptance, Definition, LedgerEntry, fold
from marigold_assets.versions import DefinitionOf, Stretch, definitions, stretches


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
        return not set(map(fold, self.columns)).isdisjoint(map(fold, columns))

    def __str__(self) -> str:
        return "all columns" if self.columns is None else ", ".join(sorted(self.columns)) or "no column"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixture:
    """How far partitions were built under one definition.

    Attributes:
        wanted: The definition that all of them should have; ``None`` if there is none, or nobody knows it.
        definitions: All that they have, that of the newest entry first.
        odd: Those under others, and those of which nobody knows, in stretches.
        accepted: Those of them that somebody accepts, in stretches.
        acceptances: By which that is, without repetitions.
        difference: In which columns the odd ones differ.
        content: What really changed from definition to definition.
        contradicted: What of that is declared not to, as far as it concerns definitions that partitions have.
        changes: What is declared of code versions, as far as the ledger bears it out.
        silent: Versions, each with a config, under which code that was not the same has made other content.
    """

    wanted: Definition | None
    definitions: tuple[Definition, ...] = ()
    odd: tuple[Stretch, ...] = ()
    accepted: tuple[Stretch, ...] = ()
    acceptances: tuple[Acceptance, ...] = ()
    difference: Difference = field(default_factory=lambda: Difference(columns=frozenset()))
    content: tuple[ContentChange, ...] = ()
    contradicted: tuple[ContentChange, ...] = ()
    changes: Changes = field(default_factory=dict)
    silent: frozenset[Definition] = frozenset()

    def definition_of(self, entry: LedgerEntry) -> Definition:
        """Under which definition a partition was built."""
        return _definition_of(entry, self.silent)


def needs_history(heads: Mapping[str | None, LedgerEntry], changes: Changes) -> bool:
    """Whether older entries of the ledger have a say: where something is declared that they may not bear out.

    Args:
        heads: The newest entries of the partitions that count.
        changes: What is declared of code versions.
    """
    declared = {Definition.of(entry) for entry in heads.values()}
    return len({Definition.exactly(entry) for entry in heads.values()}) > len(declared) or (
        bool(changes) and len(declared) > 1
    )


def mixture(
    keys: Sequence[str | None],
    heads: Mapping[str | None, LedgerEntry],
    *,
    present: Code | None,
    now: datetime,
    acceptances: Iterable[Acceptance] = (),
    changes: Changes | None = None,
    history: Iterable[LedgerEntry] = (),
    impure: Collection[str] = (),
    columns: Collection[str] | None = None,
) -> Mixture:
    """Which partitions are odd.

    Args:
        keys: The partitions in the order of their definition; those that were never built are left out.
        heads: Their newest ledger entries.
        present: The present code, if it is known: if it has built any, its definition is the one wanted, and otherwise
            that of the newest entry.
        now: When (aware): what was accepted may have ended.
        acceptances: What was accepted, in the order in which it was recorded.
        changes: What is declared of code versions.
        history: The ledger of the table in order, where it has a say (see :func:`needs_history`).
        impure: Columns that are admitted to differ whenever they are computed.
        columns: The columns that count; ``None``: all.
    """
    built = {key: heads[key] for key in keys if key in heads}
    seen = content_changes(history, ignored=impure)
    silent = frozenset(
        replace(one.before, code_fingerprint=None) for one in seen if one.is_silent and (one.columns or one.moved)
    )

    def definition_of(entry: LedgerEntry) -> Definition:
        return _definition_of(entry, silent)

    content = tuple(_as_declared(seen, silent))
    effective = _borne_out(changes or {}, content)
    found = definitions(built, definition_of)
    known = [one for one in found if not one.is_unknown]
    wanted = next((one for one in known if present is not None and present.is_of(one)), next(iter(known), None))
    differing = {one: how for one in found if one != wanted and (how := _how(one, wanted, effective)).touches(columns)}
    standing = _standing(acceptances, now)
    odd: list[Stretch] = []
    accepted: list[Stretch] = []
    used: dict[Acceptance, None] = {}
    for stretch in stretches(list(built), built, definition_of):
        if stretch.definition not in differing:
            continue
        by = [_accepted(standing.get((key, stretch.definition)), built[key]) for key in stretch.keys]
        used |= dict.fromkeys(one for one in by if one is not None)
        odd += _part(stretch, by, built, definition_of, accepted=False)
        accepted += _part(stretch, by, built, definition_of, accepted=True)
    return Mixture(
        wanted=wanted,
        definitions=found,
        odd=tuple(odd),
        accepted=tuple(accepted),
        acceptances=_told_apart(used),
        difference=_together(differing[one.definition] for one in odd if one.definition is not None),
        content=content,
        contradicted=_that_count(contradictions(content, changes or {}), found, wanted, changes or {}),
        changes=effective,
        silent=silent,
    )


def _definition_of(entry: LedgerEntry, silent: Collection[Definition]) -> Definition:
    declared = Definition.of(entry)
    return Definition.exactly(entry) if declared in silent else declared


def _as_declared(seen: Iterable[ContentChange], silent: Collection[Definition]) -> Iterable[ContentChange]:
    """The same, between definitions as they are told apart; what is one definition has not changed."""
    for one in seen:
        pair = [_declared(definition, silent) for definition in (one.before, one.after)]
        if pair[0] != pair[1]:
            yield replace(one, before=pair[0], after=pair[1])


def _declared(exact: Definition, silent: Collection[Definition]) -> Definition:
    if exact.code_version is None:
        return exact
    declared = replace(exact, code_fingerprint=None)
    return exact if declared in silent else declared


def _how(one: Definition, wanted: Definition | None, changes: Changes) -> Difference:
    return Difference(columns=None) if wanted is None or one.is_unknown else difference(one, wanted, changes)


def _accepted(one: Acceptance | None, entry: LedgerEntry) -> Acceptance | None:
    return one if one is not None and one.covers(entry) else None


def _that_count(
    told: Iterable[ContentChange], found: Iterable[Definition], wanted: Definition | None, changes: Changes
) -> tuple[ContentChange, ...]:
    """Contradictions on the way between definitions that partitions still have."""
    ends = [one.code_version for one in found if one.code_version is not None]
    aim = None if wanted is None else wanted.code_version
    on_the_way = {version for one in ends if aim is not None for version in _path(one, aim, changes) or ()}
    return tuple(
        one
        for one in told
        if on_the_way.intersection(_path(str(one.before.code_version), str(one.after.code_version), changes) or ())
    )


def _standing(acceptances: Iterable[Acceptance], now: datetime) -> dict[tuple[str | None, Definition], Acceptance]:
    newest = {(one.partition_key, one.definition): one for one in acceptances}
    return {place: one for place, one in newest.items() if one.holds(now)}


def _part(
    stretch: Stretch,
    by: Sequence[Acceptance | None],
    heads: Mapping[str | None, LedgerEntry],
    definition_of: DefinitionOf,
    *,
    accepted: bool,
) -> list[Stretch]:
    """The stretches of those that are accepted, or of the others."""
    edges = [0, *(n for n, (a, b) in enumerate(pairwise(by), 1) if (a is None) != (b is None)), len(by)]
    runs = [(start, end) for start, end in pairwise(edges) if start < end and (by[start] is not None) is accepted]
    return [one for start, end in runs for one in stretches(stretch.keys[start:end], heads, definition_of)]


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
    if left.code_version == right.code_version:  # and other code, which nobody has declared
        return Difference(columns=None)
    path = _path(left.code_version, right.code_version, changes)
    return Difference(columns=None if path is None else frozenset().union(*(changes[one].columns for one in path)))


def _path(left: str, right: str, changes: Changes) -> list[str] | None:
    """The versions whose declared changes lie between two; ``None`` if they have no declared ancestor in common."""
    ours, theirs = _ancestry(left, changes), _ancestry(right, changes)
    shared = next((version for version in ours if version in theirs), None)
    if shared is None:
        return None
    return [*ours[: ours.index(shared)], *theirs[: theirs.index(shared)]]


def _ancestry(version: str, changes: Changes) -> list[str]:
    """A version and those that it is declared to come from, the newest first.

    What is declared in a circle ends where it would begin anew.
    """
    found = [version]
    while (change := changes.get(found[-1])) is not None and change.since not in found:
        found.append(change.since)
    return found


def _borne_out(changes: Changes, content: Iterable[ContentChange]) -> Changes:
    """What is declared, as far as the ledger bears it out.

    Where something else really changed between two versions, each version on the way may have changed it; where only
    the rows are put together otherwise, nobody can say which columns that concerns.
    """
    found = dict(changes)
    for one in contradictions(content, changes):
        for version in _path(str(one.before.code_version), str(one.after.code_version), changes) or ():
            if one.columns and version in found:
                found[version] = replace(found[version], columns=found[version].columns | one.columns.keys())
            else:
                found.pop(version, None)
    return found


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
        known = set(map(fold, declared))
        columns = {name: count for name, count in one.columns.items() if fold(name) not in known}
        if columns or one.moved:
            told.append(replace(one, columns=columns))
    return tuple(told)
