"""A plan as JSON and back, exactly: what is shown today is launched tomorrow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from datetime import UTC, datetime
from enum import Enum
from itertools import groupby
from typing import Any, TypeVar

from marigold_assets.errors import ConfigurationError
from marigold_assets.planning.damage import damage_of
from marigold_assets.planning.model import (
    Absence,
    AssetPlan,
    BackfillPlan,
    Bill,
    Estimate,
    Lack,
    Limits,
    Order,
    PlannedKey,
    Reason,
    Request,
    Skip,
    SkippedKey,
)

FORMAT = "marigold/plan"
VERSION = 2

_Entry = TypeVar("_Entry", PlannedKey, SkippedKey)
_Reason = TypeVar("_Reason", Reason, Skip)


def to_json(plan: BackfillPlan) -> dict[str, Any]:
    """A plan as values that JSON has.

    Neighbouring partitions of one reason, in the same words, are told together.

    Args:
        plan: The plan.
    """
    bill = plan.bill
    return {
        "format": FORMAT,
        "version": VERSION,
        "made_at": plan.made_at.astimezone(UTC).isoformat(),
        "request": {**asdict(plan.request), "order": plan.request.order.value},
        "positions": dict(plan.positions),
        "notes": list(plan.notes),
        "assets": [_asset_to_json(one) for one in plan.assets],
        "bill": {
            **asdict(bill),
            "best_keys_per_run": {
                owner: {"keys_per_run": size, "wall": wall} for owner, (size, wall) in bill.best_keys_per_run.items()
            },
            "assumed": list(bill.assumed),
            "ordering_costs": bill.ordering_costs,
        },
    }


def from_json(values: Any) -> BackfillPlan:
    """A plan from what :func:`to_json` has made of it.

    Args:
        values: What was read.

    Raises:
        ConfigurationError: It is no plan, or one of another format.
    """
    if not isinstance(values, Mapping) or values.get("format") != FORMAT:
        raise ConfigurationError("this is no plan", remedy="give a file that `marigold plan --save FILE` has written")
    if values.get("version") != VERSION:
        raise ConfigurationError(
            f"the plan has format {values.get('version')!r}, and this release reads {VERSION}",
            remedy="plan again with this release",
        )
    try:
        plan = _plan(values)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise _damaged(f"{type(error).__name__}: {error}") from None
    if (damage := damage_of(plan)) is not None:
        raise _damaged(damage)
    return plan


def _damaged(what: str) -> ConfigurationError:
    return ConfigurationError("the plan is damaged", remedy="plan again", detail=what)


def _plan(values: Mapping[str, Any]) -> BackfillPlan:
    made_at = datetime.fromisoformat(values["made_at"])
    if made_at.tzinfo is None:
        raise ValueError("made_at has no time zone")
    bill, request = values["bill"], values["request"]
    best = {owner: (one["keys_per_run"], one["wall"]) for owner, one in bill["best_keys_per_run"].items()}
    return BackfillPlan(
        request=Request(**{**_known(Request, request), "order": Order(request["order"])}),
        assets=tuple(_asset(one) for one in _listed(values["assets"])),
        bill=Bill(
            **{
                **_known(Bill, bill),
                "wall": Estimate(**bill["wall"]),
                "busy": Estimate(**bill["busy"]),
                "best_keys_per_run": best,
                "assumed": _listed(bill["assumed"]),
                "limits": Limits(**_known(Limits, bill["limits"])),
            }
        ),
        positions=dict(values["positions"]),
        made_at=made_at.astimezone(UTC),
        notes=_listed(values["notes"]),
    )


def _known(kind: type[Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a value, without what is told beside them."""
    return {one.name: values[one.name] for one in fields(kind)}


def _listed(values: Any) -> tuple[Any, ...]:
    """A list of JSON; whoever takes anything else for one takes a text for its letters."""
    if not isinstance(values, list):
        raise TypeError(f"{type(values).__name__} instead of a list")
    return tuple(values)


def _asset_to_json(one: AssetPlan) -> dict[str, Any]:
    return {
        "owner": one.owner,
        "keys": _told_together(one.keys),
        "skipped": _told_together(one.skipped),
        "is_chain": one.is_chain,
        "keys_per_run": one.keys_per_run,
        "after": list(one.after),
        "in_run_of": one.in_run_of,
        "notes": list(one.notes),
        "breaks": list(one.breaks),
        "restarts": list(one.restarts),
        "spans": {owner: [list(span) for span in spans] for owner, spans in one.spans.items()},
        "code": one.code,
        "fingerprint": one.fingerprint,
        "lacks": [{**asdict(lack), "absence": lack.absence.value} for lack in one.lacks],
    }


def _asset(values: Mapping[str, Any]) -> AssetPlan:
    return AssetPlan(
        **{
            **_known(AssetPlan, values),
            "keys": tuple(_told_apart(values["keys"], Reason, PlannedKey)),
            "skipped": tuple(_told_apart(values["skipped"], Skip, SkippedKey)),
            **{name: _listed(values[name]) for name in ("after", "notes", "breaks", "restarts")},
            "spans": {owner: tuple(map(_listed, _listed(spans))) for owner, spans in values["spans"].items()},
            "lacks": tuple(
                Lack(**{**_known(Lack, one), "absence": Absence(one["absence"])}) for one in _listed(values["lacks"])
            ),
        }
    )


def _told_together(entries: Sequence[PlannedKey] | Sequence[SkippedKey]) -> list[dict[str, Any]]:
    def how(entry: PlannedKey | SkippedKey) -> tuple[Enum, str]:
        return entry.reason, entry.because

    return [
        {"reason": reason.value, "because": because, "keys": [entry.key for entry in some]}
        for (reason, because), some in groupby(entries, how)
    ]


def _told_apart(
    values: Iterable[Mapping[str, Any]], reasons: type[_Reason], kind: Callable[..., _Entry]
) -> Iterable[_Entry]:
    for some in values:
        reason = reasons(some["reason"])
        for key in _listed(some["keys"]):
            yield kind(key=key, reason=reason, because=some["because"])
