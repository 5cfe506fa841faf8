"""Whether the bound really holds: a backfill that does nothing is launched, and watched."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import dagster as dg

from marigold_assets import dagster_instance
from marigold_assets.dagster_instance import Api
from marigold_assets.errors import ConfigurationError, StoreBusyError
from marigold_assets.preflight.settings import InstanceSettings, backfill_slots
from marigold_assets.run_tags import BACKFILL_TAG
from marigold_assets.sentinel import DEFAULT_NAME, DONE_TAG, MOST, PATIENCE_SECONDS, SENTINEL_TAG, WATCHED_TAG

_TAKES_A_SLOT: Final = [dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELING]
_ENDED: Final = frozenset({dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED})
_MORE_THAN_FIT: Final = 2
_POLL_SECONDS: Final = 0.25
_CLEAN_UP_SECONDS: Final = 60.0
_LOOKS: Final = 4
_WATCH_SECONDS: Final = PATIENCE_SECONDS / 3
_SEEN: Final = {DONE_TAG: "yes"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """What was seen.

    Attributes:
        limit: How many runs of backfills may run at once.
        launched: How many sentinels were launched together.
        peak: How many runs of backfills were seen to run at once, sentinels and others.
        production_seconds: How long a run that is no backfill's took to start while all that were allowed ran.
        seconds: How long it all took.
        backfill_id: The backfill, which stays in the history.
    """

    limit: int
    launched: int
    peak: int
    production_seconds: float
    seconds: float
    backfill_id: str

    @property
    def holds(self) -> bool:
        """Whether the limit was kept."""
        return self.peak <= self.limit


def prove(
    instance: dg.DagsterInstance,
    api: Api,
    settings: InstanceSettings,
    *,
    job: str = DEFAULT_NAME,
    timeout_seconds: float = 240.0,
    say: Callable[[str], None] = lambda _text: None,
) -> Proof:
    """Launch more sentinels than may run at once, and a run that is no backfill's, and watch.

    It ends what it has launched, also where it is interrupted.

    Args:
        instance: The instance, whose daemon runs.
        api: Launches.
        settings: What it is set to.
        job: The name of the sentinel job.
        timeout_seconds: How long to watch.
        say: Told what happens.

    Raises:
        ConfigurationError: There is no such job, or no limit that could be proven with it.
        StoreBusyError: The queue had no room for it all within the time, or another proof is under way, so that
            nothing is proven.
    """
    limit = backfill_slots(settings)
    if limit is None or not 0 < limit <= MOST - _MORE_THAN_FIT:
        raise ConfigurationError(
            f"a limit of {limit} runs of backfills cannot be proven with {MOST} sentinels",
            remedy="set a lower limit on dagster/backfill in dagster.yaml",
        )
    place = api.place_of_job(job)
    if place is None:
        raise ConfigurationError(
            f"the code location has no sentinel job {job!r}",
            remedy="add jobs=[build_sentinel_job()] to its Definitions, from marigold_assets, and reload it where the"
            " daemon runs",
        )
    _refuse_others(instance, job)
    watch = _Watch(instance=instance, api=api, place=place, job=job, limit=limit, say=say)
    try:
        return watch.run(timeout_seconds)
    finally:
        watch.clean_up()


def _refuse_others(instance: dg.DagsterInstance, job: str) -> None:
    """Sentinels of somebody else are in the way, and would be taken for those of this proof."""
    unfinished = [status for status in dg.DagsterRunStatus if status not in _ENDED]
    others = instance.get_runs(filters=dg.RunsFilter(job_name=job, statuses=unfinished))
    if others:
        raise StoreBusyError(
            f"nothing is proven: {len(others)} sentinels of another proof have not ended (the first is run"
            f" {others[-1].run_id})",
            remedy=f"wait: those that run end {PATIENCE_SECONDS:.0f} s after nobody watches them any more; or end"
            " them under 'Runs' in the user interface",
        )


@dataclass(slots=True, kw_only=True)
class _Watch:
    instance: dg.DagsterInstance
    api: Api
    place: tuple[str, str]
    job: str
    limit: int
    say: Callable[[str], None]
    _backfill: str | None = None
    _production: str | None = None
    _peak: int = 0
    _deadline: float = 0.0
    _watched: float = 0.0

    @property
    def _count(self) -> int:
        return self.limit + _MORE_THAN_FIT

    def run(self, timeout_seconds: float) -> Proof:
        begun = time.monotonic()
        self._deadline = begun + timeout_seconds
        self._backfill = self._launch_backfill()
        self.say(f"Launched {self._count} sentinels (backfill {self._backfill}), of which {self.limit} may run.")
        self._wait_for(self._is_full, f"to see {self.limit} of them run; Dagster looks for backfills every 30 s")
        launched = time.monotonic()
        self._production = self._launch_run()
        self.say(f"{self.limit} run, the others wait. Launched one that is no backfill's.")
        self._wait_for(self._has_started, "to see a run start that is no backfill's, though a slot is free")
        waited = time.monotonic() - launched
        self.say(f"It started after {waited:.0f} s. Letting them end, and the others start.")
        self._wait_for(self._have_all_ended, "to see them all end")
        return Proof(
            limit=self.limit,
            launched=self._count,
            peak=self._peak,
            production_seconds=waited,
            seconds=time.monotonic() - begun,
            backfill_id=self._backfill,
        )

    def clean_up(self) -> None:
        """End whatever has not ended, as far as that is possible within some time.

        Sentinels end by themselves when they are told. To be interrupted while it starts, a run takes minutes to end.
        """
        if self._backfill is None:
            return
        deadline = time.monotonic() + _CLEAN_UP_SECONDS
        told, clean = False, 0
        while clean < _LOOKS and time.monotonic() < deadline:
            clean = 0 if self._is_unfinished() else clean + 1
            if clean and not told:
                return
            if not told:
                told = True
                self.say("Ending what was launched.")
            if len(self._runs()) < self._count:
                dagster_instance.ask_to_cancel(self.instance, self._backfill)
            for run in self._left():
                with suppress(Exception):  # it may end by itself meanwhile; then there is nothing to end
                    self.instance.add_run_tags(run.run_id, _SEEN)
                    if run.status is dg.DagsterRunStatus.QUEUED:
                        dagster_instance.end_run(self.instance, run.run_id)
            time.sleep(_POLL_SECONDS * 4)

    def _is_unfinished(self) -> bool:
        """Whether runs are left, or will be launched. The daemon may forget that it was asked not to, once."""
        found = dagster_instance.backfill(self.instance, str(self._backfill))
        will_launch = found is not None and found.status == "REQUESTED" and len(self._runs()) < self._count
        return will_launch or bool(self._left())

    def _left(self) -> list[dg.DagsterRun]:
        production = [] if self._production is None else [self.instance.get_run_by_id(self._production)]
        return [one for one in (*self._runs(), *production) if one is not None and one.status not in _ENDED]

    def _wait_for(self, condition: Callable[[], bool], what: str) -> None:
        while not condition():
            if time.monotonic() > self._deadline:
                raise StoreBusyError(
                    f"nothing is proven: it took too long {what}{self._why()}",
                    remedy="see 'Runs' in the user interface for what is in the way, or wait longer: --timeout SECONDS",
                )
            self._show_interest()
            time.sleep(_POLL_SECONDS)

    def _show_interest(self) -> None:
        """Tell the sentinels that somebody still watches, or they end."""
        now = time.monotonic()
        if now - self._watched < _WATCH_SECONDS:
            return
        self._watched = now
        for run in self._left():
            if run.status is dg.DagsterRunStatus.STARTED and DONE_TAG not in run.tags:
                self.instance.add_run_tags(run.run_id, {WATCHED_TAG: f"{now:.0f}"})

    def _why(self) -> str:
        found = None if self._backfill is None else dagster_instance.backfill(self.instance, self._backfill)
        if found is None or found.error is None:
            return f" (at most {self._peak} ran at once)"
        return f" (the daemon has given the backfill up: {found.error})"

    def _look(self) -> int:
        """How many runs of backfills run now."""
        running = self.instance.get_runs(filters=dg.RunsFilter(statuses=_TAKES_A_SLOT))
        count = sum(BACKFILL_TAG in run.tags for run in running)
        self._peak = max(self._peak, count)
        return count

    def _runs(self) -> list[dg.DagsterRun]:
        return list(self.instance.get_runs(filters=dg.RunsFilter(tags={BACKFILL_TAG: str(self._backfill)})))

    def _is_full(self) -> bool:
        return self._look() >= self.limit and len(self._runs()) == self._count

    def _has_started(self) -> bool:
        self._look()
        run = self.instance.get_run_by_id(str(self._production))
        return run is not None and (run.status is dg.DagsterRunStatus.STARTED or run.status in _ENDED)

    def _have_all_ended(self) -> bool:
        self._look()
        left = self._left()
        for run in left:
            if run.status is dg.DagsterRunStatus.STARTED and DONE_TAG not in run.tags:
                self.instance.add_run_tags(run.run_id, _SEEN)
        return not left

    def _launch_backfill(self) -> str:
        location, repository = self.place
        return self.api.launch_backfill(
            {
                "selector": {
                    "repositorySelector": {"repositoryLocationName": location, "repositoryName": repository},
                    "partitionSetName": f"{self.job}_partition_set",
                },
                "partitionNames": [f"{number:02d}" for number in range(1, self._count + 1)],
                "title": dagster_instance.title_of("marigold doctor: sentinels that do nothing"),
                "tags": [{"key": SENTINEL_TAG, "value": "yes"}],
                "description": f"Proves that at most {self.limit} runs of backfills run at once.",
            }
        )

    def _launch_run(self) -> str:
        location, repository = self.place
        return self.api.launch_run(
            {
                "selector": {
                    "repositoryLocationName": location,
                    "repositoryName": repository,
                    "jobName": self.job,
                },
                "mode": "default",
                "runConfigData": {},
                "executionMetadata": {"tags": [{"key": "dagster/partition", "value": f"{MOST:02d}"}]},
            }
        )
