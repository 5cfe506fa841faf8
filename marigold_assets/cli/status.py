"""``marigold status``: how far a backfill has come, and how long it still takes."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import click

from marigold_assets.cli.failing import FOUND
from marigold_assets.cli.options import location_options

if TYPE_CHECKING:
    import dagster as dg

    from marigold_assets.backfill.watching import Progress
    from marigold_assets.cli.instance import Ledgers
    from marigold_assets.cli.interrupting import Rests
    from marigold_assets.location import LocationOptions

_LOOK_EVERY_SECONDS = 2.0
_SHARE_OF_TIME = 5  # at most a fifth of the time is spent looking

EXAMPLES = """
\b
Examples:
  marigold status                     the newest backfill
  marigold status --watch             the same, until it is over
  marigold status kdhqzbnm --json     one by name, for programs
"""


@click.command(epilog=EXAMPLES)
@click.argument("name", required=False, metavar="[LAUNCH_OR_BACKFILL]")
@location_options
@click.option("--watch", is_flag=True, help="Show it until it is over; Ctrl-C stops looking, and nothing else.")
@click.option("--exit-code", is_flag=True, help="Exit with 1 if it is over and not all is built, or a check failed.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def status(name: str | None, *, options: LocationOptions, watch: bool, exit_code: bool, as_json: bool) -> None:
    """How far a backfill has come: partitions and runs, failures, how long it still takes, and how that was predicted.

    What was built is read from the ledger, so that it is exact at any moment; of assets without one the daemon tells.
    Without a name it is about the newest backfill of the instance, whoever has launched it, but for the doctor.
    """
    from marigold_assets.cli.instance import Ledgers, live_instance
    from marigold_assets.cli.resuming import how_to_go_on

    with live_instance() as instance:
        ledgers = Ledgers(options, instance)
        progress = watched(instance, ledgers, name) if watch else look_once(instance, ledgers, name)
        if as_json:
            from marigold_assets.cli import progress_report

            click.echo(json.dumps(progress_report.as_json(progress), indent=2))
        elif not watch:
            show(progress, ledgers)
        if not as_json and progress.is_over and (said := how_to_go_on(progress, ledgers, options)) is not None:
            click.echo(said, err=watch)
    if exit_code and progress.is_over and not progress.is_well:
        raise click.exceptions.Exit(FOUND)


def look_once(instance: dg.DagsterInstance, ledgers: Ledgers, name: str | None) -> Progress:
    """How far it has come now."""
    from marigold_assets.backfill import watching

    found, backfills = watching.find(instance, name)
    return watching.look(instance, found, backfills, heads=ledgers.heads, keys=ledgers.keys, between=ledgers.between)


def show(progress: Progress, ledgers: Ledgers) -> None:
    """Print it once."""
    from marigold_assets.cli import progress_report
    from marigold_assets.cli.rendering import console

    to = console()
    to.print(progress_report.page(progress, to, ledgers.note))


def watched(instance: dg.DagsterInstance, ledgers: Ledgers, name: str | None) -> Progress:
    """Show it on stderr until it is over: on a terminal in its place, elsewhere a line whenever something has changed.

    Returns:
        How far it had come then.
    """
    from marigold_assets.cli.interrupting import Rests

    rests = Rests()
    with rests.only():
        return _watched(instance, ledgers, name, rests)


def _watched(instance: dg.DagsterInstance, ledgers: Ledgers, name: str | None, rests: Rests) -> Progress:
    import sys

    from rich.live import Live

    from marigold_assets.cli import progress_report
    from marigold_assets.cli.rendering import console

    to = console(sys.stderr)
    begun = time.monotonic()
    progress = look_once(instance, ledgers, name)
    if not to.is_terminal:
        said = None
        while True:
            line = brief(progress)
            if line != said:
                click.echo(line, err=True)
                said = line
            if progress.is_over:
                to.print(progress_report.page(progress, to, ledgers.note))
                return progress
            begun = _rest(begun, rests)
            progress = look_once(instance, ledgers, progress.name)
    with Live(progress_report.page(progress, to, ledgers.note), console=to, auto_refresh=False) as live:
        while not progress.is_over:
            begun = _rest(begun, rests)
            progress = look_once(instance, ledgers, progress.name)
            live.update(progress_report.page(progress, to, ledgers.note), refresh=True)
    return progress


def _rest(begun: float, rests: Rests) -> float:
    """Sleep for some time after a look that began then, longer where looking takes long."""
    took = time.monotonic() - begun
    rests.rest(max(_LOOK_EVERY_SECONDS, (_SHARE_OF_TIME - 1) * took))
    return time.monotonic()


def brief(progress: Progress) -> str:
    """How far it has come, in one line."""
    return (
        f"{progress.name}: {progress.done:,} of {progress.total:,} partitions, {progress.failed:,} failed;"
        f" runs: {progress.running_runs:,} running, {progress.queued_runs:,} queued"
    )
