"""Whether present code would make what is stored of the same inputs: which partitions to try, what came of it; pure.

What came of a partition is one of three: it was compared, it could not be computed, or it could not be compared, since
something else than the code is not what it was.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from zoneinfo import ZoneInfo

from marigold_assets.fingerprint import Comparison, compare
from marigold_assets.model import Column, InputPartition, Place


class Outcome(Enum):
    """What came of a partition that was to be computed once more."""

    IDENTICAL = "identical"
    """Its rows are those that are stored."""

    ADDED = "added columns"
    """But for columns that were not there."""

    CHANGED = "changed"
    """They are others."""

    FAILED = "failed"
    """They could not be computed, or would be refused."""

    INPUTS = "inputs changed"
    """Not compared: an input is no longer what it was built from."""

    CONFIG = "other config"
    """Not compared: it was built with another config."""

    ALTERED = "altered"
    """Not compared: what is stored is not what was swapped; another tool has written it."""

    MISSING = "never built"
    """Not compared: there is nothing to compare with."""

    OVERTAKEN = "overtaken"
    """Not compared: somebody has swapped it meanwhile."""

    COMPUTED = "computed"
    """Computed only; nobody has asked for a comparison."""

    @property
    def is_compared(self) -> bool:
        """Whether the outcome says anything about the code."""
        return self in {Outcome.IDENTICAL, Outcome.ADDED, Outcome.CHANGED, Outcome.FAILED}


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnDifference:
    """What became of one column.

    Attributes:
        name: The column.
        rows: In how many rows it differs; ``None`` where rows cannot be matched.
        smallest: The smallest change of a number, date or time, computed minus stored, as text.
        largest: The largest.
        note: What else is to be said: it is gone, or of another type.
    """

    name: str
    rows: int | None = None
    smallest: str | None = None
    largest: str | None = None
    note: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A row that differs; values as text, cut short.

    Attributes:
        key: What it was matched by; nothing where rows cannot be matched.
        stored: What is stored: the columns that differ, or the whole row; ``None`` if it is computed only.
        computed: What was computed, likewise.
    """

    key: Mapping[str, str | None]
    stored: Mapping[str, str | None] | None
    computed: Mapping[str, str | None] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """How computed rows differ from those that are stored.

    Attributes:
        stored_rows: How many rows are stored.
        computed_rows: How many were computed.
        columns: The columns that differ; none where values only moved between rows that cannot be matched.
        added: Columns that only the computed rows have.
        is_moved: Whether no column differs as a whole: values moved between rows.
        matched_by: By which columns rows were matched; none where they cannot be.
        differing: How many matched rows differ.
        only_stored: How many rows are stored only.
        only_computed: How many rows were computed only.
        examples: A few of all of these.
    """

    stored_rows: int
    computed_rows: int
    columns: tuple[ColumnDifference, ...] = ()
    added: tuple[str, ...] = ()
    is_moved: bool = False
    matched_by: tuple[str, ...] = ()
    differing: int = 0
    only_stored: int = 0
    only_computed: int = 0
    examples: tuple[Example, ...] = ()

    @property
    def outcome(self) -> Outcome:
        """What that means."""
        if self.columns or self.is_moved or self.differing or self.only_stored or self.only_computed:
            return Outcome.CHANGED
        return Outcome.ADDED if self.added else Outcome.IDENTICAL


@dataclass(frozen=True, slots=True, kw_only=True)
class Computed:
    """What the function has made of a partition, in types of its own.

    Attributes:
        row_count: Number of rows.
        content_hash: The ``mh1`` text.
        columns: The columns.
        column_hashes: Per column the hash sum and the number of NULLs.
    """

    row_count: int
    content_hash: str
    columns: tuple[Column, ...]
    column_hashes: Mapping[str, tuple[str, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """What came of one partition.

    Attributes:
        partition_key: The partition.
        outcome: What came of it.
        reason: Why, where it was not compared or has failed.
        difference: How it differs, where it was compared.
        notes: What is uncertain about the comparison, or left out of it.
        inputs: What it was computed from.
        computed: What was computed.
    """

    partition_key: str
    outcome: Outcome
    reason: str | None = None
    difference: Difference | None = None
    notes: tuple[str, ...] = ()
    inputs: tuple[InputPartition, ...] = ()
    computed: Computed | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InputComparison:
    """What inputs hold now, beside what was recorded when they were read.

    Attributes:
        restated: Those that hold something else, each with what has become of it.
        unknown: Those of which nobody can know.
        added: Those that were not read then.
    """

    restated: Mapping[Place, str] = field(default_factory=dict)
    unknown: tuple[Place, ...] = ()
    added: tuple[Place, ...] = ()


def compare_inputs(
    recorded: Iterable[InputPartition], present: Iterable[InputPartition], *, with_ledger: Collection[str]
) -> InputComparison:
    """Whether inputs still hold what was read.

    What the code no longer reads does not count: it cannot have changed what the code makes.

    Args:
        recorded: What the ledger says of them.
        present: What they hold now.
        with_ledger: The assets whose contents a ledger knows.
    """
    before = {(one.owner, one.partition_key): one.content_hash for one in recorded}
    restated: dict[Place, str] = {}
    unknown: list[Place] = []
    added: list[Place] = []
    for one in present:
        place = one.owner, one.partition_key
        if place not in before:
            added.append(place)
        elif one.owner not in with_ledger:
            unknown.append(place)
        elif (what := _restated(before[place], one.content_hash)) is not None:
            restated[place] = what
        elif before[place] is not None and compare(str(before[place]), str(one.content_hash)) is Comparison.UNKNOWN:
            unknown.append(place)
    return InputComparison(restated=restated, unknown=tuple(unknown), added=tuple(added))


def _restated(before: str | None, now: str | None) -> str | None:
    if before == now:
        return None
    if before is None:
        return "was not there then"
    if now is None:
        return "is gone"
    return "was restated" if compare(before, now) is Comparison.DIFFERENT else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A partition that may be tried.

    Attributes:
        key: The partition.
        row_count: Its rows.
        start: Start of its window (aware); ``None`` without one.
        end: End of its window (aware).
    """

    key: str
    row_count: int
    start: datetime | None = None
    end: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """A partition that is tried, and why it."""

    key: str
    why: str


def sample(candidates: Sequence[Candidate], *, size: int, seed: int, timezone: str = "UTC") -> tuple[Chosen, ...]:
    """Choose partitions that are likely to show a difference, and some at random.

    In this order, until there are enough: the first, the last, the newest days on which clocks go forward and back, the
    largest, an empty one, month ends for half of what is left, others at random. The same for the same seed.

    Args:
        candidates: All partitions, in order.
        size: How many, at most.
        seed: Of what is chosen at random.
        timezone: The zone of their windows.

    Returns:
        Those chosen, in the order of the candidates.
    """
    chosen: dict[str, str] = {}
    dice = random.Random(seed)  # noqa: S311 - not for secrets

    def choose(some: Iterable[Candidate], why: str, at_most: int = 1) -> None:
        for one in some:
            if at_most > 0 and len(chosen) < size and one.key not in chosen:
                chosen[one.key] = why
                at_most -= 1

    zone = ZoneInfo(timezone)
    choose(candidates[:1], "first")
    choose(candidates[-1:], "last")
    shifts = [(one, _clock_change(one, zone)) for one in reversed(candidates)]
    choose((one for one, seconds in shifts if seconds > 0), "clocks go forward")
    choose((one for one, seconds in shifts if seconds < 0), "clocks go back")
    choose(sorted(candidates, key=lambda one: -one.row_count), "largest")
    choose((one for one in candidates if not one.row_count), "empty")
    ends = [one for one in candidates if _ends_month(one, zone)]
    choose(dice.sample(ends, len(ends)), "month end", at_most=-(-(size - len(chosen)) // 2))
    choose(dice.sample(list(candidates), len(candidates)), "random", at_most=size)
    return tuple(Chosen(key=one.key, why=chosen[one.key]) for one in candidates if one.key in chosen)


def _clock_change(one: Candidate, zone: ZoneInfo) -> float:
    """By how many seconds clocks go forward within a window; negative: back."""
    if one.start is None or one.end is None:
        return 0.0
    offsets = [moment.astimezone(zone).utcoffset() for moment in (one.start, one.end)]
    return 0.0 if None in offsets else (offsets[1] - offsets[0]).total_seconds()  # type: ignore[operator]


def _ends_month(one: Candidate, zone: ZoneInfo) -> bool:
    if one.start is None or one.end is None:
        return False
    start, end = one.start.astimezone(zone), one.end.astimezone(zone)
    return (start.year, start.month) != (end.year, end.month)


class Verdict(Enum):
    """What all partitions together say about the code; the value is the exit code of the command."""

    IDENTICAL = 0
    CHANGED = 1
    UNKNOWN = 2


def verdict(found: Iterable[Replayed], *, allow_added: bool = False) -> Verdict:
    """What all partitions together say.

    Args:
        found: What came of each.
        allow_added: Whether columns that are only added count as identical.

    Returns:
        Identical only if every partition was compared, and there is one.
    """
    outcomes = {one.outcome for one in found}
    if allow_added and Outcome.ADDED in outcomes:
        outcomes = outcomes - {Outcome.ADDED} | {Outcome.IDENTICAL}
    if any(outcome.is_compared for outcome in outcomes - {Outcome.IDENTICAL}):
        return Verdict.CHANGED
    return Verdict.IDENTICAL if outcomes == {Outcome.IDENTICAL} else Verdict.UNKNOWN
