"""The runs of a launch: those of its backfills, and their retries, which may have lost the tag of a backfill."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any

import dagster as dg

from marigold_assets import dagster_internals
from marigold_assets.attempt import FENCED_OUT_BY_TAG, NOBODY, owner_of
from marigold_assets.backfill.past_runs import left_queue
from marigold_assets.budget import is_of_launch
from marigold_assets.model import LedgerEntry
from marigold_assets.planning.model import Key
from marigold_assets.run_tags import (
    BACKFILL_TAG,
    PARTITION_TAG,
    RANGE_END_TAG,
    RANGE_START_TAG,
    ROOT_RUN_TAG,
    WILL_RETRY_TAG,
)

_MOST_TOLD = 5
_MOST_RUNS = 5_000
_PAGE = 500
_FAILED = (dg.DagsterRunStatus.FAILURE,)

Keys = Callable[[str], Sequence[Key]]
"""The partitions of an asset in order; none where that is not known."""
Between = Callable[[str, str, str], Sequence[Key] | None]
"""The partitions of an asset in a range, where they are others than those between its ends; else ``None``."""


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


class LaunchRuns:
    """The runs of some backfills as they are when they are first asked for: each status is read once."""

    def __init__(self, instance: dg.DagsterInstance, backfill_ids: Sequence[str]) -> None:
        self._instance, self._ids = instance, list(backfill_ids)
        self._read: dict[tuple[int, tuple[dg.DagsterRunStatus, ...]], list[dg.DagsterRun]] = {}

    def _filter(self, *statuses: dg.DagsterRunStatus) -> dg.RunsFilter:
        return dg.RunsFilter(tags={BACKFILL_TAG: self._ids}, statuses=list(statuses))

    @cached_property
    def late(self) -> Sequence[dg.DagsterRun]:
        """Retries that came when their backfill had ended or was canceled, which the instance keeps apart from it."""
        roots = sorted({_root_of(one) for one in self._launched(*_FAILED)})
        found: list[dg.DagsterRun] = []
        for at in range(0, len(roots), _PAGE):
            found += self._instance.get_runs(filters=dg.RunsFilter(tags={ROOT_RUN_TAG: roots[at : at + _PAGE]}))
        return [one for one in found if BACKFILL_TAG not in one.tags and is_of_launch(one)]

    def count(self, *statuses: dg.DagsterRunStatus) -> int:
        """How many have one of these statuses."""
        late = sum(one.status in statuses for one in self.late)
        return self._instance.get_runs_count(self._filter(*statuses)) + late

    def some(self, *statuses: dg.DagsterRunStatus, most: int = _MOST_RUNS) -> list[dg.DagsterRun]:
        """Those that have one of these statuses, or, without any, all; not more than so many."""
        late = [one for one in self.late if not statuses or one.status in statuses]
        return [*late, *self._launched(*statuses, most=most)]

    def _launched(self, *statuses: dg.DagsterRunStatus, most: int = _MOST_RUNS) -> list[dg.DagsterRun]:
        """The same without late retries."""
        place = most, statuses
        if place not in self._read:
            self._read[place] = list(self._instance.get_runs(filters=self._filter(*statuses), limit=most))
        return self._read[place]

    def places(
        self, statuses: Sequence[dg.DagsterRunStatus], keys: Keys, between: Between | None = None
    ) -> Mapping[str, set[Key]]:
        """The partitions of the runs that have one of these statuses, by asset."""
        found: dict[str, set[Key]] = {}
        for _, made in self._made_by(self.some(*statuses), keys, between):
            for owner, theirs in made.items():
                found.setdefault(owner, set()).update(theirs)
        return found

    def _made_by(
        self, runs: Iterable[dg.DagsterRun], keys: Keys, between: Between | None
    ) -> Iterator[tuple[dg.DagsterRun, Mapping[str, Sequence[Key]]]]:
        """Each run with the partitions that it is about, by asset."""
        orders: dict[str, Mapping[Key, int]] = {}
        for run in runs:
            made: dict[str, Sequence[Key]] = {}
            for owner in map(owner_of, self._assets_of(run)):
                if owner not in orders:
                    orders[owner] = {key: place for place, key in enumerate(keys(owner))}
                made[owner] = _keys_of(run, owner, keys(owner), orders[owner], between)
            yield run, made

    def _assets_of(self, run: dg.DagsterRun) -> Iterable[dg.AssetKey]:
        """The assets of a run; that of a whole job does not say which."""
        return run.asset_selection or dagster_internals.planned_asset_keys(self._instance, run)

    @cached_property
    def _failed(self) -> Sequence[dg.DagsterRun]:
        return self.some(*_FAILED)

    @cached_property
    def failed_for_good(self) -> Sequence[dg.DagsterRun]:
        """Those that failed, and that Dagster does not try again."""
        return [one for one in self._failed if one.tags.get(WILL_RETRY_TAG) != "true"]

    def failed_when_done(
        self, heads: Mapping[str, Mapping[Key, LedgerEntry] | None], keys: Keys, between: Between | None = None
    ) -> list[dg.DagsterRun]:
        """Those that failed for good though nothing of theirs is left to build, as by a check that blocks.

        What they have built is what they, and those that they are retries of, have left. Where others have built
        something of it since, that has mended it, as far as a ledger tells; and so has a retry that succeeded.

        Args:
            heads: By asset, the newest entries of its partitions; ``None`` where there is no ledger.
            keys: The order of partitions.
            between: As for :meth:`places`.
        """
        if not self.failed_for_good:
            return []
        roots = {one.run_id: _root_of(one) for one in self._failed}
        mended = {_root_of(one) for one in self.some(dg.DagsterRunStatus.SUCCESS)}

        def is_own(run: dg.DagsterRun, owner: str, key: Key) -> bool:
            entries = heads.get(owner)
            return entries is None or (key in entries and roots.get(entries[key].run_id) == _root_of(run))

        return [
            run
            for run, made in self._made_by(self.failed_for_good, keys, between)
            if _root_of(run) not in mended
            and all(is_own(run, owner, key) for owner, theirs in made.items() for key in theirs)
        ]

    def busy_seconds(self, since: datetime, built_by: Set[str] = frozenset()) -> float | None:
        """How long they were in their slots together, once all have ended: from when they left the queue.

        Args:
            since: When the first of them may have been launched.
            built_by: Those that have built something.

        Returns:
            Seconds; ``None`` while not all have ended, or where nobody knows of some any more.
        """
        records = list(self._instance.get_run_records(self._filter(), limit=_MOST_RUNS))
        if len(records) == _MOST_RUNS:
            return None
        if self.late:
            late = dg.RunsFilter(run_ids=[one.run_id for one in self.late])
            records += self._instance.get_run_records(late)
        if not all(one.dagster_run.is_finished for one in records):
            return None
        if not built_by <= {one.dagster_run.run_id for one in records}:  # somebody has deleted them
            return None
        left = left_queue(self._instance, since.timestamp())
        spans = [(left.get(one.dagster_run.run_id, one.start_time), one.end_time) for one in records]
        return sum(end - start for start, end in spans if start is not None and end is not None)

    def troubles(self) -> Iterator[Trouble]:
        """The newest of those that failed."""
        for run in self.failed_for_good[:_MOST_TOLD]:
            fenced = run.tags.get(FENCED_OUT_BY_TAG)
            yield Trouble(
                run_id=run.run_id,
                what=_what(run, self._assets_of(run)),
                message=self._message(run.run_id),
                fenced_out_by=None if fenced in {None, NOBODY} else fenced,
            )

    def failed_checks(self) -> list[str]:
        """The asset checks that have failed in them, other than as a warning, in words.

        Of the same check of the same partitions the last time counts: a retry may have passed it.
        """
        last: dict[tuple[dg.AssetKey, str, str], tuple[float, str | None]] = {}
        for run in self._all():
            for entry in self._instance.all_logs(run.run_id, of_type=dg.DagsterEventType.ASSET_CHECK_EVALUATION):
                event = entry.dagster_event
                result = None if event is None else event.asset_check_evaluation_data
                if result is None:
                    continue
                keys = result.partition or _shown_keys(run)
                of = owner_of(result.asset_key) + (f" [{keys}]" if keys else "")
                is_wrong = not result.passed and result.severity is dg.AssetCheckSeverity.ERROR
                said = f"{result.check_name} of {of}, run {run.run_id}" if is_wrong else None
                place = result.asset_key, result.check_name, keys
                if place not in last or last[place][0] < entry.timestamp:
                    last[place] = entry.timestamp, said
        return [said for _, said in last.values() if said is not None]

    def _all(self) -> Iterator[dg.DagsterRun]:
        yield from self.late
        cursor: str | None = None
        while page := self._instance.get_runs(filters=self._filter(), cursor=cursor, limit=_PAGE):
            yield from page
            cursor = page[-1].run_id

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


def _root_of(run: dg.DagsterRun) -> str:
    return run.root_run_id or run.tags.get(ROOT_RUN_TAG) or run.run_id


def _keys_of(
    run: dg.DagsterRun, owner: str, order: Sequence[Key], places: Mapping[Key, int], between: Between | None
) -> Sequence[Key]:
    single, first, last = (run.tags.get(tag) for tag in (PARTITION_TAG, RANGE_START_TAG, RANGE_END_TAG))
    if first is None or last is None:
        return [single]
    if first not in places or last not in places:
        return [first, last]
    found = None if between is None else between(owner, first, last)
    return order[places[first] : places[last] + 1] if found is None else found


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
