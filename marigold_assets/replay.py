"""Computing stored partitions once more with the code now loaded, without writing anything.

The real asset is run in this process, in one run of an instance of its own that is forgotten afterwards, with the
config and the resources of its code location. Whatever else its function does, it does for real: files that it writes,
services that it calls.
"""

from __future__ import annotations

import uuid
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import dagster as dg

from marigold_assets import partitions
from marigold_assets.asset import PartitionedAssetsDefinition
from marigold_assets.attempt import shown_keys
from marigold_assets.disturbance import Conditions
from marigold_assets.dry import DryRun, running_dry
from marigold_assets.errors import ConfigurationError, MarigoldError, Where
from marigold_assets.location import CodeLocation, LocatedAsset
from marigold_assets.proof import Replayed
from marigold_assets.run_tags import RANGE_END_TAG, RANGE_START_TAG

_SILENT = {"console": {"config": {"log_level": "CRITICAL"}}}


def replay(
    location: CodeLocation,
    asset: LocatedAsset,
    keys: Sequence[str],
    *,
    instance: Any = None,
    config: Mapping[str, Any] | None = None,
    conditions: Conditions | None = None,
    is_compared: bool = True,
) -> tuple[Replayed, ...]:
    """Compute partitions once more.

    The function and its resources are run for real; only what this package stores is not stored.

    Args:
        location: Where the asset, and what it reads, is defined.
        asset: The asset, made by ``@partitioned_asset``.
        keys: The partitions, in the order in which they are to be computed. A chain reads the previous one as stored.
        instance: Where dynamic partitions are: a ``dagster.DagsterInstance``, or another dynamic partitions store.
        config: Run config, as for ``dagster asset materialize --config``.
        conditions: Under which the function is called.
        is_compared: Whether the rows are compared with those that are stored.

    Returns:
        What came of each, in the order of ``keys``.

    Raises:
        ConfigurationError: The asset is another one, or the config or its resources do not fit.
        MarigoldError: Something else stands against all of it, such as a mistake in its definition.
        StoreBusyError: Another process held the database until the deadline.
        StoreUnavailableError: The database cannot be opened.
    """
    refuse_others(asset)
    if not keys:
        return ()
    conditions = conditions or Conditions()
    wanted = [_dagster_key(asset, key) for key in keys]
    run = DryRun(
        run_id=str(uuid.uuid4()),
        keys=tuple(wanted[::-1] if conditions.is_reversed else wanted),
        conditions=conditions,
        is_compared=is_compared,
        ignored=frozenset(impure_columns(asset)) if is_compared else frozenset(),
    )
    with dg.DagsterInstance.ephemeral() as scratch, _explained(asset, keys):
        for name, known in dynamic_partitions(location, asset, instance).items():
            scratch.add_dynamic_partitions(name, known)
        with running_dry(run):
            result = _job(location, asset).execute_in_process(
                asset_selection=[asset.key],
                instance=scratch,
                run_config={"loggers": _SILENT, **(config or {})},
                run_id=run.run_id,
                raise_on_error=False,
                **_partitions_of_run(wanted),
            )
    by_key = {one.partition_key: one for one in run.found}
    if run.error is not None:
        raise run.error
    if missing := [key for key in keys if key not in by_key]:
        raise _not_run(asset, missing, result)
    return tuple(by_key[key] for key in keys)


def refuse_others(asset: LocatedAsset) -> None:
    """Refuse assets that cannot be replayed.

    Raises:
        ConfigurationError: The asset is not made by ``@partitioned_asset``.
    """
    if not isinstance(asset.definition, PartitionedAssetsDefinition):
        raise ConfigurationError(
            "it is not made by @partitioned_asset: the ledger does not say what it was built from, and its function may"
            " write by itself",
            remedy="make it by @partitioned_asset, or compare two builds of it by hand",
            asset=asset.owner,
        )


def impure_columns(asset: LocatedAsset) -> Mapping[str, str]:
    """The columns of an asset that are said to depend on more than the partition, each with the reason.

    Raises:
        ConfigurationError: The metadata says something else, or gives no reason.
    """
    return partitions.impure_columns(asset.spec.metadata, Where(asset=asset.owner))


def _job(location: CodeLocation, asset: LocatedAsset) -> dg.JobDefinition:
    """A job of the asset, which knows what it reads as the code location does."""
    wanted = {asset.key, *asset.definition.dependency_keys}
    found = {id(one.definition): one.definition for one in location.assets.values() if one.key in wanted}
    made = dg.Definitions(assets=list(found.values()), executor=dg.in_process_executor)
    with warnings.catch_warnings():  # of backfill policies that differ: there is no backfill
        warnings.filterwarnings("ignore", message=".*materializes assets with varying BackfillPolicies")
        return made.resolve_implicit_global_asset_job_def()


def _dagster_key(asset: LocatedAsset, key: str) -> str:
    """A partition key as Dagster has it: of several dimensions it is a string with more to it."""
    definition = asset.partitions_def
    return definition.get_partition_key_from_str(key) if isinstance(definition, dg.MultiPartitionsDefinition) else key


def _partitions_of_run(keys: Sequence[str]) -> dict[str, Any]:
    """What a real run of these partitions would have: its function may look at it."""
    if len(keys) == 1:
        return {"partition_key": keys[0]}
    return {"tags": {RANGE_START_TAG: keys[0], RANGE_END_TAG: keys[-1]}}


def dynamic_partitions(location: CodeLocation, asset: LocatedAsset, instance: Any) -> dict[str, list[str]]:
    """The partitions of an asset, and of what it reads, that only an instance knows: by name of their definition.

    Args:
        location: The code location.
        asset: The asset.
        instance: Where they are, if anywhere.
    """
    if instance is None:
        return {}
    keys = {asset.key, *asset.definition.dependency_keys}
    parts = [one.partitions_def for one in location.assets.values() if one.key in keys]
    parts += [
        one.partitions_def
        for part in parts
        if isinstance(part, dg.MultiPartitionsDefinition)
        for one in part.partitions_defs
    ]
    names = [one.name for one in parts if isinstance(one, dg.DynamicPartitionsDefinition) and one.name is not None]
    return {name: list(instance.get_dynamic_partitions(name)) for name in names}


@contextmanager
def _explained(asset: LocatedAsset, keys: Sequence[str]) -> Iterator[None]:
    """Have errors that come before the first partition name the asset."""
    place = {"asset": asset.owner, "partition": shown_keys(keys)}
    try:
        yield
    except dg.DagsterInvalidConfigError as error:
        raise ConfigurationError(
            f"the config does not fit: {error.errors[0].message.splitlines()[0]}",
            remedy="give run config as for 'dagster asset materialize --config': --config FILE",
            **place,
        ) from error


def _not_run(asset: LocatedAsset, keys: Sequence[str], result: dg.ExecuteInProcessResult) -> MarigoldError:
    """The error of a run that has failed as a whole: what its first failure says."""
    events = [event for event in result.all_events if event.is_failure and event.event_specific_data is not None]
    error = next((found for event in events if (found := getattr(event.event_specific_data, "error", None))), None)
    while error is not None and error.cause is not None:
        error = error.cause
    text = "its run has failed" if error is None else " ".join(error.message.split())
    return ConfigurationError(
        f"its function cannot be run here: {text}",
        remedy="correct its resources or its config",
        asset=asset.owner,
        partition=shown_keys(keys),
    )
