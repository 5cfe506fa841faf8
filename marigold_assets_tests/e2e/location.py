"""The code location of the process tests: assets that wait, or die, where a test wants them to.

Every row says which run and which process wrote it, so that a table tells who won.
"""

# No `from __future__ import annotations` here: Dagster compares the annotation of `context` with its classes.

import os
import signal
import time
from pathlib import Path

import dagster as dg
import pandas as pd

from marigold_assets import FencedPartitionIOManager, FencedPartitionResource

ROOM = Path(os.environ["MARIGOLD_E2E_ROOM"])
ROWS = 50
PATIENCE_SECONDS = 120.0
DAYS = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-03-01")
CELLS = dg.MultiPartitionsDefinition({"day": DAYS, "shop": dg.StaticPartitionsDefinition(["north", "south"])})


def meet(place: str, run: dg.DagsterRun) -> None:
    """Announce this process and wait for the test, where the test holds this run; its retry goes through."""
    tagged = run.tags.get("e2e/hold") == place and run.parent_run_id is None
    if not tagged and not (ROOM / f"hold@{place}@{run.run_id}").exists():
        return
    (ROOM / f"arrived@{place}@{run.run_id}@{os.getpid()}").touch()
    wait_while(lambda: not (ROOM / f"go@{place}@{os.getpid()}").exists())


def wait_while(condition) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while condition():
        if time.monotonic() > deadline:
            raise TimeoutError
        time.sleep(0.01)


class MortalIOManager(FencedPartitionIOManager):
    """The IO manager under test, in a process that dies between COMMIT and event where a test wants it to."""

    def _swap(self, context: dg.OutputContext, slices, obj):
        receipts = super()._swap(context, slices, obj)
        marker = ROOM / f"die@{context.step_key}@{context.run_id}"
        if marker.exists():
            marker.unlink()  # the same step of the same run lives when it is tried again
            os.kill(os.getpid(), signal.SIGKILL)
        return receipts


def rows_of(context: dg.AssetExecutionContext, keys) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "d": [pd.Timestamp(key) for key in keys for _ in range(ROWS)],
            "writer": context.run.run_id,
            "pid": os.getpid(),
            "n": [n for _ in keys for n in range(ROWS)],
        }
    )


@dg.asset(
    partitions_def=DAYS,
    metadata={"partition_expr": "d"},
    code_version="1",
    # To be refused for good is stronger than any of these.
    retry_policy=dg.RetryPolicy(max_retries=3),
)
def sales(context: dg.AssetExecutionContext) -> pd.DataFrame:
    meet("sales", context.run)
    return rows_of(context, context.partition_keys)


@dg.asset(partitions_def=DAYS, metadata={"partition_expr": "d"})
def raw(context: dg.AssetExecutionContext) -> pd.DataFrame:
    meet("raw", context.run)
    return rows_of(context, context.partition_keys)


@dg.asset(partitions_def=DAYS, metadata={"partition_expr": "d"})
def left(context: dg.AssetExecutionContext, raw: pd.DataFrame) -> pd.DataFrame:
    meet("left", context.run)
    return raw


@dg.asset(partitions_def=DAYS, metadata={"partition_expr": "d"})
def right(context: dg.AssetExecutionContext, raw: pd.DataFrame) -> pd.DataFrame:
    meet("right", context.run)
    return raw


@dg.asset(ins={"raw": dg.AssetIn(partition_mapping=dg.AllPartitionMapping())})
def total(context: dg.AssetExecutionContext, raw: pd.DataFrame) -> pd.DataFrame:
    """Not partitioned, and part of the runs of every day."""
    meet("total", context.run)
    return raw.groupby("d", as_index=False).agg(n=("n", "size"))


@dg.asset(partitions_def=DAYS, metadata={"partition_expr": "d"}, retry_policy=dg.RetryPolicy(max_retries=3))
def written_by_itself(context: dg.AssetExecutionContext, warehouse: FencedPartitionResource) -> dg.MaterializeResult:
    meet("written_by_itself", context.run)
    return warehouse.swap(context, rows_of(context, context.partition_keys))


@dg.asset(partitions_def=CELLS, metadata={"partition_expr": {"day": "d", "shop": "shop"}})
def cells(context: dg.AssetExecutionContext) -> pd.DataFrame:
    meet("cells", context.run)
    key = context.partition_key.keys_by_dimension
    return rows_of(context, [key["day"]]).assign(shop=key["shop"])


@dg.asset(partitions_def=DAYS)
def spare(context: dg.AssetExecutionContext) -> None:
    """Writes nothing and waits: a run whose only work is to be counted."""
    (ROOM / f"arrived@spare@{context.run.run_id}@{os.getpid()}").touch()
    if "dagster/backfill" in context.run.tags:
        wait_while((ROOM / "hold@every backfill").exists)


@dg.asset_check(asset=sales)
def sales_are_there() -> dg.AssetCheckResult:
    return dg.AssetCheckResult(passed=True)


def _job(name: str, *assets, executor) -> dg.JobDefinition:
    selection = dg.AssetSelection.assets(*assets).without_checks()
    return dg.define_asset_job(name, selection=selection, executor_def=executor)


DATABASE = str(ROOM / "warehouse.duckdb")
SEPARATE, TOGETHER = dg.multiprocess_executor, dg.in_process_executor

defs = dg.Definitions(
    assets=[sales, raw, left, right, total, written_by_itself, cells, spare],
    asset_checks=[sales_are_there],
    jobs=[
        _job("sales_apart", sales, executor=SEPARATE),  # a process for the run and one for its step
        _job("sales_together", sales, executor=TOGETHER),  # one process for both
        _job("chain_apart", raw, left, right, executor=SEPARATE),
        _job("chain_together", raw, left, right, total, executor=TOGETHER),
        _job("self_together", written_by_itself, executor=TOGETHER),
        _job("cells_together", cells, executor=TOGETHER),
        _job("spare_together", spare, executor=TOGETHER),
        dg.define_asset_job(
            "check_together", selection=dg.AssetSelection.checks(sales_are_there), executor_def=TOGETHER
        ),
    ],
    resources={
        "io_manager": MortalIOManager(database=DATABASE, schema="shop"),
        "warehouse": FencedPartitionResource(database=DATABASE, schema="shop"),
    },
)
