"""Building the partitions of one step, key by key: look, read, compute, swap, report.

Where the function wants frames, the database is closed while it runs, and one opening swaps a key and reads for the
next. Where it wants SQL or relations, the database stays open for a moment and no row passes through Python.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import dagster as dg
import duckdb
import pyarrow as pa

from marigold_assets import dagster_internals, frames, partitions, report
from marigold_assets.attempt import explained, owner_of, shown_keys
from marigold_assets.calling import Returned, call
from marigold_assets.errors import ConfigurationError, RestatedPastError, Where
from marigold_assets.events import EventWriter
from marigold_assets.inputs import Source, look_up, look_up_elsewhere, missing_past, refuse_missing
from marigold_assets.io_manager import FencedPartitionIOManager
from marigold_assets.lineage import Code
from marigold_assets.model import (
    Claim,
    InputPartition,
    PartitionSlice,
    Provenance,
    Receipt,
    SwapOptions,
    derive_swap_id,
)
from marigold_assets.recipe import Choices, Recipe
from marigold_assets.standing import BACKFILL_TAG, Standing
from marigold_assets.stores.base import Query, Read, Rows
from marigold_assets.stores.duckdb import DuckDBStore, KeptDuckDBStore
from marigold_assets.verdicts import Verdicts
from marigold_assets.windows import Windows

STALE_PAST = "marigold/stale_previous"
_KEYS_A_LOOK = 256  # whose ledger entries are held at a time
_REMEMBERED = 1_024  # partitions whose slices are kept at hand
_OPEN_SECONDS = 0.25  # then others have their turn at the database


@dataclass(frozen=True, slots=True, kw_only=True)
class _Made:
    """What the function has made of some keys, not swapped yet."""

    keys: tuple[str, ...]
    rows: Rows
    returned: Returned
    inputs: tuple[InputPartition, ...] = ()


def build_partitions(recipe: Recipe, context: dg.AssetExecutionContext, choices: Choices) -> Iterator[Any]:
    """Build the partitions that a step is about, in order, each swapped and reported by itself.

    Yields:
        The results of the asset's own checks, then an output without a value.

    Raises:
        dagster.Failure: A partition was refused, and repeating it cannot succeed. Those before it are built.
    """
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
        self._manager = _manager_of(context, recipe)
        self._spec = context.assets_def.specs_by_key[context.asset_key]
        self._owner = owner_of(context.asset_key)
        self._table = partitions.table_of_asset(context.asset_key, self._spec.metadata, self._manager.schema_)
        self._options = self._swap_options()
        self._keys = _keys_of(context)
        self._dagster_keys = {
            str(key): key for key in self._keys
        }  # multi-dimensional keys are strings with more to them
        self._partition_expr = self._spec.metadata.get(partitions.PARTITION_EXPR)
        self._windows = Windows(context.assets_def.partitions_def, self._keys)
        self._slice = lru_cache(_REMEMBERED)(self._find_slice)
        self._sources = self._find_sources()
        self._inputs = [source for source in self._sources if source.input is not None]
        self._past = next((source for source in self._inputs if source.is_own), None)
        self._store, self._attempt = self._manager.begin_building(
            [Claim(owner=self._owner, partition_key=str(key)) for key in self._keys]
        )
        code = Code(
            version=self._spec.code_version,
            fingerprint=recipe.code_fingerprint,
            config_hash=choices.config_hash,
        )
        self._provenance = Provenance(
            code_version=code.version,
            code_fingerprint=code.fingerprint,
            config_hash=code.config_hash,
            step=str(context.op_execution_context.op_handle),
            backfill_id=context.run.tags.get(BACKFILL_TAG),
        )
        self._standing = Standing(
            context,
            store=self._store,
            table=self._table,
            sources=self._sources,
            code=code,
            cut_off=choices.cut_off,
        )
        self._keys_at_once = recipe.keys_per_statement if all(s.is_local for s in self._inputs) else 1
        self._stale: dict[str, str] = {}
        self._events = EventWriter(context)
        self.verdicts = Verdicts({spec.name: spec for spec in context.assets_def.check_specs})

    def run(self) -> None:
        in_warehouse = any(source.input.is_in_warehouse for source in self._inputs if source.input is not None)
        build = self._build_in_warehouse if in_warehouse else self._build_with_frames
        with self._events:
            for start in range(0, len(self._keys), _KEYS_A_LOOK):
                block = self._keys[start : start + _KEYS_A_LOOK]
                with self._explained(block):
                    self._standing.look(block)
                build(block)

    # --- frames: the database is closed while the function runs --------------------------------------------------

    def _build_with_frames(self, keys: Sequence[str]) -> None:
        made: _Made | None = None
        for key in keys:
            if made is None and self._report_standing(key):
                continue
            due = [] if made is None else list(made.keys)
            with (
                self._explained(due or [key]),
                self._store.keep_open(self._attempt, [self._slice(one) for one in due]) as opened,
            ):
                if made is not None:
                    self._swap(opened, made)
                    made = None
                with self._explained([key]):
                    if self._report_standing(key):
                        continue
                    arguments, inputs = self._read(opened, key)
            arguments |= self._load_elsewhere(key)
            with self._explained([key]):
                returned = self._call([key], arguments)
                self.verdicts.add(key, returned.checks)
                rows = frames.to_rows(returned.value, self._slice(key).where)
                if isinstance(rows, Query):
                    rows, inputs = self._reading_by_itself(key, rows, inputs)
                made = _Made(keys=(key,), rows=rows, returned=returned, inputs=inputs)
        if made is not None:
            with self._explained(made.keys):
                self._swap(self._store, made)

    def _read(self, opened: KeptDuckDBStore, key: str) -> tuple[dict[str, Any], tuple[InputPartition, ...]]:
        """What the function needs for one key, and which inputs it was read from, in one snapshot."""
        with opened.snapshot():
            inputs = look_up(opened, self._sources, [key])
            refuse_missing(key, self._inputs, inputs, self._slice(key).where)
            self._refuse_restated_past(opened, key)
            arguments = {
                source.name: source.load(opened, key, self._manager) for source in self._inputs if source.is_local
            }
        return arguments, tuple(inputs.values())

    def _reading_by_itself(
        self, key: str, query: Query, inputs: Sequence[InputPartition]
    ) -> tuple[Query, tuple[InputPartition, ...]]:
        """SQL of a function that was given frames: mere dependencies are looked up when it reads them, at the swap."""
        sources = [source for source in self._sources if source.input is None]
        own = {source.owner for source in sources}
        reads = tuple(read for source in sources for read in source.reads(key))
        return replace(query, reads={str(key): reads}), tuple(one for one in inputs if one.owner not in own)

    def _load_elsewhere(self, key: str) -> dict[str, Any]:
        return {source.name: source.load_elsewhere(key) for source in self._inputs if not source.is_local}

    # --- SQL and relations: the rows stay in the database --------------------------------------------------------

    def _build_in_warehouse(self, keys: Sequence[str]) -> None:
        left = list(keys)
        while left:
            soon = [self._slice(key) for key in left[: 4 * self._keys_at_once + 60]]
            with (
                self._explained(left[:1]),
                self._store.keep_open(self._attempt, soon, alone=False) as opened,
            ):
                until = time.monotonic() + _OPEN_SECONDS
                while left and time.monotonic() < until:
                    if self._report_standing(left[0]):
                        left.pop(0)
                        continue
                    some = self._next_statement(left)
                    with self._explained(some):
                        made = self._compute(opened, some)
                        if made is None:
                            continue
                        self._swap(opened, made)
                    del left[: len(some)]

    def _next_statement(self, left: Sequence[str]) -> list[str]:
        """The keys that the next call of the function computes."""
        some = list(left[:1])
        for key in left[1 : self._keys_at_once]:
            if self._standing.entry_of(key) is not None:
                break
            some.append(key)
        return some

    def _compute(self, opened: KeptDuckDBStore, keys: Sequence[str]) -> _Made | None:
        """What the function makes of some keys; ``None`` if it has to be asked again, one key at a time."""
        self._refuse_missing_past(opened, keys[0])
        self._refuse_restated_past(opened, keys[0])
        arguments = {
            source.name: source.load_lazily(opened, keys, self._manager)
            if source.is_local
            else source.load_elsewhere(keys[0])
            for source in self._inputs
        }
        with opened.lent():
            returned = self._call(keys, arguments)
            if isinstance(returned.value, pa.RecordBatchReader):  # perhaps of the connection that is to swap
                if len(keys) > 1:
                    returned.value.close()
                    self._give_up_many_keys(returned.value)
                    return None
                returned = replace(returned, value=frames.spooled(returned.value))
        query = opened.query_of(returned.value) if isinstance(returned.value, duckdb.DuckDBPyRelation) else None
        rows = frames.to_rows(returned.value, self._slice(keys[0]).where) if query is None else query
        if not isinstance(rows, Query):
            if len(keys) > 1:
                self._give_up_many_keys(returned.value)
                return None
            self.verdicts.add(keys[0], returned.checks)
            found = look_up(opened, self._sources, keys)
            refuse_missing(keys[0], self._inputs, found, self._slice(keys[0]).where)
            return _Made(keys=tuple(keys), rows=rows, returned=returned, inputs=tuple(found.values()))
        self.verdicts.add(keys[0], returned.checks)
        inputs = tuple(look_up_elsewhere(self._sources, keys))
        reads: dict[str | None, tuple[Read, ...]] = {
            str(key): tuple(read for source in self._sources for read in source.reads(key)) for key in keys
        }
        return _Made(keys=tuple(keys), rows=replace(rows, reads=reads), returned=returned, inputs=inputs)

    def _give_up_many_keys(self, value: object) -> None:
        """Rows that have been fetched would pass through Python, and their inputs be recorded for every key alike."""
        self._keys_at_once = 1
        self._context.log.warning(
            f"asset {self._owner!r}: keys_per_statement is {self._recipe.keys_per_statement}, but the function returned"
            f" a {type(value).__name__} that the database cannot compute by itself; it is called key by key. Remedy:"
            " return SQL, or a relation made of the inputs alone."
        )

    # --- one key -------------------------------------------------------------------------------------------------

    def _call(self, keys: Sequence[str], arguments: Mapping[str, Any]) -> Returned:
        return call(
            self._recipe,
            self._choices,
            self._context,
            keys,
            arguments=arguments,
            upstream_keys=self._upstream_keys,
        )

    def _swap(self, store: DuckDBStore, made: _Made) -> None:
        run = self._context.run.run_id
        receipts = store.swap(
            [self._slice(key) for key in made.keys],
            made.rows,
            attempt=self._attempt,
            swap_id=derive_swap_id(
                run, self._provenance.step, self._owner, "\x1f".join(made.keys), self._context.retry_number
            ),
            provenance=replace(self._provenance, inputs=made.inputs),
            options=self._options,
        )
        for receipt in receipts:
            self._report(receipt, report.CONFIRMED if receipt.entry.confirmed else report.SWAPPED, made)

    def _report_standing(self, key: str) -> bool:
        """Report a partition that needs no work, if it is one."""
        entry = self._standing.entry_of(key)
        if entry is None:
            return False
        if self._standing.is_reported(entry):
            self._standing.note(entry)
        else:
            self._report(Receipt(entry=entry), report.UNCHANGED, None)
        return True

    def _report(self, receipt: Receipt, outcome: str, made: _Made | None) -> None:
        entry = receipt.entry
        key = str(entry.partition_key)
        self._standing.note(entry)
        stale = {STALE_PAST: self._stale[key]} if key in self._stale else {}
        own = made.returned.metadata if made is not None else {}
        tags = made.returned.tags if made is not None else {}
        columns = made.returned.columns if made is not None else None
        self._events.write(
            dg.AssetMaterialization(
                asset_key=self._context.asset_key,
                partition=self._dagster_keys[key],
                metadata={**report.metadata(receipt, columns), report.OUTCOME: outcome, **stale, **own},
                tags={
                    **report.tags(entry),
                    **report.version_tags(entry, self._context.run.run_id),
                    **tags,
                },
            )
        )

    # --- the past of a chain -------------------------------------------------------------------------------------

    def _refuse_missing_past(self, opened: KeptDuckDBStore, key: str) -> None:
        if self._past is None:
            return
        unknown = [s for s in self._past.slices(key) if s.partition_key not in self._standing.settled]
        missing = [one.partition_key for one in opened.inputs(unknown) if one.content_hash is None]
        if missing and self._past.input is not None and not self._past.input.allow_missing:
            raise missing_past(self._past, missing, self._slice(key).where)

    def _refuse_restated_past(self, opened: KeptDuckDBStore, key: str) -> None:
        """Report, or in strict mode refuse, a past that this run has not built and that no longer holds."""
        if self._past is None or all(k in self._standing.settled for k in self._past.keys(key)):
            return
        restated = self._standing.find_restated(opened, self._past, key)
        if restated is None:
            return
        if self._choices.strict:
            raise RestatedPastError(
                f"the past that it is built upon no longer holds: {restated}",
                remedy="build the chain again from that partition, or turn strict off",
                **self._slice(key).where,
            )
        self._context.log.warning(
            f"asset {self._owner!r}, partition {key!r}: the past that it is built upon no longer holds: {restated}."
            " Remedy: build the chain again from that partition."
        )
        self._stale[key] = restated

    # --- what a key is -------------------------------------------------------------------------------------------

    def _find_slice(self, key: str) -> PartitionSlice:
        [slice_] = partitions.slices_of_keys(
            self._table,
            self._owner,
            partitions_def=self._context.assets_def.partitions_def,
            keys=[key],
            partition_expr=self._partition_expr,
            windows=self._windows,
        )
        return slice_

    def _upstream_keys(self, name: str, keys: Sequence[str]) -> Sequence[str]:
        """The partitions of an input that some keys read."""
        names = self._context.assets_def.keys_by_input_name
        source = next((s for s in self._sources if s.key == names.get(name)), None)
        if source is None:
            raise ConfigurationError(f"the asset has no input {name!r}", remedy=f"name one of {sorted(names)}")
        return list(dict.fromkeys(found for key in keys for found in source.keys(key)))

    @contextmanager
    def _explained(self, keys: Sequence[str]) -> Iterator[None]:
        where = Where(asset=self._owner, partition=shown_keys(keys), table=str(self._table))
        with explained(self._context.instance, self._context.run.run_id, where):
            yield

    def _find_sources(self) -> list[Source]:
        inputs = {given.name: given for given in self._recipe.inputs}
        names = self._context.assets_def.keys_by_input_name
        return [
            Source(self._context, self._manager, key, inputs.get(name), self._windows) for name, key in names.items()
        ]

    def _swap_options(self) -> SwapOptions:
        where = Where(asset=self._owner, table=str(self._table))
        options = partitions.swap_options(self._spec.metadata, where)
        return replace(options, cut_off=self._choices.cut_off)


def _manager_of(context: dg.AssetExecutionContext, recipe: Recipe) -> FencedPartitionIOManager:
    manager = getattr(context.resources, recipe.io_manager_key)
    if isinstance(manager, FencedPartitionIOManager):
        return manager
    raise ConfigurationError(
        f"resource {recipe.io_manager_key!r} is a {type(manager).__name__}, which cannot swap partitions",
        remedy=f'set Definitions(resources={{"{recipe.io_manager_key}": FencedPartitionIOManager(...)}})',
    )


def _keys_of(context: dg.AssetExecutionContext) -> list[str]:
    """The keys of the step, in the order in which they are built."""
    if not (context.has_partition_key or context.has_partition_key_range):
        raise ConfigurationError(
            "the run names no partition", remedy="launch it for a partition, a range of them, or a backfill"
        )
    try:
        keys = list(context.partition_keys)
    except Exception as error:
        raise ConfigurationError(
            f"the partitions of the run are not those of the asset: {error}",
            remedy="launch the run again for partitions that the asset has",
        ) from error
    return keys
