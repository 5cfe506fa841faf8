"""Partitions, and how many there are, in words; pure."""

from __future__ import annotations

from collections.abc import Sized

from marigold_assets.planning.model import Key


def named(owner: str, key: Key) -> str:
    """A partition, for people."""
    return owner if key is None else f"{owner}[{key}]"


def counted(number: int, what: str = "partition") -> str:
    """So many of something."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def is_or_are(some: Sized) -> str:
    """The verb for some things."""
    return "is" if len(some) == 1 else "are"
