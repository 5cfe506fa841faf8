"""Opening a DuckDB file that other processes want too: a fair queue, a deadline, and one translation of errors.

DuckDB locks its file against every other process, readers too, and fails at once when it is locked. So everybody
queues on a lock file beside the database first. A writer keeps that lock while it works; a reader only passes through
it, so that readers share the file and yet cannot starve a writer. Programs that do not take our lock are met by
retrying on DuckDB's own lock error, and on nothing else: what cannot succeed fails at once.
"""

from __future__ import annotations

import errno
import logging
import os
import random
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import duckdb
from filelock import FileLock, Timeout

from marigold_assets.errors import (
    ConfigurationError,
    MarigoldError,
    StoreBusyError,
    StoreUnavailableError,
    Where,
)
from marigold_assets.stores import translation
from marigold_assets.stores.host import (
    ForkedWhileOpenError,
    Host,
    Opened,
    OpenedByOthersError,
    OpenedOtherwiseError,
)
from marigold_assets.stores.line import in_line, leave_note
from marigold_assets.stores.location import Config, Secrets, absolute_path, local_path
from marigold_assets.stores.stream import refuse_waiting_for_oneself

_log = logging.getLogger("marigold_assets")
_SILENT_SECONDS = 2.0  # then whoever waits says so
_QUEUE_POLL_SECONDS = 0.001  # by the first in line only
_RETRY_CAP_SECONDS = 0.25
_OWN_PROCESS_SECONDS = 10.0  # a connection with other settings in this very process rarely goes away by waiting
_OWN_PROCESS = "this very process"
_INTERRUPTED = "Query interrupted"
_HOLDER = re.compile(r"held in (?P<program>.+?) \(PID (?P<pid>\d+)\)")


class Connector:
    """Opens one DuckDB file, briefly, from many processes.

    Args:
        database: Path of the file.
        config: DuckDB settings. Every connection of a process to one file must carry the same ones.
        timeout_seconds: How long to wait for the file before giving up.
    """

    def __init__(self, database: str, *, config: Config | None = None, timeout_seconds: float = 180.0) -> None:
        self._config = dict(config or {})
        try:
            self.secrets = Secrets.of(database, self._config)
        except RuntimeError:  # as pathlib says that it does not know the home of a user
            raise ConfigurationError(
                "'database' starts with the home of a user whom this machine does not know",
                remedy="set 'database' to the whole path of a file",
            ) from None
        if self.secrets.hidden:
            # At level DEBUG filelock names the files that it locks. Equal filters are kept once.
            logging.getLogger("filelock").addFilter(self.secrets)
        self._timeout = timeout_seconds
        if not database or database.startswith(":memory:"):
            raise ConfigurationError(
                "an in-memory database keeps nothing between two steps",
                remedy="set 'database' to the path of a file",
            )
        if re.match(r"(md|motherduck|https?|s3|gs|ducklake|postgres(ql)?|quack):", database):
            raise ConfigurationError(
                "'database' names a remote database, which a local fence cannot protect",
                remedy="set 'database' to the path of a local file",
            )
        self.path = absolute_path(database)
        self.follows_working_directory = not local_path(database).is_absolute()
        # One queue for one file, however its path is spelled: two instances of DuckDB in one process would not keep
        # each other out, since the lock of the operating system belongs to the process.
        queue = os.path.realpath(self.path) + ".lock"
        self.lock_path, self._holder_path, self._line_path = (Path(queue + end) for end in ("", ".holder", ".line"))

    def exists(self) -> bool:
        """Whether there is such a file.

        Raises:
            StoreUnavailableError: That cannot be found out: the folder is closed to this process, or the name is none.
        """
        try:
            self.path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return False
        except (OSError, ValueError) as error:
            raise self._unavailable(error) from None
        return True

    @contextmanager
    def write(self, owner: str, *, alone: bool = True) -> Iterator[duckdb.DuckDBPyConnection]:
        """Open for writing, keeping every other process out until the block ends.

        Args:
            owner: Who writes, for the error of somebody who waits in vain.
            alone: Whether no code of users runs within the block, which might connect to the file itself.

        Raises:
            StoreBusyError: The file stayed locked until the deadline.
            StoreUnavailableError: The file cannot be opened.
        """
        deadline = time.monotonic() + self._timeout
        with interrupts_as_such(), self._queue(deadline, owner):
            opened = self._open(deadline, read_only=False, alone=alone)
            try:
                yield opened.connection
            finally:
                opened.close()

    @contextmanager
    def read(self, *, alone: bool = True) -> Iterator[duckdb.DuckDBPyConnection]:
        """Open for reading, beside other readers.

        Args:
            alone: Whether no code of users runs within the block, which might connect to the file itself.

        Raises:
            StoreBusyError: The file stayed locked until the deadline.
            StoreUnavailableError: The file does not exist or cannot be opened.
        """
        deadline = time.monotonic() + self._timeout
        with interrupts_as_such():
            with self._queue(deadline, "a reader", required=False):
                opened = self._open(deadline, read_only=True, alone=alone)
            try:
                yield opened.connection
            finally:
                opened.close()

    @contextmanager
    def share(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """Open for writing without keeping the queue: for a connection that is handed to user code.

        Raises:
            StoreBusyError: The file stayed locked until the deadline.
            StoreUnavailableError: The file cannot be opened.
        """
        deadline = time.monotonic() + self._timeout
        with self._queue(deadline, "user code"):
            opened = self._open(deadline, read_only=False, alone=False)
        try:
            yield opened.connection
        finally:
            opened.close()

    @contextmanager
    def _queue(self, deadline: float, owner: str, *, required: bool = True) -> Iterator[None]:
        if not _is_folder(self.lock_path.parent):  # or the lock would create it, and a mistyped path go unnoticed
            self.exists()
            raise self._unavailable(FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT)))
        refuse_waiting_for_oneself(self.lock_path)
        # A turn may be ended by another thread than that which has begun it.
        lock = FileLock(self.lock_path, poll_interval=_QUEUE_POLL_SECONDS, thread_local=False)
        notice = _Notice(lambda: self._tell_waiting(deadline, self._current_holder()))
        try:
            with in_line(self._line_path, deadline, notice.due):
                try:
                    lock.acquire(timeout=min(_SILENT_SECONDS, max(0.0, deadline - time.monotonic())))
                except Timeout:
                    notice.due()
                    lock.acquire(timeout=max(0.0, deadline - time.monotonic()))
        except Timeout:
            raise self._busy(self._current_holder()) from None
        except OSError as error:
            if required or not self.exists():
                raise self._unavailable(error) from None
            yield  # a reader of a folder that it cannot write to: no queue there
            return
        try:
            if required:
                with suppress(OSError):  # the note only serves other people's error messages
                    leave_note(self._holder_path, f"process {os.getpid()} ({owner})")
            yield
        finally:
            lock.release()

    def _tell_waiting(self, deadline: float, holder: str) -> None:
        left = max(0.0, deadline - time.monotonic())
        text = "waiting for database %s, which is locked by %s, for up to %.0f s more"
        _log.warning(text, self.secrets.database, self.secrets.scrub(holder), left)

    def _current_holder(self) -> str:
        try:
            return self._holder_path.read_text()
        except OSError:
            return "another process"

    def _open(self, deadline: float, *, read_only: bool, alone: bool) -> Opened:
        own_deadline = min(deadline, time.monotonic() + _OWN_PROCESS_SECONDS)
        delay, holder = 0.01, _OWN_PROCESS
        notice = _Notice(lambda: self._tell_waiting(deadline, holder))
        while True:
            try:
                return self._try_open(read_only=read_only, alone=alone)
            except (OpenedOtherwiseError, OpenedByOthersError, duckdb.Error, OSError, RuntimeError) as error:
                holder, refusal = self._obstacle(error)
            if time.monotonic() >= (own_deadline if holder == _OWN_PROCESS else deadline):
                raise refusal
            notice.due()
            time.sleep(min(random.uniform(0.0, delay), max(0.0, deadline - time.monotonic())))  # noqa: S311 - jitter
            delay = min(delay * 2, _RETRY_CAP_SECONDS)

    def _obstacle(self, error: BaseException) -> tuple[str, StoreBusyError]:
        """Who has the file open, and what to raise if that does not end.

        Raises:
            MarigoldError: Waiting would not help.
        """
        if isinstance(error, OpenedOtherwiseError):
            return "another thread of this process", self._busy("another thread of this process")
        if isinstance(error, OpenedByOthersError) or "different configuration" in str(error):
            return _OWN_PROCESS, self._opened_here()
        found = _HOLDER.search(str(error))
        if isinstance(error, duckdb.IOException) and (found or "Could not set lock" in str(error)):
            return _named(found), self._busy(_named(found))
        raise self._refusal(error) from None

    def _try_open(self, *, read_only: bool, alone: bool) -> Opened:
        try:
            host = Host.of(self.path)
        except ForkedWhileOpenError:
            raise self._forked() from None
        opened = host.attach(self.path, self._config, read_only=read_only) if alone else None
        if opened is not None:
            return opened
        try:
            return host.connect(self.path, self._config, read_only=read_only)
        except duckdb.ConnectionException:
            if not read_only:
                raise
            # Somebody in this process has the file open for writing: share that instance, as it is locked against
            # other processes anyway.
            return host.connect(self.path, self._config, read_only=False)

    def _refusal(self, error: BaseException) -> MarigoldError:
        if isinstance(error, duckdb.InvalidInputException | duckdb.CatalogException):
            return ConfigurationError(
                f"the database does not accept a setting: {self.secrets.scrub(str(error))}",
                remedy="correct 'connection_config'",
            )
        return self.translate(error)

    def _busy(self, holder: str) -> StoreBusyError:
        return StoreBusyError(
            f"database {self.secrets.database} stayed locked for {self._timeout:g} s by {self.secrets.scrub(holder)}",
            remedy="close that program or wait for it and run again, or raise 'lock_timeout_seconds'",
        )

    def _opened_here(self) -> StoreBusyError:
        return StoreBusyError(
            f"database {self.secrets.database} is open in {_OWN_PROCESS}, by a connection or an ATTACH of its own",
            remedy="close or detach it before anything is stored or loaded, or open it by"
            " FencedPartitionResource.get_connection, which is shared",
        )

    def _forked(self) -> StoreUnavailableError:
        return StoreUnavailableError(
            f"database {self.secrets.database} was open when this process was forked off: two would work with one lock",
            remedy="close it before, or start the process by 'spawn' instead of 'fork'",
        )

    def _unavailable(self, error: BaseException) -> StoreUnavailableError:
        # The text of the system names a file: perhaps one that a link leads to, and that is as secret.
        system = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        detail = self.secrets.scrub(f"{type(error).__name__}: {system}")
        problem, remedy = self._diagnosis(error)
        return StoreUnavailableError(f"database {self.secrets.database} {problem}", remedy=remedy, detail=detail)

    def _diagnosis(self, error: BaseException) -> tuple[str, str]:
        text = str(error)
        number = error.errno if isinstance(error, OSError) else None
        shown = self.secrets.database == str(self.path)
        folder = f"folder {self.path.parent}" if shown else "its folder"
        if number == errno.ENOENT or (not _is_folder(self.path.parent) and "No such file" in text):
            return f"cannot be opened: {folder} does not exist", "create the folder or correct 'database'"
        if "database does not exist" in text:
            return "does not exist yet", "materialize an asset into it first, or correct 'database'"
        if "not a valid DuckDB database" in text or "Is a directory" in text:
            return "is not a DuckDB file", "correct 'database', or move the foreign file away"
        if number in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG} or re.search(
            r"no space left|disk quota|file too large", text, re.IGNORECASE
        ):
            return "cannot grow: the disk is full", "free disk space and run again; nothing was changed"
        if number in {errno.EACCES, errno.EPERM, errno.EROFS} or re.search(
            r"permission denied|read-only|read only", text, re.IGNORECASE
        ):
            if not os.access(self.path.parent, os.X_OK) or (
                os.path.lexists(self.path) and not os.access(self.path, os.R_OK)
            ):
                return "cannot be opened: this process may not read it", "grant access to the file and its folder"
            return (
                "cannot be written: it is read-only for this process",
                "grant write access to the file and its folder",
            )
        if number in {errno.ENAMETOOLONG, errno.ELOOP, errno.EINVAL, errno.EILSEQ} or isinstance(error, ValueError):
            return "cannot be opened: its path is none that this machine can have", "correct 'database'"
        if "version number" in text or "storage version" in text.lower():
            return (
                "was written by another release of duckdb that this one cannot read",
                "install that duckdb, or write with connection_config={'storage_compatibility_version': ...}",
            )
        return "failed", "see the detail below"

    def translate(self, error: BaseException, where: Where | None = None) -> MarigoldError:
        """Turn an error of DuckDB or of the file system into one of ours, without secrets.

        Args:
            error: What was raised.
            where: The slice that was worked on.

        Returns:
            An error to raise ``from None``: the original may hold secrets.
        """
        text = self.secrets.scrub(" ".join(str(error).split()))
        place: Where = where or {}
        if (known := translation.of_statement(error, text, place)) is not None:
            return known
        unavailable = self._unavailable(error)
        return StoreUnavailableError(unavailable.problem, remedy=unavailable.remedy, detail=unavailable.detail, **place)


def _is_folder(path: Path) -> bool:
    return os.path.isdir(path)  # noqa: PTH112 - pathlib's own raises where it is not allowed to look


def is_interrupt(error: BaseException) -> bool:
    """Whether DuckDB has made an error of an interrupt, as if a statement had failed."""
    return isinstance(error, RuntimeError) and str(error) == _INTERRUPTED


@contextmanager
def interrupts_as_such() -> Iterator[None]:
    """Raise an interrupt as one, so that nobody tries again."""
    try:
        yield
    except RuntimeError as error:
        if is_interrupt(error):
            raise KeyboardInterrupt from error
        raise


class _Notice:
    """Says something once, when a wait has lasted for a while."""

    def __init__(self, say: Callable[[], None]) -> None:
        self._say, self._at, self._said = say, time.monotonic() + _SILENT_SECONDS, False

    def due(self) -> None:
        """Say it, if it is time."""
        if not self._said and time.monotonic() >= self._at:
            self._said = True
            self._say()


def _named(holder: re.Match[str] | None) -> str:
    return f"process {holder['pid']} ({holder['program']})" if holder else "another process"
