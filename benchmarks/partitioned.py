"""Range runs of partitioned assets beside a raw loop over the same data, which deletes, inserts and commits a day."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import dagster as dg

from benchmarks import days as shop
from benchmarks.days import CHAIN, INDEPENDENT, PANDAS, RELATION, SQL
from benchmarks.measuring import Figure, milliseconds, noise, peak_mb
from marigold_assets import building, target
from marigold_assets.events import EventWriter
from marigold_assets.stores.duckdb import DuckDBStore

_DAYS, _DAYS_QUICK = 730, 12
_ROUNDS, _ROUNDS_QUICK = 3, 1
_BOUNDS = {1_000: 4.0, 10_000: 3.0}  # compute plus swap, to the raw loop
_OF_PANDAS = 2  # times as much
_SQLMESH_MS, _DBT_MS = "35-41 ms", "41-61 ms"  # a partition, one interval a batch
_EVERYTHING_MS = 35
# SQLMesh's default batch took 2.6 s and 5.0 s where the raw loop took 3.3 s and 6.6 s; the bound is 1.5 times that.
_BOUNDS_OF_CHUNKS = {1_000: round(1.5 * 2.6 / 3.3, 2), 10_000: round(1.5 * 5.0 / 6.6, 2)}
_REPEATED = 0.5
_MEMORY_MB = 500
_FLAT = 1.1
_MANY_KEYS = 36_500

_COMPUTE, _SWAP, _LOOP, _EVENT = "compute", "swap", "loop", "event"
_PLANNED, _EVERYTHING = "planned", "everything"


class Clock:
    """Adds up the seconds that some functions take, and those of the processor, as long as they are watched."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.busy: defaultdict[str, float] = defaultdict(float)

    @contextmanager
    def watching(self, owner: Any, name: str, part: str) -> Iterator[None]:
        """Watch a function or method, by the name under which it is called."""
        original = getattr(owner, name)

        def watched(*args: Any, **kwargs: Any) -> Any:
            begun, busy = time.perf_counter(), time.process_time()
            try:
                return original(*args, **kwargs)
            finally:
                self.seconds[part] += time.perf_counter() - begun
                self.busy[part] += time.process_time() - busy

        with _replaced(owner, name, watched):
            yield


@contextmanager
def _replaced(owner: Any, name: str, other: Any) -> Iterator[None]:
    original = getattr(owner, name)
    setattr(owner, name, other)
    try:
        yield
    finally:
        setattr(owner, name, original)


class _Ranges:
    """One database with the orders, and everything that is built from them in turn."""

    def __init__(self, folder: Path, instance: dg.DagsterInstance, *, rows: int, days: int) -> None:
        folder.mkdir(parents=True)
        self._instance, self._days = instance, days
        self._keys = shop.definition_of(days).get_partition_keys()
        self.database = folder / "warehouse.duckdb"
        shop.fill(self.database, days=days, rows=rows)
        self._raw: defaultdict[str, list[float]] = defaultdict(list)
        self._raw_busy: defaultdict[str, list[float]] = defaultdict(list)

    def raw(self, kind: str) -> float:
        """Seconds of the raw loop."""
        begun, busy = time.perf_counter(), time.process_time()
        shop.raw_loop(kind, self.database, days=self._days)
        self._raw[kind].append(time.perf_counter() - begun)
        self._raw_busy[kind].append(time.process_time() - busy)
        return self._raw[kind][-1]

    def cpu(self, kind: str, seconds: Sequence[float]) -> str:
        """Time of the processor, which other work on the machine disturbs less, beside that of the raw loop."""
        mine, raw = (1e3 * median(values) / self._days for values in (seconds, self._raw_busy[kind]))
        return f"CPU {mine:.1f} / {raw:.1f} ms a key"

    def without_events(self, made: Any) -> Clock:
        """Compute and swap everything, and write no event: the rest of what a step does, by its parts."""
        clock = Clock()
        with (
            _replaced(EventWriter, "write", lambda *_: None),
            clock.watching(building._Building, "run", _LOOP),
            clock.watching(DuckDBStore, "swap", _SWAP),
        ):
            shop.materialize(made, self.database, self._instance, keys=self._keys)
        clock.seconds[_COMPUTE] = clock.seconds[_LOOP] - clock.seconds[_SWAP]
        return clock

    def everything(self, made: Any, **choices: str) -> Clock:
        """A whole run on an instance on disk, from its start to its end."""
        clock = Clock()
        with (
            clock.watching(EventWriter, "_log", _EVENT),
            clock.watching(dg.DagsterInstance, "create_run_for_job", _PLANNED),
        ):
            begun = time.perf_counter()
            shop.materialize(made, self.database, self._instance, keys=self._keys, **choices)
            clock.seconds[_EVERYTHING] = time.perf_counter() - begun
        return clock

    def noise_of(self, kind: str) -> str:
        """How long the raw loop took, and how much that varied: it has no other reason than the machine."""
        each = [seconds / self._days for seconds in self._raw[kind]]
        return f"raw loop {milliseconds(each)}; {noise(each)}"


def run(folder: Path, *, quick: bool) -> list[Figure]:
    """Chains and independent days of both sizes, then repetitions, memory, and very many keys."""
    count, rounds = (_DAYS_QUICK, _ROUNDS_QUICK) if quick else (_DAYS, _ROUNDS)
    figures: list[Figure] = []
    home = folder / "dagster"
    home.mkdir()
    with dg.DagsterInstance.local_temp(str(home)) as instance:
        for rows, bound in list(_BOUNDS.items())[: 1 if quick else None]:
            ranges = _Ranges(folder / str(rows), instance, rows=rows, days=count)
            for kind in (CHAIN, INDEPENDENT):
                figures += _styles(ranges, kind, rows=rows, days=count, rounds=rounds, bound=bound, quick=quick)
            figures += _chunks(ranges, rows=rows, days=count, rounds=rounds)
            figures += _repeated(ranges, rows=rows, days=count, rounds=rounds)
            if quick or rows == max(_BOUNDS):
                figures += _memory(ranges.database, rows=rows, days=count)
            ranges.database.unlink()
        figures.append(_resolving(folder / "many.duckdb", instance))
    figures += _flat_memory(folder / "flat", (12, 60) if quick else (100, 730, 3_650))
    return figures


def _styles(
    ranges: _Ranges, kind: str, *, rows: int, days: int, rounds: int, bound: float, quick: bool
) -> Iterator[Figure]:
    styles = (SQL, RELATION, PANDAS)
    assets = {style: shop.asset_of(kind, style, days=days, name=_name(kind, style)) for style in styles}
    ratios: defaultdict[str, list[float]] = defaultdict(list)
    busy: defaultdict[str, list[float]] = defaultdict(list)
    parts: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    ranges.raw(kind)  # makes its table
    for made in assets.values():  # and theirs
        ranges.without_events(made)
    for number in range(rounds):
        for style in _turned(list(assets), number):
            raw = ranges.raw(kind)
            clock = ranges.without_events(assets[style])
            bare = clock.seconds
            ratios[style].append(bare[_LOOP] / raw)
            busy[style].append(clock.busy[_LOOP])
            whole = ranges.everything(assets[style]).seconds
            for part, seconds in {
                _COMPUTE: bare[_COMPUTE],
                _SWAP: bare[_SWAP],
                _EVENT: whole[_EVENT],
                _PLANNED: whole[_PLANNED],
                _EVERYTHING: whole[_EVERYTHING],
            }.items():
                parts[style, part].append(1e3 * seconds / days)
            shop.refuse_other_rows(kind, _name(kind, style), ranges.database)
    floor = ranges.noise_of(kind)
    for style in assets:
        what = f"{kind}, {rows:,} rows a day, {style}"
        limit = bound * (_OF_PANDAS if style == PANDAS else 1)
        details = f"{ranges.cpu(kind, busy[style])}; {floor}"
        yield _told(f"{what}: compute + swap / raw loop", ratios[style], "x", limit, details)
        yield _told(f"{what}: compute a key", parts[style, _COMPUTE], "ms", None, _COMPUTES[style])
        yield _told(f"{what}: swap a key", parts[style, _SWAP], "ms", None, "fence, ledger and content hash included")
        yield _told(f"{what}: event a key", parts[style, _EVENT], "ms", None, "in a thread, while the next is computed")
        # In a short run the start of it, which takes a second, would count as if it belonged to the keys.
        rivals = f"SQLMesh took {_SQLMESH_MS}, dbt {_DBT_MS}; {floor}"
        planned = "Dagster says that the key is planned when it makes the run"
        yield _told(f"{what}: plan a key", parts[style, _PLANNED], "ms", None, planned)
        everything = parts[style, _EVERYTHING]
        yield _told(f"{what}: everything a key", everything, "ms", None if quick else _EVERYTHING_MS, rivals)


_COMPUTES = {
    SQL: "open, look inputs up, have the text made; the swap runs it",
    RELATION: "open, look inputs up, have the relation made; the swap runs it",
    PANDAS: "open, look inputs up, read them, call the function",
}


def _chunks(ranges: _Ranges, *, rows: int, days: int, rounds: int) -> Iterator[Figure]:
    names = {style: f"chunk_{style.lower()}" for style in (SQL, RELATION)}
    assets = {
        style: shop.asset_of(INDEPENDENT, style, days=days, name=name, many=True) for style, name in names.items()
    }
    ratios: defaultdict[str, list[float]] = defaultdict(list)
    for made in assets.values():
        ranges.without_events(made)
    for number in range(rounds):
        for style in _turned(list(assets), number):
            raw = ranges.raw(INDEPENDENT)
            ratios[style].append(ranges.without_events(assets[style]).seconds[_LOOP] / raw)
            shop.refuse_other_rows(INDEPENDENT, names[style], ranges.database)
    bound = _BOUNDS_OF_CHUNKS[rows]
    rival = f"SQLMesh's default batch took {bound / 1.5:.2f}; {ranges.noise_of(INDEPENDENT)}"
    for style, found in ratios.items():
        name = f"independent, {rows:,} rows a day, {style}, {shop.KEYS_A_STATEMENT} keys a statement"
        yield _told(f"{name}: compute + swap / raw loop", found, "x", bound, rival)


def _repeated(ranges: _Ranges, *, rows: int, days: int, rounds: int) -> Iterator[Figure]:
    assets = {style: shop.asset_of(CHAIN, style, days=days, name=_name(CHAIN, style)) for style in (SQL, PANDAS)}
    ratios: defaultdict[str, list[float]] = defaultdict(list)
    seconds: defaultdict[str, list[float]] = defaultdict(list)
    for number in range(rounds):
        for style in _turned(list(assets), number):
            ranges.raw(CHAIN)
            first = ranges.everything(assets[style]).seconds[_EVERYTHING]
            again = ranges.everything(assets[style], early_cutoff="on").seconds[_EVERYTHING]
            ratios[style].append(again / first)
            seconds[style].append(again / days)
    for style, found in ratios.items():
        details = f"everything {milliseconds(seconds[style])} a key; {ranges.noise_of(CHAIN)}"
        name = f"chain, {rows:,} rows a day, {style}: again with early cut-off / first run"
        yield _told(name, found, "x", _REPEATED, details)


def _memory(database: Path, *, rows: int, days: int) -> Iterator[Figure]:
    for kind, style, many in (
        (CHAIN, SQL, False),
        (CHAIN, RELATION, False),
        (CHAIN, PANDAS, False),
        (INDEPENDENT, SQL, True),
        (INDEPENDENT, RELATION, True),
    ):
        found = _in_a_process(kind, style, database=database, days=days, many=many)
        chunk = f", {shop.KEYS_A_STATEMENT} keys a statement" if many else ""
        yield Figure(
            benchmark="partitioned",
            name=f"{kind}, {days} days of {rows:,} rows, {style}{chunk}: peak",
            value=round(found["peak_mb"]),
            unit="MB",
            bound=_MEMORY_MB,
            details=f"{found['before_mb']:.0f} MB before the run",
        )


def _flat_memory(folder: Path, sizes: Sequence[int]) -> Iterator[Figure]:
    peaks = {}
    for size in sizes:
        within = folder / str(size)
        within.mkdir(parents=True)
        shop.fill(within / "warehouse.duckdb", days=size, rows=100)
        peaks[size] = _in_a_process(CHAIN, PANDAS, database=within / "warehouse.duckdb", days=size)["peak_mb"]
    few, *_, many = sizes
    yield Figure(
        benchmark="partitioned",
        name=f"chain of {many:,} keys, pandas: peak / that of {few:,} keys",
        value=peaks[many] / peaks[few],
        unit="x",
        bound=_FLAT,
        details=", ".join(f"{size:,} keys {peak:.0f} MB" for size, peak in peaks.items()),
    )


def _resolving(database: Path, instance: dg.DagsterInstance) -> Figure:
    """What a range run over very many keys finds out besides building: keys, slices and input partitions."""
    clock = Clock()

    def resolve(step: Any) -> None:
        for key in step._target.keys:
            step._target.slice_of(key)
            for source in step._target.sources:
                source.slices(key)

    def keys_of(context: dg.AssetExecutionContext) -> list[str]:
        definition = context.assets_def.partitions_def
        return list(definition.get_partition_keys_in_range(dg.PartitionKeyRange(keys[0], keys[-1])))

    # Of a run over two of them: for one over all, Dagster would first write an event a key to say that it is planned.
    keys = shop.definition_of(_MANY_KEYS).get_partition_keys()
    made = shop.asset_of(CHAIN, SQL, days=_MANY_KEYS, name="many_keys")
    with ExitStack() as until_done:
        until_done.enter_context(_replaced(target, "_keys_of", keys_of))
        until_done.enter_context(_replaced(building._Building, "run", resolve))
        for owner, name in ((target, "_keys_of"), (target, "Windows"), (building._Building, "run")):
            until_done.enter_context(clock.watching(owner, name, name))
        shop.materialize(made, database, instance, keys=keys[:2])
    named = {"_keys_of": "keys", "Windows": "windows", "run": "slices and input partitions"}
    return Figure(
        benchmark="partitioned",
        name=f"{_MANY_KEYS:,} keys, their slices and those of two inputs",
        value=round(sum(clock.seconds.values()), 2),
        unit="s",
        bound=1.0,
        details=", ".join(f"{word} {clock.seconds[part]:.2f} s" for part, word in named.items()),
    )


def _in_a_process(kind: str, style: str, *, database: Path, days: int, many: bool = False) -> dict[str, float]:
    wanted = json.dumps({"kind": kind, "style": style, "database": str(database), "days": days, "many": many})
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "benchmarks.partitioned", wanted]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def _measure_memory(kind: str, style: str, *, database: str, days: int, many: bool) -> dict[str, float]:
    made = shop.asset_of(kind, style, days=days, name=f"in_a_process_{kind}", many=many)
    before = peak_mb()
    with tempfile.TemporaryDirectory() as home, dg.DagsterInstance.local_temp(home) as instance:
        shop.materialize(made, Path(database), instance, keys=shop.definition_of(days).get_partition_keys())
    return {"before_mb": before, "peak_mb": peak_mb()}


def _told(name: str, values: Sequence[float], unit: str, bound: float | None, details: str) -> Figure:
    return Figure(
        benchmark="partitioned",
        name=name,
        value=round(median(values), 2),
        unit=unit,
        bound=bound,
        low=min(values),
        high=max(values),
        details=details,
    )


def _name(kind: str, style: str) -> str:
    return f"{kind}_{style.lower()}"


def _turned(names: list[str], number: int) -> list[str]:
    turn = number % len(names)
    return names[turn:] + names[:turn]


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    print(json.dumps(_measure_memory(given.pop("kind"), given.pop("style"), **given)))
