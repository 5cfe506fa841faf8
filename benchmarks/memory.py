"""The memory that a partition of twenty million rows takes, streamed in from Arrow and from Parquet."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from benchmarks.measuring import Figure, peak_mb
from benchmarks.orders import OWNER, SCHEMA, TABLE, day_of, orders

_ROWS = 20_000_000
_ROWS_QUICK = 2_000_000
_BATCH_ROWS = 100_000
_BOUND_MB = 1_500
_READER, _SQL = "a RecordBatchReader", "Parquet by SQL"
_RUNS = {  # name: source, and the database, which holds the rows already where it was used before
    _READER: (_READER, "first"),
    _SQL: (_SQL, "second"),
    f"{_SQL}, over as many old ones": (_SQL, "second"),
    f"{_READER}, over as many old ones": (_READER, "first"),
}


def run(folder: Path, *, quick: bool) -> list[Figure]:
    """Materialize one huge partition through the IO manager, each time in a process of its own."""
    rows = _ROWS_QUICK if quick else _ROWS
    parquet = folder / "source.parquet"
    _measured("Parquet file", folder, rows)
    figures = []
    for name, (source, database) in _RUNS.items():
        found = _measured(source, folder, rows, str(folder / f"{database}.duckdb"))
        figures.append(
            Figure(
                benchmark="memory",
                name=f"{rows / 1e6:g}M rows from {name}, peak",
                value=round(found["peak_mb"]),
                unit="MB",
                bound=_BOUND_MB,
                details=f"{found['seconds']:.0f} s; {found['before_mb']:.0f} MB before, {found['rows']:,} rows stored",
            )
        )
    parquet.unlink()
    return figures


def _measured(source: str, folder: Path, rows: int, database: str = "") -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.memory", source, str(folder / "source.parquet"), str(rows), database]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _batches(rows: int) -> Iterator[pa.RecordBatch]:
    """The same few batches over and over: what is measured is not the making of data."""
    few = [batch for seed in range(4) for batch in orders(0, _BATCH_ROWS, seed=seed).to_batches()]
    for number in range(rows // _BATCH_ROWS):
        yield few[number % len(few)]


def _write_parquet(path: str, rows: int) -> None:
    import pyarrow.parquet as pq

    with pq.ParquetWriter(path, SCHEMA) as writer:
        for batch in _batches(rows):
            writer.write_batch(batch)


def _materialize(source: str, parquet: str, rows: int, database: str) -> dict[str, Any]:
    import dagster as dg

    from marigold_assets import FencedPartitionIOManager
    from marigold_assets.stores.duckdb import DuckDBStore

    @dg.asset(
        name=TABLE.name,
        key_prefix=[TABLE.schema],
        partitions_def=dg.DailyPartitionsDefinition(day_of(0).isoformat()),
        metadata={"partition_expr": "sale_date"},
    )
    def huge_day() -> Any:
        if source == _READER:
            return pa.RecordBatchReader.from_batches(SCHEMA, _batches(rows))
        return f"SELECT * FROM read_parquet('{parquet}')"

    before_mb = peak_mb()
    begun = time.perf_counter()
    dg.materialize(
        [huge_day],
        resources={"io_manager": FencedPartitionIOManager(database=database)},
        partition_key=day_of(0).isoformat(),
        run_config={"loggers": {"console": {"config": {"log_level": "ERROR"}}}},
    )
    seconds = time.perf_counter() - begun
    entry = DuckDBStore(database).ledger(TABLE)[-1]
    assert entry.owner == OWNER
    return {"peak_mb": peak_mb(), "before_mb": before_mb, "seconds": seconds, "rows": entry.row_count}


if __name__ == "__main__":
    source, parquet, rows, database = sys.argv[1:]
    if source == "Parquet file":
        _write_parquet(parquet, int(rows))
        print("{}")
    else:
        print(json.dumps(_materialize(source, parquet, int(rows), database)))
