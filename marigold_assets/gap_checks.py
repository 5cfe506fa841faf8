"""An asset check that lists gaps: what no schedule catches up is not forgotten."""

# No `from __future__ import annotations` here: Dagster compares the annotation of `context` with its classes.

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import dagster as dg

from marigold_assets import partitions
from marigold_assets.attempt import owner_of
from marigold_assets.checks import manager_of_check
from marigold_assets.errors import ConfigurationError
from marigold_assets.expected import Expected, expected_by, time_of
from marigold_assets.gaps import Gap, Gaps, described, fill_of, find_gaps
from marigold_assets.model import TableName
from marigold_assets.run_tags import BACKFILL_TAG
from marigold_assets.stores.base import PartitionStore
from marigold_assets.uniformity import of_its_kind, settled, unknown_rows

_MOST_SHOWN = 20
_LONGEST_GRACE = timedelta(days=36_500)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What is missing of a table.

    Attributes:
        gaps: The partitions that are missing.
        lost_rows: How many rows are missing of the others: whoever removed them has told nobody from which.
        note: What people should know besides.
    """

    gaps: Gaps
    lost_rows: int
    note: str | None

    @property
    def is_whole(self) -> bool:
        """Whether nothing is missing."""
        return not self.gaps.gaps and not self.lost_rows


def look_for_gaps(store: PartitionStore, table: TableName, expected: Expected, *, from_start: bool) -> Found:
    """Find what is missing of a table.

    Args:
        store: Where it is.
        table: The table.
        expected: The partitions that should be there.
        from_start: Whether they all should, whatever was built first.
    """
    heads, stored = settled(store, table, None, lambda: store.row_count(table))
    heads = of_its_kind(heads)
    is_gone = stored is None
    gaps = find_gaps(expected.intervals, expected.lines, heads.keys(), is_gone=is_gone, from_start=from_start)
    if is_gone:
        note = f"its table {table} does not exist any more, so all of it counts as missing" if heads else None
        return Found(gaps=gaps, lost_rows=0, note=note)
    different = unknown_rows(stored, expected.known, heads)
    if different is None:
        return Found(gaps=gaps, lost_rows=0, note=None)
    lost = max(0, sum(entry.row_count for entry in heads.values()) - (stored or 0))
    what = "something else has removed rows" if lost else "some may have been built by something else"
    return Found(gaps=gaps, lost_rows=lost, note=f"{what}: {different}")


def build_gaps_check(
    *,
    asset: dg.AssetsDefinition,
    grace: timedelta = timedelta(0),
    from_start: bool = False,
    severity: dg.AssetCheckSeverity = dg.AssetCheckSeverity.WARN,
    io_manager_key: str = "io_manager",
    name: str = "gaps",
) -> dg.AssetChecksDefinition:
    """Make a check that no interval of an asset is missing.

    A partition is missing where its interval has ended and the ledger has no entry of it, or where the table is gone.
    The check says which, and gives the one command that fills them all. It does not pass either where the table has
    fewer rows than the ledger knows of: then rows of some partitions are missing, and nobody can tell which.

    Args:
        asset: The asset, which has partitions in time and is stored by this package.
        grace: How long after the end of an interval it may be missing: until its schedule has built it.
        from_start: Whether everything since the start of its partitions is expected, and not only what follows the
            first interval that was ever built.
        severity: What a gap is; a warning by default, and always in a run of a backfill, which may be filling it.
        io_manager_key: The resource that stores the asset, also where that is a ``FencedPartitionResource``.
        name: The name of the check.

    Raises:
        ConfigurationError: The asset has no partitions in time, or is several assets; or the grace is below zero, or
            longer than a hundred years.
    """
    if not timedelta(0) <= grace <= _LONGEST_GRACE:
        raise ConfigurationError(
            f"a check for gaps has a grace of {grace}",
            remedy="give hours or days, such as timedelta(hours=6)",
            asset=", ".join(sorted(map(owner_of, asset.keys))),
        )
    definition = asset.partitions_def
    if len(asset.keys) != 1 or definition is None or time_of(definition) is None:
        raise ConfigurationError(
            "a check for gaps is about one asset with partitions in time",
            remedy="make a check for each asset that has daily, hourly, weekly or monthly partitions",
            asset=", ".join(sorted(map(owner_of, asset.keys))),
        )
    owner = owner_of(asset.key)

    @dg.asset_check(asset=asset, name=name, required_resource_keys={io_manager_key})
    def gaps(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
        """Every interval that has ended was built."""
        manager = manager_of_check(context, io_manager_key, owner)
        expected = expected_by(definition, datetime.now(UTC) - grace, context.instance)
        table = partitions.table_of_asset(asset.key, asset.specs_by_key[asset.key].metadata, manager.schema_)
        if expected is None:
            raise AssertionError  # it was refused above
        found = look_for_gaps(manager.store, table, expected, from_start=from_start)
        is_being_filled = BACKFILL_TAG in context.run.tags
        may_pass = is_being_filled and not found.lost_rows  # no backfill is why rows are gone
        return _told(owner, found, dg.AssetCheckSeverity.WARN if may_pass else severity)

    return gaps


def _told(owner: str, looked: Found, severity: dg.AssetCheckSeverity) -> dg.AssetCheckResult:
    found = looked.gaps
    command = fill_of(owner, found)
    said = [
        described(found),
        *([] if command is None else [f"To fill them: {command}"]),
        *([] if looked.note is None else [f"Note: {looked.note}"]),
    ]
    return dg.AssetCheckResult(
        passed=looked.is_whole,
        severity=severity,
        description=". ".join(said),
        metadata={
            "marigold/missing_partitions": found.missing,
            "marigold/expected_partitions": found.expected,
            "marigold/lost_rows": looked.lost_rows,
            "marigold/gaps": dg.MetadataValue.table(
                [_record(one) for one in found.gaps[:_MOST_SHOWN]],
                dg.TableSchema(
                    [
                        dg.TableColumn("first"),
                        dg.TableColumn("last"),
                        dg.TableColumn("partitions", "int"),
                    ]
                ),
            ),
            **({} if command is None else {"marigold/fill": command}),
            **({} if found.since is None else {"marigold/since": found.since}),
        },
    )


def _record(one: Gap) -> dg.TableRecord:
    return dg.TableRecord({"first": one.keys[0], "last": one.keys[-1], "partitions": len(one.keys)})
