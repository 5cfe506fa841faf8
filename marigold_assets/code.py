"""The code fingerprint of a function: another one whenever its code, or code of its own package that it uses, is.

What counts is the syntax tree, printed: comments, layout and docstrings do not. Functions, classes and plain constants
that the function names are followed as long as they belong to the same top-level package; other packages are not looked
into, nor what is imported within a function, nor objects and what they hold.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import inspect
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

PREFIX = "cf1"
_PLAIN = (str, bytes, int, float, complex, bool, type(None))


def code_fingerprint(function: Callable[..., Any]) -> str:
    """Name the code of a function.

    Args:
        function: A Python function.

    Returns:
        ``cf1:`` and 16 hex digits.
    """
    parts: dict[int, tuple[Any, list[str]]] = {}
    _collect(function, _package_of(function), parts)
    lines = [function.__qualname__, *sorted(line for _, own in parts.values() for line in own)]
    return f"{PREFIX}:{hashlib.sha256(chr(10).join(lines).encode()).hexdigest()[:16]}"


def _package_of(value: Any) -> str:
    return str(getattr(value, "__module__", "") or "").partition(".")[0]


def _collect(value: Any, package: str, parts: dict[int, tuple[Any, list[str]]]) -> None:
    """Add the text of a function or class, and of everything of its package that it names.

    Args:
        value: The function or class.
        package: The package.
        parts: By identity, since names are not unique (``<lambda>``): what was seen, and its lines.
    """
    if id(value) in parts:
        return
    name = f"{value.__module__}.{value.__qualname__}"
    lines: list[str] = []
    parts[id(value)] = value, lines
    tree = _tree_of(value)
    text = _bytecode(value.__code__) if tree is None and isinstance(value, FunctionType) else ast.unparse(tree or _NONE)
    lines.append(f"{name}\t{text}")
    if isinstance(value, FunctionType):
        lines += [f"{name}=\t{_plain_text(default)}" for default in _default_values(value)]
    paths = (
        {(word,): None for word in _words_of(getattr(value, "__code__", None))}
        if tree is None
        else dict.fromkeys(_names_in(tree))
    )
    scope = _scope_of(value)
    for path in paths:
        for found in _unwrapped(_resolve(path, scope, package)):
            if isinstance(found, FunctionType | type):
                if _package_of(found) == package:
                    _collect(found, package, parts)
            elif (constant := _plain_text(found)) is not None:
                lines.append(f"{name}:{'.'.join(path)}\t{constant}")
    for wrapped in _unwrapped(getattr(value, "__wrapped__", _NOTHING)):  # it is the source of the wrapper that was read
        if isinstance(wrapped, FunctionType):
            _collect(wrapped, package, parts)


def _unwrapped(value: Any) -> Iterator[Any]:
    """A value; of what stands in for a function (a cache, some arguments, a method), that function and its values."""
    if isinstance(value, functools.partial):
        yield from _unwrapped(value.func)
        yield from value.args
        yield dict(value.keywords)
    elif isinstance(value, staticmethod | classmethod | MethodType):
        yield from _unwrapped(value.__func__)
    elif not isinstance(value, FunctionType | type) and isinstance(getattr(value, "__wrapped__", None), FunctionType):
        yield value.__wrapped__
    else:
        yield value


def _tree_of(value: Any) -> ast.AST | None:
    """The syntax tree of a definition, without docstrings and decorators; ``None`` where there is no source."""
    try:
        # Of a function's own code: the source of what wraps another is otherwise that of the other.
        source = value.__code__ if isinstance(value, FunctionType) else value
        tree = ast.parse(textwrap.dedent(inspect.getsource(source)))
    except (OSError, TypeError, SyntaxError, IndentationError):
        return None
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            first = node.body[0]
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                node.body = node.body[1:] or [ast.Pass()]
    if isinstance(outer := tree.body[0], ast.FunctionDef):
        outer.decorator_list = []  # the asset's metadata is not its code
    return tree


def _bytecode(code: CodeType) -> str:
    constants = [_bytecode(c) if isinstance(c, CodeType) else _plain_text(c) for c in code.co_consts]
    return f"{code.co_code.hex()} {code.co_names} {constants}"


def _words_of(code: CodeType | None) -> Iterator[str]:
    """The names that code without source uses."""
    if code is not None:
        yield from (*code.co_names, *code.co_freevars)
        for constant in code.co_consts:
            if isinstance(constant, CodeType):
                yield from _words_of(constant)


def _default_values(function: FunctionType) -> Sequence[Any]:
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


def _scope_of(value: Any) -> Mapping[str, Any]:
    if isinstance(value, FunctionType):
        return {**value.__globals__, **_closure(value)}
    module = inspect.getmodule(value)
    return {} if module is None else vars(module)


def _closure(function: FunctionType) -> Mapping[str, Any]:
    """The values of the names that a function takes from around it, as far as they have any yet."""
    found = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with suppress(ValueError):
            found[name] = cell.cell_contents
    return found


_NOTHING = object()
_NONE = ast.Pass()


def _resolve(path: tuple[str, ...], scope: Mapping[str, Any], package: str) -> object:
    first, *rest = path
    found = scope.get(first, _NOTHING)
    for attribute in rest:
        if not isinstance(found, ModuleType) or found.__name__.partition(".")[0] != package:
            break
        found = getattr(found, attribute, _NOTHING)
    return found


def _is_plain(value: Any) -> bool:
    if type(value) in {tuple, list, set, frozenset}:  # and not what is derived of them
        return all(map(_is_plain, value))
    if type(value) is dict:
        return all(_is_plain(key) and _is_plain(item) for key, item in value.items())
    return type(value) in _PLAIN


def _plain_text(value: object) -> str | None:
    """A plain value as text, the same in every process: sets have no order."""
    if not _is_plain(value):
        return None
    if isinstance(value, set | frozenset):
        return f"{type(value).__name__}{sorted(map(str, map(_plain_text, value)))}"
    if isinstance(value, tuple | list):
        return f"{type(value).__name__}{[_plain_text(item) for item in value]}"
    if isinstance(value, dict):
        return f"dict{[(_plain_text(key), _plain_text(item)) for key, item in value.items()]}"
    return repr(value)
