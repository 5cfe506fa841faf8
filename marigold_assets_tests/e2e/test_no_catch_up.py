"""A real daemon that was away, schedules that were paused, definitions that have changed: nothing is caught up."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.scheduler.instigation import ScheduleInstigatorData, TickStatus

pytestmark = [pytest.mark.daemon, pytest.mark.timeout(300)]

SETTINGS = (Path(__file__).parents[2] / "dagster.yaml").read_text(encoding="utf-8")
AWAY = timedelta(hours=7)
START = """
mutation($scheduleSelector: ScheduleSelector!) { startSchedule(scheduleSelector: $scheduleSelector) {
  __typename ... on PythonError { message } } }
"""
STOP = """
mutation($origin: String!, $selector: String!) {
  stopRunningSchedule(scheduleOriginId: $origin, scheduleSelectorId: $selector) {
    __typename ... on PythonError { message } } }
"""


@pytest.fixture
def settings():
    return SETTINGS


@pytest.fixture
def location():
    return Path(__file__).with_name("latest_location.py")


class Deployment:
    """What the code location says, and what Dagster keeps of its schedules."""

    def __init__(self, rig):
        self._rig = rig
        # Hours that have ended some minutes ago, so that none ends during the test.
        self.last_end = datetime.now(UTC).replace(second=0, microsecond=0) - timedelta(minutes=4)
        self.cron = f"{self.last_end.minute} * * * *"
        self.latest = f"{self.last_end - timedelta(hours=1):%Y-%m-%d-%H:%M}"
        self.deploy(start=self.last_end - timedelta(days=2), schedule=self.cron)

    def deploy(self, *, start, schedule):
        schedules = {"on": schedule, "late": schedule, "paused": self.cron}
        given = {"start": f"{start:%Y-%m-%d-%H:%M}", "cron": self.cron, "schedules": schedules}
        (self._rig.room / "latest.json").write_text(json.dumps(given), encoding="utf-8")

    def state(self, name):
        [found] = [one for one in self._rig.instance.all_instigator_state() if one.instigator_name == name]
        return found

    def ticks(self, name):
        states = [one for one in self._rig.instance.all_instigator_state() if one.instigator_name == name]
        return [
            tick
            for one in states
            for tick in self._rig.instance.get_ticks(one.instigator_origin_id, one.selector_id)
            if tick.status != TickStatus.STARTED
        ]

    def was_seen_last_before_all_that(self, name):
        """As the daemon leaves it that was stopped so long ago."""
        then = (datetime.now(UTC) - AWAY).timestamp()
        data = ScheduleInstigatorData(self.cron, then, then)
        self._rig.instance.update_instigator_state(self.state(name).with_data(data))

    def runs(self):
        return [(run.tags["dagster/schedule_name"], run.tags["dagster/partition"]) for run in self._runs()]

    def _runs(self):
        return self._rig.instance.get_runs()

    def all_have_ended(self):
        return all(run.status == dg.DagsterRunStatus.SUCCESS for run in self._runs())


def test_of_seven_hours_away_one_interval_is_run_and_none_after_unpausing_a_new_start_date_and_a_new_cron(rig, helpers):
    deployment = Deployment(rig)

    def selector(name):
        return {"repositoryLocationName": "e2e", "repositoryName": "__repository__", "scheduleName": name}

    with rig.user_interface() as launch:
        for name in ("of_on", "of_paused", "of_late"):
            launch(START, scheduleSelector=selector(name))
            deployment.was_seen_last_before_all_that(name)
        paused = deployment.state("of_paused")
        launch(STOP, origin=paused.instigator_origin_id, selector=paused.selector_id)

        daemon = rig.start_daemon()
        helpers.wait_for(lambda: deployment.ticks("of_on"), f"a tick\n{rig.logs()}", every_seconds=0.2)
        helpers.wait_for(lambda: deployment.ticks("of_late"), f"the late tick\n{rig.logs()}", every_seconds=0.2)
        helpers.wait_for(lambda: deployment.runs() and deployment.all_have_ended(), "the run", every_seconds=0.2)
        helpers.wait_for(lambda: deployment.ticks("conditions"), f"a sensor\n{rig.logs()}", every_seconds=0.2)
        assert deployment.runs() == [("of_on", deployment.latest)]
        [skipped] = deployment.ticks("of_late")
        assert skipped.status == TickStatus.SKIPPED
        due = f"{deployment.last_end:%Y-%m-%d %H:%M} UTC"
        assert skipped.skip_reason.startswith(f"{deployment.latest} was skipped: its tick of {due} came")
        assert f"marigold launch late --from {deployment.latest} --to {deployment.latest}" in skipped.skip_reason

        # All at once, and one of them un-paused; the daemon comes back to it.
        daemon.kill_group()
        daemon.wait()
        deployment.deploy(start=deployment.last_end - timedelta(days=730), schedule="* * * * *")
        launch(START, scheduleSelector=selector("of_paused"))
        looked = len(deployment.ticks("conditions"))
        rig.start_daemon()
        # At the next full minute.
        for name in ("of_on", "of_late"):
            helpers.wait_for(
                lambda name=name: len(deployment.ticks(name)) > 1, f"{name}\n{rig.logs()}", every_seconds=0.2
            )
        helpers.wait_for(
            lambda: len(deployment.ticks("conditions")) > looked + 1, f"the sensor\n{rig.logs()}", every_seconds=0.2
        )
    reasons = {
        name: max(deployment.ticks(name), key=lambda tick: tick.timestamp).skip_reason for name in ("of_on", "of_late")
    }
    assert f"this schedule has launched {deployment.latest} by run" in reasons["of_on"]
    assert f"its tick of {due} came" in reasons["of_late"]
    assert deployment.ticks("of_paused") == []
    assert deployment.runs() == [("of_on", deployment.latest)]
    assert {tick.status for tick in deployment.ticks("conditions")} == {TickStatus.SKIPPED}
