"""The asset that a step builds: its table, its partitions, and what they read. It does not change while it is built."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property, lru_cache

import dagster as dg

from marigold_assets import partitions
from marigold_assets.attempt import explained, owner_of, shown_keys
from marigold_assets.errors import ConfigurationError, Where
from marigold_assets.inputs import Source
from marigold_assets.io_manager import FencedPartitionIOManager
from marigold_assets.lineage import Code
from marigold_assets.model import Claim, PartitionSlice, Provenance, SwapOptions
from marigold_assets.recipe import Choices, Recipe
from marigold_assets.run_tags import BACKFILL_TAG
from marigold_assets.stores.base import PartitionStore
from marigold_assets.uniformity import UNIFORM, refuse_mixture
from marigold_assets.windows import Windows

_REMEMBERED = 1_024  # partitions whose slices are kept at hand


class Target:
    """The asset that a step builds.

    Attributes:
        manager: The IO manager that stores it.
        owner: The asset as the ledger names it.
        table: Its table.
        keys: The partitions that the step is about, in the order in which they are built.
        dagster_keys: The same as Dagster has them: multi-dimensional keys are strings with more to them.
        sources: Everything that it reads.
        local: What of that lies in its own database.
        strangers: What does not.
        inputs: What its function is given of that.
        past: Its own past among the inputs, if it is a chain.
        code: The code that builds it.
        provenance: What the ledger says of its swaps, but for their inputs.
        slice_of: Gives the slice of a partition.

    Args:
        recipe: How it is built.
        context: The context of the step.
        choices: What the run chooses.
        keys: The partitions, where they are not those of the run.

    Raises:
        ConfigurationError: Resources or partitions of the run do not fit.
    """

    def __init__(
        self,
        recipe: Recipe,
        context: dg.AssetExecutionContext,
        choices: Choices,
        *,
        keys: Sequence[str] | None = None,
    ) -> None:
        self._context, self._choices = context, choices
        self._warned: set[str] = set()
        self._spec = context.assets_def.specs_by_key[context.asset_key]
        self.manager = _manager_of(context, recipe)
        self.owner = owner_of(context.asset_key)
        self.table = partitions.table_of_asset(context.asset_key, self._spec.metadata, self.manager.schema_)
        self.keys = _keys_of(context) if keys is None else list(keys)
        self.dagster_keys = {str(key): key for key in self.keys}
        self._partitions_def = context.assets_def.partitions_def
        self._windows = Windows(self._partitions_def, self.keys)
        self.slice_of = lru_cache(_REMEMBERED)(self._find_slice)
        self.sources = self._find_sources(recipe)
        self.local = [source for source in self.sources if source.is_local]
        self.strangers = [source for source in self.sources if not source.is_local]
        self.inputs = [source for source in self.sources if source.input is not None]
        self.past = next((source for source in self.inputs if source.is_own), None)
        self.code = Code(
            version=self._spec.code_version,
            fingerprint=recipe.code_fingerprint,
            config_hash=choices.config_hash,
        )
        self.provenance = Provenance(
            code_version=self.code.version,
            code_fingerprint=self.code.fingerprint,
            config_hash=self.code.config_hash,
            step=str(context.op_execution_context.op_handle),
            backfill_id=context.run.tags.get(BACKFILL_TAG),
        )

    @property
    def has_checks(self) -> bool:
        """Whether its function evaluates checks of its own."""
        return bool(list(self._context.assets_def.check_specs))

    @property
    def claims(self) -> list[Claim]:
        """What the step is about to write, as far as its run has not said so when it started."""
        if not self._context.has_partition_key_range:
            return []
        return [Claim(owner=self.owner, partition_key=str(key)) for key in self.keys]

    @cached_property
    def options(self) -> SwapOptions:
        """What the asset opts in to, and the run chooses.

        Raises:
            ConfigurationError: The asset's metadata says nothing of the kind.
        """
        where = Where(asset=self.owner, table=str(self.table))
        return partitions.swap_options(self._spec.metadata, where, cut_off=self._choices.cut_off)

    def upstream_keys(self, name: str, keys: Sequence[str]) -> Sequence[str]:
        """The partitions of an input that some keys read.

        Raises:
            ConfigurationError: There is no such input.
        """
        names = self._context.assets_def.keys_by_input_name
        source = next((s for s in self.sources if s.key == names.get(name)), None)
        if source is None:
            raise ConfigurationError(f"the asset has no input {name!r}", remedy=f"name one of {sorted(names)}")
        return list(dict.fromkeys(found for key in keys for found in source.keys(key)))

    @contextmanager
    def explained(self, keys: Sequence[str]) -> Iterator[None]:
        """Fail the step as an error means it, with the place as far as the error does not know it."""
        where = Where(asset=self.owner, partition=shown_keys(keys), table=str(self.table))
        with explained(self._context.instance, self._context.run.run_id, where):
            yield

    def refuse_mixed(
        self, store: PartitionStore, sources: Sequence[Source], keys: Sequence[str]
    ) -> dict[tuple[str, str | None], int]:
        """Refuse inputs that are needed under one definition and were built under several; say what is accepted.

        Args:
            store: Where the inputs that lie in the own database are looked up.
            sources: The inputs.
            keys: The partitions that are about to be computed.

        Returns:
            Which swap each of these input partitions holds.

        Raises:
            MixedVersionsError: There are such.
        """
        swaps: dict[tuple[str, str | None], int] = {}
        for source in sources:
            if source.input is None or not source.input.uniform:
                continue
            if not source.has_ledger:
                raise ConfigurationError(
                    f"input {source.owner} is needed under one definition, but its IO manager keeps no ledger",
                    remedy=f"store it by a FencedPartitionIOManager, or leave out {UNIFORM!r}",
                    **self.slice_of(keys[0]).where,
                )
            of_source = store if source.is_local else source.manager.store
            for key in keys:
                where, columns = self.slice_of(key).where, source.input.columns
                read = source.slices(key)
                heads = refuse_mixture(of_source, source.subject, read, columns, where=where, warn=self._warn_once)
                swaps |= {(source.owner, found): entry.position for found, entry in heads.items()}
        return swaps

    def warn(self, text: str, key: str | None = None) -> None:
        """Warn of something in the run's log."""
        self._context.log.warning(self._said(text, key))

    def _warn_once(self, text: str) -> None:
        if text not in self._warned:
            self._warned.add(text)
            self.warn(text)

    def inform(self, text: str) -> None:
        """Say something in the run's log."""
        self._context.log.info(self._said(text))

    def _said(self, text: str, key: str | None = None) -> str:
        partition = "" if key is None else f" partition {key!r},"
        return f"asset {self.owner!r},{partition} table {str(self.table)!r}: {text}"

    def _find_slice(self, key: str) -> PartitionSlice:
        [slice_] = partitions.slices_of_keys(
            self.table,
            self.owner,
            partitions_def=self._partitions_def,
            keys=[key],
            partition_expr=self._spec.metadata.get(partitions.PARTITION_EXPR),
            windows=self._windows,
        )
        return slice_

    def _find_sources(self, recipe: Recipe) -> list[Source]:
        inputs = {given.name: given for given in recipe.inputs}
        names = self._context.assets_def.keys_by_input_name
        return [
            Source(self._context, self.manager, key, inputs.get(name), self._windows) for name, key in names.items()
        ]


def _manager_of(context: dg.AssetExecutionContext, recipe: Recipe) -> FencedPartitionIOManager:
    manager = getattr(context.resources, recipe.io_manager_key)
    if isinstance(manager, FencedPartitionIOManager):
        return manager
    raise ConfigurationError(
        f"resource {recipe.io_manager_key!r} is a {type(manager).__name__}, which cannot swap partitions",
        remedy=f'set Definitions(resources={{"{recipe.io_manager_key}": FencedPartitionIOManager(...)}})',
    )


def _keys_of(context: dg.AssetExecutionContext) -> list[str]:
    if not (context.has_partition_key or context.has_partition_key_range):
        raise ConfigurationError(
            "the run names no partition", remedy="launch it for a partition, a range of them, or a backfill"
        )
    try:
        return list(context.partition_keys)
    except Exception as error:
        raise ConfigurationError(
            f"the partitions of the run are not those of the asset: {error}",
            remedy="launch the run again for partitions that the asset has",
        ) from error
