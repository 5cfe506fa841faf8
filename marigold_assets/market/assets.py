"""Marigold Market's assets: orders as delivered, sales per day, and the report that Nadia reads.

`raw_orders` -> `daily_sales` -> `revenue_report`. The daily assets are pure functions of their days, and
every row names its day in `sale_date`: that column is the whole partitioning.
"""

# No `from __future__ import annotations` here: Dagster compares the annotation of `context` with its classes.

from datetime import date
from typing import Final

import dagster as dg
import numpy as np
import pandas as pd
import pyarrow as pa
from pandas.api.extensions import ExtensionDtype

from marigold_assets.market.orders import END_DAY, FIRST_DAY, SHOP_TIMEZONE, orders_of

# The keys are the shop's local days. The end is fixed, so that a backfill of everything is finite.
DAYS: Final = dg.DailyPartitionsDefinition(
    start_date=FIRST_DAY.isoformat(), end_date=END_DAY.isoformat(), timezone=SHOP_TIMEZONE
)

# Up to a month of days in one run: a run pays seconds to start its process, a day takes milliseconds, so two
# years are 24 runs instead of 731. The days of a run are swapped together, all or none, so a month is also
# the most that one failure has to repeat. Equal policies let Dagster put both daily assets into the same run.
MONTHLY_RUNS: Final = dg.BackfillPolicy.multi_run(max_partitions_per_run=31)

_INT64 = np.dtype("int64")
_TEXT = pd.StringDtype()
SALES_TYPES: Final[dict[str, ExtensionDtype | np.dtype[np.int64]]] = {
    "sale_date": pd.ArrowDtype(pa.date32()),
    "store": _TEXT,
    "product": _TEXT,
    "orders": _INT64,
    "refunds": _INT64,
    "unknown_customers": _INT64,
    "gross_cents": _INT64,
    "refunded_cents": _INT64,
    "revenue_cents": _INT64,
}
REPORT_TYPES: Final[dict[str, ExtensionDtype | np.dtype[np.int64]]] = {
    "month": _TEXT,
    "store": _TEXT,
    "days": _INT64,
    "orders": _INT64,
    "refunds": _INT64,
    "revenue_cents": _INT64,
}


@dg.asset(
    partitions_def=DAYS,
    backfill_policy=MONTHLY_RUNS,
    metadata={"partition_expr": "sale_date"},
    code_version="1",
    group_name="market",
    kinds={"python", "duckdb"},
)
def raw_orders(context: dg.AssetExecutionContext) -> pd.DataFrame:
    """Orders exactly as the till delivered them: some rows twice, with refunds and unknown customers."""
    days = map(date.fromisoformat, context.partition_keys)
    return pd.concat(map(orders_of, days), ignore_index=True)


def clean(orders: pd.DataFrame) -> pd.DataFrame:
    """Keep every order once; an order without a customer is still an order."""
    return orders.drop_duplicates()


@dg.asset(
    partitions_def=DAYS,
    backfill_policy=MONTHLY_RUNS,
    metadata={"partition_expr": "sale_date"},
    code_version="1",
    group_name="market",
    kinds={"pandas", "duckdb"},
)
def daily_sales(raw_orders: pd.DataFrame) -> pd.DataFrame:
    """What each store sold of each product on each day, and what it gave back, in cents."""
    orders = clean(raw_orders)
    refund = orders["status"] == "refund"
    counted = orders[["sale_date", "store", "product"]].assign(
        orders=~refund,
        refunds=refund,
        unknown_customers=orders["customer_id"].isna(),
        gross_cents=orders["amount_cents"].where(~refund, 0),
        refunded_cents=-orders["amount_cents"].where(refund, 0),
        revenue_cents=orders["amount_cents"],
    )
    return counted.groupby(["sale_date", "store", "product"], as_index=False).sum().astype(SALES_TYPES)


@dg.asset(
    ins={
        "daily_sales": dg.AssetIn(
            partition_mapping=dg.AllPartitionMapping(),
            metadata={"columns": ["sale_date", "store", "orders", "refunds", "revenue_cents"]},
        )
    },
    code_version="1",
    group_name="market",
    kinds={"pandas", "duckdb"},
)
def revenue_report(daily_sales: pd.DataFrame) -> pd.DataFrame:
    """Revenue per month and store over all days there are: what Nadia reads.

    `days` counts the days with sales, so that a month with missing days does not pass for a bad month.
    """
    month = pd.to_datetime(daily_sales["sale_date"]).dt.strftime("%Y-%m")
    report = daily_sales.assign(month=month).groupby(["month", "store"], as_index=False)
    totals = {name: (name, "sum") for name in ("orders", "refunds", "revenue_cents")}
    return report.agg(days=("sale_date", "nunique"), **totals).astype(REPORT_TYPES)
