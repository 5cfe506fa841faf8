"""Every use of a part of Dagster that is not public, in one place.

Dagster writes the materialization events of a normal output itself: one data version and no tags of ours for all the
partitions of a range. What is used here makes the events one partition at a time, with Dagster's own code, and tells
Dagster that they are already written. ``marigold_assets_tests/integration/test_dagster_internals.py`` fails when a
release of Dagster changes any of it; without it the events fall back to what the public API can say.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from itertools import islice
from typing import Any

import dagster as dg
from dagster._core.definitions.assets.definition.asset_spec import (
    SYSTEM_METADATA_KEY_IO_MANAGER_KEY,
    AssetExecutionType,
)
from dagster._core.definitions.assets.graph.base_asset_graph import BaseAssetNode
from dagster._core.definitions.partitions.context import partition_loading_context
from dagster._core.definitions.resource_annotation import get_resource_args
from dagster._core.definitions.source_asset import SYSTEM_METADATA_KEY_SOURCE_ASSET_OBSERVATION
from dagster._core.events import DagsterEvent, DagsterEventBatchMetadata, generate_event_batch_id
from dagster._core.execution.context.compute import current_execution_context
from dagster._core.execution.context.system import StepExecutionContext
from dagster._core.execution.plan import execute_step
from dagster._core.storage.dagster_run import assets_are_externally_managed
from dagster._core.storage.tags import PARTITION_NAME_TAG, SCHEDULE_NAME_TAG, SCHEDULED_EXECUTION_TIME_TAG
from dagster._core.types.dagster_type import resolve_dagster_type

_FRAMES_TO_STORE_OUTPUT = 12


def planned_asset_keys(instance: dg.DagsterInstance, run: dg.DagsterRun) -> frozenset[dg.AssetKey]:
    """The assets that the steps of a run are going to materialize, whatever way it was launched."""
    if run.execution_plan_snapshot_id is None:
        return frozenset(run.asset_selection or ())
    plan = instance.get_execution_plan_snapshot(run.execution_plan_snapshot_id)
    wanted = set(plan.step_keys_to_execute)
    properties = (output.properties for step in plan.steps if step.key in wanted for output in step.outputs)
    return frozenset(found.asset_key for found in properties if found is not None and found.asset_key is not None)


def runs_of_schedule(instance: dg.DagsterInstance, schedule: str, partition: str) -> list[dg.DagsterRun]:
    """The runs of a partition that schedules of some name have made, in whatever code location these are."""
    tags = {SCHEDULE_NAME_TAG: schedule, PARTITION_NAME_TAG: partition}
    return list(instance.get_runs(dg.RunsFilter(tags=tags)))


def tick_of(run: dg.DagsterRun) -> datetime | None:
    """When the tick was due that has made a run; ``None``: no schedule has made it."""
    text = run.tags.get(SCHEDULED_EXECUTION_TIME_TAG)
    return None if text is None else datetime.fromisoformat(text)


def selected_assets(repository: dg.RepositoryDefinition, selection: dg.AssetSelection) -> frozenset[dg.AssetKey]:
    """The assets of a code location that a selection names."""
    return frozenset(selection.resolve(repository.asset_graph, allow_missing=True))


def upstream_node(context: dg.AssetExecutionContext, key: dg.AssetKey) -> BaseAssetNode | None:
    """What the running job knows of an asset that it reads, or ``None`` if it knows nothing."""
    graph = context.job_def.asset_layer.asset_graph
    return graph.get(key) if graph.has(key) else None


def node_of_input(context: dg.InputContext) -> tuple[BaseAssetNode | None, dg.DagsterInstance | None]:
    """What the running job knows of the asset that an input loads, if anything, and its instance."""
    if not context.has_asset_key or context._step_context is None:
        return None, None
    step = context.step_context
    graph = step.job_def.asset_layer.asset_graph
    return (graph.get(context.asset_key) if graph.has(context.asset_key) else None), step.instance


def io_manager_key_of(context: dg.AssetExecutionContext, key: dg.AssetKey) -> str | None:
    """Under which resource key an asset is stored, or ``None`` where nobody says so.

    Assets that the running job does not make have it in their metadata; Dagster's default is not asked for, which it
    has also for tables of other tools.
    """
    node: Any = upstream_node(context, key)
    if node is None:
        return None
    if (named := node.metadata.get(SYSTEM_METADATA_KEY_IO_MANAGER_KEY)) is not None:
        return str(named)
    assets_def = getattr(node, "assets_def", None)
    return str(node.io_manager_key) if assets_def is not None and assets_def.is_materializable else None


def upstream_keys(
    context: dg.AssetExecutionContext, upstream: dg.AssetKey, key: str, as_of: datetime
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The partitions of an asset that one partition of the running asset reads.

    Args:
        context: The context of the running asset.
        upstream: The asset that is read, which has partitions.
        key: One partition of the running asset.
        as_of: When partitions must have ended to count (aware).

    Returns:
        Those that there can be, and those that the mapping asks for although its asset has no such partitions.
    """
    graph = context.job_def.asset_layer.asset_graph
    partitions_def, upstream_def = graph.get(context.asset_key).partitions_def, graph.get(upstream).partitions_def
    if partitions_def is None or upstream_def is None:
        return (), ()
    mapping = graph.get_partition_mapping(context.asset_key, upstream)
    return mapped_keys(mapping, key, partitions_def, upstream_def, as_of=as_of, instance=context.instance)


def mapped_keys(
    mapping: dg.PartitionMapping,
    key: str | None,
    partitions_def: dg.PartitionsDefinition[Any] | None,
    upstream_def: dg.PartitionsDefinition[Any],
    *,
    as_of: datetime,
    instance: dg.DagsterInstance | None,
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The same outside of a run: what a mapping makes of one partition.

    Args:
        mapping: The mapping.
        key: One partition of the asset that reads; ``None`` if it has none.
        partitions_def: Its partitions; ``None`` if it has none.
        upstream_def: Those of the asset that is read.
        as_of: When partitions must have ended to count (aware).
        instance: Where dynamic partitions are.
    """
    with partition_loading_context(effective_dt=as_of, dynamic_partitions_store=instance):
        wanted = (
            None if partitions_def is None or key is None else partitions_def.empty_subset().with_partition_keys([key])
        )
        found = mapping.get_upstream_mapped_partitions_result_for_partitions(wanted, partitions_def, upstream_def)
        missing = found.required_but_nonexistent_subset
        return tuple(found.partitions_subset.get_partition_keys()), tuple(missing.get_partition_keys())


def input_context(
    context: dg.AssetExecutionContext,
    upstream: dg.AssetKey,
    keys: Sequence[str] | None,
    *,
    name: str,
    wanted: Any,
    metadata: Mapping[str, Any] | None,
    manager_key: str | None,
) -> dg.InputContext:
    """The context with which an IO manager loads some partitions of an asset, and none between them.

    Args:
        context: The context of the running asset.
        upstream: The asset to load.
        keys: Its partitions; ``None`` if it has none.
        name: The parameter that it is loaded for.
        wanted: The annotation of the parameter.
        metadata: The metadata of the input.
        manager_key: The resource that loads it, whose config its IO manager may ask for.
    """
    resources = context.get_step_execution_context().resolved_run_config.resources
    configured = None if manager_key is None else resources.get(manager_key)
    node = context.job_def.asset_layer.asset_graph.get(upstream)
    first = keys[0] if keys else None
    output = dg.build_output_context(
        asset_key=upstream,
        definition_metadata=dict(node.metadata),
        partition_key=first,
        asset_partitions_def=node.partitions_def,
    )
    made = dg.build_input_context(
        name=name,
        asset_key=upstream,
        upstream_output=output,
        dagster_type=resolve_dagster_type(wanted),
        definition_metadata=metadata,
        op_def=context.op_def,
        asset_partitions_def=node.partitions_def,
        instance=context.instance,
        resource_config={} if configured is None else configured.config,
    )
    if keys is not None and node.partitions_def is not None:
        with partition_loading_context(dynamic_partitions_store=context.instance):
            made._asset_partitions_subset = node.partitions_def.subset_with_partition_keys(keys)
    return made


def windows_from(
    definition: dg.TimeWindowPartitionsDefinition, start: datetime, count: int
) -> tuple[dg.TimeWindow, ...]:
    """So many windows of a definition, one after the other: what its partition keys are made of.

    Args:
        definition: The definition.
        start: Start of the first window.
        count: How many.
    """
    return tuple(islice(definition._iterate_time_windows(start.timestamp()), count))


def is_resource_annotation(annotation: object) -> bool:
    """Whether Dagster takes a parameter with this annotation for a resource."""

    def function(wanted: Any) -> None: ...

    function.__annotations__ = {"wanted": annotation}
    return bool(get_resource_args(function))


@contextmanager
def current_context(context: dg.AssetExecutionContext) -> Iterator[None]:
    """Have ``AssetExecutionContext.get()`` give another context within the block."""
    token = current_execution_context.set(context)
    try:
        yield
    finally:
        current_execution_context.reset(token)


def already_logged_output() -> dg.Output[None]:
    """An output that marks its step as done, whose materialization events the step has logged itself."""
    return dg.Output(None, metadata={SYSTEM_METADATA_KEY_SOURCE_ASSET_OBSERVATION: dg.MetadataValue.bool(True)})


def step_context_of(context: dg.OutputContext) -> StepExecutionContext | None:
    """The running step, or ``None`` for a context that was built by hand."""
    return context._step_context


def is_one_of_many_steps(context: dg.AssetExecutionContext) -> bool:
    """Whether this process carries out more steps than the running one."""
    return len(context.get_step_execution_context().execution_plan.step_keys_to_execute) > 1


def is_first_input(context: dg.InputContext) -> bool:
    """Whether no other input of the running step has been loaded before this one."""
    step = context._step_context
    if step is None:
        return False
    definitions = step.op_def.input_dict
    loaded = [source.name for source in step.step.step_inputs if not definitions[source.name].dagster_type.is_nothing]
    return loaded[:1] == [context.name]


def output_being_stored() -> dg.Output[Any] | None:
    """The Output whose storing is under way on this stack: the only place that has its tags and data version."""
    frame = sys._getframe(1)
    for _ in range(_FRAMES_TO_STORE_OUTPUT):
        if frame.f_code.co_name == "_store_output" and frame.f_globals.get("__name__") == execute_step.__name__:
            found = frame.f_locals.get("output")
            return found if isinstance(found, dg.Output) else None
        if frame.f_back is None:
            break
        frame = frame.f_back
    return None


class _Late(list[Any]):
    """Events that are made when Dagster takes them: what a subclass of the IO manager adds last is then in them."""

    def __init__(self, logged: Sequence[Any], make: Callable[[], Iterator[Any]]) -> None:
        super().__init__(logged)
        self._make = make

    def __iter__(self) -> Iterator[Any]:
        yield from super().__iter__()
        yield from self._make()


def version_output(
    context: dg.OutputContext, output: dg.Output[Any], data_version: dg.DataVersion, tags: Mapping[str, str]
) -> None:
    """Give the one materialization of an output a data version and tags, unless it has its own.

    Args:
        context: The context of the output.
        output: The output being stored (see :func:`output_being_stored`).
        data_version: For an output that brings none, and whose asset has set none through its context.
        tags: Added to its own, which win.
    """
    output._tags = {**tags, **(output.tags or {})}
    step = step_context_of(context)
    if output.data_version is None and step is not None and not step.has_data_version(context.asset_key):
        output._data_version = data_version


def log_materializations(
    context: dg.OutputContext,
    output: dg.Output[Any],
    partitions: Sequence[tuple[str, dg.DataVersion, Mapping[str, Any], Mapping[str, str]]],
) -> None:
    """Log the materialization events of a range, each with its own data version, metadata and tags.

    Args:
        context: The context of the output.
        output: The output being stored (see :func:`output_being_stored`), whose own tags, metadata and data version
            (or the one that the asset set through its context) win over what is given here. It is marked, so that
            Dagster does not write its events again.
        partitions: Partition key, data version, metadata and tags.
    """
    step = step_context_of(context)
    if step is None or assets_are_externally_managed(step.dagster_run):
        return
    own_metadata = dict(output.metadata)
    output._metadata = {**own_metadata, SYSTEM_METADATA_KEY_SOURCE_ASSET_OBSERVATION: dg.MetadataValue.bool(True)}

    def make() -> Iterator[DagsterEvent]:
        # Multi-dimensional keys are strings with more to them, from which Dagster makes a tag a dimension.
        dagster_keys = {str(key): key for key in context.asset_partition_keys}
        own_version = output.data_version
        if own_version is None and step.has_data_version(context.asset_key):
            own_version = step.get_data_version(context.asset_key)
        added = context._user_generated_metadata
        batch_id: str = generate_event_batch_id()  # type: ignore[no-untyped-call]
        for number, (key, data_version, metadata, tags) in enumerate(partitions):
            one = dg.Output(
                value=None,
                output_name=output.output_name,
                metadata=own_metadata,
                tags={**tags, **(output.tags or {})},
            )
            one._data_version = own_version or data_version  # the parameter warns that it is beta
            [event] = execute_step._get_output_asset_events(
                context.asset_key,
                [dagster_keys[key]],
                one,
                step.op_def.output_def_named(context.name),
                {**metadata, **added},
                step,
                AssetExecutionType.MATERIALIZATION,
            )
            batch = DagsterEventBatchMetadata(batch_id, number == len(partitions) - 1)
            yield execute_step._dagster_event_for_asset_event(step, event, batch)

    context._events = _Late(context._events, make)
