"""Which partitions of an asset are expected: those whose interval has ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import dagster as dg


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """The partitions of intervals that have ended.

    Attributes:
        time: The partitions in time.
        intervals: The intervals, the oldest first.
        lines: For every line of partitions that follow each other in time, the partition of each interval.
        known: All partitions of the definition, also of intervals that have not ended.
    """

    time: dg.TimeWindowPartitionsDefinition
    intervals: Sequence[str]
    lines: Sequence[Sequence[str]]
    known: Sequence[str]

    def ended(self, interval: str) -> datetime:
        """When an interval has ended (aware)."""
        return self.time.time_window_for_partition_key(interval).end


def time_of(definition: dg.PartitionsDefinition[Any] | None) -> dg.TimeWindowPartitionsDefinition | None:
    """Partitions in time, or the one dimension that is; ``None`` of others."""
    if isinstance(definition, dg.TimeWindowPartitionsDefinition):
        return definition
    if not isinstance(definition, dg.MultiPartitionsDefinition):
        return None
    dimensions = [one.partitions_def for one in definition.partitions_defs]
    times = [one for one in dimensions if isinstance(one, dg.TimeWindowPartitionsDefinition)]
    return times[0] if len(times) == 1 else None


def expected_by(
    definition: dg.PartitionsDefinition[Any], by: datetime, instance: dg.DagsterInstance | None = None
) -> Expected | None:
    """The partitions whose interval has ended by some time; ``None`` where they have none.

    Args:
        definition: The partitions.
        by: The time (aware).
        instance: Where dynamic keys are.
    """
    time = time_of(definition)
    if time is None:
        return None
    intervals = [str(key) for key in time.get_partition_keys(current_time=by)]
    # Definitions with an end_offset have partitions before their interval has ended.
    while intervals and time.time_window_for_partition_key(intervals[-1]).end > by:
        intervals.pop()
    known = [str(key) for key in definition.get_partition_keys(dynamic_partitions_store=instance)]
    if not isinstance(definition, dg.MultiPartitionsDefinition):
        return Expected(time=time, intervals=intervals, lines=[intervals], known=known)
    [own] = [one for one in definition.partitions_defs if one.partitions_def is time]
    [other] = [one for one in definition.partitions_defs if one is not own]
    values = other.partitions_def.get_partition_keys(dynamic_partitions_store=instance)
    lines = [
        [str(dg.MultiPartitionKey({own.name: interval, other.name: value})) for interval in intervals]
        for value in values
    ]
    return Expected(time=time, intervals=intervals, lines=lines, known=known)
