"""What DuckDB's errors of statements mean: one of ours each, by the kind of error and not by who runs the statement."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import duckdb

from marigold_assets.errors import (
    ConfigurationError,
    InvalidDataError,
    MarigoldError,
    StoreBusyError,
    StoreUnavailableError,
    UnsupportedTypeError,
    Where,
)

_VIEW = re.compile(r"can only (delete from|insert into|update) base table|is not an table|ALTER VIEW", re.IGNORECASE)


def _constraint(text: str, where: Where) -> MarigoldError:
    return InvalidDataError(
        f"the rows break a constraint of the table: {text}",
        remedy="correct the rows or relax the constraint; the old rows are unchanged",
        **where,
    )


def _bad_value(text: str, where: Where) -> MarigoldError:
    problem, _, detail = text.partition(" Detail: Python exception: ")  # the traceback of a stream that broke
    return InvalidDataError(
        f"the rows cannot be stored: {problem}",
        remedy="correct the rows; the old rows are unchanged",
        detail=detail or None,
        **where,
    )


def _unsupported(text: str, where: Where) -> MarigoldError:
    return UnsupportedTypeError(
        f"the database cannot store a type: {text}",
        remedy="convert the column to a type that DuckDB knows",
        **where,
    )


def is_conflict(error: BaseException) -> bool:
    """Whether a transaction failed because another one of this process wrote the same rows."""
    return isinstance(error, duckdb.TransactionException) and "conflict" in str(error).lower()


def _conflict(text: str, where: Where) -> MarigoldError:
    return StoreBusyError(
        f"another connection of this process wrote at the same time: {text}",
        remedy="run again, or let only one thread write the database at a time",
        **where,
    )


def _bad_sql(text: str, where: Where) -> MarigoldError:
    if _VIEW.search(text):
        return ConfigurationError(
            "the target is a view, which has no rows of its own",
            remedy="drop the view, or give the asset another table name or schema",
            **where,
        )
    return ConfigurationError(
        f"the database does not understand a query or a partition expression: {text}",
        remedy="correct 'partition_expr' (a column of the table or an SQL expression), 'columns' or the SQL returned",
        **where,
    )


class _ReturnedSqlError(duckdb.ProgrammingError):
    """SQL that an asset returned cannot be run, through no fault of the database."""


_MISSING_FILE = re.compile(r"No files found|No such file|Cannot open file|HTTP|required extension", re.IGNORECASE)


@contextmanager
def returned_sql() -> Iterator[None]:
    """Where SQL that an asset returned is looked at, so that its errors are told from those of everything else."""
    try:
        yield
    except duckdb.Error as error:
        if isinstance(error, duckdb.ProgrammingError | duckdb.DataError | duckdb.NotSupportedError) or (
            _MISSING_FILE.search(str(error))
        ):
            raise _ReturnedSqlError(re.sub(r"LINE (\d+): DESCRIBE ", r"LINE \1: ", str(error))) from None
        raise


def _bad_returned_sql(text: str, where: Where) -> MarigoldError:
    if _MISSING_FILE.search(text):
        return ConfigurationError(
            f"the SQL returned reads a file that cannot be read: {text}",
            remedy="correct its path, or make the file first; the old rows are unchanged",
            **where,
        )
    return ConfigurationError(
        f"the database does not understand the SQL returned: {text}",
        remedy="correct the SQL that the asset returns; the old rows are unchanged",
        **where,
    )


def _memory(text: str, where: Where) -> MarigoldError:
    return StoreUnavailableError(
        f"out of memory: {text}",
        remedy="set connection_config={'memory_limit': ...} higher, or return a RecordBatchReader or SQL",
        **where,
    )


_TRANSLATIONS: tuple[tuple[tuple[type[BaseException], ...], Callable[[str, Where], MarigoldError]], ...] = (
    ((_ReturnedSqlError,), _bad_returned_sql),
    ((duckdb.ConstraintException,), _constraint),
    ((duckdb.NotImplementedException,), _unsupported),
    ((duckdb.ConversionException, duckdb.OutOfRangeException, duckdb.InvalidInputException), _bad_value),
    ((duckdb.DataError,), _bad_value),
    ((duckdb.OutOfMemoryException, MemoryError), _memory),
    (
        (duckdb.BinderException, duckdb.ParserException, duckdb.CatalogException, duckdb.SyntaxException),
        _bad_sql,
    ),
)


def of_statement(error: BaseException, text: str, where: Where) -> MarigoldError | None:
    """What a statement that failed means, or ``None`` if that lies with the file or the machine.

    Args:
        error: What was raised.
        text: Its text in one line, without secrets.
        where: The slice that was worked on.
    """
    if is_conflict(error):
        return _conflict(text, where)
    build = next((build for kinds, build in _TRANSLATIONS if isinstance(error, kinds)), None)
    return None if build is None else build(text, where)
