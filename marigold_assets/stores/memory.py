"""The reference model of the store contract: a dictionary, a lock and plain Python. Obviously correct, not fast.

For tests: of this package's stores against it, and of code that wants a store without a file. Partition expressions
are column names only, and rows that a store would compute by SQL are refused.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import pyarrow as pa

from marigold_assets.errors import (
    ConfigurationError,
    FencedOutError,
    MissingTableError,
    SchemaMismatchError,
    TableOwnedError,
)
from marigold_assets.model import (
    Acceptance,
    Attempt,
    Claim,
    Column,
    CutOff,
    FencingToken,
    LedgerEntry,
    PartitionSlice,
    Provenance,
    Receipt,
    SwapOptions,
    TableName,
    fold,
    recorded,
)
from marigold_assets.stores import memory_rows, memory_types
from marigold_assets.stores.base import PartitionStore, Query, Rows, content_differs, refuse_bad_target, refuse_twin

_Mark = tuple[str, int]  # a run and its token


@dataclass(slots=True)
class _Table:
    """A stored table.

    Attributes:
        rows: Its rows.
        owner: The asset that writes it.
    """

    rows: pa.Table
    owner: str


@dataclass(slots=True)
class _State:
    """What outlives a store object: the model's "file"."""

    last_token: int = 0
    tables: dict[str, _Table] = field(default_factory=dict)
    claims: dict[tuple[Claim, str], int] = field(default_factory=dict)
    fence: dict[tuple[str, str | None], _Mark] = field(default_factory=dict)
    ledger: list[LedgerEntry] = field(default_factory=list)
    acceptances: list[Acceptance] = field(default_factory=list)
    lock: threading.RLock = field(default_factory=threading.RLock)


class MemoryStore(PartitionStore):
    """Swaps partition slices of Arrow tables in this process.

    Args:
        observer: Told of every step of a write before it happens.
        same_storage_as: Another store whose data this one shares, as if a file were opened again.
    """

    def __init__(
        self, *, observer: Callable[[str], None] | None = None, same_storage_as: MemoryStore | None = None
    ) -> None:
        self._observe = observer or (lambda _label: None)
        self._state: _State = same_storage_as._state if same_storage_as is not None else _State()
        self._is_kept = self._is_snapshot = False
        self._kept_for: tuple[Attempt, Sequence[PartitionSlice]] | None = None

    @contextmanager
    def keep_open(
        self,
        attempt: Attempt,
        slices: Sequence[PartitionSlice] = (),
        *,
        reads: Sequence[PartitionSlice] = (),
        alone: bool = True,
    ) -> Iterator[MemoryStore]:
        kept = MemoryStore(observer=self._observe, same_storage_as=self)
        kept._is_kept = True
        kept._kept_for = (attempt, slices)
        with self._state.lock:  # which this thread may take again
            yield kept

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        if not self._is_kept:
            raise ConfigurationError(
                "a snapshot of several reads needs a store that is kept open",
                remedy="take it of the store that keep_open() gives",
            )
        self._is_snapshot = True
        try:
            yield
        finally:
            self._is_snapshot = False

    def draw_token(self, run_id: str, claims: Sequence[Claim] = ()) -> FencingToken:
        with self._state.lock:
            self._observe("draw token")
            self._state.last_token += 1
            token = FencingToken(self._state.last_token)
            self._claim(Attempt(run_id=run_id, token=token), claims)
            return token

    def claim(self, attempt: Attempt, claims: Sequence[Claim]) -> None:
        with self._state.lock:
            self._observe("claim")
            self._claim(attempt, claims)

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
        refuse_bad_target(slices)
        if self._is_snapshot:
            raise _within_a_snapshot()
        options = options or SwapOptions()
        first = slices[0]
        if isinstance(rows, Query):
            raise ConfigurationError(
                "the in-memory store cannot run SQL",
                remedy="return a table, or use a database",
                **first.where,
            )
        memory_types.refuse_unusable_names(rows.schema, first.where)
        with self._state.lock:
            self._observe("fence")
            self._refuse_other_owner(first, options.renamed_from)
            for slice_ in slices:
                _refuse_later(slice_, attempt, self._rivals(slice_, attempt))
            for slice_ in slices:
                _refuse_later(slice_, attempt, self._later_commits(slice_, attempt))
            if replayed := self._replayed(slices, attempt, swap_id):
                return replayed
            stored = self._state.tables.get(first.table.key)
            if stored is None and options.cut_off is CutOff.VERIFY:
                raise content_differs(first, stored=None, given=None)
            given = rows.read_all() if isinstance(rows, pa.RecordBatchReader) else rows
            before = None if stored is None else stored.rows
            evolve = options.evolve and options.cut_off is not CutOff.VERIFY
            old, new = memory_types.fit(before, given, where=first.where, evolve=evolve)
            self._observe("delete")
            others = old.filter(pa.array([not hit for hit in memory_rows.members(old, slices)], pa.bool_()))
            found = [memory_rows.rows_of(new, slice_) for slice_ in slices]
            memory_rows.refuse_outside(slices, new)
            self._observe("insert")
            entries = [
                self._entry(
                    slice_,
                    own,
                    position=len(self._state.ledger) + 1 + number,
                    attempt=attempt,
                    swap_id=swap_id,
                    provenance=provenance or Provenance(),
                    confirmed=stored is not None
                    and options.cut_off is not CutOff.OFF
                    and self._is_same(slice_, memory_rows.rows_of(old, slice_), own, options.cut_off),
                )
                for number, (slice_, own) in enumerate(zip(slices, found, strict=True))
            ]
            table = _Table(rows=pa.concat_tables([others, new]), owner=first.owner)
            self._observe("commit")
            # From here on nothing can fail: all of it happens, or none.
            self._state.tables[first.table.key] = table
            self._claim(attempt, [Claim(owner=s.owner, partition_key=s.partition_key) for s in slices])
            for slice_ in slices:
                self._state.fence[slice_.table.key, slice_.partition_key] = (attempt.run_id, attempt.token)
            self._state.ledger += entries
            self._raise_marks(attempt)
            return tuple(Receipt(entry=entry) for entry in entries)

    def read(
        self,
        table: TableName,
        slices: Sequence[PartitionSlice] | None = None,
        columns: Sequence[str] | None = None,
    ) -> pa.Table:
        rows = self._snapshot(table)
        if slices is not None:
            rows = rows.filter(pa.array(memory_rows.members(rows, slices), pa.bool_()))
        if columns is None:
            return rows
        by_key = {fold(name): name for name in rows.column_names}
        if unknown := [name for name in columns if fold(name) not in by_key]:
            raise SchemaMismatchError(
                f"the table has no column {', '.join(map(repr, unknown))}",
                remedy=f"ask for some of its columns: {', '.join(rows.column_names)}",
                table=str(table),
            )
        return rows.select([by_key[fold(name)] for name in columns])

    def read_each(
        self, table: TableName, slices: Sequence[PartitionSlice], columns: Sequence[str] | None = None
    ) -> tuple[pa.Table, ...]:
        frozen = MemoryStore()
        frozen._state.tables[table.key] = _Table(rows=self._snapshot(table), owner="a snapshot")
        return tuple(frozen.read(table, [slice_], columns) for slice_ in slices)

    def _snapshot(self, table: TableName) -> pa.Table:
        with self._state.lock:
            stored = self._state.tables.get(table.key)
        if stored is None:
            raise MissingTableError(
                "the table does not exist",
                remedy="materialize the asset that makes it first",
                table=str(table),
            )
        return stored.rows

    def query(
        self,
        table: TableName,
        slices: Sequence[PartitionSlice] | None = None,
        columns: Sequence[str] | None = None,
    ) -> str:
        raise ConfigurationError("the in-memory store knows no SQL", remedy="use read()", table=str(table))

    def columns(self, table: TableName) -> tuple[Column, ...] | None:
        with self._state.lock:
            stored = self._state.tables.get(table.key)
        return None if stored is None else memory_types.columns_of(stored.rows.schema)

    def ledger(self, table: TableName | None = None) -> tuple[LedgerEntry, ...]:
        with self._state.lock:
            return tuple(e for e in self._state.ledger if table is None or e.table.key == table.key)

    def receipts(self, swap_id: str) -> tuple[LedgerEntry, ...]:
        with self._state.lock:
            return tuple(entry for entry in self._state.ledger if entry.swap_id == swap_id)

    def accept(self, acceptances: Sequence[Acceptance]) -> None:
        if self._is_snapshot:
            raise _within_a_snapshot()
        with self._state.lock:
            self._observe("accept")
            self._state.acceptances += map(_in_utc, acceptances)

    def acceptances(self, table: TableName) -> tuple[Acceptance, ...]:
        with self._state.lock:
            return tuple(one for one in self._state.acceptances if one.table.key == table.key)

    def content_hash(self, slice_: PartitionSlice, columns: Sequence[Column] | None = None) -> str:
        rows = self.read(slice_.table, [slice_], None if columns is None else [column.name for column in columns])
        schema = memory_types.columns_of(rows.schema) if columns is None else columns
        return str(memory_rows.content_hash(rows, schema))

    def _claim(self, attempt: Attempt, claims: Sequence[Claim]) -> None:
        for claim in claims:
            self._state.claims.setdefault((claim, attempt.run_id), attempt.token)

    def _raise_marks(self, attempt: Attempt) -> None:
        """Count all that the store is kept open for as committed to, as far as the attempt may write it."""
        if self._kept_for is None or attempt != self._kept_for[0]:
            return
        for slice_ in self._kept_for[1]:
            stored = self._state.tables.get(slice_.table.key)
            if stored is not None and stored.owner != slice_.owner:
                continue
            self._claim(attempt, [Claim(owner=slice_.owner, partition_key=slice_.partition_key)])
            if not self._rivals(slice_, attempt) and not self._later_commits(slice_, attempt):
                self._state.fence[slice_.table.key, slice_.partition_key] = (attempt.run_id, attempt.token)

    def _refuse_other_owner(self, slice_: PartitionSlice, renamed_from: Sequence[str]) -> None:
        stored = self._state.tables.get(slice_.table.key)
        if stored is not None and stored.owner not in {slice_.owner, *renamed_from}:
            raise TableOwnedError(
                f"the table already belongs to {stored.owner!r}, and {slice_.owner!r} maps to it too",
                remedy="give one of them another table, or declare the rename",
                **slice_.where,
            )

    def _rivals(self, slice_: PartitionSlice, attempt: Attempt) -> list[_Mark]:
        claim = Claim(owner=slice_.owner, partition_key=slice_.partition_key)
        mine = self._state.claims.get((claim, attempt.run_id), attempt.oldest)
        return [
            (run_id, token)
            for (other, run_id), token in self._state.claims.items()
            if other == claim and run_id != attempt.run_id and token > mine
        ]

    def _later_commits(self, slice_: PartitionSlice, attempt: Attempt) -> list[_Mark]:
        mark = self._state.fence.get((slice_.table.key, slice_.partition_key))
        if mark is None:
            return []
        mine = attempt.token if mark[0] == attempt.run_id else attempt.oldest
        return [mark] if mark[1] > mine else []

    def _replayed(self, slices: Sequence[PartitionSlice], attempt: Attempt, swap_id: str) -> tuple[Receipt, ...]:
        committed = [entry for entry in self.receipts(swap_id) if entry.run_id == attempt.run_id]
        refuse_twin(slices, attempt, committed)
        found = {entry.partition_key: entry for entry in committed}
        if found and not all(slice_.partition_key in found for slice_ in slices):
            raise ConfigurationError(
                f"swap id {swap_id} was already used for other partitions",
                remedy="derive a swap id from everything that makes a write unique (model.derive_swap_id)",
                **slices[0].where,
            )
        return tuple(Receipt(entry=found[s.partition_key], replayed=True) for s in slices) if found else ()

    def _entry(
        self,
        slice_: PartitionSlice,
        rows: pa.Table,
        *,
        position: int,
        attempt: Attempt,
        swap_id: str,
        provenance: Provenance,
        confirmed: bool,
    ) -> LedgerEntry:
        columns = memory_types.columns_of(rows.schema)
        return LedgerEntry(
            position=position,
            table=slice_.table,
            owner=slice_.owner,
            partition_key=slice_.partition_key,
            run_id=attempt.run_id,
            token=attempt.token,
            swap_id=swap_id,
            row_count=rows.num_rows,
            content_hash=str(memory_rows.content_hash(rows, columns)),
            column_hashes=memory_rows.column_hashes(rows),
            columns=columns,
            provenance=provenance,
            committed_at=datetime.now(UTC),
            confirmed=confirmed,
            conditions=recorded(slice_.conditions),
        )

    def _is_same(self, slice_: PartitionSlice, stored: pa.Table, given: pa.Table, cut_off: CutOff) -> bool:
        """Whether a slice holds the rows given: those, and a newest entry that says so if there are none.

        Raises:
            ContentDiffersError: It does not, though it should.
        """
        heads = self.heads(slice_.table, [slice_.partition_key])
        known = stored.num_rows > 0 or any(head.row_count == 0 for head in heads.values())
        if known and sorted(map(repr, stored.to_pylist())) == sorted(map(repr, given.to_pylist())):
            return True
        if cut_off is CutOff.VERIFY:
            found = (stored.num_rows, memory_rows.column_hashes(stored)) if known else None
            raise content_differs(slice_, stored=found, given=(given.num_rows, memory_rows.column_hashes(given)))
        return False


def _in_utc(one: Acceptance) -> Acceptance:
    until = None if one.until is None else one.until.astimezone(UTC)
    return replace(one, accepted_at=one.accepted_at.astimezone(UTC), until=until)


def _within_a_snapshot() -> ConfigurationError:
    return ConfigurationError(
        "a swap within a snapshot, which does not change", remedy="end the snapshot before storing rows"
    )


def _refuse_later(slice_: PartitionSlice, attempt: Attempt, later: Sequence[_Mark]) -> None:
    if later:
        run_id, token = max(later, key=lambda mark: mark[1])
        raise FencedOutError(
            run_id=attempt.run_id,
            token=attempt.token,
            superseded_by_run=run_id,
            superseded_by_token=token,
            **slice_.where,
        )
