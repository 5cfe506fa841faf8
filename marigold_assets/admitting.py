"""Which runs are bounded in how many write at once: all that nobody has set to run at a time."""

from __future__ import annotations

import logging

import dagster as dg

from marigold_assets.run_tags import BACKFILL_TAG, RETRY_NUMBER_TAG
from marigold_assets.stores.admission import Lease, admit
from marigold_assets.stores.duckdb import DuckDBStore

_PRODUCTION_TAGS = (
    "dagster/schedule_name",
    "dagster/sensor_name",
    "dagster/auto_materialize",
    "dagster/from_automation_condition",
)
MAX_WRITERS = 4
TIMEOUT_SECONDS = 3600.0


def is_production(run: dg.DagsterRun, instance: dg.DagsterInstance) -> bool:
    """Whether a schedule, a sensor or an automation condition has launched a run, and no backfill.

    Somebody who executes such a run again has launched that one himself, though it inherits the tags; Dagster's own
    retry of it is still production.
    """
    if BACKFILL_TAG in run.tags or not any(tag in run.tags for tag in _PRODUCTION_TAGS):
        return False
    before: dg.DagsterRun | None = run
    while before is not None and before.parent_run_id is not None:
        if RETRY_NUMBER_TAG not in before.tags:
            return False
        before = instance.get_run_by_id(before.parent_run_id)
    return True


def admit_run(
    store: DuckDBStore,
    run: dg.DagsterRun,
    log: dg.DagsterLogManager | None,
    *,
    max_writers: int,
    timeout_seconds: float,
) -> Lease:
    """Wait until a run may write to a database.

    Args:
        store: The database.
        run: The run, which is no production.
        log: Told if the wait lasts.
        max_writers: How many may write at once.
        timeout_seconds: How long to wait.

    Returns:
        Its slot, to be given back when it is done.

    Raises:
        StoreBusyError: It was not its turn until the deadline.
        StoreUnavailableError: The folder of the database does not exist, or cannot be written to.
    """
    say = logging.getLogger("marigold_assets").warning if log is None else log.warning
    return admit(
        store.connector,
        slots=max_writers,
        timeout_seconds=timeout_seconds,
        owner=f"run {run.run_id}",
        say=say,
    )
