"""`marigold launch`, `status` and `cancel` without a daemon: what is shown, what is refused, and with which words."""

from __future__ import annotations

import json
import os
import signal
import threading

import dagster as dg
import pytest
from click.testing import CliRunner
from dagster._core.execution.backfill import BulkActionStatus

from marigold_assets import dagster_instance
from marigold_assets.cli.interrupting import Rests, interrupted_when_ended
from marigold_assets.cli.main import main
from marigold_assets.dagster_instance import Api
from marigold_assets_tests.integration.cli_project import BOUND, Project, day

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """Ten days of orders, on an instance that bounds backfills."""
    project = Project(tmp_path_factory.mktemp("shop"))
    project.home.mkdir()
    (project.home / "dagster.yaml").write_text(BOUND)
    project.build(project.shop(), "shop/raw_orders", keys=(day(1), day(10)))
    return project


@pytest.fixture
def marigold(shop, monkeypatch):
    monkeypatch.chdir(shop.folder)
    path = str(shop.folder / f"shop_{shop.folder.name}.py")
    return lambda command, *arguments, **how: shop.run(command, "-f", path, *arguments, **how)


def backfills(shop):
    with dg.DagsterInstance.from_config(str(shop.home)) as instance:
        return instance.get_backfills()


RAW = ("key:shop/raw_orders", "--from", day(1), "--to", day(12))


def test_a_dry_run_shows_the_plan_and_launches_nothing(shop, marigold):
    said = marigold("launch", *RAW, "--dry-run", "--without-daemon")
    assert "MISSING  2024-01-11  2024-01-12  2" in said
    assert "Nothing was launched, as --dry-run says." in said
    found = json.loads(marigold("launch", *RAW, "--dry-run", "--without-daemon", "--json"))
    assert found == {"launch": None, "partitions": 2}
    assert backfills(shop) == []


def test_what_is_current_is_not_launched(shop, marigold):
    assert "There is nothing to build" in marigold("launch", *RAW[:3], "--to", day(10), "--yes")
    assert backfills(shop) == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "Say what to build: SELECTION, or --plan FILE"),
        (("--from", day(1)), "What is to be built is said by SELECTION and its options"),
        (("raw_orderz", "--yes"), "raw_orders"),
        ((RAW[0], "--from", day(12), "--to", day(1), "--yes"), day(12)),
        ((RAW[0], "--from", "2024-1-5", "--yes"), "2024-1-5"),
        ((*RAW, "--yes"), "No daemon runs on this instance that would take up the backfill (seen never)"),
        ((*RAW, "--without-daemon"), "Nobody can be asked here, and nothing was launched: give --yes."),
        ((*RAW, "--without-daemon", "--yes", "--max-partitions", "1"), "--max-partitions 2"),
        ((*RAW, "--without-daemon", "--yes", "--tag", "dagster/priority=9"), "'dagster/priority' is not one to give"),
        ((*RAW, "--without-daemon", "--yes", "--tag", "priority"), "--tag is 'priority': give NAME=VALUE."),
        ((*RAW, "--yes", "--unbounded", " "), "--unbounded is blank: say why."),
        (("--plan", "shop.duckdb", "--yes"), "shop.duckdb holds no plan"),
        (("--plan", "nothing.json", "--yes"), "nothing.json"),
        (("sales_to_date", "--yes", "--without-daemon"), "take it along: '*sales_to_date' is sales_to_date and all"),
        (("*", "--yes", "--order", "newest-first", "--skip-blocked"), "newest"),
        ((*RAW, "--yes", "--canary", "-1"), "--canary"),
    ],
)
def test_a_wrong_command_line_is_refused_in_words_and_launches_nothing(shop, marigold, arguments, said):
    message = marigold("launch", *arguments, code=2)
    assert said in message
    assert "Traceback" not in message
    assert backfills(shop) == []


def test_without_an_instance_nothing_is_launched_watched_or_canceled(marigold):
    for command, *arguments in (("launch", *RAW, "--yes"), ("status",), ("cancel", "abcdefgh", "--yes")):
        assert "temporary instance: results would be lost" in marigold(command, *arguments, code=2, home=False)


def test_an_instance_that_bounds_nothing_is_refused_with_the_lines_that_bound_it(shop, marigold, tmp_path):
    (tmp_path / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    message = marigold("launch", *RAW, "--yes", code=2, home=str(tmp_path))
    assert "does not bound backfills" in message
    assert "key: dagster/backfill" in message


def test_a_name_that_is_none_is_refused(marigold):
    assert "this instance has no backfill" in marigold("status", code=2).lower()
    assert "there is no launch and no backfill 'abcdefgh'" in marigold("cancel", "abcdefgh", code=2).lower()


def test_a_saved_plan_is_not_launched_with_code_that_was_not_the_same_though_its_version_is(shop, marigold):
    marigold("plan", *RAW, "--save", "approved.json")
    other = shop.shop("edited", cents=11)
    saved = ["launch", "--plan", "approved.json", "--yes", "--without-daemon", "--dry-run"]
    message = shop.run(*saved, "-f", str(other), code=2)
    assert "shop/raw_orders is built by code that was not the same, though it is still called 1" in message
    marigold(*saved)
    assert backfills(shop) == []


def test_a_launch_for_when_the_daemon_starts_is_told_found_and_conflicts(shop, marigold):
    marigold("plan", *RAW, "--save", "plan.json")
    launched = json.loads(marigold("launch", "--plan", "plan.json", "--yes", "--without-daemon", "--json"))
    [backfill] = backfills(shop)
    assert launched["backfills"] == [backfill.backfill_id]
    assert launched["partitions"] == 2
    assert backfill.title == f"marigold: key:shop/raw_orders, {day(1)} to {day(12)}"
    found = json.loads(marigold("status", "--json"))
    assert found["launch"] == launched["launch"]
    assert [(one["asset"], one["total"], one["queued"]) for one in found["assets"]] == [("shop/raw_orders", 2, 2)]
    assert "Runs: none yet" in marigold("status", launched["launch"])
    assert f"backfill {backfill.backfill_id} (REQUESTED)" in marigold(
        "launch", *RAW, "--yes", "--without-daemon", code=2
    )
    # Others build one of its days meanwhile: what was planned is not what there is to do.
    shop.build(shop.folder / f"shop_{shop.folder.name}.py", "shop/raw_orders", key=day(11))
    [left] = json.loads(marigold("status", "--json"))["assets"]
    assert (left["done"], left["built_by_others"], left["queued"]) == (1, 1, 1)
    with dg.DagsterInstance.from_config(str(shop.home)) as instance:
        instance.update_backfill(backfill.with_status(type(backfill.status).CANCELED))
    message = marigold("launch", "--plan", "plan.json", "--yes", "--without-daemon", code=2)
    assert f"raw_orders[{day(11)}] is not to be built any more" in message
    assert len(backfills(shop)) == 1
    assert "is over already" in marigold("cancel", launched["launch"], "--yes", code=2)


def test_what_was_submitted_when_somebody_interrupts_is_canceled_and_named(shop, marigold, monkeypatch):
    """A backfill may be there, although its id never came back."""
    before = {one.backfill_id for one in backfills(shop)}
    real = Api.launch_backfill

    def interrupted(self, params):
        real(self, params)
        raise KeyboardInterrupt

    monkeypatch.setattr(Api, "launch_backfill", interrupted)
    path = str(shop.folder / f"shop_{shop.folder.name}.py")
    ran = CliRunner(env={"DAGSTER_HOME": str(shop.home)}).invoke(
        main, ["launch", "-f", path, *RAW, "--yes", "--without-daemon"]
    )
    assert ran.exit_code == 130
    [made] = [one for one in backfills(shop) if one.backfill_id not in before]
    assert made.status.value == "CANCELING"
    assert f"Launch {made.tags['marigold/launch']} is canceled" in ran.stderr
    end(shop, made)


def test_of_two_launches_that_did_not_see_each_other_the_later_one_is_refused_and_canceled(shop, marigold, monkeypatch):
    before = {one.backfill_id for one in backfills(shop)}
    real = Api.launch_backfill

    def overtaken(self, params):
        others = [one for one in params["tags"] if one["key"] != "marigold/launch"]
        real(self, {**params, "tags": [*others, {"key": "marigold/launch", "value": "theother"}]})
        return real(self, params)

    monkeypatch.setattr(Api, "launch_backfill", overtaken)
    wished = ["--max-failures", "3", "--skip-blocked", "--without-daemon", "--tag", "team=till"]
    message = marigold("launch", *RAW, "--yes", *wished, code=2)
    mine, other = [one for one in backfills(shop) if one.backfill_id not in before]
    assert f"backfill {other.backfill_id} (REQUESTED) of shop/raw_orders is at" in message
    assert (mine.status.value, other.status.value) == ("CANCELING", "REQUESTED")
    end(shop, mine)
    said = json.loads(marigold("cancel", "theother", "--dry-run", "--json"))
    assert (said["is_over"], said["status"]["launch"], said["unfinished_runs"]) == (False, "theother", [])
    assert said["resume"].endswith("--max-failures 3 --skip-blocked --without-daemon --tag team=till")
    end(shop, other)


def test_how_to_go_on_with_what_something_else_has_launched_and_the_doctors_own_is_not_the_newest(shop, marigold):
    selector = {"assetKey": {"path": ["shop", "raw_orders"]}}
    ranges = {"ranges": [{"start": day(2), "end": day(4)}, {"start": day(6), "end": day(6)}]}
    path = str(shop.folder / f"shop_{shop.folder.name}.py")
    with (
        dg.DagsterInstance.from_config(str(shop.home)) as instance,
        dagster_instance.api(instance, python_file=path) as api,
    ):
        whole = api.launch_backfill(
            {"partitionsByAssets": [selector | {"partitions": {"ranges": ranges["ranges"][:1]}}]}
        )
        torn = api.launch_backfill({"partitionsByAssets": [selector | {"partitions": ranges}]})
        doctors = api.launch_backfill(
            {
                "partitionsByAssets": [selector | {"partitions": ranges}],
                "tags": [{"key": "marigold/sentinel", "value": "yes"}],
            }
        )
    said = json.loads(marigold("cancel", whole, "--dry-run", "--json"))
    assert said["resume"].endswith(f"shop/raw_orders --from {day(2)} --to {day(4)} --restate")
    assert json.loads(marigold("cancel", torn, "--dry-run", "--json"))["resume"] is None
    assert json.loads(marigold("status", "--json"))["launch"] == torn
    made = {one.backfill_id: one for one in backfills(shop)}
    for one in (whole, torn, doctors):
        end(shop, made[one])
    assert "To go on, launch it again where it was launched" in marigold("status", torn)
    assert "--restate" in marigold("status", whole)


def test_who_interrupts_watching_is_told_that_the_launch_goes_on(shop, marigold, monkeypatch):
    before = {one.backfill_id for one in backfills(shop)}
    monkeypatch.setattr(Rests, "rest", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    path = str(shop.folder / f"shop_{shop.folder.name}.py")
    arguments = ["launch", "-f", path, *RAW, "--yes", "--without-daemon", "--watch"]
    ran = CliRunner(env={"DAGSTER_HOME": str(shop.home)}).invoke(main, arguments)
    [made] = [one for one in backfills(shop) if one.backfill_id not in before]
    name = made.tags["marigold/launch"]
    assert ran.exit_code == 130
    assert f"Launch {name} goes on. Look: marigold status {name} --watch; stop it: marigold cancel" in ran.stderr
    assert made.status is BulkActionStatus.REQUESTED
    end(shop, made)


def end(shop, backfill):
    """Cancel it as the daemon would."""
    with dg.DagsterInstance.from_config(str(shop.home)) as instance:
        instance.update_backfill(backfill.with_status(BulkActionStatus.CANCELED))


def press():
    os.kill(os.getpid(), signal.SIGINT)


def test_an_interruption_waits_for_the_next_rest_and_a_second_one_does_not():
    reached = []

    def pressed_amid_a_look():
        with (rests := Rests()).only():
            press()
            reached.append("looked")
            rests.rest(60)

    def pressed_in_the_last_look():
        with Rests().only():
            press()
            reached.append("ended")

    def pressed_twice():
        with Rests().only():
            press()
            press()
            reached.append("never")

    def pressed_at_rest():
        with (rests := Rests()).only():
            threading.Timer(0.1, press).start()
            rests.rest(60)

    for case in (pressed_amid_a_look, pressed_in_the_last_look, pressed_twice, pressed_at_rest):
        with pytest.raises(KeyboardInterrupt):
            case()
    assert reached == ["looked", "ended"]
    with pytest.raises(KeyboardInterrupt), interrupted_when_ended():
        os.kill(os.getpid(), signal.SIGTERM)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
