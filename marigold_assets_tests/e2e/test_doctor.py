"""``marigold doctor --prove`` under a real daemon: it tells a bound that holds from one that is only written down."""

from __future__ import annotations

import json
from pathlib import Path

import dagster as dg
import pytest
from click.testing import CliRunner

from marigold_assets.cli.main import main

pytestmark = [pytest.mark.daemon, pytest.mark.timeout(600)]

PROJECT = Path(__file__).parents[2]
SETTINGS = (PROJECT / "dagster.yaml").read_text(encoding="utf-8")
LIMIT = "      - key: dagster/backfill\n        limit: 2\n"


@pytest.fixture
def settings():
    return SETTINGS


@pytest.fixture
def location():
    return Path(__file__).with_name("sentinel_location.py")


@pytest.fixture
def prove(rig, monkeypatch):
    """Runs the command; gives what it has proven."""
    monkeypatch.chdir(rig.room)
    command = ["doctor", "-w", str(rig.workspace_file), "--prove", "--yes", "--json"]

    def prove(*arguments, code=0):
        ran = CliRunner(env=rig.variables).invoke(main, [*command, *arguments], catch_exceptions=False)
        assert ran.exit_code == code, ran.output
        assert {run.status for run in rig.instance.get_runs()} == {dg.DagsterRunStatus.SUCCESS}
        return json.loads(ran.stdout)["proof"]

    return prove


def test_a_bound_is_proven_and_one_that_the_daemon_does_not_know_is_found_out(rig, prove, helpers):
    rig.start_daemon()
    helpers.wait_for(
        lambda: {"BACKFILL", "QUEUED_RUN_COORDINATOR"} <= set(rig.instance.get_daemon_heartbeats()), "the daemon"
    )
    found = prove()
    assert (found["limit"], found["launched"], found["peak"], found["holds"]) == (2, 4, 2, True)
    assert found["production_seconds"] < 60

    # Whoever changes the file and does not restart the daemon has changed nothing.
    (rig.home / "dagster.yaml").write_text(SETTINGS.replace(LIMIT, LIMIT.replace("2", "1")), encoding="utf-8")
    found = prove(code=1)
    assert (found["limit"], found["peak"], found["holds"]) == (1, 2, False)
