"""What a report about an asset looks at: its ledger, that of everything it was built from, and the event log."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import dagster as dg

from marigold_assets import dagster_loading, partitions
from marigold_assets.cli.survey import Events, Evidence, Key, is_mixed
from marigold_assets.errors import ConfigurationError, MarigoldError, Where
from marigold_assets.location import CodeLocation, LocatedAsset, is_dynamic
from marigold_assets.mixtures import Changes
from marigold_assets.model import LedgerEntry, Place

_DATA_VERSION = "dagster/data_version"
_NO_HOME = "DAGSTER_HOME is not set, so there is no event log to compare with"


def event_log() -> Any:
    """The event log of the instance that DAGSTER_HOME names; ``None`` if it names none.

    Raises:
        ConfigurationError: DAGSTER_HOME is no folder.
    """
    home = os.environ.get("DAGSTER_HOME")
    if not home:
        return None
    if not Path(home).is_absolute() or not Path(home).is_dir():
        what = "no folder" if Path(home).is_absolute() else "no absolute path"
        raise ConfigurationError(
            f"DAGSTER_HOME is {home!r}, which is {what}",
            remedy="set it to the folder of the Dagster instance, or unset it: then the event log is not compared",
        )
    return dagster_loading.event_storage(Path(home))


def gather(location: CodeLocation, asset: LocatedAsset, options: Sequence[str] = ()) -> Evidence:
    """Look at everything that a report tells.

    Args:
        location: The code location.
        asset: The asset of it.
        options: What names the code location to this command, for what it proposes.

    Raises:
        ConfigurationError: The asset is stored by something else, or DAGSTER_HOME is no folder.
        StoreUnavailableError: There is no database.
        StoreBusyError: Another process holds it.
    """
    storage = event_log()
    asset.refuse_missing_database()
    heads = asset.store.heads(asset.table)
    keys, notes = _keys(asset, heads, storage)
    related, unknown = _related(location, asset, heads)
    differs = any(not asset.code.has_built(entry) for entry in heads.values())
    return Evidence(
        owner=asset.owner,
        table=asset.table,
        keys=keys,
        heads=heads,
        history=asset.store.ledger(asset.table) if is_mixed(keys, heads) else (),
        related=related,
        unknown=unknown,
        reads=any(one.asset_key != asset.key for one in asset.spec.deps),
        acceptances=asset.store.acceptances(asset.table) if differs or is_mixed(keys, heads) else (),
        present=asset.code,
        changes=changes_of(asset),
        impure=partitions.impure_columns(asset.spec.metadata, Where(asset=asset.owner)),
        events=None if storage is None else _events(storage, asset),
        no_events=_NO_HOME if storage is None else None,
        notes=notes,
        options=options,
        arguments=asset.arguments,
        takes_ranges=asset.takes_ranges,
    )


def changes_of(asset: LocatedAsset) -> Changes:
    """What the author of an asset declares of code versions.

    Raises:
        ConfigurationError: It makes no sense.
    """
    return partitions.column_changes(asset.spec.metadata, Where(asset=asset.owner, table=str(asset.table)))


def keys_of(asset: LocatedAsset, heads: Mapping[Key, LedgerEntry], storage: Any) -> Sequence[Key]:
    """The partitions of an asset in order; those of the ledger, where only an instance knows them."""
    return _keys(asset, heads, storage)[0]


def _keys(asset: LocatedAsset, heads: Mapping[Key, LedgerEntry], storage: Any) -> tuple[Sequence[Key], tuple[str, ...]]:
    definition = asset.partitions_def
    if definition is None or not is_dynamic(definition):
        return asset.partition_keys(), ()
    if storage is None:
        known = sorted((key for key in heads if key is not None), key=lambda key: heads[key].position)
        return known, ("the partitions are dynamic and known to a Dagster instance only: those built are shown",)
    with dg.DagsterInstance.get() as instance:
        return asset.partition_keys(instance), ()


def _related(
    location: CodeLocation, asset: LocatedAsset, heads: Mapping[Key, LedgerEntry]
) -> tuple[dict[Place, LedgerEntry], dict[str, str]]:
    """The heads of an asset and of everything that it was built from, at any depth, and of what nothing is known."""
    related: dict[Place, LedgerEntry] = {}
    unknown: dict[str, str] = {}
    due: list[tuple[str, Mapping[Key, LedgerEntry]]] = [(asset.owner, heads)]
    seen = {asset.owner}
    while due:
        owner, found = due.pop()
        related |= {(owner, key): entry for key, entry in found.items()}
        read = {one.owner for entry in found.values() for one in entry.provenance.inputs}
        for name in sorted(read - seen):
            seen.add(name)
            try:
                due.append((name, _heads_of(location, name)))
            except MarigoldError as error:
                unknown[name] = error.problem
    return related, unknown


def _heads_of(location: CodeLocation, owner: str) -> Mapping[Key, LedgerEntry]:
    if owner not in location.assets:
        raise ConfigurationError("the code location does not have it", remedy="name the code location that has it")
    asset = location.assets[owner]
    asset.refuse_missing_database()
    found = asset.store.heads(asset.table)
    if not found:
        raise ConfigurationError("its ledger is empty", remedy="materialize it")
    return found


def _events(storage: Any, asset: LocatedAsset) -> Events:
    if asset.partitions_def is None:
        return _whole_event(storage, asset.key)
    found = dagster_loading.latest_tags(storage, asset.key, _DATA_VERSION)
    versions: dict[Key, str] = {key: version for key, version in found.items()}  # noqa: C416 - of a wider type
    return Events(materialized=frozenset(storage.get_materialized_partitions(asset.key)), data_versions=versions)


def _whole_event(storage: Any, key: dg.AssetKey) -> Events:
    entry = storage.get_latest_materialization_events([key]).get(key)
    event = None if entry is None else entry.asset_materialization
    if event is None:
        return Events(materialized=frozenset(), data_versions={})
    told = (event.tags or {}).get(_DATA_VERSION)
    return Events(materialized=frozenset([None]), data_versions={} if told is None else {None: told})
