"""Options that commands share: which code location they are about."""

from __future__ import annotations

import atexit
import functools
import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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


@contextmanager
def without_collector() -> Iterator[None]:
    """Leave cyclic garbage alone within a brief block.

    What is imported and read there stays, and the collector would look through all of it time and again: a quarter of
    the time that it takes to start, and a third of that of a report over 10,000 partitions.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def location_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options that name a code location, as Dagster's own commands have them.

    The command gets them as ``options``, a :class:`marigold_assets.location.LocationOptions`, and runs in the
    environment of Dagster's commands: with the ``.env`` file of the working directory.
    """

    @functools.wraps(command)
    def run(*args: Any, **given: Any) -> Any:
        atexit.register(gc.freeze)  # or the interpreter looks through all of Dagster once more before it ends: 0.2 s
        with without_collector():
            from marigold_assets.location import LocationOptions, environment

        names = LocationOptions.__dataclass_fields__
        options = LocationOptions(**{name: given.pop(name) for name in names})
        with environment():
            return command(*args, options=options, **given)

    for option in reversed(_OPTIONS):
        run = option(run)
    return run
