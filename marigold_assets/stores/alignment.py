"""Fitting rows to the columns of an existing table: by name, and never at the price of a value."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

import duckdb

from marigold_assets.errors import LossyCastError, MarigoldError, SchemaMismatchError, UnsupportedTypeError, Where
from marigold_assets.model import Column, fold
from marigold_assets.stores import sql, standin
from marigold_assets.stores.standin import NULL_TYPES

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
_INEXACT_IN_ARROW = frozenset({"UHUGEINT", "BIT", "TIME WITH TIME ZONE"})
_NESTED = frozenset({"struct", "list", "array", "map", "union"})
_TIED = re.compile(r"index depends on it|entries that depend on it|constraint specified|generated column")


@dataclass(frozen=True, slots=True, kw_only=True)
class Alignment:
    """How a source fits a table.

    Attributes:
        selection: What to select from the source, one rendered item a column of the source.
        additions: Columns to add to the table first.
        widenings: Columns whose type is to be widened first, with their new type.
        retypings: Columns to give another type first, provided that they hold no value that it would lose.
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
    table: Sequence[Column],
    source: Sequence[Column],
    *,
    where: Where,
    evolve: bool,
    untyped: Mapping[str, str] | None = None,
) -> Alignment:
    """Fit a source to a table.

    Args:
        table: The table's columns.
        source: The source's columns; a type in ``NULL_TYPES`` fits every column.
        where: The slice, for errors.
        evolve: Whether columns may be added and types widened.
        untyped: Types that columns of the table are to take, by name (see :func:`untyped_candidates`).

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
        kind = (untyped or {}).get(target.name)
        if kind is not None and _same_kind(column.type, kind):
            target = Column(name=target.name, type=kind)
            retypings.append(target)
        if column.type in NULL_TYPES:
            selection.append(_plain_cast(column.name, target))
        elif column.type == target.type:
            selection.append(_renamed(column.name, target))
        elif not _same_kind(column.type, target.type):
            retypings.append(Column(name=target.name, type=standin.decided(column.type)))
            selection.append(_renamed(column.name, target))
        elif evolve and (wider := _supertype(column.type, target.type)) != target.type:
            widenings.append(Column(name=target.name, type=wider))
            selection.append(_guarded(column, Column(name=target.name, type=wider)))
        else:
            selection.append(_guarded(column, target))
    return Alignment(
        selection=tuple(selection),
        additions=tuple(added),
        widenings=tuple(widenings),
        retypings=tuple(retypings),
    )


def untyped_candidates(
    table: Sequence[Column], source: Sequence[Column], marked: Collection[str]
) -> tuple[tuple[Column, str, tuple[standin.Path, ...]], ...]:
    """The columns of a table whose type a source may decide, as far as nothing is stored yet that it would lose.

    Args:
        table: The table's columns.
        source: The source's columns.
        marked: Names of the columns whose type is marked as a stand-in (see :mod:`marigold_assets.stores.standin`).

    Returns:
        The columns, each with the type that the source holds, and the places that are in question.
    """
    given = {fold(column.name): column.type for column in source}
    found = []
    for column in table:
        kind = given.get(fold(column.name), column.type)
        places = standin.places(kind, column.type)
        chosen = tuple(path for path, new, old in places if column.name in marked or not _same_kind(new, old))
        if chosen:
            found.append((column, kind, chosen))
    return tuple(found)


def refuse_inexact(columns: Sequence[Column], where: Where) -> None:
    """Refuse types whose values DuckDB changes when it gives them out as Arrow data.

    Raises:
        UnsupportedTypeError: A column has one of them.
    """
    for column in columns:
        kind = next((leaf for leaf in standin.leaves(column.type) if leaf in _INEXACT_IN_ARROW), None)
        if kind is not None:
            raise UnsupportedTypeError(
                f"column {column.name!r} has type {column.type}, and DuckDB does not give out {kind} as it is",
                remedy="cast it in SQL, to VARCHAR for example, or return the rows as SQL",
                **where,
            )


def alteration_error(error: duckdb.Error, column: Column, where: Where) -> MarigoldError | None:
    """The error for a column of the table that cannot be changed as the rows would need it, if that is the reason."""
    if lossy := sql.lossy_value(str(error)):
        _, stored, wider, value = lossy
        return LossyCastError(
            f"column {column.name!r} would have to become {wider} for the rows, but holds the {stored} value {value!r},"
            f" which does not fit {wider}",
            remedy=f"convert the column to {stored} before returning it, or rebuild the table with a type that holds"
            " both",
            **where,
        )
    if _TIED.search(str(error)):
        return SchemaMismatchError(
            f"column {column.name!r} would have to become {column.type} for the rows, but DuckDB changes no type while"
            " an index, a constraint or a generated column of the table depends on it",
            remedy="drop that, run again, and create it anew; or convert the column to the table's type before"
            " returning it",
            **where,
        )
    return None


def kind_mismatch(column: Column, target: Column, where: Where) -> SchemaMismatchError:
    """The error for a column that holds another kind of value than the table's."""
    problem = f"column {target.name!r} is {target.type} in the table, but the rows hold {column.type}"
    difference = _field_difference(column.type, target.type)
    return SchemaMismatchError(
        f"{problem}{difference}",
        remedy=f"convert the column to {target.type} before returning it, or drop the table and materialize all of its"
        " partitions again",
        **where,
    )


def _mismatch(added: Sequence[Column], missing: Sequence[Column], where: Where) -> SchemaMismatchError:
    parts, remedies = [], []
    if added:
        parts.append(f"the rows have columns that the table has not: {_names(added)}")
        remedies.append('drop them, or let the table grow with metadata={"marigold/evolve": True} on the asset')
    if missing:
        parts.append(f"the rows lack columns of the table: {_names(missing)}")
        by_hand = f"ALTER TABLE {where.get('table')} DROP COLUMN {sql.identifier(missing[0].name)}"
        remedies.append(
            f"return every column of the table (NULL where there is no value), or drop what is not wanted: {by_hand}"
        )
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
    if duckdb.sqltype(target).id == "union":
        return source == target
    pairs = standin.paired(source, target)
    return pairs is not None and all(a in NULL_TYPES or a == b or _same_kind(a, b) for a, b in pairs)


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
            found.add(fold(name))
        found |= _fields(str(child))
    return found


def _supertype(source: str, target: str) -> str:
    """The narrowest type that DuckDB knows to hold both, or the target's where it knows none."""
    if {source, target} <= set(sql.WALL_TIMES):
        return max(source, target, key=sql.WALL_TIMES.index)
    with duckdb.connect() as scratch:
        try:
            row = scratch.execute(f"SELECT typeof([CAST(NULL AS {target}), CAST(NULL AS {source})])").fetchone()
        except duckdb.Error:
            return target
    return str(row[0]).removesuffix("[]") if row else target
