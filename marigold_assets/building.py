"""Building the partitions of one step, key by key: look, read, compute, swap, report.

Where the function wants frames, the database is closed while it runs, and one opening swaps a key and reads for the
next. Where it wants SQL or relations, the database stays open for a moment and no row passes through Python.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import takewhile
from typing import Any

import dagster as dg
import duckdb
import pyarrow as pa

from marigold_assets import dagster_internals, frames, report
from marigold_assets.attempt import explained, owner_of
from marigold_assets.calling import Returned, call
from marigold_assets.code.reach import touches_only_its_arguments
from marigold_assets.dry import dry_run
from marigold_assets.errors import MarigoldError, MixedVersionsError, Where
from marigold_assets.events import EventWriter
from marigold_assets.inputs import look_up, look_up_elsewhere, refuse_missing
from marigold_assets.model import InputPartition, PartitionSlice, Receipt, derive_swap_id
from marigold_assets.past import Past
from marigold_assets.recipe import Choices, Recipe
from marigold_assets.replaying import replay_partitions
from marigold_assets.standing import Standing
from marigold_assets.stores.base import CommittedInterrupt, Query, Read, Rows
from marigold_assets.stores.duckdb import DuckDBStore, KeptDuckDBStore
from marigold_assets.stores.turn import Turn
from marigold_assets.target import Target
from marigold_assets.verdicts import Verdicts

STALE_PAST = "marigold/stale_previous"
_STANDING_AT_ONCE = 16  # partitions whose entries are looked at once more, just before they are reported
_KEYS_A_LOOK = 256  # whose ledger entries are held at a time
_KEYS_AN_OPENING = 150  # of which the fence is looked at once
_MOST_READ_AHEAD = 256  # input partitions
_QUICK_SECONDS = 0.01  # then to open the database anew would take most of the time
_OPEN_SECONDS = 1.0  # then others have their turn at the database; to open it takes about 0.03


@dataclass(frozen=True, slots=True, kw_only=True)
class _Made:
    """What the function has made of some keys, not swapped yet."""

    keys: tuple[str, ...]
    rows: Rows
    returned: Returned
    inputs: tuple[InputPartition, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Elsewhere:
    """What is read that lies in other places than the database: arguments, and which partitions that is."""

    arguments: Mapping[str, Any] = field(default_factory=dict)
    inputs: tuple[InputPartition, ...] = ()


def build_partitions(recipe: Recipe, context: dg.AssetExecutionContext, choices: Choices) -> Iterator[Any]:
    """Build the partitions that a step is about, in order, each swapped and reported by itself.

    Yields:
        The results of the asset's own checks, then an output without a value.

    Raises:
        dagster.Failure: A partition was refused, and repeating it cannot succeed. Those before it are built.
    """
    if (dry := dry_run(context.run.run_id)) is not None:
        yield from replay_partitions(recipe, context, choices, dry)
        return
    with explained(context.instance, context.run.run_id, Where(asset=owner_of(context.asset_key))):
        building = _Building(recipe, context, choices)
    try:
        building.run()
    finally:
        yield from building.verdicts.results(context.asset_key)
    yield dagster_internals.already_logged_output()


class _Building:
    def __init__(self, recipe: Recipe, context: dg.AssetExecutionContext, choices: Choices) -> None:
        self._recipe, self._context, self._choices = recipe, context, choices
        self._target = target = Target(recipe, context, choices)
        for source in target.sources:
            source.refuse_undeclared()
        self._store, self._attempt = target.manager.begin_building(target.claims)
        self._standing = Standing(context, store=self._store, target=target, choices=choices)
        self._past = Past(target, self._standing, strict=choices.strict)
        self._past.begin(self._store)
        # Another file must not be opened while this one is: others may do it the other way round.
        self._reaches_out = any(source.input is not None or source.has_ledger for source in target.strangers)
        self._keys_at_once = 1 if self._reaches_out else recipe.keys_per_statement
        self._events = EventWriter(context)
        self._outcomes: Counter[str] = Counter()
        # Nothing but the function's own work may be done meanwhile: whatever else opens the file would fail, or worse.
        is_alone = not self._reaches_out and not choices.resources
        self._may_stay_open = is_alone and touches_only_its_arguments(recipe.function)
        self._is_quick = False
        self.verdicts = Verdicts({spec.name: spec for spec in context.assets_def.check_specs}, of=len(target.keys))

    def run(self) -> None:
        in_warehouse = any(source.input.is_in_warehouse for source in self._target.inputs if source.input is not None)
        build = self._build_in_warehouse if in_warehouse else self._build_with_frames
        try:
            self._build(build)
            with self._target.explained(self._target.keys):
                self._past.end(self._store)
        finally:
            self._sum_up()

    def _build(self, build: Callable[[Sequence[str]], None]) -> None:
        with self._events:
            for start in range(0, len(self._target.keys), _KEYS_A_LOOK):
                block = self._target.keys[start : start + _KEYS_A_LOOK]
                with self._target.explained(block):
                    self._standing.look(block)
                build(block)

    def _sum_up(self) -> None:
        """Say in the run's log what has become of the partitions: the events do not show it at a glance."""
        outcomes = ", ".join(f"{count} {outcome}" for outcome, count in self._outcomes.items()) or "none built"
        left = [key for key in self._target.keys if key not in self._standing.settled]
        text = f"{len(self._target.keys)} partitions: {outcomes}"
        self._target.inform(f"{text}, {len(left)} left; building again continues at {left[0]!r}" if left else text)

    # --- frames: the database is closed while the function runs, unless it is quick ------------------------------

    def _build_with_frames(self, keys: Sequence[str]) -> None:
        made: _Made | None = None
        with Turn(_OPEN_SECONDS) as turn:
            for number, key in enumerate(keys):
                if key in self._standing.settled:
                    continue
                ahead = keys[number:]
                with (
                    self._target.explained([key] if made is None else made.keys),
                    turn.working(partial(self._open, ahead, made), lasting=self._is_quick) as opened,
                ):
                    if made is not None:
                        self._swap(opened, made)
                        made = None
                    if self._report_standing(ahead, opened):
                        continue
                    with self._target.explained([key]):
                        arguments, inputs = self._read(opened, key)
                elsewhere = self._load_elsewhere([key])
                arguments, inputs = {**arguments, **elsewhere.arguments}, (*inputs, *elsewhere.inputs)
                with self._target.explained([key]):
                    begun = time.perf_counter()
                    returned = self._call([key], arguments)
                    self.verdicts.add([key], returned.checks)
                    rows = frames.to_rows(returned.value, self._target.slice_of(key).where)
                    self._is_quick = self._may_stay_open and time.perf_counter() - begun < _QUICK_SECONDS
                    if isinstance(rows, Query):
                        rows, inputs = self._reading_by_itself(key, rows, inputs)
                    made = _Made(keys=(key,), rows=rows, returned=returned, inputs=inputs)
            if made is not None:
                with (
                    self._target.explained(made.keys),
                    turn.working(partial(self._open, [], made), lasting=False) as opened,
                ):
                    self._swap(opened, made)

    def _open(self, ahead: Sequence[str], made: _Made | None) -> AbstractContextManager[KeptDuckDBStore]:
        """Open the store for some keys, or just for the swap that is due if the function takes its time."""
        soon = [*(made.keys if made is not None else ()), *(ahead[:_KEYS_AN_OPENING] if self._is_quick else ())]
        return self._store.keep_open(
            self._attempt,
            [self._target.slice_of(key) for key in soon],
            reads=self._reads_of(soon) if self._is_quick else (),
            alone=not self._is_quick,
        )

    def _read(self, opened: KeptDuckDBStore, key: str) -> tuple[dict[str, Any], tuple[InputPartition, ...]]:
        """What the function needs for one key, and which inputs it was read from, in one snapshot."""
        local = self._target.local
        with opened.snapshot():
            inputs = look_up(opened, local, [key])
            self._past.refuse_missing(opened, key)
            refuse_missing(key, local, inputs, self._target.slice_of(key).where)
            self._target.refuse_mixed(opened, local, [key])
            self._past.refuse_restated(opened, key)
            arguments = {s.name: s.load(opened, key, self._target.manager) for s in local if s.input is not None}
        return arguments, tuple(inputs.values())

    def _reading_by_itself(
        self, key: str, query: Query, inputs: Sequence[InputPartition]
    ) -> tuple[Query, tuple[InputPartition, ...]]:
        """SQL of a function that was given frames: mere dependencies are looked up when it reads them, at the swap."""
        sources = [source for source in self._target.local if source.input is None]
        own = {source.owner for source in sources}
        reads = tuple(read for source in sources for read in source.reads(key))
        return replace(query, reads={str(key): reads}), tuple(one for one in inputs if one.owner not in own)

    # --- SQL and relations: the rows stay in the database --------------------------------------------------------

    def _build_in_warehouse(self, keys: Sequence[str]) -> None:
        left = list(keys)
        while left:
            is_due = left[0] not in self._standing.settled and self._standing.entry_of(left[0]) is None
            elsewhere = self._load_elsewhere(left[:1]) if is_due and self._reaches_out else None
            soon = left[: 1 if self._reaches_out else 4 * self._keys_at_once + _KEYS_AN_OPENING]
            slices = [self._target.slice_of(key) for key in soon]
            with (
                self._target.explained(left[:1]),
                self._store.keep_open(self._attempt, slices, reads=self._reads_of(soon), alone=False) as opened,
            ):
                until = time.monotonic() + _OPEN_SECONDS
                while left and left[0] in soon and time.monotonic() < until:
                    if left[0] in self._standing.settled or self._report_standing(left, opened):
                        left.pop(0)
                        continue
                    if self._reaches_out and elsewhere is None:
                        break  # restated just now: what lies elsewhere is read first
                    some = self._next_statement(left)
                    with self._target.explained(some):
                        made = self._compute(opened, some, elsewhere or self._load_elsewhere(some))
                        if made is None:
                            continue
                        self._swap(opened, made)
                    del left[: len(some)]

    def _reads_of(self, keys: Sequence[str]) -> list[PartitionSlice]:
        """What lies in this database of what some partitions read, as far as it is worth being looked up ahead."""
        found: dict[PartitionSlice, None] = {}
        for key in keys:
            if len(found) >= _MOST_READ_AHEAD:
                break
            try:
                own = [slice_ for source in self._target.local for slice_ in source.slices(key)]
            except (MarigoldError, dg.DagsterError):  # which is raised again when it comes to that partition
                break
            found |= dict.fromkeys(own)
        return list(found)

    def _next_statement(self, left: Sequence[str]) -> list[str]:
        """The keys that the next call of the function computes."""
        some = list(left[:1])
        for key in left[1 : self._keys_at_once]:
            if self._standing.entry_of(key) is not None:
                break
            some.append(key)
        return some

    def _compute(self, opened: KeptDuckDBStore, keys: Sequence[str], elsewhere: _Elsewhere) -> _Made | None:
        """What the function makes of some keys; ``None`` if it has to be asked again, one key at a time."""
        self._past.refuse_missing(opened, keys[0])
        self._past.refuse_restated(opened, keys[0])
        self._target.refuse_mixed(opened, self._target.local, keys)
        given = [source for source in self._target.local if source.input is not None]
        arguments = {source.name: source.load_lazily(opened, keys, self._target.manager) for source in given}
        arguments |= elsewhere.arguments
        if any(source.wants_relation for source in self._target.inputs):
            opened.find_frames(wanted=True)
        returned = self._call(keys, arguments)
        if isinstance(returned.value, pa.RecordBatchReader):  # perhaps of the connection that is to swap
            if len(keys) > 1:
                returned.value.close()
                self._give_up_many_keys(returned.value)
                return None
            returned = replace(returned, value=frames.spooled(returned.value))
        query = opened.query_of(returned.value) if isinstance(returned.value, duckdb.DuckDBPyRelation) else None
        if query is None:
            rows = frames.to_rows(returned.value, self._target.slice_of(keys[0]).where)
            opened.find_frames(wanted=False)
        else:
            rows = query
        if not isinstance(rows, Query):
            if len(keys) > 1:
                self._give_up_many_keys(returned.value)
                return None
            self.verdicts.add(keys, returned.checks)
            found = look_up(opened, self._target.local, keys)
            refuse_missing(keys[0], given, found, self._target.slice_of(keys[0]).where)
            inputs = (*found.values(), *elsewhere.inputs)
            return _Made(keys=tuple(keys), rows=rows, returned=returned, inputs=inputs)
        self.verdicts.add(keys, returned.checks)
        reads: dict[str | None, tuple[Read, ...]] = {
            str(key): tuple(read for source in self._target.local for read in source.reads(key)) for key in keys
        }
        return _Made(keys=tuple(keys), rows=replace(rows, reads=reads), returned=returned, inputs=elsewhere.inputs)

    def _give_up_many_keys(self, value: object) -> None:
        """Rows that have been fetched would pass through Python, and their inputs be recorded for every key alike."""
        self._keys_at_once = 1
        self._target.warn(
            f"keys_per_statement is {self._recipe.keys_per_statement}, but the function returned a"
            f" {type(value).__name__} that the database cannot compute by itself; it is called key by key. Remedy:"
            " return SQL, or a relation made of the inputs alone."
        )

    # --- both ----------------------------------------------------------------------------------------------------

    def _load_elsewhere(self, keys: Sequence[str]) -> _Elsewhere:
        """What one partition reads that lies elsewhere; or what several do, of which nothing has to be opened."""
        strangers = self._target.strangers
        if not strangers:
            return _Elsewhere()
        with self._target.explained(keys):
            found = look_up_elsewhere(strangers, keys)
            refuse_missing(keys[0], strangers, found, self._target.slice_of(keys[0]).where)
            before = self._target.refuse_mixed(self._store, strangers, keys)
            arguments = {s.name: s.load_elsewhere(keys[0]) for s in strangers if s.input is not None}
            if before and self._target.refuse_mixed(self._store, strangers, keys) != before:
                raise MixedVersionsError(
                    "an input that is needed under one definition was written while it was read",
                    remedy="run again when the backfill of it has ended",
                    **self._target.slice_of(keys[0]).where,
                )
        return _Elsewhere(arguments=arguments, inputs=tuple(found.values()))

    def _call(self, keys: Sequence[str], arguments: Mapping[str, Any]) -> Returned:
        return call(
            self._recipe,
            self._choices,
            self._context,
            keys,
            arguments=arguments,
            upstream_keys=self._target.upstream_keys,
        )

    def _swap(self, store: DuckDBStore, made: _Made) -> None:
        self._recipe.code.refuse_changed_files()
        run, keys = self._context.run.run_id, "\x1f".join(made.keys)
        step, owner = self._target.provenance.step, self._target.owner
        try:
            receipts = store.swap(
                [self._target.slice_of(key) for key in made.keys],
                made.rows,
                attempt=self._attempt,
                swap_id=derive_swap_id(run, step, owner, keys, self._context.retry_number),
                provenance=replace(self._target.provenance, inputs=made.inputs),
                options=self._target.options,
            )
        except CommittedInterrupt as interrupt:
            self._report_swapped(interrupt.receipts, made)
            raise
        self._report_swapped(receipts, made)

    def _report_swapped(self, receipts: Sequence[Receipt], made: _Made) -> None:
        for receipt in receipts:
            self._report(receipt, report.CONFIRMED if receipt.entry.confirmed else report.SWAPPED, made)

    def _report_standing(self, ahead: Sequence[str], store: DuckDBStore) -> bool:
        """Report the next partition if it needs no work, and some of the same kind behind it."""
        keys = list(takewhile(lambda key: self._standing.entry_of(key) is not None, ahead[:_STANDING_AT_ONCE]))
        if not keys:
            return False
        with self._target.explained(keys):
            self._standing.look_again(store, keys)
        for key in keys:
            entry = self._standing.entry_of(key)
            if entry is None:
                return key != keys[0]
            if self._standing.is_reported(entry):
                self._standing.note(entry, built=False)
                self._outcomes[report.UNCHANGED] += 1
            else:
                self._report(Receipt(entry=entry), report.UNCHANGED, None)
        return True

    def _report(self, receipt: Receipt, outcome: str, made: _Made | None) -> None:
        entry = receipt.entry
        key = str(entry.partition_key)
        self._standing.note(entry, built=made is not None)
        self._outcomes[outcome] += 1
        stale = {STALE_PAST: self._past.stale[key]} if key in self._past.stale else {}
        given = made.returned.metadata if made is not None else {}
        own = {name: value for name, value in given.items() if not name.startswith(report.OWN)}
        tags = made.returned.tags if made is not None else {}
        columns = made.returned.columns if made is not None else None
        self._events.write(
            dg.AssetMaterialization(
                asset_key=self._context.asset_key,
                partition=self._target.dagster_keys[key],
                metadata={**report.metadata(receipt, columns), report.OUTCOME: outcome, **stale, **own},
                tags={**tags, **report.tags(entry), **report.version_tags(entry, self._context.run.run_id)},
            )
        )
