"""Many processes that write partitions of one file at the same time: who waits how long, and does anybody starve?"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any
from uuid import uuid4

import duckdb

from benchmarks.measuring import Figure, percentile
from benchmarks.orders import COLUMNS_SQL, orders, slice_of
from benchmarks.swap import draw, swap_plainly

_ROWS = 1_000
_BOUND_TO_PEER = 1 / 3


@dataclass(frozen=True, slots=True, kw_only=True)
class _Result:
    """What some writers report: of every writer, the seconds that each of its swaps took, and its failures."""

    seconds: Sequence[Sequence[float]]
    failures: int

    @property
    def all_seconds(self) -> list[float]:
        return [second for one in self.seconds for second in one]

    @property
    def fewest_swaps(self) -> int:
        return min(len(one) for one in self.seconds)

    @property
    def median_swaps(self) -> float:
        return median(len(one) for one in self.seconds)

    @property
    def shares(self) -> str:
        counts = sorted(len(one) for one in self.seconds)
        return f"swaps a writer {counts[0]}-{counts[-1]}"


def run(folder: Path, *, quick: bool) -> list[Figure]:
    """Let 8 and 16 processes write for some seconds, ours and the peer's way of opening the file in turn."""
    seconds, turns = (3.0, 1) if quick else (6.0, 3)
    figures = []
    for writers in (8,) if quick else (8, 16):
        ours, peer = [], []
        for turn in range(turns):
            ours.append(_write(folder / f"ours-{writers}-{turn}.duckdb", "ours", writers, seconds))
            peer.append(_write(folder / f"peer-{writers}-{turn}.duckdb", "peer", writers, seconds))
        figures += _figures(writers, ours, peer)
    return figures


def _figures(writers: int, ours: Sequence[_Result], peer: Sequence[_Result]) -> list[Figure]:
    ratios = [
        percentile(mine.all_seconds, 95) / percentile(other.all_seconds, 95)
        for mine, other in zip(ours, peer, strict=True)
        if len(other.all_seconds) > 1
    ]
    starved = [mine.fewest_swaps / mine.median_swaps if mine.median_swaps else 0.0 for mine in ours]
    return [
        Figure(
            benchmark="writers",
            name=f"{writers} writers, failures",
            value=sum(mine.failures for mine in ours),
            unit="failures",
            bound=0,
            details=f"the peer: {sum(other.failures for other in peer)} failures",
        ),
        Figure(
            benchmark="writers",
            name=f"{writers} writers, p95 of a swap with its wait, ours / peer",
            value=median(ratios),
            unit="x",
            bound=_BOUND_TO_PEER if writers == 8 else None,
            low=min(ratios),
            high=max(ratios),
            details=f"ours {_waits(ours)}; peer {_waits(peer)}",
        ),
        Figure(
            benchmark="writers",
            name=f"{writers} writers, median / fewest swaps of a writer",
            value=1 / min(starved) if min(starved) else float("inf"),
            unit="x",
            bound=2.0,
            details=f"ours: {'; '.join(mine.shares for mine in ours)}. peer: {'; '.join(o.shares for o in peer)}",
        ),
    ]


def _waits(results: Sequence[_Result]) -> str:
    every = [second for result in results for second in result.all_seconds]
    if len(every) < 2:
        return "nothing was written"
    return f"p50 {percentile(every, 50):.2f} s, p95 {percentile(every, 95):.2f} s, longest {max(every):.2f} s"


def _write(path: Path, kind: str, writers: int, seconds: float) -> _Result:
    """Start the writers together and collect what they report."""
    with duckdb.connect(str(path)) as connection:
        connection.execute(f"CREATE SCHEMA shop; CREATE TABLE shop.orders ({COLUMNS_SQL})")
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "benchmarks.writers", str(path), kind, str(number), str(seconds)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        for number in range(writers)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    reports: list[dict[str, Any]] = []
    for process in processes:
        output, _ = process.communicate()
        reports.append(json.loads(output) if process.returncode == 0 else {"seconds": [], "failures": 1})
    return _Result(seconds=[r["seconds"] for r in reports], failures=sum(r["failures"] for r in reports))


def _writer(path: str, kind: str, number: int, duration: float) -> dict[str, Any]:
    """Write one's own partition again and again until the time is over."""
    data = orders(number, _ROWS)
    swap = _fenced_swap(path) if kind == "ours" else _peers_swap(path)
    waits: list[float] = []
    failures = 0
    print("ready", flush=True)
    sys.stdin.readline()
    end = time.monotonic() + duration
    while time.monotonic() < end:
        begun = time.perf_counter()
        try:
            swap(number, data)
            waits.append(time.perf_counter() - begun)
        except Exception as error:  # noqa: BLE001 - counted, whatever it is
            failures += 1
            print(f"{kind} {number}: {' '.join(str(error).split())[:200]}", file=sys.stderr)
    return {"seconds": waits, "failures": failures}


def _fenced_swap(path: str) -> Any:
    from marigold_assets.stores.duckdb import DuckDBStore

    store = DuckDBStore(path)
    attempt = draw(store)
    return lambda number, data: store.swap([slice_of(number)], data, attempt=attempt, swap_id=uuid4().hex)


def _peers_swap(path: str) -> Any:
    from dagster._utils.backoff import backoff  # noqa: TID251 - what the peer itself does

    def connect(database: str) -> duckdb.DuckDBPyConnection:
        # As dagster_duckdb.io_manager.DuckDbClient.connect does.
        return backoff(
            fn=duckdb.connect,
            retry_on=(RuntimeError, duckdb.IOException),
            kwargs={"database": database, "read_only": False, "config": {"custom_user_agent": "dagster"}},
            max_retries=10,
        )

    return lambda number, data: swap_plainly(path, number, data, connect=connect)


if __name__ == "__main__":
    path, kind, number, duration = sys.argv[1:]
    print(json.dumps(_writer(path, kind, int(number), float(duration))))
