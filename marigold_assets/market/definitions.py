"""Marigold Market as Dagster loads it: assets, checks, the schedule, and the warehouse they share."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import dagster as dg

from marigold_assets import FencedPartitionIOManager, build_gaps_check, build_sentinel_job, build_uniform_version_check
from marigold_assets.market.assets import customer_tiers, daily_sales, raw_orders, revenue_report, sales_to_date
from marigold_assets.market.checks import (
    few_orders_are_delivered_twice,
    orders_belong_to_their_day,
    report_equals_the_sales,
    sales_equal_the_orders,
    tiers_follow_each_other,
    totals_equal_the_sales,
)
from marigold_assets.market.schedules import GRACE, nightly

# From this file and not from the working directory: every process of one instance has to open the same
# warehouse, wherever it was started.
_PROJECT: Final = Path(__file__).resolve().parents[2]
WAREHOUSE: Final = _PROJECT / os.environ.get("MARIGOLD_MARKET_DB", "data/marigold_market.duckdb")


class MarketIOManager(FencedPartitionIOManager):
    """The fenced IO manager, which here also makes the folder of its file: a fresh clone has none."""

    def setup_for_execution(self, context: dg.InitResourceContext) -> None:
        """Make the folder when a run starts, so that loading the definitions touches no disk."""
        Path(self.database).parent.mkdir(parents=True, exist_ok=True)
        super().setup_for_execution(context)


ASSETS: Final = [raw_orders, daily_sales, sales_to_date, customer_tiers, revenue_report]
CHECKS: Final = [
    orders_belong_to_their_day,
    few_orders_are_delivered_twice,
    sales_equal_the_orders,
    totals_equal_the_sales,
    tiers_follow_each_other,
    report_equals_the_sales,
    build_uniform_version_check(asset=daily_sales),
]
# Apart from the others, since it is about the days that a run does not build.
GAPS: Final = build_gaps_check(asset=daily_sales, grace=GRACE)

defs = dg.Definitions(
    assets=ASSETS,
    asset_checks=[*CHECKS, GAPS],
    jobs=[build_sentinel_job()],
    schedules=[nightly],
    resources={"io_manager": MarketIOManager(database=str(WAREHOUSE), schema="market", max_backfill_writers=2)},
    # The steps are tiny: a process for each would take longer than the work.
    executor=dg.in_process_executor,
)
