"""Replacing the rows of slices, within a transaction that has passed the fence.

The rows are inserted by name with casts that fail rather than change a value; then the slices are measured as stored.
If a row given is not found in a slice, it lies outside, and everything is rolled back, the delete included.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import duckdb
import pyarrow as pa

from marigold_assets.errors import ConfigurationError, LossyCastError, MarigoldError, RowsOutsidePartitionError
from marigold_assets.model import Column, CutOff, PartitionSlice, SwapOptions
from marigold_assets.stores import ledger, sql
from marigold_assets.stores.base import Query, Rows, content_differs
from marigold_assets.stores.measure import Measure, measure
from marigold_assets.stores.predicate import ExpressionTypes, Predicate, predicate
from marigold_assets.stores.session import Session

SOURCE = "marigold_rows"
"""Under which name the database reads the rows, unless they are SQL."""

_STAGED = "marigold_staged"


@dataclass(frozen=True, slots=True, kw_only=True)
class Replaced:
    """What a slice holds after the swap.

    Attributes:
        measure: Its rows.
        confirmed: Whether they had been there before, and were left alone.
    """

    measure: Measure
    confirmed: bool = False


@dataclass(slots=True, kw_only=True)
class Replacement:
    """Rows that are to become those of slices of one table.

    Attributes:
        session: In a transaction.
        slices: The slices.
        rows: All their rows.
        options: What the asset opts in to.
        columns: The table's columns.
        selection: How to select the rows for them.
        is_new: Whether the table was made for these rows.
        reading: Called just before a row is read.
        is_staged: Whether the rows of a query have been computed already.
    """

    session: Session
    slices: Sequence[PartitionSlice]
    rows: Rows
    options: SwapOptions
    columns: Sequence[Column]
    selection: str
    types: ExpressionTypes
    condition: Predicate
    is_new: bool
    reading: Callable[[], None]
    is_staged: bool

    def carry_out(self) -> list[Replaced]:
        """Replace the rows, of all slices or of those in which they differ; one result a slice.

        Raises:
            MarigoldError: They do not fit slices or table, or are not what is stored though they should be.
        """
        if self.options.cut_off is CutOff.OFF or self.is_new:
            return [Replaced(measure=found) for found in self._replace_all()]
        return self._replace_changed()

    def _replace_all(self) -> list[Measure]:
        if not self.is_new:
            self._stage_if_circular()
        self._delete(self.condition)
        given = self._insert(self._table)
        measures = self._measure(self.slices, self.condition)
        self._refuse_outside(given, measures)
        return measures

    def _replace_changed(self) -> list[Replaced]:
        """Compare the rows with those stored, as they would be stored, and replace those of slices that differ."""
        self.session.stage("stage", _STAGED, f"SELECT * FROM {self._table} LIMIT 0")
        given = self._insert(_STAGED)
        new = self._measure(self.slices, self.condition, table=_STAGED)
        self._refuse_outside(given, new)
        old = self._measure(self.slices, self.condition)
        missing = self._not_stored([s for s, m in zip(self.slices, old, strict=True) if not m.row_count])
        changed = [
            (slice_, after, before)
            for slice_, after, before in zip(self.slices, new, old, strict=True)
            if after != before or slice_ in missing
        ]
        if not changed:
            return [Replaced(measure=found, confirmed=True) for found in old]
        if self.options.cut_off is CutOff.VERIFY:
            slice_, after, before = changed[0]
            stored = None if slice_ in missing else (before.row_count, before.columns)
            raise content_differs(slice_, stored=stored, given=(after.row_count, after.columns))
        slices = [slice_ for slice_, _, _ in changed]
        condition = predicate(slices, self.types)
        self._delete(condition)
        self.session.execute(
            "insert",
            f"INSERT INTO {self._table} BY NAME SELECT * FROM {_STAGED} WHERE {condition.sql}",
            condition.parameters,
        )
        stored_now = dict(zip(slices, self._measure(slices, condition), strict=True))
        return [
            Replaced(measure=stored_now[slice_]) if slice_ in stored_now else Replaced(measure=found, confirmed=True)
            for slice_, found in zip(self.slices, old, strict=True)
        ]

    def _not_stored(self, slices: Sequence[PartitionSlice]) -> frozenset[PartitionSlice]:
        """Which of some slices without rows were not stored like that: empty is not missing (S6).

        Those that were never materialized, and those whose rows have gone by hand, with the table or without.
        """
        if not slices:
            return frozenset()
        table = slices[0].table
        heads = ledger.head_contents(self.session.fenced, {table: [slice_.partition_key for slice_ in slices]})
        empty = {key for (_, key), head in heads.items() if not head.row_count}
        return frozenset(slice_ for slice_ in slices if slice_.partition_key not in empty)

    def _measure(
        self, slices: Sequence[PartitionSlice], condition: Predicate, table: str | None = None
    ) -> list[Measure]:
        return measure(self.session, slices, self.columns, types=self.types, condition=condition, table=table)

    def _delete(self, condition: Predicate) -> None:
        self.session.execute("delete", f"DELETE FROM {self._table} WHERE {condition.sql}", condition.parameters)

    @property
    def _table(self) -> str:
        return self.session.name(self.slices[0].table)

    @property
    def _from(self) -> str:
        if isinstance(self.rows, Query) and not self.is_staged:
            return sql.subquery(self.rows.sql)
        return SOURCE

    def _stage_if_circular(self) -> None:
        """Run a query before the rows are deleted that it may read, whatever way it names their table."""
        if not isinstance(self.rows, Query) or self.is_staged:
            return
        table = self.slices[0].table
        is_said = any(read.slice_.table.key == table.key for own in self.rows.reads.values() for read in own)
        if is_said or self.session.may_read(self.rows.sql, table):
            self.is_staged = True
            self.session.stage("stage", SOURCE, self.rows.sql)

    def _insert(self, target: str) -> int:
        self.reading()
        query = f"INSERT INTO {target} BY NAME SELECT {self.selection} FROM {self._from}"
        try:
            [(inserted,)] = self.session.execute("insert", query)
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

    def _refuse_outside(self, given: int, measures: Sequence[Measure]) -> None:
        found = sum(measure.row_count for measure in measures)
        if found > given:
            raise ConfigurationError(
                "the partitions overlap",
                remedy="let every row belong to one partition only",
                **self.slices[0].where,
            )
        if found < given:
            raise RowsOutsidePartitionError(
                f"{given - found} of {given} rows lie outside the partition{'s' if len(self.slices) > 1 else ''}"
                f"{self._examples()}",
                remedy="return only rows of the partition asked for; the old rows are unchanged",
                **self.slices[0].where,
            )

    def _examples(self) -> str:
        """Some partition values of rows outside, where the source can be read a second time."""
        if not isinstance(self.rows, pa.Table):
            return ""
        values = ", ".join(f"CAST({text} AS VARCHAR)" for text in self.types.sql.values())
        query = f"SELECT DISTINCT [{values}] FROM {SOURCE} WHERE ({self.condition.sql}) IS NOT TRUE LIMIT 3"
        try:
            rows = self.session.execute("find examples", query, self.condition.parameters)
        except duckdb.Error:  # the expression may not fit the source's own types; examples are only a help
            return ""
        shown = ", ".join(" | ".join("NULL" if v is None else v for v in values) for (values,) in rows)
        return f" (such as {' / '.join(self.types.sql)} = {shown})"
