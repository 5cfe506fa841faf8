"""Whether a plan is still what there is to do: it is made again, where its ledgers have moved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

import dagster as dg

from marigold_assets.backfill import refusing
from marigold_assets.backfill.gathering import Gathered, gather_states, plan_of
from marigold_assets.errors import PlanConflictError
from marigold_assets.location import CodeLocation, LocationOptions
from marigold_assets.planning.making import changed
from marigold_assets.planning.model import BackfillPlan, Key, Reason, Request, Skip, SkippedKey
from marigold_assets.planning.submitting import Submission

_LEFT_ALONE = (Skip.CURRENT, Skip.STALE)
"""What it is of which nothing is known to be wrong that building it would mend."""
_THROUGH_OTHERS = (Reason.LOOKBACK, Reason.STALE_INPUT)
"""Reasons that lie in other partitions, which a canary may have built."""


class Planner:
    """Makes plans, and makes them again.

    Args:
        location: The definitions.
        instance: The live instance.
        options: What names the definitions.
    """

    def __init__(self, location: CodeLocation, instance: dg.DagsterInstance, options: LocationOptions) -> None:
        self._location, self._instance, self._options = location, instance, options
        self._gathered: Gathered | None = None

    def make(self, request: Request, *, as_of: datetime | None = None) -> BackfillPlan:
        """The plan of a request, as things stand now.

        Args:
            request: What is asked for.
            as_of: Which partitions there are, and what is accepted for how long, is that of then (aware); ``None``: of
                now.

        Raises:
            ConfigurationError: The selection or the range names what there is not.
            StoreBusyError: Another process holds a database.
        """
        now = as_of or datetime.now(UTC)
        self._gathered = gather_states(self._location, request, instance=self._instance, now=now, options=self._options)
        return plan_of(self._gathered, request, instance=self._instance, now=now)

    def orders(self, plan: BackfillPlan) -> Mapping[str, Sequence[Key]]:
        """The partitions of its assets, in order."""
        if self._gathered is not None:
            return {one.owner: one.keys for one in self._gathered.states}
        return {one.owner: self._location.asset(one.owner).partition_keys(self._instance) for one in plan.assets}

    def refuse_changed(self, plan: BackfillPlan) -> None:
        """Refuse a plan that would be another one now, but for partitions that did not exist when it was made.

        Raises:
            PlanConflictError: It would.
        """
        refusing.refuse_changed(plan, changed(plan, self.make(plan.request, as_of=plan.made_at)))

    def refuse_moved(self, plan: BackfillPlan) -> None:
        """The same, where its ledgers have moved: to ask that is cheap.

        Raises:
            PlanConflictError: It would be another one.
        """
        if refusing.moved(plan, self._positions(plan)):
            self.refuse_changed(plan)

    def _positions(self, plan: BackfillPlan) -> Mapping[str, int]:
        found: dict[str, int] = {}
        for owner in plan.positions:
            asset = self._location.assets.get(owner)
            if asset is not None and asset.store.connector.exists():
                newest = asset.store.newest(asset.table)
                found[owner] = 0 if newest is None else newest.position
        return found

    def refuse_gone(self, plan: BackfillPlan, rest: Sequence[Submission]) -> None:
        """Refuse the rest of a plan, a canary of which was built, where some of it is not to be built any more.

        A canary itself may be why a partition would not be planned any more: it is no longer missing, so that none is
        looked back upon, or it came out as it was, so that what reads it is current. Such partitions were shown and
        agreed to, and are launched as they were planned.

        Raises:
            PlanConflictError: Some of it is not.
        """
        made = self.make(plan.request, as_of=plan.made_at)
        planned = {one.owner: {key.key for key in one.keys} for one in made.assets}
        skipped = {one.owner: {key.key: key for key in one.skipped} for one in made.assets}
        reasons = {one.owner: {key.key: key.reason for key in one.keys} for one in plan.assets}
        orders = self.orders(plan)
        for part in rest:
            for owner, keys in part.keys.items():
                gone = [key for key in keys if key not in planned.get(owner, set())]
                if not gone:
                    continue
                left, known = skipped.get(owner, {}), set(orders.get(owner, ()))
                moved = self._moved(owner, gone, plan)
                for key in gone:
                    is_current = key in known and (key not in left or left[key].reason in _LEFT_ALONE)
                    if key in moved or not is_current or reasons[owner][key] not in _THROUGH_OTHERS:
                        raise _is_gone(owner, key, moved=key in moved, left=left.get(key), is_known=key in known)

    def _moved(self, owner: str, keys: Sequence[Key], plan: BackfillPlan) -> set[Key]:
        """Which of some partitions were built since the plan was made."""
        asset = self._location.assets.get(owner)
        if asset is None or owner not in plan.positions or not asset.store.connector.exists():
            return set()
        heads = asset.store.heads(asset.table, keys)
        return {key for key, head in heads.items() if head.position > plan.positions[owner]}


def _is_gone(owner: str, key: Key, *, moved: bool, left: SkippedKey | None, is_known: bool) -> PlanConflictError:
    if moved:
        what = "it was built by others while the canary ran"
    elif not is_known:
        what = "it is no partition of the asset any more"
    else:
        what = "it is not to be built any more, after the canary" + (f": {left.because}" if left is not None else "")
    return PlanConflictError(what, remedy="plan again, and launch that", asset=owner, partition=key)
