"""The store contract.

S1  Tokens strictly increase for the life of the store, across restarts, releases and crashes. A fence row is never
    deleted.
S2  A swap is refused, and changes nothing, if another run claimed the slice later than this run did, or if a later
    token has committed to it. A run's repeated claims do not renew its first one, so the steps of a run (each a
    process with a token of its own) fence nobody out by accident. Equal tokens are admitted. What a store is kept
    open for counts as committed to with the first of its swaps.
S3  After a swap the slice holds exactly the rows given; every other slice is unchanged.
S4  A row outside its slice, a missing, extra or renamed column, a lossy cast: refused, and nothing is deleted.
S5  Data, fence and ledger commit together or not at all, whatever is killed when.
S6  An empty swap is legal and recorded: empty is not missing.
S7  Repeating a swap of the same attempt (token) and swap id returns the first receipt and writes nothing. The same
    swap id from the same run under another token is refused: two processes carry out one run, and one was first.
S8  A reader never sees a half-swapped slice; a read of several slices is one snapshot.
S9  An unknown outcome raises CommitUnknownError with the swap id, and only if the ledger could not be asked.
S10 Several slices in one swap: all or none.
S11 Names with quotes, spaces, unicode and reserved words work and never inject.
S12 A busy store waits fairly up to a deadline, then raises StoreBusyError naming the holder.

``marigold_assets.testing.StoreContract`` checks all of it on any store.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field

import pyarrow as pa

from marigold_assets.errors import ConfigurationError, ContentDiffersError, FencedOutError
from marigold_assets.model import (
    Acceptance,
    Attempt,
    Claim,
    Column,
    FencingToken,
    InputPartition,
    LedgerEntry,
    PartitionSlice,
    Provenance,
    Receipt,
    SwapOptions,
    TableName,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """A slice that rows are computed from.

    Attributes:
        slice_: The slice, of any table.
        required: Whether to refuse the swap if it was never materialized.
    """

    slice_: PartitionSlice
    required: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """Rows that the store computes for itself.

    Attributes:
        sql: One SELECT statement over the store's own tables.
        reads: What it computes the rows of each slice from, by the partition key of that slice. The swap looks up what
            these hold, in its own transaction, and records it.
    """

    sql: str
    reads: Mapping[str | None, tuple[Read, ...]] = field(default_factory=dict)


Rows = pa.Table | pa.RecordBatchReader | Query
"""What a swap takes. A reader is read once, and only after the fence has been passed."""


class CommittedInterrupt(KeyboardInterrupt):
    """An interrupt that came when a swap was committed already.

    Attributes:
        receipts: What was swapped.
    """

    def __init__(self, receipts: tuple[Receipt, ...]) -> None:
        super().__init__("interrupted after COMMIT")
        self.receipts = receipts


class PartitionStore(ABC):
    """A place that swaps partition slices under a fence and keeps the ledger beside the data."""

    @abstractmethod
    def draw_token(self, run_id: str, claims: Sequence[Claim] = ()) -> FencingToken:
        """Issue the next fencing token to a run, and claim what it is known to be about to write.

        Args:
            run_id: The run.
            claims: Claims to record under the new token, in the same transaction.

        Raises:
            StoreBusyError: Another process held the store until the deadline.
            StoreUnavailableError: The store cannot be opened.
        """

    @abstractmethod
    def claim(self, attempt: Attempt, claims: Sequence[Claim]) -> None:
        """Record that a run means to write, with the token of its attempt. Repeated claims change nothing (S2)."""

    @abstractmethod
    def swap(
        self,
        slices: Sequence[PartitionSlice],
        rows: Rows,
        *,
        attempt: Attempt,
        swap_id: str,
        provenance: Provenance | None = None,
        options: SwapOptions | None = None,
    ) -> tuple[Receipt, ...]:
        """Replace the rows of one or more slices of one table, atomically and under the fence.

        Args:
            slices: Disjoint slices of one table, in the order in which receipts are wanted.
            rows: All rows of all slices. Columns go by name.
            attempt: Who writes, with which token.
            swap_id: Name of this write (see :func:`marigold_assets.model.derive_swap_id`).
            provenance: Code and inputs, for the ledger.
            options: What the asset opts in to.

        Returns:
            One receipt a slice, in order.

        Raises:
            FencedOutError: A later attempt owns one of the slices.
            InvalidDataError: The rows do not fit slice or table.
            ContentDiffersError: The rows are not what is stored, and the swap was only to verify it.
            ConfigurationError: The target is a view, is owned by another asset, or its predicate makes no sense.
            MissingInputError: The rows are computed from something that was never materialized.
            StoreBusyError: The store stayed locked until the deadline.
            StoreUnavailableError: The store cannot be opened or written.
            CommitUnknownError: The outcome of the commit is unknown.
            CommittedInterrupt: Somebody interrupts, and it is committed.
        """

    @abstractmethod
    def keep_open(
        self,
        attempt: Attempt,
        slices: Sequence[PartitionSlice] = (),
        *,
        reads: Sequence[PartitionSlice] = (),
        alone: bool = True,
    ) -> AbstractContextManager[PartitionStore]:
        """Open the store once for several calls; other processes wait until the block ends.

        Every swap is still a transaction of its own.

        Args:
            attempt: Who works with it.
            slices: What is about to be swapped, so that the fence is looked at once for all of it.
            reads: What that is going to be computed from, in the same order, so that not every swap has to look its
                inputs up by itself.
            alone: Whether no code of users runs meanwhile. Such code must not open the store by itself: in the thread
                of the block that is refused.

        Returns:
            The same store, for use within the block, by one thread at a time.
        """

    @abstractmethod
    def snapshot(self) -> AbstractContextManager[None]:
        """Have all that is read within a block be of one snapshot; only of a store that is kept open.

        Raises:
            ConfigurationError: The store is not kept open.
        """

    @abstractmethod
    def read(
        self,
        table: TableName,
        slices: Sequence[PartitionSlice] | None = None,
        columns: Sequence[str] | None = None,
    ) -> pa.Table:
        """Read a table, or the rows of some of its slices, in one snapshot.

        Args:
            table: The table.
            slices: Slices of that table; ``None`` for all of its rows, an empty sequence for none of them.
            columns: Columns wanted, in this order; ``None`` for all.

        Raises:
            MissingTableError: There is no such table.
            SchemaMismatchError: There is no such column.
        """

    @abstractmethod
    def read_each(
        self, table: TableName, slices: Sequence[PartitionSlice], columns: Sequence[str] | None = None
    ) -> tuple[pa.Table, ...]:
        """Read some slices of a table, each by itself, in one snapshot of all of them. Raises like :meth:`read`."""

    @contextmanager
    def scan(
        self,
        table: TableName,
        slices: Sequence[PartitionSlice] | None = None,
        columns: Sequence[str] | None = None,
    ) -> Iterator[pa.RecordBatchReader]:
        """Read like :meth:`read`, batch by batch. The store may stay locked until the block ends: be brief."""
        yield self.read(table, slices, columns).to_reader()

    @abstractmethod
    def query(
        self,
        table: TableName,
        slices: Sequence[PartitionSlice] | None = None,
        columns: Sequence[str] | None = None,
    ) -> str:
        """The SELECT that :meth:`read` would run, as text with literals, to be used within a :class:`Query`."""

    @abstractmethod
    def columns(self, table: TableName) -> tuple[Column, ...] | None:
        """The table's columns in order, or ``None`` if there is no such table."""

    @abstractmethod
    def ledger(self, table: TableName | None = None) -> tuple[LedgerEntry, ...]:
        """The ledger in order of position: of one table, or of the whole store."""

    @abstractmethod
    def receipts(self, swap_id: str) -> tuple[LedgerEntry, ...]:
        """What was committed under a swap id; empty if nothing was. The answer to an unknown outcome (S9)."""

    @abstractmethod
    def accept(self, acceptances: Sequence[Acceptance]) -> None:
        """Record that partitions are accepted as they were built; all or none, and nothing is ever changed or deleted.

        Raises:
            StoreBusyError: The store stayed locked until the deadline.
            StoreUnavailableError: The store cannot be written.
        """

    @abstractmethod
    def acceptances(self, table: TableName) -> tuple[Acceptance, ...]:
        """What was accepted of a table, in the order in which it was recorded, also what has ended."""

    @abstractmethod
    def content_hash(self, slice_: PartitionSlice, columns: Sequence[Column] | None = None) -> str:
        """Hash the rows that a slice holds now, to be compared with what the ledger says they should be.

        Args:
            slice_: The slice.
            columns: Columns and types to hash, as a ledger entry records them: a table that has grown since still
                hashes as it did then. ``None`` for the table's columns as they are.

        Returns:
            The ``mh1`` text.

        Raises:
            MissingTableError: There is no such table.
        """

    def row_count(self, table: TableName) -> int | None:
        """How many rows a table holds now, whoever wrote them; ``None`` if there is no such table."""
        return None if self.columns(table) is None else self.read(table).num_rows

    def newest(self, table: TableName) -> LedgerEntry | None:
        """The newest ledger entry of a table, or ``None`` if nothing was ever swapped into it."""
        entries = self.ledger(table)
        return entries[-1] if entries else None

    def heads(self, table: TableName, keys: Sequence[str | None] | None = None) -> Mapping[str | None, LedgerEntry]:
        """The newest ledger entry of every partition of a table, by partition key; ``keys``: of those only."""
        found = {entry.partition_key: entry for entry in self.ledger(table)}
        return found if keys is None else {key: found[key] for key in keys if key in found}

    def inputs(self, slices: Sequence[PartitionSlice]) -> tuple[InputPartition, ...]:
        """What slices, of any tables, hold now: to be recorded by whoever computes from them.

        The hash is that of the newest ledger entry of each slice, as long as the slice has as many rows as that says;
        of its rows, where another tool has written, or deleted, some; ``None`` where there are none, and none were
        stored (S6), and where there is no table, whatever the ledger says.
        """
        found = []
        for slice_ in slices:
            head = self.heads(slice_.table, [slice_.partition_key]).get(slice_.partition_key)
            exists = self.columns(slice_.table) is not None
            row_count = self.read(slice_.table, [slice_]).num_rows if exists else 0
            digest: str | None = None
            if exists and head is not None and head.row_count == row_count:
                digest = head.content_hash
            elif row_count:
                digest = self.content_hash(slice_)
            found.append(InputPartition(owner=slice_.owner, partition_key=slice_.partition_key, content_hash=digest))
        return tuple(found)


def refuse_twin(slices: Sequence[PartitionSlice], attempt: Attempt, committed: Sequence[LedgerEntry]) -> None:
    """Refuse a swap that another process of the same run has committed: one of the two was started by mistake (S7).

    Args:
        slices: What is to be swapped.
        attempt: Who wants to.
        committed: What this run has committed under the id of this swap.

    Raises:
        FencedOutError: Some of it has another token.
    """
    twin = next((entry for entry in committed if entry.token != attempt.token), None)
    if twin is not None:
        slice_ = next((s for s in slices if s.partition_key == twin.partition_key), slices[0])
        raise FencedOutError(
            run_id=attempt.run_id,
            token=attempt.token,
            superseded_by_run=twin.run_id,
            superseded_by_token=twin.token,
            **slice_.where,
        )


Content = tuple[int, Mapping[str, tuple[str, int]]]
"""Number of rows, and per column hash sum and number of NULLs (see :class:`LedgerEntry`)."""


def content_differs(slice_: PartitionSlice, *, stored: Content | None, given: Content | None) -> ContentDiffersError:
    """The error for a slice that does not hold what was computed again.

    Args:
        slice_: The slice.
        stored: What it holds; ``None`` if it was never materialized.
        given: What was computed, where that was looked at.
    """
    if stored is None or given is None:
        problem = "nothing is stored that the rows could be compared with"
        remedy = "materialize the partition first"
    else:
        differing = sorted(name for name, sums in given[1].items() if stored[1].get(name) != sums)
        where = f"columns {', '.join(map(repr, differing))}" if differing else "which values stand in one row together"
        problem = f"the {given[0]} rows computed differ from the {stored[0]} rows stored in {where}"
        remedy = (
            "find out what has changed: the code, its inputs, or the stored rows, by another tool; to replace them,"
        )
        remedy += " materialize the partition without verifying it"
    return ContentDiffersError(problem, remedy=remedy, **slice_.where)


def refuse_bad_target(slices: Sequence[PartitionSlice]) -> None:
    """Refuse what no store can swap: slices that are not disjoint parts of one table, cut in the same way.

    Raises:
        ConfigurationError: They are not.
    """
    if not slices:
        raise ConfigurationError("a swap without partitions", remedy="name at least one partition")
    first = slices[0]
    problem = remedy = None
    if len({slice_.table.key for slice_ in slices}) > 1:
        problem, remedy = "one swap writes one table", "swap table by table"
    elif len({slice_.owner for slice_ in slices}) > 1:
        problem, remedy = "one swap has one owner", "swap asset by asset"
    elif len({slice_.partition_key for slice_ in slices}) < len(slices):
        problem, remedy = "a partition is named twice", "name it once"
    elif any(not s.conditions and (s.partition_key is not None or len(slices) > 1) for s in slices):
        problem = "nothing says which rows belong to the partition"
        remedy = "set metadata={'partition_expr': <column>} on the asset"
    elif len({tuple((type(c), c.expression) for c in slice_.conditions) for slice_ in slices}) > 1:
        problem, remedy = "the partitions are cut by different expressions", "swap them one by one"
    if problem is not None and remedy is not None:
        raise ConfigurationError(problem, remedy=remedy, **first.where)
