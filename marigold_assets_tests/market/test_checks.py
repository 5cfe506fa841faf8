"""The checks pass on sound days and fail on the mistakes they are there for."""

from __future__ import annotations

from datetime import timedelta

import dagster as dg
import duckdb
import pandas as pd
import pytest

from marigold_assets.market import assets
from marigold_assets.market.orders import orders_of

pytestmark = pytest.mark.slow

DAILY = ["raw_orders", "daily_sales"]
EVERYTHING = [*DAILY, "revenue_report"]
EVE, CLOSED, AFTER = "2024-12-24", "2024-12-25", "2024-12-26"
ALONE = dg.AssetSelection.checks_for_assets(*EVERYTHING)
ALL_CHECKS = {
    "orders_belong_to_their_day",
    "few_orders_are_delivered_twice",
    "sales_equal_the_orders",
    "report_equals_the_sales",
    "uniform_version",
}
CHAINS = ["sales_to_date", "customer_tiers"]
CHAIN_CHECKS = {"totals_equal_the_sales", "tiers_follow_each_other"}
FIRST, SECOND, LAST = "2024-01-01", "2024-01-02", "2024-02-10"


@pytest.mark.parametrize("days", [EVE, CLOSED, (EVE, AFTER)], ids=["a day", "a closed day", "a range"])
def test_every_check_passes(materialize, outcomes, days):
    assert outcomes(materialize(EVERYTHING, days)) == dict.fromkeys(ALL_CHECKS, True)


def test_a_cleaning_step_that_keeps_what_was_delivered_twice_is_caught(materialize, outcomes, monkeypatch):
    monkeypatch.setattr(assets, "clean", lambda orders: orders)
    result = materialize(EVERYTHING, EVE, fails=True)
    assert not result.success
    assert outcomes(result)["sales_equal_the_orders"] is False


def test_a_cleaning_step_that_loses_unknown_customers_is_caught(materialize, outcomes, monkeypatch):
    monkeypatch.setattr(assets, "clean", lambda orders: orders.drop_duplicates().dropna())
    result = materialize(EVERYTHING, EVE, fails=True)
    assert outcomes(result)["sales_equal_the_orders"] is False


def test_wrong_sales_do_not_reach_the_report_of_the_same_run(materialize, query, monkeypatch):
    materialize(EVERYTHING, AFTER)
    before = query("SELECT * FROM market.revenue_report ORDER BY ALL")
    monkeypatch.setattr(assets, "clean", lambda orders: orders)
    materialize(EVERYTHING, EVE, fails=True)
    assert query("SELECT * FROM market.revenue_report ORDER BY ALL") == before


def test_orders_of_another_day_are_caught_before_they_become_sales(materialize, outcomes, monkeypatch):
    def shifted(day):
        orders = orders_of(day)
        return orders.assign(ordered_at=orders["ordered_at"] - timedelta(hours=3))

    monkeypatch.setattr(assets, "orders_of", shifted)
    result = materialize(DAILY, EVE, fails=True)
    assert outcomes(result)["orders_belong_to_their_day"] is False
    assert result.asset_materializations_for_node("daily_sales") == []


def test_a_delivery_that_was_loaded_twice_is_a_warning(materialize, outcomes, monkeypatch):
    monkeypatch.setattr(assets, "orders_of", lambda day: pd.concat([orders_of(day)] * 2, ignore_index=True))
    result = materialize(DAILY, EVE)
    assert result.success
    assert outcomes(result)["few_orders_are_delivered_twice"] is False


def test_a_check_is_not_disturbed_by_days_that_are_only_half_done(materialize, outcomes):
    materialize(["raw_orders"], EVE)
    assert outcomes(materialize(DAILY, AFTER))["sales_equal_the_orders"] is True


def test_a_report_older_than_the_sales_is_a_warning(materialize, outcomes):
    materialize(EVERYTHING, EVE)
    materialize(DAILY, AFTER)
    result = materialize(ALONE)
    assert result.success
    assert outcomes(result) == dict.fromkeys(ALL_CHECKS, True) | {"report_equals_the_sales": False}


def test_by_itself_a_check_judges_every_day(materialize, outcomes, monkeypatch):
    materialize(EVERYTHING, AFTER)
    materialize(["raw_orders"], EVE)
    assert outcomes(materialize(ALONE, fails=True))["sales_equal_the_orders"] is False


def test_the_checks_of_the_chains_pass_on_a_first_day_a_next_one_and_a_range_in_which_tiers_lapse(
    materialize, outcomes, query
):
    for days in (FIRST, SECOND, (FIRST, LAST)):
        found = outcomes(materialize([*DAILY, *CHAINS], days))
        assert {name: found[name] for name in CHAIN_CHECKS} == dict.fromkeys(CHAIN_CHECKS, True)
    lapses = "count_if(valid_to = renewed_on + INTERVAL 30 DAY)"
    promotions = "count_if(valid_to IS NOT NULL AND valid_to < renewed_on + INTERVAL 30 DAY)"
    [(lapsed, promoted)] = query(f"SELECT {lapses}, {promotions} FROM market.customer_tiers")
    assert lapsed > 100
    assert promoted > 10
    alone = materialize(dg.AssetSelection.checks_for_assets(*CHAINS))
    assert outcomes(alone) == dict.fromkeys(CHAIN_CHECKS, True)


def test_totals_upon_sales_that_were_restated_are_caught(materialize, outcomes, monkeypatch):
    materialize([*DAILY, *CHAINS], (FIRST, SECOND))
    monkeypatch.setattr(assets, "clean", lambda orders: orders[orders["status"] == "sale"].drop_duplicates())
    materialize(["daily_sales"], FIRST, fails=True)
    result = materialize(dg.AssetSelection.assets("sales_to_date"), SECOND)
    assert outcomes(result) == {"totals_equal_the_sales": False}


@pytest.mark.parametrize(
    ("damage", "found"),
    [
        ("UPDATE market.customer_tiers SET valid_to = valid_to + 1 WHERE valid_to IS NOT NULL", "overlaps"),
        ("UPDATE market.customer_tiers SET valid_from = valid_from + 1 WHERE tier = 'gold'", "gaps"),
        ("DELETE FROM market.customer_tiers WHERE valid_to = DATE '2024-01-20'", "lost"),
    ],
)
def test_tiers_that_overlap_leave_a_gap_or_are_lost_are_caught(materialize, warehouse, damage, found):
    materialize(["raw_orders", "customer_tiers"], (FIRST, "2024-01-25"))
    with duckdb.connect(str(warehouse)) as connection:
        [(changed,)] = connection.execute(damage).fetchall()
    assert changed
    result = materialize(dg.AssetSelection.checks_for_assets("customer_tiers"))
    [evaluation] = result.get_asset_check_evaluations()
    assert not evaluation.passed
    assert evaluation.metadata[found].value > 0
