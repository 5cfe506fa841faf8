"""The bill of a backfill against what it really takes, with a real daemon, once an earlier backfill is on record."""

# No `from __future__ import annotations` here: this file is the code location too, and Dagster compares the
# annotation of `context` with its classes.

import os
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import dagster as dg
import pandas as pd

from benchmarks.daemon import DATABASE, live_instance, wait_for
from benchmarks.measuring import Figure
from benchmarks.orders import FIRST_DAY, day_of
from marigold_assets import FencedPartitionIOManager, partitioned_asset
from marigold_assets.backfill import watching
from marigold_assets.backfill.launching import Launching, new_launch
from marigold_assets.backfill.refusing import Wish
from marigold_assets.backfill.replanning import Planner
from marigold_assets.cli.instance import Ledgers
from marigold_assets.location import LocationOptions, load
from marigold_assets.planning.model import BackfillPlan, Request
from marigold_assets.planning.submitting import submissions

DAYS = 400
EARLIER, MEASURED = 12, 60
KEY_SECONDS = 0.25
BOUND = 0.25
CHUNK = 6
LATER_SECONDS = 10.0
"""The cases are launched at other moments between two looks of the daemon, which are 30 s apart."""
CASES: Final = {
    "a chain in one run": "running",
    "independent days in chunks, two at once": "daily",
    "a mix with a chain behind it": "mixed+",
}

# --- the code location -----------------------------------------------------------------------------------------------

PARTITIONS = dg.DailyPartitionsDefinition(FIRST_DAY.isoformat(), end_date=day_of(DAYS).isoformat())
CHUNKS = dg.BackfillPolicy.multi_run(CHUNK)


def _rows(context: dg.AssetExecutionContext) -> pd.DataFrame:
    time.sleep(KEY_SECONDS)
    return pd.DataFrame({"day": [pd.Timestamp(context.partition_key)], "cents": [100]})


@partitioned_asset(partitions_def=PARTITIONS, partition_expr="day", code_version="1")
def running(context: dg.AssetExecutionContext, previous: pd.DataFrame | None) -> pd.DataFrame:
    """A chain of its own."""
    found = _rows(context)
    return found if previous is None else found.assign(cents=found["cents"] + previous["cents"].sum())


@partitioned_asset(partitions_def=PARTITIONS, partition_expr="day", code_version="1", backfill_policy=CHUNKS)
def daily(context: dg.AssetExecutionContext) -> pd.DataFrame:
    """Days of which none needs another."""
    return _rows(context)


@partitioned_asset(partitions_def=PARTITIONS, partition_expr="day", code_version="1", backfill_policy=CHUNKS)
def mixed(context: dg.AssetExecutionContext) -> pd.DataFrame:
    """The same, with a chain behind it."""
    return _rows(context)


@partitioned_asset(partitions_def=PARTITIONS, partition_expr="day", code_version="1")
def behind(mixed: pd.DataFrame, previous: pd.DataFrame | None) -> pd.DataFrame:
    """That chain."""
    time.sleep(KEY_SECONDS)
    return mixed if previous is None else mixed.assign(cents=mixed["cents"] + previous["cents"].sum())


defs = dg.Definitions(
    assets=[running, daily, mixed, behind],
    resources={"io_manager": FencedPartitionIOManager(database=dg.EnvVar(DATABASE), schema="shop")},
)

# --- the measurement -------------------------------------------------------------------------------------------------


def run(folder: Path, *, quick: bool) -> list[Figure]:
    """Launch a short backfill of each kind, then price a longer one, launch it, and compare."""
    count = MEASURED // 3 if quick else MEASURED
    database = folder / "warehouse.duckdb"
    os.environ[DATABASE] = str(database)
    options = LocationOptions(module_name="benchmarks.bill", attribute="defs")
    location = load(options)
    figures = []
    with live_instance(folder, database, "benchmarks.bill") as (instance, _):
        planner = Planner(location, instance, options)
        ledgers = Ledgers(options, instance, location=location)

        def launch(selection: str, first: int, stop: int) -> tuple[BackfillPlan, watching.Progress]:
            request = Request(selection=selection, first=day_of(first).isoformat(), last=day_of(stop - 1).isoformat())
            plan = planner.make(request)
            launching = Launching(
                launch=new_launch(), plan=plan, wish=Wish(), instance=instance, location=location, options=options
            )
            launching.submit(submissions(plan))

            def look() -> watching.Progress:
                name, found = watching.find(instance, launching.launch)
                return watching.look(instance, name, found, heads=ledgers.heads, keys=ledgers.keys)

            def is_over() -> bool:
                time.sleep(2.0)  # looking costs a core that the runs could use
                return not any(one.is_active for one in watching.find(instance, launching.launch)[1])

            wait_for(is_over, folder)
            progress = look()
            if not progress.is_well:
                raise RuntimeError(f"{selection} was not built: {progress.troubles}")
            return plan, progress

        for selection in CASES.values():
            launch(selection, 0, EARLIER)
        for number, (name, selection) in enumerate(CASES.items()):
            time.sleep(number * LATER_SECONDS)
            plan, progress = launch(selection, EARLIER, EARLIER + count)
            if progress.price is None:
                raise RuntimeError(f"the price of {selection} was not kept")
            wall, planned, actual = progress.price.wall, plan.bill.wall, progress.wall_seconds
            figures.append(
                Figure(
                    benchmark="bill",
                    name=f"predicted against actual: {name}",
                    value=round(abs(wall.median / actual - 1), 3),
                    unit="x",
                    bound=BOUND,
                    details=f"predicted {wall.median:.0f} s (p90 {wall.p90:.0f}) when it was launched, and"
                    f" {planned.median:.0f} s (p90 {planned.p90:.0f}) before; actual {actual:.0f} s; runs"
                    f" {plan.bill.runs} predicted, {progress.succeeded_runs} actual; run time"
                    f" {plan.bill.busy.median:.0f} s predicted, {progress.busy_seconds or 0:.0f} s actual;"
                    f" {datetime.now(UTC):%H:%M}",
                )
            )
    return figures
