"""Code of users that runs while the database is locked for it: it must not wait for itself.

The database pulls a stream of rows while it holds its own lock, perhaps in a thread of its own. What the author's code
raises there comes out as it is, and it must not open the same database: it would wait for the very swap that waits for
it. So would code that runs while its own thread keeps the database open.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from marigold_assets.errors import ConfigurationError, Where

_pulling = threading.local()


class Stream:
    """The batches of a reader, to be pulled once.

    Args:
        reader: The reader.
        lock: The lock that is held while it is pulled.

    Attributes:
        error: What the author's code raised, if it did: a database shows no more than its text.
    """

    def __init__(self, reader: pa.RecordBatchReader, lock: Path) -> None:
        self._reader, self._lock = reader, lock
        self.error: BaseException | None = None

    def open(self) -> pa.RecordBatchReader:
        """The same rows, watched."""
        return pa.RecordBatchReader.from_batches(self._reader.schema, self._batches())

    def _batches(self) -> Iterator[pa.RecordBatch]:
        while True:
            try:
                with _pulled_under(self._lock):
                    batch = self._reader.read_next_batch()
            except StopIteration:
                return
            except BaseException as error:
                self.error = error
                raise
            yield batch


def of_author(error: BaseException, where: Where) -> BaseException:
    """What the author's stream raised; it may succeed the next time, so it stays what it is."""
    place = ", ".join(f"{word} {value!r}" for word, value in where.items() if value)
    error.add_note(f"Raised by the stream of rows for {place}; nothing was changed.")
    return error


@contextmanager
def _pulled_under(lock: Path) -> Iterator[None]:
    held = _locks()
    _pulling.locks = (*held, lock)
    try:
        yield
    finally:
        _pulling.locks = held


def is_pulled_under(lock: Path) -> bool:
    """Whether this thread carries out a stream that a swap pulls while it holds the lock."""
    return lock in _locks()


@dataclass(slots=True)
class Hold:
    """A lock that a thread holds, so that the same thread must not wait for it.

    Attributes:
        lock: The lock.
        over: Whether it is held no longer.
        is_resting: Whether it would be given back to whoever waits for it.
    """

    lock: Path
    over: bool = False
    is_resting: bool = False


@contextmanager
def held(lock: Path) -> Iterator[Hold]:
    """Mark a lock as held by this thread for as long as the block lasts, even if another thread ends it."""
    hold = Hold(lock)
    _pulling.holds = [*_holds(), hold]
    try:
        yield hold
    finally:
        hold.over = True


def refuse_waiting_for_oneself(lock: Path) -> None:
    """Refuse to wait for a lock that is held for this very thread.

    Raises:
        ConfigurationError: It is.
    """
    if is_pulled_under(lock) or any(hold.lock == lock and not hold.is_resting for hold in _holds()):
        raise waiting_for_oneself()


def waiting_for_oneself() -> ConfigurationError:
    """What is said of code that opens the database while it is locked for that very code."""
    return ConfigurationError(
        "a stream whose rows are being stored, or code that runs while the database is kept open for it, reads this"
        " very database, which is locked meanwhile",
        remedy="read first and then return a table, or return SQL, which the swap runs itself",
    )


def _holds() -> list[Hold]:
    return [hold for hold in getattr(_pulling, "holds", ()) if not hold.over]


def _locks() -> tuple[Path, ...]:
    return getattr(_pulling, "locks", ())
