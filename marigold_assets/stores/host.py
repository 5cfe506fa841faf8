"""Opening one file again and again: a process keeps a DuckDB instance without data, which attaches it for a while.

To start an instance takes ten times as long as to attach a file to one that runs. But the lock on a file belongs to the
process: who opens it a second time there, other than by an instance that has it open, loses the lock for both, and from
then on other processes write beside them. So whatever this package opens in a process goes through the file's
:class:`Host`. It attaches the file where no code of users runs meanwhile, which is refused without harm where others
have it open; and else connects to it as users would, once it knows that nobody else has it open.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable
from pathlib import Path

import duckdb

from marigold_assets.stores import sql
from marigold_assets.stores.location import Config


class OpenedOtherwiseError(Exception):
    """This process works on the file in a way that excludes the one wanted; it will soon be free."""


class OpenedByOthersError(Exception):
    """Other code of this process has the file open, and only that code can close it."""


class ForkedWhileOpenError(Exception):
    """The file was open when this process was forked off, so that both would work with one lock."""


class Opened:
    """A connection to a file. What was not committed is rolled back when it is closed.

    Args:
        connection: The connection.
        close: Closes it.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection, close: Callable[[], None]) -> None:
        self.connection = connection
        self._close: Callable[[], None] | None = close

    def close(self) -> None:
        """Close the connection, once."""
        close, self._close = self._close, None
        if close is not None:
            close()

    def __del__(self) -> None:
        self.close()  # after an interrupt that came before anybody could


class Host:
    """Opens one file in this process, however its path is spelled."""

    def __init__(self) -> None:
        self._guard = threading.RLock()  # an Opened may be collected within any statement
        self._config: Config = {}
        self._instance: duckdb.DuckDBPyConnection | None = None
        self._name = ""
        self._attachments = 0
        self._connections = 0
        self._read_only = False

    @classmethod
    def of(cls, path: Path) -> Host:
        """The host of a file in this process.

        Raises:
            ForkedWhileOpenError: There cannot be one.
        """
        real = os.path.realpath(path)
        with _guard:
            if real in _open_at_fork:
                raise ForkedWhileOpenError
            return _hosts.setdefault(real, cls())

    @property
    def is_open(self) -> bool:
        """Whether the file is open."""
        return bool(self._attachments or self._connections)

    def attach(self, path: Path, config: Config, *, read_only: bool) -> Opened | None:
        """Open the file for work in which no code of users runs.

        Returns:
            A connection, or ``None`` where the file has to be connected to.

        Raises:
            OpenedOtherwiseError: It is attached for reading only, or with other settings.
            OpenedByOthersError: It cannot be attached because of that.
            duckdb.Error: It cannot be opened.
        """
        with self._guard:
            if self._connections:
                return None
            if self._attachments and (config != self._config or (self._read_only and not read_only)):
                raise OpenedOtherwiseError
            if not self._attachments and not self._attach(path, config, read_only=read_only):
                return None
            self._attachments += 1
            try:
                connection = self._running(config).cursor()
                connection.execute(f"USE {sql.identifier(self._name)}")
            except BaseException:
                self._release()
                raise
        return Opened(connection, lambda: self._detach(connection))

    def connect(self, path: Path, config: Config, *, read_only: bool) -> Opened:
        """Open the file so that connections of users share it.

        Raises:
            OpenedOtherwiseError: It is attached.
            OpenedByOthersError: It is open, but not by this host.
            duckdb.Error: It cannot be opened.
        """
        with self._guard:
            if self._attachments:
                raise OpenedOtherwiseError
            # Where others have it open, connecting would open it anew, and that takes the lock away from them.
            if not self._connections and self._attach(path, config, read_only=read_only):
                self._release()
            connection = duckdb.connect(str(path), read_only=read_only, config=dict(config))
            self._connections += 1
        return Opened(connection, lambda: self._disconnect(connection))

    def stop_if_idle(self) -> None:
        """End the instance, unless it is in use again. Another one starts when it is needed."""
        with self._guard:
            if not self._attachments:
                self._stop()

    def abandon(self) -> None:
        """Never touch the instance again, not even to end it: its threads have not come along into a forked process."""
        if self._instance is not None:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._instance))

    def _attach(self, path: Path, config: Config, *, read_only: bool) -> bool:
        mode = "READ_ONLY" if read_only else "READ_WRITE"
        try:
            self._running(config, path).execute(f"ATTACH {sql.string(str(path))} (TYPE duckdb, {mode})")
            query = "SELECT database_name FROM duckdb_databases() WHERE path IS NOT NULL"
            [(self._name,)] = self._running(config).execute(query).fetchall()
        except duckdb.IOException:
            raise
        except BaseException as error:
            if _is_conflict(error):
                raise OpenedByOthersError from None
            self._stop()  # after an interrupt the file may be attached, and after other errors nothing may be possible
            if isinstance(error, duckdb.Error) and _is_no_matter_of_the_file(error):
                return False
            raise
        self._read_only = read_only
        return True

    def _release(self) -> None:
        """Count one attachment less, or none, and detach the file after the last."""
        self._attachments = max(0, self._attachments - 1)
        if self._attachments:
            return
        try:
            self._running(self._config).execute(f"DETACH {sql.identifier(self._name)}")
        except BaseException as error:
            self._stop()  # that closes the file, too
            if not isinstance(error, duckdb.Error):
                raise

    def _detach(self, connection: duckdb.DuckDBPyConnection) -> None:
        connection.close()
        with self._guard:
            self._release()
        for host in _longest_idle(self):
            host.stop_if_idle()

    def _disconnect(self, connection: duckdb.DuckDBPyConnection) -> None:
        connection.close()
        with self._guard:
            self._connections -= 1

    def _running(self, config: Config, path: Path | None = None) -> duckdb.DuckDBPyConnection:
        if config != self._config:
            self._stop()
        if self._instance is None:
            # Where DuckDB would put what does not fit into memory if it opened the file itself.
            settings = {**({"temp_directory": f"{path}.tmp"} if path else {}), **config}
            self._instance, self._config = duckdb.connect(":memory:", config=settings), dict(config)
        return self._instance

    def _stop(self) -> None:
        instance, self._instance = self._instance, None
        if instance is not None:
            instance.close()


def _is_conflict(error: BaseException) -> bool:
    return isinstance(error, duckdb.Error) and "nique file handle conflict" in str(error)


def _is_no_matter_of_the_file(error: duckdb.Error) -> bool:
    """Whether a file cannot be attached that could be connected to.

    It bears the name of the instance's own database, or the settings forbid to attach anything, or to have an instance
    without a file.
    """
    text = str(error)
    return isinstance(error, duckdb.PermissionException) or "already exists" in text or "in-memory database" in text


_MOST_IDLE = 4  # instances that are kept, with their threads, in a process that works on many files
_hosts: dict[str, Host] = {}
_idle: dict[Host, None] = {}  # in order: the longest idle first
_open_at_fork: set[str] = set()
_guard = threading.RLock()


def _longest_idle(latest: Host) -> list[Host]:
    """The hosts that have been idle for longest, beyond those kept, now that another one is."""
    with _guard:
        _idle.pop(latest, None)
        _idle[latest] = None
        longest = list(_idle)[:-_MOST_IDLE]
        for host in longest:
            del _idle[host]
        return longest


def _start_anew() -> None:
    global _guard  # noqa: PLW0603 - a thread that has not come along may have held it
    _guard = threading.RLock()
    _open_at_fork.update(real for real, host in _hosts.items() if host.is_open)
    for host in _hosts.values():
        host.abandon()
    _hosts.clear()
    _idle.clear()


os.register_at_fork(after_in_child=_start_anew)
