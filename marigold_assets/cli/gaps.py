"""``marigold gaps``: which intervals nobody has built, and what fills them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from marigold_assets.cli.failing import CANNOT, FOUND
from marigold_assets.cli.finite import LONGEST_HOURS, FiniteRange
from marigold_assets.cli.options import location_options, without_collector

if TYPE_CHECKING:
    from rich.console import Console

    from marigold_assets.backfill.missing import Missing, MissingReport
    from marigold_assets.location import CodeLocation, LocationOptions


@click.command()
@click.argument("selection", required=False)
@location_options
@click.option(
    "--grace",
    "grace_hours",
    default=0.0,
    show_default=True,
    type=FiniteRange(min=0, max=LONGEST_HOURS),
    help="Hours after its end for which an interval may be missing.",
)
@click.option("--from-start", is_flag=True, help="Expect everything from the start of the partitions.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--all", "everything", is_flag=True, help="Show every line, however many there are.")
@click.option("--check", is_flag=True, help="Exit with 1 if anything is missing, rows too.")
def gaps(
    selection: str | None,
    *,
    options: LocationOptions,
    grace_hours: float,
    from_start: bool,
    as_json: bool,
    everything: bool,
    check: bool,
) -> None:
    """List intervals that have ended and were never built, and the command that fills them.

    SELECTION is in Dagster's selection syntax; without it, all assets with daily, hourly, weekly or monthly
    partitions are looked at. Expected is everything since the first interval that was ever built; of an asset of which
    nothing was built, since the start of its partitions. All of that is missing where its table is gone, or where there
    is no database.

    \b
    marigold gaps                       what is missing
    marigold gaps daily_sales+ --json   of an asset and what reads it
    marigold gaps --check --grace 6     fail if anything is, six hours after its end

    Schedules run the latest interval only, so what they miss stays missing until it is filled. Nothing is written here.
    """  # noqa: D301 - click wants the character itself
    with without_collector():
        report = _look(selection, options, timedelta(hours=grace_hours), from_start=from_start)
        commands = report.commands(options.arguments())
        if as_json:
            from marigold_assets.cli.as_json import dumps

            click.echo(dumps(_as_json(report, commands)))
        else:
            from marigold_assets.cli.rendering import MOST, console

            _render(report, commands, to=console(), most=None if everything else MOST)
    if check and not all(one.found.is_whole for one in report.assets):
        raise click.exceptions.Exit(FOUND)
    if check and report.unavailable:
        raise click.exceptions.Exit(CANNOT)


def _look(selection: str | None, options: LocationOptions, grace: timedelta, *, from_start: bool) -> MissingReport:
    from marigold_assets.backfill.gathering import live_instance
    from marigold_assets.backfill.missing import find_missing
    from marigold_assets.location import load

    location = load(options, selection)
    by = datetime.now(UTC) - grace
    if not _needs_instance(location):
        return find_missing(location, selection, by, from_start=from_start)
    with live_instance() as instance:
        return find_missing(location, selection, by, from_start=from_start, instance=instance)


def _needs_instance(location: CodeLocation) -> bool:
    from marigold_assets.location import is_dynamic

    found = (one.partitions_def for one in location.assets.values())
    return any(one is not None and is_dynamic(one) for one in found)


def _render(report: MissingReport, commands: list[str], *, to: Console, most: int | None) -> None:
    from rich.text import Text

    from marigold_assets.cli.rendering import dots
    from marigold_assets.gaps import described

    def line(text: str, style: str = "") -> None:
        to.print(Text(text, style=style, overflow="ignore", no_wrap=True))

    for one in report.assets:
        line(f"{one.asset.owner}: {described(one.gaps)}", "" if not one.gaps.gaps else "yellow")
        shown = one.gaps.gaps[: len(one.gaps.gaps) if most is None else most]
        for text in _lines(one, len(shown)):
            line(f"  {text}")
        if len(shown) < len(one.gaps.gaps):
            line(f"  {dots(to)} and {len(one.gaps.gaps) - len(shown):,} more; --all shows them")
        if one.found.note is not None:
            line(f"  Note: {one.found.note}.", "" if one.found.is_whole else "yellow")
    for owner, why in report.not_looked_at.items():
        line(f"{owner}: not looked at, {why}", "dim")
    for owner, readers in report.along().items():
        line(f"{owner}: built along before where it is expected, since it is read by {', '.join(readers)}")
    if commands:
        line("")
        line("To see what it takes to fill them, say 'plan' instead of 'launch'; to fill them:", "bold")
        for command in commands:
            line(f"  {command}")


def _lines(one: Missing, most: int) -> list[str]:
    from marigold_assets.cli.columns import moment
    from marigold_assets.cli.rendering import shown_range

    return [
        f"{shown_range(gap.keys)}, missing since {moment(one.expected.ended(gap.since))} UTC"
        for gap in one.gaps.gaps[:most]
    ]


def _as_json(report: MissingReport, commands: list[str]) -> dict[str, Any]:
    from marigold_assets.cli.as_json import time

    return {
        "time": time(report.by),
        "assets": [
            {
                "asset": one.asset.owner,
                "since": one.gaps.since,
                "is_from_start": one.gaps.is_from_start,
                "expected": one.gaps.expected,
                "missing": one.gaps.missing,
                "earlier": one.gaps.earlier,
                "gaps": [
                    {"first": gap.keys[0], "last": gap.keys[-1], "partitions": len(gap.keys)} for gap in one.gaps.gaps
                ],
                "lost_rows": one.found.lost_rows,
                "note": one.found.note,
            }
            for one in report.assets
        ],
        "not_looked_at": [{"asset": owner, "reason": why} for owner, why in report.not_looked_at.items()],
        "built_along": [{"asset": owner, "read_by": readers} for owner, readers in report.along().items()],
        "commands": commands,
    }
