"""Which code built which partition, and what no longer is what it was built from: pure reports over ledger heads.

A partition is *stale* if an input of it was restated after it was read, or is stale itself: at any depth, also along a
chain. Whether present code would build it otherwise is for whoever knows that code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby

from marigold_assets.lineage import is_restated
from marigold_assets.model import Definition, LedgerEntry, Place

DefinitionOf = Callable[[LedgerEntry], Definition]
"""Tells under which definition a partition was built."""

Heads = Mapping[Place, LedgerEntry]
"""The newest ledger entry of every partition of every asset that a report may have to look at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Partitions that follow each other and were built under one definition.

    Attributes:
        definition: The definition; ``None`` of partitions that were never swapped.
        keys: The partitions, in order.
        row_count: Their rows together.
        first_write: When the first of them was swapped (aware, UTC).
        last_write: When the last of them was.
        run_ids: Who swapped them, in order.
    """

    definition: Definition | None
    keys: tuple[str | None, ...]
    row_count: int = 0
    first_write: datetime | None = None
    last_write: datetime | None = None
    run_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Stale:
    """A partition that was built from what has changed since.

    Attributes:
        partition_key: The partition.
        because: The input partition that was restated, or is stale itself.
        depth: 1 where the partition itself has read what was restated, 2 where one of its inputs has, and so on.
        origin: The partition that was restated in the first place.
    """

    partition_key: str | None
    because: Place
    depth: int
    origin: Place


def stretches(
    keys: Sequence[str | None], heads: Mapping[str | None, LedgerEntry], definition_of: DefinitionOf = Definition.of
) -> tuple[Stretch, ...]:
    """The partitions of a table, in stretches of one definition.

    Args:
        keys: The partitions in the order of their definition.
        heads: Their newest ledger entries.
        definition_of: Tells definitions apart.
    """

    def definition(key: str | None) -> Definition | None:
        entry = heads.get(key)
        return None if entry is None else definition_of(entry)

    return tuple(_stretch(found, list(own), heads) for found, own in groupby(keys, key=definition))


def definitions(
    heads: Mapping[str | None, LedgerEntry], definition_of: DefinitionOf = Definition.of
) -> tuple[Definition, ...]:
    """Under which definitions the partitions of a table were built, the one of the newest entry first."""
    newest = sorted(heads.values(), key=lambda entry: entry.position, reverse=True)
    return tuple(dict.fromkeys(map(definition_of, newest)))


def _stretch(
    definition: Definition | None, keys: Sequence[str | None], heads: Mapping[str | None, LedgerEntry]
) -> Stretch:
    if definition is None:
        return Stretch(definition=None, keys=tuple(keys))
    entries = [heads[key] for key in keys]
    return Stretch(
        definition=definition,
        keys=tuple(keys),
        row_count=sum(entry.row_count for entry in entries),
        first_write=min(entry.committed_at for entry in entries),
        last_write=max(entry.committed_at for entry in entries),
        run_ids=tuple(dict.fromkeys(entry.run_id for entry in sorted(entries, key=lambda entry: entry.position))),
    )


def stale(places: Iterable[Place], heads: Heads) -> dict[Place, Stale]:
    """Which of some partitions are stale, at any depth.

    Each partition is looked at once, however many depend on it; nothing is recursive, since chains are long.

    Args:
        places: The partitions.
        heads: The heads of them, and of everything that they were built from as far as it is known.
    """
    wanted = list(places)
    known: dict[Place, Stale | None] = {}
    begun: set[Place] = set()
    due = wanted[::-1]
    while due:
        place = due[-1]
        entry = heads.get(place)
        reads = [] if entry is None else [(read.owner, read.partition_key) for read in entry.provenance.inputs]
        first = [read for read in reads if read in heads and read not in begun]
        if place not in begun and first:
            begun.add(place)
            due += first
            continue
        begun.add(place)
        due.pop()
        if place not in known:
            known[place] = None if entry is None else _judge(place, entry, heads, known)
    return {place: found for place in wanted if (found := known[place]) is not None}


def _judge(place: Place, entry: LedgerEntry, heads: Heads, known: Mapping[Place, Stale | None]) -> Stale | None:
    inherited: Stale | None = None
    for read in entry.provenance.inputs:
        source = (read.owner, read.partition_key)
        head = heads.get(source)
        if head is not None and is_restated(read.content_hash, head.content_hash):
            return Stale(partition_key=place[1], because=source, depth=1, origin=source)
        of_source = known.get(source)
        if of_source is not None and (inherited is None or of_source.depth + 1 < inherited.depth):
            inherited = Stale(
                partition_key=place[1], because=source, depth=of_source.depth + 1, origin=of_source.origin
            )
    return inherited
