"""What README.md prints runs as printed, from the first line of a file to the last."""

from __future__ import annotations

import importlib.util
import re
import shlex
import subprocess
import sys
from pathlib import Path

import dagster as dg
import duckdb
import pytest

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
DAY = "2024-03-01"


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


FILES = blocks("python")
[LEDGER] = blocks("sql")
COMMANDS = [line for block in blocks("bash") for line in block.splitlines()]
both_files = pytest.mark.parametrize("text", FILES, ids=["io manager", "resource"])


@pytest.fixture
def definitions(tmp_path, text):
    file = tmp_path / "definitions.py"
    file.write_text(text, encoding="utf-8")
    return file


def assert_stored(folder):
    with duckdb.connect(str(folder / "warehouse.duckdb"), read_only=True) as connection:
        found = connection.execute("SELECT sale_date::DATE::TEXT, order_id, cents FROM market.daily_sales ORDER BY ALL")
        assert found.fetchall() == [(DAY, 1, 280), (DAY, 2, 890)]
        [entry] = connection.execute(LEDGER).fetchall()
        assert entry[:3] == (DAY, 2, "2")


@both_files
def test_a_file_materializes_a_partition(definitions):
    spec = importlib.util.spec_from_file_location("readme_definitions", definitions)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with dg.DagsterInstance.ephemeral() as instance:
        job = module.defs.resolve_implicit_global_asset_job_def()
        assert job.execute_in_process(partition_key=DAY, instance=instance).success
    assert_stored(definitions.parent)


@pytest.mark.processes
@pytest.mark.parametrize("text", FILES[:1], ids=["io manager"])
def test_the_command_beside_it_materializes_that_partition(definitions, monkeypatch):
    [command] = [line for line in COMMANDS if line.startswith("dagster asset materialize")]
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    dagster = Path(sys.executable).with_name("dagster")
    done = subprocess.run(
        [dagster, *shlex.split(command)[1:]], cwd=definitions.parent, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert_stored(definitions.parent)


def test_every_command_of_dev_py_and_every_folder_of_tests_is_named():
    program = (Path(__file__).parents[2] / "dev.py").read_text(encoding="utf-8")
    used = {line.split()[2] for line in COMMANDS if line.startswith("python3 dev.py")}
    assert used
    assert all(f'command("{name}"' in program for name in used)
    suites = {folder.parent.name for folder in Path(__file__).parents[1].glob("*/test_*.py")}
    [row] = [line for line in README.splitlines() if line.startswith("| `marigold_assets_tests/`")]
    assert suites == set(re.findall(r"\w+", row.split("|")[2]))
