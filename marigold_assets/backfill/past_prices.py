"""What came of past prices: each launch keeps what was predicted in its tags, and its runs tell what it took."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import dagster as dg

from marigold_assets import dagster_instance
from marigold_assets.backfill.price import CANARY_TAG, Price, spoken
from marigold_assets.dagster_instance import Backfill
from marigold_assets.run_tags import BACKFILL_TAG

_LOOKED_AT: Final = 10
_TOLD: Final = 3
_SUCCESS: Final = "COMPLETED_SUCCESS"


def said_of_past_prices(instance: dg.DagsterInstance | None, owners: Collection[str]) -> tuple[str, ...]:
    """How good the last prices of the same assets were, in words; nothing where there were none.

    Args:
        instance: Where they were launched.
        owners: The assets.
    """
    if instance is None:
        return ()
    told = []
    for one in dagster_instance.backfills(instance, most=_LOOKED_AT):
        price = Price.of_tags(one.tags)
        if price is not None and price.wall.median > 0 and _is_comparable(one, price, owners):
            taken = _taken(instance, one)
            if taken is not None:
                told.append(f"{spoken(price.wall.median)} was predicted and {spoken(taken)} taken")
    if not told:
        return ()
    return (f"the last prices of these assets, the newest first: {'; '.join(told[:_TOLD])}",)


def _is_comparable(one: Backfill, price: Price, owners: Collection[str]) -> bool:
    """Whether a price was for all of a backfill, which came through and built the same assets."""
    is_whole = price.partitions == sum(len(keys or ()) for keys in one.targets.values()) and CANARY_TAG not in one.tags
    return is_whole and one.status == _SUCCESS and set(one.targets) == set(owners)


def _taken(instance: dg.DagsterInstance, one: Backfill) -> float | None:
    """Seconds from the launch until the last run had ended."""
    runs = dg.RunsFilter(tags={BACKFILL_TAG: one.backfill_id}, statuses=[dg.DagsterRunStatus.SUCCESS])
    newest = instance.get_run_records(runs, limit=1, order_by="update_timestamp")
    ended = newest[0].end_time if newest else None
    return None if ended is None else ended - one.created_at.timestamp()
