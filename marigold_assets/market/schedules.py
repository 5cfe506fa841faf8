"""Production: every night the day that has just ended, and never any other."""

from __future__ import annotations

from datetime import timedelta
from zoneinfo import ZoneInfo

import dagster as dg

from marigold_assets.market.assets import customer_tiers, daily_sales, raw_orders, revenue_report, sales_to_date
from marigold_assets.market.orders import END_DAY, FIRST_DAY, SHOP_TIMEZONE


@dg.schedule(
    target=dg.AssetSelection.assets(raw_orders, daily_sales, sales_to_date, customer_tiers, revenue_report),
    cron_schedule="30 0 * * *",
    execution_timezone=SHOP_TIMEZONE,
    default_status=dg.DefaultScheduleStatus.STOPPED,
)
def nightly(context: dg.ScheduleEvaluationContext) -> dg.RunRequest | dg.SkipReason:
    """Materialize yesterday, by the shop's calendar. Missed nights stay gaps, for a backfill to fill.

    Until it has, the two chains refuse the nights after the gap: the run fails and names the first missing day. The
    day's sales and the report are built all the same.

    The day follows from the tick and not from the newest partition: the example's calendar has an end, and
    after it the newest partition is the same one every night.
    """
    tick = context.scheduled_execution_time.astimezone(ZoneInfo(SHOP_TIMEZONE))
    yesterday = tick.date() - timedelta(days=1)
    if not FIRST_DAY <= yesterday < END_DAY:
        return dg.SkipReason(f"{yesterday} is outside the example's calendar [{FIRST_DAY}, {END_DAY})")
    return dg.RunRequest(partition_key=yesterday.isoformat())
