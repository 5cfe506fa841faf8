"""The orders are a pure function of the day, and hold everything that makes real deliveries hard."""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import sys
from datetime import date, timedelta

import pandas as pd
import pytest

from marigold_assets.market.orders import (
    END_DAY,
    FIRST_DAY,
    ORDER_TYPES,
    PRODUCT_CENTS,
    SHOP_TIMEZONE,
    STORES,
    orders_of,
)

PLAIN_DAY = date(2024, 3, 5)
CLOSED_DAY = date(2024, 12, 25)
SHORT_DAY = date(2024, 3, 31)
LONG_DAY = date(2024, 10, 27)
# Every weekday and every month is among them.
SAMPLE = [FIRST_DAY + timedelta(days=n) for n in range(0, (END_DAY - FIRST_DAY).days, 5)]


def digest(day: date) -> str:
    return hashlib.sha256(orders_of(day).to_csv(index=False).encode()).hexdigest()


@pytest.fixture(scope="module")
def sample() -> pd.DataFrame:
    return pd.concat([orders_of(day) for day in SAMPLE], ignore_index=True)


@pytest.mark.slow
@pytest.mark.parametrize("zone", ["Pacific/Kiritimati", "America/Los_Angeles"])
def test_another_process_in_another_time_zone_makes_the_same_rows(zone):
    days = [LONG_DAY, PLAIN_DAY, CLOSED_DAY, SHORT_DAY]
    program = (
        "import hashlib, sys\n"
        "from datetime import date\n"
        "from marigold_assets.market.orders import orders_of\n"
        "for day in sys.argv[1:]:\n"
        "    csv = orders_of(date.fromisoformat(day)).to_csv(index=False)\n"
        "    print(hashlib.sha256(csv.encode()).hexdigest())\n"
    )
    variables = {**os.environ, "TZ": zone, "PYTHONHASHSEED": "7"}
    command = [sys.executable, "-c", program, *map(str, days)]
    output = subprocess.run(command, env=variables, check=True, capture_output=True, text=True).stdout
    assert output.split() == [digest(day) for day in days]


def test_a_day_does_not_depend_on_the_days_made_before_it():
    days = SAMPLE[:20]
    in_order = {day: digest(day) for day in days}
    shuffled = random.Random(1).sample(days, len(days))
    assert {day: digest(day) for day in shuffled} == in_order


def test_the_rows_are_the_same_under_every_numpy_and_pandas():
    assert digest(PLAIN_DAY) == ("7c0f6ae8d11709a3976ecfd1f683e46997088b0aa0ea23aa3e9c92426165e9e2")
    assert digest(SHORT_DAY) == ("59e3c0bde524153659229e3997fa40a75508751f51d2cc7b830731211a6121de")


def test_there_are_about_a_thousand_orders_a_day(sample):
    orders_per_day = sample["order_id"].nunique() / len(SAMPLE)
    assert 950 < orders_per_day < 1_050


def test_weekends_are_busier_than_mondays_and_december_busier_than_august(sample):
    day = pd.to_datetime(sample["sale_date"])
    by_weekday = sample.groupby(day.dt.day_of_week).size()
    by_month = sample.groupby(day.dt.month).size()
    assert by_weekday[5] > 1.3 * by_weekday[0]
    assert by_month[12] > 1.2 * by_month[8]


def test_every_store_and_product_sells(sample):
    assert set(sample["store"]) == set(STORES)
    assert set(sample["product"]) == set(PRODUCT_CENTS)


def test_refunds_are_negative_and_everything_else_is_positive(sample):
    refund = sample["status"] == "refund"
    assert set(sample["status"]) == {"sale", "refund"}
    assert 0.02 < refund.mean() < 0.04
    assert ((sample["amount_cents"] < 0) == refund).all()
    assert ((sample["quantity"] < 0) == refund).all()


def test_an_amount_is_exactly_quantity_times_price(sample):
    prices = sample["product"].map(PRODUCT_CENTS).astype("int64")
    assert (sample["amount_cents"] == sample["quantity"] * prices).all()


def test_some_rows_are_delivered_twice_equal_in_every_column(sample):
    assert 0.01 < sample.duplicated().mean() < 0.03
    assert sample.drop_duplicates()["order_id"].is_unique


def test_some_customers_are_unknown(sample):
    assert 0.06 < sample["customer_id"].isna().mean() < 0.10
    assert sample.drop(columns="customer_id").notna().all(axis=None)


@pytest.mark.parametrize(("day", "hours"), [(PLAIN_DAY, 24), (SHORT_DAY, 23), (LONG_DAY, 25)])
def test_orders_reach_from_the_first_to_the_last_second_of_the_local_day(day, hours):
    instants = orders_of(day)["ordered_at"]
    local = instants.dt.tz_convert(SHOP_TIMEZONE)
    assert set(local.dt.date) == {day}
    assert local.min().strftime("%H:%M:%S") == "00:00:00"
    assert local.max().strftime("%H:%M:%S") == "23:59:59"
    assert instants.max() - instants.min() == timedelta(hours=hours, seconds=-1)
    assert instants.is_monotonic_increasing


def test_some_orders_fall_on_another_day_by_the_clock_of_utc():
    orders = orders_of(PLAIN_DAY)
    assert set(orders["ordered_at"].dt.date) == {PLAIN_DAY - timedelta(days=1), PLAIN_DAY}
    assert set(orders["sale_date"]) == {PLAIN_DAY}


def test_the_order_ids_of_different_days_differ():
    one, next_one = (set(orders_of(PLAIN_DAY + timedelta(days=n))["order_id"]) for n in (0, 1))
    assert not one & next_one


@pytest.mark.parametrize("day", [CLOSED_DAY, PLAIN_DAY])
def test_every_day_has_the_same_columns_and_types_even_without_orders(day):
    assert dict(orders_of(day).dtypes) == ORDER_TYPES


def test_the_shop_is_closed_at_christmas_and_open_the_days_around():
    assert len(orders_of(CLOSED_DAY)) == 0
    assert all(len(orders_of(CLOSED_DAY + timedelta(days=n))) > 500 for n in (-1, 1))


def test_a_closed_day_beside_an_open_one_keeps_every_type():
    both = pd.concat([orders_of(CLOSED_DAY), orders_of(PLAIN_DAY)], ignore_index=True)
    assert dict(both.dtypes) == ORDER_TYPES


@pytest.mark.parametrize("day", [FIRST_DAY - timedelta(days=1), END_DAY])
def test_a_day_outside_the_calendar_is_refused(day):
    with pytest.raises(ValueError, match="outside Marigold Market's calendar"):
        orders_of(day)
