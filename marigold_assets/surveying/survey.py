"""What is to be said of the versions of an asset's partitions: a pure report over its ledger and its event log."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import groupby

from marigold_assets import mixtures, versions
from marigold_assets.lineage import Code
from marigold_assets.mixtures import Mixture
from marigold_assets.model import Acceptance, Definition, LedgerEntry, Place
from marigold_assets.surveying.agreement import Disagreement, Events, Key, TableRows, disagreement, table_rows
from marigold_assets.surveying.evidence import Evidence
from marigold_assets.versions import DefinitionOf, Stale


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """Partitions that follow each other, were built under one definition and are accepted by one word, or by none.

    Attributes:
        definition: The definition; ``None`` of partitions that were never built.
        keys: The partitions, in order.
        row_count: Their rows together.
        first_write: When the first of them was written (aware, UTC).
        last_write: When the last of them was.
        run_ids: Who wrote them, in order.
        backfill_ids: The backfills that these runs belong to, in order.
        accepted: By what they are accepted as they are.
    """

    definition: Definition | None
    keys: tuple[Key, ...]
    row_count: int
    first_write: datetime | None
    last_write: datetime | None
    run_ids: tuple[str, ...]
    backfill_ids: tuple[str, ...]
    accepted: Acceptance | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeStale:
    """Partitions that follow each other and that code of the present version has not built.

    Attributes:
        keys: The partitions, in order.
        before: What has built them.
        after: What would build them now.
        accepted: Whether they are accepted as they are.
        columns: The columns in which they differ, as declared; ``None``: all may.
    """

    keys: tuple[Key, ...]
    before: Definition
    after: Definition
    accepted: bool
    columns: frozenset[str] | None

    @property
    def counts(self) -> bool:
        """Whether something is wrong with them."""
        return not self.accepted and (self.columns is None or bool(self.columns))


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """The report.

    Attributes:
        evidence: What it is about.
        now: When it was made (aware, UTC).
        written: The partitions that the asset has, in stretches.
        retired: Partitions of the ledger that the asset does not have any more, in stretches.
        code_stale: What the present code version has not built.
        other_code: Partitions of the present code version whose code was another, as far as that is recorded.
        code_unknown: Partitions of which nobody knows which code has built them.
        code_unjudged: Those of them that count: no code version is declared, and nobody accepts them.
        stale: What was built from inputs that have changed since.
        unrecorded: Partitions of an asset that reads others whose ledger entries name no inputs.
        disagreement: Where event log and ledger differ; ``None``: not compared.
        mixture: Which partitions are odd.
        table: How many rows the table has, and should have.
        unjudged: Owners of inputs whose content was recorded when they were read, and of which nothing is known now.
    """

    evidence: Evidence
    now: datetime
    written: tuple[Written, ...]
    retired: tuple[Written, ...]
    code_stale: tuple[CodeStale, ...]
    other_code: tuple[Key, ...]
    code_unknown: tuple[Key, ...]
    code_unjudged: tuple[Key, ...]
    stale: tuple[Stale, ...]
    unrecorded: tuple[Key, ...]
    disagreement: Disagreement | None
    mixture: Mixture
    table: TableRows
    unjudged: tuple[str, ...]

    @property
    def built(self) -> int:
        """How many of the asset's partitions were built."""
        return sum(len(one.keys) for one in self.written if one.definition is not None)

    @property
    def row_count(self) -> int:
        """Their rows."""
        return sum(one.row_count for one in self.written)

    @property
    def is_well(self) -> bool:
        """Whether nothing is odd, stale, in disagreement or beyond judgement, but for what is accepted."""
        mixture, code_stale = self.mixture, [one for one in self.code_stale if one.counts]
        wrong = [mixture.odd, mixture.contradicted, code_stale, self.code_unjudged, self.stale, self.unjudged]
        agrees = self.table.agrees and not (self.disagreement is not None and self.disagreement.counts)
        return agrees and not any(wrong)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What is wrong with the partitions of an asset that are built, by its ledger alone.

    Attributes:
        built: Those partitions, in order.
        mixture: Which of them are odd.
        accepted: By what some are accepted as they are.
        code_stale: What the present code version has not built.
        code_unknown: Those of which nobody knows which code has built them.
        stale: What was built from inputs that have changed since.
        other_code: Partitions of the present code version whose code was another, as far as that is recorded.
    """

    built: tuple[Key, ...]
    mixture: Mixture
    accepted: Mapping[Key, Acceptance]
    code_stale: tuple[CodeStale, ...]
    code_unknown: tuple[Key, ...]
    stale: tuple[Stale, ...]
    other_code: tuple[Key, ...]


def judge(evidence: Evidence, *, now: datetime) -> Judgement:
    """Judge the partitions of an asset that are built: reports and plans say the same of them.

    Args:
        evidence: What is known of the asset.
        now: When (aware, UTC).
    """
    heads, present = evidence.heads, evidence.present
    built = tuple(key for key in evidence.keys if key in heads)
    mixture = mixture_of(evidence, now)
    standing = accepted_by(evidence.acceptances, heads, now, mixture.definition_of)
    verdicts = {key: present.has_built(heads[key]) for key in built}
    found = versions.stale([(evidence.owner, key) for key in built], evidence.related)
    return Judgement(
        built=built,
        mixture=mixture,
        accepted=standing,
        code_stale=tuple(_code_stale(evidence, [key for key in built if verdicts[key] is False], standing, mixture)),
        code_unknown=tuple(key for key in built if verdicts[key] is None),
        stale=tuple(_as_called_now(one, evidence.renamed) for one in found.values()),
        other_code=tuple(key for key in built if verdicts[key] and _is_other_code(evidence, heads[key])),
    )


def survey(evidence: Evidence, *, now: datetime) -> Survey:
    """Make the report.

    Args:
        evidence: What is known of the asset.
        now: When (aware, UTC).
    """
    heads, present = evidence.heads, evidence.present
    gone = retired(evidence.keys, heads)
    found = judge(evidence, now=now)
    built, standing, definition_of = found.built, found.accepted, found.mixture.definition_of
    other = {key for one in found.code_stale for key in one.keys}
    unknown = set(found.code_unknown)
    by_present = [key for key in built if key not in other and key not in unknown]
    cannot = unknown | {key for key in by_present if _cannot_be_compared(present, heads[key])}
    return Survey(
        evidence=evidence,
        now=now,
        written=tuple(_written(evidence.keys, heads, standing, definition_of)),
        retired=tuple(_written(gone, heads, standing, definition_of)),
        code_stale=found.code_stale,
        other_code=found.other_code,
        code_unknown=tuple(key for key in built if key in cannot),
        code_unjudged=tuple(key for key in found.code_unknown if key not in standing),
        stale=found.stale,
        unrecorded=tuple(key for key in built if evidence.reads and not heads[key].provenance.inputs),
        disagreement=None if evidence.events is None else _disagreement(evidence, evidence.events),
        mixture=found.mixture,
        table=table_rows(evidence.stored_rows, evidence.keys, heads),
        unjudged=unjudged(evidence),
    )


def mixture_of(evidence: Evidence, now: datetime, *, with_retired: bool = False) -> Mixture:
    """Which partitions are odd, for whoever reports them and whoever accepts them.

    Args:
        evidence: What is known of the asset.
        now: When (aware, UTC).
        with_retired: Whether partitions that the asset does not have any more count as well.
    """
    found = _mixture_of(evidence, evidence.keys, evidence.present, now)
    if not with_retired:
        return found
    code, keys = evidence.present, [*evidence.keys, *retired(evidence.keys, evidence.heads)]
    if found.wanted is not None:  # they do not decide which definition that is
        code = Code(version=found.wanted.code_version, fingerprint=found.wanted.code_fingerprint)
    return _mixture_of(evidence, keys, code, now)


def _mixture_of(evidence: Evidence, keys: Sequence[Key], present: Code, now: datetime) -> Mixture:
    return mixtures.mixture(
        keys,
        evidence.heads,
        present=present,
        now=now,
        acceptances=evidence.acceptances,
        changes=evidence.changes,
        history=evidence.history,
        impure=evidence.impure,
    )


def _disagreement(evidence: Evidence, events: Events) -> Disagreement:
    return disagreement(evidence.keys, evidence.heads, events, owner=evidence.owner)


def retired(keys: Sequence[Key], heads: Mapping[Key, LedgerEntry]) -> list[Key]:
    """Partitions of the ledger that the asset does not have any more, in the order in which they were written."""
    own = set(keys)
    return sorted((key for key in heads if key not in own), key=lambda key: heads[key].position)


def _as_called_now(one: Stale, renamed: Mapping[str, str]) -> Stale:
    if not renamed:
        return one
    because, origin = ((renamed.get(owner, owner), key) for owner, key in (one.because, one.origin))
    return replace(one, because=because, origin=origin)


def unjudged(evidence: Evidence) -> tuple[str, ...]:
    """Owners of inputs whose content was recorded, and of which nothing is known now.

    What nobody has recorded, as of files that an asset reads, was never to be judged.
    """
    if not evidence.unknown:
        return ()
    reads = (read for entry in evidence.related.values() for read in entry.provenance.inputs)
    recorded = {read.owner for read in reads if read.content_hash is not None}
    return tuple(owner for owner in evidence.unknown if owner in recorded)


def accepted_by(
    acceptances: Iterable[Acceptance],
    heads: Mapping[Key, LedgerEntry],
    now: datetime,
    definition_of: DefinitionOf = Definition.of,
) -> dict[Key, Acceptance]:
    """By what partitions are accepted as they are now; of those that are not, nothing is said."""
    newest = {(one.partition_key, one.definition): one for one in acceptances}
    found = {key: newest.get((key, definition_of(entry))) for key, entry in heads.items()} if newest else {}
    return {key: one for key, one in found.items() if one is not None and one.holds(now) and one.covers(heads[key])}


def runs_of(keys: Sequence[Key], alike: Callable[[Key], Hashable]) -> Iterator[tuple[Key, ...]]:
    """Partitions that follow each other and are alike, together."""
    for _, own in groupby(keys, key=alike):
        yield tuple(own)


def consecutive(wanted: Iterable[Key], keys: Sequence[Key]) -> list[tuple[Key, ...]]:
    """Some partitions in runs of such as follow each other; those that the asset does not have come last, together."""
    chosen = set(wanted)
    own = [run for run in runs_of(keys, chosen.__contains__) if run[0] in chosen]
    known = set(keys)
    others = tuple(key for key in dict.fromkeys(wanted) if key not in known)
    return [*own, others] if others else own


def _written(
    keys: Sequence[Key],
    heads: Mapping[Key, LedgerEntry],
    standing: Mapping[Key, Acceptance],
    definition_of: DefinitionOf,
) -> Iterator[Written]:
    for stretch in versions.stretches(keys, heads, definition_of):
        for part in runs_of(stretch.keys, lambda key: _word_of(standing.get(key))):
            [one] = versions.stretches(part, heads, definition_of)
            entries = sorted((heads[key] for key in part if key in heads), key=lambda entry: entry.position)
            backfills = [entry.provenance.backfill_id for entry in entries]
            yield Written(
                definition=one.definition,
                keys=part,
                row_count=one.row_count,
                first_write=one.first_write,
                last_write=one.last_write,
                run_ids=one.run_ids,
                backfill_ids=tuple(dict.fromkeys(found for found in backfills if found is not None)),
                accepted=standing.get(part[0]),
            )


def _word_of(one: Acceptance | None) -> Hashable:
    return None if one is None else (one.accepted_by, one.accepted_at, one.reason, one.until)


def _code_stale(
    evidence: Evidence, keys: Sequence[Key], standing: Mapping[Key, Acceptance], mixture: Mixture
) -> Iterator[CodeStale]:
    def alike(key: Key) -> tuple[Definition, bool]:
        return mixture.definition_of(evidence.heads[key]), key in standing

    for run in consecutive(keys, evidence.keys):
        for part in runs_of(run, alike):
            before, accepted = alike(part[0])
            after = evidence.present.would_build(evidence.heads[part[0]])
            how = mixtures.difference(before, after, mixture.changes)
            yield CodeStale(keys=part, before=before, after=after, accepted=accepted, columns=how.columns)


def _is_other_code(evidence: Evidence, entry: LedgerEntry) -> bool:
    """Whether it was other code; fingerprints that were made by two methods say nothing about each other."""
    found, present = entry.provenance.code_fingerprint, evidence.present.fingerprint
    if found is None or present is None or found in evidence.same_code:
        return False
    return found != present and found.partition(":")[0] == present.partition(":")[0]


def _cannot_be_compared(present: Code, entry: LedgerEntry) -> bool:
    found = entry.provenance.code_fingerprint
    if found is None or present.fingerprint is None:
        return False
    return found.partition(":")[0] != present.fingerprint.partition(":")[0]


def stale_alike(one: Stale) -> Hashable:
    """What stale partitions that follow each other have in common, so that one line tells of them."""
    origin: Place = one.origin
    own = origin[1] == one.partition_key
    return one.because[0], origin[0], None if own else origin[1], own, one.depth == 1
