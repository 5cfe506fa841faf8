"""The syntax tree of a definition as text that no Python version changes, and what it refers to.

``ast.unparse`` and ``ast.dump`` print one tree differently from release to release. This text has the names of the
nodes and those of their fields that say something: no positions, no types of comments, no empty fields, so that one
that a release adds, drops or fills by default does not show. Parts of an f-string are merged (PEP 701 splits them
differently), parameters of types are left out (PEP 695), text is in ASCII. A name that is bound around the definition
stands as ``@``: what it means is among the references, so that neither an alias counts nor in which file something is.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

_SILENT = frozenset({"ctx", "type_comment", "kind", "type_ignores", "type_params"})
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_NAMED_BLOCKS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_OTHER_SCOPES = (*_FUNCTIONS, ast.ClassDef)
SCOPES = (*_OTHER_SCOPES, *_COMPREHENSIONS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """What an import binds a name to.

    Attributes:
        module: The module, as it is written.
        level: How many dots stand before it.
        name: What is taken from it; ``None`` for the module itself.
    """

    module: str
    level: int
    name: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """A name that is not the definition's own, with the attributes that follow it.

    Attributes:
        path: ``helpers.clean`` is ``("helpers", "clean")``.
        imported: What an import within the definition binds it to.
        is_import: Whether that import itself is meant, and no use of it.
    """

    path: tuple[str, ...]
    imported: tuple[Imported, ...] = ()
    is_import: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What counts of a definition.

    Attributes:
        text: Its syntax tree.
        references: What it refers to, in order.
        sql: What it names that ends in ``.sql``.
        late_sql: That of it which stands in functions.
    """

    text: str
    references: tuple[Reference, ...]
    sql: tuple[str, ...]
    late_sql: tuple[str, ...] = ()


class _Scope:
    """The names that a function, class or comprehension binds."""

    def __init__(self, node: ast.AST, parent: _Scope | None) -> None:
        self.parent = parent
        self.is_class, self.is_function = isinstance(node, ast.ClassDef), isinstance(node, _FUNCTIONS)
        self.bound: dict[str, list[Imported] | None] = {}
        outer = set()
        for one in _own_nodes(node):
            if isinstance(one, ast.Global | ast.Nonlocal):
                outer.update(one.names)
            for name, imported in bound_by(one):
                found = self.bound.setdefault(name, None if imported is None else [])
                if found is None or imported is None:
                    self.bound[name] = None
                else:
                    found.append(imported)
        for name in outer:
            self.bound.pop(name, None)


def bound_by(node: ast.AST) -> Iterator[tuple[str, Imported | None]]:
    """The names that one node binds, each with what it imports if it is an import."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            module = alias.name if alias.asname else alias.name.partition(".")[0]
            yield alias.asname or module, Imported(module=module, level=0, name=None)
    elif isinstance(node, ast.ImportFrom):
        for alias in node.names:
            imported = Imported(module=node.module or "", level=node.level, name=alias.name)
            yield alias.asname or alias.name, imported
    elif (name := _bound(node)) is not None:
        yield name, None


def _bound(node: ast.AST) -> str | None:
    """The name that a node binds other than by an import."""
    if isinstance(node, ast.Name):
        return None if isinstance(node.ctx, ast.Load) else node.id
    if isinstance(node, ast.arg):
        return node.arg
    if isinstance(node, ast.MatchMapping):
        return node.rest
    if isinstance(node, (*_NAMED_BLOCKS, ast.ExceptHandler, ast.MatchAs, ast.MatchStar)):
        return node.name
    return None


def nodes_within(nodes: Iterable[ast.AST], stop: Callable[[ast.AST], bool]) -> Iterator[ast.AST]:
    """Nodes and what is within them, but not what is within those at which to stop."""
    due = list(nodes)
    while due:
        node = due.pop()
        yield node
        if not stop(node):
            due += ast.iter_child_nodes(node)


def binding_nodes(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """What may bind names in the scope of some nodes: also ``:=`` within comprehensions, and nothing else of those."""
    for one in nodes_within(nodes, lambda found: isinstance(found, SCOPES)):
        yield one
        if isinstance(one, _COMPREHENSIONS):
            inner = nodes_within(
                ast.iter_child_nodes(one), lambda found: isinstance(found, (*_FUNCTIONS, ast.ClassDef))
            )
            yield from (found.target for found in inner if isinstance(found, ast.NamedExpr))


def _own_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """What binds names in the scope of a function, class or comprehension itself."""
    if isinstance(node, _FUNCTIONS):
        yield from _arguments(node.args)
    body: Any = [one.target for one in node.generators] if isinstance(node, _COMPREHENSIONS) else node.body  # type: ignore[attr-defined]
    yield from binding_nodes(body if isinstance(body, list) else [body])


def _arguments(given: ast.arguments) -> Iterator[ast.arg]:
    yield from (*given.posonlyargs, *given.args, *given.kwonlyargs)
    yield from (one for one in (given.vararg, given.kwarg) if one is not None)


_OUTSIDE: Final = {
    ast.FunctionDef: ("decorator_list", "returns"),
    ast.AsyncFunctionDef: ("decorator_list", "returns"),
    ast.ClassDef: ("decorator_list", "bases", "keywords"),
}


def _evaluated_outside(node: ast.AST) -> Iterator[ast.AST]:
    """The parts of a scope's node that are evaluated around it."""
    for field in _OUTSIDE.get(type(node), ()):
        found = getattr(node, field)
        yield from found if isinstance(found, list) else filter(None, [found])
    if isinstance(node, _FUNCTIONS):
        yield from node.args.defaults
        yield from (one for one in node.args.kw_defaults if one is not None)
        yield from (one.annotation for one in _arguments(node.args) if one.annotation is not None)
    if isinstance(node, _COMPREHENSIONS):
        yield node.generators[0].iter


def read(
    nodes: Sequence[ast.AST],
    *,
    is_bound: Callable[[str], bool],
    is_left_out: Callable[[ast.expr], bool] = lambda _: False,
) -> Reading:
    """Read the nodes of one definition.

    Args:
        nodes: Statements or expressions.
        is_bound: Whether the module binds a name.
        is_left_out: Whether a decorator does not count.
    """
    reader = _Reader(is_bound, is_left_out)
    for node in nodes:
        reader.read(node)
    return Reading(
        text=" ".join(reader.out),
        references=tuple(reader.references),
        sql=tuple(reader.sql),
        late_sql=tuple(name for name, is_late in reader.sql.items() if is_late),
    )


class _Reader:
    """Prints trees without recursion: a query added up of a thousand strings is as deep."""

    def __init__(self, is_bound: Callable[[str], bool], is_left_out: Callable[[ast.expr], bool]) -> None:
        self.out: list[str] = []
        self.references: list[Reference] = []
        self.sql: dict[str, bool] = {}
        self._is_bound, self._is_left_out = is_bound, is_left_out
        self._outside: dict[int, _Scope | None] = {}
        self._due: list[tuple[Any, _Scope | None]] = []

    def read(self, tree: ast.AST) -> None:
        self._due.append((tree, None))
        while self._due:
            item, scope = self._due.pop()
            if isinstance(item, _Token):
                self.out.append(item.text)
            elif isinstance(item, ast.AST):
                self._node(item, self._outside.pop(id(item), scope))
            elif isinstance(item, list):
                self._push([_Token("["), *item, _Token("]")], scope)
            else:
                self.out.append(_plain(item))

    def _push(self, items: Sequence[Any], scope: _Scope | None) -> None:
        self._due += [(item, scope) for item in reversed(items)]

    def _node(self, node: ast.AST, scope: _Scope | None) -> None:
        if isinstance(node, ast.Name | ast.Attribute) and self._chain(node, scope):
            return
        if isinstance(node, ast.Import | ast.ImportFrom):
            self._import(node)
            return
        if isinstance(node, ast.Constant):
            self._constant(node.value, scope)
            return
        if isinstance(node, ast.JoinedStr) or type(node).__name__ == "TemplateStr":
            self._joined(node, scope)
            return
        inner = scope
        if isinstance(node, SCOPES):
            inner = _Scope(node, scope)
            self._outside |= {id(one): scope for one in _evaluated_outside(node)}
        items: list[Any] = [_Token(f"({type(node).__name__}")]
        for name, value in _fields(node):
            found = [one for one in value if not self._is_left_out(one)] if name == "decorator_list" else value
            if not isinstance(found, list) or found:
                items += [_Token(name), found]
        self._push([*items, _Token(")")], inner)

    def _chain(self, node: ast.Name | ast.Attribute, scope: _Scope | None) -> bool:
        """Print a name with the attributes that follow it; whether it is one."""
        path: list[str] = []
        root: ast.expr = node
        while isinstance(root, ast.Attribute):
            path.append(root.attr)
            root = root.value
        if not isinstance(root, ast.Name):
            return False
        path.append(root.id)
        path.reverse()
        is_own, imported = _looked_up(root.id, scope)
        is_read = isinstance(root.ctx, ast.Load)
        if is_read and not is_own:
            self.references.append(Reference(path=tuple(path), imported=imported))
        is_said = is_own or not is_read or not (imported or self._is_bound(root.id))
        self.out.append(f"<{'.'.join(path)}>" if is_said else "@")
        return True

    def _import(self, node: ast.Import | ast.ImportFrom) -> None:
        """An import within the definition is no text: what it brings is among the references."""
        for name, imported in bound_by(node):
            self.references.append(Reference(path=(name,), imported=(imported,) if imported else (), is_import=True))

    def _constant(self, value: object, scope: _Scope | None) -> None:
        if isinstance(value, str) and value.endswith(".sql"):
            self._name_sql(value, scope)
        self.out.append(_plain(value))

    def _joined(self, node: ast.AST, scope: _Scope | None) -> None:
        parts = list(_merged(node.values))  # type: ignore[attr-defined]
        if isinstance(node, ast.JoinedStr) and not any(isinstance(part, ast.AST) for part in parts):
            self._constant("".join(parts), scope)  # type: ignore[arg-type]
            return
        named = "".join(part if isinstance(part, str) else "*" for part in parts)
        if named.endswith(".sql"):
            self._name_sql(named.rpartition("/")[2], scope)
        self._push([_Token(f"({type(node).__name__}"), *parts, _Token(")")], scope)

    def _name_sql(self, name: str, scope: _Scope | None) -> None:
        is_late = False
        while scope is not None:
            is_late, scope = is_late or scope.is_function, scope.parent
        self.sql[name] = self.sql.get(name, False) or is_late


@dataclass(frozen=True, slots=True)
class _Token:
    text: str


def _looked_up(name: str, scope: _Scope | None) -> tuple[bool, tuple[Imported, ...]]:
    """Whether a name is one of the definition's own, and what it imports as that; then it is no name of its own."""
    here = scope
    while scope is not None:
        if name in scope.bound and (scope is here or not scope.is_class):
            found = scope.bound[name]
            return (True, ()) if found is None else (False, tuple(found))
        scope = scope.parent
    return False, ()


def _fields(node: ast.AST) -> Iterator[tuple[str, Any]]:
    """The fields of a node that say something, in an order that no release changes."""
    for name in sorted(node._fields):
        value = getattr(node, name, None)
        if name in _SILENT or value is None or value == []:
            continue
        if name == "conversion" and value == -1:
            continue
        if name == "format_spec" and not list(_merged(value.values)):
            continue
        if name in {"body", "orelse", "finalbody"} and isinstance(value, list):
            value = [one for one in value if not _does_nothing(one)]
            value = value or ([ast.Pass()] if name == "body" else [])
            if not value:
                continue
        yield name, value


def _does_nothing(statement: ast.AST) -> bool:
    """A docstring, dots, ``pass``."""
    return isinstance(statement, ast.Pass) or (
        isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    )


def _merged(values: Sequence[ast.AST]) -> Iterator[ast.AST | str]:
    """The parts of an f-string, constants that follow each other as one, empty ones left out."""
    text = ""
    for part in _flat(values):
        if isinstance(part, str):
            text += part
            continue
        if text:
            yield text
        text = ""
        yield part
    if text:
        yield text


def _flat(values: Sequence[ast.AST]) -> Iterator[ast.AST | str]:
    for one in values:
        if isinstance(one, ast.JoinedStr):
            yield from _flat(one.values)
        elif isinstance(one, ast.Constant) and isinstance(one.value, str):
            yield one.value
        else:
            yield one


def _plain(value: object) -> str:
    """A constant: numbers of any size, text in ASCII, since what can be printed differs from release to release."""
    if isinstance(value, int) and not isinstance(value, bool):
        return hex(value)
    return ascii(value)
