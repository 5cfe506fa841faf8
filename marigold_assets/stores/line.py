"""Standing in line for a file, in the order of arrival.

A lock of the operating system does not care who came first: whoever happens to try it next gets it, most often the one
who has just let it go. So everybody draws a number first and waits for the smaller ones. The order is a courtesy
and no more: nobody relies on it to keep others out, so losing a place does no harm.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_POLL_SECONDS = 0.005


@contextmanager
def in_line(
    path: Path,
    deadline: float,
    waiting: Callable[[], None] = lambda: None,
    *,
    poll_seconds: float = _POLL_SECONDS,
) -> Iterator[None]:
    """Wait for everybody who came before, then keep one's place for as long as the block runs.

    A place is a lock on one byte of a file, which goes when its process does.

    Args:
        path: The file of the places; it grows by a byte with each of them.
        deadline: When to go on regardless (monotonic clock).
        waiting: Called again and again while the wait lasts.
        poll_seconds: How often to look whether they have gone.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
    except OSError:  # a reader of a folder that it cannot write to
        yield
        return
    try:
        with suppress(OSError):  # a full disk, or a file system without such locks: no order there
            _wait_for_earlier(descriptor, deadline, waiting, poll_seconds)
        yield
    finally:
        os.close(descriptor)


def _wait_for_earlier(descriptor: int, deadline: float, waiting: Callable[[], None], poll_seconds: float) -> None:
    if sys.platform == "win32":
        return
    import fcntl  # noqa: PLC0415 - not everywhere

    os.write(descriptor, b".")
    place = os.lseek(descriptor, 0, os.SEEK_CUR) - 1
    with suppress(BlockingIOError):  # somebody behind has passed already
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, place)
    while place > 0 and time.monotonic() < deadline:
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB, place)
        except BlockingIOError:
            waiting()
            time.sleep(poll_seconds)
        else:
            return


def leave_note(path: Path, text: str) -> None:
    """Write a small file in place: some file systems flush one that was truncated first, which costs time."""
    encoded = text.encode()
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o666)
    try:
        os.write(descriptor, encoded)
        os.ftruncate(descriptor, len(encoded))
    finally:
        os.close(descriptor)
