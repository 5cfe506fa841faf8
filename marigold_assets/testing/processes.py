"""Running functions in processes that may be killed, without paying for an interpreter each time."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

_SERVER = r"""
import importlib.util, json, os, select, signal, sys, time, traceback, warnings

warnings.simplefilter("error")
sys.path[:0] = json.loads(sys.argv[2])
spec = importlib.util.spec_from_file_location("children", sys.argv[1])
children = importlib.util.module_from_spec(spec)
sys.modules["children"] = children
spec.loader.exec_module(children)
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)


def start(call):
    reading, writing = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writing)
        return pid, reading
    os.close(reading)
    try:
        answer = {"value": getattr(children, call["function"])(**call["arguments"])}
    except BaseException as error:
        answer = {"error": type(error).__name__, "message": str(error), "trace": traceback.format_exc()}
    with os.fdopen(writing, "w") as pipe:
        json.dump(answer, pipe)
    os._exit(0)


for line in sys.stdin:
    request = json.loads(line)
    running = [start(call) for call in request["calls"]]
    if request["kill_after_seconds"] is not None:
        time.sleep(request["kill_after_seconds"])
        for pid, _ in running:
            os.kill(pid, signal.SIGKILL)
    outcomes = []
    for pid, reading in running:
        with os.fdopen(reading) as pipe:
            text = pipe.read()
        _, status = os.waitpid(pid, 0)
        outcomes.append({"code": os.waitstatus_to_exitcode(status), **(json.loads(text) if text else {})})
    answers.write(json.dumps(outcomes) + "\n")
    answers.flush()
answers.close()
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a function ended in its process.

    Attributes:
        code: The exit code; -9 after SIGKILL.
        value: What the function returned, if it did.
        error: Name of the type that it raised, if it did.
        message: What that error said.
        trace: Its traceback.
    """

    code: int
    value: Any = None
    error: str | None = None
    message: str = ""
    trace: str = ""

    @property
    def killed(self) -> bool:
        """Whether a signal ended the process."""
        return self.code < 0


class ForkServer:
    """A process that has imported what is needed, and forks itself for every call.

    Args:
        module: A Python file whose functions can be called; it must not start threads when imported. Arguments and
            results go as JSON.
    """

    def __init__(self, module: Path) -> None:
        self._process = subprocess.Popen(  # noqa: S603 - this very interpreter
            [sys.executable, "-c", _SERVER, str(module), json.dumps(sys.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.communicate()

    def call(self, function: str, *, kill_after_seconds: float | None = None, **arguments: Any) -> Outcome:
        """Run one function in a process of its own, to its end or until it is killed."""
        [outcome] = self.call_together([(function, arguments)], kill_after_seconds=kill_after_seconds)
        return outcome

    def call_together(
        self, calls: Sequence[tuple[str, Mapping[str, Any]]], *, kill_after_seconds: float | None = None
    ) -> list[Outcome]:
        """Run functions at the same time, each in a process of its own.

        Args:
            calls: Names and arguments.
            kill_after_seconds: When to kill them all with SIGKILL, if they have not ended before.

        Raises:
            RuntimeError: The server has died.
        """
        request = {
            "calls": [{"function": function, "arguments": dict(arguments)} for function, arguments in calls],
            "kill_after_seconds": kill_after_seconds,
        }
        if self._process.stdin is None or self._process.stdout is None:
            msg = "the fork server has no pipes"
            raise RuntimeError(msg)
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            msg = f"the fork server has died with {self._process.wait()}"
            raise RuntimeError(msg)
        return [Outcome(**outcome) for outcome in json.loads(answer)]
