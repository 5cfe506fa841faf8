"""What stands already: which partitions of a step need no work, and whether the past that a chain reads still holds."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import dagster as dg

from marigold_assets import report
from marigold_assets.budget import LAUNCH_TAG
from marigold_assets.errors import FencedOutError
from marigold_assets.inputs import Source, look_up
from marigold_assets.lineage import first_restated, same_inputs
from marigold_assets.model import CutOff, InputPartition, LedgerEntry, PartitionSlice, Place
from marigold_assets.planning.request_tag import restates
from marigold_assets.recipe import Choices
from marigold_assets.run_tags import BACKFILL_TAG, ROOT_RUN_TAG
from marigold_assets.stores.base import PartitionStore
from marigold_assets.target import Target

_FAILED = (dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED)
_MOST_ANCESTORS = 100
_EVENTS_A_PAGE = 1_000


class Standing:
    """What the ledger says of the partitions that a step is about, kept up as they are built.

    Attributes:
        settled: Partitions that the step has built, or found to need no work.
        built: Those that it has built.

    Args:
        context: The context of the step.
        store: Where the ledger is.
        target: What the step builds.
        choices: What the run chooses.
    """

    def __init__(
        self, context: dg.AssetExecutionContext, *, store: PartitionStore, target: Target, choices: Choices
    ) -> None:
        self._context, self._store, self._target, self._choices = context, store, target, choices
        self._launch = context.run.tags.get(LAUNCH_TAG)
        # To restate is to compute, also what its author would leave alone; if it comes out the same it is confirmed.
        is_restated = choices.cut_off is CutOff.ON and self._launch is not None and restates(context.run.tags)
        self._cut_off = CutOff.OFF if is_restated else choices.cut_off
        self._heads: dict[str | None, LedgerEntry] = {}
        self._present: dict[Place, str | None] = {}
        self._failed_runs: frozenset[str] = frozenset()
        self._past: tuple[dict[str | None, LedgerEntry], dict[Place, str | None]] | None = None
        self._step_outcomes: dict[tuple[str, str | None], bool] = {}
        self._has_warned = False
        self.settled: set[str] = set()
        self.built: set[str] = set()

    def look(self, keys: Sequence[str]) -> None:
        """Read what the ledger knows of some partitions, before any of them is built."""
        cut_off, code, run_id = self._cut_off, self._target.code, self._context.run.run_id
        heads = self._store.heads(self._target.table, keys)
        self._heads = {key: head for key, head in heads.items() if code.declared_same(head)}
        if cut_off is CutOff.VERIFY:  # what this very run has verified before it was repeated
            self._heads = {key: head for key, head in self._heads.items() if head.confirmed and head.run_id == run_id}
        elif cut_off is CutOff.OFF:
            self._failed_runs = self._find_failed_runs({head.run_id for head in self._heads.values()})
            self._heads = {key: head for key, head in self._heads.items() if self._may_continue(head)}
        known = [key for key in keys if key in self._heads]
        self._present = {}
        if known:
            own = self._store.inputs([self._target.slice_of(key) for key in known])
            read = look_up(self._store, self._target.sources, known)
            self._present = {place: one.content_hash for place, one in read.items()}
            self._present |= {(one.owner, one.partition_key): one.content_hash for one in own}
        for key in known:  # where the rows are others than those that were swapped, nothing stands
            if self._present[self._target.owner, key] != self._heads[key].content_hash:
                del self._heads[key]

    def entry_of(self, key: str) -> LedgerEntry | None:
        """The ledger entry of a partition that needs no work: its code and inputs are what they were.

        With early cut-off that is enough, if the asset reads anything. Without, the partition must be what is left of a
        backfill that was cut short: built by an earlier try of this run or this backfill, or by a failed run of the
        very same code over known inputs, that nobody has taken up since; or its event was lost. What a launch is about
        is built by it, as its plan has left out what is current already: of such runs, those of other launches, and
        those that are of none, have left nothing to it. Where it was asked to restate, that holds with early cut-off
        as well. An asset with checks of its own computes every partition: nobody else knows what they would say.
        """
        head = self._heads.get(key)
        if head is None or self._target.has_checks:
            return None
        now = [
            InputPartition(owner=s.owner, partition_key=s.partition_key, content_hash=self._present.get(_place(s)))
            for source in self._target.sources
            for s in source.slices(key)
        ]
        known = bool(self._target.sources) and same_inputs(head.provenance.inputs, now, unknown=False)
        if self._is_earlier_try(head):
            stands = same_inputs(head.provenance.inputs, now, unknown=True)
        elif self._cut_off is CutOff.ON:
            stands = known
        else:
            stands = self._target.code.built(head) and self._is_left_over(head, has_known_inputs=known)
        if stands and not self._target.code.built(head):
            self._warn_of_other_code(key)
        return head if stands else None

    def _warn_of_other_code(self, key: str) -> None:
        if not self._has_warned:
            self._has_warned = True
            self._target.warn(
                f"left alone, since code version {self._target.code.version!r} is declared for it as for the present"
                " code, but the code is not the same. Remedy: change code_version if the results are others.",
                key,
            )

    def look_again(self, store: PartitionStore, keys: Sequence[str]) -> None:
        """Look once more, just before it is said of partitions that they are as they were.

        What they read may have been built anew meanwhile, so that :meth:`entry_of` has another answer.

        Raises:
            FencedOutError: Somebody has built the partitions themselves.
        """
        now = store.heads(self._target.table, keys)
        for key in keys:
            before, newest = self._heads[key], now.get(key)
            if newest is not None and newest.position != before.position:
                raise FencedOutError(
                    run_id=self._context.run.run_id,
                    token=before.token,
                    superseded_by_run=newest.run_id,
                    superseded_by_token=newest.token,
                    **self._target.slice_of(key).where,
                )
        read = look_up(store, self._target.local, keys)  # of what is local, or two files would be open at a time
        self._present |= {place: one.content_hash for place, one in read.items()}

    def is_reported(self, entry: LedgerEntry) -> bool:
        """Whether an earlier attempt of this step has reported what a partition holds: once is enough for a run."""
        return (entry.swap_id, entry.partition_key) in self._reported

    @cached_property
    def _reported(self) -> frozenset[tuple[str | None, str | None]]:
        """By the index of assets: a process that dies may leave an event in the log of its run alone."""
        if not self._context.retry_number:
            return frozenset()
        run = self._context.instance.get_run_record_by_id(self._context.run.run_id)
        since = None if run is None else run.create_timestamp.timestamp()
        wanted = dg.AssetRecordsFilter(asset_key=self._context.asset_key, after_timestamp=since)
        found: set[tuple[str | None, str | None]] = set()
        page = self._context.instance.fetch_materializations(wanted, limit=_EVENTS_A_PAGE)
        while page.records:
            own = [record for record in page.records if record.run_id == self._context.run.run_id]
            events = [record.asset_materialization for record in own]
            found |= {((event.tags or {}).get(report.SWAP_ID), event.partition) for event in events if event}
            if not page.has_more:
                break
            page = self._context.instance.fetch_materializations(wanted, limit=_EVENTS_A_PAGE, cursor=page.cursor)
        return frozenset(found)

    def note(self, entry: LedgerEntry, *, built: bool) -> None:
        """Take note of what a partition holds now, and whether this step has built it."""
        key = str(entry.partition_key)
        self.settled.add(key)
        if built:
            self.built.add(key)
        self._present[entry.owner, key] = entry.content_hash
        if self._past is not None:
            self._past[0][key] = entry
            self._past[1][entry.owner, key] = entry.content_hash

    def find_restated(self, store: PartitionStore, own: Source, key: str) -> str | None:
        """What was restated since the past of a chain was built; ``None`` if it still holds.

        Args:
            store: Where to look.
            own: The past.
            key: The partition that is about to read it.
        """
        if not own.keys(key):
            known = self._past[0] if self._past is not None else store.heads(self._target.table)
            gone = sorted(str(k) for k in known if k is not None and k not in self._definition_keys)
            return f"the partitions no longer have {gone[-1]!r}, and the chain starts anew" if gone else None
        heads, inputs = self._whole_past(store)
        found = first_restated(own.line_before(key), heads, inputs, self._target.code)
        return None if found is None else f"partition {found[0]!r} was built with {found[1]}"

    def find_restated_since(self, store: PartitionStore, keys: Sequence[str]) -> tuple[str, str] | None:
        """The first of some partitions that this step has built from what was restated since, and what that is."""
        self._past = None
        heads, inputs = self._whole_past(store)
        return first_restated(keys, heads, inputs, self._target.code)

    @cached_property
    def _definition_keys(self) -> frozenset[str]:
        definition = self._context.assets_def.partitions_def
        keys = (
            () if definition is None else definition.get_partition_keys(dynamic_partitions_store=self._context.instance)
        )
        return frozenset(map(str, keys))

    def _whole_past(self, store: PartitionStore) -> tuple[dict[str | None, LedgerEntry], dict[Place, str | None]]:
        """All that the ledger knows of the asset and of what it reads: looked at once a step."""
        if self._past is None:
            heads = dict(store.heads(self._target.table))
            inputs: dict[Place, str | None] = {}
            for source in self._target.local:
                entries = heads if source.is_own else store.heads(source.table)
                inputs |= {(source.owner, key): entry.content_hash for key, entry in entries.items()}
            self._past = heads, inputs
        return self._past

    def _may_continue(self, head: LedgerEntry) -> bool:
        is_failed = head.run_id in self._failed_runs and not self._repeats_success and not self._choices.insists
        return is_failed or self._is_earlier_try(head)

    def _is_left_over(self, head: LedgerEntry, *, has_known_inputs: bool) -> bool:
        """Whether a failed run has built a partition, and no other has reported it since."""
        reads = bool(self._target.sources)
        if reads and not has_known_inputs:
            return False
        if self._has_succeeded(head.run_id, head.provenance.step):
            return False
        record = self._newest_event(str(head.partition_key))
        event = None if record is None else record.asset_materialization
        if record is None or event is None or (event.tags or {}).get(report.SWAP_ID) != head.swap_id:
            return True  # the event was lost
        return reads and self._is_failed(record.run_id)

    def _has_succeeded(self, run_id: str, step: str | None) -> bool:
        """Whether the step came through, although something else of its run did not."""
        if (run_id, step) not in self._step_outcomes:
            stats = self._context.instance.get_run_step_stats(run_id, step_keys=[str(step)])
            self._step_outcomes[run_id, step] = any(
                one.status is not None and one.status.value == "SUCCESS" for one in stats
            )
        return self._step_outcomes[run_id, step]

    def _is_failed(self, run_id: str) -> bool:
        run = self._context.instance.get_run_by_id(run_id)
        return run is not None and run.status in _FAILED

    def _newest_event(self, key: str) -> dg.EventLogRecord | None:
        wanted = dg.AssetRecordsFilter(asset_key=self._context.asset_key, asset_partitions=[key])
        records = self._context.instance.fetch_materializations(wanted, limit=1).records
        return records[0] if records else None

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
        """Which of some runs have failed, without a retry or re-execution of them that came through.

        To a run of a launch only others of the same one count: what is asked for it may be to compute what they left.
        """
        if not run_ids:
            return frozenset()
        instance = self._context.instance
        of_launch = {} if self._launch is None else {LAUNCH_TAG: self._launch}
        wanted = dg.RunsFilter(run_ids=sorted(run_ids), statuses=list(_FAILED), tags=of_launch)
        failed = instance.get_runs(wanted)
        roots = {run.root_run_id or run.run_id for run in failed}
        succeeded = [dg.DagsterRunStatus.SUCCESS]
        made_good = {
            root
            for root in roots
            if instance.get_runs(dg.RunsFilter(tags={ROOT_RUN_TAG: root}, statuses=succeeded), limit=1)
        }
        return frozenset(run.run_id for run in failed if (run.root_run_id or run.run_id) not in made_good)


def _place(slice_: PartitionSlice) -> Place:
    return slice_.owner, slice_.partition_key
