"""The code location of the test that nothing is caught up: what it says is read from a file when it is loaded."""

# No `from __future__ import annotations` here: Dagster compares the annotation of `context` with its classes.

import json
import os
from datetime import timedelta
from pathlib import Path

import dagster as dg

from marigold_assets import build_latest_interval_schedule, latest_interval_condition

GIVEN = json.loads(Path(os.environ["MARIGOLD_E2E_ROOM"], "latest.json").read_text(encoding="utf-8"))
INTERVALS = dg.TimeWindowPartitionsDefinition(
    start=GIVEN["start"], cron_schedule=GIVEN["cron"], fmt="%Y-%m-%d-%H:%M", timezone="UTC"
)


def idle(name: str, **options: object) -> dg.AssetsDefinition:
    """An asset that writes nothing."""

    @dg.asset(name=name, partitions_def=INTERVALS, **options)
    def made() -> None: ...

    return made


def schedule_of(asset: dg.AssetsDefinition, minutes: int) -> dg.ScheduleDefinition:
    """A schedule with a grace of so many minutes."""
    return build_latest_interval_schedule(
        name=f"of_{asset.key.path[-1]}",
        target=[asset],
        grace=timedelta(minutes=minutes),
        cron_schedule=GIVEN["schedules"][asset.key.path[-1]],
        default_status=dg.DefaultScheduleStatus.STOPPED,
    )


on, paused, late = map(idle, ("on", "paused", "late"))
conditioned = idle(
    "conditioned", automation_condition=latest_interval_condition(INTERVALS, grace=timedelta(minutes=50))
)

defs = dg.Definitions(
    assets=[on, paused, late, conditioned],
    schedules=[schedule_of(on, 50), schedule_of(paused, 50), schedule_of(late, 1)],
    sensors=[
        dg.AutomationConditionSensorDefinition(
            "conditions",
            target=[conditioned],
            default_status=dg.DefaultSensorStatus.RUNNING,
            minimum_interval_seconds=1,
        )
    ],
    executor=dg.in_process_executor,
)
