"""Asset checks over the ledger, for code locations to add to their definitions."""

# No `from __future__ import annotations` here: Dagster compares the annotation of `context` with its classes.

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import dagster as dg

from marigold_assets import partitions, versions
from marigold_assets.asset import PartitionedAssetsDefinition
from marigold_assets.attempt import owner_of
from marigold_assets.errors import ConfigurationError, Where
from marigold_assets.io_manager import FencedPartitionIOManager
from marigold_assets.lineage import Code
from marigold_assets.mixtures import Mixture
from marigold_assets.model import LedgerEntry, fold
from marigold_assets.resource import FencedPartitionResource
from marigold_assets.run_tags import BACKFILL_TAG
from marigold_assets.uniformity import (
    Subject,
    mixture_of,
    of_its_kind,
    remedy,
    said_of_accepted,
    said_of_odd,
    settled,
    unknown_rows,
    without_gaps,
)
from marigold_assets.versions import Stretch

_MOST_SHOWN = 20


def manager_of_check(
    context: dg.AssetCheckExecutionContext, key: str, owner: str
) -> FencedPartitionIOManager | FencedPartitionResource:
    """What stores the asset of a check.

    Args:
        context: The context of the check.
        key: The resource that does, as the check was made with.
        owner: The asset.

    Raises:
        ConfigurationError: It keeps no ledger.
    """
    manager = getattr(context.resources, key)
    if not isinstance(manager, FencedPartitionIOManager | FencedPartitionResource):
        raise ConfigurationError(
            f"resource {key!r} is a {type(manager).__name__}, which keeps no ledger",
            remedy="name the FencedPartitionIOManager or FencedPartitionResource that stores the asset, by"
            " io_manager_key",
            asset=owner,
        )
    return manager


def build_uniform_version_check(
    *,
    asset: dg.AssetsDefinition,
    blocking: bool = False,
    columns: Sequence[str] | None = None,
    io_manager_key: str = "io_manager",
    name: str = "uniform_version",
) -> dg.AssetChecksDefinition:
    """Make a check that all partitions of an asset were built under one definition.

    A definition is the declared code version, or the code fingerprint where none is declared, and the config. Where
    they differ, the check fails and names the odd partitions with the command that rebuilds them: those that the
    present code version has not built, if it has built any, or else those that are not as the newest one.

    Args:
        asset: The asset, which has partitions and is stored by this package.
        columns: The columns that count, where the asset declares what its code versions change (the metadata
            ``marigold/column_versions``); all by default.
        blocking: Whether assets behind it are not built in the same run where it fails. In a run of a backfill, which
            may be rebuilding the others, odd partitions are a warning, and block nothing.
        io_manager_key: The resource that stores the asset, also where that is a ``FencedPartitionResource``.
        name: The name of the check.

    Raises:
        ConfigurationError: The asset has no partitions, or is several assets.
    """
    if len(asset.keys) != 1 or asset.partitions_def is None:
        raise ConfigurationError(
            "uniform_version is about one asset with partitions",
            remedy="make a check for each asset that has partitions",
            asset=", ".join(sorted(map(owner_of, asset.keys))),
        )

    @dg.asset_check(asset=asset, name=name, blocking=blocking, required_resource_keys={io_manager_key})
    def uniform_version(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
        """All partitions were built under one definition."""
        manager = manager_of_check(context, io_manager_key, owner_of(asset.key))
        is_being_rebuilt = BACKFILL_TAG in context.run.tags
        severity = dg.AssetCheckSeverity.WARN if is_being_rebuilt else dg.AssetCheckSeverity.ERROR
        return _judged(asset, manager, context.instance, columns, severity=severity)

    return uniform_version


def _judged(
    asset: dg.AssetsDefinition,
    manager: FencedPartitionIOManager | FencedPartitionResource,
    instance: dg.DagsterInstance,
    columns: Sequence[str] | None,
    *,
    severity: dg.AssetCheckSeverity,
) -> dg.AssetCheckResult:
    spec = asset.specs_by_key[asset.key]
    table = partitions.table_of_asset(asset.key, spec.metadata, manager.schema_)
    where = Where(asset=owner_of(asset.key), table=str(table))
    definition: Any = asset.partitions_def
    keys = [str(key) for key in definition.get_partition_keys(dynamic_partitions_store=instance)]
    store = manager.store
    heads, stored = settled(store, table, None, lambda: store.row_count(table))
    heads = of_its_kind(heads)
    known: dict[str | None, LedgerEntry] = {key: heads[key] for key in keys if key in heads}
    fingerprint = asset.code.fingerprint if isinstance(asset, PartitionedAssetsDefinition) else None
    subject = Subject(
        table=table,
        owner=owner_of(asset.key),
        code=Code(version=spec.code_version, fingerprint=fingerprint),
        changes=partitions.column_changes(spec.metadata, where),
        impure=partitions.impure_columns(spec.metadata, where).keys(),
        keys=lambda: keys,
    )
    _refuse_unknown_columns(columns, heads, where)
    found = mixture_of(store, subject, keys, known, columns)
    found = replace(found, odd=tuple(without_gaps(found.odd, keys)))
    unknown = unknown_rows(stored, keys, heads)
    shown = versions.stretches(keys, known, found.definition_of)[:_MOST_SHOWN]
    return dg.AssetCheckResult(
        passed=not found.odd and unknown is None,
        severity=severity if unknown is None else dg.AssetCheckSeverity.ERROR,
        description=_described(subject, found) if unknown is None else unknown,
        metadata={
            "marigold/definitions": dg.MetadataValue.table([_record(one) for one in shown]),
            "marigold/partitions": len(known),
            "marigold/odd_partitions": sum(len(one.keys) for one in found.odd),
            "marigold/accepted_partitions": sum(len(one.keys) for one in found.accepted),
        },
    )


def _refuse_unknown_columns(
    columns: Sequence[str] | None, heads: Mapping[str | None, LedgerEntry], where: Where
) -> None:
    newest = max(heads.values(), key=lambda entry: entry.position, default=None)
    if columns is None or newest is None:
        return
    known = {fold(column.name) for column in newest.columns}
    if missing := [name for name in columns if fold(name) not in known]:
        raise ConfigurationError(
            f"uniform_version is about column {missing[0]!r}, which the table does not have",
            remedy=f"name some of {', '.join(column.name for column in newest.columns)}",
            **where,
        )


def _described(subject: Subject, found: Mixture) -> str:
    if not found.definitions:
        return "the ledger knows no partition of it"
    accepted = f"; {said_of_accepted(found)}" if found.accepted else ""
    if found.odd:
        return f"{said_of_odd(found)}. Remedy: {remedy(subject, found)}{accepted}"
    rest = "; others differ in no column that counts" if len(found.definitions) > 1 and not found.accepted else ""
    return f"all under {found.wanted}{rest}{accepted}"


def _record(one: Stretch) -> dg.TableRecord:
    return dg.TableRecord(
        {
            "definition": "not built" if one.definition is None else str(one.definition),
            "first": str(one.keys[0]),
            "last": str(one.keys[-1]),
            "partitions": len(one.keys),
            "rows": one.row_count,
            "last write": "" if one.last_write is None else one.last_write.isoformat(timespec="seconds"),
        }
    )
