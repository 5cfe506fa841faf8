"""What the ledger says of partitions that rows are computed from."""

from __future__ import annotations

import pytest

from marigold_assets.errors import ContentDiffersError
from marigold_assets.model import CutOff, InputPartition, PartitionSlice, SwapOptions, TableName
from marigold_assets.stores.base import PartitionStore
from marigold_assets.testing.harness import TABLE, ByHand, StoreHarness, rows, swap
from marigold_assets.testing.strategies import slice_of, table_of


class LineageContract(StoreHarness):
    """Heads, and inputs."""

    def test_heads_are_the_newest_entries_of_the_keys_asked_for(self, filled: PartitionStore) -> None:
        """All of them by default; a key without an entry has none."""
        [newer] = swap(filled, self.draw(filled, "x"), {"a": [9]})
        assert filled.heads(TABLE)["a"] == newer.entry
        assert filled.heads(TABLE).keys() == {"a", "b"}
        assert filled.heads(TABLE, ["a", "never", None]) == {"a": newer.entry}
        assert filled.heads(TABLE, []) == {}
        assert filled.heads(TableName(schema="sales", name="nothing"), ["a"]) == {}

    def test_the_head_of_a_whole_table_has_no_key(self, store: PartitionStore) -> None:
        """``None`` is a key like others."""
        whole = PartitionSlice(table=TABLE, partition_key=None, owner="daily")
        [receipt] = store.swap([whole], table_of(rows("a", 1)), attempt=self.draw(store, "x"), swap_id="x")
        assert store.heads(TABLE, [None]) == store.heads(TABLE, [None, "a"]) == {None: receipt.entry}
        assert store.heads(TABLE, ["a"]) == {}
        [found] = store.inputs([whole])
        assert found == InputPartition(owner="daily", partition_key=None, content_hash=receipt.entry.content_hash)

    def test_inputs_are_what_slices_of_any_tables_hold_now(self, filled: PartitionStore) -> None:
        """In the order asked for: by the newest entry, and unknown where there is none."""
        other = TableName(schema="sales", name="other")
        swapped = slice_of("a", table=other, owner="other")
        [receipt] = filled.swap([swapped], table_of(rows("a", 7)), attempt=self.draw(filled, "x"), swap_id="x")
        heads = filled.heads(TABLE)
        missing = slice_of("a", table=TableName(schema="sales", name="nothing"), owner="nothing")
        wanted = [slice_of("b"), swapped, missing, slice_of("z"), slice_of("a"), slice_of("b")]
        assert [(found.owner, found.partition_key, found.content_hash) for found in filled.inputs(wanted)] == [
            ("daily", "b", heads["b"].content_hash),
            ("other", "a", receipt.entry.content_hash),
            ("nothing", "a", None),
            ("daily", "z", None),
            ("daily", "a", heads["a"].content_hash),
            ("daily", "b", heads["b"].content_hash),
        ]
        assert filled.inputs([]) == ()

    def test_an_input_that_was_materialized_empty_is_known(self, filled: PartitionStore) -> None:
        """Empty is not missing (S6)."""
        [receipt] = swap(filled, self.draw(filled, "x"), {"a": []})
        [found] = filled.inputs([slice_of("a")])
        assert found.content_hash == receipt.entry.content_hash

    def test_the_rows_of_a_table_are_counted_whoever_wrote_them(self, filled: PartitionStore) -> None:
        """Of the whole table, and not what the ledger says."""
        before = filled.row_count(TABLE)
        assert before == sum(entry.row_count for entry in filled.heads(TABLE).values())
        swap(filled, self.draw(filled, "x"), {"a": []})
        assert filled.row_count(TABLE) == filled.heads(TABLE)["b"].row_count
        assert filled.row_count(TableName(schema="sales", name="nothing")) is None

    def test_inputs_of_a_store_without_anything_are_unknown(self, store: PartitionStore) -> None:
        """Nothing was ever written."""
        [found] = store.inputs([slice_of("a")])
        assert found == InputPartition(owner="daily", partition_key="a", content_hash=None)

    def test_inputs_do_not_hold_what_a_dropped_table_held(self, filled: PartitionStore, by_hand: ByHand) -> None:
        """Neither rows nor what was stored empty, whatever the ledger says."""
        swap(filled, self.draw(filled, "x"), {"c": []})
        by_hand(TABLE, None)
        assert _hashes(filled, "a", "b", "c", "z") == [None] * 4

    def test_inputs_do_not_hold_what_a_table_held_that_another_has_replaced(
        self, filled: PartitionStore, by_hand: ByHand
    ) -> None:
        """Only what was swapped since counts."""
        by_hand(TABLE, None)
        [receipt] = swap(filled, self.draw(filled, "x"), {"b": [4]})
        assert _hashes(filled, "a", "b") == [None, receipt.entry.content_hash]

    def test_inputs_do_not_hold_rows_that_were_deleted(self, filled: PartitionStore, by_hand: ByHand) -> None:
        """All of a slice; the others are what they were."""
        before = _hashes(filled, "a", "b")
        by_hand(TABLE, table_of(rows("b", 3)))
        assert _hashes(filled, "a", "b") == [None, before[1]]

    @pytest.mark.parametrize("values", [(1,), (1, 2, 3)], ids=["fewer", "more"])
    def test_inputs_are_measured_that_have_more_or_fewer_rows_than_were_stored(
        self, filled: PartitionStore, by_hand: ByHand, values: tuple[int, ...]
    ) -> None:
        """Like rows that were never swapped."""
        before = _hashes(filled, "a", "b")
        by_hand(TABLE, table_of(rows("a", *values) + rows("b", 3)))
        found = _hashes(filled, "a", "b")
        assert found == [filled.content_hash(slice_of("a")), before[1]]
        assert found[0] != before[0]
        assert _hashes(filled, "a") == found[:1]

    def test_rows_added_to_what_was_stored_empty_are_an_input(self, filled: PartitionStore, by_hand: ByHand) -> None:
        """Empty counts as long as it is empty."""
        [receipt] = swap(filled, self.draw(filled, "x"), {"a": []})
        by_hand(TABLE, table_of(rows("b", 3)))
        assert _hashes(filled, "a") == [receipt.entry.content_hash]
        by_hand(TABLE, table_of(rows("a", 3)))
        assert _hashes(filled, "a", "b") == [filled.content_hash(slice_of("a")), None]

    def test_the_head_of_a_whole_table_counts_while_its_rows_are_there(
        self, store: PartitionStore, by_hand: ByHand
    ) -> None:
        """With one row more the table is measured, without any it holds nothing."""
        whole = PartitionSlice(table=TABLE, partition_key=None, owner="daily")
        [receipt] = store.swap([whole], table_of(rows("a", 1)), attempt=self.draw(store, "x"), swap_id="x")
        assert store.inputs([whole])[0].content_hash == receipt.entry.content_hash
        by_hand(TABLE, table_of(rows("a", 1, 2)))
        assert store.inputs([whole])[0].content_hash == store.content_hash(whole) != receipt.entry.content_hash
        by_hand(TABLE, table_of([]))
        assert store.inputs([whole])[0].content_hash is None

    @pytest.mark.parametrize("way", ["deleted", "dropped"])
    def test_no_rows_are_no_confirmation_where_rows_have_gone(
        self, filled: PartitionStore, by_hand: ByHand, way: str
    ) -> None:
        """The newest entry says that there were some: that there are none now is to be recorded as a change."""
        by_hand(TABLE, table_of([]) if way == "deleted" else None)
        if way == "dropped":
            swap(filled, self.draw(filled, "b"), {"b": [3]})
        verify, on = SwapOptions(cut_off=CutOff.VERIFY), SwapOptions(cut_off=CutOff.ON)
        with pytest.raises(ContentDiffersError, match="nothing is stored"):
            swap(filled, self.draw(filled, "x"), {"a": []}, options=verify)
        confirmed = [
            swap(filled, self.draw(filled, run_id), {"a": []}, options=on)[0].entry.confirmed for run_id in ("y", "z")
        ]
        assert confirmed == [False, True]


def _hashes(store: PartitionStore, *keys: str) -> list[str | None]:
    return [found.content_hash for found in store.inputs([slice_of(key) for key in keys])]
