"""S5 to S12 of the store contract: all or nothing, replay, snapshots, names, waiting, and who owns a table."""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import AbstractContextManager
from typing import Any

import pytest

from marigold_assets.errors import (
    ConfigurationError,
    MissingTableError,
    SchemaMismatchError,
    StoreBusyError,
    TableOwnedError,
)
from marigold_assets.fingerprint import ContentHash
from marigold_assets.model import (
    Attempt,
    Claim,
    Equals,
    InputPartition,
    PartitionSlice,
    Provenance,
    SwapOptions,
    TableName,
)
from marigold_assets.stores.base import PartitionStore
from marigold_assets.testing.crashes import Crash, fail_at, record
from marigold_assets.testing.harness import TABLE, MakeStore, StoreHarness, rows, sorted_rows, state, swap
from marigold_assets.testing.strategies import AWKWARD_TEXTS, slice_of, table_of


class DurabilityContract(StoreHarness):
    """What holds when things go wrong, and what is recorded when they go right."""

    # S5

    @pytest.mark.parametrize("first_write", [True, False], ids=["first write", "overwrite"])
    def test_a_swap_broken_off_at_any_statement_changes_nothing(
        self,
        make_store: MakeStore,
        first_write: bool,
    ) -> None:
        """S5: and the next attempt needs no cleaning."""
        labels: list[str] = []
        store = make_store(observer=record(labels))
        if not first_write:
            swap(store, self.draw(store, "warm up"), {"a": [1, 2], "b": [3]})
            labels.clear()
        else:
            store.draw_token("warm up")
            labels.clear()
        before, point = state(make_store()), 0
        while True:
            point += 1
            attempt = self.draw(make_store(), f"run {point}")
            try:
                swap(make_store(observer=fail_at(point)), attempt, {"a": [9], "c": []})
            except Crash:
                assert state(make_store())[1:] == before[1:]
                continue
            break
        assert point > 3
        after = make_store()
        assert after.read(TABLE, [slice_of("a")]).to_pylist() == rows("a", 9)
        assert {key: entry.row_count for key, entry in after.heads(TABLE).items()}.items() >= {
            "a": 1,
            "c": 0,
        }.items()

    def test_the_ledger_agrees_with_the_data(self, filled: PartitionStore) -> None:
        """S5: by content hash, recomputed from what is stored."""
        swap(filled, self.draw(filled, "x"), {"b": [4, None, 4]})
        for key, head in filled.heads(TABLE).items():
            assert filled.content_hash(slice_of(str(key))) == head.content_hash
        assert filled.heads(TABLE)["b"].column_hashes["value"][1] == 1

    def test_a_slice_hashes_as_recorded_after_its_table_has_grown(self, filled: PartitionStore) -> None:
        """S5: growing a table rewrites no history."""
        given = table_of(rows("a", 1)).append_column("more", [["x"]])
        attempt = self.draw(filled, "x")
        filled.swap([slice_of("a")], given, attempt=attempt, swap_id="x", options=SwapOptions(evolve=True))
        head = filled.heads(TABLE)["b"]
        assert filled.content_hash(slice_of("b"), head.columns) == head.content_hash

    # S6

    def test_an_empty_swap_empties_the_slice_and_is_recorded(self, filled: PartitionStore) -> None:
        """S6: empty is not missing."""
        [receipt] = swap(filled, self.draw(filled, "x"), {"a": []})
        assert (receipt.entry.row_count, ContentHash.parse(receipt.entry.content_hash).row_sum) == (0, 0)
        assert filled.read(TABLE, [slice_of("a")]).num_rows == 0
        assert set(filled.heads(TABLE)) == {"a", "b"}

    def test_an_empty_first_swap_creates_the_table(self, store: PartitionStore, attempt: Attempt) -> None:
        """S6."""
        swap(store, attempt, {"a": []})
        assert store.read(TABLE).num_rows == 0
        assert [column.name for column in store.columns(TABLE) or ()] == ["key", "value"]

    # S7

    def test_a_repeated_swap_returns_the_first_receipt(self, filled: PartitionStore) -> None:
        """S7: the acknowledgement was lost, so the same write comes again, perhaps with other rows."""
        attempt = self.draw(filled, "x")
        first = swap(filled, attempt, {"a": [5], "b": [6]})
        before = state(filled)
        again = swap(filled, attempt, {"a": [7], "b": [8]})
        assert [receipt.entry for receipt in again] == [receipt.entry for receipt in first]
        assert [receipt.replayed for receipt in first + again] == [False, False, True, True]
        assert state(filled) == before

    def test_a_repeated_swap_is_recognised_after_its_table_has_grown(self, filled: PartitionStore) -> None:
        """S7: its rows no longer fit, but it is already in."""
        attempt, grower = self.draw(filled, "x"), self.draw(filled, "y")
        [first] = swap(filled, attempt, {"a": [5]})
        given = table_of(rows("b", 1)).append_column("more", [["x"]])
        filled.swap([slice_of("b")], given, attempt=grower, swap_id="grow", options=SwapOptions(evolve=True))
        [again] = swap(filled, attempt, {"a": [5]})
        assert (again.entry, again.replayed) == (first.entry, True)

    def test_a_repeated_swap_does_not_grow_its_table(self, filled: PartitionStore) -> None:
        """S7: it writes nothing at all."""
        attempt, options = self.draw(filled, "x"), SwapOptions(evolve=True)
        swap(filled, attempt, {"a": [5]}, swap_id="x")
        before = state(filled)
        given = table_of(rows("a", 1)).append_column("more", [["x"]])
        [again] = filled.swap([slice_of("a")], given, attempt=attempt, swap_id="x", options=options)
        assert again.replayed
        assert state(filled) == before

    def test_a_swap_id_used_for_other_slices_is_refused(self, filled: PartitionStore) -> None:
        """S7: it would return a receipt of something else."""
        attempt = self.draw(filled, "x")
        swap(filled, attempt, {"a": [5]})
        before = state(filled)
        with pytest.raises(ConfigurationError, match="swap id"):
            swap(filled, attempt, {"b": [5]})
        assert state(filled) == before

    # S8

    def test_a_reader_never_sees_half_of_a_swap(self, make_store: MakeStore) -> None:
        """S8: read against swap, of two slices that always hold the same value."""
        store = make_store()
        attempt = self.draw(store, "writer")
        swap(store, attempt, {"a": [0], "b": [0]}, swap_id="first")
        done = threading.Event()

        def write() -> None:
            try:
                for number in range(1, 6):
                    swap(make_store(), attempt, {"a": [number], "b": [number]}, swap_id=f"{number}")
            finally:
                done.set()

        writer = threading.Thread(target=write)
        writer.start()
        seen = []
        wanted = [slice_of("a"), slice_of("b")]
        while not done.is_set():
            seen.append({row["value"] for row in make_store().read(TABLE, wanted).to_pylist()})
            seen.append({one["value"][0].as_py() for one in make_store().read_each(TABLE, wanted)})
        writer.join()
        assert all(len(values) == 1 for values in seen)
        assert sorted_rows(store.read(TABLE)) == rows("a", 5) + rows("b", 5)

    def test_reading_takes_slices_and_columns_by_name(self, filled: PartitionStore) -> None:
        """S8: ``None`` for everything, nothing for nothing."""
        assert filled.read(TABLE, []).num_rows == 0
        assert filled.read(TABLE, [slice_of("b")], ["VALUE", "key"]).to_pydict() == {
            "value": [3],
            "key": ["b"],
        }
        assert filled.read_each(TABLE, []) == ()
        each = filled.read_each(TABLE, [slice_of("b"), slice_of("nothing"), slice_of("a")], ["value"])
        assert [Counter(one.column("value").to_pylist()) for one in each] == [{3: 1}, {}, {1: 1, 2: 1}]
        with filled.scan(TABLE, [slice_of("a")], ["value"]) as reader:
            assert Counter(reader.read_all().column("value").to_pylist()) == Counter([1, 2])

    def test_reading_what_is_not_there_says_so(self, filled: PartitionStore) -> None:
        """S8: a missing table, a missing column; a missing slice is merely empty."""
        with pytest.raises(MissingTableError, match=r"'sales\.nothing'"):
            filled.read(TableName(schema="sales", name="nothing"))
        with pytest.raises(SchemaMismatchError, match="'nothing'"):
            filled.read(TABLE, columns=["nothing"])
        assert filled.read(TABLE, [slice_of("z")]).num_rows == 0

    # S9

    def test_the_newest_entry_of_a_table_is_that_of_its_last_swap(self, filled: PartitionStore) -> None:
        """What was swapped last, whatever it was."""
        assert filled.newest(TableName(schema="sales", name="never")) is None
        [receipt] = swap(filled, self.draw(filled, "later"), {"a": [7]})
        assert filled.newest(TABLE) == receipt.entry

    def test_the_ledger_answers_for_every_swap_id(self, filled: PartitionStore) -> None:
        """S9."""
        attempt = self.draw(filled, "x")
        receipts = swap(filled, attempt, {"a": [5], "b": []}, swap_id="known")
        assert filled.receipts("known") == tuple(receipt.entry for receipt in receipts)
        assert filled.receipts("unknown") == ()

    # S10

    def test_several_slices_go_in_together_with_a_receipt_each(self, filled: PartitionStore) -> None:
        """S10: receipts in the order asked for, empty slices too."""
        receipts = swap(filled, self.draw(filled, "x"), {"c": [1, 2], "a": [], "b": [3]})
        assert [(r.entry.partition_key, r.entry.row_count) for r in receipts] == [
            ("c", 2),
            ("a", 0),
            ("b", 1),
        ]
        positions = [entry.position for entry in filled.ledger()]
        assert positions == sorted(set(positions))

    def test_one_slice_fenced_out_refuses_all_of_them(self, filled: PartitionStore) -> None:
        """S10."""
        old = self.draw(filled, "old")
        swap(filled, self.draw(filled, "new"), {"b": [9]})
        before = state(filled)
        with pytest.raises(Exception, match=r"partition 'b'.* superseded by run new"):
            swap(filled, old, {"a": [1], "b": [2], "c": [3]})
        assert state(filled) == before
        swap(filled, old, {"a": [1]}, swap_id="and has not fenced anybody")

    @pytest.mark.parametrize("case", ["none", "twice", "two tables", "two owners", "no predicate"])
    def test_slices_that_are_no_parts_of_one_table_are_refused(self, filled: PartitionStore, case: str) -> None:
        """S10."""
        other = TableName(schema="sales", name="other")
        slices = {
            "none": [],
            "twice": [slice_of("a"), slice_of("a")],
            "two tables": [slice_of("a"), slice_of("b", table=other)],
            "two owners": [slice_of("a"), slice_of("b", owner="other")],
            "no predicate": [PartitionSlice(table=TABLE, partition_key="a", owner="daily")],
        }[case]
        before = state(filled)
        with pytest.raises(ConfigurationError):
            filled.swap(slices, table_of([]), attempt=self.draw(filled, "x"), swap_id="x")
        assert state(filled) == before

    def test_a_table_without_partitions_is_one_slice(self, store: PartitionStore, attempt: Attempt) -> None:
        """S10: the whole table."""
        whole = PartitionSlice(table=TABLE, partition_key=None, owner="daily")
        for number in (1, 2):
            given = table_of(rows("x", number) + rows("y", number))
            store.swap([whole], given, attempt=attempt, swap_id=str(number))
        assert sorted_rows(store.read(TABLE, [whole])) == rows("x", 2) + rows("y", 2)
        assert store.heads(TABLE)[None].row_count == 2

    # S11

    def test_any_partition_key_is_only_a_value(self, filled: PartitionStore) -> None:
        """S11: in one swap of all of them, and in swaps of one."""
        keys = {text: number for number, text in enumerate([*AWKWARD_TEXTS, ""])}
        attempt = self.draw(filled, "run", *keys)
        swap(filled, attempt, {key: [number] for key, number in keys.items()})
        for key, number in keys.items():
            assert filled.read(TABLE, [slice_of(key)]).to_pylist() == rows(key, number)
        assert filled.read(TABLE).num_rows == 3 + len(keys)
        assert filled.heads(TABLE).keys() == {"a", "b", *keys}

    @pytest.mark.parametrize("text", ["'; DROP TABLE daily; --", ""])
    def test_one_awkward_partition_key_is_only_a_value(self, filled: PartitionStore, text: str) -> None:
        """S11."""
        swap(filled, self.draw(filled, "run", text), {text: [5]})
        assert filled.read(TABLE, [slice_of(text)]).to_pylist() == rows(text, 5)
        assert filled.read(TABLE).num_rows == 4

    @pytest.mark.parametrize("text", AWKWARD_TEXTS, ids=lambda text: repr(text[:30]))
    def test_any_name_is_only_a_name(self, filled: PartitionStore, text: str) -> None:
        """S11: as schema, table, column, partition column, owner, step, and so on."""
        before = state(filled)
        table = TableName(schema=text, name=text)
        slice_ = PartitionSlice(
            table=table,
            partition_key=text,
            conditions=(Equals(expression=text, value=text),),
            owner=text,
        )
        attempt = Attempt(run_id=text, token=filled.draw_token(text, [Claim(owner=text, partition_key=text)]))
        given = table_of(rows(text, 1)).rename_columns([text, "value"])
        read = InputPartition(owner=text, partition_key=text, content_hash=text)
        unknown = InputPartition(owner=text, partition_key=None, content_hash=None)
        provenance = Provenance(
            code_version=text,
            code_fingerprint=text,
            config_hash=text,
            step=text,
            backfill_id=text,
            inputs=(read, unknown),
        )
        [receipt] = filled.swap([slice_], given, attempt=attempt, swap_id=text, provenance=provenance)
        assert filled.read(table, [slice_], [text]).to_pydict() == {text: [text]}
        assert filled.ledger(table) == (receipt.entry,) == filled.receipts(text)
        assert receipt.entry.provenance == provenance
        assert filled.content_hash(slice_) == receipt.entry.content_hash
        assert state(filled)[:2] == before[:2]

    def test_names_differ_by_more_than_ascii_case(self, store: PartitionStore, attempt: Attempt) -> None:
        """S11: a table is found under any ASCII case, and no two columns are mistaken for each other."""
        given = table_of(rows("a", 1)).append_column("é", [[1]]).append_column("É", [[2]])
        store.swap([slice_of("a")], given, attempt=attempt, swap_id="1")
        shouting = TableName(schema="SALES", name="DAILY")
        assert store.read(shouting, columns=["É", "é"]).to_pydict() == {"É": [2], "é": [1]}
        assert store.heads(shouting).keys() == {"a"}

    # S12

    def test_a_busy_store_is_waited_for_until_the_deadline_and_its_holder_named(
        self, filled: PartitionStore, busy: AbstractContextManager[str] | None
    ) -> None:
        """S12: nothing is lost, and the same attempt goes through later."""
        if busy is None:
            pytest.skip("this store cannot be kept busy from outside")
        attempt, before = self.draw(filled, "x"), state(filled)
        with busy as holder, pytest.raises(StoreBusyError) as caught:
            swap(filled, attempt, {"a": [5]})
        assert holder in str(caught.value)
        assert caught.value.retryable
        assert state(filled) == before
        swap(filled, attempt, {"a": [5]})

    # Owners

    def test_two_assets_cannot_write_one_table(self, filled: PartitionStore) -> None:
        """Their slices would overwrite each other unseen."""
        before = state(filled)
        attempt = self.draw(filled, "x")
        with pytest.raises(TableOwnedError, match=r"'daily'.*'weekly'"):
            filled.swap([slice_of("z", owner="weekly")], table_of([]), attempt=attempt, swap_id="x")
        assert state(filled) == before

    def test_a_renamed_asset_takes_its_table_over(self, filled: PartitionStore) -> None:
        """And its former name cannot write any more."""
        attempt = self.draw(filled, "x")
        renamed: dict[str, Any] = {
            "attempt": attempt,
            "options": SwapOptions(renamed_from=("daily", "other")),
        }
        filled.swap([slice_of("a", owner="weekly")], table_of(rows("a", 5)), swap_id="x", **renamed)
        filled.swap([slice_of("b", owner="weekly")], table_of(rows("b", 5)), attempt=attempt, swap_id="y")
        with pytest.raises(TableOwnedError):
            swap(filled, self.draw(filled, "y"), {"a": [6]})
