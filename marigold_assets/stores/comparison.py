"""Comparing computed rows with those of a slice, as a swap would store them, and without storing them.

Hashes tell whether they differ; only then rows are matched, by the few columns that tell them apart on both sides.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import duckdb

from marigold_assets.errors import RowsOutsidePartitionError
from marigold_assets.model import Column, PartitionSlice, fold
from marigold_assets.proof import ColumnDifference, Computed, Difference, Example
from marigold_assets.stores import alignment, sql
from marigold_assets.stores.base import Query, Rows
from marigold_assets.stores.fitting import Fitting
from marigold_assets.stores.measure import Measure, measure_all
from marigold_assets.stores.session import Session

_SOURCE = "marigold_rows"
_COMPUTED = "marigold_computed"
_OLD = "marigold_old"
_NEW = "marigold_new"
_EXAMPLES = 3
_LONGEST = 80  # characters of a value that is shown
_INTEGERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT")


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
    session.stage("stage", _COMPUTED, f"SELECT * FROM {sql.subquery(rows.sql) if isinstance(rows, Query) else _SOURCE}")
    return Staged(source=source, columns=session.described(f"DESCRIBE temp.{_COMPUTED}"))


def measured(session: Session, staged: Staged) -> Computed:
    """What was computed, in types of its own."""
    found = measure_all(session, _COMPUTED, staged.columns)
    return Computed(
        row_count=found.row_count,
        content_hash=found.content_hash(staged.columns),
        columns=staged.columns,
        column_hashes=found.columns,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shared:
    """A column on both sides.

    Attributes:
        stored: As the table has it.
        computed: As the computed rows have it.
        old: How the stored value is selected for the comparison.
        new: How the computed one is.
        kind: The type of both.
        is_refused: Whether a swap would refuse what was computed.
    """

    stored: Column
    computed: Column
    old: str
    new: str
    kind: str
    is_refused: bool = False

    @property
    def name(self) -> str:
        """The name of both."""
        return self.stored.name

    @property
    def both(self) -> Column:
        """The column that is compared."""
        return Column(name=self.name, type=self.kind)

    @property
    def note(self) -> str | None:
        """What is to be said of its type, if it differs."""
        return f"{self.computed.type} now, {self.stored.type} stored" if self.is_refused else None


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
    return _Comparison(
        session=session,
        slice_=slice_,
        shared=[one for one in everything if fold(one.name) not in left_out],
        gone=[name for name in gone if fold(name) not in left_out],
        added=[c.name for c in staged.source if fold(c.name) not in {fold(column.name) for column in table} | left_out],
    ).difference()


def _shared(
    session: Session, pairs: Sequence[tuple[Column, Column]], slice_: PartitionSlice
) -> list[_Shared]:
    """How the columns of both sides are compared: as a swap would cast them, or where it would refuse, as both fit."""
    found = [_as_swapped(stored, computed, slice_) for stored, computed in pairs]
    while found:
        items = ", ".join(one.new for one in found)
        try:
            session.execute("try casts", f"SELECT count(COLUMNS(*)) FROM (SELECT {items} FROM {_COMPUTED})")
        except duckdb.InvalidInputException as error:
            lossy = sql.lossy_value(str(error))
            if lossy is None:
                raise
            found = [_as_wider(session, one) if one.computed.name == lossy[0] else one for one in found]
        else:
            break
    return found


def _as_swapped(stored: Column, computed: Column, slice_: PartitionSlice) -> _Shared:
    fit = alignment.align([stored], [computed], where=slice_.where, evolve=False)
    if fit.retypings:  # of another kind
        return _cast(stored, computed, "VARCHAR")
    [new] = fit.selection
    return _Shared(stored=stored, computed=computed, old=sql.identifier(stored.name), new=new, kind=stored.type)


def _as_wider(session: Session, one: _Shared) -> _Shared:
    kinds = f"[CAST(NULL AS {one.stored.type}), CAST(NULL AS {one.computed.type})]"
    try:
        [(kind,)] = session.execute("find a type for both", f"SELECT typeof({kinds})")
    except duckdb.Error:
        return _cast(one.stored, one.computed, "VARCHAR")
    return _cast(one.stored, one.computed, str(kind).removesuffix("[]"))


def _cast(stored: Column, computed: Column, kind: str) -> _Shared:
    old, new = (f"CAST({sql.identifier(c.name)} AS {kind}) AS {sql.identifier(stored.name)}" for c in (stored, computed))
    return _Shared(stored=stored, computed=computed, old=old, new=new, kind=kind, is_refused=True)


def _refuse_outside(session: Session, slice_: PartitionSlice, columns: Sequence[_Shared]) -> None:
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
        f"SELECT count(*) FILTER (({condition.sql}) IS NOT TRUE), count(*) FROM (SELECT {items} FROM {_COMPUTED})",
        condition.parameters,
    )
    if outside:
        raise RowsOutsidePartitionError(
            f"{outside} of {given} rows lie outside the partition",
            remedy="return only rows of the partition asked for",
            **slice_.where,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Comparison:
    """Staged rows beside those of a slice.

    Attributes:
        session: The session.
        slice_: The slice.
        shared: The columns of both.
        gone: Names of columns that are stored only.
        added: Names of columns that were computed only.
    """

    session: Session
    slice_: PartitionSlice
    shared: Sequence[_Shared]
    gone: Sequence[str]
    added: Sequence[str]

    def difference(self) -> Difference:
        """How they differ."""
        columns = [one.both for one in self.shared]
        if not columns:
            return self._of_nothing_shared()
        table = self.session.name(self.slice_.table)
        condition = self.session.predicate([self.slice_], self.session.table_columns(self.slice_.table) or ())
        old_items, new_items = (", ".join(items) for items in zip(*((c.old, c.new) for c in self.shared), strict=True))
        old_rows = f"(SELECT {old_items} FROM (FROM {table} WHERE {condition.sql}))"
        new = measure_all(self.session, f"(SELECT {new_items} FROM {_COMPUTED})", columns)
        old = measure_all(self.session, old_rows, columns, parameters=condition.parameters)
        gone = [ColumnDifference(name=name, note="stored, but no longer computed") for name in self.gone]
        refused = [] if not (old.row_count and new.row_count) else [c for c in self.shared if self._is_refused(c, old, new)]
        if old == new:
            found = [ColumnDifference(name=one.name, note=one.note) for one in refused]
            return Difference(
                stored_rows=old.row_count,
                computed_rows=new.row_count,
                columns=(*found, *gone),
                added=tuple(self.added),
            )
        self.session.stage("keep computed rows", _NEW, f"SELECT {new_items} FROM {_COMPUTED}")
        self.session.stage("make room", _OLD, f"SELECT * FROM {_NEW} LIMIT 0")
        self.session.execute("keep stored rows", f"INSERT INTO {_OLD} SELECT * FROM {old_rows}", condition.parameters)
        return self._matched(old, new, {one.name: one.note for one in refused}, gone)

    def _of_nothing_shared(self) -> Difference:
        gone = [ColumnDifference(name=name, note="stored, but no longer computed") for name in self.gone]
        [(new,)] = self.session.execute("count", f"SELECT count(*) FROM {_COMPUTED}")
        return Difference(stored_rows=0, computed_rows=new, columns=tuple(gone), added=tuple(self.added))

    @staticmethod
    def _is_refused(one: _Shared, old: Measure, new: Measure) -> bool:
        has_values = [found.columns[one.name][1] < found.row_count for found in (old, new)]
        return one.is_refused and all(has_values)

    def _matched(
        self, old: Measure, new: Measure, notes: Mapping[str, str | None], gone: Sequence[ColumnDifference]
    ) -> Difference:
        differing = [one for one in self.shared if old.columns[one.name] != new.columns[one.name]]
        is_moved = not differing and not notes
        key = self._key([one for one in self.shared if one not in differing])
        if not key and old.row_count != new.row_count:
            key = self._key(self.shared)
        if key:
            found = self._by_key(key, notes)
            if found is not None:
                columns, matched = found
                return Difference(
                    stored_rows=old.row_count,
                    computed_rows=new.row_count,
                    columns=(*columns, *gone),
                    added=tuple(self.added),
                    is_moved=is_moved,
                    matched_by=tuple(one.name for one in key),
                    differing=matched["differing"],
                    only_stored=old.row_count - matched["matched"],
                    only_computed=new.row_count - matched["matched"],
                    examples=self._examples(key),
                )
        only = {one: f"(FROM {one} EXCEPT ALL FROM {other})" for one, other in ((_OLD, _NEW), (_NEW, _OLD))}
        [(only_old, only_new)] = self.session.execute(
            "count", f"SELECT (SELECT count(*) FROM {only[_OLD]}), (SELECT count(*) FROM {only[_NEW]})"
        )
        columns = tuple(
            ColumnDifference(name=one.name, note=notes.get(one.name))
            for one in self.shared
            if one in differing or one.name in notes
        )
        return Difference(
            stored_rows=old.row_count,
            computed_rows=new.row_count,
            columns=(*columns, *gone) if old.row_count == new.row_count else tuple(gone),
            added=tuple(self.added),
            is_moved=is_moved,
            only_stored=only_old,
            only_computed=only_new,
            examples=(
                *(Example(key={}, stored=row, computed=None) for row in self._rows(only[_OLD], self.shared)),
                *(Example(key={}, stored=None, computed=row) for row in self._rows(only[_NEW], self.shared)),
            ),
        )

    def _key(self, candidates: Sequence[_Shared]) -> list[_Shared]:
        """The first few columns that tell the rows of either side apart, and leave some to differ; or none.

        Numbers with fractions last: they are measured, and not names.
        """
        if not candidates or not self._is_unique(candidates):
            return []
        kept = list(candidates)
        for one in sorted(reversed(candidates), key=_likes_to_measure, reverse=True):
            rest = [other for other in kept if other is not one]
            if rest and self._is_unique(rest):
                kept = rest
        return kept if len(kept) < len(self.shared) else []

    def _is_unique(self, columns: Sequence[_Shared]) -> bool:
        names = ", ".join(sql.identifier(one.name) for one in columns)
        query = " AND ".join(
            f"(SELECT count(*) = count(DISTINCT row({names})) FROM {table})" for table in (_OLD, _NEW)
        )
        [(found,)] = self.session.execute("look for a key", f"SELECT {query}")
        return bool(found)

    def _by_key(
        self, key: Sequence[_Shared], notes: Mapping[str, str | None]
    ) -> tuple[list[ColumnDifference], Mapping[str, int]] | None:
        """The columns that differ in rows of one key; ``None`` if no rows have one in common."""
        rest = [one for one in self.shared if one not in key]
        items = ["count(*)", f"count(*) FILTER ({self._any_differs(rest)})"]
        for one in rest:
            within = f"FILTER ({_differs(one)})"
            change = _change(one)
            items.append(f"count(*) {within}")
            items += (
                [f"CAST({way}({change}) {within} AS VARCHAR)" for way in ("min", "max")] if change else ["NULL", "NULL"]
            )
        try:
            [row] = self.session.execute("match rows", f"SELECT {', '.join(items)} FROM {self._joined(key)}")
        except (duckdb.OutOfRangeException, duckdb.ConversionException):  # of a change, which is only a help
            items = [*items[:2], *(f"{item}" if n % 3 == 0 else "NULL" for n, item in enumerate(items[2:]))]
            [row] = self.session.execute("match rows", f"SELECT {', '.join(items)} FROM {self._joined(key)}")
        matched, differing, *each = row
        if not matched:
            return None
        columns = [
            ColumnDifference(
                name=one.name,
                rows=each[3 * number],
                smallest=_of_days(one, each[3 * number + 1]),
                largest=_of_days(one, each[3 * number + 2]),
                note=notes.get(one.name),
            )
            for number, one in enumerate(rest)
            if each[3 * number] or one.name in notes
        ]
        columns += [ColumnDifference(name=one.name, note=notes[one.name]) for one in key if one.name in notes]
        return columns, {"matched": matched, "differing": differing}

    def _examples(self, key: Sequence[_Shared]) -> tuple[Example, ...]:
        rest = [one for one in self.shared if one not in key]
        ordered = ", ".join(f"old.{sql.identifier(one.name)}" for one in key)
        sides = [*((one, "old") for one in key), *((one, "old") for one in rest), *((one, "new") for one in rest)]
        items = ", ".join(_text(f"{side}.{sql.identifier(one.name)}") for one, side in sides)
        rows = self.session.execute(
            "find examples",
            f"SELECT {items} FROM {self._joined(key)} WHERE {self._any_differs(rest)} ORDER BY {ordered}"
            f" LIMIT {_EXAMPLES}",
        )
        found = []
        for row in rows:
            names = [one.name for one in rest]
            before = dict(zip(names, row[len(key) : len(key) + len(rest)], strict=True))
            after = dict(zip(names, row[len(key) + len(rest) :], strict=True))
            changed = [name for name in names if before[name] != after[name]] or names
            found.append(
                Example(
                    key=dict(zip((one.name for one in key), row, strict=False)),
                    stored={name: before[name] for name in changed},
                    computed={name: after[name] for name in changed},
                )
            )
        for table, other in ((_OLD, _NEW), (_NEW, _OLD)):
            alone = f"(SELECT old.* FROM {table} AS old ANTI JOIN {other} AS new ON {_same_key(key)})"
            for one in self._rows(alone, self.shared):
                row = one if table == _OLD else None
                found.append(Example(key={}, stored=row, computed=one if row is None else None))
        return tuple(found)

    def _rows(self, source: str, columns: Sequence[_Shared]) -> list[dict[str, str | None]]:
        items = ", ".join(_text(sql.identifier(one.name)) for one in columns)
        rows = self.session.execute("find examples", f"SELECT {items} FROM {source} ORDER BY ALL LIMIT {_EXAMPLES}")
        return [dict(zip((one.name for one in columns), row, strict=True)) for row in rows]

    @staticmethod
    def _joined(key: Sequence[_Shared]) -> str:
        return f"{_OLD} AS old JOIN {_NEW} AS new ON {_same_key(key)}"

    @staticmethod
    def _any_differs(columns: Sequence[_Shared]) -> str:
        return " OR ".join(_differs(one) for one in columns) or "false"


def _same_key(key: Sequence[_Shared]) -> str:
    names = [sql.identifier(one.name) for one in key]
    return " AND ".join(f"old.{name} IS NOT DISTINCT FROM new.{name}" for name in names)


def _differs(one: _Shared) -> str:
    name = sql.identifier(one.name)
    return f"old.{name} IS DISTINCT FROM new.{name}"


def _likes_to_measure(one: _Shared) -> int:
    if one.kind in {"FLOAT", "DOUBLE"}:
        return 2
    return int(one.kind.startswith(("DECIMAL", "STRUCT", "MAP", "UNION")) or one.kind.endswith("]"))


def _change(one: _Shared) -> str | None:
    """By how much a value has changed; ``None`` where that has no meaning."""
    old, new = (f"{side}.{sql.identifier(one.name)}" for side in ("old", "new"))
    if one.kind in _INTEGERS:
        return f"CAST({new} AS HUGEINT) - CAST({old} AS HUGEINT)"
    if one.kind in {"HUGEINT", "FLOAT", "DOUBLE", "DATE", "TIMESTAMP WITH TIME ZONE"} or one.kind.startswith("DECIMAL"):
        return f"{new} - {old}"
    if one.kind in sql.WALL_TIMES:
        return f"CAST({new} AS TIMESTAMP) - CAST({old} AS TIMESTAMP)"
    return None


def _of_days(one: _Shared, text: str | None) -> str | None:
    return text if text is None or one.kind != "DATE" else f"{text} day{'' if text in {'1', '-1'} else 's'}"


def _text(value: str) -> str:
    return f"left(CAST({value} AS VARCHAR), {_LONGEST})"
