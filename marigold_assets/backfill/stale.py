"""What is stale, as plans have it: verdicts of the report of versions, and what is stale only through its inputs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from marigold_assets.model import Acceptance
from marigold_assets.planning.model import AssetPlan, BackfillPlan, Key, Reason, Skip
from marigold_assets.planning.naming import counted, is_or_are, named
from marigold_assets.planning.states import Reads, Through, Verdict
from marigold_assets.surveying.agreement import table_rows
from marigold_assets.surveying.evidence import Evidence
from marigold_assets.surveying.survey import Judgement, judge, unjudged
from marigold_assets.versions import Stale

_OTHER_CODE = "code of the same version built it, which was not the same code"


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What is known of the partitions of an asset that exist.

    Attributes:
        verdicts: What is wrong with some.
        unknown: Those that cannot be judged, with the reason.
        through: Those that are stale only through an input.
        remarks: What is to be said of some that are left alone because nothing is known to be wrong with them.
        cautions: The same of many together: partitions, by words with a place for ``was`` or ``were``.
        notes: What else people should know.
    """

    verdicts: Mapping[Key, Verdict] = field(default_factory=dict)
    unknown: Mapping[Key, str] = field(default_factory=dict)
    through: Mapping[Key, Through] = field(default_factory=dict)
    remarks: Mapping[Key, str] = field(default_factory=dict)
    cautions: Mapping[str, Collection[Key]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def found_by(
    evidence: Evidence,
    now: datetime,
    reads: Mapping[str, Reads],
    *,
    unledgered: Collection[str] = (),
    external: Collection[str] = (),
    records_inputs: bool = True,
) -> Found:
    """What is known of the partitions of an asset that exist.

    Of a partition that is stale only because one of its inputs is, nothing is wrong that building it would mend: it
    would be built from the same. It becomes stale by itself when that input is built.

    Args:
        evidence: What is known of the asset.
        now: When (aware, UTC).
        reads: What it reads, as far as the code location has it.
        unledgered: What of that keeps no ledger, so that nothing is known of what it holds.
        external: What of that nothing here builds, so that this cannot be helped.
        records_inputs: Whether what makes it records what it is given.
    """
    found = judge(evidence, now=now)
    verdicts = _of_code(found)
    through: dict[Key, Through] = {}
    for one in found.stale:
        key, known = one.partition_key, verdicts.get(one.partition_key)
        if one.depth > 1:
            through[key] = through_of(one)
        elif known is None or known.accepted is not None:
            verdicts[key] = Verdict(reason=Reason.STALE_INPUT, because=f"{named(*one.because)} was restated")
    unknown = {
        key: "nobody has recorded which code has built it"
        for key in found.code_unknown
        if key not in found.accepted and key not in verdicts
    }
    strangers = unjudged(evidence)
    notes = [f"whether its input {owner} has changed is not known: {evidence.unknown[owner]}" for owner in strangers]
    rows = table_rows(evidence.stored_rows, evidence.keys, evidence.heads)
    if rows.stored is not None and not rows.agrees:
        notes.append(
            f"its table holds {rows.stored:,} rows, and the ledger has {rows.most:,}: another tool has changed it; see"
            f" 'marigold versions {evidence.owner}'"
        )
    doubts, unrecorded = _doubts(evidence, found.built, reads, strangers, unledgered)
    cautions: dict[str, Collection[Key]] = {}
    for lacking, keys in unrecorded.items():
        if some := lacking.difference(external):
            how = "build it as a @partitioned_asset"
            if records_inputs:
                how = f"store {_listed(some)} by a FencedPartitionIOManager"
            cautions[
                f"{{was}} built from {_listed(some)}, of which nothing was recorded: whether that has changed since,"
                f" nobody knows; to have it recorded, {how}; to compute again all the same: --restate"
            ] = keys
    if found.other_code:
        cautions[
            "{was} built by code that was not the same, though its version is the present one; the version decides: to"
            " have them built again, raise it, or --restate"
        ] = frozenset(found.other_code)
    return Found(
        verdicts=verdicts,
        unknown=unknown,
        through=through,
        remarks=_remarks(frozenset(found.other_code), doubts),
        cautions=cautions,
        notes=tuple(notes),
    )


def through_of(one: Stale) -> Through:
    """Why a partition is stale, where that lies in its inputs."""
    return Through(owner=one.because[0], because=named(*one.because), origin=named(*one.origin))


def _doubts(
    evidence: Evidence,
    built: Iterable[Key],
    reads: Mapping[str, Reads],
    strangers: Collection[str],
    unledgered: Collection[str],
) -> tuple[dict[Key, str], dict[frozenset[str], set[Key]]]:
    """Of which partitions nobody knows whether their inputs are what they were, in words; and of what was nothing told.

    The second: by assets that some partitions read and of which nothing was recorded then, those partitions.
    """
    others = frozenset(owner for owner in reads if owner != evidence.owner)
    doubts: dict[Key, str] = {}
    unrecorded: dict[frozenset[str], set[Key]] = {}
    for key in built:
        inputs = evidence.heads[key].provenance.inputs
        recorded = {one.owner for one in inputs if one.content_hash is not None or one.owner not in unledgered}
        if not recorded.isdisjoint(strangers):
            doubts[key] = f"whether {_listed(recorded.intersection(strangers))} has changed is not known"
        if others <= recorded:
            continue
        recorded |= {evidence.renamed.get(owner, owner) for owner in recorded}
        lacking = frozenset(one for one in others - recorded if reads[one].same_keys or reads[one].inputs_of(key))
        if lacking:
            doubts[key] = f"of {_listed(lacking)}, which it reads, nothing was recorded"
            unrecorded.setdefault(lacking, set()).add(key)
    return doubts, unrecorded


def _listed(owners: Iterable[str]) -> str:
    return ", ".join(sorted(owners))


def _remarks(other_code: Collection[Key], doubts: Mapping[Key, str]) -> dict[Key, str]:
    found = dict.fromkeys(other_code, f"{_OTHER_CODE}, of present inputs")
    for key, doubt in doubts.items():
        found[key] = f"{_OTHER_CODE if key in other_code else 'is what present code makes'}; {doubt}"
    return found


def _of_code(found: Judgement) -> dict[Key, Verdict]:
    verdicts: dict[Key, Verdict] = {}
    for one in found.code_stale:
        if not one.accepted and not one.counts:  # its author declares that it changes no column
            continue
        because = f"{one.before} -> {one.after}"
        for key in one.keys:
            accepted = _words(found.accepted[key]) if one.accepted else None
            verdicts[key] = Verdict(reason=Reason.STALE_CODE, because=because, accepted=accepted)
    return verdicts


def _words(one: Acceptance) -> str:
    until = "" if one.until is None else f", until {one.until:%Y-%m-%d %H:%M} UTC"
    return f"by {one.accepted_by}{until}: {one.reason}"


def said_of(plan: BackfillPlan, found: Mapping[str, Found], notes: tuple[str, ...] = ()) -> BackfillPlan:
    """A plan that says of what it leaves alone what remains stale, and of what nobody knows whether it is.

    Args:
        plan: The plan.
        found: What is known of the partitions of its assets.
        notes: What else is to be said of the whole.
    """
    assets = tuple(_said_of_asset(one, found[one.owner]) if one.owner in found else one for one in plan.assets)
    return replace(plan, assets=assets, notes=(*notes, *plan.notes))


def _said_of_asset(asset: AssetPlan, found: Found) -> AssetPlan:
    notes = []
    left = [found.through[one.key] for one in asset.skipped if one.reason is Skip.STALE]
    if left:
        notes.append(_remains_stale(asset.owner, left))
    if not found.remarks:
        return replace(asset, notes=(*asset.notes, *notes)) if notes else asset
    skipped = tuple(
        replace(one, because=found.remarks[one.key]) if one.reason is Skip.CURRENT and one.key in found.remarks else one
        for one in asset.skipped
    )
    current = [one.key for one in skipped if one.reason is Skip.CURRENT]
    for words, keys in found.cautions.items():
        some = [key for key in current if key in keys]
        if some:
            span = "" if some[0] is None else f", {some[0]}" + (f" to {some[-1]}," if len(some) > 1 else ",")
            notes.append(f"{counted(len(some))}{span} {words.replace('{was}', 'was' if len(some) == 1 else 'were')}")
    return replace(asset, skipped=skipped, notes=(*asset.notes, *notes))


def _remains_stale(owner: str, left: list[Through]) -> str:
    owners = {one.owner for one in left}
    remedies = [f"plan {' and '.join(sorted(owners - {owner}))} as well"] if owners - {owner} else []
    remedies += ["begin earlier"] if owner in owners else []
    return (
        f"{counted(len(left))} {is_or_are(left)} stale only through {left[0].because}, which this plan"
        f" does not build: {left[0].origin} was restated; {' and '.join(remedies)}"
    )
