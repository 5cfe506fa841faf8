"""Values that are loaded, as text: what a function closes over has no text of its own."""

from __future__ import annotations

import datetime as dt
import decimal
import fractions
import functools
import re
import uuid
import zoneinfo
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from pathlib import PurePath
from types import FunctionType, MethodType, ModuleType
from typing import Any, Final

from marigold_assets.code.source import plain_text

_VALUES: Final = (
    *(dt.date, dt.time, dt.timedelta, dt.tzinfo),
    *(decimal.Decimal, fractions.Fraction, re.Pattern, uuid.UUID, zoneinfo.ZoneInfo),
)
_CONTAINERS: Final = (list, tuple, set, frozenset, dict)
_CACHE: Final[Any] = type(functools.cache(len))
_MOST: Final = 1_000  # things in containers and objects that are looked at: they may hold data


def described(value: Any, refer: Callable[[Any], None], is_of_project: Callable[[object], bool]) -> str:
    """A value as text, the same in every process.

    Args:
        value: The value.
        refer: Is told of each function, class and module in it.
        is_of_project: Whether a class belongs to the project: then what its objects hold counts.
    """
    return _Describer(refer, is_of_project).described(value)


class _Describer:
    def __init__(self, refer: Callable[[Any], None], is_of_project: Callable[[object], bool]) -> None:
        self._refer, self._is_of_project = refer, is_of_project
        self._seen: set[int] = set()

    def described(self, value: Any) -> str:
        if (plain := plain_text(value)) is not None:
            return plain
        if id(value) in self._seen or len(self._seen) > _MOST:
            return "..."
        self._seen.add(id(value))
        if isinstance(value, FunctionType | type | ModuleType):
            self._refer(value)
            return "@"
        return self._container(value) or self._callable(value) or self._object(value)

    def _all(self, values: Iterable[Any]) -> str:
        return ", ".join(map(self.described, values))

    def _container(self, value: Any) -> str | None:
        if type(value) is dict:
            return f"dict[{', '.join(f'{self.described(key)}: {self.described(value[key])}' for key in value)}]"
        if isinstance(value, list | tuple):
            return f"{type(value).__name__}[{self._all(value)}]"
        if isinstance(value, set | frozenset):
            return f"{type(value).__name__}[{self._all(sorted(value, key=order))}]"
        return None

    def _callable(self, value: Any) -> str | None:
        if isinstance(value, functools.partial):
            return f"partial({self._all((value.func, value.args, value.keywords))})"
        if isinstance(value, MethodType):
            return f"method({self._all((value.__func__, value.__self__))})"
        if isinstance(value, staticmethod | classmethod):
            return f"{type(value).__name__}({self.described(value.__func__)})"
        if isinstance(value, property):
            return f"property({self._all((value.fget, value.fset))})"
        if type(value) is _CACHE:
            return f"cache({self.described(value.__wrapped__)})"
        return None

    def _object(self, value: Any) -> str:
        kind = type(value)
        if isinstance(value, Enum):
            return f"{self.described(kind)}.{value.name}"
        if isinstance(value, _VALUES):
            return f"{kind.__name__}({value!a})"
        if isinstance(value, PurePath):
            return f"path({value.name!a})"  # its folder is one of this machine
        if self._is_of_project(kind):
            return f"{self.described(kind)}({self.described(dict(sorted(_attributes(value))))})"
        return f"{kind.__module__}.{kind.__qualname__}"


def order(value: object) -> str:
    """By what to sort values of any kind."""
    name = getattr(value, "__qualname__", None)
    return str(plain_text(value) or name or type(value).__qualname__)


def _attributes(value: object) -> Iterator[tuple[str, Any]]:
    yield from getattr(value, "__dict__", {}).items()
    for kind in type(value).__mro__:
        slots = vars(kind).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in {"__dict__", "__weakref__"} and hasattr(value, name):
                yield name, getattr(value, name)


def held_functions(value: object, is_of_project: Callable[[object], bool]) -> Iterator[Any]:
    """The functions and classes that a container, or an object of the project, holds: a registry has them."""
    due: list[Any] = [value]
    seen = {id(value)}
    if type(value) not in _CONTAINERS and not is_of_project(type(value)):
        return
    while due and len(seen) < _MOST:
        one = due.pop(0)
        if is_of_project(one):
            yield one
            continue
        held: Iterable[Any] = ()
        if type(one) is dict:
            held = [*one.keys(), *one.values()]
        elif type(one) in _CONTAINERS:
            held = sorted(one, key=order) if isinstance(one, set | frozenset) else one
        elif type(one) is functools.partial:
            held = (one.func, *one.args, *one.keywords.values())
        elif is_of_project(type(one)) and not isinstance(one, Enum):
            held = [item for _, item in sorted(_attributes(one))]
        for item in held:
            if id(item) not in seen and not isinstance(item, str | bytes | int | float):
                seen.add(id(item))
                due.append(item)
