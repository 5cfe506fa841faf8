"""Whether the order of a plan is free; pure."""

from __future__ import annotations

from collections.abc import Sequence

from marigold_assets.errors import ConfigurationError
from marigold_assets.planning.model import AssetPlan, Order
from marigold_assets.planning.sharing import groups_of


def refuse_order(assets: Sequence[AssetPlan], order: Order) -> None:
    """Refuse an order that a plan cannot have.

    Args:
        assets: The assets of the plan.
        order: The order that is asked for.

    Raises:
        ConfigurationError: The newest partitions are to come first, and some wait for others.
    """
    if order is not Order.NEWEST_FIRST:
        return
    for group in groups_of(assets):
        if group.is_chain:
            raise ConfigurationError(
                "its partitions are built one upon the other, so the newest cannot come first",
                remedy=f"leave out --order {order.value}, or plan other assets in that order",
                asset=group.owner,
            )
        if group.waits_for:
            raise ConfigurationError(
                f"it waits for {group.waits_for[0].owner} in this plan and does not share its runs, so the newest"
                " partitions cannot come first",
                remedy=f"leave out --order {order.value}, or plan one asset after the other",
                asset=group.owner,
            )
