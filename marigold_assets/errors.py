"""Every error the package raises: one root, grouped by what a handler would do with it.

* fix the data or the code       -> :class:`InvalidDataError`
* fix the definition or settings -> :class:`ConfigurationError`
* stop, somebody newer owns it   -> :class:`FencedOutError`
* wait and try again             -> :class:`StoreBusyError`
* repair the environment         -> :class:`StoreUnavailableError`
* ask the ledger                 -> :class:`CommitUnknownError`

The first line of every message names asset, partition and table as far as they are known, what is wrong, and the
remedy. What follows it is detail.
"""

from __future__ import annotations

from typing import Any, ClassVar, TypedDict


class Where(TypedDict, total=False):
    """The place an error speaks of; every part may be unknown."""

    asset: str | None
    partition: str | None
    table: str | None


class MarigoldError(Exception):
    """The root of the package's errors.

    Attributes:
        kind: A stable word for the kind of error, for logs and metadata.
        retryable: Whether the very same attempt may succeed later. ``False`` means: never retry.
        problem: What is wrong, in one line.
        remedy: What to do about it, in one line.
        where: Asset, partition and table as far as they are known.
    """

    kind: ClassVar[str] = "error"
    retryable: ClassVar[bool] = False

    def __init__(
        self,
        problem: str,
        *,
        remedy: str,
        asset: str | None = None,
        partition: str | None = None,
        table: str | None = None,
        detail: str | None = None,
    ) -> None:
        self.problem = _one_line(problem)
        self.remedy = _one_line(remedy)
        self.where = Where(asset=asset, partition=partition, table=table)
        self.detail = detail
        super().__init__(str(self))

    def __reduce__(self) -> tuple[Any, ...]:
        # Exceptions are rebuilt from their positional arguments, which these do not take: a process pool would hang.
        return _rebuild, (type(self), self.args), dict(self.__dict__)

    def __str__(self) -> str:
        place = ", ".join(f"{name} {value!r}" for name, value in self.where.items() if value is not None)
        line = f"{place}: {self.problem}." if place else f"{self.problem[:1].upper()}{self.problem[1:]}."
        line = f"{line} Remedy: {self.remedy}."
        return f"{line}\n{self.detail}" if self.detail else line


class InvalidDataError(MarigoldError):
    """The rows do not fit their partition or their table. Nothing was written; the same rows never will be."""

    kind = "invalid_data"


class RowsOutsidePartitionError(InvalidDataError):
    """Some rows lie outside the partition slice that they were given for."""

    kind = "rows_outside_partition"


class SchemaMismatchError(InvalidDataError):
    """Columns are missing, added or renamed against the table."""

    kind = "schema_mismatch"


class LossyCastError(InvalidDataError):
    """A value would change when cast to the type of its column in the table."""

    kind = "lossy_cast"


class ContentDiffersError(InvalidDataError):
    """Rows that were computed again, to verify what is stored, are not what is stored."""

    kind = "content_differs"


class UnsupportedTypeError(InvalidDataError):
    """An object or a column has a type that cannot be stored or loaded without changing it."""

    kind = "unsupported_type"


class ConfigurationError(MarigoldError):
    """A definition or a setting is wrong: no data can make it right."""

    kind = "configuration"


class RestatedPastError(ConfigurationError):
    """A chain is about to be built upon partitions that its present code and inputs would not make."""

    kind = "restated_past"


class MixedVersionsError(ConfigurationError):
    """Partitions that are read together were built under several definitions, and one is needed."""

    kind = "mixed_versions"


class TableOwnedError(ConfigurationError):
    """Two assets map to one table."""

    kind = "table_owned"


class MissingTableError(ConfigurationError):
    """A table that is to be read does not exist."""

    kind = "missing_table"


class MissingInputError(ConfigurationError):
    """Rows were to be computed from an input partition that was never materialized."""

    kind = "missing_input"


class PlanConflictError(MarigoldError):
    """What was planned is no longer what there is to do: the ledger has moved, or others are at it. Plan again."""

    kind = "plan_conflict"


class FailureBudgetError(MarigoldError):
    """So many runs of a launch have failed that the rest of it is not worth starting."""

    kind = "failure_budget"


class FencedOutError(MarigoldError):
    """A later attempt owns the slice, or a twin was first. The attempt must stop and must not be retried.

    Attributes:
        run_id: The run that was refused.
        token: Its fencing token.
        superseded_by_run: The run that holds the later token; the same run if another process has carried it out.
        superseded_by_token: That token.
    """

    kind = "fenced_out"

    def __init__(
        self,
        *,
        run_id: str,
        token: int,
        superseded_by_run: str,
        superseded_by_token: int,
        asset: str | None = None,
        partition: str | None = None,
        table: str | None = None,
    ) -> None:
        self.run_id = run_id
        self.token = token
        self.superseded_by_run = superseded_by_run
        self.superseded_by_token = superseded_by_token
        twin = superseded_by_run == run_id
        super().__init__(
            f"run {run_id} (token {token}) is superseded by{' another process of the same run,' if twin else ''}"
            f" run {superseded_by_run} (token {superseded_by_token}) and has changed nothing here",
            remedy=f"keep what {'the other process' if twin else f'run {superseded_by_run}'} writes;"
            " do not retry this run, launch a new one for what it has left undone",
            asset=asset,
            partition=partition,
            table=table,
        )


class StoreBusyError(MarigoldError):
    """The store stayed locked until the deadline. The same attempt may succeed later."""

    kind = "store_busy"
    retryable = True


class StoreUnavailableError(MarigoldError):
    """The store cannot be opened or written: a bad path, a read-only file, a full disk, a foreign file."""

    kind = "store_unavailable"


class CommitUnknownError(MarigoldError):
    """The connection failed during COMMIT and the ledger could not be asked whether the swap is in.

    Repeating the swap under the same swap id is safe: it returns the first receipt if there is one.

    Attributes:
        swap_ids: The swaps whose outcome is unknown.
    """

    kind = "commit_unknown"
    retryable = True

    def __init__(
        self,
        problem: str,
        *,
        swap_ids: tuple[str, ...],
        remedy: str,
        asset: str | None = None,
        partition: str | None = None,
        table: str | None = None,
        detail: str | None = None,
    ) -> None:
        self.swap_ids = swap_ids
        super().__init__(problem, remedy=remedy, asset=asset, partition=partition, table=table, detail=detail)


def _rebuild(kind: type[MarigoldError], args: tuple[Any, ...]) -> MarigoldError:
    error = kind.__new__(kind)
    error.args = args
    return error


def _one_line(text: str) -> str:
    return " ".join(text.split()).rstrip(".")
