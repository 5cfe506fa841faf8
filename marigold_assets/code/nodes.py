"""What counts of a project, and what refers to what."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from marigold_assets.code.sql_files import SqlText


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """Something that counts.

    Attributes:
        key: What it is, within this process.
        label: How it is called within its module.
        look: Gives its text, and what it refers to.
        is_done: Whether what it refers to was needed when its module was loaded, and not since.
        file: The file of SQL that it is, as it was then, if functions read it when they run.
    """

    key: Hashable
    label: str
    look: Callable[[], tuple[str, Sequence[Edge]]]
    is_done: Callable[[], bool] = lambda: False
    file: tuple[Path, SqlText] | None = None


Edge: TypeAlias = "str | tuple[Node, tuple[str, ...]]"
"""What is named of another package, or a node with the attributes that follow its name."""
