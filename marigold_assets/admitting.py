"""Which runs are bounded in how many write at once: all that nobody has set to run at a time."""

from __future__ import annotations

import logging

import dagster as dg

from marigold_assets.stores.admission import Lease, admit
from marigold_assets.stores.duckdb import DuckDBStore

_BACKFILL_TAG = "dagster/backfill"
_PRODUCTION_TAGS = (
    "dagster/schedule_name",
    "dagster/sensor_name",
    "dagster/auto_materialize",
    "dagster/from_automation_condition",
)
MAX_WRITERS = 4
TIMEOUT_SECONDS = 3600.0


def is_production(run: dg.DagsterRun) -> bool:
    """Whether a schedule, a sensor or an automation condition has launched a run, and no backfill."""
    return _BACKFILL_TAG not in run.tags and any(tag in run.tags for tag in _PRODUCTION_TAGS)


def admit_run(
    store: DuckDBStore,
    run: dg.DagsterRun,
    log: dg.DagsterLogManager | None,
    *,
    max_writers: int | None,
    timeout_seconds: float,
) -> Lease | None:
    """Wait until a run may write to a database.

    Returns:
        Its slot, to be given back when it is done; ``None`` for production, which passes at once, and without a bound.

    Raises:
        StoreBusyError: It was not its turn until the deadline.
        StoreUnavailableError: The folder of the database does not exist, or cannot be written to.
    """
    if max_writers is None or is_production(run):
        return None
    say = logging.getLogger("marigold_assets").warning if log is None else log.warning
    return admit(
        store.connector,
        slots=max_writers,
        timeout_seconds=timeout_seconds,
        owner=f"run {run.run_id}",
        say=say,
    )
