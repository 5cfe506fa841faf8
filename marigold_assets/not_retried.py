"""A run that is refused before it has begun is not retried by the instance: it would be refused again, or come late.

Dagster asks how a run has failed before it retries it, and takes what is raised while resources are set up for no
failure of a step, so that ``dagster/retry_on_asset_or_op_failure`` does not hold there. ``dagster/max_retries`` does.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import dagster as dg

from marigold_assets.run_tags import MAX_RETRIES_TAG

REFUSED_TAG: Final = "marigold/refused"
"""The run that was refused at its start, and which ``dagster/max_retries`` it had before, if any."""


@contextmanager
def not_retried(instance: dg.DagsterInstance, run: dg.DagsterRun) -> Iterator[None]:
    """Have the instance not retry a run at whose start something is raised that allows no retry."""
    try:
        yield
    except dg.Failure as error:
        if not error.allow_retries:
            said = f"{run.run_id} {_before(run)}".strip()
            instance.add_run_tags(run.run_id, {MAX_RETRIES_TAG: "0", REFUSED_TAG: said})
        raise


def allow_again(instance: dg.DagsterInstance, run: dg.DagsterRun) -> None:
    """Take back what :func:`not_retried` said of the run that this one re-executes by hand: tags are inherited."""
    if run.tags.get(REFUSED_TAG, run.run_id).partition(" ")[0] != run.run_id:
        instance.add_run_tags(run.run_id, {MAX_RETRIES_TAG: _before(run) or str(instance.run_retries_max_retries)})


def _before(run: dg.DagsterRun) -> str:
    """How often somebody has said that a run may be retried; blank: nobody has."""
    said = run.tags.get(REFUSED_TAG)
    return run.tags.get(MAX_RETRIES_TAG, "") if said is None else said.partition(" ")[2]
