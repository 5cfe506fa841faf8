"""Where somebody may interrupt a command: between looks at a database, not amid them, and not only by Ctrl-C."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any


@contextmanager
def interrupted_when_ended() -> Iterator[None]:
    """Take a signal to end, or that the terminal was closed, for an interruption: what was begun is taken back."""

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    with ExitStack() as stack:
        for name in ("SIGTERM", "SIGHUP"):
            if hasattr(signal, name):
                stack.enter_context(_handling(getattr(signal, name), interrupt))
        yield


class Rests:
    """An interruption is held back until the next rest: amid a query, it would leave its mark on the terminal.

    Who interrupts twice does not wait for that.
    """

    def __init__(self) -> None:
        self._is_resting = self._was_heard = False

    @contextmanager
    def only(self) -> Iterator[None]:
        """Be interrupted at rests only, or at the end.

        Raises:
            KeyboardInterrupt: Somebody has interrupted.
        """
        with _handling(signal.SIGINT, self._hear):
            yield
        if self._was_heard:
            raise KeyboardInterrupt

    def rest(self, seconds: float) -> None:
        """Sleep, unless somebody interrupts.

        Raises:
            KeyboardInterrupt: Somebody has, now or since the last rest.
        """
        self._is_resting = True
        try:
            if self._was_heard:
                raise KeyboardInterrupt
            time.sleep(seconds)
        finally:
            self._is_resting = False

    def _hear(self, *_: Any) -> None:
        if self._is_resting or self._was_heard:
            self._was_heard = False  # it is raised, and not again at the end
            raise KeyboardInterrupt
        self._was_heard = True


@contextmanager
def _handling(number: signal.Signals, handler: Any) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before)
