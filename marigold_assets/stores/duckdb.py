"""A DuckDB file as a partition store: data, fence and ledger in one file, swapped in one transaction."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import duckdb
import pyarrow as pa

from marigold_assets.errors import (
    CommitUnknownError,
    ConfigurationError,
    MarigoldError,
    StoreBusyError,
)
from marigold_assets.model import (
    Acceptance,
    Attempt,
    Claim,
    FencingToken,
    PartitionSlice,
    Provenance,
    Receipt,
    SwapOptions,
    TableName,
    fold,
)
from marigold_assets.stores import acceptances as accepting
from marigold_assets.stores import fence, reading
from marigold_assets.stores.base import CommittedInterrupt, Query, Rows, refuse_bad_target
from marigold_assets.stores.connection import Connector, is_interrupt
from marigold_assets.stores.duckdb_reader import DuckDBReader
from marigold_assets.stores.location import Config
from marigold_assets.stores.opening import Brief, Kept
from marigold_assets.stores.predicate import zone_of
from marigold_assets.stores.session import BEGIN, FENCE_SCHEMA, Session, StatementObserver
from marigold_assets.stores.stream import Stream, of_author
from marigold_assets.stores.swap import CommitFailedError, SwapJob
from marigold_assets.stores.translation import is_conflict
from marigold_assets.stores.watch import Watch

_CONFLICT_RETRIES = 8
_OF_PYTHON = "__duckdb_source_"  # how DuckDB 2 names what lives as long as a Python object; 1.5 has no SQL for that


class DuckDBStore(DuckDBReader):
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
        connector = Connector(
            database,
            config={"custom_user_agent": "dagster", **(config or {})},
            timeout_seconds=lock_timeout_seconds,
        )
        self._use(Brief(connector, observer))

    @contextmanager
    def keep_open(
        self,
        attempt: Attempt,
        slices: Sequence[PartitionSlice] = (),
        *,
        reads: Sequence[PartitionSlice] = (),
        alone: bool = True,
    ) -> Iterator[KeptDuckDBStore]:
        watch = Watch(attempt=attempt, slices=tuple(slices), reads=tuple(reads))
        with self._opening.kept(watch, alone=alone) as opening:
            yield KeptDuckDBStore(opening)

    def draw_token(self, run_id: str, claims: Sequence[Claim] = ()) -> FencingToken:
        with self._transaction(_run(run_id)) as session:
            token = fence.draw_token(session.fenced)
            fence.settle_claims(session.fenced, Attempt(run_id=run_id, token=token), claims)
            session.execute("commit", "COMMIT")
        return token

    def claim(self, attempt: Attempt, claims: Sequence[Claim]) -> None:
        with self._transaction(_run(attempt.run_id)) as session:
            fence.touch_counter(session.fenced)
            fence.settle_claims(session.fenced, attempt, claims)
            session.execute("commit", "COMMIT")

    def accept(self, acceptances: Sequence[Acceptance]) -> None:
        if not acceptances:
            return
        with self._transaction("an acceptance") as session:
            accepting.append(session, acceptances, fence.touch_counter(session.fenced, len(acceptances)))
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
                with self._transaction(_run(attempt.run_id), timezone=zone, begin=False, alone=alone) as session:
                    return job.run(session, self._opening.watch)
            except CommitFailedError as failure:
                receipts, error = self._settle(job, failure.original), failure.original
                if is_interrupt(error):
                    raise (CommittedInterrupt(receipts) if receipts else KeyboardInterrupt) from error
                if receipts:
                    return receipts
            except duckdb.Error as failure:
                if stream is not None and stream.error is not None and not isinstance(stream.error, pa.ArrowException):
                    raise of_author(stream.error, slices[0].where) from None
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

    def _settle(self, job: SwapJob, error: BaseException) -> tuple[Receipt, ...]:
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
        self, owner: str, *, timezone: str = "UTC", begin: bool = True, alone: bool = True
    ) -> Iterator[Session]:
        with self._opening.writing(owner, rows=not begin, alone=alone) as session:
            try:
                if not begin:
                    session.configure(timezone)
                else:
                    session.execute("begin", BEGIN)
                yield session
            except duckdb.Error as error:
                if begin:
                    raise self._connector.translate(error) from None
                raise


class KeptDuckDBStore(DuckDBStore):
    """The store that :meth:`DuckDBStore.keep_open` gives: opened once, for one thread at a time.

    Args:
        opening: What keeps it open.
    """

    def __init__(self, opening: Kept) -> None:
        self._use(opening)
        self._hold = opening.hold
        self._marker = f"marigold_{uuid.uuid4().hex}"

    def relation(
        self,
        table: TableName,
        slices: Sequence[PartitionSlice] | None = None,
        columns: Sequence[str] | None = None,
    ) -> duckdb.DuckDBPyRelation:
        """What :meth:`read` would read, as a lazy relation on the connection that is kept open.

        Where the slices depend on the time zone in which they are told apart, their rows are read at once: nobody knows
        in which zone the relation will be run. Raises like :meth:`read`.
        """
        with self._session_for(table, slices) as session:
            known = self._known_columns(session, table, columns)
            query = reading.literal_selection(session, table, slices, columns, known)
        rows = self.read(table, slices, columns) if isinstance(query, reading.OfZone) else None
        with self._session_for(table, slices) as session:
            if rows is not None:
                return session.connection.from_arrow(rows)
            return session.relation("relation", f"SELECT * FROM ({query}) AS {self._marker}")  # noqa: S608 - quoted

    @property
    def is_resting(self) -> bool:
        """Whether whoever keeps it open would close it for those who wait, though they were of the same thread."""
        return self._hold.is_resting

    @is_resting.setter
    def is_resting(self, value: bool) -> None:
        self._hold.is_resting = value

    def find_frames(self, *, wanted: bool) -> None:
        """Have queries find frames by their variable's name, or not.

        A function that works with relations expects it. SQL that a swap runs must not, but for that of
        :meth:`query_of`, which names none.
        """
        with self._opening.reading() as session:
            session.find_frames(wanted=wanted)

    def query_of(self, relation: duckdb.DuckDBPyRelation) -> Query | None:
        """The SQL of a relation that was derived from :meth:`relation`, to be swapped without fetching its rows.

        Returns:
            ``None`` if it is another connection's, or needs what only Python has.
        """
        text = relation.sql_query()
        if self._marker not in text or _OF_PYTHON in text:
            return None
        with self._opening.reading() as session:
            return Query(sql=text) if session.is_understood_elsewhere(text) else None


def _run(run_id: str) -> str:
    return f"run {run_id}"


def _refuse_bad_target(slices: Sequence[PartitionSlice]) -> None:
    refuse_bad_target(slices)
    if fold(slices[0].table.schema) == FENCE_SCHEMA:
        raise ConfigurationError(
            f"schema {FENCE_SCHEMA!r} holds the fence and the ledger",
            remedy="give the asset another key prefix or schema",
            **slices[0].where,
        )
