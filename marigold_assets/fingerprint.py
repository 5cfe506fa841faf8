"""The content hash ``mh1`` of a partition slice: pure text and arithmetic, no database.

A store sums the hash of every row, and of every column, modulo 2**64. Sums, not xor, so that pairs of equal rows do
not cancel; sums, not a digest over sorted rows, so that no order is needed. The text carries what is needed to tell
whether two hashes may be compared at all: the *probe* (which hash function computed them) and the *schema*.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from marigold_assets.model import Column

PREFIX = "mh1"
MODULUS = 2**64


class Comparison(Enum):
    """What two content hashes say about each other."""

    SAME = "same"
    DIFFERENT = "different"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class ContentHash:
    """The parts of an ``mh1`` text.

    Attributes:
        probe: 8 hex digits naming the hash function (see :func:`probe_of`).
        schema: 8 hex digits naming columns and types (see :func:`schema_digest`).
        row_count: Number of rows.
        row_sum: Sum of the row hashes modulo 2**64.
    """

    probe: str
    schema: str
    row_count: int
    row_sum: int

    def __str__(self) -> str:
        return f"{PREFIX}:{self.probe}:{self.schema}:{self.row_count}:{self.row_sum:016x}"

    @classmethod
    def parse(cls, text: str) -> ContentHash:
        """Read an ``mh1`` text.

        Raises:
            ValueError: The text is not one.
        """
        prefix, *parts = text.split(":")
        if prefix != PREFIX or len(parts) != 4:
            msg = f"not an {PREFIX} content hash: {text!r}"
            raise ValueError(msg)
        probe, schema, row_count, row_sum = parts
        return cls(probe=probe, schema=schema, row_count=int(row_count), row_sum=int(row_sum, 16))


def compare(left: str, right: str) -> Comparison:
    """Compare two ``mh1`` texts.

    Hashes that were computed by different hash functions say nothing about each other, unless the row counts differ.
    Text that is no ``mh1`` hash (another system's data version) is unknown as well.
    """
    try:
        a, b = ContentHash.parse(left), ContentHash.parse(right)
    except ValueError:
        return Comparison.UNKNOWN
    if a.row_count != b.row_count:
        return Comparison.DIFFERENT
    if a.probe != b.probe:
        return Comparison.UNKNOWN
    return Comparison.SAME if a == b else Comparison.DIFFERENT


def schema_digest(columns: Iterable[Column]) -> str:
    """Name a schema: 8 hex digits over the sorted names and types. Column order does not count."""
    lines = sorted(f"{column.name}\t{column.type}\n" for column in columns)
    return _short_md5("".join(lines))


def probe_of(golden_hashes: Sequence[int]) -> str:
    """Name a hash function: 8 hex digits over what it makes of a fixed list of values."""
    return _short_md5(repr(list(golden_hashes)))


def _short_md5(text: str) -> str:
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()[:8]
