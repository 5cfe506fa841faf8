"""What the ledger says of partitions that rows are computed from."""

from __future__ import annotations

from marigold_assets.model import InputPartition, PartitionSlice, TableName
from marigold_assets.stores.base import PartitionStore
from marigold_assets.testing.harness import TABLE, StoreHarness, rows, swap
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

    def test_inputs_of_a_store_without_anything_are_unknown(self, store: PartitionStore) -> None:
        """Nothing was ever written."""
        [found] = store.inputs([slice_of("a")])
        assert found == InputPartition(owner="daily", partition_key="a", content_hash=None)
