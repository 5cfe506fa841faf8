"""How far a launch has come: of its partitions the ledger tells, of its runs Dagster, of its price its tags."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import dagster as dg

from marigold_assets import dagster_instance
from marigold_assets.backfill.launch_runs import Between, Keys, LaunchRuns, Trouble
from marigold_assets.backfill.price import CANARY_TAG, Price
from marigold_assets.budget import LAUNCH_TAG, MAX_FAILURES_TAG
from marigold_assets.dagster_instance import Backfill
from marigold_assets.errors import ConfigurationError
from marigold_assets.model import LedgerEntry
from marigold_assets.planning.model import Key
from marigold_assets.run_tags import PARENT_BACKFILL_TAG
from marigold_assets.sentinel import SENTINEL_TAG

_MOST_TOLD = 5
_ENOUGH_TO_EXTRAPOLATE = 3
_RUNNING = (dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELING)
_FAILED = (dg.DagsterRunStatus.FAILURE,)
_CANCELED = (dg.DagsterRunStatus.CANCELED,)
_SUCCEEDED = (dg.DagsterRunStatus.SUCCESS,)

Heads = Callable[[str, Sequence[Key]], Mapping[Key, LedgerEntry] | None]
"""The newest ledger entries of some partitions of an asset; ``None`` where it has no ledger that can be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AssetProgress:
    """How far an asset has come.

    Attributes:
        owner: The asset.
        total: How many partitions are to be built.
        built: How many were, by this launch.
        confirmed: How many were computed again and found to be what they were.
        elsewhere: How many others have built since it was launched.
        running: How many are in runs that run, and not built yet.
        failed: How many are left by runs that failed.
        canceled: How many are left by runs that were canceled, and did not fail before.
        is_exact: Whether the ledger tells so; else the daemon, which looks every half minute.
        left: Those that are not done, in order as far as that is known.
        stood: How many a run found to be as they are to be, and left alone.
    """

    owner: str
    total: int
    built: int
    confirmed: int
    elsewhere: int
    running: int
    failed: int
    canceled: int
    is_exact: bool
    left: tuple[Key, ...] = ()
    stood: int = 0

    @property
    def done(self) -> int:
        """How many there is nothing more to do about."""
        return self.built + self.confirmed + self.elsewhere + self.stood

    @property
    def queued(self) -> int:
        """How many are in no run that runs, or in none yet; when all is over, those that nobody has started."""
        return max(0, self.total - self.done - self.running - self.failed - self.canceled)


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a launch has come.

    Attributes:
        name: Its name, or that of its only backfill.
        backfills: Its backfills, the oldest first.
        assets: Its assets.
        queued_runs: How many runs wait.
        running_runs: How many run.
        succeeded_runs: How many have ended well.
        failed_runs: How many failed for good.
        canceled_runs: How many were canceled.
        busy_seconds: How long runs were in their slots together; ``None`` until all have ended, and where some were
            deleted or there are too many to look at.
        troubles: Some of those that failed, the newest first.
        failed_when_done: Of these how many had built all of theirs, and failed by something else, such as a check.
        failed_checks: Asset checks that have failed, other than as a warning, in words; only when all is over.
        price: What was predicted.
        last_commit: When the last partition so far was committed (aware, UTC).
        first_commit: The same of the first.
        seen_at: When this was looked at (aware, UTC).
    """

    name: str
    backfills: tuple[Backfill, ...]
    assets: tuple[AssetProgress, ...]
    queued_runs: int
    running_runs: int
    succeeded_runs: int
    failed_runs: int
    canceled_runs: int
    busy_seconds: float | None
    troubles: tuple[Trouble, ...]
    failed_when_done: int
    failed_checks: tuple[str, ...]
    price: Price | None
    first_commit: datetime | None
    last_commit: datetime | None
    seen_at: datetime

    @property
    def launched_at(self) -> datetime:
        """When the first of its backfills was launched."""
        return min(one.created_at for one in self.backfills)

    @property
    def total(self) -> int:
        """How many partitions are to be built."""
        return sum(one.total for one in self.assets)

    @property
    def done(self) -> int:
        """How many there is nothing more to do about."""
        return sum(one.done for one in self.assets)

    @property
    def failed(self) -> int:
        """How many are left behind."""
        return sum(one.failed for one in self.assets)

    @property
    def is_over(self) -> bool:
        """Whether nothing of it is still to come."""
        return self.runs_are_over and not any(one.is_active for one in self.backfills)

    @property
    def runs_are_over(self) -> bool:
        """Whether no run waits or runs."""
        return not self.queued_runs and not self.running_runs

    @property
    def is_built(self) -> bool:
        """Whether all that was launched is built."""
        if self.total:
            return self.done == self.total
        # The backfill of a job, whose runs tell nothing of partitions of assets: all that is known is how they ended.
        went_wrong = self.failed_runs or self.canceled_runs or any(one.was_stopped for one in self.backfills)
        return self.is_over and bool(self.succeeded_runs) and not went_wrong

    @property
    def is_whole(self) -> bool:
        """Whether all that was planned is launched: of a launch not only a canary.

        One backfill, looked at by its own name, is all that there is to it, whatever the price of its launch is for.
        """
        is_launch = self.backfills[0].tags.get(LAUNCH_TAG) == self.name
        return not is_launch or self.price is None or self.price.partitions <= self.total

    @property
    def is_well(self) -> bool:
        """Whether all that was planned is built, and nothing is wrong with it by its checks or the end of its runs."""
        return self.is_built and self.is_whole and not self.failed_when_done and not self.failed_checks

    @property
    def wall_seconds(self) -> float:
        """From the launch to the last commit if all is over or done, else to now."""
        until = self.seen_at
        if self.is_over or self.is_built:
            ends = [one.ended_at for one in self.backfills if one.ended_at is not None]
            until = self.last_commit or max(ends, default=until)  # where nothing had to be built, none was committed
        return (until - self.launched_at).total_seconds()

    @property
    def expected_wall_seconds(self) -> float | None:
        """How long it takes altogether, as it looks now: by its price, and by the pace of what was built since."""
        if self.is_over or self.is_built:
            return self.wall_seconds
        predicted = self.price.wall.median if self.price is not None and self.is_priced_whole else None
        share = self.done / self.total if self.total else 1.0
        committed = self.done - sum(one.stood for one in self.assets)
        if committed < _ENOUGH_TO_EXTRAPOLATE or self.first_commit is None or self.last_commit is None:
            return predicted if predicted is not None and predicted > self.wall_seconds else None
        # The first commit stands for itself: what came before it, the daemon's tick and the start, comes once.
        pace = (self.last_commit - self.first_commit).total_seconds() / (committed - 1)
        rest = pace * (self.total - self.done)
        paced = (self.last_commit - self.launched_at).total_seconds() + rest
        found = paced if predicted is None else (1 - share) * predicted + share * paced
        return found if found > self.wall_seconds else self.wall_seconds + rest

    @property
    def remaining_seconds(self) -> float | None:
        """How long it still takes; ``None``: nobody can tell."""
        expected = self.expected_wall_seconds
        return None if expected is None else max(0.0, expected - self.wall_seconds)

    @property
    def drift(self) -> float | None:
        """By which part it takes longer (or, below 0, shorter) than its price; ``None``: it had none."""
        expected = self.expected_wall_seconds
        if self.price is None or expected is None or self.price.wall.median <= 0 or not self.is_priced_whole:
            return None
        if self.is_over and not self.is_built:  # what was not done took no time
            return None
        return expected / self.price.wall.median - 1

    @property
    def is_priced_whole(self) -> bool:
        """Whether all that its price is for was launched, and at once: not with a canary that the rest waits for."""
        has_canary = any(CANARY_TAG in one.tags for one in self.backfills)
        return self.price is not None and self.price.partitions == self.total and not has_canary


def find(instance: dg.DagsterInstance, name: str | None) -> tuple[str, tuple[Backfill, ...]]:
    """The backfills of a launch, or one backfill, by name; without one the newest that is not the doctor's.

    Returns:
        The name that stands for them, and the backfills, the oldest first.

    Raises:
        ConfigurationError: There are none.
    """
    if name is None:
        name = _name_of(_newest(instance))
    tagged = dagster_instance.backfills(instance, tags={LAUNCH_TAG: name})
    of_launch = [one for one in tagged if _name_of(one) == name]
    if of_launch:
        return name, tuple(reversed(of_launch))
    one = dagster_instance.backfill(instance, name)
    if one is None:
        known = dagster_instance.backfills(instance, most=_MOST_TOLD)
        names = dict.fromkeys(map(_name_of, known))
        raise ConfigurationError(
            f"there is no launch and no backfill {name!r} on this instance",
            remedy=f"name one of the newest: {', '.join(names)}" if names else "check DAGSTER_HOME: it has none at all",
        )
    return one.backfill_id, (one,)


def _newest(instance: dg.DagsterInstance) -> Backfill:
    """The newest backfill that the doctor has not launched."""
    for most in (_MOST_TOLD, None):
        for one in dagster_instance.backfills(instance, most=most):
            if SENTINEL_TAG not in one.tags:
                return one
    raise ConfigurationError(
        "this instance has no backfill", remedy="launch one: marigold launch; or check DAGSTER_HOME"
    )


def _name_of(one: Backfill) -> str:
    """What a backfill is called: by its launch, unless somebody has launched it again by hand."""
    return one.backfill_id if PARENT_BACKFILL_TAG in one.tags else one.tags.get(LAUNCH_TAG, one.backfill_id)


def look(
    instance: dg.DagsterInstance,
    name: str,
    backfills: Sequence[Backfill],
    *,
    heads: Heads,
    keys: Keys,
    between: Between | None = None,
) -> Progress:
    """Look how far some backfills have come.

    Args:
        instance: Where.
        name: What stands for them.
        backfills: Which, as :func:`find` gives them.
        heads: The ledger.
        keys: The order of partitions.
        between: The partitions of ranges that mean something else than an order does.
    """
    launched_at = min(one.created_at for one in backfills)
    runs = LaunchRuns(instance, sorted(one.backfill_id for one in backfills))
    wanted: dict[str, set[Key]] = {}
    for one in backfills:
        for owner, theirs in one.targets.items():
            wanted.setdefault(owner, set()).update(theirs or ())
    places = _Places(
        running=runs.places(_RUNNING, keys, between),
        failed=runs.places(_FAILED, keys, between),
        canceled=runs.places(_CANCELED, keys, between),
        succeeded=runs.places(_SUCCEEDED, keys, between),
    )
    own_runs = {one.run_id for one in runs.late}
    assets, commits, built_by = [], [], set()
    found_heads: dict[str, Mapping[Key, LedgerEntry] | None] = {}
    for owner, targets in wanted.items():
        entries = found_heads[owner] = heads(owner, list(targets))
        if entries is None:
            told = {key for one in backfills for key in one.built.get(owner, ())}
            assets.append(_progress(owner, targets, done=told, places=places, order=keys(owner), is_exact=False))
            continue
        counts = {key: one for key, one in entries.items() if key in targets and one.committed_at >= launched_at}
        own = [one for one in counts.values() if _is_own(one, backfills) or one.run_id in own_runs]
        # What a run of this launch was about, and found to need no work, is done, however old it is.
        stood = (places.succeeded.get(owner, set()) & targets & set(entries)) - set(counts)
        commits += [one.committed_at for one in counts.values()]
        built_by |= {one.run_id for one in own}
        found = _progress(owner, targets, done=set(counts) | stood, places=places, order=keys(owner), is_exact=True)
        confirmed = sum(one.confirmed for one in own)
        elsewhere = len(counts) - len(own)
        assets.append(
            replace(found, built=len(own) - confirmed, confirmed=confirmed, elsewhere=elsewhere, stood=len(stood))
        )
    progress = Progress(
        name=name,
        backfills=tuple(backfills),
        assets=tuple(assets),
        queued_runs=runs.count(dg.DagsterRunStatus.QUEUED, dg.DagsterRunStatus.NOT_STARTED),
        running_runs=runs.count(*_RUNNING),
        succeeded_runs=runs.count(*_SUCCEEDED),
        failed_runs=len(runs.failed_for_good),
        canceled_runs=runs.count(*_CANCELED),
        busy_seconds=_busy_seconds(runs, backfills, built_by),
        troubles=tuple(runs.troubles()),
        failed_when_done=len(runs.failed_when_done(found_heads, keys, between)) if found_heads else 0,
        failed_checks=(),
        price=Price.of_tags(backfills[0].tags),
        first_commit=min(commits, default=None),
        last_commit=max(commits, default=None),
        seen_at=datetime.now(UTC),
    )
    return replace(progress, failed_checks=tuple(runs.failed_checks())) if progress.is_over else progress


@dataclass(frozen=True, slots=True, kw_only=True)
class _Places:
    """By asset, the partitions of runs, by how these have ended."""

    running: Mapping[str, set[Key]]
    failed: Mapping[str, set[Key]]
    canceled: Mapping[str, set[Key]]
    succeeded: Mapping[str, set[Key]]


def _progress(
    owner: str, targets: set[Key], *, done: set[Key], places: _Places, order: Sequence[Key], is_exact: bool
) -> AssetProgress:
    at_work = (places.running.get(owner, set()) & targets) - done
    failed = (places.failed.get(owner, set()) & targets) - done - at_work
    return AssetProgress(
        owner=owner,
        total=len(targets),
        built=len(done),
        confirmed=0,
        elsewhere=0,
        running=len(at_work),
        failed=len(failed),
        canceled=len((places.canceled.get(owner, set()) & targets) - done - at_work - failed),
        is_exact=is_exact,
        left=_in_order(targets - done, order),
    )


def _is_own(entry: LedgerEntry, backfills: Sequence[Backfill]) -> bool:
    return any(entry.provenance.backfill_id == one.backfill_id for one in backfills)


def _busy_seconds(runs: LaunchRuns, backfills: Sequence[Backfill], built_by: Set[str]) -> float | None:
    """How long the runs took; ``None``: not known yet, or not any more."""
    if any(one.status == "COMPLETED_SUCCESS" for one in backfills) and not runs.some(most=1):
        return None  # it had some, and they were deleted
    return runs.busy_seconds(min(one.created_at for one in backfills), built_by)


def _in_order(some: Set[Key], order: Sequence[Key]) -> tuple[Key, ...]:
    found = tuple(key for key in order if key in some)
    return found if len(found) == len(some) else tuple(sorted(some, key=str))


def budget_of(backfills: Sequence[Backfill]) -> int | None:
    """How many runs of a launch may fail; ``None``: any number."""
    given = backfills[0].tags.get(MAX_FAILURES_TAG, "")
    return int(given) if given.isdecimal() else None
