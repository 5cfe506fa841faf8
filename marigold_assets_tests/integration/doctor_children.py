"""What the tests of the doctor run in a process of its own, under other rights."""

from __future__ import annotations

import os
from pathlib import Path

from marigold_assets.preflight.location_findings import examine_location
from marigold_assets.preflight.places import Place, Premises
from marigold_assets.preflight.settings import InstanceSettings


def look_without_rights(folder):
    """Give up every right of root; what is said of the locks in a folder."""
    place = Place(
        name="shop",
        folder=Path(folder),
        lock_path=Path(folder, "shop.duckdb.lock"),
        writers=frozenset({2}),
        waits_seconds=0.0,
        follows_working_directory=False,
    )
    if os.getuid() == 0:
        os.setgid(65534)
        os.setuid(65534)
    found = examine_location(Premises(places=(place,), elsewhere=(), pools={}), InstanceSettings())
    return [one.level.value for one in found if one.code == "lock-files"]
