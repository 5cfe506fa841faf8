"""What Dagster's backfill daemon and its run queue make of a plan, event by event; pure, and the same every time.

The daemon looks every so often what is ready, and requests runs. The queue starts them first come first served, as many
at once as there are slots. A partition is seen by those that wait for it as soon as it is committed, at the daemon's
next look.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush, heapreplace

from marigold_assets.planning.model import AssetPlan
from marigold_assets.planning.sharing import Group, groups_of
from marigold_assets.planning.stations import Link, Station


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How long things take, in seconds.

    Attributes:
        run_start: From when a run leaves the queue until its first step could begin.
        run_end: From the last swap of a run until its slot is free.
        first_key: By asset, the first partition of a step.
        next_key: By asset, every later one.
    """

    run_start: float
    run_end: float
    first_key: Mapping[str, float]
    next_key: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """On what a plan is simulated.

    Attributes:
        slots: How many runs may run at once; ``None``: any number.
        tick_seconds: How often the daemon looks; 0: it sees everything at once.
        first_look_seconds: When it does so first; ``None``: half a tick after the launch, which may fall anywhere
            between two looks.
        dequeue_seconds: How often the queue looks.
        keeps_order: Whether the partitions of a chain wait for each other.
        keys_per_run: By asset that has runs of its own, how many partitions one of them builds at most, where that is
            to be otherwise than planned.
    """

    slots: int | None
    tick_seconds: float = 30.0
    first_look_seconds: float | None = None
    dequeue_seconds: float = 5.0
    keeps_order: bool = True
    keys_per_run: Mapping[str, int | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedRun:
    """A run of a simulation.

    Attributes:
        owner: The first asset that it builds.
        members: All of them.
        first: The index of its first partition in the asset's keys.
        stop: The index behind its last one.
        requested_at: When the daemon requested it: seconds from the launch.
        launched_at: When it left the queue.
        ended_at: When its slot was free.
    """

    owner: str
    members: tuple[str, ...]
    first: int
    stop: int
    requested_at: float
    launched_at: float
    ended_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a simulation comes to.

    Attributes:
        wall: When the last partition is committed: seconds from the launch.
        busy: How long slots are taken, all of them together.
        runs: How many runs there are.
        peak: How many run at once at most.
        commits: By asset, when each of its keys is committed; empty if nobody has asked.
        timeline: The runs in the order of their start; empty if nobody has asked.
    """

    wall: float
    busy: float
    runs: int
    peak: int
    commits: Mapping[str, Sequence[float]] = field(default_factory=dict)
    timeline: tuple[SimulatedRun, ...] = ()


class Simulator:
    """Simulates a plan under one condition after the other.

    Args:
        assets: The assets of the plan, each behind those that it reads.
    """

    def __init__(self, assets: Sequence[AssetPlan]) -> None:
        self.groups = groups_of(assets)

    @property
    def size(self) -> int:
        """How many keys there are, those that share their runs counted once."""
        return sum(group.size for group in self.groups)

    @property
    def waits(self) -> bool:
        """Whether any run waits for another one."""
        return any(group.waits_for or group.is_chain for group in self.groups)

    def least_busy(self, pace: Pace) -> float:
        """For how many seconds slots are taken at least, whatever the terms: were all keys of a group in one run."""
        return sum(
            (pace.run_start + pace.run_end) * (group.company == group.owner)
            + group.size * sum(min(pace.first_key[owner], pace.next_key[owner]) for owner in group.members)
            for group in self.groups
        )

    def run(self, pace: Pace, terms: Terms, *, in_detail: bool = False) -> Outcome:
        """Simulate.

        Args:
            pace: How long things take.
            terms: On what.
            in_detail: Whether to tell every commit and every run.
        """
        return _Simulation(self.groups, pace, terms, in_detail=in_detail).outcome()


_Released = tuple[Station, list[tuple[int, int, Link | None]]]
"""Of a group, the keys of each run, with the link of the chain that waits for it."""


class _Simulation:
    """One course of events."""

    def __init__(self, groups: Sequence[Group], pace: Pace, terms: Terms, *, in_detail: bool) -> None:
        self.pace, self.terms, self.in_detail = pace, terms, in_detail
        self.stations = [
            Station(group, terms.keys_per_run.get(group.owner, group.keys_per_run), keeps_order=terms.keeps_order)
            for group in groups
        ]
        self.commits: dict[str, list[float]] = {}
        for station in self.stations:
            for wait in station.group.waits_for:
                self.commits.setdefault(wait.owner, [])
        for group in groups:
            for owner in group.members:
                if in_detail or owner in self.commits:
                    self.commits[owner] = [math.inf] * group.size
        self.listeners = {
            owner: [one for station in self.stations for one in station.listeners(owner, commits)]
            for owner, commits in self.commits.items()
        }
        for station in self.stations:
            station.start()
        self.running: list[float] = []  # when slots that are taken will be free
        self.wall, self.busy, self.runs, self.peak = 0.0, 0.0, 0, 0
        self.timeline: list[SimulatedRun] = []

    def outcome(self) -> Outcome:
        """Let it run."""
        tick, first = self.terms.tick_seconds, self.terms.first_look_seconds
        first = tick / 2 if first is None else first
        now, looks = 0.0, 0
        while True:
            due = [station.next_at() for station in self.stations]
            at = min(due, default=math.inf)
            if at == math.inf:
                break
            if tick:
                looks = max(looks, math.ceil((at - first) / tick))
                looks += first + looks * tick < at  # which rounding may bring about
                now = first + looks * tick
                looks += 1
            else:
                now = max(now, at)
            requested: dict[str, list[tuple[int, int]]] = {}
            runs: dict[tuple[str, tuple[tuple[int, int], ...]], list[_Released]] = {}
            for station, when in zip(self.stations, due, strict=True):
                if when <= now and not self._is_held_back(station, requested):
                    ready = station.release(now)
                    ranges = tuple((first, stop) for first, stop, _ in ready)
                    runs.setdefault((station.group.company, ranges), []).append((station, ready))
                    requested |= {owner: list(ranges) for owner in station.group.members if owner in self.listeners}
            for company in runs.values():
                self._request(company, now)
        return Outcome(
            wall=self.wall,
            busy=self.busy,
            runs=self.runs,
            peak=self.peak,
            commits=self.commits if self.in_detail else {},
            timeline=tuple(self.timeline),
        )

    def _is_held_back(self, station: Station, requested: Mapping[str, Iterable[tuple[int, int]]]) -> bool:
        """Whether something that a group waits for is requested in this very look: then nothing of the group is."""
        return any(
            listener.station is station and listener.awaits(first, stop)
            for owner, ranges in requested.items()
            for listener in self.listeners[owner]
            for first, stop in ranges
        )

    def _request(self, company: Sequence[_Released], now: float) -> None:
        """Request runs of what is ready with the same keys: at once it is known when they start, as nothing passes."""
        running, slots, delay = self.running, self.terms.slots, self.terms.dequeue_seconds / 2
        members = tuple(owner for station, _ in company for owner in station.group.members)
        tells = any(owner in self.commits for owner in members)
        lengths: dict[int, list[float]] = {}
        for number, (first, stop, _) in enumerate(company[0][1]):
            while running and running[0] <= now:
                heappop(running)
            works = lengths.get(stop - first)
            if works is None:
                works = lengths[stop - first] = self._works(company, stop - first)
            takes = self.pace.run_start + works[-1] + self.pace.run_end
            if slots is None or len(running) < slots:
                launched = now + delay
                heappush(running, launched + takes)
                self.peak = max(self.peak, len(running))
            else:
                launched = running[0] + delay
                heapreplace(running, launched + takes)
            self.busy += takes
            begun = launched + self.pace.run_start
            self.wall = max(self.wall, begun + works[-1])
            for (_, ready), work in zip(company, works, strict=True):
                if (link := ready[number][2]) is not None:
                    link.done_at = begun + work
            if tells:
                self._tell(members, first, stop, begun)
            if self.in_detail:
                self.timeline.append(
                    SimulatedRun(
                        owner=members[0],
                        members=members,
                        first=first,
                        stop=stop,
                        requested_at=now,
                        launched_at=launched,
                        ended_at=launched + takes,
                    )
                )
        self.runs += len(company[0][1])

    def _works(self, company: Sequence[_Released], length: int) -> list[float]:
        """When a run has built the assets of each group, from when its first step could begin."""
        pace, work, found = self.pace, 0.0, []
        for station, _ in company:
            for owner in station.group.members:
                work += pace.first_key[owner] + (length - 1) * pace.next_key[owner]
            found.append(work)
        return found

    def _tell(self, members: Sequence[str], first: int, stop: int, begun: float) -> None:
        """Note when the keys of a run are committed, and tell those that wait for them."""
        for owner in members:
            at, step = begun + self.pace.first_key[owner], self.pace.next_key[owner]
            begun = at + (stop - first - 1) * step
            if owner in self.commits:
                self.commits[owner][first:stop] = [at + number * step for number in range(stop - first)]
                for listener in self.listeners[owner]:
                    listener.hear(first, stop)
