"""The fence is written, not read: two connections of one process, which no queue and no file lock keep apart."""

from __future__ import annotations

from contextlib import ExitStack

import duckdb
import pytest

from marigold_assets.errors import CommitUnknownError, FencedOutError, StoreBusyError, StoreUnavailableError
from marigold_assets.model import Attempt, Claim, FencingToken, Provenance, SwapOptions, TableName
from marigold_assets.stores import fence
from marigold_assets.stores.duckdb import DuckDBStore
from marigold_assets.stores.session import Session
from marigold_assets.stores.swap import CommitFailedError, SwapJob
from marigold_assets.testing.strategies import slice_of, table_of

TABLE = TableName(schema="sales", name="daily")
CONFIG = {"custom_user_agent": "dagster"}


def job(attempt, value, key="a"):
    return SwapJob(
        slices=(slice_of(key),),
        rows=table_of([{"key": key, "value": value}]),
        attempt=attempt,
        swap_id=f"swap {attempt.token}",
        provenance=Provenance(),
        options=SwapOptions(),
    )


class Race:
    """Runs one swap in the middle of another, on two connections."""

    def __init__(self, path, stack):
        self.outer, self.inner = (stack.enter_context(duckdb.connect(str(path), config=CONFIG)) for _ in range(2))

    def run(self, outer, inner, *, at):
        done = []

        def observe(label):
            if label == at and not done:
                done.append(label)
                inner.run(Session(self.inner, None))

        try:
            outer.run(Session(self.outer, observe))
        finally:
            assert done, "the inner swap never ran"


@pytest.fixture
def race(path, duck, draw):
    with ExitStack() as stack, duck.connector.share():
        yield lambda *jobs, at: Race(path, stack).run(*jobs, at=at)


OUTER_SNAPSHOT_TAKEN = ["check owner", "read claims", "raise high-water mark", "delete"]


def test_a_newer_swap_that_commits_before_the_fence_is_read_refuses_the_older(duck, draw, race):
    old, new = draw("old"), draw("new")
    duck.swap([slice_of("a")], table_of([]), attempt=old, swap_id="first")
    with pytest.raises(FencedOutError):
        race(job(old, 1), job(new, 2), at="begin")
    assert duck.read(TABLE).to_pylist() == [{"key": "a", "value": 2}]


@pytest.mark.parametrize("first_write", [True, False], ids=["empty day", "existing day"])
@pytest.mark.parametrize("at", OUTER_SNAPSHOT_TAKEN)
def test_two_swaps_of_one_slice_cannot_both_commit(duck, draw, race, at, first_write):
    old, new = draw("old"), draw("new")
    duck.swap([slice_of("z")], table_of([]), attempt=old, swap_id="create the table")
    if not first_write:
        duck.swap([slice_of("a")], table_of([{"key": "a", "value": 0}]), attempt=old, swap_id="first")
    before = duck.read(TABLE, [slice_of("a")]).to_pylist()
    with pytest.raises((duckdb.TransactionException, CommitFailedError)):
        race(job(old, 1), job(new, 2), at=at)
    heads = duck.heads(TABLE)
    assert duck.read(TABLE, [slice_of("a")]).to_pylist() == before
    assert ("a" in heads) == (not first_write)


def test_a_stale_snapshot_cannot_lower_the_high_water_mark(duck, draw, race, path):
    """The older one began first, saw the old mark, and writes last."""
    old, new = draw("old"), draw("new")
    duck.swap([slice_of("a")], table_of([]), attempt=old, swap_id="first")
    with duckdb.connect(str(path), config=CONFIG) as stale, duckdb.connect(str(path), config=CONFIG) as fresh:
        stale.execute("BEGIN TRANSACTION")
        stale.execute("SELECT high_water FROM marigold.fence").fetchall()
        job(new, 2).run(Session(fresh, None))
        with pytest.raises(duckdb.TransactionException, match="onflict"):
            stale.execute("UPDATE marigold.fence SET high_water = ? WHERE partition_key = 'a'", [old.token])
    assert duck.heads(TABLE)["a"].token == new.token


def test_a_claim_conflicts_with_a_swap_that_has_not_committed(path, duck, draw):
    """Claim against swap: DuckDB does not write an update that changes no value, so the counter has to move."""
    attempt = draw("old")
    refused = []

    def observe(label):
        if label == "commit":
            try:
                new = Attempt(run_id="new", token=FencingToken(attempt.token + 1))
                with duckdb.connect(str(path), config=CONFIG) as rival:
                    session = Session(rival, None)
                    session.execute("begin", "BEGIN TRANSACTION")
                    fence.touch_counter(session.execute)
                    fence.settle_claims(session.execute, new, [Claim(owner="daily", partition_key="a")])
                    session.execute("commit", "COMMIT")
            except duckdb.TransactionException as error:
                refused.append(error)

    with duck.connector.share():  # or the swap would have the file to itself in this process
        DuckDBStore(str(path), observer=observe).swap([slice_of("a")], table_of([]), attempt=attempt, swap_id="x")
    assert refused


def test_a_swap_conflicts_with_a_claim_that_has_not_committed(path, draw):
    """Swap against claim, the other way round: here it is the claim that must have written something."""
    attempt = draw("old")
    with duckdb.connect(str(path)) as connection:
        connection.execute("CHECKPOINT")  # on a row that still has versions DuckDB writes even what changes nothing
    with ExitStack() as stack:
        rival, own = (stack.enter_context(duckdb.connect(str(path), config=CONFIG)) for _ in range(2))
        rival.execute("BEGIN TRANSACTION")
        fence.touch_counter(Session(rival, None).execute)
        with pytest.raises(duckdb.TransactionException):
            job(attempt, 1).run(Session(own, None))


def test_a_conflict_is_tried_again_until_it_is_settled(path, draw, duck):
    """Swap against a user's own connection of the same process, which wrote the counter and then gave up."""
    attempt = draw()
    seen = []
    with duck.connector.share() as rival:
        rival.execute("BEGIN TRANSACTION; UPDATE marigold.counter SET last_position = last_position + 1")

        def observe(label):
            seen.append(label)
            if label == "touch counter" and seen.count(label) == 2:
                rival.execute("ROLLBACK")

        store = DuckDBStore(str(path), observer=observe)
        store.swap([slice_of("a")], table_of([{"key": "a", "value": 1}]), attempt=attempt, swap_id="x")
    assert seen.count("touch counter") == 2
    assert duck.read(TABLE).to_pylist() == [{"key": "a", "value": 1}]


def test_an_endless_conflict_is_a_busy_store(path, draw, duck):
    attempt = draw()
    with duck.connector.share() as rival:
        rival.execute("BEGIN TRANSACTION; UPDATE marigold.counter SET last_position = last_position + 1")
        with pytest.raises(StoreBusyError, match="this process") as caught:
            DuckDBStore(str(path)).draw_token("other")
    assert caught.value.retryable
    assert DuckDBStore(str(path)).draw_token("other") == attempt.token + 1


class LosesAcknowledgement(Session):
    """A connection that commits, and breaks before it can say so."""

    def execute(self, label, statement, parameters=()):
        rows = super().execute(label, statement, parameters)
        if label == "commit":
            raise duckdb.IOException("the connection broke")
        return rows


def test_a_commit_whose_acknowledgement_was_lost_is_found_in_the_ledger(path, duck, draw):
    swap_job = job(draw(), 1)
    with duckdb.connect(str(path), config=CONFIG) as connection, pytest.raises(CommitFailedError) as caught:
        swap_job.run(LosesAcknowledgement(connection, None))
    [receipt] = duck._settle(swap_job, caught.value.original)
    assert duck.ledger() == (receipt.entry,)


def failing(points):
    def observe(label):
        if label in points:
            raise points[label]

    return observe


def test_a_commit_that_failed_is_an_error_and_changes_nothing(path, duck, draw):
    attempt = draw()
    store = DuckDBStore(str(path), observer=failing({"commit": duckdb.IOException("disk gone")}))
    with pytest.raises(StoreUnavailableError, match="disk gone"):
        store.swap([slice_of("a")], table_of([]), attempt=attempt, swap_id="x")
    assert duck.ledger() == ()
    assert duck.columns(TABLE) is None


def test_a_commit_of_unknown_outcome_says_which_swap_to_ask_for(path, duck, draw):
    attempt = draw()
    points = {"commit": duckdb.IOException("disk gone"), "read ledger": StoreUnavailableError("gone", remedy="wait")}

    def observe(label):
        if label == "append to ledger":
            armed.update(points)
        if label in armed:
            raise armed[label]

    armed = {}
    with pytest.raises(CommitUnknownError) as caught:
        DuckDBStore(str(path), observer=observe).swap([slice_of("a")], table_of([]), attempt=attempt, swap_id="x")
    assert caught.value.swap_ids == ("x",)
    assert caught.value.retryable
    assert duck.receipts("x") == ()


def test_the_fence_tables_of_another_release_are_refused(path, duck, draw):
    draw()
    with duckdb.connect(str(path)) as connection:
        connection.execute("UPDATE marigold.counter SET format = 99")
    with pytest.raises(Exception, match="format"):
        duck.draw_token("x")
