"""What plans say of what they leave alone: stale through others, of other code, or made of what nobody recorded."""

# No `from __future__ import annotations` here: Dagster compares the annotation of `context` with its classes.

from datetime import UTC, datetime

import dagster as dg
import pandas as pd
import pytest

from marigold_assets import FencedPartitionIOManager, partitioned_asset
from marigold_assets.backfill import gathering
from marigold_assets.backfill.explaining import explained
from marigold_assets.location import CodeLocation
from marigold_assets.planning.making import changed
from marigold_assets.planning.model import Request, Skip
from marigold_assets_tests.integration.cli_project import RANGE_END, RANGE_START

pytestmark = pytest.mark.slow
NOW = datetime(2026, 3, 1, tzinfo=UTC)
DAYS = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-01-08")
D1, D2, D3, D4, D5, D6, D7 = DAYS.get_partition_keys()
COMMON = {"partitions_def": DAYS, "partition_expr": "day", "code_version": "1"}


def assets(*, cents=1, factor=1, plain=1):
    """Orders, sales and a balance over them; what stores sales without saying from what; and files that it reads."""

    def of(context, value):
        return pd.DataFrame({"day": [pd.Timestamp(context.partition_key)], "cents": [value]})

    @partitioned_asset(**COMMON, deps=[dg.AssetSpec("till")])
    def orders(context: dg.AssetExecutionContext) -> pd.DataFrame:
        return of(context, cents)

    @partitioned_asset(**COMMON)
    def sales(context: dg.AssetExecutionContext, orders: pd.DataFrame) -> pd.DataFrame:
        return of(context, orders["cents"].sum() * factor)

    @partitioned_asset(**COMMON)
    def balance(context: dg.AssetExecutionContext, sales: pd.DataFrame, previous: pd.DataFrame | None) -> pd.DataFrame:
        return of(context, sales["cents"].sum() + (0 if previous is None else previous["cents"].sum()))

    @partitioned_asset(**COMMON)
    def report(context: dg.AssetExecutionContext, balance: pd.DataFrame) -> pd.DataFrame:
        return of(context, balance["cents"].sum())

    @dg.asset(partitions_def=DAYS, code_version="1", metadata={"partition_expr": "day"})
    def unwatched(context: dg.AssetExecutionContext, orders: pd.DataFrame) -> pd.DataFrame:
        return of(context, orders["cents"].sum() * plain)

    return [orders, sales, balance, report, unwatched, dg.AssetSpec("till", partitions_def=DAYS)]


class Shop:
    def __init__(self, folder, instance):
        self.instance = instance
        self.manager = FencedPartitionIOManager(database=str(folder / "shop.duckdb"))

    def build(self, name, first, last=None, **how):
        found = [one for one in assets(**how) if isinstance(one, dg.AssetsDefinition)]
        definitions = dg.Definitions(found, resources={"io_manager": self.manager})
        job = definitions.resolve_implicit_job_def_def_for_assets([dg.AssetKey(name)])
        ran = job.execute_in_process(
            instance=self.instance,
            asset_selection=[dg.AssetKey(name)],
            partition_key=first if last is None else None,
            tags={} if last is None else {RANGE_START: first, RANGE_END: last},
            run_config={"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}},
        )
        assert ran.success

    def gathered(self, selection, first=None, last=None, *, how=None, **asked):
        location = CodeLocation.of(dg.Definitions(assets(**(how or {})), resources={"io_manager": self.manager}))
        request = Request(selection=selection, first=first, last=last, **asked)
        return gathering.gather_states(location, request, instance=self.instance, now=NOW), request

    def plan(self, *arguments, **asked):
        found, request = self.gathered(*arguments, **asked)
        return gathering.plan_of(found, request, instance=self.instance, now=NOW)


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """Five days; afterwards sales of the first two came out otherwise, by other code of the same version."""
    with dg.DagsterInstance.ephemeral() as instance:
        found = Shop(tmp_path_factory.mktemp("shop"), instance)
        for name in ("orders", "sales", "balance"):
            found.build(name, D1, D5)
        found.build("sales", D1, D2, factor=2)
        found.build("unwatched", D1)
        found.build("unwatched", D2)
        yield found


def the(plan, owner):
    [one] = [one for one in plan.assets if one.owner == owner]
    return one


def skipped(plan, owner):
    return {one.key: (one.reason, one.because) for one in the(plan, owner).skipped}


def test_missing_days_upon_a_stale_past_are_planned_with_a_word_on_it(shop):
    plan = shop.plan("*balance", D6, D7)
    assert [key.key for key in the(plan, "balance").keys] == [D6, D7]
    [note] = the(plan, "balance").notes
    assert note == (
        f"balance[{D6}] is built upon balance[{D5}], which is not in this plan though it is stale (sales[{D2}] was"
        f" restated): runs tell of that in their log, and refuse it if strict; to mend it, begin with {D1}"
    )
    assert the(shop.plan("*balance", D1, D7), "balance").notes == ()


def test_what_is_stale_past_what_the_plan_builds_is_not_current_and_not_done(shop):
    plan = shop.plan("balance", D4, D5)
    assert skipped(plan, "balance")[D5] == (
        Skip.STALE,
        f"stale only through balance[{D4}], which this plan does not build",
    )
    assert plan.is_empty
    assert not plan.is_done
    assert "2 partitions are stale only through balance[2024-01-03]" in the(plan, "balance").notes[0]
    assert shop.plan("sales", D3, D5).is_done


def test_what_is_built_of_a_stale_input_that_is_only_read_says_so(shop):
    [note] = the(shop.plan("report", D4, D5), "report").notes
    assert note == (
        f"report[{D4}] is built upon balance[{D4}], which is not in this plan though it is stale (sales[{D2}] was"
        " restated), and becomes stale with it; plan balance as well"
    )
    assert the(shop.plan("sales", D6, D6, restate=True), "sales").notes == ()


def test_days_that_other_code_of_the_same_version_has_built_are_called_so(shop):
    plan = shop.plan("sales", D1, D4)
    assert skipped(plan, "sales") == {
        **dict.fromkeys(
            (D1, D2),
            (Skip.CURRENT, "code of the same version built it, which was not the same code, of present inputs"),
        ),
        **dict.fromkeys((D3, D4), (Skip.CURRENT, "is what present code and inputs make")),
    }
    [note] = the(plan, "sales").notes
    assert note == (
        f"2 partitions, {D1} to {D2}, were built by code that was not the same, though its version is the present one;"
        " the version decides: to have them built again, raise it, or --restate"
    )
    assert the(shop.plan("sales", D3, D4), "sales").notes == ()


def test_days_whose_inputs_nobody_recorded_are_called_so(shop):
    plan = shop.plan("unwatched", D1, D2)
    assert skipped(plan, "unwatched")[D1] == (
        Skip.CURRENT,
        "is what present code makes; of orders, which it reads, nothing was recorded",
    )
    [note] = the(plan, "unwatched").notes
    assert note == (
        f"2 partitions, {D1} to {D2}, were built from orders, of which nothing was recorded: whether that has changed"
        " since, nobody knows; to have it recorded, build it as a @partitioned_asset; to compute again all the same:"
        " --restate"
    )


def test_what_is_made_outside_is_never_said_to_exist(shop):
    found, request = shop.gathered("orders", D1, D1)
    plan = gathering.plan_of(found, request, instance=shop.instance, now=NOW)
    assert skipped(plan, "orders")[D1][1].endswith("of till, which it reads, nothing was recorded")
    assert the(plan, "orders").notes == ()
    [asset] = explained(plan, found.states, D1).assets
    [read] = asset.inputs[D1]
    assert (read.owner, read.is_external) == ("till", True)


@pytest.mark.parametrize("other", [{"factor": 3}, {"plain": 3}], ids=["partitioned", "plain"])
def test_a_plan_of_other_code_under_the_same_version_is_another_plan(shop, other):
    before, after = (shop.plan("orders*", D6, D7, how=how) for how in (None, other))
    name = "sales" if "factor" in other else "unwatched"
    assert changed(before, after) == f"{name} is built by code that was not the same, though it is still called 1"
    assert changed(before, shop.plan("orders*", D6, D7)) is None
