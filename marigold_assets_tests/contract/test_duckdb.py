"""DuckDB meets the store contract, and what bites on DuckDB in particular."""

from __future__ import annotations

import subprocess
import sys
from contextlib import contextmanager

import duckdb
import pytest

from marigold_assets.stores.duckdb import DuckDBStore
from marigold_assets.testing import StoreContract

_HOLD = """
import sys, duckdb
with duckdb.connect(sys.argv[1], config={"custom_user_agent": "dagster"}) as connection:
    print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def held_by_another_process(path):
    """Keep a DuckDB file open in a process that knows nothing of our queue."""
    holder = subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout.readline() == "held\n"
        yield str(holder.pid)
    finally:
        holder.communicate()


class TestDuckDBStore(StoreContract):
    @pytest.fixture
    def path(self, tmp_path):
        return tmp_path / "market.duckdb"

    @pytest.fixture
    def make_store(self, path):
        return lambda observer=None: DuckDBStore(str(path), lock_timeout_seconds=4, observer=observer)

    @pytest.fixture
    def by_hand(self, path, overwrite):
        def write(table, rows):
            with duckdb.connect(str(path)) as connection:
                overwrite(connection, table, rows)

        return write

    @pytest.fixture
    def busy(self, path):
        return held_by_another_process(path)
