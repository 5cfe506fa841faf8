"""Code locations imported into this process, as Dagster's own commands find them, and why one does not load."""

from __future__ import annotations

import os
import shlex
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import dagster as dg

from marigold_assets import dagster_loading
from marigold_assets.dagster_loading import Origin
from marigold_assets.errors import ConfigurationError, MarigoldError

_PROJECT, _WORKSPACES = "pyproject.toml", ("workspace.yaml", "workspace.yml")
_ANOTHER = "name the definitions: -f FILE, -m MODULE, or -w WORKSPACE"
_ONE_OF_THEM = "choose one: -l LOCATION"

Origins = Mapping[str, Origin | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """What was loaded.

    Attributes:
        repository: The definitions.
        arguments: What names them to Dagster's commands.
    """

    repository: dg.RepositoryDefinition
    arguments: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LocationOptions:
    """Which code location to load; nothing given: what ``dagster dev`` would take from the working directory.

    Attributes:
        python_file: A file with definitions.
        module_name: A module with definitions.
        attribute: The name of the definitions in either, where there are several.
        working_directory: Where either imports from.
        workspace: Workspace files.
        location: The name of one of several code locations.
    """

    python_file: str | None = None
    module_name: str | None = None
    attribute: str | None = None
    working_directory: str | None = None
    workspace: tuple[str, ...] = ()
    location: str | None = None

    def arguments(self) -> list[str]:
        """The same as arguments of a command."""
        given = (
            ("-f", self.python_file),
            ("-m", self.module_name),
            ("-a", self.attribute),
            ("-d", self.working_directory),
            *(("-w", path) for path in self.workspace),
            ("-l", self.location),
        )
        return [word for option, value in given if value is not None for word in (option, value)]


@contextmanager
def environment() -> Iterator[None]:
    """Have the environment be that of Dagster's commands: what the ``.env`` of the working directory says wins."""
    before = dict(os.environ)
    os.environ.update(dagster_loading.environment_file(Path.cwd()))
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


class Loader:
    """Imports code locations one after the other.

    Attributes:
        loaded: What was loaded so far.
        failed: Code locations that do not load, with the reason, where there are others.

    Args:
        options: Which code locations.

    Raises:
        ConfigurationError: There are none.
    """

    def __init__(self, options: LocationOptions) -> None:
        self.loaded: list[Loaded] = []
        self.failed: dict[str, str] = {}
        self._working_directory = options.working_directory or str(Path.cwd())
        self._origins = _chosen(_origins(options, self._working_directory), options.location)
        self._modules: dict[str, str] = {}

    def steps(self) -> Iterator[str]:
        """Load one code location after the other, and give the name of each.

        Raises:
            ConfigurationError: The only one does not load.
        """
        for name, origin in self._origins.items():
            try:
                self._load(name, origin)
            except ConfigurationError as error:
                if len(self._origins) == 1:
                    raise
                self.failed[name] = error.problem
            yield name

    def _load(self, name: str, origin: Origin | None) -> None:
        if origin is None:
            raise ConfigurationError(
                f"code location {name!r} is a server of its own, which cannot be loaded here",
                remedy="run the command where its code is, with -f FILE or -m MODULE",
            )
        python = origin.executable_path
        if python is not None and Path(python).absolute() != Path(sys.executable).absolute():
            raise ConfigurationError(
                f"code location {name!r} has a Python of its own: {python}",
                remedy=f"run the command by that: {python} -m marigold_assets",
            )
        folder = str(Path(origin.working_directory or self._working_directory).absolute())
        self._refuse_mistaken(name, folder)
        before = set(sys.modules)
        try:
            with redirect_stdout(sys.stderr):  # what the code prints is no part of what a command prints
                found = dagster_loading.load_repositories(origin, self._working_directory)
        except MarigoldError:
            raise
        except (Exception, SystemExit) as error:  # code may end the process, which would tell of what was found
            raise _not_loaded(name, origin, folder, error) from error
        arguments = _arguments(origin)
        self.loaded += [Loaded(repository=one, arguments=arguments) for one in found]
        tops = {module.partition(".")[0] for module in set(sys.modules) - before}
        self._modules |= {top: folder for top in tops if _is_within(top, folder)}

    def _refuse_mistaken(self, name: str, folder: str) -> None:
        """Refuse a code location one of whose modules would be taken from another one, which has it loaded already."""
        for module, other in self._modules.items():
            if other != folder and (Path(folder, f"{module}.py").exists() or Path(folder, module).is_dir()):
                raise ConfigurationError(
                    f"code location {name!r} has a module {module!r}, as has another one, and one process has room for"
                    " one of them",
                    remedy=_ONE_OF_THEM,
                )


def _origins(options: LocationOptions, folder: str) -> Origins:
    if options.python_file is not None or options.module_name is not None:
        if options.workspace or (options.python_file is not None and options.module_name is not None):
            raise ConfigurationError("several code locations are named", remedy="give one of -f, -m and -w")
        found = Origin(
            python_file=options.python_file,
            module_name=options.module_name,
            attribute=options.attribute,
            working_directory=folder,
        )
        return {str(options.python_file or options.module_name): found}
    try:
        return _listed(options)
    except ConfigurationError:
        raise
    except Exception as error:
        files = ", ".join(options.workspace) or f"{_PROJECT} or {_WORKSPACES[0]}"
        raise ConfigurationError(
            f"there are no code locations that Dagster understands in {files}: {_first_line(error)}",
            remedy="correct the file",
        ) from error


def _listed(options: LocationOptions) -> Origins:
    """The code locations of a workspace, or those that ``dagster dev`` would take from the working directory."""
    if missing := [path for path in options.workspace if not Path(path).is_file()]:
        raise ConfigurationError(f"there is no workspace file {missing[0]!r}", remedy="correct the path after -w")
    if options.workspace:
        return dagster_loading.locations_of_workspace(options.workspace)
    found = dagster_loading.locations_of_project(_PROJECT) if Path(_PROJECT).is_file() else {}
    if not found:
        files = [path for path in _WORKSPACES if Path(path).is_file()]
        found = dagster_loading.locations_of_workspace(files[:1]) if files else {}
    if not found:
        raise ConfigurationError(
            f"the working directory {Path.cwd()} has no {_PROJECT} with [tool.dagster] or [tool.dg.project], and no"
            f" {_WORKSPACES[0]}",
            remedy=f"{_ANOTHER}, or go to the folder of the project",
        )
    return found


def _chosen(origins: Origins, name: str | None) -> Origins:
    if name is None:
        return origins
    if name not in origins:
        raise ConfigurationError(
            f"there is no code location {name!r}", remedy=f"name one of {', '.join(map(repr, sorted(origins)))}"
        )
    return {name: origins[name]}


def _arguments(origin: Origin) -> tuple[str, ...]:
    """What names it to Dagster's commands, which work from the working directory themselves."""
    given = [str(word) for word in origin.get_cli_args()]
    folder = origin.working_directory
    if folder is not None and Path(folder).absolute() == Path.cwd():
        at = given.index("-d")
        del given[at : at + 2]
    return tuple(given)


def _not_loaded(name: str, origin: Origin, folder: str, error: BaseException) -> ConfigurationError:
    """The error for code that does not load: what the code has raised, and where, without the way to it."""
    cause: BaseException = error
    while cause.__cause__ is not None:
        cause = cause.__cause__
    missing = origin.python_file
    if missing is not None and isinstance(cause, FileNotFoundError) and not Path(missing).exists():
        return ConfigurationError(f"there is no file {missing!r}", remedy="correct the path after -f")
    place = _place_of(cause, folder)
    remedy = f"correct the code, or {_ANOTHER}"
    if isinstance(cause, ModuleNotFoundError):
        where = _holding(str(cause.name).partition(".")[0], origin) or "DIRECTORY"
        remedy = f"correct the name, install it, or say where it is: -d {where} (imports start at {folder})"
    return ConfigurationError(
        f"code location {name!r} does not load: {type(cause).__name__}: {_first_line(cause)}",
        remedy=remedy,
        detail=None if place is None else f"Raised at {place}",
    )


def _holding(module: str, origin: Origin) -> str | None:
    """The folder of the file that is loaded, or one above, that has a module."""
    if origin.python_file is None:
        return None
    found = (
        one
        for one in Path(origin.python_file).absolute().parents
        if (one / f"{module}.py").is_file() or (one / module).is_dir()
    )
    return next((shlex.quote(str(one)) for one in found), None)


def _place_of(error: BaseException, folder: str) -> str | None:
    """The innermost place within the code's own folder that an error has passed through."""
    if isinstance(error, SyntaxError):
        return f"{error.filename}:{error.lineno}"
    installed = f"{os.sep}site-packages{os.sep}"
    loaders = {__file__, dagster_loading.__file__}
    frames = [one for one in traceback.extract_tb(error.__traceback__) if one.filename not in loaders]
    own = [one for one in frames if Path(one.filename).is_relative_to(folder) and installed not in one.filename]
    return f"{own[-1].filename}:{own[-1].lineno}" if own else None


def _first_line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), "")


def _is_within(module: str, folder: str) -> bool:
    found = sys.modules.get(module)
    file = getattr(found, "__file__", None)
    return file is not None and Path(file).is_relative_to(folder)
