"""What zombies do to a partition: this package's IO manager and Dagster's own DuckDB one, side by side.

Both go through the same five situations with real run workers and step workers of a real Dagster instance, that are
paused with SIGSTOP and killed with SIGKILL. Each situation has a day of its own, and every row says which run and which
process wrote it. Run it with `python -m benchmarks.zombies`; it takes a few minutes and touches temporary folders only.
"""

# No `from __future__ import annotations` here: this file is the code location too, and Dagster compares the
# annotation of `context` with its classes.

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import dagster as dg
import duckdb
import pandas as pd
from dagster._grpc.types import ExecuteRunArgs, ExecuteStepArgs
from dagster_duckdb_pandas import DuckDBPandasIOManager

from marigold_assets import FencedPartitionIOManager

ROOM: Final = "MARIGOLD_ZOMBIES_ROOM"
MANAGER: Final = "MARIGOLD_ZOMBIES_MANAGER"
FENCED: Final = "marigold_assets"
PEER: Final = "dagster_duckdb_pandas"
ROWS: Final = 200_000
PATIENCE_SECONDS: Final = 180.0
DAYS: Final = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-02-01")


# --- the code location, in the workers -------------------------------------------------------------------------------


@dg.asset(partitions_def=DAYS, metadata={"partition_expr": "d"})
def sales(context: dg.AssetExecutionContext) -> pd.DataFrame:
    """Compute, and wait for a sign before what was computed is stored."""
    room, pid = Path(os.environ[ROOM]), os.getpid()
    day = pd.Timestamp(context.partition_key)
    frame = pd.DataFrame({"d": day, "writer": context.run.run_id, "pid": pid, "n": range(ROWS)})
    (room / f"arrived@{context.run.run_id}@{pid}").touch()
    _wait_for(lambda: (room / f"go@{pid}").exists() or (room / f"go@{context.run.run_id}").exists(), "a sign")
    return frame


def together() -> dg.JobDefinition:
    """The job in one process."""
    return _job(dg.in_process_executor)


def apart() -> dg.JobDefinition:
    """The job with a process for its step."""
    return _job(dg.multiprocess_executor)


def _job(executor: dg.ExecutorDefinition) -> dg.JobDefinition:
    database = str(Path(os.environ[ROOM]) / "warehouse.duckdb")
    manager = FencedPartitionIOManager if os.environ[MANAGER] == FENCED else DuckDBPandasIOManager
    definitions = dg.Definitions(
        assets=[sales],
        jobs=[dg.define_asset_job("job", selection=[sales], executor_def=executor)],
        resources={"io_manager": manager(database=database, schema="shop")},
    )
    return definitions.resolve_job_def("job")


def _wait_for(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {PATIENCE_SECONDS:g} s in vain for {what}")
        time.sleep(0.01)


_loading = threading.Lock()  # Dagster loads this file as a module, and another thread would find half of it


# --- the stage -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a situation has led to.

    Attributes:
        holds: What the table holds afterwards.
        green: Which runs Dagster shows as succeeded.
        events: How many materializations each has logged.
        right: Whether the table holds what it should, once, and nobody else claims to have written it.
    """

    holds: str
    green: str
    events: str
    right: bool


@dataclass(slots=True, kw_only=True)
class Stage:
    """An instance, a warehouse, and the workers started on them.

    Attributes:
        manager: Which IO manager is tried.
        room: A folder for everything.
        instance: The Dagster instance.
    """

    manager: str
    room: Path
    instance: dg.DagsterInstance
    _started: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def create(self, job: Callable[[], dg.JobDefinition], day: str, *, retry_of: str | None = None) -> str:
        """Create a run of one day."""
        with _loading:
            reconstructable = dg.reconstructable(job)
            definition = reconstructable.get_definition()
        return self.instance.create_run_for_job(
            job_def=definition,
            run_id=str(uuid.uuid4()),
            tags={"dagster/partition": day},
            job_code_origin=reconstructable.get_python_origin(),
            parent_run_id=retry_of,
            root_run_id=retry_of,
        ).run_id

    def start(self, run: str) -> subprocess.Popen[bytes]:
        """Start a run worker, as run launchers do."""
        origin = self.found(run).job_code_origin
        assert origin is not None
        arguments = ExecuteRunArgs(job_origin=origin, run_id=run, instance_ref=self.instance.get_ref())
        return self._spawn(arguments.get_command_args())

    def start_step(self, run: str) -> subprocess.Popen[bytes]:
        """Start a worker for the run's only step, as step launchers do."""
        origin = self.found(run).job_code_origin
        assert origin is not None
        arguments = ExecuteStepArgs(
            job_origin=origin, run_id=run, step_keys_to_execute=["sales"], instance_ref=self.instance.get_ref()
        )
        return self._spawn(arguments.get_command_args())

    def arrived(self, run: str, processes: int = 1) -> list[int]:
        """Wait until so many processes of a run have computed, and return their ids."""
        pattern = f"arrived@{run}@*"
        _wait_for(lambda: len(list(self.room.glob(pattern))) >= processes, f"run {run} to compute")
        return [int(file.name.rpartition("@")[2]) for file in self.room.glob(pattern)]

    def go(self, who: str | int) -> None:
        """Let a run or a process store what it has computed."""
        (self.room / f"go@{who}").touch()

    def carry_out(self, run: str) -> None:
        """Carry out a run to its end."""
        self.go(run)
        self.start(run).wait(PATIENCE_SECONDS)

    def rows(self, day: str) -> dict[tuple[str, int], int]:
        """How many rows of a day each run and process has written."""
        with duckdb.connect(str(self.room / "warehouse.duckdb"), read_only=True) as connection:
            query = "SELECT writer, pid, count(*) FROM shop.sales WHERE d = CAST(? AS DATE) GROUP BY ALL"
            return {(writer, pid): count for writer, pid, count in connection.execute(query, [day]).fetchall()}

    def events(self, run: str) -> int:
        """How many materializations a run has logged."""
        return len(self.instance.all_logs(run, of_type=dg.DagsterEventType.ASSET_MATERIALIZATION))

    def found(self, run: str) -> dg.DagsterRun:
        """A run as it is now."""
        found = self.instance.get_run_by_id(run)
        assert found is not None
        return found

    def steps_ended(self, run: str) -> int:
        """How many times a step of a run has succeeded or failed."""
        ends = {dg.DagsterEventType.STEP_SUCCESS, dg.DagsterEventType.STEP_FAILURE}
        return len(self.instance.all_logs(run, of_type=ends))

    def outcome(self, day: str, runs: Mapping[str, str], *, winner: str) -> Outcome:
        """What has become of a day that several runs wanted, by name."""
        names = {run: name for name, run in runs.items()}
        holds: dict[str, int] = {}
        for (run, _), count in self.rows(day).items():
            holds[names.get(run, run)] = holds.get(names.get(run, run), 0) + count
        green = [name for name, run in runs.items() if self.found(run).status == dg.DagsterRunStatus.SUCCESS]
        events = {name: self.events(run) for name, run in runs.items()}
        right = holds == {winner: ROWS} and events == {name: int(name == winner) for name in runs}
        return Outcome(
            holds=" + ".join(f"{count:,} of {name}" for name, count in sorted(holds.items())) or "nothing",
            green=", ".join(green) or "none",
            events=", ".join(f"{name} {count}" for name, count in events.items()),
            right=right,
        )

    def close(self) -> None:
        """End what is still running of what was started here."""
        for process in self._started:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self.instance.dispose()

    def _spawn(self, command: Sequence[str]) -> subprocess.Popen[bytes]:
        with (self.room / "workers.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "dagster", *command[command.index("api") :]],
                env={**os.environ, ROOM: str(self.room), MANAGER: self.manager},
                cwd=self.room,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._started.append(process)
        return process


# --- the situations --------------------------------------------------------------------------------------------------


def worker_killed(stage: Stage) -> Outcome:
    """kill -9 of A's run worker; its step lives on beside the retry B"""
    day = "2024-01-01"
    a = stage.create(apart, day)
    worker = stage.start(a)
    [zombie] = stage.arrived(a)
    os.kill(worker.pid, signal.SIGKILL)
    worker.wait()
    stage.instance.report_run_failed(stage.found(a))  # as the code server does that has started it
    b = stage.create(together, day, retry_of=a)
    stage.carry_out(b)
    stage.go(zombie)
    _wait_for(lambda: stage.steps_ended(a), "the zombie to end")
    return stage.outcome(day, {"A": a, "B": b}, winner="B")


def step_paused(stage: Stage) -> Outcome:
    """SIGSTOP of A's step, B finishes the day, SIGCONT"""
    day = "2024-01-02"
    a = stage.create(together, day)
    worker = stage.start(a)
    [step] = stage.arrived(a)
    os.kill(step, signal.SIGSTOP)
    b = stage.create(together, day)
    stage.carry_out(b)
    stage.go(step)
    os.kill(step, signal.SIGCONT)
    worker.wait(PATIENCE_SECONDS)
    return stage.outcome(day, {"A": a, "B": b}, winner="B")


def runs_overlap(stage: Stage) -> Outcome:
    """A and then B start, both compute, B stores first"""
    day = "2024-01-03"
    runs = {name: stage.create(together, day) for name in ("A", "B")}
    workers = {}
    for name, run in runs.items():
        workers[name] = stage.start(run)
        stage.arrived(run)
    for name in ("B", "A"):
        stage.go(runs[name])
        workers[name].wait(PATIENCE_SECONDS)
    return stage.outcome(day, runs, winner="B")


def run_id_twice(stage: Stage) -> Outcome:
    """One run in two processes: the second starts while the first waits, and stores first"""
    day = "2024-01-04"
    run = stage.create(together, day)
    twins = {}
    for number, name in enumerate(("first", "second"), start=1):
        twins[name] = stage.start_step(run)
        stage.arrived(run, processes=number)
    for name in ("second", "first"):
        stage.go(twins[name].pid)
        twins[name].wait(PATIENCE_SECONDS)
    rows, events = stage.rows(day), stage.events(run)
    failures = len(stage.instance.all_logs(run, of_type=dg.DagsterEventType.STEP_FAILURE))
    names = {twin.pid: name for name, twin in twins.items()}
    return Outcome(
        holds=" + ".join(f"{count:,} of {names[pid]}" for (_, pid), count in rows.items()) or "nothing",
        green="both" if not failures else "one" if failures == 1 else "none",
        events=f"run {events}",
        right=rows == {(run, twins["second"].pid): ROWS} and events == 1,
    )


def killed_while_storing(stage: Stage, *, kills: int, seed: int) -> Outcome:
    """kill -9 at random while a full day is stored again, then a retry"""
    day = "2024-01-05"
    last = stage.create(together, day)
    stage.carry_out(last)
    luck = random.Random(seed)
    broken = 0
    for _ in range(kills):
        run = stage.create(together, day)
        worker = stage.start(run)
        stage.arrived(run)
        stage.go(run)
        time.sleep(luck.uniform(0.0, 0.4))
        os.killpg(worker.pid, signal.SIGKILL)
        worker.wait()
        broken += list(stage.rows(day).values()) != [ROWS]
    retry = stage.create(together, day)
    stage.carry_out(retry)
    after = stage.outcome(day, {"retry": retry}, winner="retry")
    return Outcome(
        holds=f"in pieces {broken} of {kills} times; then {after.holds}",
        green=after.green,
        events=after.events,
        right=after.right and not broken,
    )


@contextmanager
def _stage(manager: str) -> Iterator[Stage]:
    with tempfile.TemporaryDirectory(prefix="marigold-zombies-") as folder:
        home = Path(folder) / "home"
        home.mkdir()
        (home / "dagster.yaml").write_text("telemetry: {enabled: false}\nnux: {enabled: false}\n", encoding="utf-8")
        stage = Stage(manager=manager, room=Path(folder), instance=dg.DagsterInstance.from_config(str(home)))
        try:
            yield stage
        finally:
            stage.close()


def compare(kills: int, seed: int) -> list[tuple[str, dict[str, Outcome]]]:
    """Go through the situations, with both managers at the same time."""
    situations: dict[str, Callable[[Stage], Outcome]] = {
        (situation.__doc__ or ""): situation for situation in (worker_killed, step_paused, runs_overlap, run_id_twice)
    }
    situations[killed_while_storing.__doc__ or ""] = lambda stage: killed_while_storing(stage, kills=kills, seed=seed)
    # What a run is created from is loaded here; which manager it gets is up to the workers.
    os.environ.setdefault(ROOM, tempfile.gettempdir())
    os.environ.setdefault(MANAGER, FENCED)
    found = []
    with _stage(FENCED) as fenced, _stage(PEER) as peer, ThreadPoolExecutor(2) as pool:
        for text, situation in situations.items():
            print(f"{text} ...", file=sys.stderr, flush=True)
            outcomes = pool.map(situation, (fenced, peer))
            found.append((text, dict(zip((FENCED, PEER), outcomes, strict=True))))
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the comparison; return 1 if the fenced manager was wrong anywhere."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.zombies", description=__doc__)
    parser.add_argument("--kills", type=int, default=8, help="how often the last situation kills (default: 8)")
    parser.add_argument("--seed", type=int, default=2024, help="seed of the moments to kill at (default: 2024)")
    options = parser.parse_args(arguments)
    found = compare(options.kills, options.seed)
    width = max(len(outcome.holds) for _, outcomes in found for outcome in outcomes.values())
    print(f"\n{'':2}{'':24}{'the day holds afterwards':<{width + 2}}{'green':<8}{'materializations':<18}")
    for number, (text, outcomes) in enumerate(found, start=1):
        print(f"{number}. {text}")
        for manager, outcome in outcomes.items():
            verdict = "right" if outcome.right else "WRONG"
            print(f"{'':3}{manager:<23}{outcome.holds:<{width + 2}}{outcome.green:<8}{outcome.events:<18}{verdict}")
    return 0 if all(outcomes[FENCED].right for _, outcomes in found) else 1


if __name__ == "__main__":
    sys.exit(main())
