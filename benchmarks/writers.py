"""Many processes that write partitions of one file at the same time: who waits how long, and does anybody starve?"""

from __future__ import annotations

import multiprocessing
import random
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any
from uuid import uuid4

import duckdb
import pyarrow as pa

from benchmarks.measuring import Figure, percentile
from benchmarks.orders import COLUMNS_SQL, orders, slice_of
from benchmarks.swap import draw, swap_plainly
from marigold_assets.stores.duckdb import DuckDBStore

_ROWS = 1_000
_PAUSE_SECONDS = 0.25  # what a partition computes, on average, before it writes
_BOUND_TO_PEER = 1 / 3
_BOUND_OF_SLOWEST = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What one writer did.

    Attributes:
        waits: Seconds that each of its swaps took, with the wait for the file.
        done_at: When each was done (monotonic clock of the machine).
        errors: Its failures.
    """

    waits: list[float] = field(default_factory=list)
    done_at: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


def run(folder: Path, *, quick: bool) -> list[Figure]:
    """Let 8 processes compute and write in turn with as many of the peer's, then write without a pause, then 16."""
    swaps, turns = (8, 1) if quick else (12, 3)
    paced = _Contest(folder / "paced", writers=8, swaps=swaps, pause_seconds=_PAUSE_SECONDS, turns=turns, peer=True)
    # Without a pause everybody always wants the file, so that unequal shares are the queue's doing.
    full = _Contest(folder / "full", writers=8, swaps=swaps, pause_seconds=0.0, turns=1, peer=not quick)
    figures = [paced.failures(), paced.to_peer(bound=_BOUND_TO_PEER), full.failures(), full.first_to_slowest()]
    if not quick:
        # The peer would wait for minutes at 16.
        many = _Contest(folder / "many", writers=16, swaps=swaps, pause_seconds=0.0, turns=1, peer=False)
        figures += [full.to_peer(bound=None), many.failures(), many.first_to_slowest()]
    return figures


class _Contest:
    """Some writers of one file, ours and the peer's in turn."""

    def __init__(self, folder: Path, *, writers: int, swaps: int, pause_seconds: float, turns: int, peer: bool) -> None:
        folder.mkdir(parents=True)
        pace = f"computing {pause_seconds:g} s between swaps" if pause_seconds else "without a pause"
        self._name = f"{writers} writers {pace}"
        self._ours, self._peer = [], []
        for turn in range(turns):
            self._ours.append(_write(folder / f"ours-{turn}.duckdb", _write_fenced, writers, swaps, pause_seconds))
            if peer:
                path = folder / f"peer-{turn}.duckdb"
                self._peer.append(_write(path, _write_as_peer, writers, swaps, pause_seconds))

    def failures(self) -> Figure:
        errors = [error for reports in self._ours for report in reports for error in report.errors]
        return Figure(
            benchmark="writers",
            name=f"{self._name}: failures",
            value=len(errors),
            unit="failures",
            bound=0,
            details="; ".join([_described(self._ours), *errors[:1]]),
        )

    def to_peer(self, *, bound: float | None) -> Figure:
        pairs = [
            percentile(_waits(mine), 95) / percentile(_waits(other), 95)
            for mine, other in zip(self._ours, self._peer, strict=True)
        ]
        failures = sum(len(report.errors) for other in self._peer for report in other)
        return Figure(
            benchmark="writers",
            name=f"{self._name}: p95 of a swap with its wait, ours / peer",
            value=median(pairs),
            unit="x",
            bound=bound,
            low=min(pairs),
            high=max(pairs),
            details=f"peer: {_described(self._peer)}, {failures} failures; {_shares(self._peer)}",
        )

    def first_to_slowest(self) -> Figure:
        ratios = []
        for reports in self._ours:
            counts = _counts_when_first_is_done(reports)
            ratios.append(counts[-1] / counts[0] if counts[0] else float("inf"))
        return Figure(
            benchmark="writers",
            name=f"{self._name}: swaps of the first to finish / of the slowest then",
            value=median(ratios),
            unit="x",
            bound=_BOUND_OF_SLOWEST,
            low=min(ratios),
            high=max(ratios),
            details=_shares(self._ours),
        )


def _waits(reports: Sequence[Report]) -> list[float]:
    return [wait for report in reports for wait in report.waits]


def _described(turns: Sequence[Sequence[Report]]) -> str:
    waits = [wait for reports in turns for wait in _waits(reports)]
    return f"p50 {percentile(waits, 50):.2f} s, p95 {percentile(waits, 95):.2f} s, longest {max(waits):.2f} s"


def _counts_when_first_is_done(reports: Sequence[Report]) -> list[int]:
    end = min(report.done_at[-1] for report in reports if report.done_at)
    return sorted(sum(at <= end for at in report.done_at) for report in reports)


def _shares(turns: Sequence[Sequence[Report]]) -> str:
    counts = [_counts_when_first_is_done(reports) for reports in turns]
    return "swaps a writer " + ", ".join(f"{one[0]}-{one[-1]}" for one in counts)


def _write(path: Path, write: Callable[..., Report], writers: int, swaps: int, pause_seconds: float) -> list[Report]:
    """Start the writers, let them go at the same moment, and collect their reports."""
    with duckdb.connect(str(path)) as connection:
        connection.execute(f"CREATE SCHEMA shop; CREATE TABLE shop.orders ({COLUMNS_SQL})")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    together, reports = context.Barrier(writers), context.SimpleQueue()
    processes = [
        context.Process(target=_report, args=(write, reports, str(path), number, swaps, pause_seconds, together))
        for number in range(writers)
    ]
    for process in processes:
        process.start()
    found: list[Report] = [reports.get() for _ in processes]
    for process in processes:
        process.join()
    return found


def _report(write: Callable[..., Report], reports: Any, *arguments: Any) -> None:
    reports.put(write(*arguments))


def _write_fenced(path: str, number: int, swaps: int, pause_seconds: float, together: Any) -> Report:
    store = DuckDBStore(path)
    attempt = draw(store)

    def swap(data: pa.Table) -> None:
        store.swap([slice_of(number)], data, attempt=attempt, swap_id=uuid4().hex)

    return _repeat(swap, number, swaps, pause_seconds, together)


def _write_as_peer(path: str, number: int, swaps: int, pause_seconds: float, together: Any) -> Report:
    from dagster._utils.backoff import backoff  # noqa: TID251 - what the peer itself does

    def connect(database: str) -> duckdb.DuckDBPyConnection:
        # As dagster_duckdb.io_manager.DuckDbClient.connect does.
        return backoff(
            fn=duckdb.connect,
            retry_on=(RuntimeError, duckdb.IOException),
            kwargs={"database": database, "read_only": False, "config": {"custom_user_agent": "dagster"}},
            max_retries=10,
        )

    return _repeat(partial(swap_plainly, path, number, connect=connect), number, swaps, pause_seconds, together)


def _repeat(swap: Callable[..., None], number: int, swaps: int, pause_seconds: float, together: Any) -> Report:
    """Write one's own partition again and again, and compute for a moment before each time."""
    data, report = orders(number, _ROWS), Report()
    pauses = random.Random(number)
    together.wait()
    for _ in range(swaps):
        time.sleep(pauses.uniform(0, 2 * pause_seconds))
        begun = time.perf_counter()
        try:
            swap(data=data)
            report.waits.append(time.perf_counter() - begun)
            report.done_at.append(time.monotonic())
        except Exception as error:  # noqa: BLE001 - counted, whatever it is
            report.errors.append(" ".join(str(error).split()))
            print(report.errors[-1][:200], file=sys.stderr)
    return report
