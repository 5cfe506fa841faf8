"""``marigold purity``: whether an asset depends on nothing but its partition."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import click

from marigold_assets.cli.finite import LONGEST_SECONDS, FiniteRange
from marigold_assets.cli.options import location_options

if TYPE_CHECKING:
    from marigold_assets.location import LocationOptions


@click.command()
@click.argument("asset")
@location_options
@click.option("--sample", default=4, show_default=True, type=click.IntRange(min=1), help="How many partitions to try.")
@click.option("--static", "is_static", is_flag=True, help="Only look at the code; compute nothing.")
@click.option("--seed", type=int, help="Of what is chosen at random; drawn and printed otherwise.")
@click.option("--range", "within", metavar="A...B", help="Partitions to choose from.")
@click.option("--config", type=click.Path(dir_okay=False), help="Run config, as for 'dagster asset materialize'.")
@click.option(
    "--timeout",
    "seconds",
    default=600.0,
    show_default=True,
    type=FiniteRange(min=0, min_open=True, max=LONGEST_SECONDS),
    help="After how many seconds to give up.",
)
@click.option("--strict", is_flag=True, help="Let hints fail, too.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def purity(
    asset: str,
    *,
    options: LocationOptions,
    sample: int,
    is_static: bool,
    seed: int | None,
    within: str | None,
    config: str | None,
    seconds: float,
    strict: bool,
    as_json: bool,
) -> None:
    """Find what ASSET depends on besides its partition: a backfill would not compute what was computed then.

    The code is looked at: clocks, random numbers, the environment, appends, and reads that the ledger does not know, in
    Python and in SQL. Then some partitions are computed twice, the second time in another process with another clock,
    random seed, time zone, hash seed and order of partitions. Nothing is written; but the function and its resources
    are run for real, several times.

    A finding in the code is waived by a comment on its line, or alone on the line before, and what differs in a column
    by metadata of the asset. Neither waives the other: who finds both is told what is missing.

    \b
        # marigold: pure because <reason>
        metadata={"marigold/impure_columns": {"loaded_at": "<reason>"}}

    With --static, ASSET may be any that a Python function makes.

    Exits with 0 if nothing is found, or all of it is waived, 1 otherwise, and 2 if nothing could be judged: also if the
    function does not come to its end within --timeout, or ends the process.
    """  # noqa: D301 - click wants the character itself
    from marigold_assets.cli import purity_report
    from marigold_assets.cli.rendering import console
    from marigold_assets.cli.running import foreign_code
    from marigold_assets.cli.sampling import Wanted, choose, config_of, partitions_store
    from marigold_assets.location import load
    from marigold_assets.replay import refuse_others
    from marigold_assets.trial import try_out

    wanted = Wanted.of(size=sample, everything=False, seed=seed, within=within)
    with foreign_code(asset, seconds=seconds):
        location = load(options, asset)
        found = location.asset(asset)
        if not is_static:
            refuse_others(found)
        findings = purity_report.look_at(location, found)
        trial = None
        if not is_static:
            instance = partitions_store(location, found)
            trial = try_out(
                partial(load, options, asset),
                location,
                found,
                choose(found, wanted, instance).keys,
                seed=wanted.seed,
                instance=instance,
                config=config_of(config),
            )
    report = purity_report.Report(asset=found.owner, findings=findings, trial=trial, is_strict=strict)
    if as_json:
        click.echo(purity_report.as_json(report))
    else:
        purity_report.render(report, to=console())
    if report.exit_code:
        raise click.exceptions.Exit(report.exit_code)
