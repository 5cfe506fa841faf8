"""A turn at a DuckDB store: it stays open between two pieces of work, but not for long."""

from __future__ import annotations

import threading
import time
from functools import partial

import pytest

from marigold_assets.errors import ConfigurationError
from marigold_assets.model import TableName
from marigold_assets.stores.duckdb import DuckDBStore
from marigold_assets.stores.turn import Turn
from marigold_assets.testing.harness import swap
from marigold_assets.testing.strategies import slice_of

pytestmark = pytest.mark.slow

TABLE = TableName(schema="sales", name="daily")
LONG, SHORT = 60.0, 0.3


@pytest.fixture
def attempt(duck, draw):
    attempt = draw("x")
    swap(duck, attempt, {"a": [1, 2], "b": [3]}, swap_id="filled")
    return attempt


@pytest.fixture
def openings(duck, attempt):
    """Opens the store for a turn; as a function, with the number of times that it was called."""

    class Openings:
        count = 0

        def __call__(self):
            self.count += 1
            return duck.keep_open(attempt, [slice_of("a"), slice_of("b")], alone=False)

    return Openings()


def test_a_lasting_turn_opens_the_store_once(attempt, openings, duck):
    with Turn(LONG) as turn:
        for number in (5, 6):
            with turn.working(openings, lasting=True) as opened:
                swap(opened, attempt, {"a": [number]}, swap_id=f"{number}")
            assert turn.is_open
        with turn.working(openings, lasting=False) as opened:
            assert opened.read(TABLE, [slice_of("a")])["value"].to_pylist() == [6]
        assert not turn.is_open
        with turn.working(openings, lasting=True):
            pass
    assert openings.count == 2
    assert not turn.is_open
    swap(duck, attempt, {"a": [7]}, swap_id="after")


def test_a_turn_that_lasts_is_ended_for_another_process_while_other_code_runs(attempt, openings, path, processes):
    with Turn(SHORT) as turn:
        with turn.working(openings, lasting=True):
            pass
        assert processes.call("draw_token_in_time", path=str(path)).value == attempt.token + 1
        assert not turn.is_open
        with turn.working(openings, lasting=True) as opened:
            swap(opened, attempt, {"b": [5]}, swap_id="1")
    assert openings.count == 2


def test_a_turn_is_not_ended_within_a_piece_of_work(attempt, openings, path):
    drawn = []
    rival = threading.Thread(target=lambda: drawn.append(DuckDBStore(str(path)).draw_token("y")))
    with Turn(SHORT) as turn:
        with turn.working(openings, lasting=True) as opened:
            rival.start()
            rival.join(3 * SHORT)
            assert not drawn
            swap(opened, attempt, {"a": [5]}, swap_id="1")
        assert not turn.is_open  # it was over already
        rival.join(20)
        assert drawn


def test_code_between_two_pieces_of_work_waits_for_the_end_of_the_turn(duck, attempt, openings):
    with Turn(SHORT) as turn:
        refused = pytest.raises(ConfigurationError, match="reads this very database")
        with turn.working(openings, lasting=True), refused:
            duck.draw_token("y")
        begun = time.monotonic()
        assert duck.draw_token("y") > attempt.token
        assert time.monotonic() - begun < 2.0
        with turn.working(openings, lasting=True) as opened:
            assert opened.read(TABLE).num_rows == 3
            with pytest.raises(ConfigurationError, match="reads this very database"):
                duck.draw_token("y")


def test_work_that_fails_ends_the_turn(duck, attempt, openings):
    with Turn(LONG) as turn:
        with pytest.raises(RuntimeError), turn.working(openings, lasting=True):
            raise RuntimeError
        assert not turn.is_open
        assert duck.draw_token("y") > attempt.token


def test_a_store_that_cannot_be_opened_leaves_nothing_behind(duck, attempt, openings):
    with Turn(LONG) as turn:
        with pytest.raises(TypeError), turn.working(partial(duck.keep_open, "a", "b", "c"), lasting=True):
            pass
        with turn.working(openings, lasting=True):
            pass
    assert duck.draw_token("y") > attempt.token


def test_turns_that_end_by_themselves_while_work_begins_lose_nothing(duck, attempt, openings):
    """The end of the time, and the next piece of work, at about the same moment."""
    with Turn(0.05) as turn:
        for number in range(60):
            with turn.working(openings, lasting=True) as opened:
                swap(opened, attempt, {"a": [number]}, swap_id=f"{number}")
            time.sleep(0.04 + 0.0005 * number)
    assert openings.count > 20
    values = [entry.row_count for entry in duck.ledger(TABLE) if entry.partition_key == "a"]
    assert len(values) == 61
    assert duck.read(TABLE, [slice_of("a")])["value"].to_pylist() == [59]
