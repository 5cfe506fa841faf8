"""How a command fails: one message on stderr that names the cause, and an exit code."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import click

from marigold_assets.errors import MarigoldError

CANNOT = 2
"""Exit code of a command that cannot do what it is asked; click's own for options that make no sense."""
FOUND = 1
"""Exit code of a command that was to find out whether all is well, where it is not."""


class CannotError(click.ClickException):
    """A command cannot do what it is asked."""

    exit_code = CANNOT


@contextmanager
def explained() -> Iterator[None]:
    """Turn errors that name their cause and its remedy into messages, without a traceback.

    Raises:
        CannotError: There was one.
    """
    try:
        yield
    except MarigoldError as error:
        raise CannotError(str(error)) from error
    except Exception as error:
        dagster = sys.modules.get("dagster")
        if dagster is None or not isinstance(error, dagster.DagsterError):
            raise
        raise CannotError(f"Dagster refuses: {error}") from error
