"""What ``marigold versions prove`` says, to people and to programs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from marigold_assets.cli.columns import shown
from marigold_assets.cli.sampling import Sampled
from marigold_assets.planning.naming import counted
from marigold_assets.proof import ColumnDifference, Difference, Example, Outcome, Replayed, Verdict

_DIGITS = 10
_WORDS = {
    Verdict.IDENTICAL: "identical: the present code makes what is stored",
    Verdict.CHANGED: "changed: the present code does not make what is stored",
    Verdict.UNKNOWN: "not judged: not every partition could be compared",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What there is to say.

    Attributes:
        asset: The asset.
        sampled: Which partitions were tried, and why.
        seed: Of those chosen at random; ``None``: none were.
        replayed: What came of each.
        verdict: What that means together.
        left_out: Columns that were not compared, each with the reason.
        carried_over: What has become of the version lock, if that was asked for.
        is_carried_over: Whether it has the present code.
    """

    asset: str
    sampled: Sampled
    seed: int | None
    replayed: Sequence[Replayed]
    verdict: Verdict
    left_out: Mapping[str, str]
    carried_over: str | None = None
    is_carried_over: bool = False


def render(report: Report, *, to: Console) -> None:
    """Print a report."""
    seed = "" if report.seed is None else f" (seed {report.seed})"
    to.print(f"{report.asset}: {len(report.replayed)} of {counted(report.sampled.among)} computed again{seed}")
    why = {one.key: one.why for one in report.sampled.chosen}
    table = Table(box=box.SIMPLE, pad_edge=False)
    for name in ("partition", "why it", "outcome", "what"):
        table.add_column(name, no_wrap=name != "what", overflow="fold")
    for one in report.replayed:
        table.add_row(shown(one.partition_key), why.get(one.partition_key, ""), one.outcome.value, _what(one))
    to.print(table)
    for line in [*_columns(report), *_examples(report), *_remarks(report)]:
        to.print(line)
    to.print(f"{_sum(report)}. {_WORDS[report.verdict]}.")
    if report.carried_over is not None:
        to.print(f"{report.carried_over}.")


def _what(one: Replayed) -> str:
    if one.difference is None:
        return one.reason or ""
    found = one.difference
    rows = counted(found.computed_rows, "row")
    if found.outcome is Outcome.IDENTICAL:
        return rows
    if found.computed_rows != found.stored_rows:
        rows = f"computed {found.computed_rows:,}, stored {found.stored_rows:,}"
    return "; ".join([rows, *_parts(found)])


def _parts(found: Difference) -> Iterator[str]:
    if found.added:
        yield f"added {', '.join(found.added)}"
    yield from (shown_column(one) for one in found.columns)
    if found.is_moved and not found.columns:
        yield "values stand in other rows"
    if found.only_stored or found.only_computed:
        yield f"{counted(found.only_stored, 'row')} stored only, {found.only_computed:,} computed only"


def shown_column(one: ColumnDifference) -> str:
    """What became of a column, in a few words."""
    parts = [] if one.rows is None else [counted(one.rows, "row")]
    if one.smallest is not None:
        smallest, largest = _short(one.smallest), _short(one.largest or "")
        parts.append(f"by {smallest}" if smallest == largest else f"by {smallest} to {largest}")
    if one.note:
        parts.append(one.note)
    return f"{one.name}: {', '.join(parts)}" if parts else one.name


def _short(text: str) -> str:
    """A number with fractions without the digits that only its binary form has."""
    try:
        found = float(text)
    except ValueError:
        return text
    return f"{found:.{_DIGITS}g}" if len(text) > _DIGITS and repr(found) == text else text


def _columns(report: Report) -> Iterator[str]:
    partitions: Counter[str] = Counter()
    rows: Counter[str] = Counter()
    added: Counter[str] = Counter()
    for one in report.replayed:
        for column in one.difference.columns if one.difference is not None else ():
            partitions[column.name] += 1
            rows[column.name] += column.rows or 0
        added.update(one.difference.added if one.difference is not None else ())
    for name, count in partitions.most_common():
        of_rows = f", {counted(rows[name], 'row')}" if rows[name] else ""
        yield f"column {name} changed in {counted(count)}{of_rows}"
    for name, count in added.most_common():
        yield f"column {name} added in {counted(count)}"


def _examples(report: Report) -> Iterator[str]:
    changed = next((one for one in report.replayed if one.difference is not None and one.difference.examples), None)
    if changed is None or changed.difference is None:
        return
    yield f"for example in {shown(changed.partition_key)}:"
    for one in changed.difference.examples:
        yield f"  {_example(one)}"


def _example(one: Example) -> str:
    key = ", ".join(f"{name}={_value(value)}" for name, value in one.key.items())
    if one.stored is not None and one.computed is not None:
        changes = [f"{name} {_change(old, one.computed[name])}" for name, old in one.stored.items()]
        return f"{key}: {', '.join(changes)}"
    row, where = (one.stored, "stored only") if one.stored is not None else (one.computed or {}, "computed only")
    return f"{where}: {', '.join(f'{name}={_value(value)}' for name, value in row.items())}"


def _change(old: str | None, new: str | None) -> str:
    short = [value if value is None else _short(value) for value in (old, new)]
    old, new = (old, new) if short[0] == short[1] else (short[0], short[1])
    return f"{_value(old)} -> {_value(new)}"


def _value(value: str | None) -> str:
    return "NULL" if value is None else shown(value) if value else "''"


def _remarks(report: Report) -> Iterator[str]:
    for name, why in report.left_out.items():
        yield f"column {name} is not compared: {why}"
    for note in dict.fromkeys(note for one in report.replayed for note in one.notes):
        yield f"note: {note}"


def _sum(report: Report) -> str:
    outcomes = Counter(one.outcome.value for one in report.replayed)
    return f"{counted(len(report.replayed))}: " + ", ".join(f"{count} {name}" for name, count in outcomes.most_common())


def as_json(report: Report) -> str:
    """A report for programs."""
    why = {one.key: one.why for one in report.sampled.chosen}
    partitions = [
        {
            "partition": one.partition_key,
            "why": why.get(one.partition_key),
            "outcome": one.outcome.value,
            "reason": one.reason,
            "notes": list(one.notes),
            "difference": None if one.difference is None else _difference(one.difference),
        }
        for one in report.replayed
    ]
    found = {
        "asset": report.asset,
        "verdict": report.verdict.name.lower(),
        "seed": report.seed,
        "among": report.sampled.among,
        "not_compared": dict(report.left_out),
        "carried_over": report.carried_over if report.is_carried_over else None,
        "lock": report.carried_over,
        "partitions": partitions,
    }
    return json.dumps(found, indent=2, ensure_ascii=False)


def _difference(one: Difference) -> dict[str, Any]:
    return {**asdict(one), "added": list(one.added), "matched_by": list(one.matched_by)}
