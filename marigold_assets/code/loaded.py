"""The code fingerprint of a function: another one whenever its code, or code of its project that it uses, is.

What counts are the syntax trees (:mod:`marigold_assets.code.syntax`): comments, layout, docstrings and the names of
files do not, nor do decorators of Dagster and of this package. Functions, classes and whatever else a module binds to a
name are followed as long as they belong to the same top-level package, or to a module whose file lies neither in the
standard library nor among the installed packages: a flat project has its helpers in modules beside the definitions. So
are imports within a function, what containers and objects of the project hold, what a function closes over, and files
of SQL that the code names. Of other packages the name counts that is used.

A name of a module means what its text says, not what it stands for at the moment: a cache that fills, a path of this
machine or a setting of the environment is no code. The text, also that of files of SQL, is that of the moment of
loading: it is taken when the asset is defined and believed only where it compiles to the code that is loaded. Where
that text is gone, the bytecode counts, so that the fingerprint is neither that of the old text nor of the new one. So
does it for functions that ``exec`` makes, whose fingerprint is another one under ``python -O``.

Not seen are: attributes of unknown objects and methods chosen by what an object is at run time, as far as no class of
the object is named; ``eval``, ``exec`` and names that are computed (a module that is used as an object counts as a
whole); annotations in quotes; docstrings, also where code reads them; other files than SQL (``.sql``, in small
letters), and SQL that lies above its package; compiled extensions; what code outside of a module changes in it, and
what a call within an expression does to what it is given (:mod:`marigold_assets.code.statements`); what a held value
cannot be pickled with (:mod:`marigold_assets.code.values`). A local variable that is renamed counts.

Fingerprints of another prefix are those of another method and equal none: where no version is declared, ``cf1`` in a
ledger is other code.
"""

from __future__ import annotations

import hashlib
import threading
from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Unpack

from marigold_assets.code.meaning import Project
from marigold_assets.code.nodes import Node
from marigold_assets.code.source import package_of
from marigold_assets.code.sql_files import SqlText, sql_text, version_of
from marigold_assets.code.taken import Taken, taken_for
from marigold_assets.errors import ConfigurationError, Where

FORMAT: Final = "cf2"


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeParts:
    """The code of a function.

    Attributes:
        fingerprint: ``cf2:`` and 16 hex digits.
        parts: A short digest of each definition, constant and file of SQL that counts, by name: that of the function
            first, then in the order in which they are used.
    """

    fingerprint: str
    parts: Mapping[str, str]


class LoadedCode:
    """The code of a function as it was loaded, read when it is first asked for: by then all of its modules are loaded.

    Args:
        function: A Python function.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function: Callable[..., Any] | None = function
        self._taken: Mapping[str, Taken] = taken_for(function, package_of(function))
        self._lock = threading.Lock()
        self._found: CodeParts | None = None
        self._late: dict[Path, SqlText] = {}

    @property
    def fingerprint(self) -> str:
        """``cf2:`` and 16 hex digits."""
        return self._complete().fingerprint

    @property
    def parts(self) -> Mapping[str, str]:
        """See :class:`CodeParts`."""
        return self._complete().parts

    def changed_files(self) -> Sequence[Path]:
        """The files of SQL that its functions read when they run, and that are not what they were when it was loaded.

        Takes some microseconds for each file that the code names. Files that a module has read already do not matter,
        nor does what was sent from another process.
        """
        self._complete()
        with self._lock:
            for path, known in list(self._late.items()):
                if version_of(path) != known.version and (now := sql_text(path)).text == known.text:
                    self._late[path] = now
            return [path for path, known in self._late.items() if version_of(path) != known.version]

    def refuse_changed_files(self, **where: Unpack[Where]) -> None:
        """Refuse what SQL of another version than the loaded one may have made.

        Args:
            where: What was made by it.

        Raises:
            ConfigurationError: One of :meth:`changed_files` has changed.
        """
        if changed := self.changed_files():
            raise ConfigurationError(
                f"{changed[0]} has changed since the code was loaded, and the function reads it when it runs",
                remedy="run it again, in a process that loads the code anew",
                **where,
            )

    def _complete(self) -> CodeParts:
        with self._lock:
            if self._found is None:
                self._found, self._late = _parts(self._function, self._taken)
                self._function, self._taken = None, {}
            return self._found

    def __getstate__(self) -> CodeParts:
        """What it was where it was loaded: another process may have other files."""
        return self._complete()

    def __setstate__(self, state: CodeParts) -> None:
        self._function, self._taken, self._lock, self._found = None, {}, threading.Lock(), state
        self._late = {}


def code_fingerprint(function: Callable[..., Any]) -> str:
    """Name the code of a function.

    Args:
        function: A Python function.

    Returns:
        ``cf2:`` and 16 hex digits.
    """
    return LoadedCode(function).fingerprint


def code_parts(function: Callable[..., Any]) -> Mapping[str, str]:
    """Name the parts of the code of a function, to tell which of them has changed.

    Args:
        function: A Python function.

    Returns:
        A short digest of each definition, constant and file of SQL by its name, which is that within its module: files
        may be renamed. Of several of one name, those after the first have a number.
    """
    return LoadedCode(function).parts


def _parts(function: Any, taken: Mapping[str, Taken]) -> tuple[CodeParts, dict[Path, SqlText]]:
    """The parts of its code, and the files of SQL that are read when it runs."""
    project = Project(package_of(function), taken)
    root = project.root(function)
    number = {root.key: 0}
    label = {root.key: root.label}
    labels = {root.label}
    due: deque[Node] = deque([root])
    targets: dict[Hashable, list[Node]] = {}
    whole, parts = hashlib.sha256(), {}
    while due:
        node = due.popleft()
        text, edges = node.look()
        own, linked = [text], []
        targets[node.key] = [edge[0] for edge in edges if not isinstance(edge, str)]
        for edge in edges:
            if isinstance(edge, str):
                own.append(edge)
                continue
            target, rest = edge
            if target.key not in number:
                number[target.key] = len(number)
                label[target.key] = _unique(target.label, labels)
                due.append(target)
            own.append(".".join((f"@{target.label}", *rest)))
            linked.append(str(number[target.key]))
        said = "\n".join(own)
        parts[label[node.key]] = _digest(said)[:12]
        # In the order in which they are used: two may have one name.
        whole.update(f"{node.label}\n{said}\n{' '.join(linked)}\n\0".encode("utf-8", "surrogatepass"))
    return CodeParts(fingerprint=f"{FORMAT}:{whole.hexdigest()[:16]}", parts=parts), _read_late(root, targets)


def _read_late(root: Node, targets: Mapping[Hashable, Sequence[Node]]) -> dict[Path, SqlText]:
    """The files of SQL that functions read when they run, as far as what is run then leads to them."""
    found: dict[Path, SqlText] = {}
    due, seen = [root], {root.key}
    while due:
        for node in targets[due.pop().key]:
            if node.file is not None:
                found[node.file[0]] = node.file[1]
            if node.key not in seen and not node.is_done():
                seen.add(node.key)
                due.append(node)
    return found


def _unique(label: str, taken: set[str]) -> str:
    number, found = 2, label
    while found in taken:
        number, found = number + 1, f"{label} ({number})"
    taken.add(found)
    return found


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
