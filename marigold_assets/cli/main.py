"""``marigold``: the command and its parts, each of which is imported when it is asked for."""

from __future__ import annotations

import sys
from importlib import import_module
from io import TextIOWrapper
from typing import Any, ClassVar

import click

from marigold_assets.cli.failing import explained


class LazyGroup(click.Group):
    """A group whose commands are imported when they are run: ``--help`` of the whole does without Dagster."""

    parts: ClassVar[dict[str, tuple[str, str]]] = {}
    """By name of the command: where it is (``module:attribute``), and what it does in one line."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - what click calls
        """The names of the commands."""
        return list(self.parts)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """The command of a name, imported."""
        if cmd_name not in self.parts:
            return None
        module, _, attribute = self.parts[cmd_name][0].partition(":")
        found: Any = getattr(import_module(module), attribute)
        return found if isinstance(found, click.Command) else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in self.parts.items()])


class _Marigold(LazyGroup):
    def invoke(self, ctx: click.Context) -> Any:
        _print_whatever_is_to_be_printed()
        with explained():
            return super().invoke(ctx)

    parts: ClassVar = {
        "plan": ("marigold_assets.cli.plan:plan", "What a backfill would do, why, and what it costs."),
        "explain": ("marigold_assets.cli.explain:explain", "Why each partition is in a plan, or is not."),
        "launch": ("marigold_assets.cli.launch:launch", "Launch the backfill that a plan shows."),
        "status": ("marigold_assets.cli.status:status", "How far a backfill has come, and how long it still takes."),
        "cancel": ("marigold_assets.cli.cancel:cancel", "Cancel a backfill; what is built stays, and is whole."),
        "doctor": ("marigold_assets.cli.doctor:doctor", "Whether the instance is really bounded."),
        "versions": ("marigold_assets.cli.versions:versions", "Which code built which partition; accept, lock, prove."),
        "gaps": ("marigold_assets.cli.gaps:gaps", "Which intervals nobody has built, and what fills them."),
        "purity": ("marigold_assets.cli.purity:purity", "Whether an asset depends on nothing but its partition."),
    }


def _print_whatever_is_to_be_printed() -> None:
    """Where the output cannot carry a letter, its code is printed: half a report would be none."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


@click.group("marigold", cls=_Marigold, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="marigold-assets", prog_name="marigold")
def main() -> None:
    """Safe partitioned backfills for Dagster."""
