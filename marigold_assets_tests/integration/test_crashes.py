"""S5 with real processes: whatever is killed when, a partition is wholly old or wholly new."""

from __future__ import annotations

import os
import random

import duckdb
import pytest

from marigold_assets.model import TableName
from marigold_assets.stores.duckdb import DuckDBStore
from marigold_assets.testing.strategies import slice_of

pytestmark = pytest.mark.processes

TABLE = TableName(schema="sales", name="daily")
KILLS = 200 if os.environ.get("MARIGOLD_STRESS") else 20


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "market.duckdb")


def contents(path):
    """Row counts by key and value."""
    store = DuckDBStore(path)
    if store.columns(TABLE) is None:
        return {}
    found = {}
    for row in (
        store.read(TABLE, columns=["key", "value"])
        .group_by(["key", "value"])
        .aggregate([([], "count_all")])
        .to_pylist()
    ):
        found.setdefault(row["key"], {})[row["value"]] = row["count_all"]
    return found


def assert_consistent(path):
    """Ledger, fence and data say the same, and every slice is of one piece."""
    store = DuckDBStore(path)
    heads = store.heads(TABLE)
    found = contents(path)
    assert found.keys() <= heads.keys()
    for key, head in heads.items():
        assert store.content_hash(slice_of(key), head.columns) == head.content_hash
        assert sum(found.get(key, {}).values()) == head.row_count
        assert len(found.get(key, {})) <= 1
    with store.connector.read() as connection:
        try:
            marks = connection.execute("SELECT partition_key, high_water FROM marigold.fence").fetchall()
        except duckdb.CatalogException:
            marks = []
    assert sorted(marks) == sorted((key, head.token) for key, head in heads.items())
    positions = [entry.position for entry in store.ledger()]
    assert positions == sorted(set(positions))
    return found


SCENARIOS = {
    "first write": ({}, {"a": 2}, False),
    "overwrite": ({"a": 1, "b": 1}, {"a": 2}, False),
    "overwrite by nothing": ({"a": 1, "b": 1}, {"a": None}, False),
    "several slices": ({"a": 1, "b": 1}, {"a": 2, "c": 2}, False),
    "growing table": ({"a": 1, "b": 1}, {"a": 2}, True),
}


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_swap_killed_at_any_statement_is_wholly_old_or_wholly_new(processes, path, scenario):
    initial, new, evolve = SCENARIOS[scenario]
    if initial:
        assert processes.call("write", path=path, rows_by_key=initial, run_id="initial").code == 0
    old = contents(path)
    point = 0
    while True:
        point += 1
        outcome = processes.call("write", path=path, rows_by_key=new, run_id=f"run {point}", evolve=evolve, point=point)
        assert outcome.error is None, outcome.trace
        found = assert_consistent(path)
        if not outcome.killed:
            break
        assert found == old
    assert point > 8
    expected = {key: value for key, value in new.items() if value is not None}
    assert {key: set(values) for key, values in found.items() if key in new} == {k: {v} for k, v in expected.items()}
    assert found.get("b") == old.get("b")


@pytest.mark.parametrize("kill", [pytest.param(n, marks=pytest.mark.stress if n >= 20 else ()) for n in range(KILLS)])
def test_a_writer_killed_at_a_random_moment_leaves_no_trace_of_a_half_swap(processes, path, kill):
    assert processes.call("write", path=path, rows_by_key={"a": 0, "b": 0}, run_id="initial").code == 0
    delay = random.Random(kill).uniform(0.01, 0.12)
    outcome = processes.call(
        "write_until_killed", path=path, rows_by_key={"a": 0, "b": 0}, run_id="run", kill_after_seconds=delay
    )
    assert outcome.killed, outcome.trace
    found = assert_consistent(path)
    assert list(found["a"]) == list(found["b"])
    assert processes.call("write", path=path, rows_by_key={"a": -1, "b": -1}, run_id="next").code == 0
    assert {key: set(values) for key, values in assert_consistent(path).items()} == {"a": {-1}, "b": {-1}}
