"""What is stale, as plans have it: verdicts of the report of versions, and what is stale only through its inputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from marigold_assets.model import Acceptance, Place
from marigold_assets.planning.model import AssetPlan, BackfillPlan, Key, Reason, Skip, SkippedKey
from marigold_assets.planning.states import Verdict
from marigold_assets.surveying.agreement import table_rows
from marigold_assets.surveying.evidence import Evidence
from marigold_assets.surveying.survey import Judgement, judge, unjudged


@dataclass(frozen=True, slots=True, kw_only=True)
class Deep:
    """Why a partition is stale although all that it has read itself is as it was.

    Attributes:
        because: The input that is stale.
        origin: What was restated in the first place.
    """

    because: Place
    origin: Place


def verdicts_of(
    evidence: Evidence, now: datetime
) -> tuple[Mapping[Key, Verdict], Mapping[Key, str], Mapping[Key, Deep], tuple[str, ...]]:
    """What is wrong with the partitions of an asset that exist.

    Of a partition that is stale only because one of its inputs is, nothing is wrong that building it would mend: it
    would be built from the same. It becomes stale by itself when that input is built.

    Args:
        evidence: What is known of the asset.
        now: When (aware, UTC).

    Returns:
        Verdicts; those that cannot be judged, with the reason; those that are stale through an input; and notes.
    """
    found = judge(evidence, now=now)
    verdicts = _of_code(found)
    deep: dict[Key, Deep] = {}
    for one in found.stale:
        key, known = one.partition_key, verdicts.get(one.partition_key)
        if one.depth > 1:
            deep[key] = Deep(because=one.because, origin=one.origin)
        elif known is None or known.accepted is not None:
            verdicts[key] = Verdict(reason=Reason.STALE_INPUT, because=f"{named(one.because)} was restated")
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
    return verdicts, unknown, deep, tuple(notes)


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


def named(place: Place) -> str:
    """A partition, for people."""
    owner, key = place
    return owner if key is None else f"{owner}[{key}]"


def said_of_deep(
    plan: BackfillPlan, deep: Mapping[str, Mapping[Key, Deep]], notes: tuple[str, ...] = ()
) -> BackfillPlan:
    """A plan that says which partitions remain stale since it does not build what they are stale through.

    Args:
        plan: The plan.
        deep: Partitions that are stale through their inputs, by asset.
        notes: What else is to be said of the whole.
    """
    assets = tuple(_said_of_asset(one, deep.get(one.owner, {})) for one in plan.assets)
    return replace(plan, assets=assets, notes=(*notes, *plan.notes))


def _said_of_asset(asset: AssetPlan, deep: Mapping[Key, Deep]) -> AssetPlan:
    left = [one for one in asset.skipped if one.reason is Skip.CURRENT and one.key in deep]
    if not left:
        return asset
    first = deep[left[0].key]
    owners = {deep[one.key].because[0] for one in left}
    remedies = [f"plan {' and '.join(sorted(owners - {asset.owner}))} as well"] if owners - {asset.owner} else []
    remedies += ["begin earlier"] if asset.owner in owners else []
    count = f"{len(left):,} partition{'' if len(left) == 1 else 's'}"
    note = (
        f"{count} {'is' if len(left) == 1 else 'are'} stale only through {named(first.because)}, which this plan does"
        f" not build: {named(first.origin)} was restated; {' and '.join(remedies)}"
    )
    skipped = tuple(_said_of_key(one, deep.get(one.key)) for one in asset.skipped)
    return replace(asset, skipped=skipped, notes=(*asset.notes, note))


def _said_of_key(one: SkippedKey, deep: Deep | None) -> SkippedKey:
    if deep is None or one.reason is not Skip.CURRENT:
        return one
    return replace(one, because=f"stale only through {named(deep.because)}, which this plan does not build")
