"""What the crash and concurrency tests run in processes of their own."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pyarrow as pa

from marigold_assets.model import Attempt, Claim, FencingToken, SwapOptions, TableName
from marigold_assets.stores.duckdb import DuckDBStore
from marigold_assets.testing.crashes import kill_at
from marigold_assets.testing.strategies import slice_of

TABLE = TableName(schema="sales", name="daily")
COPIES = 2_000  # enough rows that an insert is no instant


def given(rows_by_key, *, evolve=False):
    """Many equal rows a slice; with a wider and a new column if the table is to grow."""
    keys = [key for key, value in rows_by_key.items() for _ in range(0 if value is None else COPIES)]
    values = [value for value in rows_by_key.values() for _ in range(0 if value is None else COPIES)]
    if evolve:
        return pa.table({"key": keys, "value": [float(value) for value in values], "more": values})
    return pa.table({"key": pa.array(keys, pa.string()), "value": pa.array(values, pa.int64())})


def write(path, rows_by_key, *, run_id="run", evolve=False, point=None):
    """Draw a token, then swap some slices of equal rows; killed at a statement of the swap, if wanted."""
    token = DuckDBStore(path).draw_token(run_id, [Claim(owner="daily", partition_key=key) for key in rows_by_key])
    store = DuckDBStore(path, observer=None if point is None else kill_at(point))
    receipts = store.swap(
        [slice_of(key) for key in rows_by_key],
        given(rows_by_key, evolve=evolve),
        attempt=Attempt(run_id=run_id, token=token),
        swap_id=f"{run_id} {token}",
        options=SwapOptions(evolve=evolve),
    )
    return [receipt.entry.row_count for receipt in receipts]


def write_until_killed(path, rows_by_key, run_id):
    """Swap the same slices again and again, with other values."""
    number = 0
    while True:
        number += 1
        write(path, {key: value + number for key, value in rows_by_key.items()}, run_id=f"{run_id} {number}")


def write_days(path, keys, *, ready, go):
    """Swap several partitions one after the other, starting when everybody is ready."""
    with Path(go).open() as gate:
        Path(ready, str(os.getpid())).touch()
        fcntl.flock(gate, fcntl.LOCK_SH)
    return [write(path, {key: int(key)}, run_id=key) for key in keys]


def swap_with_token(path, key, value, token, run_id):
    """Swap with a token drawn elsewhere."""
    attempt = Attempt(run_id=run_id, token=FencingToken(token))
    DuckDBStore(path).swap([slice_of(key)], given({key: value}), attempt=attempt, swap_id=f"{run_id} {token}")
