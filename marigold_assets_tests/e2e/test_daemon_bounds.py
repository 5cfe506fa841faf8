"""The project's own dagster.yaml under a real daemon: backfills are bounded, and production starts at once."""

from __future__ import annotations

import os
import time
from pathlib import Path

import dagster as dg
import pytest
import yaml
from dagster._core.storage.dagster_run import IN_PROGRESS_RUN_STATUSES

pytestmark = [pytest.mark.daemon, pytest.mark.timeout(900)]

SETTINGS = (Path(__file__).parents[2] / "dagster.yaml").read_text(encoding="utf-8")
LIMITS = {
    limit["key"]: limit["limit"] for limit in yaml.safe_load(SETTINGS)["concurrency"]["runs"]["tag_concurrency_limits"]
}
DAYS = [f"2024-01-{number:02d}" for number in range(1, 23)]
# The bound holds while slots are handed on, too: twice each, or by hand to the end.
ENOUGH = len(DAYS) if os.environ.get("MARIGOLD_STRESS") else 2 * LIMITS["dagster/backfill"]
# A run worker of its own has to be started, on a machine that is busy.
AT_ONCE_SECONDS = 30


@pytest.fixture
def settings():
    return SETTINGS


@pytest.fixture
def location():
    return Path(__file__).with_name("idle_location.py")


class Sampler:
    """What runs at the same time, looked at again and again."""

    def __init__(self, rig):
        self._rig = rig
        self.most = dict.fromkeys(LIMITS, 0)

    def look(self):
        running = self._rig.instance.get_runs(filters=dg.RunsFilter(statuses=IN_PROGRESS_RUN_STATUSES))
        for key, limit in LIMITS.items():
            count = sum(key in run.tags for run in running)
            self.most[key] = max(self.most[key], count)
            assert count <= limit, f"{count} runs with {key} at once"
        return running

    def wait_for(self, condition, what, helpers, seconds=120.0):
        def look_and_ask():
            self.look()
            return condition()

        # Looking costs a core that the runs could use.
        return helpers.wait_for(look_and_ask, what, seconds, every_seconds=0.25)


def test_a_backfill_keeps_within_its_bound_and_production_starts_at_once(rig, helpers):
    sampler = Sampler(rig)
    hold, hold_ranges = rig.room / "hold@backfill", rig.room / "hold@asset_partition_range_start"
    hold.touch()
    with rig.user_interface() as launch:
        wanted = {"assetSelection": [{"path": ["spare"]}], "partitionNames": DAYS}
        # Before the daemon starts, whose first look at backfills comes at once.
        backfill = launch(helpers.LAUNCH_BACKFILL, backfillParams=wanted)["backfillId"]
        rig.start_daemon()

        def runs_of_backfill(*statuses):
            filters = dg.RunsFilter(tags={"dagster/backfill": backfill}, statuses=list(statuses))
            return rig.instance.get_runs(filters=filters)

        bound = LIMITS["dagster/backfill"]
        sampler.wait_for(lambda: len(rig.arrived("spare", "*")) == bound, "the backfill to fill its bound", helpers)
        sampler.wait_for(lambda: len(runs_of_backfill()) == len(DAYS), "all runs to be queued", helpers)

        # The bound is full, and the queue is long: a plain run overtakes all of it.
        asked = time.monotonic()
        wanted = helpers.plain_run("spare_together", "2024-02-01")
        production = launch(helpers.LAUNCH_RUN, executionParams=wanted)["run"]["runId"]
        sampler.wait_for(lambda: rig.succeeded(production), "the plain run", helpers)
        assert time.monotonic() - asked < AT_ONCE_SECONDS
        assert len(rig.arrived("spare", "*")) == bound + 1
        assert len(runs_of_backfill(dg.DagsterRunStatus.QUEUED)) == len(DAYS) - bound

        # Ranges that do not belong to a backfill any more have a bound of their own, beside the full one.
        ranges, range_bound = [], LIMITS["dagster/asset_partition_range_start"]
        hold_ranges.touch()
        for day in DAYS[: range_bound + 1]:
            wanted = helpers.plain_run("spare_together", day)
            tags = {f"dagster/asset_partition_range_{end}": day for end in ("start", "end")}
            wanted["executionMetadata"]["tags"] = [{"key": key, "value": value} for key, value in tags.items()]
            ranges.append(launch(helpers.LAUNCH_RUN, executionParams=wanted)["run"]["runId"])
        both = bound + 1 + range_bound
        sampler.wait_for(lambda: len(rig.arrived("spare", "*")) == both, "the ranges to fill their bound", helpers)
        hold_ranges.unlink()
        sampler.wait_for(lambda: all(map(rig.succeeded, ranges)), "the ranges", helpers)
        assert len(runs_of_backfill(dg.DagsterRunStatus.QUEUED)) == len(DAYS) - bound

    hold.unlink()
    sampler.wait_for(
        lambda: len(runs_of_backfill(dg.DagsterRunStatus.SUCCESS)) >= ENOUGH,
        "the backfill to move on",
        helpers,
        seconds=600.0,
    )
    assert sampler.most == LIMITS
