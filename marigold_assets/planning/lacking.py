"""What blocked partitions lack in the first place, and why the plan does not build that; pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from marigold_assets.planning.model import Absence, Key, Lack
from marigold_assets.planning.naming import named
from marigold_assets.planning.states import AssetState


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """A partition that neither exists nor is built.

    Attributes:
        owner: Its asset.
        key: The partition.
        place: Where it is among the partitions of that; -1: nowhere.
        absence: Why it is not built.
        words: The same for people.
    """

    owner: str
    key: Key
    place: int
    absence: Absence
    words: str


def cause_of(state: AssetState, key: Key, places: Mapping[Key, int], *, is_only_stale: bool) -> Cause:
    """Why a plan does not build a partition that does not exist, and that no lack of its own blocks.

    Args:
        state: Its asset.
        key: The partition.
        places: Where the partitions of the asset are.
        is_only_stale: Whether only what is stale was asked for.
    """
    place = places.get(key, -1)
    absence = Absence.NO_PARTITION if place < 0 else _absence(state, place, places, is_only_stale=is_only_stale)
    what = "its definition has none" if absence is Absence.NO_PARTITION else "is not in this plan"
    words = f"{named(state.owner, key)} does not exist, and {what}"
    return Cause(owner=state.owner, key=key, place=place, absence=absence, words=words)


def _absence(state: AssetState, place: int, places: Mapping[Key, int], *, is_only_stale: bool) -> Absence:
    if not state.is_selected:
        return Absence.NOT_SELECTED
    if not state.wanted:
        return Absence.LEFT_OUT
    if place < places[state.wanted[0]]:
        return Absence.BEFORE
    if place > places[state.wanted[-1]]:
        return Absence.BEHIND
    return Absence.NOT_STALE if is_only_stale else Absence.LEFT_OUT


def lacks_of(causes: Iterable[Cause], states: Mapping[str, AssetState]) -> tuple[Lack, ...]:
    """What partitions lack, told together by asset and by why it is not built.

    Args:
        causes: What each of them lacks.
        states: The assets.
    """
    found: dict[tuple[str, Absence], list[Cause]] = {}
    for one in causes:
        found.setdefault((one.owner, one.absence), []).append(one)
    return tuple(_lack(some, states[owner]) for (owner, _), some in found.items())


def _lack(some: list[Cause], state: AssetState) -> Lack:
    first = min(some, key=lambda one: one.place)
    last = max(some, key=lambda one: one.place)
    key = first.key
    if state.is_chain and first.absence is Absence.BEFORE:
        place = first.place
        while place > 0 and state.keys[place - 1] not in state.built:
            place -= 1
        key = state.keys[place]
    return Lack(owner=state.owner, absence=first.absence, first=key, last=last.key, blocked=len(some))
