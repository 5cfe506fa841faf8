"""The code location of the test of the queue: runs whose only work is to be counted, and that start quickly."""

# No `from __future__ import annotations` here: Dagster compares the annotation of `context` with its classes.

import os
import time
from pathlib import Path

import dagster as dg

ROOM = Path(os.environ["MARIGOLD_E2E_ROOM"])
PATIENCE_SECONDS = 600.0
DAYS = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-03-01")


@dg.asset(partitions_def=DAYS)
def spare(context: dg.AssetExecutionContext) -> None:
    """Writes nothing, and waits while the test holds runs that have one of its tags."""
    (ROOM / f"arrived@spare@{context.run.run_id}@{os.getpid()}").touch()
    deadline = time.monotonic() + PATIENCE_SECONDS
    while any((ROOM / f"hold@{tag.rpartition('/')[2]}").exists() for tag in context.run.tags):
        if time.monotonic() > deadline:
            raise TimeoutError
        time.sleep(0.01)


defs = dg.Definitions(
    assets=[spare],
    jobs=[dg.define_asset_job("spare_together", selection=[spare])],
    executor=dg.in_process_executor,
)
