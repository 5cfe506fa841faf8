"""What one partition reads: which partitions of which tables, and how they come to the function."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property, lru_cache
from typing import Any

import dagster as dg

from marigold_assets import dagster_internals, frames, partitions
from marigold_assets.attempt import owner_of
from marigold_assets.errors import ConfigurationError, MissingInputError, Where
from marigold_assets.io_manager import FencedPartitionIOManager
from marigold_assets.model import InputPartition, PartitionSlice, Place, TableName
from marigold_assets.stores.base import PartitionStore, Read
from marigold_assets.stores.duckdb import KeptDuckDBStore
from marigold_assets.stores.inputs import nothing
from marigold_assets.uniformity import Subject, subject_of
from marigold_assets.windows import Windows

ALLOW_MISSING = "marigold/allow_missing"
"""Metadata of an input: whether partitions that were never materialized count as empty."""
_MANY = 5
_REMEMBERED = 1_024  # partitions whose input partitions are kept at hand: those of one opening, and the neighbours


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """An asset that the function reads, as the asset's definition says it.

    Attributes:
        name: The parameter.
        annotation: Its annotation, which decides what it is loaded as.
        columns: Columns to load; ``None`` for all.
        input_manager_key: The resource that loads it, where that is not the asset's own IO manager.
        allow_missing: Whether partitions that were never materialized count as empty.
        uniform: Whether partitions that are read together must have been built under one definition.
    """

    name: str
    annotation: Any
    columns: tuple[str, ...] | None = None
    input_manager_key: str | None = None
    allow_missing: bool = False
    uniform: bool = False

    @property
    def is_in_warehouse(self) -> bool:
        """Whether the function computes with it inside the database: SQL text or a relation."""
        return frames.is_in_warehouse(self.annotation)


class Source:
    """An asset that the running step reads.

    Attributes:
        key: The asset.
        owner: The asset as the ledger names it.
        is_own: Whether it is the past of the asset that is being built.
        has_ledger: Whether a ledger knows what its partitions hold.
        is_local: Whether it lies in the database of the asset that is being built.
        keys: Gives the partitions that one partition reads, in order; none of an asset without partitions.
        slices: Gives the slices that one partition reads; the whole table, of an asset without partitions.

    Args:
        context: The context of the step.
        manager: The IO manager of the asset that is being built.
        key: The asset that is read.
        given: The input, or ``None`` for a mere dependency, which the function reads by itself, if at all.
        windows: The windows of the partitions that are being built.
    """

    def __init__(
        self,
        context: dg.AssetExecutionContext,
        manager: FencedPartitionIOManager,
        key: dg.AssetKey,
        given: Input | None,
        windows: Windows,
    ) -> None:
        self._context = context
        self._windows = windows
        self._as_of = datetime.now(UTC)  # partitions that come while the step runs do not change what it reads
        self.key = key
        self.owner = owner_of(key)
        self.is_own = bool(key == context.asset_key)
        self.input = given
        self._node = dagster_internals.upstream_node(context, key)
        self.metadata: Mapping[str, Any] = self._node.metadata if self._node is not None else {}
        self.partitions_def = self._node.partitions_def if self._node is not None else None
        self.manager = self._manager(manager)
        self.has_ledger = isinstance(self.manager, FencedPartitionIOManager)
        self.is_local = self.has_ledger and _same_file(self.manager, manager)
        self._refuse_foreign_sql()
        self._is_alike = self.partitions_def == windows.definition
        self.keys = lru_cache(_REMEMBERED)(self._find_keys)
        self.slices = lru_cache(_REMEMBERED)(self._find_slices)

    @cached_property
    def table(self) -> TableName:
        """Its table, where it is one of the database."""
        schema = self.manager.schema_ if isinstance(self.manager, FencedPartitionIOManager) else None
        return partitions.table_of_asset(self.key, self.metadata, schema)

    @cached_property
    def subject(self) -> Subject:
        """It as a table whose versions are looked at."""
        return subject_of(self._node, self.table, self.owner, self._context.instance)

    @property
    def where(self) -> Where:
        """It as an error names it."""
        return Where(asset=self.owner, table=str(self.table))

    def _find_keys(self, key: str) -> tuple[str, ...]:
        """The partitions that one partition reads.

        Raises:
            ConfigurationError: The partition mapping asks for partitions that its asset cannot have.
        """
        if self.partitions_def is None:
            return ()
        if self._is_alike:
            if not self.is_own and self._is_identity:
                return (key,)
            if self._mapping is not None and (among := self._windows.shifted(key, self._mapping)) is not None:
                return among
        found, nonexistent = dagster_internals.upstream_keys(self._context, self.key, key, self._as_of)
        nonexistent = nonexistent or self._beyond_the_end(key)
        if nonexistent and not self.is_own:
            raise ConfigurationError(
                f"partition {key!r} reads {_shown(nonexistent)} of {self.owner}, which has no such partition",
                remedy="wait until its partitions are there, correct the partition mapping, or allow it:"
                " TimeWindowPartitionMapping(allow_nonexistent_upstream_partitions=True)",
            )
        return found

    def _beyond_the_end(self, key: str) -> tuple[str, ...]:
        """What a mapping that looks ahead asks for and that is not there yet: Dagster leaves it out without a word."""
        mapping = self._mapping
        if (
            not isinstance(mapping, dg.TimeWindowPartitionMapping)
            or mapping.end_offset <= 0
            or mapping.allow_nonexistent_upstream_partitions
            or not self._has_keys_alike
        ):
            return ()
        behind = self._all_keys[self._all_keys.index(key) :] if key in self._all_keys else ()
        missing = mapping.end_offset + 1 - len(behind)
        return (f"{missing} after {self._all_keys[-1]}",) if behind and missing > 0 else ()

    @property
    def _has_keys_alike(self) -> bool:
        """Whether a key means the same window as for the asset that reads it, whenever either begins."""
        ours, theirs = self._windows.definition, self.partitions_def
        if not isinstance(ours, dg.TimeWindowPartitionsDefinition):
            return False
        if not isinstance(theirs, dg.TimeWindowPartitionsDefinition):
            return False
        return (ours.cron_schedule, ours.timezone, ours.fmt) == (theirs.cron_schedule, theirs.timezone, theirs.fmt)

    @cached_property
    def _all_keys(self) -> tuple[str, ...]:
        definition = self.partitions_def
        return () if definition is None else tuple(definition.get_partition_keys(current_time=self._as_of))

    @cached_property
    def _mapping(self) -> dg.PartitionMapping | None:
        found: dg.PartitionMapping | None = self._context.assets_def.get_partition_mapping_for_dep(self.key)
        return found

    @property
    def _is_identity(self) -> bool:
        return self._mapping is None or isinstance(self._mapping, dg.IdentityPartitionMapping)

    def _find_slices(self, key: str) -> tuple[PartitionSlice, ...]:
        """The slices that one partition reads; without a ledger, nobody needs to know which rows they are."""
        if self.partitions_def is None:
            return (partitions.whole_table(self.table, self.owner),)
        if not self.has_ledger:
            return tuple(
                PartitionSlice(table=self.table, partition_key=found, owner=self.owner) for found in self.keys(key)
            )
        return partitions.slices_of_keys(
            self.table,
            self.owner,
            partitions_def=self.partitions_def,
            keys=self.keys(key),
            partition_expr=self.metadata.get(partitions.PARTITION_EXPR),
            windows=self._windows if self._is_alike else None,
        )

    def line_before(self, key: str) -> tuple[str, ...]:
        """For the past of a chain: all partitions before one, in the order in which they are built upon each other."""
        if self.partitions_def is None:
            return ()
        return partitions.line_before(self.partitions_def, key, self._context.instance)

    def refuse_undeclared(self) -> None:
        """Refuse an asset without partitions whose table has them: all of them would be read for each.

        Raises:
            ConfigurationError: It is one.
        """
        if self.partitions_def is not None or not self.has_ledger:
            return
        newest = self.manager.store.newest(self.table)
        if newest is not None and newest.partition_key is not None:
            raise ConfigurationError(
                f"{self.owner} is read as a table without partitions, but its partitions are swapped one by one"
                f" (such as {newest.partition_key!r})",
                remedy=f"say what its partitions are: AssetSpec({list(self.key.path)}, partitions_def=...,"
                ' metadata={"partition_expr": ...}), or take the asset itself into the definitions',
                asset=owner_of(self._context.asset_key),
                table=str(self.table),
            )

    def reads(self, key: str) -> tuple[Read, ...]:
        """The slices of this database that one partition reads, for the swap to look up."""
        if not self.is_local:
            return ()
        required = self.input is not None and not self.input.allow_missing
        return tuple(Read(slice_=slice_, required=required) for slice_ in self.slices(key))

    def wanted_type(self, manager: FencedPartitionIOManager) -> Any:
        """What the function wants it as."""
        wanted = self.input.annotation if self.input is not None else Any
        return wanted if frames.is_loadable(wanted) else manager.default_type(self.where)

    def arguments(self, keys: Sequence[str]) -> tuple[TableName, Sequence[PartitionSlice] | None, Sequence[str] | None]:
        """What is to be read from its table for some partitions."""
        columns = self.input.columns if self.input is not None else None
        if self.partitions_def is None:
            return self.table, None, columns
        slices = {one.partition_key: one for key in keys for one in self.slices(key)}
        return self.table, tuple(slices.values()), columns

    @property
    def wants_relation(self) -> bool:
        """Whether the function computes with it as a relation."""
        return self.input is not None and frames.is_relation(self.input.annotation)

    @property
    def name(self) -> str:
        """The parameter."""
        return self.input.name if self.input is not None else self.owner

    def load(self, store: PartitionStore, key: str, manager: FencedPartitionIOManager) -> Any:
        """Load what one partition reads, as the function wants it; ``None`` for a past that there cannot be."""
        table, slices, columns = self.arguments([key])
        if self.is_own and not slices:
            return None
        wanted = self.wanted_type(manager)
        if self.input is not None and self.input.allow_missing and store.columns(table) is None:
            return frames.empty(wanted, self.where)
        return frames.load(store, (table, slices, columns), wanted, self.where)

    def load_lazily(self, opened: KeptDuckDBStore, keys: Sequence[str], manager: FencedPartitionIOManager) -> Any:
        """The same for some partitions together; SQL and relations are not computed yet."""
        table, slices, columns = self.arguments(keys)
        if self.is_own and not slices:
            return None
        wanted = self.wanted_type(manager)
        if frames.is_relation(wanted):
            return opened.relation(table, slices, columns)
        return frames.load(opened, (table, slices, columns), wanted, self.where)

    def load_elsewhere(self, key: str) -> Any:
        """Load what one partition reads from the IO manager that has it.

        Where it reads none, other IO managers than ours would not know what to make of that.
        """
        keys = self.keys(key)
        if self.partitions_def is not None and not keys and not isinstance(self.manager, FencedPartitionIOManager):
            return None
        context = dagster_internals.input_context(
            self._context,
            self.key,
            keys if self.partitions_def is not None else None,
            name=self.name,
            wanted=self.input.annotation if self.input is not None else Any,
            metadata={"columns": self.input.columns} if self.input and self.input.columns else None,
            manager_key=(self.input and self.input.input_manager_key)
            or dagster_internals.io_manager_key_of(self._context, self.key),
        )
        return self.manager.load_input(context)

    def _refuse_foreign_sql(self) -> None:
        """Refuse SQL text over another database, which would be run in this one, over what has the same name here."""
        if self.input is None or self.is_local or not isinstance(self.manager, FencedPartitionIOManager):
            return
        if frames.is_sql(self.input.annotation):
            raise ConfigurationError(
                f"input {self.input.name!r} is wanted as SQL text, but lies in another database, that of"
                f" {self.input.input_manager_key!r}",
                remedy="annotate it as duckdb.DuckDBPyRelation or as a frame",
                asset=owner_of(self._context.asset_key),
            )

    def _manager(self, own: FencedPartitionIOManager) -> Any:
        if self.input is not None and self.input.input_manager_key is not None:
            return getattr(self._context.resources, self.input.input_manager_key)
        found = dagster_internals.io_manager_key_of(self._context, self.key)
        mine = dagster_internals.io_manager_key_of(self._context, self._context.asset_key)
        if found is None or found == mine:
            return own
        if self.input is None:  # which the function reads by itself, if at all
            return None
        raise ConfigurationError(
            f"input {self.input.name!r} is stored by the IO manager {found!r}, and not by {mine!r}",
            remedy=f'name it: ins={{"{self.input.name}": AssetIn(input_manager_key="{found}")}}',
            asset=owner_of(self._context.asset_key),
        )


Found = Mapping[Place, InputPartition]
"""What input partitions hold, by owner and partition."""


def look_up(store: PartitionStore, sources: Sequence[Source], keys: Sequence[str]) -> Found:
    """What the inputs of some partitions hold now; unknown where they lie elsewhere."""
    slices = [s for source in sources if source.is_local for key in keys for s in source.slices(key)]
    return _by_place(store.inputs(list(dict.fromkeys(slices)))) | look_up_elsewhere(sources, keys)


def look_up_elsewhere(sources: Sequence[Source], keys: Sequence[str]) -> dict[Place, InputPartition]:
    """The inputs of some partitions that lie elsewhere: by the ledger that is there, or else unknown."""
    found: dict[Place, InputPartition] = {}
    for source in sources:
        slices = [] if source.is_local else list(dict.fromkeys(s for key in keys for s in source.slices(key)))
        found |= _by_place(source.manager.store.inputs(slices) if source.has_ledger and slices else nothing(slices))
    return found


def _by_place(found: Iterable[InputPartition]) -> dict[Place, InputPartition]:
    return {(one.owner, one.partition_key): one for one in found}


def refuse_missing(key: str, sources: Sequence[Source], found: Found, where: Where) -> None:
    """Refuse to compute a partition from input partitions that were never materialized.

    Args:
        key: The partition.
        sources: What it reads.
        found: What the store holds of it, by owner and partition.
        where: The partition, for the error.

    Raises:
        MissingInputError: There are such.
    """
    for source in sources:
        if source.input is None or source.input.allow_missing or not source.has_ledger:
            continue
        keys = [s.partition_key for s in source.slices(key)]
        if missing := [k for k in keys if found[source.owner, k].content_hash is None]:
            raise missing_past(source, missing, where) if source.is_own else missing_input(source, missing, where)


def missing_input(source: Source, missing: Sequence[str | None], where: Where) -> MissingInputError:
    """The error of an input that is not there."""
    what = f"partition {_shown([str(k) for k in missing])}" if missing != [None] else "table"
    return MissingInputError(
        f"input {source.owner}: its {what} was never materialized",
        remedy=f"materialize {source.owner} first, or let it count as empty:"
        f' AssetIn(metadata={{"{ALLOW_MISSING}": True}})',
        **where,
    )


def missing_past(source: Source, missing: Sequence[str | None], where: Where) -> MissingInputError:
    """The error of a chain that is not built in order."""
    first = str(missing[0])
    return MissingInputError(
        f"its past is missing from partition {first!r} on, and a chain is built in order",
        remedy=f"build {first!r} to {where.get('partition')!r} together: from the asset's own page (Materialize), which"
        " keeps the order also where a job's page starts several runs at once, or by"
        f" {shlex.join(['marigold', 'launch', source.owner, '--from', first, '--to', str(where.get('partition'))])}",
        **where,
    )


def _shown(keys: Sequence[str]) -> str:
    more = f", ... ({len(keys)})" if len(keys) > _MANY else ""
    return ", ".join(map(repr, keys[:_MANY])) + more


def _same_file(one: FencedPartitionIOManager, other: FencedPartitionIOManager) -> bool:
    paths = [os.path.realpath(manager.store.connector.path) for manager in (one, other)]
    return paths[0] == paths[1]
