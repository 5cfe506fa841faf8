"""Measuring slices as stored: row counts and the sums of the content hash ``mh1``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from marigold_assets.fingerprint import MODULUS, ContentHash, schema_digest
from marigold_assets.model import Column, Interval, PartitionSlice, fold
from marigold_assets.stores import sql
from marigold_assets.stores.predicate import ExpressionKind, ExpressionTypes, Predicate, bounds_table, predicate
from marigold_assets.stores.session import Session, probe


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """What a slice holds: row count, row hash sum, and per column the hash sum and the number of NULLs."""

    row_count: int
    row_sum: int
    columns: Mapping[str, tuple[str, int]]

    def content_hash(self, columns: Sequence[Column]) -> str:
        """The ``mh1`` text."""
        schema = schema_digest(columns)
        return str(ContentHash(probe=probe(), schema=schema, row_count=self.row_count, row_sum=self.row_sum))


def measure(
    session: Session,
    slices: Sequence[PartitionSlice],
    columns: Sequence[Column],
    *,
    types: ExpressionTypes,
    condition: Predicate,
    table: str | None = None,
) -> list[Measure]:
    """Measure every slice, in one scan of their table.

    Args:
        session: An open connection.
        slices: Slices of one table.
        columns: The table's columns.
        types: The partition expressions.
        condition: The predicate of all slices together.
        table: Another table with the same columns, rendered, that holds their rows instead.

    Returns:
        One measure a slice, in order. A row that lies in two slices counts twice.
    """
    aggregates, table = sql.hash_aggregates(columns), table or session.name(slices[0].table)
    if len(slices) == 1:
        query = f"SELECT {aggregates} FROM {table} WHERE {condition.sql}"  # noqa: S608 - quoted and bound
        [row] = session.execute("measure", query, condition.parameters)
        return [_measured(row, columns)]
    bounds, join = bounds_table(slices, types)
    session.register("marigold_bounds", bounds)
    query = (
        f"SELECT bounds.marigold_position, {aggregates} FROM"  # noqa: S608 - quoted and bound
        f" (SELECT * FROM {table} WHERE {condition.sql}) AS rows_"
        f" JOIN marigold_bounds AS bounds ON {join} GROUP BY 1"
    )
    rows = session.execute("measure", query, condition.parameters)
    session.unregister("marigold_bounds")
    by_position = {row[0]: _measured(row[1:], columns) for row in rows}
    nothing = _measured((0, None, *((None, 0) * len(columns))), columns)
    return [by_position.get(position, nothing) for position in range(len(slices))]


def count(session: Session, slices: Sequence[PartitionSlice], *, types: ExpressionTypes) -> list[int]:
    """Count the rows of every slice. See :func:`measure`.

    Of many slices in one scan, grouped by value before it is known to which slice each belongs: there are few values,
    and a join of every row with time windows is slow. Instants are many, but a window of them is found quickly.
    """
    kinds = [ExpressionKind.of(types.type[c.expression]) for c in slices[0].conditions if isinstance(c, Interval)]
    if len(slices) == 1 or not all(kind is ExpressionKind.DATE for kind in kinds):
        return [_count_one(session, slice_, types) for slice_ in slices]
    names = {text: f"marigold_expression{number}" for number, text in enumerate(types.sql)}
    values = ", ".join(  # letter by letter, whatever the column's collation takes for equal
        f"{rendered}{' COLLATE C' if types.type[text] == 'VARCHAR' else ''} AS {names[text]}"
        for text, rendered in types.sql.items()
    )
    bounds, join = bounds_table(slices, ExpressionTypes(sql=names, type=types.type))
    condition = predicate(slices, types)
    where, parameters = (condition.sql, condition.parameters) if kinds else ("true", ())  # many keys are slow to test
    session.register("marigold_bounds", bounds)
    query = (
        "SELECT bounds.marigold_position, sum(marigold_count) FROM"  # noqa: S608 - quoted and bound
        f" (SELECT {values}, count(*) AS marigold_count FROM {session.name(slices[0].table)} WHERE {where}"
        f" GROUP BY ALL) AS values_ JOIN marigold_bounds AS bounds ON {join} GROUP BY 1"
    )
    by_position = dict(session.execute("count", query, parameters))
    session.unregister("marigold_bounds")
    return [int(by_position.get(position, 0)) for position in range(len(slices))]


def _count_one(session: Session, slice_: PartitionSlice, types: ExpressionTypes) -> int:
    condition = predicate([slice_], types)
    query = f"SELECT count(*) FROM {session.name(slice_.table)} WHERE {condition.sql}"  # noqa: S608 - quoted and bound
    [(found,)] = session.execute("count", query, condition.parameters)
    return int(found)


def content_hash(
    session: Session, slice_: PartitionSlice, known: Sequence[Column], wanted: Sequence[Column] | None
) -> str:
    """Hash what a slice holds now (see :meth:`marigold_assets.stores.base.PartitionStore.content_hash`).

    Args:
        session: An open connection.
        slice_: The slice.
        known: The table's columns.
        wanted: Columns and types to hash; ``None`` for those of the table.
    """
    columns = known if wanted is None else wanted
    stored = {fold(column.name): column.type for column in known}
    items = [
        sql.identifier(column.name)
        if stored.get(fold(column.name)) == column.type
        else f"CAST({sql.identifier(column.name)} AS {column.type}) AS {sql.identifier(column.name)}"
        for column in columns
    ]
    condition = session.predicate([slice_], known)
    query = (
        f"SELECT {sql.hash_aggregates(columns)} FROM (SELECT {', '.join(items)}"  # noqa: S608 - quoted and bound
        f" FROM {session.name(slice_.table)} WHERE {condition.sql})"
    )
    [row] = session.execute("measure", query, condition.parameters)
    return _measured(row, columns).content_hash(columns)


def measure_all(session: Session, source: str, columns: Sequence[Column], parameters: Sequence[Any] = ()) -> Measure:
    """Measure all rows of a table or subquery.

    Args:
        session: An open connection.
        source: What to read, rendered.
        columns: The columns to measure.
        parameters: What is bound in it.
    """
    query = f"SELECT {sql.hash_aggregates(columns)} FROM {source}"  # noqa: S608 - quoted and bound
    [row] = session.execute("measure", query, parameters)
    return _measured(row, columns)


def _measured(row: Sequence[Any], columns: Sequence[Column]) -> Measure:
    count, row_sum, *rest = row
    ordered = sorted(column.name for column in columns)
    return Measure(
        row_count=int(count),
        row_sum=int(row_sum or 0) % MODULUS,
        columns={
            name: (f"{int(rest[2 * number] or 0) % MODULUS:016x}", int(rest[2 * number + 1]))
            for number, name in enumerate(ordered)
        },
    )
