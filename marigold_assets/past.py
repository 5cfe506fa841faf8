"""The past that a chain is built upon: it must be there, and it should still hold."""

from __future__ import annotations

from itertools import takewhile

from marigold_assets.errors import RestatedPastError
from marigold_assets.inputs import missing_past
from marigold_assets.standing import Standing
from marigold_assets.stores.base import PartitionStore
from marigold_assets.target import Target


class Past:
    """The past of the asset that a step builds; of an asset that is no chain there is nothing to say.

    Attributes:
        stale: What no longer holds of the past that some partitions are built upon.

    Args:
        target: The asset.
        standing: What this step has built already, which needs no look.
        strict: Whether a past that no longer holds is refused.
    """

    def __init__(self, target: Target, standing: Standing, *, strict: bool) -> None:
        self._target, self._standing, self._strict = target, standing, strict
        self.stale: dict[str, str] = {}

    def refuse_missing(self, store: PartitionStore, key: str) -> None:
        """Refuse to build a partition whose previous one was never materialized.

        Raises:
            MissingInputError: It was not.
        """
        past = self._target.past
        if past is None or past.input is None or past.input.allow_missing:
            return
        unknown = [s for s in past.slices(key) if s.partition_key not in self._standing.settled]
        if any(one.content_hash is None for one in store.inputs(unknown)):
            known = store.heads(self._target.table)
            line = past.line_before(key)
            gap = list(takewhile(lambda one: one not in known, reversed(line)))
            raise missing_past(past, gap[-1:] or line[-1:], self._target.slice_of(key).where)

    def refuse_restated(self, store: PartitionStore, key: str) -> None:
        """Report, or in strict mode refuse, a past that this step has not built and that no longer holds.

        Raises:
            RestatedPastError: It does not hold, and the run is strict.
        """
        past = self._target.past
        if past is None:
            return
        before = past.keys(key)
        if before and all(one in self._standing.built for one in before):
            found = [self.stale[one] for one in before if one in self.stale]
            if found:
                self.stale[key] = found[0]
            return
        restated = self._standing.find_restated(store, past, key)
        if restated is None:
            return
        problem = f"the past that it is built upon no longer holds: {restated}"
        if self._strict:
            raise RestatedPastError(
                problem,
                remedy="build the chain again from that partition, or turn strict off",
                **self._target.slice_of(key).where,
            )
        self._target.warn(f"{problem}. Remedy: build the chain again from that partition.", key)
        self.stale[key] = restated
