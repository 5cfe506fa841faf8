"""What has become of files of SQL that a module names: read when it was loaded, or left to be read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import PurePath
from typing import cast

from marigold_assets.code.source import is_plain, plain_text
from marigold_assets.code.values import order

_DEEPEST = 4
_CONTAINERS = (list, tuple, set, frozenset)


def read_already(live: object) -> str | None:
    """The text that a module has read from files of SQL, if it has."""
    if isinstance(live, str):
        return None if live.endswith(".sql") else "\n".join(live.splitlines())
    if isinstance(live, list | tuple | dict) and is_plain(live):
        items = sorted(live.items(), key=order) if isinstance(live, dict) else live
        texts = [one for item in items for one in (item if isinstance(item, tuple) else (item,))]
        if any(isinstance(one, str) and "\n" in one and not one.endswith(".sql") for one in texts):
            return plain_text(list(items))
    return None


def names_sql(live: object, is_of_project: Callable[[object], bool], depth: int = 0) -> bool:
    """Whether something holds the name of a file of SQL: then it is read later."""
    if isinstance(live, str | PurePath):
        return str(live).endswith(".sql")
    if depth >= _DEEPEST:
        return False
    return any(names_sql(one, is_of_project, depth + 1) for one in _held(live, is_of_project))


def _held(live: object, is_of_project: Callable[[object], bool]) -> Iterator[object]:
    if type(live) is dict:
        yield from (*live.keys(), *live.values())
    elif type(live) in _CONTAINERS:  # and not what is derived of them, which may not be iterated over
        yield from cast("Iterable[object]", live)
    elif isinstance(live, type):
        yield from (value for name, value in vars(live).items() if not name.startswith("__"))
    elif is_of_project(type(live)):
        yield from getattr(live, "__dict__", {}).values()


def is_done(live: object, is_of_project: Callable[[object], bool]) -> bool:
    """Whether what a name of a module stands for can read nothing any more: then what has made it is at its end."""
    if names_sql(live, is_of_project):
        return False
    is_container = isinstance(live, list | tuple | set | frozenset | dict)
    return is_plain(live) or not (is_container or callable(live) or is_of_project(type(live)))
