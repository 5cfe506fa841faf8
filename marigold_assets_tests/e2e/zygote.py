"""Starts `dagster` commands in processes of their own without importing everything anew for each.

Reads one JSON object a line (`program`, `arguments`, `variables`, `folder`, `log`), forks, and answers with the process
id. The child is the leader of its own process group and runs Dagster's real command line.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile

import dagster as dg
import dagster._cli
import dagster._daemon.cli
import dagster._daemon.controller as daemon_controller
import dagster._grpc.impl
import duckdb  # noqa: F401 - imported for the children
import pandas as pd  # noqa: F401 - imported for the children

import marigold_assets  # noqa: F401 - imported for the children

BETWEEN_LOOKS_AT_BACKFILLS = "DEFAULT_DAEMON_INTERVAL_SECONDS"


def warm_up() -> None:
    """Import what Dagster imports only when it runs something."""

    @dg.op
    def nothing() -> None: ...

    @dg.job(executor_def=dg.in_process_executor)
    def idle() -> None:
        nothing()

    with tempfile.TemporaryDirectory() as home, dg.DagsterInstance.local_temp(home) as instance:
        idle.execute_in_process(instance=instance)


def main() -> None:
    warm_up()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody stays a zombie
    for line in sys.stdin:
        request = json.loads(line)
        pid = os.fork()
        if pid == 0:
            become(request)
        print(pid, flush=True)


def become(request: dict) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for descriptor in (1, 2):
        os.dup2(log, descriptor)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    look_at_backfills_often()
    os.environ.update(request["variables"])
    os.chdir(request["folder"])
    sys.argv = [request["program"], *request["arguments"]]
    code = 1
    try:
        {"dagster": dagster._cli.main, "dagster-daemon": dagster._daemon.cli.main}[request["program"]]()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def look_at_backfills_often() -> None:
    """Have a daemon look at backfills every second, where each step of one would else wait up to half a minute."""
    assert getattr(daemon_controller, BETWEEN_LOOKS_AT_BACKFILLS) == 30
    setattr(daemon_controller, BETWEEN_LOOKS_AT_BACKFILLS, 1)


if __name__ == "__main__":
    main()
