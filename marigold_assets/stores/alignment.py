"""Fitting rows to the columns of an existing table: by name, and never at the price of a value."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

import duckdb

from marigold_assets.errors import SchemaMismatchError, Where
from marigold_assets.model import Column, fold
from marigold_assets.stores import sql

NULL_TYPES = frozenset({'"NULL"', "NULL"})
"""How DuckDB names the type of a column that holds nothing but NULL."""

STAND_IN = "INTEGER"
"""What DuckDB itself makes of a column that holds nothing but NULL."""

_NOT_INTEGERS = ("BOOLEAN", "DECIMAL", "FLOAT", "DOUBLE")
_NUMERIC = frozenset(
    [
        "boolean",
        "tinyint",
        "smallint",
        "integer",
        "bigint",
        "hugeint",
        "utinyint",
        "usmallint",
        "uinteger",
        "ubigint",
        "uhugeint",
        "float",
        "double",
        "decimal",
        "bignum",
        "varint",
    ]
)
_FAMILIES: Mapping[str, str] = {
    **dict.fromkeys(_NUMERIC, "number"),
    **dict.fromkeys(("date", "timestamp", "timestamp_s", "timestamp_ms", "timestamp_ns"), "wall time"),
    **dict.fromkeys(("timestamp with time zone", "timestamptz", "timestamptz_ns", "timestamp_tz"), "instant"),
    **dict.fromkeys(("time", "time_ns"), "time of day"),
    **dict.fromkeys(("varchar", "enum", "uuid", "json"), "text"),
}
_NESTED = frozenset({"struct", "list", "array", "map", "union"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Alignment:
    """How a source fits a table.

    Attributes:
        selection: What to select from the source, one rendered item a column of the source.
        additions: Columns to add to the table first.
        widenings: Columns whose type is to be widened first, with their new type.
        retypings: Columns to give another type first, provided that they hold nothing but NULL.
    """

    selection: tuple[str, ...]
    additions: tuple[Column, ...] = ()
    widenings: tuple[Column, ...] = ()
    retypings: tuple[Column, ...] = ()

    @property
    def alters_table(self) -> bool:
        """Whether the table has to change before the rows fit."""
        return bool(self.additions or self.widenings or self.retypings)


def align(
    table: Sequence[Column], source: Sequence[Column], *, where: Where, evolve: bool, untyped: Collection[str] = ()
) -> Alignment:
    """Fit a source to a table.

    Args:
        table: The table's columns.
        source: The source's columns; a type in ``NULL_TYPES`` fits every column.
        where: The slice, for errors.
        evolve: Whether columns may be added and types widened.
        untyped: Names of the table's columns that may take any type (see :func:`untyped_candidates`).

    Raises:
        SchemaMismatchError: A column is missing, added, renamed, given twice, or of another kind.
    """
    by_key = {fold(column.name): column for column in table}
    _refuse_repeated(source, where)
    wanted = {fold(column.name) for column in source}
    added = [column for column in source if fold(column.name) not in by_key]
    missing = [column for column in table if fold(column.name) not in wanted]
    if missing or (added and not evolve):
        raise _mismatch(added, missing, where)
    selection, widenings, retypings = [], [], []
    for column in source:
        target = by_key.get(fold(column.name))
        if target is None:
            selection.append(sql.identifier(column.name))
            continue
        if column.type in NULL_TYPES:
            selection.append(_plain_cast(column.name, target))
        elif column.type == target.type:
            selection.append(_renamed(column.name, target))
        elif target.name in untyped or not _same_kind(column.type, target.type):
            retypings.append(Column(name=target.name, type=column.type))
            selection.append(_renamed(column.name, target))
        elif evolve and (wider := _supertype(column.type, target.type)) != target.type:
            widenings.append(Column(name=target.name, type=wider))
            selection.append(_guarded(column, Column(name=target.name, type=wider)))
        else:
            selection.append(_guarded(column, target))
    return Alignment(
        selection=tuple(selection),
        additions=tuple(Column(name=c.name, type=STAND_IN if c.type in NULL_TYPES else c.type) for c in added),
        widenings=tuple(widenings),
        retypings=tuple(retypings),
    )


def untyped_candidates(table: Sequence[Column], source: Sequence[Column]) -> tuple[Column, ...]:
    """The columns of a table whose type may be a stand-in, and would cut or rename the values of a source.

    A first slice of nothing but NULL makes a column INTEGER; while it still holds no value, it may take fractions or
    truth values as what they are.
    """
    given = {fold(column.name): column.type for column in source}
    return tuple(
        column
        for column in table
        if column.type == STAND_IN and given.get(fold(column.name), "").startswith(_NOT_INTEGERS)
    )


def kind_mismatch(column: Column, target: Column, where: Where) -> SchemaMismatchError:
    """The error for a column that holds another kind of value than the table's."""
    problem = f"column {target.name!r} is {target.type} in the table, but the rows hold {column.type}"
    difference = _field_difference(column.type, target.type)
    return SchemaMismatchError(
        f"{problem}{difference}",
        remedy=f"convert the column to {target.type} before returning it, or rebuild the table with the new type",
        **where,
    )


def _mismatch(added: Sequence[Column], missing: Sequence[Column], where: Where) -> SchemaMismatchError:
    parts, remedies = [], []
    if added:
        parts.append(f"the rows have columns that the table has not: {_names(added)}")
        remedies.append('drop them, or let the table grow with metadata={"marigold/evolve": True} on the asset')
    if missing:
        parts.append(f"the rows lack columns of the table: {_names(missing)}")
        remedies.append("return every column of the table (NULL where there is no value)")
    if added and missing:
        close = get_close_matches(added[0].name, [column.name for column in missing], n=1)
        if close:
            parts.append(f"was {close[0]!r} renamed to {added[0].name!r}?")
    return SchemaMismatchError("; ".join(parts), remedy="; ".join(remedies), **where)


def _names(columns: Sequence[Column]) -> str:
    return ", ".join(f"{column.name!r} ({column.type})" for column in columns)


def _refuse_repeated(source: Sequence[Column], where: Where) -> None:
    seen: dict[str, str] = {}
    for column in source:
        key = fold(column.name)
        if key in seen:
            other = seen[key]
            raise SchemaMismatchError(
                f"the rows have two columns that the database cannot tell apart: {other!r} and {column.name!r}",
                remedy="rename or drop one of them (case does not count)",
                **where,
            )
        seen[key] = column.name


def refuse_unusable_names(source: Sequence[Column], where: Where) -> None:
    """Refuse a source without columns, with an empty column name, or with one name twice.

    Raises:
        SchemaMismatchError: It is one of these.
    """
    if not source or any(not column.name for column in source):
        raise SchemaMismatchError(
            "the rows have no columns" if not source else "the rows have a column without a name",
            remedy="return at least one column, each with a name",
            **where,
        )
    _refuse_repeated(source, where)


def _renamed(name: str, target: Column) -> str:
    quoted = sql.identifier(name)
    return quoted if name == target.name else f"{quoted} AS {sql.identifier(target.name)}"


def _plain_cast(name: str, target: Column) -> str:
    return f"CAST({sql.identifier(name)} AS {target.type}) AS {sql.identifier(target.name)}"


def _guarded(column: Column, target: Column) -> str:
    guarded = sql.guarded_cast(column.name, source_type=column.type, target_type=target.type)
    return f"{guarded} AS {sql.identifier(target.name)}"


def _same_kind(source: str, target: str) -> bool:
    """Whether a value of one type can mean the same as a value of the other."""
    try:
        a, b = duckdb.sqltype(source), duckdb.sqltype(target)
    except duckdb.Error:
        return False
    if a.id in _NESTED or b.id in _NESTED:
        return a.id == b.id and _same_fields(source, target)
    family = _FAMILIES.get(a.id)
    return family is not None and family == _FAMILIES.get(b.id)


def _same_fields(source: str, target: str) -> bool:
    a, b = duckdb.sqltype(source), duckdb.sqltype(target)
    if len(a.children) != len(b.children):
        return False
    for (name, child), (other_name, other) in zip(a.children, b.children, strict=True):
        if str(child) in NULL_TYPES or str(child) == str(other):
            same = True
        elif isinstance(child, duckdb.sqltypes.DuckDBPyType) and isinstance(other, duckdb.sqltypes.DuckDBPyType):
            same = _same_kind(str(child), str(other))
        else:
            same = False
        if name != other_name or not same:
            return False
    return True


def _field_difference(source: str, target: str) -> str:
    """Name the fields by which two nested types differ, if that is the difference."""
    new, old = _fields(source), _fields(target)
    parts = [f"added {sorted(new - old)}"] if new - old else []
    parts += [f"missing {sorted(old - new)}"] if old - new else []
    return f" (fields of the nested values differ: {', '.join(parts)})" if parts else ""


def _fields(type_name: str) -> set[str]:
    try:
        kind = duckdb.sqltype(type_name)
    except duckdb.Error:
        return set()
    if kind.id not in _NESTED:
        return set()
    found: set[str] = set()
    for name, child in kind.children:
        if kind.id in {"struct", "union"}:
            found.add(name)
        found |= _fields(str(child))
    return found


def _supertype(source: str, target: str) -> str:
    """The narrowest type that DuckDB knows to hold both, or the target's where it knows none."""
    with duckdb.connect() as scratch:
        try:
            row = scratch.execute(f"SELECT typeof([CAST(NULL AS {target}), CAST(NULL AS {source})])").fetchone()
        except duckdb.Error:
            return target
    return str(row[0]).removesuffix("[]") if row else target
