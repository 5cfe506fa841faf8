"""Chains and ranges of days under a real daemon with the project's own dagster.yaml, and workers that are killed."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.execution.backfill import BulkActionStatus

pytestmark = [pytest.mark.processes, pytest.mark.daemon, pytest.mark.timeout(900)]
# Each of these needs a backfill or several, and runs of sixty days: all of them take many minutes.
by_hand = pytest.mark.skipif("MARIGOLD_STRESS" not in os.environ, reason="by hand: MARIGOLD_STRESS=1")

SETTINGS = (Path(__file__).parents[2] / "dagster.yaml").read_text(encoding="utf-8")
LOCATION = Path(__file__).with_name("chain_location.py")
KEYS = [*(f"2024-01-{number:02d}" for number in range(1, 32)), *(f"2024-02-{number:02d}" for number in range(1, 30))]
KILLS = 10 if os.environ.get("MARIGOLD_STRESS") else 2
SEED = int(os.environ.get("MARIGOLD_SEED", "20240229"))


@pytest.fixture(scope="module")
def shop(zygote, helpers):
    """An instance with a daemon, and the root of the chains built. All tests share it: each has an asset of its own."""
    with helpers.new_room() as room:
        rig = helpers.Rig(zygote, room, SETTINGS, shutil.copy(LOCATION, room / LOCATION.name))
        try:
            yield Shop(rig, helpers)
        finally:
            rig.close()


def tagged(tags):
    return [{"key": key, "value": value} for key, value in tags.items()]


class Shop:
    """What the tests of chains ask of an instance."""

    def __init__(self, rig, helpers):
        self.rig, self.helpers = rig, helpers
        self.range_run("orders")
        for twin in ("whole", "sql_whole"):
            self.range_run(twin)
        self.rig.start_daemon()

    def range_run(self, asset):
        """Build all of an asset in one run that nobody disturbs."""
        run = self.rig.run(f"{asset}_together", (KEYS[0], KEYS[-1]))
        assert self.rig.succeeded(run), self.rig.logs()

    def backfill(self, launch, asset, keys=KEYS, **tags):
        params = {"assetSelection": [{"path": [asset]}], "partitionNames": list(keys), "tags": tagged(tags)}
        return launch(self.helpers.LAUNCH_BACKFILL, backfillParams=params)["backfillId"]

    def ledger(self, asset):
        return self.rig.store.ledger(self.rig.table(asset))

    def keys_called(self, asset):
        """The days that an asset's function was called for."""
        return [day for day, _, _ in self.rig.calls(asset)]

    def reexecute(self, launch, run_id, strategy="FROM_FAILURE"):
        """Re-execute a run to its end, as the buttons of its page do."""
        params = {"parentRunId": run_id, "strategy": strategy}
        run = launch(self.helpers.REEXECUTE, reexecutionParams=params)["run"]["runId"]
        self.rig.await_end(run)
        return run

    def events(self, asset):
        """All materializations of an asset, the oldest first, by day."""
        wanted = dg.AssetRecordsFilter(asset_key=dg.AssetKey(asset))
        records = self.rig.instance.fetch_materializations(wanted, limit=10_000, ascending=True).records
        found = {}
        for record in records:
            found.setdefault(record.partition_key, []).append(record.asset_materialization)
        return found

    def rows(self, asset, until="9999-12-31"):
        return self.rig.query(
            f"SELECT day::DATE, product, cents FROM shop.{asset} WHERE day <= DATE '{until}' ORDER BY ALL"
        )

    def assert_like(self, asset, twin="whole", keys=KEYS):
        """The content is that of a chain that nobody disturbed, and ledger and events say so once."""
        heads, wanted = (self.rig.store.heads(self.rig.table(name)) for name in (asset, twin))
        assert sorted(heads) == list(keys)
        assert self.rows(asset) == self.rows(twin, until=keys[-1])
        assert {key: head.content_hash for key, head in heads.items()} == {
            key: wanted[key].content_hash for key in keys
        }
        events = self.events(asset)
        assert sorted(events) == list(keys)
        for key, said in events.items():
            head = heads[key]
            for event in said:
                assert event.metadata["dagster/partition_row_count"].value == head.row_count
                assert event.tags["dagster/data_version"] == head.content_hash
            assert said[-1].tags["marigold/swap_id"] == head.swap_id

    def assert_swapped_once(self, asset, keys=KEYS):
        assert [entry.partition_key for entry in self.ledger(asset)] == list(keys)


def test_a_chain_whose_worker_is_killed_at_any_key_continues_there_and_ends_well(shop):
    luck = random.Random(SEED)
    killed = {}
    for number in range(KILLS):
        # In turn: within the function, between commit and event, and at any moment after the function was called.
        place, what = [("function", "kill worker"), ("commit", "kill worker"), ("function", None)][number % 3]
        what = what or f"kill worker in {luck.uniform(0.0, 0.2):.3f}"
        killed[f"killed_{number}"] = (place, luck.choice(KEYS), what)
    for asset, (place, key, what) in killed.items():
        shop.rig.order(place, asset, key, what)
    with shop.rig.user_interface() as launch:
        backfills = {asset: shop.backfill(launch, asset) for asset in killed}
        for asset, backfill in backfills.items():
            assert shop.rig.await_backfill(backfill) is BulkActionStatus.COMPLETED_SUCCESS
            place, key, what = killed[asset]
            assert shop.rig.is_obeyed(place, asset, key)
            first, second = shop.rig.runs_of(backfill)
            assert first.status is dg.DagsterRunStatus.FAILURE
            assert second.status is dg.DagsterRunStatus.SUCCESS
            assert second.parent_run_id == first.run_id
            shop.assert_like(asset, "whole" if int(asset[-1]) % 2 else "sql_whole")
            shop.assert_swapped_once(asset)
            twice = [day for day, count in Counter(shop.keys_called(asset)).items() if count > 1]
            assert sorted(set(shop.keys_called(asset))) == KEYS
            if what == "kill worker":
                assert twice == ([key] if place == "function" else [])
                # What was built before is said, and by the run that has built it, or else by the one that found it.
                assert [run for _, run, _ in shop.rig.calls(asset)].count(first.run_id) == KEYS.index(key) + 1
            else:
                assert len(twice) <= 1
                assert all(day >= key for day in twice)


@by_hand
def test_a_step_that_is_killed_alone_is_retried_by_its_own_policy_and_continues(shop):
    key = KEYS[41]
    shop.rig.order("commit", "step_killed", key, "kill step")
    with shop.rig.user_interface() as launch:
        backfill = shop.backfill(launch, "step_killed")
        assert shop.rig.await_backfill(backfill) is BulkActionStatus.COMPLETED_SUCCESS
    [run] = shop.rig.runs_of(backfill)
    assert len(shop.rig.events(run.run_id, dg.DagsterEventType.STEP_RESTARTED)) == 1
    assert shop.keys_called("step_killed") == KEYS
    shop.assert_like("step_killed")
    shop.assert_swapped_once("step_killed")


@by_hand
def test_a_failure_is_continued_by_the_retry_of_its_run(shop):
    key = KEYS[20]
    shop.rig.order("function", "failing", key, "raise")
    with shop.rig.user_interface() as launch:
        backfill = shop.backfill(launch, "failing", **{"dagster/retry_on_asset_or_op_failure": "true"})
        assert shop.rig.await_backfill(backfill) is BulkActionStatus.COMPLETED_SUCCESS
    failed, _ = shop.rig.runs_of(backfill)
    [failure] = shop.rig.events(failed.run_id, dg.DagsterEventType.STEP_FAILURE)
    assert f"partition '{key}'" in failure.event_specific_data.error_display_string
    assert shop.keys_called("failing") == [*KEYS[:21], *KEYS[20:]]
    shop.assert_like("failing")
    shop.assert_swapped_once("failing")


@by_hand
def test_a_failure_is_continued_by_hand_and_a_success_is_repeated_in_full(shop):
    first, second = KEYS[10], KEYS[30]
    shop.rig.order("function", "repeated", first, "raise")
    shop.rig.order("function", "repeated", second, "raise")
    with shop.rig.user_interface() as launch:
        backfill = shop.backfill(launch, "repeated")
        assert shop.rig.await_backfill(backfill) is BulkActionStatus.COMPLETED_FAILED
        [failed] = shop.rig.runs_of(backfill)
        again = shop.reexecute(launch, failed.run_id, "FROM_FAILURE")
        assert not shop.rig.succeeded(again)
        whole = shop.reexecute(launch, again, "ALL_STEPS")
        assert shop.rig.succeeded(whole)
        assert shop.keys_called("repeated") == [*KEYS[:11], *KEYS[10:31], *KEYS[30:]]
        shop.assert_like("repeated")
        shop.assert_swapped_once("repeated")

        anew = shop.reexecute(launch, whole, "ALL_STEPS")
        assert shop.rig.succeeded(anew)
    assert [day for day, run, _ in shop.rig.calls("repeated") if run == anew] == KEYS
    shop.assert_like("repeated")
    assert [entry.partition_key for entry in shop.ledger("repeated")] == [*KEYS, *KEYS]
    assert {head.run_id for head in shop.rig.store.heads(shop.rig.table("repeated")).values()} == {anew}


@by_hand
def test_a_failed_backfill_is_continued_by_one_of_what_is_missing_and_by_one_of_everything(shop):
    first, second = KEYS[10], KEYS[30]
    shop.rig.order("function", "refilled", first, "raise")
    shop.rig.order("function", "refilled", second, "raise")
    with shop.rig.user_interface() as launch:
        assert shop.rig.await_backfill(shop.backfill(launch, "refilled")) is BulkActionStatus.COMPLETED_FAILED
        missing = shop.backfill(launch, "refilled", KEYS[10:])
        assert shop.rig.await_backfill(missing) is BulkActionStatus.COMPLETED_FAILED
        assert sorted(shop.events("refilled")) == KEYS[:30]
        everything = shop.backfill(launch, "refilled")
        assert shop.rig.await_backfill(everything) is BulkActionStatus.COMPLETED_SUCCESS
    assert shop.keys_called("refilled") == [*KEYS[:11], *KEYS[10:31], *KEYS[30:]]
    shop.assert_like("refilled")
    shop.assert_swapped_once("refilled")


SOON_SECONDS = 20


def test_a_run_that_is_terminated_within_the_function_keeps_whole_days_and_is_continued(shop):
    key = KEYS[25]
    shop.rig.order("function", "terminated", key, "hold")
    with shop.rig.user_interface() as launch:
        backfill = shop.backfill(launch, "terminated")
        shop.rig.await_hold("terminated", key)
        [run] = shop.rig.runs_of(backfill)
        asked = time.monotonic()
        launch(shop.helpers.TERMINATE_RUN, runId=run.run_id)
        assert shop.rig.await_end(run.run_id) is dg.DagsterRunStatus.CANCELED
        assert time.monotonic() - asked < SOON_SECONDS
        shop.assert_like("terminated", keys=KEYS[:25])
        shop.rig.await_backfill(backfill)

        rest = shop.backfill(launch, "terminated")
        assert shop.rig.await_backfill(rest) is BulkActionStatus.COMPLETED_SUCCESS
    assert shop.keys_called("terminated") == [*KEYS[:26], *KEYS[25:]]
    shop.assert_like("terminated")
    shop.assert_swapped_once("terminated")


@by_hand
def test_a_backfill_that_is_canceled_at_any_moment_keeps_whole_days_and_is_continued(shop):
    pace = shop.rig.room / "seconds@canceled"
    pace.write_text("0.4", encoding="utf-8")
    with shop.rig.user_interface() as launch:
        backfill = shop.backfill(launch, "canceled")
        shop.helpers.wait_for(lambda: len(shop.keys_called("canceled")) > 3, "some days to be built")
        launch(shop.helpers.CANCEL_BACKFILL, backfillId=backfill)
        assert shop.rig.await_backfill(backfill) is BulkActionStatus.CANCELED
        [run] = shop.rig.runs_of(backfill)
        assert run.status is dg.DagsterRunStatus.CANCELED
        built = [str(entry.partition_key) for entry in shop.ledger("canceled")]
        assert 3 <= len(built) < len(KEYS), "canceled too early or too late to tell anything"
        shop.assert_like("canceled", keys=KEYS[: len(built)])
        pace.unlink()

        rest = shop.backfill(launch, "canceled")
        assert shop.rig.await_backfill(rest) is BulkActionStatus.COMPLETED_SUCCESS
    twice = [day for day, count in Counter(shop.keys_called("canceled")).items() if count > 1]
    assert twice in ([], [KEYS[len(built)]])
    shop.assert_like("canceled")
    shop.assert_swapped_once("canceled")


@by_hand
def test_a_job_backfill_fails_at_once_where_a_chain_is_out_of_order_and_succeeds_in_order(shop):
    keys = KEYS[:4]
    with shop.rig.user_interface() as launch:
        whole = job_backfill(shop, launch, "by_job_alone", KEYS[::-1])
        backfill = job_backfill(shop, launch, "by_job_daily_alone", keys[::-1])
        shop.rig.await_backfill(backfill)
        in_turn = shop.rig.runs_of(backfill)
        runs = {run.tags["dagster/partition"]: run.run_id for run in in_turn}
        assert [*runs] == keys[::-1]
        assert len(in_turn) == len(keys)  # and so no retries
        for run in in_turn:
            shop.rig.await_end(run.run_id)
        built = [key for key in keys if shop.rig.succeeded(runs[key])]
        # Two runs at a time, so that a late day may find the one before it there after all.
        assert built == keys[: len(built)]
        assert len(built) < len(keys)
        for key in keys[len(built) :]:
            [failure] = shop.rig.events(runs[key], dg.DagsterEventType.STEP_FAILURE)
            said = failure.event_specific_data.user_failure_data
            assert said.metadata["marigold/error"].value == "missing_input"
            for word in ("'by_job_daily'", f"'{key}'", "past is missing from", "in order", "asset's own page"):
                assert word in said.description.splitlines()[0]
        assert sorted(shop.keys_called("by_job_daily")) == built
        if built:
            shop.assert_like("by_job_daily", keys=built)
        for key in keys[len(built) :]:
            assert shop.rig.succeeded(shop.reexecute(launch, runs[key], "ALL_STEPS"))
        # Where the chain keeps its own policy, the range is one run, and thereby in order.
        assert shop.rig.await_backfill(whole) is BulkActionStatus.COMPLETED_SUCCESS
        assert len(shop.rig.runs_of(whole)) == 1
    shop.assert_like("by_job_daily", keys=keys)
    shop.assert_swapped_once("by_job_daily", keys=keys)
    shop.assert_like("by_job")
    shop.assert_swapped_once("by_job")


def job_backfill(shop, launch, job, keys):
    """Launch the backfill of a named job, as its page does."""
    repository = {"repositoryLocationName": "e2e", "repositoryName": "__repository__"}
    selector = {"partitionSetName": f"{job}_partition_set", "repositorySelector": repository}
    params = {"selector": selector, "partitionNames": keys}
    return launch(shop.helpers.LAUNCH_BACKFILL, backfillParams=params)["backfillId"]


@by_hand
def test_a_paused_run_of_a_chain_is_refused_when_its_retry_has_built_on(shop):
    key = KEYS[15]
    shop.rig.order("function", "paused", key, "hold")
    with shop.rig.user_interface() as launch:
        backfill = shop.backfill(launch, "paused")
        step = shop.rig.await_hold("paused", key)
        [first] = shop.rig.runs_of(backfill)
        os.kill(step, signal.SIGSTOP)
        try:
            shop.rig.instance.report_run_failed(first)  # as run monitoring does of a run that it takes for lost
            assert shop.rig.await_backfill(backfill) is BulkActionStatus.COMPLETED_SUCCESS
            shop.assert_like("paused")
            shop.assert_swapped_once("paused")
            before = shop.rig.everything()
            shop.rig.let_go("paused", key)
        finally:
            os.kill(step, signal.SIGCONT)
        shop.helpers.wait_for(lambda: not shop.helpers.is_alive(step), "the zombie to end")
    first, second = shop.rig.runs_of(backfill)
    assert shop.rig.everything() == before
    shop.assert_like("paused")
    assert shop.keys_called("paused") == [*KEYS[:16], *KEYS[15:]]
    [failure] = shop.rig.events(first.run_id, dg.DagsterEventType.STEP_FAILURE)
    assert failure.event_specific_data.user_failure_data.metadata["marigold/error"].value == "fenced_out"
    assert f"superseded by run {second.run_id}" in failure.event_specific_data.error_display_string
    assert shop.rig.tags(first.run_id)["marigold/fenced_out_by"] == second.run_id


@by_hand
def test_independent_days_are_shared_out_and_the_killed_share_alone_is_continued(shop):
    key = KEYS[33]
    shop.rig.order("function", "independent", key, "kill worker")
    with shop.rig.user_interface() as launch:
        backfill = shop.backfill(launch, "independent")
        assert shop.rig.await_backfill(backfill) is BulkActionStatus.COMPLETED_SUCCESS
    assert len(shop.rig.runs_of(backfill)) == 3 + 1
    assert Counter(shop.keys_called("independent")) == {day: 1 + (day == key) for day in KEYS}
    assert sorted(str(entry.partition_key) for entry in shop.ledger("independent")) == KEYS
    assert sorted(shop.events("independent")) == KEYS
    [(rows, share)] = shop.rig.query("SELECT count(*), round(sum(share), 6) FROM shop.independent")
    assert (rows, share) == (sum(1 + number % 3 for number in range(len(KEYS))), len(KEYS))


@by_hand
def test_a_redeploy_in_the_middle_of_a_run_stamps_the_code_that_ran(shop):
    key = KEYS[7]
    shop.rig.order("function", "redeployed", key, "hold")
    with shop.rig.user_interface() as launch:
        backfill = shop.backfill(launch, "redeployed")
        shop.rig.await_hold("redeployed", key)
        text = shop.rig.location.read_text(encoding="utf-8")
        shop.rig.location.write_text(text.replace('CODE_VERSION = "1"', 'CODE_VERSION = "2"'), encoding="utf-8")
        try:
            assert launch(shop.helpers.RELOAD)["loadStatus"] == "LOADED"
            shop.rig.let_go("redeployed", key)
            assert shop.rig.await_backfill(backfill) is BulkActionStatus.COMPLETED_SUCCESS
            assert code_versions(shop) == {"1"}
            shop.range_run("redeployed")
            assert code_versions(shop) == {"2"}
        finally:
            shop.rig.location.write_text(text, encoding="utf-8")
    assert shop.keys_called("redeployed") == [*KEYS, *KEYS]


def test_a_redeploy_in_the_middle_of_a_backfill_leaves_two_versions_which_the_report_tells_apart(shop):
    """Two of its three runs are under way and end with the code that they have loaded; the third has the new one."""
    held = KEYS[5], KEYS[25]
    for key in held:
        shop.rig.order("function", "shared_out", key, "hold")
    with shop.rig.user_interface() as launch:
        backfill = shop.backfill(launch, "shared_out")
        for key in held:
            shop.rig.await_hold("shared_out", key)
        text = shop.rig.location.read_text(encoding="utf-8")
        shop.rig.location.write_text(text.replace('CODE_VERSION = "1"', 'CODE_VERSION = "2"'), encoding="utf-8")
        try:
            assert launch(shop.helpers.RELOAD)["loadStatus"] == "LOADED"
            for key in held:
                shop.rig.let_go("shared_out", key)
            assert shop.rig.await_backfill(backfill) is BulkActionStatus.COMPLETED_SUCCESS
            found = report(shop, "shared_out")
        finally:
            shop.rig.location.write_text(text, encoding="utf-8")
    assert [(one["definition"]["label"], one["keys"]) for one in found["stretches"]] == [
        ("1", KEYS[:40]),
        ("2", KEYS[40:]),
    ]
    [stale] = found["code_stale"]
    assert (stale["keys"], stale["before"]["label"], stale["after"]["label"]) == (KEYS[:40], "1", "2")
    log = found["event_log"]
    assert log["compared"]
    assert not any(log[name] for name in ("event_missing", "ledger_missing", "differing", "unknown"))


def report(shop, asset):
    """What `marigold versions` says of an asset, with the code that is deployed now."""
    program = Path(sys.executable).with_name("marigold")
    done = subprocess.run(
        [program, "versions", asset, "-f", shop.rig.location, "--json"],
        cwd=shop.rig.room,
        env={**os.environ, **shop.rig.variables},
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def code_versions(shop):
    """The code version of every day, in ledger, events and what the function itself has noted, which agree."""
    noted = {day: version for day, _, version in shop.rig.calls("redeployed")}
    heads = shop.rig.store.heads(shop.rig.table("redeployed"))
    assert {key: head.provenance.code_version for key, head in heads.items()} == noted
    tags = {key: said[-1].tags["dagster/code_version"] for key, said in shop.events("redeployed").items()}
    assert tags == noted
    assert sorted(noted) == KEYS
    return set(noted.values())


@by_hand
def test_a_success_that_is_repeated_is_repeated_in_full_also_by_the_retry_of_its_repetition(shop):
    keys, ends = KEYS[:6], (KEYS[0], KEYS[5])
    # As Dagster's own button has it while the backfill goes on.
    tags = {"dagster/backfill": "of several runs"}

    def run(parent=None):
        family = {} if parent is None else {"parent_run_id": parent, "root_run_id": first}
        return shop.rig.run("renewed_together", ends, tags=tags, **family)

    first = run()
    assert shop.rig.succeeded(first)
    shop.rig.order("function", "renewed", keys[2], "raise")
    failed = run(first)
    assert not shop.rig.succeeded(failed)
    retry = run(failed)
    assert shop.rig.succeeded(retry)
    assert shop.keys_called("renewed") == [*keys, *keys[:3], *keys[2:]]
    assert {head.run_id for head in shop.rig.store.heads(shop.rig.table("renewed")).values()} == {failed, retry}
    shop.assert_like("renewed", keys=keys)
