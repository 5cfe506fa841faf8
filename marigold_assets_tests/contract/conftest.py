from __future__ import annotations

from pathlib import Path

import pytest

from marigold_assets.model import Attempt
from marigold_assets.stores.duckdb import DuckDBStore
from marigold_assets.testing import ForkServer

# On a file these take seconds together. The quick tests have them on the reference in memory, which takes none.
SLOW_ON_A_FILE = ("broken_off_at_any_statement", "broken_off_within_an_opening", "any_name_is_only_a_name")


@pytest.hookimpl(tryfirst=True)  # before pytest selects by marks
def pytest_collection_modifyitems(items):
    for item in items:
        if item.path.name == "test_duckdb.py" and any(words in item.name for words in SLOW_ON_A_FILE):
            item.add_marker(pytest.mark.slow)


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
