"""Gaps: partitions whose interval has ended and that nobody has built, or that are gone with their table."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import groupby

_PLAIN_NAME = re.compile(r"[A-Za-z0-9_/-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """Partitions that follow each other in time and are missing.

    Attributes:
        keys: The partitions, the oldest first.
        since: The first interval of these; the first partition, unless there are other dimensions beside time.
    """

    keys: tuple[str, ...]
    since: str

    def __str__(self) -> str:
        return self.keys[0] if len(self.keys) == 1 else f"{self.keys[0]} to {self.keys[-1]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gaps:
    """The gaps of an asset.

    Attributes:
        since: The interval from which on partitions are expected; ``None``: no interval has ended.
        is_from_start: Whether that is where the definition begins, and not the first interval that was ever built.
        expected: How many partitions are expected.
        gaps: The gaps; those of one line of partitions together, and there the oldest first.
        earlier: How many partitions before ``since`` were never built.
        span: The first interval that is missing, and the last; ``None``: none is.
    """

    since: str | None
    is_from_start: bool
    expected: int
    gaps: tuple[Gap, ...]
    earlier: int
    span: tuple[str, str] | None

    @property
    def missing(self) -> int:
        """How many partitions are missing."""
        return sum(len(one.keys) for one in self.gaps)


def find_gaps(
    intervals: Sequence[str],
    lines: Sequence[Sequence[str]],
    built: Collection[str | None],
    *,
    is_gone: bool = False,
    from_start: bool = False,
) -> Gaps:
    """Find the gaps of an asset.

    Args:
        intervals: The intervals that have ended, the oldest first.
        lines: For every line of partitions that follow each other in time, the partition of each interval: one line,
            unless there are other dimensions beside time.
        built: The partitions that were ever built.
        is_gone: Whether none of these is there any more.
        from_start: Whether everything is expected from where the definition begins; or else from the first interval
            that was ever built, if any was.
    """
    firsts = (next((place for place, key in enumerate(line) if key in built), None) for line in lines)
    first = min((place for place in firsts if place is not None), default=None)
    start = 0 if from_start or first is None else first
    gaps: list[Gap] = []
    missing: set[int] = set()
    for line in lines:
        place = start
        for exists, found in groupby(line[start:], key=lambda key: not is_gone and key in built):
            keys = tuple(found)
            if not exists:
                gaps.append(Gap(keys=keys, since=intervals[place]))
                missing |= {place, place + len(keys) - 1}
            place += len(keys)
    return Gaps(
        since=intervals[start] if intervals else None,
        is_from_start=start == 0 and first != 0,
        expected=sum(len(line) - start for line in lines),
        gaps=tuple(gaps),
        earlier=start * len(lines),
        span=(intervals[min(missing)], intervals[max(missing)]) if missing else None,
    )


def selection_of(owners: Sequence[str]) -> str:
    """Some assets in Dagster's selection syntax.

    Args:
        owners: Their keys, as users see them.
    """
    if len(owners) == 1 and _PLAIN_NAME.fullmatch(owners[0]):
        return owners[0]
    return " or ".join(f'key:"{owner}"' for owner in owners)


def fill_command(selection: str, first: str, last: str, arguments: Sequence[str] = ()) -> str:
    """The command that builds what is missing, from one interval to another.

    Args:
        selection: The assets.
        first: The first interval.
        last: The last interval.
        arguments: What names their code location.
    """
    return shlex.join(["marigold", "launch", selection, "--from", first, "--to", last, *arguments])


def described(found: Gaps) -> str:
    """How many partitions are missing, of how many, and since when they are expected."""
    if found.since is None:
        return "no interval has ended yet"
    start = "the start of its partitions" if found.is_from_start else "the first that was built"
    earlier = f"; {found.earlier:,} before it were never built" if found.earlier else ""
    return f"{found.missing:,} of {found.expected:,} partitions since {found.since} ({start}) are missing{earlier}"


def fill_of(owner: str, found: Gaps, arguments: Sequence[str] = ()) -> str | None:
    """The command that fills the gaps of one asset; ``None`` if there are none."""
    return None if found.span is None else fill_command(selection_of([owner]), *found.span, arguments)
