"""How far a launch has come: of its partitions the ledger tells, of its runs Dagster, of its price its tags."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import dagster as dg

from marigold_assets import dagster_instance, dagster_internals
from marigold_assets.attempt import FENCED_OUT_BY_TAG, NOBODY, PARTITION_TAG, RANGE_START_TAG, owner_of
from marigold_assets.backfill.past_runs import left_queue
from marigold_assets.backfill.price import CANARY_TAG, Price
from marigold_assets.budget import LAUNCH_TAG, MAX_FAILURES_TAG
from marigold_assets.dagster_instance import Backfill
from marigold_assets.errors import ConfigurationError
from marigold_assets.model import LedgerEntry
from marigold_assets.planning.model import Key

RANGE_END_TAG = "dagster/asset_partition_range_end"
_BACKFILL_TAG = "dagster/backfill"
_WILL_RETRY_TAG = "dagster/will_retry"
_MOST_TOLD = 5
_MOST_RUNS = 5_000
_ENOUGH_TO_EXTRAPOLATE = 3
_RUNNING = (dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELING)
_FAILED = (dg.DagsterRunStatus.FAILURE,)
_CANCELED = (dg.DagsterRunStatus.CANCELED,)

Heads = Callable[[str, Sequence[Key]], Mapping[Key, LedgerEntry] | None]
"""The newest ledger entries of some partitions of an asset; ``None`` where it has no ledger that can be read."""
Keys = Callable[[str], Sequence[Key]]
"""The partitions of an asset in order; none where that is not known."""


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

    @property
    def done(self) -> int:
        """How many there is nothing more to do about."""
        return self.built + self.confirmed + self.elsewhere

    @property
    def queued(self) -> int:
        """How many are in no run that runs, or in none yet; when all is over, those that nobody has started."""
        return max(0, self.total - self.done - self.running - self.failed - self.canceled)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """A run that failed.

    Attributes:
        run_id: The run.
        what: Its assets and partitions.
        message: The first line of its error.
        fenced_out_by: The run that was newer, if it was fenced out.
    """

    run_id: str
    what: str
    message: str
    fenced_out_by: str | None = None


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
        busy_seconds: How long runs were in their slots together; ``None`` until all have ended, or where there are too
            many to look at.
        troubles: Some of those that failed, the newest first.
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
    def is_well(self) -> bool:
        """Whether all was built."""
        return self.done == self.total

    @property
    def wall_seconds(self) -> float:
        """From the launch to the last commit if all is over or done, else to now."""
        ended = self.is_over or self.done == self.total
        until = self.last_commit if ended and self.last_commit is not None else self.seen_at
        return (until - self.launched_at).total_seconds()

    @property
    def expected_wall_seconds(self) -> float | None:
        """How long it takes altogether, as it looks now: by its price, and by the pace of what was built since."""
        if self.is_over or (self.total and self.done == self.total):
            return self.wall_seconds
        predicted = self.price.wall.median if self.price is not None and self.is_priced_whole else None
        share = self.done / self.total if self.total else 1.0
        if self.done < _ENOUGH_TO_EXTRAPOLATE or self.first_commit is None or self.last_commit is None:
            return predicted if predicted is not None and predicted > self.wall_seconds else None
        # The first commit stands for itself: what came before it, the daemon's tick and the start, comes once.
        pace = (self.last_commit - self.first_commit).total_seconds() / (self.done - 1)
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
        if self.is_over and not self.is_well:  # what was not done took no time
            return None
        return expected / self.price.wall.median - 1

    @property
    def is_priced_whole(self) -> bool:
        """Whether all that its price is for was launched, and at once: not with a canary that the rest waits for."""
        has_canary = any(CANARY_TAG in one.tags for one in self.backfills)
        return self.price is not None and self.price.partitions == self.total and not has_canary


def find(instance: dg.DagsterInstance, name: str | None) -> tuple[str, tuple[Backfill, ...]]:
    """The backfills of a launch, or one backfill, by name; the newest without one.

    Returns:
        The name that stands for them, and the backfills, the oldest first.

    Raises:
        ConfigurationError: There are none.
    """
    if name is None:
        newest = dagster_instance.backfills(instance, most=1)
        if not newest:
            raise ConfigurationError(
                "this instance has no backfill", remedy="launch one: marigold launch; or check DAGSTER_HOME"
            )
        name = newest[0].tags.get(LAUNCH_TAG, newest[0].backfill_id)
    of_launch = dagster_instance.backfills(instance, tags={LAUNCH_TAG: name})
    if of_launch:
        return name, tuple(reversed(of_launch))
    one = dagster_instance.backfill(instance, name)
    if one is None:
        known = dagster_instance.backfills(instance, most=_MOST_TOLD)
        names = dict.fromkeys(found.tags.get(LAUNCH_TAG, found.backfill_id) for found in known)
        raise ConfigurationError(
            f"there is no launch and no backfill {name!r} on this instance",
            remedy=f"name one of the newest: {', '.join(names)}" if names else "check DAGSTER_HOME: it has none at all",
        )
    return one.backfill_id, (one,)


def look(
    instance: dg.DagsterInstance, name: str, backfills: Sequence[Backfill], *, heads: Heads, keys: Keys
) -> Progress:
    """Look how far some backfills have come.

    Args:
        instance: Where.
        name: What stands for them.
        backfills: Which, as :func:`find` gives them.
        heads: The ledger.
        keys: The order of partitions.
    """
    ids = frozenset(one.backfill_id for one in backfills)
    launched_at = min(one.created_at for one in backfills)
    runs = _Runs(instance, sorted(ids))
    wanted: dict[str, set[Key]] = {}
    for one in backfills:
        for owner, theirs in one.targets.items():
            wanted.setdefault(owner, set()).update(theirs or ())
    running, broken, ended = (runs.places(statuses, keys) for statuses in (_RUNNING, _FAILED, _CANCELED))
    assets, commits = [], []
    for owner, targets in wanted.items():
        entries = heads(owner, list(targets))
        counts: dict[Key, LedgerEntry] = {}
        if entries is not None:
            counts = {key: one for key, one in entries.items() if key in targets and one.committed_at >= launched_at}
            done = set(counts)
            commits += [one.committed_at for one in counts.values()]
        else:
            done = {key for one in backfills for key in one.built.get(owner, ())}
        own = [one for one in counts.values() if one.provenance.backfill_id in ids]
        at_work = (running.get(owner, set()) & targets) - done
        failed = (broken.get(owner, set()) & targets) - done - at_work
        assets.append(
            AssetProgress(
                owner=owner,
                total=len(targets),
                built=sum(not one.confirmed for one in own) if entries is not None else len(done),
                confirmed=sum(one.confirmed for one in own),
                elsewhere=len(counts) - len(own),
                running=len(at_work),
                failed=len(failed),
                canceled=len((ended.get(owner, set()) & targets) - done - at_work - failed),
                is_exact=entries is not None,
                left=_in_order(targets - done, keys(owner)),
            )
        )
    return Progress(
        name=name,
        backfills=tuple(backfills),
        assets=tuple(assets),
        queued_runs=runs.count(dg.DagsterRunStatus.QUEUED, dg.DagsterRunStatus.NOT_STARTED),
        running_runs=runs.count(*_RUNNING),
        succeeded_runs=runs.count(dg.DagsterRunStatus.SUCCESS),
        failed_runs=len(runs.failed_for_good()),
        canceled_runs=runs.count(dg.DagsterRunStatus.CANCELED),
        busy_seconds=runs.busy_seconds(launched_at),
        troubles=tuple(runs.troubles()),
        price=Price.of_tags(backfills[0].tags),
        first_commit=min(commits, default=None),
        last_commit=max(commits, default=None),
        seen_at=datetime.now(UTC),
    )


class _Runs:
    """The runs of some backfills."""

    def __init__(self, instance: dg.DagsterInstance, backfill_ids: Sequence[str]) -> None:
        self._instance, self._ids = instance, list(backfill_ids)

    def _filter(self, *statuses: dg.DagsterRunStatus) -> dg.RunsFilter:
        return dg.RunsFilter(tags={_BACKFILL_TAG: self._ids}, statuses=list(statuses))

    def count(self, *statuses: dg.DagsterRunStatus) -> int:
        """How many have one of these statuses."""
        return self._instance.get_runs_count(self._filter(*statuses))

    def _some(self, *statuses: dg.DagsterRunStatus) -> Sequence[dg.DagsterRun]:
        return self._instance.get_runs(filters=self._filter(*statuses), limit=_MOST_RUNS)

    def places(self, statuses: Sequence[dg.DagsterRunStatus], keys: Keys) -> Mapping[str, set[Key]]:
        """The partitions of the runs that have one of these statuses, by asset."""
        found: dict[str, set[Key]] = {}
        for run in self._some(*statuses):
            for asset in self._assets_of(run):
                owner = owner_of(asset)
                found.setdefault(owner, set()).update(_keys_of(run, keys(owner)))
        return found

    def _assets_of(self, run: dg.DagsterRun) -> Iterable[dg.AssetKey]:
        """The assets of a run; that of a whole job does not say which."""
        return run.asset_selection or dagster_internals.planned_asset_keys(self._instance, run)

    def failed_for_good(self) -> list[dg.DagsterRun]:
        """Those that failed, and that Dagster does not try again."""
        return [one for one in self._some(*_FAILED) if one.tags.get(_WILL_RETRY_TAG) != "true"]

    def busy_seconds(self, since: datetime) -> float | None:
        """How long they were in their slots together, once all have ended: from when they left the queue."""
        records = self._instance.get_run_records(self._filter(), limit=_MOST_RUNS)
        if len(records) == _MOST_RUNS or not all(one.dagster_run.is_finished for one in records):
            return None
        left = left_queue(self._instance, since.timestamp())
        spans = [(left.get(one.dagster_run.run_id, one.start_time), one.end_time) for one in records]
        return sum(end - start for start, end in spans if start is not None and end is not None)

    def troubles(self) -> Iterator[Trouble]:
        """The newest of those that failed."""
        for run in self.failed_for_good()[:_MOST_TOLD]:
            fenced = run.tags.get(FENCED_OUT_BY_TAG)
            yield Trouble(
                run_id=run.run_id,
                what=_what(run, self._assets_of(run)),
                message=self._message(run.run_id),
                fenced_out_by=None if fenced in {None, NOBODY} else fenced,
            )

    def _message(self, run_id: str) -> str:
        """The first line of what a run says of its failure: of an error its innermost cause, where that is known."""
        for entry in self._instance.all_logs(run_id, of_type=dg.DagsterEventType.STEP_FAILURE):
            event = entry.dagster_event
            data = None if event is None else event.step_failure_data
            if data is None:
                continue
            if data.user_failure_data is not None and data.user_failure_data.description:
                return _first_line(str(data.user_failure_data.description))
            if data.error is not None:
                return _innermost(data.error)
        for entry in self._instance.all_logs(run_id, of_type=dg.DagsterEventType.RUN_FAILURE):
            event = entry.dagster_event
            failure = None if event is None else event.job_failure_data
            if failure is not None and failure.error is not None:
                return _innermost(failure.error)
            return _first_line(entry.message if event is None else event.message or "")
        return "nothing was recorded"


def failed_checks(instance: dg.DagsterInstance, backfills: Sequence[str]) -> list[str]:
    """The asset checks that have failed, other than as a warning, in runs of some backfills, in words."""
    found = []
    runs = _Runs(instance, backfills)
    for run in runs._some():
        for entry in instance.all_logs(run.run_id, of_type=dg.DagsterEventType.ASSET_CHECK_EVALUATION):
            event = entry.dagster_event
            result = None if event is None else event.asset_check_evaluation_data
            if result is not None and not result.passed and result.severity is dg.AssetCheckSeverity.ERROR:
                where = result.partition or _shown_keys(run)
                found.append(f"{result.check_name} of {owner_of(result.asset_key)} [{where}], run {run.run_id}")
    return found


def _in_order(some: Set[Key], order: Sequence[Key]) -> tuple[Key, ...]:
    found = tuple(key for key in order if key in some)
    return found if len(found) == len(some) else tuple(sorted(some, key=str))


def _keys_of(run: dg.DagsterRun, order: Sequence[Key]) -> Iterator[Key]:
    single, first, last = (run.tags.get(tag) for tag in (PARTITION_TAG, RANGE_START_TAG, RANGE_END_TAG))
    if first is not None and last is not None:
        places = {key: place for place, key in enumerate(order)}
        if first in places and last in places:
            yield from order[places[first] : places[last] + 1]
            return
        yield from (first, last)
        return
    yield single


def _what(run: dg.DagsterRun, made: Iterable[dg.AssetKey]) -> str:
    assets = ", ".join(sorted(map(owner_of, made))) or run.job_name
    keys = _shown_keys(run)
    return f"{assets} [{keys}]" if keys else assets


def _shown_keys(run: dg.DagsterRun) -> str:
    given = (run.tags.get(tag) for tag in (PARTITION_TAG, RANGE_START_TAG, RANGE_END_TAG))
    return "...".join(dict.fromkeys(one for one in given if one is not None))


def _innermost(error: Any) -> str:
    """The first line of the error that another one was raised for, with its class and without the way there."""
    while error.cause is not None:
        error = error.cause
    return re.sub(r"^(\w+\.)+(?=\w+: )", "", _first_line(error.message))


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "nothing was said")


def budget_of(backfills: Sequence[Backfill]) -> int | None:
    """How many runs of a launch may fail; ``None``: any number."""
    given = backfills[0].tags.get(MAX_FAILURES_TAG, "")
    return int(given) if given.isdecimal() else None
