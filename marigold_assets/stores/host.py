"""Opening one file again and again: a process keeps a DuckDB instance without data, which attaches it for a while.

To start an instance takes ten times as long as to attach a file to one that runs. But the lock on a file belongs to the
process: who opens it a second time there, in an instance of his own, loses the lock for both. So whatever this package
opens in a process goes through the file's :class:`Host`. It attaches the file where no code of users runs meanwhile,
and else connects to it as they would, which DuckDB makes one instance of.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import duckdb

from marigold_assets.stores import sql
from marigold_assets.stores.location import Config


class OpenedOtherwiseError(Exception):
    """This process has attached the file in a way that excludes the one wanted; it will soon be free."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """A connection to a file, and how to close it. What was not committed is rolled back."""

    connection: duckdb.DuckDBPyConnection
    close: Callable[[], None]


class Host:
    """Opens one file in this process.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._guard = threading.Lock()
        self._config: Config = {}
        self._instance: duckdb.DuckDBPyConnection | None = None
        self._name = ""
        self._users = 0
        self._read_only = False

    @classmethod
    def of(cls, path: Path) -> Host:
        """The host of a file in this process."""
        with _guard:
            return _hosts.setdefault(os.path.realpath(path), cls(path))

    def attach(self, config: Config, *, read_only: bool) -> Opened | None:
        """Open the file for work in which no code of users runs.

        Returns:
            A connection, or ``None`` where the file cannot be attached, but possibly be connected to.

        Raises:
            OpenedOtherwiseError: It is attached for reading only, or with other settings.
            duckdb.Error: It cannot be opened.
        """
        with self._guard:
            if self._users and (config != self._config or (self._read_only and not read_only)):
                raise OpenedOtherwiseError
            if not self._users and not self._attach(config, read_only=read_only):
                return None
            connection = self._running(config).cursor()
            self._users += 1
        opened = Opened(connection=connection, close=lambda: self._detach(connection))
        try:
            connection.execute(f"USE {sql.identifier(self._name)}")
        except duckdb.Error:
            opened.close()
            raise
        return opened

    def connect(self, config: Config, *, read_only: bool) -> Opened:
        """Open the file so that connections of users share it.

        Raises:
            OpenedOtherwiseError: It is attached.
            duckdb.Error: It cannot be opened.
        """
        with self._guard:
            if self._users:
                raise OpenedOtherwiseError
            connection = duckdb.connect(str(self._path), read_only=read_only, config=dict(config))
        return Opened(connection=connection, close=connection.close)

    def _attach(self, config: Config, *, read_only: bool) -> bool:
        mode = "READ_ONLY" if read_only else "READ_WRITE"
        try:
            self._running(config).execute(f"ATTACH {sql.string(str(self._path))} (TYPE duckdb, {mode})")
        except (duckdb.ConnectionException, duckdb.FatalException, duckdb.InternalException):
            self._stop()
            raise
        except duckdb.Error as error:
            if _is_no_matter_of_the_file(error):
                return False
            raise
        self._read_only = read_only
        query = "SELECT database_name FROM duckdb_databases() WHERE path IS NOT NULL"
        [(self._name,)] = self._running(config).execute(query).fetchall()
        return True

    def _detach(self, connection: duckdb.DuckDBPyConnection) -> None:
        connection.close()
        with self._guard:
            self._users -= 1
            if self._users:
                return
            try:
                self._running(self._config).execute(f"DETACH {sql.identifier(self._name)}")
            except duckdb.Error:  # after a fatal error an instance is of no more use
                self._stop()
        for host in _longest_idle(self):
            host.stop_if_idle()

    def _running(self, config: Config) -> duckdb.DuckDBPyConnection:
        if config != self._config:
            self._stop()
        if self._instance is None:
            # Where DuckDB would put what does not fit into memory if it opened the file itself.
            settings = {"temp_directory": f"{self._path}.tmp", **config}
            self._instance, self._config = duckdb.connect(":memory:", config=settings), dict(config)
        return self._instance

    def stop_if_idle(self) -> None:
        """End the instance, unless it is in use again. Another one starts when it is needed."""
        with self._guard:
            if not self._users:
                self._stop()

    def _stop(self) -> None:
        instance, self._instance = self._instance, None
        if instance is not None:
            instance.close()

    def abandon(self) -> None:
        """Never touch the instance again, not even to end it: its threads have not come along into a forked process."""
        if self._instance is not None:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._instance))


def _is_no_matter_of_the_file(error: duckdb.Error) -> bool:
    """Whether a file cannot be attached that could be connected to.

    It is connected to already by a user, bears the name of the instance's own database, or the settings forbid to
    attach anything.
    """
    text = str(error)
    return isinstance(error, duckdb.PermissionException) or any(
        sign in text for sign in ("nique file handle conflict", "already exists", "read-only mode!")
    )


_MOST_IDLE = 4  # instances that are kept, with their threads, in a process that works on many files
_hosts: dict[str, Host] = {}
_idle: dict[Host, None] = {}  # in order: the longest idle first
_guard = threading.Lock()


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
    _guard = threading.Lock()
    for host in _hosts.values():
        host.abandon()
    _hosts.clear()
    _idle.clear()


os.register_at_fork(after_in_child=_start_anew)
