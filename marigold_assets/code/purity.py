"""A static look at a function: what in it, and in what it uses of its project, depends on more than its partition.

Names are followed as for the code fingerprint, through imports and aliases. What is given as an argument, and what
objects hold, is not seen.
"""

from __future__ import annotations

import ast
import builtins
import linecache
import sys
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from types import FunctionType, ModuleType
from typing import Any

from marigold_assets.code import located, source
from marigold_assets.code.impure_sql import is_sql, of_sql, tables_of_sql
from marigold_assets.code.impurities import (
    Kind,
    Names,
    Rule,
    attribute_of,
    is_drawing,
    rule_of_attribute,
    rule_of_method,
)
from marigold_assets.code.located import Place

_MOST = 1_000  # definitions that are followed
_OF_SQL = frozenset(
    [
        *("sql", "query", "execute", "filter", "project", "select", "aggregate", "order", "read_sql", "read_sql_query"),
        *("sql_expr", "SQLExpression", "selectExpr", "expr"),
    ]
)
_LOGS = frozenset(["log", "logger", "logging"])
_SETTLING = frozenset(["sorted", "sum", "min", "max", "len", "set", "frozenset", "any", "all"])
_ORDERING = frozenset(["list", "tuple", "enumerate", "iter", "next", "zip", "map", "join"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something impure.

    Attributes:
        kind: The kind, which knows why it harms and what to do.
        what: What it is.
        file: Where.
        line: Where in it; 1 is the first.
        source: That line.
        is_weak: Whether it is only a hint.
        waiver: Why it is said to be no matter, if it is.
        remedy: What to do about it.
    """

    kind: Kind
    what: str
    file: str
    line: int
    source: str
    remedy: str
    is_weak: bool = False
    waiver: str | None = None


def look(
    function: Callable[..., Any],
    *,
    tables: Collection[str] = (),
    unpartitioned: Mapping[str, str] | None = None,
) -> tuple[Finding, ...]:
    """Find what is impure.

    Args:
        function: The function of an asset.
        tables: The tables that it may name in SQL, as ``schema.name``: its inputs.
        unpartitioned: Its inputs that have no partitions, by parameter, or by any name where it has none for them.

    Returns:
        The findings in the order in which the code is reached, each line once a kind; waived ones, too.

    Raises:
        ValueError: The function has no source.
    """
    found = _Look(function, tables)
    found.inputs(unpartitioned or {})
    found.follow()
    return tuple(found.findings.values())


def _logs(call: ast.Call) -> bool:
    """Whether a call only writes to a log, as ``context.log.info`` does: what is said there is no row."""
    of = call.func.value if isinstance(call.func, ast.Attribute) else None
    return (isinstance(of, ast.Attribute) and of.attr == "log") or (isinstance(of, ast.Name) and of.id in _LOGS)


class _Look:
    """The look at one function, and at what it reaches."""

    def __init__(self, function: Callable[..., Any], tables: Collection[str]) -> None:
        self.findings: dict[tuple[str, int, Kind, str], Finding] = {}
        self._function = function
        self._names = Names()
        self._package = source.package_of(function)
        self._tables = {part for table in tables for part in (table.lower(), table.lower().rpartition(".")[2])}
        self._due: deque[Any] = deque([function])
        self._seen: dict[int, Any] = {}
        self._seen_constants: set[tuple[str, int]] = set()

    def inputs(self, unpartitioned: Mapping[str, str]) -> None:
        place = located.place_of(self._function)
        if place is None:
            msg = f"{self._function!r} has no source"
            raise ValueError(msg)
        parameters = {one.arg: one for one in ast.walk(place.node) if isinstance(one, ast.arg)}
        for name, owner in unpartitioned.items():
            node = parameters.get(name, place.node)
            self._note(place, node, Rule(kind=Kind.DIMENSION), f"input {owner}, which has no partitions")

    def follow(self) -> None:
        while self._due and len(self._seen) < _MOST:
            value = self._due.popleft()
            if id(value) in self._seen:
                continue
            self._seen[id(value)] = value
            place = located.place_of(value)
            if place is not None:
                self._definition(place)
            if isinstance(value, FunctionType):
                for default in source.default_values(value):
                    self._reached(default)
            self._due += [
                one for one in source.unwrapped(getattr(value, "__wrapped__", None)) if isinstance(one, FunctionType)
            ]

    def _definition(self, place: Place) -> None:
        body = located.body_of(place.node)
        nodes = [node for one in body for node in ast.walk(one)]
        place = replace(
            place,
            local=located.bound(place.node) - located.declared_global(nodes),
            imported=located.imported(nodes, self._package),
            sets=located.names_of_sets(nodes),
        )
        self._nodes(place, nodes)

    def _nodes(self, place: Place, nodes: list[ast.AST]) -> None:
        calls = {id(node.func): node for node in nodes if isinstance(node, ast.Call)}
        inner = {id(node.value) for node in nodes if isinstance(node, ast.Attribute)}
        docs = {id(node.value) for node in nodes if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)}
        parts = {
            id(one) for node in nodes if isinstance(node, ast.JoinedStr) for one in ast.walk(node) if one is not node
        }
        logged = {id(one) for call in calls.values() if _logs(call) for one in ast.walk(call)}
        nodes = [node for node in nodes if id(node) not in logged]
        seeded = self._seeded(place, calls)
        settled = {
            id(one)
            for call in calls.values()
            if isinstance(call.func, ast.Name) and call.func.id in _SETTLING
            for one in call.args
        }
        arguments = {
            id(one)
            for call in calls.values()
            if isinstance(call.func, ast.Attribute) and call.func.attr in _OF_SQL
            for one in call.args
        }
        for node in nodes:
            if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load) and id(node) not in inner:
                self._name(place, node, calls.get(id(node)), seeded)
            if isinstance(node, ast.JoinedStr) or (
                isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs | parts
            ):
                self._text(place, node, located.text_of(node), is_argument=id(node) in arguments)
            self._order(place, node, settled)

    def _seeded(self, place: Place, calls: Mapping[int, ast.Call]) -> int | None:
        """From which line on the shared generators are seeded; ``None``: they are not."""
        lines = [
            call.lineno
            for call in calls.values()
            if isinstance(call.func, ast.Attribute | ast.Name)
            and call.args
            and attribute_of(self._stages(place, call.func)[-1], "__name__") == "seed"
        ]
        return min(lines, default=None)

    def _stages(self, place: Place, node: ast.Name | ast.Attribute) -> list[object]:
        """What a name stands for, and what each of its attributes does, as far as that leads through modules."""
        path: list[str] = []
        root: ast.AST = node
        while isinstance(root, ast.Attribute):
            path.insert(0, root.attr)
            root = root.value
        if not isinstance(root, ast.Name):
            return [located.NOTHING]
        if root.id in place.imported:
            found = place.imported[root.id]
        elif root.id in place.local:
            found = located.NOTHING
        else:
            found = place.scope.get(root.id, getattr(builtins, root.id, located.NOTHING))
        stages = [found]
        for attribute in path:
            if not isinstance(found, ModuleType | type):
                break
            found = getattr(found, attribute, located.NOTHING)
            stages.append(found)
        return stages

    def _name(self, place: Place, node: ast.Name | ast.Attribute, call: ast.Call | None, seeded: int | None) -> None:
        stages = self._stages(place, node)
        text = ast.unparse(node)
        is_whole = len(stages) == text.count(".") + 1
        for number, value in enumerate(stages):
            of_call = call if is_whole and number == len(stages) - 1 else None
            for rule in self._names.rules(value):
                is_drawn = rule.kind is Kind.RANDOM and is_drawing(value)
                if is_drawn and seeded is not None and seeded < node.lineno:
                    continue
                if rule.applies(of_call):
                    self._note(place, node, rule, f"{text}{'()' if call is not None else ''}")
                    return
            if not isinstance(value, ModuleType):
                self._reached(value, (place, node, text.split(".")[number]))
                if not isinstance(value, FunctionType | type) and value is not located.NOTHING:
                    self._kept(place, stages[:number], text.split(".")[number])
        if isinstance(node, ast.Attribute) and not (is_whole and stages[-1] is not located.NOTHING):
            method = rule_of_method(node.attr, call) or rule_of_attribute(node, call)
            if method is not None and method.kind is Kind.UNIQUE:
                self._note(place, node, method, text)
                return
            if method is not None:
                self._note(place, node, method, f".{node.attr}()")

    def _reached(self, value: object, by: tuple[Place, ast.expr, str] | None = None) -> None:
        """Follow what belongs to the project."""
        for one in source.unwrapped(value):
            if isinstance(one, FunctionType | type):
                if source.is_followed(str(one.__module__), self._package, one):
                    self._due.append(one)
            elif isinstance(one, str) and by is not None:
                self._constant(*by, one)

    def _kept(self, place: Place, stages: Sequence[object], name: str) -> None:
        """What a module keeps in a name: it was computed when the process loaded the module."""
        module = stages[-1] if stages else sys.modules.get(str(place.scope.get("__name__")))
        if not stages and (name in place.imported or name in place.local):
            return
        while isinstance(module, ModuleType) and source.is_followed(module.__name__, self._package, module):
            file = str(getattr(module, "__file__", None) or "")
            tree = located.parsed(file) if file.endswith(".py") else ast.Module(body=[], type_ignores=[])
            for statement in located.binding(tree, name):
                if (file, statement.lineno) not in self._seen_constants:
                    self._seen_constants.add((file, statement.lineno))
                    there = Place(file=file, node=statement, scope=vars(module))
                    self._nodes(there, list(ast.walk(statement)))
            module, name = located.origin_of(tree, name, module.__name__)

    def _constant(self, place: Place, node: ast.expr, name: str, text: str) -> None:
        """A text that a module keeps: where it stands there, or else where it is used."""
        if not is_sql(text):
            return
        file = str(place.scope.get("__file__") or place.file)
        for statement in located.parsed(file).body if file.endswith(".py") else ():
            if isinstance(statement, ast.Assign | ast.AnnAssign) and name in {
                one.id for one in ast.walk(statement) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)
            }:
                if (file, statement.lineno) not in self._seen_constants:
                    self._seen_constants.add((file, statement.lineno))
                    self._nodes(replace(place, file=file, local=frozenset()), list(ast.walk(statement)))
                return
        for _, what, rule in of_sql(text, is_whole=True):
            self._note(place, node, rule, what)

    def _text(self, place: Place, node: ast.expr, text: str, *, is_argument: bool) -> None:
        is_whole = is_sql(text)
        if not is_whole and not is_argument:
            return
        for offset, what, rule in of_sql(text, is_whole=is_whole):
            self._note(place, node, rule, what, line=located.line_of(node, text, offset))
        for offset, name in tables_of_sql(text) if is_whole else ():
            known = name.lower() in self._tables or name in place.local or name in place.scope
            if not known and name.lower().rpartition(".")[2] not in self._tables:
                rule = Rule(kind=Kind.READ)
                self._note(
                    place, node, rule, f"table {name}, which is no input", line=located.line_of(node, text, offset)
                )

    def _order(self, place: Place, node: ast.AST, settled: Collection[int]) -> None:
        """The order of a set, unless what is made of it has none either."""
        if isinstance(node, ast.Call):
            name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
            if (
                name in _ORDERING
                and id(node) not in settled
                and any(located.is_set(one, place.sets) for one in node.args)
            ):
                self._note(place, node, Rule(kind=Kind.ORDER), f"{name}() of a set")
        loops: list[ast.expr] = []
        if isinstance(node, ast.For):
            loops = [node.iter]
        elif isinstance(node, ast.ListComp | ast.GeneratorExp | ast.DictComp) and id(node) not in settled:
            loops = [one.iter for one in node.generators]
        if any(located.is_set(one, place.sets) for one in loops):
            self._note(place, node, Rule(kind=Kind.ORDER, is_weak=True), "a loop over a set")

    def _note(self, place: Place, node: Any, rule: Rule, what: str, *, line: int | None = None) -> None:
        line = node.lineno if line is None else line
        place_in_file = place.file, line, rule.kind, what
        if place_in_file in self.findings:
            return
        waiver = located.waiver_of(place.file, line, node)
        self.findings[place_in_file] = Finding(
            kind=rule.kind,
            what=what,
            file=place.file,
            line=line,
            source=linecache.getline(place.file, line).strip(),
            remedy=rule.remedy or rule.kind.remedy,
            is_weak=rule.is_weak,
            waiver=waiver or None,
        )
        if waiver == "":
            self.findings[place.file, line, Kind.WAIVER, ""] = Finding(
                kind=Kind.WAIVER,
                what="a waiver without a reason",
                file=place.file,
                line=line,
                source=linecache.getline(place.file, line).strip(),
                remedy=Kind.WAIVER.remedy,
            )
