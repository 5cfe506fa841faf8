"""From the frames that people use to the rows that a store takes, and back. Nothing here changes a value silently."""

from __future__ import annotations

import sys
import tempfile
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.ipc

from marigold_assets.arrow import durations_from_intervals, storable, storable_reader, to_pandas
from marigold_assets.errors import MarigoldError, SchemaMismatchError, UnsupportedTypeError, Where
from marigold_assets.model import Column, PartitionSlice, TableName
from marigold_assets.stores.alignment import refuse_inexact
from marigold_assets.stores.base import PartitionStore, Query, Rows

ReadArguments = tuple[TableName, Sequence[PartitionSlice] | None, Sequence[str] | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameType:
    """One type of frame: how to recognize it, and how to load it.

    Attributes:
        name: As messages call it.
        matches: Whether a class is this type of frame.
        of_table: Make one of an Arrow table.
        load: Read a slice as this type, where that is more than making one of the Arrow table read.
    """

    name: str
    matches: Callable[[type], bool]
    of_table: Callable[[pa.Table], Any]
    load: Callable[[PartitionStore, ReadArguments], Any] | None = None


def load(store: PartitionStore, arguments: ReadArguments, wanted: object, where: Where) -> Any:
    """Read slices as the type of frame that an input is annotated with.

    Args:
        store: Where to read.
        arguments: Table, slices and columns.
        wanted: The annotation; ``dict[str, Frame]`` gives one frame a partition key.
        where: The place, for errors.

    Raises:
        UnsupportedTypeError: No frame of that type can be loaded.
    """
    table, slices, columns = arguments
    if item := _item_of_dict(wanted):
        if slices is None:
            raise UnsupportedTypeError(
                "a table without partitions cannot be loaded as one frame a partition",
                remedy="annotate the input with the type of the frame itself",
                **where,
            )
        kind = _frame_type(item, where)
        keys = [str(slice_.partition_key) for slice_ in slices]
        if kind.name == _SQL:
            return {key: store.query(table, [one], columns) for key, one in zip(keys, slices, strict=True)}
        tables = store.read_each(table, slices, columns)
        return {key: kind.of_table(durations_from_intervals(one)) for key, one in zip(keys, tables, strict=True)}
    kind = _frame_type(wanted, where)
    if kind.load is not None:
        return kind.load(store, arguments)
    return kind.of_table(durations_from_intervals(store.read(table, slices, columns)))


def empty(wanted: object, where: Where) -> Any:
    """A frame without columns and rows, of the type that an input is annotated with.

    Raises:
        UnsupportedTypeError: No frame of that type can be made.
    """
    return {} if _item_of_dict(wanted) else _frame_type(wanted, where).of_table(pa.table({}))


def _item_of_dict(wanted: object) -> object:
    wanted = _without_none(wanted)
    origin, parameters = typing.get_origin(wanted), typing.get_args(wanted)
    is_mapping = isinstance(origin, type) and issubclass(origin, Mapping)
    return parameters[1] if is_mapping and len(parameters) == 2 and parameters[0] is str else None


def _frame_type(wanted: object, where: Where) -> FrameType:
    wanted = _without_none(wanted)
    if isinstance(wanted, type):
        for kind in FRAME_TYPES:
            if kind.matches(wanted):
                return kind
    raise UnsupportedTypeError(
        f"an input cannot be loaded as {getattr(wanted, '__name__', wanted)!r}",
        remedy=f"annotate it as one of {', '.join(kind.name for kind in FRAME_TYPES)}, or as dict[str, <one of them>]"
        " for one frame a partition",
        **where,
    )


def is_loadable(wanted: object) -> bool:
    """Whether an annotation says anything about how to load an input."""
    return wanted is not typing.Any and wanted is not object


def is_in_warehouse(wanted: object) -> bool:
    """Whether an annotation asks for SQL text or a relation, so that nothing passes through Python."""
    return is_sql(wanted) or is_relation(wanted)


def is_sql(wanted: object) -> bool:
    """Whether an annotation asks for SQL text, or for one a partition."""
    kind = _without_none(_item_of_dict(wanted) or wanted)
    return isinstance(kind, type) and issubclass(kind, str)


def is_relation(wanted: object) -> bool:
    """Whether an annotation asks for a relation."""
    kind = _without_none(wanted)
    return isinstance(kind, type) and issubclass(kind, duckdb.DuckDBPyRelation)


def is_loadable_type(wanted: object) -> bool:
    """Whether an input can be loaded as what it is annotated with."""
    kind = _without_none(_item_of_dict(wanted) or wanted)
    return not is_loadable(kind) or (isinstance(kind, type) and any(one.matches(kind) for one in FRAME_TYPES))


def names_of_types() -> str:
    """The types that inputs can be annotated with, as messages name them."""
    return ", ".join(kind.name for kind in FRAME_TYPES)


def to_rows(value: object, where: Where) -> Rows:
    """Turn what an asset returned into the rows of a swap.

    A stream (RecordBatchReader, DuckDB relation) and SQL are passed on unread.

    Raises:
        UnsupportedTypeError: The value, or one of its columns, is of a type that cannot be stored as it is.
        SchemaMismatchError: Two columns have one name.
    """
    if isinstance(value, duckdb.DuckDBPyRelation):
        columns = zip(value.columns, value.types, strict=True)
        refuse_inexact([Column(name=name, type=str(kind)) for name, kind in columns], where)
    try:
        rows = _to_rows(value)
    except MarigoldError:
        raise
    # As Arrow, pandas and polars each say that Arrow cannot hold a value: they have no class for it in common.
    except (pa.ArrowException, TypeError, ValueError, OverflowError, NotImplementedError) as error:
        text = " ".join("; ".join(map(str, error.args)).split())
        if "uplicate column" in text:
            names = [str(name) for name in getattr(value, "columns", ())]
            twice = next((f" {name!r}" for name in names if names.count(name) > 1), "")
            raise SchemaMismatchError(
                f"the rows have two columns of one name{twice}", remedy="rename or drop one of them", **where
            ) from None
        raise UnsupportedTypeError(
            f"a column cannot be stored without changing its values: {text}",
            remedy="convert that column to one plain type (numbers, text, dates, timestamps, bytes, lists or dicts)",
            **where,
        ) from None
    if rows is None:
        raise UnsupportedTypeError(
            "the asset returned None" if value is None else f"the asset returned a {_type_name(value)}",
            remedy="return the rows; or, if the asset has written its data itself, annotate the function '-> None' or"
            " return a MaterializeResult, such as that of FencedPartitionResource.swap"
            if value is None
            else f"return one of {', '.join(kind.name for kind in FRAME_TYPES)}",
            **where,
        )
    return rows


def described_columns(value: object) -> tuple[tuple[str, str], ...] | None:
    """Names and types of a frame's columns in its own words, or ``None`` where reading them would cost a query."""
    if _is_pandas(type(value)) or _is_polars(type(value), "DataFrame"):
        frame: Any = value
        return tuple((str(name), str(kind)) for name, kind in zip(frame.columns, frame.dtypes, strict=True))
    if isinstance(value, pa.Table | pa.RecordBatchReader):
        return tuple((field.name, str(field.type)) for field in value.schema)
    return None


def _to_rows(value: object) -> Rows | None:
    frame: Any = value
    if isinstance(value, Query):
        return value
    if isinstance(value, str):
        return Query(sql=value)
    if isinstance(value, pa.RecordBatchReader):
        return storable_reader(value)
    if isinstance(value, pa.Table):
        return storable(value)
    if isinstance(value, duckdb.DuckDBPyRelation):
        # At once: while it was streamed, another query on its connection would cut it short without an error.
        return storable(_without_types_of_nothing(value.to_arrow_table()))
    if _is_pandas(type(value)):
        return storable(_without_types_of_nothing(pa.Table.from_pandas(frame, preserve_index=False)), dicts_of=frame)
    if _is_polars(type(value), "LazyFrame"):
        return _to_rows(frame.collect())
    if _is_polars(type(value), "DataFrame"):
        _refuse_python_objects(frame)
        return storable(frame.to_arrow())
    return None


def _without_types_of_nothing(table: pa.Table) -> pa.Table:
    """The same table, without the types that say nothing.

    pandas makes float64 of an empty list, and DuckDB before 2.0 makes int32 of nothing but NULL.
    """
    for number, (field, column) in enumerate(zip(table.schema, table.columns, strict=True)):
        by_chance = pa.types.is_float64(field.type) if not table.num_rows else pa.types.is_int32(field.type)
        if by_chance and column.null_count == table.num_rows:
            table = table.set_column(number, field.with_type(pa.null()), pa.nulls(table.num_rows))
    return table


def _refuse_python_objects(frame: Any) -> None:
    """Polars would export the addresses of Python objects as bytes."""
    for name, kind in frame.schema.items():
        if "Object" in str(kind):
            msg = f"column {name!r} holds Python objects ({kind})"
            raise TypeError(msg)


def _is_pandas(kind: type) -> bool:
    pandas = sys.modules.get("pandas")
    return pandas is not None and issubclass(kind, pandas.DataFrame)


def _is_polars(kind: type, name: str) -> bool:
    polars = sys.modules.get("polars")
    return polars is not None and issubclass(kind, getattr(polars, name))


def _type_name(value: object) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")


def _without_none(wanted: object) -> object:
    if typing.get_origin(wanted) in {typing.Union, types.UnionType}:
        kept = [part for part in typing.get_args(wanted) if part is not type(None)]
        return kept[0] if len(kept) == 1 else wanted
    return wanted


def _polars_frame(table: pa.Table) -> Any:
    polars: Any = sys.modules["polars"]
    return polars.from_arrow(table)


def _load_reader(store: PartitionStore, arguments: ReadArguments) -> pa.RecordBatchReader:
    with store.scan(*arguments) as reader:
        return spooled(reader)


def spooled(reader: pa.RecordBatchReader) -> pa.RecordBatchReader:
    """A stream over a private copy on disk: memory stays flat, and nobody waits for whoever reads it."""
    with ExitStack() as until_read:
        spool = until_read.enter_context(tempfile.TemporaryFile(prefix="marigold-"))
        with pa.ipc.new_stream(spool, reader.schema) as sink:
            for batch in reader:
                sink.write_batch(batch)
        spool.seek(0)
        until_read.pop_all()

    def batches() -> Iterator[pa.RecordBatch]:
        with spool, pa.ipc.open_stream(spool) as stream:
            yield from stream

    return pa.RecordBatchReader.from_batches(reader.schema, batches())


_SQL = "str (SQL)"

FRAME_TYPES: tuple[FrameType, ...] = (
    FrameType(name="pandas.DataFrame", matches=_is_pandas, of_table=to_pandas),
    FrameType(name="polars.DataFrame", matches=lambda kind: _is_polars(kind, "DataFrame"), of_table=_polars_frame),
    FrameType(
        name="polars.LazyFrame",
        matches=lambda kind: _is_polars(kind, "LazyFrame"),
        of_table=lambda table: _polars_frame(table).lazy(),
    ),
    FrameType(name="pyarrow.Table", matches=lambda kind: issubclass(kind, pa.Table), of_table=lambda table: table),
    FrameType(
        name="pyarrow.RecordBatchReader",
        matches=lambda kind: issubclass(kind, pa.RecordBatchReader),
        of_table=lambda table: table.to_reader(),
        load=_load_reader,
    ),
    # On DuckDB's default connection, so that it joins with whatever duckdb.sql makes; the file itself is closed.
    FrameType(
        name="duckdb.DuckDBPyRelation",
        matches=lambda kind: issubclass(kind, duckdb.DuckDBPyRelation),
        of_table=duckdb.from_arrow,
    ),
    FrameType(
        name=_SQL,
        matches=lambda kind: issubclass(kind, str),
        of_table=lambda _: "SELECT NULL AS nothing WHERE false",
        load=lambda store, arguments: store.query(*arguments),
    ),
)
