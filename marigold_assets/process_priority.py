"""Backfills leave the processor to production: on the same machine, what a schedule starts is not to wait for them."""

from __future__ import annotations

import os
from typing import Final

import dagster as dg

from marigold_assets.run_tags import BACKFILL_TAG

NICENESS: Final = 5
"""Of a processor that both want, a backfill gets a quarter. Not less: it may hold the database's lock just then."""


def leave_processor_to_production(run: dg.DagsterRun) -> None:
    """Lower the priority of this process if it carries out a run of a backfill, and nothing else.

    That is a process which Dagster has started for the run, as a run knows that came out of a queue. One that executes
    an asset itself, such as a test, keeps its priority: it could not take it back. Nor can a worker that lasts longer
    than a run, such as one of Celery, which then carries out production with this priority, too.
    """
    if BACKFILL_TAG not in run.tags or run.remote_job_origin is None or not hasattr(os, "setpriority"):
        return
    if os.getpriority(os.PRIO_PROCESS, 0) < NICENESS:
        os.setpriority(os.PRIO_PROCESS, 0, NICENESS)
