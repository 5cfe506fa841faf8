"""Launches without a daemon: what is refused, what is told of runs that were, and how a budget stops the rest."""

# No `from __future__ import annotations` here: Dagster compares the annotation of `context` with its classes.

import re
import uuid
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import dagster as dg
import pandas as pd
import pytest
from dagster._core.definitions.assets.graph.asset_graph_subset import AssetGraphSubset
from dagster._core.execution.asset_backfill import AssetBackfillData
from dagster._core.execution.backfill import BulkActionStatus, PartitionBackfill

from marigold_assets import FencedPartitionIOManager, partitioned_asset
from marigold_assets.backfill import cancelling, launch_runs, refusing, request, watching, wishing
from marigold_assets.backfill.cancelling import unfinished_runs
from marigold_assets.backfill.past_prices import said_of_past_prices
from marigold_assets.backfill.price import PRICE_TAG, Price, spoken
from marigold_assets.backfill.refusing import Wish
from marigold_assets.budget import LAUNCH_TAG, MAX_FAILURES_TAG
from marigold_assets.cli.instance import Ledgers
from marigold_assets.errors import ConfigurationError, PlanConflictError
from marigold_assets.loading import LocationOptions
from marigold_assets.model import TableName
from marigold_assets.not_retried import REFUSED_TAG, allow_again, not_retried
from marigold_assets.planning.model import (
    AssetPlan,
    BackfillPlan,
    Bill,
    Estimate,
    Limits,
    Order,
    PlannedKey,
    Reason,
    Request,
    Skip,
    SkippedKey,
)
from marigold_assets.stores.duckdb import DuckDBStore

DAYS = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-02-01")
KEYS = DAYS.get_partition_keys()
LAUNCH = "abcdefgh"
LAUNCHED = {LAUNCH_TAG: LAUNCH, "dagster/backfill": "first"}
PRICE = Price(
    wall=Estimate(median=100.0, p90=150.0), busy=Estimate(median=60.0, p90=90.0), runs=4, partitions=8, assumed=0
)


def bill(**given):
    usual = {
        "runs": 4,
        "wall": PRICE.wall,
        "busy": PRICE.busy,
        "critical_path": 1.0,
        "saved_by_slots": 0.0,
        "saved_by_ticks": 0.0,
        "saved_by_starts": 0.0,
        "parallel": 100.0,
        "one_more_slot": 0.0,
        "best_keys_per_run": {},
        "assumed": (),
        "limits": Limits(slots=2),
    }
    return Bill(**{**usual, **given})


def plan(assets, *, skipped=(), positions=None, **asked):
    return BackfillPlan(
        request=Request(selection=" or ".join(assets), **asked),
        assets=tuple(
            AssetPlan(
                owner=owner,
                keys=tuple(PlannedKey(key=key, reason=Reason.MISSING, because="never built") for key in keys),
                skipped=tuple(skipped),
            )
            for owner, keys in assets.items()
        ),
        bill=bill(),
        positions=positions or {},
        made_at=datetime(2024, 3, 1, tzinfo=UTC),
    )


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


@pytest.fixture
def instance(home):
    (home / "dagster.yaml").write_text(
        "telemetry: {enabled: false}\n"
        "run_retries: {enabled: true, max_retries: 2, retry_on_asset_or_op_failure: false}\n"
        "concurrency: {runs: {max_concurrent_runs: 4, tag_concurrency_limits: [{key: dagster/backfill, limit: 2}]}}\n",
        encoding="utf-8",
    )
    with dg.DagsterInstance.from_config(str(home)) as instance:
        yield instance


def record_run(instance, status, *, asset=None, **tags):
    """A run that nobody has carried out."""
    selection = None if asset is None else frozenset({asset})
    run = dg.DagsterRun(
        job_name="__ASSET_JOB", run_id=str(uuid.uuid4()), status=status, tags=tags, asset_selection=selection
    )
    return instance.run_storage.add_run(run)


class Shop:
    """One asset, whose days fail when a test says so, and a backfill of it that is on record."""

    def __init__(self, instance, folder):
        self.instance, self.failing, self.called, self.wrong, self.barred = instance, set(), [], set(), set()
        self.database = str(folder / "shop.duckdb")

        @partitioned_asset(partitions_def=DAYS, partition_expr="day", code_version="1", key_prefix="shop")
        def orders(context: dg.AssetExecutionContext) -> pd.DataFrame:
            self.called.append(context.partition_key)
            if context.partition_key in self.failing:
                raise RuntimeError("the till is closed\nfor today")
            return pd.DataFrame({"day": [pd.Timestamp(context.partition_key)], "cents": [1]})

        @dg.asset_check(asset=orders)
        def is_right(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
            return dg.AssetCheckResult(passed=context.run.tags["dagster/partition"] not in self.wrong)

        @dg.asset_check(asset=orders, blocking=True)
        def may_pass(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
            return dg.AssetCheckResult(passed=context.run.tags["dagster/partition"] not in self.barred)

        self.orders, self.checks = orders, [is_right, may_pass]

    def record(self, backfill_id, keys, status=BulkActionStatus.REQUESTED, **tags):
        graph = dg.Definitions(assets=[self.orders]).get_repository_def().asset_graph
        subset = AssetGraphSubset(
            partitions_subsets_by_asset_key={self.orders.key: DAYS.subset_with_partition_keys(keys)}
        )
        assert graph.get(self.orders.key)
        now = datetime.now(UTC).timestamp()
        self.instance.add_backfill(
            PartitionBackfill(
                backfill_id=backfill_id,
                status=status,
                from_failure=False,
                tags={LAUNCH_TAG: LAUNCH, PRICE_TAG: PRICE.as_tag(), **tags},
                backfill_timestamp=now,
                asset_selection=[self.orders.key],
                asset_backfill_data=AssetBackfillData.empty(subset, now, self.instance),
            )
        )

    def end(self, backfill_id, status=BulkActionStatus.COMPLETED_SUCCESS):
        self.instance.update_backfill(self.instance.get_backfill(backfill_id).with_status(status))

    def run(self, key, backfill_id="first", **tags):
        tags = {LAUNCH_TAG: LAUNCH, "dagster/backfill": backfill_id, **tags}
        manager = FencedPartitionIOManager(database=self.database, schema="shop")
        return dg.materialize(
            [self.orders, *self.checks],
            partition_key=key,
            instance=self.instance,
            resources={"io_manager": manager},
            tags={name: value for name, value in tags.items() if value is not None},
            raise_on_error=False,
        )

    def look(self, name=LAUNCH):
        store, table = DuckDBStore(self.database), TableName(schema="shop", name="orders")
        found, backfills = watching.find(self.instance, name)
        heads = lambda _, keys: store.heads(table, keys) if store.connector.exists() else {}  # noqa: E731
        return watching.look(self.instance, found, backfills, heads=heads, keys=lambda _: KEYS)


@pytest.fixture
def shop(instance, tmp_path):
    return Shop(instance, tmp_path)


# --- what is told ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_progress_tells_what_is_built_unchanged_failed_left_and_built_by_others(shop):
    shop.run(KEYS[0], backfill_id="long ago")
    shop.record("first", KEYS[:4])
    shop.record("second", KEYS[4:8])
    shop.failing = {KEYS[2]}
    assert shop.run(KEYS[0]).success
    assert shop.run(KEYS[4], backfill_id="second").success
    assert not shop.run(KEYS[2]).success
    assert shop.run(KEYS[1], backfill_id="other").success

    found = shop.look()
    [orders] = found.assets
    assert (orders.owner, orders.total, orders.is_exact) == ("shop/orders", 8, True)
    assert (orders.built, orders.confirmed, orders.elsewhere, orders.done) == (2, 0, 1, 3)
    assert (orders.running, orders.failed, orders.canceled, orders.queued) == (0, 1, 0, 4)
    assert (found.succeeded_runs, found.failed_runs) == (2, 1)
    [trouble] = found.troubles
    assert trouble.message == "RuntimeError: the till is closed"
    assert trouble.what == f"shop/orders [{KEYS[2]}]"
    assert trouble.fenced_out_by is None
    assert [one.backfill_id for one in found.backfills] == ["first", "second"]
    assert not found.is_over
    assert not found.is_well
    assert found.price == PRICE
    assert found.is_priced_whole
    assert shop.look("second").total == 4


@pytest.mark.slow
def test_a_run_that_was_fenced_out_is_told_with_who_is_newer(shop):
    shop.record("first", KEYS[:1])
    shop.failing = {KEYS[0]}
    run = shop.run(KEYS[0])
    shop.instance.add_run_tags(run.run_id, {"marigold/fenced_out_by": "the newer run"})
    [trouble] = shop.look().troubles
    assert trouble.fenced_out_by == "the newer run"


@pytest.mark.slow
def test_a_failed_check_is_told_and_a_passed_one_is_not(shop):
    shop.record("first", KEYS[:2])
    shop.wrong = {KEYS[1]}
    first, second = shop.run(KEYS[0]), shop.run(KEYS[1])
    assert first.success
    assert shop.look().failed_checks == ()  # it is not over
    shop.end("first")
    found = shop.look()
    [told] = found.failed_checks
    assert (found.is_built, found.is_well) == (True, False)
    assert told == f"is_right of shop/orders [{KEYS[1]}], run {second.run_id}"


@pytest.mark.slow
def test_a_run_that_a_check_has_failed_when_all_was_built_is_not_well_until_others_have_built_it_again(shop):
    shop.record("first", KEYS[:2], **{PRICE_TAG: "{}"})
    shop.barred = {KEYS[1]}
    assert shop.run(KEYS[0]).success
    assert not shop.run(KEYS[1]).success
    shop.end("first", BulkActionStatus.COMPLETED_FAILED)
    found = shop.look()
    assert (found.done, found.failed_when_done, found.is_built, found.is_well) == (2, 1, True, False)
    assert [one.split(",")[0] for one in found.failed_checks] == [f"may_pass of shop/orders [{KEYS[1]}]"]
    # A retry of Dagster's own that passes the check has mended it.
    shop.barred = set()
    again = {"dagster/root_run_id": shop.look().troubles[0].run_id, "dagster/retry_number": "1"}
    assert shop.run(KEYS[1], **again).success
    found = shop.look()
    assert (found.failed_when_done, found.failed_checks, found.is_well) == (0, (), True)
    # A run that failed amid its partitions is mended by whoever builds the rest.
    shop.failing = {KEYS[2]}
    shop.record("second", [KEYS[2]], **{LAUNCH_TAG: "another", PRICE_TAG: "{}"})
    assert not shop.run(KEYS[2], backfill_id="second").success
    shop.end("second", BulkActionStatus.COMPLETED_FAILED)
    assert not shop.look("another").is_well
    shop.failing = set()
    assert shop.run(KEYS[2], backfill_id="third").success
    found = shop.look("another")
    assert (found.failed_runs, found.failed_when_done, found.is_well) == (1, 0, True)


@pytest.mark.slow
def test_what_a_run_and_its_retry_have_built_before_that_failed_is_theirs(shop):
    shop.record("first", KEYS[:2], BulkActionStatus.COMPLETED_FAILED, **{PRICE_TAG: "{}"})
    first, second = str(uuid.uuid4()), str(uuid.uuid4())
    heads = {"shop/orders": {key: Entry(run) for key, run in ((KEYS[0], first), (KEYS[1], second))}}
    about = {"dagster/asset_partition_range_start": KEYS[0], "dagster/asset_partition_range_end": KEYS[1]}
    runs = launch_runs.LaunchRuns(shop.instance, ["first"])
    about |= {"dagster/root_run_id": first}
    failed = [
        dg.DagsterRun(run_id=first, job_name="j", tags={"dagster/will_retry": "true"}),
        dg.DagsterRun(run_id=second, job_name="j", asset_selection={shop.orders.key}, tags=about),
    ]
    runs.__dict__["_failed"] = failed  # as they would have been found
    assert runs.failed_when_done(heads, lambda _: KEYS) == [failed[1]]
    heads["shop/orders"][KEYS[0]] = Entry("another")
    assert runs.failed_when_done(heads, lambda _: KEYS) == []


@dataclass
class Entry:
    run_id: str


@pytest.mark.slow
def test_retries_that_have_lost_the_tag_of_their_backfill_count_and_are_canceled_with_it(shop):
    shop.record("first", KEYS[:2])
    shop.failing = {KEYS[0]}
    failed = shop.run(KEYS[0])
    shop.failing = set()
    retry = {"dagster/root_run_id": failed.run_id, "dagster/retry_number": "1"}
    assert shop.run(KEYS[0], **retry, **{"dagster/backfill": None}).success
    by_hand = {"dagster/root_run_id": failed.run_id, "dagster/backfill": None}
    assert shop.run(KEYS[1], **by_hand).success
    found = shop.look()
    [orders] = found.assets
    assert (orders.built, orders.elsewhere, found.succeeded_runs) == (1, 1, 1)
    assert found.busy_seconds > 0

    waiting = record_run(shop.instance, dg.DagsterRunStatus.NOT_STARTED, **{LAUNCH_TAG: LAUNCH}, **retry)
    record_run(shop.instance, dg.DagsterRunStatus.NOT_STARTED, **{"dagster/root_run_id": failed.run_id})
    assert [run.run_id for run in unfinished_runs(shop.instance, ["first"])] == [waiting.run_id]
    assert shop.look().queued_runs == 1


@pytest.mark.slow
def test_what_a_run_of_the_launch_found_to_need_no_work_is_done(shop):
    shop.run(KEYS[0], backfill_id="long ago")
    shop.run(KEYS[1], backfill_id="long ago")
    shop.record("first", KEYS[:3])
    about = {"dagster/asset_partition_range_start": KEYS[0], "dagster/asset_partition_range_end": KEYS[2]}
    run = record_run(shop.instance, dg.DagsterRunStatus.STARTED, asset=shop.orders.key, **LAUNCHED, **about)
    assert shop.look().done == 0
    shop.instance.report_run_failed(run)
    assert shop.look().failed == 3
    record_run(shop.instance, dg.DagsterRunStatus.SUCCESS, asset=shop.orders.key, **LAUNCHED, **about)
    found = shop.look()
    [orders] = found.assets
    assert (orders.stood, orders.built, orders.elsewhere) == (2, 0, 0)  # the third was never built by anybody
    assert orders.left == (KEYS[2],)
    assert found.last_commit is None
    assert found.remaining_seconds is None


def test_a_range_of_two_dimensions_has_what_is_between_its_ends_in_each(instance):
    both = dg.MultiPartitionsDefinition({"day": DAYS, "shop": dg.StaticPartitionsDefinition(["eu", "us"])})
    about = {
        "dagster/backfill": "first",
        "dagster/asset_partition_range_start": f"{KEYS[0]}|eu",
        "dagster/asset_partition_range_end": f"{KEYS[3]}|eu",
    }
    record_run(instance, dg.DagsterRunStatus.STARTED, asset=dg.AssetKey("visits"), **about)

    class Located:
        assets = {"visits": dg.AssetsDefinition}  # noqa: RUF012 - of this test alone
        partitions_def = both

    located = Located()
    located.assets = {"visits": located}
    ledgers = Ledgers(LocationOptions(), instance, location=located)
    order = [str(key) for key in both.get_partition_keys()]
    runs = launch_runs.LaunchRuns(instance, ["first"])
    found = runs.places([dg.DagsterRunStatus.STARTED], lambda _: order, ledgers.between)
    assert found == {"visits": {f"{key}|eu" for key in KEYS[:4]}}
    assert ledgers.between("others", KEYS[0], KEYS[1]) is None


@pytest.mark.slow
def test_the_run_time_of_runs_that_were_deleted_is_not_said_to_be_none(shop):
    shop.record("first", KEYS[:2], BulkActionStatus.COMPLETED_SUCCESS)
    runs = [shop.run(key) for key in KEYS[:2]]
    assert shop.look().busy_seconds > 0
    for run in runs:
        shop.instance.delete_run(run.run_id)
        found = shop.look()
        assert (found.done, found.busy_seconds) == (2, None)


def progress(**given):
    launched = datetime(2024, 3, 1, tzinfo=UTC)
    at = lambda seconds: None if seconds is None else launched + timedelta(seconds=seconds)  # noqa: E731
    status, done, total = given.get("status", "REQUESTED"), given.get("done", 0), given.get("total", 8)
    asset = watching.AssetProgress(
        owner="a", total=total, built=done, confirmed=0, elsewhere=0, running=0, failed=0, canceled=0, is_exact=True
    )
    backfill = watching.Backfill(
        backfill_id="x",
        status=status,
        title=None,
        description=None,
        tags={},
        created_at=launched,
        ended_at=None,
        error=None,
        targets={},
        built={},
    )
    return watching.Progress(
        name="x",
        backfills=(backfill,),
        assets=(asset,),
        queued_runs=0,
        running_runs=0 if done == total else 1,
        succeeded_runs=0,
        failed_runs=0,
        canceled_runs=0,
        busy_seconds=0.0,
        troubles=(),
        failed_when_done=0,
        failed_checks=(),
        price=given.get("price", PRICE),
        first_commit=at(given.get("first")),
        last_commit=at(given.get("last")),
        seen_at=at(given["now"]),
    )


def test_what_is_still_to_go_follows_the_price_first_and_the_pace_later():
    begun = progress(now=10)
    assert (begun.remaining_seconds, begun.drift) == (90.0, 0.0)
    halfway = progress(now=60, done=4, first=30, last=60)  # a commit every 10 s: paced 100 s, as predicted
    assert halfway.expected_wall_seconds == 100.0
    slow = progress(now=150, done=6, first=30, last=130)  # every 20 s: paced 170 s
    assert slow.expected_wall_seconds == pytest.approx(0.25 * 100 + 0.75 * 170)
    assert slow.drift == pytest.approx(0.525)
    ended = progress(now=300, done=8, first=30, last=120, status="COMPLETED_SUCCESS")
    assert (ended.wall_seconds, ended.remaining_seconds) == (120.0, 0.0)
    assert ended.drift == pytest.approx(0.2)


def test_nobody_says_how_long_it_takes_where_nothing_tells():
    assert progress(now=10, price=None).remaining_seconds is None
    late = progress(now=500)  # long past the price, and nothing is built
    assert (late.remaining_seconds, late.drift) == (None, None)
    canceled = progress(now=500, done=2, first=30, last=60, status="CANCELED")
    assert canceled.drift is None
    canary = progress(now=10, total=2)  # the price is for eight
    assert (canary.is_priced_whole, canary.drift) == (False, None)


def test_a_launch_that_is_not_there_is_an_error_that_names_those_that_are(shop):
    with pytest.raises(ConfigurationError, match="has no backfill"):
        watching.find(shop.instance, None)
    shop.record("first", KEYS[:1])
    with pytest.raises(ConfigurationError, match=f"no launch and no backfill 'nothing'.*{LAUNCH}"):
        watching.find(shop.instance, "nothing")
    assert watching.find(shop.instance, None)[0] == LAUNCH


# --- the budget ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_spent_budget_stops_the_attempt_that_begins_and_cancels_the_rest_though_nobody_watches(shop):
    shop.record("first", KEYS)
    shop.record("second", KEYS)
    shop.failing = set(KEYS[:3])
    budget = {MAX_FAILURES_TAG: "1"}
    shop.run(KEYS[0], **budget)
    shop.run(
        KEYS[1], **budget, **{"dagster/retry_on_asset_or_op_failure": "true"}
    )  # of which Dagster makes another one
    assert shop.run(KEYS[5], **budget).success
    shop.run(KEYS[2], **budget)
    assert shop.called == [KEYS[0], KEYS[1], KEYS[5], KEYS[2]]
    assert {one.status for one in watching.find(shop.instance, LAUNCH)[1]} == {"REQUESTED"}

    refused = shop.run(KEYS[6], **budget)
    assert not refused.success
    assert KEYS[6] not in shop.called
    assert {one.status for one in watching.find(shop.instance, LAUNCH)[1]} == {"CANCELING"}
    said = shop.look().troubles[0].message
    assert "2 runs of launch abcdefgh have failed, and its failure budget is 1" in said
    tags = shop.instance.get_run_by_id(refused.run_id).tags
    assert tags["dagster/will_retry"] == "false"  # though the instance retries what fails before a step has begun

    # A retry that comes when the backfill is canceled has lost its tag, and is part of the launch all the same.
    late = {"dagster/backfill": None, "dagster/retry_number": "1"}
    assert not shop.run(KEYS[9], **budget, **late).success
    assert KEYS[9] not in shop.called

    # What somebody executes by hand afterwards is none of the launch, and neither is one without a budget.
    by_hand = {name: tags[name] for name in ("dagster/max_retries", REFUSED_TAG)}
    again = shop.run(KEYS[7], **budget, **by_hand, **{"dagster/backfill": None})
    assert again.success
    assert shop.instance.get_run_by_id(again.run_id).tags["dagster/max_retries"] == "2"
    assert shop.run(KEYS[8]).success
    assert shop.run(KEYS[10], **budget, **{"dagster/parent_backfill_id": "first"}).success  # a backfill, again by hand


@pytest.mark.slow
def test_a_run_that_ended_by_itself_when_it_was_canceled_is_not_waited_for(shop, monkeypatch):
    """Dagster has called it canceling after its last word, and has no process left that would say another."""
    shop.record("first", KEYS[:2])
    run = record_run(shop.instance, dg.DagsterRunStatus.CANCELING, **{"dagster/backfill": "first"})
    assert cancelling.cancel(shop.instance, ["first"], timeout_seconds=1).unfinished == (run.run_id,)
    assert shop.instance.get_run_by_id(run.run_id).status is dg.DagsterRunStatus.CANCELING  # told once, and given time
    monkeypatch.setattr(cancelling, "_TELL_AGAIN_SECONDS", 0.1)
    assert cancelling.cancel(shop.instance, ["first"], timeout_seconds=2).unfinished == ()
    assert shop.instance.get_run_by_id(run.run_id).status is dg.DagsterRunStatus.CANCELED


def test_a_start_that_may_be_tried_again_is_and_how_often_somebody_has_said_is_not_forgotten(instance):
    run = record_run(instance, dg.DagsterRunStatus.STARTED, **{"dagster/max_retries": "7"})
    for allowed in (True, False):
        with pytest.raises(dg.Failure), not_retried(instance, run):
            raise dg.Failure(allow_retries=allowed)
        assert instance.get_run_by_id(run.run_id).tags["dagster/max_retries"] == ("7" if allowed else "0")
    refused = instance.get_run_by_id(run.run_id)
    allow_again(instance, refused)
    assert instance.get_run_by_id(run.run_id).tags["dagster/max_retries"] == "0"
    again = record_run(instance, dg.DagsterRunStatus.STARTED, **refused.tags)
    allow_again(instance, again)
    assert instance.get_run_by_id(again.run_id).tags["dagster/max_retries"] == "7"


# --- what is refused -------------------------------------------------------------------------------------------------


def test_an_instance_without_a_daemon_or_a_bound_is_refused_unless_somebody_means_it(instance, home):
    with pytest.raises(ConfigurationError, match=r"No daemon runs .*\(seen never\).*--without-daemon"):
        refusing.refuse_instance(instance, Wish())
    refusing.refuse_instance(instance, Wish(without_daemon=True))
    with dg.DagsterInstance.ephemeral() as temporary, pytest.raises(ConfigurationError, match="results would be lost"):
        refusing.refuse_instance(temporary, Wish(without_daemon=True))
    (home / "dagster.yaml").write_text("telemetry: {enabled: false}\n", encoding="utf-8")
    with dg.DagsterInstance.from_config(str(home)) as unbounded:
        with pytest.raises(ConfigurationError, match=r"does not bound backfills.*--unbounded") as caught:
            refusing.refuse_instance(unbounded, Wish(without_daemon=True))
        assert str(caught.value).count("key: dagster/backfill") == 1
        assert "marigold doctor" in str(caught.value)
        refusing.refuse_instance(unbounded, Wish(without_daemon=True, unbounded="a laptop of my own"))


def test_a_plan_that_is_too_large_or_blocked_is_refused_unless_somebody_means_it():
    many = plan({"shop/orders": KEYS})
    with pytest.raises(ConfigurationError, match=r"builds 31 partitions, and at most 30.*--max-partitions 31"):
        refusing.refuse_plan(many, Wish(most_partitions=30))
    refusing.refuse_plan(many, Wish(most_partitions=31))
    because = "raw_orders[2024-01-09] does not exist"
    blocked = plan({"shop/orders": KEYS[:2]}, skipped=[SkippedKey(key=KEYS[8], reason=Skip.BLOCKED, because=because)])
    with pytest.raises(ConfigurationError, match=r"2024-01-09.*does not exist.*--skip-blocked"):
        refusing.refuse_plan(blocked, Wish())
    refusing.refuse_plan(blocked, Wish(skip_blocked=True))


@pytest.mark.parametrize("name", ["dagster/priority", "marigold/launch", "a b", "", "a/b/c"])
def test_a_tag_that_is_not_for_users_is_refused(name):
    with pytest.raises(ConfigurationError, match="not one to give by hand"):
        refusing.refuse_plan(plan({}), Wish(tags={name: "x"}))


def test_another_backfill_on_the_same_partitions_is_named_and_refused(shop):
    mine = plan({"shop/orders": KEYS[2:6]})
    refusing.refuse_others(shop.instance, mine)
    shop.record("elsewhere", KEYS[10:12])
    shop.record("ended", KEYS, status=BulkActionStatus.COMPLETED_FAILED)
    refusing.refuse_others(shop.instance, mine)
    shop.record("theirs", KEYS[5:9], status=BulkActionStatus.CANCELING)
    with pytest.raises(PlanConflictError, match=rf"backfill theirs \(CANCELING\) of shop/orders is at {KEYS[5]} of"):
        refusing.refuse_others(shop.instance, mine)


def test_of_two_launches_at_the_same_moment_the_one_with_the_newer_backfill_is_refused(shop):
    shop.record("older", KEYS[:3])
    shop.record("mine", KEYS[2:4])
    shop.record("newer", KEYS[3:6])
    refusing.refuse_older(shop.instance, ["older"])
    with pytest.raises(PlanConflictError, match=rf"backfill older \(REQUESTED\) of shop/orders is at {KEYS[2]} of"):
        refusing.refuse_older(shop.instance, ["mine"])
    with pytest.raises(PlanConflictError, match="backfill mine"):
        refusing.refuse_older(shop.instance, ["newer"])
    refusing.refuse_older(shop.instance, ["older", "mine", "newer"])


def test_a_plan_from_before_the_ledger_moved_is_told_from_one_that_still_holds():
    made = plan({"shop/orders": KEYS[:2]}, positions={"shop/orders": 7, "raw": 0})
    assert refusing.moved(made, {"shop/orders": 7}) == []
    assert refusing.moved(made, {"shop/orders": 8, "raw": 1}) == ["raw", "shop/orders"]
    refusing.refuse_changed(made, None)
    with pytest.raises(PlanConflictError, match="something else to do: shop/orders was built meanwhile"):
        refusing.refuse_changed(made, "shop/orders was built meanwhile")


# --- what is kept ----------------------------------------------------------------------------------------------------


def test_the_price_of_a_launch_is_exact_about_the_first_look_where_that_is_known():
    made = plan({"shop/orders": KEYS[:8]})
    assert Price.of(made).wall == PRICE.wall
    assert Price.of(made, first_look_seconds=15.0).wall == Estimate(median=100.0, p90=135.0)
    assert Price.of(made, first_look_seconds=29.0).wall == Estimate(median=114.0, p90=149.0)
    assert Price.of(made, first_look_seconds=0.0).wall == Estimate(median=85.0, p90=120.0)


def test_a_price_is_kept_in_a_tag_and_what_is_none_is_none():
    assert Price.of_tags({PRICE_TAG: PRICE.as_tag()}) == PRICE
    for text in ("", "{}", "[]", '{"wall": [1]}', '{"wall": 1, "busy": 2, "runs": 3, "partitions": 4, "assumed": 5}'):
        assert Price.of_tags({PRICE_TAG: text}) is None
    assert Price.of_tags({}) is None
    assert str(PRICE) == "100 s to 2 min for 8 partitions in 4 runs, which take 60 s of run time together"


@pytest.mark.slow
def test_what_past_prices_came_to_is_told_of_launches_of_the_same_assets_that_came_through(shop):
    of_two = replace(PRICE, partitions=2)
    shop.record("whole", KEYS[:2], BulkActionStatus.COMPLETED_SUCCESS, **{PRICE_TAG: of_two.as_tag()})
    for key in KEYS[:2]:
        shop.run(key, backfill_id="whole")
    shop.record("in part", KEYS[:1], BulkActionStatus.COMPLETED_SUCCESS, **{PRICE_TAG: of_two.as_tag()})
    shop.record("failed", KEYS[:2], BulkActionStatus.COMPLETED_FAILED, **{PRICE_TAG: of_two.as_tag()})
    for backfill_id in ("in part", "failed"):
        shop.run(KEYS[0], backfill_id=backfill_id)
    [told] = said_of_past_prices(shop.instance, ["shop/orders"])
    assert re.fullmatch(r"the last prices .*: 100 s was predicted and \d+ s taken", told)
    assert said_of_past_prices(shop.instance, ["shop/orders", "shop/sales"]) == ()
    assert said_of_past_prices(None, ["shop/orders"]) == ()


def test_durations_are_said_as_people_say_them():
    assert [spoken(one) for one in (0.4, 41, 600, 12_000, 14_400, 200_000)] == [
        "0 s",
        "41 s",
        "10 min",
        "3 h 20 min",
        "4 h",
        "2 d 8 h",
    ]


@pytest.mark.parametrize(
    "asked",
    [
        Request(selection="a+"),
        Request(selection='key:"a b"', first="2024-01-01", last="2024-01-09", restate=True),
        Request(selection="a", stale=True, lookback=2, order=Order.NEWEST_FIRST),
    ],
)
def test_a_request_is_kept_in_a_tag(asked):
    assert request.request_of_tags({request.REQUEST_TAG: request.request_as_tag(asked)}) == asked


def test_a_wish_is_kept_in_a_tag_and_is_words_of_a_command():
    wish = Wish(
        canary=3,
        max_failures=0,
        most_partitions=20_000,
        skip_blocked=True,
        without_daemon=True,
        unbounded="a laptop",
        title="all of it",
        tags={"team": "till"},
    )
    assert wishing.wish_of_tags({wishing.WISH_TAG: wishing.wish_as_tag(wish)}) == wish
    assert wishing.words_of(wish) == [
        *("--canary", "3", "--max-failures", "0", "--max-partitions", "20000", "--skip-blocked", "--without-daemon"),
        *("--unbounded", "a laptop", "--title", "all of it", "--tag", "team=till"),
    ]
    assert wishing.words_of(Wish()) == []
    assert wishing.wish_of_tags({}) == wishing.wish_of_tags({wishing.WISH_TAG: '{"new": 1}'}) == Wish()


def test_a_request_is_words_of_a_command():
    asked = Request(selection="a+", first="x", last="y", restate=True, lookback=2, order=Order.NEWEST_FIRST)
    words = "a+ --from x --to y --lookback 2 --order newest-first --restate"
    assert " ".join(request.words_of(asked)) == words
    assert request.request_of_tags({}) is None
    assert request.request_of_tags({request.REQUEST_TAG: '{"order": "sideways"}'}) is None
