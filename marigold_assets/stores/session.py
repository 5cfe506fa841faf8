"""One open DuckDB connection: statements with labels, and what the catalog knows."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache, cached_property
from typing import Any

import duckdb
import pyarrow as pa

from marigold_assets import fingerprint
from marigold_assets.errors import ConfigurationError
from marigold_assets.model import Column, Equals, PartitionSlice, TableName, fold
from marigold_assets.stores import sql
from marigold_assets.stores.predicate import ExpressionKind, ExpressionTypes, Predicate, predicate

BEGIN = "BEGIN TRANSACTION"
FENCE_SCHEMA = "marigold"
"""Holds the tables of the fence and the ledger."""

_FENCE_SCHEMA_WORD = re.compile(rf"\b{FENCE_SCHEMA}\b")

Rows = list[tuple[Any, ...]]
Execute = Callable[..., Rows]
"""Runs one statement to its end: ``execute(label, sql, parameters)``, as :meth:`Session.fenced` does."""

StatementObserver = Callable[[str], None]
"""Called with the label of every statement just before it runs; for tests that kill a process there."""

# The first two are 26 hours apart, so that no instant has the same date in both; the third is no full hour off.
_DIFFERENT_ZONES = ("Etc/GMT+12", "Etc/GMT-14", "Asia/Kathmandu")
_INSTANTS = """(SELECT unnest(generate_series(TIMESTAMPTZ '2023-12-30 00:00:00+00',
    TIMESTAMPTZ '2025-01-03 00:00:00+00', INTERVAL 7 HOUR)) AS marigold_at)"""
_NAMES_ITS_ZONE = re.compile(r"\bAT\s+TIME\s+ZONE\b|\btimezone\s*\(", re.IGNORECASE)
_SAMPLE_ROWS = 1_000
_WITH_DATA = re.compile(r"\bwith\s+(no\s+)?data\b", re.IGNORECASE)  # what may end a CREATE TABLE, but no query
_STRING = re.compile(r"'(?:[^']|'')*'")
_GOLDEN = (
    *("0", "1", "-1", "127::TINYINT", "9223372036854775807", "1.5::DOUBLE", "-0.0::DOUBLE", "'NaN'::DOUBLE"),
    *("12.34::DECIMAL(9,2)", "''", "'marigold'", "'naïve-日本'", "true", "NULL", "DATE '2024-02-29'"),
    *(
        "TIMESTAMP '2024-02-29 12:34:56.789'",
        "TIMESTAMPTZ '2024-02-29 12:34:56.789+00'",
        "'\\x00\\xFF'::BLOB",
    ),
    *("[1, 2, NULL]", "{'a': 1, 'b': 'x'}"),
)
"""Literals whose hashes name DuckDB's hash function. Changing one makes every stored content hash "unknown"."""


class Session:
    """One open connection: statements with labels, and what the catalog knows."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, observer: StatementObserver | None) -> None:
        self.connection = connection
        self._observer = observer
        self._zone: str | None = None
        self._finds_frames: bool | None = None
        self._explains_all = False
        self._in_transaction = False
        self._registered: set[str] = set()
        self._staged: set[str] = set()
        self._understood: set[str] = set()
        self._columns_of_arrow: dict[pa.Schema, tuple[Column, ...]] = {}
        self.is_snapshot = False
        self.has_fence = False  # known to have the fence tables, in the present format

    def execute(self, label: str, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run one statement to its end, with bound values, and return its rows."""
        self._observe(label)
        if statement == BEGIN:
            self._in_transaction = True
        rows = self.connection.execute(statement, list(parameters)).fetchall()
        if statement in {"COMMIT", "ROLLBACK"}:
            self._in_transaction = False
        return rows

    def register(self, name: str, rows: object) -> None:
        """Have Arrow data be read under a name, until :meth:`tidy` at the latest."""
        self._registered.add(name)
        self.connection.register(name, rows)

    def unregister(self, name: str) -> None:
        """Forget Arrow data."""
        self._registered.discard(name)
        self.connection.unregister(name)

    def stage(self, label: str, name: str, query: str) -> None:
        """Keep the rows of a query in a temporary table, until :meth:`tidy` at the latest."""
        self._staged.add(name)
        self.execute(label, f"CREATE OR REPLACE TEMP TABLE {name} AS {query}")

    def stage_query(self, label: str, name: str, query: str) -> tuple[Column, ...] | None:
        """The same for text of users; it is parsed once, and only run if it is one query beyond doubt.

        Returns:
            The columns of its rows, or ``None``.
        """
        self._observe(label)
        if ";" in query.rstrip().rstrip(";") or _WITH_DATA.search(query) or not sql.is_query(query):
            return None
        statements = self.connection.extract_statements(f"CREATE OR REPLACE TEMP TABLE {name} AS {query}")
        if len(statements) != 1:
            return None
        self._staged.add(name)
        self.connection.execute(statements[0])
        return self._bound(f"FROM temp.{name}")

    def tidy(self) -> None:
        """Leave nothing of what was done to whoever works with the connection next: no transaction, view or table."""
        if self._in_transaction and not self.is_snapshot:
            self._in_transaction = False
            with suppress(duckdb.Error):  # where COMMIT has failed there is none any more
                self.connection.execute("ROLLBACK")
        while self._registered:
            with suppress(duckdb.Error):
                self.connection.unregister(self._registered.pop())
        while self._staged:
            with suppress(duckdb.Error):
                self.connection.execute(f"DROP TABLE IF EXISTS temp.{self._staged.pop()}")

    def begin_reading(self) -> None:
        """Have what is read next be of one snapshot."""
        if not self.is_snapshot:
            self.execute("begin reading", BEGIN)

    def begin_snapshot(self) -> None:
        """Have everything that is read until :meth:`end_snapshot` be of one snapshot."""
        self.execute("begin snapshot", BEGIN)
        self.is_snapshot = True

    def end_snapshot(self) -> None:
        """End the snapshot."""
        self.is_snapshot = False
        self.tidy()

    def fenced(self, label: str, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run one statement over the fence's own tables; none of it may be a user's text."""
        return self.execute(label, _FENCE_SCHEMA_WORD.sub(self.schema(FENCE_SCHEMA), statement), parameters)

    def name(self, table: TableName) -> str:
        """Render a table's name."""
        return f"{self.schema(table.schema)}.{sql.identifier(table.name)}"

    def schema(self, schema: str) -> str:
        """Render a schema; with the database where one has the same name, since DuckDB could not tell them apart."""
        if fold(schema) in {fold(self._database), "memory", "temp", "system"}:
            return f"{sql.identifier(self._database)}.{sql.identifier(schema)}"
        return sql.identifier(schema)

    @cached_property
    def _database(self) -> str:
        [(name,)] = self.connection.execute("SELECT current_database()").fetchall()
        return str(name)

    def relation(self, label: str, query: str, parameters: Sequence[Any] = ()) -> duckdb.DuckDBPyRelation:
        """Prepare one SELECT, with bound values, to be fetched as Arrow before anything else runs."""
        self._observe(label)
        return self.connection.sql(query, params=list(parameters))

    def _observe(self, label: str) -> None:
        if self._observer is not None:
            self._observer(label)

    def configure(self, timezone: str) -> None:
        """Fix what would otherwise depend on the machine: the session's zone, and Python variables seen as tables."""
        if self._finds_frames is None:
            self.find_frames(wanted=False)
        self._set_zone(timezone)

    def find_frames(self, *, wanted: bool) -> None:
        """Have queries see Python variables as tables, or not."""
        if wanted != self._finds_frames:
            self.connection.execute(f"SET python_enable_replacements = {str(wanted).lower()}")
            self._finds_frames = wanted

    @property
    def zone(self) -> str:
        """The zone that was configured."""
        return self._zone or "UTC"

    def _set_zone(self, zone: str) -> None:
        if zone != self._zone:
            self._zone = None  # until that has worked
            self.connection.execute(f"SET TimeZone = {sql.string(zone)}")
            self._zone = zone

    def write_often(self) -> None:
        """Have DuckDB write into its log at COMMIT, and into the file on closing: cheaper for many small commits."""
        self.connection.execute("RESET wal_autocheckpoint; PRAGMA enable_checkpoint_on_shutdown")

    def write_once(self, *, rows: bool) -> None:
        """Spare DuckDB from writing everything twice: into its log at COMMIT, and into the file on closing.

        COMMIT returns when all is on disk, as ever. This only says where, and what to leave for later.

        Args:
            rows: Whether rows will be written: they go straight into the file. A mere claim stays in the log.
        """
        if rows:
            self.connection.execute("SET wal_autocheckpoint = '1KB'; PRAGMA enable_checkpoint_on_shutdown")
        else:
            self.connection.execute("RESET wal_autocheckpoint; PRAGMA disable_checkpoint_on_shutdown")

    def table_columns(self, table: TableName) -> tuple[Column, ...] | None:
        """A table's columns in order, or ``None`` if there is no such table."""
        try:
            return self._bound(f"FROM {self.name(table)}")
        except duckdb.CatalogException:
            return None

    def _bound(self, query: str) -> tuple[Column, ...]:
        """The columns of a query. Unlike a DESCRIBE that fails, this never aborts a transaction; and it is faster."""
        found = self.relation("describe", query)
        return tuple(Column(name=n, type=str(kind)) for n, kind in zip(found.columns, found.types, strict=True))

    def is_understood_elsewhere(self, query: str) -> bool:
        """Whether another connection to the file understands a query: it names nothing that only this one knows.

        On another connection also because a failure would abort the transaction of this one.
        """
        alike = _STRING.sub("", query)  # but for the keys, the same as that of the partition before
        if alike not in self._understood:
            try:
                self._elsewhere.execute(f"DESCRIBE {query}")
            except duckdb.Error:
                return False
            self._understood.add(alike)
        return True

    @cached_property
    def _elsewhere(self) -> duckdb.DuckDBPyConnection:
        other = self.connection.cursor()
        other.execute(f"USE {sql.identifier(self._database)}; SET python_enable_replacements = false")
        return other

    def close(self) -> None:
        """Close what was opened beside the connection."""
        if "_elsewhere" in self.__dict__:
            self._elsewhere.close()

    def marked_columns(self, table: TableName) -> frozenset[str]:
        """The columns of a table whose type is a stand-in (see :mod:`marigold_assets.stores.standin`)."""
        rows = self.execute("describe", f"DESCRIBE {self.name(table)}")
        return frozenset(row[0] for row in rows if row[4] == "NULL")

    def columns_of_arrow(self, schema: pa.Schema) -> tuple[Column, ...]:
        """The columns that Arrow data of a schema have for the database; the same for every partition of an asset."""
        if schema not in self._columns_of_arrow:
            self.register("marigold_shape", schema.empty_table())
            self._columns_of_arrow[schema] = self.described("DESCRIBE SELECT * FROM marigold_shape")
            self.unregister("marigold_shape")
        return self._columns_of_arrow[schema]

    def described(self, statement: str) -> tuple[Column, ...]:
        """The columns that a DESCRIBE statement lists."""
        rows = self.execute("describe", statement)
        return tuple(Column(name=row[0], type=row[1]) for row in rows)

    def may_read(self, query: str, table: TableName) -> bool:
        """Whether a query may read a table, also through views and macros; in doubt, yes.

        The plan before any optimization names every table that is read.
        """
        if not re.fullmatch(r"[A-Za-z0-9_]+", table.name):  # a name that the plan may write in another way
            return True
        if not self._explains_all:
            self.connection.execute("SET explain_output = 'all'")
            self._explains_all = True
        plans = self.execute("explain", f"EXPLAIN (FORMAT json) {query}")
        return any(fold(table.name) in fold(plan) for _, plan in plans)

    def expression_types(
        self, slices: Sequence[PartitionSlice], columns: Sequence[Column], *, of_row: bool = False
    ) -> ExpressionTypes:
        """The partition expressions of the slices' table, rendered and typed.

        Args:
            slices: The slices.
            columns: The table's columns.
            of_row: Whether to ask about a row of such columns, since there is no table yet.
        """
        texts = list(dict.fromkeys(c.expression for c in slices[0].conditions))
        rendered = {text: sql.expression(text, [column.name for column in columns]) for text in texts}
        if not texts:
            return ExpressionTypes(sql={}, type={})
        if not of_row and not any(text.startswith("(") for text in rendered.values()):
            stored = {sql.identifier(column.name): column.type for column in columns}
            return ExpressionTypes(sql=rendered, type={text: stored[rendered[text]] for text in texts})
        for text in texts:
            self._refuse_unless_expression(rendered[text], text, slices[0])
        wanted = ", ".join(f"{rendered[text]} AS e{number}" for number, text in enumerate(texts))
        source = self.name(slices[0].table)
        if of_row:
            nulls = ", ".join(f"CAST(NULL AS {c.type}) AS {sql.identifier(c.name)}" for c in columns)
            source = f"(SELECT {nulls})"
        try:
            found = self._bound(f"SELECT {wanted} FROM {source}")
        except (duckdb.BinderException, duckdb.ParserException, duckdb.CatalogException) as error:
            raise ConfigurationError(
                f"partition expression {' / '.join(map(repr, texts))} cannot be evaluated: {_first_line(error)}",
                remedy="set 'partition_expr' to a column or an SQL expression over columns, which are "
                + ", ".join(column.name for column in columns),
                **slices[0].where,
            ) from None
        return ExpressionTypes(
            sql=rendered, type={text: column.type for text, column in zip(texts, found, strict=True)}
        )

    def expression_of_zone(self, slices: Sequence[PartitionSlice], columns: Sequence[Column]) -> str | None:
        """A partition expression that tells rows apart differently in other time zones.

        Returns:
            Its text, or ``None`` if there is none. The session's zone is another one afterwards.
        """
        types = self.expression_types(slices, columns)
        for condition in slices[0].conditions:
            kind = ExpressionKind.of(types.type[condition.expression])
            if isinstance(condition, Equals) and kind is ExpressionKind.INSTANT:
                return condition.expression
        written = {text: rendered for text, rendered in types.sql.items() if rendered.startswith("(")}
        if not written:
            return None
        instants = [column.name for column in columns if ExpressionKind.of(column.type) is ExpressionKind.INSTANT]
        for text, rendered in written.items():
            if not _NAMES_ITS_ZONE.search(rendered) and self._reads(instants, rendered, slices[0].table, columns):
                return text
        # Rows as they are, for what is parsed, and as they might be at any instant, for what is cut.
        rows = f"SELECT * FROM {self.name(slices[0].table)} LIMIT {_SAMPLE_ROWS}"
        probed = ", ".join(f"marigold_at AS {sql.identifier(name)}" for name in instants)
        self.stage("sample", "marigold_sample", rows)
        if instants:
            some = f"{_INSTANTS} LEFT JOIN (FROM marigold_sample LIMIT 10) ON true"
            self.execute(
                "probe", f"INSERT INTO marigold_sample SELECT * EXCLUDE (marigold_at) REPLACE ({probed}) FROM {some}"
            )
        hashes = ", ".join(f"sum(hash({rendered}))" for rendered in written.values())
        found = []
        for zone in _DIFFERENT_ZONES:
            self._set_zone(zone)
            found += self.execute("evaluate in another zone", f"SELECT {hashes} FROM marigold_sample")
        for text, values in zip(written, zip(*found, strict=True), strict=True):
            if len(set(values)) > 1:
                return text
        return None

    def _reads(self, names: Sequence[str], rendered: str, table: TableName, columns: Sequence[Column]) -> bool:
        """Whether an expression over a table cannot do without some of its columns."""
        if not names:
            return False
        without = f"* EXCLUDE ({', '.join(map(sql.identifier, names))})" if len(names) < len(columns) else "1"
        try:
            self.described(f"DESCRIBE SELECT {rendered} FROM (SELECT {without} FROM {self.name(table)})")
        except duckdb.BinderException:
            return True
        return False

    def _refuse_unless_expression(self, rendered: str, text: str, slice_: PartitionSlice) -> None:
        # Text such as "a); DROP TABLE b; --" would run as three statements.
        if rendered.startswith("(") and len(self.connection.extract_statements(f"SELECT {rendered}")) != 1:
            raise ConfigurationError(
                f"partition expression {text!r} is not one SQL expression",
                remedy="set 'partition_expr' to a column of the table or an SQL expression",
                **slice_.where,
            )

    def predicate(self, slices: Sequence[PartitionSlice], columns: Sequence[Column]) -> Predicate:
        """The condition that holds for exactly the rows of the slices."""
        if not slices:
            return predicate((), ExpressionTypes(sql={}, type={}))
        return predicate(slices, self.expression_types(slices, columns))


def _first_line(error: duckdb.Error) -> str:
    """What is wrong, without the statement in which DuckDB points at it."""
    return re.split(r"\n|LINE \d", str(error))[0].strip()


@cache
def probe() -> str:
    """Name the hash function of this process' DuckDB (see :func:`marigold_assets.fingerprint.probe_of`)."""
    with duckdb.connect() as scratch:
        rows = scratch.execute(f"SELECT {', '.join(f'hash({literal})' for literal in _GOLDEN)}").fetchall()
    return fingerprint.probe_of([int(value) for value in rows[0]])
