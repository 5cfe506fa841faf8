"""The table that is measured: orders of a shop, by day, with the columns that such a table has."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import numpy as np
import pyarrow as pa

from marigold_assets.model import Interval, PartitionSlice, TableName

TABLE = TableName(schema="shop", name="orders")
OWNER = "shop/orders"
FIRST_DAY = date(2020, 1, 1)
COLUMNS_SQL = (
    "order_id VARCHAR, ordered_at TIMESTAMPTZ, sale_date DATE, store VARCHAR, product VARCHAR, customer_id VARCHAR,"
    " quantity BIGINT, unit_price DOUBLE, amount_cents BIGINT, status VARCHAR"
)

_STORES = pa.array(["Chamberí", "Lavapiés", "Malasaña", "Online"])
_PRODUCTS = pa.array(["bread", "cheese", "coffee", "flowers", "honey", "olive oil", "oranges", "wine"])
_STATES = pa.array(["sale", "refund"])


def day_of(number: int) -> date:
    """The day of a partition."""
    return FIRST_DAY + timedelta(days=number)


def slice_of(number: int, table: TableName = TABLE) -> PartitionSlice:
    """One day as a partition slice."""
    start = datetime.combine(day_of(number), datetime.min.time(), tzinfo=UTC)
    interval = Interval(expression="sale_date", start=start, end=start + timedelta(days=1))
    return PartitionSlice(table=table, partition_key=day_of(number).isoformat(), conditions=(interval,), owner=OWNER)


def orders(number: int, rows: int, *, seed: int = 0) -> pa.Table:
    """One day's orders: ten columns, six of them text, some values missing."""
    rng = np.random.default_rng([number, rows, seed])
    day = day_of(number)
    midnight = np.datetime64(day, "us")
    quantity = rng.integers(1, 6, rows)
    cents = rng.integers(100, 9_999, rows)
    customers = rng.integers(0, 20_000, rows)
    return pa.table(
        {
            "order_id": pa.array(np.char.add(f"{day:%Y%m%d}-", np.arange(rows).astype("U8")).tolist()),
            "ordered_at": pa.array(
                midnight + np.sort(rng.integers(0, 86_400_000_000, rows)), pa.timestamp("us", "UTC")
            ),
            "sale_date": pa.repeat(pa.scalar(day), rows),
            "store": _STORES.take(pa.array(rng.integers(0, 4, rows))),
            "product": _PRODUCTS.take(pa.array(rng.integers(0, 8, rows))),
            "customer_id": pa.array(np.char.add("C", customers.astype("U6")).tolist(), mask=rng.random(rows) < 0.08),
            "quantity": quantity,
            "unit_price": cents / 100,
            "amount_cents": quantity * cents,
            "status": _STATES.take(pa.array((rng.random(rows) < 0.03).astype("int64"))),
        }
    )
