"""The fenced swap beside the floor: what deleting and inserting the same rows in one transaction costs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import duckdb
import pyarrow as pa

from benchmarks.measuring import Figure, in_turn, ratio
from benchmarks.orders import COLUMNS_SQL, TABLE, day_of, orders, slice_of
from marigold_assets.model import Attempt
from marigold_assets.stores.duckdb import DuckDBStore

_BOUNDS = {1_000_000: 1.25, 10_000: 2.0}
_PARTITIONS = 2


def run(folder: Path, *, quick: bool) -> list[Figure]:
    """Measure both sizes of partition."""
    rounds = {1_000_000: 3, 10_000: 10} if quick else {1_000_000: 7, 10_000: 31}
    return [_compare(folder / str(rows), rows, rounds[rows]) for rows in _BOUNDS]


def _compare(folder: Path, rows: int, rounds: int) -> Figure:
    folder.mkdir(parents=True)
    ours, floor = str(folder / "ours.duckdb"), str(folder / "floor.duckdb")
    store = DuckDBStore(ours)
    with duckdb.connect(floor) as connection:
        connection.execute(f"CREATE SCHEMA shop; CREATE TABLE shop.orders ({COLUMNS_SQL})")
    for number in range(_PARTITIONS):
        data = orders(number, rows)
        swap_fenced(store, number, data, draw(store))
        swap_plainly(floor, number, data)
    versions = [orders(1, rows, seed=seed) for seed in (1, 2)]
    attempts = [draw(store) for _ in range(rounds + 1)]
    seconds = in_turn(
        {
            "ours": lambda number: swap_fenced(store, 1, versions[number % 2], attempts[number]),
            "floor": lambda number: swap_plainly(floor, 1, versions[number % 2]),
        },
        rounds=rounds,
    )
    return ratio("swap", f"{rows:,} rows, ours / floor", seconds, of="ours", to="floor", bound=_BOUNDS[rows])


def draw(store: DuckDBStore) -> Attempt:
    """An attempt of a run of its own, which has claimed nothing yet: the swap makes the claim as well."""
    run_id = str(uuid4())
    return Attempt(run_id=run_id, token=store.draw_token(run_id))


def swap_fenced(store: DuckDBStore, number: int, data: pa.Table, attempt: Attempt) -> None:
    """Everything: open, fence, claims, delete, insert, content hash, ledger, commit, close."""
    store.swap([slice_of(number)], data, attempt=attempt, swap_id=uuid4().hex)


def swap_plainly(
    database: str,
    number: int,
    data: pa.Table,
    *,
    connect: Callable[[str], duckdb.DuckDBPyConnection] = duckdb.connect,
) -> None:
    """The least that replaces a partition: no fence, no ledger, no checks, nobody else who wants the file."""
    connection = connect(database)
    try:
        connection.register("rows_", data)
        connection.execute("BEGIN TRANSACTION")
        connection.execute(f"DELETE FROM {TABLE.schema}.{TABLE.name} WHERE sale_date = ?", [day_of(number)])
        connection.execute(f"INSERT INTO {TABLE.schema}.{TABLE.name} BY NAME SELECT * FROM rows_")
        connection.execute("COMMIT")
    finally:
        connection.close()
