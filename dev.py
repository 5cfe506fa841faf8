"""Every chore of this project, with nothing but Python: `python3 dev.py --help`.

Each command first makes the virtual environment it needs from the lock file, checked against its hashes, and
leaves it alone while the lock is unchanged. Only the standard library is imported here.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shlex
import shutil
import signal
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
SUITES_ON_OLDEST = ("contract", "unit", "property", "integration", "market")

# But for these: the order and the standing of keys, Dagster's own processes and internals, the command line, what code
# looks like, the example's settings and this file. One environment shows them as well as the other; what stores,
# compares or reads rows stays in both.
ONCE = (
    "integration/test_cli_accept.py",
    "integration/test_cli_doctor.py",
    "integration/test_cli_launch.py",
    "integration/test_cli_location.py",
    "integration/test_cli_plan.py",
    "integration/test_cli_prove.py",
    "integration/test_cli_versions.py",
    "integration/test_dagster_instance.py",
    "integration/test_dagster_internals.py",
    "integration/test_gaps.py",
    "integration/test_gathering.py",
    "integration/test_latest_interval.py",
    "integration/test_launching.py",
    "integration/test_lock.py",
    "integration/test_partitioned_chains.py",
    "integration/test_partitioned_faults.py",
    "integration/test_partitioned_functions.py",
    "integration/test_partitioned_processes.py",
    "integration/test_partitioned_standing.py",
    "integration/test_plan_says.py",
    "integration/test_planning_as_dagster.py",
    "integration/test_preflight_settings.py",
    "integration/test_process_priority.py",
    "integration/test_readme.py",
    "integration/test_replanning.py",
    "integration/test_resuming.py",
    "integration/test_trial.py",
    "integration/test_version_history.py",
    "market/test_definitions.py",
    "market/test_dev.py",
    "market/test_headless.py",
    "market/test_instance.py",
    "property/test_fingerprint.py",
    "unit/test_code.py",
    "unit/test_preflight.py",
    "unit/test_purity.py",
)

# Tests that kill, pause, time or overload real processes run one after another; all others share the cores, also
# those that only start a process, or wait for one as the browser does.
ALONE = "processes or daemon or stress"
QUICK = f"not (slow or {ALONE})"
SHARED = f"not ({ALONE})"
SHARING = ("--dist", "worksteal", "-n", "3")  # one more than cores: some only wait
QUICKLY = ("--dist", "worksteal", "-n", "2")  # and none of these does
PYTEST_FOUND_NO_TEST = 5


def main() -> int:
    """Carry out one command; return its exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, text: str) -> argparse.ArgumentParser:
        return commands.add_parser(name, help=text, description=text, allow_abbrev=False)

    market_parser = command("market", "open Marigold Market in Dagster's user interface, on this machine only")
    market_parser.add_argument("--port", help="default: 3000, or another one if that is taken")
    week_parser = command("week", "materialize some days of the market headless, and print the report")
    week_parser.add_argument("--from", dest="first", metavar="YYYY-MM-DD", help="first day; default: 2024-12-23")
    week_parser.add_argument("--days", metavar="N", help="how many days; default: 7")
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
    if options.command == "week":
        return week(options.first, options.days, others)
    return {"lint": lint, "lock": lock}[options.command](others)


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
    # A script that starts this in the background has it ignore Ctrl-C, and Dagster would ignore SIGTERM likewise.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.execve(binaries / "dagster", ["dagster", *arguments, *others], variables)  # noqa: S606


def week(first: str | None, days: str | None, others: list[str]) -> int:
    """Materialize some days headless, in the history that `market` shows."""
    command = [str(environment(NEWEST) / "python"), "-m", "marigold_assets.market", *others]
    command += ["--from", first] if first else []
    command += ["--days", days] if days else []
    return subprocess.run(command, check=False, cwd=PROJECT, env=with_dagster_home()).returncode


def test(where: str, others: list[str], *, quick: bool) -> int:
    """Run the suites, on every wanted environment even when the first fails."""
    failed = 0
    # The tests make their own instances, and must never find that of a person.
    variables = {name: value for name, value in os.environ.items() if name != "DAGSTER_HOME"}
    chosen = any((PROJECT / argument.split("::")[0]).exists() for argument in others)
    if quick:
        parts = [[*QUICKLY, *others, "-m", QUICK]]
    elif others:
        parts = [others]
    else:
        parts = [[*SHARING, "-m", SHARED], ["-m", ALONE]]
    for name in {"both": (NEWEST, OLDEST), "newest": (NEWEST,), "oldest": (OLDEST,)}[where]:
        suites = []
        if name == OLDEST and not chosen:
            suites = [f"{TESTS}/{suite}" for suite in SUITES_ON_OLDEST]
            suites += [f"--ignore={TESTS}/{file}" for file in ONCE]
        python = str(environment(name) / "python")
        for part in parts:
            print(f"== {LOCKS[name]}: pytest {shlex.join(part)}", flush=True)
            command = [python, "-m", "pytest", *part, *suites]
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

    uv = working_uv()
    try:
        make(name, uv)
    except SystemExit as failure:
        if uv is None:
            raise
        print(f"{failure}; now without uv", flush=True)
        make(name, None)
    # Last, so that an environment that was cut off half-way is made again.
    stamp.write_text(wanted, encoding="utf-8")
    return binaries


def make(name: str, uv: str | None) -> None:
    """Make a virtual environment and fill it from its lock, with uv or else with what Python brings."""
    folder, lock_file = PROJECT / name, PROJECT / LOCKS[name]
    python = folder / "bin" / "python"
    print(f"making {name} from {lock_file.name} with {'uv' if uv else 'pip'}, about a minute ...", flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    if uv is not None:
        run(uv, "venv", "--quiet", "--python", sys.executable, folder)
        # As pip does. Otherwise every process compiles Dagster anew where PYTHONDONTWRITEBYTECODE is set.
        install = [uv, "pip", "install", "--quiet", "--python", str(python), "--compile-bytecode"]
    else:
        run(sys.executable, "-m", "venv", folder)
        install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    # A lock is complete. Resolving it again could only find something else.
    run(*install, "--no-deps", "--require-hashes", "--requirement", lock_file)
    run(*install, "--no-deps", "--no-build-isolation", "--editable", PROJECT)


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
