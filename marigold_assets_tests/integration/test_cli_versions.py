"""`marigold versions ASSET`: the report over a real history, for people and for programs."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import sqlite3
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import dagster as dg
import duckdb
import pandas as pd
import pyarrow as pa
import pytest
from click.testing import CliRunner

from marigold_assets import FencedPartitionIOManager, FencedPartitionResource, partitioned_asset
from marigold_assets.cli.columns import shown
from marigold_assets.cli.main import main
from marigold_assets.cli.rendering import console, render
from marigold_assets.location import CodeLocation
from marigold_assets.model import Attempt, Equals, PartitionSlice, Provenance
from marigold_assets.planning.as_json import from_json
from marigold_assets.stores.duckdb import DuckDBStore
from marigold_assets.surveying.gathering import gather
from marigold_assets.surveying.survey import survey
from marigold_assets_tests.integration.cli_project import RANGE_END, RANGE_START, Project, day, two_versions
from marigold_assets_tests.unit.test_survey import entry
from marigold_assets_tests.unit.test_survey import report as survey_of

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def history(tmp_path_factory):
    """Twenty days of version 1; five of daily_sales again by version 2; one day of orders restated afterwards."""
    return two_versions(tmp_path_factory.mktemp("shop"))


@pytest.fixture
def shop(history, monkeypatch):
    """The same, and the definitions that were deployed last."""
    monkeypatch.chdir(history.folder)
    return history, history.folder / f"second_{history.folder.name}.py"


def days(first, last):
    return [day(number) for number in range(first, last + 1)]


def test_stretches_tell_definitions_rows_times_and_runs(shop):
    project, path = shop
    found = project.report(path, "daily_sales")
    assert found["format"] == 1
    assert found["partitions"] == {"defined": 31, "built": 20, "not_built": 11, "retired": 0}
    assert (found["rows"], found["table"]) == (20, {"schema": "public", "name": "daily_sales"})
    told = [(one["first"], one["last"], one["partitions"], one["rows"]) for one in found["stretches"]]
    assert told == [(day(1), day(5), 5, 5), (day(6), day(20), 15, 15), (day(21), day(31), 11, 0)]
    newest, older, missing = found["stretches"]
    assert (newest["definition"]["label"], older["definition"]["label"], missing["definition"]) == ("2", "1", None)
    assert len(newest["run_ids"]) == len(older["run_ids"]) == 1
    assert older["first_write"] <= older["last_write"] < newest["first_write"]
    assert newest["first_write"].endswith("Z")


def test_exactly_the_partitions_that_the_present_version_has_not_built(shop):
    project, path = shop
    [found] = project.report(path, "daily_sales")["code_stale"]
    assert found["keys"] == days(6, 20)
    assert (found["before"]["label"], found["after"]["label"]) == ("1", "2")


def test_inputs_that_have_changed_are_told_at_any_depth(shop):
    project, path = shop
    [stale] = project.report(path, "daily_sales")["stale"]
    orders = {"asset": "shop/raw_orders", "partition": day(12)}
    assert stale == {"partition": day(12), "because": orders, "depth": 1, "origin": orders}
    found = {one["partition"]: one for one in project.report(path, "sales_to_date")["stale"]}
    assert list(found) == days(1, 20)
    assert (found[day(3)]["depth"], found[day(3)]["origin"]["asset"]) == (1, "daily_sales")
    assert (found[day(8)]["depth"], found[day(8)]["origin"]) == (4, {"asset": "daily_sales", "partition": day(5)})
    assert (found[day(20)]["depth"], found[day(20)]["origin"]) == (10, orders)
    assert project.report(path, "shop/raw_orders")["stale"] == []


def test_which_columns_really_changed(shop):
    project, path = shop
    [change] = project.report(path, "daily_sales")["column_changes"]
    assert (change["before"]["label"], change["after"]["label"]) == ("1", "2")
    assert (change["partitions"], change["columns"], change["moved"]) == (5, {"n": 5}, 0)


def test_code_that_changed_under_its_version_is_told(shop):
    project, path = shop
    found = project.report(path, "shop/raw_orders")
    assert [one["keys"] for one in found["other_code_same_version"]] == [days(1, 11), days(13, 20)]
    assert found["code_stale"] == []


def test_the_event_log_agrees_with_the_ledger(shop):
    project, path = shop
    found = project.report(path, "daily_sales")["event_log"]
    assert found == {
        "compared": True,
        "home": str(project.home),
        "reason": None,
        "event_missing": [],
        "ledger_missing": [],
        "differing": [],
        "other_swap": [],
        "unknown": [],
    }


def test_without_an_instance_the_event_log_is_not_compared_and_nothing_is_made(shop):
    project, path = shop
    before = sorted(project.folder.iterdir())
    found = project.report(path, "daily_sales", home=False)
    assert found["event_log"]["compared"] is False
    assert "DAGSTER_HOME is not set" in found["event_log"]["reason"]
    assert "not compared: DAGSTER_HOME is not set" in project.run(
        "versions", "daily_sales", "-f", str(path), home=False
    )
    assert sorted(project.folder.iterdir()) == before


def test_people_are_told_the_same_with_the_commands_that_help(shop):
    project, path = shop
    text = project.run("versions", "-f", str(path), "daily_sales")
    lines = text.splitlines()
    assert lines[0] == "daily_sales (table public.daily_sales)"
    for line in (
        "31 partitions: 20 built, 11 not built; 20 rows",
        "Definitions: 15 partitions under others than 2, in all columns",
        f"  {day(6)} to {day(20)} (15 partitions): 1",
        "  the same that Definitions names, with the remedy",
        f"  {day(12)}: shop/raw_orders {day(12)} was restated",
        "Event log: agrees with the ledger",
    ):
        assert line in lines
    assert f"marigold launch daily_sales --from {day(6)} --to {day(20)} -f {path} (its price:" in text
    assert f"marigold versions accept -f {path} daily_sales --all-odd --reason ..." in text
    chain = project.run("versions", "sales_to_date", "-f", str(path))
    assert (
        f"after what is stale of daily_sales: marigold launch sales_to_date --from {day(1)} --to {day(20)} -f {path}"
    ) in chain


def test_the_commands_that_help_build_all_that_they_are_recommended_for(shop):
    project, path = shop
    texts = [project.run("versions", "-f", str(path), asset) for asset in ("daily_sales", "sales_to_date")]
    commands = [shlex.split(one) for text in texts for one in re.findall(r"marigold (launch .+?) \(its price:", text)]
    ends = {(asset, first[-2:], last[-2:]) for _, asset, _, first, _, last, *_ in commands}
    assert ends == {("daily_sales", "06", "20"), ("daily_sales", "12", "12"), ("sales_to_date", "01", "20")}
    for _, *words in commands:
        assert "--restate" not in words
        plan = from_json(json.loads(project.run("plan", *words, "--json")))
        assert [key.key for one in plan.assets for key in one.keys] == days(int(words[2][-2:]), int(words[4][-2:]))


def test_check_tells_by_its_exit_code(shop):
    project, path = shop
    project.run("versions", "daily_sales", "-f", str(path), "--check", code=1)
    project.run("versions", "shop/raw_orders", "-f", str(path), "--check")
    project.run("versions", "daily_sales", "-f", str(path))


def test_sql_joins_every_row_to_its_version(shop):
    project, path = shop
    query = project.run("versions", "daily_sales", "-f", str(path), "--sql")
    with duckdb.connect(project.database) as connection:
        rows = connection.sql(f"SELECT marigold_code_version, count(*) FROM ({query}) GROUP BY 1 ORDER BY 1").fetchall()
    assert rows == [("1", 15), ("2", 5)]


def test_a_process_of_its_own_prints_json_alone_and_reads_the_env_file(shop):
    project, path = shop
    (project.folder / ".env").write_text("DAGSTER_HOME=${PWD}/home\n")
    try:
        ran = project.process(
            "versions", "daily_sales", "--json", "-f", path.name, env={"DAGSTER_HOME": None, "PWD": str(project.folder)}
        )
    finally:
        (project.folder / ".env").unlink()
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout)["event_log"]["compared"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["daily_sale", "-f", "{path}"], "perhaps daily_sales is meant"),
        (["daily_sales", "-f", "nowhere.py"], "There is no file 'nowhere.py'"),
        (["daily_sales", "-m", "no.such.module"], "No module named 'no'"),
        (["daily_sales"], "has no pyproject.toml"),
        (["lock"], "No such command"),
    ],
)
def test_one_clear_error_and_exit_code_2(shop, arguments, told):
    project, path = shop
    if arguments == ["lock"]:
        arguments, told = ["--", "lock", "-f"], "no asset"
        arguments = ["-f", str(path), "--", "lock"]
    message = project.run("versions", *(one.format(path=path) for one in arguments), code=2)
    assert told in message
    assert "Traceback" not in message


def test_a_home_that_is_no_folder_is_named(shop):
    project, path = shop
    told = project.run("versions", "daily_sales", "-f", str(path), home="/no/such/folder", code=2)
    assert "DAGSTER_HOME is '/no/such/folder', which is no folder" in told
    assert "reports and plans can do without one" in told
    assert "no absolute path" in project.run("versions", "daily_sales", "-f", str(path), home="home", code=2)


def test_a_database_that_does_not_exist_is_named_and_not_made(shop, tmp_path):
    project, _ = shop
    other = Project(tmp_path)
    path = other.shop("empty")
    told = project.run("versions", "daily_sales", "-f", str(path), code=2)
    assert f"the database {other.database} does not exist" in told
    assert not other.database.exists()


@pytest.fixture
def copy(shop, tmp_path):
    """A project of its own to be harmed, with the same history."""
    project, _ = shop
    own = Project(tmp_path)
    shutil.copytree(project.home, own.home)
    shutil.copy(project.database, own.database)
    index = own.home / "history"
    assert index.exists()
    return own, own.shop("second", sales="2", n=2, cents=11)


def test_wiped_events_and_a_restored_database_are_told_apart(copy):
    own, path = copy
    saved = own.folder / "saved.duckdb"
    shutil.copy(own.database, saved)
    own.build(own.shop("third", sales="2", n=3, cents=11), "daily_sales", keys=(day(1), day(2)))
    own.build(path, "shop/raw_orders", key=day(21))
    shutil.copy(saved, own.database)
    found = own.report(path, "daily_sales")["event_log"]
    assert [one["keys"] for one in found["differing"]] == [days(1, 2)]
    found = own.report(path, "shop/raw_orders")["event_log"]
    assert [one["keys"] for one in found["ledger_missing"]] == [[day(21)]]
    with dg.DagsterInstance.local_temp(str(own.home)) as instance:
        instance.wipe_assets([dg.AssetKey("daily_sales")])
    found = own.report(path, "daily_sales")["event_log"]
    assert [one["keys"] for one in found["event_missing"]] == [days(1, 20)]
    text = own.run("versions", "daily_sales", "-f", str(path), "--check", code=1)
    assert "early_cutoff 'on'" in text


def located(asset, database, **options):
    resources = {"io_manager": FencedPartitionIOManager(database=str(database))}
    return CodeLocation.of(dg.Definitions([asset], resources=resources))


def reported(location, asset, capsys, monkeypatch, home=None):
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    if home is not None:
        monkeypatch.setenv("DAGSTER_HOME", str(home))
    found = survey(gather(location, location.asset(asset)), now=datetime.now(UTC))
    render(found, to=console())
    return found, capsys.readouterr().out


@pytest.fixture
def parts(tmp_path, monkeypatch, capsys):
    """Builds an asset of some partitions, and reports it."""

    def build(definition, keys, expression="part"):
        @partitioned_asset(partitions_def=definition, partition_expr=expression)
        def things(context: dg.AssetExecutionContext):
            if isinstance(expression, dict):
                return pd.DataFrame({name: [part] for name, part in context.partition_key.keys_by_dimension.items()})
            return pd.DataFrame({"part": [str(context.partition_key)]})

        location = located(things, tmp_path / "a.duckdb")
        with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
            if isinstance(definition, dg.DynamicPartitionsDefinition):
                instance.add_dynamic_partitions(definition.name, ["new", *keys])
            for key in keys:
                resources = {"io_manager": FencedPartitionIOManager(database=str(tmp_path / "a.duckdb"))}
                assert dg.materialize([things], partition_key=key, instance=instance, resources=resources).success
        return location, lambda home=None: reported(location, "things", capsys, monkeypatch, home)

    return build


def test_keys_with_markup_quotes_and_line_ends_are_shown_as_they_are(parts, tmp_path):
    keys = ["[bold]red", 'it\'s "so"', "[/]", " ü"]
    _, report = parts(dg.StaticPartitionsDefinition(keys), keys)
    found, text = report(tmp_path)
    assert found.is_well
    assert "[bold]red" in text
    assert shown("two\nlines") == "'two\\nlines'"
    assert (shown("it's"), shown(""), shown(None), shown(" a")) == ("it's", "''", "(whole table)", "' a'")
    assert not found.disagreement.counts


def test_partitions_of_several_dimensions(parts, tmp_path):
    definition = dg.MultiPartitionsDefinition(
        {"shop": dg.StaticPartitionsDefinition(["a", "b"]), "kind": dg.StaticPartitionsDefinition(["x", "y"])}
    )
    keys = [dg.MultiPartitionKey({"shop": "a", "kind": "y"}), dg.MultiPartitionKey({"shop": "b", "kind": "x"})]
    _, report = parts(definition, keys, {"shop": "shop", "kind": "kind"})
    found, text = report(tmp_path)
    assert (found.built, len(found.evidence.keys)) == (2, 4)
    assert "y|a" in text
    assert not found.disagreement.counts
    assert found.retired == ()


def test_dynamic_partitions_with_and_without_an_instance(parts, tmp_path):
    _, report = parts(dg.DynamicPartitionsDefinition(name="names"), ["b", "a"])
    found, _ = report(tmp_path)
    assert list(found.evidence.keys) == ["new", "b", "a"]
    found, text = report()
    assert list(found.evidence.keys) == ["b", "a"]
    assert "the partitions are dynamic" in text


def test_an_asset_without_partitions(tmp_path, capsys, monkeypatch):
    @dg.asset(code_version="3")
    def whole() -> pd.DataFrame:
        return pd.DataFrame({"a": [1, 2]})

    location = located(whole, tmp_path / "a.duckdb")
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        resources = {"io_manager": FencedPartitionIOManager(database=str(tmp_path / "a.duckdb"))}
        dg.materialize([whole], instance=instance, resources=resources)
    found, text = reported(location, "whole", capsys, monkeypatch, tmp_path)
    assert (found.is_well, found.built, found.row_count) == (True, 1, 2)
    assert "(whole table)" in text
    assert not found.disagreement.unknown
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        instance.wipe_assets([dg.AssetKey("whole")])
    found, _ = reported(location, "whole", capsys, monkeypatch, tmp_path)
    assert found.disagreement.event_missing == (None,)


@pytest.mark.filterwarnings("ignore:Parameter `backfill_policy`")
def test_a_range_run_of_the_resource_has_a_joint_version_about_which_nothing_is_said(tmp_path, capsys, monkeypatch):
    definition = dg.StaticPartitionsDefinition(["a", "b", "c"])
    warehouse = FencedPartitionResource(database=str(tmp_path / "a.duckdb"))

    @dg.asset(
        partitions_def=definition,
        metadata={"partition_expr": "part"},
        backfill_policy=dg.BackfillPolicy.single_run(),
        code_version="1",
    )
    def things(context, warehouse: FencedPartitionResource) -> dg.MaterializeResult:
        return warehouse.swap(context, pd.DataFrame({"part": context.partition_keys}))

    resources = {"warehouse": warehouse}
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        tags = {RANGE_START: "a", RANGE_END: "b"}
        assert dg.materialize([things], instance=instance, resources=resources, tags=tags).success
        assert dg.materialize([things], instance=instance, resources=resources, partition_key="c").success
    location = CodeLocation.of(dg.Definitions([things], resources=resources))
    found, text = reported(location, "things", capsys, monkeypatch, tmp_path)
    assert found.disagreement.unknown == ("a", "b")
    assert found.is_well
    assert "nothing can be said" in text


def test_inputs_of_which_nothing_is_known_are_named(history, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = (history.folder / f"second_{history.folder.name}.py").read_text()
    path = tmp_path / "without_orders.py"
    path.write_text(text.replace("assets=[raw_orders, ", "assets=["))
    found = history.report(path, "daily_sales")
    # The ledger of the same database knows it all the same.
    assert (found["unknown_inputs"], [one["partition"] for one in found["stale"]]) == ([], [day(12)])
    own = Project(tmp_path / "own")
    own.folder.mkdir()
    shutil.copytree(history.home, own.home)
    shutil.copy(history.database, own.database)
    with duckdb.connect(own.database) as connection:
        connection.execute("DELETE FROM marigold.ledger WHERE owner = 'shop/raw_orders'")
    path = own.folder / "without_orders.py"
    path.write_text(text.replace("assets=[raw_orders, ", "assets=[").replace(str(history.database), str(own.database)))
    found = own.report(path, "sales_to_date")
    why = "the code location does not have it"
    assert found["unknown_inputs"] == [{"asset": "shop/raw_orders", "reason": why, "was_recorded": True}]
    text = own.run("versions", "daily_sales", "-f", str(path))
    assert "Inputs: not judged; nothing is known any more of shop/raw_orders" in text.splitlines()
    assert "none has changed" not in text


def test_many_stretches_are_cut_short_unless_all_are_wanted(tmp_path, capsys, monkeypatch):
    def alternating(count):
        keys = [f"d{number}" for number in range(count)]
        built = [entry(key, number, version=str(number % 2)) for number, key in enumerate(keys)]
        return survey_of(*built, keys=keys, present=("1", "f"))

    render(alternating(10_000), to=console())
    text = capsys.readouterr().out
    assert len(text.splitlines()) < 100
    assert "… and 9,980 more; --all shows them" in text
    render(alternating(500), to=console(), most=None)
    assert len(capsys.readouterr().out.splitlines()) > 1_000


def test_nothing_is_cut_where_the_output_is_no_terminal(shop):
    project, path = shop
    text = project.run("versions", "daily_sales", "-f", str(path))
    assert max(map(len, text.splitlines())) > 160
    assert "\x1b[" not in text


def test_an_event_of_another_swap_is_told_although_the_content_is_the_same(copy):
    """A run of another version died between COMMIT and event."""
    own, _ = copy
    third = own.shop("third", sales="3", n=2, cents=11)
    own.build(third, "daily_sales", keys=(day(1), day(2)))
    assert own.report(third, "daily_sales")["event_log"]["other_swap"] == []
    with sqlite3.connect(own.home / "history" / "runs" / "index.db") as index:
        index.execute(
            "DELETE FROM event_logs WHERE id = (SELECT max(id) FROM event_logs WHERE partition = ? AND"
            " dagster_event_type = 'ASSET_MATERIALIZATION' AND asset_key = ?)",
            [day(2), '["daily_sales"]'],
        )
    index.close()
    found = own.report(third, "daily_sales")["event_log"]
    assert [one["keys"] for one in found["other_swap"]] == [[day(2)]]
    assert (found["differing"], found["event_missing"]) == ([], [])
    text = own.run("versions", "daily_sales", "-f", str(third), "--check", code=1)
    assert "but of another swap than the ledger" in text
    assert f"compared with that of the instance in {own.home} (DAGSTER_HOME)" in text
    assert "Nothing agrees" not in text


def test_rows_that_another_tool_has_changed_and_a_table_that_was_dropped_are_told(copy):
    own, path = copy
    table = own.report(path, "daily_sales")["table_rows"]
    assert table == {"stored": 20, "ledger": 20, "ledger_with_retired": 20, "agrees": True}
    with duckdb.connect(own.database) as connection:
        connection.execute("DELETE FROM public.daily_sales WHERE day = '2024-01-04'")
    text = own.run("versions", "daily_sales", "-f", str(path), "--check", code=1)
    assert "Table: holds 19 rows, and the ledger has 20: another tool has changed it" in text.splitlines()
    with duckdb.connect(own.database) as connection:
        connection.execute("DROP TABLE public.daily_sales")
    text = own.run("versions", "daily_sales", "-f", str(path), "--check", code=1)
    assert "Table: does not exist, although the ledger has rows in it: it was dropped" in text.splitlines()
    assert own.report(path, "daily_sales")["table_rows"]["stored"] is None


def test_what_is_stale_is_found_through_assets_that_were_renamed(copy):
    own, path = copy
    text = path.read_text().replace('key_prefix=["shop"]', 'key_prefix=["store"], metadata=FORMER')
    text = text.replace('["shop", "raw_orders"]', '["store", "raw_orders"]')
    former = 'FORMER = {"schema": "shop", "marigold/renamed_from": "shop/raw_orders"}'
    renamed = own.folder / "renamed.py"
    renamed.write_text(text.replace("\n\n\n@", f"\n{former}\n\n\n@", 1))
    before = {one["partition"]: one["depth"] for one in own.report(path, "sales_to_date")["stale"]}
    found = own.report(renamed, "sales_to_date")
    assert {one["partition"]: one["depth"] for one in found["stale"]} == before
    assert found["stale"][-1]["origin"] == {"asset": "store/raw_orders", "partition": day(12)}
    assert found["unknown_inputs"] == []
    # Its events are those of the former key.
    assert own.report(renamed, "store/raw_orders")["event_log"]["event_missing"] == []


def test_the_lock_file_is_that_of_the_definitions_wherever_the_command_runs(copy, tmp_path, monkeypatch):
    own, path = copy
    (own.folder / "code_versions.lock").write_text("no lock")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "pyproject.toml").touch()
    monkeypatch.chdir(elsewhere)
    [note] = own.report(path, "daily_sales")["notes"]
    assert note.startswith("code_versions.lock is not looked at")


@pytest.mark.parametrize(("swaps", "told"), [(1, False), (3, True)])
def test_rows_are_counted_again_where_the_table_was_written_meanwhile(parts, monkeypatch, swaps, told):
    location, report = parts(dg.StaticPartitionsDefinition(list("abcd")), ["a"])
    due, count = list("bcd"[:swaps]), DuckDBStore.row_count
    table = location.asset("things").table

    def count_after_a_swap(store, counted):
        if due:
            key = due.pop()
            slice_ = PartitionSlice(
                table=table, partition_key=key, conditions=(Equals(expression="part", value=key),), owner="things"
            )
            attempt = Attempt(run_id=key, token=store.draw_token(key))
            store.swap([slice_], pa.table({"part": [key]}), attempt=attempt, swap_id=key, provenance=Provenance())
        return count(store, counted)

    monkeypatch.setattr(DuckDBStore, "row_count", count_after_a_swap)
    found, text = report()
    assert (found.table.agrees, "written while it was counted" in text) == (not told, told)


@pytest.mark.parametrize("count", [1, 2])
def test_what_cannot_be_judged_is_told_with_a_command_that_accepts_it(capsys, count):
    keys = [f"d{number}" for number in range(count)]
    built = [entry(key, number, version=None, fingerprint="cf1:f") for number, key in enumerate(keys)]
    render(survey_of(*built, keys=keys, present=(None, "cf2:f")), to=console())
    text = capsys.readouterr().out
    assert "Code: nobody knows which code has built them" in text.splitlines()
    assert f"or accept them: marigold versions accept t --range {keys[0]}...{keys[-1]} --reason ..." in text
    # A plan leaves alone what it cannot judge.
    assert f"marigold launch t --from {keys[0]} --to {keys[-1]} --restate (" in text
    render(
        survey_of(entry(None, version=None, fingerprint="cf1:f"), keys=[None], present=(None, "cf2:f")), to=console()
    )
    assert "accept" not in capsys.readouterr().out


def test_what_is_odd_by_its_config_alone_is_built_again_by_a_restatement(capsys):
    first, second, third = entry("d1"), entry("d2", 2), entry("d3", 3, version="2")
    first = replace(first, provenance=replace(first.provenance, config_hash="0" * 64))
    render(survey_of(first, second, third, keys=["d1", "d2", "d3"], present=("1", "f")), to=console())
    text = capsys.readouterr().out
    assert "marigold launch t --from d1 --to d1 --restate\n" in text
    assert "marigold launch t --from d3 --to d3\n" in text


def test_an_empty_home_stays_empty_and_is_suspected(shop, tmp_path):
    project, path = shop
    text = project.run("versions", "daily_sales", "-f", str(path), home=str(tmp_path), code=0)
    assert list(tmp_path.iterdir()) == []
    assert f"  compared with that of the instance in {tmp_path} (DAGSTER_HOME)" in text.splitlines()
    assert "Nothing agrees: is that the instance" in text
    (tmp_path / "dagster.yaml").touch()
    project.run("versions", "daily_sales", "-f", str(path), home=str(tmp_path), code=0)
    assert [one.name for one in tmp_path.iterdir()] == ["dagster.yaml"]


RAISES = """
import traceback
import dagster as dg
from marigold_assets import FencedPartitionIOManager, partitioned_asset

class Days(dg.StaticPartitionsDefinition):
    def get_partition_keys(self, *args, **more):
        if any(frame.name == "gather" for frame in traceback.extract_stack()):
            raise {error}
        return super().get_partition_keys(*args, **more)

@partitioned_asset(partitions_def=Days(["a"]), partition_expr="part")
def things(context: dg.AssetExecutionContext): ...

defs = dg.Definitions([things], resources={{"io_manager": FencedPartitionIOManager(database="{database}")}})
"""


@pytest.mark.parametrize(
    ("error", "code", "told"),
    [
        ("ValueError('of nobody')", 2, "raise ValueError('of nobody')"),
        ("OSError(5, 'of nobody')", 2, "raise OSError(5, 'of nobody')"),
        ("SystemExit(1)", 2, "has ended the process"),
        ("KeyboardInterrupt", 130, "Interrupted"),
    ],
)
def test_no_error_is_taken_for_something_found(shop, tmp_path, error, code, told):
    project, _ = shop
    path = tmp_path / f"raises_{code}_{error[:5]}.py"
    path.write_text(RAISES.format(error=error, database=project.database))
    ran = CliRunner().invoke(main, ["versions", "things", "-f", str(path), "--check"], catch_exceptions=False)
    assert (ran.exit_code, ran.stdout) == (code, "")
    assert told in ran.stderr


def test_a_reader_that_goes_away_is_not_something_found(shop):
    _, path = shop
    command = [str(Path(sys.executable).with_name("marigold")), "versions", "daily_sales", "-f", str(path), "--check"]
    read, write = os.pipe()
    os.close(read)
    ran = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    os.close(write)
    assert (ran.returncode, ran.stderr) == (2, "")


def test_definitions_that_end_the_process_are_an_error(shop, tmp_path):
    project, _ = shop
    path = tmp_path / "ends.py"
    path.write_text("import sys\nsys.exit(1)\n")
    assert "SystemExit: 1" in project.run("versions", "things", "-f", str(path), code=2)


def test_an_output_that_lacks_letters_gets_the_whole_report_and_json_that_is_json(tmp_path):
    project = Project(tmp_path)
    project.home.mkdir()
    path = project.shop("own", raw="ü1")
    project.build(path, "shop/raw_orders", key=day(1))
    env = {"PYTHONIOENCODING": "ascii"}
    text = project.process("versions", "shop/raw_orders", "-f", str(path), env=env)
    assert text.returncode == 0, text.stderr
    assert "Code version now: \\xfc1" in text.stdout
    assert "Event log: agrees with the ledger" in text.stdout
    told = project.process("versions", "shop/raw_orders", "-f", str(path), "--json", env=env)
    assert json.loads(told.stdout)["code"]["version"] == "ü1"


def test_a_slip_in_a_command_is_told_from_an_asset_that_is_not_there(shop):
    project, path = shop
    assert "marigold versions check?" in project.run("versions", "chekc", "-f", str(path), code=2)
    assert "marigold versions check?" in project.run("versions", "chekc", code=2)
    assert "command" not in project.run("versions", "daily", "-f", str(path), code=2)


def test_a_module_beside_the_file_is_proposed_as_working_directory(shop, tmp_path, monkeypatch):
    project, _ = shop
    (tmp_path / "beside_it.py").touch()
    path = tmp_path / "imports.py"
    path.write_text("import beside_it\n")
    monkeypatch.chdir("/")
    assert f"-d {tmp_path} " in project.run("versions", "things", "-f", str(path), code=2)


def test_code_that_is_out_of_date_has_a_remedy_where_the_definitions_are_uniform(shop, tmp_path):
    project, _ = shop
    path = project.shop("newest", raw="9", cents=11)
    lines = project.run("versions", "shop/raw_orders", "-f", str(path)).splitlines()
    at = lines.index("Code: 20 partitions not built by the present code version")
    assert lines[at + 1] == f"  {day(1)} to {day(20)} (20 partitions): 1 -> 9"
    assert "marigold launch" in lines[at + 2]
    assert all(line == line.rstrip() for line in lines)
