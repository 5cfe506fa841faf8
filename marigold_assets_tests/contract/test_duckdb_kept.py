"""A DuckDB store that is kept open: the contract through one opening, and who is beside it."""

from __future__ import annotations

import re
import threading
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import duckdb
import pandas as pd
import pyarrow as pa
import pytest

from marigold_assets.errors import (
    ConfigurationError,
    FencedOutError,
    MarigoldError,
    MissingTableError,
    StoreUnavailableError,
)
from marigold_assets.model import Attempt, Equals, FencingToken, Interval, PartitionSlice, SwapOptions, TableName
from marigold_assets.stores.base import CommittedInterrupt, Query, Read
from marigold_assets.stores.duckdb import DuckDBStore
from marigold_assets.stores.session import Session
from marigold_assets.testing.confirmation import ConfirmationContract
from marigold_assets.testing.durability import DurabilityContract
from marigold_assets.testing.fencing import FencingContract
from marigold_assets.testing.harness import swap
from marigold_assets.testing.lineage import LineageContract
from marigold_assets.testing.replacement import ReplacementContract
from marigold_assets.testing.strategies import slice_of, table_of

pytestmark = pytest.mark.slow  # the same contract once more


TABLE = TableName(schema="sales", name="daily")
CONFIG = {"custom_user_agent": "dagster"}


class Through:
    """Every call goes to one and the same kept store; its statements are told to this one's observer."""

    def __init__(self, kept, told, observer):
        self._kept, self._told, self._observer = kept, told, observer

    def __getattr__(self, name):
        self._told[:] = [self._observer] if self._observer else []
        return getattr(self._kept, name)


class TestWithinOneOpening(
    ConfirmationContract, FencingContract, ReplacementContract, DurabilityContract, LineageContract
):
    @pytest.fixture
    def make_store(self, path):
        told = []

        def observe(label):
            for observer in told:
                observer(label)

        store = DuckDBStore(str(path), observer=observe)
        slices = [slice_of("a"), slice_of("b")]
        with store.keep_open(Attempt(run_id="fixture", token=FencingToken(0)), slices) as kept:
            yield lambda observer=None: Through(kept, told, observer)

    @pytest.fixture
    def by_hand(self, store, overwrite):
        return lambda table, rows: overwrite(store._opening._session.connection, table, rows)


@pytest.fixture
def attempt(duck, draw):
    attempt = draw("x")
    swap(duck, attempt, {"a": [1, 2], "b": [3]}, swap_id="filled")
    return attempt


def test_another_process_waits_until_the_block_ends(duck, path, attempt, processes):
    outcomes = []
    rival = threading.Thread(target=lambda: outcomes.append(processes.call("draw_token_in_time", path=str(path))))
    with duck.keep_open(attempt) as kept:
        rival.start()
        swap(kept, attempt, {"a": [5]}, swap_id="1")
        rival.join(0.5)
        assert not outcomes
        swap(kept, attempt, {"a": [6]}, swap_id="2")
    rival.join(20)
    assert outcomes[0].value == attempt.token + 1


def test_a_process_that_is_killed_between_two_swaps_keeps_the_first(duck, path, attempt, processes):
    assert processes.call("swap_twice_and_die", path=str(path)).killed
    assert duck.read(TABLE, [slice_of("a")])["value"].to_pylist() == [10]
    assert duck.read(TABLE, [slice_of("b")])["value"].to_pylist() == [3]
    assert duck.ledger()[-1].partition_key == "a"


def test_the_file_is_free_after_the_block_and_holds_everything(duck, path, attempt):
    with duck.keep_open(attempt) as kept:
        for number in range(5):
            swap(kept, attempt, {"a": [number]}, swap_id=f"{number}")
    assert not path.with_name(path.name + ".wal").exists()
    with duckdb.connect(str(path), read_only=True) as connection:
        assert connection.execute("SELECT value FROM sales.daily WHERE key = 'a'").fetchall() == [(4,)]
    with pytest.raises(ConfigurationError, match="closed"):
        kept.read(TABLE)


@pytest.mark.parametrize("alone", [True, False])
def test_whoever_opens_the_file_otherwise_in_that_thread_is_refused_at_once(duck, path, attempt, alone):
    other = DuckDBStore(str(path), lock_timeout_seconds=60)
    calls = [lambda: other.read(TABLE), lambda: other.draw_token("y"), lambda: other.connector.share().__enter__()]
    with duck.keep_open(attempt, alone=alone) as kept:
        for call in calls:
            with pytest.raises(ConfigurationError, match="reads this very database"):
                call()
        swap(kept, attempt, {"a": [5]}, swap_id="1")
    assert other.draw_token("y") > attempt.token


def test_another_thread_waits_and_is_not_refused(duck, path, attempt):
    drawn = []
    thread = threading.Thread(target=lambda: drawn.append(DuckDBStore(str(path)).draw_token("y")))
    with duck.keep_open(attempt):
        thread.start()
        thread.join(0.3)
        assert not drawn
    thread.join(10)
    assert drawn


def test_a_block_that_another_thread_ends_does_not_lock_out_the_first(duck, attempt):
    block = duck.keep_open(attempt)
    block.__enter__()
    thread = threading.Thread(target=lambda: block.__exit__(None, None, None))
    thread.start()
    thread.join()
    assert duck.draw_token("y") > attempt.token


def test_a_stream_that_reads_the_kept_store_is_refused(duck, attempt):
    with duck.keep_open(attempt) as kept:

        def batches():
            yield from kept.read(TABLE, [slice_of("a")]).to_batches()

        reader = pa.RecordBatchReader.from_batches(table_of([]).schema, batches())
        with pytest.raises(ConfigurationError, match="reads this very database"):
            kept.swap([slice_of("a")], reader, attempt=attempt, swap_id="1")
        swap(kept, attempt, {"a": [5]}, swap_id="2")


def test_a_store_that_is_read_batch_by_batch_is_not_asked_for_more(duck, attempt):
    with duck.keep_open(attempt) as kept:
        with kept.scan(TABLE) as reader:
            with pytest.raises(ConfigurationError, match="batch by batch"):
                kept.read(TABLE)
            assert reader.read_all().num_rows == 3
        assert kept.read(TABLE).num_rows == 3


# A rival in this process


@pytest.fixture
def rival(duck, path):
    """A connection of somebody else in this process."""
    with duck.connector.share(), duckdb.connect(str(path), config=CONFIG) as connection:
        yield connection


def test_a_snapshot_does_not_see_what_a_rival_commits(duck, attempt, rival):
    wanted = [slice_of("a"), slice_of("b")]
    with duck.keep_open(attempt) as kept:
        with kept.snapshot():
            before = kept.read(TABLE).to_pylist()
            rival.execute("UPDATE sales.daily SET value = value + 10; CREATE TABLE sales.other AS SELECT 1 AS a")
            rival.execute("UPDATE marigold.ledger SET content_hash = 'mh1:other'")
            assert kept.read(TABLE).to_pylist() == before
            assert sum(one.num_rows for one in kept.read_each(TABLE, wanted)) == 3
            with kept.scan(TABLE) as reader:
                assert reader.read_all().to_pylist() == before
            assert kept.inputs(wanted)[0].content_hash == kept.content_hash(slice_of("a"))
            assert kept.heads(TABLE)["a"].content_hash == kept.content_hash(slice_of("a"))
            assert kept.columns(TableName(schema="sales", name="other")) is None
            with pytest.raises(MissingTableError):
                kept.read(TableName(schema="sales", name="other"))
            of_nothing = replace(slice_of("a"), conditions=(Equals(expression="lower(nothing)", value="a"),))
            with pytest.raises(ConfigurationError, match="nothing"):
                kept.read(TABLE, [of_nothing])
            assert kept.read(TABLE).to_pylist() == before
            assert kept.query(TABLE, wanted)
        assert kept.read(TABLE).to_pylist() != before
        assert kept.inputs(wanted)[0].content_hash == "mh1:other"


def test_a_rival_that_claims_between_two_swaps_fences_the_second_out(duck, attempt, rival):
    slices = [slice_of(key) for key in ("a", "b", "c")]
    with duck.keep_open(attempt, slices) as kept:
        swap(kept, attempt, {"a": [5]}, swap_id="1")
        swap(kept, attempt, {"c": [5]}, swap_id="2")
        rival.execute(
            "BEGIN TRANSACTION; UPDATE marigold.counter SET last_token = last_token + 1, last_position ="
            " last_position + 1; INSERT INTO marigold.claims SELECT 'daily', 'b', 'rival', last_token"
            " FROM marigold.counter; COMMIT"
        )
        with pytest.raises(FencedOutError, match="superseded by run rival"):
            swap(kept, attempt, {"b": [6]}, swap_id="3")
        swap(kept, attempt, {"a": [7]}, swap_id="4")
        swap(kept, attempt, {"c": [7]}, swap_id="5")
    assert duck.read(TABLE, [slice_of("b")])["value"].to_pylist() == [3]
    assert sorted(duck.read(TABLE)["value"].to_pylist()) == [3, 7, 7]


def test_a_rival_that_commits_between_two_swaps_fences_the_second_out(duck, attempt, rival):
    slices = [slice_of(key) for key in ("a", "b", "c")]
    with duck.keep_open(attempt, slices) as kept:
        swap(kept, attempt, {"a": [5]}, swap_id="1")
        rival.execute(
            "BEGIN TRANSACTION; UPDATE marigold.counter SET last_token = last_token + 1, last_position ="
            " last_position + 1; UPDATE marigold.fence SET high_water = 99, run_id = 'rival' WHERE"
            " partition_key = 'b'; COMMIT"
        )
        with pytest.raises(FencedOutError, match="superseded by run rival"):
            swap(kept, attempt, {"b": [6]}, swap_id="2")


def test_a_rival_that_takes_the_table_over_between_two_swaps_refuses_the_second(duck, attempt, rival):
    with duck.keep_open(attempt, [slice_of("a"), slice_of("b")]) as kept:
        swap(kept, attempt, {"a": [5]}, swap_id="1")
        rival.execute(
            "BEGIN TRANSACTION; UPDATE marigold.counter SET last_position = last_position + 1;"
            " UPDATE marigold.fence SET owner = 'rival'; COMMIT"
        )
        with pytest.raises(ConfigurationError, match="belongs to 'rival'"):
            swap(kept, attempt, {"b": [6]}, swap_id="2")


@pytest.mark.parametrize("change", ["ALTER TABLE sales.daily ADD COLUMN more BIGINT", "DROP TABLE sales.daily"])
def test_a_rival_that_changes_the_table_between_two_swaps_is_noticed(duck, attempt, rival, change):
    more = table_of([{"key": "b", "value": 7}]).append_column("more", [[8]])
    with duck.keep_open(attempt, [slice_of("a"), slice_of("b")]) as kept:
        swap(kept, attempt, {"a": [5]}, swap_id="1")
        rival.execute(change)
        if "ADD" in change:
            with pytest.raises(MarigoldError, match="lack columns"):
                swap(kept, attempt, {"b": [6]}, swap_id="2")
            kept.swap([slice_of("b")], more, attempt=attempt, swap_id="3")
        else:
            swap(kept, attempt, {"b": [6]}, swap_id="2")
            assert kept.read(TABLE).to_pylist() == [{"key": "b", "value": 6}]


def test_a_table_that_a_rival_made_grow_in_the_same_way_is_not_altered_again(duck, attempt, rival):
    more = table_of([{"key": "b", "value": 7}]).append_column("more", [[8]])
    with duck.keep_open(attempt, [slice_of("a"), slice_of("b")]) as kept:
        swap(kept, attempt, {"a": [5]}, swap_id="1")
        rival.execute("ALTER TABLE sales.daily ADD COLUMN more BIGINT")
        kept.swap([slice_of("b")], more, attempt=attempt, swap_id="2", options=SwapOptions(evolve=True))
        assert kept.read(TABLE, [slice_of("b")])["more"].to_pylist() == [8]


def test_a_table_grows_within_an_opening(duck, attempt):
    more = table_of([{"key": "a", "value": 7}]).append_column("more", [[8]])
    with duck.keep_open(attempt, [slice_of("a"), slice_of("b")]) as kept:
        swap(kept, attempt, {"a": [5]}, swap_id="1")
        kept.swap([slice_of("a")], more, attempt=attempt, swap_id="2", options=SwapOptions(evolve=True))
        with pytest.raises(MarigoldError, match="lack columns"):
            swap(kept, attempt, {"b": [6]}, swap_id="3")
        kept.swap([slice_of("a")], more, attempt=attempt, swap_id="4")
    assert duck.read(TABLE, [slice_of("a")])["more"].to_pylist() == [8]


def test_nothing_of_a_swap_is_left_to_the_next(duck, path, attempt):
    with duck.keep_open(attempt, [slice_of("a"), slice_of("b")]) as kept:
        swap(kept, attempt, {"a": [5]}, swap_id="rows")
        itself = Query(sql="SELECT key, value + 1 AS value FROM sales.daily WHERE key = 'a'")
        kept.swap([slice_of("a")], itself, attempt=attempt, swap_id="circular")
        swap(kept, attempt, {"a": [6], "b": [7]}, swap_id="many")
        session = kept._opening._session
        assert session.execute("look", "SELECT table_name FROM duckdb_tables() WHERE temporary") == []
        assert session.execute("look", "SELECT view_name FROM duckdb_views() WHERE temporary AND NOT internal") == []
        with pytest.raises(MarigoldError, match="marigold_rows"):
            kept.swap([slice_of("a")], Query(sql="FROM marigold_rows"), attempt=attempt, swap_id="leaked")


REPLACED = ["delete", "insert", "measure", "append to ledger", "commit"]
SMALL_SWAP = {
    "SQL": ["begin", "touch counter", "stage", "describe", "describe", *REPLACED],
    "rows": ["begin", "touch counter", "describe", *REPLACED],
}


def chained(key, previous):
    """A partition that is computed from the one before."""
    sql = f"SELECT '{key}' AS key, sum(value)::BIGINT AS value FROM sales.daily WHERE key = '{previous}'"
    return Query(sql=sql, reads={key: (Read(slice_=slice_of(previous)),)})


def test_what_an_opening_has_swapped_itself_is_not_looked_up_again(path, duck, draw):
    attempt, labels = draw(), []
    slices = [slice_of(key) for key in ("a", "b", "c")]
    swap(duck, attempt, {"z": [1, 2]}, swap_id="filled")
    with DuckDBStore(str(path), observer=labels.append).keep_open(attempt, slices) as kept:
        [receipt] = kept.swap([slice_of("a")], chained("a", "z"), attempt=attempt, swap_id="a")
        assert labels.count("read heads") == labels.count("count") == 1
        labels.clear()
        [following] = kept.swap([slice_of("b")], chained("b", "a"), attempt=attempt, swap_id="b")
        assert not {"read heads", "count"} & set(labels)
        assert following.entry.provenance.inputs[0].content_hash == receipt.entry.content_hash
        labels.clear()
        with kept.snapshot():
            found = kept.inputs([slice_of("b"), slice_of("a")])
        assert [one.content_hash for one in found] == [r.entry.content_hash for r in (following, receipt)]
        assert labels == ["begin snapshot", "read counter"]
        [again] = swap(kept, attempt, {"a": [5, 6]}, swap_id="again")
        assert kept.inputs([slice_of("a")])[0].content_hash == again.entry.content_hash


@pytest.mark.parametrize("within", ["swap", "look-up"])
def test_what_an_opening_has_swapped_is_looked_up_after_somebody_else_has_written(duck, attempt, rival, within):
    with duck.keep_open(attempt, [slice_of(key) for key in ("a", "b", "c")]) as kept:
        [receipt] = swap(kept, attempt, {"a": [5, 6]}, swap_id="1")
        rival.execute("UPDATE marigold.counter SET last_position = last_position + 1")
        rival.execute("DELETE FROM sales.daily WHERE value = 5")
        if within == "swap":
            [following] = kept.swap([slice_of("c")], chained("c", "a"), attempt=attempt, swap_id="2")
            [found] = following.entry.provenance.inputs
        else:
            [found] = kept.inputs([slice_of("a")])
        assert found.content_hash == kept.content_hash(slice_of("a")) != receipt.entry.content_hash


def test_what_an_opening_has_swapped_is_forgotten_with_the_table(duck, attempt, rival):
    with duck.keep_open(attempt, [slice_of(key) for key in ("a", "b", "c")]) as kept:
        swap(kept, attempt, {"a": [5]}, swap_id="1")
        rival.execute("DROP TABLE sales.daily")
        swap(kept, attempt, {"b": [6]}, swap_id="2")
        query = replace(chained("c", "a"), sql="SELECT 'c' AS key, 1::BIGINT AS value")
        with pytest.raises(MarigoldError, match="partition 'a' of asset 'daily', which was never materialized"):
            kept.swap([slice_of("c")], query, attempt=attempt, swap_id="3")


def test_a_swap_that_was_rolled_back_is_not_remembered_as_held(duck, attempt):
    with duck.keep_open(attempt, [slice_of("a"), slice_of("b")]) as kept:
        swap(kept, attempt, {"b": [6]}, swap_id="1")
        [receipt] = swap(kept, attempt, {"a": [5]}, swap_id="2")
        with pytest.raises(MarigoldError, match="outside"):
            kept.swap([slice_of("a")], table_of([{"key": "z", "value": 1}]), attempt=attempt, swap_id="3")
        assert kept.inputs([slice_of("a")])[0].content_hash == receipt.entry.content_hash


INPUTS = [replace(slice_of(key), table=TableName(schema="sales", name="raw"), owner="raw") for key in "abcdefgh"]


def computed(source):
    """A partition that is computed from one of another table."""
    key = source.partition_key
    sql = f"SELECT key, value + 1 AS value FROM sales.raw WHERE key = '{key}'"
    return Query(sql=sql, reads={key: (Read(slice_=source),)})


@pytest.fixture
def inputs(duck, attempt):
    rows = table_of([{"key": one.partition_key, "value": 1} for one in INPUTS])
    return {r.entry.partition_key: r.entry for r in duck.swap(INPUTS, rows, attempt=attempt, swap_id="inputs")}


def test_what_will_be_read_next_is_looked_up_together_and_more_of_it_each_time(path, attempt, inputs):
    labels, looked_at = [], []
    slices = [slice_of(one.partition_key) for one in INPUTS]
    store = DuckDBStore(str(path), observer=labels.append)
    with store.keep_open(attempt, slices, reads=INPUTS) as kept:
        for source in INPUTS:
            labels.clear()
            [receipt] = kept.swap(
                [slice_of(source.partition_key)], computed(source), attempt=attempt, swap_id=source.partition_key
            )
            looked_at.append("read heads" in labels)
            [found] = receipt.entry.provenance.inputs
            assert found.content_hash == inputs[source.partition_key].content_hash
    assert looked_at == [True, False, False, True, False, False, False, False]


@pytest.mark.parametrize("within", ["swap", "look-up"])
def test_what_was_looked_up_ahead_is_forgotten_after_somebody_else_has_written(duck, attempt, rival, inputs, within):
    slices = [slice_of(one.partition_key) for one in INPUTS]
    with duck.keep_open(attempt, slices, reads=INPUTS) as kept:
        kept.swap([slices[0]], computed(INPUTS[0]), attempt=attempt, swap_id="1")
        assert kept.inputs([INPUTS[1]])[0].content_hash == inputs["b"].content_hash
        rival.execute("UPDATE marigold.counter SET last_position = last_position + 1")
        rival.execute("UPDATE sales.raw SET value = 7 WHERE key = 'b'; INSERT INTO sales.raw VALUES ('b', 8)")
        if within == "swap":
            [receipt] = kept.swap([slices[1]], computed(INPUTS[1]), attempt=attempt, swap_id="2")
            [found] = receipt.entry.provenance.inputs
        else:
            [found] = kept.inputs([INPUTS[1]])
        assert found.content_hash == kept.content_hash(INPUTS[1]) != inputs["b"].content_hash


REFUSED = {
    "two statements": "SELECT 'a' AS key, 1::BIGINT AS value; DROP TABLE sales.daily",
    "one that closes the brackets": "SELECT 'a' AS key, 1::BIGINT AS value); DROP TABLE sales.daily; SELECT (1",
    "two queries once it is in brackets": "SELECT 'a' AS key, 1 AS value) UNION ALL (SELECT 'a' AS key, 2 AS value",
    "no query": "DELETE FROM sales.daily",
    "that ends like a table": "SELECT 'a' AS key, 1::BIGINT AS value WITH NO DATA",
    "not SQL": "SELECT FROM WHERE",
    "of nothing": "SELECT key, value FROM sales.nothing",
    "that fails": "SELECT 'a' AS key, error('no such thing')::BIGINT AS value",
    "without a column": "SELECT 'a' AS key",
    "with another column": "SELECT 'a' AS key, 1::BIGINT AS value, 2 AS other",
    "with a column twice": "SELECT 'a' AS key, 1::BIGINT AS value, 2 AS value",
    "of another kind": "SELECT 'a' AS key, DATE '2024-01-01' AS value",
    "that loses something": "SELECT 'a' AS key, 1.5 AS value",
    "outside": "SELECT 'z' AS key, 1::BIGINT AS value",
}


@pytest.mark.parametrize("text", REFUSED.values(), ids=REFUSED.keys())
def test_sql_is_refused_in_the_same_words_after_other_swaps_of_an_opening(duck, attempt, text):
    """There it is computed first, and looked at only then."""
    with pytest.raises(MarigoldError) as first:
        duck.swap([slice_of("a")], Query(sql=text), attempt=attempt, swap_id="1")
    with duck.keep_open(attempt, [slice_of("a"), slice_of("b")]) as kept:
        kept.swap([slice_of("b")], Query(sql="SELECT 'b' AS key, 7::BIGINT AS value"), attempt=attempt, swap_id="2")
        before = kept.read(TABLE).to_pylist()
        with pytest.raises(MarigoldError) as later:
            kept.swap([slice_of("a")], Query(sql=text), attempt=attempt, swap_id="3")
        assert str(later.value) == str(first.value)
        assert type(later.value) is type(first.value)
        assert kept.read(TABLE).to_pylist() == before
        kept.swap([slice_of("b")], Query(sql="SELECT 'b' AS key, 8::BIGINT AS value"), attempt=attempt, swap_id="4")


FITTED = {
    "NULL": ("SELECT 'a' AS key, NULL AS value", False, [None]),
    "narrower": ("SELECT 'a' AS key, 7::TINYINT AS value", False, [7]),
    "in another order": ("SELECT 7::BIGINT AS value, 'a' AS key", False, [7]),
    "spelled otherwise": ("SELECT 7::BIGINT AS VALUE, 'a' AS Key", False, [7]),
    "nothing": ("SELECT 'a' AS key, 7::BIGINT AS value WHERE false", False, []),
    "its own rows": ("SELECT key, value + 10 AS value FROM sales.daily WHERE key = 'a'", False, [11, 12]),
    "wider": ("SELECT 'a' AS key, 7::HUGEINT AS value", True, [7]),
    "one column more": ("SELECT 'a' AS key, 7::BIGINT AS value, 8 AS more", True, [7]),
}


@pytest.mark.parametrize(("text", "evolve", "values"), FITTED.values(), ids=FITTED.keys())
def test_sql_is_fitted_to_its_table_after_other_swaps_of_an_opening(duck, attempt, text, evolve, values):
    options = SwapOptions(evolve=evolve)
    with duck.keep_open(attempt, [slice_of("a"), slice_of("b")]) as kept:
        kept.swap([slice_of("b")], Query(sql="SELECT 'b' AS key, 7::BIGINT AS value"), attempt=attempt, swap_id="1")
        [receipt] = kept.swap([slice_of("a")], Query(sql=text), attempt=attempt, swap_id="2", options=options)
        assert kept.read(TABLE, [slice_of("a")])["value"].to_pylist() == values
        assert receipt.entry.content_hash == kept.content_hash(slice_of("a"))
        assert receipt.entry.columns == kept.columns(TABLE)


@pytest.mark.parametrize("value", ["1.5::DOUBLE", "true", "3000000000", "1.50::DECIMAL(9,2)"])
def test_a_column_of_nothing_yet_gets_its_type_within_an_opening(duck, attempt, value):
    with duck.keep_open(attempt, [slice_of("a"), slice_of("b"), slice_of("c")]) as kept:
        for key, given in {"a": "NULL", "b": "NULL", "c": value}.items():
            query = Query(sql=f"SELECT '{key}' AS key, 1::BIGINT AS value, {given} AS more")
            options = SwapOptions(evolve=key == "a")
            [receipt] = kept.swap([slice_of(key)], query, attempt=attempt, swap_id=key, options=options)
    with duckdb.connect() as elsewhere:
        [(kind,)] = elsewhere.execute(f"SELECT typeof({value})").fetchall()
    assert {column.name: column.type for column in receipt.entry.columns}["more"] == kind


def test_two_columns_of_one_name_are_not_taken_for_those_that_the_table_has(duck, attempt):
    text = "SELECT 'a' AS key, 1::BIGINT AS value, 2::BIGINT AS value_1"
    with duck.keep_open(attempt, [slice_of("a"), slice_of("b")]) as kept:
        kept.swap([slice_of("a")], Query(sql=text), attempt=attempt, swap_id="1", options=SwapOptions(evolve=True))
        kept.swap([slice_of("a")], Query(sql=text), attempt=attempt, swap_id="2")
        with pytest.raises(MarigoldError, match="cannot tell apart"):
            kept.swap([slice_of("a")], Query(sql=text.replace("value_1", "value")), attempt=attempt, swap_id="3")


@pytest.mark.parametrize("filled", [True, False])
def test_the_fence_is_looked_at_once_an_opening(path, duck, draw, filled):
    """After its first swap, a small one is ten statements."""
    attempt, labels = draw(), []
    if filled:
        swap(duck, attempt, {"a": [1], "b": [2]}, swap_id="filled")
    slices = [slice_of(key) for key in ("a", "b", "c")]
    with DuckDBStore(str(path), observer=labels.append).keep_open(attempt, slices) as kept:
        for key in ("a", "b", "c"):
            labels.clear()
            query = Query(sql=f"SELECT '{key}' AS key, 7::BIGINT AS value")
            kept.swap([slice_of(key)], query, attempt=attempt, swap_id=key)
            assert ("read claims" in labels) == (key == "a")
        assert labels == SMALL_SWAP["SQL"]
        for number in (1, 2):
            labels.clear()
            swap(kept, attempt, {"a": [5]}, swap_id=f"rows {number}")
        assert labels == SMALL_SWAP["rows"]
    assert [entry.token for entry in duck.heads(TABLE).values()] == [attempt.token] * 3
    with duckdb.connect(str(path)) as connection:
        marks = connection.execute("SELECT partition_key, high_water FROM marigold.fence ORDER BY ALL").fetchall()
    assert marks == [(key, attempt.token) for key in ("a", "b", "c")]


def test_a_first_swap_that_is_refused_has_not_looked_for_the_others(duck, path, draw):
    """Or the table would belong to somebody who never wrote it."""
    attempt = draw()
    with duck.keep_open(attempt, [slice_of("a"), slice_of("b")]) as kept, pytest.raises(MarigoldError, match="outside"):
        kept.swap([slice_of("a")], table_of([{"key": "z", "value": 1}]), attempt=attempt, swap_id="1")
    with duckdb.connect(str(path)) as connection:
        assert connection.execute("FROM marigold.fence UNION ALL BY NAME FROM marigold.claims").fetchall() == []


def test_a_commit_that_failed_within_an_opening_is_an_error_and_the_next_swap_goes_through(path, duck, attempt):
    failing = []

    def observe(label):
        if label == "commit" and failing:
            raise failing.pop()

    store = DuckDBStore(str(path), observer=observe)
    with store.keep_open(attempt, [slice_of("a"), slice_of("b")]) as kept:
        swap(kept, attempt, {"a": [5]}, swap_id="1")
        failing.append(duckdb.IOException("disk gone"))
        with pytest.raises(StoreUnavailableError, match="disk gone"):
            swap(kept, attempt, {"b": [5]}, swap_id="2")
        [receipt] = swap(kept, attempt, {"b": [6]}, swap_id="2")
        assert not receipt.replayed
    assert sorted(duck.read(TABLE)["value"].to_pylist()) == [5, 6]


@pytest.mark.parametrize("is_kept", [True, False])
@pytest.mark.parametrize("is_committed", [True, False])
def test_an_interrupt_at_commit_is_one_and_says_whether_that_was_in_time(
    duck, attempt, monkeypatch, is_kept, is_committed
):
    execute, interrupts = Session.execute, [1]

    def interrupted(session, label, statement, parameters=()):
        is_due = label == "commit" and interrupts
        rows = [] if is_due and not is_committed else execute(session, label, statement, parameters)
        if is_due:
            interrupts.pop()
            raise RuntimeError("Query interrupted")
        return rows

    with ExitStack() as until_done:
        store = until_done.enter_context(duck.keep_open(attempt, [slice_of("a")])) if is_kept else duck
        monkeypatch.setattr(Session, "execute", interrupted)
        with pytest.raises(KeyboardInterrupt) as raised:
            swap(store, attempt, {"a": [5]}, swap_id="1")
    assert isinstance(raised.value, CommittedInterrupt) == is_committed
    assert duck.read(TABLE, [slice_of("a")])["value"].to_pylist() == ([5] if is_committed else [1, 2])
    if is_committed:
        assert [receipt.entry for receipt in raised.value.receipts] == list(duck.receipts("1"))


def test_a_conflict_within_an_opening_is_tried_again(path, duck, attempt, rival):
    seen = []

    def observe(label):
        seen.append(label)
        if label == "touch counter" and seen.count(label) == 3:
            rival.execute("ROLLBACK")

    store = DuckDBStore(str(path), observer=observe)
    with store.keep_open(attempt, [slice_of("a"), slice_of("b")]) as kept:
        swap(kept, attempt, {"a": [5]}, swap_id="1")
        rival.execute("BEGIN TRANSACTION; UPDATE marigold.counter SET last_position = last_position + 1")
        swap(kept, attempt, {"b": [6]}, swap_id="2")
    assert seen.count("touch counter") == 3
    assert sorted(duck.read(TABLE)["value"].to_pylist()) == [5, 6]


# Relations

BERLIN = "Europe/Berlin"


def moment(number, expression="at_"):
    start = datetime(2024, 2, 29, 23, tzinfo=UTC) + timedelta(days=number - 1)
    interval = Interval(expression=expression, start=start, end=start + timedelta(days=1), timezone=BERLIN)
    return PartitionSlice(
        table=TableName(schema="sales", name="moments"),
        partition_key=f"{number}",
        conditions=(interval,),
        owner="moments",
    )


@pytest.fixture
def moments(duck, attempt):
    times = [datetime(2024, 3, 1, hour, 30, tzinfo=UTC) for hour in (1, 22, 23)]
    given = pa.table({"at_": pa.array(times, pa.timestamp("us", tz="UTC")), "value": [1, 2, 3]})
    duck.swap([moment(1), moment(2)], given, attempt=attempt, swap_id="moments")
    return moment(1).table


def test_a_relation_is_swapped_as_the_sql_that_it_is(duck, attempt):
    with duck.keep_open(attempt, alone=False) as kept:
        relation = kept.relation(TABLE, [slice_of("a")], ["value"])
        derived = relation.filter("value > 1").aggregate("'b' AS key, sum(value)::BIGINT AS value")
        query = kept.query_of(derived)
        swap(kept, attempt, {"a": [2, 40]}, swap_id="1")  # a lazy relation sees it
        kept.swap([slice_of("b")], query, attempt=attempt, swap_id="2")
        assert kept.read(TABLE, [slice_of("b")])["value"].to_pylist() == [42]
        assert derived.fetchall() == [("b", 42)]


def test_a_relation_joins_another_of_the_same_opening(duck, attempt):
    with duck.keep_open(attempt, alone=False) as kept:
        a, b = kept.relation(TABLE, [slice_of("a")]), kept.relation(TABLE, [slice_of("b")])
        query = kept.query_of(a.union(b).aggregate("'c' AS key, sum(value)::BIGINT AS value"))
        kept.swap([slice_of("c")], query, attempt=attempt, swap_id="1")
        assert kept.read(TABLE, [slice_of("c")])["value"].to_pylist() == [6]


@pytest.mark.parametrize("other", ["arrow", "pandas", "values"])
def test_a_relation_that_joins_what_python_holds_has_no_sql(duck, attempt, other):
    with duck.keep_open(attempt, alone=False) as kept:
        relation = kept.relation(TABLE, [slice_of("a")])
        connection = kept._opening._session.connection
        theirs = {
            "arrow": lambda: connection.from_arrow(pa.table({"value": [1]})),
            "pandas": lambda: connection.from_df(pd.DataFrame({"value": [1]})),
            "values": lambda: connection.from_arrow(pa.table({"value": [1]})).project("value + 0 AS value"),
        }[other]()
        joined = relation.join(theirs.set_alias("theirs"), "value")
        assert kept.query_of(joined) is None
        assert joined.to_arrow_table().num_rows == 1
        swap(kept, attempt, {"a": [5]}, swap_id="1")


def test_a_relation_of_elsewhere_has_no_sql(duck, attempt):
    with duck.keep_open(attempt, alone=False) as kept, duckdb.connect() as elsewhere:
        assert kept.query_of(elsewhere.sql("SELECT 1 AS a")) is None
        earlier = kept.relation(TABLE)
        assert kept.query_of(earlier) is not None
    with duck.keep_open(attempt, alone=False) as kept:
        assert kept.query_of(kept._opening._session.connection.sql("SELECT 1 AS a")) is None
        text = re.sub(r"marigold_[0-9a-f]{32}", "marigold_other", kept.relation(TABLE).sql_query())
        assert kept.query_of(kept._opening._session.connection.sql(text)) is None


def test_a_relation_within_a_snapshot_is_asked_for_its_sql_without_breaking_it(duck, attempt):
    with duck.keep_open(attempt, alone=False) as kept, kept.snapshot():
        relation = kept.relation(TABLE, [slice_of("a")])
        theirs = kept._opening._session.connection.from_arrow(pa.table({"value": [1]}))
        assert kept.query_of(relation.join(theirs.set_alias("theirs"), "value")) is None
        assert kept.query_of(relation) is not None
        assert kept.read(TABLE).num_rows == 3


def test_a_relation_holds_the_rows_of_its_slices_in_whatever_zone_it_is_run(duck, attempt, moments):
    with duck.keep_open(attempt, alone=False) as kept:
        plain = kept.relation(moments, [moment(1)])
        of_zone = kept.relation(moments, [moment(1, "CAST(at_ AS DATE)")])
        kept.read(TABLE)  # in UTC
        for relation in (plain, of_zone):
            assert sorted(relation.to_arrow_table()["value"].to_pylist()) == [1, 2]
        assert kept.query_of(plain) is not None
        assert kept.query_of(of_zone) is None
        swap(kept, attempt, {"a": [5]}, swap_id="1")


def test_a_relation_of_what_is_not_there_is_refused(duck, attempt):
    with duck.keep_open(attempt, alone=False) as kept:
        with pytest.raises(MissingTableError):
            kept.relation(TableName(schema="sales", name="nothing"))
        with pytest.raises(MarigoldError, match="no column"):
            kept.relation(TABLE, columns=["nothing"])
        assert kept.relation(TABLE, []).fetchall() == []
