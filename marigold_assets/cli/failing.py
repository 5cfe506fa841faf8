"""How a command fails: one message on stderr that names the cause, and an exit code."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

import click

from marigold_assets.errors import MarigoldError

CANNOT = 2
"""Exit code of a command that cannot do what it is asked; click's own for options that make no sense."""
FOUND = 1
"""Exit code of a command that was to find out whether all is well, where it is not; of nothing else."""
INTERRUPTED = 130
"""Exit code of a command that somebody has interrupted, as shells have it."""


class CannotError(click.ClickException):
    """A command cannot do what it is asked."""

    exit_code = CANNOT


@contextmanager
def explained() -> Iterator[None]:
    """Turn errors that name their cause and its remedy into messages, without a traceback, and no error into FOUND.

    Raises:
        CannotError: There was one.
        click.exceptions.Exit: Somebody has interrupted, or nobody reads the output any more.
    """
    try:
        yield
    except (click.ClickException, click.exceptions.Exit):
        raise
    except MarigoldError as error:
        raise CannotError(str(error)) from error
    except (KeyboardInterrupt, click.Abort):
        click.echo("Interrupted.", err=True)
        raise click.exceptions.Exit(INTERRUPTED) from None
    except BrokenPipeError:
        # What is left in the buffer would fail once more when Python ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise click.exceptions.Exit(CANNOT) from None
    except (Exception, SystemExit) as error:
        raise CannotError(_unexpected(error)) from error


def _unexpected(error: BaseException) -> str:
    dagster = sys.modules.get("dagster")
    if dagster is not None and isinstance(error, dagster.DagsterError):
        return f"Dagster refuses: {error}"
    if isinstance(error, SystemExit):
        return f"The code of the definitions has ended the process (exit code {error.code})."
    last = "".join(traceback.format_exception_only(error)).strip()
    told = "".join(traceback.format_tb(error.__traceback__))
    return f"{last}\nThis is none of the errors that marigold knows; nothing was found out. Raised at:\n{told.rstrip()}"
