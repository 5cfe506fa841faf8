"""The code location of the tests of chains: a small root, chains over it, and independent days, that obey files.

A file ``<place>@<asset>@<key>`` in the test's room is an order, carried out once by whoever comes there first:
``kill step``, ``kill worker``, ``raise``, ``hold``, or ``kill worker in <seconds>``. ``seconds@<asset>`` says how long
every call of a function takes, and every call is noted.
"""

# No `from __future__ import annotations` here: Dagster compares the annotation of `context` with its classes.

import os
import signal
import threading
import time
from pathlib import Path

import dagster as dg
import pandas as pd

from marigold_assets import FencedPartitionIOManager, partitioned_asset
from marigold_assets.stores.duckdb import DuckDBStore

ROOM = Path(os.environ["MARIGOLD_E2E_ROOM"])
PATIENCE_SECONDS = 120.0
DAYS = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-03-01")
PRODUCTS = 17
CODE_VERSION = "1"  # the test of a redeploy writes another one here


def obey(place: str, asset: str, key: str) -> None:
    """Carry out what a test has ordered for this place, once."""
    order = ROOM / f"{place}@{asset}@{key}"
    try:
        wanted = order.read_text(encoding="utf-8")
        order.unlink()
    except FileNotFoundError:
        return
    match wanted.split():
        case ["raise"]:
            raise RuntimeError("the till is closed")
        case ["hold"]:
            (ROOM / f"held@{asset}@{key}").write_text(str(os.getpid()), encoding="utf-8")
            wait_while(lambda: not (ROOM / f"go@{asset}@{key}").exists())
        case ["kill", "step"]:
            os.kill(os.getpid(), signal.SIGKILL)
        case ["kill", "worker"]:
            kill_worker()
        case ["kill", "worker", "in", seconds]:
            timer = threading.Timer(float(seconds), kill_worker)
            timer.daemon = True
            timer.start()
        case _:
            raise ValueError(wanted)


def kill_worker() -> None:
    """Kill the run worker, and the process of its step that this is."""
    os.kill(os.getppid(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def wait_while(condition) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while condition():
        if time.monotonic() > deadline:
            raise TimeoutError
        time.sleep(0.01)


def note(asset: str, context: dg.AssetExecutionContext) -> None:
    """Note a call, and do what is ordered for it."""
    line = f"{context.partition_key} {context.run.run_id} {CODE_VERSION}\n".encode()
    descriptor = os.open(ROOM / f"calls@{asset}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(descriptor, line)
    os.close(descriptor)
    pace = ROOM / f"seconds@{asset}"
    if pace.exists():
        time.sleep(float(pace.read_text(encoding="utf-8")))
    obey("function", asset, context.partition_key)


_swap = DuckDBStore.swap


def _swap_and_obey(self, slices, rows, **given):
    receipts = _swap(self, slices, rows, **given)
    for receipt in receipts:
        obey("commit", receipt.entry.owner, str(receipt.entry.partition_key))
    return receipts


class MortalIOManager(FencedPartitionIOManager):
    """The IO manager under test, in a process that also obeys between the commit of a key and its event."""

    def begin_building(self, claims):
        DuckDBStore.swap = _swap_and_obey  # here, where no test's own process ever comes
        return super().begin_building(claims)


@partitioned_asset(partitions_def=DAYS, partition_expr="day", code_version="1")
def orders(context: dg.AssetExecutionContext) -> pd.DataFrame:
    """One to three orders a day."""
    day = pd.Timestamp(context.partition_key)
    number = (day - pd.Timestamp("2024-01-01")).days
    lines = range(1 + number % 3)
    return pd.DataFrame(
        {
            "day": day,
            "product": [(number * 5 + line * 3) % PRODUCTS for line in lines],
            "cents": [(number * 37 + line * 11) % 100 + 1 for line in lines],
        }
    )


def chain(name: str, **options):
    """Totals by product up to each day: one row a product that was ever sold, so that row counts differ."""

    @partitioned_asset(partitions_def=DAYS, partition_expr="day", code_version=CODE_VERSION, name=name, **options)
    def totals(context: dg.AssetExecutionContext, orders: pd.DataFrame, previous: pd.DataFrame | None) -> pd.DataFrame:
        note(name, context)
        known = orders if previous is None else pd.concat([previous, orders])
        return (
            known.groupby("product", as_index=False)
            .agg(cents=("cents", "sum"))
            .assign(day=pd.Timestamp(context.partition_key))
        )

    return totals


def sql_chain(name: str, **options):
    """The same within the database."""

    @partitioned_asset(partitions_def=DAYS, partition_expr="day", code_version=CODE_VERSION, name=name, **options)
    def totals(context: dg.AssetExecutionContext, orders: str, previous: str | None) -> str:
        note(name, context)
        known = orders if previous is None else f"{previous} UNION ALL BY NAME {orders}"
        return (
            f"SELECT product, sum(cents)::BIGINT AS cents, TIMESTAMP '{context.partition_key}' AS day"
            f" FROM ({known}) GROUP BY product"
        )

    return totals


def days(name: str, **options):
    """The day's orders with their share: no day needs another."""

    @partitioned_asset(partitions_def=DAYS, partition_expr="day", code_version=CODE_VERSION, name=name, **options)
    def shares(context: dg.AssetExecutionContext, orders: pd.DataFrame) -> pd.DataFrame:
        note(name, context)
        return orders.assign(share=orders["cents"] / orders["cents"].sum())

    return shares


KILLED = [(chain if number % 2 else sql_chain)(f"killed_{number}") for number in range(10)]
CHAINS = {
    name: chain(name)
    for name in (
        "whole",
        "failing",
        "repeated",
        "refilled",
        "terminated",
        "canceled",
        "by_job",
        "redeployed",
        "paused",
        "renewed",
    )
}
# One run a day, although the order of days is more than Dagster keeps in the backfill of a job.
DAILY = chain("by_job_daily", backfill_policy=dg.BackfillPolicy.multi_run(1))
STEP_RETRIED = chain("step_killed", retry_policy=dg.RetryPolicy(max_retries=1))
INDEPENDENT = days("independent", backfill_policy=dg.BackfillPolicy.multi_run(20))
SHARED_OUT = days("shared_out", backfill_policy=dg.BackfillPolicy.multi_run(20))
SQL_WHOLE = sql_chain("sql_whole")

defs = dg.Definitions(
    assets=[orders, *KILLED, *CHAINS.values(), DAILY, STEP_RETRIED, INDEPENDENT, SHARED_OUT, SQL_WHOLE],
    jobs=[
        dg.define_asset_job("orders_together", selection=[orders], executor_def=dg.in_process_executor),
        dg.define_asset_job("whole_together", selection=[CHAINS["whole"]], executor_def=dg.in_process_executor),
        dg.define_asset_job("sql_whole_together", selection=[SQL_WHOLE], executor_def=dg.in_process_executor),
        dg.define_asset_job(
            "redeployed_together", selection=[CHAINS["redeployed"]], executor_def=dg.in_process_executor
        ),
        dg.define_asset_job("renewed_together", selection=[CHAINS["renewed"]], executor_def=dg.in_process_executor),
        dg.define_asset_job("by_job_alone", selection=[CHAINS["by_job"]]),
        dg.define_asset_job("by_job_daily_alone", selection=[DAILY]),
    ],
    resources={"io_manager": MortalIOManager(database=str(ROOM / "warehouse.duckdb"), schema="shop")},
)
