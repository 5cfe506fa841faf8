"""Swaps of rows that may be those that are stored."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from marigold_assets.errors import (
    ContentDiffersError,
    FencedOutError,
    InvalidDataError,
    LossyCastError,
    RowsOutsidePartitionError,
    SchemaMismatchError,
)
from marigold_assets.model import Attempt, CutOff, PartitionSlice, Provenance, SwapOptions
from marigold_assets.stores.base import PartitionStore
from marigold_assets.testing.crashes import Crash, fail_at
from marigold_assets.testing.harness import TABLE, MakeStore, StoreHarness, rows, sorted_rows, state, swap
from marigold_assets.testing.strategies import slice_of, table_of

ON, VERIFY = SwapOptions(cut_off=CutOff.ON), SwapOptions(cut_off=CutOff.VERIFY)
_ONE: list[int | None] = [1]
_ONE_AND_NONE: tuple[list[int | None], ...] = (_ONE, [])
BOTH = pytest.mark.parametrize("options", [ON, VERIFY], ids=["on", "verify"])


class ConfirmationContract(StoreHarness):
    """What is written where nothing has changed."""

    @BOTH
    def test_rows_that_are_stored_are_confirmed(self, filled: PartitionStore, options: SwapOptions) -> None:
        """In whatever order, and however often each: with an entry of their own."""
        before, attempt = filled.heads(TABLE)["a"], self.draw(filled, "x")
        provenance = Provenance(code_version="2")
        [receipt] = swap(filled, attempt, {"a": [2, 1]}, options=options, provenance=provenance)
        entry = receipt.entry
        assert entry.confirmed
        assert (entry.token, entry.run_id, entry.provenance) == (attempt.token, "x", provenance)
        assert (entry.content_hash, entry.column_hashes) == (before.content_hash, before.column_hashes)
        assert filled.heads(TABLE)["a"] == entry
        assert not before.confirmed
        assert sorted_rows(filled.read(TABLE, [slice_of("a")])) == rows("a", 1, 2)

    def test_without_cut_off_everything_is_replaced(self, filled: PartitionStore) -> None:
        """By default."""
        [receipt] = swap(filled, self.draw(filled, "x"), {"a": [1, 2]})
        assert not receipt.entry.confirmed

    @pytest.mark.parametrize("values", [[1], [1, 2, 2], [1, 3], [None, None], []], ids=repr)
    def test_slices_that_differ_are_replaced_beside_others_that_do_not(
        self, filled: PartitionStore, values: list[int | None]
    ) -> None:
        """S3 and S10."""
        receipts = swap(filled, self.draw(filled, "x"), {"c": [], "a": values, "b": [3]}, options=ON)
        assert [receipt.entry.confirmed for receipt in receipts] == [False, False, True]
        assert [receipt.entry.row_count for receipt in receipts] == [0, len(values), 1]
        assert sorted_rows(filled.read(TABLE)) == sorted(rows("a", *values), key=repr) + rows("b", 3)
        for receipt in receipts:
            held = filled.content_hash(slice_of(str(receipt.entry.partition_key)))
            assert receipt.entry.content_hash == held

    def test_all_slices_that_differ_are_replaced(self, filled: PartitionStore) -> None:
        """S10."""
        receipts = swap(filled, self.draw(filled, "x"), {"a": [5], "b": []}, options=ON)
        assert not any(receipt.entry.confirmed for receipt in receipts)
        assert filled.read(TABLE).to_pylist() == rows("a", 5)

    @pytest.mark.parametrize("values", [[1], [1, 2, 2], [1, 3], [None, None], []], ids=repr)
    def test_what_was_to_be_verified_and_differs_is_refused(
        self, filled: PartitionStore, values: list[int | None]
    ) -> None:
        """And neither rows nor fence nor ledger change: not even of the slice that is the same."""
        older, attempt = self.draw(filled, "older"), self.draw(filled, "x")
        before = state(filled)
        with pytest.raises(ContentDiffersError, match=rf"the {len(values)} rows .* the 2 rows .*'value'") as caught:
            swap(filled, attempt, {"b": [3], "a": values}, options=VERIFY)
        assert caught.value.where["partition"] == "a"
        assert state(filled) == before
        swap(filled, older, {"a": [7]})

    def test_what_was_never_materialized_cannot_be_verified(self, store: PartitionStore, attempt: Attempt) -> None:
        """Neither a new table nor a new slice, be it empty."""
        for values in _ONE_AND_NONE:
            with pytest.raises(ContentDiffersError, match="nothing is stored"):
                swap(store, attempt, {"a": values}, options=VERIFY)
        assert store.columns(TABLE) is None
        swap(store, attempt, {"a": [1]}, swap_id="fill")
        before = state(store)
        for values in _ONE_AND_NONE:
            with pytest.raises(ContentDiffersError, match="nothing is stored"):
                swap(store, attempt, {"z": values}, options=VERIFY)
        assert state(store) == before

    def test_what_was_never_materialized_is_swapped(self, store: PartitionStore, attempt: Attempt) -> None:
        """S6: empty is not missing, but once it is recorded it can be confirmed."""
        first = [swap(store, attempt, {"a": values}, swap_id=f"{values}", options=ON) for values in (_ONE, _ONE)]
        empty = [swap(store, attempt, {"z": []}, swap_id=f"z {number}", options=ON) for number in (1, 2)]
        verified = swap(store, attempt, {"z": []}, swap_id="z 3", options=VERIFY)
        assert [r.entry.confirmed for [r] in (*empty, verified)] == [False, True, True]
        assert [r.replayed for [r] in first] == [False, True]

    def test_a_confirmed_table_without_partitions_is_one_slice(self, store: PartitionStore) -> None:
        """S10: the whole table."""
        whole = PartitionSlice(table=TABLE, partition_key=None, owner="daily")
        for number, confirmed in ((1, False), (1, True), (2, False), (2, True)):
            given = table_of(rows("x", number) + rows("y", number))
            token = self.draw(store, "x")
            [receipt] = store.swap([whole], given, attempt=token, swap_id=f"{token.token}", options=ON)
            assert receipt.entry.confirmed is confirmed
        assert sorted_rows(store.read(TABLE)) == rows("x", 2) + rows("y", 2)

    @BOTH
    def test_a_confirmation_passes_the_fence_like_any_swap(self, filled: PartitionStore, options: SwapOptions) -> None:
        """S2: it is refused, it refuses others, and it is repeated under its id (S7)."""
        old, middle, new = (self.draw(filled, name) for name in ("old", "middle", "new"))
        [first] = swap(filled, middle, {"a": [1, 2]}, options=options)
        with pytest.raises(FencedOutError):
            swap(filled, old, {"a": [1, 2]}, options=options)
        with pytest.raises(FencedOutError):
            swap(filled, old, {"a": [9]})
        [again] = swap(filled, middle, {"a": [1, 2]}, options=options)
        assert (again.entry, again.replayed) == (first.entry, True)
        swap(filled, new, {"a": [9]})

    @BOTH
    @pytest.mark.parametrize(
        ("given", "kind"),
        [
            (rows("a", 1, 2) + rows("b", 3), RowsOutsidePartitionError),
            ([{"key": None, "value": 1}], RowsOutsidePartitionError),
        ],
        ids=["another slice", "null"],
    )
    def test_rows_outside_are_refused_as_ever(
        self, filled: PartitionStore, options: SwapOptions, given: list[dict[str, Any]], kind: type[InvalidDataError]
    ) -> None:
        """S4."""
        before = state(filled)
        with pytest.raises(kind):
            filled.swap([slice_of("a")], table_of(given), attempt=self.draw(filled, "x"), swap_id="x", options=options)
        assert state(filled) == before

    @BOTH
    def test_rows_are_compared_as_they_would_be_stored(self, filled: PartitionStore, options: SwapOptions) -> None:
        """S4: in the types of the table, by the casts of an insert, which lose nothing."""
        given = pa.table({"value": pa.array([2.0, 1.0]), "key": ["a", "a"]})
        [receipt] = filled.swap([slice_of("a")], given, attempt=self.draw(filled, "x"), swap_id="x", options=options)
        assert receipt.entry.confirmed
        before = state(filled)
        lossy = pa.table({"value": pa.array([2.5, 1.0]), "key": ["a", "a"]})
        with pytest.raises(LossyCastError):
            filled.swap([slice_of("a")], lossy, attempt=self.draw(filled, "y"), swap_id="y", options=options)
        assert state(filled) == before

    def test_a_table_does_not_grow_to_be_verified(self, filled: PartitionStore) -> None:
        """Nothing is written, and a column is something."""
        before = state(filled)
        given = table_of(rows("a", 1, 2)).append_column("more", [["x", "y"]])
        options = SwapOptions(cut_off=CutOff.VERIFY, evolve=True)
        with pytest.raises(SchemaMismatchError):
            filled.swap([slice_of("a")], given, attempt=self.draw(filled, "x"), swap_id="x", options=options)
        assert state(filled) == before

    def test_a_table_grows_where_rows_may_be_confirmed(self, filled: PartitionStore) -> None:
        """S4: what differs by a new column differs."""
        given = table_of(rows("a", 1, 2)).append_column("more", [["x", "y"]])
        options = SwapOptions(cut_off=CutOff.ON, evolve=True)
        [first] = filled.swap([slice_of("a")], given, attempt=self.draw(filled, "x"), swap_id="x", options=options)
        [second] = filled.swap([slice_of("a")], given, attempt=self.draw(filled, "y"), swap_id="y", options=options)
        assert [first.entry.confirmed, second.entry.confirmed] == [False, True]
        assert filled.read(TABLE).num_rows == 3

    @BOTH
    def test_a_stream_is_compared_like_a_table(self, filled: PartitionStore, options: SwapOptions) -> None:
        """S3."""
        reader = table_of(rows("a", 2, 1)).to_reader(max_chunksize=1)
        [receipt] = filled.swap([slice_of("a")], reader, attempt=self.draw(filled, "x"), swap_id="x", options=options)
        assert receipt.entry.confirmed

    def test_a_confirmation_broken_off_at_any_statement_changes_nothing(
        self, make_store: MakeStore, filled: PartitionStore
    ) -> None:
        """S5: nor does a swap of a slice beside it."""
        before, point = state(filled), 0
        while True:
            point += 1
            attempt = self.draw(make_store(), f"run {point}")
            try:
                swap(make_store(observer=fail_at(point)), attempt, {"a": [1, 2], "b": [4], "c": []}, options=ON)
            except Crash:
                assert state(make_store()) == before
                continue
            break
        assert point > 3
        assert sorted_rows(filled.read(TABLE)) == rows("a", 1, 2) + rows("b", 4)
        assert [filled.heads(TABLE)[key].confirmed for key in "abc"] == [True, False, False]
