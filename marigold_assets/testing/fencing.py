"""S1 and S2 of the store contract: tokens and the fence."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pytest

from marigold_assets.errors import (
    FencedOutError,
)
from marigold_assets.model import Claim
from marigold_assets.stores.base import PartitionStore
from marigold_assets.testing.crashes import Crash, fail_at
from marigold_assets.testing.harness import TABLE, MakeStore, StoreHarness, rows, state, swap
from marigold_assets.testing.strategies import slice_of, table_of


class FencingContract(StoreHarness):
    """Who may write."""

    # S1

    def test_tokens_increase_across_runs_and_reopening(self, make_store: MakeStore) -> None:
        """S1."""
        tokens = [make_store().draw_token(run_id) for run_id in ("x", "y", "x", "z")]
        assert tokens == sorted(set(tokens))

    def test_tokens_increase_after_an_attempt_that_died(self, make_store: MakeStore) -> None:
        """S1: whether or not the dead one had its token, the next is higher than every one given out."""
        before = make_store().draw_token("before")
        with pytest.raises(Crash):
            make_store(observer=fail_at(1)).draw_token("dead")
        assert make_store().draw_token("after") > before

    def test_two_threads_never_draw_the_same_token(self, make_store: MakeStore) -> None:
        """S1: draw_token against draw_token."""
        make_store().draw_token("warm up")
        drawn: list[int] = []
        threads = [threading.Thread(target=lambda: drawn.append(make_store().draw_token("x"))) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(set(drawn)) == len(threads)

    # S2

    def test_an_older_attempt_is_refused_after_a_newer_one_committed(self, filled: PartitionStore) -> None:
        """S2: the high-water mark alone, without any claim."""
        old, new = self.draw(filled, "old"), self.draw(filled, "new")
        swap(filled, new, {"a": [9]})
        before = state(filled)
        with pytest.raises(FencedOutError) as caught:
            swap(filled, old, {"a": [8]})
        assert (caught.value.token, caught.value.superseded_by_token) == (old.token, new.token)
        assert (caught.value.run_id, caught.value.superseded_by_run) == ("old", "new")
        assert not caught.value.retryable
        assert state(filled) == before

    def test_an_older_attempt_is_refused_once_a_newer_one_has_claimed(self, filled: PartitionStore) -> None:
        """S2: the newer one has not written yet."""
        old, new = self.draw(filled, "old", "a"), self.draw(filled, "new", "a")
        before = state(filled)
        with pytest.raises(FencedOutError, match=r"run old .* superseded by run new"):
            swap(filled, old, {"a": [8]})
        assert state(filled) == before
        swap(filled, new, {"a": [9]})

    def test_a_claim_fences_the_slice_claimed_and_no_other(self, filled: PartitionStore) -> None:
        """S2."""
        old = self.draw(filled, "old")
        self.draw(filled, "new", "a")
        swap(filled, old, {"b": [8]})

    def test_a_run_that_claims_late_keeps_the_place_of_its_token(self, filled: PartitionStore) -> None:
        """S2: claiming is no way to get ahead of a later token."""
        old, new = self.draw(filled, "old"), self.draw(filled, "new", "a")
        filled.claim(old, [Claim(owner="daily", partition_key="a")])
        with pytest.raises(FencedOutError):
            swap(filled, old, {"a": [8]})
        swap(filled, new, {"a": [9]})

    def test_a_later_step_of_a_run_does_not_renew_its_claim(self, filled: PartitionStore) -> None:
        """S2: a run is as late as its first claim, or its steps would fence out a run that came in between."""
        self.draw(filled, "old", "a")
        new = self.draw(filled, "new", "a")
        late_step = self.draw(filled, "old", "a")
        with pytest.raises(FencedOutError):
            swap(filled, late_step, {"a": [8]})
        swap(filled, new, {"a": [9]})

    def test_steps_of_one_run_do_not_fence_each_other_out_by_claims(self, filled: PartitionStore) -> None:
        """S2: a sibling that starts later claims the same slices."""
        first = self.draw(filled, "run", "a")
        self.draw(filled, "run", "a")
        swap(filled, first, {"a": [8]})

    def test_the_same_run_in_two_processes_is_fenced_by_token(self, filled: PartitionStore) -> None:
        """S2: one run id may live in two processes."""
        zombie, retry = self.draw(filled, "run", "a"), self.draw(filled, "run", "a")
        swap(filled, retry, {"a": [9]})
        with pytest.raises(FencedOutError):
            swap(filled, zombie, {"a": [8]})

    def test_what_another_process_of_the_run_has_committed_is_not_swapped_again(self, filled: PartitionStore) -> None:
        """S7: whichever of the two comes first, exactly one wins."""
        first, second = self.draw(filled, "run", "a"), self.draw(filled, "run", "a")
        swap(filled, first, {"a": [8]}, swap_id="of the step")
        with pytest.raises(FencedOutError) as refused:
            swap(filled, second, {"a": [9]}, swap_id="of the step")
        assert (refused.value.token, refused.value.superseded_by_token) == (second.token, first.token)
        assert filled.read(TABLE, [slice_of("a")]).to_pylist() == rows("a", 8)
        swap(filled, second, {"a": [9]}, swap_id="of its next try")

    def test_an_attempt_that_has_read_elsewhere_is_as_old_as_that_and_as_new_as_its_token(
        self, filled: PartitionStore
    ) -> None:
        """S2: it is refused to whoever came after it had begun to read, and refuses whoever came before its token."""
        begun, between = self.draw(filled, "begun"), self.draw(filled, "between")
        renewed = replace(begun, token=self.draw(filled, "begun").token, since=begun.token)
        swap(filled, renewed, {"a": [10]})
        before = state(filled)
        with pytest.raises(FencedOutError):
            swap(filled, between, {"a": [20]})
        assert state(filled) == before
        swap(filled, between, {"b": [20]})
        with pytest.raises(FencedOutError):
            swap(filled, renewed, {"b": [10]}, swap_id="other")
        swap(filled, renewed, {"a": [11]}, swap_id="again")

    def test_equal_tokens_are_admitted(self, filled: PartitionStore) -> None:
        """S2: a retry within the process keeps its token."""
        attempt = self.draw(filled, "run", "a")
        swap(filled, attempt, {"a": [8]}, swap_id="one")
        swap(filled, attempt, {"a": [9]}, swap_id="two")
        assert filled.read(TABLE, [slice_of("a")]).to_pylist() == rows("a", 9)

    def test_a_refused_attempt_has_not_read_its_stream(self, filled: PartitionStore) -> None:
        """S2: a stream can be read once; whoever is refused can still do something with it."""
        old = self.draw(filled, "old")
        swap(filled, self.draw(filled, "new"), {"a": [9]})
        read: list[int] = []

        def batches() -> Iterator[pa.RecordBatch]:
            read.append(1)
            yield from table_of(rows("a", 8)).to_batches()

        reader = pa.RecordBatchReader.from_batches(table_of([]).schema, batches())
        with pytest.raises(FencedOutError):
            filled.swap([slice_of("a")], reader, attempt=old, swap_id="x")
        assert not read
        assert reader.read_all().num_rows == 1
