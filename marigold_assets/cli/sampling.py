"""Which partitions a command tries: options, and what they mean for an asset."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dagster as dg

from marigold_assets import partitions
from marigold_assets.cli.ranges import BETWEEN, range_ends
from marigold_assets.errors import ConfigurationError, Where
from marigold_assets.location import CodeLocation, LocatedAsset, is_dynamic
from marigold_assets.model import LedgerEntry
from marigold_assets.proof import Candidate, Chosen, sample
from marigold_assets.surveying.gathering import event_log
from marigold_assets.windows import Windows


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which partitions.

    Attributes:
        size: How many, at most; ``None``: all.
        seed: Of those chosen at random.
        within: A range, ``A...B``; all by default.
        keys: The partitions themselves, if they are named.
    """

    size: int | None
    seed: int
    within: str | None = None
    keys: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, *, size: int, everything: bool, seed: int | None, within: str | None, keys: Sequence[str] = ()
    ) -> Wanted:
        """What the options of a command ask for."""
        return cls(
            size=None if everything or keys else size,
            seed=secrets.randbelow(1_000_000) if seed is None else seed,
            within=within,
            keys=tuple(dict.fromkeys(keys)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled:
    """What is tried.

    Attributes:
        chosen: The partitions, in order.
        among: Of how many.
    """

    chosen: tuple[Chosen, ...]
    among: int

    @property
    def keys(self) -> list[str]:
        """Their keys."""
        return [one.key for one in self.chosen]


def partitions_store(location: CodeLocation, asset: LocatedAsset) -> Any:
    """Where the dynamic partitions of an asset and of what it reads are; ``None`` where there are none.

    Raises:
        ConfigurationError: DAGSTER_HOME is no folder.
    """
    keys = {asset.key, *asset.definition.dependency_keys}
    definitions = [one.partitions_def for one in location.assets.values() if one.key in keys]
    return event_log() if any(one is not None and is_dynamic(one) for one in definitions) else None


def choose(
    asset: LocatedAsset, wanted: Wanted, instance: Any, *, preferred: Callable[[LedgerEntry], bool] | None = None
) -> Sampled:
    """Choose partitions of an asset: among those that were built, unless all of a range are wanted.

    Args:
        asset: The asset.
        wanted: What was asked for.
        instance: Where dynamic partitions are.
        preferred: Tells which of them are sampled before all others.

    Raises:
        ConfigurationError: There is none, or no such range.
        StoreUnavailableError: There is no database.
    """
    if asset.partitions_def is None:
        raise ConfigurationError("the asset has no partitions", remedy="name one that has", asset=asset.owner)
    asset.refuse_missing_database()
    heads = asset.store.heads(asset.table)
    every = [str(key) for key in asset.partition_keys(instance)]
    if wanted.keys:
        _refuse_unknown(asset, wanted.keys, every)
        return Sampled(chosen=tuple(Chosen(key=key, why="named") for key in wanted.keys), among=len(wanted.keys))
    keys = _within(asset, every, wanted.within)
    built = [key for key in keys if key in heads]
    if not built:
        _refuse_renamed(asset)
        where = "" if wanted.within is None else f" of {wanted.within}"
        raise ConfigurationError(
            f"no partition{where} was ever built, so there is nothing to compute again",
            remedy="materialize some first",
            asset=asset.owner,
        )
    if wanted.size is None:
        tried = keys if wanted.within is not None else built
        return Sampled(chosen=tuple(Chosen(key=key, why="all") for key in tried), among=len(tried))
    definition = asset.partitions_def
    timezone = definition.timezone if isinstance(definition, dg.TimeWindowPartitionsDefinition) else "UTC"
    first = built if preferred is None else [key for key in built if preferred(heads[key])]
    chosen: list[Chosen] = []
    for some in (first, [key for key in built if key not in set(first)]):
        size = wanted.size - len(chosen)
        chosen += sample(_candidates(asset, keys, some, heads), size=size, seed=wanted.seed, timezone=timezone)
    places = {key: number for number, key in enumerate(built)}
    return Sampled(chosen=tuple(sorted(chosen, key=lambda one: places[one.key])), among=len(built))


def _refuse_renamed(asset: LocatedAsset) -> None:
    """Refuse an asset that has a new table, while what was built lies in that of its former key.

    Raises:
        ConfigurationError: It is one.
    """
    where = Where(asset=asset.owner, table=str(asset.table))
    for name in partitions.swap_options(_own(asset.spec.metadata), where).renamed_from:
        former = dg.AssetKey.from_user_string(name)
        table = partitions.table_of_asset(former, asset.spec.metadata, asset.manager.schema_)
        if table != asset.table and asset.store.newest(table) is not None:
            raise ConfigurationError(
                f"no partition was ever built under this key: those of {name}, as it was called, lie in table {table}",
                remedy=f"prove it under the key {name} before it is renamed, or build it anew",
                **where,
            )


def _own(metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    return {name: metadata[name] for name in (partitions.RENAMED_FROM,) if name in metadata}


def _candidates(
    asset: LocatedAsset, keys: Sequence[str], built: Sequence[str], heads: Mapping[str | None, LedgerEntry]
) -> list[Candidate]:
    windows = Windows(asset.partitions_def, keys)
    found = []
    for key in built:
        window = windows.of(key)
        found.append(
            Candidate(
                key=key,
                row_count=heads[key].row_count,
                start=None if window is None else window.start,
                end=None if window is None else window.end,
            )
        )
    return found


def _within(asset: LocatedAsset, keys: Sequence[str], within: str | None) -> Sequence[str]:
    if within is None:
        return keys
    places = {key: number for number, key in enumerate(keys)}

    def place(key: str) -> int:
        _refuse_unknown(asset, [key], keys)
        return places[key]

    # One partition is a range as well.
    alone = within in places
    ends = None if alone else range_ends(within, places, place, asset=asset.owner)
    first, last = ends or (place(within), place(within))
    return keys[first : last + 1]


def _refuse_unknown(asset: LocatedAsset, given: Sequence[str], keys: Sequence[str]) -> None:
    known = set(keys)
    for one in given:
        if one not in known:
            such = f", such as {keys[0]} or {keys[0]}{BETWEEN}{keys[-1]}" if keys else ""
            raise ConfigurationError(
                f"the asset has no partition {one!r}", remedy=f"give its partitions{such}", asset=asset.owner
            )


def config_of(path: str | None) -> Mapping[str, Any]:
    """Run config from a file of YAML or JSON.

    Raises:
        ConfigurationError: It cannot be read, or holds something else.
    """
    if path is None:
        return {}
    try:
        return dict(dg.config_from_files([path]))
    except (OSError, UnicodeDecodeError, dg.DagsterError) as error:
        raise ConfigurationError(
            f"the config of {path!r} cannot be read: {' '.join(str(error.__cause__ or error).split())}",
            remedy="write it as for 'dagster asset materialize --config': ops: {<asset>: {config: {...}}}",
        ) from None
