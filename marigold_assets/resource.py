"""The same claim, swap, read and ledger for assets that write for themselves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import dagster as dg
import duckdb
import pyarrow as pa
from dagster_duckdb import DuckDBResource
from pydantic import Field, PrivateAttr

from marigold_assets import dagster_internals, frames, partitions, report
from marigold_assets.admitting import MAX_WRITERS, TIMEOUT_SECONDS
from marigold_assets.attempt import (
    RunningAttempt,
    assets_of_step,
    begin_attempt,
    explained,
    owner_of,
    shown_keys,
    stand_in_attempt,
)
from marigold_assets.dry import is_dry
from marigold_assets.errors import ConfigurationError, Where
from marigold_assets.model import (
    Claim,
    LedgerEntry,
    PartitionSlice,
    Provenance,
    Receipt,
    TableName,
    derive_swap_id,
)
from marigold_assets.run_tags import BACKFILL_TAG
from marigold_assets.stores.duckdb import DuckDBStore
from marigold_assets.uniformity import read_uniform, subject_of


class FencedPartitionResource(DuckDBResource):
    """A DuckDB database whose partitions are swapped under a fence, for assets that write for themselves.

    It takes the settings of ``dagster_duckdb.DuckDBResource`` and can stand in for it.

    Examples:
        .. code-block:: python

            @dg.asset(partitions_def=days, metadata={"partition_expr": "sale_date"})
            def daily_sales(
                context: dg.AssetExecutionContext, warehouse: FencedPartitionResource
            ) -> dg.MaterializeResult:
                orders = warehouse.read(context, "raw_orders", pd.DataFrame)
                return warehouse.swap(context, clean(orders))
    """

    schema_: str | None = Field(
        default=None, alias="schema", description="Schema of tables whose asset does not name one."
    )
    lock_timeout_seconds: float = Field(
        default=180.0, ge=0, description="Seconds to wait for a database that another process holds."
    )
    max_backfill_writers: int | None = Field(
        default=MAX_WRITERS,
        ge=1,
        description="How many attempts of runs that no schedule, sensor or automation condition has launched may work"
        " on the database at once; None for any number. Of those at work and whoever is next, the smallest counts.",
    )
    admission_timeout_seconds: float = Field(
        default=TIMEOUT_SECONDS, ge=0, description="Seconds that such a run waits until it may."
    )

    _attempt: RunningAttempt | None = PrivateAttr(default=None)
    _swaps: int = PrivateAttr(default=0)

    @classmethod
    def _is_dagster_maintained(cls) -> bool:
        return False

    def setup_for_execution(self, context: dg.InitResourceContext) -> None:
        """Draw the fencing token of this attempt, before any input is read."""
        self._attempt = begin_attempt(
            self.store,
            context,
            max_backfill_writers=self.max_backfill_writers,
            admission_timeout_seconds=self.admission_timeout_seconds,
        )

    def teardown_after_execution(self, context: dg.InitResourceContext) -> None:  # noqa: ARG002 - what Dagster calls
        """Forget the attempt, and give its place among the writers back."""
        self._end_attempt()

    @contextmanager
    def yield_for_execution(self, context: dg.InitResourceContext) -> Iterator[Any]:
        """Set up and tear down. The place goes back also where what a subclass sets up fails."""
        try:
            with super().yield_for_execution(context) as found:
                yield found
        finally:
            self._end_attempt()

    def _end_attempt(self) -> None:
        attempt, self._attempt = self._attempt, None
        if attempt is not None:
            attempt.end()

    @property
    def store(self) -> DuckDBStore:
        """The database, as this package sees it."""
        return DuckDBStore(self.database, config=self.connection_config, lock_timeout_seconds=self.lock_timeout_seconds)

    @contextmanager
    def get_connection(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """A connection for anything else, as from ``DuckDBResource``. What it writes is neither fenced nor recorded.

        The database is locked against other processes until the block ends. Where an asset is only proven, nothing can
        be written.

        Raises:
            StoreBusyError: Another process held the database until the deadline.
            StoreUnavailableError: The database cannot be opened.
        """
        connector = self.store.connector
        with connector.read(alone=False) if is_dry() else connector.share() as connection:
            yield connection

    def claim(self, context: dg.AssetExecutionContext, asset_key: dg.CoercibleToAssetKey | None = None) -> None:
        """Say that this run is about to write its partitions of an asset, so that older runs are refused from now on.

        A run of one partition has done so when it started; a range run has not.
        """
        key = _asset_key(_of_asset(context), asset_key)
        with explained(context.instance, context.run.run_id, self._where(context, key)):
            claims = [Claim(owner=owner_of(key), partition_key=s.partition_key) for s in self._slices(context, key)]
            self.store.claim(self._running().attempt, claims)

    def swap(
        self,
        context: dg.AssetExecutionContext,
        rows: Any,
        *,
        asset_key: dg.CoercibleToAssetKey | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> dg.MaterializeResult[Any]:
        """Replace the partitions that this step is about with the rows given.

        Args:
            context: The context of the asset.
            rows: Any frame, reader, relation or SQL that the IO manager takes, holding all partitions of the step.
            asset_key: Which asset, where the step makes several.
            metadata: More metadata for the materialization.

        Returns:
            A result to return from the asset: data version, tags and metadata of the swap. An asset that returns
            None instead is materialized with the same data version and metadata. In a range run every partition's
            metadata is its own, while all of them get one data version, which changes when the contents of any of them
            do; the ledger and the metadata ``marigold/content_hash`` have each partition's.

        Raises:
            dagster.Failure: The swap was refused, and repeating it cannot succeed.
            StoreBusyError: The store stayed locked until the deadline.
        """
        key = _asset_key(_of_asset(context), asset_key)
        with explained(context.instance, context.run.run_id, self._where(context, key)):
            slices = self._slices(context, key)
            attempt = self._running().attempt
            self._swaps += 1
            receipts = self.store.swap(
                slices,
                frames.to_rows(rows, slices[0].where),
                attempt=attempt,
                swap_id=derive_swap_id(
                    attempt.run_id,
                    str(context.op_execution_context.op_handle),
                    owner_of(key),
                    context.retry_number,
                    self._swaps,
                ),
                provenance=Provenance(
                    code_version=context.assets_def.specs_by_key[key].code_version,
                    step=str(context.op_execution_context.op_handle),
                    backfill_id=context.run.tags.get(BACKFILL_TAG),
                ),
                options=partitions.swap_options(context.assets_def.specs_by_key[key].metadata, slices[0].where),
            )
        return self._reported(context, key, receipts, frames.described_columns(rows), metadata or {})

    def read(
        self,
        context: dg.AssetExecutionContext,
        asset_key: dg.CoercibleToAssetKey,
        frame_type: object = pa.Table,
        *,
        columns: Sequence[str] | None = None,
        keys: Sequence[str] | None = None,
        uniform_version: bool = False,
    ) -> Any:
        """Read another asset of the same database, in one snapshot.

        Args:
            context: The context of the asset that reads.
            asset_key: The asset to read.
            frame_type: As the annotation of an input would say: ``pd.DataFrame``, ``pl.LazyFrame``, ``str``, ...
            columns: Columns wanted; all by default.
            keys: Partitions wanted. By default those that this step's partitions map to, or the whole table where the
                asset is not an input of this step.
            uniform_version: Whether to refuse partitions that were built under several definitions.

        Raises:
            dagster.Failure: Table, column or partition expression do not exist; or the partitions were.
            StoreBusyError: The store stayed locked until the deadline.
        """
        key = dg.AssetKey.from_coercible(asset_key)
        where = Where(asset=owner_of(key))
        with explained(context.instance, context.run.run_id, where):
            if self._attempt is not None:
                self._attempt.reading(first=False)
            table, slices = self._upstream(context, key, keys)
            where["table"] = str(table)
            if slices is not None and key in assets_of_step() and self.store.columns(table) is None:
                return frames.empty(frame_type, where)  # an asset that reads its own past has none yet

            def load() -> Any:
                return frames.load(self.store, (table, slices, columns), frame_type, where)

            if not uniform_version:
                return load()
            return read_uniform(
                self.store,
                subject_of(dagster_internals.upstream_node(context, key), table, owner_of(key), context.instance),
                slices,
                load,
                columns=columns,
                where=where,
                warn=context.log.warning,
            )

    def ledger(self, asset_key: dg.CoercibleToAssetKey | None = None) -> tuple[LedgerEntry, ...]:
        """The record of swaps in order: of one asset, or of the whole database."""
        entries = self.store.ledger()
        if asset_key is None:
            return entries
        owner = owner_of(dg.AssetKey.from_coercible(asset_key))
        return tuple(entry for entry in entries if entry.owner == owner)

    def _running(self) -> RunningAttempt:
        if self._attempt is None:
            self._attempt = RunningAttempt(store=self.store, attempt=stand_in_attempt(self.store))
        return self._attempt

    def _where(self, context: dg.AssetExecutionContext, key: dg.AssetKey) -> Where:
        """The place, for errors that do not know it themselves."""
        spec = context.assets_def.specs_by_key[key]
        keys = () if spec.partitions_def is None else context.partition_keys
        table = partitions.table_of_asset(key, spec.metadata, self.schema_)
        return Where(asset=owner_of(key), partition=shown_keys(keys), table=str(table))

    def _slices(self, context: dg.AssetExecutionContext, key: dg.AssetKey) -> tuple[PartitionSlice, ...]:
        spec = context.assets_def.specs_by_key[key]
        table = partitions.table_of_asset(key, spec.metadata, self.schema_)
        if spec.partitions_def is None:
            return (partitions.whole_table(table, owner_of(key)),)
        return partitions.slices_of_keys(
            table,
            owner_of(key),
            partitions_def=spec.partitions_def,
            keys=[str(k) for k in context.partition_keys],
            partition_expr=spec.metadata.get(partitions.PARTITION_EXPR),
        )

    def _upstream(
        self, context: dg.AssetExecutionContext, key: dg.AssetKey, keys: Sequence[str] | None
    ) -> tuple[TableName, tuple[PartitionSlice, ...] | None]:
        node = dagster_internals.upstream_node(context, key)
        metadata = node.metadata if node is not None else {}
        table = partitions.table_of_asset(key, metadata, self.schema_)
        partitions_def = node.partitions_def if node is not None else None
        if partitions_def is None:
            if keys is not None:
                raise ConfigurationError(
                    "partition keys were asked for, but this job knows of no partitions of the asset",
                    remedy=f"add deps=[{list(key.path)}] to the asset that reads, or read the whole table",
                )
            return table, None
        if keys is None:
            keys = _of_asset(context).asset_partition_keys_for_input(_input_name(context, key))
        return table, partitions.slices_of_keys(
            table,
            owner_of(key),
            partitions_def=partitions_def,
            keys=keys,
            partition_expr=metadata.get(partitions.PARTITION_EXPR),
        )

    def _reported(
        self,
        context: dg.AssetExecutionContext,
        key: dg.AssetKey,
        receipts: Sequence[Receipt],
        frame_columns: Sequence[tuple[str, str]] | None,
        metadata: Mapping[str, Any],
    ) -> dg.MaterializeResult[Any]:
        described = [{**report.metadata(receipt, frame_columns), **metadata} for receipt in receipts]
        for receipt, one in zip(receipts, described, strict=True):
            context.add_asset_metadata(one, asset_key=key, partition_key=receipt.entry.partition_key)
        entries = [receipt.entry for receipt in receipts]
        version = report.data_version(entries[0]) if len(entries) == 1 else report.joint_data_version(entries)
        context.set_data_version(key, version)
        return dg.MaterializeResult(asset_key=key, data_version=version, tags=report.tags(entries[0]))


def _of_asset(context: object) -> dg.AssetExecutionContext:
    """The context, if it is that of an asset: other contexts know nothing of its partitions and events.

    Raises:
        dagster.Failure: It is that of an op, a check or something else.
    """
    if isinstance(context, dg.AssetExecutionContext):
        return context
    with explained(None, None, Where()):
        raise ConfigurationError(
            f"the context given is a {type(context).__name__}, which knows nothing of an asset's partitions and events",
            remedy="annotate it as context: dg.AssetExecutionContext, also in the op of a graph asset; in an asset"
            " check, read with keys=[...]",
        )


def _asset_key(context: dg.AssetExecutionContext, given: dg.CoercibleToAssetKey | None) -> dg.AssetKey:
    keys: list[dg.AssetKey] = sorted(context.selected_asset_keys)
    key = keys[0] if given is None else dg.AssetKey.from_coercible(given)
    with explained(context.instance, context.run.run_id, Where(asset=owner_of(key))):
        if given is None and len(keys) != 1:
            raise ConfigurationError(
                f"the step makes {len(keys)} assets", remedy=f"say which: asset_key={list(key.path)}, for example"
            )
        if key not in context.assets_def.specs_by_key:
            made = ", ".join(str(list(other.path)) for other in sorted(context.assets_def.specs_by_key))
            raise ConfigurationError("the step does not make this asset", remedy=f"name one that it makes: {made}")
    return key


def _input_name(context: dg.AssetExecutionContext, key: dg.AssetKey) -> str:
    names: dict[dg.AssetKey, str] = {found: name for name, found in context.assets_def.keys_by_input_name.items()}
    if key not in names:
        raise ConfigurationError(
            f"the asset is not an input or a dependency of {', '.join(map(owner_of, context.assets_def.keys))}",
            remedy=f"add deps=[{list(key.path)}] to the asset that reads, or pass the partition keys wanted",
        )
    return names[key]
