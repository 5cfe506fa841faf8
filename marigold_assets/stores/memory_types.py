"""Arrow types and casts for :mod:`marigold_assets.stores.memory`: what fits what, without changing a value."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeAlias, cast

import pyarrow as pa

from marigold_assets.errors import LossyCastError, SchemaMismatchError, Where
from marigold_assets.model import Column, fold

_Column: TypeAlias = "pa.ChunkedArray[Any]"


def columns_of(schema: pa.Schema) -> tuple[Column, ...]:
    """The columns of an Arrow schema; their types in Arrow's words."""
    return tuple(Column(name=f.name, type=str(f.type)) for f in schema)


def sql_name(kind: pa.DataType) -> str:
    """The SQL name of a type, as far as it matters for partition predicates."""
    if pa.types.is_date(kind):
        return "DATE"
    if pa.types.is_timestamp(kind):
        return "TIMESTAMP WITH TIME ZONE" if kind.tz else "TIMESTAMP"
    return "VARCHAR" if _family(kind) == "text" else str(kind)


def parse(text: str, kind: pa.DataType) -> object:
    """The value of this type that a partition key spells, or ``None`` if it spells none."""
    try:
        return pa.scalar(text).cast(kind).as_py()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):  # Arrow's words for "spells none" and "has no spelling"
        return None


def refuse_unusable_names(schema: pa.Schema, where: Where) -> None:
    """Refuse rows without columns, with an empty column name, or with one name twice.

    Raises:
        SchemaMismatchError: They are one of these.
    """
    keys = [fold(name) for name in schema.names]
    if not keys or "" in keys or len(set(keys)) < len(keys):
        raise SchemaMismatchError(
            f"the columns {schema.names} are not usable",
            remedy="give every column a name of its own",
            **where,
        )


def fit(stored: pa.Table | None, given: pa.Table, *, where: Where, evolve: bool) -> tuple[pa.Table, pa.Table]:
    """Bring stored and given rows to one schema.

    Returns:
        The stored rows (none, if there is no table yet) and the given rows.

    Raises:
        SchemaMismatchError: A column is missing, added or of another kind.
        LossyCastError: A value would change.
    """
    given = pa.table([_plain(column) for column in given.columns], names=given.column_names)
    if stored is None:
        return given.schema.empty_table(), given
    by_key = {fold(name): name for name in given.column_names}
    known = {fold(name) for name in stored.column_names}
    added = [name for key, name in by_key.items() if key not in known]
    missing = [name for name in stored.column_names if fold(name) not in by_key]
    if missing or (added and not evolve):
        raise SchemaMismatchError(
            f"the rows lack {missing} and have {added} that the table has not",
            remedy="correct the columns",
            **where,
        )
    old: dict[str, Any] = {}
    new: dict[str, Any] = {}
    for name in stored.column_names:
        mine, theirs = stored.column(name), given.column(by_key[fold(name)])
        kind = _common(name, mine, theirs, where=where, evolve=evolve)
        old[name] = _cast(name, mine, kind, where)
        new[name] = _cast(name, theirs, kind, where)
    for name in added:
        old[name] = _nulls(stored.num_rows, given.column(name).type)
        new[name] = given.column(name)
    return pa.table(old), pa.table(new)


def _plain(column: _Column) -> _Column:
    kind = column.type
    if pa.types.is_dictionary(kind):
        return column.cast(kind.value_type)
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return column.cast(pa.string())
    return column


def _family(kind: pa.DataType) -> str:
    families: Sequence[tuple[str, bool]] = (
        ("number", pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind)),
        ("number", pa.types.is_decimal(kind)),
        ("text", pa.types.is_string(kind)),
        ("instant", pa.types.is_timestamp(kind) and bool(kind.tz)),
        ("wall time", pa.types.is_date(kind) or (pa.types.is_timestamp(kind) and not kind.tz)),
        ("time of day", pa.types.is_time(kind)),
    )
    return next((name for name, holds in families if holds), str(kind))


def _common(name: str, stored: _Column, given: _Column, *, where: Where, evolve: bool) -> pa.DataType:
    """The type that a column has after the swap."""
    mine, theirs = cast(pa.DataType, stored.type), cast(pa.DataType, given.type)
    if mine == theirs or pa.types.is_null(theirs):
        return mine
    if pa.types.is_null(mine) or (_family(mine) != _family(theirs) and stored.null_count == len(stored)):
        return theirs  # a column that holds nothing but NULL takes the first real type
    if _family(mine) != _family(theirs):
        raise SchemaMismatchError(
            f"column {name!r} is {mine} in the table, but the rows hold {theirs}",
            remedy=f"convert the column to {mine}",
            **where,
        )
    if not evolve:
        return mine
    try:
        both = [pa.schema([("c", mine)]), pa.schema([("c", theirs)])]
        return cast(pa.DataType, pa.unify_schemas(both, promote_options="permissive").field(0).type)
    except (pa.ArrowTypeError, pa.ArrowInvalid):
        return mine


def _cast(name: str, column: _Column, kind: pa.DataType, where: Where) -> _Column:
    if column.type == kind:
        return column
    if column.null_count == len(column):
        return _nulls(len(column), kind)
    try:
        fitted = column.cast(kind)
        back = fitted.cast(column.type).to_pylist()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):  # a value does not fit, or there is no such cast
        fitted, back = column, None
    if back is None or not all(map(_same, column.to_pylist(), back)):
        raise LossyCastError(
            f"column {name!r}: a {column.type} value does not fit {kind}, the type in the table",
            remedy=f"round or convert the column to {kind}",
            **where,
        )
    return fitted


def _nulls(count: int, kind: Any) -> _Column:
    return pa.chunked_array([pa.nulls(count, kind)])


def _same(left: object, right: object) -> bool:
    both_nan = isinstance(left, float) and isinstance(right, float) and math.isnan(left) and math.isnan(right)
    return both_nan or left == right
