"""What a DuckDB file is read for: rows of slices, and what the ledger says of them."""

from __future__ import annotations

from abc import ABC
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import duckdb
import pyarrow as pa

from marigold_assets.errors import Where
from marigold_assets.model import Acceptance, Column, InputPartition, LedgerEntry, PartitionSlice, TableName
from marigold_assets.stores import acceptances, fence, inputs, joining, ledger, measure, reading, tables
from marigold_assets.stores.base import PartitionStore
from marigold_assets.stores.connection import Connector
from marigold_assets.stores.opening import Opening
from marigold_assets.stores.predicate import zone_of
from marigold_assets.stores.session import Session

_BATCH_ROWS = 122_880  # one row group of DuckDB


class DuckDBReader(PartitionStore, ABC):
    """The half of the store that changes nothing."""

    def _use(self, opening: Opening) -> None:
        self._connector, self._opening = opening.connector, opening

    @property
    def connector(self) -> Connector:
        """How the file is opened, for callers that need a connection of their own."""
        return self._connector

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        with self._opening.snapshot():
            yield

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
            session.begin_reading()
            known = reading.known_columns(session, table, columns)
            selections = [reading.selection(session, table, [slice_], columns, known) for slice_ in slices]
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
            known = self._known_columns(session, table, columns)
            query = reading.literal_selection(session, table, slices, columns, known)
        if isinstance(query, reading.OfZone):
            raise query.error(table, slices or ())
        return query

    def columns(self, table: TableName) -> tuple[Column, ...] | None:
        if not self._connector.exists():
            return None
        with self._session_for(table, None) as session:
            return session.table_columns(table)

    def row_count(self, table: TableName) -> int | None:
        if not self._connector.exists():
            return None
        with self._session_for(table, None) as session:
            if session.table_columns(table) is None:
                return None
            [(number,)] = session.execute("count rows", f"FROM {session.name(table)} SELECT count(*)")
            return int(number)

    def ledger(self, table: TableName | None = None) -> tuple[LedgerEntry, ...]:
        where, parameters = ("true", []) if table is None else ("table_key = ?", [table.key])
        return self._entries(where, parameters)

    def newest(self, table: TableName) -> LedgerEntry | None:
        return next(iter(self._entries(ledger.NEWEST_OF_TABLE, [table.key])), None)

    def table_of(self, owner: str) -> TableName | None:
        """The table that an asset was last swapped into, also by a former key; ``None`` if it never was."""
        return next((entry.table for entry in self._entries(ledger.NEWEST_OF_OWNER, [owner])), None)

    def heads(self, table: TableName, keys: Sequence[str | None] | None = None) -> Mapping[str | None, LedgerEntry]:
        if not self._connector.exists():
            return {}
        with self._opening.reading() as session:
            return ledger.heads(session.fenced, table, keys)

    def superseded(self, table: TableName) -> tuple[LedgerEntry, ...]:
        """The ledger of a table without its heads, in order of position: for whoever has read these already."""
        if not self._connector.exists():
            return ()
        with self._opening.reading() as session:
            return ledger.superseded(session.fenced, table)

    def recent_commits(self, table: TableName, runs: int) -> Mapping[str, tuple[float, ...]]:
        """When each of the newest runs that wrote a table committed its partitions.

        Args:
            table: The table.
            runs: How many runs at most.

        Returns:
            By run id, Unix times in order, the oldest run first; partitions that were only confirmed are left out.
        """
        if not self._connector.exists():
            return {}
        with self._opening.reading() as session:
            return ledger.recent_commits(session.fenced, table, runs)

    def inputs(self, slices: Sequence[PartitionSlice]) -> tuple[InputPartition, ...]:
        if not slices or not self._connector.exists():
            return inputs.nothing(slices)
        with self._session_for(slices[0].table, slices) as session:
            has_ledger = session.has_fence or tables.exist(session.fenced)
            session.begin_reading()
            watch = self._opening.watch
            if watch is not None and not watch.is_current(lambda: fence.position(session.fenced)):
                watch = None
            return inputs.found_with_next(session, slices, watch, has_ledger=has_ledger)

    def receipts(self, swap_id: str) -> tuple[LedgerEntry, ...]:
        return self._entries("swap_id = ?", [swap_id])

    def acceptances(self, table: TableName) -> tuple[Acceptance, ...]:
        if not self._connector.exists():
            return ()
        with self._opening.reading() as session:
            return acceptances.of_table(session, table)

    def versions_query(self, table: TableName) -> str:
        """A SELECT of every row of a table, once, with what the ledger says of the partition that it is of.

        For people, in plain DuckDB. It joins the rows exactly as they are told apart when a partition is swapped, also
        where that is an SQL expression, or a key cast to a type. Of several partitions with a row the one written last
        counts, as where days were replaced by months. Which rows a partition has stands there in literals, for the
        partitions that there are now; what has built it, and who accepts that, is looked up when the SELECT is run.
        Comments at its start say so.

        Args:
            table: The table.

        Returns:
            All columns of the table, then ``marigold_partition_key``, ``marigold_code_version``,
            ``marigold_code_fingerprint``, ``marigold_committed_at``, ``marigold_run_id``, ``marigold_accepted_by``,
            ``marigold_accepted_until`` and ``marigold_accepted_reason``; where the table has a column whose name starts
            like that, with ``marigold_`` twice, or as often as needed. They are NULL for rows of no partition, for
            those of partitions that were written last by a release that did not record which rows are theirs, and for
            those of partitions that the table can no longer be cut into, which a comment names.

        Raises:
            MissingTableError: There is no such table.
            ConfigurationError: Of no partition is it known which rows are its, or a partition expression means other
                rows in other time zones.
        """
        heads = tuple(self.heads(table).values())
        with self._session_for(table, None) as session:
            columns = reading.known_columns(session, table, None)
            return joining.versions_query(session, table, heads, columns, datetime.now(UTC))

    def content_hash(self, slice_: PartitionSlice, columns: Sequence[Column] | None = None) -> str:
        with self._session_for(slice_.table, [slice_]) as session:
            known = reading.known_columns(session, slice_.table, None)
            return measure.content_hash(session, slice_, known, columns)

    def _known_columns(self, session: Session, table: TableName, wanted: Sequence[str] | None) -> tuple[Column, ...]:
        """The columns of a table that is read: looked up once an opening."""
        watch = self._opening.watch
        known = None if watch is None else watch.columns(table)
        if known is None:
            known = reading.known_columns(session, table, None)
            if watch is not None:
                watch.remember(table, known)
        return reading.checked(known, table, wanted)

    def _entries(self, where: str, parameters: Sequence[Any]) -> tuple[LedgerEntry, ...]:
        if not self._connector.exists():
            return ()
        with self._opening.reading() as session:
            return ledger.entries(session.fenced, where, parameters)

    @contextmanager
    def _session_for(
        self, table: TableName, slices: Sequence[PartitionSlice] | None, *, alone: bool = True
    ) -> Iterator[Session]:
        where = slices[0].where if slices else Where(table=str(table))
        with self._opening.reading(alone=alone) as session:
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
            known = self._known_columns(session, table, columns)
            yield session, *reading.selection(session, table, slices, columns, known)
