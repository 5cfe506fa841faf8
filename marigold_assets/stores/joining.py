"""Joining the rows of a table to the versions of their partitions, as one SELECT that people can run by themselves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import date, datetime

import duckdb
import pyarrow as pa

from marigold_assets.errors import ConfigurationError
from marigold_assets.model import Column, LedgerEntry, PartitionSlice, TableName, fold
from marigold_assets.stores import sql
from marigold_assets.stores.predicate import bounds_table, zone_of
from marigold_assets.stores.session import FENCE_SCHEMA, Session
from marigold_assets.stores.tables import accepted_of

_TOLD = ("partition_key", "code_version", "code_fingerprint", "committed_at", "run_id")
_ACCEPTED = {"accepted_by": "accepted_by", "accepted_until": "until", "accepted_reason": "reason"}
_PREFIX = "marigold_"
_MOST_NAMED = 5


def versions_query(
    session: Session, table: TableName, heads: Sequence[LedgerEntry], columns: Sequence[Column], now: datetime
) -> str:
    """The SELECT; see :meth:`marigold_assets.stores.duckdb_reader.DuckDBReader.versions_query`.

    Every row is joined to all partitions that have it, and then to the entry of these that was written last. Which rows
    a partition has is written into the SELECT; what has built it last is looked up when that is run.

    Args:
        session: A session, whose time zone is another one afterwards.
        table: The table.
        heads: The newest entry of every partition.
        columns: The table's columns.
        now: When this is (aware), to be told.

    Raises:
        ConfigurationError: It cannot be told which rows are of which partition.
    """
    known = [_slice_of(entry) for entry in heads if entry.conditions is not None]
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
    usable, left_out = _usable(session, known, columns)
    parts = [_of_alike(session, own, columns, source, number) for own in usable]
    marigold = session.schema(FENCE_SCHEMA)
    entry, found, heads_now = (f"{prefix}{name}" for name in ("entry", "found", "heads"))
    told = ", ".join(
        [*(f"{entry}.{name} AS {prefix}{name}" for name in _TOLD)]
        + [f"accepted.{name} AS {prefix}{shown}" for shown, name in _ACCEPTED.items()]
    )
    every = f"{prefix}row.*" if is_numbered else f"{prefix}row.* EXCLUDE ({number})"
    text = (
        f"SELECT {every}, {told}\nFROM {source} AS {prefix}row\n"
        f"LEFT JOIN (SELECT number, max({heads_now}.position) AS position"
        f" FROM ({' UNION ALL '.join(parts)}) AS placed\n"
        f"JOIN (SELECT partition_key, max(position) AS position FROM {marigold}.ledger"
        f" WHERE table_key = {sql.string(table.key)} GROUP BY partition_key) AS {heads_now}"
        f" ON {heads_now}.partition_key IS NOT DISTINCT FROM placed.partition_key GROUP BY number)"
        f" AS {found} ON {found}.number = {prefix}row.{number}\n"
        f"LEFT JOIN {marigold}.ledger AS {entry} ON {entry}.position = {found}.position\n"
        f"LEFT JOIN {accepted_of(entry, f'{marigold}.acceptances')}"
    )
    if not is_numbered:
        numbered = f"SELECT *, row_number() OVER () AS {number} FROM {session.name(table)}"
        text = f"WITH {source} AS MATERIALIZED ({numbered})\n{text}"
    return f"{_comment(table, len(known) - len(left_out), left_out, now)}\n{text}"


def _comment(table: TableName, known: int, left_out: Sequence[PartitionSlice], now: datetime) -> str:
    """What whoever keeps the SELECT has to know, as comments."""
    lines = [
        f"{table}, with the version of the partition beside each row. Written {now:%Y-%m-%d %H:%M:%S %Z}:",
        f"it knows the rows of the {known} partitions of that time, and looks up what has built them when it is run.",
        "Rows of partitions that came later, or were cut otherwise since, have NULL there: then print it again.",
    ]
    if left_out:
        shown = ", ".join(repr(one.partition_key) for one in left_out[:_MOST_NAMED])
        more = f" and {len(left_out) - _MOST_NAMED} more" if len(left_out) > _MOST_NAMED else ""
        by = {c.expression: None for one in left_out for c in one.conditions}
        lines += [
            f"Not in it, as the table can no longer be cut by {' / '.join(map(repr, by))}: {shown}{more}.",
        ]
    # A line end within a name would end the comment.
    return "\n".join(f"-- {' '.join(line.split())}" for line in lines)


_Known = Sequence[PartitionSlice]


def _slice_of(entry: LedgerEntry) -> PartitionSlice:
    return PartitionSlice(
        table=entry.table, partition_key=entry.partition_key, conditions=entry.conditions or (), owner=entry.owner
    )


def _usable(session: Session, known: _Known, columns: Sequence[Column]) -> tuple[list[_Known], list[PartitionSlice]]:
    """Slices that are cut alike, by which one condition joins the rows, and those that are of the table no longer.

    Raises:
        ConfigurationError: None is of the table.
    """
    usable: list[_Known] = []
    left_out: list[PartitionSlice] = []
    refusal: ConfigurationError | None = None
    for alike in _alike(known):
        kept = []
        try:
            types = session.expression_types(alike, columns)
        except (ConfigurationError, duckdb.Error) as error:
            refusal = error if isinstance(error, ConfigurationError) else _cannot_be_cut(alike[0])
            left_out += alike
            continue
        for one in alike:
            try:
                bounds_table([one], types)
            except ConfigurationError as error:
                refusal = error
                left_out.append(one)
            else:
                kept.append(one)
        usable += [kept] if kept else []
    if refusal is not None and not usable:
        raise refusal
    return usable, left_out


def _cannot_be_cut(slice_: PartitionSlice) -> ConfigurationError:
    return ConfigurationError(
        f"the table cannot be cut by {' / '.join(repr(c.expression) for c in slice_.conditions)}",
        remedy="materialize its partitions again, by an expression that the table has",
        **slice_.where,
    )


def _alike(known: _Known) -> Iterable[_Known]:
    """Slices that are cut alike, by which one condition joins the rows."""
    alike: dict[object, list[PartitionSlice]] = {}
    for slice_ in known:
        cut = tuple((type(c), c.expression) for c in slice_.conditions)
        alike.setdefault((cut, zone_of([slice_])), []).append(slice_)
    return alike.values()


def _of_alike(session: Session, slices: _Known, columns: Sequence[Column], source: str, number: str) -> str:
    """A SELECT of the rows of some slices, by number, with the keys of their partitions."""
    if not slices[0].conditions:
        return f"SELECT {number} AS number, {_key(slices[0])} AS partition_key FROM {source}"
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
        f"({', '.join((_text(slice_.partition_key), *map(_text, row.values())))})"
        for slice_, row in zip(slices, bounds.select(named).to_pylist(), strict=True)
    )
    casts = ", ".join(f"CAST({name} AS {_type(bounds.schema.field(name).type)}) AS {name}" for name in named)
    return (
        f"SELECT {number} AS number, bounds.marigold_key AS partition_key FROM {source}"
        f" JOIN (SELECT marigold_key COLLATE C AS marigold_key, {casts} FROM (VALUES {values})"
        f" AS texts(marigold_key, {', '.join(named)})) AS bounds ON {condition}"
    )


def _key(slice_: PartitionSlice) -> str:
    return f"CAST({_text(slice_.partition_key)} AS VARCHAR) COLLATE C"


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
