"""One swap, from the fence to COMMIT, on a connection that is already open.

The order matters: the fence is passed before a stream is read or a row is deleted; the rows are inserted by name with
casts that fail rather than change a value; then the slices are measured as stored. If a row given is not found in a
slice, it lies outside, and everything is rolled back, the delete included.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import duckdb
import pyarrow as pa

from marigold_assets.errors import (
    ConfigurationError,
    LossyCastError,
    MarigoldError,
    RowsOutsidePartitionError,
    SchemaMismatchError,
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
    fold,
)
from marigold_assets.stores import alignment, fence, ledger, sql, standin
from marigold_assets.stores.base import Query, Rows, refuse_twin
from marigold_assets.stores.connection import returned_sql
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
    _stand_ins: dict[str, str] = field(default_factory=dict, init=False)

    def run(self, session: Session) -> tuple[Receipt, ...]:
        """Swap and commit; closing the connection without a commit rolls everything back.

        Raises:
            CommitFailedError: COMMIT raised.
            MarigoldError: The swap was refused.
            duckdb.Error: Anything else failed before COMMIT.
        """
        fence.ensure_tables(session.fenced)
        source = self._source_columns(session)
        if not isinstance(self.rows, Query):
            session.connection.register(_SOURCE, _in_batches(self.rows))
        table = self._prepare_table(session, source)
        session.execute("begin", "BEGIN TRANSACTION")
        first_position = self._pass_fence(session)
        if replayed := self._already_committed(session):
            return self.receipts_of(replayed, replayed_now=True)
        columns, selection = self._fit(session, table, source)
        types = session.expression_types(self.slices, columns)
        fence.refuse_equal_keys(session.fenced, self.slices, key_casts(self.slices, types))
        condition = predicate(self.slices, types)
        if table is not None:
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

    def _source_columns(self, session: Session) -> tuple[Column, ...]:
        where = self.slices[0].where
        if isinstance(self.rows, Query):
            with returned_sql():
                _refuse_unless_select(session, self.rows, self.slices[0])
                found = session.described(f"DESCRIBE {self.rows.sql}")
        else:
            given = tuple(Column(name=f.name, type=str(f.type)) for f in self.rows.schema)
            alignment.refuse_unusable_names(given, where)  # DuckDB would give the second of two equal names another
            session.connection.register("marigold_shape", self.rows.schema.empty_table())
            found = session.described("DESCRIBE SELECT * FROM marigold_shape")
            session.connection.unregister("marigold_shape")
            pairs = zip(found, self.rows.schema, strict=True)
            found = tuple(Column(name=c.name, type=standin.with_nothing(c.type, f.type)) for c, f in pairs)
        alignment.refuse_unusable_names(found, where)
        return found

    def _prepare_table(self, session: Session, source: Sequence[Column]) -> tuple[Column, ...] | None:
        """The table's columns, after changing them where that is wanted, in a transaction of its own.

        DuckDB before 2.0 refuses to commit a write to a table that the same transaction altered. What is committed
        here alone is harmless: a column full of NULL, or a wider type.
        """
        table = session.table_columns(self.slices[0].table)
        if table is None:
            self._stand_ins = self._find_stand_ins(session, source)
            return None
        marked = frozenset() if set(source) <= set(table) else session.marked_columns(self.slices[0].table)
        untyped = self._first_types(session, alignment.untyped_candidates(table, source, marked))
        where, evolve = self.slices[0].where, self.options.evolve
        try:
            fit = alignment.align(table, source, where=where, evolve=evolve, untyped=untyped)
        except SchemaMismatchError:
            return table  # raised again behind the fence: a swap that is already in, or fenced out, is told that first
        if not fit.alters_table:
            return table
        types = {column.name: column.type for column in table}
        undecided = {
            c.name for c in table for s in source if fold(s.name) == fold(c.name) and standin.has_nothing(s.type)
        }
        session.execute("begin alter", "BEGIN TRANSACTION")
        fence.touch_counter(session.fenced)
        self._refuse_if_overtaken(session)
        fence.refuse_later_commits(session.fenced, self.slices, self.attempt)
        if self._already_committed(session):
            session.execute("leave table", "ROLLBACK")
            return table
        self._refuse_retyping_values(session, table, fit.retypings)
        for column in fit.additions:
            self._alter(session, "add column", column, f"ADD COLUMN {self._declared(column)}")
        for column in fit.retypings:
            using = standin.retyped(Column(name=column.name, type=types[column.name]), column.type)
            self._alter(session, "retype column", column, _new_type(column, using))
            if column.name in marked - undecided:
                self._alter(
                    session, "unmark column", column, f"ALTER COLUMN {sql.identifier(column.name)} DROP DEFAULT"
                )
        types.update((column.name, column.type) for column in fit.retypings)
        for column in fit.widenings:
            using = sql.guarded_cast(column.name, source_type=types[column.name], target_type=column.type)
            self._alter(session, "widen column", column, _new_type(column, using))
        session.execute("commit alter", "COMMIT")
        return session.table_columns(self.slices[0].table)

    def _first_types(
        self, session: Session, candidates: Sequence[tuple[Column, str, Sequence[standin.Path]]]
    ) -> dict[str, str]:
        found = {}
        for column, kind, places in candidates:
            each = {place: standin.filled(kind, column.type, [place]) for place in places}
            free = [place for place, wanted in each.items() if not self._holds_value(session, column, wanted)]
            if free:
                found[column.name] = standin.filled(kind, column.type, free)
        return found

    def _alter(self, session: Session, label: str, column: Column, change: str) -> None:
        try:
            session.execute(label, f"ALTER TABLE {self._table(session)} {change}")
        except duckdb.Error as error:
            raise alignment.alteration_error(error, column, self.slices[0].where) or error from None

    def _holds_value(self, session: Session, column: Column, wanted: str) -> bool:
        condition = standin.holds_value(column, wanted)
        query = f"SELECT 1 FROM {self._table(session)} WHERE {condition} LIMIT 1"
        return bool(session.execute("look for a value", query))

    def _refuse_retyping_values(self, session: Session, table: Sequence[Column], retypings: Sequence[Column]) -> None:
        """What holds nothing but NULL, or empty lists, got its type by chance and may take the first real one."""
        by_name = {column.name: column for column in table}
        for column in retypings:
            if self._holds_value(session, by_name[column.name], column.type):
                raise alignment.kind_mismatch(column, by_name[column.name], self.slices[0].where)

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

    def _fit(
        self, session: Session, table: tuple[Column, ...] | None, source: Sequence[Column]
    ) -> tuple[tuple[Column, ...], str]:
        """Make sure that the table exists and say how to select the source for it."""
        slice_ = self.slices[0]
        if table is None:
            session.execute("create schema", f"CREATE SCHEMA IF NOT EXISTS {session.schema(slice_.table.schema)}")
            declared = ", ".join(self._declared(column) for column in source)
            session.execute("create table", f"CREATE TABLE IF NOT EXISTS {self._table(session)} ({declared})")
            table = session.table_columns(slice_.table) or ()
        fit = alignment.align(table, source, where=slice_.where, evolve=self.options.evolve)
        if fit.alters_table:  # not any more: what does not fit the table as it is now is refused
            fit = alignment.align(table, source, where=slice_.where, evolve=False)
            self._refuse_retyping_values(session, table, fit.retypings)
        return table, ", ".join(fit.selection)

    def _declared(self, column: Column) -> str:
        doubtful = not isinstance(self.rows, pa.Table)
        return standin.declared(column, doubtful=doubtful, kind=self._stand_ins.get(column.name))

    def _find_stand_ins(self, session: Session, source: Sequence[Column]) -> dict[str, str]:
        """Types for columns of nothing but NULL over which the partition expressions can be evaluated."""
        found: dict[str, str] = {}
        for condition in self.slices[0].conditions:
            one = replace(self.slices[0], conditions=(condition,))
            names = set(standin.undecided(source, condition.expression)) - found.keys()
            for kind in standin.kinds_for(condition) if names else ():
                tried = {**found, **dict.fromkeys(names, kind)}
                row = tuple(Column(name=c.name, type=tried.get(c.name, standin.decided(c.type))) for c in source)
                with suppress(duckdb.Error, ConfigurationError):
                    predicate((one,), session.expression_types((one,), row, of_row=True))
                    found = tried
                    break
        return found

    def _stage_if_circular(self, session: Session) -> None:
        """Run a query before the rows are deleted that it may read, whatever way it names their table."""
        if isinstance(self.rows, Query) and session.may_read(self.rows.sql, self.slices[0].table):
            self._staged = True
            session.execute("stage", f"CREATE OR REPLACE TEMP TABLE {_SOURCE} AS {self.rows.sql}")

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
        return LossyCastError(
            f"column {column!r}: {source_type} value {value!r} does not fit {target_type}, the type in the table",
            remedy=f"round or convert the column to {target_type} yourself, or let the table widen with"
            ' metadata={"marigold/evolve": True} on the asset',
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


def _new_type(column: Column, using: str) -> str:
    return f"ALTER COLUMN {sql.identifier(column.name)} TYPE {column.type} USING {using}"


def _refuse_unless_select(session: Session, query: Query, slice_: PartitionSlice) -> None:
    statements = session.connection.extract_statements(query.sql)
    one = len(statements) == 1 and statements[0].type == duckdb.StatementType.SELECT
    if not one or not sql.is_query(query.sql):
        raise ConfigurationError(
            "the SQL returned is not one SELECT, VALUES or FROM statement",
            remedy="return exactly one of these, without a semicolon; the swap itself inserts its rows",
            **slice_.where,
        )
