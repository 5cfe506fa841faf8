"""The settings of a live Dagster instance that decide how much runs at once, and what is done about a run that fails.

Nothing is guessed: what cannot be read is named as such, and stands at the value that bounds nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import dagster as dg

from marigold_assets.run_tags import BACKFILL_TAG, RANGE_START_TAG

_NO_LIMIT = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class TagLimit:
    """How many runs with a tag may run at once.

    Attributes:
        key: The tag.
        limit: How many.
        value: Only runs with this value of it; ``None``: with any.
        per_value: Whether so many may run of each value, and not of all of them together.
    """

    key: str
    limit: int
    value: str | None = None
    per_value: bool = False

    @property
    def bounds_all(self) -> bool:
        """Whether it bounds all runs with the tag together."""
        return self.value is None and not self.per_value


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """A pool that the instance knows.

    Attributes:
        name: Its name.
        limit: How many may be in it at once.
    """

    name: str
    limit: int


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceSettings:
    """What an instance is set to.

    Attributes:
        home: The folder of the instance; ``None`` for one that keeps nothing.
        is_ephemeral: Whether it forgets everything when its process ends.
        storage: What its history is kept in: ``sqlite``, ``postgres``, ``mysql``, ``memory`` or another name.
        is_queued: Whether runs wait in a queue, without which no limit holds.
        max_concurrent_runs: How many runs of the queue run at once; ``None``: as many as there are.
        tag_limits: Limits on runs with a tag.
        in_run_queue: Whether these stand under ``run_queue``, as they did before there was ``concurrency``.
        dequeue_interval_seconds: How often the queue is looked at.
        dequeues_in_threads: Whether it starts runs in threads, and not one after another.
        dequeue_threads: In so many; ``None``: in as many as Python finds right, which are several.
        pool_default_limit: The limit of pools that nobody has set one for; ``None``: there is none.
        pool_granularity: ``run`` or ``op``.
        pools: Those that are known by now.
        monitoring: Whether runs that got stuck are looked for.
        start_timeout_seconds: How long a run may take to start.
        cancel_timeout_seconds: How long a run may take to stop.
        max_runtime_seconds: How long a run may take; 0: for ever.
        monitoring_poll_seconds: How often they are looked for.
        retries: Whether runs that failed are started again.
        max_retries: How often.
        retries_failures: Whether also those that failed on their own account, and not because their process died.
        max_catchup_runs: How many missed ticks a schedule catches up with; ``None``: another scheduler than Dagster's.
        unreadable: What could not be read, and why, in words.
    """

    home: str | None = None
    is_ephemeral: bool = True
    storage: str = "unknown"
    is_queued: bool = False
    max_concurrent_runs: int | None = None
    tag_limits: tuple[TagLimit, ...] = ()
    in_run_queue: bool = False
    dequeue_interval_seconds: float = 5.0
    dequeues_in_threads: bool = False
    dequeue_threads: int | None = None
    pool_default_limit: int | None = None
    pool_granularity: str = "op"
    pools: tuple[Pool, ...] = ()
    monitoring: bool = False
    start_timeout_seconds: int = 0
    cancel_timeout_seconds: int = 0
    max_runtime_seconds: int = 0
    monitoring_poll_seconds: int = 120
    retries: bool = False
    max_retries: int = 0
    retries_failures: bool = True
    max_catchup_runs: int | None = None
    unreadable: tuple[str, ...] = ()

    def limit_on(self, tag: str) -> int | None:
        """How many runs with a tag run at once, whatever its value; ``None``: nothing bounds them all together."""
        found = [one.limit for one in self.tag_limits if one.key == tag and one.bounds_all]
        return found[-1] if found else None  # of two for one tag, Dagster keeps the last


def read_settings(instance: dg.DagsterInstance) -> InstanceSettings:
    """What an instance is set to, as its daemon will read it when it starts."""
    unreadable: list[str] = []
    found: dict[str, Any] = {}
    for name, read in _READERS.items():
        found |= _tried(name, read, instance, unreadable)
    return InstanceSettings(**found, unreadable=tuple(unreadable))


def backfill_slots(settings: InstanceSettings, *, ranges: bool = False) -> int | None:
    """How many runs of backfills may run at once, all backfills together; ``None``: as many as there are.

    Args:
        settings: Those of the instance.
        ranges: Whether each of these runs builds a range of partitions, which bears one more tag.
    """
    if not settings.is_queued:
        return None
    limits = [settings.max_concurrent_runs, settings.limit_on(BACKFILL_TAG)]
    limits += [settings.limit_on(RANGE_START_TAG)] if ranges else []
    known = [one for one in limits if one is not None]
    return min(known) if known else None


def _tried(
    name: str,
    read: Callable[[dg.DagsterInstance], Mapping[str, Any]],
    instance: dg.DagsterInstance,
    unreadable: list[str],
) -> Mapping[str, Any]:
    """What a reader finds, or nothing and a word about it: of an error only the kind, whose text may hold secrets."""
    try:
        return read(instance)
    except Exception as error:  # noqa: BLE001 - whatever it is, the rest is still worth reading
        unreadable.append(f"{name}: {type(error).__name__}")
        return {}


def _place(instance: dg.DagsterInstance) -> Mapping[str, Any]:
    is_ephemeral = bool(instance.is_ephemeral)
    return {"is_ephemeral": is_ephemeral, "home": None if is_ephemeral else str(instance.root_directory)}


def _storage(instance: dg.DagsterInstance) -> Mapping[str, Any]:
    if instance.is_ephemeral:
        return {"storage": "memory"}
    name = type(instance.run_storage).__name__
    kinds = ("sqlite", "postgres", "mysql", "memory")
    return {"storage": next((one for one in kinds if one in name.lower()), name)}


def _queue(instance: dg.DagsterInstance) -> Mapping[str, Any]:
    queue = instance.get_concurrency_config().run_queue_config
    if queue is None:
        return {"is_queued": False}
    runs: Mapping[str, Any] = instance.get_settings("concurrency").get("runs") or {}
    most = int(queue.max_concurrent_runs)
    coordinator: Any = instance.run_coordinator
    threads = coordinator.dequeue_num_workers
    limits = tuple(_tag_limit(one) for one in queue.tag_concurrency_limits or ())
    return {
        "is_queued": True,
        "max_concurrent_runs": None if most == _NO_LIMIT else most,
        "tag_limits": limits,
        "in_run_queue": not runs and _says_limits(coordinator),
        "dequeue_interval_seconds": float(coordinator.dequeue_interval_seconds),
        "dequeues_in_threads": bool(coordinator.dequeue_use_threads),
        "dequeue_threads": None if threads is None else int(threads),
    }


def _says_limits(coordinator: Any) -> bool:
    data = coordinator.inst_data
    return data is not None and bool({"max_concurrent_runs", "tag_concurrency_limits"} & set(data.config_dict))


def _tag_limit(given: Mapping[str, Any]) -> TagLimit:
    value = given.get("value")
    return TagLimit(
        key=str(given["key"]),
        limit=int(given["limit"]),
        value=value if isinstance(value, str) else None,
        per_value=isinstance(value, Mapping) and bool(value.get("applyLimitPerUniqueValue")),
    )


def _pools(instance: dg.DagsterInstance) -> Mapping[str, Any]:
    config = instance.get_concurrency_config().pool_config
    known = [] if instance.is_ephemeral else instance.event_log_storage.get_pool_limits()
    return {
        "pool_default_limit": config.default_pool_limit,
        "pool_granularity": "op" if config.pool_granularity is None else str(config.pool_granularity.value),
        "pools": tuple(Pool(name=one.name, limit=one.limit) for one in sorted(known, key=lambda one: one.name)),
    }


def _monitoring(instance: dg.DagsterInstance) -> Mapping[str, Any]:
    return {
        "monitoring": bool(instance.run_monitoring_enabled),
        "start_timeout_seconds": int(instance.run_monitoring_start_timeout_seconds),
        "cancel_timeout_seconds": int(instance.run_monitoring_cancel_timeout_seconds),
        "max_runtime_seconds": int(instance.run_monitoring_max_runtime_seconds),
        "monitoring_poll_seconds": int(instance.run_monitoring_poll_interval_seconds),
    }


def _retries(instance: dg.DagsterInstance) -> Mapping[str, Any]:
    return {
        "retries": bool(instance.run_retries_enabled),
        "max_retries": int(instance.run_retries_max_retries),
        "retries_failures": bool(instance.run_retries_retry_on_asset_or_op_failure),
    }


def _catch_up(instance: dg.DagsterInstance) -> Mapping[str, Any]:
    most = getattr(instance.scheduler, "max_catchup_runs", None)
    return {"max_catchup_runs": None if most is None else int(most)}


_READERS: Final[Mapping[str, Callable[[dg.DagsterInstance], Mapping[str, Any]]]] = {
    "the folder of the instance": _place,
    "its storage": _storage,
    "the run queue and its limits": _queue,
    "pools": _pools,
    "run monitoring": _monitoring,
    "retries of runs": _retries,
    "the scheduler": _catch_up,
}
