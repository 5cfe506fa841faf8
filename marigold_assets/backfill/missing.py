"""Which intervals of assets are missing, for whoever reports that."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import dagster as dg

from marigold_assets.backfill.selecting import select
from marigold_assets.errors import ConfigurationError, MarigoldError, StoreUnavailableError
from marigold_assets.expected import Expected, expected_by, time_of
from marigold_assets.gap_checks import Found, look_for_gaps
from marigold_assets.gaps import Gaps, fill_command, selection_of
from marigold_assets.location import CodeLocation, LocatedAsset, is_dynamic


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """What is missing of an asset.

    Attributes:
        asset: The asset.
        expected: The partitions of intervals that have ended.
        found: What is missing of these.
        reads: The assets that it is made of, whatever lies between.
    """

    asset: LocatedAsset
    expected: Expected
    found: Found
    reads: frozenset[str] = frozenset()

    @property
    def gaps(self) -> Gaps:
        """The partitions that are missing."""
        return self.found.gaps

    @property
    def since(self) -> datetime:
        """When the first interval begins from which on partitions are expected (aware)."""
        return self.start_of(str(self.gaps.since))

    def missing(self) -> list[str]:
        """The intervals of which something is missing, the oldest first."""
        places = {interval: place for place, interval in enumerate(self.expected.intervals)}
        found: set[int] = set()
        for gap in self.gaps.gaps:
            first = places[gap.since]
            found |= set(range(first, first + len(gap.keys)))
        return [self.expected.intervals[place] for place in sorted(found)]

    def start_of(self, interval: str) -> datetime:
        """When an interval begins (aware)."""
        return self.expected.time.time_window_for_partition_key(interval).start


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingReport:
    """What is missing of some assets.

    Attributes:
        assets: The assets that were looked at.
        not_looked_at: The others, with the reason.
        unavailable: Those of the others that should have been looked at: their database cannot be read, their settings
            are not complete, or their code location does not load.
        by: Intervals that had ended by then were looked at (aware, UTC).
    """

    assets: Sequence[Missing]
    not_looked_at: dict[str, str] = field(default_factory=dict)
    unavailable: tuple[str, ...] = ()
    by: datetime

    def commands(self, arguments: Sequence[str] = ()) -> list[str]:
        """What fills all gaps: also what is stale between them, and what these need.

        Assets of the same intervals are filled together, since they may read each other. Each is filled from the
        interval on from which it is expected, or from where another one needs it that reads it.

        Args:
            arguments: What names the code location to a command.

        Returns:
            The commands, those of the shortest intervals first: longer ones are mostly made of them; and of these the
            oldest first.
        """
        return [
            command
            for together in sorted(self._alike(), key=_length)
            for command in _commands(_parts(together), arguments)
        ]

    def along(self) -> dict[str, list[str]]:
        """By asset, those that need it before where it is expected: it is built along with them."""
        found: dict[str, list[str]] = {}
        for together in self._alike():
            for one in together:
                if readers := [other.asset.owner for other in together if _needs(other, one) < one.since]:
                    found[one.asset.owner] = readers
        return found

    def _alike(self) -> Iterable[list[Missing]]:
        found: dict[object, list[Missing]] = {}
        for one in self.assets:
            if one.gaps.gaps:
                time = one.expected.time
                found.setdefault((time.cron_schedule, time.timezone, time.fmt), []).append(one)
        return found.values()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """What a command fills of an asset.

    Attributes:
        asset: The asset.
        since: From when on it may be filled.
        missing: Some of the intervals of which something is missing, the oldest first.
    """

    asset: Missing
    since: datetime
    missing: Sequence[str]

    @property
    def ends(self) -> tuple[tuple[datetime, str], tuple[datetime, str]]:
        first, last = self.missing[0], self.missing[-1]
        return (self.asset.start_of(first), first), (self.asset.start_of(last), last)

    def cut(self, at: datetime) -> tuple[_Part, _Part]:
        place = bisect_left(self.missing, at, key=self.asset.start_of)
        return replace(self, missing=self.missing[:place]), replace(self, missing=self.missing[place:])


def _parts(together: Sequence[Missing]) -> list[_Part]:
    return [
        _Part(asset=one, since=min(_needs(other, one) for other in together), missing=one.missing()) for one in together
    ]


def _needs(reader: Missing, one: Missing) -> datetime:
    """From when on an asset is needed, by another that reads it."""
    if one.asset.owner not in reader.reads or reader.gaps.span is None:
        return one.since
    return min(one.since, reader.start_of(reader.gaps.span[0]))


def _commands(parts: Sequence[_Part], arguments: Sequence[str]) -> list[str]:
    """One command, or several, so that none reaches before where an asset of it is expected or needed."""
    filled = [one for one in parts if one.missing]
    if not filled:
        return []
    first, last = min(one.ends[0] for one in filled), max(one.ends[1] for one in filled)
    # Nothing of it is missing here, but what comes before is, and is read.
    read = frozenset().union(*(one.asset.reads for one in filled))
    parts = [one for one in parts if one.missing or (one.asset.since > first[0] and one.asset.asset.owner in read)]
    youngest = max(one.since for one in parts)
    if youngest > first[0]:
        early, late = zip(*(one.cut(youngest) for one in parts), strict=True)
        return [*_commands(early, arguments), *_commands(late, arguments)]
    selection = selection_of([one.asset.asset.owner for one in parts])
    return [fill_command(selection, first[1], last[1], arguments)]


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
        MarigoldError: None of those that this package stores can be looked at.
        StoreBusyError: Another process holds it.
    """
    found: list[Missing] = []
    others: dict[str, str] = {}
    unavailable: dict[str, MarigoldError] = {}
    if selection is None:
        others |= {f"code location {name}": why for name, why in location.failed.items()}
    for asset in location.assets.values() if selection is None else select(location, selection).assets:
        definition = asset.partitions_def
        if definition is None or time_of(definition) is None:
            others[asset.owner] = "it has no partitions in time"
            continue
        try:
            if not asset.has_ledger:
                asset.manager  # noqa: B018 - which refuses what it does not store, and says what does
            elif instance is None and is_dynamic(definition):
                asset.partition_keys()  # which only an instance knows
            else:
                reads = _made_of(asset, location)
                found.append(_missing(asset, by, reads, from_start=from_start, instance=instance))
        except (ConfigurationError, StoreUnavailableError) as error:
            others[asset.owner] = error.problem
            if _should_be_known(asset):
                unavailable[asset.owner] = error
    if unavailable and not found:
        raise next(iter(unavailable.values()))
    if not found:
        told = "; ".join(f"{owner}: {why}" for owner, why in others.items())
        raise ConfigurationError(
            f"there is nothing to look at{f' ({told})' if told else ''}",
            remedy="select assets with daily, hourly, weekly or monthly partitions that this package stores",
        )
    lost = () if selection is not None else location.failed
    return MissingReport(assets=found, not_looked_at=others, unavailable=(*unavailable, *lost), by=by)


def _should_be_known(asset: LocatedAsset) -> bool:
    """Whether an asset is stored by this package, so that not to know of it is no answer."""
    try:
        return asset.has_ledger
    except ConfigurationError:  # the settings of what stores it are not complete
        return True


def _made_of(asset: LocatedAsset, location: CodeLocation) -> frozenset[str]:
    owners = {one.key: owner for owner, one in location.assets.items()}
    found: set[str] = set()
    waiting = [asset]
    while waiting:
        read = {owners[dep.asset_key] for dep in waiting.pop().spec.deps if dep.asset_key in owners}
        waiting += [location.assets[owner] for owner in read - found]
        found |= read
    return frozenset(found - {asset.owner})


def _missing(
    asset: LocatedAsset,
    by: datetime,
    reads: frozenset[str],
    *,
    from_start: bool,
    instance: dg.DagsterInstance | None,
) -> Missing:
    expected = expected_by(asset.spec.partitions_def, by, instance)  # type: ignore[arg-type]  # it has partitions
    if expected is None:
        raise AssertionError  # it was told apart above
    found = look_for_gaps(asset.store, asset.table, expected, from_start=from_start)
    if found.note is None and (note := _no_database(asset)) is not None:
        found = replace(found, note=note)
    return Missing(asset=asset, expected=expected, found=found, reads=reads)


def _no_database(asset: LocatedAsset) -> str | None:
    """What there is to say where there is no database: in a new project, or where the path is not the right one."""
    connector = asset.store.connector
    if connector.exists():
        return None
    where = ", which is a relative path in the settings" if connector.follows_working_directory else ""
    return f"the database {connector.secrets.database}{where} does not exist, so all of it counts as missing"
