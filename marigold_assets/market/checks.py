"""What must hold of Marigold Market's assets, to the cent.

A check of a daily asset judges the days of its own run, whether one day or a range: another run may be
swapping the days beside them. Evaluated by itself, it judges every day there is.
"""

# No `from __future__ import annotations` here: Dagster compares the annotation of `context` with its classes.

from typing import Final

import dagster as dg
import pandas as pd

from marigold_assets.market.assets import daily_sales, raw_orders, revenue_report
from marigold_assets.market.orders import SHOP_TIMEZONE

# The till delivers about 2 % of its rows twice; far more says that a whole delivery was loaded twice.
MOST_DELIVERED_TWICE: Final = 0.05


@dg.asset_check(asset=raw_orders, blocking=True)
def orders_belong_to_their_day(context: dg.AssetCheckExecutionContext, raw_orders: pd.DataFrame) -> dg.AssetCheckResult:
    """Every order was placed on its `sale_date`, by the shop's clock."""
    orders = _of_this_run(context, raw_orders)
    local_day = orders["ordered_at"].dt.tz_convert(SHOP_TIMEZONE).dt.date
    strays = int((local_day != pd.to_datetime(orders["sale_date"]).dt.date).sum())
    return dg.AssetCheckResult(passed=strays == 0, metadata={"rows": len(orders), "strays": strays})


@dg.asset_check(asset=raw_orders)
def few_orders_are_delivered_twice(
    context: dg.AssetCheckExecutionContext, raw_orders: pd.DataFrame
) -> dg.AssetCheckResult:
    """The share of rows that were delivered twice is what it usually is."""
    orders = _of_this_run(context, raw_orders)
    twice = int(orders.duplicated().sum())
    return dg.AssetCheckResult(
        passed=twice <= MOST_DELIVERED_TWICE * len(orders),
        severity=dg.AssetCheckSeverity.WARN,
        metadata={"rows": len(orders), "delivered_twice": twice},
    )


@dg.asset_check(
    asset=daily_sales,
    blocking=True,
    additional_ins={
        "orders": dg.AssetIn("raw_orders", metadata={"columns": ["sale_date", "order_id", "amount_cents"]})
    },
)
def sales_equal_the_orders(
    context: dg.AssetCheckExecutionContext, daily_sales: pd.DataFrame, orders: pd.DataFrame
) -> dg.AssetCheckResult:
    """The days' revenue is the revenue of their orders, each counted once."""
    # By order id, and not through the asset's own cleaning step: that step is what is judged here.
    once_each = _of_this_run(context, orders).drop_duplicates("order_id")
    sales = _of_this_run(context, daily_sales)
    return _equal_cents(expected=once_each["amount_cents"], found=sales["revenue_cents"])


@dg.asset_check(asset=revenue_report, additional_ins={"sales": dg.AssetIn("daily_sales")})
def report_equals_the_sales(revenue_report: pd.DataFrame, sales: pd.DataFrame) -> dg.AssetCheckResult:
    """The report adds up to the daily sales there are."""
    # A warning: while a backfill is at work, the sales may have become newer than the report.
    return _equal_cents(
        expected=sales["revenue_cents"],
        found=revenue_report["revenue_cents"],
        severity=dg.AssetCheckSeverity.WARN,
    )


def _of_this_run(context: dg.AssetCheckExecutionContext, rows: pd.DataFrame) -> pd.DataFrame:
    """Keep the rows of the run's days.

    Dagster gives a check the whole table. It would give only the run's days to a check with a
    `partitions_def`, but in 1.13 those are a preview: a range run leaves them without a result, and the user
    interface counts them as not passed.
    """
    if not (context.has_partition_key or context.has_partition_key_range):
        return rows
    days = pd.to_datetime(list(context.partition_keys))
    return rows[pd.to_datetime(rows["sale_date"]).isin(days)]


def _equal_cents(
    *,
    expected: "pd.Series[int]",
    found: "pd.Series[int]",
    severity: dg.AssetCheckSeverity = dg.AssetCheckSeverity.ERROR,
) -> dg.AssetCheckResult:
    """Compare two sums of cents exactly."""
    expected_cents, found_cents = int(expected.sum()), int(found.sum())
    return dg.AssetCheckResult(
        passed=found_cents == expected_cents,
        severity=severity,
        metadata={"expected_cents": expected_cents, "found_cents": found_cents},
    )
