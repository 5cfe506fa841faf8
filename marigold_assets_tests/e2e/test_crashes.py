"""Run workers and steps that die at any moment: the next try needs no cleaning, and says what happened once."""

from __future__ import annotations

import os
import random
import time

import dagster as dg
import pytest

pytestmark = [pytest.mark.processes]

DAY = "2024-01-05"
ROWS = 50
KILLS = 100 if os.environ.get("MARIGOLD_STRESS") else 8


def test_a_step_that_dies_between_commit_and_event_is_tried_again_in_its_run(rig):
    run = rig.create("sales_apart", DAY)
    rig.die_after_commit("sales", run)
    rig.start(run).wait()
    assert rig.succeeded(run)
    assert len(rig.events(run, dg.DagsterEventType.STEP_UP_FOR_RETRY)) == 1
    assert_said_once(rig, run)
    # The first try has committed as well, and the ledger keeps it.
    assert [entry.row_count for entry in rig.store.ledger()] == [ROWS, ROWS]


def test_a_worker_that_dies_between_commit_and_event_is_made_good_by_a_retry_from_failure(rig):
    run = rig.create("sales_together", DAY)
    rig.die_after_commit("sales", run)
    rig.start(run).wait()
    assert rig.materializations(run) == {}
    assert rig.writers("sales", DAY) == [(run, ROWS)]
    rig.instance.report_run_failed(rig.instance.get_run_by_id(run))  # as run monitoring does
    retry = rig.run("sales_together", DAY, parent_run_id=run, root_run_id=run)
    assert rig.succeeded(retry)
    assert_said_once(rig, retry)


def test_a_worker_killed_at_any_moment_leaves_a_partition_of_one_piece(rig):
    luck = random.Random(20240105)
    last = rig.run("sales_together", DAY)
    started = time.monotonic()
    rig.run("sales_together", DAY)
    seconds = time.monotonic() - started
    for _ in range(KILLS):
        run = rig.create("sales_together", DAY)
        worker = rig.start(run)
        time.sleep(luck.uniform(0.0, seconds))  # any moment will do: what is true afterwards is always the same
        worker.kill_group()
        worker.wait()
        last = rig.store.heads(rig.table("sales"))[DAY].run_id
        assert rig.writers("sales", DAY) == [(last, ROWS)]
        assert len(rig.materializations(run)) <= (last == run)
    retry = rig.run("sales_together", DAY)
    assert rig.succeeded(retry)
    assert_said_once(rig, retry)


def assert_said_once(rig, run):
    """The partition holds one copy, from this run, and one event says so."""
    assert rig.writers("sales", DAY) == [(run, ROWS)]
    [(partition, said)] = rig.materializations(run).items()
    head = rig.store.heads(rig.table("sales"))[DAY]
    assert partition == DAY
    assert said.metadata["dagster/partition_row_count"].value == ROWS
    assert said.tags["dagster/data_version"] == head.content_hash
    assert said.tags["dagster/code_version"] == "1"
