"""Why each partition is in a plan, or is not, with the state of everything that it reads; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from marigold_assets.errors import ConfigurationError
from marigold_assets.planning.model import AssetPlan, BackfillPlan, Key, PlannedKey, SkippedKey
from marigold_assets.planning.states import AssetState

FORMAT = 1
_MOST_INPUTS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadInput:
    """What a partition reads of one asset.

    Attributes:
        owner: That asset.
        keys: Its partitions that are read, those that do not exist included; no more than some, in order.
        count: How many there are.
        is_required: Whether the partition cannot be built without all of them.
        planned: How many the plan builds.
        built: How many exist and are not built again.
        missing: Those that neither exist nor are built, no more than some.
        is_external: Whether nothing here builds it, so that nobody knows what exists.
    """

    owner: str
    keys: tuple[Key, ...]
    count: int
    is_required: bool
    planned: int
    built: int
    missing: tuple[Key, ...]
    is_external: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedAsset:
    """Why partitions of an asset are in a plan, or are not.

    Attributes:
        owner: The asset.
        order: All of its partitions, in order.
        found: Those that were asked for, in that order.
        inputs: What each reads, where somebody asks for it.
    """

    owner: str
    order: Sequence[Key]
    found: tuple[PlannedKey | SkippedKey, ...]
    inputs: Mapping[Key, tuple[ReadInput, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """An explanation of a plan.

    Attributes:
        plan: The plan.
        assets: Its assets.
    """

    plan: BackfillPlan
    assets: tuple[ExplainedAsset, ...]

    def to_json(self) -> dict[str, Any]:
        """The same for programs."""
        return {
            "format": FORMAT,
            "selection": self.plan.request.selection,
            "positions": dict(self.plan.positions),
            "assets": [
                {
                    "asset": asset.owner,
                    "partitions": [
                        {
                            "partition": one.key,
                            "planned": isinstance(one, PlannedKey),
                            "reason": one.reason.value,
                            "because": one.because,
                        }
                        | ({"inputs": [_input(read) for read in asset.inputs[one.key]]} if asset.inputs else {})
                        for one in asset.found
                    ],
                }
                for asset in self.assets
            ],
        }


def _input(read: ReadInput) -> dict[str, Any]:
    return {
        "asset": read.owner,
        "partitions": list(read.keys),
        "count": read.count,
        "required": read.is_required,
        "planned": read.planned,
        "built": read.built,
        "external": read.is_external,
        "missing": list(read.missing),
    }


def explained(plan: BackfillPlan, states: Sequence[AssetState], partition: str | None = None) -> Explained:
    """Explain a plan.

    Args:
        plan: The plan.
        states: What it was made from.
        partition: The only partition that is wanted, with all that it reads; ``None``: all, without.

    Raises:
        ConfigurationError: No asset of the plan has that partition, or nobody asks for it.
    """
    known = {one.owner: one for one in states}
    planned = {one.owner: frozenset(key.key for key in one.keys) for one in plan.assets}
    assets = []
    for asset in plan.assets:
        order = known[asset.owner].keys
        found = _in_order(asset, order)
        if partition is None:
            assets.append(ExplainedAsset(owner=asset.owner, order=order, found=found))
            continue
        own = tuple(one for one in found if one.key == partition or one.key is None)
        inputs = {one.key: _inputs_of(known[asset.owner], one.key, known, planned) for one in own}
        assets.append(ExplainedAsset(owner=asset.owner, order=order, found=own, inputs=inputs))
    if partition is not None and not any(one.key == partition for asset in assets for one in asset.found):
        raise _not_asked_for(plan, known, partition)
    return Explained(plan=plan, assets=tuple(one for one in assets if one.found))


def _in_order(asset: AssetPlan, order: Sequence[Key]) -> tuple[PlannedKey | SkippedKey, ...]:
    places = {key: place for place, key in enumerate(order)}
    return tuple(sorted([*asset.keys, *asset.skipped], key=lambda one: places.get(one.key, len(places))))


def _inputs_of(
    state: AssetState, key: Key, known: Mapping[str, AssetState], planned: Mapping[str, frozenset[Key]]
) -> tuple[ReadInput, ...]:
    found = [
        _read(owner, reads.inputs_of(key), known, planned, is_required=reads.is_required)
        for owner, reads in state.reads.items()
    ]
    return *found, *map(_read_elsewhere, state.elsewhere)


def _read_elsewhere(owner: str) -> ReadInput:
    """What is read of an asset whose partitions are not known either."""
    return ReadInput(
        owner=owner, keys=(None,), count=1, is_required=False, planned=0, built=0, missing=(), is_external=True
    )


def _read(
    owner: str,
    keys: Any,
    known: Mapping[str, AssetState],
    planned: Mapping[str, frozenset[Key]],
    *,
    is_required: bool,
) -> ReadInput:
    wanted = tuple(keys)
    built = known[owner].built if owner in known else frozenset(wanted)
    made = planned.get(owner, frozenset())
    missing = tuple(key for key in wanted if key not in built and key not in made)
    return ReadInput(
        owner=owner,
        keys=wanted[:_MOST_INPUTS],
        count=len(wanted),
        is_required=is_required,
        planned=sum(key in made for key in wanted),
        built=sum(key in built and key not in made for key in wanted),
        missing=missing[:_MOST_INPUTS],
        is_external=owner in known and known[owner].is_external,
    )


def _not_asked_for(plan: BackfillPlan, known: Mapping[str, AssetState], partition: str) -> ConfigurationError:
    owners = [one.owner for one in plan.assets]
    if any(partition in known[owner].keys for owner in owners):
        return ConfigurationError(
            f"partition {partition!r} is not asked for", remedy="widen the range: --from and --to"
        )
    first = next((known[owner] for owner in owners if known[owner].keys != (None,)), None)
    extent = (
        "its assets have no partitions" if first is None else f"{first.owner} has {first.keys[0]} to {first.keys[-1]}"
    )
    return ConfigurationError(
        f"no asset of the selection has a partition {partition!r}", remedy=f"correct it: {extent}"
    )
