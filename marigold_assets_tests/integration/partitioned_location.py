"""A code location whose assets are built by processes of their own: by Dagster's command line and its executor."""

from __future__ import annotations

import os

import dagster as dg
import pandas as pd
import polars as pl

from marigold_assets import FencedPartitionIOManager
from marigold_assets.asset import partitioned_asset

DAYS = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-01-16")


ONE_RUN = dg.BackfillPolicy.single_run()  # Dagster's command line takes ranges of no other


@partitioned_asset(partitions_def=DAYS, partition_expr="day", code_version="1", backfill_policy=ONE_RUN)
def daily(context: dg.AssetExecutionContext) -> pd.DataFrame:
    at = pd.Timestamp(context.partition_key)
    return pd.DataFrame({"day": [at], "cents": [at.day]})


@partitioned_asset(
    partitions_def=DAYS, partition_expr="day", code_version="1", retry_policy=dg.RetryPolicy(max_retries=1)
)
def to_date(context: dg.AssetExecutionContext, daily: pl.DataFrame, previous: pl.DataFrame | None) -> pl.DataFrame:
    if context.partition_key == os.environ.get("FAIL_AT") and context.retry_number == 0:
        raise RuntimeError("the till is closed")
    if context.partition_key == os.environ.get("DIE_AT") and context.retry_number == 0:
        os._exit(9)
    before = 0 if previous is None else previous["cents"].item()
    return daily.with_columns(pl.col("cents") + before)


defs = dg.Definitions(
    assets=[daily, to_date],
    jobs=[dg.define_asset_job("both", executor_def=dg.multiprocess_executor)],
    resources={"io_manager": FencedPartitionIOManager(database=dg.EnvVar("MARKET_PATH"))},
)


def both() -> dg.JobDefinition:
    """The job, for processes that have to find it again."""
    return defs.resolve_job_def("both")
