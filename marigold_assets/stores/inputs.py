"""What slices hold that rows are computed from: by the ledger, or by their rows where another tool has written them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from marigold_assets.model import Column, InputPartition, PartitionSlice
from marigold_assets.stores import ledger
from marigold_assets.stores.measure import measure
from marigold_assets.stores.predicate import predicate, zone_of
from marigold_assets.stores.session import Session


def found(session: Session, slices: Sequence[PartitionSlice], *, has_ledger: bool = True) -> tuple[InputPartition, ...]:
    """Look slices of any tables up, all with one query (see :meth:`PartitionStore.inputs`).

    Within a transaction: no look-up fails, which would abort it.
    """
    by_table: dict[str, list[PartitionSlice]] = {}
    for slice_ in dict.fromkeys(slices):
        by_table.setdefault(slice_.table.key, []).append(slice_)
    keys = {own[0].table: [slice_.partition_key for slice_ in own] for own in by_table.values()}
    known = ledger.content_hashes(session.fenced, keys) if has_ledger and keys else {}
    hashes = {slice_: known[_place(slice_)] for slice_ in slices if _place(slice_) in known}
    for own in by_table.values():
        unknown = [slice_ for slice_ in own if slice_ not in hashes]
        columns = session.table_columns(own[0].table) if unknown else None
        if columns is not None:
            hashes |= _of_rows(session, unknown, columns)
    return nothing(slices, hashes)


def _place(slice_: PartitionSlice) -> tuple[str, str | None]:
    return slice_.table.key, slice_.partition_key


def nothing(
    slices: Sequence[PartitionSlice], hashes: Mapping[PartitionSlice, str] | None = None
) -> tuple[InputPartition, ...]:
    """Slices of which nothing is known but these hashes."""
    return tuple(
        InputPartition(owner=s.owner, partition_key=s.partition_key, content_hash=(hashes or {}).get(s)) for s in slices
    )


def _of_rows(
    session: Session, slices: Sequence[PartitionSlice], columns: Sequence[Column]
) -> Mapping[PartitionSlice, str]:
    """The hashes of slices of one table that have rows; slices that are cut alike are measured together."""
    alike: dict[object, list[PartitionSlice]] = {}
    for slice_ in slices:
        cut = tuple((type(c), c.expression) for c in slice_.conditions)
        alike.setdefault((zone_of([slice_]), cut or slice_), []).append(slice_)
    hashes: dict[PartitionSlice, str] = {}
    zone = session.zone
    for own in alike.values():
        session.configure(zone_of(own))
        types = session.expression_types(own, columns)
        measures = measure(session, own, columns, types=types, condition=predicate(own, types))
        hashes |= {s: m.content_hash(columns) for s, m in zip(own, measures, strict=True) if m.row_count}
    session.configure(zone)
    return hashes
