"""Who works here."""

from __future__ import annotations

import getpass
import shutil
import subprocess

import click


def user() -> str:
    """The user of git, since accounts of machines are often shared; or else of the system.

    Raises:
        click.UsageError: Nobody knows.
    """
    git = shutil.which("git")
    if git is not None:
        parts = [_config(git, name) for name in ("user.name", "user.email")]
        if parts[0]:
            return f"{parts[0]} <{parts[1]}>" if parts[1] else parts[0]
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        raise click.UsageError("Nobody knows who you are: give --by NAME.") from None


def _config(git: str, name: str) -> str:
    found = subprocess.run([git, "config", "--get", name], capture_output=True, text=True, check=False)  # noqa: S603
    return found.stdout.strip()
