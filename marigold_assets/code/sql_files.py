"""Files of SQL that code names: beside its module, below it, or in its package."""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

_MOST = 20_000  # entries of folders that are looked at: a project may keep its data beside its code
_LEFT_OUT = frozenset({"site-packages", "dist-packages", "node_modules", "__pycache__"})


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlText:
    """The text of a file of SQL.

    Attributes:
        text: The text.
        version: What of the file is another if its text is: times in ns, size in bytes, number; ``None``: not there.
    """

    text: str
    version: tuple[int, ...] | None


def sql_text(path: Path) -> SqlText:
    """The text of a file of SQL as it is now; each version is read once."""
    return _read(path, version_of(path))


def version_of(path: Path) -> tuple[int, ...] | None:
    """See :class:`SqlText`."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino


@lru_cache(4_096)
def _read(path: Path, version: tuple[int, ...] | None) -> SqlText:
    try:
        text = path.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        text = "cannot be read"
    return SqlText(text=text, version=version)


class SqlFiles:
    """Finds files of SQL; each folder is looked through once."""

    def __init__(self) -> None:
        self._below: dict[Path, Sequence[Path]] = {}

    @staticmethod
    def places(file: str, scope: Mapping[str, Any]) -> tuple[Path, Path]:
        """Where a module is, and where its top-level package is.

        Args:
            file: Its file.
            scope: Its names.
        """
        folder = Path(file).absolute().parent
        package = str(scope.get("__package__") or "")
        return folder, folder.parents[package.count(".") - 1] if package.count(".") else folder

    def named(self, name: str, folder: Path, root: Path) -> Sequence[Path]:
        """The files that a constant may mean.

        Args:
            name: What code says: a path, its end, or a pattern (``.sql`` and ``*.sql`` are all of the folder).
            folder: Where the module of the code is.
            root: Where its top-level package is.
        """
        if "*" not in name and not name.startswith((".sql", "_", "-")):
            for place in (folder, *(one for one in folder.parents if one.is_relative_to(root))):
                if _is_file(place / name):
                    return [place / name]
            ending = "/" + name.lstrip("./")
            return self._first(lambda path: path.as_posix().endswith(ending), folder, root)
        pattern = name if "*" in name else f"*{name}"
        return self._first(lambda path: fnmatch.fnmatch(path.name, pattern.rpartition("/")[2]), folder, root)

    def _first(self, fits: Callable[[Path], bool], folder: Path, root: Path) -> Sequence[Path]:
        for place in dict.fromkeys((folder, root)):
            if place not in self._below:
                self._below[place] = sorted(_sql_below(place))
            if found := [path for path in self._below[place] if fits(path)]:
                return found
        return []


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def _sql_below(folder: Path) -> Iterator[Path]:
    seen = 0
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(one for one in folders if not one.startswith(".") and one not in _LEFT_OUT)
        seen += len(folders) + len(files)
        if seen > _MOST:
            return
        yield from (Path(place, one) for one in files if one.endswith(".sql"))
