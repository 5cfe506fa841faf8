"""Which assets a selection names, in Dagster's own syntax."""

from __future__ import annotations

import re
import warnings
from collections.abc import Collection, Iterable
from dataclasses import dataclass

import dagster as dg

from marigold_assets.attempt import owner_of
from marigold_assets.errors import ConfigurationError
from marigold_assets.location import CodeLocation, LocatedAsset

_BARE = re.compile(r"(?P<up>[+*]*)(?P<name>[^\s+*:()\"',]+)(?P<down>[+*]*)")
_KEY = re.compile(r'key:(?:"([^"]*)"|([^\s"()+]+))')
_WORDS = ("and", "or", "not")


@dataclass(frozen=True, slots=True, kw_only=True)
class Selected:
    """The assets that a selection names.

    Attributes:
        assets: Those that Dagster can build, in the order of the code location.
        notes: What else people should know.
    """

    assets: tuple[LocatedAsset, ...]
    notes: tuple[str, ...] = ()


def select(location: CodeLocation, selection: str) -> Selected:
    """Find the assets that a selection names.

    Args:
        location: The code location.
        selection: The selection, such as ``raw_orders+``, ``key:"shop/raw_orders"+`` or ``group:market``.

    Raises:
        ConfigurationError: It is none, names an asset that there is not, or nothing that can be built.
    """
    if not selection.strip():
        raise ConfigurationError("the selection is empty", remedy="name an asset, such as 'daily_sales' or '*'")
    bare = _BARE.fullmatch(selection.strip())
    if bare is not None and bare["name"]:
        location.asset(bare["name"])
    for quoted, plain in _KEY.findall(selection):
        name = quoted or plain
        if "*" not in name:
            location.asset(name)
    found = _resolve(location, selection)
    if not found:
        raise ConfigurationError(
            f"the selection {selection!r} names no asset",
            remedy=f"the code location has {_listed(location.assets)}",
        )
    chosen = [one for owner, one in location.assets.items() if owner in found]
    built = tuple(one for one in chosen if one.definition.is_executable and one.definition.is_materializable)
    if not built:
        raise ConfigurationError(
            "nothing in Dagster builds it: it only says that the asset exists",
            remedy="select an asset that reads it",
            asset=chosen[0].owner,
        )
    notes = [f"{one.owner} is left out: nothing in Dagster builds it" for one in chosen if one not in built]
    if bare is not None:
        notes += _farther(location, bare["name"], found, up=bare["up"], down=bare["down"])
    return Selected(assets=built, notes=tuple(notes))


def _resolve(location: CodeLocation, selection: str) -> frozenset[str]:
    definitions = list({id(one.definition): one.definition for one in location.assets.values()}.values())
    with warnings.catch_warnings():  # Dagster says "beta" for parts of its own syntax
        warnings.simplefilter("ignore", dg.BetaWarning)
        try:
            found = dg.AssetSelection.from_string(selection.strip()).resolve(definitions)
        except dg.DagsterError as error:
            raise _none_such(location, selection) from error
    return frozenset(owner_of(key) for key in found)


def _none_such(location: CodeLocation, selection: str) -> ConfigurationError:
    words = [word for word in re.split(r"[\s,()]+", selection) if word]
    names = [word for word in words if word.lower() not in _WORDS]
    remedy = "write an asset's key, such as raw_orders, raw_orders* or group:market"
    if len(names) > 1 and all(word in location.assets for word in names):
        remedy = f"write {' or '.join(f'key:{_quoted(name)}' for name in names)!r}"
    return ConfigurationError(f"Dagster does not understand the selection {selection!r}", remedy=remedy)


def _quoted(name: str) -> str:
    return name if re.fullmatch(r"\w+", name) else f'"{name}"'


def _farther(location: CodeLocation, name: str, found: Collection[str], *, up: str, down: str) -> list[str]:
    """A word where a ``+`` takes one step and no more: as Dagster has it, and not as one may think."""
    notes = []
    for signs, side, every in ((up, "upstream", f"*{name}"), (down, "downstream", f"{name}*")):
        if "+" not in signs or "*" in signs:
            continue
        more = sorted(_resolve(location, every) - set(found))
        if more:
            steps = "one step" if len(signs) == 1 else f"{len(signs)} steps"
            notes.append(
                f"'+' is {steps} {side}, as Dagster has it: {_listed(more)} {'is' if len(more) == 1 else 'are'} not in"
                f" this selection, but in '{every}'"
            )
    return notes


def _listed(names: Iterable[str]) -> str:
    known = sorted(names)
    more = f" and {len(known) - 5} more" if len(known) > 5 else ""
    return ", ".join(known[:5]) + more or "none"
