"""How slices of a table are read: as a SELECT, with values bound or as literals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from marigold_assets.errors import ConfigurationError, MissingTableError, SchemaMismatchError, Where
from marigold_assets.model import Column, PartitionSlice, TableName, fold
from marigold_assets.stores import alignment, sql
from marigold_assets.stores.predicate import zone_of
from marigold_assets.stores.session import Session


@dataclass(frozen=True, slots=True, kw_only=True)
class OfZone:
    """Why slices cannot be read by text alone: it would mean other rows in another session.

    Attributes:
        expression: The partition expression that depends on the session's time zone.
    """

    expression: str

    def error(self, table: TableName, slices: Sequence[PartitionSlice]) -> ConfigurationError:
        """The error for whoever wants the text."""
        return ConfigurationError(
            f"partition expression {self.expression!r} depends on the time zone of whoever runs the SQL",
            remedy="annotate the input as pyarrow.Table or duckdb.DuckDBPyRelation instead of str, or name the"
            f" zone in the expression: <column> AT TIME ZONE {sql.string(zone_of(slices))}",
            **(slices[0].where if slices else Where(table=str(table))),
        )


def known_columns(session: Session, table: TableName, wanted: Sequence[str] | None) -> tuple[Column, ...]:
    """The columns of a table that is to be read.

    Raises:
        MissingTableError: There is no such table.
        SchemaMismatchError: There is no such column.
    """
    return checked(session.table_columns(table), table, wanted)


def checked(known: tuple[Column, ...] | None, table: TableName, wanted: Sequence[str] | None) -> tuple[Column, ...]:
    """The columns of a table that is to be read, if it has those wanted. Raises like :func:`known_columns`."""
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


def selection(
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


def literal_selection(
    session: Session,
    table: TableName,
    slices: Sequence[PartitionSlice] | None,
    columns: Sequence[str] | None,
    known: Sequence[Column],
) -> str | OfZone:
    """The same SELECT as text with literals, where that means the same in every session.

    The session's time zone may be another one afterwards.
    """
    if not slices:
        return sql.select(session.name(table), columns, None if slices is None else "false")
    where = session.predicate(slices, known).display
    expression = session.expression_of_zone(slices, known)
    return sql.select(session.name(table), columns, where) if expression is None else OfZone(expression=expression)
