"""Definitions where they stand in their files, and what the names within them stand for."""

from __future__ import annotations

import ast
import importlib
import linecache
import re
import sys
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.util import resolve_name
from types import FunctionType, ModuleType
from typing import Any

from marigold_assets.code import source
from marigold_assets.code.impure_sql import PLACEHOLDER

_WAIVER = re.compile(r"(?:#|--)\s*marigold:\s*pure\b(?:\s+because\b)?[\s:]*(?P<reason>.*)$")
NOTHING = object()
"""What a name stands for of which nothing is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A definition, or a statement of a module, within its file."""

    file: str
    node: ast.AST
    scope: Mapping[str, Any]
    local: frozenset[str] = frozenset()
    imported: Mapping[str, object] = field(default_factory=dict)
    sets: frozenset[str] = frozenset()


def place_of(value: object) -> Place | None:
    """Where a function or class is defined; ``None`` where its source is not at hand."""
    if isinstance(value, FunctionType):
        file, first = value.__code__.co_filename, value.__code__.co_firstlineno
        linecache.checkcache(file)
        for node in ast.walk(parsed(file)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                starts = min([node.lineno, *(one.lineno for one in node.decorator_list)])
                if node.name == value.__code__.co_name and starts == first:
                    return Place(file=file, node=node, scope=source.scope_of(value))
            elif isinstance(node, ast.Lambda) and node.lineno == first and value.__name__ == "<lambda>":
                return Place(file=file, node=node, scope=source.scope_of(value))
        return None
    if not isinstance(value, type):
        return None
    file = str(getattr(sys.modules.get(value.__module__), "__file__", None) or "")
    linecache.checkcache(file)
    nodes: list[ast.AST] = [parsed(file)]
    for name in value.__qualname__.split("."):
        if name == "<locals>":
            nodes = [one for node in nodes for one in ast.walk(node)]
        else:
            nodes = [
                one
                for node in nodes
                for one in (ast.iter_child_nodes(node) if not isinstance(node, ast.ClassDef) else node.body)
                if isinstance(one, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and one.name == name
            ]
    found = next((one for one in nodes if isinstance(one, ast.ClassDef)), None)
    return None if found is None else Place(file=file, node=found, scope=source.scope_of(value))


def parsed(file: str) -> ast.Module:
    """The syntax tree of a file; empty if it is none of Python."""
    return _tree("".join(linecache.getlines(file)))


@lru_cache(256)
def _tree(text: str) -> ast.Module:
    try:
        return ast.parse(text)
    except SyntaxError:
        return ast.Module(body=[], type_ignores=[])


def binding(tree: ast.Module, name: str) -> list[ast.stmt]:
    """The statements by which a module itself gives a name its value."""
    found: list[ast.stmt] = []
    due: list[ast.stmt] = list(tree.body)
    while due:
        one = due.pop(0)
        if isinstance(one, ast.Assign | ast.AnnAssign | ast.AugAssign):
            targets = one.targets if isinstance(one, ast.Assign) else [one.target]
            if name in {node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name)}:
                found.append(one)
        elif isinstance(one, ast.If | ast.Try | ast.With):
            inner = [getattr(one, part, ()) for part in ("body", "orelse", "finalbody")]
            inner += [handler.body for handler in getattr(one, "handlers", ())]
            due += [statement for part in inner for statement in part]
    return found


def origin_of(tree: ast.Module, name: str, module: str) -> tuple[ModuleType | None, str]:
    """The module from which a module has imported a name, if it has, and what it is called there."""
    for one in tree.body:
        for alias in one.names if isinstance(one, ast.ImportFrom) else ():
            if isinstance(one, ast.ImportFrom) and (alias.asname or alias.name) == name:
                package = getattr(sys.modules.get(module), "__package__", None)
                wanted = f"{'.' * one.level}{one.module or ''}"
                with suppress(ImportError):
                    return sys.modules.get(resolve_name(wanted, package)), alias.name
    return None, name


def body_of(node: ast.AST) -> list[ast.AST]:
    """What runs of a definition: not its decorators and annotations."""
    if isinstance(node, ast.Lambda):
        return [node.body]
    return list(getattr(node, "body", ()))


def bound(node: ast.AST) -> frozenset[str]:
    """The names that a definition binds, but for imports."""
    names = set()
    for one in ast.walk(node):
        if isinstance(one, ast.arg):
            names.add(one.arg)
        elif isinstance(one, ast.Name) and not isinstance(one.ctx, ast.Load):
            names.add(one.id)
        elif isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.ExceptHandler):
            names |= {one.name} if one is not node and one.name else set()
    return frozenset(names)


def declared_global(nodes: Collection[ast.AST]) -> frozenset[str]:
    """The names that are said to be the module's."""
    return frozenset(name for node in nodes if isinstance(node, ast.Global) for name in node.names)


def imported(nodes: Collection[ast.AST], package: str) -> dict[str, object]:
    """What imports within a definition bind: of other packages, as far as somebody has imported it already.

    Args:
        nodes: The definition.
        package: The top-level package of the project, of which modules are imported.
    """
    found: dict[str, object] = {}
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                name = alias.name if alias.asname else alias.name.partition(".")[0]
                found[alias.asname or name] = _module(name, package)
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                of = NOTHING if node.level else _module(node.module or "", package)
                submodule = sys.modules.get(f"{node.module}.{alias.name}", NOTHING)
                found[alias.asname or alias.name] = getattr(of, alias.name, submodule)
    return found


def _module(name: str, package: str) -> object:
    top = name.partition(".")[0]
    if name not in sys.modules and (top in sys.stdlib_module_names or top == package):
        with suppress(ImportError):  # which the function meets by itself when it runs
            importlib.import_module(name)
    return sys.modules.get(name, NOTHING)


def names_of_sets(nodes: Collection[ast.AST]) -> frozenset[str]:
    """The names that are bound to sets."""
    return frozenset(
        target.id
        for node in nodes
        if isinstance(node, ast.Assign) and is_set(node.value, frozenset())
        for target in node.targets
        if isinstance(target, ast.Name)
    )


def is_set(node: ast.AST, names: Collection[str]) -> bool:
    """Whether an expression is a set by its looks."""
    if isinstance(node, ast.Set | ast.SetComp):
        return True
    if isinstance(node, ast.Name):
        return node.id in names
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr | ast.BitAnd | ast.Sub | ast.BitXor):
        return is_set(node.left, names) or is_set(node.right, names)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return node.func.id in {"set", "frozenset"}
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        unites = node.func.attr in {"union", "intersection", "difference", "symmetric_difference", "copy"}
        return unites and is_set(node.func.value, names)
    return False


def text_of(node: ast.expr) -> str:
    """A text as it is written, with placeholders for what is put into it."""
    if isinstance(node, ast.JoinedStr):
        return "".join(str(one.value) if isinstance(one, ast.Constant) else PLACEHOLDER for one in node.values)
    return str(getattr(node, "value", ""))


def line_of(node: ast.expr, text: str, offset: int) -> int:
    """The line of something within a text, which may go over several."""
    return min(node.lineno + text[:offset].count("\n"), node.end_lineno or node.lineno)


def waiver_of(file: str, line: int, node: ast.AST) -> str | None:
    """The reason that is given on the line, where what it belongs to begins or ends, or alone on the line before."""
    first = int(getattr(node, "lineno", line))
    is_short = not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.For)
    lines = [line, first, *([int(getattr(node, "end_lineno", None) or line)] if is_short else [])]
    for number in lines:
        if (found := _WAIVER.search(linecache.getline(file, number))) is not None:
            return found["reason"].strip(" \t\"'")
    before = linecache.getline(file, first - 1).strip() if first > 1 else ""
    found = _WAIVER.match(before)
    return None if found is None else found["reason"].strip(" \t\"'")
