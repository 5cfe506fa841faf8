"""Launches under a real daemon with the project's own dagster.yaml, through the command line."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path

import dagster as dg
import pytest
from click.testing import CliRunner

from marigold_assets.cli.main import main
from marigold_assets.process_priority import NICENESS

pytestmark = [pytest.mark.daemon, pytest.mark.timeout(600)]

SETTINGS = (Path(__file__).parents[2] / "dagster.yaml").read_text(encoding="utf-8")
LOCATION = Path(__file__).with_name("backfill_location.py")
KEYS = [f"2024-01-{number:02d}" for number in range(1, 32)]


@pytest.fixture(scope="module")
def shop(zygote, helpers):
    """An instance with a daemon that looks at backfills every second. All tests share it: each has its own asset."""
    with helpers.new_room() as room, pytest.MonkeyPatch.context() as environment:
        rig = helpers.Rig(zygote, room, SETTINGS, shutil.copy(LOCATION, room / LOCATION.name))
        environment.setenv("DAGSTER_HOME", str(rig.home))
        environment.chdir(room)
        try:
            rig.start_daemon()
            helpers.wait_for(lambda: len(rig.instance.get_daemon_heartbeats()) > 3, "the daemon to start")
            yield Shop(rig, helpers)
        finally:
            rig.close()


class Shop:
    """A command line beside a daemon."""

    def __init__(self, rig, helpers):
        self.rig, self.helpers = rig, helpers

    def marigold(self, command, *arguments, code=0):
        where = ["-f", str(self.rig.room / LOCATION.name), "-a", "defs"]
        result = CliRunner().invoke(main, [command, *where, *arguments])
        assert result.exit_code == code, result.output + self.rig.logs()
        return result

    def launch(self, *arguments):
        """Launch without asking; the name of the launch and its backfills."""
        found = json.loads(self.marigold("launch", *arguments, "--yes", "--json").stdout)
        return found["launch"], found["backfills"]

    def pace(self, asset, seconds):
        (self.rig.room / f"seconds@{asset}").write_text(str(seconds), encoding="utf-8")

    def status(self, name=None):
        return json.loads(self.marigold("status", *([] if name is None else [name]), "--json").stdout)

    def await_end(self, name, seconds=180):
        self.helpers.wait_for(lambda: self.status(name)["is_over"], f"{name} to end", seconds, every_seconds=0.5)
        return self.status(name)

    def entries(self, table):
        return self.rig.store.ledger(self.rig.table(table))

    def keys(self, table):
        return [entry.partition_key for entry in self.entries(table)]

    def runs(self, backfills):
        return self.rig.instance.get_runs(filters=dg.RunsFilter(tags={"dagster/backfill": list(backfills)}))


def test_days_and_the_chain_behind_them_are_launched_as_planned_watched_and_seen_in_the_api(shop):
    arguments = ["key:shop/raw+", "--from", KEYS[0], "--to", KEYS[3]]
    name, [backfill] = shop.launch(*arguments, "--max-failures", "2", "--tag", "team=till", "--title", '100 % "raw"')
    refused = shop.marigold("launch", *arguments, "--yes", code=2)
    assert f"backfill {backfill} (REQUESTED)" in refused.stderr
    assert f"marigold cancel {backfill}" in refused.stderr

    # What the user interface shows.
    found = shop.rig.instance.get_backfill(backfill)
    assert found.title == "marigold: 100 ' 'raw'"
    assert found.description.startswith("Price of the launch: ")
    assert f"marigold status {name}" in found.description
    assert found.tags["team"] == "till"
    assert found.tags["marigold/launch"] == name
    assert int(found.tags["dagster/priority"]) < 0
    assert str(shop.rig.home) not in json.dumps([found.title, found.description, dict(found.tags)])

    watched = shop.marigold("status", name, "--watch")
    assert "8 of 8 partitions, 0 failed" in watched.stderr
    ended = shop.status(name)
    assert ended["is_well"]
    assert [(one["asset"], one["built"]) for one in ended["assets"]] == [("shop/raw", 4), ("total", 4)]
    assert ended["predicted"]["partitions"] == 8
    assert 0 < ended["actual"]["wall_seconds"] < 170
    assert ended["drift"] is not None
    assert {run.tags["marigold/launch"] for run in shop.runs([backfill])} == {name}
    assert (shop.rig.room / "niceness@raw").read_text() == str(NICENESS)
    # A chain is built in order, and each day of it only when the day it reads is there.
    heads = shop.rig.store.heads(shop.rig.table("raw"))
    chain = shop.entries("total")
    assert [entry.partition_key for entry in chain] == KEYS[:4]
    assert all(entry.position > heads[entry.partition_key].position for entry in chain)

    again = shop.marigold("launch", *arguments, "--yes")
    assert "There is nothing to build" in again.stdout
    price = json.loads(shop.marigold("plan", "key:shop/raw+", "--restate", "--json").stdout)["bill"]
    assert price["assumed"] == []


def test_a_canceled_launch_leaves_whole_days_starts_nothing_more_and_the_same_launch_builds_the_rest(shop):
    shop.pace("single", 0.5)
    saved = shop.rig.room / "plan.json"
    shop.marigold("plan", "single", "--from", KEYS[0], "--to", KEYS[7], "--save", str(saved))
    name, backfills = shop.launch("--plan", str(saved))
    shop.helpers.wait_for(lambda: len(shop.keys("single")) >= 2, "two days to be built", every_seconds=0.2)
    assert "Cancel it?" not in shop.marigold("cancel", name, "--dry-run").output

    canceled = json.loads(shop.marigold("cancel", name, "--yes", "--json").stdout)
    assert canceled["is_over"]
    built = set(shop.keys("single"))
    started = {run.run_id for run in shop.runs(backfills) if run.status is not dg.DagsterRunStatus.CANCELED}
    assert 2 <= len(built) < 8
    assert shop.rig.query("SELECT count(*), count(DISTINCT day) FROM shop.single") == [(len(built), len(built))]
    time.sleep(3)  # some looks of the daemon, and of the queue
    assert {run.run_id for run in shop.runs(backfills) if run.status is not dg.DagsterRunStatus.CANCELED} == started
    assert all(run.is_finished for run in shop.runs(backfills))
    assert set(shop.keys("single")) == built
    [left] = canceled["status"]["assets"]
    assert (left["done"], left["running"]) == (len(built), 0)
    assert left["done"] + left["not_started"] + left["canceled"] + left["failed"] == 8
    assert shop.marigold("cancel", name, "--yes", code=2).stderr.count("is over already") == 1

    # What was planned is not what there is to do any more.
    conflict = shop.marigold("launch", "--plan", str(saved), "--yes", code=2)
    assert "there is something else to do" in conflict.stderr
    assert canceled["resume"].endswith(f"single --from {KEYS[0]} --to {KEYS[7]}")
    shop.pace("single", 0)
    rest, _ = shop.launch("single", "--from", KEYS[0], "--to", KEYS[7])
    ended = shop.await_end(rest)
    assert ended["assets"][0]["total"] == 8 - len(built)
    assert sorted(shop.keys("single")) == KEYS[:8]  # no day twice


def test_a_spent_budget_stops_the_rest_though_nobody_watches(shop):
    for key in KEYS[:4]:
        (shop.rig.room / f"raise@fragile@{key}").touch()
    name, backfills = shop.launch("fragile", "--to", KEYS[19], "--max-failures", "1")
    shop.helpers.wait_for(
        lambda: not shop.rig.instance.get_backfill(backfills[0]).status.value.startswith(("REQ", "CANCELING")),
        f"the rest to be canceled\n{shop.rig.logs()}",
        every_seconds=0.5,
    )
    ended = shop.status(name)
    assert ended["backfills"][0]["status"] == "CANCELED"
    assert ended["is_over"]
    assert ended["runs"]["canceled"] > 10
    assert "RuntimeError: the till is closed" in {one["message"] for one in ended["failed_runs"]}
    assert len(shop.keys("fragile")) <= 3
    shop.marigold("status", name, "--exit-code", code=1)


def test_a_canary_whose_check_fails_stops_the_rest_and_a_good_one_is_followed_newest_first(shop):
    (shop.rig.room / f"bad@{KEYS[7]}").touch()
    arguments = ["checked", "--from", KEYS[0], "--to", KEYS[7], "--canary", "2", "--yes"]
    stopped = shop.marigold("launch", *arguments, code=1)
    assert f"check cents_are_right of checked [{KEYS[7]}]" in stopped.stderr
    assert sorted(shop.keys("checked")) == [KEYS[0], KEYS[7]]
    (shop.rig.room / f"bad@{KEYS[7]}").unlink()

    shop.pace("checked", 0)
    found = shop.marigold("launch", *arguments, "--order", "newest-first", "--json", "--watch")
    assert json.loads(found.stdout)["partitions"] == 6
    order = shop.keys("checked")[2:]
    assert set(order[:2]) == {KEYS[1], KEYS[6]}
    assert sorted(order[2:]) == KEYS[2:6]
    # Two run at once, so that neighbours may overtake each other.
    assert all(abs(order[2:].index(key) - at) <= 1 for at, key in enumerate(reversed(KEYS[2:6])))


@pytest.mark.skipif("MARIGOLD_STRESS" not in os.environ, reason="by hand: MARIGOLD_STRESS=1")
@pytest.mark.parametrize("moment", [0.5, 2, 4, 6, 8, 10])
def test_a_launch_that_is_canceled_at_any_moment_ends(shop, moment):
    shop.pace("pausing", 1)
    name, _ = shop.launch("pausing", "--restate", "--from", KEYS[0], "--to", KEYS[7])
    time.sleep(moment)
    assert json.loads(shop.marigold("cancel", name, "--yes", "--json").stdout)["seconds"] < 90
