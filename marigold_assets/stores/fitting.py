"""Fitting a table to the rows that are to go into it: it is created, it grows, and what was undecided gets its type.

What is to be done is found out first, and done later by whoever holds the transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

import duckdb
import pyarrow as pa

from marigold_assets.errors import ConfigurationError, SchemaMismatchError
from marigold_assets.model import Column, PartitionSlice, fold
from marigold_assets.stores import alignment, sql, standin
from marigold_assets.stores.alignment import Alignment
from marigold_assets.stores.base import Query, Rows
from marigold_assets.stores.predicate import predicate
from marigold_assets.stores.session import Session
from marigold_assets.stores.translation import returned_sql


@dataclass(frozen=True, slots=True, kw_only=True)
class Alteration:
    """What a table needs before rows fit.

    Attributes:
        fit: Columns to add, widen or give their first real type.
        table: The table's columns before.
        marked: Names of the columns that are marked as undecided.
    """

    fit: Alignment
    table: tuple[Column, ...]
    marked: frozenset[str]


@dataclass(slots=True, kw_only=True)
class Fitting:
    """The columns of some rows, beside the table that they go into.

    Attributes:
        session: Where the table is.
        slice_: A slice of it, for errors.
        source: The columns of the rows.
        evolve: Whether columns may be added and types widened.
        doubtful: Whether an INTEGER of the rows may be what DuckDB before 2.0 made of nothing but NULL.
        known: The table's columns as they are remembered, so that they need not be looked up twice.
        is_new: Whether there was no table when :meth:`alteration` looked. A look-up that fails within a transaction
            would abort it.
    """

    session: Session
    slice_: PartitionSlice
    source: tuple[Column, ...]
    evolve: bool
    doubtful: bool
    known: tuple[Column, ...] | None = field(default=None, init=False)
    is_new: bool = field(default=False, init=False)
    _stand_ins: dict[str, str] = field(default_factory=dict, init=False)

    @classmethod
    def of(cls, session: Session, slice_: PartitionSlice, rows: Rows, *, evolve: bool) -> Fitting:
        """Look at rows, without reading any.

        Raises:
            MarigoldError: They have no usable columns, or are SQL that is no query.
        """
        return cls(
            session=session,
            slice_=slice_,
            source=_columns_of(session, slice_, rows),
            evolve=evolve,
            doubtful=not isinstance(rows, pa.Table),
        )

    @property
    def _table(self) -> str:
        return self.session.name(self.slice_.table)

    def alteration(self) -> Alteration | None:
        """What the table needs before the rows fit; ``None`` for nothing, and where no alteration makes them fit."""
        table = self.known or self.session.table_columns(self.slice_.table)
        self.is_new = table is None
        if table is None:
            self._find_stand_ins()
            return None
        marked = frozenset() if set(self.source) <= set(table) else self.session.marked_columns(self.slice_.table)
        untyped = self._first_types(alignment.untyped_candidates(table, self.source, marked))
        try:
            fit = alignment.align(table, self.source, where=self.slice_.where, evolve=self.evolve, untyped=untyped)
        except SchemaMismatchError:
            return None  # raised by selection(): a swap that is already in, or fenced out, is told that first
        if not fit.alters_table:
            return None
        if self.known is not None:  # what is remembered may be old
            self.known = None
            return self.alteration()
        return Alteration(fit=fit, table=table, marked=marked)

    def alter(self, alteration: Alteration) -> None:
        """Carry out an alteration.

        Raises:
            MarigoldError: A value would be lost, or something depends on a column.
        """
        fit, types = alteration.fit, {column.name: column.type for column in alteration.table}
        open_still = {fold(column.name) for column in self.source if standin.has_nothing(column.type)}
        self._refuse_retyping_values(alteration.table, fit.retypings)
        for column in fit.additions:
            self._alter("add column", column, f"ADD COLUMN {self._declared(column)}")
        for column in fit.retypings:
            using = standin.retyped(Column(name=column.name, type=types[column.name]), column.type)
            self._alter("retype column", column, _new_type(column, using))
            if column.name in alteration.marked and fold(column.name) not in open_still:
                self._alter("unmark column", column, f"ALTER COLUMN {sql.identifier(column.name)} DROP DEFAULT")
            types[column.name] = column.type
        for column in fit.widenings:
            using = sql.guarded_cast(column.name, source_type=types[column.name], target_type=column.type)
            self._alter("widen column", column, _new_type(column, using))

    def take_back(self, alteration: Alteration) -> None:
        """Drop the columns that an alteration added, since the rows that needed them do not come.

        Raises:
            duckdb.Error: Something depends on a column.
        """
        for column in alteration.fit.additions:
            name = sql.identifier(column.name)
            if self.session.execute(
                "look for a value", f"SELECT 1 FROM {self._table} WHERE {name} IS NOT NULL LIMIT 1"
            ):
                continue  # somebody who shares the connection's file has used it meanwhile
            self.session.execute("take back column", f"ALTER TABLE {self._table} DROP COLUMN {name}")

    def ensure_table(self) -> tuple[Column, ...]:
        """Create the table if :meth:`alteration` has found none; return its columns."""
        if self.is_new:
            schema = self.session.schema(self.slice_.table.schema)
            declared = ", ".join(self._declared(column) for column in self.source)
            self.session.execute("create schema", f"CREATE SCHEMA IF NOT EXISTS {schema}")
            self.session.execute("create table", f"CREATE TABLE IF NOT EXISTS {self._table} ({declared})")
        return self.session.table_columns(self.slice_.table) or ()

    def selection(self, table: Sequence[Column]) -> str:
        """How to select the rows for the table's columns.

        Raises:
            SchemaMismatchError: The rows do not fit the table as it is now.
        """
        fit = alignment.align(table, self.source, where=self.slice_.where, evolve=self.evolve)
        if fit.alters_table:  # but it has been altered already, as far as that was possible
            fit = alignment.align(table, self.source, where=self.slice_.where, evolve=False)
            self._refuse_retyping_values(table, fit.retypings)
        return ", ".join(fit.selection)

    def _first_types(self, candidates: Sequence[tuple[Column, str, Sequence[standin.Path]]]) -> dict[str, str]:
        found = {}
        for column, kind, places in candidates:
            each = {place: standin.filled(kind, column.type, [place]) for place in places}
            free = [place for place, wanted in each.items() if not self._holds_value(column, wanted)]
            if free:
                found[column.name] = standin.filled(kind, column.type, free)
        return found

    def _alter(self, label: str, column: Column, change: str) -> None:
        try:
            self.session.execute(label, f"ALTER TABLE {self._table} {change}")
        except duckdb.Error as error:
            raise alignment.alteration_error(error, column, self.slice_.where) or error from None

    def _holds_value(self, column: Column, wanted: str) -> bool:
        condition = standin.holds_value(column, wanted)
        query = f"SELECT 1 FROM {self._table} WHERE {condition} LIMIT 1"
        return bool(self.session.execute("look for a value", query))

    def _refuse_retyping_values(self, table: Sequence[Column], retypings: Sequence[Column]) -> None:
        """What holds nothing but NULL, or empty lists, got its type by chance and may take the first real one."""
        by_name = {column.name: column for column in table}
        for column in retypings:
            if self._holds_value(by_name[column.name], column.type):
                raise alignment.kind_mismatch(column, by_name[column.name], self.slice_.where)

    def _declared(self, column: Column) -> str:
        return standin.declared(column, doubtful=self.doubtful, kind=self._stand_ins.get(column.name))

    def _find_stand_ins(self) -> None:
        """Types for columns of nothing but NULL over which the partition expressions can be evaluated."""
        for condition in self.slice_.conditions:
            one = replace(self.slice_, conditions=(condition,))
            names = set(standin.undecided(self.source, condition.expression)) - self._stand_ins.keys()
            for kind in standin.kinds_for(condition) if names else ():
                tried = {**self._stand_ins, **dict.fromkeys(names, kind)}
                row = tuple(Column(name=c.name, type=tried.get(c.name, standin.decided(c.type))) for c in self.source)
                with suppress(duckdb.Error, ConfigurationError):
                    predicate((one,), self.session.expression_types((one,), row, of_row=True))
                    self._stand_ins = tried
                    break


def _columns_of(session: Session, slice_: PartitionSlice, rows: Rows) -> tuple[Column, ...]:
    where = slice_.where
    if isinstance(rows, Query):
        with returned_sql():
            _refuse_unless_select(session, rows, slice_)
            found = session.described(f"DESCRIBE {rows.sql}")
    else:
        given = tuple(Column(name=f.name, type=str(f.type)) for f in rows.schema)
        alignment.refuse_unusable_names(given, where)  # DuckDB would give the second of two equal names another
        pairs = zip(session.columns_of_arrow(rows.schema), rows.schema, strict=True)
        found = tuple(Column(name=c.name, type=standin.with_nothing(c.type, f.type)) for c, f in pairs)
    alignment.refuse_unusable_names(found, where)
    return found


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
    try:
        session.connection.extract_statements(f"FROM {sql.subquery(query.sql)}")
    except duckdb.ParserException:
        raise ConfigurationError(
            "the SQL returned goes on after its semicolon",
            remedy="end it with the semicolon or without, and put a comment before it; the old rows are unchanged",
            **slice_.where,
        ) from None
