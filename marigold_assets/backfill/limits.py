"""What bounds a backfill on the live instance, as far as its price depends on it."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import dagster as dg

from marigold_assets.planning.model import Limits
from marigold_assets.preflight.settings import InstanceSettings, backfill_slots, read_settings
from marigold_assets.run_tags import BACKFILL_TAG

_ASSUMED_SLOTS: Final = 2


def limits_of(instance: dg.DagsterInstance | None, writers: int | None = None) -> Limits:
    """The limits of an instance, and of the databases that are written.

    Args:
        instance: The instance; without one, few slots are assumed, and the source says so.
        writers: How many runs a database lets write at once; ``None``: any number.
    """
    found = _of_instance(instance)
    if writers is None or (found.slots is not None and found.slots <= writers):
        return found
    return replace(found, slots=writers, source="max_backfill_writers of a database")


def _of_instance(instance: dg.DagsterInstance | None) -> Limits:
    if instance is None:
        return Limits(slots=_ASSUMED_SLOTS, source=f"DAGSTER_HOME is not set: {_ASSUMED_SLOTS} slots are assumed")
    settings = read_settings(instance)
    slots = backfill_slots(settings)
    return Limits(slots=slots, dequeue_seconds=settings.dequeue_interval_seconds, source=_source(settings, slots))


def _source(settings: InstanceSettings, slots: int | None) -> str:
    if settings.unreadable:
        return f"not all settings of the instance can be read: {'; '.join(settings.unreadable)}"
    if not settings.is_queued:
        return "the instance has no run queue, so nothing bounds a backfill"
    if slots is None:
        return f"nothing bounds a backfill: the instance has neither max_concurrent_runs nor a limit on {BACKFILL_TAG}"
    bound = settings.limit_on(BACKFILL_TAG)
    if bound is None or bound > slots:
        return f"max_concurrent_runs of the instance, which has no lower limit on {BACKFILL_TAG}"
    return f"the instance's limit on {BACKFILL_TAG}"
