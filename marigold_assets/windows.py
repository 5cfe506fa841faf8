"""The windows of time of a run's partitions, found in one go: Dagster would look for each of them anew."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dagster as dg

from marigold_assets import dagster_internals


class Windows:
    """Windows of partitions that follow each other.

    Attributes:
        timezone: The zone of the definition.

    Args:
        definition: Their definition.
        keys: The partitions, as Dagster lists those of a range.
    """

    def __init__(self, definition: dg.PartitionsDefinition[Any] | None, keys: Sequence[str]) -> None:
        self.definition = definition
        self.timezone = definition.timezone if isinstance(definition, dg.TimeWindowPartitionsDefinition) else "UTC"
        self._keys = keys
        self._windows = _in_order(definition, keys)
        self._positions = {key: number for number, key in enumerate(keys)} if self._windows else {}

    def of(self, key: str) -> dg.TimeWindow | None:
        """The window of a partition; ``None`` where it is not one of these, or none of time."""
        position = self._positions.get(key)
        return None if position is None else self._windows[position]

    def shifted(self, key: str, mapping: dg.PartitionMapping) -> tuple[str, ...] | None:
        """The partitions of the same definition that a mapping in time gives.

        Returns:
            ``None`` where that is for Dagster to say: the mapping is another one, or leads to others than these.
        """
        position = self._positions.get(key)
        if position is None or not isinstance(mapping, dg.TimeWindowPartitionMapping):
            return None
        first, last = position + mapping.start_offset, position + mapping.end_offset
        return tuple(self._keys[first : last + 1]) if 0 <= first <= last < len(self._keys) else None


def _in_order(definition: dg.PartitionsDefinition[Any] | None, keys: Sequence[str]) -> Sequence[dg.TimeWindow]:
    """The windows, if they follow each other without a gap; else none."""
    if not isinstance(definition, dg.TimeWindowPartitionsDefinition) or definition.exclusions or not keys:
        return ()
    first, last = (definition.time_window_for_partition_key(str(key)) for key in (keys[0], keys[-1]))
    found = dagster_internals.windows_from(definition, first.start, len(keys))
    return found if (found[0], found[-1]) == (first, last) else ()
