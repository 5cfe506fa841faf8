"""Zombies beside automatic retries: a real daemon, real run workers, and SIGKILL."""

from __future__ import annotations

import os
import signal

import dagster as dg
import psutil
import pytest
from dagster._daemon.auto_run_reexecution.event_log_consumer import _create_cursor_key

pytestmark = [pytest.mark.processes, pytest.mark.daemon]

DAY = "2024-01-05"
ROWS = 50


def test_a_step_that_outlives_its_killed_worker_is_refused_beside_the_automatic_retry(rig, helpers):
    rig.start_daemon()
    with rig.user_interface() as launch:
        wanted = helpers.plain_run("sales_apart", DAY, e2e_hold="sales")
        run = launch(helpers.LAUNCH_RUN, executionParams=wanted)["run"]["runId"]
    [zombie] = rig.await_arrival("sales", run)
    worker = psutil.Process(zombie).parent()
    assert "multiprocessing" in " ".join(worker.cmdline()) or "api" in worker.cmdline()
    os.kill(worker.pid, signal.SIGKILL)

    # The daemon notices and tries again, while the step lives on.
    retry = helpers.wait_for(lambda: rig.retry_of(run), f"the retry of {run}\n{rig.logs()}")
    helpers.wait_for(lambda: rig.instance.get_run_by_id(retry).is_finished, f"run {retry} to end")
    assert rig.succeeded(retry)
    assert rig.status(run) == dg.DagsterRunStatus.FAILURE
    assert helpers.is_alive(zombie)
    before = rig.everything()
    rig.release("sales", zombie)
    helpers.wait_for(lambda: not helpers.is_alive(zombie), "the zombie to end")

    assert rig.everything() == before
    assert rig.writers("sales", DAY) == [(retry, ROWS)]
    assert len(rig.materializations(retry)) == 1
    rig.assert_fenced_out(run, by=retry, step="sales", was_retried=True)

    # Now two that fence each other: an older run that another one has overtaken is not tried again, so there is
    # nobody to overtake the newer one in turn.
    older = rig.create("sales_together", DAY)
    rig.hold("sales", older)
    process = rig.start(older)
    rig.await_arrival("sales", older)
    newer = rig.run("sales_together", DAY)
    rig.release("sales", process.pid)
    process.wait()
    rig.assert_fenced_out(older, by=newer, step="sales")
    [failure] = rig.instance.all_logs(older, of_type=dg.DagsterEventType.RUN_FAILURE)
    helpers.wait_for(lambda: _daemon_has_seen(rig, older), f"the daemon to see the failure {failure}")
    assert rig.retry_of(older) is None
    assert rig.succeeded(newer)
    assert {found.run_id for found in rig.instance.get_runs()} == {run, retry, older, newer}


def _daemon_has_seen(rig, run_id):
    key = _create_cursor_key(dg.DagsterEventType.RUN_FAILURE)
    cursor = rig.instance.daemon_cursor_storage.get_cursor_values({key}).get(key)
    [record] = rig.instance.get_records_for_run(run_id, of_type=dg.DagsterEventType.RUN_FAILURE).records
    return cursor is not None and int(cursor) >= record.storage_id
