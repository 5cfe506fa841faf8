"""Everything there is to say of a live instance, and of the code location that is to run on it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

import dagster as dg

from marigold_assets import dagster_instance
from marigold_assets.errors import MarigoldError
from marigold_assets.location import LocationOptions, load
from marigold_assets.preflight.finding import Finding, error, ok, warning
from marigold_assets.preflight.findings import examine_instance
from marigold_assets.preflight.location_findings import examine_location
from marigold_assets.preflight.places import premises_of
from marigold_assets.preflight.settings import InstanceSettings

_PARTS: Final = {
    dagster_instance.BACKFILL_DAEMON: "takes up backfills",
    dagster_instance.QUEUE_DAEMON: "takes runs out of the queue",
}


def examine(
    instance: dg.DagsterInstance, settings: InstanceSettings, options: LocationOptions | None
) -> tuple[Finding, ...]:
    """Examine an instance.

    Args:
        instance: The instance.
        settings: What it is set to.
        options: The code location that is to run on it; ``None``: none is looked at.
    """
    found = (*examine_instance(settings), examine_daemon(instance))
    return found if options is None else (*found, *_located(options, settings))


def _located(options: LocationOptions, settings: InstanceSettings) -> tuple[Finding, ...]:
    try:
        location = load(options)
        lost = [
            error(
                "location",
                f"What runs here is not all known: {why}",
                "correct it, or name another: -l LOCATION",
            )
            for why in location.failed.values()
        ]
        return (*lost, *examine_location(premises_of(location), settings))
    except MarigoldError as failure:
        return (
            error(
                "location",
                f"What runs here is not known, so that nothing is known of its databases: {failure.problem}",
                failure.remedy,
            ),
        )


def examine_daemon(instance: dg.DagsterInstance) -> Finding:
    """Whether a daemon works on an instance."""
    try:
        seen = {part: dagster_instance.last_heartbeat(instance, part) for part in _PARTS}
    except Exception as failure:  # noqa: BLE001 - whatever it is, the rest is still worth saying
        return error("daemon", f"It is not known whether a daemon runs: {type(failure).__name__}", "see its log")
    now = datetime.now(UTC)
    lost = [part for part, at in seen.items() if at is None or now - at > dagster_instance.ALIVE_WITHIN]
    if not lost:
        return ok("daemon", "A daemon runs: it takes up backfills and takes runs out of the queue")
    return warning(
        "daemon",
        f"No daemon {' or '.join(_PARTS[part] for part in lost)}: what is launched waits until there is one",
        "start it: dagster dev, or dagster-daemon run",
    )
