"""The text of modules as it was when they were loaded, and what stands in it under which name.

A file may change while its code is loaded: a deployment under a code server that lives for days. So texts are taken
when an asset is defined, and are believed only as far as they compile to the very code that is loaded.
"""

from __future__ import annotations

import ast
import inspect
import linecache
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from importlib.machinery import EXTENSION_SUFFIXES
from types import CodeType, FunctionType
from typing import Any, Final

from marigold_assets.code.statements import Binding, bindings_of
from marigold_assets.code.syntax import Reading, nodes_within, read

_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)
_DEFINITIONS: Final = (*_FUNCTIONS, ast.Lambda, ast.ClassDef)
_TYPES_OF_TEXT: Final = ("dagster", "marigold_assets")
_NO_TEXT: Final = (".pyc", *EXTENSION_SUFFIXES)
_SET_LATER: Final = inspect.CO_ITERABLE_COROUTINE  # by ``types.coroutine``
_CACHE: Final[Any] = type(lru_cache(len))
_OWN_WAYS: Final = ("_frozen_importlib", "_frozen_importlib_external", "importlib", "zipimport")


class Text:
    """One version of the text of a file.

    Args:
        file: The file.
        lines: Its lines.
    """

    def __init__(self, file: str, lines: Sequence[str]) -> None:
        self.file, self._lines = file, lines
        self._known: dict[int, CodeType] = {}
        self._readings: dict[object, Reading] = {}

    @cached_property
    def tree(self) -> ast.Module | None:
        """Its syntax tree; ``None`` if it has none."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # who loads it has seen them
                return ast.parse("".join(self._lines))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None

    @cached_property
    def bindings(self) -> Mapping[str, Sequence[Binding]]:
        """What binds or changes each name of the module, in order; an import from everywhere under ``*``."""
        return bindings_of(self.tree.body if self.tree else [])

    @cached_property
    def sql(self) -> Sequence[str]:
        """What it names that ends in ``.sql``, anywhere."""
        if not any(".sql" in line for line in self._lines) or self.tree is None:  # most need not be parsed for it
            return ()
        return read([self.tree], is_bound=lambda _: False).sql

    def is_imported(self, name: str) -> bool:
        """Whether imports, and nothing else, bind a name."""
        found = self.bindings.get(name, ())
        return any(one.imported for one in found) and all(one.imported or one.is_change for one in found)

    def reading(self, name: str, *, is_given: bool = True, held: frozenset[str] = frozenset()) -> Reading:
        """What counts of all that binds or changes a name.

        Args:
            name: A name of the module.
            is_given: Whether calls that are merely given it may change it: functions and classes do not change so.
            held: Functions whose decorators count with them.
        """
        if (key := (name, is_given, held)) not in self._readings:
            found = [one for one in self.bindings[name] if one.imported is None and one.decorated not in held]
            found = [one for one in found if is_given or not one.is_argument]
            self._readings[key] = self._read(list(dict.fromkeys(node for one in found for node in one.nodes)))
        return self._readings[key]

    def reading_of(self, nodes: Sequence[ast.AST]) -> Reading:
        """What counts of definitions, but for their own decorators."""
        key = tuple(map(id, nodes))
        if key not in self._readings:
            own = {id(one) for node in nodes for one in getattr(node, "decorator_list", ())}
            self._readings[key] = self._read(nodes, own)
        return self._readings[key]

    def _read(self, nodes: Sequence[ast.AST], own: Iterable[int] = ()) -> Reading:
        left_out = frozenset(own)
        return read(
            nodes,
            is_bound=self.bindings.__contains__,
            is_left_out=lambda found: id(found) in left_out or self._makes_an_asset(found),
        )

    def _makes_an_asset(self, decorator: ast.expr) -> bool:
        """Whether a decorator is of Dagster or of this package: its metadata is no code."""
        root = decorator.func if isinstance(decorator, ast.Call) else decorator
        while isinstance(root, ast.Attribute):
            root = root.value
        if not isinstance(root, ast.Name) or not self.is_imported(root.id):
            return False
        origins = [one.imported.module.partition(".")[0] for one in self.bindings[root.id] if one.imported]
        return all(origin in _TYPES_OF_TEXT for origin in origins)

    def literal(self, name: str) -> tuple[Any] | None:
        """The constant that is all that a name of the module ever stands for, in brackets."""
        found = self.bindings[name]
        if len(found) != 1 or len(found[0].nodes) != 1 or name in self._changed_by_functions:
            return None
        [node] = found[0].nodes
        value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
        names = node.targets if isinstance(node, ast.Assign) else []
        if not isinstance(value, ast.Constant) or any(not isinstance(one, ast.Name) for one in names):
            return None
        return (value.value,)

    @cached_property
    def _changed_by_functions(self) -> frozenset[str]:
        """The names of the module that functions bind anew (``global``)."""
        nodes = ast.walk(self.tree) if self.tree else ()
        return frozenset(name for one in nodes if isinstance(one, ast.Global) for name in one.names)

    @cached_property
    def _codes(self) -> Mapping[str, Sequence[CodeType]]:
        """What it compiles to, by qualified name."""
        found: dict[str, list[CodeType]] = {}
        if self.tree is None:
            return found
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                due = [compile(self.tree, self.file, "exec", dont_inherit=True)]
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return found
        while due:
            code = due.pop()
            inner = [one for one in code.co_consts if isinstance(one, CodeType)]
            for one in inner:
                found.setdefault(one.co_qualname, []).append(one)
            due += inner
        return found

    @cached_property
    def _definitions(self) -> Mapping[int, Sequence[ast.AST]]:
        """Functions, lambdas and classes, by the line on which their code begins."""
        found: dict[int, list[ast.AST]] = {}
        for one in ast.walk(self.tree) if self.tree else ():
            if isinstance(one, _DEFINITIONS):
                decorators = getattr(one, "decorator_list", ())
                found.setdefault((decorators[0] if decorators else one).lineno, []).append(one)
        return found

    def has(self, code: CodeType) -> bool:
        """Whether it compiles to some code."""
        if self._known.get(id(code)) is code:
            return True
        if any(_same(code, one) for one in self._codes.get(code.co_qualname, ())):
            self._known[id(code)] = code
            return True
        return False

    def nodes_of(self, code: CodeType) -> Sequence[ast.AST]:
        """The definition that some code is made of; all of the line if there are more: ``lambda`` has no name."""
        same = [one for one in self._codes.get(code.co_qualname, ()) if _same(code, one)]
        lines = {one.co_firstlineno for one in same} or {code.co_firstlineno}
        line = code.co_firstlineno if code.co_firstlineno in lines else min(lines)
        found = [one for one in self._definitions.get(line, ()) if _name_of(one) == code.co_name]
        return [one for one in found if _spans(one, code)] or found

    def class_nodes(self, qualname: str) -> Sequence[ast.AST]:
        """The classes of a qualified name."""
        return _classes_of(self.tree.body, qualname.split(".")) if self.tree else ()


def _name_of(node: ast.AST) -> str | None:
    return "<lambda>" if isinstance(node, ast.Lambda) else getattr(node, "name", None)


def _spans(node: Any, code: CodeType) -> bool:
    """Whether all instructions of some code that have a place lie within a node."""
    start, end = (node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)
    for line, last, column, end_column in code.co_positions():
        if None in {line, last, column, end_column} or column == end_column:
            continue
        if not (start <= (line, column) and (last, end_column) <= end):
            return isinstance(node, _FUNCTIONS)  # its decorators stand before it
    return True


def _classes_of(body: Iterable[ast.AST], path: Sequence[str]) -> Sequence[ast.AST]:
    wanted, *rest = (one for one in path if one != "<locals>")
    found = [
        one
        for one in nodes_within(body, lambda node: isinstance(node, _DEFINITIONS))
        if isinstance(one, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and one.name == wanted
    ]
    if not rest:
        return [one for one in found if isinstance(one, ast.ClassDef)]
    return [inner for one in found for inner in _classes_of(one.body, rest)]


def _same(one: object, other: object) -> bool:
    """Whether two codes, or two of their constants, are the same, wherever they stand."""
    if type(one) is not type(other):
        return False
    if isinstance(one, CodeType) and isinstance(other, CodeType):
        return (
            (one.co_code, one.co_names, one.co_varnames, one.co_freevars, one.co_cellvars)
            == (other.co_code, other.co_names, other.co_varnames, other.co_freevars, other.co_cellvars)
            and (one.co_name, one.co_flags | _SET_LATER) == (other.co_name, other.co_flags | _SET_LATER)
            and (one.co_argcount, one.co_posonlyargcount, one.co_kwonlyargcount)
            == (other.co_argcount, other.co_posonlyargcount, other.co_kwonlyargcount)
            and _same(one.co_consts, other.co_consts)
        )
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, frozenset) and isinstance(other, frozenset):
        return {(type(item), item) for item in one} == {(type(item), item) for item in other}
    return one == other and repr(one) == repr(other)  # 0.0 is not -0.0


def text_now(file: str, scope: Mapping[str, Any]) -> Text | None:
    """The text of a file, or of what else linecache knows by that name: a cell of a notebook, a module of an archive.

    Args:
        file: As code names it.
        scope: The names of its module.
    """
    if file.endswith(_NO_TEXT):
        return None
    linecache.checkcache(file)
    if not linecache.getlines(file, dict(scope) if not isinstance(scope, dict) else scope):
        return None
    entry = linecache.cache[file]
    size, changed = (entry[0], entry[1]) if len(entry) == 4 else (0, None)
    return _text(file, size, changed, _Lines(linecache.getlines(file)))


class _Lines:
    """Lines that are the same as all others of their version."""

    def __init__(self, lines: Sequence[str]) -> None:
        self.lines = lines

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Lines) and (self.lines is other.lines or self.lines == other.lines)

    def __hash__(self) -> int:
        return len(self.lines)


@lru_cache(4_096)
def _text(file: str, _size: int, _changed: float | None, lines: _Lines) -> Text:
    """One text for all assets that use it."""
    return Text(file, lines.lines)


def is_compiled_as_written(scope: Mapping[str, Any]) -> bool:
    """Whether the loader of a module compiles its text as it is: that of a test runner may rewrite it."""
    loader = scope.get("__loader__")
    of = loader.__module__ if isinstance(loader, type) else type(loader).__module__
    return loader is None or of.partition(".")[0] in _OWN_WAYS


def functions_in(scope: Mapping[str, Any], file: str) -> Iterator[FunctionType]:
    """The functions that a module has defined in its file, also those of its classes."""
    name = scope.get("__name__")
    for value in list(scope.values()):
        held: Iterable[Any] = [value]
        if isinstance(value, type):
            held = list(vars(value).values()) if value.__module__ == name else ()
        for one in held:
            found = _function_of(one)
            while found is not None and found.__globals__ is scope and found.__code__.co_filename == file:
                yield found
                found = _function_of(vars(found).get("__wrapped__"))


def _function_of(value: object) -> FunctionType | None:
    """The function that a method, a property or a cache is made of; other objects are not asked."""
    if isinstance(value, staticmethod | classmethod):
        value = value.__func__
    elif isinstance(value, property):
        value = value.fget
    elif type(value) is _CACHE:
        value = vars(value).get("__wrapped__")
    return value if isinstance(value, FunctionType) else None
