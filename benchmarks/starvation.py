"""Production and readers beside a backfill of two years of days, one a run, with a real daemon under load."""

# No `from __future__ import annotations` here: this file is the code location too, and Dagster compares the
# annotation of `context` with its classes.

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

import dagster as dg
import numpy as np
import pandas as pd

from benchmarks.daemon import DATABASE, live_instance, wait_for
from benchmarks.measuring import Figure, percentile
from benchmarks.orders import FIRST_DAY, day_of
from marigold_assets import FencedPartitionIOManager, dagster_instance
from marigold_assets.dagster_instance import Api
from marigold_assets.model import TableName
from marigold_assets.stores.duckdb import DuckDBStore

DAYS, ROWS = 730, 20_000
LOAD_SECONDS = 2.0
QUEUE_BOUND_SECONDS = 5.0
"""A free slot is taken when the queue is next looked at, every second, or once the processes have started that were
launched at the last look."""
START_BOUND = 2.0
"""Runs of a backfill leave the processor to production, but while they start themselves."""
BLOCKED_BOUND_SECONDS = 2.0
PAUSE, DONE = "pause", "done"
_TABLE: Final = TableName(schema="shop", name="loaded")

# --- the code location -----------------------------------------------------------------------------------------------

PARTITIONS = dg.DailyPartitionsDefinition(FIRST_DAY.isoformat(), end_date=day_of(DAYS).isoformat())


@dg.asset(partitions_def=PARTITIONS, metadata={"partition_expr": "day"}, code_version="1")
def loaded(context: dg.AssetExecutionContext) -> pd.DataFrame:
    """Keeps a core busy for a while, unless all is to pause, and writes what came out."""
    folder = Path(os.environ[DATABASE]).parent
    done, numbers = time.monotonic() + LOAD_SECONDS, np.random.default_rng(0).random(ROWS)
    while time.monotonic() < done:
        _pause(folder, context.run.run_id)
        numbers = np.sort(np.sqrt(numbers + 1.0))
    (folder / DONE).touch()
    return pd.DataFrame({"day": pd.Timestamp(context.partition_key), "number": numbers})


def _pause(folder: Path, run_id: str) -> None:
    paused = folder / f"paused@{run_id}"
    while (folder / PAUSE).exists():
        paused.touch()
        time.sleep(0.1)
    paused.unlink(missing_ok=True)


@dg.asset(code_version="1")
def nightly() -> pd.DataFrame:
    """What production builds: into the same database."""
    return pd.DataFrame({"at": [pd.Timestamp.now("UTC")]})


defs = dg.Definitions(
    assets=[loaded, nightly],
    jobs=[dg.define_asset_job("nightly_job", selection=[nightly])],
    resources={
        "io_manager": FencedPartitionIOManager(
            database=os.environ.get(DATABASE, "unset.duckdb"), schema="shop", max_backfill_writers=2
        )
    },
    executor=dg.in_process_executor,
)

# --- the measurement -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """How a production run came to start.

    Attributes:
        queued: Seconds in the queue.
        starting: Seconds from there until its process had started.
        whole: Seconds until it was done.
    """

    queued: float
    starting: float
    whole: float


def run(folder: Path, *, quick: bool) -> list[Figure]:
    """Launch production runs beside the backfill, while it works and while it pauses, in turn."""
    count, rounds = (60, 2) if quick else (DAYS, 6)
    database = folder / "warehouse.duckdb"
    with (
        live_instance(folder, database, "benchmarks.starvation") as (instance, _),
        dagster_instance.api(instance, workspace=[str(folder / "workspace.yaml")]) as api,
    ):
        _production(instance, api, folder)  # the first one makes the database and its tables
        before = [_production(instance, api, folder) for _ in range(rounds)]
        backfill = _backfill(api, count)
        idle, busy = [], []
        reader = _Reader(database)
        with reader.reading():
            wait_for((folder / DONE).exists, folder)
            for _ in range(rounds):
                reader.seconds = reader.alone
                with _paused(folder):
                    idle.append(_production(instance, api, folder))
                reader.seconds = reader.beside
                busy += [_production(instance, api, folder) for _ in range(2)]
        unfinished = [dg.DagsterRunStatus.QUEUED, dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.STARTED]
        left = instance.get_runs(filters=dg.RunsFilter(tags={"dagster/backfill": backfill}, statuses=unfinished))
        dagster_instance.ask_to_cancel(instance, backfill)
    time.sleep(2 * LOAD_SECONDS)  # runs that were told to end still write into the folder
    if len(left) < 2:
        raise RuntimeError("the backfill was over before everything was measured")
    return [*_figures(before, idle, busy), _blocked(reader.beside, reader.alone)]


@contextmanager
def _paused(folder: Path) -> Iterator[None]:
    """Have the runs of the backfill keep their slots and do nothing."""
    (folder / PAUSE).touch()
    try:
        wait_for(lambda: len(list(folder.glob("paused@*"))) >= 2, folder)
        yield
    finally:
        (folder / PAUSE).unlink()


def _figures(before: list[Started], idle: list[Started], busy: list[Started]) -> Iterator[Figure]:
    yield Figure(
        benchmark="starvation",
        name="production in the queue beside a full backfill, at worst",
        value=round(max(one.queued for one in busy), 2),
        unit="s",
        bound=QUEUE_BOUND_SECONDS,
        details=f"median {median(one.queued for one in busy):.2f} s; before the backfill"
        f" {median(one.queued for one in before):.2f} s, at worst {max(one.queued for one in before):.2f} s",
    )
    usual = [one.starting for one in idle for _ in range(2)]
    ratios = [one.starting / beside for one, beside in zip(busy, usual, strict=True)]
    yield Figure(
        benchmark="starvation",
        name="its process starts, against that of one with the backfill paused",
        value=median(ratios),
        unit="x",
        bound=START_BOUND,
        low=min(ratios),
        high=max(ratios),
        details=f"{median(one.starting for one in busy):.1f} s, with the backfill paused {median(usual):.1f} s"
        f" ({min(usual):.1f}-{max(usual):.1f}), before it {median(one.starting for one in before):.1f} s;"
        f" {len(busy)} runs;"
        f" from submission to done {median(one.whole for one in busy):.1f} s, paused"
        f" {median(one.whole for one in idle):.1f} s, before it {median(one.whole for one in before):.1f} s",
    )


def _blocked(beside: list[float], alone: list[float]) -> Figure:
    return Figure(
        benchmark="starvation",
        name="a reader is blocked beside it, at worst",
        value=round(max(beside), 3),
        unit="s",
        bound=BLOCKED_BOUND_SECONDS,
        details=f"{len(beside)} reads, median {1_000 * median(beside):.0f} ms, p99"
        f" {1_000 * percentile(beside, 99):.0f} ms; alone median {1_000 * median(alone):.0f} ms, at worst"
        f" {1_000 * max(alone):.0f} ms",
    )


def _production(instance: dg.DagsterInstance, api: Api, folder: Path) -> Started:
    """A run as the schedule of the night launches it."""
    selector = {"repositoryLocationName": "benchmark", "repositoryName": "__repository__", "jobName": "nightly_job"}
    tags = [{"key": "dagster/schedule_name", "value": "nightly"}]
    submitted = time.time()
    run_id = api.launch_run(
        {"selector": selector, "mode": "default", "runConfigData": {}, "executionMetadata": {"tags": tags}}
    )
    wait_for(_ended(instance, run_id), folder)
    found = instance.get_run_by_id(run_id)
    if found is None or found.status is not dg.DagsterRunStatus.SUCCESS:
        raise RuntimeError(f"a production run ended as {None if found is None else found.status}")
    stats = instance.get_run_stats(run_id)
    launched, started, ended = float(stats.launch_time or 0), float(stats.start_time or 0), float(stats.end_time or 0)
    return Started(queued=launched - submitted, starting=started - launched, whole=ended - submitted)


def _ended(instance: dg.DagsterInstance, run_id: str) -> Callable[[], bool]:
    def ended() -> bool:
        found = instance.get_run_by_id(run_id)
        return found is not None and found.is_finished

    return ended


def _backfill(api: Api, count: int) -> str:
    keys = [day_of(number).isoformat() for number in range(count)]
    ranges = {"ranges": [{"start": keys[0], "end": keys[-1]}]}
    return api.launch_backfill({"partitionsByAssets": [{"assetKey": {"path": ["loaded"]}, "partitions": ranges}]})


class _Reader:
    """Somebody who reads the table again and again; the seconds of each time, by what goes on beside."""

    def __init__(self, database: Path) -> None:
        self.alone: list[float] = []
        self.beside: list[float] = []
        self.seconds = self.beside
        self._store = DuckDBStore(str(database))
        self._over = threading.Event()

    @contextmanager
    def reading(self) -> Iterator[None]:
        reader = threading.Thread(target=self._read)
        reader.start()
        try:
            yield
        finally:
            self._over.set()
            reader.join()

    def _read(self) -> None:
        while not self._over.wait(0.05):
            seconds, begun = self.seconds, time.perf_counter()
            if self._store.row_count(_TABLE) is not None:
                seconds.append(time.perf_counter() - begun)
