"""``marigold versions accept``: partitions are accepted as they were built, on the record, or no longer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from marigold_assets.cli.options import location_options
from marigold_assets.cli.ranges import range_ends
from marigold_assets.cli.who import user
from marigold_assets.errors import ConfigurationError

if TYPE_CHECKING:
    from marigold_assets.location import CodeLocation, LocatedAsset, LocationOptions
    from marigold_assets.model import Acceptance, Definition, LedgerEntry
    from marigold_assets.surveying.agreement import Key

_MOST_NAMED = 5


@click.command()
@click.argument("asset")
@location_options
@click.option("--range", "ranges", multiple=True, metavar="FIRST...LAST", help="Partitions from one to another.")
@click.option("--partition", "single", multiple=True, metavar="KEY", help="One partition; may be repeated.")
@click.option("--all-odd", is_flag=True, help="All that were built under another definition than they should.")
@click.option("--reason", required=True, help="Why; everybody who reads the report sees it.")
@click.option("--until", metavar="DATE", help="When it ends, in UTC: a date is its first moment. Default: never.")
@click.option("--by", metavar="NAME", help="Who accepts. Default: the user of git, or else of the system.")
@click.option("--withdraw", is_flag=True, help="Accept them no longer.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def accept(
    asset: str,
    *,
    options: LocationOptions,
    ranges: tuple[str, ...],
    single: tuple[str, ...],
    all_odd: bool,
    reason: str,
    until: str | None,
    by: str | None,
    withdraw: bool,
    as_json: bool,
) -> None:
    """Accept partitions of ASSET as they were built, although others were built under another definition.

    Who accepts, when, why and until when is written into the ledger. What is built under yet another definition
    afterwards is not accepted by it.
    """
    from marigold_assets.location import load
    from marigold_assets.model import Acceptance

    now = datetime.now(UTC)
    if all_odd and (ranges or single):
        raise click.UsageError("Name the partitions, or give --all-odd: only one of them.")
    if not (ranges or single or all_odd):
        raise click.UsageError("Name the partitions: --range FIRST...LAST, --partition KEY, or --all-odd.")
    if withdraw and (all_odd or until is not None):
        raise click.UsageError("--withdraw goes with --range or --partition, and ends at once.")
    end = now if withdraw else _end(until, now)
    why = _said(reason, "--reason")
    who = _said(by, "--by") if by is not None else user()

    location = load(options, asset)
    found = location.asset(asset)
    chosen = _Choice(location, found, now)
    keys = chosen.odd() if all_odd else chosen.named(ranges, single)
    if withdraw:
        chosen.refuse_not_accepted(keys)
    recorded = [
        Acceptance(
            table=found.table,
            owner=found.owner,
            partition_key=key,
            definition=chosen.definition_of(key),
            accepted_by=who,
            accepted_at=now,
            reason=why,
            until=end,
        )
        for key in keys
    ]
    if recorded:
        found.store.accept(recorded)
    _tell(found, recorded, chosen.keys, withdrawn=withdraw, as_json=as_json)


class _Choice:
    """Which partitions are meant.

    Attributes:
        keys: The partitions of the asset, in order.
        heads: Their newest ledger entries.
    """

    def __init__(self, location: CodeLocation, asset: LocatedAsset, now: datetime) -> None:
        from marigold_assets.surveying.gathering import gather
        from marigold_assets.surveying.survey import mixture_of, retired

        if asset.partitions_def is None:
            raise ConfigurationError(
                "the asset has no partitions, so that nothing in it can be mixed",
                remedy="accept partitions of an asset that has some",
                asset=asset.owner,
            )
        self._asset, self._now = asset, now
        self._evidence = gather(location, asset)
        self._mixture = mixture_of(self._evidence, now, with_retired=True)
        self.heads: Mapping[Key, LedgerEntry] = self._evidence.heads
        self.keys: Sequence[Key] = self._evidence.keys
        # What the asset does not have any more still has rows, and can be accepted as well.
        self._all: Sequence[Key] = [*self.keys, *retired(self.keys, self.heads)]
        self._places = {key: place for place, key in enumerate(self._all)}

    def definition_of(self, key: Key) -> Definition:
        """Under which definition a partition was built."""
        return self._mixture.definition_of(self.heads[key])

    def odd(self) -> list[Key]:
        """Those under another definition than they should, and not accepted yet."""
        return [key for stretch in self._mixture.odd for key in stretch.keys]

    def named(self, ranges: Sequence[str], single: Sequence[str]) -> list[Key]:
        """Those that are named.

        Raises:
            ConfigurationError: There are no such partitions, or some were never built.
        """
        wanted: dict[Key, None] = {}
        for text in ranges:
            first, last = self._ends(text)
            wanted |= dict.fromkeys(self._all[first : last + 1])
        wanted |= dict.fromkeys(self._all[self._place(key)] for key in single)
        if missing := [key for key in wanted if key not in self.heads]:
            raise ConfigurationError(
                f"{len(missing)} of these partitions were never built: {_named(missing)}",
                remedy="name partitions that were built; there is nothing else to accept",
                asset=self._asset.owner,
            )
        return sorted(wanted, key=self._places.__getitem__)

    def refuse_not_accepted(self, keys: Sequence[Key]) -> None:
        """Refuse to withdraw what nobody has accepted.

        Raises:
            ConfigurationError: Some are not accepted.
        """
        from marigold_assets.surveying.survey import accepted_by

        given = self._asset.store.acceptances(self._asset.table)
        standing = accepted_by(given, self.heads, self._now, self._mixture.definition_of)
        if missing := [key for key in keys if key not in standing]:
            raise ConfigurationError(
                f"{len(missing)} of these partitions are not accepted: {_named(missing)}",
                remedy="name those that are: 'marigold versions' lists them",
                asset=self._asset.owner,
            )

    def _ends(self, text: str) -> tuple[int, int]:
        """The places of both ends of a range."""
        ends = range_ends(text, self._places, self._place, asset=self._asset.owner)
        if ends is None:
            raise click.UsageError(f"{text!r} is no range: give FIRST...LAST, with three dots.")
        first, last = ends
        if first < len(self.keys) <= last:
            raise ConfigurationError(
                f"the range {text!r} leads from partitions of the asset to one that it does not have any more",
                remedy="name those that it does not have any more by themselves: --partition KEY",
                asset=self._asset.owner,
            )
        return first, last

    def _place(self, key: str) -> int:
        if key in self._places:
            return self._places[key]
        ends = f", which are {self.keys[0]!r} to {self.keys[-1]!r}" if self.keys else ""
        raise ConfigurationError(
            f"{key!r} is none of its partitions", remedy=f"name some of them{ends}", asset=self._asset.owner
        )


def _end(text: str | None, now: datetime) -> datetime | None:
    if text is None:
        return None
    try:
        given = datetime.fromisoformat(text)
    except ValueError:
        raise click.UsageError(f"--until is {text!r}: give a date, such as 2026-12-31.") from None
    end = given.replace(tzinfo=UTC) if given.tzinfo is None else given.astimezone(UTC)
    if end <= now:
        raise click.UsageError(f"--until is {text!r}, which is past: give a date in the future, in UTC.")
    return end


def _said(text: str, option: str) -> str:
    if not text.strip():
        raise click.UsageError(f"{option} is blank.")
    return text.strip()


def _named(keys: Sequence[Key]) -> str:
    more = f" and {len(keys) - _MOST_NAMED} more" if len(keys) > _MOST_NAMED else ""
    return ", ".join(map(repr, keys[:_MOST_NAMED])) + more


def _tell(
    asset: LocatedAsset, recorded: Sequence[Acceptance], keys: Sequence[Key], *, withdrawn: bool, as_json: bool
) -> None:
    if as_json:
        from marigold_assets.cli.as_json import dumps, of_acceptances

        click.echo(dumps(of_acceptances(asset.owner, recorded, keys, withdrawn=withdrawn)))
        return
    from marigold_assets.cli.rendering import console, render_acceptances

    render_acceptances(asset.owner, recorded, keys, to=console(), withdrawn=withdrawn)
