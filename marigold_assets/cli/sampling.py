"""Which partitions a command tries: options, and what they mean for an asset."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dagster as dg

from marigold_assets.cli.gathering import event_log
from marigold_assets.errors import ConfigurationError
from marigold_assets.location import CodeLocation, LocatedAsset, is_dynamic
from marigold_assets.model import LedgerEntry
from marigold_assets.proof import Candidate, Chosen, sample
from marigold_assets.windows import Windows

_SEPARATOR = "..."


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which partitions.

    Attributes:
        size: How many, at most; ``None``: all.
        seed: Of those chosen at random.
        within: A range, ``A...B``; all by default.
    """

    size: int | None
    seed: int
    within: str | None = None

    @classmethod
    def of(cls, *, size: int, everything: bool, seed: int | None, within: str | None) -> Wanted:
        """What the options of a command ask for."""
        return cls(
            size=None if everything else size,
            seed=secrets.randbelow(1_000_000) if seed is None else seed,
            within=within,
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


def choose(asset: LocatedAsset, wanted: Wanted, instance: Any) -> Sampled:
    """Choose partitions of an asset: among those that were built, unless all of a range are wanted.

    Raises:
        ConfigurationError: There is none, or no such range.
        StoreUnavailableError: There is no database.
    """
    if asset.partitions_def is None:
        raise ConfigurationError("the asset has no partitions", remedy="name one that has", asset=asset.owner)
    asset.refuse_missing_database()
    heads = asset.store.heads(asset.table)
    keys = _within(asset, [str(key) for key in asset.partition_keys(instance)], wanted.within)
    built = [key for key in keys if key in heads]
    if not built:
        where = "" if wanted.within is None else f" of {wanted.within}"
        raise ConfigurationError(
            f"no partition{where} was ever built, so there is nothing to compute again",
            remedy="materialize some first",
            asset=asset.owner,
        )
    if wanted.size is None:
        every = keys if wanted.within is not None else built
        return Sampled(chosen=tuple(Chosen(key=key, why="all") for key in every), among=len(every))
    definition = asset.partitions_def
    timezone = definition.timezone if isinstance(definition, dg.TimeWindowPartitionsDefinition) else "UTC"
    candidates = _candidates(asset, keys, built, heads)
    return Sampled(chosen=sample(candidates, size=wanted.size, seed=wanted.seed, timezone=timezone), among=len(built))


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
    first, separator, last = within.partition(_SEPARATOR)
    ends = [first, last if separator else first]
    for end in ends:
        if end not in keys:
            raise ConfigurationError(
                f"the asset has no partition {end!r}",
                remedy=f"give a range of its partitions, such as {keys[0]}{_SEPARATOR}{keys[-1]}"
                if keys
                else "give a range of its partitions",
                asset=asset.owner,
            )
    start, end_ = (keys.index(one) for one in ends)
    if start > end_:
        raise ConfigurationError(f"the range {within} ends before it begins", remedy="turn it round", asset=asset.owner)
    return keys[start : end_ + 1]


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
