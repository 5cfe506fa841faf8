"""Which assets of a plan share their runs, and what those runs wait for; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from marigold_assets.planning.model import AssetPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """That the partitions of a group wait for those of an asset of another one.

    Attributes:
        owner: The asset waited for.
        spans: From which to which of its keys, the last left out, for each of the group's; ``None``: for that of the
            same index.
    """

    owner: str
    spans: tuple[tuple[int, int], ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Assets that share their runs.

    Attributes:
        owner: The asset whose runs they are.
        members: All of them, in the order in which a run builds them.
        size: How many keys each of them has.
        keys_per_run: How many a run builds at most.
        stretches: Keys that follow each other, from which index to which.
        links: Keys that must be built one after another, likewise; empty if the order is free.
        waits_for: What they wait for.
        company: The group whose runs it joins whenever both are ready with the very same keys; itself if there is none.
    """

    owner: str
    members: tuple[str, ...]
    size: int
    keys_per_run: int | None
    stretches: tuple[tuple[int, int], ...]
    links: tuple[tuple[int, int], ...]
    waits_for: tuple[Wait, ...]
    company: str

    @property
    def is_chain(self) -> bool:
        """Whether some key waits for another one of the group."""
        return any(stop - first > 1 for first, stop in self.links)


def groups_of(assets: Sequence[AssetPlan]) -> tuple[Group, ...]:
    """The assets of a plan by the runs that they share.

    Args:
        assets: The assets, each behind those that it reads.

    Returns:
        Likewise; without those of which nothing is built.
    """
    assets = [one for one in assets if one.keys]
    by_owner = {one.owner: one for one in assets}
    company_of = {one.owner: _company(one, by_owner) for one in assets}
    root_of = {one.owner: _root(one, by_owner[company_of[one.owner]]) for one in assets}
    members: dict[str, list[AssetPlan]] = {}
    for one in assets:
        members.setdefault(root_of[one.owner], []).append(one)
    groups = []
    for owner, some in members.items():
        root = by_owner[owner]
        waits: dict[tuple[str, object], Wait] = {}
        for one in some:
            for other in one.after:
                if other in by_owner and root_of[other] != owner:
                    wait = _wait(one, by_owner[other])
                    waits[other, wait.spans] = wait
        is_chain = any(one.is_chain for one in some)
        restarts = sorted({at for one in some for at in one.restarts}) if is_chain else ()
        groups.append(
            Group(
                owner=owner,
                members=tuple(one.owner for one in some),
                size=len(root.keys),
                keys_per_run=root.keys_per_run,
                stretches=_cut(len(root.keys), root.breaks),
                links=_cut(len(root.keys), restarts) if is_chain else (),
                waits_for=tuple(waits.values()),
                company=company_of[owner],
            )
        )
    return tuple(groups)


def _company(one: AssetPlan, by_owner: Mapping[str, AssetPlan]) -> str:
    root = by_owner.get(one.in_run_of or one.owner)
    return one.owner if root is None or len(root.keys) != len(one.keys) else root.owner


def _root(one: AssetPlan, company: AssetPlan) -> str:
    """Whose runs are always those of an asset as well: chains that are not requested at once may lose each other."""
    are_chains = one.is_chain and company.is_chain
    return one.owner if are_chains and (company.keys_per_run is not None or company.after) else company.owner


def _wait(one: AssetPlan, other: AssetPlan) -> Wait:
    if one.owner != other.owner and other.owner in one.spans:
        return Wait(owner=other.owner, spans=one.spans[other.owner])
    if len(one.keys) == len(other.keys) and all(a.key == b.key for a, b in zip(one.keys, other.keys, strict=True)):
        return Wait(owner=other.owner, spans=None)
    places = {key.key: number for number, key in enumerate(other.keys)}
    spans = ((places[key.key], places[key.key] + 1) if key.key in places else (0, 0) for key in one.keys)
    return Wait(owner=other.owner, spans=tuple(spans))


def _cut(size: int, at: Sequence[int]) -> tuple[tuple[int, int], ...]:
    return tuple(pairwise((0, *at, size)))
