"""``code_versions.lock``: which code goes by which version, written down so that a change of one is seen in the other.

The file is JSON, sorted, one thing a line: versions of it are easy to compare and to merge. It belongs under version
control, beside the code.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, Final, TypeVar

from marigold_assets.errors import ConfigurationError

FILE: Final = "code_versions.lock"
FORMAT: Final = 1
"""Rises when an older version of this package could not read the file, or would not understand it."""

WRITE_AGAIN: Final = "marigold versions lock"
"""The command that writes it."""
_Time = TypeVar("_Time", date, datetime)
_SIDES: Final = ("<<<<<<<", "=======", ">>>>>>>", "|||||||")


@dataclass(frozen=True, slots=True, kw_only=True)
class PresentCode:
    """The code of an asset as it is now.

    Attributes:
        version: Its declared version, if any.
        fingerprint: See :mod:`marigold_assets.code.loaded`.
        parts: A digest of each part of it, by name.
    """

    version: str | None
    fingerprint: str
    parts: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """What has shown that changed code makes what the code before it made.

    Attributes:
        partitions: The partitions that were computed again and were identical.
        proven_on: When.
        sample: How they were chosen.
    """

    partitions: tuple[str, ...]
    proven_on: date
    sample: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Equivalent:
    """Two codes that went by one version and were proven to make the same.

    Attributes:
        before: The fingerprint of the one.
        after: The fingerprint of the other.
        proof: What has shown it.
    """

    before: str
    after: str
    proof: Proof


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptedChange:
    """Two codes that went by one version, of which somebody says that they mean the same.

    Attributes:
        before: The fingerprint of the one.
        after: The fingerprint of the other.
        by: Who says so.
        at: When.
        reason: Why.
    """

    before: str
    after: str
    by: str
    at: datetime
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LockedCode:
    """The code of an asset as it was written down.

    Attributes:
        version: Its declared version, if any.
        fingerprint: See :mod:`marigold_assets.code.loaded`.
        parts: A digest of each part of it, by name.
        earlier: The versions that it has had before, with their last fingerprint.
        equivalent: Changes under one version, this or an earlier one, that were proven to change nothing.
        accepted: Changes under the present version that were accepted.
    """

    version: str | None
    fingerprint: str
    parts: Mapping[str, str]
    earlier: Mapping[str, str]
    equivalent: tuple[Equivalent, ...] = ()
    accepted: tuple[AcceptedChange, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Lock:
    """Which code goes by which version.

    Attributes:
        assets: By asset, as users name it: ``sales/daily``.
    """

    assets: Mapping[str, LockedCode]

    @classmethod
    def load(cls, path: Path) -> Lock:
        """Read a lock file.

        Raises:
            ConfigurationError: There is none, or it is not one.
        """
        try:
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            raise ConfigurationError(f"there is no {path}", remedy=f"write it: {WRITE_AGAIN}") from None
        except (OSError, UnicodeDecodeError) as error:
            raise _broken(path, f"it cannot be read: {type(error).__name__}") from error
        return _read(text, path)

    def save(self, path: Path) -> None:
        """Write a lock file, all of it or nothing.

        Raises:
            ConfigurationError: It cannot be written.
        """
        place = path.resolve()
        new = place.with_name(f".{path.name}.{os.getpid()}")
        try:
            try:
                new.write_text(self.text(), encoding="utf-8", newline="\n")
                new.replace(place)
            finally:
                new.unlink(missing_ok=True)
        except OSError as error:
            raise ConfigurationError(
                f"{path} cannot be written: {error.strerror}", remedy="name another file: --lock-file FILE"
            ) from error

    def text(self) -> str:
        """What is written."""
        found = {name: _as_json(one) for name, one in self.assets.items()}
        return json.dumps({"assets": found, "format": FORMAT}, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def _as_json(one: LockedCode) -> dict[str, Any]:
    found: dict[str, Any] = {"code_version": one.version, "fingerprint": one.fingerprint, "parts": dict(one.parts)}
    if one.earlier:
        found["earlier"] = dict(one.earlier)
    if one.equivalent:
        found["equivalent"] = [
            {
                "from": given.before,
                "to": given.after,
                "partitions": list(given.proof.partitions),
                "proven_on": given.proof.proven_on.isoformat(),
                "sample": given.proof.sample,
            }
            for given in one.equivalent
        ]
    if one.accepted:
        found["accepted"] = [
            {
                "from": given.before,
                "to": given.after,
                "by": given.by,
                "at": given.at.astimezone(UTC).isoformat(timespec="seconds"),
                "reason": given.reason,
            }
            for given in one.accepted
        ]
    return found


def _read(text: str, path: Path) -> Lock:
    if any(line.startswith(_SIDES) for line in text.splitlines()):
        raise ConfigurationError(
            f"{path} holds both sides of a merge",
            remedy=f"take one side of it (git checkout --ours {path.name}), then run {WRITE_AGAIN}",
        )
    try:
        found = json.loads(text, object_pairs_hook=_once)
    except ValueError as error:
        raise _broken(path, f"it is no JSON: {error}") from None
    found = _Place(path, "the file", found)
    version = found.get("format", int)
    if version > FORMAT:
        raise ConfigurationError(
            f"{path} was written by a later version of marigold-assets (format {version})",
            remedy="install that version, or a later one",
        )
    found.has_only({"format", "assets"})
    assets = found.at("assets")
    return Lock(assets={name: _locked_code(assets.at(name)) for name in assets.names()})


def _locked_code(found: _Place) -> LockedCode:
    found.has_only({"code_version", "fingerprint", "parts", "earlier", "equivalent", "accepted"})
    return LockedCode(
        version=found.get("code_version", str, type(None)),
        fingerprint=found.get("fingerprint", str),
        parts=found.at("parts").texts(),
        earlier=found.at("earlier", {}).texts(),
        equivalent=tuple(
            Equivalent(
                before=one.get("from", str),
                after=one.get("to", str),
                proof=Proof(
                    partitions=tuple(one.each("partitions", str)),
                    proven_on=one.time("proven_on", date.fromisoformat),
                    sample=one.get("sample", str),
                ),
            )
            for one in found.places("equivalent")
        ),
        accepted=tuple(
            AcceptedChange(
                before=one.get("from", str),
                after=one.get("to", str),
                by=one.get("by", str),
                at=one.time("at", _moment),
                reason=one.get("reason", str),
            )
            for one in found.places("accepted")
        ),
    )


class _Place:
    """A place in the file, where something of a type is expected."""

    def __init__(self, path: Path, name: str, value: Any) -> None:
        self._path, self._name, self._value = path, name, value
        if not isinstance(value, dict):
            raise _broken(path, f"{name} is no object")

    def names(self) -> Iterator[str]:
        yield from self._value

    def has_only(self, names: AbstractSet[str]) -> None:
        if unknown := sorted(self._value.keys() - names):
            raise _broken(self._path, f"{self._name} has the unknown key {unknown[0]!r}")

    def get(self, name: str, *types: type) -> Any:
        value = self._value.get(name)
        if type(value) not in types or (value is None and name not in self._value):
            raise _broken(self._path, f"{name!r} of {self._name} is missing or of another type than it should be")
        return value

    def at(self, name: str, default: Any = None) -> _Place:
        return _Place(self._path, f"{name!r} of {self._name}", self._value.get(name, default))

    def each(self, name: str, kind: type) -> Iterator[Any]:
        values = self.get(name, list) if name in self._value or kind is str else []
        for value in values:
            if type(value) is not kind:
                raise _broken(self._path, f"{name!r} of {self._name} has an item of another type than it should be")
            yield value

    def places(self, name: str) -> Iterator[_Place]:
        for value in self.each(name, dict):
            yield _Place(self._path, f"{name!r} of {self._name}", value)

    def texts(self) -> dict[str, str]:
        return {name: self.get(name, str) for name in self._value}

    def time(self, name: str, parse: Callable[[str], _Time]) -> _Time:
        try:
            return parse(self.get(name, str))
        except ValueError:
            raise _broken(self._path, f"{name!r} of {self._name} is no time") from None


def _once(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """An object, each of whose keys is there once: a merge may have made two of one."""
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"{name!r} is there twice")
        found[name] = value
    return found


def _moment(text: str) -> datetime:
    found = datetime.fromisoformat(text)
    if found.tzinfo is None:
        raise ValueError
    return found


def _broken(path: Path, why: str) -> ConfigurationError:
    return ConfigurationError(
        f"{path} is no lock file: {why}",
        remedy=f"take it from version control as it was (git checkout {path.name}), then run {WRITE_AGAIN}",
    )
