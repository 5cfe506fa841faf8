"""From Dagster's words to the store's: asset key and metadata to a table, partition keys to slices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any

import dagster as dg

from marigold_assets.errors import ConfigurationError, Where
from marigold_assets.mixtures import Changes, ColumnChange
from marigold_assets.model import Condition, CutOff, Equals, Interval, PartitionSlice, SwapOptions, TableName
from marigold_assets.windows import Windows

PARTITION_EXPR = "partition_expr"
EVOLVE = "marigold/evolve"
RENAMED_FROM = "marigold/renamed_from"
COLUMN_VERSIONS = "marigold/column_versions"
IMPURE_COLUMNS = "marigold/impure_columns"
LOOKBACK = "marigold/lookback"
_OWN_KEYS = "marigold/"
DEFAULT_SCHEMA = "public"


def table_of_asset(key: dg.AssetKey, metadata: Mapping[str, Any], configured_schema: str | None) -> TableName:
    """The table of an asset, by the rules of ``dagster-duckdb``.

    The schema is that of the asset's metadata, else the one configured, else the last part of the key's prefix, else
    ``public``. The table is the last part of the key.
    """
    prefix = key.path[-2] if len(key.path) > 1 else None
    schema = metadata.get("schema") or configured_schema or prefix or DEFAULT_SCHEMA
    return TableName(schema=str(schema), name=key.path[-1])


def table_of_output(name: str, metadata: Mapping[str, Any], configured_schema: str | None) -> TableName:
    """The table of an op's output: ``table`` and ``schema`` of its metadata, else its name and the one configured."""
    schema = metadata.get("schema") or configured_schema or DEFAULT_SCHEMA
    return TableName(schema=str(schema), name=str(metadata.get("table") or name))


def swap_options(metadata: Mapping[str, Any], where: Where, *, cut_off: CutOff = CutOff.OFF) -> SwapOptions:
    """What an asset opts in to by its metadata, and what becomes of rows that are the same again.

    Raises:
        ConfigurationError: One of the values says nothing of the kind.
    """
    known = (EVOLVE, RENAMED_FROM, COLUMN_VERSIONS, IMPURE_COLUMNS, LOOKBACK)
    if unknown := [key for key in metadata if key.startswith(_OWN_KEYS) and key not in known]:
        raise ConfigurationError(
            f"the asset's metadata has the unknown key {unknown[0]!r}",
            remedy=f"correct it to one of {', '.join(known)}, or leave it out",
            **where,
        )
    evolve, renamed = _plain(metadata.get(EVOLVE)), _plain(metadata.get(RENAMED_FROM))
    if not isinstance(evolve, bool | None):
        raise ConfigurationError(
            f"{EVOLVE} is {evolve!r}, which is neither True nor False",
            remedy=f'set metadata={{"{EVOLVE}": True}} on the asset, or leave it out',
            **where,
        )
    former = (renamed,) if isinstance(renamed, str) else renamed or ()
    if not isinstance(former, Sequence) or not all(isinstance(name, str) for name in former):
        raise ConfigurationError(
            f"{RENAMED_FROM} is {renamed!r}, which is no asset key",
            remedy=f'set metadata={{"{RENAMED_FROM}": "<former key, such as sales/daily>"}} on the asset',
            **where,
        )
    return SwapOptions(evolve=bool(evolve), renamed_from=tuple(former), cut_off=cut_off)


def column_changes(metadata: Mapping[str, Any], where: Where) -> Changes:
    """Which columns code versions change, as an asset declares it: ``{"3": {"since": "2", "columns": [...]}}``.

    Raises:
        ConfigurationError: It says something else.
    """
    given = _plain(metadata.get(COLUMN_VERSIONS)) or {}
    if isinstance(given, Mapping) and all(map(_is_column_change, given.values())):
        return {
            str(version): ColumnChange(since=str(one["since"]), columns=frozenset(map(str, one["columns"])))
            for version, one in given.items()
        }
    raise ConfigurationError(
        f"{COLUMN_VERSIONS} is {given!r}, which does not say what each code version changes",
        remedy=f'set metadata={{"{COLUMN_VERSIONS}": {{"3": {{"since": "2", "columns": ["net_revenue"]}}}}}} on the'
        " asset if code version 3 differs from 2 in this column alone",
        **where,
    )


def _is_column_change(given: object) -> bool:
    if not isinstance(given, Mapping) or given.keys() != {"since", "columns"}:
        return False
    columns = given["columns"]
    return isinstance(columns, Sequence) and not isinstance(columns, str) and all(isinstance(c, str) for c in columns)


def impure_columns(metadata: Mapping[str, Any], where: Where) -> Mapping[str, str]:
    """Columns that depend on more than the partition, as an asset admits it, each with the reason.

    Raises:
        ConfigurationError: It says something else, or gives no reason.
    """
    given = _plain(metadata.get(IMPURE_COLUMNS)) or {}
    if isinstance(given, Mapping) and all(isinstance(reason, str) and reason.strip() for reason in given.values()):
        return {str(column): str(reason) for column, reason in given.items()}
    raise ConfigurationError(
        f"{IMPURE_COLUMNS} is {given!r}, which does not give a reason for each column",
        remedy=f'set metadata={{"{IMPURE_COLUMNS}": {{"<column>": "<why it may differ>"}}}} on the asset',
        **where,
    )


def lookback(metadata: Mapping[str, Any], where: Where) -> int:
    """How many partitions before a missing one are computed again as well, as an asset says; 0 if it says nothing.

    Raises:
        ConfigurationError: It says something else than a number.
    """
    given = _plain(metadata.get(LOOKBACK, 0))
    if isinstance(given, int) and not isinstance(given, bool) and given >= 0:
        return given
    raise ConfigurationError(
        f"{LOOKBACK} is {given!r}, which is no number of partitions",
        remedy=f'set metadata={{"{LOOKBACK}": 3}} on the asset, or another whole number from 0 on',
        **where,
    )


def _plain(value: object) -> object:
    return value.value if isinstance(value, dg.MetadataValue) else value


def whole_table(table: TableName, owner: str) -> PartitionSlice:
    """The slice of a table that is not partitioned."""
    return PartitionSlice(table=table, partition_key=None, owner=owner)


def slices_of_keys(
    table: TableName,
    owner: str,
    *,
    partitions_def: dg.PartitionsDefinition[Any],
    keys: Sequence[str],
    partition_expr: object,
    windows: Windows | None = None,
) -> tuple[PartitionSlice, ...]:
    """The slices of some partitions of an asset.

    Args:
        table: The asset's table.
        owner: The asset key as users see it.
        partitions_def: Its partitions.
        keys: Partition keys.
        partition_expr: The ``partition_expr`` of its metadata: a column or SQL expression, or for a
            multi-dimensional definition one of them a dimension.
        windows: Windows of the same definition that are known already.

    Raises:
        ConfigurationError: ``partition_expr`` is missing, incomplete or of the wrong kind.
    """
    if isinstance(partitions_def, dg.MultiPartitionsDefinition):
        expressions = _expressions_by_dimension(partitions_def, partition_expr, _where(table, owner, keys))
        return tuple(
            PartitionSlice(
                table=table,
                partition_key=str(key),
                conditions=tuple(
                    _condition(dimension.partitions_def, part, expressions[dimension.name])
                    for dimension, part in _split(partitions_def, key)
                ),
                owner=owner,
            )
            for key in keys
        )
    if not isinstance(partition_expr, str) or not partition_expr.strip():
        raise ConfigurationError(
            "the asset has partitions, but its metadata does not say which column they are in"
            if partition_expr is None
            else f"partition_expr is {partition_expr!r}, but one column or SQL expression is needed",
            remedy='set metadata={"partition_expr": "<column or SQL expression>"} on the asset',
            **_where(table, owner, keys),
        )
    return tuple(
        [
            PartitionSlice(
                table=table,
                partition_key=str(key),
                conditions=(_condition(partitions_def, str(key), partition_expr, windows),),
                owner=owner,
            )
            for key in keys
        ]
    )


def _where(table: TableName, owner: str, keys: Sequence[str]) -> Where:
    return Where(asset=owner, partition=keys[0] if keys else None, table=str(table))


def line_before(partitions_def: dg.PartitionsDefinition[Any], key: str, store: dg.DagsterInstance) -> tuple[str, ...]:
    """All keys before one in time, with the same in every other dimension, the oldest first.

    Args:
        partitions_def: The partitions, of which one dimension is time.
        key: The key.
        store: Where dynamic keys are.
    """
    if not isinstance(partitions_def, dg.MultiPartitionsDefinition):
        return tuple(takewhile(key.__ne__, partitions_def.get_partition_keys(dynamic_partitions_store=store)))
    time = partitions_def.time_window_dimension
    own = dict(partitions_def.get_partition_key_from_str(key).keys_by_dimension)
    earlier = takewhile(own[time.name].__ne__, time.partitions_def.get_partition_keys())
    return tuple(str(dg.MultiPartitionKey({**own, time.name: one})) for one in earlier)


def _condition(
    partitions_def: dg.PartitionsDefinition[Any], key: str, expression: str, windows: Windows | None = None
) -> Condition:
    known = None if windows is None else windows.of(key)
    if windows is not None and known is not None:
        return Interval(expression=expression, start=known.start, end=known.end, timezone=windows.timezone)
    if isinstance(partitions_def, dg.TimeWindowPartitionsDefinition):
        window = partitions_def.time_window_for_partition_key(key)
        return Interval(expression=expression, start=window.start, end=window.end, timezone=partitions_def.timezone)
    return Equals(expression=expression, value=key)


def _split(partitions_def: dg.MultiPartitionsDefinition, key: str) -> list[tuple[dg.PartitionDimensionDefinition, str]]:
    multi = key if isinstance(key, dg.MultiPartitionKey) else partitions_def.get_partition_key_from_str(key)
    return [(dimension, multi.keys_by_dimension[dimension.name]) for dimension in partitions_def.partitions_defs]


def _expressions_by_dimension(
    partitions_def: dg.MultiPartitionsDefinition, partition_expr: object, where: Where
) -> Mapping[str, str]:
    names = [dimension.name for dimension in partitions_def.partitions_defs]
    found = partition_expr if isinstance(partition_expr, Mapping) else {}
    missing = [name for name in names if not isinstance(found.get(name), str) or not found[name].strip()]
    if missing:
        raise ConfigurationError(
            f"partition_expr names no column for dimension {', '.join(map(repr, missing))}",
            remedy='set metadata={"partition_expr": {'
            + ", ".join(f'"{name}": "<column or SQL expression>"' for name in names)
            + "}} on the asset",
            **where,
        )
    return found
