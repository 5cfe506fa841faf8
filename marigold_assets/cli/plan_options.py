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
    return _with_request(command, *_OPTIONS)


def optional_request_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The same, where the selection may be left out; ``request`` is ``None`` then.

    Raises:
        click.UsageError: The other options are given without it.
    """
    return _with_request(command, click.argument("selection", required=False), *_OPTIONS[1:])


def _with_request(command: Callable[..., Any], *options: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(command)
    def run(*args: Any, **given: Any) -> Any:
        names = ("selection", "first", "last", "restate", "stale", "lookback")
        order = Order(given.pop("order"))
        values = {name: given.pop(name) for name in names}
        if values["selection"] is None:
            if order is not Order.OLDEST_FIRST or any(values.values()):
                raise click.UsageError("What is to be built is said by SELECTION and its options, or by a saved plan.")
            return command(*args, request=None, **given)
        return command(*args, request=Request(order=order, **values), **given)

    for option in reversed(options):
        run = option(run)
    return run
