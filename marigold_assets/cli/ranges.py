"""Ranges of partitions, as commands are given them."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Container

from marigold_assets.errors import ConfigurationError

BETWEEN = "..."


def range_ends(
    text: str, known: Container[str | None], place: Callable[[str], int], *, asset: str
) -> tuple[int, int] | None:
    """The places of both ends of a range ``FIRST...LAST``.

    Args:
        text: The range; its keys may have dots themselves.
        known: The partitions that there are.
        place: Finds the place of one, and raises if there is no such partition.
        asset: The asset.

    Returns:
        Both; ``None`` if the text is no range.

    Raises:
        ConfigurationError: It ends before it begins.
    """
    size = len(BETWEEN)
    pairs = [(text[:at], text[at + size :]) for at in range(len(text)) if text.startswith(BETWEEN, at)]
    if not pairs:
        return None
    fitting = [pair for pair in pairs if pair[0] in known and pair[1] in known]
    first, last = (fitting or pairs)[0]
    start, end = place(first), place(last)
    if start > end:
        raise ConfigurationError(
            f"the range {text!r} ends before it begins",
            remedy=f"turn it round: --range {shlex.quote(f'{last}{BETWEEN}{first}')}",
            asset=asset,
        )
    return start, end
