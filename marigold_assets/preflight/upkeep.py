"""What is well with how an instance looks after its runs, and what is not: judged by its settings."""

from __future__ import annotations

from collections.abc import Iterator

from marigold_assets.preflight.finding import RESTART, Finding, error, ok, warning
from marigold_assets.preflight.settings import InstanceSettings

_SLOWEST_START_SECONDS = 3_600
_SLOWEST_LOOK_SECONDS = 60
_LONGEST_RUN_SECONDS = 7 * 86_400
_MOST_RETRIES = 10
_MOST_CATCH_UP = 10


def upkeep(settings: InstanceSettings) -> tuple[Finding, ...]:
    """Whether runs that got stuck, failed or were missed are dealt with, and what keeps the history."""
    return (
        *_monitoring(settings),
        _retries(settings),
        _catch_up(settings),
        _dequeue(settings),
        _storage(settings),
    )


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
            RESTART,
            lines,
        )
        return
    times = {"start_timeout_seconds": settings.start_timeout_seconds}
    times["cancel_timeout_seconds"] = settings.cancel_timeout_seconds
    bad = {name: seconds for name, seconds in times.items() if not 0 < seconds <= _SLOWEST_START_SECONDS}
    for name, seconds in bad.items():
        what = "at once, whatever it does" if seconds <= 0 else f"only after {seconds:,} s"
        doing = name.partition("_")[0]
        yield error(code, f"{name} is {seconds:,}: a run that does not {doing} is given up {what}", RESTART, lines)
    if settings.monitoring_poll_seconds > _SLOWEST_START_SECONDS:
        bad["poll_interval_seconds"] = settings.monitoring_poll_seconds
        yield error(
            code,
            f"poll_interval_seconds is {settings.monitoring_poll_seconds:,}: until then a run that got stuck keeps its"
            " slot",
            RESTART,
            lines,
        )
    if not 0 < settings.max_runtime_seconds <= _LONGEST_RUN_SECONDS:
        long = settings.max_runtime_seconds
        yield warning(
            code,
            f"max_runtime_seconds is {f'{long:,}' if long > 0 else 'not set'}: a run whose machine was restarted keeps"
            f" its slot until {'then, or until ' if long > 0 else ''}somebody ends it",
            RESTART,
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
    if not settings.retries or settings.max_retries <= 0:
        off = "off" if not settings.retries else f"on, but max_retries is {settings.max_retries}"
        return warning(
            code,
            f"Run retries are {off}: a run whose worker died stays failed, and its partitions missing",
            RESTART,
            lines,
        )
    if settings.retries_failures:
        return error(
            code,
            "Runs that failed on their own account are retried: bad data is as bad the second time, and each retry"
            " claims its partitions anew and fences out whoever has them meanwhile",
            RESTART,
            lines,
        )
    if settings.max_retries > _MOST_RETRIES:
        return warning(
            code,
            f"Runs whose worker died are retried {settings.max_retries:,} times: one that kills its worker each time"
            " takes its slot as often",
            RESTART,
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
    remedy = "remove it from the scheduler's config in dagster.yaml (the default is 5), and restart the daemon"
    if most <= 0:
        what = "all" if most == 0 else f"all but the first {-most}"
        return error(
            code,
            f"max_catchup_runs is {most}, which Dagster takes for {what}: a schedule of a partition set replays every"
            " missed tick",
            remedy,
        )
    if most > _MOST_CATCH_UP:
        return warning(
            code,
            f"max_catchup_runs is {most:,}: after an outage a schedule of a partition set launches so many runs at"
            " once, which count as production",
            remedy,
        )
    return ok(
        code, f"A schedule catches up with its latest missed tick, and one of a partition set with {most} at most"
    )


def _dequeue(settings: InstanceSettings) -> Finding:
    code, seconds = "dequeue", settings.dequeue_interval_seconds
    if not settings.is_queued:
        return warning(code, "There is no queue that is looked at", "see above")
    if not 0 <= seconds <= _SLOWEST_LOOK_SECONDS:
        level = error if seconds > _SLOWEST_START_SECONDS or seconds < 0 else warning
        return level(
            code,
            f"dequeue_interval_seconds is {seconds:,g}: production waits so long for a slot that is free",
            RESTART,
            "run_queue:\n  dequeue_interval_seconds: 5",
        )
    threads = settings.dequeue_threads if settings.dequeues_in_threads else 1
    lines = "run_queue:\n  dequeue_use_threads: true\n  dequeue_num_workers: 4"
    if threads is not None and threads < 1:
        what = f"dequeue_num_workers is {threads}, so that no run ever leaves the queue"
        return error(code, what, RESTART, lines)
    if threads == 1:
        alone = ", in a single thread (dequeue_num_workers is 1)" if settings.dequeues_in_threads else ""
        return warning(
            code,
            f"The queue starts one run after another{alone}, which takes seconds each: production waits for the starts"
            " of backfills, though its own slot is free",
            RESTART,
            lines,
        )
    return ok(code, f"A free slot is taken within {seconds:g} s")


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
