"""How long a store keeps its file open: for each piece of work, or for several of them."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import duckdb

from marigold_assets.errors import ConfigurationError
from marigold_assets.stores import tables
from marigold_assets.stores.connection import Connector
from marigold_assets.stores.session import Session, StatementObserver
from marigold_assets.stores.stream import Hold, held, is_pulled_under, waiting_for_oneself
from marigold_assets.stores.watch import Watch


class Opening(ABC):
    """Gives sessions to the methods of a store.

    Args:
        connector: Opens the file.
        observer: Told of every statement before it runs.
    """

    def __init__(self, connector: Connector, observer: StatementObserver | None) -> None:
        self.connector = connector
        self.observer = observer
        self.watch: Watch | None = None

    @abstractmethod
    def writing(self, owner: str, *, rows: bool, alone: bool = True) -> AbstractContextManager[Session]:
        """A session for one transaction that writes.

        Args:
            owner: Who writes, for the error of somebody who waits in vain.
            rows: Whether it writes rows of tables, by a job that makes the fence tables ready itself.
            alone: Whether no code of users runs within the block.
        """

    @abstractmethod
    def reading(self, *, alone: bool = True) -> AbstractContextManager[Session]:
        """A session for reading. ``alone``: no code of users runs within the block."""

    @abstractmethod
    def kept(self, watch: Watch, *, alone: bool) -> AbstractContextManager[Kept]:
        """Keep the file open for several pieces of work.

        Args:
            watch: For whom, and what is about to be swapped.
            alone: Whether no code of users runs within the block.
        """

    @abstractmethod
    def snapshot(self) -> AbstractContextManager[None]:
        """Have everything that is read within the block be of one snapshot."""


class Brief(Opening):
    """Opens the file for every piece of work, and closes it again."""

    @contextmanager
    def writing(self, owner: str, *, rows: bool, alone: bool = True) -> Iterator[Session]:
        """A session of its own."""
        with self.connector.write(owner, alone=alone) as connection:
            session = Session(connection, self.observer)
            with self._translated():
                session.write_once(rows=rows)
                if not rows:
                    tables.ensure(session.fenced)
            yield session

    @contextmanager
    def reading(self, *, alone: bool = True) -> Iterator[Session]:
        """A session of its own."""
        with self.connector.read(alone=alone) as connection:
            yield Session(connection, self.observer)

    @contextmanager
    def kept(self, watch: Watch, *, alone: bool) -> Iterator[Kept]:
        """Keep the file open, and every other process out, until the block ends."""
        owner, lock = f"run {watch.attempt.run_id}", self.connector.lock_path
        with self.connector.write(owner, alone=alone) as connection, held(lock) as hold:
            session = Session(connection, self.observer)
            with self._translated():
                session.write_often()
                tables.ensure(session.fenced)
                session.has_fence = True
            opening = Kept(self.connector, session, watch, hold)
            try:
                yield opening
            finally:
                opening.is_closed = True
                session.close()

    @contextmanager
    def kept_reading(self, *, alone: bool) -> Iterator[Kept]:
        """Keep the file open for several pieces of work that only read, beside other readers.

        Args:
            alone: Whether no code of users runs within the block.
        """
        with self.connector.read(alone=alone) as connection:
            session = Session(connection, self.observer)
            opening = Kept(self.connector, session, None, Hold(self.connector.lock_path))
            try:
                yield opening
            finally:
                opening.is_closed = True
                session.close()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except duckdb.Error as error:
            raise self.connector.translate(error) from None

    def snapshot(self) -> AbstractContextManager[None]:
        """Refused: there would be nothing that holds it."""
        raise ConfigurationError(
            "a snapshot of several reads needs a store that is kept open",
            remedy="take it of the store that keep_open() gives",
        )


class Kept(Opening):
    """Gives one and the same session, to one at a time, and tidies up behind everybody.

    Args:
        connector: What has opened the file.
        session: The session, whose connection somebody else closes.
        watch: What is known of the fence; ``None`` where it is open for reading only.
        hold: The lock that is held meanwhile.
    """

    def __init__(self, connector: Connector, session: Session, watch: Watch | None, hold: Hold) -> None:
        super().__init__(connector, None)
        self._session = session
        self.hold = hold
        self.watch = watch
        self._guard = threading.RLock()  # a connection knows one transaction
        self._is_busy = False
        self.is_closed = False

    @contextmanager
    def writing(self, owner: str, *, rows: bool, alone: bool = True) -> Iterator[Session]:  # noqa: ARG002 - it is open
        """The session, unless a snapshot is read, or nothing may be written at all."""
        with self._entered() as session:
            if self.watch is None:
                raise ConfigurationError(
                    "a write to a store that is kept open for reading", remedy="open it for writing"
                )
            if session.is_snapshot:
                raise ConfigurationError(
                    "a swap within a snapshot, which does not change", remedy="end the snapshot before storing rows"
                )
            yield session

    @contextmanager
    def reading(self, *, alone: bool = True) -> Iterator[Session]:  # noqa: ARG002 - it is open
        """The session."""
        with self._entered() as session:
            yield session

    @contextmanager
    def kept(self, watch: Watch, *, alone: bool) -> Iterator[Kept]:  # noqa: ARG002 - it is open
        """The same once more."""
        yield self

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Until the block ends; other threads wait."""
        with self._guard:
            with self._entered() as session:
                if session.is_snapshot:
                    raise ConfigurationError("a snapshot within a snapshot", remedy="take one")
                session.begin_snapshot()
            try:
                yield
            finally:
                session.end_snapshot()

    @contextmanager
    def _entered(self) -> Iterator[Session]:
        if is_pulled_under(self.connector.lock_path):
            raise waiting_for_oneself()
        with self._guard:
            if self.is_closed or self._is_busy:
                raise ConfigurationError(
                    "the store that was kept open is closed"
                    if self.is_closed
                    else "the store that is kept open is asked for something while it is being read batch by batch",
                    remedy="use it within its block, one call after the other",
                )
            self._is_busy = True
            try:
                yield self._session
            finally:
                self._is_busy = False
                self._session.tidy()
