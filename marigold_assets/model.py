"""The frozen values that every layer speaks in. Nothing here knows Dagster or a database."""

from __future__ import annotations

import hashlib
import string
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import Enum
from functools import lru_cache
from typing import NewType

from marigold_assets.errors import Where

FencingToken = NewType("FencingToken", int)
"""A strictly increasing integer, issued by the store that enforces it."""

_ASCII_LOWER = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)


@lru_cache(maxsize=4_096)  # asked of the same few names over and over
def fold(name: str) -> str:
    """The identity of an identifier: databases fold its ASCII case and no other."""
    return name.translate(_ASCII_LOWER)


Place = tuple[str, str | None]
"""An asset, as the ledger names it, and a partition of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableName:
    """A table of the store.

    Attributes:
        schema: Name of its schema, as the user spells it.
        name: Name of the table within the schema.
    """

    schema: str
    name: str

    @property
    def key(self) -> str:
        """The table's identity (see :func:`fold`)."""
        return fold(f"{self.schema}\x1f{self.name}")

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """Rows whose ``expression`` lies in the half-open interval ``[start, end)``.

    Attributes:
        expression: A column name or an SQL expression over the table's columns, of type DATE, TIMESTAMP or
            TIMESTAMPTZ. A naive TIMESTAMP or DATE is read as wall time in ``timezone``.
        start: First instant (aware).
        end: First instant that no longer belongs to the interval (aware).
        timezone: IANA name of the zone in which ``expression`` is evaluated.
    """

    expression: str
    start: datetime
    end: datetime
    timezone: str = "UTC"

    @property
    def in_utc(self) -> Interval:
        """The same interval with its instants in UTC: those of two zones are never equal where a clock is put back."""
        return replace(self, start=self.start.astimezone(UTC), end=self.end.astimezone(UTC))


@dataclass(frozen=True, slots=True, kw_only=True)
class Equals:
    """Rows whose ``expression`` equals ``value``, cast to the type of the expression."""

    expression: str
    value: str


Condition = Interval | Equals


def recorded(conditions: Iterable[Condition]) -> tuple[Condition, ...]:
    """The conditions of a slice as the ledger records them: with instants in UTC."""
    return tuple(c.in_utc if isinstance(c, Interval) else c for c in conditions)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionSlice:
    """A table, a partition key, and the predicate that tells which rows belong to it.

    Attributes:
        table: The table.
        partition_key: The key, or ``None`` for a table that is not partitioned.
        conditions: One condition a partition dimension, all of which a row meets; none for a whole table.
        owner: Who may write the table: the asset key as users see it (``"sales/daily"``). Claims are made under it.
    """

    table: TableName
    partition_key: str | None
    conditions: tuple[Condition, ...] = ()
    owner: str = ""

    @property
    def where(self) -> Where:
        """The slice as an error names it."""
        return Where(asset=self.owner or None, partition=self.partition_key, table=str(self.table))


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What a run says before it computes: it means to write this partition of this owner.

    Attributes:
        owner: The owner of the slices (see :class:`PartitionSlice`).
        partition_key: The key, or ``None`` for a whole table.
    """

    owner: str
    partition_key: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One try of one run at writing: what the fence compares.

    Attributes:
        run_id: The run. Two processes may carry the same one, so it is never the fence by itself.
        token: The token drawn when this process' attempt started, before it read from the store.
        since: An older token, drawn before the attempt read anything anywhere, where that is not the same: whoever came
            after it may know better, and refuses the attempt. ``None``: the token itself.
    """

    run_id: str
    token: FencingToken
    since: FencingToken | None = None

    @property
    def oldest(self) -> FencingToken:
        """The token that everything the attempt has read is newer than."""
        return self.token if self.since is None else self.since


@dataclass(frozen=True, slots=True, kw_only=True)
class InputPartition:
    """One input partition that rows were computed from.

    Attributes:
        owner: The asset that makes it, as users see its key.
        partition_key: The partition, or ``None`` for a whole table.
        content_hash: The ``mh1`` text of what was read; ``None`` where that is unknown, since nothing was materialized
            or it lies elsewhere.
    """

    owner: str
    partition_key: str | None
    content_hash: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """Where the rows of a swap came from.

    Attributes:
        code_version: The declared version of the code that ran, if any.
        code_fingerprint: What the code that ran was, whatever version it declared, if that is known.
        config_hash: What the configuration of the step was, if it had one.
        step: The step, or another word for the place in the run.
        backfill_id: The backfill that launched the run, if any.
        inputs: Every input partition that was read.
    """

    code_version: str | None = None
    code_fingerprint: str | None = None
    config_hash: str | None = None
    step: str | None = None
    backfill_id: str | None = None
    inputs: tuple[InputPartition, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column as stored: its name and its type in the store's own words."""

    name: str
    type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerEntry:
    """One line of the append-only record of swaps.

    Attributes:
        position: Place in the ledger: a total order over the store.
        table: The table that was written.
        owner: Its owner at that time.
        partition_key: The partition, or ``None`` for a whole table.
        run_id: The run that wrote.
        token: Its fencing token.
        swap_id: Name of the swap; the same id is never committed twice for one partition.
        row_count: Rows in the slice after the swap.
        content_hash: The ``mh1`` text (see :mod:`marigold_assets.fingerprint`).
        column_hashes: Per column the hash sum as 16 hex digits and the number of NULLs.
        columns: The table's columns when the swap was committed.
        provenance: Code and inputs.
        committed_at: When (aware, UTC), by the writer's clock; order by ``position``, never by this.
        confirmed: Whether the rows were computed again, were the same, and were left alone.
        conditions: What told the rows of the partition (see :func:`recorded`); empty for a whole table, ``None`` where
            a release wrote that did not record it.
    """

    position: int
    table: TableName
    owner: str
    partition_key: str | None
    run_id: str
    token: FencingToken
    swap_id: str
    row_count: int
    content_hash: str
    column_hashes: Mapping[str, tuple[str, int]]
    columns: tuple[Column, ...]
    provenance: Provenance
    committed_at: datetime
    confirmed: bool = False
    conditions: tuple[Condition, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """What an author declares to be one definition: the code that built a partition.

    Attributes:
        code_version: The declared version, if any.
        code_fingerprint: What the code was, where that counts: of two fingerprints under one declared version the
            author says that they mean the same, unless the ledger shows that they do not.
        config_hash: What the config was, if there was one.
    """

    code_version: str | None
    code_fingerprint: str | None
    config_hash: str | None

    @classmethod
    def of(cls, entry: LedgerEntry) -> Definition:
        """The definition under which a partition was built."""
        found = entry.provenance
        return cls(
            code_version=found.code_version,
            code_fingerprint=None if found.code_version is not None else found.code_fingerprint,
            config_hash=found.config_hash,
        )

    @classmethod
    def exactly(cls, entry: LedgerEntry) -> Definition:
        """The same, with the fingerprint of the code, whatever version it declared."""
        return replace(cls.of(entry), code_fingerprint=entry.provenance.code_fingerprint)

    @property
    def is_unknown(self) -> bool:
        """Whether nobody has recorded what the code was: two such may be anything."""
        return self.code_version is None and self.code_fingerprint is None

    def __str__(self) -> str:
        version = self.code_version or self.code_fingerprint or "unknown"
        if self.code_version is not None and self.code_fingerprint is not None:
            version = f"{version} ({self.code_fingerprint})"
        return version if self.config_hash is None else f"{version}, config {self.config_hash[:8]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Acceptance:
    """That somebody accepts a partition as a definition has built it, although others are built under another one.

    Of several for one partition and definition the last that was recorded counts: one that has ended withdraws it.

    Attributes:
        table: The table.
        owner: Its owner.
        partition_key: The partition, or ``None`` for a whole table.
        definition: What has built it; once it is built under another one, nothing is accepted.
        accepted_by: Who accepts.
        accepted_at: When (aware, UTC).
        reason: Why.
        until: When it ends (aware, UTC); ``None``: never.
    """

    table: TableName
    owner: str
    partition_key: str | None
    definition: Definition
    accepted_by: str
    accepted_at: datetime
    reason: str
    until: datetime | None = None

    def holds(self, now: datetime) -> bool:
        """Whether it has not ended."""
        return self.until is None or now < self.until

    def covers(self, entry: LedgerEntry) -> bool:
        """Whether it is about what an entry of its partition and definition tells of.

        Of code that nobody has recorded, what comes later may be anything.
        """
        return not self.definition.is_unknown or entry.committed_at <= self.accepted_at


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """What a swap returns, one a partition.

    Attributes:
        entry: The ledger entry of the swap.
        query: A SELECT of the slice, for people to read or run.
        replayed: Whether the swap had already been committed under this id, so that nothing was written now.
    """

    entry: LedgerEntry
    query: str = ""
    replayed: bool = False


class CutOff(Enum):
    """What a swap does where the rows given are those that are stored."""

    OFF = "off"
    """Replace them all the same."""

    ON = "on"
    """Leave them alone, and record that they were confirmed."""

    VERIFY = "verify"
    """The same, and refuse any other rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SwapOptions:
    """What an asset opts in to.

    Attributes:
        evolve: Add new columns to the table (NULL for the old rows) and widen types without loss, instead of refusing.
        renamed_from: Former owners whose table this asset takes over.
        cut_off: What to do where the rows are those that are stored.
    """

    evolve: bool = False
    renamed_from: tuple[str, ...] = ()
    cut_off: CutOff = CutOff.OFF


def derive_swap_id(*parts: str | int | None) -> str:
    """Derive a swap id from what makes a write unique: run, attempt, output and so on.

    Derived, not drawn: whoever repeats a write whose acknowledgement was lost arrives at the same id.

    Args:
        parts: Run id, step, output, retry number, ...; not the token, or two processes that carry out the same step
            would not be found out. ``None`` differs from the empty string.

    Returns:
        32 hex digits.
    """
    digest = hashlib.sha256()
    for part in parts:
        encoded = b"\x00" if part is None else f"{part}".encode()
        digest.update(f"{len(encoded)}:{'n' if part is None else 'v'}".encode() + encoded)
    return digest.hexdigest()[:32]
