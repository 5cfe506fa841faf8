"""What is well with an instance, and what is not: judged by its settings.

A bound holds for whoever launches a backfill, or it is none: limits that hold for each backfill, or for some, do not
count.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final

import dagster as dg

from marigold_assets.preflight.settings import BACKFILL, RANGE, InstanceSettings, backfill_slots, read_settings

_RESTART: Final = "set this in dagster.yaml and restart the daemon"
_GOOD_LIMIT, _GOOD_TOTAL = 2, 6
_SLOWEST_START_SECONDS = 3_600


class Level(Enum):
    """How bad it is."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        code: A stable word for what was looked at.
        level: How bad it is.
        message: What there is, in a sentence.
        remedy: What to do about it, in one line; empty where all is well.
        lines: Lines of ``dagster.yaml`` that do it, if any do.
    """

    code: str
    level: Level
    message: str
    remedy: str = ""
    lines: str = ""


def bounds(settings: InstanceSettings) -> tuple[Finding, ...]:
    """Whether backfills are bounded, all of them together, and leave room for production."""
    return tuple(_bounds(settings))


def is_bounded(settings: InstanceSettings) -> bool:
    """Whether they are: no finding of :func:`bounds` is an error."""
    return not errors(bounds(settings))


def unbounded(instance: dg.DagsterInstance) -> tuple[Finding, ...]:
    """What keeps an instance from bounding backfills; nothing: it bounds them."""
    return errors(bounds(read_settings(instance)))


def errors(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Those that are errors."""
    return tuple(one for one in findings if one.level is Level.ERROR)


def examine_instance(settings: InstanceSettings) -> tuple[Finding, ...]:
    """Everything that there is to say of an instance without knowing what runs on it."""
    found = [_unreadable(what) for what in settings.unreadable]
    found += bounds(settings)
    found += [
        _ranges(settings),
        *_pools(settings),
        *_monitoring(settings),
        _retries(settings),
        _catch_up(settings),
        _storage(settings),
    ]
    return tuple(found)


def ok(code: str, message: str) -> Finding:
    """Something that is well."""
    return Finding(code=code, level=Level.OK, message=message)


def error(code: str, message: str, remedy: str, lines: str = "") -> Finding:
    """Something that nobody should rely on."""
    return Finding(code=code, level=Level.ERROR, message=message, remedy=remedy, lines=lines)


def warning(code: str, message: str, remedy: str, lines: str = "") -> Finding:
    """Something that may be meant so, and should be known."""
    return Finding(code=code, level=Level.WARNING, message=message, remedy=remedy, lines=lines)


def _unreadable(what: str) -> Finding:
    return error(
        "unreadable",
        f"It is not known how this is set, so that nothing can be relied on: {what}",
        "correct dagster.yaml until 'dagster instance info' shows it",
    )


# --- bounds ----------------------------------------------------------------------------------------------------------


def _bounds(settings: InstanceSettings) -> Iterator[Finding]:
    if not settings.is_queued:
        yield error(
            "queue",
            "Runs start at once, without a queue: no limit of Dagster holds, and a backfill starts all of its runs",
            "remove run_coordinator from dagster.yaml: Dagster then has a queue; restart the daemon",
            _limit_lines(settings),
        )
        return
    total = settings.max_concurrent_runs
    if total == 0:
        yield error(
            "queue",
            "max_concurrent_runs is 0, so that no run ever leaves the queue",
            _RESTART,
            _limit_lines(settings),
        )
        return
    yield ok("queue", f"Runs wait in a queue, of which {'all' if total is None else f'at most {total}'} run at once")
    yield _backfill_limit(settings)
    yield _free_slots(settings)


def _backfill_limit(settings: InstanceSettings) -> Finding:
    code = "backfill-limit"
    limit = settings.limit_on(BACKFILL)
    if limit is None:
        of_tag = [one for one in settings.tag_limits if one.key == BACKFILL]
        each = next((one.limit for one in of_tag if one.per_value), None)
        if each is not None:
            what = (
                f"The limit of {each} on tag {BACKFILL} holds for each backfill, and not for all of them:"
                f" three backfills run {3 * each} at once"
            )
        elif of_tag:
            what = f"The limits on tag {BACKFILL} hold for single backfills: the next one has none"
        else:
            what = f"No limit on tag {BACKFILL} is set: backfills take every slot that there is"
        return error(code, what, _RESTART, _limit_lines(settings))
    if limit <= 0:
        return error(
            code,
            f"The limit on tag {BACKFILL} is {limit}, so that no run of a backfill ever leaves the queue",
            _RESTART,
            _limit_lines(settings),
        )
    return ok(code, f"At most {limit} runs of backfills run at once, all backfills together")


def _free_slots(settings: InstanceSettings) -> Finding:
    code = "free-slots"
    total = settings.max_concurrent_runs
    if total is None:
        return warning(
            code,
            "max_concurrent_runs is -1: production always finds a free slot, and nothing bounds a flood of it",
            _RESTART,
            _limit_lines(settings),
        )
    taken = settings.limit_on(BACKFILL)
    if taken is None:
        return error(
            code, f"Backfills may take all {total} slots, and production none", _RESTART, _limit_lines(settings)
        )
    ranges = settings.limit_on(RANGE)
    both = taken + (ranges or 0)
    if both >= total:
        beside = "" if ranges is None else f", and ranges launched beside them {ranges} more"
        return error(
            code,
            f"Backfills may take {taken} of {total} slots{beside}: that leaves none for production",
            _RESTART,
            _limit_lines(settings),
        )
    return ok(code, f"{total - both} of {total} slots are always free for production")


def _limit_lines(settings: InstanceSettings) -> str:
    """The lines of a bounded instance, near to what there is."""
    limit = settings.limit_on(BACKFILL)
    limit = _GOOD_LIMIT if limit is None or limit <= 0 else limit
    ranges = settings.limit_on(RANGE)
    ranges = limit if ranges is None or ranges <= 0 else ranges
    total = max(settings.max_concurrent_runs or 0, limit + ranges + _GOOD_TOTAL - 2 * _GOOD_LIMIT)
    others = [one for one in settings.tag_limits if one.key not in {BACKFILL, RANGE}]
    lines = [
        "concurrency:",
        "  runs:",
        f"    max_concurrent_runs: {total}",
        "    tag_concurrency_limits:",
        f"      - key: {BACKFILL}",
        f"        limit: {limit}",
        f"      - key: {RANGE}",
        f"        limit: {ranges}",
    ]
    if others:
        lines.append(f"      # and the {len(others)} that there are on other tags")
    if settings.in_run_queue:
        lines.append("# and without max_concurrent_runs and tag_concurrency_limits under run_queue")
    return "\n".join(lines)


def _ranges(settings: InstanceSettings) -> Finding:
    code = "range-limit"
    if not settings.is_queued:
        return error(code, "Ranges of partitions are not bounded either: there is no queue", "see above")
    limit = settings.limit_on(RANGE)
    if limit is None:
        return error(
            code,
            f"No limit on tag {RANGE} is set: a range that is executed again after its backfill has ended counts as"
            " production",
            _RESTART,
            _limit_lines(settings),
        )
    if limit <= 0:
        return error(
            code,
            f"The limit on tag {RANGE} is {limit}, so that no range of partitions ever leaves the queue",
            _RESTART,
            _limit_lines(settings),
        )
    slots = backfill_slots(settings)
    narrow = "" if slots is None or slots <= limit else f", also those of a backfill, which otherwise has {slots}"
    return ok(code, f"At most {limit} runs of a range of partitions run at once{narrow}")


# --- the rest --------------------------------------------------------------------------------------------------------


def _pools(settings: InstanceSettings) -> Iterator[Finding]:
    code = "pools"
    if settings.pool_default_limit is not None and settings.pool_granularity == "run":
        yield warning(
            code,
            f"pools.default_limit is {settings.pool_default_limit} with granularity 'run': a pool that nobody has set"
            " bounds nothing when it is used for the first time, since Dagster makes it only then",
            "set each pool before its first run: dagster instance concurrency set POOL LIMIT",
        )
    slots = backfill_slots(settings)
    for pool in settings.pools:
        if slots is None or pool.limit <= slots:
            yield warning(
                code,
                f"Pool {pool.name!r} takes {pool.limit}, and backfills may run"
                f" {'any number' if slots is None else slots} at once: where they share it, production waits for them",
                "leave the bounding to the limits on tags and to max_backfill_writers, or have it take more than"
                f" backfills can: dagster instance concurrency set {pool.name} {(slots or pool.limit) + 1}",
            )
    if not settings.pools and settings.pool_default_limit is None:
        yield ok(code, "No pools: production never waits for a place that a backfill has")


def _monitoring(settings: InstanceSettings) -> Iterator[Finding]:
    code = "run-monitoring"
    lines = (
        "run_monitoring:\n  enabled: true\n  start_timeout_seconds: 180\n  cancel_timeout_seconds: 180\n"
        "  max_runtime_seconds: 7200"
    )
    if not settings.monitoring:
        yield error(
            code,
            "Run monitoring is off: a run whose worker has died with its code server keeps its slot for ever",
            _RESTART,
            lines,
        )
        return
    times = {"start_timeout_seconds": settings.start_timeout_seconds}
    times["cancel_timeout_seconds"] = settings.cancel_timeout_seconds
    bad = {name: seconds for name, seconds in times.items() if not 0 < seconds <= _SLOWEST_START_SECONDS}
    for name, seconds in bad.items():
        what = "never" if seconds <= 0 else f"only after {seconds:,} s"
        doing = name.partition("_")[0]
        if seconds <= 0:
            what = "at once, whatever it does"
        yield error(code, f"{name} is {seconds:,}: a run that does not {doing} is given up {what}", _RESTART, lines)
    if settings.max_runtime_seconds <= 0:
        yield warning(
            code,
            "max_runtime_seconds is not set: a run whose machine was restarted keeps its slot until somebody ends it",
            _RESTART,
            lines,
        )
    elif not bad:
        yield ok(
            code,
            f"Runs that do not start within {settings.start_timeout_seconds} s, do not stop within"
            f" {settings.cancel_timeout_seconds} s or take longer than {settings.max_runtime_seconds:,} s give their"
            " slots back",
        )


def _retries(settings: InstanceSettings) -> Finding:
    code = "retries"
    lines = "run_retries:\n  enabled: true\n  max_retries: 3\n  retry_on_asset_or_op_failure: false"
    if not settings.retries:
        return warning(
            code,
            "Run retries are off: a run whose worker died stays failed, and its partitions missing",
            _RESTART,
            lines,
        )
    if settings.retries_failures:
        return error(
            code,
            "Runs that failed on their own account are retried: bad data is as bad the second time, and each retry"
            " claims its partitions anew and fences out whoever has them meanwhile",
            _RESTART,
            lines,
        )
    return ok(code, f"Only runs whose worker died are retried, at most {settings.max_retries} times")


def _catch_up(settings: InstanceSettings) -> Finding:
    code = "catch-up"
    most = settings.max_catchup_runs
    if most is None:
        return warning(
            code,
            "The scheduler is not Dagster's own: how many missed ticks it catches up with is not known",
            "remove scheduler from dagster.yaml, or find out",
        )
    if most == 0:
        return error(
            code,
            "max_catchup_runs is 0, which Dagster takes for all: a schedule of a partition set replays every missed"
            " tick",
            "remove it from the scheduler's config in dagster.yaml (the default is 5), and restart the daemon",
        )
    return ok(
        code, f"A schedule catches up with its latest missed tick, and one of a partition set with {most} at most"
    )


def _storage(settings: InstanceSettings) -> Finding:
    code = "storage"
    if settings.is_ephemeral:
        return error(
            code,
            "The instance is a temporary one: results would be lost, and no daemon sees its runs",
            "set DAGSTER_HOME to the folder of the instance",
        )
    if settings.storage == "sqlite":
        return ok(
            code,
            f"The history is kept in SQLite, in {settings.home}: right for one machine, and wrong for a folder that"
            " several share",
        )
    return ok(code, f"The history is kept in {settings.storage}")
