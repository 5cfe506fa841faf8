"""How many runs of backfills write to a database at once, whoever has launched them.

Limits of Dagster see what its queue sees. A partition that somebody picks by hand, and a command that works in its own
process, pass them by; but all of them come to the database. So there are slots beside it, and whoever is to write takes
one before he begins and keeps it until he is done, in the order of arrival.

A slot is a lock of the operating system on a part of a file. It belongs to the process, and goes when that does,
however it ends. A process needs one slot for a database, whatever it does there. It is lost if the process itself opens
and closes that file, and counts no more if the file is deleted: nobody else has any business with it.

Everybody brings the number of slots that he knows of. Of those who are in and whoever is next, the smallest counts.
"""

from __future__ import annotations

import fcntl
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import RLock

from marigold_assets.errors import StoreBusyError
from marigold_assets.stores.connection import Connector
from marigold_assets.stores.line import in_line

_POLL_SECONDS = 0.05
_SILENT_SECONDS = 1.0  # then whoever waits says so
_NOTE_BYTES = 80
_NOTE = re.compile(r"(\d+) (process (\d+) .*)")
_MOST_NAMED = 5
_GATE = 1 << 32  # the lock of whoever counts the others, far behind all slots
_GATE_TRIES = 20
_GATE_SECONDS = 0.001


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
        slots: How many there are. Where those who have one count otherwise, the smallest number holds.
        timeout_seconds: How long to wait.
        owner: For whom: a run, which is not at work yet. Slots that it has of other databases it may give back
            while it waits, lest two runs wait for each other.
        say: Told once, if the wait lasts, what for.

    Raises:
        StoreBusyError: None was free until then.
        StoreUnavailableError: There can be no slots, in a folder that does not exist or that cannot be written to.
    """
    door = _door_of(connector)
    if door.join(owner, slots):
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Terms:
    connector: Connector
    slots: int
    timeout_seconds: float
    say: Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """Who has the slots.

    Attributes:
        names: Of each who has one, what he has noted of himself.
        limit: How many slots there are.
        free: One of them that nobody has; ``None``: there is none.
    """

    names: tuple[str, ...] = ()
    limit: int
    free: int | None = None


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
        self._slot, self._slots = 0, 0
        self._note = ""

    def join(self, owner: str, slots: int) -> bool:
        """Share the slot of this process, if it has one. From then on nobody comes in beside more than ``slots``."""
        with _guard:
            if self._descriptor is None:
                return False
            self._share(owner, slots)
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

    def _wait(self, owner: str, terms: _Terms, *, counts: bool) -> None:
        began = time.monotonic()
        deadline, said = began + terms.timeout_seconds, False

        def waiting() -> None:
            nonlocal said
            if not said and time.monotonic() - began >= min(_SILENT_SECONDS, terms.timeout_seconds):
                said = True
                terms.say(self._told(terms, self._look(terms.slots)))

        try:
            with in_line(self._line_path, deadline, waiting, poll_seconds=_POLL_SECONDS):
                while not self._take(owner, terms.slots, counts=counts):
                    if time.monotonic() >= deadline:
                        raise self._busy(terms, self._look(terms.slots))
                    waiting()
                    time.sleep(_POLL_SECONDS)
        except OSError as error:
            raise terms.connector.translate(error) from None

    def _take(self, owner: str, slots: int, *, counts: bool) -> bool:
        with _guard:
            # Another thread may have been faster: one slot does for both.
            if self._descriptor is None and not self._open_slot(owner, slots):
                return False
            if counts:
                self._share(owner, slots)
            return True

    def _share(self, owner: str, slots: int) -> None:
        self._owners[owner] += 1
        if slots < self._slots and self._descriptor is not None:
            self._slots = slots
            self._leave_note(self._descriptor)

    def _open_slot(self, owner: str, slots: int) -> bool:
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            seen = _counted_in(descriptor, slots)
            if seen is None or seen.free is None:
                return False
            self._slot, self._slots = seen.free, slots
            self._note = f"process {os.getpid()} ({owner})"
            self._leave_note(descriptor)
            for place in (*range(_known(descriptor, slots)), _GATE):
                if place != seen.free:
                    fcntl.lockf(descriptor, fcntl.LOCK_UN, 1, place * _NOTE_BYTES)
            self._descriptor = descriptor
            return True
        finally:
            if self._descriptor is None:
                os.close(descriptor)

    def _leave_note(self, descriptor: int) -> None:
        with suppress(OSError):  # a full disk: others count by their own numbers then
            note = f"{self._slots} {self._note}".encode()[:_NOTE_BYTES]
            os.pwrite(descriptor, note.ljust(_NOTE_BYTES), self._slot * _NOTE_BYTES)

    def _look(self, slots: int) -> _Seen:
        """Who is in, for a message."""
        with _guard, suppress(OSError):
            if self._descriptor is None:
                descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666)
                try:
                    return _counted_in(descriptor, slots) or _Seen(limit=slots)
                finally:
                    os.close(descriptor)
        return _Seen(limit=slots)

    def _close(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def _told(self, terms: _Terms, seen: _Seen) -> str:
        kin = _kin(seen)
        return (
            f"Waiting for a place: at most {_counted(seen.limit)} may write to database"
            f" {terms.connector.secrets.database} at once (max_backfill_writers), now {_named(seen)}. This run"
            f" goes on when one of them is done, in the order of arrival, within {terms.timeout_seconds:g} s."
            + (f" {kin}." if kin else "")
        )

    def _busy(self, terms: _Terms, seen: _Seen) -> StoreBusyError:
        kin = _kin(seen)
        return StoreBusyError(
            f"at most {_counted(seen.limit)} may write to database {terms.connector.secrets.database} at once, and for"
            f" {terms.timeout_seconds:g} s there was no place beside {_named(seen)}" + (f". {kin}" if kin else ""),
            remedy=(
                "have it start other runs only when it is done, or raise 'max_backfill_writers'"
                if kin
                else "wait until they are done and run again, or raise 'max_backfill_writers' or"
                " 'admission_timeout_seconds'"
            ),
        )


def _named(seen: _Seen) -> str:
    more = f" and {len(seen.names) - _MOST_NAMED} more" if len(seen.names) > _MOST_NAMED else ""
    return ", ".join(seen.names[:_MOST_NAMED]) + more or "others"


def _kin(seen: _Seen) -> str:
    """A word about a process that has a slot and waits, perhaps, for this one, which it has started."""
    pids = {int(name.split()[1]) for name in seen.names if name.startswith("process ")}
    found = next((pid for pid in _ancestors() if pid in pids), None)
    return "" if found is None else f"Process {found} has started this one: if it waits for it, neither can go on"


def _ancestors() -> Iterator[int]:
    pid = os.getppid()
    while pid > 1:
        yield pid
        try:  # only some systems tell
            pid = int(Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            return


def _counted(slots: int) -> str:
    return "1 run of a backfill" if slots == 1 else f"{slots} runs of backfills"


def _known(descriptor: int, slots: int) -> int:
    """How many places may be taken by somebody."""
    return max(slots, -(-os.fstat(descriptor).st_size // _NOTE_BYTES))


def _counted_in(descriptor: int, slots: int) -> _Seen | None:
    """Who has a slot, and one that is free, if there is one; ``None`` while somebody else counts.

    All free places are locked afterwards, until the file is closed: whoever comes in between counts them as taken.
    """
    for _ in range(_GATE_TRIES):
        if _lock(descriptor, _GATE):
            break
        time.sleep(_GATE_SECONDS)
    else:
        return None
    free = {place for place in range(_known(descriptor, slots)) if _lock(descriptor, place)}
    names, limit = [], slots
    for place in range(_known(descriptor, slots)):
        if place in free:
            continue
        text = os.pread(descriptor, _NOTE_BYTES, place * _NOTE_BYTES).decode(errors="replace").strip(" \0")
        note = _NOTE.fullmatch(text)
        names.append("another" if note is None else note[2])
        limit = limit if note is None else min(limit, int(note[1]))
    return _Seen(names=tuple(names), limit=limit, free=min(free) if free and len(names) < limit else None)


def _lock(descriptor: int, place: int) -> bool:
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, place * _NOTE_BYTES)
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
