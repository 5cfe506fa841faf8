"""Production without catch-up: the latest interval that has ended, once, and never an older one."""

# No `from __future__ import annotations` here: Dagster compares the annotation of `context` with its classes.

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import dagster as dg

from marigold_assets.attempt import owner_of
from marigold_assets.cron import later
from marigold_assets.dagster_internals import planned_asset_keys, runs_of_schedule, selected_assets, tick_of
from marigold_assets.errors import ConfigurationError
from marigold_assets.expected import time_of
from marigold_assets.gaps import fill_command, selection_of

Target = Sequence[dg.AssetsDefinition] | dg.AssetSelection | str
Windowed = dg.TimeWindowPartitionsDefinition | dg.MultiPartitionsDefinition

# Far enough back to hold the latest interval: of minutes, hours, days, weeks, months, years. Dagster lists all that
# there are, so that a short time is looked through first.
_SPANS = tuple(timedelta(days=days) for days in (0.1, 3, 16, 70, 800))
_ANY_FORMAT = "%Y-%m-%d-%H:%M"
# Of a window that ends here nothing is left, and of partitions without time everything.
_NOTHING = timedelta(microseconds=1)


def build_latest_interval_schedule(
    *,
    name: str,
    target: Target,
    grace: timedelta,
    partitions_def: dg.PartitionsDefinition[Any] | None = None,
    minute_of_hour: int | None = None,
    hour_of_day: int | None = None,
    day_of_week: int | None = None,
    day_of_month: int | None = None,
    cron_schedule: str | Sequence[str] | None = None,
    execution_timezone: str | None = None,
    default_status: dg.DefaultScheduleStatus = dg.DefaultScheduleStatus.STOPPED,
    description: str | None = None,
    tags: Mapping[str, str] | None = None,
) -> dg.ScheduleDefinition:
    """Make a schedule that builds the latest interval that has ended, and never another one.

    A tick is for the last interval that had ended when it was due. It is skipped, and says why and what fills the gap,
    where it comes later than ``grace`` after the first tick behind the interval, where a newer interval has ended
    since, and where this schedule has launched that interval before. So nothing is caught up or built again when the
    schedule was paused, when the daemon was down, or when start date, cron or code have changed. What was skipped is
    listed by ``marigold gaps``.

    Args:
        name: The name of the schedule.
        target: What it builds: assets that share one definition of partitions in time, and assets without partitions.
        grace: How late a tick may come. An interval whose tick comes later is left for a backfill.
        partitions_def: The partitions, where the target is a selection, which tells them only when it is loaded.
        minute_of_hour: When after the end of an interval, as in ``dg.build_schedule_from_partitioned_job``.
        hour_of_day: Likewise.
        day_of_week: Likewise, for weekly partitions.
        day_of_month: Likewise, for monthly partitions.
        cron_schedule: When, instead of all these; as soon as an interval has ended, if nothing is given.
        execution_timezone: The time zone of ``cron_schedule``; that of the partitions by default.
        default_status: Whether it is on from the start.
        description: What people read about it.
        tags: Tags of its runs.

    Raises:
        ConfigurationError: The target has no partitions in time, or several definitions of them; or the grace is none.
    """
    if grace <= timedelta(0):
        raise ConfigurationError(
            f"schedule {name!r} has a grace of {_words(grace)}, so that every tick would come too late",
            remedy="give a grace of minutes or hours, such as timedelta(hours=6)",
        )
    definition = _partitions_of(name, target, partitions_def)
    calendar = _time_of(definition)
    offsets = (minute_of_hour, hour_of_day, day_of_week, day_of_month)
    given = [one is not None for one in offsets]
    if cron_schedule is not None and any(given):
        raise ConfigurationError(
            f"schedule {name!r} is given both a cron schedule and offsets", remedy="give one of the two"
        )
    if execution_timezone is not None and cron_schedule is None:
        raise ConfigurationError(
            f"schedule {name!r} is given a time zone without a cron schedule",
            remedy="give both, or leave it out: the partitions have a time zone of their own",
        )
    cron = cron_schedule or (calendar.get_cron_schedule(*offsets) if any(given) else calendar.cron_schedule)
    selection = _to_fill(target)
    zone = execution_timezone or calendar.timezone
    crons = (cron,) if isinstance(cron, str) else tuple(cron)
    judge = _Judge(name=name, definition=definition, selection=selection, crons=crons, zone=zone, grace=grace)

    @dg.schedule(
        name=name,
        target=target if isinstance(target, dg.AssetSelection | str) else list(target),
        cron_schedule=cron,
        execution_timezone=zone,
        default_status=default_status,
        description=description
        or f"Builds the latest interval that has ended; a tick more than {_words(grace)} late is left to a backfill.",
    )
    def latest_interval(context: dg.ScheduleEvaluationContext) -> list[dg.RunRequest] | dg.SkipReason:
        """The latest interval, once."""
        due, now = context.scheduled_execution_time.astimezone(UTC), datetime.now(UTC)
        latest = judge.latest(due, now)
        if isinstance(latest, dg.SkipReason):
            return latest
        before = {key: run for key in latest.keys for run in _launched(latest, key, target, context)}
        wanted = [key for key in latest.keys if key not in before]
        if not wanted:
            return _not_again(before)
        return [dg.RunRequest(run_key=f"{name}:{key}", partition_key=key, tags=tags) for key in wanted]

    return latest_interval


def latest_interval_condition(
    partitions_def: dg.PartitionsDefinition[Any], *, grace: timedelta, delay: timedelta = timedelta(0)
) -> dg.AutomationCondition[dg.AssetKey]:
    """Make an automation condition that builds the latest interval once, soon after it has ended, and no other.

    It is true of the latest interval from ``delay`` until ``delay + grace`` after its end, by the clock of the
    partitions, if it is missing, not being built, not requested before, and nothing that it reads is missing or being
    built. It is evaluated by every sensor for automation conditions, and is never true of what had ended before it was
    added, nor of any older interval, whatever is missing.

    Args:
        partitions_def: The partitions of the asset. Of an asset without partitions in time it is never true.
        grace: How long it may be built after it has become due, in whole minutes; the two times together are shorter
            than an interval.
        delay: How long after its end it becomes due, in whole minutes.

    Raises:
        ConfigurationError: The partitions are not in time, come to an end or leave intervals out, or the times do not
            fit them.
    """
    calendar = _time_of(partitions_def)
    if calendar.end is not None or calendar.exclusions or calendar.end_offset:
        what = "come to an end" if calendar.end is not None else "leave out intervals" if calendar.exclusions else None
        raise ConfigurationError(
            f"the partitions {what or 'have an end_offset'}, so that the latest one is not the one that has just ended",
            remedy="use build_latest_interval_schedule, which looks at the calendar",
        )
    begins, ends = later(calendar.cron_schedule, delay), later(calendar.cron_schedule, delay + grace)
    if begins is None or ends is None or grace <= timedelta(0):
        raise ConfigurationError(
            f"a grace of {_words(grace)} and a delay of {_words(delay)} do not fit intervals of"
            f" {calendar.cron_schedule!r}",
            remedy="give whole minutes, together shorter than an interval; a monthly one has to be built before the"
            " 29th; for other calendars use build_latest_interval_schedule",
        )
    when = dg.AutomationCondition
    # Counted from the end, so that another delay or grace does not make an interval a new one.
    ended, due, over = (
        when.cron_tick_passed(cron, calendar.timezone) for cron in (calendar.cron_schedule, begins, ends)
    )
    is_latest = when.in_latest_time_window() & ~when.in_latest_time_window(_NOTHING)
    is_ready = ~when.in_progress() & ~when.any_deps_missing() & ~when.any_deps_in_progress()
    return (
        is_latest.with_label("in_latest_interval")
        & due.since(over).with_label(f"at most {_words(grace)} late")
        & (~when.newly_requested().since(ended)).with_label("not_requested_before")
        & when.missing()
        & is_ready.with_label("ready")
    ).with_label(f"latest_interval(grace={_words(grace)}, delay={_words(delay)})")


@dataclass(frozen=True, kw_only=True)
class _Latest:
    """The latest interval as of a tick of a schedule: its partitions, and when it has ended."""

    schedule: str
    due: datetime
    keys: Sequence[str]
    end: datetime


@dataclass(frozen=True, kw_only=True)
class _Judge:
    """What a tick is about, and why it may be skipped."""

    name: str
    definition: Windowed
    selection: str
    crons: Sequence[str]
    zone: str
    grace: timedelta

    def latest(self, due: datetime, now: datetime) -> _Latest | dg.SkipReason:
        """The interval that a tick is about, or why it is skipped."""
        calendar = _time_of(self.definition)
        key, newest = _latest(calendar, due), _latest(calendar, max(due, now))
        if key is None or not calendar.has_partition_key(key):
            oldest, youngest = calendar.get_first_partition_key(), calendar.get_last_partition_key()
            known = "there are none yet" if oldest is None else f"those are {oldest} to {youngest}"
            return dg.SkipReason(f"{key or 'What'} has just ended, and is none of the partitions: {known}.")
        own = self._keys_of(key)
        # Not this tick but the first one behind the interval: another cron may have many more.
        end = calendar.time_window_for_partition_key(key).end
        first = min(due, self._first_tick(end))
        late = f"its tick of {first:%Y-%m-%d %H:%M} UTC came {_words(now - first)} late"
        if now - first > self.grace:
            why = f"{late}, which is more than the grace of {_words(self.grace)}"
        elif key != newest:
            why = f"{late}, and {newest} has ended since"
        else:
            if not own:
                return dg.SkipReason(f"There is no partition of {key}.")
            return _Latest(schedule=self.name, due=due, keys=own, end=end)
        return dg.SkipReason(f"{key} was skipped: {why}. {self._remedy(key)}")

    def _first_tick(self, after: datetime) -> datetime:
        """The first tick that is not before some time."""
        found = (_first_start(cron, self.zone, after) for cron in self.crons)
        return min((one for one in found if one is not None), default=after).astimezone(UTC)

    def _keys_of(self, key: str) -> list[str]:
        if not isinstance(self.definition, dg.MultiPartitionsDefinition):
            return [key]
        time = self.definition.time_window_dimension.name
        return [str(one) for one in self.definition.get_multipartition_keys_with_dimension_value(time, key)]

    def _remedy(self, key: str) -> str:
        return f"To fill it: {fill_command(self.selection, key, key)}"


def _launched(
    latest: _Latest, key: str, target: Target, context: dg.ScheduleEvaluationContext
) -> Iterator[dg.DagsterRun]:
    """The runs of a partition that the schedule has launched before this tick: Dagster compares those of one tick only.

    A run of this very tick is for Dagster to judge: it may have been made, and not submitted. One of another tick that
    was never submitted never will be: the scheduler died in between.
    """
    instance = _instance_of(context)
    found = [] if instance is None else runs_of_schedule(instance, latest.schedule, key)
    submitted = [run for run in found if run.status != dg.DagsterRunStatus.NOT_STARTED]
    # Before its end, it was another interval of the same name: the day that a month begins with.
    others = [run for run in submitted if (tick := tick_of(run)) is None or (latest.due != tick >= latest.end)]
    if instance is None or not others:
        return
    own = _assets_of(target, context)
    for run in others:
        # Another code location may have a schedule of the same name, which builds other assets.
        built = planned_asset_keys(instance, run)
        if not built or not own or built & own:
            yield run


def _not_again(runs: Mapping[str, dg.DagsterRun]) -> dg.SkipReason:
    said = ", ".join(f"{key} by run {run.run_id} ({run.status.value.lower()})" for key, run in runs.items())
    return dg.SkipReason(f"Skipped: this schedule has launched {said} before, and does so once.")


def _assets_of(target: Target, context: dg.ScheduleEvaluationContext) -> frozenset[dg.AssetKey]:
    """The assets that a schedule builds; none where nobody knows, in a test without a code location."""
    if not isinstance(target, dg.AssetSelection | str):
        return frozenset(spec.key for one in target for spec in one.specs)
    try:
        repository = context.repository_def
    except dg.DagsterInvariantViolationError:
        return frozenset()
    return selected_assets(repository, dg.AssetSelection.from_string(target) if isinstance(target, str) else target)


def _instance_of(context: dg.ScheduleEvaluationContext) -> dg.DagsterInstance | None:
    """The instance; ``None`` where somebody calls the schedule in a test, without one."""
    try:
        return context.instance
    except dg.DagsterInvariantViolationError:
        return None


def _latest(definition: dg.TimeWindowPartitionsDefinition, when: datetime) -> str | None:
    """The latest interval that has ended by some time, whether or not the definition still or already has it."""
    zone = ZoneInfo(definition.timezone)
    for span in _SPANS:
        nearby = dg.TimeWindowPartitionsDefinition(
            start=(when - span).astimezone(zone),
            cron_schedule=definition.cron_schedule,
            fmt=definition.fmt,
            timezone=definition.timezone,
        )
        if keys := nearby.get_partition_keys(current_time=when):
            return str(keys[-1])
    return None


def _first_start(cron: str, zone: str, after: datetime) -> datetime | None:
    """The first tick of a cron schedule that is not before some time: where its first interval begins."""
    nearby = dg.TimeWindowPartitionsDefinition(
        start=after.astimezone(ZoneInfo(zone)), cron_schedule=cron, fmt=_ANY_FORMAT, timezone=zone
    )
    for span in _SPANS:
        if keys := nearby.get_partition_keys(current_time=after + span):
            return nearby.time_window_for_partition_key(keys[0]).start
    return None


def _to_fill(target: Target) -> str:
    """What has to be filled where an interval was skipped."""
    if isinstance(target, dg.AssetSelection | str):
        return str(target)
    return selection_of([owner_of(key) for one in target if one.partitions_def is not None for key in one.keys])


def _partitions_of(name: str, target: Target, given: dg.PartitionsDefinition[Any] | None) -> Windowed:
    if isinstance(target, dg.AssetSelection | str):
        if given is None:
            raise ConfigurationError(
                f"schedule {name!r} is about a selection, which does not tell its partitions before it is loaded",
                remedy="give partitions_def, or the assets themselves",
            )
        return _windowed(given, f"schedule {name!r}")
    specs = [spec for one in target for spec in one.specs]
    found = {spec.key: spec.partitions_def for spec in specs if spec.partitions_def is not None}
    definitions = list(dict.fromkeys([*found.values(), *([given] if given is not None else [])]))
    asset = ", ".join(sorted(map(owner_of, found.keys() or {spec.key for spec in specs})))
    if len(definitions) != 1:
        raise ConfigurationError(
            f"schedule {name!r} is about assets without partitions"
            if not definitions
            else f"schedule {name!r} is about {len(definitions)} definitions of partitions",
            remedy="make a schedule with dg.ScheduleDefinition"
            if not definitions
            else "make a schedule for each of them",
            asset=asset,
        )
    return _windowed(definitions[0], f"schedule {name!r}", asset)


def _windowed(definition: dg.PartitionsDefinition[Any], what: str, asset: str | None = None) -> Windowed:
    if isinstance(definition, Windowed) and time_of(definition) is not None:
        return definition
    raise ConfigurationError(
        f"{what} needs partitions in time, and has {type(definition).__name__}",
        remedy="give daily, hourly, weekly or monthly partitions",
        asset=asset,
    )


def _time_of(definition: dg.PartitionsDefinition[Any]) -> dg.TimeWindowPartitionsDefinition:
    found = time_of(definition)
    if found is None:
        raise ConfigurationError(
            f"the latest interval needs partitions in time, and not a {type(definition).__name__}",
            remedy="give daily, hourly, weekly or monthly partitions",
        )
    return found


def _words(span: timedelta) -> str:
    """A span of time, as people say it."""
    minutes, seconds = divmod(round(abs(span.total_seconds())), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = [(days, "d"), (hours, "h"), (minutes, "min"), (seconds, "s")]
    said = " ".join(f"{number} {unit}" for number, unit in parts if number)
    return f"{'-' if span < timedelta(0) else ''}{said or '0 min'}"
