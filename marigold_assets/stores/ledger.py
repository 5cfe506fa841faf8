"""The ledger as SQL: what was swapped, in the order in which it was.

Column ``slice`` tells the rows of the partition, as JSON: a list with one object a condition, ``{"expression", "start",
"end", "timezone", "local_start", "local_end"}`` or ``{"expression", "value"}``; none for a whole table. Instants are in
UTC. The local ones are wall times in the zone, for whoever compares a DATE or TIMESTAMP with them; null where a change
of the clock makes them those of other rows too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

import duckdb
import pyarrow as pa

from marigold_assets.model import (
    Column,
    Condition,
    Equals,
    FencingToken,
    InputPartition,
    Interval,
    LedgerEntry,
    Provenance,
    TableName,
)
from marigold_assets.stores.fence import Keys
from marigold_assets.stores.predicate import ExpressionKind, wall_times
from marigold_assets.stores.session import FENCE_SCHEMA, Execute

_FEW = 8  # faster one by one than as an Arrow table
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LEDGER_COLUMNS = (
    "position, table_schema, table_name, owner, partition_key, run_id, token, swap_id, row_count, content_hash,"
    " column_hashes, columns, code_version, code_fingerprint, config_hash, step, backfill_id, inputs,"
    " coalesce(confirmed, false), epoch_us(committed_at), slice"
)
# A file of an older format that nobody has written since is read as it is: what it lacks is NULL.
_LEDGER = (
    f"(FROM {FENCE_SCHEMA}.ledger UNION ALL BY NAME SELECT NULL::VARCHAR AS code_fingerprint,"
    " NULL::VARCHAR AS config_hash, NULL::BOOLEAN AS confirmed, NULL::VARCHAR AS slice WHERE false)"
)


def append(
    execute: Execute,
    connection: duckdb.DuckDBPyConnection,
    entries: Sequence[LedgerEntry],
    types: Mapping[str, str],
) -> None:
    """Write ledger entries of one table.

    Args:
        execute: Runs a statement.
        connection: Where it runs.
        entries: The entries.
        types: By partition expression, its type.
    """
    kinds = {expression: ExpressionKind.of(type_name) for expression, type_name in types.items()}
    if len(entries) <= _FEW:
        values = [_to_row(entry, kinds) for entry in entries]
        row = f"({', '.join('?' * len(_LEDGER_SCHEMA.names))})"
        execute(
            "append to ledger",
            f"INSERT INTO {FENCE_SCHEMA}.ledger ({', '.join(_LEDGER_SCHEMA.names)})"
            f" VALUES {', '.join([row] * len(values))}",
            [value[name] for value in values for name in _LEDGER_SCHEMA.names],
        )
        return
    rows = pa.Table.from_pylist([_to_row(entry, kinds) for entry in entries], schema=_LEDGER_SCHEMA)
    connection.register("marigold_entries", rows)
    try:
        execute("append to ledger", f"INSERT INTO {FENCE_SCHEMA}.ledger BY NAME SELECT * FROM marigold_entries")
    finally:
        connection.unregister("marigold_entries")


_LEDGER_SCHEMA = pa.schema(
    [
        pa.field(name, kind)
        for kind, names in (
            (pa.int64(), ("position", "token", "row_count")),
            (
                pa.string(),
                [
                    "table_key",
                    "table_schema",
                    "table_name",
                    "owner",
                    "partition_key",
                    "run_id",
                    "swap_id",
                    "content_hash",
                    "column_hashes",
                    "columns",
                    "code_version",
                    "code_fingerprint",
                    "config_hash",
                    "step",
                    "backfill_id",
                    "inputs",
                    "slice",
                ],
            ),
            (pa.timestamp("us", tz="UTC"), ("committed_at",)),
            (pa.bool_(), ("confirmed",)),
        )
        for name in names
    ]
)


NEWEST_OF_TABLE = f"position = (SELECT max(position) FROM {FENCE_SCHEMA}.ledger WHERE table_key = ?)"
NEWEST_OF_OWNER = f"position = (SELECT max(position) FROM {FENCE_SCHEMA}.ledger WHERE owner = ?)"
"""Conditions for :func:`entries`."""


def entries(execute: Execute, where: str = "true", parameters: Sequence[Any] = ()) -> tuple[LedgerEntry, ...]:
    """Read ledger entries in order of position; none where the tables do not exist yet."""
    try:
        rows = execute(
            "read ledger",
            f"SELECT {_LEDGER_COLUMNS} FROM {_LEDGER} WHERE {where} ORDER BY position",
            list(parameters),
        )
    except duckdb.CatalogException:
        return ()
    return tuple(_from_row(row) for row in rows)


def heads(
    execute: Execute, table: TableName, keys: Sequence[str | None] | None = None
) -> Mapping[str | None, LedgerEntry]:
    """The newest entry of every partition of a table, or of some, by partition key."""
    wanted = Keys.any_of(keys)
    newest = (
        f"SELECT max(position) FROM {FENCE_SCHEMA}.ledger"
        f" WHERE table_key = ? AND {wanted.condition} GROUP BY partition_key"
    )
    found = entries(execute, f"position IN ({newest})", [table.key, *wanted.parameters])
    return {entry.partition_key: entry for entry in found}


def superseded(execute: Execute, table: TableName) -> tuple[LedgerEntry, ...]:
    """The entries of a table that have a newer one of the same partition, in order of position."""
    newest = f"SELECT max(position) FROM {FENCE_SCHEMA}.ledger WHERE table_key = ? GROUP BY partition_key"
    return entries(execute, f"table_key = ? AND position NOT IN ({newest})", [table.key, table.key])


def recent_commits(execute: Execute, table: TableName, runs: int) -> Mapping[str, tuple[float, ...]]:
    """When each of the newest runs that wrote a table committed its partitions: Unix times, in order.

    Partitions that were only confirmed are left out, since they were not written.
    """
    try:
        rows = execute(
            "read commit times",
            f"WITH own AS (FROM {_LEDGER} SELECT run_id, position, committed_at, coalesce(confirmed, false) AS"
            " confirmed WHERE table_key = ?), recent AS (FROM own SELECT run_id, max(position) AS newest WHERE NOT"
            " confirmed GROUP BY run_id ORDER BY newest DESC LIMIT ?)"
            " SELECT run_id, list(epoch_us(committed_at) ORDER BY position) FROM own JOIN recent USING (run_id)"
            " WHERE NOT confirmed GROUP BY run_id, newest ORDER BY newest",
            [table.key, runs],
        )
    except duckdb.CatalogException:
        return {}
    return {str(run_id): tuple(number / 1_000_000 for number in numbers) for run_id, numbers in rows}


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadContent:
    """What the newest entry of a partition says that it held then.

    Attributes:
        content_hash: The hash of its rows.
        row_count: Their number.
    """

    content_hash: str
    row_count: int


HeadContents = Mapping[tuple[str, str | None], HeadContent]
"""By table and partition key."""


def head_contents(execute: Execute, keys: Mapping[TableName, Sequence[str | None]]) -> HeadContents:
    """What the newest entries of some partitions of some tables say."""
    wanted = [(table.key, Keys.any_of(own)) for table, own in keys.items()]
    rows = execute(
        "read heads",
        "SELECT table_key, partition_key, arg_max(content_hash, position), arg_max(row_count, position)"
        f" FROM {FENCE_SCHEMA}.ledger"
        f" WHERE {' OR '.join(f'(table_key = ? AND {own.condition})' for _, own in wanted)} GROUP BY ALL",
        [value for key, own in wanted for value in (key, *own.parameters)],
    )
    return {(table, key): HeadContent(content_hash=text, row_count=int(number)) for table, key, text, number in rows}


def _to_row(entry: LedgerEntry, kinds: Mapping[str, ExpressionKind]) -> dict[str, Any]:
    return {
        "position": entry.position,
        "table_key": entry.table.key,
        "table_schema": entry.table.schema,
        "table_name": entry.table.name,
        "owner": entry.owner,
        "partition_key": entry.partition_key,
        "run_id": entry.run_id,
        "token": entry.token,
        "swap_id": entry.swap_id,
        "row_count": entry.row_count,
        "content_hash": entry.content_hash,
        "column_hashes": json.dumps(dict(entry.column_hashes)),
        "columns": json.dumps([[column.name, column.type] for column in entry.columns]),
        "code_version": entry.provenance.code_version,
        "code_fingerprint": entry.provenance.code_fingerprint,
        "config_hash": entry.provenance.config_hash,
        "step": entry.provenance.step,
        "backfill_id": entry.provenance.backfill_id,
        "inputs": json.dumps([[i.owner, i.partition_key, i.content_hash] for i in entry.provenance.inputs]),
        "committed_at": entry.committed_at,
        "confirmed": entry.confirmed,
        "slice": None
        if entry.conditions is None
        else f"[{', '.join(_condition_as_json(c, kinds[c.expression]) for c in entry.conditions)}]",
    }


@lru_cache(maxsize=1_024)  # of several dimensions, and of a partition that is swapped again, it is the same
def _condition_as_json(condition: Condition, kind: ExpressionKind) -> str:
    if isinstance(condition, Equals):
        return json.dumps({"expression": condition.expression, "value": condition.value})
    local = wall_times(condition, kind)
    start, end = (None, None) if local is None else (moment.isoformat() for moment in local)
    return json.dumps(
        {
            "expression": condition.expression,
            "start": condition.start.isoformat(),
            "end": condition.end.isoformat(),
            "timezone": condition.timezone,
            "local_start": start,
            "local_end": end,
        }
    )


def _conditions(text: str | None) -> tuple[Condition, ...] | None:
    return None if text is None else tuple(_condition(found) for found in json.loads(text))


def _condition(found: Mapping[str, str]) -> Condition:
    if "value" in found:
        return Equals(expression=found["expression"], value=found["value"])
    start, end = datetime.fromisoformat(found["start"]), datetime.fromisoformat(found["end"])
    return Interval(expression=found["expression"], start=start, end=end, timezone=found["timezone"])


def _from_row(row: tuple[Any, ...]) -> LedgerEntry:
    (
        position,
        schema,
        name,
        owner,
        key,
        run_id,
        token,
        swap_id,
        row_count,
        content_hash,
        column_hashes,
        columns,
    ) = row[:12]
    code_version, code_fingerprint, config_hash, step, backfill_id, inputs, confirmed, committed_us, slice_ = row[12:]
    return LedgerEntry(
        position=position,
        table=TableName(schema=schema, name=name),
        owner=owner,
        partition_key=key,
        run_id=run_id,
        token=FencingToken(token),
        swap_id=swap_id,
        row_count=row_count,
        content_hash=content_hash,
        column_hashes=_ColumnHashes(column_hashes),
        columns=_columns(columns),
        provenance=Provenance(
            code_version=code_version,
            code_fingerprint=code_fingerprint,
            config_hash=config_hash,
            step=step,
            backfill_id=backfill_id,
            inputs=_inputs(inputs),
        ),
        committed_at=_EPOCH + timedelta(microseconds=committed_us),
        confirmed=confirmed,
        conditions=_conditions(slice_),
    )


class _ColumnHashes(Mapping[str, tuple[str, int]]):
    """The column hashes of an entry, taken apart when somebody asks: most of those read are never looked at."""

    __slots__ = ("_found", "_text")

    def __init__(self, text: str) -> None:
        self._text = text
        self._found: dict[str, tuple[str, int]] | None = None

    def _hashes(self) -> dict[str, tuple[str, int]]:
        if self._found is None:
            self._found = {column: (digest, nulls) for column, (digest, nulls) in json.loads(self._text).items()}
        return self._found

    def __getitem__(self, column: str) -> tuple[str, int]:
        return self._hashes()[column]

    def __iter__(self) -> Iterator[str]:
        return iter(self._hashes())

    def __len__(self) -> int:
        return len(self._hashes())

    def __repr__(self) -> str:
        return repr(self._hashes())


@lru_cache(maxsize=128)
def _columns(text: str) -> tuple[Column, ...]:
    """The columns of an entry, which are those of its neighbours as well."""
    return tuple(Column(name=column, type=kind) for column, kind in json.loads(text))


def _inputs(text: str) -> tuple[InputPartition, ...]:
    found = json.loads(text)
    if not isinstance(found, list):  # format 1 had an object here, which nobody ever filled
        return ()
    return tuple(InputPartition(owner=owner, partition_key=key, content_hash=digest) for owner, key, digest in found)
