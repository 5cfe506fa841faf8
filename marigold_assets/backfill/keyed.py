"""The partitions of an asset in order, with their places and their windows of time looked up once."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import Any

import dagster as dg

from marigold_assets import dagster_internals
from marigold_assets.planning.model import Key


class Keyed:
    """Partitions of one definition.

    Attributes:
        definition: The definition; ``None``: there are no partitions.
        keys: All of them in order; ``(None,)`` where there are none.

    Args:
        definition: The definition.
        keys: Its keys.
    """

    def __init__(self, definition: dg.PartitionsDefinition[Any] | None, keys: Sequence[Key]) -> None:
        self.definition, self.keys = definition, keys

    @cached_property
    def place(self) -> Mapping[Key, int]:
        """By partition, its place in the order."""
        return {key: place for place, key in enumerate(self.keys)}

    @property
    def time(self) -> dg.TimeWindowPartitionsDefinition | None:
        """The definition, if its partitions are intervals and nothing else."""
        return self.definition if isinstance(self.definition, dg.TimeWindowPartitionsDefinition) else None

    def has_keys_alike(self, other: Keyed) -> bool:
        """Whether a key means the same interval as for other partitions, whenever either begins."""
        mine, theirs = self.time, other.time
        if mine is None or theirs is None or mine.exclusions or theirs.exclusions:
            return False
        return (mine.cron_schedule, mine.timezone, mine.fmt) == (theirs.cron_schedule, theirs.timezone, theirs.fmt)

    def window(self, place: int) -> dg.TimeWindow:
        """The interval of a partition; only of intervals."""
        definition = self.time
        if definition is None:
            raise TypeError("no partitions in time")
        return definition.time_window_for_partition_key(str(self.keys[place]))

    def overlapping(self, start: datetime | None, end: datetime | None) -> Sequence[Key]:
        """The partitions whose intervals have a part in one; only of intervals.

        Args:
            start: Its start; ``None``: it has none.
            end: Its end, which is not within it any more; ``None``: it has none.
        """
        places = range(len(self.keys))
        first = 0 if start is None else bisect_right(places, start, key=lambda place: self.window(place).end)
        last = len(self.keys) if end is None else bisect_left(places, end, key=lambda place: self.window(place).start)
        return self.keys[first:last]

    @cached_property
    def windows(self) -> tuple[Sequence[datetime], Sequence[datetime]] | None:
        """The starts and the ends of all intervals; ``None`` if they do not follow each other without a gap."""
        definition = self.time
        if definition is None or definition.exclusions or not self.keys:
            return None
        first, last = self.window(0), self.window(len(self.keys) - 1)
        found = dagster_internals.windows_from(definition, first.start, len(self.keys))
        if (found[0], found[-1]) != (first, last):
            return None
        return [one.start for one in found], [one.end for one in found]
