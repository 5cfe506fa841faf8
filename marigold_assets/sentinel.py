"""A job whose runs do nothing, so that ``marigold doctor --prove`` can watch what bounds runs, and harm nobody."""

from __future__ import annotations

import time
from typing import Final

import dagster as dg

DEFAULT_NAME: Final = "marigold_sentinel"
MOST: Final = 64
SENTINEL_TAG: Final = "marigold/sentinel"
"""Has the backfill that the doctor launches, and so all of its runs."""
DONE_TAG: Final = "marigold/sentinel_done"
WATCHED_TAG: Final = "marigold/sentinel_watched"
PATIENCE_SECONDS: Final = 30.0
_POLL_SECONDS: Final = 0.5


def build_sentinel_job(name: str = DEFAULT_NAME) -> dg.JobDefinition:
    """A job with partitions whose runs only sleep until they are told that they have been seen.

    ``marigold doctor --prove`` launches a backfill of it, and watches whether the limits of the instance hold. It reads
    and writes nothing, and its runs end by themselves half a minute after nobody watches them any more.

    Args:
        name: The name of the job.

    Examples:
        .. code-block:: python

            defs = dg.Definitions(assets=[...], jobs=[build_sentinel_job()])
    """
    # Without outputs, or the IO manager of the definitions would be set up for it; Dagster takes no annotation there.
    sleeps = dg.op(name=f"{name}_sleeps", out={})(lambda context: _sleep(context))  # noqa: PLW0108

    @dg.job(
        name=name,
        description="Does nothing: 'marigold doctor --prove' watches how many of its runs run at once.",
        partitions_def=dg.StaticPartitionsDefinition([f"{number:02d}" for number in range(1, MOST + 1)]),
        executor_def=dg.in_process_executor,
        tags={"dagster/max_retries": "0"},
    )
    def sentinel() -> None:
        sleeps()

    return sentinel


def _sleep(context: dg.OpExecutionContext) -> None:
    deadline, watched = time.monotonic() + PATIENCE_SECONDS, None
    while time.monotonic() < deadline:
        run = context.instance.get_run_by_id(context.run_id)
        if run is None or DONE_TAG in run.tags:
            return
        # Whoever watches changes this again and again; if he was killed, he does so no longer.
        if run.tags.get(WATCHED_TAG) != watched:
            deadline, watched = time.monotonic() + PATIENCE_SECONDS, run.tags[WATCHED_TAG]
        time.sleep(_POLL_SECONDS)
