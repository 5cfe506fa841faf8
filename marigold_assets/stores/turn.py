"""One's turn at a store: it stays open over several pieces of work, also while other code runs between them.

Not for long: a thread gives it back when the time is over, whatever that code is doing. Until then such code may open
the store by itself as ever; it waits for the end of the turn, like everybody else.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from types import TracebackType
from typing import Self

from marigold_assets.stores.connection import interrupts_as_such
from marigold_assets.stores.duckdb import KeptDuckDBStore

Open = Callable[[], AbstractContextManager[KeptDuckDBStore]]
"""Opens a store until a block ends, for code of users to run meanwhile."""


class Turn:
    """A turn, to be used by one thread; leaving the block ends it.

    Args:
        seconds: How long it may last between two pieces of work.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._guard = threading.Lock()
        self._until_over = ExitStack()
        self._opened: KeptDuckDBStore | None = None
        self._over_at = 0.0
        self._is_at_work = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with self._guard:
            self._end()

    @property
    def is_open(self) -> bool:
        """Whether the store is open now."""
        return self._opened is not None

    @contextmanager
    def working(self, open_: Open, *, lasting: bool) -> Iterator[KeptDuckDBStore]:
        """Work with the store, which is opened unless it is open still.

        Args:
            open_: Opens it.
            lasting: Whether to keep it open afterwards.
        """
        with self._guard:
            if time.monotonic() >= self._over_at:
                self._end()
            opened = self._opened or self._begin(open_)
            self._is_at_work = True
            opened.is_resting = False
        try:
            with interrupts_as_such():
                yield opened
        except BaseException:
            self._over_at = 0.0
            raise
        finally:
            with self._guard:
                self._is_at_work = False
                opened.is_resting = True
                if not lasting or time.monotonic() >= self._over_at:
                    self._end()

    def _begin(self, open_: Open) -> KeptDuckDBStore:
        with ExitStack() as stack:
            opened = stack.enter_context(open_())
            self._until_over = stack.pop_all()
        self._opened, self._over_at = opened, time.monotonic() + self._seconds
        timer = threading.Timer(self._seconds, self._time_out, [opened])
        timer.daemon = True
        self._until_over.callback(timer.cancel)
        timer.start()
        return opened

    def _time_out(self, opened: KeptDuckDBStore) -> None:
        with self._guard:
            if self._opened is opened and not self._is_at_work:
                self._end()

    def _end(self) -> None:
        self._opened = None
        self._until_over.pop_all().close()
