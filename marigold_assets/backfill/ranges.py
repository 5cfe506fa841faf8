"""Which partitions of each asset a range names that is given by the first and the last partition of one of them."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import dagster as dg

from marigold_assets.backfill.keyed import Keyed
from marigold_assets.errors import ConfigurationError
from marigold_assets.planning.model import Key


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a range asks for.

    Attributes:
        keys: By asset, the partitions, in order.
        notes: By asset, what else people should know of them.
    """

    keys: Mapping[str, Sequence[Key]]
    notes: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _End:
    """An end of a range: a partition, and its interval if it is one."""

    key: str
    owner: str
    keyed: Keyed
    window: dg.TimeWindow | None


def asked_for(assets: Mapping[str, Keyed], first: str | None, last: str | None) -> Asked:
    """Find the partitions of each asset that a range names.

    The ends are partitions of at least one of the assets. Of those that have other partitions in time, those are
    meant that have a part in the same interval: months beside days, and days of an asset that begins later.

    Args:
        assets: The partitions of each asset.
        first: The first partition; ``None``: from the beginning.
        last: The last one; ``None``: to the end.

    Raises:
        ConfigurationError: No asset has such a partition, or the range ends before it begins.
    """
    if first is None and last is None:
        return Asked(keys={owner: keyed.keys for owner, keyed in assets.items()}, notes={})
    parted = {owner: keyed for owner, keyed in assets.items() if keyed.definition is not None}
    if not parted:
        raise ConfigurationError(
            "it has no partitions, and so no range of them",
            remedy="leave out --from and --to",
            asset=next(iter(assets)),
        )
    ends = [None if key is None else _end(parted, key) for key in (first, last)]
    _refuse_reversed(*ends)
    keys: dict[str, Sequence[Key]] = {}
    notes: dict[str, tuple[str, ...]] = {}
    for owner, keyed in assets.items():
        found = _within(keyed, *ends)
        keys[owner] = () if found is None else found
        if found is None:
            notes[owner] = ("left out: the range is one of other partitions than it has",)
        elif not found:
            notes[owner] = ("no partition of it lies in the range",)
    named = {one.owner: one for one in ends if one is not None and one.window is not None}
    for owner, keyed in parted.items():
        if named and keys[owner] and not any(_is_alike(keyed, one.keyed) for one in named.values()):
            read = " and ".join(sorted(named))
            notes[owner] = (f"those that overlap the range, which is in partitions of {read}",)
    return Asked(keys=keys, notes=notes)


def _end(assets: Mapping[str, Keyed], key: str) -> _End:
    found = [one for owner, keyed in assets.items() if (one := _as_end(owner, keyed, key)) is not None]
    if not found:
        raise _no_such(assets, key)
    # One text may name a day and the month that begins with it: the smaller is meant, which touches less.
    return min(found, key=_length)


def _length(one: _End) -> timedelta:
    return timedelta() if one.window is None else one.window.end - one.window.start


def _is_alike(keyed: Keyed, meant: Keyed) -> bool:
    """Whether keys mean the same intervals, of partitions or of one dimension of theirs."""
    return any(one is not None and one.has_keys_alike(meant) for one in (keyed, _time_dimension(keyed)))


def _as_end(owner: str, keyed: Keyed, key: str) -> _End | None:
    if key in keyed.place:
        window = None if keyed.time is None else keyed.window(keyed.place[key])
        return _End(key=key, owner=owner, keyed=keyed, window=window)
    time = _time_dimension(keyed)
    if time is not None and key in time.place:
        return _End(key=key, owner=owner, keyed=time, window=time.window(time.place[key]))
    return None


def _time_dimension(keyed: Keyed) -> Keyed | None:
    """The dimension of time of multi-dimensional partitions, as partitions of its own."""
    definition = keyed.definition
    if not isinstance(definition, dg.MultiPartitionsDefinition) or not definition.has_time_window_dimension:
        return None
    time: Any = definition.time_window_dimension.partitions_def
    return Keyed(time, time.get_partition_keys())


def _refuse_reversed(first: _End | None, last: _End | None) -> None:
    if first is None or last is None:
        return
    if first.window is not None and last.window is not None:
        is_reversed = first.window.start > last.window.start and first.window.end > last.window.end
    elif first.window is None and last.window is None:
        places = last.keyed.place
        is_reversed = first.key in places and places[first.key] > places[last.key]
    else:
        raise ConfigurationError(
            f"a range from {first.key!r} to {last.key!r} is none: one is an interval, and the other is not",
            remedy="give two partitions of one asset",
        )
    if is_reversed:
        raise ConfigurationError(
            f"the range from {first.key!r} to {last.key!r} ends before it begins",
            remedy=f"turn it round: --from {last.key} --to {first.key}; {_extent(last.owner, last.keyed)}",
        )


def _within(keyed: Keyed, first: _End | None, last: _End | None) -> Sequence[Key] | None:
    """The partitions of an asset that lie between two ends; ``None`` where these say nothing of it."""
    if keyed.definition is None:
        return keyed.keys
    given = [one for one in (first, last) if one is not None]
    start = None if first is None or first.window is None else first.window.start
    end = None if last is None or last.window is None else last.window.end
    if all(one.window is not None for one in given):
        if keyed.time is not None:
            return keyed.overlapping(start, end)
        time = _time_dimension(keyed)
        return None if time is None else _of_times(keyed, set(time.overlapping(start, end)))
    if not all(one.key in keyed.place for one in given):
        return None
    if isinstance(keyed.definition, dg.MultiPartitionsDefinition):
        return _of_dimensions(keyed, keyed.definition, first, last)
    low = 0 if first is None else keyed.place[first.key]
    high = len(keyed.keys) if last is None else keyed.place[last.key] + 1
    return keyed.keys[low:high]


def _of_times(keyed: Keyed, times: set[Key]) -> Sequence[Key]:
    definition: Any = keyed.definition
    name = definition.time_window_dimension.name
    split = definition.get_partition_key_from_str
    return [key for key in keyed.keys if split(str(key)).keys_by_dimension[name] in times]


def _of_dimensions(
    keyed: Keyed, definition: dg.MultiPartitionsDefinition, first: _End | None, last: _End | None
) -> Sequence[Key]:
    """The partitions that lie between two in every dimension."""
    split = definition.get_partition_key_from_str
    low = {} if first is None else dict(split(first.key).keys_by_dimension)
    high = {} if last is None else dict(split(last.key).keys_by_dimension)
    between: dict[str, set[str]] = {}
    for one in definition.partitions_defs:
        every = list(dict.fromkeys(str(split(str(key)).keys_by_dimension[one.name]) for key in keyed.keys))
        start = every.index(low[one.name]) if low else 0
        end = every.index(high[one.name]) + 1 if high else len(every)
        if start >= end and first is not None and last is not None:
            raise ConfigurationError(
                f"the range from {first.key!r} to {last.key!r} ends before it begins in dimension {one.name!r}: it has"
                " what lies between its ends in each dimension",
                remedy=f"turn {low[one.name]!r} and {high[one.name]!r} round, or leave out an end",
                asset=first.owner,
            )
        between[one.name] = set(every[start:end])
    found = [(key, split(str(key)).keys_by_dimension) for key in keyed.keys]
    return [key for key, parts in found if all(str(parts[name]) in wanted for name, wanted in between.items())]


def _no_such(assets: Mapping[str, Keyed], key: str) -> ConfigurationError:
    owner, keyed = next(((owner, keyed) for owner, keyed in assets.items() if keyed.keys), next(iter(assets.items())))
    if not keyed.keys:
        return ConfigurationError(
            "it has no partition yet: the interval of its first one has not ended, or nobody has added any",
            remedy="wait, or add one",
            asset=owner,
        )
    why = _why_not(keyed, key)
    near = _near(keyed, key)
    remedy = f"perhaps {near} is meant; {_extent(owner, keyed)}" if near else _extent(owner, keyed)
    return ConfigurationError(f"there is no partition {key!r}{why}", remedy=remedy, asset=owner)


def _extent(owner: str, keyed: Keyed) -> str:
    return f"partitions of {owner} run from {keyed.keys[0]} to {keyed.keys[-1]}"


def _why_not(keyed: Keyed, key: str) -> str:
    """Why a text that is written like a partition in time is none."""
    definition = keyed.time
    if definition is None:
        return ""
    try:
        moment = datetime.strptime(key, definition.fmt)  # noqa: DTZ007 - of no zone until it is that of the definition
    except ValueError:
        return ""
    if moment.strftime(definition.fmt) != key:
        return ""
    naive = [one.replace(tzinfo=None) for one in (keyed.window(0).start, keyed.window(len(keyed.keys) - 1).start)]
    if moment < naive[0]:
        return ", which would lie before the first"
    if moment <= naive[1]:
        return ""
    is_over = definition.end is not None and moment.replace(tzinfo=UTC) >= definition.end
    return ", which would lie behind the last" if is_over else ", whose interval has not ended"


def _near(keyed: Keyed, key: str) -> str | None:
    """A partition that a text is meant to name, perhaps."""
    definition = keyed.time
    if definition is None:
        known = [str(one) for one in keyed.keys[:_MOST_COMPARED]]
        return next(iter(difflib.get_close_matches(key, known, n=1)), None)
    numbers = [int(one) for one in re.findall(r"\d+", key)][:5]
    try:
        moment = datetime(*[*numbers, 1, 1][: max(3, len(numbers))])  # type: ignore[arg-type]  # noqa: DTZ001
    except (TypeError, ValueError):
        return None
    written = moment.strftime(definition.fmt)
    return written if written in keyed.place and written != key else None


_MOST_COMPARED = 2_000
