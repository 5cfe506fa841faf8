"""What the file tests run in processes of their own, under other rights and limits."""

from __future__ import annotations

import os
import resource
import signal

import duckdb
import pyarrow as pa

from marigold_assets.errors import MarigoldError
from marigold_assets.model import TableName
from marigold_assets.stores.duckdb import DuckDBStore
from marigold_assets.testing import kill_at
from marigold_assets.testing.strategies import attempt_of, slice_of

TABLE = TableName(schema="sales", name="daily")


def read_then_write_without_rights(path):
    """Give up every right of root, then read, then try to draw a token."""
    if os.getuid() == 0:
        os.setgid(65534)
        os.setuid(65534)
    store = DuckDBStore(path, lock_timeout_seconds=5)
    rows = store.read(TABLE).num_rows
    try:
        store.draw_token("run")
    except MarigoldError as error:
        return [rows, type(error).__name__, str(error)]
    return [rows]


def ask_without_rights(path):
    """Give up every right of root; what everything that opens a file says of one named by a variable."""
    if os.getuid() == 0:
        os.setgid(65534)
        os.setuid(65534)
    os.environ["MARIGOLD_TEST_DATABASE"] = path
    store = DuckDBStore(path, lock_timeout_seconds=1)
    told = []
    for ask in (store.heads, store.newest, store.columns, store.row_count, store.read, store.acceptances):
        try:
            ask(TABLE)
        except MarigoldError as error:
            told.append(str(error))
    try:
        store.draw_token("run")
    except MarigoldError as error:
        told.append(str(error))
    return told


def swap_on_a_full_disk(path):
    """Swap more than files may grow by."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4_000_000, 4_000_000))
    store = DuckDBStore(path, lock_timeout_seconds=5)
    rows = pa.table({"key": ["a"] * 200_000, "value": [os.urandom(16).hex() for _ in range(200_000)]})
    token = store.draw_token("big")
    try:
        store.swap([slice_of("a")], rows, attempt=attempt_of("big", token), swap_id="big")
    except MarigoldError as error:
        return [type(error).__name__, str(error)]
    return []


def last_token(path):
    """Open the file with nothing but DuckDB."""
    with duckdb.connect(path) as connection:
        return connection.execute("SELECT last_token FROM marigold.counter").fetchone()[0]


def draw_token_and_die(path, point):
    """Draw a token, and be killed before a statement."""
    DuckDBStore(path, observer=kill_at(point)).draw_token("x")


def draw_token_in_time(path):
    """Draw a token, however long that takes."""
    return DuckDBStore(path, lock_timeout_seconds=60).draw_token("rival")


def swap_twice_and_die(path):
    """Swap two slices in one opening, and be killed in the middle of the second."""
    labels = []

    def observe(label):
        labels.append(label)
        if labels.count("commit") == 2 and label == "commit":
            os.kill(os.getpid(), signal.SIGKILL)

    store = DuckDBStore(path)
    attempt = attempt_of("dies", store.draw_token("dies"))
    slices = [slice_of("a"), slice_of("b")]
    with DuckDBStore(path, observer=observe).keep_open(attempt, slices) as kept:
        for number, slice_ in enumerate(slices):
            rows = pa.table({"key": [slice_.partition_key], "value": [10 + number]})
            kept.swap([slice_], rows, attempt=attempt, swap_id=f"{number}")
