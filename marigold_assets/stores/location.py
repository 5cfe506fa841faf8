"""Where a database is, and what messages may say of it."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

Config = Mapping[str, Any]

_SECRET_NAME = re.compile(r"secret|token|password|passwd|key|credential", re.IGNORECASE)
_TOO_SHORT_TO_HIDE = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Secrets:
    """Texts that no message may show, and what stands for them.

    A database named by an environment variable is a secret, whatever it holds: a message then names the variable.

    Attributes:
        database: How messages name the database.
        hidden: Texts to replace, longest first.
    """

    database: str
    hidden: tuple[str, ...]

    @classmethod
    def of(cls, database: str, config: Config) -> Secrets:
        """Find out what is secret about a database and its connection settings."""
        path = absolute_path(database)
        from_environment = set(os.environ.values())
        hidden = {
            value
            for name, value in _leaves(config)
            if _SECRET_NAME.search(name) or (value in from_environment and name != "custom_user_agent")
        }
        variable = next((name for name, value in sorted(os.environ.items()) if value == database), None)
        if variable is not None:
            hidden |= {database, str(path), str(path.parent), path.name, path.stem}
        # Hiding "on", "1GB" or a file called x.duckdb would garble every message.
        kept = (text for text in hidden if len(text) > _TOO_SHORT_TO_HIDE)
        secrets = cls(database="", hidden=tuple(sorted(kept, key=len, reverse=True)))
        shown = secrets.scrub(str(path)) if variable is None else f"${variable}"
        return replace(secrets, database=shown)

    def scrub(self, text: str) -> str:
        """Replace every secret in a text."""
        for secret in self.hidden:
            text = text.replace(secret, "***")
        return text

    def filter(self, record: logging.LogRecord) -> bool:
        """As a filter of a logger: let every record pass, without secrets."""
        record.msg, record.args = self.scrub(record.getMessage()), ()
        return True


def local_path(database: str) -> Path:
    """The path as DuckDB itself would read it."""
    return Path(database.removeprefix("file://")).expanduser()


def absolute_path(database: str) -> Path:
    """The same, whatever the working directory becomes."""
    return Path(os.path.abspath(local_path(database)))  # noqa: PTH100 - resolve() would follow links


def _leaves(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Every text within some settings, with the name of the setting that it belongs to."""
    if isinstance(value, Mapping):
        for inner_name, inner in value.items():
            yield from _leaves(inner, f"{name}.{inner_name}" if name else str(inner_name))
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _leaves(inner, name)
    elif isinstance(value, str):
        yield name, value
