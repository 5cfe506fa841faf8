"""What stands already: which partitions of a step need no work, and whether the past that a chain reads still holds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

import dagster as dg

from marigold_assets import report
from marigold_assets.inputs import Source
from marigold_assets.lineage import Code, first_restated, same_inputs
from marigold_assets.model import CutOff, InputPartition, LedgerEntry, PartitionSlice, TableName
from marigold_assets.stores.base import PartitionStore

BACKFILL_TAG = "dagster/backfill"
_FAILED = (dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED)
_ROOT_TAG = "dagster/root_run_id"
_MOST_ANCESTORS = 100

Place = tuple[str, str | None]
"""An asset, as the ledger names it, and a partition of it."""


class Standing:
    """What the ledger says of the partitions that a step is about, kept up as they are built.

    Args:
        context: The context of the step.
        store: Where the ledger is.
        table: The asset's table.
        sources: What the asset reads.
        code: The code that is about to build it.
        cut_off: Whether partitions that nothing has changed for are left out.
    """

    def __init__(
        self,
        context: dg.AssetExecutionContext,
        *,
        store: PartitionStore,
        table: TableName,
        sources: Sequence[Source],
        code: Code,
        cut_off: CutOff,
    ) -> None:
        self._context, self._store, self._table = context, store, table
        self._sources, self._code, self._cut_off = sources, code, cut_off
        self._heads: dict[str | None, LedgerEntry] = {}
        self._present: dict[Place, str | None] = {}
        self._failed_runs: frozenset[str] = frozenset()
        self.settled: set[str] = set()

    def look(self, keys: Sequence[str]) -> None:
        """Read what the ledger knows of some partitions, before any of them is built."""
        self._heads, self._present = {}, {}
        if self._cut_off is CutOff.VERIFY or self._store.columns(self._table) is None:
            return
        heads = self._store.heads(self._table, keys)
        self._heads = {key: head for key, head in heads.items() if self._code.declared_same(head)}
        self._failed_runs = self._find_failed_runs({head.run_id for head in self._heads.values()})
        if self._cut_off is CutOff.OFF:
            self._heads = {key: head for key, head in self._heads.items() if self._may_continue(head)}
        wanted = dict.fromkeys(
            slice_
            for key in keys
            if key in self._heads
            for source in self._sources
            if source.is_local
            for slice_ in source.slices(key)
        )
        if wanted:
            found = self._store.inputs(list(wanted))
            self._present = {(one.owner, one.partition_key): one.content_hash for one in found}

    def entry_of(self, key: str) -> LedgerEntry | None:
        """The ledger entry of a partition that needs no work: its code and inputs are what they were.

        With early cut-off that is enough, if the asset reads anything. Without, the partition must be what is left of a
        backfill that was cut short: built by an earlier try of this run or this backfill, or by a failed run of the
        very same code over known inputs; or its event was lost.
        """
        head = self._heads.get(key)
        if head is None:
            return None
        now = [
            InputPartition(owner=s.owner, partition_key=s.partition_key, content_hash=self._present.get(_place(s)))
            for source in self._sources
            for s in source.slices(key)
        ]
        known = bool(now) and same_inputs(head.provenance.inputs, now, unknown=False)
        if self._is_earlier_try(head):
            stands = same_inputs(head.provenance.inputs, now, unknown=True)
        elif self._cut_off is CutOff.ON:
            stands = known
        else:
            stands = self._code.built(head) and (known or (not now and self._has_lost_its_event(head)))
        return head if stands else None

    def is_reported(self, entry: LedgerEntry) -> bool:
        """Whether an earlier attempt of this step has reported what a partition holds: once is enough for a run."""
        return entry.swap_id in self._reported

    @cached_property
    def _reported(self) -> frozenset[str | None]:
        if not self._context.retry_number:
            return frozenset()
        kind = dg.DagsterEventType.ASSET_MATERIALIZATION
        logged = self._context.instance.all_logs(self._context.run.run_id, of_type=kind)
        events = [log.dagster_event.step_materialization_data.materialization for log in logged if log.dagster_event]
        own = self._context.asset_key
        return frozenset((event.tags or {}).get(report.SWAP_ID) for event in events if event.asset_key == own)

    def note(self, entry: LedgerEntry) -> None:
        """Take note of what a partition holds now."""
        key = str(entry.partition_key)
        self.settled.add(key)
        self._present[entry.owner, key] = entry.content_hash

    def find_restated(self, store: PartitionStore, own: Source, key: str) -> str | None:
        """What was restated since the past of a chain was built; ``None`` if it still holds.

        Args:
            store: Where to look.
            own: The past.
            key: The partition that is about to read it.
        """
        definition = own.partitions_def
        if definition is None:
            return None
        heads = store.heads(own.table)
        keys = list(_until(key, definition.get_partition_keys(dynamic_partitions_store=self._context.instance)))
        inputs: dict[Place, str | None] = {}
        for source in self._sources:
            if source.is_local:
                entries = heads if source.is_own else store.heads(source.table)
                inputs |= {(source.owner, k): entry.content_hash for k, entry in entries.items()}
        found = first_restated(keys, heads, inputs, self._code)
        return None if found is None else f"partition {found[0]!r} was built with {found[1]}"

    def _may_continue(self, head: LedgerEntry) -> bool:
        is_left_over = head.run_id in self._failed_runs and not self._repeats_success
        return is_left_over or self._is_earlier_try(head)

    def _is_earlier_try(self, head: LedgerEntry) -> bool:
        backfill = self._context.run.tags.get(BACKFILL_TAG)
        same_backfill = backfill is not None and head.provenance.backfill_id == backfill
        return head.run_id in self._earlier_tries or (same_backfill and not self._repeats_success)

    @cached_property
    def _tries(self) -> tuple[frozenset[str], bool]:
        """This run and those that it repeats because they have not succeeded, and whether they repeat a success."""
        runs, parent = {self._context.run.run_id}, self._parent_of(self._context.run)
        while parent is not None and not parent.is_success and len(runs) < _MOST_ANCESTORS:
            runs.add(parent.run_id)
            parent = self._parent_of(parent)
        return frozenset(runs), parent is not None and parent.is_success

    @property
    def _earlier_tries(self) -> frozenset[str]:
        return self._tries[0]

    @property
    def _repeats_success(self) -> bool:
        """Whether somebody has asked for a run again that had succeeded: then its partitions are to be built anew."""
        return self._tries[1]

    def _parent_of(self, run: dg.DagsterRun) -> dg.DagsterRun | None:
        return None if run.parent_run_id is None else self._context.instance.get_run_by_id(run.parent_run_id)

    def _find_failed_runs(self, run_ids: set[str]) -> frozenset[str]:
        """Which of some runs have failed, without a retry or re-execution of them that came through."""
        if not run_ids:
            return frozenset()
        instance = self._context.instance
        failed = instance.get_runs(dg.RunsFilter(run_ids=sorted(run_ids), statuses=list(_FAILED)))
        roots = {run.root_run_id or run.run_id for run in failed}
        succeeded = [dg.DagsterRunStatus.SUCCESS]
        made_good = {
            root
            for root in roots
            if instance.get_runs(dg.RunsFilter(tags={_ROOT_TAG: root}, statuses=succeeded), limit=1)
        }
        return frozenset(run.run_id for run in failed if (run.root_run_id or run.run_id) not in made_good)

    def _has_lost_its_event(self, head: LedgerEntry) -> bool:
        """Whether the run that has swapped a partition died before it could report that."""
        records = self._context.instance.fetch_materializations(
            dg.AssetRecordsFilter(asset_key=self._context.asset_key, asset_partitions=[str(head.partition_key)]),
            limit=1,
        ).records
        event = records[0].asset_materialization if records else None
        return event is None or (event.tags or {}).get(report.SWAP_ID) != head.swap_id


def _place(slice_: PartitionSlice) -> Place:
    return slice_.owner, slice_.partition_key


def _until(key: str, keys: Sequence[str]) -> Iterator[str]:
    for one in keys:
        if one == key:
            return
        yield one
