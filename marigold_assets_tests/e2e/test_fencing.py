"""Fencing with real run workers and step workers that are paused, overlap, or are there twice."""

from __future__ import annotations

import os
import signal

import dagster as dg
import pytest

pytestmark = pytest.mark.processes

DAY = "2024-01-05"
ROWS = 50


@pytest.mark.parametrize(
    ("job", "step"), [("sales_apart", "sales"), ("sales_together", "sales"), ("self_together", "written_by_itself")]
)
def test_a_paused_step_is_refused_after_another_run_has_finished_its_partition(rig, job, step):
    paused = rig.create(job, DAY)
    rig.hold(step, paused)
    worker = rig.start(paused)
    [process] = rig.await_arrival(step, paused)
    assert (process != worker.pid) == (job == "sales_apart")
    os.kill(process, signal.SIGSTOP)
    winner = rig.run("self_together" if job == "self_together" else "sales_together", DAY)
    assert rig.succeeded(winner)
    before = rig.everything()
    rig.release(step, process)
    os.kill(process, signal.SIGCONT)
    worker.wait()
    rig.assert_fenced_out(paused, by=winner, step=step)
    assert rig.everything() == before
    assert rig.writers(step, DAY) == [(winner, ROWS)]
    assert rig.status(paused) == dg.DagsterRunStatus.FAILURE


@pytest.mark.parametrize("first_to_write", ["older", "newer"])
def test_of_two_overlapping_runs_of_a_partition_the_newer_one_stays(rig, first_to_write):
    older, newer = (rig.create("sales_together", DAY) for _ in range(2))
    workers = []
    for run in (older, newer):
        rig.hold("sales", run)
        workers.append(rig.start(run))
        rig.await_arrival("sales", run)
    for worker in workers if first_to_write == "older" else reversed(workers):
        rig.release("sales", worker.pid)
        worker.wait()
    rig.assert_fenced_out(older, by=newer, step="sales")
    assert rig.succeeded(newer)
    assert rig.writers("sales", DAY) == [(newer, ROWS)]
    assert [entry.run_id for entry in rig.store.ledger()] == [newer]


def test_two_runs_started_at_the_same_moment_leave_the_rows_of_one_of_them(rig):
    runs = [rig.create("sales_together", DAY) for _ in range(2)]
    for worker in [rig.start(run) for run in runs]:
        worker.wait()
    [head] = rig.store.heads(rig.table("sales")).values()
    assert rig.writers("sales", DAY) == [(head.run_id, ROWS)]
    assert rig.succeeded(head.run_id)
    [other] = set(runs) - {head.run_id}
    if not rig.succeeded(other):  # it may also have been over before the winner drew its token
        rig.assert_fenced_out(other, by=head.run_id, step="sales")


@pytest.mark.parametrize("first_to_write", [0, 1])
@pytest.mark.parametrize("step", ["sales", "written_by_itself"])
def test_one_run_id_in_two_processes_writes_once(rig, step, first_to_write):
    run = rig.create("sales_together" if step == "sales" else "self_together", DAY)
    rig.hold(step, run)
    twins = []
    for number in (1, 2):  # the second starts while the first waits
        twins.append(rig.start_step(run, step))
        rig.await_arrival(step, run, processes=number)
    winner, loser = twins[first_to_write], twins[1 - first_to_write]
    rig.release(step, winner.pid)
    winner.wait()
    before = rig.everything()
    assert len(rig.materializations(run)) == 1
    rig.release(step, loser.pid)
    loser.wait()
    assert rig.everything() == before
    assert rig.query(f"SELECT pid, count(*) FROM shop.{step} GROUP BY ALL") == [(winner.pid, ROWS)]
    assert len(rig.materializations(run)) == 1
    rig.assert_fenced_out(run, by=run, step=step)


def test_a_step_that_its_run_has_given_up_is_refused_beside_its_own_retry(rig):
    run = rig.create("sales_together", DAY)
    rig.hold("sales", run)
    given_up = rig.start_step(run, "sales")
    rig.await_arrival("sales", run)
    retry = rig.start_step(run, "sales", retry=1)
    rig.await_arrival("sales", run, processes=2)
    rig.release("sales", retry.pid)
    retry.wait()
    before = rig.everything()
    rig.release("sales", given_up.pid)
    given_up.wait()
    assert rig.everything() == before
    assert rig.query("SELECT pid, count(*) FROM shop.sales GROUP BY ALL") == [(retry.pid, ROWS)]
    rig.assert_fenced_out(run, by=run, step="sales")


def test_different_partitions_never_fence_each_other(rig):
    days = [f"2024-01-0{number}" for number in range(1, 9)]
    runs = [rig.create("sales_together", day) for day in days]
    for run in runs:
        rig.hold("sales", run)
    workers = [rig.start(run) for run in runs]
    for run, worker in zip(runs, workers, strict=True):  # all at once, after all have drawn their tokens
        rig.await_arrival("sales", run)
        rig.release("sales", worker.pid)
    for worker in workers:
        worker.wait()
    assert all(map(rig.succeeded, runs))
    assert [rig.writers("sales", day) for day in days] == [[(run, ROWS)] for run in runs]


def test_cells_of_one_day_never_fence_each_other_but_runs_of_one_cell_do(rig):
    north, south, north_again = (
        rig.create(
            "cells_together", f"{DAY}|{shop}", tags={"dagster/partition/day": DAY, "dagster/partition/shop": shop}
        )
        for shop in ("north", "south", "north")
    )
    workers = []
    for run in (north, south, north_again):
        rig.hold("cells", run)
        workers.append(rig.start(run))
        rig.await_arrival("cells", run)
    for worker in reversed(workers):
        rig.release("cells", worker.pid)
        worker.wait()
    assert rig.succeeded(south)
    assert rig.succeeded(north_again)
    rig.assert_fenced_out(north, by=north_again, step="cells")
    assert rig.writers("cells", DAY) == sorted([(north_again, ROWS), (south, ROWS)])


def test_steps_of_one_run_never_fence_each_other_out(rig):
    run = rig.create("chain_apart", DAY)
    rig.hold("left", run)
    worker = rig.start(run)
    [left] = rig.await_arrival("left", run)
    # The sibling starts later and is finished earlier.
    rig.wait_for_materialization(run, "right")
    rig.release("left", left)
    worker.wait()
    assert rig.succeeded(run)
    assert rig.writers("left", DAY) == rig.writers("right", DAY) == [(run, ROWS)]


def test_a_table_without_partitions_is_written_by_the_runs_of_many_days(rig):
    older, newer = (rig.create("chain_together", day) for day in ("2024-01-01", "2024-01-02"))
    rig.hold("raw", older)
    worker = rig.start(older)
    rig.await_arrival("raw", older)
    other = rig.start(newer)
    other.wait()
    rig.release("raw", worker.pid)
    worker.wait()
    # The older run has written the table last, and has read it last.
    assert rig.succeeded(newer)
    assert rig.succeeded(older)
    assert rig.query("SELECT count(*), sum(n) FROM shop.total") == [(2, 2 * ROWS)]


def test_a_table_without_partitions_is_not_taken_back_to_what_it_was(rig):
    older, newer = (rig.create("chain_together", day) for day in ("2024-01-01", "2024-01-02"))
    rig.hold("total", older)  # it has read the first day only
    worker = rig.start(older)
    rig.await_arrival("total", older)
    rig.start(newer).wait()
    rig.release("total", worker.pid)
    worker.wait()
    assert rig.succeeded(newer)
    rig.assert_fenced_out(older, by=newer, step="total")
    assert rig.query("SELECT count(*), sum(n) FROM shop.total") == [(2, 2 * ROWS)]


def test_range_runs_fence_each_other_where_they_overlap_and_only_there(rig):
    first = rig.create("sales_together", ("2024-01-01", "2024-01-05"))
    beside = rig.create("sales_together", ("2024-01-06", "2024-01-09"))
    across = rig.create("sales_together", ("2024-01-04", "2024-01-05"))
    workers = []
    for run in (first, beside, across):
        rig.hold("sales", run)
        workers.append(rig.start(run))
        rig.await_arrival("sales", run)
    for worker in reversed(workers):
        rig.release("sales", worker.pid)
        worker.wait()
    assert rig.succeeded(beside)
    assert rig.succeeded(across)
    rig.assert_fenced_out(first, by=across, step="sales")
    written = {entry.partition_key: entry.run_id for entry in rig.store.ledger()}
    assert written == {
        **dict.fromkeys(("2024-01-04", "2024-01-05"), across),
        **dict.fromkeys((f"2024-01-0{day}" for day in range(6, 10)), beside),
    }
    assert len(rig.materializations(across)) == 2


def test_a_run_of_one_day_and_a_range_run_over_it_fence_each_other(rig):
    day = rig.create("sales_together", DAY)
    rig.hold("sales", day)
    worker = rig.start(day)
    rig.await_arrival("sales", day)
    over_it = rig.run("sales_together", ("2024-01-04", "2024-01-06"))
    assert rig.succeeded(over_it)
    rig.release("sales", worker.pid)
    worker.wait()
    rig.assert_fenced_out(day, by=over_it, step="sales")
    assert rig.writers("sales", DAY) == [(over_it, ROWS)]


def test_a_run_that_only_checks_or_makes_another_asset_fences_nobody_out(rig):
    run = rig.create("chain_together", DAY, assets=["raw"])
    rig.hold("raw", run)
    worker = rig.start(run)
    rig.await_arrival("raw", run)
    checks = rig.run("check_together", DAY)
    other = rig.run("sales_together", DAY)
    assert rig.succeeded(checks)
    assert rig.succeeded(other)
    rig.release("raw", worker.pid)
    worker.wait()
    assert rig.succeeded(run)


def test_what_a_fenced_out_run_is_tagged_with_does_not_stick_to_its_re_execution(rig):
    older = rig.create("sales_together", DAY)
    rig.hold("sales", older)
    worker = rig.start(older)
    rig.await_arrival("sales", older)
    newer = rig.run("sales_together", DAY)
    rig.release("sales", worker.pid)
    worker.wait()
    rig.assert_fenced_out(older, by=newer, step="sales")
    # By hand, as the user interface does it: tags are inherited.
    inherited = {key: value for key, value in rig.tags(older).items() if not key.startswith("dagster/will_retry")}
    again = rig.run("sales_together", DAY, tags=inherited, parent_run_id=older, root_run_id=older)
    assert rig.succeeded(again)
    assert rig.tags(again)["marigold/fenced_out_by"] == "nobody"
    assert rig.tags(again)["dagster/retry_on_asset_or_op_failure"] == "true"  # as the instance says
    assert rig.writers("sales", DAY) == [(again, ROWS)]
