"""Every use of a part of Dagster that is not public for what is done to a live instance: backfills, daemon, queue.

As :mod:`marigold_assets.dagster_internals` for what is done within runs, and with tests in ``test_dagster_instance``.
What takes long to import is imported where it is used.
"""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import dagster as dg

from marigold_assets.errors import ConfigurationError
from marigold_assets.planning.model import Key

if TYPE_CHECKING:
    from dagster._core.execution.backfill import PartitionBackfill

BACKFILL_DAEMON, QUEUE_DAEMON = "BACKFILL", "QUEUED_RUN_COORDINATOR"
ALIVE_WITHIN: Final = timedelta(minutes=3)
"""How long ago a daemon that lives may last have said so: it does every 30 s, but for when it is very busy."""
_STOPPED: Final = frozenset({"CANCELED", "FAILED"})
_LATE_SECONDS: Final = 5.0
"""By how much a look may come late that is still to be expected now."""
ACTIVE: Final = frozenset({"REQUESTED", "CANCELING", "FAILING"})
"""Of the words for how a backfill stands, those of one that has not ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backfill:
    """A backfill as the instance has it.

    Attributes:
        backfill_id: Its name.
        status: Dagster's word: ``REQUESTED``, ``CANCELING``, ``CANCELED``, ``COMPLETED_SUCCESS``, ...
        title: What people read of it.
        description: More of that.
        tags: Its tags, which its runs have as well.
        created_at: When it was launched (aware, UTC).
        ended_at: When the daemon saw that it had ended; ``None``: it has not, or nobody knows.
        error: Why the daemon has given it up, in one line, if it has.
        targets: What it is to build, by asset; ``None``: unknown which partitions.
        built: What the daemon has seen to be built of that.
        job: The job that it launches, where it is no backfill of assets; then nothing is known of its assets.
        job_keys: The partitions of that.
    """

    backfill_id: str
    status: str
    title: str | None
    description: str | None
    tags: Mapping[str, str]
    created_at: datetime
    ended_at: datetime | None
    error: str | None
    targets: Mapping[str, frozenset[Key] | None]
    built: Mapping[str, frozenset[Key]]
    job: str | None = None
    job_keys: frozenset[str] = frozenset()

    @property
    def is_active(self) -> bool:
        """Whether runs of it may still start or end."""
        return self.status in ACTIVE

    @property
    def was_stopped(self) -> bool:
        """Whether it was canceled or given up, so that not all of its runs were started."""
        return self.status in _STOPPED


# --- looking at backfills --------------------------------------------------------------------------------------------


def backfills(
    instance: dg.DagsterInstance,
    *,
    tags: Mapping[str, str] | None = None,
    only_active: bool = False,
    most: int | None = None,
) -> list[Backfill]:
    """The backfills of an instance, the newest first.

    Args:
        instance: The instance.
        tags: Those that all of them have.
        only_active: Whether only such are wanted as have not ended.
        most: How many; ``None``: all.
    """
    from dagster._core.execution.backfill import BulkActionsFilter, BulkActionStatus  # noqa: PLC0415 - see above

    statuses = [BulkActionStatus(one) for one in sorted(ACTIVE)] if only_active else None
    filters = BulkActionsFilter(tags=dict(tags) if tags else None, statuses=statuses)
    return [_backfill(one) for one in instance.get_backfills(filters=filters, limit=most)]


def backfill(instance: dg.DagsterInstance, backfill_id: str) -> Backfill | None:
    """One backfill of an instance; ``None`` if it has none of this name."""
    found = instance.get_backfill(backfill_id)
    return None if found is None else _backfill(found)


def _backfill(found: PartitionBackfill) -> Backfill:
    data = found.asset_backfill_data
    targets: dict[str, frozenset[Key] | None] = {}
    built: dict[str, frozenset[Key]] = {}
    if data is not None:
        targets |= _keys_of(data.target_subset)
        built = _keys_of(data.materialized_subset)
    elif found.serialized_asset_backfill_data is not None:  # of an older Dagster: to read it takes the definitions
        targets |= {key.to_user_string(): None for key in found.asset_selection or ()}
    ended = found.backfill_end_timestamp
    return Backfill(
        backfill_id=found.backfill_id,
        status=found.status.value,
        title=found.title,
        description=found.description,
        tags=dict(found.tags or {}),
        created_at=datetime.fromtimestamp(found.backfill_timestamp, UTC),
        ended_at=None if ended is None else datetime.fromtimestamp(ended, UTC),
        error=None if found.error is None else _first_line(found.error.message),
        targets=targets,
        built=built,
        job=None if found.is_asset_backfill else found.job_name,
        job_keys=frozenset() if found.is_asset_backfill else frozenset(found.partition_names or ()),
    )


def _keys_of(subset: Any) -> dict[str, frozenset[Key]]:
    found: dict[str, frozenset[Key]] = {
        key.to_user_string(): frozenset(keys.get_partition_keys())
        for key, keys in subset.partitions_subsets_by_asset_key.items()
    }
    return found | {key.to_user_string(): frozenset({None}) for key in subset.non_partitioned_asset_keys}


# --- canceling -------------------------------------------------------------------------------------------------------


def ask_to_cancel(instance: dg.DagsterInstance, backfill_id: str) -> bool:
    """Ask the daemon to launch no more of a backfill and to end its runs, as the user interface does.

    The daemon may write over that what it has read before, so that whoever asks has to look afterwards, and ask again.

    Returns:
        Whether it had to be asked.
    """
    from dagster._core.execution.backfill import BulkActionStatus  # noqa: PLC0415 - see above

    found = instance.get_backfill(backfill_id)
    if found is None or found.status is not BulkActionStatus.REQUESTED:
        return False
    instance.update_backfill(found._replace(status=BulkActionStatus.CANCELING))
    return True


def end_run(instance: dg.DagsterInstance, run_id: str) -> bool | None:
    """Take a run out of the queue, or tell it to stop.

    Returns:
        Whether there was anything to be told; ``None`` while the code server that carries it out does not answer.
    """
    try:
        return bool(instance.run_coordinator.cancel_run(run_id))
    except dg.DagsterError:
        return None


def call_canceled(instance: dg.DagsterInstance, run_id: str) -> None:
    """Say of a run that is to be canceled, and that nobody carries out, that it is canceled.

    Dagster says first that it is being canceled and looks then for its process, which may have ended in between.
    """
    run = instance.get_run_by_id(run_id)
    if run is not None and run.status is dg.DagsterRunStatus.CANCELING:
        instance.report_run_canceled(run, message="Nobody carries this run out any more: it was being canceled.")


# --- the daemon ------------------------------------------------------------------------------------------------------


def last_heartbeat(instance: dg.DagsterInstance, daemon: str) -> datetime | None:
    """When a part of the daemon last said that it lives (aware, UTC); ``None``: never."""
    found = instance.get_daemon_heartbeats().get(daemon)
    return None if found is None else datetime.fromtimestamp(found.timestamp, UTC)


def seconds_to_look(instance: dg.DagsterInstance, *, tick_seconds: float) -> float | None:
    """In how long the daemon next looks at the backfills.

    It says that it lives right before a look, when it is time for both: so the last time that it said so was the last
    look.

    Args:
        instance: The instance.
        tick_seconds: How often it looks.

    Returns:
        Seconds; ``None`` if it is not on time, being at a look that takes long, or gone.
    """
    last = last_heartbeat(instance, BACKFILL_DAEMON)
    age = None if last is None else (datetime.now(UTC) - last).total_seconds()
    return None if age is None or not 0 <= age <= tick_seconds + _LATE_SECONDS else max(0.0, tick_seconds - age)


# --- launching -------------------------------------------------------------------------------------------------------

_LAUNCH = """
mutation($backfillParams: LaunchBackfillParams!) { launchPartitionBackfill(backfillParams: $backfillParams) {
  __typename
  ... on LaunchBackfillSuccess { backfillId }
  ... on Error { message }
} }
"""
_LAUNCH_RUN = """
mutation($executionParams: ExecutionParams!) { launchRun(executionParams: $executionParams) {
  __typename
  ... on LaunchRunSuccess { run { runId } }
  ... on Error { message }
} }
"""
TITLE_LENGTH: Final = 100
_BARRED_IN_TITLES: Final = '%*"'
_SERVER_LIVES_SECONDS = 60  # after the last word from here, should this process die


def title_of(text: str) -> str:
    """The text as Dagster takes it for a title."""
    plain = " ".join("".join("'" if one in _BARRED_IN_TITLES else one for one in text).split())
    return plain if len(plain) <= TITLE_LENGTH else f"{plain[: TITLE_LENGTH - 3]}..."


@contextmanager
def api(
    instance: dg.DagsterInstance,
    *,
    python_file: str | None = None,
    module_name: str | None = None,
    attribute: str | None = None,
    working_directory: str | None = None,
    workspace: Sequence[str] = (),
) -> Iterator[Api]:
    """The API of the user interface, on a code server of its own.

    Args:
        instance: Where.
        python_file: Which code location, as Dagster's own commands take it.
        module_name: The same.
        attribute: The same.
        working_directory: The same.
        workspace: The same.

    Raises:
        ConfigurationError: The code location does not load in a server, or, when something is launched, Dagster
            refuses that.
    """
    from dagster._core.remote_representation.grpc_server_registry import GrpcServerRegistry  # noqa: PLC0415 - see above
    from dagster._core.workspace.context import WorkspaceProcessContext  # noqa: PLC0415
    from dagster._grpc.constants import GrpcServerCommand  # noqa: PLC0415

    target = _target(python_file, module_name, attribute, working_directory, workspace)
    with warnings.catch_warnings(action="ignore"):  # Dagster deprecates what it uses itself
        from dagster_graphql.schema import create_schema  # noqa: PLC0415 - see above

        schema: Any = create_schema()
        servers = GrpcServerRegistry(
            instance_ref=instance.get_ref(),
            server_command=GrpcServerCommand.API_GRPC,
            heartbeat_ttl=_SERVER_LIVES_SECONDS,
            startup_timeout=instance.code_server_process_startup_timeout,
            log_level="ERROR",
            wait_for_processes_on_shutdown=True,  # nothing that was started here is left behind
        )
        with servers, WorkspaceProcessContext(instance, target, grpc_server_registry=servers) as process:
            request = process.create_request_context()
            _refuse_errors(request)

            yield Api(schema, request)


class Api:
    """The API of the user interface, with the code locations that it knows."""

    def __init__(self, schema: Any, request: Any) -> None:
        self._schema, self._request = schema, request

    def launch_backfill(self, params: Mapping[str, Any]) -> str:
        """Launch a backfill, and return its id."""
        answer = self._ask(_LAUNCH, {"backfillParams": dict(params)})
        return str(answer["backfillId"])

    def launch_run(self, params: Mapping[str, Any]) -> str:
        """Launch a run of some GraphQL ``ExecutionParams``, and return its id."""
        answer = self._ask(_LAUNCH_RUN, {"executionParams": dict(params)})
        return str(answer["run"]["runId"])

    def place_of_job(self, name: str) -> tuple[str, str] | None:
        """Code location and repository of a job; ``None``: there is none of this name."""
        for location in self._request.code_locations:
            for repository in location.get_repositories().values():
                if repository.has_job(name):
                    return str(location.name), str(repository.name)
        return None

    def _ask(self, query: str, variables: Mapping[str, Any]) -> Any:
        result = asyncio.run(self._schema.execute_async(query, context_value=self._request, variable_values=variables))
        if result.errors:
            raise _refused(str(result.errors[0].message))
        [answer] = result.data.values()
        if not str(answer["__typename"]).endswith("Success"):
            raise _refused(str(answer.get("message") or answer["__typename"]))
        return answer


def _refuse_errors(request: Any) -> None:
    wrong = [one for one in request.get_code_location_entries().values() if one.load_error is not None]
    if wrong and len(wrong) == len(request.get_code_location_entries()):
        raise ConfigurationError(
            f"the code location does not load in a code server: {_first_line(wrong[0].load_error.message)}",
            remedy="correct the code, or name the code location as the daemon's workspace does",
        )


def _refused(message: str) -> ConfigurationError:
    return ConfigurationError(
        f"Dagster refuses the backfill: {_first_line(message)}",
        remedy="plan again: 'marigold plan' tells which partitions there are",
    )


def _target(
    python_file: str | None,
    module_name: str | None,
    attribute: str | None,
    working_directory: str | None,
    workspace: Sequence[str],
) -> Any:
    from dagster._core.workspace import load_target  # noqa: PLC0415 - see above

    folder = working_directory or str(Path.cwd())
    if python_file is not None:
        return load_target.PythonFileTarget(python_file, attribute, folder, None)
    if module_name is not None:
        return load_target.ModuleTarget(module_name, attribute, folder, None)
    if workspace:
        return load_target.WorkspaceFileTarget(list(workspace))
    project = load_target.PyProjectFileTarget("pyproject.toml")
    if Path("pyproject.toml").is_file() and project.create_origins():
        return project
    files = [one for one in ("workspace.yaml", "workspace.yml") if Path(one).is_file()]
    return load_target.WorkspaceFileTarget(files[:1])


def _first_line(text: str) -> str:
    """The first line that says something: of an invariant what was violated, without the word for it."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    found = lines[0] if lines else "no reason given"
    return found.partition("Description: ")[2] or found
