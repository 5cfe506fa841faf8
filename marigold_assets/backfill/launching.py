"""A plan becomes backfills of Dagster: through the API of its user interface, and visible there as what they are."""

from __future__ import annotations

import secrets
import string
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import dagster as dg

from marigold_assets import dagster_instance
from marigold_assets.backfill import refusing
from marigold_assets.backfill.price import CANARY_TAG, PRICE_TAG, Price
from marigold_assets.backfill.refusing import Wish
from marigold_assets.backfill.request import REQUEST_TAG, request_as_tag
from marigold_assets.backfill.wishing import WISH_TAG, wish_as_tag
from marigold_assets.budget import LAUNCH_TAG, MAX_FAILURES_TAG
from marigold_assets.errors import PlanConflictError
from marigold_assets.location import CodeLocation, LocationOptions
from marigold_assets.planning.model import BackfillPlan, Key
from marigold_assets.planning.submitting import Submission
from marigold_assets.run_tags import PRIORITY_TAG
from marigold_assets.surveying.survey import consecutive

_ID_LENGTH: Final = 8
_TAKE_BACK_TIMES, _TAKE_BACK_SECONDS = 5, 0.2


def new_launch() -> str:
    """The name of a launch: letters, as those of backfills are."""
    return "".join(secrets.choice(string.ascii_lowercase) for _ in range(_ID_LENGTH))


@dataclass(frozen=True, slots=True, kw_only=True)
class Launching:
    """What is launched, and where.

    Attributes:
        launch: Its name, which all of its backfills and runs have as a tag.
        plan: The plan.
        wish: How somebody wants it to be launched.
        instance: Where.
        location: The definitions.
        options: The same, for a code server.
    """

    launch: str
    plan: BackfillPlan
    wish: Wish
    instance: dg.DagsterInstance
    location: CodeLocation
    options: LocationOptions

    def submit(self, submissions: Sequence[Submission]) -> tuple[str, ...]:
        """Launch some of it: all, or, if anything is refused or interrupts it, none.

        Returns:
            The ids of the backfills.

        Raises:
            ConfigurationError: Dagster refuses.
            PlanConflictError: Dagster would build something else than was planned, or another backfill is at it.
        """
        options = self.options
        before = self._launched()
        try:
            with dagster_instance.api(
                self.instance,
                python_file=options.python_file,
                module_name=options.module_name,
                attribute=options.attribute,
                working_directory=options.working_directory,
                workspace=options.workspace,
            ) as api:
                refusing.refuse_others(self.instance, self.plan)  # now: to start the code server took a while
                tick = self.plan.bill.limits.tick_seconds
                look = dagster_instance.seconds_to_look(self.instance, tick_seconds=tick)
                price = Price.of(self.plan, first_look_seconds=look)
                for one in submissions:
                    self._refuse_other_targets(api.launch_backfill(self.params(one, price)), one)
                launched = [one for one in self._launched() if one not in before]
                refusing.refuse_older(self.instance, launched)
        except BaseException:
            self._take_back(before)
            raise
        return tuple(reversed(launched))

    def _launched(self) -> list[str]:
        found = dagster_instance.backfills(self.instance, tags={LAUNCH_TAG: self.launch})
        return [one.backfill_id for one in found]

    def _take_back(self, before: Sequence[str]) -> None:
        """Cancel what was launched since: by its tag, for what interrupts may come before an id is known."""
        for _ in range(_TAKE_BACK_TIMES):  # the daemon may write over it what it has read before
            new = [one for one in self._launched() if one not in before]
            if not any([dagster_instance.ask_to_cancel(self.instance, one) for one in new]):  # noqa: C419 - all of them
                return
            time.sleep(_TAKE_BACK_SECONDS)

    def params(self, submission: Submission, price: Price) -> Mapping[str, Any]:
        """What is said to Dagster's API of a backfill, and what was predicted of the whole launch."""
        tags = {
            **self.wish.tags,
            LAUNCH_TAG: self.launch,
            WISH_TAG: wish_as_tag(self.wish),
            PRICE_TAG: price.as_tag(),
            REQUEST_TAG: request_as_tag(self.plan.request),
            PRIORITY_TAG: str(submission.priority),
        }
        if submission.is_canary:
            tags[CANARY_TAG] = "1"
        if self.wish.max_failures is not None:
            tags[MAX_FAILURES_TAG] = str(self.wish.max_failures)
        return {
            "partitionsByAssets": [self._selector(owner, keys) for owner, keys in submission.keys.items()],
            "title": dagster_instance.title_of(self._title(submission)),
            "description": self._description(submission, price),
            "tags": [{"key": key, "value": value} for key, value in tags.items()],
        }

    def _selector(self, owner: str, keys: Sequence[Key]) -> Mapping[str, Any]:
        asset = self.location.asset(owner)
        name: dict[str, Any] = {"assetKey": {"path": list(asset.key.path)}}
        if asset.partitions_def is None:
            return name
        # A range of several dimensions is another set of partitions than those between its ends.
        is_plain = not isinstance(asset.partitions_def, dg.MultiPartitionsDefinition)
        runs = consecutive(keys, asset.partition_keys(self.instance)) if is_plain else [(key,) for key in keys]
        return name | {"partitions": {"ranges": [{"start": str(one[0]), "end": str(one[-1])} for one in runs]}}

    def _title(self, submission: Submission) -> str:
        if self.wish.title is None:
            return submission.title
        part = " (canary)" if submission.is_canary else f" ({submission.number + 1})" if submission.number else ""
        room = dagster_instance.TITLE_LENGTH - len("marigold: ") - len(part)
        what = self.wish.title
        return f"marigold: {what if len(what) <= room else what[: room - 3] + '...'}{part}"

    def _description(self, submission: Submission, price: Price) -> str:
        size, of_all = submission.size, self.plan.size
        of = "" if size == of_all else f"{size:,} partition{'' if size == 1 else 's'} of a launch of {of_all:,}. "
        budget = self.wish.max_failures
        stops = "" if budget is None else f" After more than {budget} failed runs the rest is canceled."
        unbounded = (
            "" if self.wish.unbounded is None else f" On an instance that bounds nothing: {self.wish.unbounded}."
        )
        return (
            f"{of}Price of the launch: {price}. {self.plan.request.order.value}.{stops}{unbounded}"
            f" marigold status {self.launch}"
        )

    def _refuse_other_targets(self, backfill_id: str, submission: Submission) -> None:
        found = dagster_instance.backfill(self.instance, backfill_id)
        wanted = {owner: frozenset(keys) for owner, keys in submission.keys.items()}
        if found is None or found.targets != wanted:
            raise PlanConflictError(
                "Dagster takes other partitions for its target than were planned; it was canceled before it began",
                remedy="reload the code location of the daemon, whose partitions may be others, and plan again",
            )
