"""The failure budget of a launch: whoever watches or not, the attempt that finds it spent stops the rest."""

from __future__ import annotations

from typing import Final

import dagster as dg

from marigold_assets import dagster_instance
from marigold_assets.errors import FailureBudgetError
from marigold_assets.run_tags import BACKFILL_TAG, PARENT_BACKFILL_TAG, RETRY_NUMBER_TAG, WILL_RETRY_TAG

LAUNCH_TAG: Final = "marigold/launch"
"""Has every backfill, and so every run, that was launched by one command."""
MAX_FAILURES_TAG: Final = "marigold/max_failures"
"""How many runs of a launch may fail before the rest is not worth starting."""


def is_of_launch(run: dg.DagsterRun) -> bool:
    """Whether a run that has the tags of a launch is part of it.

    Runs of its backfills are, and their retries, which lose the tag of a backfill that has ended or was canceled. What
    somebody executes again by hand is not, a run or a backfill: only its tags are inherited.
    """
    if PARENT_BACKFILL_TAG in run.tags:
        return False
    return BACKFILL_TAG in run.tags or RETRY_NUMBER_TAG in run.tags


def failed_runs(instance: dg.DagsterInstance, launch: str) -> list[dg.DagsterRun]:
    """The runs of a launch that failed for good: those that Dagster tries again do not count."""
    filters = dg.RunsFilter(tags={LAUNCH_TAG: launch}, statuses=[dg.DagsterRunStatus.FAILURE])
    failed = instance.get_runs(filters=filters)
    return [one for one in failed if one.tags.get(WILL_RETRY_TAG) != "true" and is_of_launch(one)]


def refuse_if_spent(instance: dg.DagsterInstance, run: dg.DagsterRun) -> None:
    """Refuse to begin an attempt of a launch whose failure budget is spent, and have Dagster cancel the rest of it.

    What somebody executes again by hand when the backfill is over is none of it any more. A run that is refused is not
    retried (see :mod:`marigold_assets.not_retried`).

    Raises:
        FailureBudgetError: More runs have failed than may.
    """
    launch, budget = run.tags.get(LAUNCH_TAG), run.tags.get(MAX_FAILURES_TAG)
    if launch is None or budget is None or not budget.isdecimal() or not is_of_launch(run):
        return
    filters = dg.RunsFilter(tags={LAUNCH_TAG: launch}, statuses=[dg.DagsterRunStatus.FAILURE])
    if instance.get_runs_count(filters) <= int(budget):  # the usual case, and cheap
        return
    failed = len(failed_runs(instance, launch))
    if failed <= int(budget):
        return
    for one in dagster_instance.backfills(instance, tags={LAUNCH_TAG: launch}, only_active=True):
        dagster_instance.ask_to_cancel(instance, one.backfill_id)
    raise FailureBudgetError(
        f"{failed} runs of launch {launch} have failed, and its failure budget is {budget}: the rest is canceled",
        remedy=f"see why: marigold status {launch}; then launch what is missing",
    )
