"""Hypothesis strategies for what a store is given."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from marigold_assets.model import Attempt, Equals, FencingToken, PartitionSlice, TableName, fold

AWKWARD_TEXTS = (
    "select",
    "Order",
    "group by",
    'double "quoted"',
    "it's",
    "'; DROP TABLE daily; --",
    '"; DROP TABLE daily; --',
    "100%_done",
    "a.b",
    "tab\tand\nnewline",
    "naïve",
    "日本語",
    "🌼",
    "x" * 300,
    "\\",
    "?",
    "$1",
    "NULL",
    "null",
    " leading and trailing ",
    "--",
    "/* */",
    "{0}",
)
"""Names and keys that break naive quoting."""


def names() -> st.SearchStrategy[str]:
    """Names of schemas, tables and columns: never empty, and without the characters that no database stores."""
    anything = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00\x1f"), min_size=1, max_size=30)
    return st.one_of(st.sampled_from(AWKWARD_TEXTS), anything)


def keys() -> st.SearchStrategy[str]:
    """Partition keys: like names, and the empty key too."""
    return st.one_of(st.just(""), names())


def column_names(*, min_size: int = 1, max_size: int = 5) -> st.SearchStrategy[list[str]]:
    """Names that a database can tell apart."""
    return st.lists(names(), min_size=min_size, max_size=max_size, unique_by=fold)


def table_names() -> st.SearchStrategy[TableName]:
    """Tables, but none in the schema of fence and ledger."""
    schemas = names().filter(lambda name: fold(name) not in {"marigold", "temp", "system", "pg_catalog"})
    return st.builds(lambda schema, name: TableName(schema=schema, name=name), schemas, names())


def values() -> st.SearchStrategy[int | None]:
    """Values of a BIGINT column."""
    return st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1))


def rows_of(key: str, *, max_size: int = 6) -> st.SearchStrategy[list[dict[str, Any]]]:
    """Rows of the slice of :func:`slice_of` with this key, duplicates included."""
    return st.lists(st.fixed_dictionaries({"key": st.just(key), "value": values()}), max_size=max_size)


ROW_SCHEMA: pa.Schema = pa.table({"key": pa.array([], pa.string()), "value": pa.array([], pa.int64())}).schema
"""The columns of :func:`rows_of`."""


def table_of(rows: Sequence[dict[str, Any]]) -> pa.Table:
    """Rows of :func:`rows_of` as an Arrow table."""
    return pa.Table.from_pylist(list(rows), schema=ROW_SCHEMA)


def slice_of(key: str, *, table: TableName | None = None, owner: str = "daily") -> PartitionSlice:
    """The slice of the rows whose column ``key`` equals a key."""
    return PartitionSlice(
        table=table or TableName(schema="sales", name="daily"),
        partition_key=key,
        conditions=(Equals(expression="key", value=key),),
        owner=owner,
    )


def attempt_of(run_id: str, token: int) -> Attempt:
    """An attempt with a token that somebody drew."""
    return Attempt(run_id=run_id, token=FencingToken(token))


def instants(*, first_year: int = 1971, last_year: int = 2036) -> st.SearchStrategy[datetime]:
    """Aware instants in UTC, to the microsecond."""
    naive = st.datetimes(min_value=datetime(first_year, 1, 1), max_value=datetime(last_year, 12, 31))  # noqa: DTZ001
    return naive.map(lambda moment: moment.replace(tzinfo=UTC))
