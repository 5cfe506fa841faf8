"""The line before a database: first come, first served, and nobody waits for the dead."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from marigold_assets.stores import line

# Locks on single bytes are POSIX; on Windows everybody passes at once, which the module says of itself.
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there is no order there")

# Loads the one module by its path: the package would take a second to import.
_STAND_IN_LINE = """
import importlib.util, sys, time
spec = importlib.util.spec_from_file_location("line", sys.argv[1])
line = importlib.util.module_from_spec(spec)
spec.loader.exec_module(line)
with line.in_line(__import__("pathlib").Path(sys.argv[2]), time.monotonic() + float(sys.argv[3])):
    print("in", flush=True)
    sys.stdin.read()
"""


def _stand(path, *, timeout_seconds=60.0):
    before = path.stat().st_size if path.exists() else 0
    child = subprocess.Popen(
        [sys.executable, "-c", _STAND_IN_LINE, line.__file__, str(path), str(timeout_seconds)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    while not path.exists() or path.stat().st_size == before:
        assert child.poll() is None
        time.sleep(0.005)
    return child


def _leave(child):
    child.communicate(timeout=10)
    assert child.returncode == 0


def test_whoever_comes_first_goes_first(tmp_path):
    children = [_stand(tmp_path / "line") for _ in range(5)]
    time.sleep(0.05)  # the last one's lock comes just after its byte
    for position, child in enumerate(children):
        assert child.stdout.readline() == "in\n"
        assert all(later.poll() is None for later in children[position + 1 :])
        _leave(child)


def test_nobody_waits_for_a_process_that_was_killed_in_line(tmp_path):
    first, second, third = (_stand(tmp_path / "line") for _ in range(3))
    for dead in (second, first):
        dead.kill()
        dead.communicate()
    assert third.stdout.readline() == "in\n"
    _leave(third)


def test_a_deadline_ends_the_wait(tmp_path):
    first = _stand(tmp_path / "line")
    assert first.stdout.readline() == "in\n"
    second = _stand(tmp_path / "line", timeout_seconds=0.2)
    assert second.stdout.readline() == "in\n"
    _leave(second)
    _leave(first)


def test_a_folder_that_is_not_there_has_no_line(tmp_path):
    with line.in_line(tmp_path / "missing" / "line", time.monotonic() + 1):
        assert not Path(tmp_path, "missing").exists()
