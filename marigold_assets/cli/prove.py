"""``marigold versions prove``: whether the present code would make what is stored."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from typing import TYPE_CHECKING

import click

from marigold_assets.cli.options import location_options

if TYPE_CHECKING:
    from marigold_assets.location import LocationOptions


@click.command()
@click.argument("asset")
@location_options
@click.option("--sample", default=12, show_default=True, type=click.IntRange(min=1), help="How many partitions to try.")
@click.option("--all", "everything", is_flag=True, help="Try all partitions that were built, or all of --range.")
@click.option("--seed", type=int, help="Of what is sampled at random; drawn and printed otherwise.")
@click.option("--range", "within", metavar="A...B", help="Partitions to choose from.")
@click.option("--config", type=click.Path(dir_okay=False), help="Run config, as for 'dagster asset materialize'.")
@click.option("--allow-added", is_flag=True, help="Take columns that are only added for no change.")
@click.option("--lock", "is_locking", is_flag=True, help="If identical, let the version lock carry the version over.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def prove(
    asset: str,
    *,
    options: LocationOptions,
    sample: int,
    everything: bool,
    seed: int | None,
    within: str | None,
    config: str | None,
    allow_added: bool,
    is_locking: bool,
    as_json: bool,
) -> None:
    """Compute stored partitions of ASSET again with the present code, and compare. Nothing is written.

    The partitions are computed from the inputs that they were built from: where one of these was restated since, that
    is said, and nothing is compared. The sample has the first and the last partition, days on which clocks change, the
    largest, an empty one, month ends, and others at random.

    The function and its resources are run for real: what else it does, such as writing files, it does.

    Exits with 0 if every partition tried is identical, 1 if one differs or fails, 2 if that could not be judged.
    """
    from marigold_assets.cli import proof_report
    from marigold_assets.cli.gathering import event_log
    from marigold_assets.cli.rendering import console
    from marigold_assets.cli.sampling import Wanted, choose, config_of
    from marigold_assets.location import load
    from marigold_assets.proof import Verdict, verdict
    from marigold_assets.replay import impure_columns, refuse_others, replay

    wanted = Wanted.of(size=sample, everything=everything, seed=seed, within=within)
    with redirect_stdout(sys.stderr):  # what the code prints
        location = load(options, asset)
        found = location.asset(asset)
        refuse_others(found)
        instance = event_log()
        sampled = choose(found, wanted, instance)
        replayed = replay(location, found, sampled.keys, instance=instance, config=config_of(config))
    result = verdict(replayed, allow_added=allow_added)
    report = proof_report.Report(
        asset=found.owner,
        sampled=sampled,
        seed=None if wanted.size is None else wanted.seed,
        replayed=replayed,
        verdict=result,
        left_out=impure_columns(found),
    )
    if as_json:
        click.echo(proof_report.as_json(report))
    else:
        proof_report.render(report, to=console())
    if result is not Verdict.IDENTICAL:
        raise click.exceptions.Exit(result.value)
