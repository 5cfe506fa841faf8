"""How far a launch has come, for people and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from marigold_assets.backfill.price import Price, spoken
from marigold_assets.backfill.watching import AssetProgress, Progress, budget_of
from marigold_assets.cli.columns import moment, plain
from marigold_assets.planning.naming import counted

_BAR_WIDTH = 24
_MOST_CHECKS = 10
_STATES = {
    "REQUESTED": "under way",
    "CANCELING": "being canceled",
    "CANCELED": "canceled",
    "COMPLETED_SUCCESS": "completed",
    "COMPLETED_FAILED": "completed with failures",
    "COMPLETED": "completed",
    "FAILING": "given up by the daemon, its runs are being canceled",
    "FAILED": "given up by the daemon",
}


def as_json(progress: Progress) -> dict[str, Any]:
    """The same for programs; seconds, and times in UTC."""
    price = progress.price
    return {
        "launch": progress.name,
        "is_over": progress.is_over,
        "is_well": progress.is_well,
        "is_built": progress.is_built,
        "is_launched_whole": progress.is_whole,
        "launched_at": progress.launched_at.isoformat(),
        "seen_at": progress.seen_at.isoformat(),
        "last_commit_at": None if progress.last_commit is None else progress.last_commit.isoformat(),
        "backfills": [
            {
                "backfill_id": one.backfill_id,
                "status": one.status,
                "title": one.title,
                "error": one.error,
                "ended_at": None if one.ended_at is None else one.ended_at.isoformat(),
            }
            for one in progress.backfills
        ],
        "assets": [
            {
                "asset": one.owner,
                "total": one.total,
                "done": one.done,
                "built": one.built,
                "confirmed_unchanged": one.confirmed,
                "left_unchanged": one.stood,
                "built_by_others": one.elsewhere,
                "running": one.running,
                "queued": 0 if progress.is_over else one.queued,
                "not_started": one.queued if progress.is_over else 0,
                "failed": one.failed,
                "canceled": one.canceled,
                "from_ledger": one.is_exact,
            }
            for one in progress.assets
        ],
        "runs": {
            "queued": progress.queued_runs,
            "running": progress.running_runs,
            "succeeded": progress.succeeded_runs,
            "failed": progress.failed_runs,
            "canceled": progress.canceled_runs,
        },
        "max_failures": budget_of(progress.backfills),
        "failed_runs": [
            {
                "run_id": one.run_id,
                "what": one.what,
                "message": one.message,
                "fenced_out_by": one.fenced_out_by,
            }
            for one in progress.troubles
        ],
        "failed_checks": list(progress.failed_checks),
        "failed_when_all_was_built": progress.failed_when_done,
        "predicted": None if price is None else of_price(price),
        "actual": {
            "wall_seconds": round(progress.wall_seconds, 1),
            "busy_seconds": None if progress.busy_seconds is None else round(progress.busy_seconds, 1),
        },
        "expected_wall_seconds": _rounded(progress.expected_wall_seconds),
        "remaining_seconds": _rounded(progress.remaining_seconds),
        "drift": None if progress.drift is None else round(progress.drift, 3),
    }


def of_price(price: Price) -> dict[str, Any]:
    """A price for programs; seconds."""
    return {
        "wall_seconds": {"median": price.wall.median, "p90": price.wall.p90},
        "busy_seconds": {"median": price.busy.median, "p90": price.busy.p90},
        "runs": price.runs,
        "partitions": price.partitions,
        "assets_without_history": price.assumed,
    }


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 1)


def page(progress: Progress, to: Console, note: str | None = None) -> RenderableType:
    """The report as something to print, or to print again and again in its place."""
    parts: list[RenderableType] = [*_head(progress)]
    parts += [_table(progress, to)] if progress.assets else []
    parts += [*_runs(progress), *_time(progress), *_troubles(progress)]
    if note is not None:
        parts.append(_line(f"Note: {note}."))
    if not progress.is_over and not progress.is_well:
        parts.append(_line(f"Stop it: marigold cancel {progress.name}", "dim"))
    return Group(*parts)


def _line(text: str, style: str = "") -> Text:
    return Text(text, style=style, overflow="ignore", no_wrap=True)


def _head(progress: Progress) -> Iterator[Text]:
    for one in progress.backfills[:1]:
        yield _line(plain(one.title or f"backfill {one.backfill_id}"), "bold")
    states = Counter(_STATES.get(one.status, one.status) for one in progress.backfills)
    said = ", ".join(f"{number} {state}" if len(states) > 1 else state for state, number in states.items())
    of = (
        ""
        if len(progress.backfills) == 1 and progress.backfills[0].backfill_id == progress.name
        else (
            f" in {counted(len(progress.backfills), 'backfill')}: "
            f"{', '.join(one.backfill_id for one in progress.backfills[:4])}"
            f"{' ...' if len(progress.backfills) > 4 else ''}"
        )
    )
    yield _line(f"{progress.name}: {said}, launched {moment(progress.launched_at)} UTC{of}")
    for one in progress.backfills:
        if one.error is not None:
            yield _line(f"  backfill {one.backfill_id}: {plain(one.error)}", "red")


def _table(progress: Progress, to: Console) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("asset", no_wrap=True)
    if to.is_terminal:
        table.add_column("", width=_BAR_WIDTH, no_wrap=True)
    waiting = "not started" if progress.is_over else "queued"
    for title in ("done", "of", "running", waiting, "failed", "canceled", "unchanged"):
        table.add_column(title, justify="right", no_wrap=True)
    for one in progress.assets:
        table.add_row(*_cells(one, with_bar=to.is_terminal))
    return table


def _cells(one: AssetProgress, *, with_bar: bool) -> Iterator[RenderableType]:
    yield Text(f"{plain(one.owner)}{'' if one.is_exact else ' *'}")
    if with_bar:
        style = "red" if one.failed else "green" if one.done == one.total else "yellow"
        yield ProgressBar(total=max(1, one.total), completed=one.done, width=_BAR_WIDTH, complete_style=style)
    for number in (one.done, one.total, one.running, one.queued, one.failed, one.canceled, one.confirmed + one.stood):
        yield Text(f"{number:,}")


def _runs(progress: Progress) -> Iterator[Text]:
    counts = {
        "running": progress.running_runs,
        "queued": progress.queued_runs,
        "succeeded": progress.succeeded_runs,
        "failed": progress.failed_runs,
        "canceled": progress.canceled_runs,
    }
    none = "none that is known" if progress.is_over else "none yet"
    said = ", ".join(f"{number:,} {what}" for what, number in counts.items() if number) or none
    yield _line(f"Runs: {said}")
    elsewhere = sum(one.elsewhere for one in progress.assets)
    if elsewhere:
        yield _line(f"{counted(elsewhere)} of those done were built by other runs since the launch.")
    if any(not one.is_exact for one in progress.assets):
        yield _line("* told by the daemon, which looks every half minute: there is no ledger to ask")
    budget = budget_of(progress.backfills)
    if budget is not None:
        yield _line(f"Failure budget: {progress.failed_runs} of {budget} failed runs")


def _time(progress: Progress) -> Iterator[Text]:
    price, drift = progress.price, progress.drift
    if price is not None and price.partitions != progress.total:
        yield _line(
            f"Launched: {counted(progress.total)} of {price.partitions:,} planned; the price is for all of them"
        )
    elif price is not None and not progress.is_priced_whole:
        yield _line("A canary went first, which the price leaves out")
    if price is not None:
        yield _line(f"Price: {price}")
    compared = "" if drift is None else f", {_percent(drift)} its price"
    if progress.is_over or progress.is_built:
        took = f"Took: {spoken(progress.wall_seconds)}{compared}"
        busy = progress.busy_seconds
        run_time = "nobody knows its run time" if busy is None else f"{spoken(busy)} of run time"
        yield _line(took if busy is None and not progress.is_over else f"{took}; {run_time}")
        return
    left = progress.remaining_seconds
    until = "nobody can say yet" if left is None else f"about {spoken(left)}{compared}"
    yield _line(f"So far: {spoken(progress.wall_seconds)}; still to go: {until}")


def _percent(drift: float) -> str:
    number = round(abs(drift) * 100)
    return "as long as" if number < 1 else f"{number} % {'longer' if drift > 0 else 'shorter'} than"


def _troubles(progress: Progress) -> Iterator[Text]:
    fenced = [one for one in progress.troubles if one.fenced_out_by is not None]
    others = [one for one in progress.troubles if one.fenced_out_by is None]
    for one in fenced:
        yield _line(f"Fenced out: run {one.run_id}, {plain(one.what)}, by run {one.fenced_out_by}", "yellow")
        yield _line(f"  {plain(one.message)}")
    for one in others:
        yield _line(f"Failed: run {one.run_id}, {plain(one.what)}", "red")
        yield _line(f"  {plain(one.message)}")
    for check in progress.failed_checks[:_MOST_CHECKS]:
        yield _line(f"Check failed: {plain(check)}", "red")
    if len(progress.failed_checks) > _MOST_CHECKS:
        yield _line(f"... and {counted(len(progress.failed_checks) - _MOST_CHECKS, 'failed check')} more")
    more = progress.failed_runs - len(progress.troubles)
    if more > 0:
        yield _line(f"... and {counted(more, 'failed run')} more")
