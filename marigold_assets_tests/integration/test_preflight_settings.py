"""The settings of an instance, read from real dagster.yaml files; what Dagster names otherwise fails here."""

from __future__ import annotations

import shutil
from pathlib import Path

import dagster as dg
import pytest

from marigold_assets.preflight.settings import TagLimit, backfill_slots, read_settings
from marigold_assets.run_tags import BACKFILL_TAG, RANGE_START_TAG

PROJECT = Path(__file__).parents[2]
pytestmark = pytest.mark.slow


@pytest.fixture
def settings_of(tmp_path):
    """Reads the settings of an instance with a given dagster.yaml."""

    def read(text):
        (tmp_path / "dagster.yaml").write_text(text)
        with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
            return read_settings(instance)

    return read


def test_the_settings_that_the_project_ships_are_all_read(tmp_path):
    shutil.copy(PROJECT / "dagster.yaml", tmp_path)
    with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
        found = read_settings(instance)
    assert found.unreadable == ()
    assert (found.home, found.is_ephemeral, found.storage) == (str(tmp_path), False, "sqlite")
    assert (found.is_queued, found.max_concurrent_runs, found.dequeue_interval_seconds) == (True, 6, 1.0)
    assert (found.dequeues_in_threads, found.dequeue_threads) == (True, 4)
    assert found.tag_limits == (TagLimit(key=BACKFILL_TAG, limit=2), TagLimit(key=RANGE_START_TAG, limit=2))
    assert not found.in_run_queue
    assert (found.monitoring, found.start_timeout_seconds, found.cancel_timeout_seconds) == (True, 180, 180)
    assert found.max_runtime_seconds == 7200
    assert (found.retries, found.max_retries, found.retries_failures) == (True, 3, False)
    assert found.max_catchup_runs == 5
    assert found.pools == ()
    assert backfill_slots(found) == backfill_slots(found, ranges=True) == 2


def test_what_dagster_assumes_where_nothing_is_set(settings_of):
    found = settings_of("telemetry: {enabled: false}")
    assert found.unreadable == ()
    assert (found.is_queued, found.max_concurrent_runs, found.tag_limits) == (True, 10, ())
    assert (found.retries, found.retries_failures, found.monitoring) == (False, True, False)
    assert (found.dequeues_in_threads, found.dequeue_threads) == (False, None)
    assert backfill_slots(found) == 10


def test_limits_of_the_run_queue_and_of_single_values(settings_of):
    found = settings_of(
        "run_queue: {max_concurrent_runs: 3, tag_concurrency_limits: ["
        "{key: dagster/backfill, value: {applyLimitPerUniqueValue: true}, limit: 2},"
        "{key: dagster/backfill, value: abc, limit: 1}]}"
    )
    assert found.in_run_queue
    assert found.tag_limits == (
        TagLimit(key=BACKFILL_TAG, limit=2, per_value=True),
        TagLimit(key=BACKFILL_TAG, limit=1, value="abc"),
    )
    assert found.limit_on(BACKFILL_TAG) is None
    assert backfill_slots(found) == 3


@pytest.mark.parametrize(
    "text",
    [
        "run_queue: {%s}",
        "run_coordinator: {module: dagster._core.run_coordinator, class: QueuedRunCoordinator, config: {%s}}",
    ],
)
def test_the_threads_in_which_the_queue_starts_runs_are_counted(settings_of, text):
    found = settings_of(text % "dequeue_use_threads: true, dequeue_num_workers: 1")
    assert found.unreadable == ()
    assert (found.dequeues_in_threads, found.dequeue_threads) == (True, 1)


def test_a_limit_that_is_said_to_be_per_value_and_is_not_bounds_all(settings_of):
    found = settings_of(
        "concurrency: {runs: {max_concurrent_runs: -1, tag_concurrency_limits: ["
        "{key: dagster/backfill, value: {applyLimitPerUniqueValue: false}, limit: 4},"
        "{key: dagster/backfill, limit: 2}, {key: dagster/asset_partition_range_start, limit: 1}]}}"
    )
    assert found.max_concurrent_runs is None
    assert found.limit_on(BACKFILL_TAG) == 2  # the last, as Dagster counts
    assert (backfill_slots(found), backfill_slots(found, ranges=True)) == (2, 1)


def test_without_a_queue_nothing_is_bounded(settings_of):
    found = settings_of("run_coordinator: {module: dagster._core.run_coordinator, class: DefaultRunCoordinator}")
    assert (found.is_queued, backfill_slots(found)) == (False, None)


def test_pools_and_how_they_are_counted(settings_of, tmp_path):
    text = "concurrency: {pools: {default_limit: 2, granularity: run}}"
    (tmp_path / "dagster.yaml").write_text(text)
    with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
        instance.event_log_storage.set_concurrency_slots("warehouse", 3)
        instance.event_log_storage.initialize_concurrency_limit_to_default("other")
        found = read_settings(instance)
    assert (found.pool_default_limit, found.pool_granularity) == (2, "run")
    assert [(one.name, one.limit) for one in found.pools] == [("other", 2), ("warehouse", 3)]


def test_the_scheduler_that_catches_up_with_everything(settings_of):
    scheduler = "{module: dagster._core.scheduler, class: DagsterDaemonScheduler, config: {max_catchup_runs: 0}}"
    assert settings_of(f"scheduler: {scheduler}").max_catchup_runs == 0


def test_an_instance_that_keeps_nothing_bounds_nothing():
    with dg.DagsterInstance.ephemeral() as instance:
        found = read_settings(instance)
    assert (found.is_ephemeral, found.home, found.storage, found.is_queued) == (True, None, "memory", False)


def test_what_cannot_be_read_is_said_and_bounds_nothing(settings_of):
    found = settings_of("run_coordinator: {module: dagster, class: NoSuchCoordinator}")
    assert [one.partition(":")[0] for one in found.unreadable] == ["the run queue and its limits", "pools"]
    assert not found.is_queued
    assert found.monitoring is False
    assert found.storage == "sqlite"
