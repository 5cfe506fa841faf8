"""Reading the definitions that are loaded: what belongs to the project, the source of a function, what it names.

The project is the top-level package of the function that all is about, and modules whose files lie neither in the
standard library nor among the installed packages: a flat project has its helpers in modules beside the definitions.
"""

from __future__ import annotations

import ast
import functools
import inspect
import linecache
import re
import sys
import sysconfig
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

_PLAIN = (str, bytes, int, float, complex, bool, type(None))
_DEEPEST = 50  # containers in containers
_INSTALLED = frozenset({"site-packages", "dist-packages"})
_NEVER = ("dagster", "marigold_assets")  # also where they are run from a checkout


def package_of(value: Any) -> str:
    """The top-level package of a function or class."""
    return str(getattr(value, "__module__", "") or "").partition(".")[0]


def is_followed(module: str, package: str, found: FunctionType | type | ModuleType) -> bool:
    """Whether a module, or something of that module, belongs to the project."""
    top = module.partition(".")[0]
    if top == package:
        return True
    if top in _NEVER:
        return False
    place = found if isinstance(found, ModuleType) else sys.modules.get(module)
    known = vars(place) if isinstance(place, ModuleType) else {}  # and not what it makes up when it is asked
    file = known.get("__file__") or next(iter(known.get("__path__") or ()), None)
    if file is None and place is None and isinstance(found, FunctionType):
        file = found.__globals__.get("__file__")  # of a file that was run without becoming a known module
    return isinstance(file, str) and not is_installed(file)


@functools.cache
def _installed_places() -> tuple[Path, ...]:
    paths = [Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    return tuple({*paths, *(path.resolve() for path in paths)})


@functools.lru_cache(16_384)
def is_installed(file: str) -> bool:
    """Whether a file is of the standard library or of an installed package, also one of the user or the system."""
    return any(
        not _INSTALLED.isdisjoint(path.parts) or any(path.is_relative_to(place) for place in _installed_places())
        for path in (Path(file).absolute(), Path(file).resolve())
    )


def unwrapped(value: Any) -> Iterator[Any]:
    """A value; of what stands in for a function (a cache, some arguments, a method), that function and its values."""
    if isinstance(value, functools.partial):
        yield from unwrapped(value.func)
        yield from value.args
        yield dict(value.keywords)
    elif isinstance(value, staticmethod | classmethod | MethodType):
        yield from unwrapped(value.__func__)
    elif not isinstance(value, FunctionType | type) and isinstance(getattr(value, "__wrapped__", None), FunctionType):
        yield value.__wrapped__
    else:
        yield value


def text_and_names(value: Any) -> tuple[str, tuple[tuple[str, ...], ...]]:
    """The text of a definition as far as it counts, and the names in it, each with the attributes that follow it."""
    source = source_of(value)
    parsed = None if source is None else _parsed(source)
    if parsed is not None:
        return parsed
    if isinstance(value, FunctionType):
        return bytecode(value.__code__), tuple(dict.fromkeys((word,) for word in words_of(value.__code__)))
    return "pass", ()


def source_of(value: Any) -> str | None:
    """The source of a definition, if there is any."""
    try:
        if isinstance(value, FunctionType):
            # Of its own code: the source of what wraps another is otherwise that of the other.
            file, start = value.__code__.co_filename, value.__code__.co_firstlineno - 1
            lines = _lines_of(file, value.__globals__)
        else:
            module = sys.modules.get(value.__module__)
            file = getattr(module, "__file__", None) or ""
            lines = _lines_of(file, vars(module) if module else {})
            found = _start_of_class(value, lines)
            if found is None:
                return inspect.getsource(value)
            start = found
        return _block(file, start, linecache.cache.get(file, ())[:2])
    except (OSError, TypeError, SyntaxError):
        return None


@functools.lru_cache(4_096)
def _block(file: str, start: int, _version: object) -> str | None:
    """The definition that starts at a line: many assets use the same helpers."""
    return "".join(inspect.getblock(linecache.getlines(file)[start:])) or None


def _lines_of(file: str, scope: dict[str, Any]) -> list[str]:
    linecache.checkcache(file)
    return linecache.getlines(file, scope)


def _start_of_class(value: type, lines: Sequence[str]) -> int | None:
    """Where a class begins, with its decorators; ``None`` where only parsing all of its module would tell."""
    start = re.compile(rf"class\s+{re.escape(value.__qualname__)}\b")
    found = [number for number, line in enumerate(lines) if line.startswith("class") and start.match(line)]
    if len(found) != 1:
        return None
    [number] = found
    while number and lines[number - 1].startswith("@"):
        number -= 1
    before = lines[number - 1].rstrip() if number else ""
    return (
        None if before.startswith((" ", "\t", ")", "]", "}", "#")) else number
    )  # perhaps of a decorator of many lines


@functools.lru_cache(4_096)
def _parsed(source: str) -> tuple[str, tuple[tuple[str, ...], ...]] | None:
    """The text of a definition, without docstrings and decorators, and the names in it; ``None`` if it is not whole."""
    try:
        tree = ast.parse(textwrap.dedent(source))
    except SyntaxError:
        return None
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            first = node.body[0]
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                node.body = node.body[1:] or [ast.Pass()]
    if isinstance(outer := tree.body[0], ast.FunctionDef):
        outer.decorator_list = []  # the asset's metadata is not its code
    return ast.unparse(tree), tuple(dict.fromkeys(_names_in(tree)))


def bytecode(code: CodeType) -> str:
    """What code without source does, as text: another Python prints another."""
    constants = [bytecode(c) if isinstance(c, CodeType) else plain_text(c) for c in code.co_consts]
    return f"{code.co_code.hex()} {code.co_names} {constants}"


def words_of(code: CodeType) -> Iterator[str]:
    """The names that code without source uses."""
    yield from (*code.co_names, *code.co_freevars)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from words_of(constant)


def default_values(function: FunctionType) -> Sequence[Any]:
    """The values of a function's defaults."""
    return (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values())


def _names_in(tree: ast.AST) -> Iterator[tuple[str, ...]]:
    """Names that are read, with the attributes that follow them: ``helpers.clean`` is ``("helpers", "clean")``."""
    for node in ast.walk(tree):
        path: list[str] = []
        root = node
        while isinstance(root, ast.Attribute):
            path.insert(0, root.attr)
            root = root.value
        if isinstance(root, ast.Name):
            yield (root.id, *path)


def scope_of(value: Any) -> Mapping[str, Any]:
    """What the names in a definition stand for, but for its own."""
    if isinstance(value, FunctionType):
        return {**value.__globals__, **closure_of(value)}
    module = inspect.getmodule(value)
    return {} if module is None else vars(module)


def closure_of(function: FunctionType) -> Mapping[str, Any]:
    """The values of the names that a function takes from around it, as far as they have any yet."""
    found = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with suppress(ValueError):
            found[name] = cell.cell_contents
    return found


def is_written(value: object) -> bool:
    """Whether something is a function that is written somewhere: ``dataclass`` makes others."""
    return isinstance(value, FunctionType) and value.__code__.co_filename != "<string>"


def cells_of_class(found: type) -> Mapping[str, Any]:
    """The values of the names that the methods of a class take from around it."""
    cells: dict[str, Any] = {}
    for value in vars(found).values():
        functions = [value.fget, value.fset, value.fdel] if isinstance(value, property) else unwrapped(value)
        for function in functions:
            if isinstance(function, FunctionType):
                cells |= closure_of(function)
    return cells


NOTHING = object()


def resolve(path: tuple[str, ...], scope: Mapping[str, Any], package: str) -> object:
    """What a name with attributes stands for, as far as it leads into modules of the project; or ``NOTHING``."""
    first, *rest = path
    found = scope.get(first, NOTHING)
    for attribute in rest:
        if not isinstance(found, ModuleType) or not is_followed(found.__name__, package, found):
            break
        found = getattr(found, attribute, NOTHING)
    return found


def is_plain(value: Any, depth: int = 0) -> bool:
    """Whether something is a constant through and through."""
    if depth > _DEEPEST:  # or holds itself
        return False
    if type(value) in {tuple, list, set, frozenset}:  # and not what is derived of them
        return all(is_plain(item, depth + 1) for item in value)
    if type(value) is dict:
        return all(is_plain(key, depth + 1) and is_plain(item, depth + 1) for key, item in value.items())
    return type(value) in _PLAIN


def plain_text(value: object) -> str | None:
    """A plain value as text, the same in every process: sets have no order."""
    if not is_plain(value):
        return None
    if isinstance(value, set | frozenset):
        return f"{type(value).__name__}{sorted(map(str, map(plain_text, value)))}"
    if isinstance(value, tuple | list):
        return f"{type(value).__name__}{[plain_text(item) for item in value]}"
    if isinstance(value, dict):
        return f"dict{[(plain_text(key), plain_text(item)) for key, item in value.items()]}"
    return ascii(value)
