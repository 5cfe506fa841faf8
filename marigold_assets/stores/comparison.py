"""Comparing computed rows with those of a slice, as a swap would store them, and without storing them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import duckdb

from marigold_assets.errors import RowsOutsidePartitionError
from marigold_assets.model import Column, PartitionSlice, fold
from marigold_assets.proof import Computed, Difference
from marigold_assets.stores import alignment, sql
from marigold_assets.stores.base import Query, Rows
from marigold_assets.stores.fitting import Fitting
from marigold_assets.stores.matching import COMPUTED, Matching, Shared
from marigold_assets.stores.measure import measure_all
from marigold_assets.stores.session import Session

_SOURCE = "marigold_rows"


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged:
    """Computed rows in a temporary table.

    Attributes:
        source: Their columns, with types that say nothing where nothing but NULL was computed.
        columns: The same with the types that the table has.
    """

    source: tuple[Column, ...]
    columns: tuple[Column, ...]


def stage(session: Session, slice_: PartitionSlice, rows: Rows) -> Staged:
    """Put computed rows into a temporary table; the session drops it when it tidies up.

    Raises:
        MarigoldError: They have no usable columns, or are SQL that is no query.
    """
    source = Fitting.of(session, slice_, rows, evolve=False).source
    if not isinstance(rows, Query):
        session.register(_SOURCE, rows)
    session.stage("stage", COMPUTED, f"SELECT * FROM {sql.subquery(rows.sql) if isinstance(rows, Query) else _SOURCE}")
    return Staged(source=source, columns=session.described(f"DESCRIBE temp.{COMPUTED}"))


def measured(session: Session, staged: Staged) -> Computed:
    """What was computed, in types of its own."""
    found = measure_all(session, COMPUTED, staged.columns)
    return Computed(
        row_count=found.row_count,
        content_hash=found.content_hash(staged.columns),
        columns=staged.columns,
        column_hashes=found.columns,
    )


def compared(
    session: Session,
    slice_: PartitionSlice,
    staged: Staged,
    *,
    built: Sequence[Column],
    ignored: Collection[str] = (),
) -> Difference:
    """Compare staged rows with those that a slice holds.

    Args:
        session: The session that has staged them.
        slice_: The slice.
        staged: What was staged.
        built: The columns that the table had when the slice was swapped: those that came later hold nothing of it.
        ignored: Names of columns that do not count.

    Raises:
        RowsOutsidePartitionError: Some of the rows would be refused.
        MarigoldError: The partition expression cannot be evaluated.
    """
    left_out, then = {fold(name) for name in ignored}, {fold(column.name) for column in built}
    given = {fold(column.name): column for column in staged.source}
    table = [column for column in session.table_columns(slice_.table) or () if fold(column.name) in then]
    pairs = [(column, given[fold(column.name)]) for column in table if fold(column.name) in given]
    everything = _shared(session, pairs, slice_)
    gone = [c.name for c in table if fold(c.name) not in given]
    if not gone:
        _refuse_outside(session, slice_, everything)
    return Matching(
        session=session,
        slice_=slice_,
        shared=[one for one in everything if fold(one.name) not in left_out],
        gone=[name for name in gone if fold(name) not in left_out],
        added=[c.name for c in staged.source if fold(c.name) not in {fold(column.name) for column in table} | left_out],
    ).difference()


def _shared(session: Session, pairs: Sequence[tuple[Column, Column]], slice_: PartitionSlice) -> list[Shared]:
    """How the columns of both sides are compared: as a swap would cast them, or where it would refuse, as both fit."""
    found = [_as_swapped(stored, computed, slice_) for stored, computed in pairs]
    while found:
        items = ", ".join(one.new for one in found)
        try:
            session.execute("try casts", f"SELECT count(COLUMNS(*)) FROM (SELECT {items} FROM {COMPUTED})")
        except duckdb.InvalidInputException as error:
            lossy = sql.lossy_value(str(error))
            if lossy is None:
                raise
            found = [_as_wider(session, one) if one.computed.name == lossy[0] else one for one in found]
        else:
            break
    return found


def _as_swapped(stored: Column, computed: Column, slice_: PartitionSlice) -> Shared:
    fit = alignment.align([stored], [computed], where=slice_.where, evolve=False)
    if fit.retypings:  # of another kind
        return _cast(stored, computed, "VARCHAR")
    [new] = fit.selection
    return Shared(stored=stored, computed=computed, old=sql.identifier(stored.name), new=new, kind=stored.type)


def _as_wider(session: Session, one: Shared) -> Shared:
    kinds = f"[CAST(NULL AS {one.stored.type}), CAST(NULL AS {one.computed.type})]"
    try:
        [(kind,)] = session.execute("find a type for both", f"SELECT typeof({kinds})")
    except duckdb.Error:
        return _cast(one.stored, one.computed, "VARCHAR")
    return _cast(one.stored, one.computed, str(kind).removesuffix("[]"))


def _cast(stored: Column, computed: Column, kind: str) -> Shared:
    old, new = (
        f"CAST({sql.identifier(c.name)} AS {kind}) AS {sql.identifier(stored.name)}" for c in (stored, computed)
    )
    return Shared(stored=stored, computed=computed, old=old, new=new, kind=kind, is_refused=True)


def _refuse_outside(session: Session, slice_: PartitionSlice, columns: Sequence[Shared]) -> None:
    """Refuse what a swap would refuse.

    Raises:
        RowsOutsidePartitionError: A row lies outside of the slice.
    """
    if not slice_.conditions:
        return
    condition = session.predicate([slice_], [one.stored for one in columns])
    items = ", ".join(one.new for one in columns)
    [(outside, given)] = session.execute(
        "look outside",
        f"SELECT count(*) FILTER (({condition.sql}) IS NOT TRUE), count(*) FROM (SELECT {items} FROM {COMPUTED})",
        condition.parameters,
    )
    if outside:
        raise RowsOutsidePartitionError(
            f"{outside} of {given} rows lie outside the partition",
            remedy="return only rows of the partition asked for",
            **slice_.where,
        )
