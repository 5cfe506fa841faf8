"""Production: every night the day that has just ended, and never any other."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from marigold_assets import build_latest_interval_schedule
from marigold_assets.market.assets import customer_tiers, daily_sales, raw_orders, revenue_report, sales_to_date

GRACE: Final = timedelta(hours=6)
"""How late a night may still begin; a later one would run into the shop's opening hours."""

# By the shop's calendar, like the days themselves. Missed nights stay gaps: `marigold gaps` lists them, with the
# command that fills them. Until it has, the two chains refuse the nights after a gap: the run fails and names the first
# missing day. The day's sales and the report are built all the same.
nightly = build_latest_interval_schedule(
    name="nightly",
    target=[raw_orders, daily_sales, sales_to_date, customer_tiers, revenue_report],
    hour_of_day=0,
    minute_of_hour=30,
    grace=GRACE,
    description="Builds yesterday and the report. A night that is missed stays a gap, for a backfill to fill.",
)
