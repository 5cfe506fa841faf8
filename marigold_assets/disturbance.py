"""Running a function under other conditions than usual: a function of its partition alone does not notice.

The clock, the seeds of the shared random generators and the time zone of the process are changed around the call of the
function only, and restored behind it. They are those of the whole process: no other thread should work meanwhile.
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any

ZONE_VARIABLE = "TZ"
HASH_SEED_VARIABLE = "PYTHONHASHSEED"
_FAR = timedelta(days=403, hours=7, minutes=13)  # another year, month, day of month, day of week and hour


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """What is other than usual; by default nothing is.

    Attributes:
        clock: By how much the clock is ahead.
        seed: Seed of the generators of ``random`` and ``numpy.random``.
        zone: Time zone of the process, as the variable TZ has it.
        is_reversed: Whether the last partition is computed first.
        hash_seed: What PYTHONHASHSEED is to be: of a process of its own.
    """

    clock: timedelta | None = None
    seed: int | None = None
    zone: str | None = None
    is_reversed: bool = False
    hash_seed: int | None = None

    @property
    def before(self) -> Conditions:
        """What held when the code was loaded: at another time than now, and before it is run."""
        return replace(self, clock=None if self.clock is None else self.clock / 2)

    @property
    def now(self) -> datetime | None:
        """What time it is (aware), if it is another one."""
        return None if self.clock is None else datetime.now(UTC) + self.clock

    def alone(self) -> dict[str, Conditions]:
        """Each of what is other than usual by itself, by its name; first of all: nothing is."""
        usual = Conditions()
        found = {"nothing": usual}
        for one in fields(self):
            value = getattr(self, one.name)
            if value != getattr(usual, one.name):
                found[NAMES[one.name]] = Conditions(**{one.name: value})
        return found


NAMES = {
    "clock": "the clock",
    "seed": "the random seed",
    "zone": "the time zone of the process",
    "is_reversed": "the order of the partitions",
    "hash_seed": "the hash seed of the process",
}
"""What each of the conditions is called."""
PROCESS = "the process: what it was when it loaded the code"
"""What else may differ: when a module was loaded, and what it has kept of that."""

_ZONES = ("Pacific/Kiritimati", "Pacific/Pago_Pago")


def otherwise(*, is_chain: bool, seed: int) -> Conditions:
    """Conditions that are all other than usual.

    Args:
        is_chain: Whether the partitions have an order of their own.
        seed: Decides about the seeds.
    """
    # A day apart, so that one of them has another date and another offset than any machine.
    here = datetime.now().astimezone().utcoffset() or timedelta()
    return Conditions(
        clock=2 * _FAR,
        seed=seed,
        zone=_ZONES[0] if here < timedelta(hours=2) else _ZONES[1],
        is_reversed=not is_chain,
        hash_seed=seed % 4_294_967_295 + 1,
    )


@contextmanager
def disturbed(conditions: Conditions) -> Iterator[None]:
    """Have the conditions hold within the block, as far as a running process can change them."""
    with ExitStack() as until_end:
        if conditions.zone is not None and hasattr(time, "tzset"):
            until_end.enter_context(_in_zone(conditions.zone))
        if conditions.seed is not None:
            until_end.enter_context(_seeded(conditions.seed))
        if conditions.now is not None:
            import time_machine  # noqa: PLC0415 - of no use to real runs, which import this module

            until_end.enter_context(time_machine.travel(conditions.now.timestamp(), tick=True))
        yield


@contextmanager
def variables(conditions: Conditions) -> Iterator[None]:
    """Have the environment be what a process that starts within the block is to have."""
    wanted = {ZONE_VARIABLE: conditions.zone, HASH_SEED_VARIABLE: conditions.hash_seed}
    with ExitStack() as until_end:
        for name, value in wanted.items():
            if value is not None:
                until_end.enter_context(_variable(name, str(value)))
        yield


@contextmanager
def _variable(name: str, value: str) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


@contextmanager
def _in_zone(zone: str) -> Iterator[None]:
    try:
        with _variable(ZONE_VARIABLE, zone):
            time.tzset()
            yield
    finally:
        time.tzset()


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    numpy: Any = sys.modules.get("numpy")
    before, of_numpy = random.getstate(), None if numpy is None else numpy.random.get_state()
    random.seed(seed)
    if numpy is not None:
        numpy.random.seed(seed % 2**32)
    try:
        yield
    finally:
        random.setstate(before)
        if numpy is not None:
            numpy.random.set_state(of_numpy)
