"""A DuckDB file as a partition store: data, fence and ledger in one file, swapped in one transaction."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import duckdb
import pyarrow as pa

from marigold_assets.errors import (
    CommitUnknownError,
    ConfigurationError,
    MarigoldError,
    MissingTableError,
    SchemaMismatchError,
    StoreBusyError,
    Where,
)
from marigold_assets.model import (
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
    fold,
)
from marigold_assets.stores import alignment, fence, inputs, ledger, measure, sql
from marigold_assets.stores.base import PartitionStore, Rows, refuse_bad_target
from marigold_assets.stores.connection import Connector
from marigold_assets.stores.location import Config
from marigold_assets.stores.predicate import zone_of
from marigold_assets.stores.session import FENCE_SCHEMA, Session, StatementObserver
from marigold_assets.stores.stream import Stream
from marigold_assets.stores.swap import CommitFailedError, SwapJob
from marigold_assets.stores.translation import is_conflict

_CONFLICT_RETRIES = 8
_BATCH_ROWS = 122_880  # one row group of DuckDB


class DuckDBStore(PartitionStore):
    """Swaps partition slices of tables in one DuckDB file.

    Every method opens the file, works briefly and closes it again.

    Args:
        database: Path of the file; created by the first write.
        config: DuckDB settings. ``custom_user_agent`` defaults to ``dagster``, as in ``dagster-duckdb``, so that both
            can have the file open in one process.
        lock_timeout_seconds: How long to wait for a file that another process holds.
        observer: Told of every statement before it runs.

    Raises:
        ConfigurationError: ``database`` is no path of a local file.
    """

    def __init__(
        self,
        database: str,
        *,
        config: Config | None = None,
        lock_timeout_seconds: float = 180.0,
        observer: StatementObserver | None = None,
    ) -> None:
        self._connector = Connector(
            database,
            config={"custom_user_agent": "dagster", **(config or {})},
            timeout_seconds=lock_timeout_seconds,
        )
        self._observer = observer

    @property
    def connector(self) -> Connector:
        """How the file is opened, for callers that need a connection of their own."""
        return self._connector

    def draw_token(self, run_id: str, claims: Sequence[Claim] = ()) -> FencingToken:
        with self._transaction(run_id) as session:
            token = fence.draw_token(session.fenced)
            fence.settle_claims(session.fenced, Attempt(run_id=run_id, token=token), claims)
            session.execute("commit", "COMMIT")
        return token

    def claim(self, attempt: Attempt, claims: Sequence[Claim]) -> None:
        with self._transaction(attempt.run_id) as session:
            fence.touch_counter(session.fenced)
            fence.settle_claims(session.fenced, attempt, claims)
            session.execute("commit", "COMMIT")

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
        _refuse_bad_target(slices)
        stream = Stream(rows, self._connector.lock_path) if isinstance(rows, pa.RecordBatchReader) else None
        job = SwapJob(
            slices=tuple(slices),
            rows=rows if stream is None else stream.open(),
            attempt=attempt,
            swap_id=swap_id,
            provenance=provenance or Provenance(),
            options=options or SwapOptions(),
        )
        for retry in range(_CONFLICT_RETRIES):
            try:
                zone, alone = zone_of(slices), stream is None
                with self._transaction(attempt.run_id, timezone=zone, begin=False, alone=alone) as session:
                    return job.run(session)
            except CommitFailedError as failure:
                if receipts := self._settle(job, failure.original):
                    return receipts
                error: duckdb.Error = failure.original
            except duckdb.Error as failure:
                if stream is not None and stream.error is not None and not isinstance(stream.error, pa.ArrowException):
                    raise _of_author(stream.error, slices[0].where) from None
                error = failure
            # A conflict: another connection of this process wrote the same rows; with the queue this is rare. Whoever
            # comes second sees the winner's token when it tries again.
            if job.consumed or not is_conflict(error):
                raise self._connector.translate(error, slices[0].where) from None
            time.sleep(0.01 * 2**retry)
        raise StoreBusyError(
            f"{_CONFLICT_RETRIES} commits in a row met a conflict with another connection of this process",
            remedy="run again, or let only one thread write the database at a time",
            **slices[0].where,
        )

    def read(
        self,
        table: TableName,
        slices: Sequence[PartitionSlice] | None = None,
        columns: Sequence[str] | None = None,
    ) -> pa.Table:
        with self._reading(table, slices, columns) as (session, query, parameters):
            rows: pa.Table = session.relation("read", query, parameters).to_arrow_table()
            return rows

    def read_each(
        self, table: TableName, slices: Sequence[PartitionSlice], columns: Sequence[str] | None = None
    ) -> tuple[pa.Table, ...]:
        with self._session_for(table, slices) as session:
            session.execute("begin reading", "BEGIN TRANSACTION")
            known = _known_columns(session, table, columns)
            selections = [_selection(session, table, [slice_], columns, known) for slice_ in slices]
            return tuple(session.relation("read", *selection).to_arrow_table() for selection in selections)

    @contextmanager
    def scan(
        self,
        table: TableName,
        slices: Sequence[PartitionSlice] | None = None,
        columns: Sequence[str] | None = None,
    ) -> Iterator[pa.RecordBatchReader]:
        with self._reading(table, slices, columns, alone=False) as (session, query, parameters):
            reader = session.relation("scan", query, parameters).to_arrow_reader(_BATCH_ROWS)
            try:
                yield reader
            finally:
                reader.close()  # whoever keeps it would keep the file open

    def query(
        self,
        table: TableName,
        slices: Sequence[PartitionSlice] | None = None,
        columns: Sequence[str] | None = None,
    ) -> str:
        with self._session_for(table, slices) as session:
            known = _known_columns(session, table, columns)
            if not slices:
                return sql.select(session.name(table), columns, None if slices is None else "false")
            where = session.predicate(slices, known).display
            if (expression := session.expression_of_zone(slices, known)) is not None:
                raise ConfigurationError(
                    f"partition expression {expression!r} depends on the time zone of whoever runs the SQL",
                    remedy="annotate the input as pyarrow.Table or duckdb.DuckDBPyRelation instead of str, or name the"
                    f" zone in the expression: <column> AT TIME ZONE {sql.string(zone_of(slices))}",
                    **slices[0].where,
                )
            return sql.select(session.name(table), columns, where)

    def columns(self, table: TableName) -> tuple[Column, ...] | None:
        if not self._connector.path.exists():
            return None
        with self._session_for(table, None) as session:
            return session.table_columns(table)

    def ledger(self, table: TableName | None = None) -> tuple[LedgerEntry, ...]:
        where, parameters = ("true", []) if table is None else ("table_key = ?", [table.key])
        return self._entries(where, parameters)

    def newest(self, table: TableName) -> LedgerEntry | None:
        return next(iter(self._entries(ledger.NEWEST_OF_TABLE, [table.key])), None)

    def heads(self, table: TableName, keys: Sequence[str | None] | None = None) -> Mapping[str | None, LedgerEntry]:
        if not self._connector.path.exists():
            return {}
        with self._connector.read() as connection:
            return ledger.heads(Session(connection, self._observer).fenced, table, keys)

    def inputs(self, slices: Sequence[PartitionSlice]) -> tuple[InputPartition, ...]:
        if not slices or not self._connector.path.exists():
            return inputs.nothing(slices)
        with self._session_for(slices[0].table, slices) as session:
            has_ledger = fence.exists(session.fenced)
            session.execute("begin reading", "BEGIN TRANSACTION")
            return inputs.found(session, slices, has_ledger=has_ledger)

    def receipts(self, swap_id: str) -> tuple[LedgerEntry, ...]:
        return self._entries("swap_id = ?", [swap_id])

    def content_hash(self, slice_: PartitionSlice, columns: Sequence[Column] | None = None) -> str:
        with self._session_for(slice_.table, [slice_]) as session:
            known = _known_columns(session, slice_.table, None)
            return measure.content_hash(session, slice_, known, columns)

    def _entries(self, where: str, parameters: Sequence[Any]) -> tuple[LedgerEntry, ...]:
        if not self._connector.path.exists():
            return ()
        with self._connector.read() as connection:
            return ledger.entries(Session(connection, self._observer).fenced, where, parameters)

    def _settle(self, job: SwapJob, error: duckdb.Error) -> tuple[Receipt, ...]:
        """Find out from the ledger whether a COMMIT that raised has committed (S9).

        Returns:
            The receipts, or none if it has not.
        """
        where = job.slices[0].where
        try:
            found = [entry for entry in self.receipts(job.swap_id) if entry.token == job.attempt.token]
        except MarigoldError as second:
            raise CommitUnknownError(
                f"the connection failed during COMMIT of swap {job.swap_id}, and the ledger cannot be asked",
                swap_ids=(job.swap_id,),
                remedy="run again once the database can be opened: a repeated swap returns the first receipt",
                detail=f"{self._connector.translate(error, where)}\n{second}",
                **where,
            ) from None
        return job.receipts_of(found) if found else ()

    @contextmanager
    def _transaction(
        self, run_id: str, *, timezone: str = "UTC", begin: bool = True, alone: bool = True
    ) -> Iterator[Session]:
        with self._connector.write(f"run {run_id}", alone=alone) as connection:
            session = Session(connection, self._observer)
            try:
                session.write_once(rows=not begin)
                if not begin:
                    session.configure(timezone)
                else:
                    fence.ensure_tables(session.fenced)
                    session.execute("begin", "BEGIN TRANSACTION")
                yield session
            except duckdb.Error as error:
                if begin:
                    raise self._connector.translate(error) from None
                raise

    @contextmanager
    def _session_for(
        self, table: TableName, slices: Sequence[PartitionSlice] | None, *, alone: bool = True
    ) -> Iterator[Session]:
        where = slices[0].where if slices else Where(table=str(table))
        with self._connector.read(alone=alone) as connection:
            session = Session(connection, self._observer)
            try:
                session.configure(zone_of(slices or ()))
                yield session
            except duckdb.Error as error:
                raise self._connector.translate(error, where) from None

    @contextmanager
    def _reading(
        self,
        table: TableName,
        slices: Sequence[PartitionSlice] | None,
        columns: Sequence[str] | None,
        *,
        alone: bool = True,
    ) -> Iterator[tuple[Session, str, tuple[Any, ...]]]:
        with self._session_for(table, slices, alone=alone) as session:
            known = _known_columns(session, table, columns)
            yield session, *_selection(session, table, slices, columns, known)


def _of_author(error: BaseException, where: Where) -> BaseException:
    """What the author's stream raised; it may succeed the next time, so it stays what it is."""
    place = ", ".join(f"{word} {value!r}" for word, value in where.items() if value)
    error.add_note(f"Raised by the stream of rows for {place}; nothing was changed.")
    return error


def _selection(
    session: Session,
    table: TableName,
    slices: Sequence[PartitionSlice] | None,
    columns: Sequence[str] | None,
    known: Sequence[Column],
) -> tuple[str, tuple[Any, ...]]:
    """The SELECT of some columns of some slices, with the values to bind."""
    wanted = None if columns is None else {fold(name) for name in columns}
    given = [column for column in known if wanted is None or fold(column.name) in wanted]
    alignment.refuse_inexact(given, slices[0].where if slices else Where(table=str(table)))
    if slices is None:
        return sql.select(session.name(table), columns, None), ()
    condition = session.predicate(slices, known)
    return sql.select(session.name(table), columns, condition.sql), condition.parameters


def _refuse_bad_target(slices: Sequence[PartitionSlice]) -> None:
    refuse_bad_target(slices)
    if fold(slices[0].table.schema) == FENCE_SCHEMA:
        raise ConfigurationError(
            f"schema {FENCE_SCHEMA!r} holds the fence and the ledger",
            remedy="give the asset another key prefix or schema",
            **slices[0].where,
        )


def _known_columns(session: Session, table: TableName, wanted: Sequence[str] | None) -> tuple[Column, ...]:
    known = session.table_columns(table)
    if known is None:
        raise MissingTableError(
            "the table does not exist",
            remedy="materialize the asset that makes it first, or correct schema and name",
            table=str(table),
        )
    names = {fold(column.name) for column in known}
    unknown = [name for name in wanted or () if fold(name) not in names]
    if unknown:
        raise SchemaMismatchError(
            f"the table has no column {', '.join(map(repr, unknown))}",
            remedy=f"ask for some of its columns: {', '.join(column.name for column in known)}",
            table=str(table),
        )
    return known
