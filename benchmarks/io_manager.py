"""The IO manager beside that of dagster-duckdb-pandas: one daily partition materialized again and again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import dagster as dg
import duckdb
import pandas as pd
import pyarrow as pa

from benchmarks.measuring import Figure, in_turn, ratio
from benchmarks.orders import FIRST_DAY, TABLE, day_of, orders, slice_of
from benchmarks.swap import draw
from marigold_assets import FencedPartitionIOManager
from marigold_assets.stores.duckdb import DuckDBStore

_BOUNDS = {10_000: 1.0, 100_000: 1.0, 1_000_000: 1.0}
_PARTITIONS = 30
_ROWS_OF_THE_OTHERS = 10_000
_DAY = 15


def run(folder: Path, *, quick: bool) -> list[Figure]:
    """Measure some sizes of partition, pandas in."""
    rounds = {10_000: 5, 100_000: 5} if quick else {10_000: 21, 100_000: 15, 1_000_000: 4}
    try:
        from dagster_duckdb_pandas import DuckDBPandasIOManager
    except ImportError:
        return [Figure(benchmark="io_manager", name="the peer is not installed", value=0, unit="", bound=None)]
    figures = []
    for rows, count in rounds.items():
        within = folder / str(rows)
        within.mkdir(parents=True)
        frames = [_frame(orders(_DAY, rows, seed=seed)) for seed in (1, 2)]
        ours, peer = str(within / "ours.duckdb"), str(within / "peer.duckdb")
        materialize = {
            "ours": _materializer(FencedPartitionIOManager(database=ours), frames),
            "peer": _materializer(DuckDBPandasIOManager(database=peer), frames),
        }
        for once in materialize.values():
            once(0)
        _fill(ours, peer)
        seconds = in_turn(materialize, rounds=count)
        name = f"{rows:,} rows of pandas, ours / peer"
        figures.append(ratio("io_manager", name, seconds, of="ours", to="peer", bound=_BOUNDS[rows]))
    return figures


def _frame(table: pa.Table) -> pd.DataFrame:
    return table.to_pandas().astype({"sale_date": "datetime64[us]"})


def _materializer(io_manager: Any, frames: Sequence[pd.DataFrame]) -> Callable[[int], None]:
    """Materialize the partition with one of the frames, the next one every time."""
    turns = iter(range(1_000_000))

    @dg.asset(
        name=TABLE.name,
        key_prefix=[TABLE.schema],
        partitions_def=dg.DailyPartitionsDefinition(FIRST_DAY.isoformat()),
        metadata={"partition_expr": "sale_date"},
    )
    def daily_orders() -> pd.DataFrame:
        return frames[next(turns) % len(frames)]

    def materialize(_: int) -> None:
        dg.materialize(
            [daily_orders],
            resources={"io_manager": io_manager},
            partition_key=day_of(_DAY).isoformat(),
            run_config={"loggers": {"console": {"config": {"log_level": "ERROR"}}}},
        )

    return materialize


def _fill(ours: str, peer: str) -> None:
    """Put the other partitions into both tables, past the IO managers."""
    days = [day for day in range(_PARTITIONS) if day != _DAY]
    frame = pd.concat([_frame(orders(day, _ROWS_OF_THE_OTHERS)) for day in days])
    with duckdb.connect(peer) as connection:
        connection.register("rows_", frame)
        connection.execute(f"INSERT INTO {TABLE.schema}.{TABLE.name} SELECT * FROM rows_")
    store = DuckDBStore(ours)
    rows = pa.Table.from_pandas(frame, preserve_index=False)
    store.swap([slice_of(day) for day in days], rows, attempt=draw(store), swap_id=uuid4().hex)
