"""Stretches of partitions as a table that fits: a key or a time is never cut or wrapped, rather a column goes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from marigold_assets.planning.naming import counted
from marigold_assets.surveying.agreement import Key
from marigold_assets.surveying.survey import Written

_WHOLE = "(whole table)"
_GAP = "  "
_SHORT_ID = 8
_SHOWN_IDS = 2


def shown(key: Key) -> str:
    """A partition key on one line, whatever it holds."""
    if key is None:
        return _WHOLE
    return key if key.isprintable() and key.strip() == key and key else repr(key)


def plain(text: str) -> str:
    """Some text on one line."""
    return text if text.isprintable() else repr(text)[1:-1]


def moment(when: datetime | None) -> str:
    """A time in UTC, to the second."""
    return "" if when is None else when.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Column:
    title: str
    cell: Callable[[Written], str]
    is_number: bool = False


def _label(one: Written) -> str:
    return "not built" if one.definition is None else plain(str(one.definition))


def _rows(one: Written) -> str:
    return "" if one.definition is None else f"{one.row_count:,}"


def _ids(what: str, ids: Sequence[str], dots: str) -> str:
    if not ids:
        return ""
    more = f", {dots}" if len(ids) > _SHOWN_IDS else ""
    return f"{counted(len(ids), what)}: {', '.join(one[:_SHORT_ID] for one in ids[:_SHOWN_IDS])}{more}"


def _runs(one: Written, dots: str) -> str:
    return "; ".join(filter(None, [_ids("run", one.run_ids, dots), _ids("backfill", one.backfill_ids, dots)]))


def layouts(title: str, dots: str) -> Iterator[list[_Column]]:
    """The columns of a table, from everything to what it cannot do without."""
    what = [
        _Column(title=title, cell=_label),
        _Column(title="first", cell=lambda one: shown(one.keys[0])),
        _Column(title="last", cell=lambda one: shown(one.keys[-1])),
        _Column(title="partitions", cell=lambda one: f"{len(one.keys):,}", is_number=True),
        _Column(title="rows", cell=_rows, is_number=True),
    ]
    first = _Column(title="first write (UTC)", cell=lambda one: moment(one.first_write))
    last = _Column(title="last write (UTC)", cell=lambda one: moment(one.last_write))
    minute = _Column(title="last write (UTC)", cell=lambda one: moment(one.last_write)[:-3])
    runs = _Column(title="runs", cell=lambda one: _runs(one, dots))
    run = _Column(title="runs", cell=lambda one: f"{len(one.run_ids):,}" if one.run_ids else "", is_number=True)
    yield [*what, first, last, runs]
    yield [*what, last, runs]
    yield [*what, minute, runs]
    yield [*what, minute, run]
    yield [*what, minute]
    yield what


def tabulated(title: str, stretches: Sequence[Written], width: int | None, *, dots: str = "...") -> list[str]:
    """A line of titles, and one a stretch; where even the least does not fit, several lines a stretch and no titles.

    Args:
        title: What the first column is.
        stretches: The stretches.
        width: How wide a line may be; ``None``: as wide as it has to be.
        dots: What stands for more of the same.

    Returns:
        The titles, which may be empty, and the lines of every stretch, with line ends within.
    """
    for columns in layouts(title, dots):
        cells = [[column.cell(one) for column in columns] for one in stretches]
        widths = [
            max(len(text) for text in (column.title, *own))
            for column, own in zip(columns, zip(*cells, strict=True), strict=True)
        ]
        if width is None or sum(widths) + len(_GAP) * (len(widths) - 1) <= width:
            return [_line(row, widths, columns) for row in ([column.title for column in columns], *cells)]
    return [f"{title}:", *(_stacked(one) for one in stretches)]


def _line(cells: Sequence[str], widths: Sequence[int], columns: Sequence[_Column]) -> str:
    aligned = [
        text.rjust(width) if column.is_number else text.ljust(width)
        for text, width, column in zip(cells, widths, columns, strict=True)
    ]
    return _GAP.join(aligned).rstrip()


def _stacked(one: Written) -> str:
    lines = [_label(one), shown(one.keys[0])]
    lines += [f"to {shown(one.keys[-1])}"] if len(one.keys) > 1 else []
    lines += (
        [counted(len(one.keys))]
        if one.definition is None
        else [
            f"{counted(len(one.keys))}, {counted(one.row_count, 'row')}",
            f"written {moment(one.last_write)[:-3]}",
        ]
    )
    return "\n    ".join(lines)
