"""What must hold of Marigold Market's assets, to the cent.

The checks of the daily assets are partitioned like the assets: a check reads the days of its own run, whether
one day or a range. Without that it would read the whole table, and a backfill that is still swapping other
days would turn it red.
"""

from __future__ import annotations

from typing import Final

import dagster as dg
import pandas as pd

from marigold_assets.market.assets import DAYS, daily_sales, raw_orders, revenue_report
from marigold_assets.market.orders import SHOP_TIMEZONE

# The till delivers about 2 % of its rows twice; far more says that a whole delivery was loaded twice.
MOST_DELIVERED_TWICE: Final = 0.05


@dg.asset_check(asset=raw_orders, partitions_def=DAYS, blocking=True)
def orders_belong_to_their_day(raw_orders: pd.DataFrame) -> dg.AssetCheckResult:
    """Every order was placed on its `sale_date`, by the shop's clock."""
    local_day = raw_orders["ordered_at"].dt.tz_convert(SHOP_TIMEZONE).dt.date
    strays = int((local_day != pd.to_datetime(raw_orders["sale_date"]).dt.date).sum())
    return dg.AssetCheckResult(passed=strays == 0, metadata={"rows": len(raw_orders), "strays": strays})


@dg.asset_check(asset=raw_orders, partitions_def=DAYS)
def few_orders_are_delivered_twice(raw_orders: pd.DataFrame) -> dg.AssetCheckResult:
    """The share of rows that were delivered twice is what it usually is."""
    twice = int(raw_orders.duplicated().sum())
    return dg.AssetCheckResult(
        passed=twice <= MOST_DELIVERED_TWICE * len(raw_orders),
        severity=dg.AssetCheckSeverity.WARN,
        metadata={"rows": len(raw_orders), "delivered_twice": twice},
    )


@dg.asset_check(
    asset=daily_sales, partitions_def=DAYS, blocking=True, additional_ins={"orders": dg.AssetIn("raw_orders")}
)
def sales_equal_the_orders(daily_sales: pd.DataFrame, orders: pd.DataFrame) -> dg.AssetCheckResult:
    """The days' revenue is the revenue of their orders, each counted once."""
    # By order id, and not through the asset's own cleaning step: that step is what is judged here.
    once_each = orders.drop_duplicates("order_id")
    return _equal_cents(expected=once_each["amount_cents"], found=daily_sales["revenue_cents"])


@dg.asset_check(asset=revenue_report, additional_ins={"sales": dg.AssetIn("daily_sales")})
def report_equals_the_sales(revenue_report: pd.DataFrame, sales: pd.DataFrame) -> dg.AssetCheckResult:
    """The report adds up to the daily sales there are."""
    # A warning: while a backfill is at work, the sales may have become newer than the report.
    return _equal_cents(
        expected=sales["revenue_cents"],
        found=revenue_report["revenue_cents"],
        severity=dg.AssetCheckSeverity.WARN,
    )


def _equal_cents(
    *,
    expected: pd.Series[int],
    found: pd.Series[int],
    severity: dg.AssetCheckSeverity = dg.AssetCheckSeverity.ERROR,
) -> dg.AssetCheckResult:
    """Compare two sums of cents exactly."""
    expected_cents, found_cents = int(expected.sum()), int(found.sum())
    return dg.AssetCheckResult(
        passed=found_cents == expected_cents,
        severity=severity,
        metadata={"expected_cents": expected_cents, "found_cents": found_cents},
    )
