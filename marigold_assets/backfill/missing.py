"""Which intervals of assets are missing, for whoever reports that."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import dagster as dg

from marigold_assets.backfill.selecting import select
from marigold_assets.errors import ConfigurationError, MarigoldError
from marigold_assets.expected import Expected, expected_by, time_of
from marigold_assets.gaps import Gaps, fill_command, find_gaps, selection_of
from marigold_assets.location import CodeLocation, LocatedAsset, is_dynamic
from marigold_assets.uniformity import of_its_kind, settled, unknown_rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """What is missing of an asset.

    Attributes:
        asset: The asset.
        expected: The partitions of intervals that have ended.
        gaps: Those that were never built.
        note: What else people should know.
    """

    asset: LocatedAsset
    expected: Expected
    gaps: Gaps
    note: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingReport:
    """What is missing of some assets.

    Attributes:
        assets: The assets that were looked at.
        not_looked_at: The others, with the reason.
        by: Intervals that had ended by then were looked at (aware, UTC).
    """

    assets: Sequence[Missing]
    not_looked_at: dict[str, str] = field(default_factory=dict)
    by: datetime

    def commands(self, arguments: Sequence[str] = ()) -> list[str]:
        """What fills all gaps: one command for all assets of the same intervals, since they may read each other.

        Args:
            arguments: What names the code location to a command.

        Returns:
            The commands, that of the shortest intervals first: longer ones are mostly made of them.
        """
        return [self._command(together, arguments) for together in sorted(self._alike(), key=_length)]

    def _alike(self) -> Iterable[list[Missing]]:
        found: dict[object, list[Missing]] = {}
        for one in self.assets:
            if one.gaps.gaps:
                time = one.expected.time
                found.setdefault((time.cron_schedule, time.timezone, time.fmt), []).append(one)
        return found.values()

    @staticmethod
    def _command(together: Sequence[Missing], arguments: Sequence[str]) -> str:
        ends = [(one.expected.time, end) for one in together for end in one.gaps.span or ()]
        starts = {interval: time.time_window_for_partition_key(interval).start for time, interval in ends}
        selection = selection_of([one.asset.owner for one in together])
        return fill_command(
            selection, min(starts, key=starts.__getitem__), max(starts, key=starts.__getitem__), arguments
        )


def _length(together: Sequence[Missing]) -> timedelta:
    expected = together[0].expected
    window = expected.time.time_window_for_partition_key(expected.intervals[0])
    return window.end - window.start


def find_missing(
    location: CodeLocation,
    selection: str | None,
    by: datetime,
    *,
    from_start: bool = False,
    instance: dg.DagsterInstance | None = None,
) -> MissingReport:
    """Find what is missing of the assets of a code location.

    Args:
        location: The code location.
        selection: Which of them, in Dagster's selection syntax; ``None``: all that have partitions in time.
        by: Intervals that had ended by then are expected (aware).
        from_start: Whether everything is expected from the start of the partitions, whatever was built first.
        instance: Where dynamic keys are.

    Raises:
        ConfigurationError: The selection makes no sense, or there is nothing to look at in it.
        StoreUnavailableError: There is no database.
        StoreBusyError: Another process holds it.
    """
    found: list[Missing] = []
    others: dict[str, str] = {}
    for asset in location.assets.values() if selection is None else select(location, selection).assets:
        definition = asset.partitions_def
        if definition is None or time_of(definition) is None:
            others[asset.owner] = "it has no partitions in time"
        elif instance is None and is_dynamic(definition):
            others[asset.owner] = "it has dynamic partitions, which only a Dagster instance knows: set DAGSTER_HOME"
        elif (why := _not_ours(asset)) is not None:
            others[asset.owner] = why
        else:
            found.append(_missing(asset, by, from_start=from_start, instance=instance))
    if not found:
        told = "; ".join(f"{owner}: {why}" for owner, why in others.items())
        raise ConfigurationError(
            f"there is nothing to look at{f' ({told})' if told else ''}",
            remedy="select assets with daily, hourly, weekly or monthly partitions that this package stores",
        )
    return MissingReport(assets=found, not_looked_at=others, by=by)


def _not_ours(asset: LocatedAsset) -> str | None:
    try:
        asset.manager  # noqa: B018 - which refuses what it does not store
    except ConfigurationError as error:
        return error.problem
    except MarigoldError:
        return None
    return None


def _missing(asset: LocatedAsset, by: datetime, *, from_start: bool, instance: dg.DagsterInstance | None) -> Missing:
    asset.refuse_missing_database()
    expected = expected_by(asset.spec.partitions_def, by, instance)  # type: ignore[arg-type]  # it has partitions
    if expected is None:
        raise AssertionError  # it was told apart above
    heads, stored = settled(asset.store, asset.table, None, lambda: asset.store.row_count(asset.table))
    heads = of_its_kind(heads)
    gaps = find_gaps(expected.intervals, expected.lines, heads.keys(), from_start=from_start)
    note = unknown_rows(stored, [key for line in expected.lines for key in line], heads) if gaps.gaps else None
    return Missing(asset=asset, expected=expected, gaps=gaps, note=note)
