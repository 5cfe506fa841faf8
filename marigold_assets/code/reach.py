"""Whether the code of a function shows that it touches nothing but its arguments: no file, no program, no connection.

In doubt it may touch something. Names are followed as for the fingerprint (:mod:`marigold_assets.code.loaded`);
everything else that the function names must come from a library that works on values alone.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections import deque
from collections.abc import Callable
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

from marigold_assets.code import source

_OF_VALUES = frozenset(
    [
        *("pandas", "polars", "pyarrow", "numpy", "dateutil", "pytz", "dagster"),
        *("abc", "bisect", "calendar", "collections", "copy", "dataclasses", "datetime", "decimal", "enum"),
        *("fractions", "functools", "hashlib", "heapq", "itertools", "json", "math", "numbers", "operator", "random"),
        *("re", "statistics", "string", "textwrap", "time", "typing", "unicodedata", "uuid", "warnings", "zoneinfo"),
        *("__future__", "typing_extensions"),
    ]
)
_WORDS_OF_PLACES = re.compile(
    r"(read|scan|write|sink)_.*|to_(sql|parquet|csv|json|pickle|excel|feather|hdf|orc|stata|markdown|html|xml|latex)"
    r"|resources|instance|open|connect|load|dump|save|savez|fromfile|tofile|memmap|dataset|parquet|csv|fs"
    r"|sql|SQLContext|loadtxt|genfromtxt|savetxt|OSFile|memory_map|open_.*|(in|out)put_stream|.*FileSystem"
    r"|HDFStore|Excel(File|Writer)|Pipes.*|materialize.*|execute_.*|load_asset_value"
)
_FUNCTIONS_OF_PLACES = frozenset(["open", "exec", "eval", "compile", "input", "__import__", "globals", "breakpoint"])
_MOST = 200  # definitions that are followed


def touches_only_its_arguments(function: Callable[..., Any]) -> bool:
    """Whether nothing in a function, and in what it uses of its own project, reaches out of it."""
    package = source.package_of(function)
    due: deque[Any] = deque([function])
    seen: dict[int, Any] = {}
    while due:
        value = due.popleft()
        if id(value) in seen:
            continue
        seen[id(value)] = value
        if len(seen) > _MOST or not _stays_within(value, package, due):
            return False
    return True


def _stays_within(value: Any, package: str, due: deque[Any]) -> bool:
    """Whether one definition does, as far as what it names of the project does, which is due then."""
    if source.source_of(value) is None:
        return False
    text, paths = source.text_and_names(value)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            return False
        if isinstance(node, ast.Attribute) and _WORDS_OF_PLACES.fullmatch(node.attr):
            return False
        if isinstance(node, ast.arg) and isinstance(node.annotation, ast.Constant):
            return False  # the name of a class in quotes
    scope = source.scope_of(value)
    objects = [found for path in paths for found in source.unwrapped(_named(path, scope, package))]
    if isinstance(value, FunctionType):
        objects += [one for default in source.default_values(value) for one in source.unwrapped(default)]
    return all(_is_harmless(found, package, due) for found in objects)


def _named(path: tuple[str, ...], scope: Any, package: str) -> object:
    """What a name stands for; ``None``, which is harmless, if it is one of the function's own."""
    found = source.resolve(path, scope, package)
    if found is not source.NOTHING:
        return found
    if path[0] in scope:  # of a module that does not have it
        return source.NOTHING
    return getattr(builtins, path[0], None)


def _is_harmless(found: object, package: str, due: deque[Any]) -> bool:
    if source.is_plain(found):
        return True
    if isinstance(found, ModuleType):
        return _is_of_values(found.__name__)
    if isinstance(found, FunctionType | type):
        if source.is_followed(str(found.__module__), package, found):
            due.append(found)
            return True
        is_of_values = found.__module__ == "builtins" or _is_of_values(str(found.__module__))
        return is_of_values and not _WORDS_OF_PLACES.fullmatch(found.__name__)
    name = str(getattr(found, "__name__", ""))
    if getattr(found, "__module__", None) == "builtins":
        return name not in _FUNCTIONS_OF_PLACES
    of = found.__module__ if isinstance(found, BuiltinFunctionType) else type(found).__module__
    return _is_of_values(str(of)) and not _WORDS_OF_PLACES.fullmatch(name)


def _is_of_values(module: str) -> bool:
    return module.partition(".")[0] in _OF_VALUES
