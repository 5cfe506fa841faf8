"""One thing that was looked at, and how bad it is."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Final

RESTART: Final = "set this in dagster.yaml and restart the daemon"


class Level(Enum):
    """How bad it is."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        code: A stable word for what was looked at.
        level: How bad it is.
        message: What there is, in a sentence.
        remedy: What to do about it, in one line; empty where all is well.
        lines: Lines of ``dagster.yaml`` that do it, if any do.
    """

    code: str
    level: Level
    message: str
    remedy: str = ""
    lines: str = ""


def errors(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Those that are errors."""
    return tuple(one for one in findings if one.level is Level.ERROR)


def ok(code: str, message: str) -> Finding:
    """Something that is well."""
    return Finding(code=code, level=Level.OK, message=message)


def error(code: str, message: str, remedy: str, lines: str = "") -> Finding:
    """Something that nobody should rely on."""
    return Finding(code=code, level=Level.ERROR, message=message, remedy=remedy, lines=lines)


def warning(code: str, message: str, remedy: str, lines: str = "") -> Finding:
    """Something that may be meant so, and should be known."""
    return Finding(code=code, level=Level.WARNING, message=message, remedy=remedy, lines=lines)
