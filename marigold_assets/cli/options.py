"""Options that commands share: which code location they are about."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click

_OPTIONS = (
    click.option("-f", "--python-file", envvar="DAGSTER_PYTHON_FILE", help="A Python file with the definitions."),
    click.option("-m", "--module-name", envvar="DAGSTER_MODULE_NAME", help="A module with the definitions."),
    click.option(
        "-a", "--attribute", envvar="DAGSTER_ATTRIBUTE", help="Name of the definitions in it, if there are several."
    ),
    click.option(
        "-d", "--working-directory", envvar="DAGSTER_WORKING_DIRECTORY", help="Where it imports other modules from."
    ),
    click.option("-w", "--workspace", multiple=True, help="A workspace file; may be repeated."),
    click.option("-l", "--location", help="Name of one of several code locations."),
)


def location_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options that name a code location, as Dagster's own commands have them.

    The command gets them as ``options``, a :class:`marigold_assets.location.LocationOptions`, and runs in the
    environment of Dagster's commands: with the ``.env`` file of the working directory.
    """

    @functools.wraps(command)
    def run(*args: Any, **given: Any) -> Any:
        from marigold_assets.location import LocationOptions, environment

        names = LocationOptions.__dataclass_fields__
        options = LocationOptions(**{name: given.pop(name) for name in names})
        with environment():
            return command(*args, options=options, **given)

    for option in reversed(_OPTIONS):
        run = option(run)
    return run
