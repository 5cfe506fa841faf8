"""What partitions of an asset read, without a run: cheaply where that is simple, and by Dagster's mapping elsewhere."""

from __future__ import annotations

import inspect
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection
from datetime import datetime
from itertools import product
from typing import Any

import dagster as dg

from marigold_assets import dagster_internals
from marigold_assets.backfill.keyed import Keyed
from marigold_assets.inputs import ALLOW_MISSING
from marigold_assets.location import LocatedAsset
from marigold_assets.planning.model import Key
from marigold_assets.planning.states import Reads

_BETWEEN = "|"  # the parts of a key of several dimensions, in the order of their names
_InputsOf = Callable[[Key], Collection[Key]]


def reads_of(
    asset: LocatedAsset,
    upstream: LocatedAsset,
    *,
    ours: Keyed,
    theirs: Keyed,
    as_of: datetime,
    instance: dg.DagsterInstance | None,
) -> Reads:
    """How an asset reads another one, or its own past.

    Args:
        asset: The asset that reads.
        upstream: The asset that is read.
        ours: Its partitions.
        theirs: Those of the asset that is read.
        as_of: When partitions must have ended to count (aware).
        instance: Where dynamic partitions are.
    """
    is_required = _is_required(asset, upstream)
    if theirs.definition is None:
        return Reads(inputs_of=lambda _: (None,), is_required=is_required)
    mapping = asset.definition.infer_partition_mapping(asset.key, upstream.key, theirs.definition)
    is_own = asset.owner == upstream.owner
    is_alike = ours.definition == theirs.definition
    if ours.definition is None or isinstance(mapping, dg.AllPartitionMapping):
        # Whoever reads everything takes what there is: all of it there never is.
        takes_any = upstream.has_ledger and not asset.is_partitioned_asset
        inputs_of = _all_of(mapping, theirs, as_of, instance)
        return Reads(inputs_of=inputs_of, is_required=is_required and not takes_any)
    if is_alike and not is_own and _is_identity(mapping):
        return Reads(inputs_of=lambda key: (key,), is_required=is_required, same_keys=True)
    exactly = _by_dagster(mapping, ours, theirs, as_of, instance, is_own=is_own)
    return Reads(inputs_of=_quickly(mapping, ours, theirs, exactly), is_required=is_required)


def _is_identity(mapping: dg.PartitionMapping) -> bool:
    if isinstance(mapping, dg.TimeWindowPartitionMapping):
        return mapping.start_offset == mapping.end_offset == 0
    return isinstance(mapping, dg.IdentityPartitionMapping)


def _all_of(
    mapping: dg.PartitionMapping, theirs: Keyed, as_of: datetime, instance: dg.DagsterInstance | None
) -> _InputsOf:
    """All partitions; or those that a mapping of an asset without partitions names, as ``LastPartitionMapping``."""
    found: Collection[Key] = theirs.keys
    if theirs.definition is not None and not isinstance(mapping, dg.AllPartitionMapping):
        exist, missing = dagster_internals.mapped_keys(
            mapping, None, None, theirs.definition, as_of=as_of, instance=instance
        )
        found = (*exist, *missing)
    return lambda _: found


def _by_dagster(
    mapping: dg.PartitionMapping,
    ours: Keyed,
    theirs: Keyed,
    as_of: datetime,
    instance: dg.DagsterInstance | None,
    *,
    is_own: bool,
) -> _InputsOf:
    definition, upstream_def = ours.definition, theirs.definition
    if definition is None or upstream_def is None:
        raise TypeError("no partitions")

    def inputs_of(key: Key) -> Collection[Key]:
        found, missing = dagster_internals.mapped_keys(
            mapping, str(key), definition, upstream_def, as_of=as_of, instance=instance
        )
        beyond = _beyond_the_end(mapping, ours, theirs, key)
        return found if is_own else (*found, *missing, *(one for one in beyond if one not in missing))

    return inputs_of


def _beyond_the_end(mapping: dg.PartitionMapping, ours: Keyed, theirs: Keyed, key: Key) -> tuple[str, ...]:
    """What a mapping that looks ahead asks for and that is not there yet: Dagster leaves it out without a word."""
    if (
        not isinstance(mapping, dg.TimeWindowPartitionMapping)
        or mapping.end_offset <= 0
        or mapping.allow_nonexistent_upstream_partitions
        or not ours.has_keys_alike(theirs)
        or key not in theirs.place
    ):
        return ()
    missing = theirs.place[key] + mapping.end_offset + 1 - len(theirs.keys)
    return (f"{missing} after {theirs.keys[-1]}",) if missing > 0 else ()


def _quickly(mapping: dg.PartitionMapping, ours: Keyed, theirs: Keyed, exactly: _InputsOf) -> _InputsOf:
    """The same as a slower function says, by places in order where no edge is near."""
    if isinstance(mapping, dg.MultiPartitionMapping):
        return _by_dimensions(mapping, ours, theirs, exactly)
    if not isinstance(mapping, dg.TimeWindowPartitionMapping):
        return exactly
    if ours.has_keys_alike(theirs):
        start, end = mapping.start_offset, mapping.end_offset

        def shifted(key: Key) -> Collection[Key]:
            place = theirs.place.get(key)
            if place is None or place + start < 0 or place + end >= len(theirs.keys) or start > end:
                return exactly(key)
            return theirs.keys[place + start : place + end + 1]

        return shifted
    return _overlapping(ours, theirs, exactly) if _is_identity(mapping) else exactly


def _by_dimensions(mapping: dg.MultiPartitionMapping, ours: Keyed, theirs: Keyed, exactly: _InputsOf) -> _InputsOf:
    """For partitions of several dimensions, each of which is read as it is, or by a shift in time."""
    definition = ours.definition
    if not isinstance(definition, dg.MultiPartitionsDefinition) or definition != theirs.definition:
        return exactly
    shifts = _shifts(mapping)
    if shifts is None:
        return exactly
    # Dagster's own way from a key to its parts and back would take seconds for thousands of them.
    names = sorted(shifts)
    places: list[dict[str, int]] = [{} for _ in names]
    for key in theirs.keys:
        parts = str(key).split(_BETWEEN)
        if len(parts) != len(names):
            return exactly
        for part, known in zip(parts, places, strict=True):
            known.setdefault(part, len(known))
    axes = [(list(known), known, *shifts[name]) for known, name in zip(places, names, strict=True)]

    def inputs_of(key: Key) -> Collection[Key]:
        chosen = []
        for part, (every, known, start, end) in zip(str(key).split(_BETWEEN), axes, strict=True):
            place = known.get(part)
            if place is None or place + start < 0 or place + end >= len(every) or start > end:
                return exactly(key)
            chosen.append(every[place + start : place + end + 1])
        return list(map(_BETWEEN.join, product(*chosen)))

    return inputs_of


def _shifts(mapping: dg.MultiPartitionMapping) -> dict[str, tuple[int, int]] | None:
    """By how much each dimension is shifted; ``None`` if one is read otherwise."""
    shifts: dict[str, tuple[int, int]] = {}
    for name, found in mapping.downstream_mappings_by_upstream_dimension.items():
        step = found.partition_mapping
        if found.dimension_name == name and isinstance(step, dg.TimeWindowPartitionMapping):
            shifts[name] = (step.start_offset, step.end_offset)
        elif found.dimension_name == name and isinstance(step, dg.IdentityPartitionMapping):
            shifts[name] = (0, 0)
        else:
            return None
    return shifts


def _overlapping(ours: Keyed, theirs: Keyed, exactly: _InputsOf) -> _InputsOf:
    mine, other = ours.windows, theirs.windows
    if mine is None or other is None:
        return exactly
    starts, ends = other

    def inputs_of(key: Key) -> Collection[Key]:
        place = ours.place.get(key)
        if place is None or mine[0][place] < starts[0] or mine[1][place] > ends[-1]:
            return exactly(key)
        return theirs.keys[bisect_right(ends, mine[0][place]) : bisect_left(starts, mine[1][place])]

    return inputs_of


def _is_required(asset: LocatedAsset, upstream: LocatedAsset) -> bool:
    """Whether nothing is to be built without a partition of the input that was never built.

    A mere dependency is nothing to load. An asset of ours refuses what it loads unless it is allowed to be missing. To
    any other the IO manager gives the rows that there are, which are none: rows computed from those would be no error,
    and wrong.
    """
    name = next((name for name, key in asset.definition.keys_by_input_name.items() if key == upstream.key), None)
    given: Any = None if name is None else asset.definition.node_def.input_dict.get(name)
    if name is None or given is None:
        return False
    if bool((given.metadata or {}).get(ALLOW_MISSING, False)):
        return False
    if asset.is_partitioned_asset:
        function = asset.function
        return function is not None and name in inspect.signature(function).parameters
    return not given.dagster_type.is_nothing
