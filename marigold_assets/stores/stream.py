"""A stream of rows that a swap pulls: what its author's code raises comes out as it is, and it cannot wait for itself.

The database pulls the stream while it holds its own lock, perhaps in a thread of its own. There, the author's code must
not open the same database: it would wait for the very swap that waits for it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

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


def _locks() -> tuple[Path, ...]:
    return getattr(_pulling, "locks", ())
