"""Whether a swap grows slower as the table, the fence, the claims and the ledger grow."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from uuid import uuid4

import pyarrow as pa

from benchmarks.measuring import Figure, in_turn, ratio
from benchmarks.orders import day_of, orders, slice_of
from benchmarks.swap import draw, swap_fenced
from marigold_assets.stores.duckdb import DuckDBStore

_ROWS = 1_000
_BOUNDS = {730: 1.3, 3_650: 1.5}
_RUNS_A_PARTITION = 3
_DAYS_A_SWAP = 365


def run(folder: Path, *, quick: bool) -> list[Figure]:
    """Swap one day of a thousand orders, in tables with one day, two years and ten years of them."""
    bounds = {730: _BOUNDS[730]} if quick else _BOUNDS
    rounds = 10 if quick else 40
    sizes = (1, *bounds)
    stores = {size: _filled(folder / f"{size}.duckdb", size) for size in sizes}
    attempts = {size: [draw(stores[size]) for _ in range(rounds + 1)] for size in sizes}
    versions = {size: [orders(size // 2, _ROWS, seed=seed) for seed in (1, 2)] for size in sizes}

    def swap(size: int, number: int) -> None:
        swap_fenced(stores[size], size // 2, versions[size][number % 2], attempts[size][number])

    seconds = in_turn({_name(size): partial(swap, size) for size in sizes}, rounds=rounds)
    return [
        ratio("growth", f"{_name(size)} / {_name(1)}", seconds, of=_name(size), to=_name(1), bound=bound)
        for size, bound in bounds.items()
    ]


def _name(size: int) -> str:
    return f"{size:,} partition{'s' if size > 1 else ''}"


def _filled(path: Path, size: int) -> DuckDBStore:
    """A table with a history: every partition has been claimed and swapped by several runs."""
    store, template = DuckDBStore(str(path)), orders(0, _ROWS)
    for first in range(0, size, _DAYS_A_SWAP):
        days = range(first, min(first + _DAYS_A_SWAP, size))
        rows = pa.concat_tables([_moved(template, day) for day in days])
        for _ in range(_RUNS_A_PARTITION):
            store.swap([slice_of(day) for day in days], rows, attempt=draw(store), swap_id=uuid4().hex)
    return store


def _moved(day: pa.Table, number: int) -> pa.Table:
    """The orders of one day as those of another."""
    position = day.schema.get_field_index("sale_date")
    dates = pa.repeat(pa.scalar(day_of(number)), day.num_rows)
    return day.set_column(position, day.schema.field(position), dates)
