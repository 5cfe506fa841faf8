"""``marigold explain``: why each partition is in a plan, or is not."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from marigold_assets.cli.options import location_options, without_collector
from marigold_assets.cli.plan_options import request_options

if TYPE_CHECKING:
    from marigold_assets.location import LocationOptions
    from marigold_assets.planning.model import Request


@click.command()
@request_options
@location_options
@click.option("--partition", metavar="KEY", help="Explain this partition alone, input by input.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--all", "everything", is_flag=True, help="Show every line, however many there are.")
def explain(
    request: Request, *, options: LocationOptions, partition: str | None, as_json: bool, everything: bool
) -> None:
    """Explain why each partition of SELECTION is in the plan of the same options and range, or is not.

    \b
    marigold explain daily_sales --from 2024-01-01
    marigold explain 'raw_orders*' --partition 2024-01-20    input by input
    marigold explain 'raw_orders*' --from 2024-01-15 --partition 2024-01-20    as 'plan --from 2024-01-15' has it

    Without --from and --to that is the plan of all partitions: what another range leaves out may be built in it. To
    understand a plan, give the range and the options that it was made with.
    """  # noqa: D301 - click wants the character itself
    with without_collector():
        from marigold_assets.backfill.explaining import explained
        from marigold_assets.cli.plan import make

        plan, gathered = make(request, options)
        found = explained(plan, gathered.states, partition)
        if as_json:
            click.echo(json.dumps(found.to_json(), indent=2))
            return
        from marigold_assets.cli.explain_report import show
        from marigold_assets.cli.rendering import MOST, console

        show(found, to=console(), most=None if everything else MOST)
