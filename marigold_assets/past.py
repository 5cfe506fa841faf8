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
        self._at_start: dict[str, int] = {}

    def begin(self, store: PartitionStore) -> None:
        """Note how far what the chain reads has been built, before any of it is read."""
        if self._target.past is not None:
            self._at_start = self._newest(store)

    def end(self, store: PartitionStore) -> None:
        """Report, or in strict mode refuse, that something was restated while this step built upon it.

        Raises:
            RestatedPastError: It was, and the run is strict. What the step has built stays.
        """
        if self._target.past is None or self._newest(store) == self._at_start:
            return
        built = [key for key in self._target.keys if key in self._standing.built]
        found = self._standing.find_restated_since(store, built)
        if found is None:
            return
        key, what = found
        self._tell(key, f"it was built with {what}, while the chain was built upon it")

    def _tell(self, key: str, problem: str, *, or_else: str = "") -> None:
        remedy = "build the chain again from that partition"
        if self._strict:
            raise RestatedPastError(problem, remedy=remedy + or_else, **self._target.slice_of(key).where)
        self._target.warn(f"{problem}. Remedy: {remedy}.", key)

    def _newest(self, store: PartitionStore) -> dict[str, int]:
        newest = {source.owner: store.newest(source.table) for source in self._target.local if not source.is_own}
        found = {owner: entry.position for owner, entry in newest.items() if entry is not None}
        past = self._target.past
        before = past.keys(self._target.keys[0]) if past is not None and self._target.keys else ()
        own = store.heads(self._target.table, before) if before else {}
        return found | {f"previous {key}": entry.position for key, entry in own.items()}

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
        self._tell(key, problem, or_else=", or turn strict off")
        self.stale[key] = restated
