"""dev.py needs nothing but Python, and the locks hold nothing but versions and hashes."""

from __future__ import annotations

import ast
import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

PROJECT = Path(__file__).parents[2]
LOCKS = ["requirements.lock", "requirements-oldest.lock"]


@pytest.fixture
def dev() -> ModuleType:
    spec = importlib.util.spec_from_file_location("dev", PROJECT / "dev.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def pinned(lock: str) -> dict[str, set[str]]:
    text = (PROJECT / lock).read_text(encoding="utf-8")
    found = re.findall(r"^([a-z0-9-]+)(?:\[\w+\])?==(\S+)", text, re.MULTILINE)
    return {name: {version for other, version in found if other == name} for name, _ in found}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--help"], ["market", "week", "test", "lint", "lock"]),
        (["test", "--help"], ["--quick", "--on"]),
        (["market", "--help"], ["--port"]),
        (["week", "--help"], ["--from", "--days"]),
    ],
)
def test_help_is_there_without_any_environment(arguments, words):
    command = [sys.executable, "-I", "-S", str(PROJECT / "dev.py"), *arguments]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert all(word in done.stdout for word in words)


def test_an_unknown_command_is_refused():
    command = [sys.executable, str(PROJECT / "dev.py"), "deploy"]
    assert subprocess.run(command, check=False, capture_output=True).returncode == 2


def test_only_the_standard_library_is_imported():
    tree = ast.parse((PROJECT / "dev.py").read_text(encoding="utf-8"))
    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    imported |= {a.name for node in ast.walk(tree) if isinstance(node, ast.Import) for a in node.names}
    assert imported <= sys.stdlib_module_names


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_records_no_address_and_a_hash_for_every_package(lock):
    text = (PROJECT / lock).read_text(encoding="utf-8")
    assert "://" not in text
    assert "index" not in text
    packages = re.split(r"^(?=\S)", text, flags=re.M)[1:]
    assert len(packages) > 50
    assert all("==" in package and "--hash=sha256:" in package for package in packages)


@pytest.mark.parametrize("lock", LOCKS)
def test_the_dagster_family_is_pinned_together(lock):
    versions = pinned(lock)
    core = {"dagster", "dagster-shared", "dagster-pipes", "dagster-graphql", "dagster-webserver"}
    libraries = {name for name in versions if name.startswith("dagster-duckdb")}
    for family in (core, libraries):
        assert len(set().union(*(versions[name] for name in family))) == 1


def test_the_two_locks_span_the_supported_duckdb_and_pandas():
    newest, oldest = map(pinned, LOCKS)
    assert min(newest["duckdb"]) >= "2"
    assert min(newest["pandas"]).startswith("2.")
    assert oldest["duckdb"] == {"1.5.5"}
    assert min(oldest["pandas"]).startswith("3.")


def test_what_runs_on_one_environment_only_is_there(dev):
    assert all((PROJECT / dev.TESTS / file).is_file() for file in dev.ONCE)
    assert all(file.split("/")[0] in dev.SUITES_ON_OLDEST for file in dev.ONCE)


def test_an_environment_is_made_again_exactly_when_its_lock_has_changed(dev, tmp_path, monkeypatch):
    steps: list[tuple[str, ...]] = []

    def pretend(*command: str | Path) -> None:
        steps.append(tuple(map(str, command)))
        (tmp_path / ".venv" / "bin").mkdir(parents=True, exist_ok=True)

    monkeypatch.setattr(dev, "PROJECT", tmp_path)
    monkeypatch.setattr(dev, "run", pretend)
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / "requirements.lock").write_text("one")
    dev.environment(".venv")
    made = len(steps)
    assert any("--require-hashes" in step for step in steps)
    dev.environment(".venv")
    assert len(steps) == made
    (tmp_path / "requirements.lock").write_text("two")
    dev.environment(".venv")
    assert len(steps) == 2 * made


def test_an_environment_that_was_cut_off_half_way_is_made_again(dev, tmp_path, monkeypatch):
    def cut_off(*command: str | Path) -> None:
        (tmp_path / ".venv" / "bin").mkdir(parents=True, exist_ok=True)
        if "--require-hashes" in command:
            raise SystemExit(1)

    monkeypatch.setattr(dev, "PROJECT", tmp_path)
    monkeypatch.setattr(dev, "run", cut_off)
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / "requirements.lock").write_text("one")
    for _ in range(2):
        with pytest.raises(SystemExit):
            dev.environment(".venv")


@pytest.mark.parametrize("fails", ["venv", "install"])
def test_where_uv_fails_pip_installs_the_same_lock_by_its_hashes(dev, tmp_path, monkeypatch, capsys, fails):
    steps: list[tuple[str, ...]] = []

    def run(*command: str | Path) -> None:
        steps.append(tuple(map(str, command)))
        if command[0] == "uv" and fails in command:
            raise SystemExit("uv: no network")
        (tmp_path / ".venv" / "bin").mkdir(parents=True, exist_ok=True)

    monkeypatch.setattr(dev, "PROJECT", tmp_path)
    monkeypatch.setattr(dev, "run", run)
    monkeypatch.setattr(dev, "working_uv", lambda: "uv")
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / "requirements.lock").write_text("one")
    dev.environment(".venv")
    by_pip = [step for step in steps if "pip" in step and step[0] != "uv"]
    assert "--require-hashes" in by_pip[0]
    assert "--editable" in by_pip[1]
    assert capsys.readouterr().out.count("uv: no network") == 1
    made = len(steps)
    dev.environment(".venv")
    assert len(steps) == made
