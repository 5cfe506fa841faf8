"""The frozen values of a plan. Nothing here knows Dagster, a database or a clock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Final

Key = str | None
"""A partition key; ``None`` for an asset without partitions."""
MOST_PARTITIONS: Final = 10_000
"""How many partitions are launched at once at most, unless somebody says that more are meant."""


class Reason(Enum):
    """Why a partition is in a plan; the first that holds is the one given."""

    MISSING = "MISSING"
    """It was never built."""

    STALE_CODE = "STALE_CODE"
    """Other code than the present has built it, and nobody has accepted that."""

    STALE_INPUT = "STALE_INPUT"
    """What it was built from has changed since, or is rebuilt by this very plan."""

    RESTATEMENT = "RESTATEMENT"
    """It is current, and somebody wants it computed again all the same."""

    LOOKBACK = "LOOKBACK"
    """It is current and precedes one that is missing by no more than the lookback: late data may have come."""


class Skip(Enum):
    """Why a partition that was asked for is not in a plan."""

    CURRENT = "CURRENT"
    """It is what present code and inputs would make, as far as that was recorded; the words say where it was not."""

    STALE = "STALE"
    """It is stale only through an input that this plan does not build: built now, it would be made of the same."""

    ACCEPTED = "ACCEPTED"
    """It is not, and somebody has accepted it as it is."""

    BLOCKED = "BLOCKED"
    """An input of it does not exist, and this plan does not make it."""

    UNKNOWN = "UNKNOWN"
    """It exists, and nobody has recorded what has built it."""

    MISSING = "MISSING"
    """It was never built, and only what is stale was asked for."""


class Absence(Enum):
    """Why a plan does not build what another partition lacks."""

    NOT_SELECTED = "not selected"
    """The asset is not in the selection."""

    BEFORE = "before the range"
    """The asset is in the selection, and the partition precedes the range."""

    BEHIND = "behind the range"
    """It comes after the range."""

    LEFT_OUT = "left out"
    """The range is one of other partitions, and says nothing of it."""

    NOT_STALE = "not stale"
    """Only what is stale was asked for, and it was never built."""

    NO_PARTITION = "no partition"
    """The definition of the asset has no such partition."""


class Order(Enum):
    """In which order partitions are started that do not wait for each other."""

    OLDEST_FIRST = "oldest-first"
    NEWEST_FIRST = "newest-first"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedKey:
    """A partition that a plan builds.

    Attributes:
        key: The partition.
        reason: Why.
        because: The same in words, for people: ``"code 1 -> 2"``, ``"raw_orders[2024-01-20] is rebuilt"``.
    """

    key: Key
    reason: Reason
    because: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedKey:
    """A partition that was asked for and that a plan leaves alone.

    Attributes:
        key: The partition.
        reason: Why.
        because: The same in words.
    """

    key: Key
    reason: Skip
    because: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Lack:
    """What blocked partitions of an asset lack in the first place.

    Attributes:
        owner: The asset of which partitions are lacking.
        absence: Why the plan does not build them.
        first: The first of them; of a chain that would have to begin earlier, the one to begin with.
        last: The last of them.
        blocked: How many partitions are blocked through them.
    """

    owner: str
    absence: Absence
    first: Key
    last: Key
    blocked: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AssetPlan:
    """What a plan does to one asset.

    Attributes:
        owner: The asset, as the ledger has it.
        keys: What is built, in the order of its partitions.
        skipped: What was asked for and is not, in that order.
        is_chain: Whether a partition needs the one before it, so that they are built one after another.
        keys_per_run: How many partitions one run builds at most; ``None``: as many as are ready.
        after: Assets of the plan that it reads, itself left out.
        in_run_of: The asset of the plan in whose runs it is built as well; ``None``: it has runs of its own.
        notes: What else people should know.
        breaks: Indices in ``keys`` of those that do not follow the one before them in the partitions definition: no run
            reaches across.
        restarts: Indices in ``keys`` from which on a chain reads nothing that the plan builds before.
        spans: Of assets in ``after`` that are not read under the partition's own name: for each of ``keys``, from which
            index to which of that asset's ``keys``, the last left out, it waits for.
        code: What builds it, as in :class:`marigold_assets.planning.states.AssetState`.
        fingerprint: The fingerprint of that code, as there: code may change and its version stay.
        lacks: What its blocked partitions lack; first of all what the first of them lacks.
    """

    owner: str
    keys: tuple[PlannedKey, ...]
    skipped: tuple[SkippedKey, ...] = ()
    is_chain: bool = False
    keys_per_run: int | None = 1
    after: tuple[str, ...] = ()
    in_run_of: str | None = None
    notes: tuple[str, ...] = ()
    breaks: tuple[int, ...] = ()
    restarts: tuple[int, ...] = ()
    spans: Mapping[str, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    code: str = ""
    fingerprint: str = ""
    lacks: tuple[Lack, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What bounds the runs of a backfill on the live instance.

    Attributes:
        slots: How many runs of backfills may run at once; ``None``: as many as there are.
        tick_seconds: How often the backfill daemon looks what is ready.
        dequeue_seconds: How often the run queue is looked at.
        source: Where these were read, for people.
    """

    slots: int | None
    tick_seconds: float = 30.0
    dequeue_seconds: float = 5.0
    source: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """How long something took.

    Attributes:
        median: Seconds.
        p90: Seconds; nine of ten took no longer. Where few were measured it is more than they show.
        count: How many were measured; 0: nothing was, and these are stated defaults.
    """

    median: float
    p90: float
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AssetHistory:
    """How long partitions of one asset took.

    Attributes:
        first_key: The first partition of a step, from when the step could begin: with all that a step needs to start.
        next_key: Every later one.
    """

    first_key: Spread
    next_key: Spread

    @property
    def is_assumed(self) -> bool:
        """Whether nothing was measured."""
        return self.first_key.count == 0 and self.next_key.count == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """How long runs took.

    Attributes:
        run_start: From when a run leaves the queue until its first step could begin.
        run_end: From the last swap of a run until its slot is free.
        assets: By asset.
    """

    run_start: Spread
    run_end: Spread
    assets: Mapping[str, AssetHistory]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSample:
    """What a past run tells of durations.

    Attributes:
        launched_at: When it left the queue (Unix time, seconds).
        started_at: When its process had started; ``None`` where that was not recorded.
        ended_at: When its slot was free.
        swaps: By asset, when each partition was swapped, in order.
    """

    launched_at: float
    started_at: float | None
    ended_at: float
    swaps: Mapping[str, tuple[float, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A duration that is not known exactly.

    Attributes:
        median: Seconds, with every part at its median.
        p90: Seconds, with every part at its 90th percentile: a cautious bound.
    """

    median: float
    p90: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Bill:
    """What a plan costs, simulated on the limits of the live instance.

    Attributes:
        runs: How many runs it takes.
        wall: From the launch until the last partition is committed. The daemon's first look is half a tick away, and a
            whole one where it says ``p90``.
        busy: Run seconds: how long slots are taken, all of them together.
        critical_path: How long it takes at least, were there slots without end, no tick and no start of runs.
        saved_by_slots: Seconds of ``wall`` that slots without end would save.
        saved_by_ticks: Seconds of it that a daemon which never sleeps would save.
        saved_by_starts: Seconds of it that runs which start at once would save.
        parallel: What ``wall`` would be if no partition had to wait for another one of its asset.
        one_more_slot: Seconds of ``wall`` that one more slot would save.
        best_keys_per_run: By asset whose order is free: the chunk size that makes ``wall`` shortest, and that ``wall``.
        assumed: Assets without history, for which defaults stand in.
        limits: What it was simulated on.
    """

    runs: int
    wall: Estimate
    busy: Estimate
    critical_path: float
    saved_by_slots: float
    saved_by_ticks: float
    saved_by_starts: float
    parallel: float
    one_more_slot: float
    best_keys_per_run: Mapping[str, tuple[int, float]]
    assumed: tuple[str, ...]
    limits: Limits

    @property
    def ordering_costs(self) -> float:
        """Seconds of ``wall`` that order costs."""
        return max(0.0, self.wall.median - self.parallel)

    def wall_from(self, first_look_seconds: float) -> Estimate:
        """The same as ``wall`` for a launch of which it is known when the daemon first looks.

        Nothing happens before that, and all that happens later does so from then on.
        """
        if not self.runs:
            return self.wall
        tick = self.limits.tick_seconds
        median = self.wall.median + first_look_seconds - tick / 2
        return Estimate(median=median, p90=max(median, self.wall.p90 + first_look_seconds - tick))


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What somebody asked for, so that the same can be planned again.

    Attributes:
        selection: The assets, in Dagster's selection syntax.
        first: The first partition, as it was given; ``None``: from the beginning.
        last: The last partition; ``None``: to the end.
        restate: Whether current partitions are computed again.
        stale: Whether only what exists and is stale is wanted.
        lookback: How many partitions before a missing one are computed again as well.
        order: In which order, where that is free.
    """

    selection: str
    first: str | None = None
    last: str | None = None
    restate: bool = False
    stale: bool = False
    lookback: int = 0
    order: Order = Order.OLDEST_FIRST


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillPlan:
    """What a backfill would do. ``plan``, ``explain`` and ``launch`` read this and nothing else.

    Attributes:
        request: What was asked for.
        assets: The assets, each behind those of them that it reads.
        bill: The price.
        positions: By asset of the plan, and by what they read, the newest position of its ledger when the plan was
            made; 0 where nothing was ever written.
        made_at: When (aware, UTC).
        notes: What else people should know.
    """

    request: Request
    assets: tuple[AssetPlan, ...]
    bill: Bill
    positions: Mapping[str, int]
    made_at: datetime
    notes: tuple[str, ...] = field(default=())

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to build."""
        return not any(one.keys for one in self.assets)

    @property
    def is_blocked(self) -> bool:
        """Whether something that was asked for lacks an input."""
        return self.left(Skip.BLOCKED) > 0

    @property
    def is_done(self) -> bool:
        """Whether all that was asked for is built, and neither stale nor blocked."""
        return self.is_empty and not self.left(Skip.BLOCKED, Skip.STALE)

    def left(self, *reasons: Skip) -> int:
        """How many partitions it leaves alone for some reasons."""
        return sum(one.reason in reasons for asset in self.assets for one in asset.skipped)

    @property
    def size(self) -> int:
        """How many partitions it builds, of all assets together."""
        return sum(len(one.keys) for one in self.assets)
