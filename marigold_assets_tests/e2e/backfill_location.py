"""The code location of the tests of launches: independent days, a chain over them, and days that fail when told to.

``seconds@<asset>`` in the test's room says how long every call takes, ``raise@<asset>@<key>`` that it fails, and
``bad@<key>`` that the check of ``checked`` does.
"""

# No `from __future__ import annotations` here: Dagster compares the annotation of `context` with its classes.

import os
import time
from pathlib import Path

import dagster as dg
import pandas as pd

from marigold_assets import FencedPartitionIOManager, partitioned_asset

ROOM = Path(os.environ["MARIGOLD_E2E_ROOM"])
DAYS = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-03-01")


def obey(asset: str, key: str) -> None:
    """Take as long as a test says, and fail where it says so."""
    (ROOM / f"niceness@{asset}").write_text(str(os.getpriority(os.PRIO_PROCESS, 0)), encoding="utf-8")
    pace = ROOM / f"seconds@{asset}"
    if pace.exists():
        time.sleep(float(pace.read_text(encoding="utf-8")))
    if (ROOM / f"raise@{asset}@{key}").exists():
        raise RuntimeError("the till is closed")


@partitioned_asset(
    partitions_def=DAYS,
    partition_expr="day",
    code_version="1",
    key_prefix="shop",
    backfill_policy=dg.BackfillPolicy.multi_run(2),
)
def raw(context: dg.AssetExecutionContext) -> pd.DataFrame:
    """The orders of a day."""
    obey("raw", context.partition_key)
    return pd.DataFrame({"day": [pd.Timestamp(context.partition_key)], "cents": [100]})


@partitioned_asset(
    partitions_def=DAYS, partition_expr="day", code_version="1", ins={"raw": dg.AssetIn(["shop", "raw"])}
)
def total(context: dg.AssetExecutionContext, raw: pd.DataFrame, previous: pd.DataFrame | None) -> pd.DataFrame:
    """Their sum so far."""
    obey("total", context.partition_key)
    cents = raw["cents"].sum() + (0 if previous is None else previous["cents"].sum())
    return pd.DataFrame({"day": [pd.Timestamp(context.partition_key)], "cents": [cents]})


def days(name: str):
    """Days of which every one has a run of its own."""

    @partitioned_asset(
        partitions_def=DAYS,
        partition_expr="day",
        code_version="1",
        name=name,
        backfill_policy=dg.BackfillPolicy.multi_run(1),
    )
    def made(context: dg.AssetExecutionContext) -> pd.DataFrame:
        obey(name, context.partition_key)
        return pd.DataFrame({"day": [pd.Timestamp(context.partition_key)], "cents": [100]})

    return made


single, fragile, pausing, checked = map(days, ("single", "fragile", "pausing", "checked"))


@dg.asset_check(asset=checked)
def cents_are_right(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
    """Whether they are: a test tells."""
    day = context.run.tags.get("dagster/asset_partition_range_start")
    return dg.AssetCheckResult(passed=not (ROOM / f"bad@{day}").exists())


defs = dg.Definitions(
    assets=[raw, total, single, fragile, pausing, checked],
    asset_checks=[cents_are_right],
    resources={"io_manager": FencedPartitionIOManager(database=str(ROOM / "warehouse.duckdb"), schema="shop")},
    executor=dg.in_process_executor,  # a process a run is enough of them
)
