"""Where the version lock of a project is, if nobody says."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from marigold_assets.lock_file import FILE

if TYPE_CHECKING:
    from marigold_assets.loading import LocationOptions

PROJECT = "pyproject.toml"


def lock_path(options: LocationOptions) -> Path:
    """Where the lock file is if nobody says: beside the project's file at or above the definitions.

    Where there is none, a lock file that is at or above the working directory is taken before a new one is begun.
    """
    here = Path.cwd()
    starts = [Path(one).absolute().parent for one in (options.python_file, *options.workspace) if one is not None]
    folder = starts[0] if starts else Path(options.working_directory or here).absolute()
    return _above(folder) or _above(here) or folder / FILE


def _above(folder: Path) -> Path | None:
    for one in (folder, *folder.parents):
        if (one / FILE).exists() or (one / PROJECT).exists():
            return one / FILE
        if (one / ".git").exists():
            break
    return None
