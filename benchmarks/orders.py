"""The table that is measured: orders of a shop, by day, with the columns that such a table has."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

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

_TYPES: dict[str, pa.DataType] = {
    "order_id": pa.string(),
    "ordered_at": pa.timestamp("us", "UTC"),
    "sale_date": pa.date32(),
    "store": pa.string(),
    "product": pa.string(),
    "customer_id": pa.string(),
    "quantity": pa.int64(),
    "unit_price": pa.float64(),
    "amount_cents": pa.int64(),
    "status": pa.string(),
}
SCHEMA = pa.schema(_TYPES)

_STORES = np.array(["Chamberí", "Lavapiés", "Malasaña", "Online"])
_PRODUCTS = np.array(["bread", "cheese", "coffee", "flowers", "honey", "olive oil", "oranges", "wine"])
_STATES = np.array(["sale", "refund"])


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
    customers = np.char.add("C", rng.integers(0, 20_000, rows).astype("U6"))
    instants = midnight + np.sort(rng.integers(0, 86_400_000_000, rows))
    columns: list[tuple[Any, Any]] = [
        (np.char.add(f"{day:%Y%m%d}-", np.arange(rows).astype("U8")).tolist(), None),
        (instants, None),
        (np.full(rows, np.datetime64(day)), None),
        (_STORES[rng.integers(0, len(_STORES), rows)].tolist(), None),
        (_PRODUCTS[rng.integers(0, len(_PRODUCTS), rows)].tolist(), None),
        (customers.tolist(), rng.random(rows) < 0.08),
        (quantity, None),
        (cents / 100, None),
        (quantity * cents, None),
        (_STATES[(rng.random(rows) < 0.03).astype(int)].tolist(), None),
    ]
    arrays = [pa.array(values, field.type, mask=mask) for (values, mask), field in zip(columns, SCHEMA, strict=True)]
    return pa.Table.from_arrays(arrays, schema=SCHEMA)
