"""`marigold gaps` and the asset check: what nobody has built is listed, with the one command that fills it."""

# No `from __future__ import annotations` here: Dagster compares annotations with its classes.

import hashlib
import json
import shlex
from datetime import UTC, datetime, timedelta

import dagster as dg
import duckdb
import pandas as pd
import pytest
import time_machine

from marigold_assets import (
    ConfigurationError,
    FencedPartitionIOManager,
    FencedPartitionResource,
    build_gaps_check,
    partitioned_asset,
)
from marigold_assets.backfill.missing import find_missing
from marigold_assets.expected import expected_by
from marigold_assets.loading import Loaded
from marigold_assets.location import CodeLocation
from marigold_assets.planning.as_json import from_json
from marigold_assets_tests.integration.cli_project import SHOP, Project, day
from marigold_assets_tests.integration.conftest import failure_of

pytestmark = pytest.mark.slow

DAYS = dg.DailyPartitionsDefinition("2023-10-01")
ONE_RUN = dg.BackfillPolicy.single_run()
APRIL = datetime(2024, 4, 1, 0, 20, tzinfo=UTC)
OTHERS = """
@dg.asset
def report():
    return None

@dg.asset(partitions_def=DAYS, io_manager_key="elsewhere")
def foreign():
    return None

@partitioned_asset(partitions_def=dg.StaticPartitionsDefinition(["a"]), partition_expr="day", code_version="1")
def by_store(context: dg.AssetExecutionContext):
    raise NotImplementedError

@partitioned_asset(
    partitions_def=dg.MonthlyPartitionsDefinition("2023-11-01", end_date="2024-02-01"),
    partition_expr="day",
    code_version="1",
)
def monthly(context: dg.AssetExecutionContext):
    raise NotImplementedError

defs = dg.Definitions(
"""


@pytest.fixture(scope="module")
def history(tmp_path_factory):
    """Orders of the whole month but for the 9th and the 31st; sales of some days from the 3rd on."""
    project = Project(tmp_path_factory.mktemp("shop"))
    project.home.mkdir()
    (project.home / "dagster.yaml").touch()
    path = project.shop()
    project.build(path, "shop/raw_orders", keys=(day(1), day(8)))
    project.build(path, "shop/raw_orders", keys=(day(10), day(30)))
    project.build(path, "daily_sales", keys=(day(3), day(6)))
    project.build(path, "daily_sales", key=day(8))
    text = SHOP.replace("defs = dg.Definitions(\n", OTHERS)
    text = text.replace("daily_sales, sales", "daily_sales, report, foreign, by_store, monthly, sales")
    text = text.replace("resources={{", 'resources={{"elsewhere": dg.mem_io_manager, ')
    return project, project.shop("everything", text=text)


@pytest.fixture
def shop(history, monkeypatch):
    monkeypatch.chdir(history[0].folder)
    return history


def listed(shop, *arguments, **how):
    project, path = shop
    return json.loads(project.run("gaps", *arguments, "-f", str(path), "--json", **how))


def ranges(one):
    return [(gap["first"], gap["last"], gap["partitions"]) for gap in one["gaps"]]


def test_gaps_are_listed_as_ranges_with_the_one_command_that_fills_them(shop):
    _, path = shop
    found = listed(shop, 'key:"shop/raw_orders" or key:"daily_sales"')
    assert found["format"] == 1
    orders, sales = sorted(found["assets"], key=lambda one: one["since"])
    assert ranges(orders) == [(day(9), day(9), 1), (day(31), day(31), 1)]
    assert ranges(sales) == [(day(7), day(7), 1), (day(9), day(31), 23)]
    assert (orders["asset"], orders["since"], orders["missing"], orders["earlier"]) == ("shop/raw_orders", day(1), 2, 0)
    assert (sales["since"], sales["is_from_start"], sales["missing"], sales["earlier"]) == (day(3), False, 24, 2)
    [command] = found["commands"]
    words = shlex.split(command)
    assert words[:2] == ["marigold", "launch"]
    assert words[3:] == ["--from", day(7), "--to", day(31), "-f", str(path)]
    project, _ = shop
    plan = json.loads(project.run("plan", *words[2:], "--json"))
    planned = {one.owner: [key.key for key in one.keys] for one in from_json(plan).assets}
    assert planned == {
        "shop/raw_orders": [day(9), day(31)],
        "daily_sales": [day(7), *(day(number) for number in range(9, 32))],
    }


def test_without_a_selection_all_assets_in_time_are_looked_at_and_the_others_named(shop):
    found = listed(shop)
    assert {one["asset"]: one["missing"] for one in found["assets"]} == {
        "shop/raw_orders": 2,
        "daily_sales": 24,
        "sales_to_date": 31,
        "monthly": 3,
    }
    reasons = {one["asset"]: one["reason"] for one in found["not_looked_at"]}
    assert reasons.keys() == {"report", "foreign", "by_store"}
    assert "no partitions in time" in reasons["report"]
    assert "keeps no ledger" in reasons["foreign"]
    # Partitions of two kinds cannot be named by one range. Without the daily sales before the first there are none to
    # date.
    assert [shlex.split(one)[2:7:2] for one in found["commands"]] == [
        ['key:"shop/raw_orders" or key:"daily_sales" or key:"sales_to_date"', day(1), day(31)],
        ["monthly", "2023-11-01", "2024-01-01"],
    ]
    assert found["built_along"] == [{"asset": "daily_sales", "read_by": ["sales_to_date"]}]


def test_everything_can_be_asked_for_from_the_start(shop):
    [sales] = listed(shop, "daily_sales", "--from-start")["assets"]
    assert ranges(sales)[0] == (day(1), day(2), 2)
    assert sales["is_from_start"]


def test_people_read_how_much_is_missing_since_when(shop):
    project, path = shop
    said = project.run("gaps", "daily_sales", "-f", str(path)).splitlines()
    assert said[0] == (
        f"daily_sales: 24 of 29 partitions since {day(3)} (the first that was built) are missing; 2 before it were"
        " never built"
    )
    assert said[1] == f"  {day(7)}, missing since {day(8)} 00:00:00 UTC"
    assert said[2] == f"  {day(9)} to {day(31)} (23 partitions), missing since {day(10)} 00:00:00 UTC"
    assert said[-1] == f"  marigold launch daily_sales --from {day(7)} --to {day(31)} -f {path}"


def test_the_exit_code_tells_whether_anything_is_missing_where_that_is_asked(shop):
    project, path = shop
    project.run("gaps", "daily_sales", "-f", str(path), code=0)
    project.run("gaps", "daily_sales", "-f", str(path), "--check", code=1)


def test_nothing_is_written_and_no_instance_is_needed(shop, tmp_path):
    project, _ = shop

    def checksums():
        # But for the line in which readers wait for the database, too.
        files = [one for one in project.folder.rglob("*") if one.is_file() and one.suffix not in {".pyc", ".line"}]
        return {one: hashlib.sha256(one.read_bytes()).hexdigest() for one in files}

    before = checksums()
    listed(shop, home=False)
    listed(shop)
    assert checksums() == before


@pytest.mark.parametrize(
    ("selection", "said"),
    [
        ("daily_sale", "perhaps daily_sales is meant"),
        ("daily_sales or", "does not understand the selection"),
        ("report", "report: it has no partitions in time"),
        ("foreign", "keeps no ledger"),
        ('tag:"nothing"', "names no asset"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(shop, selection, said):
    project, path = shop
    told = project.run("gaps", selection, "-f", str(path), code=2)
    assert said in told.splitlines()[0]
    assert "Remedy: " in told.splitlines()[0]


def test_where_there_is_no_database_all_that_is_expected_is_missing(tmp_path, monkeypatch):
    """As `plan` has it, in a new project and where the file is gone."""
    project = Project(tmp_path)
    project.home.mkdir()
    monkeypatch.chdir(tmp_path)
    path = project.shop()
    found = listed((project, path), "daily_sales", "--check", code=1)
    [sales] = found["assets"]
    assert (sales["missing"], sales["expected"], ranges(sales)) == (31, 31, [(day(1), day(31), 31)])
    assert f"the database {project.database} does not exist, so all of it counts as missing" in sales["note"]
    [command] = found["commands"]
    assert shlex.split(command)[:7] == ["marigold", "launch", "daily_sales", "--from", day(1), "--to", day(31)]
    assert "31 of 31 partitions" in project.run("gaps", "-f", str(path), "--check", code=1)
    assert not project.database.exists()


def test_where_one_of_several_databases_cannot_be_read_the_others_are_looked_at(shop):
    project, _ = shop
    text = SHOP.replace("defs = dg.Definitions(\n", OTHERS).replace("daily_sales, sales", "daily_sales, monthly, sales")
    text = text.replace(
        'partition_expr="day",\n    code_version="1",\n)', 'partition_expr="day",\n    io_manager_key="b",\n)'
    )
    other = project.folder / "nothing.duckdb"
    other.write_text("this is no database " * 100)
    text = text.replace("resources={{", f'resources={{{{"b": FencedPartitionIOManager(database={str(other)!r}), ')
    path = project.shop("two", text=text)
    found = listed((project, path))
    assert {one["asset"] for one in found["assets"]} == {"shop/raw_orders", "daily_sales", "sales_to_date"}
    reasons = {one["asset"]: one["reason"] for one in found["not_looked_at"]}
    assert str(other) in reasons["monthly"]
    every = ['key:"shop/raw_orders" or key:"monthly"', "--grace", str(24 * 365 * 3)]
    project.run("gaps", *every[:1], "--check", "-f", str(path), code=1)
    project.run("gaps", *every, "--check", "-f", str(path), code=2)


# --- in the process, where time stands still ---


def daily(definition=DAYS):
    @partitioned_asset(partitions_def=definition, partition_expr="day", code_version="1", backfill_policy=ONE_RUN)
    def sales(context: dg.AssetExecutionContext):
        return pd.DataFrame({"day": [pd.Timestamp(context.partition_key)], "cents": [1]})

    return sales


def checked(warehouse, asset, *, now=APRIL, resources=None, raises=True, tags=None, **options):
    check = build_gaps_check(asset=asset, **options)
    job = dg.define_asset_job("only_the_check", selection=dg.AssetSelection.checks(check))
    resources = resources or {"io_manager": warehouse.io_manager()}
    defs = dg.Definitions([asset], asset_checks=[check], jobs=[job], resources=resources)
    with time_machine.travel(now, tick=False):
        ran = defs.resolve_job_def("only_the_check").execute_in_process(
            instance=warehouse.instance, raise_on_error=raises, tags=tags
        )
    if not raises:
        return failure_of(ran)
    [evaluation] = ran.get_asset_check_evaluations()
    return evaluation


def location_of(warehouse, *assets):
    return CodeLocation.of(dg.Definitions([*assets], resources={"io_manager": warehouse.io_manager()}))


def test_what_should_be_looked_at_and_cannot_be_is_told_apart(warehouse):
    asset = daily()
    warehouse.materialize(asset, keys=("2024-03-01", "2024-03-31"))

    @partitioned_asset(partitions_def=DAYS, partition_expr="day", io_manager_key="unset", code_version="1")
    def secret(context: dg.AssetExecutionContext):
        raise NotImplementedError

    @dg.asset(partitions_def=DAYS, io_manager_key="elsewhere")
    def foreign():
        raise NotImplementedError

    unset = FencedPartitionIOManager(database=dg.EnvVar("MARIGOLD_NEVER_SET"))
    resources = {"io_manager": warehouse.io_manager(), "unset": unset, "elsewhere": dg.mem_io_manager}
    repository = dg.Definitions([asset, secret, foreign], resources=resources).get_repository_def()
    location = CodeLocation([Loaded(repository=repository)], {"broken": "it does not load"})
    report = find_missing(location, None, APRIL)
    assert report.unavailable == ("secret", "broken")
    assert report.not_looked_at.keys() == {"secret", "foreign", "code location broken"}
    assert "'MARIGOLD_NEVER_SET', which is not set" in report.not_looked_at["secret"]


def test_the_89_days_that_a_schedule_has_missed_are_listed(warehouse):
    """C110: built until the end of the year, off for 90 days, and then on for the latest day alone."""
    asset = daily()
    warehouse.materialize(asset, keys=("2023-12-20", "2023-12-31"))
    warehouse.materialize(asset, key="2024-03-31")
    report = find_missing(location_of(warehouse, asset), None, APRIL)
    [one] = report.assets
    assert [str(gap) for gap in one.gaps.gaps] == ["2024-01-01 to 2024-03-30"]
    assert one.gaps.missing == 90
    assert report.commands() == ["marigold launch sales --from 2024-01-01 --to 2024-03-30"]

    evaluation = checked(warehouse, asset)
    assert not evaluation.passed
    assert evaluation.severity == dg.AssetCheckSeverity.WARN
    assert "90 of 103 partitions since 2023-12-20" in evaluation.description
    assert evaluation.description.endswith("To fill them: marigold launch sales --from 2024-01-01 --to 2024-03-30")
    records = [record.data for record in evaluation.metadata["marigold/gaps"].records]
    assert records == [{"first": "2024-01-01", "last": "2024-03-30", "partitions": 90}]
    assert evaluation.metadata["marigold/missing_partitions"].value == 90

    warehouse.materialize(asset, keys=("2024-01-01", "2024-03-30"))
    evaluation = checked(warehouse, asset)
    assert evaluation.passed
    assert "0 of 103 partitions" in evaluation.description


def test_the_latest_interval_may_be_missing_until_its_grace_is_over(warehouse):
    asset = daily()
    warehouse.materialize(asset, keys=("2024-03-29", "2024-03-30"))
    assert not checked(warehouse, asset).passed
    grace = timedelta(hours=6)
    assert checked(warehouse, asset, grace=grace).passed
    late = checked(warehouse, asset, grace=grace, now=APRIL + grace, severity=dg.AssetCheckSeverity.ERROR)
    assert (late.passed, late.severity) == (False, dg.AssetCheckSeverity.ERROR)
    # A backfill that is filling gaps, or a canary of it, is not to be stopped by them.
    amid = checked(warehouse, asset, severity=dg.AssetCheckSeverity.ERROR, tags={"dagster/backfill": "abcdefgh"})
    assert (amid.passed, amid.severity) == (False, dg.AssetCheckSeverity.WARN)


def test_assets_of_the_same_intervals_are_filled_together_wherever_each_begins(warehouse):
    @partitioned_asset(
        partitions_def=dg.DailyPartitionsDefinition("2024-03-01"), partition_expr="day", code_version="1"
    )
    def younger(context: dg.AssetExecutionContext):
        raise NotImplementedError

    asset = daily()
    warehouse.materialize(asset, keys=("2024-02-01", "2024-03-30"))
    [command] = find_missing(location_of(warehouse, asset, younger), None, APRIL).commands()
    assert shlex.split(command)[3:] == ["--from", "2024-03-01", "--to", "2024-03-31"]


def test_an_empty_day_is_not_missing(warehouse):
    @partitioned_asset(partitions_def=DAYS, partition_expr="day", code_version="1", backfill_policy=ONE_RUN)
    def sales(context: dg.AssetExecutionContext):
        return pd.DataFrame({"day": pd.Series([], dtype="datetime64[us]"), "cents": pd.Series([], dtype="int64")})

    warehouse.materialize(sales, keys=("2024-03-30", "2024-03-31"))
    assert checked(warehouse, sales).passed


def test_what_is_shown_is_bounded_and_what_another_tool_has_built_is_not_passed_off_as_missing(warehouse):
    asset = daily()
    for number in range(1, 30):
        warehouse.materialize(asset, key=f"2024-{1 + number // 15:02d}-{1 + 2 * (number % 15):02d}")
    evaluation = checked(warehouse, asset)
    assert len(evaluation.metadata["marigold/gaps"].records) == 20
    assert "Note" not in evaluation.description
    with duckdb.connect(warehouse.path, config={"custom_user_agent": "dagster"}) as connection:
        connection.execute("INSERT INTO public.sales VALUES (TIMESTAMP '2024-01-04', 1)")
    said = checked(warehouse, asset).description
    assert "Note: some may have been built by something else: the table has 30 rows, and the ledger knows of 29" in said


def test_all_of_it_is_missing_where_its_table_is_gone(warehouse):
    """As `plan` has it."""
    asset = daily()
    warehouse.materialize(asset, keys=("2024-03-29", "2024-03-31"))
    assert checked(warehouse, asset).passed
    with duckdb.connect(warehouse.path, config={"custom_user_agent": "dagster"}) as connection:
        connection.execute("DROP TABLE public.sales")
    report = find_missing(location_of(warehouse, asset), None, APRIL)
    [one] = report.assets
    assert [str(gap) for gap in one.gaps.gaps] == ["2024-03-29 to 2024-03-31"]
    assert report.commands() == ["marigold launch sales --from 2024-03-29 --to 2024-03-31"]
    evaluation = checked(warehouse, asset)
    assert not evaluation.passed
    assert evaluation.description.startswith(
        "3 of 3 partitions since 2024-03-29 (the first that was built) are missing"
    )
    assert "does not exist any more, so all of it counts as missing" in evaluation.description


def test_rows_that_something_else_has_removed_are_no_green_check(warehouse):
    asset = daily()
    warehouse.materialize(asset, keys=("2024-03-29", "2024-03-31"))
    with duckdb.connect(warehouse.path, config={"custom_user_agent": "dagster"}) as connection:
        connection.execute("DELETE FROM public.sales WHERE day = TIMESTAMP '2024-03-30'")
    [one] = find_missing(location_of(warehouse, asset), None, APRIL).assets
    assert (one.gaps.missing, one.found.lost_rows, one.found.is_whole) == (0, 1, False)
    evaluation = checked(warehouse, asset)
    assert not evaluation.passed
    said = "Note: something else has removed rows: the table has 2 rows, and the ledger knows of 3"
    assert evaluation.description.endswith(said)
    assert evaluation.metadata["marigold/lost_rows"].value == 1
    error = dg.AssetCheckSeverity.ERROR  # no backfill is why rows are gone
    amid = checked(warehouse, asset, severity=error, tags={"dagster/backfill": "abcdefgh"})
    assert (amid.passed, amid.severity) == (False, error)
    # Nor where the newest days are within their grace.
    [one] = find_missing(location_of(warehouse, asset), None, APRIL - timedelta(days=2)).assets
    assert (one.found.lost_rows, one.found.is_whole) == (1, False)


def test_a_command_reaches_no_further_back_than_each_of_its_assets_is_expected(warehouse):
    def named(name, **options):
        @partitioned_asset(
            partitions_def=DAYS, partition_expr="day", code_version="1", name=name, backfill_policy=ONE_RUN, **options
        )
        def made(context: dg.AssetExecutionContext):
            return pd.DataFrame({"day": pd.to_datetime(context.partition_keys), "cents": 1})

        return made

    old, young, whole = named("old"), named("young"), named("whole")
    warehouse.materialize(old, keys=("2024-03-01", "2024-03-03"))
    warehouse.materialize(old, keys=("2024-03-05", "2024-03-29"))
    warehouse.materialize(young, keys=("2024-03-20", "2024-03-30"))
    warehouse.materialize(whole, keys=("2024-03-10", "2024-03-31"))
    found = find_missing(location_of(warehouse, old, young, whole), None, APRIL)
    assert found.commands() == [
        "marigold launch old --from 2024-03-04 --to 2024-03-04",
        'marigold launch \'key:"old" or key:"young"\' --from 2024-03-30 --to 2024-03-31',
    ]


def test_it_looks_through_a_resource_as_well_and_refuses_what_keeps_no_ledger(warehouse):
    asset = daily()
    warehouse.materialize(asset, keys=("2024-03-30", "2024-03-31"))
    resource = FencedPartitionResource(database=warehouse.path)
    resources = {"io_manager": warehouse.io_manager(), "market": resource}
    assert checked(warehouse, asset, resources=resources, io_manager_key="market").passed
    resources = {"io_manager": warehouse.io_manager(), "market": dg.ResourceDefinition.hardcoded_resource(1)}
    said = checked(warehouse, asset, resources=resources, io_manager_key="market", raises=False)
    assert "is a int, which keeps no ledger" in said


def test_a_check_of_what_has_no_intervals_is_refused_at_definition():
    for definition in (None, dg.StaticPartitionsDefinition(["a"])):

        @dg.asset(partitions_def=definition)
        def stores():
            raise NotImplementedError

        with pytest.raises(ConfigurationError, match="partitions in time"):
            build_gaps_check(asset=stores)


@pytest.mark.parametrize("grace", [timedelta(hours=-1), timedelta.max])
def test_a_grace_that_makes_no_sense_is_refused_at_definition(grace):
    with pytest.raises(ConfigurationError, match="has a grace of"):
        build_gaps_check(asset=daily(), grace=grace)


@pytest.mark.parametrize(
    ("definition", "by", "last", "count"),
    [
        (dg.DailyPartitionsDefinition("2024-03-01"), "2024-03-31T00:00+00:00", "2024-03-30", 30),
        (dg.DailyPartitionsDefinition("2024-03-01"), "2024-03-30T23:59+00:00", "2024-03-29", 29),
        (dg.DailyPartitionsDefinition("2024-03-01", end_offset=2), "2024-03-31T00:00+00:00", "2024-03-30", 30),
        (dg.DailyPartitionsDefinition("2024-03-01", end_offset=-1), "2024-03-31T00:00+00:00", "2024-03-29", 29),
        (dg.DailyPartitionsDefinition("2024-03-01", end_date="2024-03-11"), "2024-03-31T00:00+00:00", "2024-03-10", 10),
        (
            dg.DailyPartitionsDefinition("2024-03-30", timezone="Europe/Berlin"),
            "2024-03-31T22:00+00:00",
            "2024-03-31",
            2,
        ),
        (dg.StaticPartitionsDefinition(["a"]), "2024-03-31T00:00+00:00", None, 0),
    ],
)
def test_expected_is_what_has_ended(definition, by, last, count):
    found = expected_by(definition, datetime.fromisoformat(by))
    assert (found.intervals[-1], len(found.intervals)) == (last, count) if found else last is None


def test_gaps_of_another_dimension_are_listed_by_its_lines(warehouse):
    stores = dg.MultiPartitionsDefinition({"day": DAYS, "store": dg.StaticPartitionsDefinition(["a", "b"])})

    @partitioned_asset(partitions_def=stores, partition_expr={"day": "day", "store": "store"}, code_version="1")
    def sales(context: dg.AssetExecutionContext):
        day, store = (context.partition_key.keys_by_dimension[name] for name in ("day", "store"))
        return pd.DataFrame({"day": [pd.Timestamp(day)], "store": [store], "cents": [1]})

    for key in ("2024-03-29|a", "2024-03-31|a", "2024-03-30|b"):
        warehouse.materialize(sales, key=key)
    report = find_missing(location_of(warehouse, sales), "sales", APRIL)
    [one] = report.assets
    assert report.commands() == ["marigold launch sales --from 2024-03-29 --to 2024-03-31"]
    assert [str(gap) for gap in one.gaps.gaps] == ["2024-03-30|a", "2024-03-29|b", "2024-03-31|b"]
