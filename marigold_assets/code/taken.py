"""The texts of a project's modules, and of the files of SQL that they name, as they were when they were loaded.

They are taken once for each time that a module is loaded, as soon as an asset is defined after that, and shared by all
assets of the process: to define one more asset costs no look at the modules of the others.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from marigold_assets.code.source import is_followed
from marigold_assets.code.sql_files import SqlFiles, SqlText, sql_text
from marigold_assets.code.texts import Text, text_now


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """What was taken of a module.

    Attributes:
        text: Its text.
        sql: The files of SQL that it names.
    """

    text: Text
    sql: Mapping[Path, SqlText] = field(default_factory=dict)


def taken_for(function: Callable[..., Any], package: str) -> Mapping[str, Taken]:
    """The texts of a function's module and of all modules of its project, by file.

    Args:
        function: The function.
        package: Its top-level package.
    """
    return _of_process().look(function, package)


@cache
def _of_process() -> _Modules:
    return _Modules()


class _Modules:
    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._known: dict[str, tuple[object, object]] = {}
        self._packages: set[str] = set()
        self._taken: dict[str, Taken] = {}
        self._files = SqlFiles()

    def look(self, function: Callable[..., Any], package: str) -> Mapping[str, Taken]:
        with self._lock:
            if package not in self._packages:  # which may be installed, and then was left out so far
                self._packages.add(package)
                self._known = {name: one for name, one in self._known.items() if name.partition(".")[0] != package}
            self._look_at_modules(package)
            code, scope = getattr(function, "__code__", None), getattr(function, "__globals__", {})
            if isinstance(code, CodeType) and not self._is_of_module(scope, code.co_filename):
                self._take(code.co_filename, scope)
            return self._taken

    def _look_at_modules(self, package: str) -> None:
        tops: dict[str, bool] = {}
        for name, module in list(sys.modules.items()):
            known = self._known.get(name)
            if known is not None and known[0] is module and (known[1] is None or known[1] is _loading_of(module)):
                continue
            top = name.partition(".")[0]
            if top not in tops:
                tops[top] = top in self._packages or _may_be_of_project(top, package)
            self._known[name] = (module, None)
            if not tops[top] or not isinstance(module, ModuleType):
                continue
            file = vars(module).get("__file__")
            if isinstance(file, str) and (top in self._packages or is_followed(name, package, module)):
                self._known[name] = (module, _loading_of(module))
                self._take(file, vars(module))

    def _is_of_module(self, scope: Mapping[str, Any], file: str) -> bool:
        """Whether the names around a function are those of a module that was looked at, and of that file."""
        module = sys.modules.get(str(scope.get("__name__", "")))
        return (
            file in self._taken
            and isinstance(module, ModuleType)
            and vars(module) is scope
            and (scope.get("__file__") == file and scope.get("__spec__") is not None)
        )

    def _take(self, file: str, scope: Mapping[str, Any]) -> None:
        text = text_now(file, scope)
        if text is None:
            return
        places = SqlFiles.places(file, scope) if text.sql else None
        paths = {path for name in text.sql for path in self._files.named(name, *places)} if places else ()
        taken = Taken(text=text, sql={path: sql_text(path) for path in sorted(paths)})
        before = self._taken.get(file)
        if before is not None and (before.text is not text or before.sql != taken.sql):
            self._taken = dict(self._taken)  # what was defined before keeps what it was defined with
        self._taken[file] = taken


def _loading_of(module: object) -> object:
    """What is another one whenever a module is loaded again."""
    return vars(module).get("__spec__") or module if isinstance(module, ModuleType) else None


def _may_be_of_project(top: str, package: str) -> bool:
    """Whether a top-level package may hold modules of a project: most of the many that are loaded are installed."""
    module = sys.modules.get(top)
    if not isinstance(module, ModuleType):
        return top == package
    if not isinstance(vars(module).get("__file__"), str):
        return "__path__" in vars(module)  # several folders, each of which may be installed or not
    return is_followed(top, package, module)
