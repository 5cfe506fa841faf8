"""Statement observers: where a process shall die."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

StatementObserver = Callable[[str], None]
"""Called by a store with the label of every statement, just before it runs."""


class Crash(BaseException):
    """Raised by :func:`fail_at`. Not an :class:`Exception`, so that nothing on the way handles it."""


def kill_at(point: str | int) -> StatementObserver:
    """Kill this very process with SIGKILL just before a statement.

    Args:
        point: A label, or the number of the statement, from 1.
    """

    def die(_label: str) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    return _at(point, die)


def fail_at(point: str | int, error: Callable[[], BaseException] = Crash) -> StatementObserver:
    """Raise just before a statement.

    Args:
        point: A label, or the number of the statement, from 1.
        error: Makes what is raised.
    """

    def fail(_label: str) -> None:
        raise error()

    return _at(point, fail)


def record(labels: list[str]) -> StatementObserver:
    """Append the label of every statement to a list."""
    return labels.append


def _at(point: str | int, action: StatementObserver) -> StatementObserver:
    count = 0

    def observe(label: str) -> None:
        nonlocal count
        count += 1
        if point in (label, count):
            action(label)

    return observe
