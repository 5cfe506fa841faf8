"""Partitions in words; pure."""

from __future__ import annotations

from marigold_assets.planning.model import Key


def named(owner: str, key: Key) -> str:
    """A partition, for people."""
    return owner if key is None else f"{owner}[{key}]"
