"""Plans that are made again: what a canary itself makes needless is launched as planned, what others did is not."""

# No `from __future__ import annotations` here: Dagster compares the annotation of `context` with its classes.

from datetime import UTC, datetime

import dagster as dg
import pandas as pd
import pytest
import time_machine

from marigold_assets import FencedPartitionIOManager, partitioned_asset
from marigold_assets.backfill.replanning import Planner
from marigold_assets.errors import PlanConflictError
from marigold_assets.location import CodeLocation, LocationOptions
from marigold_assets.planning.model import Reason, Request
from marigold_assets.planning.submitting import Submission

pytestmark = pytest.mark.slow
DAYS = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-01-08")
D1, D2, D3, D4 = DAYS.get_partition_keys()[:4]


class Shop:
    """Rates, and sales of which every day reads all of them."""

    def __init__(self, folder, instance):
        self.instance, self.version = instance, "1"
        self.manager = FencedPartitionIOManager(database=str(folder / "shop.duckdb"))

    def assets(self):
        @partitioned_asset(partitions_def=DAYS, partition_expr="day", code_version=self.version)
        def rates(context: dg.AssetExecutionContext) -> pd.DataFrame:
            return pd.DataFrame({"day": [pd.Timestamp(context.partition_key)], "rate": [1.5]})

        @partitioned_asset(
            partitions_def=DAYS,
            partition_expr="day",
            code_version="1",
            ins={
                "rates": dg.AssetIn(
                    partition_mapping=dg.AllPartitionMapping(), metadata={"marigold/allow_missing": True}
                )
            },
        )
        def sales(context: dg.AssetExecutionContext, rates: pd.DataFrame) -> pd.DataFrame:
            return pd.DataFrame({"day": [pd.Timestamp(context.partition_key)], "n": [len(rates)]})

        return [rates, sales]

    def build(self, name, *keys):
        for key in keys:
            assert dg.materialize(
                self.assets(),
                selection=[name],
                partition_key=key,
                instance=self.instance,
                resources={"io_manager": self.manager},
                run_config={"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}},
            ).success

    def planner(self):
        definitions = dg.Definitions(self.assets(), resources={"io_manager": self.manager})
        return Planner(CodeLocation.of(definitions), self.instance, LocationOptions())


@pytest.fixture
def shop(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    with dg.DagsterInstance.ephemeral() as instance:
        yield Shop(tmp_path, instance)


def reasons(plan, owner):
    (one,) = (one for one in plan.assets if one.owner == owner)
    return {key.key: key.reason for key in one.keys}


def rest(**keys):
    return [Submission(title="the rest", keys=keys, priority=-2)]


@pytest.fixture
def looked_back(shop):
    """A plan of a missing day and of the two before it, whose canary was the missing one."""
    shop.build("rates", D1, D2, D3)
    planner = shop.planner()
    plan = planner.make(Request(selection="rates", first=D4, last=D4, lookback=2))
    assert reasons(plan, "rates") == {D2: Reason.LOOKBACK, D3: Reason.LOOKBACK, D4: Reason.MISSING}
    shop.build("rates", D4)
    return planner, plan


def test_days_before_a_missing_one_are_built_though_the_canary_was_that_one(looked_back):
    planner, plan = looked_back
    planner.refuse_gone(plan, rest(rates=(D2, D3)))


def test_what_others_have_built_meanwhile_is_refused_whatever_the_canary_did(shop, looked_back):
    planner, plan = looked_back
    shop.build("rates", D3)
    with pytest.raises(PlanConflictError, match=f"partition '{D3}': it was built by others while the canary ran"):
        planner.refuse_gone(plan, rest(rates=(D2, D3)))


def test_what_was_missing_and_is_no_more_is_refused(shop):
    planner = shop.planner()
    plan = planner.make(Request(selection="rates", first=D1, last=D3))
    shop.build("rates", D1, D2)
    with pytest.raises(PlanConflictError, match=f"partition '{D2}': it was built by others"):
        planner.refuse_gone(plan, rest(rates=(D2, D3)))


def test_what_would_be_rebuilt_for_its_inputs_is_built_though_these_came_out_as_they_were(shop):
    shop.build("rates", D1, D2, D3)
    shop.build("sales", D1, D2, D3)
    shop.version = "2"
    planner = shop.planner()
    plan = planner.make(Request(selection="*", first=D1, last=D3))
    assert reasons(plan, "sales") == dict.fromkeys((D1, D2, D3), Reason.STALE_INPUT)
    shop.build("rates", D1, D2, D3)  # only the canaries of the rates were built again
    shop.build("sales", D1)
    assert reasons(planner.make(plan.request), "sales") == {}
    planner.refuse_gone(plan, rest(sales=(D2, D3)))


def test_a_plan_that_was_made_before_midnight_is_what_there_is_to_do_after_it(shop):
    with time_machine.travel(datetime(2024, 1, 4, 23, 50, tzinfo=UTC), tick=False):
        plan = shop.planner().make(Request(selection="key:rates or key:sales"))
        assert list(reasons(plan, "rates")) == [D1, D2, D3]
    with time_machine.travel(datetime(2024, 1, 5, 0, 10, tzinfo=UTC), tick=False):
        planner = shop.planner()
        assert list(reasons(planner.make(plan.request), "rates")) == [D1, D2, D3, D4]
        planner.refuse_changed(plan)
        shop.build("rates", D4)  # of what is read, another day exists meanwhile
        planner.refuse_moved(plan)
        shop.build("rates", D3)
        with pytest.raises(PlanConflictError, match=f"rates\\[{D3}\\] is not to be built any more"):
            planner.refuse_moved(plan)
