"""Where the assets of a code location are stored, and what bounds those who write there."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from marigold_assets.errors import ConfigurationError
from marigold_assets.location import CodeLocation, LocatedAsset

_MOUNTS: Final = Path("/proc/self/mounts")
_OF_A_NETWORK: Final = re.compile(
    r"nfs\d*|cifs|smb\w*|afs|ceph|glusterfs|lustre|gpfs|beegfs|davfs|fuse\.(sshfs|glusterfs|s3fs|rclone|gcsfuse|mountpoint-s3)"
)
_ESCAPED: Final = re.compile(r"\\(\d{3})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A database of a code location.

    Attributes:
        name: As messages show it.
        folder: Its folder.
        lock_path: The file on which those who open it queue; others of its name with more behind it lie beside it.
        writers: ``max_backfill_writers`` of everything that stores there; ``None`` among them: no bound.
        waits_seconds: The longest ``admission_timeout_seconds`` of those.
        follows_working_directory: Whether its path is a relative one.
        owners: The assets that are stored there.
    """

    name: str
    folder: Path
    lock_path: Path
    writers: frozenset[int | None]
    waits_seconds: float
    follows_working_directory: bool
    owners: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Premises:
    """What a code location has to do with bounds.

    Attributes:
        places: Its databases.
        elsewhere: Assets with partitions that are stored by something that bounds nobody.
        pools: By pool, the assets that need a place in it.
    """

    places: tuple[Place, ...]
    elsewhere: tuple[str, ...]
    pools: Mapping[str, tuple[str, ...]]


def premises_of(location: CodeLocation) -> Premises:
    """What a code location has to do with bounds; nothing is opened for it."""
    grouped: dict[str, list[LocatedAsset]] = {}
    elsewhere: list[str] = []
    pools: dict[str, list[str]] = {}
    for owner, asset in location.assets.items():
        if not asset.definition.is_materializable:
            continue
        for pool in asset.definition.node_def.pools:
            pools.setdefault(pool, []).append(owner)
        try:
            grouped.setdefault(str(asset.store.connector.lock_path), []).append(asset)
        except ConfigurationError:
            if asset.partitions_def is not None:
                elsewhere.append(owner)
    return Premises(
        places=tuple(_place(found) for _, found in sorted(grouped.items())),
        elsewhere=tuple(sorted(elsewhere)),
        pools={pool: tuple(sorted(owners)) for pool, owners in sorted(pools.items())},
    )


def _place(assets: Iterable[LocatedAsset]) -> Place:
    found = list(assets)
    connectors = [one.store.connector for one in found]
    return Place(
        name=connectors[0].secrets.database,
        folder=connectors[0].lock_path.parent,
        lock_path=connectors[0].lock_path,
        writers=frozenset(one.manager.max_backfill_writers for one in found),
        waits_seconds=max(one.manager.admission_timeout_seconds for one in found),
        follows_working_directory=any(one.follows_working_directory for one in connectors),
        owners=tuple(sorted(one.owner for one in found)),
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
