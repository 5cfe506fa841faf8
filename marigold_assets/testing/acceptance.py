"""What is recorded of partitions beside their rows: that they are accepted, and which rows are theirs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest

from marigold_assets.errors import ConfigurationError
from marigold_assets.model import (
    Acceptance,
    Condition,
    CutOff,
    Definition,
    Equals,
    Interval,
    LedgerEntry,
    PartitionSlice,
    SwapOptions,
    TableName,
    recorded,
)
from marigold_assets.stores.base import PartitionStore
from marigold_assets.testing.crashes import Crash, fail_at
from marigold_assets.testing.harness import TABLE, MakeStore, StoreHarness, rows, state, swap
from marigold_assets.testing.strategies import slice_of, table_of

NOON = datetime(2025, 6, 1, 12, 0, 0, 1, tzinfo=UTC)
# Around a change of the clock in Berlin.
_HOURS = [datetime(2024, 10, 27, hour, tzinfo=UTC) for hour in range(3)]


def acceptance(key: str | None, **more: object) -> Acceptance:
    """An acceptance of a partition of the test's table."""
    definition = Definition(code_version="1", code_fingerprint=None, config_hash=None)
    one = Acceptance(
        table=TABLE,
        owner="daily",
        partition_key=key,
        definition=definition,
        accepted_by="nadia",
        accepted_at=NOON,
        reason="it's 'right' enough",
    )
    return replace(one, **more)  # type: ignore[arg-type]


class AcceptanceContract(StoreHarness):
    """Acceptances, and the conditions of ledger entries."""

    def test_what_was_accepted_is_read_in_order_as_it_was_recorded(
        self, filled: PartitionStore, make_store: MakeStore
    ) -> None:
        """With and without an end, for a whole table, and for a partition once more."""
        unknown = Definition(code_version=None, code_fingerprint="f", config_hash="c")
        first = [acceptance("b", until=NOON + timedelta(days=1)), acceptance(None, definition=unknown)]
        second = [acceptance("b", until=NOON), acceptance("it's; DROP TABLE", reason="\u65e5\u672c\n--", owner="")]
        filled.accept(first)
        filled.accept(second)
        assert filled.acceptances(TABLE) == (*first, *second) == make_store().acceptances(TABLE)

    def test_instants_of_acceptances_are_read_in_utc_whatever_the_zone_they_are_given_in(
        self, store: PartitionStore
    ) -> None:
        """The same instants."""
        berlin = NOON.astimezone(ZoneInfo("Europe/Berlin"))
        store.accept([acceptance("a", accepted_at=berlin, until=berlin)])
        [found] = store.acceptances(TABLE)
        assert found.until is not None
        assert (found.accepted_at, found.until) == (NOON, NOON)
        assert found.accepted_at.utcoffset() == found.until.utcoffset() == timedelta(0)

    def test_acceptances_are_of_one_table(self, store: PartitionStore) -> None:
        """Whose name is the same in other letters."""
        other = TableName(schema="sales", name="other")
        store.accept([acceptance("a"), acceptance("a", table=other)])
        assert store.acceptances(TABLE) == store.acceptances(TableName(schema="SALES", name="Daily"))
        assert [one.table for one in store.acceptances(TABLE)] == [TABLE]
        assert [one.table for one in store.acceptances(other)] == [other]

    def test_a_store_without_anything_has_accepted_nothing(self, store: PartitionStore) -> None:
        """Nor has it after accepting nothing."""
        assert store.acceptances(TABLE) == ()
        store.accept([])
        assert store.acceptances(TABLE) == ()

    def test_many_are_accepted_at_once(self, store: PartitionStore) -> None:
        """All partitions of a long history."""
        many = [acceptance(f"{number}") for number in range(2_000)]
        store.accept(many)
        assert store.acceptances(TABLE) == tuple(many)

    def test_accepting_changes_no_row_and_no_entry(self, filled: PartitionStore) -> None:
        """And fences nobody out: whoever is at work goes on."""
        attempt, before = self.draw(filled, "x", "a"), state(filled)
        filled.accept([acceptance("a")])
        assert state(filled) == before
        [receipt] = swap(filled, attempt, {"a": [9]})
        assert receipt.entry.position > before[2][-1].position
        assert filled.acceptances(TABLE) == (acceptance("a"),)

    def test_an_acceptance_that_is_broken_off_at_any_statement_has_not_been_recorded(
        self, filled: PartitionStore, make_store: MakeStore
    ) -> None:
        """All or none."""
        point = 1
        while True:
            try:
                make_store(observer=fail_at(point)).accept([acceptance("a"), acceptance("b")])
            except Crash:
                assert make_store().acceptances(TABLE) == ()
                point += 1
            else:
                break
        assert point > 1
        assert len(filled.acceptances(TABLE)) == 2

    def test_partitions_are_accepted_within_an_opening(self, filled: PartitionStore) -> None:
        """Between two swaps, and not within a snapshot."""
        attempt = self.draw(filled, "x")
        with filled.keep_open(attempt, [slice_of("a"), slice_of("b")]) as kept:
            swap(kept, attempt, {"a": [7]}, swap_id="1")
            kept.accept([acceptance("a")])
            swap(kept, attempt, {"b": [8]}, swap_id="2")
            assert kept.acceptances(TABLE) == (acceptance("a"),)
            with kept.snapshot():
                assert kept.acceptances(TABLE) == (acceptance("a"),)
                with pytest.raises(ConfigurationError, match="snapshot"):
                    kept.accept([acceptance("b")])
        assert filled.acceptances(TABLE) == (acceptance("a"),)
        positions = [entry.position for entry in filled.ledger(TABLE)]
        assert positions == sorted(set(positions))

    def test_an_entry_records_which_rows_are_those_of_the_partition(self, filled: PartitionStore) -> None:
        """That of a swap, of its replay, and of a confirmation."""
        expected = {"a": slice_of("a").conditions, "b": slice_of("b").conditions}
        assert {key: head.conditions for key, head in filled.heads(TABLE).items()} == expected
        attempt = self.draw(filled, "x")
        for _ in range(2):
            [receipt] = swap(filled, attempt, {"a": [1, 2]}, options=SwapOptions(cut_off=CutOff.ON))
            assert receipt.entry.confirmed
            assert receipt.entry.conditions == expected["a"]
            assert filled.ledger()[-1] == receipt.entry

    def test_an_entry_of_a_whole_table_records_no_condition(self, store: PartitionStore) -> None:
        """Which is not the same as an unknown one."""
        whole = PartitionSlice(table=TABLE, partition_key=None, owner="daily")
        [receipt] = store.swap([whole], table_of(rows("a", 1)), attempt=self.draw(store, "x"), swap_id="x")
        assert receipt.entry.conditions == ()
        assert store.ledger() == (receipt.entry,)

    @pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "America/Sao_Paulo"])
    def test_an_entry_records_the_instants_of_its_window(self, store: PartitionStore, zone: str) -> None:
        """In UTC, also where a clock is put back and two partitions are the same hour."""
        for number, start in enumerate(_HOURS):
            local, end = (moment.astimezone(ZoneInfo(zone)) for moment in (start, start + timedelta(hours=1)))
            window = (Interval(expression="at", start=local, end=end, timezone=zone),)
            [receipt] = self._swap_window(store, window, f"{number}", start)
            assert receipt.conditions == recorded(window)
        entries = store.ledger(TABLE)
        found = [condition for entry in entries for condition in entry.conditions or ()]
        instants = [(c.start, c.end) for c in found if isinstance(c, Interval)]
        assert instants == [(start, start + timedelta(hours=1)) for start in _HOURS]
        assert {moment.tzinfo for pair in instants for moment in pair} == {UTC}
        assert {c.timezone for c in found if isinstance(c, Interval)} == {zone}

    def test_an_entry_records_every_dimension_in_order(self, store: PartitionStore) -> None:
        """A time and a static one."""
        start = datetime(2024, 1, 1, tzinfo=UTC)
        window = Interval(expression="at", start=start, end=start + timedelta(days=1))
        place = Equals(expression="place", value="it's")
        [entry] = self._swap_window(store, (window, place), "x", start)
        assert entry.conditions == (window, place)
        assert store.ledger(TABLE) == (entry,)

    def _swap_window(
        self, store: PartitionStore, conditions: Sequence[Condition], key: str, at: datetime
    ) -> list[LedgerEntry]:
        slice_ = PartitionSlice(table=TABLE, partition_key=key, conditions=tuple(conditions), owner="daily")
        given = pa.table({"at": pa.array([at], pa.timestamp("us", tz="UTC")), "place": ["it's"]})
        return [r.entry for r in store.swap([slice_], given, attempt=self.draw(store, "x"), swap_id=key)]
