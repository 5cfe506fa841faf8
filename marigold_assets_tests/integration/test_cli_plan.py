"""`marigold plan` and `marigold explain`: over a real history, for people and for programs."""

from __future__ import annotations

import hashlib
import json
import shutil
from datetime import UTC, datetime, timedelta

import dagster as dg
import pytest

from marigold_assets.backfill.past_runs import past_runs
from marigold_assets.location import LocationOptions, load
from marigold_assets.planning.as_json import from_json
from marigold_assets_tests.integration.cli_project import BOUND, SHOP, Project, day, two_versions

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def history(tmp_path_factory):
    """Twenty days of version 1; five of daily_sales again by version 2; one day of orders restated afterwards."""
    return two_versions(tmp_path_factory.mktemp("shop"), settings=BOUND)


@pytest.fixture
def shop(history, monkeypatch):
    """The same, and the definitions that were deployed last."""
    monkeypatch.chdir(history.folder)
    return history, str(history.folder / f"second_{history.folder.name}.py")


def days(first, last):
    return [day(number) for number in range(first, last + 1)]


def plan(shop, *arguments, **how):
    project, path = shop
    return from_json(json.loads(project.run("plan", *arguments, "-f", path, "--json", **how)))


def reasons(found, owner):
    """By reason, the partitions of an asset that a plan builds, and those that it leaves alone."""
    [asset] = [one for one in found.assets if one.owner == owner]
    told = {}
    for one in (*asset.keys, *asset.skipped):
        told.setdefault(one.reason.value, []).append(one.key)
    return told


def test_a_plan_gives_every_partition_its_reason(shop):
    found = plan(shop, "*")
    assert reasons(found, "shop/raw_orders") == {
        "MISSING": days(21, 31),
        "CURRENT": days(1, 20),
    }
    assert reasons(found, "daily_sales") == {
        "STALE_CODE": days(6, 20),
        "MISSING": days(21, 31),
        "CURRENT": days(1, 5),
    }
    assert reasons(found, "sales_to_date") == {"STALE_INPUT": days(1, 20), "MISSING": days(21, 31)}


def test_a_plan_and_the_report_of_versions_agree(shop):
    project, path = shop
    report = project.report(path, "daily_sales")
    stale = [key for one in report["code_stale"] for key in one["keys"]]
    assert reasons(plan(shop, "daily_sales", "--stale"), "daily_sales")["STALE_CODE"] == stale == days(6, 20)
    report = project.report(path, "sales_to_date")
    found = reasons(plan(shop, "*", "--stale"), "sales_to_date")
    assert {one["partition"] for one in report["stale"]} <= set(found["STALE_INPUT"])


def test_only_what_is_stale_leaves_out_what_was_never_built(shop):
    found = plan(shop, "daily_sales", "--stale")
    assert reasons(found, "daily_sales") == {
        "STALE_CODE": days(6, 20),
        "CURRENT": days(1, 5),
        "MISSING": days(21, 31),
    }
    assert found.size == 15


def test_what_is_stale_through_what_is_not_planned_is_told_and_not_built(shop):
    found = plan(shop, "sales_to_date", "--from", day(6), "--to", day(20))
    assert found.is_empty
    [asset] = found.assets
    assert asset.skipped[0].because == "stale only through sales_to_date[2024-01-05], which this plan does not build"
    [note] = asset.notes
    assert note == (
        "15 partitions are stale only through sales_to_date[2024-01-05], which this plan does not build:"
        " daily_sales[2024-01-05] was restated; plan daily_sales as well and begin earlier"
    )


def test_a_plan_names_the_ledger_positions_that_it_was_made_from(shop):
    project, path = shop
    location = load(LocationOptions(python_file=path))
    newest = {owner: asset.store.newest(asset.table).position for owner, asset in location.assets.items()}
    assert plan(shop, "daily_sales").positions == {
        "daily_sales": newest["daily_sales"],
        "shop/raw_orders": newest["shop/raw_orders"],
    }
    assert f"daily_sales {newest['daily_sales']}" in project.run("plan", "daily_sales", "-f", path)


def test_what_somebody_accepts_is_left_alone(shop, tmp_path, monkeypatch):
    project = Project(tmp_path / "copy")
    shutil.copytree(shop[0].folder, project.folder)
    path = project.shop("accepted", sales="2", n=2, cents=11)
    monkeypatch.chdir(project.folder)
    project.run(
        "versions", "accept", "daily_sales", "--range", f"{day(6)}...{day(8)}", "--reason", "closed year",
        "--by", "nadia", "-f", str(path),
    )  # fmt: skip
    found = plan((project, str(path)), "daily_sales", "--to", day(10))
    assert reasons(found, "daily_sales") == {
        "ACCEPTED": days(6, 8),
        "STALE_CODE": days(9, 10),
        "CURRENT": days(1, 5),
    }
    assert "by nadia: closed year" in found.assets[0].skipped[-1].because
    restated = plan((project, str(path)), "daily_sales", "--from", day(8), "--to", day(8), "--restate")
    assert reasons(restated, "daily_sales") == {"RESTATEMENT": [day(8)]}


def test_a_lookback_takes_the_days_before_a_missing_one_along(shop):
    found = plan(shop, "shop/raw_orders", "--from", day(21), "--to", day(21), "--lookback", "2")
    assert reasons(found, "shop/raw_orders") == {"LOOKBACK": days(19, 20), "MISSING": [day(21)]}


def contents(folder):
    """Everything in a folder, but for the queue in which readers stand for the lock of a database."""
    found = [one for one in folder.rglob("*") if "__pycache__" not in one.parts and ".duckdb.lock" not in one.name]
    return {str(one): hashlib.sha256(one.read_bytes()).hexdigest() if one.is_file() else "" for one in found}


@pytest.mark.parametrize("command", [["plan", "*"], ["plan", "*", "--json"], ["explain", "*"]])
def test_nothing_is_written(shop, command):
    project, path = shop
    before = contents(project.folder)
    project.run(*command, "-f", path)
    assert contents(project.folder) == before


def test_nothing_is_written_where_nothing_was_ever_run(tmp_path, monkeypatch):
    project = Project(tmp_path)
    project.home.mkdir()
    (project.home / "dagster.yaml").write_text(BOUND)
    path = project.shop("fresh")
    monkeypatch.chdir(tmp_path)
    before = contents(tmp_path)
    said = project.run("plan", "*", "-f", str(path))
    assert "at most 3 at once (the instance's limit on dagster/backfill)" in said
    assert "does not exist yet" in said
    assert contents(tmp_path) == before


def test_a_plan_works_without_an_instance_and_says_what_it_assumes(shop):
    project, path = shop
    said = project.run("plan", "*", "-f", path, home=False)
    assert "DAGSTER_HOME is not set: 2 slots are assumed" in said
    assert "no history:" in said
    assert "assumed for the first partition of a run" in said


def test_a_price_is_that_of_past_runs_and_never_of_none(shop):
    found = plan(shop, "*")
    assert found.bill.assumed == ()
    assert found.bill.wall.p90 >= found.bill.wall.median > 0
    assert found.bill.limits.slots == 3
    unpriced = plan(shop, "*", home=False)
    assert set(unpriced.bill.assumed) == {"shop/raw_orders", "daily_sales", "sales_to_date"}
    assert unpriced.bill.busy.median > found.bill.busy.median


def test_past_runs_are_those_that_came_through(shop):
    project, path = shop
    assets = load(LocationOptions(python_file=path)).assets
    with dg.DagsterInstance.from_config(str(project.home)) as instance:
        samples = past_runs(instance, assets.values())
        for run in instance.get_runs(dg.RunsFilter(tags={}))[:1]:
            assert run.is_success
    assert sum(len(times) for one in samples for times in one.swaps.values()) == 20 + 20 + 20 + 5 + 1
    for one in samples:
        [times] = one.swaps.values()
        assert one.launched_at < times[0] <= times[-1] <= one.ended_at
        assert datetime.now(UTC) - datetime.fromtimestamp(one.ended_at, UTC) < timedelta(hours=1)


def test_a_plan_that_is_not_empty_has_an_exit_code_of_its_own(shop):
    project, path = shop
    project.run("plan", "daily_sales", "-f", path, "--exit-code", code=3)
    project.run("plan", "daily_sales", "-f", path, code=0)
    current = ["daily_sales", "--from", day(1), "--to", day(5)]
    assert "Nothing to build: 5 partitions left alone." in project.run("plan", *current, "-f", path, "--exit-code")
    stale = ["sales_to_date", "--from", day(6), "--to", day(20)]
    assert "Nothing to build, and not all is well: 15 partitions left alone, 15 stale.\n" in project.run(
        "plan", *stale, "-f", path, "--exit-code", code=3
    )


def test_what_cannot_be_built_is_not_called_nothing_to_build_and_the_way_out_is_told(shop):
    project, path = shop
    blocked = ["plan", "daily_sales", "--from", day(21), "-f", path]
    said = project.run(*blocked, "--exit-code", code=3)
    assert "Nothing can be built: 11 partitions blocked.\n" in said
    assert said.endswith(
        f"\nBlocked: 11 partitions of daily_sales lack shop/raw_orders {day(21)} to {day(31)}; take it along:"
        " '*daily_sales' is daily_sales and all that it reads.\n"
    )
    along = project.run("plan", "*daily_sales", "--from", day(21), "-f", path)
    assert "22 partitions of 2 assets to build" in along
    assert "Blocked:" not in along
    chain = project.run("plan", "*sales_to_date", "--from", day(25), "-f", path)
    assert f"lack sales_to_date {day(21)} to {day(24)}; begin earlier: --from {day(21)}.\n" in chain
    assert "14 partitions of 2 assets to build" in chain
    assert "7 left alone, 7 blocked\n" in chain


def test_a_plan_is_shown_in_ranges_with_its_shape_its_price_and_what_to_do_next(shop):
    project, path = shop
    said = project.run("plan", "*", "-f", path, "--from", day(1))
    assert "57 partitions of 3 assets to build" in said or "partitions of 3 assets to build in" in said
    assert "  STALE_CODE  2024-01-06  2024-01-20  15  1 -> 2\n" in said
    assert "  MISSING     2024-01-21  2024-01-31  11  was never built\n" in said
    assert "a chain: one partition after another, oldest first, after daily_sales" in said
    assert "in the runs of shop/raw_orders, behind it" in said or "runs of up to 100 partitions" in said
    for title in ("time:", "runs:", "at least:", "bound by:", "order:", "one more slot:"):
        assert title in said
    assert said.endswith(f"Launch it: marigold launch '*' --from 2024-01-01 -f {path}\n")


def test_a_saved_plan_is_the_plan(shop, tmp_path):
    project, path = shop
    file = tmp_path / "plan.json"
    said = project.run("plan", "*", "-f", path, "--save", str(file))
    assert f"marigold launch --plan {file}" in said
    saved, made = from_json(json.loads(file.read_text())), plan(shop, "*")
    assert (saved.assets, saved.positions, saved.request) == (made.assets, made.positions, made.request)
    project.run("plan", "daily_sales", "-f", path, "--save", str(file))
    assert from_json(json.loads(file.read_text())).request.selection == "daily_sales"
    other = tmp_path / "notes.json"
    other.write_text("[1]")
    assert "holds no plan" in project.run("plan", "*", "-f", path, "--save", str(other), code=2)
    assert other.read_text() == "[1]"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["daily_sale"], "There is no asset 'daily_sale'. Remedy: perhaps daily_sales is meant."),
        (["raw_orders"], "perhaps shop/raw_orders is meant"),
        (["daily_sales", "--from", day(10), "--to", day(2)], "turn it round: --from 2024-01-02 --to 2024-01-10"),
        (["daily_sales", "--from", "2023-12-31"], "which would lie before the first"),
        (["daily_sales", "--to", "2024-02-01"], "which would lie behind the last"),
        (["daily_sales", "--from", "2024-1-5"], "perhaps 2024-01-05 is meant"),
        (["daily_sales", "--from", "2024-01-05T00:00"], "perhaps 2024-01-05 is meant"),
        (["group:none"], "names no asset"),
        (["daily_sales", "--lookback", "-1"], "-1 is not in the range"),
        (["sales_to_date", "--order", "newest-first"], "newest"),
        (["daily_sales", "--order", "sideways"], "is not one of"),
        ([""], "The selection is empty"),
        ([], "Missing argument 'SELECTION'"),
        (["daily_sales", "sales_to_date"], "unexpected extra argument"),
    ],
)
def test_a_wrong_command_line_is_refused_with_a_remedy(shop, arguments, said):
    project, path = shop
    told = project.run("plan", *arguments, "-f", path, code=2)
    assert said in told
    assert "Traceback" not in told


def test_a_missing_module_is_named(shop):
    project, _ = shop
    assert "nowhere.py" in project.run("plan", "*", "-f", "nowhere.py", code=2)


def test_an_explanation_names_every_input_of_a_partition(shop):
    project, path = shop
    said = project.run("explain", "*", "-f", path, "--partition", day(21))
    assert "daily_sales\n  2024-01-21 would be built, MISSING: was never built\n" in said
    assert "    reads shop/raw_orders 2024-01-21: is built by this plan\n" in said
    assert "    reads sales_to_date 2024-01-20: is built by this plan\n" in said
    said = project.run("explain", "daily_sales", "-f", path, "--partition", day(21))
    assert "2024-01-21 is left alone, BLOCKED: shop/raw_orders[2024-01-21] does not exist" in said
    assert "    reads shop/raw_orders 2024-01-21: does not exist\n" in said
    assert "no asset of the selection has a partition '2024-03-01'" in project.run(
        "explain", "*", "-f", path, "--partition", "2024-03-01", code=2
    ).replace("No asset", "no asset")
    narrow = ["explain", "*", "-f", path, "--to", day(5), "--partition", day(21)]
    assert "partition '2024-01-21' is not asked for" in project.run(*narrow, code=2).replace("Partition", "partition")


def test_an_explanation_is_the_plan_for_programs_too(shop):
    project, path = shop
    told = json.loads(project.run("explain", "*", "-f", path, "--json"))
    made = plan(shop, "*")
    for asset, one in zip(told["assets"], made.assets, strict=True):
        assert [key["partition"] for key in asset["partitions"]] == days(1, 31)
        assert {key["partition"] for key in asset["partitions"] if key["planned"]} == {key.key for key in one.keys}
    told = json.loads(project.run("explain", "daily_sales", "-f", path, "--json", "--partition", day(3)))
    [[read]] = [one["inputs"] for asset in told["assets"] for one in asset["partitions"]]
    assert (read["asset"], read["partitions"], read["built"], read["required"]) == (
        "shop/raw_orders",
        [day(3)],
        1,
        True,
    )


def test_what_the_report_of_versions_proposes_is_a_plan_of_what_it_names(shop):
    project, path = shop
    told = project.run("versions", "daily_sales", "-f", path)
    [words] = [line for line in told.splitlines() if "Remedy: marigold launch" in line and "accept" in line]
    command = words.split("Remedy: ")[1].split(" (its price")[0]
    found = from_json(json.loads(project.run(*command.replace("marigold launch", "plan").split(), "--json")))
    assert reasons(found, "daily_sales") == {"STALE_CODE": days(6, 20)}


def test_what_is_built_elsewhere_is_never_said_to_exist(tmp_path, monkeypatch):
    project = Project(tmp_path)
    text = SHOP.replace('key_prefix=["shop"])', 'key_prefix=["shop"], deps=[dg.AssetSpec("elsewhere")])')
    path = project.shop("outside", text=text)
    monkeypatch.chdir(tmp_path)
    said = project.run("explain", "shop/raw_orders", "-f", str(path), "--partition", day(1), home=False)
    assert "    reads elsewhere: built outside of this code location, which does not know what exists of it\n" in said
