"""What a report about an asset looks at: its ledger, that of everything it was built from, and the event log."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import dagster as dg

from marigold_assets import dagster_loading, partitions, report
from marigold_assets.errors import ConfigurationError, Where
from marigold_assets.location import CodeLocation, LocatedAsset, LocationOptions, is_dynamic
from marigold_assets.lock import equivalent
from marigold_assets.lock_file import Lock
from marigold_assets.mixtures import Changes
from marigold_assets.model import LedgerEntry
from marigold_assets.surveying.agreement import Events, Key
from marigold_assets.surveying.evidence import Evidence, is_mixed
from marigold_assets.surveying.ledgers import Ledgers
from marigold_assets.surveying.lock_place import lock_path

_DATA_VERSION = "dagster/data_version"
_NO_HOME = "DAGSTER_HOME is not set, so there is no event log to compare with"


def instance_home() -> Path | None:
    """The folder of the Dagster instance that DAGSTER_HOME names; ``None`` if it names none.

    Raises:
        ConfigurationError: DAGSTER_HOME is no folder.
    """
    home = os.environ.get("DAGSTER_HOME")
    if not home:
        return None
    if not Path(home).is_absolute() or not _is_folder(home):
        what = "no folder" if Path(home).is_absolute() else "no absolute path"
        raise ConfigurationError(
            f"DAGSTER_HOME is {home!r}, which is {what}",
            remedy="set it to the folder of the Dagster instance; reports and plans can do without one, if it is unset",
        )
    return Path(home)


def _is_folder(path: str) -> bool:
    return os.path.isdir(path)  # noqa: PTH112 - pathlib's own raises where it is not allowed to look


def event_log() -> Any:
    """The event log of the instance that DAGSTER_HOME names; ``None`` if it names none, or nothing was logged there.

    Raises:
        ConfigurationError: DAGSTER_HOME is no folder.
    """
    home = instance_home()
    return None if home is None else dagster_loading.event_storage(home)


def gather(location: CodeLocation, asset: LocatedAsset, options: LocationOptions | None = None) -> Evidence:
    """Look at everything that a report tells.

    Args:
        location: The code location.
        asset: The asset of it.
        options: What names the code location to this command, for what it proposes and for where the lock file is.

    Raises:
        ConfigurationError: The asset is stored by something else, or DAGSTER_HOME is no folder.
        StoreUnavailableError: There is no database.
        StoreBusyError: Another process holds it.
    """
    home = instance_home()
    storage = None if home is None else dagster_loading.event_storage(home)
    asset.refuse_missing_database()
    ledgers = Ledgers(location)
    heads = ledgers.of(asset).heads
    keys, notes = _keys(asset, heads, storage)
    found = gather_ledger(ledgers, asset, keys, options)
    return replace(
        found,
        events=None if home is None else _events(storage, asset, heads),
        no_events=_NO_HOME if home is None else None,
        home=None if home is None else str(home),
        notes=(*notes, *found.notes),
    )


def gather_ledger(
    ledgers: Ledgers, asset: LocatedAsset, keys: Sequence[Key], options: LocationOptions | None = None
) -> Evidence:
    """Look at what the ledgers alone tell: all that a plan needs.

    Args:
        ledgers: The ledgers of the code location.
        asset: The asset of it.
        keys: Its partitions, in order.
        options: As for :func:`gather`.

    Raises:
        ConfigurationError: The asset is stored by something else.
        StoreBusyError: Another process holds the database.
    """
    named = LocationOptions() if options is None else options
    looked, related = ledgers.of(asset), ledgers.related_to(asset)
    heads = looked.heads
    differs = any(not asset.code.has_built(entry) for entry in heads.values())
    is_of_several = is_mixed(list(heads), heads)
    same_code, unreadable = _same_code(asset, heads, named)
    return Evidence(
        owner=asset.owner,
        table=asset.table,
        keys=keys,
        heads=heads,
        history=ledgers.history_of(asset) if is_of_several else (),
        related=related.heads,
        unknown=related.unknown,
        reads=any(one.asset_key != asset.key for one in asset.spec.deps),
        acceptances=asset.store.acceptances(asset.table) if differs or is_of_several else (),
        present=asset.code,
        changes=changes_of(asset),
        impure=partitions.impure_columns(asset.spec.metadata, Where(asset=asset.owner)),
        events=None,
        stored_rows=looked.stored_rows,
        renamed=related.renamed,
        same_code=same_code,
        notes=(*looked.notes, *unreadable),
        options=named.arguments(),
    )


def changes_of(asset: LocatedAsset) -> Changes:
    """What the author of an asset declares of code versions.

    Raises:
        ConfigurationError: It makes no sense.
    """
    return partitions.column_changes(asset.spec.metadata, Where(asset=asset.owner, table=str(asset.table)))


def _keys(asset: LocatedAsset, heads: Mapping[Key, LedgerEntry], storage: Any) -> tuple[Sequence[Key], tuple[str, ...]]:
    definition = asset.partitions_def
    if definition is None or not is_dynamic(definition):
        return asset.partition_keys(), ()
    if storage is None:
        known = sorted((key for key in heads if key is not None), key=lambda key: heads[key].position)
        return known, ("the partitions are dynamic and known to a Dagster instance only: those built are shown",)
    with dg.DagsterInstance.get() as instance:
        return asset.partition_keys(instance), ()


def _same_code(
    asset: LocatedAsset, heads: Mapping[Key, LedgerEntry], options: LocationOptions
) -> tuple[frozenset[str], tuple[str, ...]]:
    """Which recorded fingerprints the lock file says make the same as the present code, and a note if it cannot."""
    present = asset.code_fingerprint
    recorded = {entry.provenance.code_fingerprint for entry in heads.values()} - {None, present}
    if present is None or not recorded or not (path := lock_path(options)).is_file():
        return frozenset(), ()
    try:
        known = Lock.load(path)
    except ConfigurationError as error:
        return frozenset(), (f"{path.name} is not looked at: {error.problem}",)
    same = {one for one in recorded if one and equivalent(known, asset.owner, one, present, with_accepted=True)}
    return frozenset(same), ()


def _events(storage: Any, asset: LocatedAsset, heads: Mapping[Key, LedgerEntry]) -> Events:
    if storage is None:
        return Events(materialized=frozenset(), data_versions={})
    if asset.partitions_def is None:
        return _whole_event(storage, asset.key)
    found = dagster_loading.latest_tags(storage, asset.key, _DATA_VERSION)
    versions: dict[Key, str] = {key: version for key, version in found.items()}  # noqa: C416 - of a wider type
    # Of other content, another swap is a matter of course.
    runs = {
        key: entry.run_id
        for key, entry in heads.items()
        if key is not None and found.get(key, entry.content_hash) == entry.content_hash
    }
    swaps: dict[Key, str] = dict(dagster_loading.told_by_others(storage, asset.key, runs, report.SWAP_ID).items())
    return Events(
        materialized=frozenset(storage.get_materialized_partitions(asset.key)),
        data_versions=versions,
        swap_ids=swaps,
    )


def _whole_event(storage: Any, key: dg.AssetKey) -> Events:
    entry = storage.get_latest_materialization_events([key]).get(key)
    event = None if entry is None else entry.asset_materialization
    if event is None:
        return Events(materialized=frozenset(), data_versions={})
    tags = event.tags or {}
    swap_id = tags.get(report.SWAP_ID) or getattr(event.metadata.get(report.SWAP_ID), "text", None)
    return Events(
        materialized=frozenset([None]),
        data_versions={None: tags[_DATA_VERSION]} if _DATA_VERSION in tags else {},
        swap_ids={} if swap_id is None else {None: swap_id},
    )
