"""``marigold cancel``: no run of a backfill starts any more, and what was begun ends with whole partitions."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from marigold_assets.cli.failing import FOUND
from marigold_assets.cli.finite import LONGEST_SECONDS, FiniteRange
from marigold_assets.cli.options import location_options

if TYPE_CHECKING:
    from marigold_assets.backfill.cancelling import Canceled
    from marigold_assets.backfill.watching import Progress
    from marigold_assets.cli.instance import Ledgers
    from marigold_assets.location import LocationOptions

EXAMPLES = """
\b
Examples:
  marigold cancel kdhqzbnm            asks, cancels, waits, and says how to go on
  marigold cancel kdhqzbnm --yes      without asking
"""


@click.command(epilog=EXAMPLES)
@click.argument("name", metavar="LAUNCH_OR_BACKFILL")
@location_options
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Only say what would be canceled, and how it stands.")
@click.option(
    "--timeout",
    default=180.0,
    show_default=True,
    type=FiniteRange(min=1, max=LONGEST_SECONDS),
    metavar="SECONDS",
    help="How long to wait until no run of it is left.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def cancel(name: str, *, options: LocationOptions, yes: bool, dry_run: bool, timeout: float, as_json: bool) -> None:
    """Cancel a launch or a backfill, and wait until no run of it is left and none can start.

    Queued runs are taken out of the queue at once, running ones are told to stop. What was swapped stays, and
    partitions are whole: an interrupted one is as it was before. Dagster's daemon takes up to a minute to agree that it
    is over. How to go on with what is left is said at the end.

    Exits with 1 if it is not over after --timeout; then canceling goes on by itself.
    """
    from marigold_assets.backfill.cancelling import Canceled, unfinished_runs
    from marigold_assets.backfill.cancelling import cancel as cancel_all
    from marigold_assets.cli.instance import Ledgers, live_instance
    from marigold_assets.cli.status import look_once

    with live_instance() as instance:
        ledgers = Ledgers(options, instance)
        before = look_once(instance, ledgers, name)
        if before.is_over:
            raise click.UsageError(f"{name} is over already: nothing of it is running or waiting.")
        click.echo(_asked(before), err=True)
        if dry_run:
            if as_json:
                unfinished = unfinished_runs(instance, [one.backfill_id for one in before.backfills])
                nothing = Canceled(
                    backfills=before.backfills,
                    unfinished=tuple(one.run_id for one in unfinished),
                    ended=0,
                    seconds=0.0,
                )
                click.echo(json.dumps(_as_json(nothing, before, ledgers, options), indent=2))
            return
        if not yes:
            click.confirm("Cancel it?", abort=True, err=True)
        ids = [one.backfill_id for one in before.backfills]
        found = cancel_all(instance, ids, timeout_seconds=timeout)
        after = look_once(instance, ledgers, name)
    if as_json:
        click.echo(json.dumps(_as_json(found, after, ledgers, options), indent=2))
    else:
        _tell(found, after, ledgers, options)
    if not found.is_over:
        raise click.exceptions.Exit(FOUND)


def _asked(progress: Progress) -> str:
    title = progress.backfills[0].title
    left = progress.total - progress.done
    return (
        f"{progress.name}{'' if title is None else f' ({title})'}: {progress.done:,} of {progress.total:,} partitions"
        f" are done, {left:,} are not; runs: {progress.running_runs:,} running, {progress.queued_runs:,} queued."
    )


def _tell(found: Canceled, after: Progress, ledgers: Ledgers, options: LocationOptions) -> None:
    from marigold_assets.cli.resuming import how_to_go_on

    if found.is_over:
        click.echo(f"Canceled after {found.seconds:.0f} s: no run of {after.name} is left, and none can start.")
    elif not found.unfinished:
        click.echo(
            f"After {found.seconds:.0f} s no run of {after.name} is left, but the daemon has not agreed yet that it is"
            f" over: does one run? Look: marigold status {after.name}"
        )
    else:
        click.echo(
            f"After {found.seconds:.0f} s {len(found.unfinished)} of its runs have not ended:"
            f" {', '.join(found.unfinished[:3])}. The daemon goes on ending them. Look: marigold status {after.name}"
        )
    for one in after.assets:
        left = one.total - one.done
        click.echo(f"{one.owner}: {one.done:,} of {one.total:,} whole, {left:,} as they were before")
    if not after.is_whole and after.price is not None:
        click.echo(f"Of {after.price.partitions:,} partitions planned, {after.total:,} were launched.")
    if (said := how_to_go_on(after, ledgers, options)) is not None:
        click.echo(said)


def _as_json(found: Canceled, after: Progress, ledgers: Ledgers, options: LocationOptions) -> dict[str, object]:
    from marigold_assets.cli import progress_report
    from marigold_assets.cli.resuming import resume_command

    return {
        "is_over": found.is_over,
        "seconds": round(found.seconds, 1),
        "unfinished_runs": list(found.unfinished),
        "resume": resume_command(after, ledgers, options),
        "status": progress_report.as_json(after),
    }
