"""An IO manager that swaps partitions under a fence: the token is drawn early, the swap comes late."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import dagster as dg
import pandas as pd
import pyarrow as pa
from pydantic import Field, PrivateAttr

from marigold_assets import dagster_internals, frames, partitions, report
from marigold_assets.admitting import MAX_WRITERS, TIMEOUT_SECONDS
from marigold_assets.attempt import (
    RunningAttempt,
    assets_of_step,
    begin_attempt,
    claims_of_range_step,
    explained,
    owner_of,
    shown_keys,
    stand_in_attempt,
)
from marigold_assets.errors import ConfigurationError, UnsupportedTypeError, Where
from marigold_assets.model import Attempt, Claim, PartitionSlice, Provenance, Receipt, TableName, derive_swap_id
from marigold_assets.run_tags import BACKFILL_TAG
from marigold_assets.stores.duckdb import DuckDBStore
from marigold_assets.uniformity import UNIFORM, read_uniform, subject_of


class FencedPartitionIOManager(dg.ConfigurableIOManager):
    """Stores frames in a DuckDB file, one atomic and fenced swap a step, and loads them.

    A drop-in for ``DuckDBPandasIOManager`` and ``DuckDBPolarsIOManager``: the same settings, the same tables, the same
    metadata. It takes and gives pandas and polars frames, Arrow tables and readers, DuckDB relations and SQL text; the
    annotation of an input decides how it is loaded.

    Asset metadata that it reads:

    * ``partition_expr``: the column or SQL expression that tells a row's partition; a dict by dimension for
      multi-dimensional partitions.
    * ``schema``: the schema of the table.
    * ``marigold/evolve``: ``True`` to add new columns and widen types instead of failing.
    * ``marigold/renamed_from``: former key of the asset, whose table it takes over.

    ``columns`` in the metadata of an input loads only those columns; ``marigold/uniform_version`` refuses partitions
    that were built under several definitions.

    Examples:
        .. code-block:: python

            @dg.asset(
                partitions_def=dg.DailyPartitionsDefinition("2024-01-01"),
                metadata={"partition_expr": "sale_date"},
                key_prefix=["sales"],
            )
            def daily_sales(raw_orders: pd.DataFrame) -> pd.DataFrame: ...

            defs = dg.Definitions(
                assets=[daily_sales],
                resources={"io_manager": FencedPartitionIOManager(database="/data/market.duckdb")},
            )
    """

    database: str = Field(description="Path to the DuckDB database.")
    connection_config: dict[str, Any] = Field(
        default={},
        description="DuckDB connection configuration options. See https://duckdb.org/docs/configuration.",
    )
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
    default_load_type: Literal["pandas", "polars", "arrow"] = Field(
        default="pandas", description="Type of frame for inputs without a type annotation."
    )

    _attempt: RunningAttempt | None = PrivateAttr(default=None)

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

    def handle_output(self, context: dg.OutputContext, obj: Any) -> None:
        """Swap what a step returned into its partitions and log one materialization a partition."""
        step = dagster_internals.step_context_of(context)
        instance, run_id = (step.instance, step.run_id) if step is not None else (None, None)
        table, owner = self._table(context, context, context.definition_metadata or {})
        with explained(instance, run_id, _where(context, table, owner)):
            slices = self._output_slices(context, table, owner)
            receipts = self._swap(context, slices, obj)
        _log_receipts(context, receipts, frames.described_columns(obj))

    def load_input(self, context: dg.InputContext) -> Any:
        """Load a table, or the partitions of it that an input asks for, as the annotated type of frame."""
        upstream = context.upstream_output
        metadata = (upstream.definition_metadata if upstream is not None else None) or {}
        table, owner = self._table(context, upstream or context, metadata)
        where = _where(context, table, owner)
        reader = context.op_def.name if self._attempt is not None else None
        with explained(None, None, where, reader=reader):
            self._begin_reading(context)
            slices = _slices(context, table, owner, metadata) if context.has_asset_partitions else None
            columns = (context.definition_metadata or {}).get("columns")
            wanted = context.dagster_type.typing_type
            kind = wanted if frames.is_loadable(wanted) else self.default_type(where)
            own_past = slices is not None and (not slices or context.asset_key in assets_of_step())
            if own_past and self.store.columns(table) is None:
                return frames.empty(kind, where)

            def load() -> Any:
                return frames.load(self.store, (table, slices, columns), kind, where)

            needs_one = (context.definition_metadata or {}).get(UNIFORM)
            loaded = self._read_uniform(context, (table, owner), slices, load) if needs_one else load()
            self._refuse_overwritten(upstream, table, where)
            return loaded

    def _read_uniform(
        self,
        context: dg.InputContext,
        place: tuple[TableName, str],
        slices: Sequence[PartitionSlice] | None,
        load: Callable[[], Any],
    ) -> Any:
        """Load an input that is needed under one definition."""
        table, owner = place
        node, instance = dagster_internals.node_of_input(context)
        return read_uniform(
            self.store,
            subject_of(node, table, owner, instance),
            slices,
            load,
            columns=(context.definition_metadata or {}).get("columns"),
            where=Where(asset=owner, table=str(table)),
            warn=context.log.warning if self._attempt is not None else warnings.warn,
        )

    def _begin_reading(self, context: dg.InputContext) -> None:
        """Have a token older than what is read, and claim the keys of a range run, known only within a step."""
        if self._attempt is None:
            return
        attempt = self._attempt.reading(first=dagster_internals.is_first_input(context))
        if claims := claims_of_range_step():
            self.store.claim(attempt, claims)

    def _refuse_overwritten(self, upstream: dg.OutputContext | None, table: TableName, where: Where) -> None:
        """Refuse what was read as an op's output if meanwhile another op, or another run, has written the table."""
        if self._attempt is None or upstream is None or upstream.has_asset_key:
            return
        entry = self.store.newest(table)
        if entry is not None and (entry.run_id, entry.provenance.step) != (upstream.run_id, _place(upstream)):
            raise ConfigurationError(
                f"the table holds what step {entry.provenance.step!r} of run {entry.run_id} wrote, and not the output"
                f" of {_place(upstream)!r}, which it has replaced",
                remedy='give every output a table of its own, Out(metadata={"table": ...}), let one run at a time write'
                " it, and dynamic outputs another IO manager",
                **where,
            )

    def begin_building(self, claims: Sequence[Claim]) -> tuple[DuckDBStore, Attempt]:
        """For a step that reads and swaps for itself: the store, and an attempt that is older than whatever it reads.

        Args:
            claims: What the step is about to write.
        """
        attempt = stand_in_attempt(self.store) if self._attempt is None else self._attempt.reading(first=True)
        if claims:
            self.store.claim(attempt, claims)
        return self.store, attempt

    @property
    def store(self) -> DuckDBStore:
        """The database."""
        return DuckDBStore(self.database, config=self.connection_config, lock_timeout_seconds=self.lock_timeout_seconds)

    def _swap(self, context: dg.OutputContext, slices: Sequence[PartitionSlice], obj: Any) -> tuple[Receipt, ...]:
        step = dagster_internals.step_context_of(context)
        attempt = self._attempt.attempt if self._attempt else stand_in_attempt(self.store)
        return self.store.swap(
            slices,
            frames.to_rows(obj, slices[0].where),
            attempt=attempt,
            swap_id=derive_swap_id(
                attempt.run_id,
                context.step_key if step is not None else None,
                context.name if step is not None else None,
                context.mapping_key,
                step.previous_attempt_count if step is not None else 0,
            ),
            provenance=Provenance(
                code_version=_code_version(context),
                step=_place(context) if step is not None else None,
                backfill_id=step.dagster_run.tags.get(BACKFILL_TAG) if step is not None else None,
            ),
            options=partitions.swap_options(context.definition_metadata or {}, slices[0].where),
        )

    def _table(
        self,
        context: dg.InputContext | dg.OutputContext,
        named: dg.InputContext | dg.OutputContext,
        metadata: Mapping[str, Any],
    ) -> tuple[TableName, str]:
        """The table of an asset, or of an op's output by its name, and its owner."""
        if context.has_asset_key:
            table = partitions.table_of_asset(context.asset_key, metadata, self.schema_)
            return table, owner_of(context.asset_key)
        table = partitions.table_of_output(named.name, metadata, self.schema_)
        return table, f"op output {table}"

    def _output_slices(self, context: dg.OutputContext, table: TableName, owner: str) -> tuple[PartitionSlice, ...]:
        if not (context.has_asset_key and context.has_asset_partitions):
            return (partitions.whole_table(table, owner),)
        return _slices(context, table, owner, context.definition_metadata or {})

    def default_type(self, where: Where) -> type:
        """What inputs without an annotation are loaded as."""
        if self.default_load_type == "pandas":
            return pd.DataFrame
        if self.default_load_type == "arrow":
            return pa.Table
        try:
            import polars as pl  # noqa: PLC0415 - optional
        except ImportError:
            raise UnsupportedTypeError(
                "default_load_type is 'polars', which is not installed",
                remedy="install marigold-assets[polars], or choose 'pandas' or 'arrow'",
                **where,
            ) from None
        return pl.DataFrame


def _slices(
    context: dg.InputContext | dg.OutputContext, table: TableName, owner: str, metadata: Mapping[str, Any]
) -> tuple[PartitionSlice, ...]:
    return partitions.slices_of_keys(
        table,
        owner,
        partitions_def=context.asset_partitions_def,
        keys=context.asset_partition_keys,
        partition_expr=metadata.get(partitions.PARTITION_EXPR),
    )


def _where(context: dg.InputContext | dg.OutputContext, table: TableName, owner: str) -> Where:
    """The place, for errors that do not know it themselves."""
    keys = context.asset_partition_keys if context.has_asset_key and context.has_asset_partitions else ()
    return Where(asset=owner, partition=shown_keys(keys), table=str(table))


def _place(context: dg.OutputContext) -> str:
    """The step as the ledger names it; for an output of an op, whose table is that of its name, with that name."""
    if context.has_asset_key:
        return context.step_key
    key = "" if context.mapping_key is None else f"[{context.mapping_key}]"
    return f"{context.step_key}.{context.name}{key}"


def _code_version(context: dg.OutputContext) -> str | None:
    by_hand = dagster_internals.step_context_of(context) is None
    return context.asset_spec.code_version if context.has_asset_key and not by_hand else None


def _log_receipts(
    context: dg.OutputContext, receipts: Sequence[Receipt], frame_columns: Sequence[tuple[str, str]] | None
) -> None:
    """Have one materialization event a partition say what its own swap says."""
    taken = context.output_metadata
    described = [
        {key: value for key, value in report.metadata(receipt, frame_columns).items() if key not in taken}
        for receipt in receipts
    ]
    if len(receipts) == 1:
        context.add_output_metadata(described[0])
    if not context.has_asset_key or dagster_internals.step_context_of(context) is None:
        return
    output = dagster_internals.output_being_stored()
    versions = [report.data_version(receipt.entry) for receipt in receipts]
    tags = [report.tags(receipt.entry) for receipt in receipts]
    if output is None:
        context.log.warning(
            "This release of Dagster stores outputs in a way that marigold_assets does not know: the tags and, in range"
            " runs, the metadata of single partitions are missing from the materialization events."
        )
        if len(receipts) == 1:
            dg.AssetExecutionContext.get().set_data_version(context.asset_key, versions[0])
    elif len(receipts) == 1:
        dagster_internals.version_output(context, output, versions[0], tags[0])
    else:
        keys = [str(receipt.entry.partition_key) for receipt in receipts]
        dagster_internals.log_materializations(context, output, list(zip(keys, versions, described, tags, strict=True)))
