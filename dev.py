"""Every chore of this project, with nothing but Python: `python3 dev.py --help`.

Each command first makes the virtual environment it needs from the lock file, checked against its hashes, and
leaves it alone while the lock is unchanged. Only the standard library is imported here.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).resolve().parent
TESTS = "marigold_assets_tests"
NEWEST = ".venv"
OLDEST = ".venv-oldest"
LOCKS = {NEWEST: "requirements.lock", OLDEST: "requirements-oldest.lock"}

# What a lock resolves beside the project's own dependencies. The build backend is locked as well, or
# installing the project would download one that nobody has checked.
BUILD = ("hatchling>=1.26", "editables")
GROUPS = {NEWEST: ("test", "lint", "peer", "e2e"), OLDEST: ("test",)}
PINS = {NEWEST: ("duckdb>=2,<3",), OLDEST: ("duckdb==1.5.5", "pandas>=3,<4")}
LOCKED_FOR_PYTHON = "3.11"

# The store's contract has to hold on the oldest duckdb and on the other pandas; the rest does not depend on
# them.
SUITES_ON_OLDEST = ("contract", "unit", "property", "integration")
QUICK = "not processes and not daemon and not browser and not stress"
PYTEST_FOUND_NO_TEST = 5


def main() -> int:
    """Carry out one command; return its exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, text: str, *, own_help: bool = False) -> argparse.ArgumentParser:
        return commands.add_parser(name, help=text, description=text, allow_abbrev=False, add_help=not own_help)

    market_parser = command("market", "open Marigold Market in Dagster's user interface, on this machine only")
    market_parser.add_argument("--port", help="default: 3000, or another one if that is taken")
    week_text = "materialize a week of the market without a user interface, and print the report"
    command("week", week_text, own_help=True)
    test_parser = command("test", "run the tests; other arguments go to pytest")
    test_parser.add_argument("--quick", action="store_true", help="the part that takes less than a minute")
    test_parser.add_argument("--on", choices=("both", "newest", "oldest"), help="which locked environment")
    command("lint", "ruff, mypy and the import contracts")
    command("lock", "resolve the lock files again; --upgrade for newer versions")
    options, others = parser.parse_known_args()

    if options.command == "market":
        return market(options.port, others)
    if options.command == "test":
        return test(options.on or ("newest" if options.quick else "both"), others, quick=options.quick)
    return {"week": week, "lint": lint, "lock": lock}[options.command](others)


def market(port: str | None, others: list[str]) -> int:
    """Replace this process by `dagster dev`, bound to this machine."""
    binaries = environment(NEWEST)
    variables = with_dagster_home()
    home = variables["DAGSTER_HOME"]
    if not Path(home, "history").exists():
        # The webserver and the daemon would both create the tables of a fresh history, and one would fail.
        subprocess.run(
            [binaries / "dagster", "instance", "info"],
            check=True,
            cwd=home,
            env=variables,
            stdout=subprocess.DEVNULL,
        )
    arguments = ["dev", "--workspace", str(PROJECT / "workspace.yaml"), "--host", "127.0.0.1"]
    arguments += ["--port", port] if port else []
    # From the instance's own folder: in the project's, .env would override a DAGSTER_HOME that was set.
    os.chdir(home)
    sys.stdout.flush()
    os.execve(binaries / "dagster", ["dagster", *arguments, *others], variables)  # noqa: S606


def week(others: list[str]) -> int:
    """Materialize some days headless, in the history that `market` shows."""
    command = [str(environment(NEWEST) / "python"), "-m", "marigold_assets.market", *others]
    return subprocess.run(command, check=False, cwd=PROJECT, env=with_dagster_home()).returncode


def test(where: str, others: list[str], *, quick: bool) -> int:
    """Run the suites, on every wanted environment even when the first fails."""
    failed = 0
    # The tests make their own instances, and must never find that of a person.
    variables = {name: value for name, value in os.environ.items() if name != "DAGSTER_HOME"}
    chosen = any((PROJECT / argument.split("::")[0]).exists() for argument in others)
    for name in {"both": (NEWEST, OLDEST), "newest": (NEWEST,), "oldest": (OLDEST,)}[where]:
        command = [str(environment(name) / "python"), "-m", "pytest", *others]
        command += ["-m", QUICK] if quick else []
        if name == OLDEST and not chosen:
            command += [f"{TESTS}/{suite}" for suite in SUITES_ON_OLDEST if (PROJECT / TESTS / suite).exists()]
        print(f"== {LOCKS[name]}", flush=True)
        code = subprocess.run(command, check=False, cwd=PROJECT, env=variables).returncode
        # A selection may hit tests of one environment only.
        failed = failed or (0 if code == PYTEST_FOUND_NO_TEST and others else code)
    return failed


def lint(others: list[str]) -> int:
    """Run every linter, also after one has found something."""
    binaries = environment(NEWEST)
    commands = (["ruff", "check", *others], ["ruff", "format", "--check"], ["mypy"], ["lint-imports"])
    codes = []
    for name, *arguments in commands:
        print(f"== {name} {' '.join(arguments)}", flush=True)
        codes.append(subprocess.run([binaries / name, *arguments], check=False, cwd=PROJECT).returncode)
    return max(codes)


def lock(others: list[str]) -> int:
    """Resolve both lock files: versions and hashes for every platform, and no address of anything."""
    uv = working_uv()
    if uv is None:
        raise SystemExit("dev.py lock: uv is needed to resolve for every platform, and none was found on PATH")
    for name, file in LOCKS.items():
        groups = [argument for group in GROUPS[name] for argument in ("--group", group)]
        command = [uv, "pip", "compile", "--quiet", "pyproject.toml", "-", "--extra", "polars", *groups]
        command += ["--python-version", LOCKED_FOR_PYTHON, "--universal", "--generate-hashes"]
        command += [
            "--no-emit-index-url",
            "--no-annotate",
            "--no-header",
            "--no-strip-extras",
            "--output-file",
            file,
            *others,
        ]
        subprocess.run(command, check=True, cwd=PROJECT, input="\n".join((*BUILD, *PINS[name])), text=True)
        if "://" in (PROJECT / file).read_text(encoding="utf-8"):
            raise SystemExit(f"dev.py lock: {file} holds an address; a lock may name versions and hashes only")
    return 0


def environment(name: str) -> Path:
    """Make the virtual environment if its lock has changed; return the folder of its programs."""
    folder, binaries = PROJECT / name, PROJECT / name / "bin"
    lock_file = PROJECT / LOCKS[name]
    contents = lock_file.read_bytes() + (PROJECT / "pyproject.toml").read_bytes()
    wanted = hashlib.sha256(contents + sys.version.encode()).hexdigest()
    stamp = folder / "made-from.sha256"
    if stamp.exists() and stamp.read_text(encoding="utf-8") == wanted:
        return binaries

    print(f"making {name} from {lock_file.name} ...", flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    uv, python = working_uv(), binaries / "python"
    if uv is not None:
        run(uv, "venv", "--quiet", "--python", sys.executable, folder)
        install = [uv, "pip", "install", "--quiet", "--python", str(python)]
    else:
        run(sys.executable, "-m", "venv", folder)
        install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    # A lock is complete. Resolving it again could only find something else.
    run(*install, "--no-deps", "--require-hashes", "--requirement", lock_file)
    run(*install, "--no-deps", "--no-build-isolation", "--editable", PROJECT)
    # Last, so that an environment that was cut off half-way is made again.
    stamp.write_text(wanted, encoding="utf-8")
    return binaries


def working_uv() -> str | None:
    """The uv on PATH, if it is one: a version manager's shim can be there without a uv behind it."""
    found = shutil.which("uv")
    if found and subprocess.run([found, "--version"], check=False, capture_output=True).returncode == 0:
        return found
    return None


def with_dagster_home() -> dict[str, str]:
    """This process's variables, with the project as Dagster's instance unless another one is set."""
    home = os.environ.get("DAGSTER_HOME") or str(PROJECT)
    return {**os.environ, "DAGSTER_HOME": home, "PWD": home}


def run(*command: str | Path) -> None:
    """Run a step that has to succeed."""
    code = subprocess.run(command, check=False, cwd=PROJECT).returncode
    if code:
        raise SystemExit(f"dev.py: failed with exit code {code}: {' '.join(map(str, command))}")


if __name__ == "__main__":
    # Refused here and not by an obscure error of the first package that is too new for it.
    if sys.version_info < (3, 11):  # noqa: UP036
        raise SystemExit("dev.py: Python 3.11 or later is needed")
    sys.exit(main())
