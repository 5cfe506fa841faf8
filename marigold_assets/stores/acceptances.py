"""Acceptances as SQL: which partitions are accepted as they were built, in the order in which that was recorded."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import duckdb
import pyarrow as pa

from marigold_assets.model import Acceptance, Definition, TableName
from marigold_assets.stores.session import FENCE_SCHEMA, Session

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TEXTS = (
    *("table_key", "table_schema", "table_name", "owner", "partition_key"),
    *("code_version", "code_fingerprint", "config_hash", "accepted_by", "reason"),
)
_SCHEMA = pa.schema(
    [
        pa.field(name, kind)
        for kind, names in (
            (pa.int64(), ("position",)),
            (pa.string(), _TEXTS),
            (pa.timestamp("us", tz="UTC"), ("accepted_at", "until")),
        )
        for name in names
    ]
)


def append(session: Session, acceptances: Sequence[Acceptance], first_position: int) -> None:
    """Write acceptances, in a transaction that has reserved their positions.

    Args:
        session: In that transaction.
        acceptances: The acceptances.
        first_position: That of the first; the others follow.
    """
    rows = [_to_row(one, first_position + number) for number, one in enumerate(acceptances)]
    session.register("marigold_accepted", pa.Table.from_pylist(rows, schema=_SCHEMA))
    session.fenced("accept", f"INSERT INTO {FENCE_SCHEMA}.acceptances BY NAME SELECT * FROM marigold_accepted")
    session.unregister("marigold_accepted")


def of_table(session: Session, table: TableName) -> tuple[Acceptance, ...]:
    """What was accepted of a table; nothing where the tables do not exist, or are of a release that had none."""
    columns = (
        "table_schema, table_name, owner, partition_key, code_version, code_fingerprint, config_hash, accepted_by,"
        " epoch_us(accepted_at), reason, epoch_us(until)"
    )
    try:
        rows = session.fenced(
            "read acceptances",
            f"SELECT {columns} FROM {FENCE_SCHEMA}.acceptances WHERE table_key = ? ORDER BY position",
            [table.key],
        )
    except duckdb.CatalogException:
        return ()
    return tuple(_from_row(row) for row in rows)


def _to_row(one: Acceptance, position: int) -> dict[str, Any]:
    return {
        "position": position,
        "table_key": one.table.key,
        "table_schema": one.table.schema,
        "table_name": one.table.name,
        "owner": one.owner,
        "partition_key": one.partition_key,
        "code_version": one.definition.code_version,
        "code_fingerprint": one.definition.code_fingerprint,
        "config_hash": one.definition.config_hash,
        "accepted_by": one.accepted_by,
        "accepted_at": one.accepted_at,
        "reason": one.reason,
        "until": one.until,
    }


def _from_row(row: tuple[Any, ...]) -> Acceptance:
    schema, name, owner, key, version, fingerprint, config, by, at_us, reason, until_us = row
    return Acceptance(
        table=TableName(schema=schema, name=name),
        owner=owner,
        partition_key=key,
        definition=Definition(code_version=version, code_fingerprint=fingerprint, config_hash=config),
        accepted_by=by,
        accepted_at=_EPOCH + timedelta(microseconds=at_us),
        reason=reason,
        until=None if until_us is None else _EPOCH + timedelta(microseconds=until_us),
    )
