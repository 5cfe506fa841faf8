"""S3 and S4 of the store contract: what a swap replaces, and which rows it refuses."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from marigold_assets.errors import (
    InvalidDataError,
    LossyCastError,
    RowsOutsidePartitionError,
    SchemaMismatchError,
)
from marigold_assets.model import Attempt, SwapOptions
from marigold_assets.stores.base import PartitionStore
from marigold_assets.testing.harness import TABLE, StoreHarness, rows, sorted_rows, state, swap
from marigold_assets.testing.strategies import slice_of, table_of


class ReplacementContract(StoreHarness):
    """What is written."""

    # S3

    def test_a_swap_replaces_its_slice_and_no_other(self, filled: PartitionStore) -> None:
        """S3."""
        swap(filled, self.draw(filled, "x"), {"a": [7, 7, None]})
        assert sorted_rows(filled.read(TABLE, [slice_of("a")])) == rows("a", 7, 7, None)
        assert filled.read(TABLE, [slice_of("b")]).to_pylist() == rows("b", 3)
        assert filled.read(TABLE).num_rows == 4

    def test_columns_go_by_name_whatever_their_order(self, filled: PartitionStore) -> None:
        """S3."""
        given = table_of(rows("a", 5)).select(["value", "key"])
        filled.swap([slice_of("a")], given, attempt=self.draw(filled, "x"), swap_id="x")
        assert filled.read(TABLE, [slice_of("a")]).to_pylist() == rows("a", 5)

    def test_a_stream_is_stored_like_a_table(self, filled: PartitionStore) -> None:
        """S3."""
        reader = table_of(rows("a", 5, 6)).to_reader(max_chunksize=1)
        filled.swap([slice_of("a")], reader, attempt=self.draw(filled, "x"), swap_id="x")
        assert sorted_rows(filled.read(TABLE, [slice_of("a")])) == rows("a", 5, 6)

    # S4

    @pytest.mark.parametrize("outside", [rows("b", 1), [{"key": None, "value": 1}], rows("A", 1)], ids=repr)
    def test_a_row_outside_its_slice_is_refused(self, filled: PartitionStore, outside: list[dict[str, Any]]) -> None:
        """S4: another slice's row, a NULL partition value, and a key in other case."""
        before = state(filled)
        with pytest.raises(RowsOutsidePartitionError, match="1 of 2 rows"):
            filled.swap(
                [slice_of("a")],
                table_of(rows("a", 1) + outside),
                attempt=self.draw(filled, "x"),
                swap_id="x",
            )
        assert state(filled) == before

    @pytest.mark.parametrize(
        "names",
        [["key"], ["key", "value", "more"], ["key", "amount"], ["key", "value", "VALUE"], ["key", ""]],
    )
    def test_other_columns_than_those_of_the_table_are_refused(self, filled: PartitionStore, names: list[str]) -> None:
        """S4: missing, extra, renamed, repeated, without a name."""
        before = state(filled)
        given = pa.table([pa.array(["a"]), *(pa.array([1]) for _ in names[1:])], names=names)
        with pytest.raises(SchemaMismatchError):
            filled.swap([slice_of("a")], given, attempt=self.draw(filled, "x"), swap_id="x")
        assert state(filled) == before

    @pytest.mark.parametrize(
        ("stored", "given"),
        [
            (pa.array([1], pa.int32()), pa.array([1.6], pa.float64())),
            (pa.array([1], pa.int8()), pa.array([300], pa.int64())),
            (pa.array([True]), pa.array([7], pa.int64())),
            (pa.array([1.5], pa.float64()), pa.array([2**53 + 1], pa.int64())),
        ],
        ids=["1.6 to INTEGER", "300 to TINYINT", "7 to BOOLEAN", "2**53+1 to DOUBLE"],
    )
    def test_a_lossy_cast_is_refused(
        self, store: PartitionStore, attempt: Attempt, stored: pa.Array[Any], given: pa.Array[Any]
    ) -> None:
        """S4."""
        keys = pa.array(["a"])
        store.swap([slice_of("a")], pa.table({"key": keys, "value": stored}), attempt=attempt, swap_id="1")
        before = state(store)
        with pytest.raises(LossyCastError, match="'value'"):
            store.swap([slice_of("a")], pa.table({"key": keys, "value": given}), attempt=attempt, swap_id="2")
        assert state(store) == before

    def test_another_kind_of_value_is_refused(self, filled: PartitionStore) -> None:
        """S4: text that happens to look like a number is no number."""
        before = state(filled)
        with pytest.raises(SchemaMismatchError, match="'value'"):
            filled.swap(
                [slice_of("a")],
                pa.table({"key": ["a"], "value": ["1"]}),
                attempt=self.draw(filled, "x"),
                swap_id="x",
            )
        assert state(filled) == before

    def test_a_narrower_type_is_stored_in_the_wider_column(self, filled: PartitionStore) -> None:
        """S4 refuses what loses, and nothing else."""
        given = pa.table({"key": ["a"], "value": pa.array([5], pa.int8())})
        filled.swap([slice_of("a")], given, attempt=self.draw(filled, "x"), swap_id="x")
        assert filled.read(TABLE, [slice_of("a")]).to_pylist() == rows("a", 5)
        assert filled.columns(TABLE) == filled.ledger()[0].columns

    def test_a_column_of_nothing_but_null_takes_its_first_real_type(
        self, store: PartitionStore, attempt: Attempt
    ) -> None:
        """S4: its type was a guess."""
        nothing = pa.table({"key": ["a"], "value": pa.nulls(1)})
        store.swap([slice_of("a")], nothing, attempt=attempt, swap_id="1")
        store.swap([slice_of("b")], pa.table({"key": ["b"], "value": ["x"]}), attempt=attempt, swap_id="2")
        assert sorted_rows(store.read(TABLE)) == [{"key": "a", "value": None}, {"key": "b", "value": "x"}]
        store.swap([slice_of("a")], nothing, attempt=attempt, swap_id="3")
        with pytest.raises(SchemaMismatchError):
            swap(store, attempt, {"a": [1]}, swap_id="4")

    def test_a_table_grows_when_its_asset_opts_in(self, filled: PartitionStore) -> None:
        """S4: new columns are NULL in old rows, and types widen."""
        given = pa.table({"key": ["a"], "value": [1.5], "more": ["x"]})
        options = SwapOptions(evolve=True)
        filled.swap([slice_of("a")], given, attempt=self.draw(filled, "x"), swap_id="x", options=options)
        assert sorted_rows(filled.read(TABLE)) == [
            {"key": "a", "value": 1.5, "more": "x"},
            {"key": "b", "value": 3.0, "more": None},
        ]

    def test_a_table_does_not_grow_at_the_price_of_a_value(self, store: PartitionStore, attempt: Attempt) -> None:
        """S4: 2**53 + 1 is no double, so the column cannot become one."""
        swap(store, attempt, {"a": [2**53 + 1]})
        before = state(store)
        with pytest.raises(InvalidDataError):
            store.swap(
                [slice_of("b")],
                pa.table({"key": ["b"], "value": [1.5]}),
                attempt=attempt,
                swap_id="2",
                options=SwapOptions(evolve=True),
            )
        assert state(store) == before
