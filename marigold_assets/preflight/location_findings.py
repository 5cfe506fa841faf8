"""What is well with where a code location stores its assets, and what is not."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from marigold_assets.preflight.finding import Finding, error, ok, warning
from marigold_assets.preflight.findings import MANY
from marigold_assets.preflight.places import Place, Premises, network_file_system
from marigold_assets.preflight.settings import InstanceSettings, backfill_slots

_MOST_NAMED = 3
_LOCKS = ("", ".holder", ".line", ".slots", ".slots.line")


def examine_location(premises: Premises, settings: InstanceSettings) -> tuple[Finding, ...]:
    """Everything that there is to say of where a code location stores its assets, on an instance."""
    found = [one for place in premises.places for one in (*_admission(place, settings), *_locks(place))]
    found += [error("admission", f"What bounds it is not known. {what}", how) for what, how in premises.unknown.items()]
    return (*found, *_elsewhere(premises), *_pools(premises, settings), *_home(settings))


def _admission(place: Place, settings: InstanceSettings) -> Iterator[Finding]:
    code = "admission"
    bounds = [one for one in place.writers if one is not None]
    if None in place.writers:
        some = "some of what works there" if bounds else "what works there"
        yield warning(
            code,
            f"Database {place.name}: {some} has no max_backfill_writers, so that partitions picked by hand and"
            " commands in processes of their own write without a bound",
            "set max_backfill_writers of its IO managers and resources to a number",
        )
        return
    most, least = max(bounds), min(bounds)
    if most != least:
        yield warning(
            code,
            f"Database {place.name}: max_backfill_writers is {least} here and {most} there: while one who allows"
            f" {least} is at work, nobody makes it more",
            "set the same for all of its IO managers and resources",
        )
    slots = backfill_slots(settings)
    if slots is not None and least < slots:
        yield warning(
            code,
            f"Database {place.name} admits {least} writers, and the instance starts {slots} runs of backfills: those"
            " left over wait in their slots",
            f"set max_backfill_writers to {slots} or more, or the limit on dagster/backfill to {least}",
        )
    if 0 < settings.max_runtime_seconds < place.waits_seconds:
        yield warning(
            code,
            f"Database {place.name}: a run may wait {place.waits_seconds:,g} s for its turn, and is ended after"
            f" {settings.max_runtime_seconds:,} s in all (max_runtime_seconds)",
            "set admission_timeout_seconds lower, or max_runtime_seconds higher",
        )
    if most > MANY:
        yield warning(
            code,
            f"Database {place.name} admits {most:,} writers, so many that it bounds next to nothing",
            "set max_backfill_writers to what the machine can carry",
        )
        return
    yield ok(code, f"Database {place.name}: at most {most} runs of backfills write at once, whoever launches them")


def _locks(place: Place) -> Iterator[Finding]:
    code = "lock-files"
    if place.follows_working_directory:
        yield warning(
            code,
            f"Database {place.name} is a relative path, which means another file in every working directory",
            "set an absolute path",
        )
    try:
        place.folder.stat()
    except PermissionError:
        yield error(code, f"Database {place.name}: this user may not look into its folder", "grant access to it")
        return
    except (OSError, ValueError):
        yield warning(
            code,
            f"Database {place.name}: its folder does not exist, so that nothing can be said of it",
            "make the folder, or correct the path",
        )
        return
    closed = [one for one in _files(place) if not _is_writable(one)]
    if not os.access(place.folder, os.W_OK | os.X_OK) or closed:
        what = f"{len(closed)} of its files" if closed else "its folder"
        yield error(
            code,
            f"Database {place.name}: {what} cannot be written to by this user, so that no run of this user can take"
            " its turn",
            "have all runs run as one user, or grant write access to the folder and to the .lock files in it",
        )
        return
    kind, is_known = _network_of(place.folder)
    if not is_known:
        yield warning(
            code,
            f"Database {place.name}: this system does not tell on which kind of file system it is",
            "make sure that it is a disk of this machine: locks of shared file systems cannot be relied on",
        )
    elif kind is not None:
        yield error(
            code,
            f"Database {place.name} is on a file system of other machines ({kind}), whose locks cannot be relied on",
            "put it on a disk of the machine that all runs run on",
        )
    else:
        yield ok(code, f"Database {place.name}: its locks lie beside it, on a disk of this machine")


def _home(settings: InstanceSettings) -> Iterator[Finding]:
    if settings.home is None or settings.storage != "sqlite":
        return
    kind, _ = _network_of(Path(settings.home))
    if kind is not None:
        yield error(
            "storage",
            f"The history is kept in SQLite on a file system of other machines ({kind}), which damages it",
            "put DAGSTER_HOME on a disk of this machine, or keep the history in PostgreSQL",
        )


def _network_of(folder: Path) -> tuple[str | None, bool]:
    """On which kind of shared file system a folder is, and whether that is known."""
    try:
        return network_file_system(folder), True
    except OSError:
        return None, False


def _files(place: Place) -> list[Path]:
    beside = [Path(f"{place.lock_path}{end}") for end in _LOCKS]
    database = Path(str(place.lock_path).removesuffix(".lock"))
    return [one for one in (database, *beside) if os.path.lexists(one)]


def _is_writable(path: Path) -> bool:
    return os.access(path, os.R_OK | os.W_OK)


def _elsewhere(premises: Premises) -> Iterator[Finding]:
    if premises.elsewhere:
        yield warning(
            "admission",
            f"{_named(premises.elsewhere)}: stored by something that admits any number of writers, so that partitions"
            " picked by hand are not bounded",
            "store them by a FencedPartitionIOManager or through a FencedPartitionResource, or leave it at that",
        )


def _pools(premises: Premises, settings: InstanceSettings) -> Iterator[Finding]:
    known = {pool.name for pool in settings.pools}
    for pool, owners in premises.pools.items():
        if pool in known:
            continue  # is spoken of with the instance
        default = settings.pool_default_limit
        if default is None:
            yield warning(
                "pools",
                f"Pool {pool!r} of {_named(owners)} has no limit, and there is no default: it bounds nothing",
                f"set it: dagster instance concurrency set {pool} LIMIT",
            )
            continue
        slots = backfill_slots(settings)
        if slots is None or default <= slots:
            yield warning(
                "pools",
                f"Pool {pool!r} of {_named(owners)} takes {default} by default: production waits in it for backfills",
                f"set it higher than the limit on dagster/backfill: dagster instance concurrency set {pool} LIMIT",
            )


def _named(owners: Sequence[str]) -> str:
    more = f" and {len(owners) - _MOST_NAMED} more" if len(owners) > _MOST_NAMED else ""
    return ", ".join(owners[:_MOST_NAMED]) + more
