"""Joining the rows of a table to the versions of their partitions, as one SELECT that people can run by themselves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import date, datetime

import pyarrow as pa

from marigold_assets.errors import ConfigurationError
from marigold_assets.model import Column, LedgerEntry, PartitionSlice, TableName, fold
from marigold_assets.stores import sql
from marigold_assets.stores.predicate import bounds_table, zone_of
from marigold_assets.stores.session import FENCE_SCHEMA, Session

_TOLD = ("partition_key", "code_version", "code_fingerprint", "committed_at", "run_id")
_PREFIX = "marigold_"


def versions_query(session: Session, table: TableName, heads: Sequence[LedgerEntry], columns: Sequence[Column]) -> str:
    """The SELECT; see :meth:`marigold_assets.stores.duckdb_reader.DuckDBReader.versions_query`.

    Every row is joined to all partitions that have it, and then to the entry of these that was written last.

    Args:
        session: A session, whose time zone is another one afterwards.
        table: The table.
        heads: The newest entry of every partition.
        columns: The table's columns.

    Raises:
        ConfigurationError: It cannot be told which rows are of which partition.
    """
    known = [(_slice_of(entry), entry.position) for entry in heads if entry.conditions is not None]
    if not known:
        raise ConfigurationError(
            "the ledger does not say which rows are of which partition",
            remedy="materialize its partitions with this release" if heads else "materialize the asset that makes it",
            table=str(table),
        )
    names = {fold(column.name) for column in columns}
    prefix = _PREFIX
    while any(name.startswith(prefix) for name in names):
        prefix += _PREFIX
    # A column of that name would hide the row's own number.
    is_numbered = "rowid" not in names
    source, number = (session.name(table), "rowid") if is_numbered else (f"{prefix}numbered", f"{prefix}number")
    parts = [_of_alike(session, own, columns, source, number) for own in _alike(known)]
    told = ", ".join(f"{prefix}entry.{name} AS {prefix}{name}" for name in _TOLD)
    every = f"{prefix}row.*" if is_numbered else f"{prefix}row.* EXCLUDE ({number})"
    text = (
        f"SELECT {every}, {told}\nFROM {source} AS {prefix}row\n"
        f"LEFT JOIN (SELECT number, max(position) AS position FROM ({' UNION ALL '.join(parts)}) GROUP BY number)"
        f" AS {prefix}found ON {prefix}found.number = {prefix}row.{number}\n"
        f"LEFT JOIN {session.schema(FENCE_SCHEMA)}.ledger AS {prefix}entry"
        f" ON {prefix}entry.position = {prefix}found.position"
    )
    if is_numbered:
        return text
    numbered = f"SELECT *, row_number() OVER () AS {number} FROM {session.name(table)}"
    return f"WITH {source} AS MATERIALIZED ({numbered})\n{text}"


_Known = Sequence[tuple[PartitionSlice, int]]
"""Slices, with the positions of their entries."""


def _slice_of(entry: LedgerEntry) -> PartitionSlice:
    return PartitionSlice(
        table=entry.table, partition_key=entry.partition_key, conditions=entry.conditions or (), owner=entry.owner
    )


def _alike(known: _Known) -> Iterable[_Known]:
    """Slices that are cut alike, by which one condition joins the rows."""
    alike: dict[object, list[tuple[PartitionSlice, int]]] = {}
    for slice_, position in known:
        cut = tuple((type(c), c.expression) for c in slice_.conditions)
        alike.setdefault((cut, zone_of([slice_])), []).append((slice_, position))
    return alike.values()


def _of_alike(session: Session, known: _Known, columns: Sequence[Column], source: str, number: str) -> str:
    """A SELECT of the rows of some slices, by number, with the positions of their entries."""
    slices = [slice_ for slice_, _ in known]
    if not slices[0].conditions:
        return f"SELECT {number} AS number, {max(position for _, position in known)} AS position FROM {source}"
    expression = session.expression_of_zone(slices, columns)
    if expression is not None:
        raise ConfigurationError(
            f"partition expression {expression!r} depends on the time zone of whoever runs the SQL",
            remedy="join the rows by yourself, in a session of that zone, or name the zone in the expression:"
            f" <column> AT TIME ZONE {sql.string(zone_of(slices))}",
            **slices[0].where,
        )
    bounds, condition = bounds_table(slices, session.expression_types(slices, columns))
    named = [name for name in bounds.column_names if name != "marigold_position"]
    # As text that is cast at once: thousands of typed literals take DuckDB twice the time.
    values = ", ".join(
        f"({', '.join((str(position), *map(_text, row.values())))})"
        for (_, position), row in zip(known, bounds.select(named).to_pylist(), strict=True)
    )
    casts = ", ".join(f"CAST({name} AS {_type(bounds.schema.field(name).type)}) AS {name}" for name in named)
    return (
        f"SELECT {number} AS number, bounds.marigold_position AS position FROM {source}"
        f" JOIN (SELECT marigold_position, {casts} FROM (VALUES {values})"
        f" AS texts(marigold_position, {', '.join(named)})) AS bounds ON {condition}"
    )


def _text(value: date | datetime | str | None) -> str:
    match value:
        case None:
            return "NULL"
        case datetime():
            return sql.string(value.isoformat(sep=" "))
        case date():
            return sql.string(value.isoformat())
        case _:
            return sql.string(value)


def _type(kind: pa.DataType) -> str:
    if pa.types.is_timestamp(kind):
        return "TIMESTAMP" if kind.tz is None else "TIMESTAMPTZ"
    return "DATE" if pa.types.is_date(kind) else "VARCHAR"
