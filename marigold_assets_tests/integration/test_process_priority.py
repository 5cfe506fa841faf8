"""On a machine that they share, backfills leave the processor to production."""

from __future__ import annotations

import multiprocessing
import os

import dagster as dg
import pytest
from dagster._core.remote_origin import (
    InProcessCodeLocationOrigin,
    RemoteJobOrigin,
    RemoteRepositoryOrigin,
)
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin

from marigold_assets.process_priority import NICENESS, leave_processor_to_production


def niceness_in(tags, *, is_launched, answers):
    """What this process has for a niceness once it carries out a run."""
    where = InProcessCodeLocationOrigin(LoadableTargetOrigin(executable_path="python", module_name="shop"))
    origin = RemoteJobOrigin(RemoteRepositoryOrigin(where, "__repository__"), "__ASSET_JOB")
    run = dg.DagsterRun(job_name="__ASSET_JOB", tags=tags, remote_job_origin=origin if is_launched else None)
    for _ in range(2):  # of two resources
        leave_processor_to_production(run)
    answers.put(os.getpriority(os.PRIO_PROCESS, 0))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tags", "is_launched", "more"),
    [
        ({"dagster/backfill": "abcdefgh"}, True, NICENESS),
        ({"dagster/backfill": "abcdefgh"}, False, 0),
        ({"dagster/schedule_name": "nightly"}, True, 0),
        ({"dagster/partition": "2024-01-01"}, True, 0),
    ],
)
def test_only_a_process_that_dagster_started_for_a_run_of_a_backfill_steps_back(tags, is_launched, more):
    context = multiprocessing.get_context("spawn")
    answers = context.SimpleQueue()
    child = context.Process(target=niceness_in, args=(tags,), kwargs={"is_launched": is_launched, "answers": answers})
    child.start()
    child.join(60)
    assert child.exitcode == 0
    assert answers.get() == max(os.getpriority(os.PRIO_PROCESS, 0), more)
