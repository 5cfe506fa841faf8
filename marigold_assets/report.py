"""What a swap says of itself in Dagster: metadata and tags of one materialization, under Dagster's own names."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import dagster as dg

from marigold_assets.model import InputPartition, LedgerEntry, Receipt

TOKEN = "marigold/fencing_token"  # noqa: S105 - the name of a metadata key
SWAP_ID = "marigold/swap_id"
CONTENT_HASH = "marigold/content_hash"
CODE_VERSION = "marigold/code_version"
OUTCOME = "marigold/outcome"
OWN = "marigold/"
SWAPPED, CONFIRMED, UNCHANGED = "swapped", "confirmed", "unchanged"
"""What became of a partition: its rows were replaced; computed again, they were the same; or nothing was to be done."""

# As Dagster's own events have them.
_CODE_VERSION_TAG = "dagster/code_version"
_DATA_VERSION_TAG = "dagster/data_version"
_GIVEN_TAG = "dagster/data_version_is_user_provided"
_INPUT_TAG = "dagster/input_data_version/"
_INPUT_EVENT_TAG = "dagster/input_event_pointer/"


def data_version(entry: LedgerEntry) -> dg.DataVersion:
    """The content hash as Dagster's data version."""
    return dg.DataVersion(entry.content_hash)


def joint_data_version(entries: Sequence[LedgerEntry]) -> dg.DataVersion:
    """One data version for several partitions: another one whenever the contents of any of them change."""
    return dg.DataVersion(_joint(entries))


def tags(entry: LedgerEntry) -> Mapping[str, str]:
    """The tags of a materialization; Dagster adds its own for code, data and input versions."""
    return {TOKEN: str(entry.token), SWAP_ID: entry.swap_id}


def version_tags(entry: LedgerEntry, run_id: str) -> Mapping[str, str]:
    """The tags that Dagster sets on materializations that it makes itself, and on no others.

    Args:
        entry: What was swapped.
        run_id: Stands in for a code version that is not declared, as in Dagster.
    """
    inputs: dict[str, list[InputPartition]] = {}
    for one in entry.provenance.inputs:
        inputs.setdefault(one.owner, []).append(one)
    found = {
        _CODE_VERSION_TAG: entry.provenance.code_version or run_id,
        _DATA_VERSION_TAG: entry.content_hash,
        _GIVEN_TAG: "true",
    }
    for owner, parts in inputs.items():
        if all(part.content_hash is not None for part in parts):
            found[_INPUT_TAG + owner] = _joint(parts)
            found[_INPUT_EVENT_TAG + owner] = "NULL"
    return found


def _joint(parts: Sequence[LedgerEntry | InputPartition]) -> str:
    if len(parts) == 1:
        return str(parts[0].content_hash)
    hashes = "\n".join(f"{part.partition_key}\t{part.content_hash}" for part in parts)
    return f"mh1s:{hashlib.md5(hashes.encode(), usedforsecurity=False).hexdigest()}"


def metadata(receipt: Receipt, frame_columns: Sequence[tuple[str, str]] | None) -> dict[str, Any]:
    """The metadata of a materialization.

    The keys are those of ``dagster-duckdb``. The table's name goes without the database, whose path may be a secret.

    Args:
        receipt: What was swapped.
        frame_columns: Names and types of the columns in the words of the frame that was given, if it has any.
    """
    entry = receipt.entry
    stored = tuple((column.name, column.type) for column in entry.columns)
    row_count = "dagster/row_count" if entry.partition_key is None else "dagster/partition_row_count"
    return {
        row_count: dg.MetadataValue.int(entry.row_count),
        "dagster/table_name": dg.MetadataValue.text(str(entry.table)),
        "dagster/storage_kind": dg.MetadataValue.text("duckdb"),
        "dagster/column_schema": _table_schema(stored),
        "dataframe_columns": _table_schema(tuple(frame_columns or stored)),
        "Query": dg.MetadataValue.text(receipt.query),
        TOKEN: dg.MetadataValue.int(entry.token),
        SWAP_ID: dg.MetadataValue.text(entry.swap_id),
        CONTENT_HASH: dg.MetadataValue.text(entry.content_hash),
        CODE_VERSION: dg.MetadataValue.text(entry.provenance.code_version or "not declared"),
    }


@lru_cache(maxsize=64)  # the same for every key of a range
def _table_schema(columns: tuple[tuple[str, str], ...]) -> dg.TableSchemaMetadataValue:
    return dg.MetadataValue.table_schema(
        dg.TableSchema(columns=[dg.TableColumn(name=name, type=kind) for name, kind in columns])
    )
