"""What names of a project mean: statements of its modules, functions and objects that are loaded, files of SQL."""

from __future__ import annotations

import sys
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from marigold_assets.code.held_sql import is_done, names_sql, read_already
from marigold_assets.code.importing import absolute_name, import_along, import_folder, spec_of
from marigold_assets.code.nodes import Edge, Node
from marigold_assets.code.source import (
    bytecode,
    cells_of_class,
    closure_of,
    default_values,
    is_followed,
    is_installed,
    is_plain,
    is_written,
    words_of,
)
from marigold_assets.code.sql_files import SqlFiles, sql_text
from marigold_assets.code.statements import Binding, last_ones
from marigold_assets.code.syntax import Imported, Reading, Reference
from marigold_assets.code.taken import Taken
from marigold_assets.code.texts import Text, functions_in, is_compiled_as_written, text_now
from marigold_assets.code.values import described, held_functions


@dataclass(frozen=True, slots=True, kw_only=True)
class _Home:
    """The names of a module, and its text as far as that is the one it was loaded from."""

    scope: dict[str, Any]
    file: str
    text: Text | None


class Project:
    """What the names of a project mean.

    Args:
        package: Its top-level package.
        taken: The texts of files when they were loaded.
    """

    def __init__(self, package: str, taken: Mapping[str, Taken]) -> None:
        self._package, self._taken = package, taken
        self._homes: dict[int, _Home] = {}
        self._meanings: dict[object, list[Edge]] = {}
        self._files = SqlFiles()

    def root(self, function: Any) -> Node:
        """The function that all is about, without its decorators."""
        if isinstance(function, FunctionType):
            return self._function(function)
        return self._held(function, "", type(function).__qualname__)

    # Names

    def _edges(
        self, home: _Home, references: Iterable[Reference], cells: Mapping[str, Any], owner: Hashable
    ) -> list[Edge]:
        found: list[Edge] = []
        for one in references:
            name, *rest = one.path
            if name in cells and not one.imported:
                found += self._value(cells[name], (owner, name), name, tuple(rest))
                continue
            key = (id(home.scope), one)
            if key not in self._meanings:
                self._meanings[key] = list(self._reference(home, one))
            found += self._meanings[key]
        return found

    def _reference(self, home: _Home, one: Reference) -> Iterator[Edge]:
        if not one.imported:
            yield from self._name(home, one.path, frozenset())
        for imported in one.imported:
            yield from self._imported(home, imported, one.path[1:], frozenset(), is_within=True, alone=one.is_import)

    def _name(self, home: _Home, path: tuple[str, ...], seen: frozenset[Hashable]) -> list[Edge]:
        """What a name of a module means, with the attributes that follow it."""
        name, rest = path[0], path[1:]
        if (here := (id(home.scope), name)) in seen:
            return []
        seen |= {here}
        if home.text is not None and (found := self._bound(home, home.text, path, seen)):
            return found
        if name in home.scope and not (name.startswith("__") and name.endswith("__")):
            return self._value(home.scope[name], here, name, rest)
        return []

    def _bound(self, home: _Home, text: Text, path: tuple[str, ...], seen: frozenset[Hashable]) -> list[Edge]:
        """What binds a name in the text of a module; of several the last one, or those that may be the last one."""
        name, rest = path[0], path[1:]
        own = text.bindings.get(name, ())
        stars = [one for one in text.bindings.get("*", ()) if one.imported and self._gives(home, one.imported, name)]
        last = last_ones([*stars, *(one for one in own if not one.is_change)])
        found = [edge for star in last if star in stars for edge in self._of_star(home, star, path, seen)]
        if any(one not in stars for one in last) or not last:
            if own and not text.is_imported(name):
                return [*found, (self._binding(home, text, name), rest)]
            imports = [one.imported for one in own if one.imported is not None]
            found += [edge for imported in imports for edge in self._imported(home, imported, rest, seen)]
        is_given = not isinstance(home.scope.get(name), FunctionType | type)
        if own and text.reading(name, is_given=is_given).text:
            found.append((self._binding(home, text, name), ()))  # what changes it: ``pd.set_option(...)``
        return found or ([".".join(path)] if own else [])

    def _gives(self, home: _Home, imported: Imported, name: str) -> bool:
        """Whether an import of all names of a module brings one."""
        module = sys.modules.get(absolute_name(imported.module, imported.level, home.scope))
        given = {} if module is None else vars(module)
        return name in given and (name in given["__all__"] if "__all__" in given else not name.startswith("_"))

    def _of_star(self, home: _Home, star: Binding, path: tuple[str, ...], seen: frozenset[Hashable]) -> list[Edge]:
        imported = star.imported
        module = "" if imported is None else absolute_name(imported.module, imported.level, home.scope)
        return self._in_module(module, path, seen)

    def _imported(
        self,
        home: _Home,
        imported: Imported,
        rest: tuple[str, ...],
        seen: frozenset[Hashable],
        *,
        is_within: bool = False,
        alone: bool = False,
    ) -> list[Edge]:
        module = absolute_name(imported.module, imported.level, home.scope)
        path = rest if imported.name is None else (imported.name, *rest)
        folder = import_folder(home.file, home.scope) if home.file else ""
        if is_within and self._is_own(module, folder):
            import_along(module, path, folder)
            if alone:
                return []
            if module not in sys.modules:
                return [".".join(path)]
        return self._in_module(module, path, seen)

    def _in_module(self, name: str, path: tuple[str, ...], seen: frozenset[Hashable]) -> list[Edge]:
        """What a path from a module leads to."""
        module = sys.modules.get(name)
        if module is None and self._is_own(name):
            return [".".join(path)]
        if not isinstance(module, ModuleType) or not is_followed(name, self._package, module):
            return [".".join((name, *path))]
        home = self._home(vars(module))
        if not path:
            return [(self._all_of(home), ())]
        inner = sys.modules.get(f"{name}.{path[0]}")
        if inner is not None and home.scope.get(path[0]) is inner:
            return self._in_module(f"{name}.{path[0]}", path[1:], seen)
        return self._name(home, path, seen) or [".".join(path)]

    def _all_of(self, home: _Home) -> Node:
        """A module that is used as an object: nobody can tell which of its names, also of those that it imports."""

        def look() -> tuple[str, list[Edge]]:
            bindings: Mapping[str, Sequence[Binding]] = {} if home.text is None else home.text.bindings
            names = list(bindings) or sorted(home.scope)
            edges = [edge for name in names if name != "*" for edge in self._name(home, (name,), frozenset())]
            for star in bindings.get("*", ()):
                edges += self._of_star(home, star, (), frozenset())
            return " ".join(name for name in names if name != "*"), edges

        return Node(key=("module", id(home.scope)), label="module", look=look)

    def _is_own(self, name: str, folder: str = "") -> bool:
        """Whether a module that may not be loaded yet belongs to the project."""
        top = name.partition(".")[0]
        if top == self._package:
            return True
        if (module := sys.modules.get(top)) is not None:
            return is_followed(top, self._package, module)
        try:
            spec = spec_of(top, folder)
        except (ImportError, ValueError):
            return False
        places = [] if spec is None else [spec.origin, *(spec.submodule_search_locations or ())]
        files = [one for one in places if one and one not in {"built-in", "frozen"}]
        return bool(files) and not any(map(is_installed, files))

    # Modules

    def _home(self, scope: dict[str, Any]) -> _Home:
        if id(scope) not in self._homes:
            file = scope.get("__file__")
            text = self._loaded_text(scope, file) if isinstance(file, str) else None
            self._homes[id(scope)] = _Home(scope=scope, file=file if isinstance(file, str) else "", text=text)
        return self._homes[id(scope)]

    def _loaded_text(self, scope: dict[str, Any], file: str) -> Text | None:
        codes = [one.__code__ for one in functions_in(scope, file)] if is_compiled_as_written(scope) else []
        return next((text for text in self._texts_of(scope, file) if all(map(text.has, codes))), None)

    def _texts_of(self, scope: dict[str, Any], file: str) -> Iterator[Text]:
        """What may be the text of a file: that of the moment of loading before that of now."""
        taken = self._taken.get(file)
        for text in (None if taken is None else taken.text, text_now(file, scope)):
            if text is not None and text.tree is not None:
                yield text

    # Statements of modules

    def _binding(self, home: _Home, text: Text, name: str) -> Node:
        return Node(
            key=("name", id(home.scope), name),
            label=name,
            look=lambda: self._look_at_binding(home, text, name),
            is_done=lambda: name in home.scope and is_done(home.scope[name], self._is_of_project),
        )

    def _look_at_binding(self, home: _Home, text: Text, name: str) -> tuple[str, list[Edge]]:
        live = home.scope.get(name)
        functions = list(held_functions(live, self._is_of_project))
        names = {one.__name__ for one in functions}  # they count with their decorators, wherever the registry is
        held = frozenset(one for one in names if len(text.bindings.get(one, ())) == 1)
        reading = text.reading(name, is_given=not isinstance(live, FunctionType | type), held=held)
        edges = self._edges(home, reading.references, {}, name)
        for binding in text.bindings[name]:
            if binding.imported is not None and not text.is_imported(name):
                edges += self._imported(home, binding.imported, (), frozenset())
        own = reading.text
        if (written := text.literal(name)) is not None and (type(live), live) != (type(written[0]), written[0]):
            own = self._described(live, edges, (id(home.scope), name))  # or it was not loaded from this text
        for function in functions:
            edges += self._value(function, (id(home.scope), name), name, ())
        edges += self._sql(home, reading, name, live)
        return own, edges

    # Functions and classes that are loaded

    def _is_of_project(self, found: object) -> bool:
        return isinstance(found, FunctionType | type) and is_followed(str(found.__module__), self._package, found)

    def _function(self, function: FunctionType) -> Node:
        return Node(
            key=("function", id(function)),
            label=_label(function.__qualname__),
            look=lambda: self._look_at_function(function),
        )

    def _look_at_function(self, function: FunctionType) -> tuple[str, list[Edge]]:
        code, home = function.__code__, self._home(function.__globals__)
        cells, owner = closure_of(function), id(function)
        text = self._text_of_code(home, code)
        nodes = () if text is None else text.nodes_of(code)
        if text is not None and nodes:
            reading = text.reading_of(nodes)
        else:
            sql = tuple(dict.fromkeys(_sql_in(code)))
            words = tuple(Reference(path=(word,)) for word in dict.fromkeys(words_of(code)))
            reading = Reading(text=f"bytecode {bytecode(code)}", references=words, sql=sql, late_sql=sql)
        edges = self._edges(home, reading.references, cells, owner)
        if not nodes or "<locals>" in code.co_qualname:
            for number, default in enumerate(default_values(function)):
                edges += self._value(default, (owner, number), f"{_label(function.__qualname__)}:default", ())
        edges += self._sql(home, reading, code.co_name, None)
        return reading.text, edges

    def _text_of_code(self, home: _Home, code: CodeType) -> Text | None:
        is_exact = is_compiled_as_written(home.scope)
        of_home = [home.text] if home.text is not None and home.text.file == code.co_filename else []
        for text in (*of_home, *self._texts_of(home.scope, code.co_filename)):
            if not is_exact or text.has(code):
                return text
        return None

    def _class(self, found: type) -> Node:
        return Node(key=("class", id(found)), label=_label(found.__qualname__), look=lambda: self._look_at_class(found))

    def _look_at_class(self, found: type) -> tuple[str, list[Edge]]:
        home = self._home(_scope_of_class(found))
        nodes = home.text.class_nodes(found.__qualname__) if home.text is not None else ()
        edges: list[Edge] = []
        if home.text is not None and nodes:
            reading = home.text.reading_of(nodes)
            is_made = "<locals>" in found.__qualname__
            cells = cells_of_class(found) if is_made else {}
            edges += self._edges(home, reading.references, cells, id(found))
            made = self._described([*found.__bases__, _own_of_class(found)], edges, id(found)) if is_made else ""
            return f"{reading.text}{made}", [*edges, *self._sql(home, reading, found.__name__, found)]
        held = {
            name: value
            for name, value in vars(found).items()
            if is_plain(value) or isinstance(value, FunctionType | staticmethod | classmethod | property)
        }
        kept = {name: held[name] for name in sorted(held) if name not in {"__module__", "__doc__", "__firstlineno__"}}
        own = self._described([*found.__bases__, kept], edges, id(found))
        return f"class {own}", edges

    # Values that are loaded

    def _value(self, value: Any, key: Hashable, label: str, rest: tuple[str, ...]) -> list[Edge]:
        """What a name means that no text says anything of."""
        if isinstance(value, ModuleType):
            return self._in_module(value.__name__, rest, frozenset())
        if isinstance(value, FunctionType | type):
            if not self._is_of_project(value):
                return [".".join((str(value.__module__), value.__qualname__, *rest))]
            scope = value.__globals__ if isinstance(value, FunctionType) else _scope_of_class(value)
            home, name = self._home(scope), value.__qualname__
            if home.text is not None and name in home.text.bindings and scope.get(name) is value:
                return [(self._binding(home, home.text, name), rest)]
            return [(self._function(value) if isinstance(value, FunctionType) else self._class(value), rest)]
        return [(self._held(value, key, label), rest)]

    def _held(self, value: Any, key: Hashable, label: str) -> Node:
        def look() -> tuple[str, list[Edge]]:
            edges: list[Edge] = []
            return self._described(value, edges, key), edges

        return Node(key=("value", key), label=label, look=look)

    def _described(self, value: Any, edges: list[Edge], key: Hashable) -> str:
        """A value as text; functions and classes in it are added to the edges."""

        def refer(found: Any) -> None:
            edges.extend(self._value(found, key, str(getattr(found, "__name__", "")), ()))

        return described(value, refer, self._is_of_project)

    # Files

    def _sql(self, home: _Home, reading: Reading, owner: str, live: object) -> list[Edge]:
        """The SQL that some code names, as a module has read it when it was loaded, or as it is in the files."""
        names = reading.sql
        if not names or not home.file:
            return []
        if (read := read_already(live)) is not None:
            label = names[0].rpartition("/")[2] if len(names) == 1 and "*" not in names[0] else owner
            key = ("read", id(home.scope), owner)
            return [(Node(key=key, label=label, look=lambda: (read, [])), ())]
        late = names if names_sql(live, self._is_of_project) else reading.late_sql
        places = self._files.places(home.file, home.scope)
        found: dict[Path, bool] = {}
        for name in names:
            for path in self._files.named(name, *places):
                found[path] = found.get(path, False) or name in late
        return [(self._file(home, path, is_late=is_late), ()) for path, is_late in found.items()]

    def _file(self, home: _Home, path: Path, *, is_late: bool) -> Node:
        taken = self._taken.get(home.file)
        found = (None if taken is None else taken.sql.get(path)) or sql_text(path)
        key = ("file", str(path), found.text)
        return Node(key=key, label=path.name, look=lambda: (found.text, []), file=(path, found) if is_late else None)


def _scope_of_class(found: type) -> dict[str, Any]:
    """The names around a class: those of its methods, since several modules may have had its module's name."""
    for one in vars(found).values():
        if (
            isinstance(one, FunctionType)
            and one.__module__ == found.__module__
            and one.__code__.co_filename != "<string>"
        ):
            return one.__globals__
    module = sys.modules.get(found.__module__)
    return {} if module is None else vars(module)


def _own_of_class(found: type) -> Mapping[str, Any]:
    """What a class that a function makes holds: what its text names stands for something else with each call."""
    return {
        name: value
        for name, value in sorted(vars(found).items())
        if name != "_abc_impl" and (not name.startswith("__") or is_written(value))
    }


def _label(qualname: str) -> str:
    return qualname.replace("<locals>.", "")


def _sql_in(code: CodeType) -> Iterator[str]:
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield from _sql_in(one)
        elif isinstance(one, str) and one.endswith(".sql"):
            yield one
