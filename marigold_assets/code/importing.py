"""Imports that a function carries out when it runs: which modules they name, and what those are."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec, resolve_name
from pathlib import Path
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


def import_along(module: str, path: Sequence[str], folder: str) -> None:
    """Import a module of the project and those that a path from it names, as the function will: that is what counts.

    Args:
        module: Its whole name.
        path: The names that follow it.
        folder: Where the function's own modules are imported from, whether or not this process has it on its path.
    """
    for name in (*path, ""):
        if module not in sys.modules and not _import(module, folder):
            return
        found = vars(sys.modules[module])
        if "__path__" not in found or (name in found and not isinstance(found[name], ModuleType)):
            return
        module = f"{module}.{name}"


def import_folder(file: str, scope: Mapping[str, Any]) -> str:
    """The folder that a module was imported from: that above its top-level package.

    Args:
        file: Its file.
        scope: Its names.
    """
    folder = Path(file).absolute().parent
    package = str(scope.get("__package__") or "")
    return str(folder.parents[package.count(".")] if package else folder)


def spec_of(module: str, folder: str) -> ModuleSpec | None:
    """What is known of a top-level module that is not loaded: beside the importing one before anywhere else."""
    if not module:
        return None
    beside = None if module in sys.stdlib_module_names else PathFinder.find_spec(module, [folder])
    return beside or find_spec(module)


def _import(module: str, folder: str) -> bool:
    top = module.partition(".")[0]
    is_beside = top not in sys.modules and top not in sys.stdlib_module_names and folder not in sys.path[:1]
    if is_beside:  # a command that has loaded the code from there does not keep it on its path, and a run may have it
        sys.path.insert(0, folder)
    try:
        import_module(module)
    except Exception:  # noqa: BLE001 - a branch that is never run may import what cannot be: then its name counts
        return False
    finally:
        if is_beside and folder in sys.path:
            sys.path.remove(folder)
    return module in sys.modules
