"""What a report about an asset looks at: its ledger, that of everything it was built from, and the event log."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import dagster as dg

from marigold_assets import dagster_loading, partitions, report
from marigold_assets.errors import ConfigurationError, MarigoldError, Where
from marigold_assets.location import CodeLocation, LocatedAsset, LocationOptions, is_dynamic
from marigold_assets.lock import equivalent
from marigold_assets.lock_file import Lock
from marigold_assets.mixtures import Changes
from marigold_assets.model import LedgerEntry, Place
from marigold_assets.surveying.agreement import Events, Key
from marigold_assets.surveying.lock_place import lock_path
from marigold_assets.surveying.survey import Evidence, is_mixed

_DATA_VERSION = "dagster/data_version"
_TRIES = 3
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
            remedy="set it to the folder of the Dagster instance, or unset it: then the event log is not compared",
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
    named = LocationOptions() if options is None else options
    heads, stored_rows, moved = _heads_and_rows(asset)
    keys, notes = _keys(asset, heads, storage)
    related = _Related(location, asset, heads)
    differs = any(not asset.code.has_built(entry) for entry in heads.values())
    is_of_several = is_mixed(list(heads), heads)
    same_code, unreadable = _same_code(asset, heads, named)
    return Evidence(
        owner=asset.owner,
        table=asset.table,
        keys=keys,
        heads=heads,
        history=asset.store.ledger(asset.table) if is_of_several else (),
        related=related.heads,
        unknown=related.unknown,
        reads=any(one.asset_key != asset.key for one in asset.spec.deps),
        acceptances=asset.store.acceptances(asset.table) if differs or is_of_several else (),
        present=asset.code,
        changes=changes_of(asset),
        impure=partitions.impure_columns(asset.spec.metadata, Where(asset=asset.owner)),
        events=None if home is None else _events(storage, asset, heads),
        no_events=_NO_HOME if home is None else None,
        home=None if home is None else str(home),
        stored_rows=stored_rows,
        renamed=related.renamed,
        same_code=same_code,
        notes=(*notes, *moved, *unreadable),
        options=named.arguments(),
        arguments=asset.arguments,
        takes_ranges=asset.takes_ranges,
    )


def changes_of(asset: LocatedAsset) -> Changes:
    """What the author of an asset declares of code versions.

    Raises:
        ConfigurationError: It makes no sense.
    """
    return partitions.column_changes(asset.spec.metadata, Where(asset=asset.owner, table=str(asset.table)))


def _heads_and_rows(asset: LocatedAsset) -> tuple[Mapping[Key, LedgerEntry], int | None, tuple[str, ...]]:
    """The newest ledger entries of a table, its rows at the same time, and a note if it is written time and again."""
    tries = 0
    while True:
        tries += 1
        heads, rows = asset.store.heads(asset.table), asset.store.row_count(asset.table)
        newest = asset.store.newest(asset.table)
        if (newest and newest.position) == max((entry.position for entry in heads.values()), default=None):
            return heads, rows, ()
        if tries == _TRIES:
            return heads, rows, (f"the table was written while it was counted, {_TRIES} times: look again later",)


def _keys(asset: LocatedAsset, heads: Mapping[Key, LedgerEntry], storage: Any) -> tuple[Sequence[Key], tuple[str, ...]]:
    definition = asset.partitions_def
    if definition is None or not is_dynamic(definition):
        return asset.partition_keys(), ()
    if storage is None:
        known = sorted((key for key in heads if key is not None), key=lambda key: heads[key].position)
        return known, ("the partitions are dynamic and known to a Dagster instance only: those built are shown",)
    with dg.DagsterInstance.get() as instance:
        return asset.partition_keys(instance), ()


class _Related:
    """The heads of an asset and of everything that it was built from, at any depth.

    Attributes:
        heads: The heads, under every key that the ledger has of their asset.
        unknown: Owners of inputs of which nothing is known, with the reason.
        renamed: Former keys of assets, with what they are called now.
    """

    def __init__(self, location: CodeLocation, asset: LocatedAsset, heads: Mapping[Key, LedgerEntry]) -> None:
        self._location, self._asset = location, asset
        self._former = _former_keys(location)
        self.heads: dict[Place, LedgerEntry] = {}
        self.unknown: dict[str, str] = {}
        self.renamed: dict[str, str] = {}
        due: list[tuple[str, Mapping[Key, LedgerEntry]]] = [(asset.owner, heads)]
        seen = {asset.owner}
        while due:
            owner, found = due.pop()
            self.heads |= {(owner, key): entry for key, entry in found.items()}
            read = {one.owner for entry in found.values() for one in entry.provenance.inputs}
            for name in sorted(read - seen):
                seen.add(name)
                try:
                    due.append((name, self._heads_of(name)))
                except MarigoldError as error:
                    self.unknown[name] = error.problem

    def _heads_of(self, owner: str) -> Mapping[Key, LedgerEntry]:
        """The heads of an asset, by its present key, by a former one, or by what the ledger alone has of it."""
        now = self._former.get(owner, owner) if owner not in self._location.assets else owner
        if now in self._location.assets:
            asset = self._location.assets[now]
            try:
                asset.refuse_missing_database()
                if found := asset.store.heads(asset.table):
                    self.renamed |= {} if now == owner else {owner: now}
                    return found
                problem = "its ledger is empty"
            except MarigoldError as error:
                problem = error.problem
        else:
            problem = "the code location does not have it"
        table = self._asset.store.table_of(owner)
        if table is None:
            raise ConfigurationError(problem, remedy="materialize it, or name the code location that has it")
        return self._asset.store.heads(table)


def _former_keys(location: CodeLocation) -> dict[str, str]:
    """By former key of an asset, what it is called now; of those that several assets claim, nothing."""
    found: dict[str, list[str]] = {}
    for owner, asset in location.assets.items():
        if partitions.RENAMED_FROM in asset.spec.metadata:
            with suppress(MarigoldError):  # or a mistake in any asset would be one in all reports
                for former in partitions.swap_options(asset.spec.metadata, Where(asset=owner)).renamed_from:
                    found.setdefault(former, []).append(owner)
    return {former: owners[0] for former, owners in found.items() if len(owners) == 1}


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
