"""What the tests of admission run in processes of their own."""

from __future__ import annotations

import os
import time
from pathlib import Path

from marigold_assets.errors import MarigoldError
from marigold_assets.stores.admission import admit
from marigold_assets.stores.connection import Connector


def _admit(database, slots=1, timeout_seconds=60.0, owner="run"):
    return admit(Connector(database), slots=slots, timeout_seconds=timeout_seconds, owner=owner, say=lambda _text: None)


def _note(log, word):
    """One line in a file of all processes, in the order of what happens."""
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(descriptor, f"{word} {os.getpid()}\n".encode())
    os.close(descriptor)


def come_and_go(database, log, slots, rounds, seconds):
    for _ in range(rounds):
        lease = _admit(database, slots)
        _note(log, "in")
        time.sleep(seconds)
        _note(log, "out")
        lease.release()


def come_later(database, log, begin, after_seconds, stays_seconds):
    time.sleep(max(0.0, begin + after_seconds - time.time()))
    lease = _admit(database)
    _note(log, f"in {after_seconds}")
    time.sleep(stays_seconds)
    lease.release()


def try_slot(database, slots=1):
    """Whether a slot is free."""
    try:
        _admit(database, slots, timeout_seconds=0.0).release()
    except MarigoldError as error:
        return str(error)
    return ""


def need_two(first, second, rounds):
    """Take a slot of either database, again and again, in this order."""
    for number in range(rounds):
        owner = f"run {os.getpid()} {number}"
        leases = []
        for one in (first, second):
            leases.append(_admit(one, owner=owner))
            time.sleep(0.01)
        for lease in leases:
            lease.release()


def sit(database, told, forks, slots=1):
    """Take a slot, say so and never give it back; perhaps with a process forked off that outlives this one."""
    _admit(database, slots, owner="run 4711")
    fork = os.fork() if forks else 0
    if forks and not fork:
        time.sleep(60.0)
        os._exit(0)
    Path(told).write_text(f"{os.getpid()} {fork}")
    while True:
        time.sleep(1.0)


def fork_and_look(database):
    """Whether a process that was forked off has the slot of the one that it comes from."""
    lease = _admit(database)
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.write(writing, try_slot(database).encode() or b"free")
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        found = pipe.read()
    lease.release()
    return found
