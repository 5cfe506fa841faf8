"""The report as JSON: keys that stay what they are, ISO times in UTC, and the number of the format."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from marigold_assets.content import ContentChange
from marigold_assets.mixtures import Mixture
from marigold_assets.model import Acceptance, Definition, Place
from marigold_assets.surveying.agreement import Key
from marigold_assets.surveying.survey import CodeStale, Survey, Written, consecutive
from marigold_assets.versions import Stale, Stretch

FORMAT = 1
"""Rises when a key goes away or changes its meaning; new keys may come without that."""


def dumps(found: Mapping[str, Any]) -> str:
    """Some JSON, for people and programs; escaped where the output could not carry it."""
    is_unicode = (sys.stdout.encoding or "utf-8").lower().startswith("utf")
    return json.dumps({"format": FORMAT, **found}, indent=2, ensure_ascii=not is_unicode)


def of_survey(report: Survey) -> dict[str, Any]:
    """The report about an asset."""
    evidence = report.evidence
    return {
        "asset": evidence.owner,
        "table": {"schema": evidence.table.schema, "name": evidence.table.name},
        "time": time(report.now),
        "is_well": report.is_well,
        "code": {"version": evidence.present.version, "fingerprint": evidence.present.fingerprint},
        "partitions": {
            "defined": len(evidence.keys),
            "built": report.built,
            "not_built": len(evidence.keys) - report.built,
            "retired": sum(len(one.keys) for one in report.retired),
        },
        "rows": report.row_count,
        "table_rows": {
            "stored": report.table.stored,
            "ledger": report.table.least,
            "ledger_with_retired": report.table.most,
            "agrees": report.table.agrees,
        },
        "stretches": [_written(one) for one in report.written],
        "retired": [_written(one) for one in report.retired],
        "code_stale": [_code_stale(one) for one in report.code_stale],
        "other_code_same_version": _runs(report.other_code, evidence.keys),
        "code_unknown": _runs(report.code_unknown, evidence.keys),
        "stale": [_stale(one) for one in report.stale],
        "unknown_inputs": [
            {"asset": owner, "reason": why, "was_recorded": owner in report.unjudged}
            for owner, why in evidence.unknown.items()
        ],
        "unrecorded_inputs": _runs(report.unrecorded, evidence.keys),
        "event_log": _event_log(report),
        "mixture": _mixture(report.mixture),
        "column_changes": [_content(one) for one in report.mixture.content],
        "contradicted": [_content(one) for one in report.mixture.contradicted],
        "notes": list(evidence.notes),
    }


def of_acceptances(
    owner: str, recorded: Sequence[Acceptance], keys: Sequence[Key], *, withdrawn: bool
) -> dict[str, Any]:
    """What was accepted, or withdrawn."""
    by_definition: dict[Definition, list[Key]] = {}
    for one in recorded:
        by_definition.setdefault(one.definition, []).append(one.partition_key)
    return {
        "asset": owner,
        "withdrawn": withdrawn,
        "partitions": len(recorded),
        **(_word(recorded[0]) if recorded else {}),
        "definitions": [
            {"definition": definition_of(definition), "ranges": _runs(own, keys)}
            for definition, own in by_definition.items()
        ],
    }


def time(moment: datetime) -> str:
    """A time in UTC, as ISO 8601."""
    return moment.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def definition_of(one: Definition | None) -> dict[str, Any] | None:
    """A definition; ``None``: nothing was built."""
    if one is None:
        return None
    return {
        "label": str(one),
        "code_version": one.code_version,
        "code_fingerprint": one.code_fingerprint,
        "config_hash": one.config_hash,
    }


def _range(keys: Sequence[Key]) -> dict[str, Any]:
    return {"first": keys[0], "last": keys[-1], "partitions": len(keys), "keys": list(keys)}


def _runs(wanted: Iterable[Key], keys: Sequence[Key]) -> list[dict[str, Any]]:
    return [_range(run) for run in consecutive(wanted, keys)]


def _written(one: Written) -> dict[str, Any]:
    return {
        **_range(one.keys),
        "definition": definition_of(one.definition),
        "rows": one.row_count,
        "first_write": None if one.first_write is None else time(one.first_write),
        "last_write": None if one.last_write is None else time(one.last_write),
        "run_ids": list(one.run_ids),
        "backfill_ids": list(one.backfill_ids),
        "accepted": None if one.accepted is None else _word(one.accepted),
    }


def _word(one: Acceptance) -> dict[str, Any]:
    return {
        "by": one.accepted_by,
        "at": time(one.accepted_at),
        "reason": one.reason,
        "until": None if one.until is None else time(one.until),
    }


def _code_stale(one: CodeStale) -> dict[str, Any]:
    return {
        **_range(one.keys),
        "before": definition_of(one.before),
        "after": definition_of(one.after),
        "accepted": one.accepted,
        "columns": None if one.columns is None else sorted(one.columns),
    }


def _stale(one: Stale) -> dict[str, Any]:
    return {
        "partition": one.partition_key,
        "because": _place(one.because),
        "depth": one.depth,
        "origin": _place(one.origin),
    }


def _place(place: Place) -> dict[str, Any]:
    return {"asset": place[0], "partition": place[1]}


def _event_log(report: Survey) -> dict[str, Any]:
    found, keys = report.disagreement, report.evidence.keys
    if found is None:
        return {"compared": False, "reason": report.evidence.no_events}
    return {
        "compared": True,
        "home": report.evidence.home,
        "reason": None,
        "event_missing": _runs(found.event_missing, keys),
        "ledger_missing": _runs(found.ledger_missing, keys),
        "differing": _runs(found.differing, keys),
        "other_swap": _runs(found.other_swap, keys),
        "unknown": _runs(found.unknown, keys),
    }


def _mixture(found: Mixture) -> dict[str, Any]:
    columns = found.difference.columns
    return {
        "wanted": definition_of(found.wanted),
        "definitions": [definition_of(one) for one in found.definitions],
        "odd": [_stretch(one) for one in found.odd],
        "accepted": [_stretch(one) for one in found.accepted],
        "acceptances": [_word(one) for one in found.acceptances],
        "columns": None if columns is None else sorted(columns),
    }


def _stretch(one: Stretch) -> dict[str, Any]:
    return {**_range(one.keys), "definition": definition_of(one.definition)}


def _content(one: ContentChange) -> dict[str, Any]:
    return {
        "before": definition_of(one.before),
        "after": definition_of(one.after),
        "partitions": one.partitions,
        "columns": dict(sorted(one.columns.items())),
        "moved": one.moved,
        "row_counts": one.row_counts,
    }
