"""Assets over the days of the orders, as users write them, and the raw loop that does the same without any care."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import date, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import dagster as dg
import duckdb
import pandas as pd

from benchmarks.orders import FIRST_DAY, TABLE, day_of, slice_of
from benchmarks.swap import draw
from marigold_assets import FencedPartitionIOManager, partitioned_asset
from marigold_assets.stores.base import Query
from marigold_assets.stores.duckdb import DuckDBStore

CHAIN, INDEPENDENT = "chain", "independent"
SQL, RELATION, PANDAS = "SQL", "relation", "pandas"
_ORDERS_KEY = dg.AssetKey([TABLE.schema, TABLE.name])
_DAYS_A_SWAP = 73
_FIRST = -1_900  # counted from the first day of the orders
_MOST_FILLED = 3_650
_LONG_AGO = date(1925, 1, 1)  # for a hundred years
KEYS_A_STATEMENT = 100

# A running total a store: that of the day before, and the day's own sum.
_TOTAL = "CAST(sum(cents) AS BIGINT) AS cents"
# What was sold a day, store and product.
_SALES = "CAST(sum(amount_cents) AS BIGINT) AS cents, sum(quantity)::BIGINT AS quantity, count(*) AS orders"


def definition_of(days: int) -> dg.DailyPartitionsDefinition:
    """So many daily partitions, all of them over."""
    first = day_of(_FIRST) if days <= _MOST_FILLED else _LONG_AGO
    return dg.DailyPartitionsDefinition(first.isoformat(), end_date=(first + timedelta(days=days)).isoformat())


def fill(database: Path, *, days: int, rows: int) -> None:
    """Swap the orders of so many days into a database; they are computed within it, which takes a moment."""
    store = DuckDBStore(str(database))
    end = _FIRST + days
    for first in range(_FIRST, end, _DAYS_A_SWAP):
        numbers = range(first, min(first + _DAYS_A_SWAP, end))
        made = Query(sql=_orders_sql(numbers, rows))
        store.swap([slice_of(n) for n in numbers], made, attempt=draw(store), swap_id=uuid4().hex)


def _orders_sql(numbers: range, rows: int) -> str:
    """Orders of some days, with the columns of :mod:`benchmarks.orders`; the same ones whenever it is asked."""
    return f"""
        WITH numbered AS (
            SELECT DATE '{FIRST_DAY}' + day::INTEGER AS sale_date, number, day * {rows} + number AS seed
            FROM range({numbers.start}, {numbers.stop}) AS days (day), range({rows}) AS numbers (number)),
        made AS (SELECT *, (hash(seed) >> 2)::BIGINT AS h, (hash(seed + 0.5) >> 2)::BIGINT AS g FROM numbered)
        SELECT strftime(sale_date, '%Y%m%d-') || number AS order_id,
            (sale_date + to_microseconds((86_400_000_000 // {rows}) * number)) AT TIME ZONE 'UTC' AS ordered_at,
            sale_date, ['Chamberí', 'Lavapiés', 'Malasaña', 'Online'][1 + h % 4] AS store,
            ['bread', 'cheese', 'coffee', 'flowers', 'honey', 'olive oil', 'oranges', 'wine'][1 + g % 8] AS product,
            CASE WHEN g % 100 >= 8 THEN 'C' || (g % 20_000) END AS customer_id, (1 + h % 5)::BIGINT AS quantity,
            (100 + g % 9_900) / 100 AS unit_price, ((1 + h % 5) * (100 + g % 9_900))::BIGINT AS amount_cents,
            CASE WHEN h % 100 < 3 THEN 'refund' ELSE 'sale' END AS status
        FROM made"""


def asset_of(kind: str, style: str, *, days: int, name: str, many: bool = False) -> Any:
    """An asset over the orders.

    Args:
        kind: ``CHAIN`` or ``INDEPENDENT``.
        style: ``SQL``, ``RELATION`` or ``PANDAS``.
        days: How many partitions.
        name: Its name.
        many: Whether one statement computes many keys.
    """
    loaded = {"columns": _LOADED[kind]} if style == PANDAS else None
    return partitioned_asset(
        partitions_def=definition_of(days),
        partition_expr="sale_date",
        code_version="1",
        key=[TABLE.schema, name],
        ins={"orders": dg.AssetIn(key=_ORDERS_KEY, metadata=loaded)},
        backfill_policy=dg.BackfillPolicy.single_run(),
        keys_per_statement=KEYS_A_STATEMENT if many else 1,
    )(_FUNCTIONS[kind, style])


_LOADED = {
    CHAIN: ["store", "amount_cents"],
    INDEPENDENT: ["sale_date", "store", "product", "quantity", "amount_cents"],
}


def _sql_total(context: dg.AssetExecutionContext, orders: str, previous: str | None) -> str:
    before = "" if previous is None else f"UNION ALL SELECT store, cents FROM ({previous})"
    return f"""SELECT DATE '{context.partition_key}' AS sale_date, store, {_TOTAL}
        FROM (SELECT store, amount_cents AS cents FROM ({orders}) {before}) GROUP BY store"""


def _relation_total(
    context: dg.AssetExecutionContext, orders: duckdb.DuckDBPyRelation, previous: duckdb.DuckDBPyRelation | None
) -> duckdb.DuckDBPyRelation:
    cents = orders.project("store, amount_cents AS cents")
    if previous is not None:
        cents = cents.union(previous.project("store, cents"))
    return cents.aggregate(f"DATE '{context.partition_key}' AS sale_date, store, {_TOTAL}", "store")


def _pandas_total(
    context: dg.AssetExecutionContext, orders: pd.DataFrame, previous: pd.DataFrame | None
) -> pd.DataFrame:
    cents = orders.groupby("store")["amount_cents"].sum()
    if previous is not None:
        cents = cents.add(previous.set_index("store")["cents"], fill_value=0).astype("int64")
    return cents.rename("cents").reset_index().assign(sale_date=pd.Timestamp(context.partition_key))


def _sql_sales(orders: str) -> str:
    return f"SELECT sale_date, store, product, {_SALES} FROM ({orders}) GROUP BY ALL"


def _relation_sales(orders: duckdb.DuckDBPyRelation) -> duckdb.DuckDBPyRelation:
    return orders.aggregate(f"sale_date, store, product, {_SALES}", "sale_date, store, product")


def _pandas_sales(orders: pd.DataFrame) -> pd.DataFrame:
    by = orders.groupby(["sale_date", "store", "product"], as_index=False)
    return by.agg(cents=("amount_cents", "sum"), quantity=("quantity", "sum"), orders=("quantity", "size"))


_FUNCTIONS: dict[tuple[str, str], Callable[..., Any]] = {
    (CHAIN, SQL): _sql_total,
    (CHAIN, RELATION): _relation_total,
    (CHAIN, PANDAS): _pandas_total,
    (INDEPENDENT, SQL): _sql_sales,
    (INDEPENDENT, RELATION): _relation_sales,
    (INDEPENDENT, PANDAS): _pandas_sales,
}


def materialize(
    asset: Any, database: Path, instance: dg.DagsterInstance, *, keys: Sequence[str], **choices: str
) -> None:
    """Build a range of days in one run."""
    config = {"ops": {asset.op.name: {"config": choices}}} if choices else {}
    tags = {"dagster/asset_partition_range_start": keys[0], "dagster/asset_partition_range_end": keys[-1]}
    orders = dg.AssetSpec(_ORDERS_KEY, partitions_def=asset.partitions_def, metadata={"partition_expr": "sale_date"})
    dg.materialize(
        [asset, orders],
        selection=[asset],
        instance=instance,
        resources={"io_manager": FencedPartitionIOManager(database=str(database))},
        run_config={"loggers": {"console": {"config": {"log_level": "ERROR"}}}, **config},
        tags=tags,
    )


_COLUMNS = {
    CHAIN: "sale_date DATE, store VARCHAR, cents BIGINT",
    INDEPENDENT: "sale_date DATE, store VARCHAR, product VARCHAR, cents BIGINT, quantity BIGINT, orders BIGINT",
}


def raw_loop(kind: str, database: Path, *, days: int) -> None:
    """The floor: one connection that deletes, inserts and commits day by day; no fence, ledger, checks or hash."""
    source, target = f"{TABLE.schema}.{TABLE.name}", f"raw.{kind}"
    if kind == CHAIN:
        query = f"""SELECT $1::DATE AS sale_date, store, {_TOTAL} FROM (
            SELECT store, amount_cents AS cents FROM {source} WHERE sale_date = $1
            UNION ALL SELECT store, cents FROM {target} WHERE sale_date = $1 - 1) GROUP BY store"""
    else:
        query = f"SELECT sale_date, store, product, {_SALES} FROM {source} WHERE sale_date = $1 GROUP BY ALL"
    with closing(duckdb.connect(str(database))) as connection:
        connection.execute(f"CREATE SCHEMA IF NOT EXISTS raw; CREATE TABLE IF NOT EXISTS {target} ({_COLUMNS[kind]})")
        for number in range(_FIRST, _FIRST + days):
            connection.execute("BEGIN TRANSACTION")
            connection.execute(f"DELETE FROM {target} WHERE sale_date = $1", [day_of(number)])
            connection.execute(f"INSERT INTO {target} BY NAME {query}", [day_of(number)])
            connection.execute("COMMIT")


def refuse_other_rows(kind: str, table: str, database: Path) -> None:
    """Fail unless a table holds what the raw loop has made: what is compared has done the same work."""
    columns = ", ".join(f"{name}::{type_} AS {name}" for name, type_ in map(str.split, _COLUMNS[kind].split(", ")))
    ours, raw = f"SELECT {columns} FROM {TABLE.schema}.{table}", f"SELECT {columns} FROM raw.{kind}"
    with closing(duckdb.connect(str(database))) as connection:
        for one, other in ((ours, raw), (raw, ours)):
            [(count,)] = connection.execute(f"SELECT count(*) FROM ({one} EXCEPT ALL {other})").fetchall()
            assert count == 0, f"{table}: {count} rows are not those of the raw loop"
