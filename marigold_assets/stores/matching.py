"""Which rows and values of two tables of the same columns differ.

Hashes tell whether they do; only then rows are matched, by the few columns that tell them apart on both sides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import duckdb

from marigold_assets.model import Column, PartitionSlice
from marigold_assets.proof import ColumnDifference, Difference, Example
from marigold_assets.stores import sql
from marigold_assets.stores.measure import Measure, measure_all
from marigold_assets.stores.session import Session

COMPUTED = "marigold_computed"
"""The temporary table of what was computed."""

_OLD = "marigold_old"
_NEW = "marigold_new"
_EXAMPLES = 3
_LONGEST = 80  # characters of a value that is shown
_INTEGERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT")
_GONE = "stored, but no longer computed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Matching:
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
    shared: Sequence[Shared]
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
        new = measure_all(self.session, f"(SELECT {new_items} FROM {COMPUTED})", columns)
        old = measure_all(self.session, old_rows, columns, parameters=condition.parameters)
        gone = [ColumnDifference(name=name, note=_GONE) for name in self.gone]
        refused = (
            [] if not (old.row_count and new.row_count) else [c for c in self.shared if self._is_refused(c, old, new)]
        )
        if old == new:
            found = [ColumnDifference(name=one.name, note=one.note) for one in refused]
            return Difference(
                stored_rows=old.row_count,
                computed_rows=new.row_count,
                columns=(*found, *gone),
                added=tuple(self.added),
            )
        self.session.stage("keep computed rows", _NEW, f"SELECT {new_items} FROM {COMPUTED}")
        self.session.stage("make room", _OLD, f"SELECT * FROM {_NEW} LIMIT 0")
        self.session.execute("keep stored rows", f"INSERT INTO {_OLD} SELECT * FROM {old_rows}", condition.parameters)
        return self._matched(old, new, {one.name: one.note for one in refused}, gone)

    def _of_nothing_shared(self) -> Difference:
        gone = [ColumnDifference(name=name, note=_GONE) for name in self.gone]
        [(new,)] = self.session.execute("count", f"SELECT count(*) FROM {COMPUTED}")
        return Difference(stored_rows=0, computed_rows=new, columns=tuple(gone), added=tuple(self.added))

    @staticmethod
    def _is_refused(one: Shared, old: Measure, new: Measure) -> bool:
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
                by_column, matched = found
                return Difference(
                    stored_rows=old.row_count,
                    computed_rows=new.row_count,
                    columns=(*by_column, *gone),
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

    def _key(self, candidates: Sequence[Shared]) -> list[Shared]:
        """The first few columns that tell the rows of either side apart, and leave some to differ; or none.

        Numbers with fractions last: they are measured, and not names.
        """
        if not candidates or not self._is_unique(candidates):
            return []
        kept = list(candidates)
        ranked = sorted(enumerate(candidates), key=lambda one: (_likes_to_measure(one[1]), one[0]), reverse=True)
        for _, one in ranked:
            rest = [other for other in kept if other is not one]
            if rest and self._is_unique(rest):
                kept = rest
        return kept if len(kept) < len(self.shared) else []

    def _is_unique(self, columns: Sequence[Shared]) -> bool:
        names = ", ".join(sql.identifier(one.name) for one in columns)
        query = " AND ".join(f"(SELECT count(*) = count(DISTINCT row({names})) FROM {table})" for table in (_OLD, _NEW))
        [(found,)] = self.session.execute("look for a key", f"SELECT {query}")
        return bool(found)

    def _by_key(
        self, key: Sequence[Shared], notes: Mapping[str, str | None]
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

    def _examples(self, key: Sequence[Shared]) -> tuple[Example, ...]:
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
        alone = [
            self._rows(f"(SELECT old.* FROM {table} AS old ANTI JOIN {other} AS new ON {_same_key(key)})", self.shared)
            for table, other in ((_OLD, _NEW), (_NEW, _OLD))
        ]
        found += [Example(key={}, stored=one, computed=None) for one in alone[0]]
        found += [Example(key={}, stored=None, computed=one) for one in alone[1]]
        return tuple(found)

    def _rows(self, source: str, columns: Sequence[Shared]) -> list[dict[str, str | None]]:
        items = ", ".join(_text(sql.identifier(one.name)) for one in columns)
        rows = self.session.execute("find examples", f"SELECT {items} FROM {source} ORDER BY ALL LIMIT {_EXAMPLES}")
        return [dict(zip((one.name for one in columns), row, strict=True)) for row in rows]

    @staticmethod
    def _joined(key: Sequence[Shared]) -> str:
        return f"{_OLD} AS old JOIN {_NEW} AS new ON {_same_key(key)}"

    @staticmethod
    def _any_differs(columns: Sequence[Shared]) -> str:
        return " OR ".join(_differs(one) for one in columns) or "false"


def _same_key(key: Sequence[Shared]) -> str:
    names = [sql.identifier(one.name) for one in key]
    return " AND ".join(f"old.{name} IS NOT DISTINCT FROM new.{name}" for name in names)


def _differs(one: Shared) -> str:
    name = sql.identifier(one.name)
    return f"old.{name} IS DISTINCT FROM new.{name}"


def _likes_to_measure(one: Shared) -> int:
    if one.kind in {"FLOAT", "DOUBLE"}:
        return 2
    return int(one.kind.startswith(("DECIMAL", "STRUCT", "MAP", "UNION")) or one.kind.endswith("]"))


def _change(one: Shared) -> str | None:
    """By how much a value has changed; ``None`` where that has no meaning."""
    old, new = (f"{side}.{sql.identifier(one.name)}" for side in ("old", "new"))
    if one.kind in _INTEGERS:
        return f"CAST({new} AS HUGEINT) - CAST({old} AS HUGEINT)"
    if one.kind in {"HUGEINT", "FLOAT", "DOUBLE", "DATE", "TIMESTAMP WITH TIME ZONE"} or one.kind.startswith("DECIMAL"):
        return f"{new} - {old}"
    if one.kind in sql.WALL_TIMES:
        return f"CAST({new} AS TIMESTAMP) - CAST({old} AS TIMESTAMP)"
    return None


def _of_days(one: Shared, text: str | None) -> str | None:
    return text if text is None or one.kind != "DATE" else f"{text} day{'' if text in {'1', '-1'} else 's'}"


def _text(value: str) -> str:
    return f"left(CAST({value} AS VARCHAR), {_LONGEST})"
