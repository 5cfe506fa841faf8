"""Imports that a function carries out when it runs: which modules they name, and what those are."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.util import resolve_name
from types import ModuleType
from typing import Any


def absolute_name(module: str, level: int, scope: Mapping[str, Any]) -> str:
    """The whole name of the module that an import names.

    Args:
        module: What the import says.
        level: The dots before it.
        scope: The names of the module that it stands in.
    """
    if not level:
        return module
    package = scope.get("__package__")
    if package is None:
        package = str(scope.get("__name__", "")).rpartition(".")[0]
    try:
        return resolve_name("." * level + module, package)
    except ImportError:
        return module


def import_along(module: str, path: Sequence[str]) -> None:
    """Import a module of the project and those that a path from it names, as the function will: that is what counts."""
    for name in (*path, ""):
        if module not in sys.modules and not _import(module):
            return
        found = vars(sys.modules[module])
        if "__path__" not in found or (name in found and not isinstance(found[name], ModuleType)):
            return
        module = f"{module}.{name}"


def _import(module: str) -> bool:
    try:
        import_module(module)
    except Exception:  # noqa: BLE001 - a branch that is never run may import what cannot be: then its name counts
        return False
    return module in sys.modules
