"""Writers at the same time: processes against processes, threads against threads."""

from __future__ import annotations

import fcntl
import threading

import pytest

from marigold_assets.errors import FencedOutError
from marigold_assets.model import Attempt, Claim, TableName
from marigold_assets.stores.duckdb import DuckDBStore
from marigold_assets.testing.strategies import slice_of, table_of

pytestmark = pytest.mark.processes

TABLE = TableName(schema="sales", name="daily")


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "market.duckdb")


def test_eight_processes_writing_different_partitions_of_a_new_file_all_succeed(processes, path, tmp_path):
    ready, go = tmp_path / "ready", tmp_path / "go"
    ready.mkdir()
    gate = go.open("w")
    fcntl.flock(gate, fcntl.LOCK_EX)

    def start():
        while len(list(ready.iterdir())) < 8:
            started.wait(0.01)
        gate.close()  # unlocks it: whoever is late finds it open

    started = threading.Event()
    starter = threading.Thread(target=start)
    starter.start()
    keys = [[f"{worker}{number}" for number in range(3)] for worker in range(1, 9)]
    arguments = [{"path": path, "keys": mine, "ready": str(ready), "go": str(go)} for mine in keys]
    outcomes = processes.call_together([("write_days", each) for each in arguments])
    starter.join()
    assert [outcome.error for outcome in outcomes] == [None] * 8, [outcome.trace for outcome in outcomes]
    store = DuckDBStore(path)
    assert store.heads(TABLE).keys() == {key for mine in keys for key in mine}
    for key, head in store.heads(TABLE).items():
        assert store.content_hash(slice_of(key)) == head.content_hash
    tokens = [entry.token for entry in store.ledger()]
    assert len(set(tokens)) == len(tokens) == 24


def test_a_zombie_process_is_refused_after_its_successor_committed(processes, path):
    store = DuckDBStore(path)
    old, new = store.draw_token("run"), store.draw_token("run")
    assert processes.call("swap_with_token", path=path, key="a", value=2, token=new, run_id="run").code == 0
    zombie = processes.call("swap_with_token", path=path, key="a", value=1, token=old, run_id="run")
    assert zombie.error == "FencedOutError"
    assert set(store.read(TABLE).column("value").to_pylist()) == {2}


def test_threads_writing_one_slice_leave_exactly_the_newest_token(path):
    store = DuckDBStore(path)
    attempts = [
        Attempt(
            run_id=run_id,
            token=store.draw_token(run_id, [Claim(owner="daily", partition_key="a")] if late else []),
        )
        for run_id, late in [(f"run {number}", number == 5) for number in range(6)]
    ]
    barrier, refused = threading.Barrier(len(attempts)), []

    def write(attempt):
        barrier.wait()
        try:
            DuckDBStore(path).swap(
                [slice_of("a")],
                table_of([{"key": "a", "value": attempt.token}]),
                attempt=attempt,
                swap_id=attempt.run_id,
            )
        except FencedOutError:
            refused.append(attempt.run_id)

    threads = [threading.Thread(target=write, args=(attempt,)) for attempt in attempts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    newest = attempts[-1]
    assert store.read(TABLE).to_pylist() == [{"key": "a", "value": newest.token}]
    assert store.heads(TABLE)["a"].run_id == newest.run_id
    assert len(refused) + len(store.ledger()) == len(attempts)
    assert newest.run_id not in refused
