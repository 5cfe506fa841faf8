"""Asset checks over the ledger, for code locations to add to their definitions."""

# No `from __future__ import annotations` here: Dagster compares the annotation of `context` with its classes.

from collections.abc import Sequence
from typing import Any

import dagster as dg

from marigold_assets import partitions, versions
from marigold_assets.attempt import owner_of
from marigold_assets.errors import ConfigurationError
from marigold_assets.io_manager import FencedPartitionIOManager
from marigold_assets.model import Definition, LedgerEntry
from marigold_assets.versions import Stretch

_MOST_SHOWN = 20
_MOST_COMMANDS = 3


def build_uniform_version_check(
    *,
    asset: dg.AssetsDefinition,
    blocking: bool = False,
    io_manager_key: str = "io_manager",
    name: str = "uniform_version",
) -> dg.AssetChecksDefinition:
    """Make a check that all partitions of an asset were built under one definition.

    A definition is the declared code version, or the code fingerprint where none is declared, and the config. Where
    they differ, the check fails and names the odd partitions with the command that rebuilds them: those that the
    present code version has not built, if it has built any, or else those of the smaller number.

    Args:
        asset: The asset, which has partitions and is stored by this package.
        blocking: Whether assets behind it are not built in the same run where it fails.
        io_manager_key: The resource that stores the asset.
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
        manager = getattr(context.resources, io_manager_key)
        if not isinstance(manager, FencedPartitionIOManager):
            raise ConfigurationError(
                f"resource {io_manager_key!r} is a {type(manager).__name__}, which keeps no ledger",
                remedy="name the FencedPartitionIOManager that stores the asset: io_manager_key=...",
                asset=owner_of(asset.key),
            )
        return _judged(asset, manager, context.instance)

    return uniform_version


def _judged(
    asset: dg.AssetsDefinition, manager: FencedPartitionIOManager, instance: dg.DagsterInstance
) -> dg.AssetCheckResult:
    spec = asset.specs_by_key[asset.key]
    heads = manager.store.heads(partitions.table_of_asset(asset.key, spec.metadata, manager.schema_))
    definition: Any = asset.partitions_def
    keys = [str(key) for key in definition.get_partition_keys(dynamic_partitions_store=instance)]
    known: dict[str | None, LedgerEntry] = {key: heads[key] for key in keys if key in heads}
    found = versions.definitions(known)
    wanted = next((one for one in found if one.code_version == spec.code_version), next(iter(found), None))
    stretches = versions.stretches(keys, known)
    odd = [one for one in stretches if one.definition is not None and one.definition != wanted]
    return dg.AssetCheckResult(
        passed=not odd,
        description=_described(asset, found, odd),
        metadata={
            "marigold/definitions": dg.MetadataValue.table([_record(one) for one in stretches[:_MOST_SHOWN]]),
            "marigold/partitions": len(known),
            "marigold/odd_partitions": sum(len(one.keys) for one in odd),
        },
    )


def _described(asset: dg.AssetsDefinition, found: Sequence[Definition], odd: Sequence[Stretch]) -> str:
    if not found:
        return "the ledger knows no partition of it"
    if not odd:
        return f"all under {found[0]}"
    name = owner_of(asset.key)
    commands = [
        f"dagster asset materialize --select {name} --partition-range {one.keys[0]}...{one.keys[-1]}"
        for one in odd[:_MOST_COMMANDS]
    ]
    more = f", and {len(odd) - _MOST_COMMANDS} more stretches" if len(odd) > _MOST_COMMANDS else ""
    ranges = ", ".join(f"{one.keys[0]} to {one.keys[-1]} ({one.definition})" for one in odd[:_MOST_COMMANDS])
    count = sum(len(one.keys) for one in odd)
    return (
        f"{count} partitions were built under another definition than the rest: {ranges}{more}."
        f" Remedy: rebuild them from the asset's page, or by {'; '.join(commands)}"
    )


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
