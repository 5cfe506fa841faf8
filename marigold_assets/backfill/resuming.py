"""What is left of a launch, as something to be asked for again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from marigold_assets.backfill.keyed import Keyed
from marigold_assets.backfill.ranges import asked_for
from marigold_assets.backfill.request import request_of_tags
from marigold_assets.backfill.watching import AssetProgress, Progress
from marigold_assets.errors import ConfigurationError
from marigold_assets.gaps import selection_of
from marigold_assets.planning.model import Key, Request

Partitions = Callable[[str], Keyed | None]
"""The partitions of an asset; ``None`` where it is not known."""


def rest_of(progress: Progress, partitions: Partitions) -> Request | None:
    """What to ask for so that all that is left of a launch is planned.

    It is the same again: what was built is current and left alone. Only where current partitions are computed again is
    it cut down to what is left, if that is one range of one asset.

    Args:
        progress: How far it has come.
        partitions: The partitions of its assets.

    Returns:
        The request; ``None`` for a backfill that something else has launched, if what is left of it is no range.
    """
    asked = request_of_tags(progress.backfills[0].tags)
    if asked is None:
        return _of_another(progress, partitions)
    # Of a canary that the rest has not followed, more is left than what was launched.
    if not asked.restate or not progress.is_whole or len(progress.assets) != 1 or not progress.assets[0].left:
        return asked
    [one] = progress.assets
    ends = one.left[0], one.left[-1]
    covers = set(one.left) <= _between(one, *ends, partitions)
    return replace(asked, first=ends[0], last=ends[1]) if covers else asked


def _of_another(progress: Progress, partitions: Partitions) -> Request | None:
    """What is left of a backfill that something else has launched, which computes whatever is current."""
    left = [one for one in progress.assets if one.left]
    parted = [one for one in left if one.left != (None,)]
    ends = {(one.left[0], one.left[-1]) for one in parted}
    if not left or len(ends) > 1:
        return None
    first, last = next(iter(ends), (None, None))
    if any(set(one.left) != _between(one, first, last, partitions) for one in parted):
        return None
    return Request(selection=selection_of([one.owner for one in left]), first=first, last=last, restate=True)


def _between(one: AssetProgress, first: Key, last: Key, partitions: Partitions) -> set[Key]:
    """The partitions that a range names; none where that cannot be told."""
    keyed = partitions(one.owner)
    try:
        return set() if keyed is None else set(asked_for({one.owner: keyed}, first, last).keys[one.owner])
    except ConfigurationError:  # of several dimensions, the first one and the last need not be the ends of any range
        return set()
