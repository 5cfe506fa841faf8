"""``marigold versions prove``: whether the present code would make what is stored."""

from __future__ import annotations

from pathlib import Path
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
@click.option("--partition", "keys", metavar="KEY", multiple=True, help="A partition to try; may be repeated.")
@click.option("--config", type=click.Path(dir_okay=False), help="Run config, as for 'dagster asset materialize'.")
@click.option("--allow-added", is_flag=True, help="Take columns that are only added for no change.")
@click.option("--lock", "is_locking", is_flag=True, help="If identical, let the lock carry the version over.")
@click.option("--lock-file", type=click.Path(dir_okay=False, path_type=Path), help="The lock, if it is another file.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def prove(
    asset: str,
    *,
    options: LocationOptions,
    sample: int,
    everything: bool,
    seed: int | None,
    within: str | None,
    keys: tuple[str, ...],
    config: str | None,
    allow_added: bool,
    is_locking: bool,
    lock_file: Path | None,
    as_json: bool,
) -> None:
    """Compute stored partitions of ASSET again with the present code, and compare. Nothing is written.

    The partitions are computed from the inputs that they were built from: where one of these was restated since, that
    is said, and nothing is compared. The sample has the first and the last partition, days on which clocks change, the
    largest, an empty one, month ends, and others at random; with --lock, of those that the code in the lock has built,
    as far as there are any.

    The function and its resources are run for real: what else it does, such as writing files, it does.

    With --lock, code that has made what the code before it had made goes by its version from then on: write
    code_versions.lock to the repository, and nobody has to build anything again. Only partitions that the code in the
    lock has built count as a proof of it. Columns that are added are a change then, whatever --allow-added says.

    Exits with 0 if every partition tried is identical, 1 if one differs or fails, 2 if that could not be judged:
    also if the function ends the process, unless compiled code does.
    """
    from marigold_assets.cli import proof_report
    from marigold_assets.cli.carrying import Carrying
    from marigold_assets.cli.rendering import console
    from marigold_assets.cli.running import foreign_code
    from marigold_assets.cli.sampling import Wanted, choose, config_of, partitions_store
    from marigold_assets.location import load
    from marigold_assets.proof import Verdict, verdict
    from marigold_assets.replay import impure_columns, refuse_others, replay

    if keys and (everything or within is not None):
        raise click.UsageError("--partition names the partitions itself: leave out --all and --range.")
    wanted = Wanted.of(size=sample, everything=everything, seed=seed, within=within, keys=keys)
    with foreign_code(asset):
        location = load(options, asset)
        found = location.asset(asset)
        refuse_others(found)
        lock = Carrying.of(location, found, options, lock_file) if is_locking else None
        instance = partitions_store(location, found)
        sampled = choose(found, wanted, instance, preferred=None if lock is None else lock.proves())
        replayed = replay(location, found, sampled.keys, instance=instance, config=config_of(config))
    # Code that adds columns is not the code before it: no lock has it go by the same version.
    result = verdict(replayed, allow_added=allow_added and lock is None)
    is_proven = result is Verdict.IDENTICAL
    report = proof_report.Report(
        asset=found.owner,
        sampled=sampled,
        seed=None if wanted.size is None else wanted.seed,
        replayed=replayed,
        verdict=result,
        left_out=impure_columns(found),
        carried_over=None if lock is None else lock.carry_over(replayed, sampled, wanted, is_proven=is_proven),
        is_carried_over=lock is not None and is_proven,
    )
    if as_json:
        click.echo(proof_report.as_json(report))
    else:
        proof_report.render(report, to=console())
    if not is_proven:
        raise click.exceptions.Exit(result.value)
