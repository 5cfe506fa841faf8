"""What is well with an instance, and what is not: judged by its settings.

A bound holds for whoever launches a backfill, or it is none: limits that hold for each backfill, or for some, do not
count.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import dagster as dg

from marigold_assets.preflight.finding import RESTART, Finding, Level, error, errors, ok, warning
from marigold_assets.preflight.settings import InstanceSettings, backfill_slots, read_settings
from marigold_assets.preflight.upkeep import upkeep
from marigold_assets.run_tags import BACKFILL_TAG, RANGE_START_TAG

__all__ = ["MANY", "Finding", "Level", "bounds", "errors", "examine_instance", "is_bounded", "unbounded"]

_GOOD_LIMIT, _GOOD_TOTAL = 2, 6
MANY: Final = 32
"""A bound beyond it is as good as none: so many processes at once are more than a machine has cores for."""


def bounds(settings: InstanceSettings) -> tuple[Finding, ...]:
    """Whether backfills are bounded, all of them together, and leave room for production."""
    return tuple(_bounds(settings))


def is_bounded(settings: InstanceSettings) -> bool:
    """Whether they are: no finding of :func:`bounds` is an error."""
    return not errors(bounds(settings))


def unbounded(instance: dg.DagsterInstance) -> tuple[Finding, ...]:
    """What keeps an instance from bounding backfills; nothing: it bounds them."""
    return errors(bounds(read_settings(instance)))


def examine_instance(settings: InstanceSettings) -> tuple[Finding, ...]:
    """Everything that there is to say of an instance without knowing what runs on it."""
    found = [_unreadable(what) for what in settings.unreadable]
    found += bounds(settings)
    found += [_ranges(settings), *_pools(settings), *upkeep(settings)]
    return tuple(found)


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
            RESTART,
            _limit_lines(settings),
        )
        return
    yield ok("queue", f"Runs wait in a queue, of which {'all' if total is None else f'at most {total}'} run at once")
    yield _backfill_limit(settings)
    yield _free_slots(settings)


def _backfill_limit(settings: InstanceSettings) -> Finding:
    code = "backfill-limit"
    limit = settings.limit_on(BACKFILL_TAG)
    if limit is None:
        of_tag = [one for one in settings.tag_limits if one.key == BACKFILL_TAG]
        each = next((one.limit for one in of_tag if one.per_value), None)
        if each is not None:
            what = (
                f"The limit of {each} on tag {BACKFILL_TAG} holds for each backfill, and not for all of them:"
                f" three backfills run {3 * each} at once"
            )
        elif of_tag:
            what = f"The limits on tag {BACKFILL_TAG} hold for single backfills: the next one has none"
        else:
            what = f"No limit on tag {BACKFILL_TAG} is set: backfills take every slot that there is"
        return error(code, what, RESTART, _limit_lines(settings))
    if limit <= 0:
        return error(
            code,
            f"The limit on tag {BACKFILL_TAG} is {limit}, so that no run of a backfill ever leaves the queue",
            RESTART,
            _limit_lines(settings),
        )
    slots = backfill_slots(settings)
    if slots is not None and slots > MANY:
        return warning(
            code,
            f"The limit on tag {BACKFILL_TAG} is {limit:,}, so that {slots:,} runs of backfills may run at once: that"
            " bounds next to nothing",
            "set it to what the machine and the databases can carry, and restart the daemon",
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
            RESTART,
            _limit_lines(settings),
        )
    taken = settings.limit_on(BACKFILL_TAG)
    if taken is None:
        return error(
            code, f"Backfills may take all {total} slots, and production none", RESTART, _limit_lines(settings)
        )
    ranges = settings.limit_on(RANGE_START_TAG)
    both = taken + (ranges or 0)
    if both >= total:
        beside = "" if ranges is None else f", and ranges launched beside them {ranges} more"
        return error(
            code,
            f"Backfills may take {taken} of {total} slots{beside}: that leaves none for production",
            RESTART,
            _limit_lines(settings),
        )
    return ok(code, f"{total - both} of {total} slots are always free for production")


def _limit_lines(settings: InstanceSettings) -> str:
    """The lines of a bounded instance, near to what there is."""
    limit = settings.limit_on(BACKFILL_TAG)
    limit = limit if limit is not None and 0 < limit <= MANY else _GOOD_LIMIT
    ranges = settings.limit_on(RANGE_START_TAG)
    ranges = ranges if ranges is not None and 0 < ranges <= MANY else limit
    total = max(settings.max_concurrent_runs or 0, limit + ranges + _GOOD_TOTAL - 2 * _GOOD_LIMIT)
    others = [one for one in settings.tag_limits if one.key not in {BACKFILL_TAG, RANGE_START_TAG}]
    lines = [
        "concurrency:",
        "  runs:",
        f"    max_concurrent_runs: {total}",
        "    tag_concurrency_limits:",
        f"      - key: {BACKFILL_TAG}",
        f"        limit: {limit}",
        f"      - key: {RANGE_START_TAG}",
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
    limit = settings.limit_on(RANGE_START_TAG)
    if limit is None:
        return error(
            code,
            f"No limit on tag {RANGE_START_TAG} is set: a range that is executed again after its backfill has ended"
            " counts as production",
            RESTART,
            _limit_lines(settings),
        )
    if limit <= 0:
        return error(
            code,
            f"The limit on tag {RANGE_START_TAG} is {limit}, so that no range of partitions ever leaves the queue",
            RESTART,
            _limit_lines(settings),
        )
    slots = backfill_slots(settings)
    if limit > MANY and limit > (slots or limit - 1):
        return warning(
            code,
            f"The limit on tag {RANGE_START_TAG} is {limit:,}: that bounds next to nothing",
            "set it to what the machine and the databases can carry, and restart the daemon",
            _limit_lines(settings),
        )
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
