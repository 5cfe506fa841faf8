"""Options that commands about backfills share: which partitions are meant."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click

from marigold_assets.planning.model import Order, Request

_OPTIONS = (
    click.argument("selection"),
    click.option("--from", "first", metavar="KEY", help="The first partition. Default: the first there is."),
    click.option("--to", "last", metavar="KEY", help="The last partition. Default: the last there is."),
    click.option("--restate", is_flag=True, help="Compute again also what is current or accepted."),
    click.option("--stale", is_flag=True, help="Only what exists and is stale; nothing that was never built."),
    click.option(
        "--lookback",
        type=click.IntRange(min=0),
        default=0,
        metavar="N",
        help="Also the N partitions before a missing one, for late data.",
    ),
    click.option(
        "--order",
        type=click.Choice([one.value for one in Order]),
        default=Order.OLDEST_FIRST.value,
        show_default=True,
        help="Which partitions start first, where they do not wait for each other.",
    ),
)


def request_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the argument and the options that say which partitions are meant.

    The command gets them as ``request``, a :class:`marigold_assets.planning.model.Request`.
    """

    @functools.wraps(command)
    def run(*args: Any, **given: Any) -> Any:
        names = ("selection", "first", "last", "restate", "stale", "lookback")
        request = Request(order=Order(given.pop("order")), **{name: given.pop(name) for name in names})
        return command(*args, request=request, **given)

    for option in reversed(_OPTIONS):
        run = option(run)
    return run
