"""A launch is canceled: no run of it starts any more, and what was begun ends with whole partitions."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import dagster as dg

from marigold_assets import dagster_instance
from marigold_assets.backfill.launch_runs import LaunchRuns
from marigold_assets.dagster_instance import Backfill

_LOOK_EVERY_SECONDS = 0.5
_TELL_AGAIN_SECONDS = 45.0  # a run that is told twice while it ends may not end in order
UNFINISHED = (
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
)
_PAGE = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Canceled:
    """How far canceling has come.

    Attributes:
        backfills: The backfills, as they stand.
        unfinished: Runs that have not ended.
        ended: How many runs were taken out of the queue or told to stop.
        seconds: How long it took.
    """

    backfills: tuple[Backfill, ...]
    unfinished: tuple[str, ...]
    ended: int
    seconds: float

    @property
    def is_over(self) -> bool:
        """Whether no run is left, and none can come: only the daemon's own word tells that of a backfill."""
        return not self.unfinished and not any(one.is_active for one in self.backfills)


def cancel(
    instance: dg.DagsterInstance,
    backfill_ids: Sequence[str],
    *,
    timeout_seconds: float,
) -> Canceled:
    """Cancel backfills, and wait until no run of them is left and none can start.

    Their runs are ended here, the queued ones first: the daemon would only look after up to half a minute, and start
    some until then. It may be launching runs at that very moment, which are ended as they appear.

    Args:
        instance: Where.
        backfill_ids: Which.
        timeout_seconds: How long to wait; what was asked for goes on afterwards.
    """
    begun = time.monotonic()
    told: dict[str, float] = {}
    while True:
        for backfill_id in backfill_ids:
            dagster_instance.ask_to_cancel(instance, backfill_id)  # again where the daemon has overwritten it
        _end_runs(instance, unfinished_runs(instance, backfill_ids), told)
        found = [dagster_instance.backfill(instance, one) for one in backfill_ids]
        now = Canceled(
            backfills=tuple(one for one in found if one is not None),
            unfinished=tuple(run.run_id for run in unfinished_runs(instance, backfill_ids)),
            ended=len(told),
            seconds=time.monotonic() - begun,
        )
        if now.is_over or now.seconds > timeout_seconds:
            return now
        time.sleep(_LOOK_EVERY_SECONDS)


def _end_runs(instance: dg.DagsterInstance, runs: Sequence[dg.DagsterRun], told: dict[str, float]) -> None:
    """End runs, the queued ones first.

    One that is just being started may not hear it, and is told again after a while. One that had ended by itself at
    the very moment has no process any more to say so.
    """
    for run in sorted(runs, key=lambda run: run.status is not dg.DagsterRunStatus.QUEUED):
        now = time.monotonic()
        if now - told.get(run.run_id, -_TELL_AGAIN_SECONDS) > _TELL_AGAIN_SECONDS:
            was_told = dagster_instance.end_run(instance, run.run_id)
            if was_told is False and run.run_id in told:
                dagster_instance.call_canceled(instance, run.run_id)
            told[run.run_id] = now


def unfinished_runs(instance: dg.DagsterInstance, backfill_ids: Sequence[str]) -> list[dg.DagsterRun]:
    """The runs of backfills that have not ended, their late retries among them."""
    return LaunchRuns(instance, backfill_ids).some(*UNFINISHED, most=_PAGE)
