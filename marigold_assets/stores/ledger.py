"""The ledger as SQL: what was swapped, in the order in which it was."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

import duckdb
import pyarrow as pa

from marigold_assets.model import Column, FencingToken, InputPartition, LedgerEntry, Provenance, TableName
from marigold_assets.stores.fence import Execute, Keys
from marigold_assets.stores.session import FENCE_SCHEMA

_FEW = 8  # faster one by one than as an Arrow table
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LEDGER_COLUMNS = (
    "position, table_schema, table_name, owner, partition_key, run_id, token, swap_id, row_count, content_hash,"
    " column_hashes, columns, code_version, code_fingerprint, config_hash, step, backfill_id, inputs,"
    " coalesce(confirmed, false), epoch_us(committed_at)"
)
# A file of format 1 that nobody has written since is read as it is: what it lacks is NULL.
_LEDGER = (
    f"(FROM {FENCE_SCHEMA}.ledger UNION ALL BY NAME SELECT NULL::VARCHAR AS code_fingerprint,"
    " NULL::VARCHAR AS config_hash, NULL::BOOLEAN AS confirmed WHERE false)"
)


def append(execute: Execute, connection: duckdb.DuckDBPyConnection, entries: Sequence[LedgerEntry]) -> None:
    """Write ledger entries."""
    if len(entries) <= _FEW:
        values = [_to_row(entry) for entry in entries]
        row = f"({', '.join('?' * len(_LEDGER_SCHEMA.names))})"
        execute(
            "append to ledger",
            f"INSERT INTO {FENCE_SCHEMA}.ledger ({', '.join(_LEDGER_SCHEMA.names)})"
            f" VALUES {', '.join([row] * len(values))}",
            [value[name] for value in values for name in _LEDGER_SCHEMA.names],
        )
        return
    rows = pa.Table.from_pylist([_to_row(entry) for entry in entries], schema=_LEDGER_SCHEMA)
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
                ],
            ),
            (pa.timestamp("us", tz="UTC"), ("committed_at",)),
            (pa.bool_(), ("confirmed",)),
        )
        for name in names
    ]
)


NEWEST_OF_TABLE = f"position = (SELECT max(position) FROM {FENCE_SCHEMA}.ledger WHERE table_key = ?)"
"""A condition for :func:`entries`."""


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


def _to_row(entry: LedgerEntry) -> dict[str, Any]:
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
    }


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
    code_version, code_fingerprint, config_hash, step, backfill_id, inputs, confirmed, committed_us = row[12:]
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
        column_hashes={column: (digest, nulls) for column, (digest, nulls) in json.loads(column_hashes).items()},
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
    )


@lru_cache(maxsize=128)
def _columns(text: str) -> tuple[Column, ...]:
    """The columns of an entry, which are those of its neighbours as well."""
    return tuple(Column(name=column, type=kind) for column, kind in json.loads(text))


def _inputs(text: str) -> tuple[InputPartition, ...]:
    found = json.loads(text)
    if not isinstance(found, list):  # format 1 had an object here, which nobody ever filled
        return ()
    return tuple(InputPartition(owner=owner, partition_key=key, content_hash=digest) for owner, key, digest in found)
