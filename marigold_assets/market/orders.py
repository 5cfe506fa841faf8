"""The orders of Marigold Market, made instead of downloaded: a pure function of the day.

The same day gives the same rows in every process, in any order and under any time zone of the machine, so
rebuilding a partition is a replay and two builds of one day can be compared row by row. The rows carry what
real deliveries carry: rows sent twice, refunds, customers nobody knows, and orders in the first and the last
second of a day.

A day is a day in the shop's own time zone. `ordered_at` is an instant (UTC); `sale_date` is the shop's
calendar date of that instant. Between midnight and two o'clock in Madrid the two dates can differ, and a day
has 23 or 25 hours when the clocks change.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from typing import Final
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
from pandas.api.extensions import ExtensionDtype

SHOP_TIMEZONE: Final = "Europe/Madrid"
FIRST_DAY: Final = date(2024, 1, 1)
END_DAY: Final = date(2026, 1, 1)
"""The first day without data: the calendar is the half-open interval `[FIRST_DAY, END_DAY)`."""

STORES: Final = ("Chamberí", "Lavapiés", "Malasaña", "Online")
PRODUCT_CENTS: Final = {
    "bread": 280,
    "cheese": 1_195,
    "coffee": 890,
    "flowers": 1_450,
    "honey": 749,
    "olive oil": 1_099,
    "oranges": 325,
    "wine": 1_275,
}
"""Each product's price in cents. Money is integer cents everywhere: a sum of integers does not drift."""

# Every type is named, so that a day without orders has the same columns as any other: an empty column of
# Python objects would have no type, and the first write of a table would guess one.
ORDER_TYPES: Final[dict[str, ExtensionDtype | np.dtype[np.int64]]] = {
    "order_id": pd.StringDtype(),
    "ordered_at": pd.DatetimeTZDtype("us", "UTC"),
    "sale_date": pd.ArrowDtype(pa.date32()),
    "store": pd.StringDtype(),
    "product": pd.StringDtype(),
    "customer_id": pd.StringDtype(),
    "quantity": np.dtype("int64"),
    "amount_cents": np.dtype("int64"),
    "status": pd.StringDtype(),
}

_TYPICAL_ORDERS = 1_000
_WEEKDAY_PERCENT = (84, 86, 90, 97, 116, 136, 91)
_MONTH_PERCENT = (90, 92, 96, 98, 101, 103, 97, 86, 99, 102, 110, 126)
_HOUR_WEIGHTS = (6, 3, 1, 1, 1, 2, 8, 24, 44, 60, 72, 84, 88, 76, 52, 40, 48, 66, 88, 96, 80, 52, 30, 16)
_NOISE_ORDERS = 40

_REFUND_SHARE = 0.03
_UNKNOWN_CUSTOMER_SHARE = 0.08
_DELIVERED_TWICE_SHARE = 0.02
_CUSTOMERS = 20_000
_MAX_QUANTITY = 5


def shop_is_closed(day: date) -> bool:
    """Whether no order can exist on `day`: Marigold Market is closed on Christmas Day, online too."""
    return (day.month, day.day) == (12, 25)


def orders_of(day: date) -> pd.DataFrame:
    """Make the orders that Marigold Market's till delivered for one day.

    Args:
        day: A calendar day in the shop's time zone, within `[FIRST_DAY, END_DAY)`.

    Returns:
        One row per delivered order line, in the order of `ordered_at`, with the columns and dtypes of
        `ORDER_TYPES`. A refund is a row of its own with `status` "refund" and a negative quantity and amount.
        About 2 % of the rows stand there twice, equal in every column. A closed day has no rows.

    Raises:
        ValueError: `day` is outside the calendar.
    """
    if not FIRST_DAY <= day < END_DAY:
        raise ValueError(f"{day} is outside Marigold Market's calendar [{FIRST_DAY}, {END_DAY})")
    if shop_is_closed(day):
        return pd.DataFrame({name: pd.Series(dtype=dtype) for name, dtype in ORDER_TYPES.items()})

    # Only uniform doubles are drawn, and everything else is computed from them: a generator's other
    # distributions may change between numpy versions, and then the same day would have other orders.
    rng = np.random.Generator(np.random.PCG64(day.toordinal()))
    noise = int(rng.random() * (2 * _NOISE_ORDERS + 1)) - _NOISE_ORDERS
    shape = _WEEKDAY_PERCENT[day.weekday()] * _MONTH_PERCENT[day.month - 1]
    count = _TYPICAL_ORDERS * shape // 10_000 + noise

    products = _pick(rng, len(PRODUCT_CENTS), count)
    quantity = 1 + _pick(rng, _MAX_QUANTITY, count)
    refund = rng.random(count) < _REFUND_SHARE
    quantity = np.where(refund, -quantity, quantity)
    customers = pd.Series([f"C{n:05d}" for n in _pick(rng, _CUSTOMERS, count)])

    orders = pd.DataFrame(
        {
            "order_id": [f"{day:%Y%m%d}-{n:04d}" for n in range(count)],
            "ordered_at": _instants(rng, day, count),
            "sale_date": day,
            "store": np.array(STORES)[_pick(rng, len(STORES), count)],
            "product": np.array(list(PRODUCT_CENTS))[products],
            "customer_id": customers.mask(rng.random(count) < _UNKNOWN_CUSTOMER_SHARE),
            "quantity": quantity,
            "amount_cents": quantity * np.array(list(PRODUCT_CENTS.values()))[products],
            "status": np.where(refund, "refund", "sale"),
        }
    ).astype(ORDER_TYPES)
    times_delivered = np.where(rng.random(count) < _DELIVERED_TWICE_SHARE, 2, 1)
    return orders.loc[orders.index.repeat(times_delivered)].reset_index(drop=True)


def _pick(rng: np.random.Generator, choices: int, count: int) -> npt.NDArray[np.int64]:
    """Draw `count` whole numbers below `choices`."""
    return (rng.random(count) * choices).astype(np.int64)


def _instants(rng: np.random.Generator, day: date, count: int) -> pd.DatetimeIndex:
    """Draw `count` sorted instants of the shop's day, its first and its last second always among them."""
    start, end = _midnight(day), _midnight(day + timedelta(days=1))
    hours = (end - start) // timedelta(hours=1)  # 23 or 25 when the clocks change
    until = np.cumsum(np.resize(_HOUR_WEIGHTS, hours))
    hour = np.searchsorted(until, _pick(rng, int(until[-1]), count), side="right")
    second = np.sort(hour * 3_600 + _pick(rng, 3_600, count))
    second[0], second[-1] = 0, hours * 3_600 - 1
    return pd.DatetimeIndex(pd.Timestamp(start) + pd.to_timedelta(second, unit="s"))


def _midnight(day: date) -> datetime:
    """The instant at which `day` begins in the shop, in UTC."""
    return datetime.combine(day, time(), tzinfo=ZoneInfo(SHOP_TIMEZONE)).astimezone(UTC)
