"""What slices hold that rows are computed from: by the ledger, or by their rows where another tool has written them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from marigold_assets.model import InputPartition, PartitionSlice
from marigold_assets.stores import ledger
from marigold_assets.stores.measure import count, measure
from marigold_assets.stores.predicate import predicate, zone_of
from marigold_assets.stores.session import Session
from marigold_assets.stores.watch import Watch

_NONE: Mapping[PartitionSlice, str] = MappingProxyType({})


def found(
    session: Session,
    slices: Sequence[PartitionSlice],
    *,
    has_ledger: bool = True,
    held: Mapping[PartitionSlice, str] = _NONE,
) -> tuple[InputPartition, ...]:
    """Look slices of any tables up, all with one query of the ledger (see :meth:`PartitionStore.inputs`).

    Within a transaction: no look-up fails, which would abort it.

    Args:
        session: In a transaction.
        slices: The slices.
        has_ledger: Whether there is one.
        held: The hashes of slices that need no look.
    """
    by_table: dict[str, list[PartitionSlice]] = {}
    for slice_ in dict.fromkeys(slices):
        if slice_ not in held:
            by_table.setdefault(slice_.table.key, []).append(slice_)
    keys = {own[0].table: [slice_.partition_key for slice_ in own] for own in by_table.values()}
    heads = ledger.head_contents(session.fenced, keys) if has_ledger and keys else {}
    hashes = {slice_: held[slice_] for slice_ in slices if slice_ in held}
    for own in by_table.values():
        hashes |= _of_table(session, own, heads)
    return nothing(slices, hashes)


def found_with_next(
    session: Session, slices: Sequence[PartitionSlice], watch: Watch | None, *, has_ledger: bool = True
) -> tuple[InputPartition, ...]:
    """The same, together with what an opening will be asked for next, which it keeps in mind.

    Args:
        session: In a transaction, for which the memory of the opening is right.
        slices: The slices.
        watch: That memory, if there is one.
        has_ledger: Whether there is one.
    """
    if watch is None:
        return found(session, slices, has_ledger=has_ledger)
    wanted = [*slices, *watch.reads_ahead(slices)]
    known = found(session, wanted, has_ledger=has_ledger, held=watch.held)
    watch.note(dict(zip(wanted, known, strict=True)))
    return known[: len(slices)]


def nothing(
    slices: Sequence[PartitionSlice], hashes: Mapping[PartitionSlice, str] = _NONE
) -> tuple[InputPartition, ...]:
    """Slices of which nothing is known but these hashes."""
    return tuple(
        InputPartition(owner=s.owner, partition_key=s.partition_key, content_hash=hashes.get(s)) for s in slices
    )


def _of_table(
    session: Session, slices: Sequence[PartitionSlice], heads: ledger.HeadContents
) -> Mapping[PartitionSlice, str]:
    """The hashes of slices of one table that have rows, or were stored without any.

    Heads count as long as there are as many rows as they say: rows, or the table, may have gone by hand. Counting is
    cheap beside hashing, which only the rest needs.
    """
    columns = session.table_columns(slices[0].table)
    if columns is None:
        return {}
    hashes: dict[PartitionSlice, str] = {}
    zone = session.zone
    for own in _alike(slices):
        known = {s: heads[s.table.key, s.partition_key] for s in own if (s.table.key, s.partition_key) in heads}
        session.configure(zone_of(own))
        types = session.expression_types(own, columns)
        counts = dict(zip(known, count(session, list(known), types=types), strict=True)) if known else {}
        hashes |= {s: head.content_hash for s, head in known.items() if head.row_count == counts[s]}
        rest = [s for s in own if s not in hashes and counts.get(s) != 0]
        if rest:
            measures = measure(session, rest, columns, types=types, condition=predicate(rest, types))
            hashes |= {s: m.content_hash(columns) for s, m in zip(rest, measures, strict=True) if m.row_count}
    session.configure(zone)
    return hashes


def _alike(slices: Sequence[PartitionSlice]) -> Iterable[list[PartitionSlice]]:
    """Slices of one table that are cut alike, and can be counted and measured together."""
    alike: dict[object, list[PartitionSlice]] = {}
    for slice_ in slices:
        cut = tuple((type(c), c.expression) for c in slice_.conditions)
        alike.setdefault((zone_of([slice_]), cut or slice_), []).append(slice_)
    return alike.values()
