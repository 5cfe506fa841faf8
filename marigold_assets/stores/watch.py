"""What one opening knows of the fence, so that not every swap of it looks at everything again.

Every transaction that writes the tables of the fence moves the counter, and every swap updates it: by the position that
it is given it sees whether anybody else has written them since. That update is the check, as ever: it conflicts with
whoever writes at the same time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from marigold_assets.model import Attempt, Column, InputPartition, PartitionSlice, TableName
from marigold_assets.stores import fence
from marigold_assets.stores.session import FENCE_SCHEMA, Execute

_Slot = tuple[str, str, str | None]
_FEW_ROWS = 122_880  # one row group of DuckDB: to write that once more takes less time than to look before


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sight:
    """What was seen of the fence.

    Attributes:
        cleared: Slices that the attempt may write, with its token as their high-water mark.
        swap_ids: Under which ids its run has committed anything.
        position: The counter's position when that was so.
    """

    cleared: frozenset[_Slot] = frozenset()
    swap_ids: frozenset[str] = frozenset()
    position: int = -1


@dataclass(slots=True, kw_only=True)
class Watch:
    """The memory of an opening.

    Attributes:
        attempt: The attempt that it was opened for.
        slices: What that is about to swap.
        reads: What the rows of those are going to be computed from, in the same order.
    """

    attempt: Attempt
    slices: tuple[PartitionSlice, ...]
    reads: tuple[PartitionSlice, ...] = ()
    _seen: _Sight = field(default_factory=_Sight, init=False)
    _pending: _Sight | None = field(default=None, init=False)
    _columns: dict[str, tuple[Column, ...]] = field(default_factory=dict, init=False)
    _rows: dict[str, int] = field(default_factory=dict, init=False)
    _surprising: set[str] = field(default_factory=set, init=False)
    _held: dict[PartitionSlice, str] = field(default_factory=dict, init=False)
    _many_ahead: int = field(default=1, init=False)

    def admits(self, first_position: int, attempt: Attempt, slices: Sequence[PartitionSlice]) -> bool:
        """Whether an attempt may write slices, with their marks raised, since nothing has changed.

        If not, what slices hold is forgotten.

        Args:
            first_position: What the counter has just given to this transaction.
            attempt: Who wants to write.
            slices: What.
        """
        admitted = (
            first_position == self._seen.position + 1
            and attempt == self.attempt
            and self._seen.cleared.issuperset(map(_slot, slices))
        )
        if not admitted:
            self._held.clear()
        return admitted

    @property
    def held(self) -> Mapping[PartitionSlice, str]:
        """The content hashes of slices that this opening has swapped or looked up, and nobody has written since.

        For a transaction that was just told whether it is admitted.
        """
        return self._held

    def is_current(self, position: Callable[[], int]) -> bool:
        """Whether what is :attr:`held` is so, for a transaction that only reads.

        Args:
            position: Finds out where the counter stands.
        """
        return bool(self._held or self.reads) and self._seen.position >= 0 and position() == self._seen.position

    def reads_ahead(self, slices: Sequence[PartitionSlice]) -> list[PartitionSlice]:
        """What is worth being looked up together with some slices that are read, since it will be read next.

        Twice as much every time, so that little is in vain where an opening ends early; and nothing that the attempt
        writes itself meanwhile.
        """
        unknown = [slice_ for slice_ in slices if slice_ not in self._held]
        if not unknown or not self.reads:
            return []
        own, wanted = {_slot(slice_) for slice_ in self.slices}, set(slices)
        left = [s for s in self.reads if s not in self._held and s not in wanted and _slot(s) not in own]
        self._many_ahead *= 2
        return left[: self._many_ahead]

    def note(self, found: Mapping[PartitionSlice, InputPartition]) -> None:
        """Note what slices hold, in a transaction that was admitted; of what holds nothing, nothing is known."""
        self._held |= {slice_: one.content_hash for slice_, one in found.items() if one.content_hash is not None}

    def has_committed(self, swap_id: str) -> bool:
        """Whether the run has committed anything under a swap id, as long as nothing has changed."""
        return swap_id in self._seen.swap_ids

    def look(self, execute: Execute, attempt: Attempt, slices: Sequence[PartitionSlice], position: int) -> None:
        """Look at all that is about to be swapped, in a transaction that has passed the fence for some of it.

        Slices that the attempt may not write are left to their own swaps, which refuse them.

        Args:
            execute: Runs a statement over the fence's tables.
            attempt: Whose transaction it is.
            slices: What it writes.
            position: The last position that the counter has given to it.
        """
        if attempt != self.attempt or not self.slices:
            return
        done = {_slot(slice_) for slice_ in slices}
        tables: dict[tuple[str, str], list[PartitionSlice]] = {}
        for slice_ in self.slices:
            if _slot(slice_) not in done:
                tables.setdefault((slice_.table.key, slice_.owner), []).append(slice_)
        cleared = [slice_ for own in tables.values() for slice_ in fence.clear(execute, own, attempt)]
        rows = execute(
            "read swap ids", f"SELECT DISTINCT swap_id FROM {FENCE_SCHEMA}.ledger WHERE run_id = ?", [attempt.run_id]
        )
        self._pending = _Sight(
            cleared=frozenset(done | {_slot(slice_) for slice_ in cleared}),
            swap_ids=frozenset(swap_id for (swap_id,) in rows),
            position=position,
        )

    def pass_by(self, position: int) -> None:
        """Note that a transaction was admitted, and which position it was given last."""
        self._pending = _Sight(cleared=self._seen.cleared, swap_ids=self._seen.swap_ids, position=position)

    def begin(self) -> None:
        """Forget what a transaction has seen that was rolled back."""
        self._pending = None

    def committed(
        self, swap_id: str, columns: tuple[Column, ...], held: Mapping[PartitionSlice, str], rows: int
    ) -> None:
        """Note that a transaction has committed.

        Args:
            swap_id: Its swap.
            columns: The columns of the table.
            held: The content hash of every slice that it has swapped.
            rows: How many rows these hold.
        """
        for slice_ in held:
            self._columns[slice_.table.key] = columns
            self._rows[slice_.table.key] = rows
        pending, self._pending = self._pending, None
        if pending is not None:
            self._seen = _Sight(
                cleared=pending.cleared, swap_ids=pending.swap_ids | {swap_id}, position=pending.position
            )
            self._held |= held

    def remember(self, table: TableName, columns: tuple[Column, ...]) -> None:
        """Note the columns that a table was seen to have."""
        self._columns[table.key] = columns

    def columns(self, table: TableName) -> tuple[Column, ...] | None:
        """The columns that a table was last seen to have; the next swap sees whether it still has."""
        return self._columns.get(table.key)

    def expects_few_rows(self, table: TableName) -> bool:
        """Whether the last swap of a table was small, and no rows came yet that have to be looked at before."""
        is_known = table.key in self._columns and table.key not in self._surprising
        return is_known and self._rows.get(table.key, _FEW_ROWS + 1) <= _FEW_ROWS

    def look_first(self, table: TableName) -> None:
        """Expect nothing of the rows for a table any more."""
        self.forget(table)
        self._surprising.add(table.key)

    def forget(self, table: TableName) -> None:
        """Forget a table: it is another one now."""
        self._columns.pop(table.key, None)
        self._held = {slice_: text for slice_, text in self._held.items() if slice_.table.key != table.key}


def _slot(slice_: PartitionSlice) -> _Slot:
    return slice_.table.key, slice_.owner, slice_.partition_key
