"""Real Dagster processes on a real instance, that wait and die where a test wants them to."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import uuid
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import dagster as dg
import psutil
import pytest
from dagster._core.definitions.reconstruct import ReconstructableRepository
from dagster._core.execution.backfill import BULK_ACTION_TERMINAL_STATUSES, BulkActionStatus
from dagster._core.execution.plan.state import KnownExecutionState
from dagster._core.execution.retries import RetryMode
from dagster._core.origin import JobPythonOrigin
from dagster._core.remote_representation.grpc_server_registry import GrpcServerRegistry
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import WorkspaceFileTarget
from dagster._grpc.server import GrpcServerCommand
from dagster._grpc.types import ExecuteRunArgs, ExecuteStepArgs
from dagster_graphql.cli import execute_query

from marigold_assets.model import TableName
from marigold_assets.stores.duckdb import DuckDBStore

PROJECT = Path(__file__).parents[2]
PATIENCE_SECONDS = 90.0
# As hostile as an instance can be: it retries whatever failed, for whatever reason.
HOSTILE = """
telemetry: {enabled: false}
nux: {enabled: false}
run_retries: {enabled: true, max_retries: 3, retry_on_asset_or_op_failure: true}
run_queue: {dequeue_interval_seconds: 1}
"""


def wait_for(
    condition: Callable[[], Any], what: str, seconds: float = PATIENCE_SECONDS, *, every_seconds: float = 0.02
) -> Any:
    """Wait until a condition is true, and return what it is."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        if time.monotonic() > deadline:
            pytest.fail(f"waited {seconds:g} s in vain for {what}")
        time.sleep(every_seconds)
    return found


def is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@dataclass(frozen=True, slots=True)
class Process:
    """A process that leads a group of its own, with whatever it has started itself."""

    pid: int

    def wait(self) -> None:
        wait_for(lambda: not is_alive(self.pid), f"process {self.pid} to end")

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        self.wait()

    def kill_group(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)


class Zygote:
    """Forks processes that run `dagster` (see zygote.py)."""

    def __init__(self) -> None:
        variables = {**os.environ, "PYTHONPATH": os.pathsep.join([str(PROJECT), os.environ.get("PYTHONPATH", "")])}
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("zygote.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=variables,
        )

    def fork(self, **request: Any) -> Process:
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return Process(int(self._process.stdout.readline()))

    def close(self) -> None:
        self._process.communicate()


Launch = Callable[..., Any]
"""Runs a mutation of the GraphQL API: ``launch(LAUNCH_RUN, executionParams=...)``."""
LAUNCH_RUN = """
mutation($executionParams: ExecutionParams!) { launchRun(executionParams: $executionParams) {
  __typename ... on PythonError { message } ... on LaunchRunSuccess { run { runId } } } }
"""
LAUNCH_BACKFILL = """
mutation($backfillParams: LaunchBackfillParams!) { launchPartitionBackfill(backfillParams: $backfillParams) {
  __typename ... on PythonError { message } ... on LaunchBackfillSuccess { backfillId } } }
"""
REEXECUTE = """
mutation($reexecutionParams: ReexecutionParams) { launchRunReexecution(reexecutionParams: $reexecutionParams) {
  __typename ... on PythonError { message } ... on LaunchRunSuccess { run { runId } } } }
"""
TERMINATE_RUN = """
mutation($runId: String!) { terminateRun(runId: $runId) {
  __typename ... on PythonError { message } ... on TerminateRunFailure { message } } }
"""
CANCEL_BACKFILL = """
mutation($backfillId: String!) { cancelPartitionBackfill(backfillId: $backfillId) {
  __typename ... on PythonError { message } } }
"""
RELOAD = """
mutation { reloadRepositoryLocation(repositoryLocationName: "e2e") {
  __typename ... on PythonError { message } ... on WorkspaceLocationEntry { loadStatus } } }
"""
DONE = ("Success", "WorkspaceLocationEntry", "ScheduleStateResult")


def plain_run(job: str, day: str, **tags: str) -> dict[str, Any]:
    """The parameters of launching a run of one partition as the user interface does."""
    wanted = {"dagster/partition": day, **{key.replace("_", "/"): value for key, value in tags.items()}}
    selector = {"repositoryLocationName": "e2e", "repositoryName": "__repository__", "jobName": job}
    return {
        "selector": selector,
        "mode": "default",
        "runConfigData": {},
        "executionMetadata": {"tags": [{"key": key, "value": value} for key, value in wanted.items()]},
    }


class Rig:
    """An instance, a warehouse, and the processes that a test has started on them."""

    def __init__(self, zygote: Zygote, room: Path, settings: str, location: Path) -> None:
        self.zygote = zygote
        self.location = location
        self.room = room
        self.home = room / "home"
        self.home.mkdir()
        (self.home / "dagster.yaml").write_text(settings, encoding="utf-8")
        self.database = room / "warehouse.duckdb"
        self.variables = {
            "DAGSTER_HOME": str(self.home),
            "MARIGOLD_E2E_ROOM": str(room),
            # What Dagster starts for itself.
            "PYTHONPATH": os.pathsep.join([str(PROJECT), os.environ.get("PYTHONPATH", "")]),
        }
        self.instance = dg.DagsterInstance.from_config(str(self.home))
        self._repository = ReconstructableRepository.for_file(str(location), "defs", str(location.parent))
        self._started: list[Process] = []

    def close(self) -> None:
        for process in self._started:
            process.kill_group()
        self.instance.dispose()

    # --- starting ---

    def create(self, job: str, day: str | tuple[str, str] | None, **given: Any) -> str:
        """Create a run of a day, of a range of days `(first, last)`, or of what is not partitioned."""
        tags: dict[str, str] = dict(given.pop("tags", {}))
        if isinstance(day, str):
            tags["dagster/partition"] = day
        elif day is not None:
            tags |= dict(
                zip(
                    ("dagster/asset_partition_range_start", "dagster/asset_partition_range_end"),
                    day,
                    strict=True,
                )
            )
        run_id = str(uuid.uuid4())
        reconstructable = self._repository.get_reconstructable_job(job)
        if "assets" in given:
            reconstructable = reconstructable.get_subset(
                asset_selection=frozenset(map(dg.AssetKey, given.pop("assets")))
            )
        self.instance.create_run_for_job(
            job_def=reconstructable.get_definition(),
            run_id=run_id,
            tags=tags,
            job_code_origin=reconstructable.get_python_origin(),
            asset_selection=reconstructable.asset_selection,
            **given,
        )
        return run_id

    def spawn(self, program: str, *arguments: str) -> Process:
        """Start `dagster` or `dagster-daemon`."""
        process = self.zygote.fork(
            program=program,
            arguments=arguments,
            variables=self.variables,
            folder=str(self.room),
            log=str(self.room / f"process-{len(self._started)}.log"),
        )
        self._started.append(process)
        return process

    def start(self, run_id: str) -> Process:
        """Start a run worker, as run launchers do."""
        arguments = ExecuteRunArgs(job_origin=self._origin(run_id), run_id=run_id, instance_ref=self.instance.get_ref())
        return self.spawn("dagster", *_from_api(arguments.get_command_args()))

    def start_step(self, run_id: str, step: str, *, retry: int = 0) -> Process:
        """Start a step worker, as step launchers do: nothing keeps two of them from carrying out the same step."""
        arguments = ExecuteStepArgs(
            job_origin=self._origin(run_id),
            run_id=run_id,
            step_keys_to_execute=[step],
            instance_ref=self.instance.get_ref(),
            retry_mode=RetryMode.DEFERRED,
            known_state=KnownExecutionState(previous_retry_attempts={step: retry}),
        )
        return self.spawn("dagster", *_from_api(arguments.get_command_args()))

    def run(self, job: str, day: str | tuple[str, str] | None, **given: Any) -> str:
        """Carry out a run in a worker of its own, to its end."""
        run_id = self.create(job, day, **given)
        self.start(run_id).wait()
        return run_id

    def start_daemon(self) -> Process:
        """Start a daemon, with a code server, a queue, backfills and automatic retries."""
        return self.spawn("dagster-daemon", "run", "--workspace", str(self.workspace_file))

    @property
    def workspace_file(self) -> Path:
        file = self.room / "workspace.yaml"
        entry = {"relative_path": str(self.location), "attribute": "defs", "location_name": "e2e"}
        file.write_text(json.dumps({"load_from": [{"python_file": entry}]}), encoding="utf-8")
        return file

    @contextmanager
    def user_interface(self) -> Iterator[Launch]:
        """What the user interface launches with: the GraphQL API, on a code server of its own."""
        target = WorkspaceFileTarget([str(self.workspace_file)])
        servers = GrpcServerRegistry(
            instance_ref=self.instance.get_ref(),
            server_command=GrpcServerCommand.API_GRPC,
            heartbeat_ttl=60,
            startup_timeout=int(PATIENCE_SECONDS),
            wait_for_processes_on_shutdown=True,
        )
        with servers, WorkspaceProcessContext(self.instance, target, grpc_server_registry=servers) as workspace:

            def launch(mutation: str, **parameters: Any) -> Any:
                with warnings.catch_warnings(action="ignore"):  # Dagster deprecates what it uses itself
                    result = execute_query(workspace, mutation, parameters)
                [answer] = result["data"].values()
                assert answer["__typename"].endswith(DONE), answer
                return answer

            yield launch

    def _origin(self, run_id: str) -> JobPythonOrigin:
        origin = self.instance.get_run_by_id(run_id).job_code_origin
        assert origin is not None
        return origin

    # --- meeting ---

    def hold(self, place: str, run_id: str) -> None:
        """Let every process of a run wait when it comes to a place."""
        (self.room / f"hold@{place}@{run_id}").touch()

    def unhold(self, place: str, run_id: str) -> None:
        (self.room / f"hold@{place}@{run_id}").unlink()

    def arrived(self, place: str, run_id: str) -> list[int]:
        return [int(file.name.rpartition("@")[2]) for file in self.room.glob(f"arrived@{place}@{run_id}@*")]

    def await_arrival(self, place: str, run_id: str, processes: int = 1) -> list[int]:
        def there() -> list[int] | None:
            found = self.arrived(place, run_id)
            return found if len(found) >= processes else None

        return wait_for(there, f"run {run_id} to come to {place}\n{self.logs()}")

    def release(self, place: str, pid: int) -> None:
        (self.room / f"go@{place}@{pid}").touch()

    def die_after_commit(self, step: str, run_id: str) -> None:
        (self.room / f"die@{step}@{run_id}").touch()

    # --- ordering ---

    def order(self, place: str, asset: str, day: str, what: str) -> None:
        """Have whoever comes first to a place in the building of a day do something, such as ``kill worker``."""
        (self.room / f"{place}@{asset}@{day}").write_text(what, encoding="utf-8")

    def is_obeyed(self, place: str, asset: str, day: str) -> bool:
        return not (self.room / f"{place}@{asset}@{day}").exists()

    def await_hold(self, asset: str, day: str) -> int:
        """Wait until a process holds as it was ordered to, and return its id."""
        held = self.room / f"held@{asset}@{day}"
        return int(wait_for(lambda: held.exists() and held.read_text(), f"{asset} of {day} to hold\n{self.logs()}"))

    def let_go(self, asset: str, day: str) -> None:
        (self.room / f"go@{asset}@{day}").touch()

    def calls(self, asset: str) -> list[tuple[str, str, str]]:
        """Day, run and code version of every call of an asset's function."""
        noted = self.room / f"calls@{asset}"
        lines = noted.read_text(encoding="utf-8").splitlines() if noted.exists() else []
        return [(day, run, version) for day, run, version in map(str.split, lines)]

    # --- backfills ---

    def await_backfill(self, backfill: str, seconds: float = 4 * PATIENCE_SECONDS) -> BulkActionStatus:
        """Wait until a backfill has ended, and say how."""

        def ended() -> BulkActionStatus | None:
            status = self.instance.get_backfill(backfill).status
            return status if status in BULK_ACTION_TERMINAL_STATUSES else None

        return wait_for(ended, f"backfill {backfill} to end\n{self.logs()}", seconds, every_seconds=0.25)

    def runs_of(self, backfill: str) -> list[dg.DagsterRun]:
        """The runs of a backfill, the oldest first."""
        filters = dg.RunsFilter(tags={"dagster/backfill": backfill})
        return list(self.instance.get_runs(filters=filters, ascending=True))

    def await_end(self, run_id: str, seconds: float = PATIENCE_SECONDS) -> dg.DagsterRunStatus:
        wait_for(
            lambda: self.instance.get_run_by_id(run_id).is_finished, f"run {run_id} to end\n{self.logs()}", seconds
        )
        return self.status(run_id)

    # --- looking ---

    def logs(self) -> str:
        return "\n".join(
            f"== {file.name}\n{file.read_text(errors='replace')[-3000:]}"
            for file in sorted(self.room.glob("process-*.log"))
        )

    def status(self, run_id: str) -> dg.DagsterRunStatus:
        return self.instance.get_run_by_id(run_id).status

    def succeeded(self, run_id: str) -> bool:
        return self.status(run_id) == dg.DagsterRunStatus.SUCCESS

    def tags(self, run_id: str) -> Mapping[str, str]:
        return self.instance.get_run_by_id(run_id).tags

    def events(self, run_id: str, kind: dg.DagsterEventType) -> list[Any]:
        return [entry.dagster_event for entry in self.instance.all_logs(run_id, of_type=kind)]

    def materializations(self, run_id: str) -> dict[str | None, Any]:
        """What a run says it has materialized, by partition; more than one event a partition is an error."""
        events = self.events(run_id, dg.DagsterEventType.ASSET_MATERIALIZATION)
        found = {(e.asset_key.to_user_string(), e.partition): e.step_materialization_data for e in events}
        assert len(found) == len(events)
        return {partition: data.materialization for (_, partition), data in found.items()}

    @property
    def store(self) -> DuckDBStore:
        return DuckDBStore(str(self.database))

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        with self.store.connector.read() as connection:
            return connection.execute(sql).fetchall()

    def everything(self) -> tuple[Any, ...]:
        """What the warehouse holds: every row of every table, the fence and the ledger."""
        tables = self.query("SELECT schema_name, table_name FROM duckdb_tables() ORDER BY ALL")
        wanted = [
            (schema, name)
            for schema, name in tables
            if (schema, name) not in {("marigold", "counter"), ("marigold", "claims")}
        ]
        return tuple((name, self.query(f"SELECT * FROM {schema}.{name} ORDER BY ALL")) for schema, name in wanted)

    def table(self, name: str) -> TableName:
        return TableName(schema="shop", name=name)

    def wait_for_materialization(self, run_id: str, step: str) -> None:
        kind = dg.DagsterEventType.ASSET_MATERIALIZATION
        wait_for(lambda: step in {event.step_key for event in self.events(run_id, kind)}, f"{step} of run {run_id}")

    def writers(self, table: str, day: str) -> list[tuple[str, int]]:
        """Who has written the rows of a day, and how many."""
        return self.query(f"SELECT writer, count(*) FROM shop.{table} WHERE d = DATE '{day}' GROUP BY ALL ORDER BY ALL")

    def retry_of(self, run_id: str) -> str | None:
        """The run that is a re-execution of another."""
        runs = self.instance.get_runs(filters=dg.RunsFilter(tags={"dagster/parent_run_id": run_id}))
        return runs[0].run_id if runs else None

    def assert_fenced_out(self, loser: str, *, by: str, step: str, was_retried: bool = False) -> None:
        """A run was refused as it should be: it says by whom, says nothing else, and nobody tries it again."""
        [failure] = self.events(loser, dg.DagsterEventType.STEP_FAILURE)
        said = failure.event_specific_data.error_display_string
        tokens = dict(self._tokens_named_in(said))
        assert failure.step_key == step
        assert set(tokens) == {loser, by}
        assert loser == by or tokens[loser] < tokens[by]
        assert failure.event_specific_data.user_failure_data.metadata["marigold/error"].value == "fenced_out"
        assert failure.event_specific_data.error.cls_name == "Failure"
        assert self.events(loser, dg.DagsterEventType.STEP_UP_FOR_RETRY) == []
        assert loser == by or self.events(loser, dg.DagsterEventType.STEP_RESTARTED) == []
        materialized = {e.step_key for e in self.events(loser, dg.DagsterEventType.ASSET_MATERIALIZATION)}
        assert step not in materialized or loser == by
        assert self.tags(loser)["marigold/fenced_out_by"] == by
        # Only a run that was retried before, because its worker had died, may have a retry.
        assert self.tags(loser).get("dagster/will_retry", "false") == str(was_retried).lower()

    @staticmethod
    def _tokens_named_in(text: str) -> list[tuple[str, int]]:
        return [(run, int(token)) for run, token in re.findall(r"run ([0-9a-f-]{36}) \(token (\d+)\)", text)]


def _from_api(command: Sequence[str]) -> Sequence[str]:
    return command[command.index("api") :]


@pytest.fixture(scope="session")
def zygote() -> Iterator[Zygote]:
    zygote = Zygote()
    yield zygote
    zygote.close()


@pytest.fixture
def settings() -> str:
    """The dagster.yaml of the instance."""
    return HOSTILE


@pytest.fixture
def location() -> Path:
    """The code location of the workers."""
    return Path(__file__).with_name("location.py")


@pytest.fixture
def rig(zygote: Zygote, room: Path, settings: str, location: Path) -> Iterator[Rig]:
    rig = Rig(zygote, room, settings, location)
    try:
        yield rig
    finally:
        rig.close()


@pytest.fixture
def room() -> Iterator[Path]:
    with new_room() as room:
        yield room


@contextmanager
def new_room() -> Iterator[Path]:
    """A folder in memory where there is one: Dagster's SQLite waits for the disk at every event."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with (
        tempfile.TemporaryDirectory(dir=memory, prefix="marigold-e2e-", ignore_cleanup_errors=True) as room,
        pytest.MonkeyPatch.context() as variables,
    ):
        variables.setenv("MARIGOLD_E2E_ROOM", room)
        yield Path(room)


@pytest.fixture(scope="session")
def helpers() -> ModuleType:
    """The functions of this file, which tests cannot import."""
    return sys.modules[__name__]
