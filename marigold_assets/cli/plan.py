"""``marigold plan``: what a backfill would do, why, in which order, and what it costs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from marigold_assets.cli.failing import CannotError
from marigold_assets.cli.options import location_options, without_collector
from marigold_assets.cli.plan_options import request_options

if TYPE_CHECKING:
    from marigold_assets.backfill.gathering import Gathered
    from marigold_assets.location import LocationOptions
    from marigold_assets.planning.model import BackfillPlan, Request

NOT_EMPTY = 3
"""Exit code of ``--exit-code`` where not everything is built that was asked for, or some of it is stale."""


@click.command()
@request_options
@location_options
@click.option("--json", "as_json", is_flag=True, help="Print the plan as JSON.")
@click.option(
    "--exit-code",
    is_flag=True,
    help=f"Exit with {NOT_EMPTY} unless all is built: if there is something to build, blocked, or stale through what"
    " this plan does not build.",
)
@click.option(
    "--save",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write the plan to a file, for 'marigold launch --plan FILE'.",
)
@click.option("--all", "everything", is_flag=True, help="Show every line, however many there are.")
def plan(
    request: Request,
    *,
    options: LocationOptions,
    as_json: bool,
    exit_code: bool,
    save: Path | None,
    everything: bool,
) -> None:
    """Show what a backfill of SELECTION would do, and what it costs; nothing is launched and nothing is written.

    SELECTION is in Dagster's syntax: an asset's key, 'raw_orders+' with what reads it, 'raw_orders*' with all that is
    downstream, 'group:market', '*'.

    \b
    marigold plan raw_orders
    marigold plan 'raw_orders*' --from 2024-01-01 --to 2024-03-31
    marigold plan sales_to_date --stale --exit-code    for CI: 3 if anything is stale
    marigold plan daily_sales --from 2024-01-05 --to 2024-01-05 --restate --save plan.json
    """  # noqa: D301 - click wants the character itself
    with without_collector():
        found, gathered = make(request, options)
        if save is not None:
            _save(found, save)
        if as_json:
            from marigold_assets.planning.as_json import to_json

            click.echo(json.dumps(to_json(found), indent=2))
        else:
            from marigold_assets.cli.plan_report import Page
            from marigold_assets.cli.rendering import MOST, console

            orders = {one.owner: one.keys for one in gathered.states}
            page = Page(found, orders=orders, to=console(), most=None if everything else MOST)
            page.show()
            page.show_next(options.arguments(), saved=save)
    if exit_code and not found.is_done:
        raise click.exceptions.Exit(NOT_EMPTY)


def make(request: Request, options: LocationOptions) -> tuple[BackfillPlan, Gathered]:
    """Make a plan, and tell what it was made from."""
    from datetime import UTC, datetime

    from marigold_assets.backfill.gathering import gather_states, live_instance, plan_of
    from marigold_assets.location import load

    location = load(options)
    now = datetime.now(UTC)
    with live_instance() as instance:
        gathered = gather_states(location, request, instance=instance, now=now, options=options)
        return plan_of(gathered, request, instance=instance, now=now), gathered


def _save(plan: BackfillPlan, path: Path) -> None:
    """Write a plan; a file that holds something else is left alone.

    Raises:
        CannotError: It cannot be written, or holds something else.
    """
    from marigold_assets.planning.as_json import from_json, to_json

    try:
        if path.exists():
            from_json(json.loads(path.read_text("utf-8")))
    except Exception as error:
        raise CannotError(f"{path} exists and holds no plan. Remedy: name another file.") from error
    try:
        path.write_text(json.dumps(to_json(plan), indent=1) + "\n", "utf-8")
    except OSError as error:
        raise CannotError(f"{path} cannot be written: {error.strerror}.") from error
