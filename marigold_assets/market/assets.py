"""Marigold Market's assets: orders as delivered, sales per day, two chains upon them, and the report that Nadia reads.

`raw_orders` -> `daily_sales` -> `sales_to_date` and `revenue_report`; `raw_orders` -> `customer_tiers`. A daily asset
is a function of one day, whatever range a run is about, and every row names its day in one column: that column is the
whole partitioning.
"""

# No `from __future__ import annotations` here: Dagster compares the annotation of `context` with its classes.

from datetime import date, timedelta
from typing import Final

import dagster as dg
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
from pandas.api.extensions import ExtensionDtype

from marigold_assets import partitioned_asset
from marigold_assets.market.orders import END_DAY, FIRST_DAY, SHOP_TIMEZONE, orders_of

# The keys are the shop's local days. The end is fixed, so that a backfill of everything is finite.
#
# No backfill policy is needed beside it. Independent days go up to 100 in a run, because a run pays seconds to start
# its process and a day takes milliseconds; a chain goes as one run. Each day is swapped by itself all the same, so a
# failure costs one day and not a run's worth of them.
DAYS: Final = dg.DailyPartitionsDefinition(
    start_date=FIRST_DAY.isoformat(), end_date=END_DAY.isoformat(), timezone=SHOP_TIMEZONE
)

BIG_DAY_CENTS: Final = 6_000
"""What a customer has to spend on one day to gain a tier, and to keep it."""
TIER_LASTS_DAYS: Final = 30
"""How long a tier lasts without another such day."""

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


TIER_TYPES: Final = pl.Schema(
    {
        "as_of": pl.Date,
        "customer_id": pl.String,
        "tier": pl.String,
        "valid_from": pl.Date,
        "valid_to": pl.Date,
        "renewed_on": pl.Date,
    }
)


@partitioned_asset(
    partitions_def=DAYS,
    partition_expr="sale_date",
    code_version="1",
    group_name="market",
    kinds={"python", "duckdb"},
)
def raw_orders(context: dg.AssetExecutionContext) -> pd.DataFrame:
    """Orders exactly as the till delivered them: some rows twice, with refunds and unknown customers."""
    return orders_of(date.fromisoformat(context.partition_key))


def clean(orders: pd.DataFrame) -> pd.DataFrame:
    """Keep every order once; an order without a customer is still an order."""
    return orders.drop_duplicates()


@partitioned_asset(
    partitions_def=DAYS,
    partition_expr="sale_date",
    code_version="1",
    group_name="market",
    kinds={"pandas", "duckdb"},
)
def daily_sales(raw_orders: pd.DataFrame) -> pd.DataFrame:
    """What each store sold of each product on the day, and what it gave back, in cents."""
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


@partitioned_asset(
    partitions_def=DAYS,
    partition_expr="sale_date",
    code_version="1",
    group_name="market",
    kinds={"sql", "duckdb"},
)
def sales_to_date(context: dg.AssetExecutionContext, daily_sales: str, previous: str | None) -> str:
    """What each store has sold since the first day, up to the end of the day: the day before and the day's sales.

    A closed day repeats the totals of the day before.
    """
    counted = "store, orders, refunds, revenue_cents"
    rows = f"SELECT {counted} FROM ({daily_sales})"  # noqa: S608 - the inputs come as SQL of the IO manager's own
    if previous is not None:
        rows += f" UNION ALL SELECT {counted} FROM ({previous})"  # noqa: S608
    return f"""
        SELECT DATE '{context.partition_key}' AS sale_date, store, sum(orders)::BIGINT AS orders,
            sum(refunds)::BIGINT AS refunds, sum(revenue_cents)::BIGINT AS revenue_cents
        FROM ({rows}) GROUP BY store
    """  # noqa: S608


@partitioned_asset(
    partitions_def=DAYS,
    partition_expr="as_of",
    ins={"raw_orders": dg.AssetIn(metadata={"columns": ["order_id", "customer_id", "amount_cents"]})},
    code_version="1",
    group_name="market",
    kinds={"polars", "duckdb"},
)
def customer_tiers(
    context: dg.AssetExecutionContext, raw_orders: pl.DataFrame, previous: pl.DataFrame | None
) -> pl.DataFrame:
    """Who was a silver or gold customer from when to when: a slowly changing dimension of type 2.

    A day on which a customer spends `BIG_DAY_CENTS` gives silver, another one while that lasts gives gold, and
    `TIER_LASTS_DAYS` days without one end either. So the order of the days matters: what a day does to a customer
    depends on all days before it.

    The partition of a day holds what the next day has to know and what this day has ended: the tiers that are valid at
    its end (`valid_to` is NULL) and those that ended on it (`valid_to` is the day; a tier is valid within
    `[valid_from, valid_to)`). That is about 1,500 rows a day; a customer without a tier has none. The whole dimension,
    each tier once, is `WHERE valid_to IS NOT NULL OR as_of = (SELECT max(as_of) FROM customer_tiers)`.
    """
    day = date.fromisoformat(context.partition_key)
    spent = raw_orders.unique("order_id").group_by("customer_id").agg(pl.sum("amount_cents"))
    big = spent.filter(pl.col("customer_id").is_not_null(), pl.col("amount_cents") >= BIG_DAY_CENTS).select(
        "customer_id", big=pl.lit(value=True)
    )
    before = pl.DataFrame(schema=TIER_TYPES) if previous is None else previous.filter(pl.col("valid_to").is_null())

    valid = before.join(big, on="customer_id", how="left").with_columns(pl.col("big").fill_null(value=False))
    gains_gold = pl.col("big") & (pl.col("tier") == "silver")
    lapses = ~pl.col("big") & (pl.col("renewed_on") <= day - timedelta(days=TIER_LASTS_DAYS))
    old = valid.with_columns(
        valid_to=pl.when(gains_gold | lapses).then(pl.lit(day)),
        renewed_on=pl.when(pl.col("big") & ~gains_gold).then(pl.lit(day)).otherwise("renewed_on"),
    )
    gold = valid.filter(gains_gold).select("customer_id", tier=pl.lit("gold"))
    silver = big.join(before, on="customer_id", how="anti").select("customer_id", tier=pl.lit("silver"))
    new = pl.concat([gold, silver]).with_columns(valid_from=pl.lit(day), valid_to=None, renewed_on=pl.lit(day))

    rows = [frame.with_columns(as_of=pl.lit(day)).select(TIER_TYPES.names()).cast(TIER_TYPES) for frame in (old, new)]
    return pl.concat(rows).sort("customer_id", "valid_from")


@dg.asset(
    ins={
        "daily_sales": dg.AssetIn(
            partition_mapping=dg.AllPartitionMapping(),
            # Days that two versions of the code have built are no revenue: Nadia's report is refused, not wrong.
            metadata={
                "columns": ["sale_date", "store", "orders", "refunds", "revenue_cents"],
                "marigold/uniform_version": True,
            },
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
