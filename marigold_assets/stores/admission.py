"""How many runs of backfills write to a database at once, whoever has launched them.

Limits of Dagster see what its queue sees. A partition that somebody picks by hand, and a command that works in its own
process, pass them by; but all of them come to the database. So there are slots beside it, and whoever is to write takes
one before he begins and keeps it until he is done, in the order of arrival.

A slot is a lock of the operating system on a part of a file. It belongs to the process, and goes when that does,
however it ends. A process needs one slot for a database, whatever it does there.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import RLock

from marigold_assets.errors import StoreBusyError
from marigold_assets.stores.connection import Connector
from marigold_assets.stores.line import in_line

_POLL_SECONDS = 0.05
_SILENT_SECONDS = 1.0  # then whoever waits says so
_NOTE_BYTES = 64
_MOST_NAMED = 5


class Lease:
    """A slot of a database, as one owner in this process has it."""

    def __init__(self, door: _Door, owner: str) -> None:
        self._door, self._owner, self._is_held = door, owner, True

    def release(self) -> None:
        """Give the slot back, once, unless others in this process need it still."""
        if self._is_held:
            self._is_held = False
            self._door.leave(self._owner)


def admit(connector: Connector, *, slots: int, timeout_seconds: float, owner: str, say: Callable[[str], None]) -> Lease:
    """Wait for a slot of a database.

    Args:
        connector: The database.
        slots: How many there are. Where others count otherwise, the largest number holds.
        timeout_seconds: How long to wait.
        owner: For whom: a run, which is not at work yet. Slots that it has of other databases it may give back
            while it waits, lest two runs wait for each other.
        say: Told once, if the wait lasts, what for.

    Raises:
        StoreBusyError: None was free until then.
        StoreUnavailableError: There can be no slots, in a folder that does not exist or that cannot be written to.
    """
    door = _door_of(connector)
    if door.join(owner):
        return Lease(door, owner)
    terms = _Terms(connector=connector, slots=slots, timeout_seconds=timeout_seconds, say=say)
    # Everybody waits in the order of the files: nobody who has a later one waits for an earlier one.
    behind = [one for one in _doors_behind(door) if one.lay_down(owner)]
    door.enter(owner, terms)
    lease = Lease(door, owner)
    try:
        for one in behind:
            one.take_up(owner)
    except BaseException:
        lease.release()
        raise
    return lease


def holders(connector: Connector) -> tuple[str, ...]:
    """Who has the slots, as each has noted it down; where one is free, who had it before."""
    return _door_of(connector).holders()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Terms:
    connector: Connector
    slots: int
    timeout_seconds: float
    say: Callable[[str], None]


class _Door:
    """The slots of one database, as this process has them.

    The locks of a process on a file end as soon as it closes that file anywhere: so it is open here alone, and once.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._line_path = Path(f"{path}.line")
        self._descriptor: int | None = None
        self._owners: Counter[str] = Counter()
        self._terms: _Terms | None = None

    def join(self, owner: str) -> bool:
        """Share the slot of this process, if it has one."""
        with _guard:
            if self._descriptor is None:
                return False
            self._owners[owner] += 1
            return True

    def enter(self, owner: str, terms: _Terms) -> None:
        """Stand in line, and take the next slot that is free.

        Raises:
            StoreBusyError: None was until the deadline.
            StoreUnavailableError: The file cannot be opened or locked.
        """
        self._terms = terms
        self._wait(owner, terms, counts=True)

    def lay_down(self, owner: str) -> bool:
        """Give the slot back for now, if nobody else in this process needs it."""
        with _guard:
            if self._descriptor is None or set(self._owners) != {owner}:
                return False
            self._close()
            return True

    def take_up(self, owner: str) -> None:
        """Have a slot again.

        Raises:
            StoreBusyError: None was free until the deadline.
        """
        if self._terms is not None and owner in self._owners:
            self._wait(owner, self._terms, counts=False)

    def leave(self, owner: str) -> None:
        """Need it no longer."""
        with _guard:
            self._owners[owner] -= 1
            if self._owners[owner] <= 0:
                del self._owners[owner]
            if not self._owners:
                self._close()

    def holders(self) -> tuple[str, ...]:
        """Who has noted that he has a slot."""
        with _guard, suppress(OSError):
            descriptor = self._descriptor
            if descriptor is None:
                text = self.path.read_bytes()
            else:
                text = os.pread(descriptor, os.fstat(descriptor).st_size, 0)
            notes = (text[at : at + _NOTE_BYTES].strip(b" \0") for at in range(0, len(text), _NOTE_BYTES))
            return tuple(note.decode(errors="replace") for note in notes if note)
        return ()

    def _wait(self, owner: str, terms: _Terms, *, counts: bool) -> None:
        began = time.monotonic()
        deadline, said = began + terms.timeout_seconds, False

        def waiting() -> None:
            nonlocal said
            if not said and time.monotonic() - began >= min(_SILENT_SECONDS, terms.timeout_seconds):
                said = True
                terms.say(self._told(terms))

        try:
            with in_line(self._line_path, deadline, waiting, poll_seconds=_POLL_SECONDS):
                while not self._take(owner, terms.slots, counts=counts):
                    if time.monotonic() >= deadline:
                        raise self._busy(terms)
                    waiting()
                    time.sleep(_POLL_SECONDS)
        except OSError as error:
            raise terms.connector.translate(error) from None

    def _take(self, owner: str, slots: int, *, counts: bool) -> bool:
        with _guard:
            # Another thread may have been faster: one slot does for both.
            if self._descriptor is None and not self._open_slot(owner, slots):
                return False
            self._owners[owner] += counts
            return True

    def _open_slot(self, owner: str, slots: int) -> bool:
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            slot = next((one for one in range(slots) if _lock(descriptor, one * _NOTE_BYTES)), None)
            if slot is None:
                return False
            with suppress(OSError):  # the note only serves other people's messages
                note = f"process {os.getpid()} ({owner})".encode()[:_NOTE_BYTES]
                os.pwrite(descriptor, note.ljust(_NOTE_BYTES), slot * _NOTE_BYTES)
            self._descriptor = descriptor
            return True
        finally:
            if self._descriptor is None:
                os.close(descriptor)

    def _close(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def _told(self, terms: _Terms) -> str:
        return (
            f"Waiting for a place: at most {_counted(terms.slots)} may write to database"
            f" {terms.connector.secrets.database} at once (max_backfill_writers), now {self._named(terms)}. This run"
            f" goes on when one of them is done, in the order of arrival, within {terms.timeout_seconds:g} s."
        )

    def _busy(self, terms: _Terms) -> StoreBusyError:
        return StoreBusyError(
            f"at most {_counted(terms.slots)} may write to database {terms.connector.secrets.database} at once, and for"
            f" {terms.timeout_seconds:g} s there was no place beside {self._named(terms)}",
            remedy="wait until they are done and run again, or raise 'max_backfill_writers' or"
            " 'admission_timeout_seconds'",
        )

    def _named(self, terms: _Terms) -> str:
        found = self.holders()[: terms.slots]
        more = f" and {len(found) - _MOST_NAMED} more" if len(found) > _MOST_NAMED else ""
        return ", ".join(found[:_MOST_NAMED]) + more or "others"


def _counted(slots: int) -> str:
    return "1 run of a backfill" if slots == 1 else f"{slots} runs of backfills"


def _lock(descriptor: int, place: int) -> bool:
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, place)
    except (BlockingIOError, PermissionError):  # systems differ in how they say that it is taken
        return False
    return True


_doors: dict[str, _Door] = {}
_guard = RLock()


def _door_of(connector: Connector) -> _Door:
    path = Path(f"{connector.lock_path}.slots")
    with _guard:
        return _doors.setdefault(str(path), _Door(path))


def _doors_behind(door: _Door) -> list[_Door]:
    with _guard:
        return [_doors[name] for name in sorted(_doors) if name > str(door.path)]


def _start_anew() -> None:
    global _guard  # noqa: PLW0603 - a thread that has not come along may have held it
    _guard = RLock()
    _doors.clear()  # a forked process has none of the locks


os.register_at_fork(after_in_child=_start_anew)
