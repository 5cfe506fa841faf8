"""Values that are loaded, as text: what a function closes over has no text of its own.

Constants and containers count by what they hold, objects by what they would be pickled as (which may be less than they
have: ``__getstate__`` can leave out what is of this process, as its number or the time), builtin functions and those of
other packages by their names. The text is the same in every process: sets are sorted by the texts of what is in them.

By their type alone count what cannot be pickled (connections, locks, expressions of a library around a function of
Python), objects of Dagster and of this package, and what lies deeper than a hundred objects. Of absolute paths the
folder does not count: it is one of this machine. What a library pickles in another way from process to process has
another text in each, as has what the project's own objects hold of their process.
"""

from __future__ import annotations

import copyreg
import datetime as dt
import decimal
import fractions
import functools
import hashlib
import re
import types
import uuid
import zoneinfo
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set, ValuesView
from enum import Enum
from pathlib import PurePath
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any, Final

from marigold_assets.code.source import bytecode, closure_of, default_values, plain_text

_AS_WRITTEN: Final = (dt.date, dt.time, dt.timedelta, dt.timezone, decimal.Decimal, fractions.Fraction, uuid.UUID)
_CONTAINERS: Final = (list, tuple, set, frozenset, dict)
_DESCRIPTORS: Final = (
    *(types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType),
    *(types.GetSetDescriptorType, types.MemberDescriptorType),
)
_CACHE: Final[Any] = type(functools.cache(len))
_SINGLE_DISPATCH: Final[Any] = functools.singledispatch(len)
_NEW: Final = frozenset({"__newobj__", "__newobj_ex__"})
_OPEN: Final = ("builtins", "collections", "functools", "types")  # may hold what cannot be pickled
_BY_TYPE: Final = ("dagster", "marigold_assets")
_MOST: Final = 1_000  # things in containers and objects of which the functions are looked for: they may hold data
_DEEPEST: Final = 100
_LONG: Final = 400  # characters; of longer texts a digest is kept: a value may be held at many places


class _NoValueError(Exception):
    """Something that cannot be pickled."""


def described(value: Any, refer: Callable[[Any], None], is_of_project: Callable[[object], bool]) -> str:
    """A value as text, the same in every process.

    Args:
        value: The value.
        refer: Is told of each function, class and module in it.
        is_of_project: Whether a class belongs to the project.
    """
    describer = _Describer(is_of_project)
    text = describer.described(value)
    for found in describer.references:
        refer(found)
    return text


class _Describer:
    def __init__(self, is_of_project: Callable[[object], bool]) -> None:
        self.references: list[Any] = []
        self._is_of_project = is_of_project
        self._known: dict[int, tuple[Any, str, list[Any]]] = {}  # with the value, or another may get its id
        self._around: dict[int, Any] = {}
        self._within_values = 0

    def described(self, value: Any) -> str:
        if (plain := plain_text(value)) is not None:
            return _short(plain)
        if isinstance(value, FunctionType | type | ModuleType):
            return self._referred(value)
        if id(value) in self._known:
            _, text, references = self._known[id(value)]
            self.references += references
            return text
        if id(value) in self._around:  # it holds itself
            return f"^{len(self._around) - list(self._around).index(id(value))}"
        if len(self._around) > _DEEPEST:
            return f"{_name(type(value))}..."
        self._around[id(value)] = value
        before = len(self.references)
        try:
            text = _short(self._container(value) or self._callable(value) or self._object(value))
        finally:
            del self._around[id(value)]
        self._known[id(value)] = value, text, self.references[before:]
        return text

    def _all(self, values: Iterable[Any]) -> str:
        return ", ".join(map(self.described, values))

    def _items(self, items: Iterable[tuple[Any, Any]]) -> str:
        return ", ".join(f"{self.described(key)}: {self.described(value)}" for key, value in items)

    def _referred(self, value: FunctionType | type | ModuleType) -> str:
        self.references.append(value)
        if isinstance(value, FunctionType) and not self._is_of_project(value) and "<locals>" in value.__qualname__:
            if id(value) in self._around:
                return "@^"
            self._around[id(value)] = value
            try:
                return f"@({self._made(value)})"
            finally:
                del self._around[id(value)]
        return "@"

    def _made(self, function: FunctionType) -> str:
        """What a function of another package was made with: it is no more than its name otherwise."""
        return self._all((*closure_of(function).values(), *default_values(function)))

    def _container(self, value: Any) -> str | None:
        if type(value) in {dict, types.MappingProxyType}:
            return f"{type(value).__name__}[{self._items(value.items())}]"
        if type(value) in {list, tuple}:
            return f"{type(value).__name__}[{self._all(value)}]"
        if isinstance(value, set | frozenset):
            return f"{self._kind(value)}[{self._sorted(value)}]"
        if isinstance(value, memoryview):
            return f"memoryview[{self.described(value.tobytes())}]"
        if type(value).__module__ == "builtins" and isinstance(value, Set | ValuesView):  # of a dict
            return f"{type(value).__name__}[{self._all(value)}]"
        return None

    def _sorted(self, values: Iterable[Any]) -> str:
        """Values that have no order, by their texts."""
        found = []
        for value in values:
            before = len(self.references)
            text = self.described(value)
            referred = self.references[before:]
            del self.references[before:]
            found.append((text, [self.place(one) for one in referred], referred))
        found.sort(key=lambda one: one[:2])
        self.references += [one for _, _, referred in found for one in referred]
        return ", ".join(text for text, _, _ in found)

    def place(self, found: Any) -> str:
        """What tells functions and classes apart that have one name."""
        name = str(getattr(found, "__qualname__", getattr(found, "__name__", "")))
        if not isinstance(found, FunctionType) or id(found) in self._around:
            return name
        code = found.__code__
        before = len(self.references)
        self._around[id(found)] = found
        made = self._made(found)
        del self._around[id(found)], self.references[before:]
        return f"{name} {code.co_firstlineno:09} {list(code.co_positions())} {bytecode(code)} {made}"

    def _callable(self, value: Any) -> str | None:
        if isinstance(value, functools.partial):
            return f"{self._kind(value)}({self._all((value.func, value.args, value.keywords))})"
        if isinstance(value, MethodType):
            return f"method({self._all((value.__func__, value.__self__))})"
        if isinstance(value, BuiltinFunctionType):
            of = value.__self__
            if of is None or isinstance(of, ModuleType):
                return f"{_top(value.__module__)}.{value.__qualname__}"
            return f"{value.__qualname__}({self.described(of)})"  # ``{}.get``
        if isinstance(value, types.MethodWrapperType):
            return f"{value.__qualname__}({self.described(value.__self__)})"
        if isinstance(value, _DESCRIPTORS):
            return f"{_name(value.__objclass__)}.{value.__name__}"
        if isinstance(value, staticmethod | classmethod):
            return f"{type(value).__name__}({self.described(value.__func__)})"
        if isinstance(value, property):
            return f"property({self._all((value.fget, value.fset, value.fdel))})"
        if type(value) is _CACHE:
            return f"cache({self.described(value.__wrapped__)})"
        return None

    def _object(self, value: Any) -> str:
        kind = type(value)
        if (text := self._of_standard_library(value)) is not None:
            return text
        if _top(kind.__module__) in _BY_TYPE:
            return _name(kind)
        if kind.__module__ == "pyarrow.lib" and hasattr(value, "to_pylist"):  # its buffers may hold more than its rows
            return f"{_name(kind)}({getattr(value, 'schema', None) or value.type}, {self.described(value.to_pylist())})"
        if self._is_of_project(kind) or kind.__module__ in _OPEN:
            try:
                return self._pickled(value)
            except _NoValueError:
                if self._within_values:
                    raise
                held = self._items(sorted(_attributes(value)))
                return f"{self._kind(value)}({held})"
        return self._of_library(value)

    def _of_standard_library(self, value: Any) -> str | None:
        kind = type(value)
        if isinstance(value, Enum):
            return f"{self._kind(value)}.{value.name}"
        if isinstance(value, re.Pattern):
            return f"pattern({value.pattern!a}, {value.flags})"
        if type(value) is zoneinfo.ZoneInfo:
            return f"zone({value.key!a})"
        if isinstance(value, PurePath):  # the folder of a whole one is one of this machine
            return f"path({value.name if value.is_absolute() else value.as_posix()!a})"
        if kind.__module__ in {"datetime", "decimal", "fractions", "uuid"} and isinstance(value, _AS_WRITTEN):
            return f"{kind.__name__}({value!a})" if getattr(value, "tzinfo", None) is None else self._pickled(value)
        return None

    def _of_library(self, value: Any) -> str:
        """An object of another package: all that it holds, or nothing if some of that can only be of this process."""
        before = len(self.references)
        self._within_values += 1
        try:
            return self._pickled(value)
        except _NoValueError:
            del self.references[before:]
            if self._within_values > 1:
                raise
            return _name(type(value))
        finally:
            self._within_values -= 1

    def _pickled(self, value: Any) -> str:
        try:
            reduced = _reduced(value)
        except Exception as error:
            raise _NoValueError from error
        if isinstance(reduced, str):
            return f"{_top(str(getattr(value, '__module__', None) or type(value).__module__))}.{reduced}"
        given: tuple[Any, ...] = (*reduced, None, None, None)
        make, arguments, state, listed, mapped = given[:5]
        if getattr(make, "__module__", "") == "copyreg" and make.__name__ in _NEW:
            said = self._kind(value)
            arguments = arguments[1:]
        elif make is type(value):
            said = self._kind(value)
        else:
            said = f"{_top(str(getattr(make, '__module__', '')))}.{getattr(make, '__qualname__', '')}"
            if self._is_of_project(make):
                self.references.append(make)
        parts = [self._all(arguments), self._state(state)]
        parts.append("" if listed is None else self._all(listed))
        parts.append("" if mapped is None else self._items(mapped))
        return f"{said}({'; '.join(parts)})"

    def _state(self, state: Any) -> str:
        """The attributes of an object: in whatever order they were set."""
        if isinstance(state, tuple) and len(state) == 2 and all(one is None or type(one) is dict for one in state):
            state = {**(state[0] or {}), **(state[1] or {})}
        if type(state) is dict and all(isinstance(name, str) for name in state):
            return self._items((name, state[name]) for name in sorted(state) if name != "_hash")
        return "" if state is None else self.described(state)

    def _kind(self, value: object) -> str:
        kind = type(value)
        if self._is_of_project(kind):
            self.references.append(kind)
            return "@"
        return _name(kind)


def _reduced(value: Any) -> Any:
    """How a value is to be pickled: by a function of its arguments and a state, or by its name."""
    of_kind = copyreg.dispatch_table.get(type(value))
    return value.__reduce_ex__(4) if of_kind is None else of_kind(value)


def _short(text: str) -> str:
    return text if len(text) <= _LONG else f"#{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}"


def _top(module: str) -> str:
    return str(module).partition(".")[0]  # within a package things are moved about


def _name(kind: Any) -> str:
    return f"{_top(kind.__module__)}.{kind.__qualname__}"


def order(value: object) -> str:
    """By what to sort values of any kind."""
    describer = _Describer(lambda _: False)
    text = describer.described(value)
    return f"{text} {[describer.place(one) for one in describer.references]}"


def _attributes(value: object) -> Iterator[tuple[str, Any]]:
    yield from getattr(value, "__dict__", {}).items()
    for kind in type(value).__mro__:
        slots = vars(kind).get("__slots__", ())
        for slot in (slots,) if isinstance(slots, str) else slots:
            is_private = slot.startswith("__") and not slot.endswith("__")
            name = f"_{kind.__name__.lstrip('_')}{slot}" if is_private else slot
            if name not in {"__dict__", "__weakref__"} and hasattr(value, name):
                yield name, getattr(value, name)


def held_functions(value: object, is_of_project: Callable[[object], bool]) -> Iterator[Any]:
    """The functions and classes that a container, or an object of the project, holds: a registry has them.

    So does a function of several implementations (``functools.singledispatch``).
    """
    due: list[Any] = [value]
    seen = {id(value)}
    is_known = type(value) in _CONTAINERS or is_of_project(type(value)) or _implementations(value)
    if not is_known:
        return
    while due and len(seen) < _MOST:
        one = due.pop(0)
        if is_of_project(one) and one is not value:
            yield one
            continue
        held: Iterable[Any] = _implementations(one)
        if type(one) is dict:
            held = [*one.keys(), *one.values()]
        elif type(one) in _CONTAINERS:
            held = sorted(one, key=order) if isinstance(one, set | frozenset) else one
        elif type(one) is functools.partial:
            held = (one.func, *one.args, *one.keywords.values())
        elif is_of_project(type(one)) and not isinstance(one, Enum):
            held = [item for _, item in sorted(_attributes(one), key=lambda pair: pair[0])]
        for item in held:
            if id(item) not in seen and not isinstance(item, str | bytes | int | float):
                seen.add(id(item))
                due.append(item)


def _implementations(value: object) -> Sequence[Any]:
    """The implementations of a function that chooses one by the type of its first argument."""
    if not isinstance(value, FunctionType) or value.__code__ is not _SINGLE_DISPATCH.__code__:
        return ()
    registry: Mapping[Any, Any] = vars(value).get("registry", {})
    return [registry[kind] for kind in sorted(registry, key=lambda kind: f"{kind.__module__}.{kind.__qualname__}")]
