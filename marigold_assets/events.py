"""Materialization events of single partitions, written while the next partition is being computed."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Self

import dagster as dg

_MOST_WAITING = 8  # commits that a crash may leave without an event; the next run reports them
_KEPT = 1_000  # events that Dagster is handed after the step as well; beyond, they stand in the event log only


class EventWriter:
    """Logs events in their order, in a thread of its own: an event is written in 10 to 20 ms, most of it waiting.

    Leaving the block waits until all are written, also after an error.

    Args:
        context: The context of the running step.
    """

    def __init__(self, context: dg.AssetExecutionContext) -> None:
        self._context = context
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="marigold-events")
        self._waiting: deque[Future[None]] = deque()
        self._written = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self.flush()
        finally:
            self._pool.shutdown()

    def write(self, event: dg.AssetMaterialization) -> None:
        """Log an event soon.

        Raises:
            Exception: Whatever was raised while an earlier one was written.
        """
        while len(self._waiting) >= _MOST_WAITING:
            self._waiting.popleft().result()
        self._waiting.append(self._pool.submit(self._log, event))

    def flush(self) -> None:
        """Wait until all events are written.

        Raises:
            Exception: Whatever was raised while one was written.
        """
        while self._waiting:
            self._waiting.popleft().result()

    def _log(self, event: dg.AssetMaterialization) -> None:
        self._context.log_event(event)
        self._written += 1
        if self._written > _KEPT:  # or a range of a hundred years would hold them all in memory
            for _ in self._context.consume_events():
                pass
