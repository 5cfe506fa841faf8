"""Two years of days through a real daemon with the project's own dagster.yaml: a chain, and independent days."""

# No `from __future__ import annotations` here: this file is the code location too, and Dagster compares the
# annotation of `context` with its classes.

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import dagster as dg
import pandas as pd
import pyarrow as pa

from benchmarks.measuring import Figure
from benchmarks.orders import FIRST_DAY, OWNER, TABLE, day_of, orders, slice_of
from benchmarks.swap import draw
from marigold_assets import FencedPartitionIOManager, partitioned_asset
from marigold_assets.stores.duckdb import DuckDBStore

PROJECT = Path(__file__).resolve().parent.parent
DATABASE: Final = "MARIGOLD_BENCHMARK_DATABASE"
DAYS, ROWS = 730, 1_000
BOUND_SECONDS = 180.0
PATIENCE_SECONDS = 900.0
_DAYS_A_SWAP = 365

# --- the code location -----------------------------------------------------------------------------------------------

PARTITIONS = dg.DailyPartitionsDefinition(FIRST_DAY.isoformat(), end_date=day_of(DAYS).isoformat())
INPUT = {
    "orders": dg.AssetIn(
        key=dg.AssetKey(["shop", "orders"]), metadata={"columns": ["sale_date", "store", "amount_cents"]}
    )
}


def _by_store(rows: pd.DataFrame, day: str) -> pd.DataFrame:
    found = rows.groupby("store", as_index=False).agg(amount_cents=("amount_cents", "sum"))
    return found.assign(sale_date=pd.Timestamp(day))


@partitioned_asset(partitions_def=PARTITIONS, partition_expr="sale_date", code_version="1", ins=INPUT)
def independent(context: dg.AssetExecutionContext, orders: pd.DataFrame) -> pd.DataFrame:
    """Sales by store of each day."""
    return _by_store(orders, context.partition_key)


@partitioned_asset(partitions_def=PARTITIONS, partition_expr="sale_date", code_version="1", ins=INPUT)
def chain(context: dg.AssetExecutionContext, orders: pd.DataFrame, previous: pd.DataFrame | None) -> pd.DataFrame:
    """Sales by store up to each day."""
    known = orders if previous is None else pd.concat([previous, orders])
    return _by_store(known, context.partition_key)


root = dg.AssetSpec(
    key=dg.AssetKey(["shop", "orders"]), partitions_def=PARTITIONS, metadata={"partition_expr": "sale_date"}
)

defs = dg.Definitions(
    assets=[root, independent, chain],
    resources={
        "io_manager": FencedPartitionIOManager(database=os.environ.get(DATABASE, "unset.duckdb"), schema="shop")
    },
)

# --- the measurement -------------------------------------------------------------------------------------------------

_LAUNCH = """
mutation($backfillParams: LaunchBackfillParams!) { launchPartitionBackfill(backfillParams: $backfillParams) {
  __typename ... on PythonError { message } ... on LaunchBackfillSuccess { backfillId } } }
"""


def run(folder: Path, *, quick: bool) -> list[Figure]:
    """Backfill both, one after the other, and time each from the press of the button until the backfill is done."""
    count = 60 if quick else DAYS
    database = folder / "warehouse.duckdb"
    _fill(database, count)
    figures = []
    with live_instance(folder, database, "benchmarks.daemon") as (instance, variables):
        for name in ("chain", "independent"):
            seconds, details = _timed_backfill(instance, folder, variables, name, count)
            _check(database, name, count)
            figures.append(
                Figure(
                    benchmark="daemon",
                    name=f"{count} days, {name}, end to end",
                    value=round(seconds, 1),
                    unit="s",
                    bound=BOUND_SECONDS,
                    details=details,
                )
            )
    return figures


def _fill(database: Path, count: int) -> None:
    store = DuckDBStore(str(database))
    for first in range(0, count, _DAYS_A_SWAP):
        days = range(first, min(first + _DAYS_A_SWAP, count))
        rows = pa.concat_tables([orders(day, ROWS) for day in days])
        store.swap([slice_of(day) for day in days], rows, attempt=draw(store), swap_id=f"{OWNER} {first}")


@contextmanager
def live_instance(folder: Path, database: Path, module: str) -> Iterator[tuple[dg.DagsterInstance, dict[str, str]]]:
    """An instance of the project's settings, with a daemon that has started and runs the ``defs`` of a module."""
    home = folder / "home"
    home.mkdir()
    shutil.copy(PROJECT / "dagster.yaml", home)
    entry = {"module_name": module, "attribute": "defs", "location_name": "benchmark"}
    (folder / "workspace.yaml").write_text(json.dumps({"load_from": [{"python_module": entry}]}), encoding="utf-8")
    variables = {
        **os.environ,
        "DAGSTER_HOME": str(home),
        DATABASE: str(database),
        "PYTHONPATH": os.pathsep.join([str(PROJECT), os.environ.get("PYTHONPATH", "")]),
    }
    instance = dg.DagsterInstance.from_config(str(home))
    with (folder / "daemon.log").open("wb") as log:
        daemon = subprocess.Popen(
            [_program("dagster-daemon"), "run", "--workspace", str(folder / "workspace.yaml")],
            env=variables,
            cwd=folder,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        wait_for(lambda: bool(instance.get_daemon_statuses()), folder)
        yield instance, variables
    finally:
        os.killpg(daemon.pid, signal.SIGINT)
        try:
            daemon.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(daemon.pid, signal.SIGKILL)
            daemon.wait()
        instance.dispose()


def _timed_backfill(
    instance: dg.DagsterInstance, folder: Path, variables: Mapping[str, str], asset: str, count: int
) -> tuple[float, str]:
    keys = [day_of(number).isoformat() for number in range(count)]
    backfill = _launch(folder, variables, {"assetSelection": [{"path": [asset]}], "partitionNames": keys})
    begun = time.time()

    def status() -> str:
        found = instance.get_backfill(backfill)
        return "" if found is None else str(found.status.value)

    wait_for(lambda: status().startswith(("COMPLETED", "FAILED", "CANCELED")), folder)
    seconds = time.time() - begun
    if status() != "COMPLETED_SUCCESS":
        raise RuntimeError(f"the backfill of {asset} ended as {status()}\n{_tail(folder)}")
    records = instance.get_run_records(dg.RunsFilter(tags={"dagster/backfill": backfill}))
    starts = [record.start_time for record in records if record.start_time is not None]
    ends = [record.end_time for record in records if record.end_time is not None]
    busy = sum(end - start for start, end in zip(starts, ends, strict=True))
    return seconds, (
        f"{len(records)} run{'s' if len(records) > 1 else ''}, first started after {min(starts) - begun:.0f} s, last"
        f" ended after {max(ends) - begun:.0f} s; {1_000 * busy / count:.0f} ms of run a key"
    )


def _launch(folder: Path, variables: Mapping[str, str], params: Mapping[str, Any]) -> str:
    """Press the button, by the API of the user interface."""
    command = [_program("dagster-graphql"), "--workspace", str(folder / "workspace.yaml"), "--text", _LAUNCH]
    command += ["--variables", json.dumps({"backfillParams": params}), "--output", str(folder / "answer.json")]
    subprocess.run(command, env=dict(variables), cwd=folder, stdout=subprocess.DEVNULL, check=True)
    answer = json.loads((folder / "answer.json").read_text(encoding="utf-8"))
    return str(answer["data"]["launchPartitionBackfill"]["backfillId"])


def _check(database: Path, asset: str, count: int) -> None:
    """A figure of wrong rows would be worth nothing."""
    store = DuckDBStore(str(database))
    with store.connector.read() as connection:
        days = "sum(amount_cents) OVER (ORDER BY sale_date)" if asset == "chain" else "amount_cents"
        wrong = connection.execute(
            f"WITH wanted AS (SELECT sale_date, {days} AS amount_cents FROM (SELECT sale_date, sum(amount_cents) AS"
            f" amount_cents FROM {TABLE.schema}.{TABLE.name} GROUP BY ALL)), found AS (SELECT sale_date::DATE AS"
            f" sale_date, sum(amount_cents) AS amount_cents FROM shop.{asset} GROUP BY ALL)"
            " SELECT (SELECT count(*) FROM found), count(*) FROM (FROM wanted EXCEPT FROM found)"
        ).fetchone()
    if wrong != (count, 0):
        raise RuntimeError(f"{asset} is not what it should be: (days, wrong days) = {wrong}")


def wait_for(condition: Callable[[], bool], folder: Path) -> None:
    """Wait until a condition is true, or fail with what the daemon says."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(_tail(folder))
        time.sleep(0.5)


def _tail(folder: Path) -> str:
    return (folder / "daemon.log").read_text(errors="replace")[-3_000:]


def _program(name: str) -> str:
    return str(Path(sys.executable).with_name(name))
