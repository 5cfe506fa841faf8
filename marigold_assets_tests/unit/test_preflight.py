"""What is said of an instance's settings: nothing that bounds less than everything passes for a bound."""

from __future__ import annotations

from dataclasses import replace

import pytest
import yaml

from marigold_assets.preflight.findings import Level, bounds, errors, examine_instance, is_bounded
from marigold_assets.preflight.settings import InstanceSettings, Pool, TagLimit
from marigold_assets.run_tags import BACKFILL_TAG, RANGE_START_TAG

GOOD = InstanceSettings(
    home="/srv/dagster",
    is_ephemeral=False,
    storage="sqlite",
    is_queued=True,
    max_concurrent_runs=6,
    tag_limits=(TagLimit(key=BACKFILL_TAG, limit=2), TagLimit(key=RANGE_START_TAG, limit=2)),
    dequeues_in_threads=True,
    monitoring=True,
    start_timeout_seconds=180,
    cancel_timeout_seconds=180,
    max_runtime_seconds=7200,
    retries=True,
    max_retries=3,
    retries_failures=False,
    max_catchup_runs=5,
)


def _limits(*limits):
    return replace(GOOD, tag_limits=limits)


def _found(settings, code):
    return [one for one in examine_instance(settings) if one.code == code and one.level is not Level.OK]


def test_the_settings_of_the_project_are_all_well():
    assert {one.level for one in examine_instance(GOOD)} == {Level.OK}
    assert is_bounded(GOOD)


def test_nothing_that_is_known_of_an_instance_bounds_nothing():
    assert not is_bounded(InstanceSettings())
    assert errors(examine_instance(InstanceSettings()))


RANGES = TagLimit(key=RANGE_START_TAG, limit=2)


@pytest.mark.parametrize(
    ("settings", "code", "words"),
    [
        (replace(GOOD, is_queued=False), "queue", "without a queue"),
        (replace(GOOD, max_concurrent_runs=0), "queue", "no run ever leaves"),
        (_limits(RANGES), "backfill-limit", "No limit on tag dagster/backfill is set"),
        (
            _limits(RANGES, TagLimit(key=BACKFILL_TAG, limit=2, per_value=True)),
            "backfill-limit",
            "three backfills run 6 at once",
        ),
        (_limits(RANGES, TagLimit(key=BACKFILL_TAG, limit=2, value="x")), "backfill-limit", "for single backfills"),
        (_limits(RANGES, TagLimit(key=BACKFILL_TAG, limit=0)), "backfill-limit", "ever leaves the queue"),
        (_limits(RANGES, TagLimit(key=BACKFILL_TAG, limit=4)), "free-slots", "leaves none for production"),
        (
            _limits(TagLimit(key=BACKFILL_TAG, limit=6)),
            "free-slots",
            "Backfills may take 6 of 6 slots: that leaves none",
        ),
    ],
)
def test_what_does_not_bound_every_backfill_is_an_error(settings, code, words):
    [found] = [one for one in bounds(settings) if one.code == code]
    assert found.level is Level.ERROR
    assert words in found.message
    assert found.remedy
    assert not is_bounded(settings)


def test_a_range_without_limit_leaves_backfills_bounded_and_is_an_error_all_the_same():
    settings = _limits(TagLimit(key=BACKFILL_TAG, limit=2))
    assert is_bounded(settings)
    [found] = _found(settings, "range-limit")
    assert found.level is Level.ERROR


@pytest.mark.parametrize(
    "settings",
    [
        InstanceSettings(is_queued=True, max_concurrent_runs=10),
        _limits(),
        _limits(TagLimit(key=BACKFILL_TAG, limit=9)),
        _limits(TagLimit(key=BACKFILL_TAG, limit=2, per_value=True), TagLimit(key="team", limit=1)),
        replace(GOOD, max_concurrent_runs=0),
        replace(GOOD, max_concurrent_runs=None),
        replace(GOOD, max_concurrent_runs=3),
        replace(_limits(RANGES, TagLimit(key=BACKFILL_TAG, limit=900)), max_concurrent_runs=2000),
    ],
)
def test_the_lines_that_are_given_as_a_remedy_are_a_remedy(settings):
    given = next(one.lines for one in examine_instance(settings) if one.lines)
    runs = yaml.safe_load(given)["concurrency"]["runs"]
    limits = tuple(TagLimit(**one) for one in runs["tag_concurrency_limits"])
    mended = replace(settings, max_concurrent_runs=runs["max_concurrent_runs"], tag_limits=limits)
    assert {one.level for one in bounds(mended)} == {Level.OK}


def test_lines_that_contradict_the_run_queue_say_so():
    settings = replace(InstanceSettings(is_queued=True, max_concurrent_runs=10), in_run_queue=True)
    assert "without max_concurrent_runs and tag_concurrency_limits under run_queue" in bounds(settings)[-1].lines


def test_a_queue_without_end_is_bounded_but_nothing_bounds_production():
    settings = replace(GOOD, max_concurrent_runs=None)
    assert is_bounded(settings)
    [found] = _found(settings, "free-slots")
    assert found.level is Level.WARNING


@pytest.mark.parametrize(
    ("settings", "code", "level", "words"),
    [
        (replace(GOOD, monitoring=False), "run-monitoring", Level.ERROR, "keeps its slot for ever"),
        (replace(GOOD, start_timeout_seconds=86_400), "run-monitoring", Level.ERROR, "only after 86,400 s"),
        (replace(GOOD, cancel_timeout_seconds=0), "run-monitoring", Level.ERROR, "cancel_timeout_seconds is 0"),
        (replace(GOOD, max_runtime_seconds=0), "run-monitoring", Level.WARNING, "max_runtime_seconds is not set"),
        (replace(GOOD, retries_failures=True), "retries", Level.ERROR, "fences out"),
        (replace(GOOD, retries=False), "retries", Level.WARNING, "stays failed"),
        (replace(GOOD, max_catchup_runs=0), "catch-up", Level.ERROR, "replays every missed tick"),
        (replace(GOOD, max_catchup_runs=None), "catch-up", Level.WARNING, "not known"),
        (replace(GOOD, max_catchup_runs=-1), "catch-up", Level.ERROR, "all but the first 1"),
        (replace(GOOD, max_catchup_runs=1000), "catch-up", Level.WARNING, "count as production"),
        (replace(GOOD, max_retries=500), "retries", Level.WARNING, "500 times"),
        (replace(GOOD, dequeue_interval_seconds=7200.0), "dequeue", Level.ERROR, "is 7,200"),
        (replace(GOOD, dequeue_interval_seconds=300.0), "dequeue", Level.WARNING, "is 300"),
        (replace(GOOD, dequeues_in_threads=False), "dequeue", Level.WARNING, "starts one run after another, which"),
        (replace(GOOD, dequeue_threads=1), "dequeue", Level.WARNING, "in a single thread (dequeue_num_workers is 1)"),
        (replace(GOOD, dequeue_threads=0), "dequeue", Level.ERROR, "no run ever leaves the queue"),
        (replace(GOOD, max_retries=0), "retries", Level.WARNING, "on, but max_retries is 0"),
        (
            replace(GOOD, monitoring_poll_seconds=86_400),
            "run-monitoring",
            Level.ERROR,
            "poll_interval_seconds is 86,400",
        ),
        (
            replace(GOOD, max_runtime_seconds=10**9),
            "run-monitoring",
            Level.WARNING,
            "max_runtime_seconds is 1,000,000,000",
        ),
        (
            replace(_limits(RANGES, TagLimit(key=BACKFILL_TAG, limit=900)), max_concurrent_runs=2000),
            "backfill-limit",
            Level.WARNING,
            "bounds next to nothing",
        ),
        (
            replace(_limits(RANGES, TagLimit(key=BACKFILL_TAG, limit=730)), max_concurrent_runs=None),
            "backfill-limit",
            Level.WARNING,
            "730 runs of backfills may run at once",
        ),
        (
            replace(
                _limits(TagLimit(key=BACKFILL_TAG, limit=2), TagLimit(key=RANGE_START_TAG, limit=900)),
                max_concurrent_runs=2000,
            ),
            "range-limit",
            Level.WARNING,
            "bounds next to nothing",
        ),
        (replace(GOOD, is_ephemeral=True), "storage", Level.ERROR, "results would be lost"),
        (replace(GOOD, unreadable=("pools: OSError",)), "unreadable", Level.ERROR, "pools: OSError"),
    ],
)
def test_what_else_is_wrong_is_found_and_told_how_to_mend(settings, code, level, words):
    [found] = _found(settings, code)
    assert found.level is level
    assert words in found.message
    assert found.remedy


def test_pools_leak_at_first_use_and_make_production_wait():
    leaking = replace(GOOD, pool_default_limit=1, pool_granularity="run")
    assert "first time" in _found(leaking, "pools")[0].message
    shared = replace(GOOD, pools=(Pool(name="warehouse", limit=2),))
    [found] = _found(shared, "pools")
    assert "production waits" in found.message
    assert "dagster instance concurrency set warehouse 3" in found.remedy
    assert not _found(replace(GOOD, pools=(Pool(name="warehouse", limit=3),)), "pools")
