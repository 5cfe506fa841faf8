"""A code location, loaded in this process as Dagster's own commands load it, and where its assets are stored."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any

import dagster as dg

from marigold_assets import dagster_loading, partitions
from marigold_assets.asset import PartitionedAssetsDefinition
from marigold_assets.attempt import owner_of
from marigold_assets.code.loaded import LoadedCode
from marigold_assets.errors import ConfigurationError, StoreUnavailableError
from marigold_assets.io_manager import FencedPartitionIOManager
from marigold_assets.lineage import Code
from marigold_assets.loading import Loaded, Loader, LocationOptions, environment
from marigold_assets.model import TableName
from marigold_assets.resource import FencedPartitionResource
from marigold_assets.stores.duckdb import DuckDBStore

__all__ = ["CodeLocation", "LocatedAsset", "LocationOptions", "environment", "load"]

Manager = FencedPartitionIOManager | FencedPartitionResource
_MOST_MEANT = 3
_MOST_LISTED = 10


@dataclass(frozen=True, kw_only=True)
class LocatedAsset:
    """An asset of a code location.

    Attributes:
        key: Its key.
        owner: The same as the ledger has it.
        definition: What makes it, perhaps beside others.
        spec: What is said of it alone.
        resources: Everything that it needs to run, by resource key.
        arguments: What names its code location to Dagster's commands.
    """

    key: dg.AssetKey
    owner: str
    definition: dg.AssetsDefinition
    spec: dg.AssetSpec
    resources: Mapping[str, dg.ResourceDefinition]
    arguments: tuple[str, ...] = ()

    @property
    def partitions_def(self) -> dg.PartitionsDefinition[Any] | None:
        """Its partitions, if it has any."""
        return self.spec.partitions_def

    def partition_keys(
        self, instance: dg.DagsterInstance | None = None, *, as_of: datetime | None = None
    ) -> list[str | None]:
        """Its partitions in order; ``[None]`` if it has none.

        Args:
            instance: Where dynamic partitions are.
            as_of: When intervals must have ended to be partitions (aware); ``None``: now.

        Raises:
            ConfigurationError: It has dynamic partitions, and there is no instance.
        """
        definition = self.partitions_def
        if definition is None:
            return [None]
        if instance is None and is_dynamic(definition):
            raise ConfigurationError(
                "the asset has dynamic partitions, which only a Dagster instance knows",
                remedy="set DAGSTER_HOME to the folder of the instance",
                asset=self.owner,
            )
        found = definition.get_partition_keys(current_time=as_of, dynamic_partitions_store=instance)
        return [str(key) for key in found]

    @property
    def function(self) -> Callable[..., Any] | None:
        """The function that its author wrote; ``None`` where it is made otherwise, by a graph for instance."""
        compute = getattr(self.definition.node_def, "compute_fn", None)
        function = getattr(compute, "decorated_fn", None)
        return getattr(function, "__wrapped__", None) if self.is_partitioned_asset else function

    @property
    def is_partitioned_asset(self) -> bool:
        """Whether :func:`marigold_assets.partitioned_asset` has made it."""
        return isinstance(self.definition, PartitionedAssetsDefinition)

    @property
    def code(self) -> Code:
        """Its present code, as the ledger would record it."""
        return Code(version=self.spec.code_version, fingerprint=self.code_fingerprint)

    @property
    def code_fingerprint(self) -> str | None:
        """What the present code is, as the ledger records it; ``None`` for assets of which it records nothing."""
        return None if self.loaded_code is None or not self.is_partitioned_asset else self.loaded_code.fingerprint

    @cached_property
    def loaded_code(self) -> LoadedCode | None:
        """The code of its function, as it was loaded; ``None`` if no Python function makes it."""
        if not self.definition.is_executable:
            return None
        if isinstance(self.definition, PartitionedAssetsDefinition):
            return self.definition.code
        return None if self.function is None else LoadedCode(self.function)

    @cached_property
    def manager(self) -> Manager:
        """The IO manager or resource that stores it, with its settings looked up, not set up for a run.

        Raises:
            ConfigurationError: It is stored by something else, or its settings are not complete.
        """
        found = self._managers()
        owning = [one for one in found if self._owns(one)] if len(found) > 1 else found
        if not found:
            raise ConfigurationError(
                f"the asset is stored by {self._stored_by()}, which keeps no ledger",
                remedy="store it by a FencedPartitionIOManager or through a FencedPartitionResource",
                asset=self.owner,
            )
        return (owning or found)[0]

    @property
    def has_ledger(self) -> bool:
        """Whether a ledger knows what its partitions hold.

        Raises:
            ConfigurationError: The settings of what stores it are not complete.
        """
        return bool(self._managers())

    @property
    def table(self) -> TableName:
        """Its table."""
        return self._table(self.manager)

    @cached_property
    def store(self) -> DuckDBStore:
        """The database that it is stored in. It is opened by what is asked of it, and may not exist yet."""
        return _store(self.manager)

    def refuse_missing_database(self) -> None:
        """Refuse a database that does not exist.

        Raises:
            StoreUnavailableError: It does not.
        """
        connector = self.store.connector
        if not connector.exists():
            raise StoreUnavailableError(
                f"the database {connector.secrets.database} does not exist",
                remedy="materialize the asset first, or correct the path of the database: a relative one depends on"
                " the working directory",
                asset=self.owner,
            )

    def _managers(self) -> list[Manager]:
        """Everything that may store it: an asset that takes a resource may write through it, or only read."""
        if not self.definition.is_materializable:
            return []
        own = self.definition.get_io_manager_key_for_asset_key(self.key)
        others = [] if self.is_partitioned_asset else sorted(self.definition.required_resource_keys - {own})
        found = [self._configured(own, FencedPartitionIOManager)]
        found += [self._configured(key, FencedPartitionResource) for key in others]
        return [one for one in found if one is not None]

    def opened(self) -> list[Manager]:
        """Everything of this package that a step of it sets up, also within other resources.

        Raises:
            ConfigurationError: The settings of one of them are not complete.
        """
        own = self.definition.get_io_manager_key_for_asset_key(self.key)
        names = {own, *self.definition.required_resource_keys} & self.resources.keys()
        due = [(name, self.resources[name]) for name in sorted(names)]
        found: list[Manager] = []
        for name, resource in due:  # which grows
            due += [(f"{name}.{inner}", one) for inner, one in dagster_loading.nested_resources(resource).items()]
            for kind in (FencedPartitionIOManager, FencedPartitionResource):
                one = self._made(name, resource, kind)
                found += [] if one is None else [one]
        return found

    def _configured(self, key: str, wanted: type[Manager]) -> Manager | None:
        return self._made(key, self.resources.get(key), wanted)

    def _made(self, key: str, resource: dg.ResourceDefinition | None, wanted: type[Manager]) -> Manager | None:
        kind = None if resource is None else dagster_loading.configured_class(resource)
        if resource is None or kind is None or not issubclass(kind, wanted):
            return None
        if unset := sorted(_variables_of(resource) - os.environ.keys()):
            raise ConfigurationError(
                f"resource {key!r} takes its settings from the environment variable {unset[0]!r}, which is not set",
                remedy="set it, or write it into the file .env of the working directory",
                asset=self.owner,
            )
        try:
            return kind(**dagster_loading.configured_values(resource))
        except dg.DagsterInvalidConfigError as error:
            raise ConfigurationError(
                f"the settings of resource {key!r} are not complete: {error.errors[0].message.splitlines()[0]}",
                remedy="give them in the definitions: those that a run would give are not known here",
                asset=self.owner,
            ) from None

    def _owns(self, manager: Manager) -> bool:
        newest = _store(manager).newest(self._table(manager))
        return newest is not None and newest.owner == self.owner

    def _table(self, manager: Manager) -> TableName:
        return partitions.table_of_asset(self.key, self.spec.metadata, manager.schema_)

    def _stored_by(self) -> str:
        if not self.definition.is_materializable:
            return "something outside of Dagster"
        key = self.definition.get_io_manager_key_for_asset_key(self.key)
        resource = self.resources.get(key)
        kind = None if resource is None else dagster_loading.configured_class(resource)
        return f"resource {key!r}" if kind is None else f"a {kind.__name__} (resource {key!r})"


class CodeLocation:
    """One code location, or several of one workspace, loaded in this process.

    Args:
        loaded: What was loaded.
        failed: Code locations of the workspace that were not, with the reason.
    """

    def __init__(self, loaded: Sequence[Loaded], failed: Mapping[str, str] | None = None) -> None:
        self._failed = dict(failed or {})
        self._assets: dict[str, LocatedAsset] = {}
        for found in loaded:
            for one in _assets_of(found):
                known = self._assets.get(one.owner)
                # Where another code location makes it, this one may only say that it exists.
                if known is None or not known.definition.is_materializable:
                    self._assets[one.owner] = one

    @classmethod
    def of(cls, definitions: dg.Definitions) -> CodeLocation:
        """The code location that some definitions make."""
        return cls([Loaded(repository=definitions.get_repository_def())])

    @property
    def failed(self) -> Mapping[str, str]:
        """Code locations of the workspace that do not load, with the reason: nothing is known of their assets."""
        return self._failed

    @property
    def assets(self) -> Mapping[str, LocatedAsset]:
        """Its assets by key, as users see it: ``sales/daily``."""
        return self._assets

    def asset(self, name: str) -> LocatedAsset:
        """One of its assets.

        Raises:
            ConfigurationError: It has none of this key.
        """
        if name in self._assets:
            return self._assets[name]
        raise ConfigurationError(
            f"there is no asset {name!r}{'' if self._assets else ', nor any other'}",
            remedy=self._meant(name),
            detail="\n".join(f"Not looked at: {why}" for why in self._failed.values()) or None,
        )

    def _meant(self, name: str) -> str:
        same = [one for one in self._assets if self._assets[one].key.path[-1] == name]
        if len(same) > 1:
            return f"give the whole key of one of the {len(same)} assets of this name: {', '.join(sorted(same))}"
        near = same or difflib.get_close_matches(name, self._assets, n=_MOST_MEANT, cutoff=0.5)
        if near:
            return f"perhaps {' or '.join(near)} is meant"
        if not self._assets:
            return "name another code location: -f FILE, -m MODULE, or -w WORKSPACE"
        names = sorted(self._assets)
        more = f" and {len(names) - _MOST_LISTED} more" if len(names) > _MOST_LISTED else ""
        return f"name one of {', '.join(names[:_MOST_LISTED])}{more}, or another code location"


def _assets_of(loaded: Loaded) -> Iterator[LocatedAsset]:
    shared = loaded.repository.get_top_level_resources()
    for key, definition in loaded.repository.assets_defs_by_key.items():
        yield LocatedAsset(
            key=key,
            owner=owner_of(key),
            definition=definition,
            spec=definition.specs_by_key[key],
            resources={**shared, **definition.resource_defs},
            arguments=loaded.arguments,
        )


def is_dynamic(definition: dg.PartitionsDefinition[Any]) -> bool:
    """Whether only a Dagster instance knows which partitions there are."""
    if isinstance(definition, dg.MultiPartitionsDefinition):
        return any(is_dynamic(one.partitions_def) for one in definition.partitions_defs)
    return isinstance(definition, dg.DynamicPartitionsDefinition)


def _variables_of(resource: dg.ResourceDefinition) -> frozenset[str]:
    """The environment variables that the settings of a resource name."""
    schema: Any = resource.config_schema
    due = [schema.default_value] if schema.default_provided else []
    found: set[str] = set()
    while due:
        one = due.pop()
        if isinstance(one, Mapping) and set(one) == {"env"} and isinstance(one["env"], str):
            found.add(one["env"])
        elif isinstance(one, Mapping):
            due += one.values()
        elif isinstance(one, list | tuple):
            due += one
    return frozenset(found)


def _store(manager: Manager) -> DuckDBStore:
    return DuckDBStore(
        manager.database, config=manager.connection_config, lock_timeout_seconds=manager.lock_timeout_seconds
    )


def load(options: LocationOptions, asset: str | None = None) -> CodeLocation:
    """Load a code location.

    Args:
        options: Which.
        asset: The asset that is asked for: where a workspace has several code locations and ``options`` names none,
            the one that makes it.

    Raises:
        ConfigurationError: There is none, or it does not load.
    """
    loader = Loader(options)
    found = CodeLocation(())
    for _ in loader.steps():
        found = CodeLocation(loader.loaded, loader.failed)
        if asset in found.assets and found.assets[str(asset)].definition.is_materializable:
            break
    return found
