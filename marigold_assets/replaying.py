"""The step of a dry run: partitions are computed as they would be built, up to the swap, and compared instead.

The database is opened for reading only. As in a real step it is closed while a function of frames runs, and open for a
moment at a time while one of SQL or relations does.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import dagster as dg
import duckdb
import pyarrow as pa

from marigold_assets import dagster_internals, frames
from marigold_assets.calling import call
from marigold_assets.disturbance import disturbed
from marigold_assets.dry import DryRun
from marigold_assets.errors import MarigoldError, StoreBusyError, StoreUnavailableError
from marigold_assets.inputs import Found, look_up, look_up_elsewhere, refuse_missing
from marigold_assets.model import InputPartition, LedgerEntry, PartitionSlice, Place
from marigold_assets.proof import Outcome, Replayed, compare_inputs
from marigold_assets.recipe import Choices, Recipe
from marigold_assets.stores.base import Rows
from marigold_assets.stores.rereading import RereadStore, reread
from marigold_assets.target import Target
from marigold_assets.verdicts import Verdicts

_OPEN_SECONDS = 1.0  # then others have their turn at the database
_SHOWN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class _Begun:
    """A partition of which nothing speaks against computing it.

    Attributes:
        key: The partition.
        head: Its newest ledger entry, if it is to be compared.
        arguments: What lies in the database of what the function reads.
        inputs: Everything that it reads.
        notes: What is uncertain.
    """

    key: str
    head: LedgerEntry | None
    arguments: Mapping[str, Any]
    inputs: tuple[InputPartition, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Made:
    """What the function has made of a partition."""

    begun: _Begun
    rows: Rows


def replay_partitions(
    recipe: Recipe, context: dg.AssetExecutionContext, choices: Choices, run: DryRun
) -> Iterator[Any]:
    """Compute the partitions of a dry run, and hand back what came of them.

    Yields:
        The results of the asset's own checks, then an output without a value: what Dagster expects of the step.
    """
    try:
        replaying = _Replaying(recipe, context, choices, run)
        replaying.run()
    except MarigoldError as error:
        run.error = error
        raise
    yield from replaying.verdicts.results(context.asset_key)
    yield dagster_internals.already_logged_output()


class _Failing:
    """Tells of what is raised within a block, whatever an author's function raises, and goes on behind it.

    A database that cannot be opened is no matter of one partition.
    """

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> bool:
        if not isinstance(error, Exception) or isinstance(error, StoreBusyError | StoreUnavailableError):
            return False
        if isinstance(error, MarigoldError):
            self._tell(f"{error.problem}. Remedy: {error.remedy}")
        else:
            self._tell(_first_line(error))
        return True


class _Replaying:
    """The partitions of a dry run, one after the other."""

    def __init__(self, recipe: Recipe, context: dg.AssetExecutionContext, choices: Choices, run: DryRun) -> None:
        self._recipe, self._context, self._choices, self._dry = recipe, context, choices, run
        self._target = target = Target(recipe, context, choices, keys=run.keys)
        for source in target.sources:
            source.refuse_undeclared()
        self._store = target.manager.store
        self._altered: dict[PartitionSlice, str | None] = {}
        self._with_ledger = {source.owner for source in target.sources if source.has_ledger}
        self.verdicts = Verdicts({spec.name: spec for spec in context.assets_def.check_specs}, of=len(target.keys))

    def run(self) -> None:
        in_warehouse = any(source.input.is_in_warehouse for source in self._target.inputs if source.input is not None)
        if in_warehouse:
            self._in_warehouse()
        else:
            self._with_frames()

    def _with_frames(self) -> None:
        """Compare a partition and read for the next in one opening."""
        made: _Made | None = None
        for key in [*self._target.keys, None]:
            elsewhere = None if key is None else self._look_elsewhere(key)
            begun: _Begun | None = None
            with self._opened(alone=True) as opened:
                if made is not None:
                    self._compare(opened, made)
                if key is not None and elsewhere is not None:
                    begun = self._begin(opened, key, elsewhere, lazily=False)
            arguments = None if begun is None else self._load_elsewhere(begun.key)
            made = None if begun is None or arguments is None else self._make(begun, arguments, None)

    def _in_warehouse(self) -> None:
        left = list(self._target.keys)
        while left:
            until = time.monotonic() + _OPEN_SECONDS
            elsewhere = self._look_elsewhere(left[0])
            arguments = None if elsewhere is None else self._load_elsewhere(left[0])
            if elsewhere is None or arguments is None:
                left.pop(0)
                continue
            with self._opened(alone=False) as opened:
                is_last = False
                while left and not is_last:
                    begun = self._begin(opened, left.pop(0), elsewhere, lazily=True)
                    made = None if begun is None else self._make(begun, arguments, opened)
                    if made is not None:
                        self._compare(opened, made)
                    # What lies elsewhere is read while this database is closed.
                    is_last = bool(self._target.strangers) or time.monotonic() >= until

    @contextmanager
    def _opened(self, *, alone: bool) -> Iterator[RereadStore]:
        with reread(self._store, alone=alone) as opened:
            if self._dry.conditions.now is not None:
                opened.set_clock(self._dry.conditions.now)
            yield opened

    def _failing(self, key: str) -> _Failing:
        """Note that a partition has failed, and go on with others."""
        return _Failing(lambda reason: self._note(key, Outcome.FAILED, reason))

    def _note(self, key: str, outcome: Outcome, reason: str | None = None, **more: Any) -> None:
        self._dry.found.append(Replayed(partition_key=str(key), outcome=outcome, reason=reason, **more))

    def _look_elsewhere(self, key: str) -> tuple[InputPartition, ...] | None:
        strangers = self._target.strangers
        with self._failing(key):
            found = look_up_elsewhere(strangers, [key])
            if self._dry.is_compared:
                self._look_at_strangers(key)
            else:
                refuse_missing(key, strangers, found, self._target.slice_of(key).where)
            return tuple(found.values())
        return None

    def _load_elsewhere(self, key: str) -> Mapping[str, Any] | None:
        with self._failing(key):
            return {s.name: s.load_elsewhere(key) for s in self._target.strangers if s.input is not None}
        return None

    def _begin(
        self, opened: RereadStore, key: str, elsewhere: Sequence[InputPartition], *, lazily: bool
    ) -> _Begun | None:
        """Look whether a partition can be computed and compared, and read what it needs of this database."""
        target = self._target
        # Relations are read later; nobody can write meanwhile but connections of this very process.
        with self._failing(key), nullcontext() if lazily else opened.snapshot():
            found = look_up(opened, target.local, [key])
            inputs = (*found.values(), *elsewhere)
            notes: tuple[str, ...] = ()
            head = opened.heads(target.table, [key]).get(key)
            if self._dry.is_compared:
                obstacle, notes = self._obstacle(opened, key, head, inputs)
                if obstacle is not None:
                    self._note(key, *obstacle, notes=notes, inputs=inputs)
                    return None
            self._refuse_missing(key, found)
            given = [source for source in target.local if source.input is not None]
            load = [one.load_lazily if lazily else one.load for one in given]
            wanted: Any = [key] if lazily else key
            arguments = {one.name: read(opened, wanted, target.manager) for one, read in zip(given, load, strict=True)}
            return _Begun(key=key, head=head, arguments=arguments, inputs=inputs, notes=notes)
        return None

    def _refuse_missing(self, key: str, found: Found) -> None:
        refuse_missing(key, self._target.local, found, self._target.slice_of(key).where)

    def _altered_inputs(self, opened: RereadStore, key: str) -> dict[Place, str]:
        """What another tool has written of what a partition reads, without a word to the ledger."""
        for source in self._target.local:
            new = [one for one in source.slices(key) if one not in self._altered]
            if new:
                self._look_altered(opened, new, opened.heads(source.table, [one.partition_key for one in new]))
        slices = [one for source in self._target.sources if source.has_ledger for one in source.slices(key)]
        return {(one.owner, one.partition_key): what for one in slices if (what := self._altered.get(one)) is not None}

    def _look_at_strangers(self, key: str) -> None:
        """The same of what lies in other databases, while that of the asset is closed."""
        for source in self._target.strangers:
            new = [one for one in source.slices(key) if one not in self._altered] if source.has_ledger else []
            if new and source.manager.store.connector.path.exists():
                with reread(source.manager.store) as opened:
                    self._look_altered(opened, new, opened.heads(source.table, [one.partition_key for one in new]))

    def _look_altered(
        self, opened: RereadStore, slices: Sequence[PartitionSlice], heads: Mapping[str | None, LedgerEntry]
    ) -> None:
        """Look once at each input partition: many partitions may read it."""
        for one in slices:
            head = heads.get(one.partition_key)
            is_altered = head is not None and opened.is_as_swapped(one, head) is False
            self._altered[one] = "was altered by another tool" if is_altered else None

    def _obstacle(
        self, opened: RereadStore, key: str, head: LedgerEntry | None, inputs: Sequence[InputPartition]
    ) -> tuple[tuple[Outcome, str] | None, tuple[str, ...]]:
        """Why a partition cannot be compared, if so, and what is uncertain if it can."""
        if head is None:
            return (Outcome.MISSING, "nothing was swapped that it could be compared with"), ()
        if head.provenance.config_hash != self._target.code.config_hash:
            then = "without any" if head.provenance.config_hash is None else "with another one"
            return (Outcome.CONFIG, f"it takes config, and was built {then}: give that by --config"), ()
        found = compare_inputs(head.provenance.inputs, inputs, with_ledger=self._with_ledger)
        restated = found.restated or self._altered_inputs(opened, key)
        if restated:
            return (Outcome.INPUTS, _listed(f"{_named(one)} {what}" for one, what in restated.items())), ()
        notes = [f"reads {_named(one)} now, which it did not when it was built" for one in found.added]
        notes += [f"nobody can tell whether {_named(one)} still holds what it was built from" for one in found.unknown]
        is_as_swapped = opened.is_as_swapped(self._target.slice_of(key), head)
        if is_as_swapped is False:
            return (Outcome.ALTERED, f"another tool has written its rows since run {head.run_id} has swapped them"), ()
        if is_as_swapped is None:
            notes.append("another release of DuckDB has hashed it: nobody can tell whether its rows were altered since")
        return None, tuple(notes)

    def _make(self, begun: _Begun, elsewhere: Mapping[str, Any], opened: RereadStore | None) -> _Made | None:
        """Have the function make the rows, under the conditions of the run, of the code that is judged by them."""
        made = self._call(begun, elsewhere, opened)
        # Whatever came of it: it is no matter of one partition, and nothing is said of code that has changed under it.
        self._recipe.code.refuse_changed_files(**self._target.slice_of(begun.key).where)
        return made

    def _call(self, begun: _Begun, elsewhere: Mapping[str, Any], opened: RereadStore | None) -> _Made | None:
        wants_relation = any(source.wants_relation for source in self._target.inputs)
        with self._failing(begun.key):
            if opened is not None and wants_relation:
                opened.find_frames(wanted=True)
            with disturbed(self._dry.conditions):
                returned = call(
                    self._recipe,
                    self._choices,
                    self._context,
                    [begun.key],
                    arguments={**begun.arguments, **elsewhere},
                    upstream_keys=self._target.upstream_keys,
                )
                rows = self._rows(begun.key, returned.value, opened)
            self.verdicts.add([begun.key], returned.checks)
            if opened is not None:
                opened.find_frames(wanted=False)
            return _Made(begun=begun, rows=rows)
        return None

    def _rows(self, key: str, value: Any, opened: RereadStore | None) -> Rows:
        if opened is not None and isinstance(value, duckdb.DuckDBPyRelation):
            query = opened.query_of(value)
            if query is not None:
                return query
        rows = frames.to_rows(value, self._target.slice_of(key).where)
        # A stream is pulled under the conditions of the run; and perhaps its rows are read twice.
        return rows.read_all() if isinstance(rows, pa.RecordBatchReader) else rows

    def _compare(self, opened: RereadStore, made: _Made) -> None:
        begun, slice_ = made.begun, self._target.slice_of(made.begun.key)
        with self._failing(begun.key):
            if not self._dry.is_compared or begun.head is None:
                computed = opened.measured(slice_, made.rows)
                self._note(begun.key, Outcome.COMPUTED, inputs=begun.inputs, computed=computed)
                return
            head = opened.heads(self._target.table, [begun.key]).get(begun.key)
            if head is None or head.position != begun.head.position:
                self._note(begun.key, Outcome.OVERTAKEN, "somebody has swapped it meanwhile", inputs=begun.inputs)
                return
            computed, difference = opened.compared(slice_, made.rows, head=head, ignored=self._dry.ignored)
            self._note(
                begun.key,
                difference.outcome,
                difference=difference,
                notes=begun.notes,
                inputs=begun.inputs,
                computed=computed,
            )


def _named(place: Place) -> str:
    owner, key = place
    return owner if key is None else f"{owner} {key!r}"


def _listed(items: Iterable[str]) -> str:
    found = list(items)
    more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return ", ".join(found[:_SHOWN]) + more


def _first_line(error: Exception) -> str:
    text = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
