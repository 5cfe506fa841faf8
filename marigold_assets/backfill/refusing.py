"""Why a plan is not launched: it cannot be, it is not what there is to do any more, or nothing would bound it."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

import dagster as dg

from marigold_assets import dagster_instance
from marigold_assets.backfill.unblocking import remedy_of
from marigold_assets.dagster_instance import Backfill
from marigold_assets.errors import ConfigurationError, PlanConflictError
from marigold_assets.planning.model import MOST_PARTITIONS, BackfillPlan, Key, Skip
from marigold_assets.preflight import findings

"""How many partitions are launched at once unless somebody wants more: thirty years of days, or one of hours."""
_SHOWN = 3
_TAG = re.compile(r"^[\w.\-]{1,63}(/[\w.\-]{1,63})?$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """How somebody wants a plan to be launched.

    Attributes:
        most_partitions: Refuse more than so many.
        max_failures: How many runs may fail before the rest is canceled; ``None``: any number.
        canary: How many partitions an asset are to go first, and well, before the rest is launched; 0: none.
        title: What people are to read of it; ``None``: what is planned.
        tags: More tags of its backfills and runs.
        skip_blocked: Whether to launch the rest where partitions are blocked.
        unbounded: Why the instance need not bound it; ``None``: it has to.
        without_daemon: Whether to launch it although no daemon would take it up at once.
    """

    most_partitions: int = MOST_PARTITIONS
    max_failures: int | None = None
    canary: int = 0
    title: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    skip_blocked: bool = False
    unbounded: str | None = None
    without_daemon: bool = False


def refuse_plan(plan: BackfillPlan, wish: Wish) -> None:
    """Refuse a plan that nobody should launch so.

    Raises:
        ConfigurationError: It is too large, parts of it are blocked, or tags are not for users.
    """
    for name in wish.tags:
        if name.startswith(("dagster/", "marigold/")) or not _TAG.match(name):
            raise ConfigurationError(
                f"the tag {name!r} is not one to give by hand",
                remedy="take a name of your own, of letters, digits and . _ - /",
            )
    if plan.size > wish.most_partitions:
        raise ConfigurationError(
            f"the plan builds {plan.size:,} partitions, and at most {wish.most_partitions:,} are launched at once",
            remedy=f"launch a part of it: --from, --to; or say that you mean it: --max-partitions {plan.size}",
        )
    blocked = [(one, skipped) for one in plan.assets for skipped in one.skipped if skipped.reason is Skip.BLOCKED]
    if blocked and not wish.skip_blocked:
        asset, first = blocked[0]
        remedy = remedy_of(asset.lacks[0], asset.owner) if asset.lacks else "build what it needs first"
        more = f" and {len(blocked) - 1:,} more" if len(blocked) > 1 else ""
        raise ConfigurationError(
            f"it is blocked{more}: {first.because}",
            remedy=remedy if plan.is_empty else f"{remedy}; or launch the rest without it: --skip-blocked",
            asset=asset.owner,
            partition=first.key,
        )


def refuse_instance(instance: dg.DagsterInstance, wish: Wish) -> None:
    """Refuse an instance that would lose the backfill, not bound it, or not take it up.

    Raises:
        ConfigurationError: It would.
    """
    if instance.is_ephemeral:
        raise no_home()
    wrong = findings.unbounded(instance)
    if wrong and wish.unbounded is None:
        lines = "\n".join(dict.fromkeys(one.lines for one in wrong if one.lines))  # several may want the same
        raise ConfigurationError(
            f"the instance does not bound backfills: {wrong[0].message}",
            remedy=f"{wrong[0].remedy} ('marigold doctor' tells when all is well); or say why it may do without:"
            " --unbounded REASON",
            detail=lines or None,
        )
    if not wish.without_daemon:
        _refuse_no_daemon(instance)


def no_home() -> ConfigurationError:
    """The error for an instance that nothing keeps."""
    return ConfigurationError(
        "DAGSTER_HOME is not set, so that this would be a temporary instance: results would be lost, and no daemon"
        " would see them",
        remedy="set DAGSTER_HOME to the folder of the instance that the daemon works on",
    )


def _refuse_no_daemon(instance: dg.DagsterInstance) -> None:
    now = datetime.now(UTC)
    for daemon, what in (
        (dagster_instance.BACKFILL_DAEMON, "take up the backfill"),
        (dagster_instance.QUEUE_DAEMON, "take its runs out of the queue"),
    ):
        last = dagster_instance.last_heartbeat(instance, daemon)
        if last is None or now - last > dagster_instance.ALIVE_WITHIN:
            since = "never" if last is None else f"last at {last:%Y-%m-%d %H:%M:%S} UTC"
            raise ConfigurationError(
                f"no daemon runs on this instance that would {what} (seen {since})",
                remedy="start it: dagster dev, or dagster-daemon run; or leave the backfill for when it starts:"
                " --without-daemon",
            )


def refuse_others(instance: dg.DagsterInstance, plan: BackfillPlan) -> None:
    """Refuse a plan of which another backfill is building something.

    Raises:
        PlanConflictError: One is.
    """
    planned = {one.owner: frozenset(key.key for key in one.keys) for one in plan.assets if one.keys}
    for one in dagster_instance.backfills(instance, only_active=True):
        _refuse_other(one, planned)


def refuse_older(instance: dg.DagsterInstance, launched: Collection[str]) -> None:
    """Refuse what was launched if somebody else had launched some of the same just before.

    Of two launches that do not see each other while they look, at least one sees the other afterwards: that which has
    the newer backfill of the two.

    Args:
        instance: Where.
        launched: The backfills that were launched.

    Raises:
        PlanConflictError: An older backfill that has not ended is building something of theirs.
    """
    newer: list[Backfill] = []
    for one in dagster_instance.backfills(instance, only_active=True):  # the newest first
        if one.backfill_id in launched:
            newer.append(one)
            continue
        for own in newer:
            _refuse_other(one, {owner: keys for owner, keys in own.targets.items() if keys})


def _refuse_other(other: Backfill, planned: Mapping[str, frozenset[Key]]) -> None:
    owner, keys = _shared(other, planned)
    if keys:
        what = f"job {other.job}" if other.job is not None else str(owner)
        name = other.backfill_id
        raise PlanConflictError(
            f"backfill {name} ({other.status}) of {what} is at {_named(keys)} of this plan",
            remedy=f"wait for it (marigold status {name}) or cancel it (marigold cancel {name})",
            asset=owner,
        )


def _shared(other: Backfill, planned: Mapping[str, frozenset[Key]]) -> tuple[str | None, frozenset[Key]]:
    """What a backfill that has not ended may still build of a plan; the assets of a job are not known here."""
    for owner, keys in planned.items():
        if owner in other.targets:
            theirs = other.targets[owner]
            shared = keys if theirs is None else keys & (theirs - other.built.get(owner, frozenset()))
            if shared:
                return owner, shared
    of_job: frozenset[Key] = frozenset(other.job_keys)
    for keys in planned.values():
        if keys & of_job:
            return None, keys & of_job
    return None, frozenset()


def _named(keys: Iterable[Key]) -> str:
    found = sorted(str(one) for one in keys if one is not None)
    if not found:
        return "the whole table"
    more = f" and {len(found) - _SHOWN:,} more" if len(found) > _SHOWN else ""
    return f"{', '.join(found[:_SHOWN])}{more}"


def moved(plan: BackfillPlan, positions: Mapping[str, int]) -> Sequence[str]:
    """The ledgers that have moved since a plan was made, by asset."""
    return sorted(owner for owner, position in plan.positions.items() if positions.get(owner, 0) != position)


def refuse_changed(plan: BackfillPlan, what: str | None) -> None:
    """Refuse a plan that would no longer be made so.

    Args:
        plan: The plan.
        what: In words, what would be planned now instead; ``None``: the same.

    Raises:
        PlanConflictError: Something else would be.
    """
    if what is not None:
        raise PlanConflictError(
            f"since the plan was made at {plan.made_at:%Y-%m-%d %H:%M:%S} UTC there is something else to do: {what}",
            remedy="plan again, and launch that",
        )
