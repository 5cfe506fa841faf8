"""``marigold versions``: which code built which partition of an asset, and what to do about a mixture."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, ClassVar

import click

from marigold_assets.cli.failing import FOUND, CannotError
from marigold_assets.cli.main import LazyGroup
from marigold_assets.cli.options import location_options, without_collector
from marigold_assets.errors import ConfigurationError

if TYPE_CHECKING:
    from marigold_assets.location import LocationOptions

_HELP = ("-h", "--help")


class _Versions(LazyGroup):
    """The first word is a command, or else an asset: ``show`` need not be said."""

    parts: ClassVar = {
        "show": ("marigold_assets.cli.versions:show", "Report the versions of an asset; 'show' may be left out."),
        "accept": ("marigold_assets.cli.accepting:accept", "Accept partitions as they were built, on the record."),
        "lock": ("marigold_assets.cli.lock:lock", "Write down which code goes by which version."),
        "check": ("marigold_assets.cli.lock:check", "Fail where code has changed and its version has not."),
        "prove": ("marigold_assets.cli.prove:prove", "Compute stored partitions again and compare."),
    }

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in self.parts and args[0] not in _HELP:
            args = ["show", *args]
        return super().parse_args(ctx, args)


@click.group(cls=_Versions)
def versions() -> None:
    """Which code built which partition of an asset.

    \b
    marigold versions ASSET             what there is
    marigold versions accept ASSET ...  accept a mixture
    marigold versions -- lock           an asset that is called like a command
    """  # noqa: D301 - click wants the character itself


@click.command()
@click.argument("asset")
@location_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--all", "everything", is_flag=True, help="Show every line, however many there are.")
@click.option("--sql", is_flag=True, help="Print a SELECT of the rows with the version of their partition beside them.")
@click.option(
    "--check", is_flag=True, help="Exit with 1 if anything is odd, stale, in disagreement or cannot be judged."
)
def show(asset: str, *, options: LocationOptions, as_json: bool, everything: bool, sql: bool, check: bool) -> None:
    """Report which code built which partition of ASSET, what is stale, and where event log and ledger differ.

    ASSET is its key, such as sales/daily.
    """
    with without_collector(), _commands_meant(asset):
        is_well = _show(asset, options, as_json=as_json, everything=everything, sql=sql)
    if check and not is_well:
        raise click.exceptions.Exit(FOUND)


@contextmanager
def _commands_meant(word: str) -> Iterator[None]:
    """What is no asset may be a command with a slip in it."""
    try:
        yield
    except ConfigurationError as error:
        meant = difflib.get_close_matches(word, _Versions.parts, n=1)
        if not meant or error.where.get("asset") is not None:
            raise
        raise CannotError(f"{error}\nOr is the command meant: marigold versions {meant[0]}?") from error


def _print_exactly(text: str) -> None:
    """Print SQL, or nothing: with a letter put otherwise it would be another SELECT.

    Raises:
        CannotError: The output cannot carry it.
    """
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        raise CannotError(
            f"The output is in {sys.stdout.encoding}, which lacks letters of the SELECT. Remedy: set"
            " PYTHONIOENCODING=utf-8."
        ) from None
    click.echo(text)


def _show(asset: str, options: LocationOptions, *, as_json: bool, everything: bool, sql: bool) -> bool:
    from marigold_assets.location import load
    from marigold_assets.surveying.gathering import gather
    from marigold_assets.surveying.survey import survey

    location = load(options, asset)
    found = location.asset(asset)
    if sql:
        found.refuse_missing_database()
        _print_exactly(found.store.versions_query(found.table))
        return True
    report = survey(gather(location, found, options), now=datetime.now(UTC))
    if as_json:
        from marigold_assets.cli.as_json import dumps, of_survey

        click.echo(dumps(of_survey(report)))
    else:
        from marigold_assets.cli.rendering import MOST, console, render

        render(report, to=console(), most=None if everything else MOST)
    return report.is_well
