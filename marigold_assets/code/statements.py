"""Statements of a module: what binds each of its names, and what changes what a name stands for.

A name is changed by an assignment to a part of it (``RATES["eu"] = 2``), by a call of its methods, by a call that it
is given to (``load(RATES)``), by a call of a function of the module that changes it, and by whatever changes another
name of the same thing (``SAME = RATES``). Calls count where they are statements of their own, or decorators; those of
functions of the module that change a name, wherever they are. What a call within an expression does to its arguments,
and what other modules do, is not seen.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from marigold_assets.code.syntax import SCOPES, Imported, binding_nodes, bound_by, nodes_within

_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)
_DEFINITIONS: Final = (*_FUNCTIONS, ast.Lambda, ast.ClassDef)
_CHANGING: Final = frozenset({"setattr", "delattr", "next", "exec", "eval"})  # of the builtin functions


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """A statement that gives a name of a module its meaning.

    Attributes:
        nodes: The statement, and on what it depends that it is run: the test of an ``if`` around it.
        imported: What it imports, if it is an import.
        is_change: Whether it changes what the name stands for (``RATES["eu"] = 2``) instead of binding it.
        is_argument: Whether it does so, if at all, because a call is given the name.
        decorated: The function that it decorates, if it is a decorator.
        is_certain: Whether it is a binding that stands within no other statement.
        position: Its place among all statements.
    """

    nodes: tuple[ast.AST, ...]
    imported: Imported | None = None
    is_change: bool = False
    is_argument: bool = False
    decorated: str | None = None
    is_certain: bool = False
    position: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Statement:
    """A statement, or the head of one: after what it depends on, what of it is run, and whether it is for certain."""

    nodes: tuple[ast.AST, ...]
    run: tuple[ast.AST, ...]
    is_certain: bool


def bindings_of(body: Sequence[ast.stmt]) -> Mapping[str, Sequence[Binding]]:
    """What binds or changes each name of a module, in order; an import from everywhere under ``*``."""
    return _Statements(body).found


def last_ones(bindings: Iterable[Binding]) -> Sequence[Binding]:
    """Those of the bindings of a name of which one has the last word: up to one that is certain to be run."""
    found: list[Binding] = []
    for one in sorted(bindings, key=lambda binding: binding.position, reverse=True):
        found.insert(0, one)
        if one.is_certain:
            break
    return found


class _Statements:
    def __init__(self, body: Sequence[ast.stmt]) -> None:
        self.found: dict[str, list[Binding]] = {}
        self._changed_by: dict[str, frozenset[str]] = {}
        statements = list(_statements(body, ()))
        for position, one in enumerate(statements):
            self._bind(one, position)
        self._definitions = _definitions(one.nodes[-1] for one in statements)
        self._same = _same_things(body)
        changes = [
            (name, replace(binding, is_change=True, position=position))
            for position, one in enumerate(statements)
            for name, binding in dict.fromkeys(self._changes(one.nodes, one.run))
        ]
        for name, binding in changes:
            for thing in self._things(name):
                self.found.setdefault(thing, []).append(binding)
        for several in self.found.values():
            several.sort(key=lambda binding: (binding.position, binding.is_change))

    def _bind(self, one: _Statement, position: int) -> None:
        for node in binding_nodes(one.run):
            for name, imported in bound_by(node):
                binding = Binding(nodes=one.nodes, imported=imported, is_certain=one.is_certain, position=position)
                self.found.setdefault(name, []).append(binding)

    def _things(self, name: str) -> Iterator[str]:
        """A name, and those that may stand for the same thing."""
        due, seen = [name], {name}
        while due:
            yield (one := due.pop())
            due += [other for other in self._same.get(one, ()) if other not in seen]
            seen |= {*due}

    # What changes a name

    def _changes(self, nodes: tuple[ast.AST, ...], within: Iterable[ast.AST]) -> Iterator[tuple[str, Binding]]:
        statement = nodes[-1]
        around = nodes[:-1]
        for decorator in getattr(statement, "decorator_list", ()):
            for name in self._changed_by_decorator(decorator):
                decorated = str(getattr(statement, "name", ""))
                yield name, Binding(nodes=(*around, *self._decorated(decorator, statement)), decorated=decorated)
        for node in nodes_within(within, lambda found: isinstance(found, SCOPES)):
            if (part := _changed_part(node)) is not None:
                yield part, Binding(nodes=nodes)
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
                for name, is_argument in self._changed_by_call(node.value):
                    yield name, Binding(nodes=nodes, is_argument=is_argument)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                for name in self._changed_by_function(node.func.id):
                    yield name, Binding(nodes=nodes)

    def _changed_by_call(self, call: ast.Call) -> Iterator[tuple[str, bool]]:
        """The names that a call may change, and whether that is because it is given them."""
        function = root_of(call.func)
        if isinstance(call.func, ast.Name):
            if call.func.id not in self.found and call.func.id not in _CHANGING and hasattr(builtins, call.func.id):
                return
            yield from ((name, False) for name in self._imported_with(call.func.id))
        elif function is not None:
            yield function, False  # ``STEPS.append(clean)``
        for given in (*call.args, *(one.value for one in call.keywords)):
            name = root_of(given.value if isinstance(given, ast.Starred) else given)
            if name is not None and name in self.found and name not in self._definitions:
                yield name, True

    def _imported_with(self, name: str) -> Iterator[str]:
        """The names that are imported from where a name is: ``configure(2)`` may change all of them."""
        origins = {(one.imported.module, one.imported.level) for one in self.found.get(name, ()) if one.imported}
        for other, bindings in self.found.items():
            imports = [one.imported for one in bindings if one.imported is not None]
            if other != "*" and any((one.module, one.level) in origins for one in imports):
                yield other

    def _changed_by_decorator(self, decorator: ast.expr) -> Iterator[str]:
        function = decorator.func if isinstance(decorator, ast.Call) else decorator
        if isinstance(function, ast.Name):
            yield from self._changed_by_function(function.id)
        elif isinstance(function, ast.Attribute) and (name := root_of(function)) is not None:
            is_imported = any(one.imported for one in self.found.get(name, ()))
            if name in self.found and (not is_imported or function.attr == "register"):
                yield name  # ``@clean.register``

    def _decorated(self, decorator: ast.expr, definition: ast.AST) -> tuple[ast.AST, ...]:
        """A decorator with the name of its function: that has a meaning of its own, unless it is one of several."""
        name = str(getattr(definition, "name", ""))
        if len(self.found.get(name, ())) != 1:
            return (definition,)
        return decorator, ast.Name(id=name, ctx=ast.Load())

    def _changed_by_function(self, name: str) -> frozenset[str]:
        """The names of the module that a function or class of the module changes, also by calling others."""
        if name not in self._changed_by:
            self._changed_by[name] = frozenset()  # where they call each other
            changed: set[str] = set()
            for definition in self._definitions.get(name, ()):
                changed |= self._changed_within(definition)
            self._changed_by[name] = frozenset(changed & self.found.keys() | changed & self._declared(name))
        return self._changed_by[name]

    def _declared(self, name: str) -> frozenset[str]:
        nodes = [node for one in self._definitions.get(name, ()) for node in ast.walk(one)]
        return frozenset(one for node in nodes if isinstance(node, ast.Global) for one in node.names)

    def _changed_within(self, definition: ast.AST) -> set[str]:
        nodes = list(ast.walk(definition))
        declared = {name for node in nodes if isinstance(node, ast.Global) for name in node.names}
        own = {name for node in nodes if node is not definition for name, _ in bound_by(node)} - declared
        changed: set[str | None] = {*declared}
        for node in nodes:
            changed.add(_changed_part(node))
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
                changed |= {name for name, _ in self._changed_by_call(node.value)}
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id not in own:
                changed |= self._changed_by_function(node.func.id)
        return {name for name in changed if name is not None and name not in own}


def root_of(node: ast.AST | None) -> str | None:
    """The name that a chain of attributes, parts and calls begins with."""
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else None


def _changed_part(node: ast.AST) -> str | None:
    """The name of which a node changes a part: ``RATES["eu"] = 2``."""
    is_part = isinstance(node, ast.Attribute | ast.Subscript) and not isinstance(node.ctx, ast.Load)
    return root_of(node) if is_part else None


def _statements(
    body: Iterable[ast.AST], around: tuple[ast.AST, ...], *, is_certain: bool = True
) -> Iterator[_Statement]:
    """The statements of a module, also those within others."""
    for statement in body:
        if isinstance(statement, ast.If) and _is_main(statement.test):
            yield from _statements(statement.orelse, around, is_certain=is_certain)
            continue
        blocks = [
            inner
            for _, value in ast.iter_fields(statement)
            for inner in (value if isinstance(value, list) else ())
            if isinstance(inner, ast.stmt | ast.ExceptHandler | ast.match_case)
        ]
        if isinstance(statement, _DEFINITIONS) or not blocks:
            yield _Statement(nodes=(*around, statement), run=(statement,), is_certain=is_certain)
            continue
        inner_ones = set(map(id, blocks))
        heads = tuple(one for one in ast.iter_child_nodes(statement) if id(one) not in inner_ones)
        if heads:
            yield _Statement(nodes=(*around, *heads), run=heads, is_certain=is_certain)
        yield from _statements(blocks, (*around, *heads), is_certain=False)


def _is_main(test: ast.expr) -> bool:
    return isinstance(test, ast.Compare) and isinstance(test.left, ast.Name) and test.left.id == "__name__"


def _definitions(statements: Iterable[ast.AST]) -> Mapping[str, Sequence[ast.AST]]:
    """The functions and classes of a module by name."""
    found: dict[str, list[ast.AST]] = {}
    for one in statements:
        if isinstance(one, (*_FUNCTIONS, ast.ClassDef)):
            found.setdefault(one.name, []).append(one)
    return found


def _same_things(body: Sequence[ast.stmt]) -> Mapping[str, frozenset[str]]:
    """By name the names of which it may be another one, or a part: ``SAME = RATES``, ``for one in TABLES``."""
    found: dict[str, frozenset[str]] = {}
    for node in nodes_within(body, lambda one: isinstance(one, SCOPES)):
        targets: Sequence[ast.AST] = ()
        origins: set[str | None] = set()
        if isinstance(node, ast.Assign | ast.AnnAssign) and not isinstance(node.value, ast.Call):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            origins = {root_of(node.value)}
        elif isinstance(node, ast.For | ast.AsyncFor):
            targets = [node.target]
            origins = {one.id for one in ast.walk(node.iter) if isinstance(one, ast.Name)}
        names = frozenset(one for one in origins if one is not None)
        for target in targets:
            for name in (one.id for one in ast.walk(target) if isinstance(one, ast.Name)) if names else ():
                if isinstance(target, ast.Name | ast.Tuple):
                    found[name] = found.get(name, frozenset()) | names - {name}
    return found
