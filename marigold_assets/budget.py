"""The failure budget of a launch: whoever watches or not, the attempt that finds it spent stops the rest."""

from __future__ import annotations

from typing import Final

import dagster as dg

from marigold_assets import dagster_instance
from marigold_assets.errors import FailureBudgetError

LAUNCH_TAG: Final = "marigold/launch"
"""Has every backfill, and so every run, that was launched by one command."""
MAX_FAILURES_TAG: Final = "marigold/max_failures"
"""How many runs of a launch may fail before the rest is not worth starting."""

_BACKFILL_TAG = "dagster/backfill"
_WILL_RETRY_TAG = "dagster/will_retry"
_RETRY_ON_FAILURE_TAG = "dagster/retry_on_asset_or_op_failure"


def failed_runs(instance: dg.DagsterInstance, launch: str) -> list[dg.DagsterRun]:
    """The runs of a launch that failed for good: those that Dagster tries again do not count."""
    filters = dg.RunsFilter(tags={LAUNCH_TAG: launch}, statuses=[dg.DagsterRunStatus.FAILURE])
    return [one for one in instance.get_runs(filters=filters) if one.tags.get(_WILL_RETRY_TAG) != "true"]


def refuse_if_spent(instance: dg.DagsterInstance, run: dg.DagsterRun) -> None:
    """Refuse to begin an attempt of a launch whose failure budget is spent, and have Dagster cancel the rest of it.

    What somebody executes again when the backfill is over is none of it any more.

    Raises:
        FailureBudgetError: More runs have failed than may.
    """
    launch, budget = run.tags.get(LAUNCH_TAG), run.tags.get(MAX_FAILURES_TAG)
    if launch is None or budget is None or not budget.isdecimal() or _BACKFILL_TAG not in run.tags:
        return
    filters = dg.RunsFilter(tags={LAUNCH_TAG: launch}, statuses=[dg.DagsterRunStatus.FAILURE])
    if instance.get_runs_count(filters) <= int(budget):  # the usual case, and cheap
        return
    failed = len(failed_runs(instance, launch))
    if failed <= int(budget):
        return
    instance.add_run_tags(run.run_id, {_RETRY_ON_FAILURE_TAG: "false"})
    for one in dagster_instance.backfills(instance, tags={LAUNCH_TAG: launch}, only_active=True):
        dagster_instance.ask_to_cancel(instance, one.backfill_id)
    raise FailureBudgetError(
        f"{failed} runs of launch {launch} have failed, and its failure budget is {budget}: the rest is canceled",
        remedy=f"see why: marigold status {launch}; then launch what is missing",
    )
