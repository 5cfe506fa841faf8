"""`marigold versions accept`: a mixture is accepted on the record, by whom, why and until when."""

from __future__ import annotations

import getpass
import json
import shutil
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from marigold_assets.location import LocationOptions, load
from marigold_assets_tests.integration.cli_project import SHOP, Project, day

pytestmark = pytest.mark.slow
SALES = "shop/raw_orders"


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    """Six days of version 1, of which two are of version 2."""
    project = Project(tmp_path_factory.mktemp("mixed"))
    project.home.mkdir()
    project.build(project.shop("first"), SALES, keys=(day(1), day(6)))
    project.build(project.shop("second", raw="2"), SALES, keys=(day(5), day(6)))
    return project


@pytest.fixture
def shop(mixed, tmp_path, monkeypatch):
    """A copy of it, and the definitions of version 2."""
    project = Project(tmp_path)
    shutil.copytree(mixed.home, project.home)
    shutil.copy(mixed.database, project.database)
    monkeypatch.chdir(tmp_path)
    return project, project.shop("second", raw="2")


def accept(shop, *arguments, code=0, reason="the prices of that time", by="Nadia"):
    project, path = shop
    given = [*(["--reason", reason] if reason is not None else []), *(["--by", by] if by is not None else [])]
    return project.run("versions", "accept", SALES, "-f", str(path), *given, *arguments, code=code)


def recorded(shop):
    asset = load(LocationOptions(python_file=str(shop[1]))).asset(SALES)
    return asset.store.acceptances(asset.table)


def test_a_range_is_accepted_and_the_report_and_its_check_say_so(shop):
    project, path = shop
    project.run("versions", SALES, "-f", str(path), "--check", code=1)
    before = datetime.now(UTC)
    told = accept(shop, "--range", f"{day(1)}...{day(4)}", "--until", "2100-01-01")
    assert told.splitlines() == [
        "Accepted: 4 partitions of shop/raw_orders",
        f"  {day(1)} to {day(4)} (4 partitions): 1",
        "By Nadia, for: the prices of that time",
        "Until 2100-01-01 00:00:00 UTC; from then on they are accepted no longer.",
    ]
    entries = recorded(shop)
    assert [one.partition_key for one in entries] == [day(number) for number in range(1, 5)]
    one = entries[0]
    assert (one.accepted_by, one.reason) == ("Nadia", "the prices of that time")
    assert one.until == datetime(2100, 1, 1, tzinfo=UTC)
    assert before <= one.accepted_at <= datetime.now(UTC)
    assert (one.definition.code_version, one.owner) == ("1", SALES)
    project.run("versions", SALES, "-f", str(path), "--check")
    found = project.report(path, SALES)
    assert found["mixture"]["odd"] == []
    assert found["stretches"][0]["accepted"]["by"] == "Nadia"
    assert found["stretches"][0]["accepted"]["until"] == "2100-01-01T00:00:00Z"
    text = project.run("versions", SALES, "-f", str(path))
    assert "by Nadia, until 2100-01-01 00:00:00 UTC: the prices of that time" in text
    assert "4 partitions under others, which are accepted; all the rest under 2" in text


def test_all_that_is_odd_is_accepted_once(shop):
    accept(shop, "--partition", day(2))
    told = json.loads(accept(shop, "--all-odd", "--json"))
    assert (told["partitions"], told["withdrawn"], told["by"]) == (3, False, "Nadia")
    [definition] = told["definitions"]
    assert definition["definition"]["label"] == "1"
    assert [one["keys"] for one in definition["ranges"]] == [[day(1)], [day(3), day(4)]]
    assert accept(shop, "--all-odd") == "Nothing to accept: no partition of shop/raw_orders is odd.\n"
    assert json.loads(accept(shop, "--all-odd", "--json"))["partitions"] == 0
    assert len(recorded(shop)) == 4


def test_what_is_withdrawn_is_odd_again(shop):
    project, path = shop
    accept(shop, "--range", f"{day(1)}...{day(4)}")
    told = accept(shop, "--partition", day(3), "--withdraw", reason="it was wrong")
    assert told.startswith("Accepted no longer: 1 partition of shop/raw_orders")
    [odd] = project.report(path, SALES)["mixture"]["odd"]
    assert odd["keys"] == [day(3)]
    assert len(recorded(shop)) == 5
    told = accept(shop, "--range", f"{day(3)}...{day(4)}", "--withdraw", code=2)
    assert "1 of these partitions are not accepted: '2024-01-03'" in told
    assert len(recorded(shop)) == 5


def test_what_is_built_under_yet_another_definition_is_not_accepted_by_it(shop):
    project, path = shop
    accept(shop, "--all-odd")
    project.build(project.shop("third", raw="3"), SALES, key=day(1))
    [odd] = project.report(path, SALES)["mixture"]["odd"]
    assert odd["keys"] == [day(1)]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--range", "2024-01-04...2024-01-01"], "ends before it begins"),
        (["--range", "2024-01-01...2023-12-01"], "'2023-12-01' is none of its partitions"),
        (["--range", "2024-01-01"], "is no range"),
        (["--partition", "2024-02-30"], "which are '2024-01-01' to '2024-01-31'"),
        (["--range", "2024-01-05...2024-01-08"], "2 of these partitions were never built: '2024-01-07', '2024-01-08'"),
        (["--partition", "2024-01-01", "--all-odd"], "only one of them"),
        (["--range", "2024-01-01...2024-01-02", "--all-odd"], "only one of them"),
        ([], "Name the partitions"),
        (["--all-odd", "--until", "2020-01-01"], "which is past"),
        (["--all-odd", "--until", "soon"], "give a date"),
        (["--all-odd", "--by", " "], "--by is blank"),
        (["--all-odd", "--withdraw"], "goes with --range or --partition"),
    ],
)
def test_what_makes_no_sense_is_refused_and_nothing_is_written(shop, arguments, told):
    by = None if "--by" in arguments else "Nadia"
    assert told in accept(shop, *arguments, code=2, by=by)
    assert recorded(shop) == ()


@pytest.mark.parametrize("reason", [None, "", "  "])
def test_a_reason_is_needed(shop, reason):
    told = accept(shop, "--all-odd", code=2, reason=reason)
    assert "--reason" in told
    assert recorded(shop) == ()


def test_until_a_moment_in_another_time_zone(shop):
    accept(shop, "--partition", day(1), "--until", "2100-01-01T00:00:00+02:00")
    assert recorded(shop)[0].until == datetime(2099, 12, 31, 22, tzinfo=UTC)


def test_who_accepts_is_the_user_of_git_or_else_of_the_system(shop, monkeypatch):
    project, _ = shop
    config = project.folder / "gitconfig"
    config.write_text("[user]\n\tname = Tom\u00e1s\n\temail = tomas@marigold.example\n")
    for name in ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"):
        monkeypatch.setenv(name, str(config))
    accept(shop, "--partition", day(1), by=None)
    assert recorded(shop)[-1].accepted_by == "Tom\u00e1s <tomas@marigold.example>"
    config.write_text("")
    accept(shop, "--partition", day(1), by=None)
    assert recorded(shop)[-1].accepted_by == getpass.getuser()


def test_an_asset_without_partitions_has_nothing_to_accept(shop):
    project, _ = shop
    path = project.folder / "whole.py"
    text = """
import dagster as dg
from marigold_assets import FencedPartitionIOManager

@dg.asset
def whole(): ...

defs = dg.Definitions([whole], resources={"io_manager": FencedPartitionIOManager(database="whole.duckdb")})
"""
    path.write_text(text)
    told = project.run("versions", "accept", "whole", "-f", str(path), "--all-odd", "--reason", "r", code=2)
    assert "has no partitions" in told


def test_processes_that_accept_at_once_all_do(shop):
    project, path = shop
    started = datetime.now(UTC)
    command = [str(Path(sys.executable).with_name("marigold")), "versions", "accept", SALES, "-f", str(path)]
    ran = [
        subprocess.Popen(
            [*command, "--partition", day(number), "--reason", "r", "--by", "Nadia"],
            cwd=project.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for number in (1, 2)
    ]
    assert [one.wait(timeout=60) for one in ran] == [0, 0], [one.stderr.read() for one in ran]
    for one in ran:
        one.stdout.close()
        one.stderr.close()
    assert sorted(one.partition_key for one in recorded(shop)) == [day(1), day(2)]
    assert all(one.accepted_at - started < timedelta(minutes=2) for one in recorded(shop))


FEWER = '"2024-01-01", end_date', '"2024-01-03", end_date'


def test_partitions_that_the_asset_no_longer_has_can_be_accepted_as_the_ledger_has_them(shop):
    project, path = shop
    fewer = project.folder / f"fewer_{project.folder.name}.py"
    fewer.write_text(path.read_text().replace(*FEWER))
    told = accept((project, fewer), "--partition", day(1))
    assert f"  {day(1)}: 1" in told.splitlines()
    told = json.loads(accept((project, fewer), "--all-odd", "--json"))
    assert sorted(key for one in told["definitions"][0]["ranges"] for key in one["keys"]) == [day(2), day(3), day(4)]
    assert "nothing to accept" in accept((project, fewer), "--all-odd").lower()
    assert {one["accepted"]["by"] for one in project.report(fewer, SALES)["retired"]} == {"Nadia"}
    refused = accept((project, fewer), "--range", f"{day(5)}...{day(1)}", code=2)
    assert "does not have any more" in refused


def test_all_that_is_odd_is_what_the_report_calls_odd(tmp_path, monkeypatch):
    """A version that is declared to change nothing, and does."""
    monkeypatch.chdir(tmp_path)
    project = Project(tmp_path)
    project.home.mkdir()
    project.build(project.shop("first"), SALES, "daily_sales", keys=(day(1), day(3)))
    text = SHOP.replace('code_version="{sales}"', 'code_version="{sales}", metadata=DECLARED')
    declared = 'DECLARED = {{"marigold/column_versions": {{"2": {{"since": "1", "columns": []}}}}}}'
    path = project.shop("second", sales="2", n=2, text=text.replace("\n\n\n@", f"\n{declared}\n\n\n@", 1))
    project.build(path, "daily_sales", key=day(3))
    [odd] = project.report(path, "daily_sales")["mixture"]["odd"]
    assert odd["keys"] == [day(1), day(2)]
    words = ["--all-odd", "--reason", "r", "--by", "Nadia", "--json"]
    told = json.loads(project.run("versions", "accept", "daily_sales", "-f", str(path), *words))
    assert told["partitions"] == 2
    assert project.report(path, "daily_sales")["mixture"]["odd"] == []
