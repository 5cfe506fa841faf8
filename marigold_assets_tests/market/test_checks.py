"""The checks pass on sound days and fail on the mistakes they are there for."""

from __future__ import annotations

from datetime import timedelta

import dagster as dg
import pandas as pd
import pytest

from marigold_assets.market import assets
from marigold_assets.market.orders import orders_of

pytestmark = pytest.mark.slow

DAILY = ["raw_orders", "daily_sales"]
EVERYTHING = [*DAILY, "revenue_report"]
EVE, CLOSED, AFTER = "2024-12-24", "2024-12-25", "2024-12-26"
ALONE = dg.AssetSelection.all_asset_checks()
ALL_CHECKS = {
    "orders_belong_to_their_day",
    "few_orders_are_delivered_twice",
    "sales_equal_the_orders",
    "report_equals_the_sales",
}


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
