"""The only place that quotes. Identifiers are quoted here, values are bound, and literals are rendered for display."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date, datetime

from marigold_assets.model import Column, fold


def identifier(name: str) -> str:
    """Quote one identifier, whatever characters it holds."""
    return '"' + name.replace('"', '""') + '"'


def string(value: str) -> str:
    """Render a string literal."""
    quoted = "'" + value.replace("'", "''") + "'"
    # Before 2.0 DuckDB takes NUL for the end of the statement.
    return "(" + quoted.replace("\x00", "' || chr(0) || '") + ")" if "\x00" in value else quoted


def literal(value: date | datetime | str | None) -> str:
    """Render a value as a typed literal, for SQL that is shown to people or handed to user code."""
    match value:
        case datetime(tzinfo=None):
            return f"TIMESTAMP {string(value.isoformat(sep=' '))}"
        case datetime():
            return f"TIMESTAMPTZ {string(value.isoformat(sep=' '))}"
        case None:
            return "NULL"
        case date():
            return f"DATE {string(value.isoformat())}"
        case _:
            return string(value)


def expression(text: str, columns: Sequence[str]) -> str:
    """Render a partition expression: a column's name is quoted, anything else is the author's SQL.

    Args:
        text: What the author wrote.
        columns: Names of the table's columns. ASCII case does not count, as in the database.
    """
    by_key = {fold(name): name for name in columns}
    key = fold(text)
    name = by_key.get(key) or by_key.get(key.strip().strip('"'))
    return identifier(name) if name is not None else f"({text}\n)"


def select(table: str, columns: Sequence[str] | None, where: str | None) -> str:
    """Render a SELECT over one table, whose name is rendered already."""
    wanted = ", ".join(identifier(name) for name in columns) if columns is not None else "*"
    query = f"SELECT {wanted} FROM {table}"  # noqa: S608 - every part is quoted or bound
    return f"{query} WHERE {where}" if where else query


def hashable(column: Column) -> str:
    """Render a column as it enters the content hash: an ENUM by its text, since its number depends on the type."""
    quoted = identifier(column.name)
    return f"CAST({quoted} AS VARCHAR)" if column.type.startswith("ENUM(") else quoted


def hash_aggregates(columns: Sequence[Column]) -> str:
    """Render the aggregates of ``mh1``: row count, row sum, then hash sum and NULL count of every column by name.

    The sums are exact (HUGEINT); the caller reduces them modulo 2**64.
    """
    ordered = sorted(columns, key=lambda column: column.name)
    hashed = [hashable(column) for column in ordered]
    per_column = [f"sum(hash({text})), count(*) - count({text})" for text in hashed]
    return ", ".join(["count(*)", f"sum(hash({', '.join(hashed)}))", *per_column])


_BEFORE_QUERY = re.compile(r"(?:\s|\(|--[^\n]*(?:\n|$)|/\*.*?\*/)*", re.DOTALL)
_QUERY_WORD = re.compile(r"(?:select|from|values|with|table|pivot|unpivot)\b", re.IGNORECASE)


def is_query(text: str) -> bool:
    """Whether a statement starts as one that makes rows of its own; SHOW, DESCRIBE and the like only tell of others."""
    start = _BEFORE_QUERY.match(text)
    return _QUERY_WORD.match(text, start.end() if start else 0) is not None


def subquery(text: str) -> str:
    """Render a query as a part of another, though it may end in a semicolon or a comment."""
    return f"({text.rstrip().rstrip(';')}\n)"


LOSSY_MARK = "marigold:lossy:"
"""Starts the message that :func:`guarded_cast` raises inside the database."""


WALL_TIMES = ("TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP", "TIMESTAMP_NS")
"""Timestamps without time zone, the coarsest first."""


def _try_cast(value: str, source_type: str, target_type: str) -> str:
    if {source_type, target_type} <= set(WALL_TIMES):  # between some of these DuckDB has no cast, but for one by way of
        value = f"TRY_CAST({value} AS TIMESTAMP)"
    return f"TRY_CAST({value} AS {target_type})"


def guarded_cast(name: str, *, source_type: str, target_type: str) -> str:
    """Render a cast that fails, instead of changing a value, where the value does not survive the way back.

    Args:
        name: The column.
        source_type: Its type in the source.
        target_type: Its type in the table.
    """
    quoted = identifier(name)
    cast = _try_cast(quoted, source_type, target_type)
    mark = string(f"{LOSSY_MARK}{name}\x1f{source_type}\x1f{target_type}\x1f")
    return (
        f"CASE WHEN {_try_cast(cast, target_type, source_type)} IS NOT DISTINCT FROM {quoted} THEN {cast}"
        f" ELSE error({mark} || CAST({quoted} AS VARCHAR)) END"
    )


def lossy_value(message: str) -> tuple[str, str, str, str] | None:
    """What :func:`guarded_cast` found, from the message of the error: column, its type, the target type, the value."""
    _, mark, rest = message.partition(LOSSY_MARK)
    if not mark:
        return None
    column, source_type, target_type, value = rest.split("\x1f", 3)
    return column, source_type, target_type, value
