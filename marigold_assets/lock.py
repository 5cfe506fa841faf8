"""How code and ``code_versions.lock`` differ, and what to do about it.

The lock says which code goes by which declared version. Where code has changed and its version has not, somebody has to
say what that means: another version, proven to be the same, or accepted as the same. All else is only written down.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum
from typing import Final

from marigold_assets.errors import ConfigurationError
from marigold_assets.lock_file import (
    FILE,
    WRITE_AGAIN,
    AcceptedChange,
    Equivalent,
    Lock,
    LockedCode,
    PresentCode,
    Proof,
)

__all__ = [
    "FILE",
    "AcceptedChange",
    "Equivalent",
    "Finding",
    "Kind",
    "Lock",
    "LockedCode",
    "PresentCode",
    "Proof",
    "carry_over",
    "compare",
    "equivalent",
    "lock_of",
    "renewed",
]


class Kind(Enum):
    """How code and lock differ."""

    CODE_CHANGED = "code_changed"
    """The code has changed and its version has not."""
    VERSION_REUSED = "version_reused"
    """The version is an earlier one, which was other code."""
    VERSION_CHANGED = "version_changed"
    """The version has changed, and the lock does not say so yet."""
    NOT_LOCKED = "not_locked"
    """The lock does not have the asset."""
    GONE = "gone"
    """There is no such asset any more."""
    OTHER_METHOD = "other_method"
    """The fingerprint in the lock was made by another version of this package."""
    UNDECLARED_CHANGED = "undeclared_changed"
    """The code has changed, and has no declared version: its fingerprint is its version."""


_REFUSED: Final = frozenset({Kind.CODE_CHANGED, Kind.VERSION_REUSED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Where code and lock differ.

    Attributes:
        asset: The asset.
        kind: How.
        before: The version in the lock, if any.
        after: The present version, if any.
        changed: Parts of the code that have changed.
        added: Parts that it did not use before.
        removed: Parts that it does not use any more.
    """

    asset: str
    kind: Kind
    before: str | None = None
    after: str | None = None
    changed: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()

    @property
    def is_note(self) -> bool:
        """Whether nothing needs to be done about it."""
        return self.kind is Kind.UNDECLARED_CHANGED

    @property
    def is_refused(self) -> bool:
        """Whether it is not written down as it is: somebody has to say what it means."""
        return self.kind in _REFUSED

    @property
    def what(self) -> str:
        """What is wrong, in one line."""
        match self.kind:
            case Kind.CODE_CHANGED:
                return f"{self._parts}, but code_version is still {self.after!r}"
            case Kind.VERSION_REUSED:
                return f"code_version is {self.after!r} again, but that was other code than it is now"
            case Kind.VERSION_CHANGED:
                return f"code_version is {_shown(self.after)} now, but the lock has {_shown(self.before)}"
            case Kind.NOT_LOCKED:
                return "the asset is not in the lock"
            case Kind.GONE:
                return "the lock has an asset that does not exist any more"
            case Kind.OTHER_METHOD:
                return "the fingerprint in the lock was made by another version of marigold-assets"
            case Kind.UNDECLARED_CHANGED:
                return f"{self._parts}; no code_version is declared, so the new code is a new version by itself"

    @property
    def ways_out(self) -> tuple[tuple[str, str], ...]:
        """What can be done about it: when, and how."""
        if self.kind is Kind.CODE_CHANGED:
            prove = f"marigold versions prove {self.asset} --lock"
            return (
                ("it means something else now", f"set code_version to another one, then {WRITE_AGAIN}"),
                ("it means the same, and that can be shown", prove),
                ("it means the same to you", self._accept),
            )
        if self.kind is Kind.VERSION_REUSED:
            return (
                ("it means something else now", f"set code_version to one that was not used yet, then {WRITE_AGAIN}"),
                ("it means the same to you", self._accept),
            )
        if self.kind is Kind.UNDECLARED_CHANGED:
            return (("that is to be on the record", WRITE_AGAIN),)
        return (("that is as it should be", WRITE_AGAIN),)

    @property
    def _accept(self) -> str:
        return f'{WRITE_AGAIN} {self.asset} --accept-changes --reason "..."'

    @property
    def _parts(self) -> str:
        said = [
            f"{_listed(names)} {verb}"
            for names, verb in (
                (self.changed, "changed"),
                (self.added, f"{'is' if len(self.added) == 1 else 'are'} used now"),
                (self.removed, f"{'is' if len(self.removed) == 1 else 'are'} not used any more"),
            )
            if names
        ]
        return ", ".join(said) or "the way in which its parts are used changed"


def equivalent(lock: Lock, asset: str, a: str | None, b: str | None, *, with_accepted: bool = False) -> bool:
    """Whether two codes of an asset were proven to make the same, be it by way of others.

    Args:
        lock: What is written down.
        asset: The asset, as the lock names it.
        a: The fingerprint of the one, as the ledger has it.
        b: The fingerprint of the other.
        with_accepted: Whether it also counts that somebody has said so.

    Returns:
        Whether a way leads from one to the other, and also if they are one; never of an unknown fingerprint.
    """
    if a is None or b is None:
        return False
    known = lock.assets.get(asset)
    pairs = [] if known is None else [(one.before, one.after) for one in known.equivalent]
    if known is not None and with_accepted:
        pairs += [(one.before, one.after) for one in known.accepted]
    return b in _joined_to(a, pairs)


def _joined_to(one: str, pairs: Collection[tuple[str, str]]) -> frozenset[str]:
    found, due = {one}, [one]
    while due:
        at = due.pop()
        new = {other for pair in pairs if at in pair for other in pair} - found
        found |= new
        due += new
    return frozenset(found)


def lock_of(assets: Mapping[str, PresentCode]) -> Lock:
    """A new lock of some code."""
    return Lock(assets={name: _locked(one) for name, one in assets.items()})


def compare(lock: Lock, present: Mapping[str, PresentCode]) -> tuple[Finding, ...]:
    """Where code and lock differ.

    Args:
        lock: What is written down.
        present: The code as it is now, by asset.

    Returns:
        Findings by asset, in order of their names; nothing of assets where all is well.
    """
    found = []
    for asset in sorted(lock.assets.keys() | present.keys()):
        finding = _compared(asset, lock.assets.get(asset), present.get(asset))
        if finding is not None:
            found.append(finding)
    return tuple(found)


def renewed(
    lock: Lock,
    present: Mapping[str, PresentCode],
    *,
    only: Collection[str] | None = None,
    accepted: tuple[str, datetime, str] | None = None,
) -> tuple[Lock, tuple[Finding, ...]]:
    """Write down the code as it is now.

    Args:
        lock: What is written down so far.
        present: The code as it is now, by asset.
        only: The assets that are written down; all by default.
        accepted: Who says that changed code under an unchanged version means the same, when, and why.

    Returns:
        The new lock, and what is not written down: changes that nobody has accepted.
    """
    assets, refused = dict(lock.assets), []
    for finding in compare(lock, present):
        if only is not None and finding.asset not in only:
            continue
        before, now = lock.assets.get(finding.asset), present.get(finding.asset)
        if now is None:
            del assets[finding.asset]
        elif before is None:
            assets[finding.asset] = _locked(now)
        elif not finding.is_refused:
            assets[finding.asset] = _followed_by(before, now)
        elif accepted is None:
            refused.append(finding)
        else:
            by, at, reason = accepted
            fingerprint = before.earlier.get(str(now.version), before.fingerprint)
            change = AcceptedChange(
                before=fingerprint if finding.kind is Kind.VERSION_REUSED else before.fingerprint,
                after=now.fingerprint,
                by=by,
                at=at,
                reason=reason,
            )
            followed = _followed_by(before, now)
            assets[finding.asset] = replace(followed, accepted=(*followed.accepted, change))
    return Lock(assets=assets), tuple(refused)


def carry_over(lock: Lock, asset: str, present: PresentCode, proof: Proof) -> Lock:
    """Have changed code go by the version of the code before it, since it was proven to make the same.

    Args:
        lock: What is written down.
        asset: The asset.
        present: Its code as it is now.
        proof: What has shown that.

    Raises:
        ConfigurationError: The lock does not have the asset, or has it under another version.
    """
    before = lock.assets.get(asset)
    if before is None:
        raise ConfigurationError("the asset is not in the lock", remedy=f"write it down: {WRITE_AGAIN}", asset=asset)
    if before.version != present.version:
        raise ConfigurationError(
            f"code_version is {_shown(present.version)} now and the lock has {_shown(before.version)}: there is nothing"
            " to carry over",
            remedy=f"set code_version back to {_shown(before.version)}, or write the new one down: {WRITE_AGAIN}",
            asset=asset,
        )
    if before.fingerprint == present.fingerprint:
        return lock
    equivalent = Equivalent(before=before.fingerprint, after=present.fingerprint, proof=proof)
    new = replace(
        before,
        fingerprint=present.fingerprint,
        parts=dict(present.parts),
        equivalent=(*before.equivalent, equivalent),
    )
    return Lock(assets={**lock.assets, asset: new})


def _compared(asset: str, before: LockedCode | None, now: PresentCode | None) -> Finding | None:
    if before is None:
        return Finding(asset=asset, kind=Kind.NOT_LOCKED, after=None if now is None else now.version)
    if now is None:
        return Finding(asset=asset, kind=Kind.GONE, before=before.version)
    kind = _kind(before, now)
    if kind is None:
        return None
    if kind not in {Kind.CODE_CHANGED, Kind.UNDECLARED_CHANGED}:
        return Finding(asset=asset, kind=kind, before=before.version, after=now.version)
    return Finding(
        asset=asset,
        kind=kind,
        before=before.version,
        after=now.version,
        changed=tuple(one for one in now.parts if before.parts.get(one, now.parts[one]) != now.parts[one]),
        added=tuple(one for one in now.parts if one not in before.parts),
        removed=tuple(one for one in before.parts if one not in now.parts),
    )


def _kind(before: LockedCode, now: PresentCode) -> Kind | None:
    if before.version != now.version:
        earlier = before.earlier.get(str(now.version)) if now.version is not None else None
        is_reused = earlier is not None and _method(earlier) == _method(now.fingerprint) and earlier != now.fingerprint
        return Kind.VERSION_REUSED if is_reused else Kind.VERSION_CHANGED
    if before.fingerprint == now.fingerprint:
        return None
    if _method(before.fingerprint) != _method(now.fingerprint):
        return Kind.OTHER_METHOD
    return Kind.UNDECLARED_CHANGED if now.version is None else Kind.CODE_CHANGED


def _method(fingerprint: str) -> str:
    return fingerprint.partition(":")[0]


def _locked(now: PresentCode) -> LockedCode:
    return LockedCode(version=now.version, fingerprint=now.fingerprint, parts=dict(now.parts), earlier={})


def _followed_by(before: LockedCode, now: PresentCode) -> LockedCode:
    """What is written down of code after what was written down before."""
    if before.version == now.version:
        return replace(before, fingerprint=now.fingerprint, parts=dict(now.parts))
    earlier = dict(before.earlier)
    if before.version is not None:
        earlier[before.version] = before.fingerprint
    earlier.pop(str(now.version), None)
    # What was proven of codes of another version still tells which of their partitions are alike.
    return replace(_locked(now), earlier=earlier, equivalent=before.equivalent)


def _shown(version: str | None) -> str:
    return "not declared" if version is None else repr(version)


def _listed(names: Iterable[str]) -> str:
    first, *rest = names
    return f"{', '.join([first, *rest[:-1]])} and {rest[-1]}" if rest else first
