"""A run that writes nothing: its partitions are computed, and what came of them is handed back.

Whether a run is dry is known by its id, within the block that has launched it: neither a tag, which would be inherited
by a re-execution, nor a setting says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from marigold_assets.disturbance import Conditions
from marigold_assets.errors import ConfigurationError, MarigoldError
from marigold_assets.proof import Replayed


@dataclass(slots=True, kw_only=True)
class DryRun:
    """What a dry run is to do, and what came of it.

    Attributes:
        run_id: The run.
        keys: The partitions, in order.
        conditions: Under which their function is called.
        is_compared: Whether what is computed is compared with what is stored.
        ignored: Columns that do not count.
        found: What came of the partitions so far.
        error: Why none came after them, if so.
    """

    run_id: str
    keys: tuple[str, ...]
    conditions: Conditions
    is_compared: bool
    ignored: frozenset[str]
    found: list[Replayed] = field(default_factory=list)
    error: MarigoldError | None = None


_running: ContextVar[DryRun | None] = ContextVar("dry_run", default=None)


@contextmanager
def running_dry(run: DryRun) -> Iterator[None]:
    """Have the run be dry that is launched within the block, under its id and in this thread."""
    token = _running.set(run)
    try:
        yield
    finally:
        _running.reset(token)


def dry_run(run_id: str) -> DryRun | None:
    """What a run is to do if it is dry; ``None`` if it is a real one."""
    found = _running.get()
    return found if found is not None and found.run_id == run_id else None


def is_dry() -> bool:
    """Whether the code that runs here is that of a dry run."""
    return _running.get() is not None


def refuse_writing() -> None:
    """Refuse that the function of a dry run writes by way of this package.

    Raises:
        ConfigurationError: A dry run is under way.
    """
    if is_dry():
        raise ConfigurationError(
            "the function writes for itself, but this run only computes once more what is stored",
            remedy="prove assets whose function returns its rows",
        )
