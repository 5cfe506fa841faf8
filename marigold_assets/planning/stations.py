"""What is ready of a group of assets, while a simulation goes on; pure but for its own state."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import accumulate

from marigold_assets.planning.sharing import Group


@dataclass(slots=True)
class Link:
    """Keys of a chain that are built one after another.

    Attributes:
        front: The index of the first one that was not requested yet.
        stop: The index behind the last one.
        done_at: When the last one that was requested is committed: the next one waits for that.
    """

    front: int
    stop: int
    done_at: float = 0.0


class Station:
    """Holds the keys of a group until they are ready.

    Args:
        group: The group.
        keys_per_run: How many keys a run builds at most; ``None``: as many as are ready.
        keeps_order: Whether the keys of a chain wait for each other.
    """

    def __init__(self, group: Group, keys_per_run: int | None, *, keeps_order: bool) -> None:
        self.group, self._keys_per_run = group, keys_per_run
        self._stretch_starts = {first for first, _ in group.stretches}
        self._links = [Link(first, stop) for first, stop in group.links] if keeps_order and group.links else None
        self._open, self._ready = [0] * group.size, [0.0] * group.size
        self._arrivals: list[tuple[float, int]] = []
        self._is_untouched = not group.waits_for and self._links is None

    def listeners(self, owner: str, commits: Sequence[float]) -> Iterator[Following | Watching]:
        """What hears of the commits of an asset for the group."""
        for wait in self.group.waits_for:
            if wait.owner == owner:
                yield Following(self, commits) if wait.spans is None else Watching(self, wait.spans, commits)

    def expect(self, index: int) -> None:
        """A key waits for one thing more."""
        self._open[index] += 1

    def settle(self, index: int, at: float) -> None:
        """A key waits for one thing less."""
        self._ready[index] = max(self._ready[index], at)
        self._open[index] -= 1
        if self._open[index] == 0:
            self.arrive(index)

    def arrive(self, index: int) -> None:
        """A key waits for nothing more than time."""
        if self._links is None:
            heappush(self._arrivals, (self._ready[index], index))

    def start(self) -> None:
        """All that waits is known by now."""
        if self.group.waits_for and self._links is None:
            for index, number in enumerate(self._open):
                if number == 0:
                    self.arrive(index)

    def next_at(self) -> float:
        """When something is ready; infinite if that is not known yet, or if nothing is left."""
        if self._is_untouched:
            return 0.0
        if self._links is None:
            return self._arrivals[0][0] if self._arrivals else math.inf
        soonest = math.inf
        for link in self._links:
            if link.done_at < soonest and not self._open[link.front]:
                soonest = min(soonest, max(link.done_at, self._ready[link.front]))
        return soonest

    def release(self, now: float) -> list[tuple[int, int, Link | None]]:
        """Hand over what is ready, cut into runs.

        Args:
            now: When.

        Returns:
            For each run the index of its first key, that behind its last one, and the link of the chain that waits for
            it.
        """
        if self._links is not None:
            return self._release_links(self._links, now)
        stretches = self.group.stretches
        if self._is_untouched:
            self._is_untouched = False
        else:
            indices = []
            while self._arrivals and self._arrivals[0][0] <= now:
                indices.append(heappop(self._arrivals)[1])
            stretches = tuple(self._stretches(sorted(indices)))
        found: list[tuple[int, int, Link | None]] = []
        for first, stop in stretches:
            step = self._keys_per_run or stop - first
            found += [(at, min(at + step, stop), None) for at in range(first, stop, step)]
        return found

    def _stretches(self, indices: Sequence[int]) -> Iterator[tuple[int, int]]:
        """Keys that follow each other."""
        start = 0
        for at in range(1, len(indices) + 1):
            if at == len(indices) or indices[at] != indices[at - 1] + 1 or indices[at] in self._stretch_starts:
                yield indices[start], indices[at - 1] + 1
                start = at

    def _release_links(self, links: list[Link], now: float) -> list[tuple[int, int, Link | None]]:
        left = self._keys_per_run or self.group.size
        found: list[tuple[int, int, Link | None]] = []
        for link in links:
            if left == 0:
                break
            at = link.front
            if link.done_at > now or not self._is_ready(at, now):
                continue
            limit = min(link.stop, at + left)
            at += 1
            while at < limit and at not in self._stretch_starts and self._is_ready(at, now):
                at += 1
            found.append((link.front, at, link))
            left -= at - link.front
            link.front, link.done_at = at, math.inf
        if any(link.front == link.stop for _, _, link in found if link is not None):
            self._links = [link for link in links if link.front < link.stop]
        return found

    def _is_ready(self, index: int, now: float) -> bool:
        return self._open[index] == 0 and self._ready[index] <= now


class Following:
    """Settles the key of the same index, for each that is committed.

    Args:
        station: The keys that wait.
        commits: When what they wait for is committed.
    """

    def __init__(self, station: Station, commits: Sequence[float]) -> None:
        self.station, self._commits = station, commits
        for index in range(len(commits)):
            station.expect(index)

    def hear(self, first: int, stop: int) -> None:
        """Some are committed: it is known when."""
        for index in range(first, stop):
            self.station.settle(index, self._commits[index])

    def awaits(self, first: int, stop: int) -> bool:
        """Whether any key waits for one of these."""
        return first < stop


@dataclass(slots=True)
class _Scan:
    """A look along keys, as far as it is known when they are committed: for all that wait for spans of one beginning.

    Attributes:
        at: The index of the first key of which that is not known.
        waiting: The indices of those that wait, by the end of their span.
        stop: The last end.
        latest: When the last one of those behind is committed.
    """

    at: int
    waiting: dict[int, list[int]]
    stop: int = 0
    latest: float = 0.0


class Watching:
    """Settles keys once the whole span that each waits for is committed.

    Args:
        station: The keys that wait.
        spans: From which to which index each of them waits for, the last left out.
        commits: When what they wait for is committed.
    """

    def __init__(self, station: Station, spans: Sequence[tuple[int, int]], commits: Sequence[float]) -> None:
        self.station, self._commits = station, commits
        edges = [0] * (len(commits) + 1)
        scans: dict[int, _Scan] = {}
        for index, (first, stop) in enumerate(spans):
            if first < stop:
                station.expect(index)
                edges[first] += 1
                edges[stop] -= 1
                scan = scans.setdefault(first, _Scan(first, {}))
                scan.waiting.setdefault(stop, []).append(index)
                scan.stop = max(scan.stop, stop)
        self._waiting = list(accumulate(edges))
        self._halted = {first: [scan] for first, scan in scans.items()}

    def hear(self, first: int, stop: int) -> None:
        """Some are committed: it is known when."""
        for index in range(first, stop):
            for scan in self._halted.pop(index, ()):
                self._advance(scan)

    def awaits(self, first: int, stop: int) -> bool:
        """Whether any key waits for one of these."""
        return any(self._waiting[first:stop])

    def _advance(self, scan: _Scan) -> None:
        while scan.at < scan.stop and self._commits[scan.at] < math.inf:
            scan.latest = max(scan.latest, self._commits[scan.at])
            scan.at += 1
            for index in scan.waiting.pop(scan.at, ()):
                self.station.settle(index, scan.latest)
        if scan.at < scan.stop:
            self._halted.setdefault(scan.at, []).append(scan)
