"""A store that is kept open for several calls."""

from __future__ import annotations

from contextlib import suppress

import pytest

from marigold_assets.errors import ConfigurationError, FencedOutError, RowsOutsidePartitionError, TableOwnedError
from marigold_assets.model import Attempt, Claim, PartitionSlice, Receipt, TableName
from marigold_assets.stores.base import PartitionStore
from marigold_assets.testing.crashes import Crash, fail_at
from marigold_assets.testing.harness import TABLE, MakeStore, StoreHarness, rows, sorted_rows, state, swap
from marigold_assets.testing.strategies import slice_of, table_of

_WANTED = [slice_of(key) for key in ("a", "b", "c")]


class OpeningContract(StoreHarness):
    """What holds within one opening holds as it does without."""

    def test_every_swap_of_an_opening_is_a_transaction_of_its_own(self, store: PartitionStore) -> None:
        """S5: what was swapped before an error stays, and so does everything about it."""
        attempt = self.draw(store, "x", "a", "b", "c")
        done: list[Receipt] = []
        with suppress(Crash), store.keep_open(attempt, _WANTED) as kept:
            done += swap(kept, attempt, {"a": [1, 2]}, swap_id="1")
            done += swap(kept, attempt, {"b": [3]}, swap_id="2")
            raise Crash
        assert sorted_rows(store.read(TABLE)) == rows("a", 1, 2) + rows("b", 3)
        assert store.ledger() == tuple(receipt.entry for receipt in done)

    def test_a_swap_refused_within_an_opening_leaves_nothing_to_the_next(self, filled: PartitionStore) -> None:
        """S4 and S5: neither rows nor a transaction."""
        attempt, before = self.draw(filled, "x", "a", "b", "c"), state(filled)
        with filled.keep_open(attempt, _WANTED) as kept:
            for number in range(2):
                with pytest.raises(RowsOutsidePartitionError):
                    kept.swap([slice_of("a")], table_of(rows("z", 1)), attempt=attempt, swap_id=f"bad {number}")
                assert state(kept) == before
                swap(kept, attempt, {"c": [number]}, swap_id=f"good {number}")
                before = state(kept)
        assert state(filled) == before

    @pytest.mark.parametrize("point", range(1, 40))
    def test_a_swap_broken_off_within_an_opening_is_as_if_it_had_not_been(
        self, make_store: MakeStore, filled: PartitionStore, point: int
    ) -> None:
        """S5: at any statement of two swaps; the same opening goes on with a third."""
        attempt, before = self.draw(filled, "x", "a", "b", "c"), state(filled)
        observe, armed = fail_at(point), list[bool]()

        def observer(label: str) -> None:
            if armed:
                observe(label)

        with make_store(observer=observer).keep_open(attempt, _WANTED) as kept:
            armed.append(True)
            done: list[Receipt] = []
            for key in ("a", "b"):
                try:
                    done += swap(kept, attempt, {key: [7]}, swap_id=key)
                except Crash:
                    break
            armed.clear()
            assert kept.ledger() == (*before[2], *(receipt.entry for receipt in done))
            again = swap(kept, attempt, {"a": [7]}, swap_id="a") + swap(kept, attempt, {"b": [7]}, swap_id="b")
            assert [receipt.replayed for receipt in again] == [number < len(done) for number in range(2)]
            swap(kept, attempt, {"c": [8]}, swap_id="c")
        assert sorted_rows(filled.read(TABLE)) == rows("a", 7) + rows("b", 7) + rows("c", 8)

    def test_reads_of_an_opening_see_its_swaps(self, store: PartitionStore) -> None:
        """As those of anybody else would."""
        attempt = self.draw(store, "x")
        with store.keep_open(attempt) as kept:
            assert kept.columns(TABLE) is None
            [receipt] = swap(kept, attempt, {"a": [1]})
            assert kept.read(TABLE).to_pylist() == rows("a", 1)
            assert kept.heads(TABLE) == {"a": receipt.entry}
            assert kept.newest(TABLE) == receipt.entry
            assert kept.inputs([slice_of("a")])[0].content_hash == kept.content_hash(slice_of("a"))
            with kept.scan(TABLE) as reader:
                assert reader.read_all().num_rows == 1

    def test_a_snapshot_is_read_within_an_opening_only(self, filled: PartitionStore) -> None:
        """And nothing is stored within it."""
        attempt, before = self.draw(filled, "x"), state(filled)
        with pytest.raises(ConfigurationError, match="kept open"), filled.snapshot():
            pass
        with filled.keep_open(attempt) as kept:
            with kept.snapshot():
                assert state(kept) == before
                assert [one.num_rows for one in kept.read_each(TABLE, [slice_of("a"), slice_of("b")])] == [2, 1]
                assert kept.heads(TABLE, ["a"])["a"].content_hash == kept.inputs([slice_of("a")])[0].content_hash
                with pytest.raises(ConfigurationError, match="snapshot"):
                    swap(kept, attempt, {"a": [9]})
            swap(kept, attempt, {"a": [9]})
        assert filled.read(TABLE, [slice_of("a")]).to_pylist() == rows("a", 9)

    @pytest.mark.parametrize("wanted", [_WANTED, _WANTED[:1], []], ids=["all", "first", "none"])
    def test_slices_that_somebody_newer_owns_are_refused_each_by_its_own_swap(
        self, filled: PartitionStore, wanted: list[PartitionSlice]
    ) -> None:
        """S2: whatever the opening was told of them, before or after its first swap; others go through."""
        self.draw(filled, "commits", "c")
        old = self.draw(filled, "old", "a", "b")
        self.draw(filled, "claims", "b")
        swap(filled, self.draw(filled, "commits"), {"c": [5]})  # a later step of a run that had claimed it earlier
        with filled.keep_open(old, wanted) as kept:
            swap(kept, old, {"a": [0]}, swap_id="a")
            swap(kept, old, {"d": [0]}, swap_id="d")
            for key in ("b", "c"):
                with pytest.raises(FencedOutError):
                    swap(kept, old, {key: [9]}, swap_id=key)
                with pytest.raises(FencedOutError):
                    swap(kept, old, {"a": [9], key: [9]}, swap_id=f"a and {key}")
            newer = Attempt(run_id="newer", token=kept.draw_token("newer"))
            kept.claim(newer, [Claim(owner="daily", partition_key="d")])
            with pytest.raises(FencedOutError):
                swap(kept, old, {"d": [9]}, swap_id="late")
        assert sorted_rows(filled.read(TABLE)) == rows("a", 0) + rows("b", 3) + rows("c", 5) + rows("d", 0)

    def test_what_an_opening_is_for_counts_as_committed_to_with_its_first_swap(self, filled: PartitionStore) -> None:
        """S2: of two processes of one run the later is not overtaken in what it is about to write."""
        earlier, later = self.draw(filled, "run"), self.draw(filled, "run")
        with filled.keep_open(later, _WANTED) as kept:
            with pytest.raises(RowsOutsidePartitionError):
                kept.swap([slice_of("a")], table_of(rows("z", 1)), attempt=later, swap_id="bad")
            swap(kept, earlier, {"b": [4]})
            swap(kept, later, {"a": [5]})
            for key in ("a", "b", "c"):
                with pytest.raises(FencedOutError):
                    swap(kept, earlier, {key: [9]}, swap_id=key)
            swap(kept, earlier, {"d": [6]}, swap_id="d")

    def test_what_a_refused_swap_has_seen_is_forgotten(self, filled: PartitionStore) -> None:
        """S2: somebody else comes in its place."""
        old, new = self.draw(filled, "old"), self.draw(filled, "new")
        with filled.keep_open(old, _WANTED) as kept:
            for done in range(2):
                with pytest.raises(RowsOutsidePartitionError):
                    kept.swap([slice_of("a")], table_of(rows("z", 1)), attempt=old, swap_id="bad")
                if not done:
                    swap(kept, new, {"b": [2]})
                with pytest.raises(FencedOutError):
                    swap(kept, old, {"b": [3]}, swap_id=f"{done}")
                swap(kept, old, {"a": [3]}, swap_id=f"good {done}")

    def test_a_table_of_another_asset_is_refused_by_its_own_swap(self, filled: PartitionStore) -> None:
        """Whatever the opening was told of it."""
        attempt, theirs = self.draw(filled, "x"), slice_of("b", owner="weekly")
        other = slice_of("a", table=TableName(schema="sales", name="weekly"), owner="weekly")
        with filled.keep_open(attempt, [other, theirs]) as kept:
            kept.swap([other], table_of(rows("a", 1)), attempt=attempt, swap_id="1")
            with pytest.raises(TableOwnedError):
                kept.swap([theirs], table_of(rows("b", 1)), attempt=attempt, swap_id="2")
            swap(kept, attempt, {"b": [4]}, swap_id="3")

    def test_an_opening_is_for_other_attempts_too(self, filled: PartitionStore) -> None:
        """S2: whoever comes later fences the earlier out, wherever both work."""
        old, new = self.draw(filled, "old"), self.draw(filled, "new")
        with filled.keep_open(old, _WANTED) as kept:
            swap(kept, old, {"a": [1]}, swap_id="before")
            swap(kept, new, {"b": [2]})
            with pytest.raises(Exception, match="superseded by run new"):
                swap(kept, old, {"b": [3]}, swap_id="after")
            swap(kept, old, {"c": [4]}, swap_id="other")
            newest = Attempt(run_id="newest", token=kept.draw_token("newest"))
            swap(kept, newest, {"c": [5]})
            with pytest.raises(Exception, match="superseded by run newest"):
                swap(kept, old, {"c": [6]}, swap_id="late")
        assert sorted_rows(filled.read(TABLE)) == rows("a", 1) + rows("b", 2) + rows("c", 5)
