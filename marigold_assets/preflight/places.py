"""Where the assets of a code location are stored, and what bounds those who write there."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from marigold_assets.errors import ConfigurationError
from marigold_assets.location import CodeLocation, Manager
from marigold_assets.stores.connection import Connector
from marigold_assets.stores.duckdb import DuckDBStore

_MOUNTS: Final = Path("/proc/self/mounts")
_OF_A_NETWORK: Final = re.compile(
    r"nfs\d*|cifs|smb\w*|afs|ceph|glusterfs|lustre|gpfs|beegfs|davfs"
    r"|9p|virtiofs|vboxsf|vmhgfs|prl_fs"  # of the machine that this virtual one runs on
    # Whatever a program provides, but for those that are known to add something to local folders.
    r"|fuse\.(?!(?:fuse-overlayfs|mergerfs|unionfs|bindfs|encfs|gocryptfs|cryfs|ntfs-3g)$).+"
)
_ESCAPED: Final = re.compile(r"\\(\d{3})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A database of a code location.

    Attributes:
        name: As messages show it.
        folder: Its folder.
        lock_path: The file on which those who open it queue; others of its name with more behind it lie beside it.
        writers: Of each asset that works there, how many may do so at once: the smallest ``max_backfill_writers`` of
            what its step sets up; ``None`` among them: of such an asset any number.
        waits_seconds: The longest ``admission_timeout_seconds`` of all that is set up.
        follows_working_directory: Whether its path is a relative one.
    """

    name: str
    folder: Path
    lock_path: Path
    writers: frozenset[int | None]
    waits_seconds: float
    follows_working_directory: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Premises:
    """What a code location has to do with bounds.

    Attributes:
        places: Its databases.
        elsewhere: Assets with partitions that are stored by something that bounds nobody.
        unknown: What of its settings cannot be read, with the remedy.
        pools: By pool, the assets that need a place in it.
    """

    places: tuple[Place, ...]
    elsewhere: tuple[str, ...]
    pools: Mapping[str, tuple[str, ...]]
    unknown: Mapping[str, str] = field(default_factory=dict)


def premises_of(location: CodeLocation) -> Premises:
    """What a code location has to do with bounds; nothing is opened for it."""
    grouped: dict[str, list[_Works]] = {}
    elsewhere: list[str] = []
    unknown: dict[str, str] = {}
    pools: dict[str, list[str]] = {}
    for owner, asset in location.assets.items():
        if not asset.definition.is_materializable:
            continue
        for pool in asset.definition.node_def.pools:
            pools.setdefault(pool, []).append(owner)
        try:
            opened = asset.opened()
            is_elsewhere = not asset.has_ledger
        except ConfigurationError as failure:
            unknown[f"{owner}: {failure.problem}"] = failure.remedy
            continue
        if is_elsewhere and asset.partitions_def is not None:
            elsewhere.append(owner)
        for path, works in _by_path(opened).items():
            grouped.setdefault(path, []).append(works)
    return Premises(
        places=tuple(_place(found) for _, found in sorted(grouped.items())),
        elsewhere=tuple(sorted(elsewhere)),
        pools={pool: tuple(sorted(owners)) for pool, owners in sorted(pools.items())},
        unknown=unknown,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Works:
    """What the step of an asset sets up on one database."""

    managers: tuple[Manager, ...]
    connector: Connector

    @property
    def writers(self) -> int | None:
        return min((one.max_backfill_writers for one in self.managers if one.max_backfill_writers), default=None)


def _by_path(managers: Iterable[Manager]) -> Mapping[str, _Works]:
    found: dict[str, _Works] = {}
    for one in managers:
        connector = DuckDBStore(one.database, config=one.connection_config).connector
        path = str(connector.lock_path)
        before = found[path].managers if path in found else ()
        found[path] = _Works(managers=(*before, one), connector=connector)
    return found


def _place(found: Sequence[_Works]) -> Place:
    connectors = [one.connector for one in found]
    return Place(
        name=connectors[0].secrets.database,
        folder=connectors[0].lock_path.parent,
        lock_path=connectors[0].lock_path,
        writers=frozenset(one.writers for one in found),
        waits_seconds=max(manager.admission_timeout_seconds for one in found for manager in one.managers),
        follows_working_directory=any(one.follows_working_directory for one in connectors),
    )


def network_file_system(folder: Path, mounts: Path = _MOUNTS) -> str | None:
    """The kind of a file system that a folder shares with other machines, or ``None`` if it is on none.

    Raises:
        OSError: This system does not tell.
    """
    found, depth = "", -1
    real = Path(os.path.realpath(folder))
    for line in mounts.read_text(encoding="utf-8", errors="replace").splitlines():
        _, at, kind, *_ = line.split(" ")
        mounted = Path(_ESCAPED.sub(lambda code: chr(int(code[1], 8)), at))
        # Of two at one place, the later one hides the earlier.
        if real.is_relative_to(mounted) and len(mounted.parts) >= depth:
            found, depth = kind, len(mounted.parts)
    return found if _OF_A_NETWORK.fullmatch(found) else None
