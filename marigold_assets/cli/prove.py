"""``marigold versions prove``: whether the present code would make what is stored."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from marigold_assets.cli.options import location_options
from marigold_assets.errors import ConfigurationError

if TYPE_CHECKING:
    from marigold_assets.cli.sampling import Sampled, Wanted
    from marigold_assets.location import LocatedAsset, LocationOptions
    from marigold_assets.lock_file import Lock
    from marigold_assets.proof import Replayed


@click.command()
@click.argument("asset")
@location_options
@click.option("--sample", default=12, show_default=True, type=click.IntRange(min=1), help="How many partitions to try.")
@click.option("--all", "everything", is_flag=True, help="Try all partitions that were built, or all of --range.")
@click.option("--seed", type=int, help="Of what is sampled at random; drawn and printed otherwise.")
@click.option("--range", "within", metavar="A...B", help="Partitions to choose from.")
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
    config: str | None,
    allow_added: bool,
    is_locking: bool,
    lock_file: Path | None,
    as_json: bool,
) -> None:
    """Compute stored partitions of ASSET again with the present code, and compare. Nothing is written.

    The partitions are computed from the inputs that they were built from: where one of these was restated since, that
    is said, and nothing is compared. The sample has the first and the last partition, days on which clocks change, the
    largest, an empty one, month ends, and others at random.

    The function and its resources are run for real: what else it does, such as writing files, it does.

    With --lock, code that has made what the code before it had made goes by its version from then on: write
    code_versions.lock to the repository, and nobody has to build anything again.

    Exits with 0 if every partition tried is identical, 1 if one differs or fails, 2 if that could not be judged.
    """
    from marigold_assets.cli import proof_report
    from marigold_assets.cli.rendering import console
    from marigold_assets.cli.sampling import Wanted, choose, config_of, partitions_store
    from marigold_assets.location import load
    from marigold_assets.proof import Verdict, verdict
    from marigold_assets.replay import impure_columns, refuse_others, replay

    wanted = Wanted.of(size=sample, everything=everything, seed=seed, within=within)
    lock = _Locking.of(lock_file) if is_locking else None
    with redirect_stdout(sys.stderr):  # what the code prints
        location = load(options, asset)
        found = location.asset(asset)
        refuse_others(found)
        instance = partitions_store(location, found)
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
        carried_over=None if lock is None else lock.carry_over(found, replayed, sampled, wanted),
    )
    if as_json:
        click.echo(proof_report.as_json(report))
    else:
        proof_report.render(report, to=console())
    if result is not Verdict.IDENTICAL:
        raise click.exceptions.Exit(result.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Locking:
    """The lock that is to carry a version over."""

    path: Path
    lock: Lock

    @classmethod
    def of(cls, path: Path | None) -> _Locking:
        """Read it before anything is computed.

        Raises:
            ConfigurationError: There is none, or it cannot be read.
        """
        from marigold_assets.cli.lock import default_file
        from marigold_assets.lock_file import Lock

        found = path or default_file(Path.cwd())
        return cls(path=found, lock=Lock.load(found))

    def carry_over(
        self, asset: LocatedAsset, replayed: Sequence[Replayed], sampled: Sampled, wanted: Wanted
    ) -> str | None:
        """Have the present code go by the version of the code before it, if that is proven.

        Returns:
            What was done, in words; ``None`` if nothing is proven.

        Raises:
            ConfigurationError: The lock does not fit, or nothing that was tried was built by other code.
        """
        from marigold_assets.cli.lock import present_code
        from marigold_assets.lock import Proof, carry_over
        from marigold_assets.proof import Verdict, verdict

        present = present_code(asset)
        if verdict(replayed) is not Verdict.IDENTICAL or present is None:
            return None
        heads = asset.store.heads(asset.table, [one.partition_key for one in replayed])
        of_before = [
            str(key)
            for key, entry in heads.items()
            if entry.provenance.code_version == present.version
            and entry.provenance.code_fingerprint not in {None, present.fingerprint}
        ]
        known = self.lock.assets.get(asset.owner)
        is_due = known is None or known.fingerprint != present.fingerprint
        if is_due and not of_before:
            raise ConfigurationError(
                f"every partition tried was built by the present code, or not under code_version {present.version!r}:"
                " that proves nothing of the code before it",
                remedy="try others with --range, or --all",
                asset=asset.owner,
            )
        how = "all" if wanted.size is None else f"{len(sampled.chosen)} of {sampled.among}, seed {wanted.seed}"
        proof = Proof(partitions=tuple(sorted(of_before)), proven_on=datetime.now(UTC).date(), sample=how)
        after = carry_over(self.lock, asset.owner, present, proof)
        if after == self.lock:
            return f"{self.path} has the present code already"
        after.save(self.path)
        return f"{self.path}: the present code goes by code_version {present.version!r}"
