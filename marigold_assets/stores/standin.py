"""Types that a first slice could not decide: what holds nothing but NULL, on its own or within nested values.

A table needs a type for everything, so such a place gets a stand-in, and the column ``DEFAULT NULL`` as a mark: by
itself that changes nothing. While no value is stored at that place, it takes the first real type.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence

import duckdb
import pyarrow as pa

from marigold_assets.model import Column, Condition, Interval, fold
from marigold_assets.stores import sql

NULL_TYPES = frozenset({'"NULL"', "NULL"})
"""How DuckDB names the type of what holds nothing but NULL."""

STAND_IN = "INTEGER"
"""What DuckDB before 2.0 makes of it."""

Path = tuple[int, ...]
"""A place within the values of a column."""

_NOTHING = '"NULL"'
_NEVER = "DATE"  # TRY_CAST makes every integer NULL
_FOR_TIME = ("TIMESTAMP", "TIMESTAMP WITH TIME ZONE", "DATE", "VARCHAR", "BIGINT")
_FOR_KEYS = ("VARCHAR", "TIMESTAMP", "BIGINT")


def declared(column: Column, *, doubtful: bool, kind: str | None = None) -> str:
    """Render a column for CREATE TABLE or ADD COLUMN, marked if anything in its type is undecided.

    Args:
        column: The column of the rows.
        doubtful: Whether an INTEGER of the rows may be what DuckDB before 2.0 made of nothing but NULL.
        kind: The stand-in, where that is a particular one.
    """
    open_ = has_nothing(column.type) or (doubtful and STAND_IN in leaves(column.type))
    mark = " DEFAULT NULL" if open_ else ""
    return f"{sql.identifier(column.name)} {kind or decided(column.type)}{mark}"


def has_nothing(kind: str) -> bool:
    """Whether a type holds nothing but NULL somewhere."""
    return not NULL_TYPES.isdisjoint(leaves(kind))


def decided(kind: str) -> str:
    """The type with stand-ins for what holds nothing but NULL."""
    return _rebuilt(kind, lambda leaf: STAND_IN if leaf in NULL_TYPES else leaf) if has_nothing(kind) else kind


def with_nothing(described: str, kind: pa.DataType) -> str:
    """A type as DuckDB describes an Arrow type, with what holds nothing but NULL: DuckDB before 2.0 hides that."""
    if pa.types.is_null(kind):
        return _NOTHING
    if pa.types.is_map(kind):
        fields = [kind.key_field, kind.item_field]
    elif pa.types.is_nested(kind):
        fields = [kind.field(number) for number in range(kind.num_fields)]
    else:
        return described
    inner = children(described)
    if len(inner) != len(fields):
        return described
    new = [with_nothing(child, field.type) for (_, child), field in zip(inner, fields, strict=True)]
    return described if new == [child for _, child in inner] else _render(described, new)


def places(source: str, target: str, path: Path = ()) -> list[tuple[Path, str, str]]:
    """The places of a column that rows may decide: each with the type that the rows hold there, and the stand-in.

    Args:
        source: The type of the rows.
        target: The type of the column.
        path: Where both lie within the column.
    """
    if source in NULL_TYPES or source == target:
        return []
    pairs = paired(source, target)
    if pairs:
        return [place for number, (a, b) in enumerate(pairs) for place in places(a, b, (*path, number))]
    is_stand_in = target in NULL_TYPES or target == STAND_IN or (not path and not children(target))
    return [(path, source, target)] if is_stand_in else []


def filled(source: str, target: str, chosen: Collection[Path], path: Path = ()) -> str:
    """The type of a column with what the rows hold at some of its places (see :func:`places`)."""
    if path in chosen:
        return decided(source)
    pairs = paired(source, target)
    if not pairs:
        return target
    new = [filled(a, b, chosen, (*path, number)) for number, (a, b) in enumerate(pairs)]
    return target if new == [b for _, b in pairs] else _render(target, new)


def paired(source: str, target: str) -> list[tuple[str, str]] | None:
    """The types within two nested types of one shape, in the order of the second; the fields of structs by name."""
    a, b = children(source), children(target)
    if not a or len(a) != len(b) or _shape(source) != _shape(target):
        return None
    if _shape(target) != "struct":
        return [(x, y) for (_, x), (_, y) in zip(a, b, strict=True)]
    by_name = {fold(name): child for name, child in a}
    if by_name.keys() != {fold(name) for name, _ in b}:
        return None
    return [(by_name[fold(name)], child) for name, child in b]


def holds_value(column: Column, wanted: str) -> str:
    """Render the condition that a row holds a value that the column's new type would lose.

    Args:
        column: The table's column.
        wanted: The type that it is to take.
    """
    quoted = sql.identifier(column.name)
    if _only_fills(column.type, wanted):
        blind = f"TRY_CAST({quoted} AS {_blinded(column.type, wanted)})"
        return f"TRY_CAST({blind} AS {column.type}) IS DISTINCT FROM {quoted}"
    if _is_list(column.type) and _is_list(wanted):
        return f"len({quoted}) > 0"
    return f"{quoted} IS NOT NULL"


def retyped(column: Column, wanted: str) -> str:
    """Render the column's values in its new type, given that none of them is lost."""
    quoted = sql.identifier(column.name)
    if _only_fills(column.type, wanted):
        return f"CAST({quoted} AS {wanted})"
    return f"CASE WHEN {quoted} IS NOT NULL THEN [] END" if _is_list(column.type) and _is_list(wanted) else "NULL"


def undecided(columns: Sequence[Column], expression: str) -> tuple[str, ...]:
    """The columns of nothing but NULL that a partition expression mentions."""
    text = fold(expression)
    return tuple(
        column.name
        for column in columns
        if column.type in NULL_TYPES and re.search(rf"(?<!\w){re.escape(fold(column.name))}(?!\w)", text)
    )


def kinds_for(condition: Condition) -> tuple[str, ...]:
    """Types to try for what a partition expression is made of, the likeliest first."""
    return _FOR_TIME if isinstance(condition, Interval) else _FOR_KEYS


def children(kind: str) -> list[tuple[str, str]]:
    """The types directly within a nested type, each with its name."""
    parsed = _parsed(kind)
    if parsed is None or parsed.id not in {"struct", "list", "array", "map"}:
        return []
    return [(name, str(child)) for name, child in parsed.children if isinstance(child, duckdb.sqltypes.DuckDBPyType)]


def _parsed(kind: str) -> duckdb.sqltypes.DuckDBPyType | None:
    try:
        return duckdb.sqltype(kind)
    except duckdb.Error:
        return None


def _shape(kind: str) -> str:
    parsed = _parsed(kind)
    if parsed is None:
        return kind
    return f"array of {parsed.children[1][1]}" if parsed.id == "array" else str(parsed.id)


def _is_list(kind: str) -> bool:
    return kind.endswith("[]")


def leaves(kind: str) -> list[str]:
    """The flat types within a type, or the type itself."""
    inner = children(kind)
    return [leaf for _, child in inner for leaf in leaves(child)] if inner else [kind]


def _rebuilt(kind: str, leaf: Callable[[str], str]) -> str:
    inner = children(kind)
    return _render(kind, [_rebuilt(child, leaf) for _, child in inner]) if inner else leaf(kind)


def _render(kind: str, inner: Sequence[str]) -> str:
    """A nested type with other types within it, spelled as DuckDB spells it."""
    shape = _shape(kind)
    if shape == "struct":
        fields = zip(children(kind), inner, strict=True)
        text = f"STRUCT({', '.join(f'{sql.identifier(name)} {new}' for (name, _), new in fields)})"
    elif shape == "map":
        text = f"MAP({', '.join(inner)})"
    else:
        text = f"{inner[0]}[{shape.removeprefix('array of ').removeprefix('list')}]"
    return str(duckdb.sqltype(text))


def _only_fills(target: str, wanted: str) -> bool:
    """Whether a nested type differs from another one at stand-ins only."""
    chosen = [path for path, _, _ in places(wanted, target)]
    return paired(wanted, target) is not None and filled(wanted, target, chosen) == wanted


def _blinded(target: str, wanted: str) -> str:
    """The column's type, but for the places that are to be filled: there it can hold no value."""
    if target == wanted or target in NULL_TYPES:
        return target
    pairs = paired(wanted, target)
    return _render(target, [_blinded(b, a) for a, b in pairs]) if pairs else _NEVER
