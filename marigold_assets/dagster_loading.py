"""Every use of a part of Dagster that is not public for what is done outside of runs: loading, settings, event log.

As :mod:`marigold_assets.dagster_internals` for what is done within them, and with tests in the same place.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import dagster as dg
from dagster._config.validate import process_config
from dagster._core.code_pointer import load_python_file, load_python_module
from dagster._core.definitions.definitions_load_context import DefinitionsLoadContext, DefinitionsLoadType
from dagster._core.definitions.reconstruct import (
    load_def_in_module,
    load_def_in_python_file,
    repository_def_from_target_def,
)
from dagster._core.events import DagsterEventType
from dagster._core.instance.ref import InstanceRef
from dagster._core.instance.types import InstanceType
from dagster._core.remote_origin import ManagedGrpcPythonEnvCodeLocationOrigin
from dagster._core.secrets.env_file import get_env_var_dict
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin, enter_loadable_target_origin_load_context
from dagster._core.workspace import autodiscovery
from dagster._core.workspace.load_target import PyProjectFileTarget, WorkspaceFileTarget
from dagster.components.definitions import LazyDefinitions

if TYPE_CHECKING:  # takes sqlalchemy with it, which is much to import
    from dagster._core.storage.event_log.base import EventLogStorage

Origin = LoadableTargetOrigin
"""What a code location is imported from."""


def locations_of_workspace(paths: Sequence[str]) -> Mapping[str, Origin | None]:
    """The code locations that workspace files name; ``None``: one that runs as a server of its own."""
    return _by_name(WorkspaceFileTarget(paths=list(paths)).create_origins())


def locations_of_project(path: str) -> Mapping[str, Origin | None]:
    """The code locations that ``[tool.dagster]`` or ``[tool.dg.project]`` of a pyproject.toml names."""
    return _by_name(PyProjectFileTarget(path).create_origins())


def _by_name(origins: Sequence[Any]) -> dict[str, Origin | None]:
    local = ManagedGrpcPythonEnvCodeLocationOrigin
    return {one.location_name: one.loadable_target_origin if isinstance(one, local) else None for one in origins}


def load_repositories(origin: Origin, working_directory: str) -> list[dg.RepositoryDefinition]:
    """Import a code location and resolve its definitions, as a code server does.

    Args:
        origin: What to import.
        working_directory: For an origin that names none.

    Raises:
        Exception: Whatever the code raises, and what Dagster does where there is nothing to load.
    """
    folder = origin.working_directory or working_directory
    context = DefinitionsLoadContext(load_type=DefinitionsLoadType.INITIALIZATION, repository_load_data=None)
    with DefinitionsLoadContext.scoped(context), enter_loadable_target_origin_load_context(origin):
        if origin.autoload_defs_module_name is not None:
            targets = [autodiscovery.autodefs_module_target(origin.autoload_defs_module_name, folder)[1]]
        else:
            targets = _targets(origin, folder)
        found = [_repository_of(target) for target in targets]
    return [one for one in found if one is not None]


def _repository_of(target: object) -> dg.RepositoryDefinition | None:
    return target.get_repository_def() if isinstance(target, dg.Definitions) else repository_def_from_target_def(target)


def _targets(origin: Origin, folder: str) -> list[object]:
    """What a module defines. To look for more than one ``Definitions`` takes half a second of imports in Dagster."""
    if origin.python_file is not None:
        module = load_python_file(origin.python_file, folder)
    else:
        module = load_python_module(str(origin.module_name or origin.package_name), folder)
    known = list(vars(module).values())
    plain = {id(one): one for one in known if isinstance(one, dg.Definitions)}
    named = getattr(module, origin.attribute or "", None)
    if isinstance(named, dg.Definitions):
        return [named]
    if origin.attribute is None and len(plain) == 1 and not any(isinstance(one, LazyDefinitions) for one in known):
        return list(plain.values())
    if origin.attribute is None:
        return [one.target_definition for one in autodiscovery.loadable_targets_from_loaded_module(module)]
    if origin.python_file is not None:
        return [load_def_in_python_file(origin.python_file, origin.attribute, folder)]
    return [load_def_in_module(module.__name__, origin.attribute, folder)]


def configured_class(resource: dg.ResourceDefinition) -> type | None:
    """The class of a resource that was made of a ``ConfigurableResource`` or ``ConfigurableIOManager``."""
    found = getattr(resource, "configurable_resource_cls", None)
    return found if isinstance(found, type) else None


def nested_resources(resource: dg.ResourceDefinition) -> Mapping[str, dg.ResourceDefinition]:
    """The resources that such a resource takes as settings, and that are set up with it."""
    found: Mapping[str, Any] = getattr(resource, "nested_resources", {})
    made = {name: getattr(one, "get_resource_definition", lambda one=one: one)() for name, one in found.items()}
    return {name: one for name, one in made.items() if isinstance(one, dg.ResourceDefinition)}


def configured_values(resource: dg.ResourceDefinition) -> Mapping[str, Any]:
    """The settings of such a resource, with ``EnvVar`` looked up, and without setting it up for a run.

    Raises:
        dagster.DagsterInvalidConfigError: Some are missing, as is an environment variable.
    """
    schema: Any = resource.config_schema
    given = schema.default_value if schema.default_provided else {}
    processed = process_config(schema.config_type, given)
    if not processed.success:
        raise dg.DagsterInvalidConfigError("Settings of a resource", processed.errors, given)  # type: ignore[no-untyped-call]
    nested: Mapping[str, Any] = getattr(resource, "nested_resources", {})
    return {**(processed.value or {}), **nested}


def environment_file(folder: Path) -> Mapping[str, str]:
    """What the ``.env`` file of a folder sets, as Dagster's commands read it."""
    return get_env_var_dict(str(folder))


def event_storage(home: Path) -> EventLogStorage[Any] | None:
    """The event log of the instance of a folder, without the rest of it, which takes longer to open.

    Returns:
        The event log; ``None`` where nothing was ever logged, of which Dagster would make one.
    """
    found = InstanceRef.from_dir(str(home))
    data: Any = found.event_storage_data
    if (
        data is not None
        and data.class_name == _SQLITE
        and not Path(str(data.config_dict["base_dir"]), _SQLITE_INDEX).exists()
    ):
        return None
    return cast("EventLogStorage[Any]", found.event_storage)


@contextmanager
def reading_instance(home: Path) -> Iterator[dg.DagsterInstance]:
    """The instance of a folder, for whoever only reads.

    Dagster makes files as soon as it opens an instance. Where nothing was ever logged there is nothing to read but the
    settings: the instance then has them, and keeps its empty history in memory.
    """
    if event_storage(home) is not None:
        with dg.DagsterInstance.from_config(str(home)) as instance:
            yield instance
        return
    from dagster._core.storage.event_log import InMemoryEventLogStorage  # noqa: PLC0415 - much to import
    from dagster._core.storage.noop_compute_log_manager import NoOpComputeLogManager  # noqa: PLC0415
    from dagster._core.storage.runs import InMemoryRunStorage  # noqa: PLC0415

    found = InstanceRef.from_dir(str(home))
    with dg.DagsterInstance(
        instance_type=InstanceType.PERSISTENT,
        local_artifact_storage=found.local_artifact_storage,
        run_storage=InMemoryRunStorage(),
        event_storage=InMemoryEventLogStorage(),
        compute_log_manager=NoOpComputeLogManager(),
        scheduler=found.scheduler,
        run_coordinator=found.run_coordinator,
        run_launcher=found.run_launcher,
        settings=found.settings,
    ) as instance:
        yield instance


_SQLITE, _SQLITE_INDEX = "SqliteEventLogStorage", "index.db"
_PAGE = 500


def latest_tags(storage: EventLogStorage[Any], key: dg.AssetKey, tag: str) -> Mapping[str, str]:
    """The value of a tag of the newest materialization of every partition of an asset that has one."""
    found = storage.get_latest_tags_by_partition(key, DagsterEventType.ASSET_MATERIALIZATION, [tag])
    return {partition: tags[tag] for partition, tags in found.items() if tag in tags}


def told_by_others(
    storage: EventLogStorage[Any], key: dg.AssetKey, runs: Mapping[str, str], name: str
) -> Mapping[str, str]:
    """What the newest materializations say under a name, as a tag or else as text metadata, of runs not expected.

    Dagster tells tags of its choice alone in bulk, and takes seconds to read thousands of events; so the runs are
    compared first, and of the events left their text is searched.

    Args:
        storage: The event log.
        key: The asset.
        runs: By partition, the run that is expected to have logged its newest materialization.
        name: The name of the tag or of the metadata.

    Returns:
        The values, by partition, of those that have one.
    """
    from dagster._core.storage.event_log.sql_event_log import SqlEventLogStorage  # noqa: PLC0415 - see above

    inner = getattr(getattr(storage, "_storage", None), "event_log_storage", storage)  # of one kind for all storages
    if isinstance(inner, SqlEventLogStorage):
        return _told_in_sql(inner, key, runs, name)
    ids = storage.get_latest_storage_id_by_partition(key, DagsterEventType.ASSET_MATERIALIZATION)
    wanted = [number for partition, number in ids.items() if partition in runs]
    found: dict[str, str] = {}
    for start in range(0, len(wanted), _PAGE):
        page = dg.EventRecordsFilter(
            event_type=DagsterEventType.ASSET_MATERIALIZATION, asset_key=key, storage_ids=wanted[start : start + _PAGE]
        )
        for record in storage.get_event_records(page):
            event = record.asset_materialization
            if event is None or event.partition is None or record.run_id == runs.get(event.partition):
                continue
            value = (event.tags or {}).get(name) or getattr(event.metadata.get(name), "text", None)
            found |= {} if value is None else {event.partition: value}
    return found


def _told_in_sql(storage: Any, key: dg.AssetKey, runs: Mapping[str, str], name: str) -> dict[str, str]:
    from dagster._core.storage.event_log.schema import SqlEventLogStorageTable as Logs  # noqa: PLC0415 - see above
    from dagster._core.storage.sqlalchemy_compat import db_select  # noqa: PLC0415

    newest = storage._latest_event_ids_by_partition_subquery(key, [DagsterEventType.ASSET_MATERIALIZATION])
    with storage.index_connection() as connection:
        which = db_select([newest.c.partition, Logs.c.id, Logs.c.run_id]).select_from(
            newest.join(Logs, Logs.c.id == newest.c.id)
        )
        rows = connection.execute(which).fetchall()
        partition_of = {row[1]: row[0] for row in rows if row[0] in runs and runs[row[0]] != row[2]}
        found: dict[str, str] = {}
        wanted = list(partition_of)
        for start in range(0, len(wanted), _PAGE):
            page = db_select([Logs.c.id, Logs.c.event]).where(Logs.c.id.in_(wanted[start : start + _PAGE]))
            for number, text in connection.execute(page).fetchall():
                value = _said(text, name)
                found |= {} if value is None else {partition_of[number]: value}
    return found


_TAGS = '"tags": '


def _said(event: str, name: str) -> str | None:
    """What the text of an event says under a name.

    The tags of the materialization stand behind all metadata; to take them alone apart is ten times as fast.
    """
    at = event.rfind(_TAGS)
    tags = None if at < 0 else json.JSONDecoder().raw_decode(event, at + len(_TAGS))[0]
    if isinstance(tags, dict) and name in tags:
        return str(tags[name])
    told = json.loads(event)["dagster_event"]["event_specific_data"]["materialization"]
    entries = told["metadata_entries"] or ()
    return next((one["entry_data"].get("text") for one in entries if one["label"] == name), None)
