"""What must hold of Marigold Market's assets, to the cent.

A check of a daily asset judges the days of its own run, whether one day or a range: another run may be
swapping the days beside them. Evaluated by itself, it judges every day there is. A check of a chain judges its
last day, and so all days that this one is built upon.
"""

# No `from __future__ import annotations` here: Dagster compares the annotation of `context` with its classes.

from datetime import date
from typing import Final

import dagster as dg
import pandas as pd
import polars as pl

from marigold_assets.market.assets import (
    TIER_LASTS_DAYS,
    customer_tiers,
    daily_sales,
    raw_orders,
    revenue_report,
    sales_to_date,
)
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


@dg.asset_check(
    asset=sales_to_date,
    additional_ins={
        "sales": dg.AssetIn(
            "daily_sales", metadata={"columns": ["sale_date", "store", "orders", "refunds", "revenue_cents"]}
        )
    },
)
def totals_equal_the_sales(
    context: dg.AssetCheckExecutionContext, sales_to_date: pl.DataFrame, sales: pl.DataFrame
) -> dg.AssetCheckResult:
    """What a store has sold to date is the sum of its daily sales, the orders and the cents."""
    last = _last_day(context, sales_to_date["sale_date"])
    counted = ["orders", "refunds", "revenue_cents"]
    found = sales_to_date.filter(pl.col("sale_date") == last).select("store", *counted).sort("store")
    until = sales.filter(pl.col("sale_date") <= last)
    expected = until.group_by("store").agg(pl.sum(*counted)).sort("store")
    return dg.AssetCheckResult(
        passed=found.equals(expected),
        metadata={
            "last_day": str(last),
            "expected_cents": int(expected["revenue_cents"].sum()),
            "found_cents": int(found["revenue_cents"].sum()),
        },
    )


@dg.asset_check(asset=customer_tiers)
def tiers_follow_each_other(
    context: dg.AssetCheckExecutionContext, customer_tiers: pl.DataFrame
) -> dg.AssetCheckResult:
    """A customer's tiers never overlap, none is lost between two days, and only a tier that lapsed leaves a gap."""
    last = _last_day(context, customer_tiers["as_of"])
    known = customer_tiers.filter(pl.col("as_of") <= last)
    each_once = known.filter(pl.col("valid_to").is_not_null() | (pl.col("as_of") == last))
    tier = ["customer_id", "valid_from"]
    lost = known.unique(tier).join(each_once, on=tier, how="anti")
    judged = each_once.sort(tier).with_columns(
        lapsed=pl.col("valid_to") == pl.col("renewed_on").dt.offset_by(f"{TIER_LASTS_DAYS}d"),
        following=pl.col("valid_from").shift(-1).over("customer_id"),
    )
    ended, followed = pl.col("valid_to").is_not_null(), pl.col("following").is_not_null()
    overlaps = judged.filter(followed & (~ended | (pl.col("following") < pl.col("valid_to"))))
    gaps = judged.filter(ended & ~pl.col("lapsed") & ~pl.col("following").eq_missing(pl.col("valid_to")))
    counts = {"overlaps": overlaps.height, "gaps": gaps.height, "lost": lost.height}
    return dg.AssetCheckResult(passed=not any(counts.values()), metadata={"tiers": each_once.height, **counts})


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


def _last_day(context: dg.AssetCheckExecutionContext, days: pl.Series) -> date | None:
    """The last day of the run, or that of all days there are; ``None`` if there are none."""
    if context.has_partition_key or context.has_partition_key_range:
        return date.fromisoformat(context.partition_keys[-1])
    return days.cast(pl.Date).max()  # type: ignore[return-value]  # of a column of dates


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
