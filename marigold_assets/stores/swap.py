"""One swap, from the fence to COMMIT, on a connection that is already open.

The order matters: the fence is passed, and what the rows are computed from is looked up, before a stream is read or a
row is deleted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import duckdb
import pyarrow as pa

from marigold_assets.errors import (
    ConfigurationError,
    MarigoldError,
    MissingInputError,
)
from marigold_assets.model import (
    Attempt,
    Claim,
    Column,
    CutOff,
    InputPartition,
    LedgerEntry,
    PartitionSlice,
    Provenance,
    Receipt,
    SwapOptions,
    recorded,
)
from marigold_assets.stores import fence, inputs, ledger, sql, tables
from marigold_assets.stores.base import Query, Rows, content_differs, refuse_twin
from marigold_assets.stores.fitting import Alteration, Fitting
from marigold_assets.stores.predicate import ExpressionKind, ExpressionTypes, key_casts, predicate, zone_of
from marigold_assets.stores.replacement import SOURCE, Replaced, Replacement
from marigold_assets.stores.session import BEGIN, Session
from marigold_assets.stores.watch import Watch

_LIKE_A_SECOND = re.compile(r"[_:][0-9]+$")  # how DuckDB names the second of two columns of one name
_BATCH_ROWS = 122_880  # one row group of DuckDB; of other sizes it would put the pieces together anew


class CommitFailedError(Exception):
    """COMMIT itself raised, so that the outcome is open."""

    def __init__(self, original: duckdb.Error | RuntimeError) -> None:
        super().__init__("COMMIT failed")
        self.original = original


class _NotAsRememberedError(Exception):
    """The table is not what the opening remembers, or the rows are not like those before."""


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

    def run(self, session: Session, watch: Watch | None = None) -> tuple[Receipt, ...]:
        """Swap and commit; closing the connection without a commit rolls everything back.

        Args:
            session: An open connection.
            watch: What is known from earlier swaps on that connection.

        Raises:
            CommitFailedError: COMMIT raised.
            MarigoldError: The swap was refused.
            duckdb.Error: Anything else failed before COMMIT.
        """
        if not session.has_fence:
            tables.ensure(session.fenced)
        table = self.slices[0].table
        if watch is not None and self._is_small_query and watch.expects_few_rows(table):
            try:
                watch.begin()
                return self._replace(session, None, watch)
            except _NotAsRememberedError:
                session.execute("give up", "ROLLBACK")
                watch.look_first(table)
        try:
            return self._run(session, watch)
        except _NotAsRememberedError:
            session.execute("give up", "ROLLBACK")
            if watch is not None:
                watch.forget(table)
            return self._run(session, watch)

    def _run(self, session: Session, watch: Watch | None) -> tuple[Receipt, ...]:
        fitting = Fitting.of(session, self.slices[0], self.rows, evolve=self._may_alter and self.options.evolve)
        if not isinstance(self.rows, Query):
            session.register(SOURCE, _in_batches(self.rows))
        if watch is not None:
            watch.begin()
            fitting.known = watch.columns(self.slices[0].table)
        with self._altered_table(session, fitting):
            return self._replace(session, fitting, watch)

    @property
    def _may_alter(self) -> bool:
        return self.options.cut_off is not CutOff.VERIFY

    def _begin_reading(self) -> None:
        self.consumed = isinstance(self.rows, pa.RecordBatchReader)

    @property
    def _is_small_query(self) -> bool:
        return isinstance(self.rows, Query) and self.options.cut_off is CutOff.OFF

    def _stage(self, session: Session, watch: Watch | None) -> Fitting:
        """Compute the rows of a query first, and look then: cheaper for few rows, as long as they are like the table.

        Raises:
            _NotAsRememberedError: They have to be looked at before anything is done.
        """
        known = watch.columns(self.slices[0].table) if watch is not None else None
        if known is None or not isinstance(self.rows, Query) or any(_LIKE_A_SECOND.search(c.name) for c in known):
            raise _NotAsRememberedError
        try:
            source = session.stage_query("stage", SOURCE, self.rows.sql)
        except duckdb.Error:  # which is raised again, and told apart, when the query is looked at
            raise _NotAsRememberedError from None
        if source is None or set(source) != set(known):
            raise _NotAsRememberedError
        fitting = Fitting(
            session=session, slice_=self.slices[0], source=source, evolve=self.options.evolve, doubtful=True
        )
        fitting.known = known
        return fitting

    def _inputs(self, session: Session, watch: Watch | None) -> Mapping[str | None, tuple[InputPartition, ...]]:
        """What the rows of each slice are computed from, by partition key: as it is in the transaction of the swap.

        Raises:
            MissingInputError: Something was never materialized, and cannot be done without.
        """
        reads = self.rows.reads if isinstance(self.rows, Query) else {}
        wanted = {s.partition_key: reads.get(s.partition_key, ()) for s in self.slices}
        slices = list(dict.fromkeys(read.slice_ for own in wanted.values() for read in own))
        if not slices:
            return {}
        found = dict(zip(slices, inputs.found_with_next(session, slices, watch), strict=True))
        for slice_ in self.slices:
            for read in wanted[slice_.partition_key]:
                if read.required and found[read.slice_].content_hash is None:
                    raise _missing(slice_, found[read.slice_])
        return {key: tuple(found[read.slice_] for read in own) for key, own in wanted.items()}

    def _replace(self, session: Session, fitting: Fitting | None, watch: Watch | None) -> tuple[Receipt, ...]:
        """Swap and commit; without a ``fitting``, rows of a query are computed first."""
        is_staged = fitting is None
        session.execute("begin", BEGIN)
        first_position = fence.touch_counter(session.fenced, len(self.slices))
        last_position = first_position + len(self.slices) - 1
        if watch is not None and watch.admits(first_position, self.attempt, self.slices):
            watch.pass_by(last_position)
            replayed = self._already_committed(session) if watch.has_committed(self.swap_id) else ()
        else:
            self._pass_fence(session)
            replayed = self._already_committed(session)
            if watch is not None and not replayed:
                watch.look(session.fenced, self.attempt, self.slices, last_position)
        if replayed:
            return self.receipts_of(replayed, replayed_now=True)
        inputs = self._inputs(session, watch)
        fitting = fitting or self._stage(session, watch)
        if fitting.is_new and self.options.cut_off is CutOff.VERIFY:
            raise content_differs(self.slices[0], stored=None, given=None)
        columns = fitting.ensure_table()
        if fitting.known is not None and fitting.known != columns:
            raise _NotAsRememberedError
        selection = fitting.selection(columns)
        types = session.expression_types(self.slices, columns)
        self._refuse_equal_keys(session, types)
        replaced = Replacement(
            session=session,
            slices=self.slices,
            rows=self.rows,
            options=self.options,
            columns=columns,
            selection=selection,
            types=types,
            condition=predicate(self.slices, types),
            is_new=fitting.is_new,
            reading=self._begin_reading,
            is_staged=is_staged,
        ).carry_out()
        entries = self._entries(first_position, columns, replaced, inputs)
        ledger.append(session.fenced, session.connection, entries, types.type)
        try:
            session.execute("commit", "COMMIT")
        except (duckdb.Error, RuntimeError) as error:
            raise CommitFailedError(error) from None
        if watch is not None:
            held = {slice_: entry.content_hash for slice_, entry in zip(self.slices, entries, strict=True)}
            watch.committed(self.swap_id, columns, held, sum(entry.row_count for entry in entries))
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

    @contextmanager
    def _altered_table(self, session: Session, fitting: Fitting) -> Iterator[None]:
        """Change the table where the rows need it, and take back the columns added if the swap fails.

        It has a transaction of its own: DuckDB before 2.0 refuses to commit a write to a table that the same
        transaction altered. What a process leaves that is killed between the two is a column full of NULL, or a wider
        type.
        """
        alteration = fitting.alteration()
        if alteration is None or not self._may_alter or not self._commit_alteration(session, fitting, alteration):
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
        session.execute("begin alter", BEGIN)
        fence.touch_counter(session.fenced)
        self._refuse_if_overtaken(session)
        fence.refuse_later_commits(session.fenced, self.slices, self.attempt)
        if self._already_committed(session):
            session.execute("leave table", "ROLLBACK")
            return False
        fitting.alter(alteration)
        session.execute("commit alter", "COMMIT")
        return True

    def _pass_fence(self, session: Session) -> None:
        """Pass the fence by writing it, after the counter."""
        self._refuse_if_overtaken(session)
        fence.raise_high_water(session.fenced, self.slices, self.attempt)

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

    def _provenance_of(self, inputs: tuple[InputPartition, ...]) -> Provenance:
        return replace(self.provenance, inputs=self.provenance.inputs + inputs) if inputs else self.provenance

    def _entries(
        self,
        first_position: int,
        columns: tuple[Column, ...],
        replaced: Sequence[Replaced],
        inputs: Mapping[str | None, tuple[InputPartition, ...]],
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
                row_count=found.measure.row_count,
                content_hash=found.measure.content_hash(columns),
                column_hashes=found.measure.columns,
                columns=columns,
                provenance=self._provenance_of(inputs.get(slice_.partition_key, ())),
                committed_at=now,
                confirmed=found.confirmed,
                conditions=recorded(slice_.conditions),
            )
            for number, (slice_, found) in enumerate(zip(self.slices, replaced, strict=True))
        ]


def _missing(slice_: PartitionSlice, read: InputPartition) -> MissingInputError:
    part = "" if read.partition_key is None else f"partition {read.partition_key!r} of "
    return MissingInputError(
        f"its rows are computed from {part}asset {read.owner!r}, which was never materialized",
        remedy=f"materialize {part}{read.owner!r} first",
        **slice_.where,
    )


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
