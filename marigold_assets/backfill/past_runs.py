"""How long past runs took: from the ledger, which knows when each partition was committed, and the run storage."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from statistics import median
from typing import Final

import dagster as dg

from marigold_assets.location import LocatedAsset
from marigold_assets.planning.history import DEFAULTS
from marigold_assets.planning.model import RunSample

_RUNS_AN_ASSET: Final = 50
_MOST_EVENTS: Final = 5_000


def past_runs(instance: dg.DagsterInstance | None, assets: Iterable[LocatedAsset]) -> list[RunSample]:
    """The newest runs that came through and built partitions of some assets.

    Args:
        instance: Where the runs are; without one nothing is known of them.
        assets: Assets that have a ledger.
    """
    if instance is None:
        return []
    swaps: dict[str, dict[str, tuple[float, ...]]] = {}
    for asset in assets:
        for run_id, times in asset.store.recent_commits(asset.table, _RUNS_AN_ASSET).items():
            swaps.setdefault(run_id, {})[asset.owner] = tuple(_spread(times))
    if not swaps:
        return []
    succeeded = dg.RunsFilter(run_ids=sorted(swaps), statuses=[dg.DagsterRunStatus.SUCCESS])
    records = [one for one in instance.get_run_records(succeeded) if one.start_time and one.end_time]
    created = [one.create_timestamp.timestamp() for one in records]
    launched = left_queue(instance, min(created)) if created else {}
    spans = {one.dagster_run.run_id: (float(one.start_time or 0), float(one.end_time or 0)) for one in records}
    # What a process has run that was there already started at once. Of that nothing is to be learned, so it is said to
    # have started like the others.
    usual = _median([spans[run_id][0] - at for run_id, at in launched.items() if run_id in spans])
    samples = [
        RunSample(
            launched_at=launched.get(run_id, start - usual),
            started_at=start if run_id in launched else None,
            ended_at=end,
            swaps=swaps[run_id],
        )
        for run_id, (start, end) in spans.items()
    ]
    return sorted(samples, key=lambda one: one.ended_at)


def left_queue(instance: dg.DagsterInstance, since: float) -> Mapping[str, float]:
    """When runs left the queue, by run; those that no queue and no launcher has seen never did.

    Args:
        instance: Where.
        since: The Unix time from which on they may have.
    """
    wanted = dg.RunStatusChangeRecordsFilter(event_type=dg.DagsterEventType.RUN_STARTING, after_timestamp=since - 1)
    found = instance.fetch_run_status_changes(wanted, limit=_MOST_EVENTS)
    return {record.run_id: record.timestamp for record in found.records}


def _median(seconds: Sequence[float]) -> float:
    return median(seconds) if seconds else DEFAULTS.run_start.median


def _spread(times: Sequence[float]) -> Iterable[float]:
    """Commit times of partitions, those of one swap spread over the time since the one before.

    Of the first swap only one is left: nobody knows how long each of its partitions took.
    """
    before: float | None = None
    for time, same in groupby(times):
        count = len(list(same))
        if before is None:
            yield time
        else:
            yield from (before + (time - before) * (number + 1) / count for number in range(count))
        before = time
