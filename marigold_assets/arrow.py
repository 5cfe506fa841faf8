"""Arrow data as DuckDB can hold it exactly, and Arrow data as pandas can hold it exactly."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

_EXACT_IN_FLOAT = 2**53
_MOST_DAYS = 106_751_990  # of which the microseconds fit into 64 bits
_LONGEST_MICROSECONDS = (2**63 - 1) // 1_000


def storable(table: pa.Table, *, dicts_of: pd.DataFrame | None = None) -> pa.Table:
    """Cast what DuckDB would cut or rename to the nearest type that it holds exactly; fail where a value is lost.

    Args:
        table: The rows.
        dicts_of: The pandas frame that the table was made from: Arrow fills the keys that some dicts lack with NULL.

    Raises:
        pa.ArrowInvalid: A value does not survive, such as nanoseconds of a timezone-aware timestamp.
        TypeError: A column has a type that cannot be stored, or dicts with differing keys.
    """
    if dicts_of is not None:
        _refuse_differing_keys(table, dicts_of)
    target = _storable_schema(table.schema)
    for number, field in enumerate(table.schema):
        if pa.types.is_run_end_encoded(field.type):
            table = table.set_column(number, field.with_type(field.type.value_type), _run_end_decoded(table[number]))
    table = table if target == table.schema else table.cast(target)
    for name, column in zip(table.column_names, table.columns, strict=True):
        _refuse_inexact_intervals(name, column)
    return table


def storable_reader(reader: pa.RecordBatchReader) -> pa.RecordBatchReader:
    """What :func:`storable` does, batch by batch while the rows are read.

    Raises:
        TypeError: A column has a type that cannot be stored.
    """
    target = _storable_schema(reader.schema)

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in reader:
            yield from storable(pa.Table.from_batches([batch])).to_batches()

    encoded = any(pa.types.is_run_end_encoded(field.type) for field in reader.schema)
    if encoded or any(_holds_intervals(field.type) for field in target):
        return pa.RecordBatchReader.from_batches(target, batches())
    return reader.cast(target)


def _storable_schema(schema: pa.Schema) -> pa.Schema:
    fields = []
    for field in schema:
        kind: Any = field.type
        kind = kind.value_type if pa.types.is_run_end_encoded(kind) else kind
        fields.append(field.with_type(_storable_type(kind, field.name)))
    return pa.schema(fields)


def _run_end_decoded(column: pa.ChunkedArray[Any]) -> pa.ChunkedArray[Any]:
    """The values of a run-end encoded column; Arrow itself decodes flat ones only."""
    kind: Any = column.type
    chunks = []
    for chunk in column.chunks:
        encoded: Any = chunk
        rows = np.arange(encoded.offset, encoded.offset + len(encoded))
        runs = np.searchsorted(encoded.run_ends.to_numpy(), rows, side="right")
        chunks.append(encoded.values.take(pa.array(runs)))
    return pa.chunked_array(chunks, kind.value_type)


def _holds_intervals(kind: pa.DataType) -> bool:
    return "month_day_nano_interval" in str(kind) or "duration[" in str(kind)


def _refuse_inexact_intervals(name: str, column: pa.ChunkedArray[Any]) -> None:
    """DuckDB's INTERVAL has microseconds, and comes back with its time of day in nanoseconds, which may overflow."""
    if not _holds_intervals(column.type):
        return
    for _, leaf in _leaves(column):
        if leaf.type == pa.month_day_nano_interval():
            raw, valid = _interval_parts(leaf)
            if (raw["nanoseconds"][valid] % 1_000).any():
                msg = f"column {name!r} holds intervals finer than microseconds"
                raise pa.ArrowInvalid(msg)
        elif pa.types.is_duration(leaf.type) and len(leaf) > leaf.null_count:
            extremes: Any = pc.min_max(leaf.cast(pa.int64())).as_py()
            if max(abs(extremes["min"]), abs(extremes["max"])) > _LONGEST_MICROSECONDS:
                msg = f"column {name!r} holds durations of more than 292 years"
                raise pa.ArrowInvalid(msg)


def _leaves(column: pa.ChunkedArray[Any]) -> Iterator[tuple[tuple[int, ...], Any]]:
    """The flat arrays within a column, each with its place; what lies behind a NULL is left out, or NULL itself."""
    pending: list[tuple[tuple[int, ...], Any]] = [((), chunk) for chunk in column.chunks]
    while pending:
        path, array = pending.pop()
        if pa.types.is_struct(array.type):
            pending += [((*path, number), inner) for number, inner in enumerate(array.flatten())]
        elif pa.types.is_map(array.type):
            entries = pa.list_(pa.struct([array.type.key_field, array.type.item_field]))
            pending.append((path, array.cast(entries)))
        elif pa.types.is_nested(array.type) and not pa.types.is_union(array.type):
            pending.append(((*path, 0), array.flatten()))
        else:
            yield path, array


def _storable_type(kind: Any, name: str) -> Any:  # noqa: C901, PLR0912 - one line a type
    if isinstance(kind, pa.BaseExtensionType):
        if kind.extension_name in {"arrow.json", "arrow.uuid"}:
            return kind
        msg = f"column {name!r} has type {kind}"
        raise TypeError(msg)
    if pa.types.is_dictionary(kind):
        return _storable_type(kind.value_type, name)
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return pa.timestamp("us", kind.tz)  # DuckDB's TIMESTAMPTZ; the cast fails on nanoseconds
    if pa.types.is_duration(kind):
        return pa.duration("us")  # DuckDB's INTERVAL
    if pa.types.is_decimal(kind) and kind.scale < 0:
        return pa.decimal128(min(kind.precision - kind.scale, 38), 0)
    if pa.types.is_float16(kind):
        return pa.float32()
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_storable_type(kind.value_type, name)))
    if pa.types.is_large_list(kind):
        return pa.large_list(kind.value_field.with_type(_storable_type(kind.value_type, name)))
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(kind.value_field.with_type(_storable_type(kind.value_type, name)), kind.list_size)
    if pa.types.is_map(kind):
        return pa.map_(_storable_type(kind.key_type, name), _storable_type(kind.item_type, name))
    if pa.types.is_struct(kind):
        if kind.num_fields == 0:
            msg = f"column {name!r} holds dicts without any key"
            raise TypeError(msg)
        return pa.struct([field.with_type(_storable_type(field.type, name)) for field in kind])
    if pa.types.is_nested(kind):  # what is not looked into here might hold anything
        msg = f"column {name!r} has type {kind}"
        raise TypeError(msg)
    return kind


def _refuse_differing_keys(table: pa.Table, frame: pd.DataFrame) -> None:
    for field, (_, column) in zip(table.schema, frame.items(), strict=True):
        if not pa.types.is_nested(field.type):
            continue
        keys: dict[str, set[str]] = {}
        for value in column:
            for path, found in _dict_keys(value):
                if found != keys.setdefault(path, found):
                    msg = f"column {field.name!r} holds dicts with differing keys: {sorted(found ^ keys[path])}"
                    raise TypeError(msg)


def _dict_keys(value: Any, path: str = "") -> Iterator[tuple[str, set[str]]]:
    """The key sets of all dicts within a value, each with its place; the items of a list have one place."""
    if isinstance(value, Mapping):
        yield path, set(value)
        for key, inner in value.items():
            yield from _dict_keys(inner, f"{path}.{key}")
    elif isinstance(value, list | tuple | np.ndarray):
        for inner in value:
            yield from _dict_keys(inner, f"{path}[]")


def durations_from_intervals(table: pa.Table) -> pa.Table:
    """Turn DuckDB's INTERVAL columns back into durations; months have no fixed length and stay intervals."""
    for number, field in enumerate(table.schema):
        if field.type == pa.month_day_nano_interval():
            duration = _duration(table.column(number))
            if duration is not None:
                table = table.set_column(number, pa.field(field.name, pa.duration("us")), duration)
    return table


def _duration(column: pa.ChunkedArray[Any]) -> pa.ChunkedArray[Any] | None:
    chunks = []
    for chunk in column.chunks:
        raw, valid = _interval_parts(chunk)
        if raw["months"][valid].any() or (np.abs(raw["days"][valid].astype("int64")) > _MOST_DAYS).any():
            return None
        microseconds = raw["days"].astype("int64") * 86_400_000_000 + raw["nanoseconds"] // 1_000
        chunks.append(pa.array(microseconds.astype("timedelta64[us]"), pa.duration("us"), mask=~valid))
    return pa.chunked_array(chunks, pa.duration("us"))


def _interval_parts(intervals: pa.Array[Any]) -> tuple[Any, Any]:
    """Months, days and nanoseconds of intervals, and which of them are not NULL."""
    layout = np.dtype([("months", "<i4"), ("days", "<i4"), ("nanoseconds", "<i8")])
    stored = np.frombuffer(memoryview(intervals.buffers()[1] or b""), dtype=layout)
    return stored[intervals.offset : intervals.offset + len(intervals)], np.asarray(intervals.is_valid())


def to_pandas(table: pa.Table) -> pd.DataFrame:
    """A pandas frame with the values as stored: decimals as Decimal, dates as timestamps, big integers exact."""
    frame: pd.DataFrame = table.to_pandas(date_as_object=False)
    for field in table.schema:
        column = table.column(field.name)
        rounded = _rounded(column)
        if rounded and pa.types.is_nested(field.type):
            pairs = zip(frame[field.name], column.to_pylist(), strict=True)
            exact = [_exact(shown, stored, field.type, rounded) for shown, stored in pairs]
            frame[field.name] = pd.Series(exact, index=frame.index, dtype=object)
        elif rounded:
            frame[field.name] = column.to_pandas(types_mapper=_NULLABLE.get)
    return frame


def _rounded(column: pa.ChunkedArray[Any]) -> set[tuple[int, ...]]:
    """The places within a column where pandas would make floats of integers beside NULL, and round them."""
    nulls, big = set(), set()
    for path, leaf in _leaves(column):
        if pa.types.is_integer(leaf.type) and leaf.type.bit_width == 64:
            extremes: Any = pc.min_max(leaf).as_py()
            if leaf.null_count:
                nulls.add(path)
            if max(abs(extremes["min"] or 0), abs(extremes["max"] or 0)) > _EXACT_IN_FLOAT:
                big.add(path)
    return nulls & big


def _exact(shown: Any, stored: Any, kind: Any, rounded: set[tuple[int, ...]], path: tuple[int, ...] = ()) -> Any:
    """A value as pandas shows it, with the integers stored at the places that are rounded."""
    if path in rounded:
        return stored
    if stored is None or not any(place[: len(path)] == path for place in rounded):
        return shown
    if pa.types.is_map(kind):
        pairs = zip(shown, stored, strict=True)
        return [(key, _exact(a, b, kind.item_type, rounded, (*path, 0, 1))) for (key, a), (_, b) in pairs]
    if pa.types.is_struct(kind):
        return {
            field.name: _exact(shown[field.name], stored[field.name], field.type, rounded, (*path, number))
            for number, field in enumerate(kind)
        }
    inner: Any = kind
    items = np.empty(len(stored), dtype=object)
    for number, (a, b) in enumerate(zip(shown, stored, strict=True)):
        items[number] = _exact(a, b, inner.value_type, rounded, (*path, 0))
    return items


_NULLABLE: Any = {pa.int64(): pd.Int64Dtype(), pa.uint64(): pd.UInt64Dtype()}
