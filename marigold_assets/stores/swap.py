"""One swap, from the fence to COMMIT, on a connection that is already open.

The order matters: the fence is passed before a stream is read or a row is deleted; the rows are inserted by name with
casts that fail rather than change a value; then the slices are measured as stored. If a row given is not found in a
slice, it lies outside, and everything is rolled back, the delete included.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime

import duckdb
import pyarrow as pa

from marigold_assets.errors import (
    ConfigurationError,
    LossyCastError,
    MarigoldError,
    RowsOutsidePartitionError,
)
from marigold_assets.model import (
    Attempt,
    Claim,
    Column,
    LedgerEntry,
    PartitionSlice,
    Provenance,
    Receipt,
    SwapOptions,
)
from marigold_assets.stores import fence, ledger, sql
from marigold_assets.stores.base import Query, Rows, refuse_twin
from marigold_assets.stores.fitting import Alteration, Fitting
from marigold_assets.stores.measure import Measure, measure
from marigold_assets.stores.predicate import ExpressionKind, ExpressionTypes, Predicate, key_casts, predicate, zone_of
from marigold_assets.stores.session import Session

_SOURCE = "marigold_rows"
_BATCH_ROWS = 122_880  # one row group of DuckDB; of other sizes it would put the pieces together anew


class CommitFailedError(Exception):
    """COMMIT itself raised, so that the outcome is open."""

    def __init__(self, original: duckdb.Error) -> None:
        super().__init__("COMMIT failed")
        self.original = original


@dataclass(slots=True, kw_only=True)
class SwapJob:
    """A swap to be run, possibly more than once until it has not met a conflict.

    Attributes:
        slices: Slices of one table.
        rows: All their rows.
        attempt: Who writes.
        swap_id: Name of the swap.
        provenance: For the ledger.
        options: What the asset opts in to.
        consumed: Whether a stream has been read, so that the job cannot be run again.
    """

    slices: tuple[PartitionSlice, ...]
    rows: Rows
    attempt: Attempt
    swap_id: str
    provenance: Provenance
    options: SwapOptions
    consumed: bool = field(default=False, init=False)
    _staged: bool = field(default=False, init=False)

    def run(self, session: Session) -> tuple[Receipt, ...]:
        """Swap and commit; closing the connection without a commit rolls everything back.

        Raises:
            CommitFailedError: COMMIT raised.
            MarigoldError: The swap was refused.
            duckdb.Error: Anything else failed before COMMIT.
        """
        if not session.has_fence:
            fence.ensure_tables(session.fenced)
        fitting = Fitting.of(session, self.slices[0], self.rows, evolve=self.options.evolve)
        if not isinstance(self.rows, Query):
            session.register(_SOURCE, _in_batches(self.rows))
        with self._altered_table(session, fitting):
            return self._replace(session, fitting)

    def _replace(self, session: Session, fitting: Fitting) -> tuple[Receipt, ...]:
        session.execute("begin", "BEGIN TRANSACTION")
        first_position = self._pass_fence(session)
        if replayed := self._already_committed(session):
            return self.receipts_of(replayed, replayed_now=True)
        columns = fitting.ensure_table()
        selection = fitting.selection(columns)
        types = session.expression_types(self.slices, columns)
        self._refuse_equal_keys(session, types)
        condition = predicate(self.slices, types)
        if not fitting.is_new:
            self._stage_if_circular(session)
        session.execute("delete", f"DELETE FROM {self._table(session)} WHERE {condition.sql}", condition.parameters)
        inserted = self._insert(session, selection)
        measures = measure(session, self.slices, columns, types=types, condition=condition)
        stored = sum(measure.row_count for measure in measures)
        if stored > inserted:
            raise ConfigurationError(
                "the partitions overlap",
                remedy="let every row belong to one partition only",
                **self.slices[0].where,
            )
        if stored < inserted:
            raise self._outside(session, types, condition, inserted=inserted, stored=stored)
        entries = self._entries(first_position, columns, measures)
        ledger.append(session.fenced, session.connection, entries)
        try:
            session.execute("commit", "COMMIT")
        except duckdb.Error as error:
            raise CommitFailedError(error) from None
        return tuple(
            Receipt(entry=entry, query=_query(session, slice_, types, columns))
            for slice_, entry in zip(self.slices, entries, strict=True)
        )

    def receipts_of(self, entries: Sequence[LedgerEntry], *, replayed_now: bool = False) -> tuple[Receipt, ...]:
        """The receipts of what the ledger says was committed under this job's swap id, in the order of its slices."""
        by_key = {entry.partition_key: entry for entry in entries}
        return tuple(Receipt(entry=by_key[s.partition_key], replayed=replayed_now) for s in self.slices)

    def _table(self, session: Session) -> str:
        return session.name(self.slices[0].table)

    @property
    def _from(self) -> str:
        if isinstance(self.rows, Query) and not self._staged:
            return f"({self.rows.sql.rstrip().rstrip(';')}\n)"
        return _SOURCE

    @contextmanager
    def _altered_table(self, session: Session, fitting: Fitting) -> Iterator[None]:
        """Change the table where the rows need it, and take back the columns added if the swap fails.

        It has a transaction of its own: DuckDB before 2.0 refuses to commit a write to a table that the same
        transaction altered. What a process leaves that is killed between the two is a column full of NULL, or a wider
        type.
        """
        alteration = fitting.alteration()
        if alteration is None or not self._commit_alteration(session, fitting, alteration):
            yield
            return
        try:
            yield
        except CommitFailedError:
            raise
        except BaseException as failure:
            with suppress(duckdb.Error):
                session.execute("give up", "ROLLBACK")
            try:
                fitting.take_back(alteration)
            except duckdb.Error as error:
                if isinstance(failure, MarigoldError):
                    names = ", ".join(column.name for column in alteration.fit.additions)
                    failure.detail = f"The table keeps the new columns {names}, until they are dropped by hand: {error}"
            raise

    def _commit_alteration(self, session: Session, fitting: Fitting, alteration: Alteration) -> bool:
        """Alter the table under the fence; return whether that was to be done."""
        session.execute("begin alter", "BEGIN TRANSACTION")
        fence.touch_counter(session.fenced)
        self._refuse_if_overtaken(session)
        fence.refuse_later_commits(session.fenced, self.slices, self.attempt)
        if self._already_committed(session):
            session.execute("leave table", "ROLLBACK")
            return False
        fitting.alter(alteration)
        session.execute("commit alter", "COMMIT")
        return True

    def _pass_fence(self, session: Session) -> int:
        """Pass the fence by writing it.

        Returns:
            The first of the ledger positions reserved for the slices.
        """
        first = fence.touch_counter(session.fenced, len(self.slices))
        self._refuse_if_overtaken(session)
        fence.raise_high_water(session.fenced, self.slices, self.attempt)
        return first

    def _refuse_if_overtaken(self, session: Session) -> None:
        claims = [Claim(owner=s.owner, partition_key=s.partition_key) for s in self.slices]
        fence.check_owner(session.fenced, self.slices[0], self.options.renamed_from)
        fence.refuse_rivals(self.slices, self.attempt, fence.settle_claims(session.fenced, self.attempt, claims))

    def _already_committed(self, session: Session) -> tuple[LedgerEntry, ...]:
        found = ledger.entries(session.fenced, "run_id = ? AND swap_id = ?", [self.attempt.run_id, self.swap_id])
        refuse_twin(self.slices, self.attempt, found)
        by_key = {entry.partition_key for entry in found}
        if found and not all(s.partition_key in by_key for s in self.slices):
            raise ConfigurationError(
                f"swap id {self.swap_id} was already used for other partitions",
                remedy="derive a swap id from everything that makes a write unique (model.derive_swap_id)",
                **self.slices[0].where,
            )
        return found

    def _refuse_equal_keys(self, session: Session, types: ExpressionTypes) -> None:
        """Refuse a key that names the value of another key ("1" and "01"), whose rows it would replace."""
        casts = key_casts(self.slices, types)
        found = fence.key_of_equal_value(session.fenced, self.slices, casts)
        if found is None:
            return
        slice_, other = found
        within = predicate([slice_], types)
        query = f"SELECT 1 FROM {self._table(session)} WHERE {within.sql} LIMIT 1"
        if session.execute("look for rows", query, within.parameters):
            raise ConfigurationError(
                f"the key names the same {' | '.join(kind or 'text' for kind in casts)} as partition {other!r}",
                remedy="spell every value in one way only, or store the column as text; to go over to the new spelling,"
                " delete the rows of the old one by hand",
                **slice_.where,
            )

    def _stage_if_circular(self, session: Session) -> None:
        """Run a query before the rows are deleted that it may read, whatever way it names their table."""
        if isinstance(self.rows, Query) and session.may_read(self.rows.sql, self.slices[0].table):
            self._staged = True
            session.stage("stage", _SOURCE, self.rows.sql)

    def _insert(self, session: Session, selection: str) -> int:
        self.consumed = isinstance(self.rows, pa.RecordBatchReader)
        query = f"INSERT INTO {self._table(session)} BY NAME SELECT {selection} FROM {self._from}"
        try:
            [(inserted,)] = session.execute("insert", query)
        except duckdb.InvalidInputException as error:
            raise self._lossy(error) or error from None
        return int(inserted)

    def _lossy(self, error: duckdb.Error) -> MarigoldError | None:
        lossy = sql.lossy_value(str(error))
        if lossy is None:
            return None
        column, source_type, target_type, value = lossy
        widen = "" if self.options.evolve else ', or let the table widen with metadata={"marigold/evolve": True}'
        return LossyCastError(
            f"column {column!r}: {source_type} value {value!r} does not fit {target_type}, the type in the table",
            remedy=f"round or convert the column to {target_type} yourself{widen}",
            **self.slices[0].where,
        )

    def _outside(
        self, session: Session, types: ExpressionTypes, condition: Predicate, *, inserted: int, stored: int
    ) -> RowsOutsidePartitionError:
        many = len(self.slices) > 1
        return RowsOutsidePartitionError(
            f"{inserted - stored} of {inserted} rows lie outside the partition{'s' if many else ''}"
            f"{self._examples(session, types, condition)}",
            remedy="return only rows of the partition asked for; the old rows are unchanged",
            **self.slices[0].where,
        )

    def _examples(self, session: Session, types: ExpressionTypes, condition: Predicate) -> str:
        """Some partition values of rows outside, where the source can be read a second time."""
        if not isinstance(self.rows, pa.Table):
            return ""
        values = ", ".join(f"CAST({text} AS VARCHAR)" for text in types.sql.values())
        query = f"SELECT DISTINCT [{values}] FROM {_SOURCE} WHERE ({condition.sql}) IS NOT TRUE LIMIT 3"
        try:
            rows = session.execute("find examples", query, condition.parameters)
        except duckdb.Error:  # the expression may not fit the source's own types; examples are only a help
            return ""
        shown = ", ".join(" | ".join("NULL" if v is None else v for v in values) for (values,) in rows)
        return f" (such as {' / '.join(types.sql)} = {shown})"

    def _entries(
        self, first_position: int, columns: tuple[Column, ...], measures: Sequence[Measure]
    ) -> list[LedgerEntry]:
        now = datetime.now(UTC)
        return [
            LedgerEntry(
                position=first_position + number,
                table=slice_.table,
                owner=slice_.owner,
                partition_key=slice_.partition_key,
                run_id=self.attempt.run_id,
                token=self.attempt.token,
                swap_id=self.swap_id,
                row_count=found.row_count,
                content_hash=found.content_hash(columns),
                column_hashes=found.columns,
                columns=columns,
                provenance=self.provenance,
                committed_at=now,
            )
            for number, (slice_, found) in enumerate(zip(self.slices, measures, strict=True))
        ]


def _in_batches(rows: pa.Table | pa.RecordBatchReader) -> pa.Table | pa.RecordBatchReader:
    """The same rows in pieces: DuckDB before 2.0 reads one batch of a table with one thread, however large."""
    if isinstance(rows, pa.RecordBatchReader):
        return rows
    return pa.Table.from_batches(rows.to_batches(max_chunksize=_BATCH_ROWS), schema=rows.schema)


def _query(session: Session, slice_: PartitionSlice, types: ExpressionTypes, columns: Sequence[Column]) -> str:
    if not slice_.conditions:
        return sql.select(session.name(slice_.table), None, None)
    query = sql.select(session.name(slice_.table), None, predicate([slice_], types).display)
    # An expression over instants may mean other rows where the session has another zone.
    written = any(text.startswith("(") for text in types.sql.values())
    zoned = written and any(ExpressionKind.of(column.type) is ExpressionKind.INSTANT for column in columns)
    return f"SET TimeZone = {sql.string(zone_of([slice_]))}; {query}" if zoned else query
