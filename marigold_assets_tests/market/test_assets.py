"""From orders to report and through the chains, in a real warehouse, exact to the cent."""

from __future__ import annotations

from collections import Counter
from datetime import date, timedelta
from functools import cache

import dagster as dg
import pytest

from marigold_assets.market.assets import BIG_DAY_CENTS, TIER_LASTS_DAYS
from marigold_assets.market.orders import FIRST_DAY, orders_of
from marigold_assets_tests.market.conftest import inquirer, materializer

pytestmark = pytest.mark.slow

DAILY = ["raw_orders", "daily_sales"]
EVE, CLOSED, AFTER = "2024-12-24", "2024-12-25", "2024-12-26"


@cache
def once_each(day: date) -> list[dict]:
    """The orders of a day, the last delivery of each."""
    return list({row["order_id"]: row for row in orders_of(day).to_dict("records")}.values())


def revenue_by_hand(*days: str) -> Counter[str]:
    """Each store's cents over `days`, with Python integers and no table in between."""
    cents: Counter[str] = Counter()
    for day in days:
        for row in once_each(date.fromisoformat(day)):
            cents[row["store"]] += row["amount_cents"]
    return cents


def test_a_days_sales_are_its_orders_to_the_cent(materialize, query):
    materialize(DAILY, EVE)
    sums = query("SELECT store, sum(revenue_cents)::BIGINT FROM market.daily_sales GROUP BY store")
    assert dict(sums) == revenue_by_hand(EVE)


def test_revenue_is_what_was_sold_less_what_was_given_back(materialize, query):
    materialize(DAILY, EVE)
    exact = "bool_and(revenue_cents = gross_cents - refunded_cents)"
    both = "sum(gross_cents) > 0 AND sum(refunded_cents) > 0"
    assert query(f"SELECT {exact}, {both} FROM market.daily_sales") == [(True, True)]


def test_sales_count_every_order_once_refunds_and_unknown_customers_included(materialize, query):
    materialize(DAILY, EVE)
    orders = orders_of(date.fromisoformat(EVE)).drop_duplicates("order_id")
    [counted] = query("SELECT sum(orders)::INT, sum(refunds)::INT, sum(unknown_customers)::INT FROM market.daily_sales")
    refunds = int((orders["status"] == "refund").sum())
    assert counted == (len(orders) - refunds, refunds, int(orders["customer_id"].isna().sum()))


def test_late_orders_are_stored_on_the_shops_day(materialize, query):
    materialize(["raw_orders"], EVE)
    assert query("SELECT DISTINCT sale_date FROM market.raw_orders") == [(date.fromisoformat(EVE),)]
    last = "max(strftime(timezone('Europe/Madrid', ordered_at), '%Y-%m-%d %H:%M:%S'))"
    assert query(f"SELECT {last} FROM market.raw_orders") == [(f"{EVE} 23:59:59",)]


@pytest.mark.parametrize("first_day", [CLOSED, EVE])
def test_the_tables_have_the_same_types_whichever_day_comes_first(materialize, query, first_day):
    materialize(DAILY, first_day)
    types = dict(query("SELECT column_name, column_type FROM (DESCRIBE market.raw_orders)"))
    assert types == {
        "order_id": "VARCHAR",
        "ordered_at": "TIMESTAMP WITH TIME ZONE",
        "sale_date": "DATE",
        "store": "VARCHAR",
        "product": "VARCHAR",
        "customer_id": "VARCHAR",
        "quantity": "BIGINT",
        "amount_cents": "BIGINT",
        "status": "VARCHAR",
    }
    sales = dict(query("SELECT column_name, column_type FROM (DESCRIBE market.daily_sales)"))
    assert set(sales.values()) == {"DATE", "VARCHAR", "BIGINT"}


def test_a_closed_day_is_materialized_without_rows(materialize, query):
    result = materialize(DAILY, CLOSED)
    assert result.success
    assert query("SELECT count(*) FROM market.daily_sales") == [(0,)]


def test_rebuilding_a_day_changes_nothing(materialize, query):
    everything = "SELECT * FROM market.raw_orders ORDER BY ALL"
    for day in (EVE, AFTER):
        materialize(DAILY, day)
    before = query(everything)
    materialize(DAILY, EVE)
    assert query(everything) == before


def test_a_range_run_stores_what_single_days_store(materialize, query):
    everything = "SELECT * FROM market.daily_sales ORDER BY ALL"
    for day in (EVE, CLOSED, AFTER):
        materialize(DAILY, day)
    day_by_day = query(everything)
    materialize(DAILY, (EVE, AFTER))
    assert query(everything) == day_by_day


def test_the_report_reads_every_day_there_is(materialize, query):
    for day in (EVE, CLOSED, AFTER, "2025-01-02"):
        materialize(DAILY, day)
    materialize(["revenue_report"])
    report = query("SELECT month, store, days, revenue_cents FROM market.revenue_report ORDER BY ALL")
    december, january = revenue_by_hand(EVE, AFTER), revenue_by_hand("2025-01-02")
    assert report == [("2024-12", store, 2, december[store]) for store in sorted(december)] + [
        ("2025-01", store, 1, january[store]) for store in sorted(january)
    ]


def test_a_nightly_run_of_one_day_still_reports_on_all_days(materialize, query):
    materialize(DAILY, EVE)
    materialize([*DAILY, "revenue_report"], AFTER)
    assert query("SELECT sum(revenue_cents)::BIGINT FROM market.revenue_report") == [
        (revenue_by_hand(EVE, AFTER).total(),)
    ]


CUT = 3
DAYS = [FIRST_DAY + timedelta(days=n) for n in range(45)]


@pytest.fixture(scope="module")
def six_weeks(tmp_path_factory):
    """Asks a warehouse of the chains and what they read: the first days one by one, and all others as a range."""
    warehouse = tmp_path_factory.mktemp("six_weeks") / "warehouse.duckdb"
    assets = ["raw_orders", "daily_sales", "sales_to_date", "customer_tiers"]
    with dg.DagsterInstance.ephemeral() as instance:
        materialize = materializer(warehouse, instance)
        for day in DAYS[:CUT]:
            materialize(assets, str(day))
        for asset in assets:
            materialize([asset], (str(DAYS[CUT]), str(DAYS[-1])))
    return inquirer(warehouse)


def tiers_by_hand(days):
    """Every tier there was until the end of some days, as (customer, tier, from, to), one customer at a time."""
    big_days = {}
    for day in days:
        cents = Counter()
        for row in once_each(day):
            cents[row["customer_id"]] += row["amount_cents"]
        for customer, spent in cents.items():
            if isinstance(customer, str) and spent >= BIG_DAY_CENTS:
                big_days.setdefault(customer, []).append(day)
    found = set()
    for customer, dates in big_days.items():
        tier, since, until = None, None, None
        for day in [*dates, date.max]:
            if until is not None and day > until:
                found.add((customer, tier, since, until if until <= days[-1] else None))
                tier = None
            if day == date.max:
                break
            if tier == "silver":
                found.add((customer, tier, since, day))
            tier, since = (tier, since) if tier == "gold" else ("gold" if tier else "silver", day)
            until = day + timedelta(days=TIER_LASTS_DAYS)
    return found


EACH_TIER_ONCE = """
    SELECT customer_id, tier, valid_from, valid_to FROM market.customer_tiers
    WHERE valid_to IS NOT NULL OR as_of = (SELECT max(as_of) FROM market.customer_tiers)
"""


def test_totals_and_tiers_are_those_of_all_days_before_whether_by_day_or_by_range(six_weeks):
    for until in (DAYS[:1], DAYS[:CUT], DAYS):
        totals = six_weeks(f"SELECT store, revenue_cents FROM market.sales_to_date WHERE sale_date = '{until[-1]}'")
        assert dict(totals) == revenue_by_hand(*map(str, until))
    found = six_weeks(EACH_TIER_ONCE)
    assert len(found) == len(set(found))
    assert set(found) == tiers_by_hand(DAYS)


def test_a_day_of_the_tiers_holds_no_more_than_what_is_valid_or_has_just_ended(six_weeks):
    [(rows, customers, beside)] = six_weeks(
        "SELECT count(*), count(DISTINCT customer_id), count_if(valid_to IS NOT NULL AND valid_to <> as_of)"
        " FROM market.customer_tiers WHERE as_of = '2024-02-10'"
    )
    assert beside == 0
    assert rows - customers < 20  # those who went from silver to gold
    assert rows < 2_000


def test_a_closed_day_hands_totals_and_tiers_on(materialize, query, monkeypatch):
    monkeypatch.setattr("marigold_assets.market.orders.shop_is_closed", lambda day: str(day) == "2024-01-02")
    days = ("2024-01-01", "2024-01-03")
    for asset in ("raw_orders", "daily_sales", "sales_to_date", "customer_tiers"):
        materialize([asset], days)
    assert query("SELECT count(*) FROM market.daily_sales WHERE sale_date = '2024-01-02'") == [(0,)]
    totals = (
        "SELECT store, orders, refunds, revenue_cents FROM market.sales_to_date WHERE sale_date = '{}' ORDER BY ALL"
    )
    assert query(totals.format("2024-01-02")) == query(totals.format("2024-01-01"))
    tiers = "SELECT * EXCLUDE as_of FROM market.customer_tiers WHERE as_of = '{}' ORDER BY ALL"
    assert query(tiers.format("2024-01-02")) == query(tiers.format("2024-01-01"))
