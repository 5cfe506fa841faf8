from __future__ import annotations

from pathlib import Path

import pytest

from marigold_assets.model import Attempt
from marigold_assets.stores.duckdb import DuckDBStore
from marigold_assets.testing import ForkServer


@pytest.fixture
def path(tmp_path):
    return tmp_path / "market.duckdb"


@pytest.fixture
def duck(path):
    """A DuckDB store in a new file."""
    return DuckDBStore(str(path), lock_timeout_seconds=2.0)


@pytest.fixture
def draw(duck):
    """Starts an attempt of a run: ``draw("run")``."""
    return lambda run_id="run": Attempt(run_id=run_id, token=duck.draw_token(run_id))


@pytest.fixture
def overwrite():
    """Writes a table without a store: ``overwrite(connection, table, rows)``; ``None`` drops it."""

    def write(connection, table, rows):
        name = f'"{table.schema}"."{table.name}"'
        if rows is None:
            connection.execute(f"DROP TABLE {name}")
        else:
            connection.register("given", rows)
            connection.execute(f"DELETE FROM {name}; INSERT INTO {name} BY NAME FROM given")
            connection.unregister("given")

    return write


@pytest.fixture(scope="session")
def processes():
    """Runs the functions of children.py in processes of their own."""
    with ForkServer(Path(__file__).with_name("children.py")) as server:
        yield server
