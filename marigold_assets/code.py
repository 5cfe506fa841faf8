"""The code fingerprint of a function: another one whenever its code, or code of its own package that it uses, is.

What counts is the syntax tree, printed: comments, layout and docstrings do not. Functions, classes and plain constants
that the function names are followed as long as they belong to the same top-level package; other packages are not looked
into.
"""

from __future__ import annotations

import ast
import builtins
import hashlib
import inspect
import textwrap
from collections.abc import Callable, Iterator, Mapping
from types import FunctionType, ModuleType
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
    parts: dict[str, str] = {}
    _collect(function, _package_of(function), parts)
    text = "\n".join(f"{name}\t{parts[name]}" for name in sorted(parts))
    return f"{PREFIX}:{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def _package_of(value: Any) -> str:
    return str(getattr(value, "__module__", "") or "").partition(".")[0]


def _collect(value: Any, package: str, parts: dict[str, str]) -> None:
    """Add the text of a function or class, and of everything of its package that it names."""
    name = f"{value.__module__}.{value.__qualname__}"
    if name in parts:
        return
    tree = _tree_of(value)
    parts[name] = _bytecode(value) if tree is None else ast.unparse(tree)
    if isinstance(value, FunctionType):
        parts[name] += _default_values(value)
    for path in [] if tree is None else _names_in(tree):
        found = _resolve(path, _scope_of(value), package)
        if isinstance(found, FunctionType | type):
            if _package_of(found) == package:
                _collect(found, package, parts)
        elif (text := _plain_text(found)) is not None:
            parts[f"{name}:{'.'.join(path)}"] = text


def _tree_of(value: Any) -> ast.AST | None:
    """The syntax tree of a definition, without docstrings and decorators; ``None`` where there is no source."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(value)))
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


def _bytecode(value: Any) -> str:
    code = getattr(value, "__code__", None)
    return "" if code is None else f"{code.co_code.hex()} {code.co_names} {[c for c in code.co_consts if _is_plain(c)]}"


def _default_values(function: FunctionType) -> str:
    values = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    return "".join(f"\n{_plain_text(value)}" for value in values)


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
        return {**value.__globals__, **inspect.getclosurevars(value).nonlocals}
    module = inspect.getmodule(value)
    return {} if module is None else vars(module)


_NOTHING = object()


def _resolve(path: tuple[str, ...], scope: Mapping[str, Any], package: str) -> object:
    first, *rest = path
    found = scope.get(first, _NOTHING)
    if found is _NOTHING or hasattr(builtins, first):
        return _NOTHING
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
    if not _is_plain(value):
        return None
    return repr(sorted(map(repr, value))) if isinstance(value, set | frozenset) else repr(value)
