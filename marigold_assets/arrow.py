"""Arrow data as DuckDB can hold it exactly, and Arrow data as pandas can hold it exactly."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

_EXACT_IN_FLOAT = 2**53


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
    target = storable_schema(table.schema)
    return table if target == table.schema else table.cast(target)


def storable_schema(schema: pa.Schema) -> pa.Schema:
    """The schema that :func:`storable` casts to.

    Raises:
        TypeError: A column has a type that cannot be stored.
    """
    return pa.schema([field.with_type(_storable_type(field.type, field.name)) for field in schema])


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
    if pa.types.is_float16(kind):
        return pa.float32()
    if pa.types.is_run_end_encoded(kind):
        return _storable_type(kind.value_type, name)
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
    layout = np.dtype([("months", "<i4"), ("days", "<i4"), ("nanoseconds", "<i8")])
    chunks = []
    for chunk in column.chunks:
        stored = np.frombuffer(memoryview(chunk.buffers()[1] or b""), dtype=layout)
        raw = stored[chunk.offset : chunk.offset + len(chunk)]
        valid = np.asarray(chunk.is_valid())
        if raw["months"][valid].any():
            return None
        microseconds = raw["days"].astype("int64") * 86_400_000_000 + raw["nanoseconds"] // 1_000
        chunks.append(pa.array(microseconds.astype("timedelta64[us]"), pa.duration("us"), mask=~valid))
    return pa.chunked_array(chunks, pa.duration("us"))


def to_pandas(table: pa.Table) -> pd.DataFrame:
    """A pandas frame with the values as stored: decimals as Decimal, dates as timestamps, big integers exact."""
    frame: pd.DataFrame = table.to_pandas(date_as_object=False)
    for field in table.schema:
        column = table.column(field.name)
        if pa.types.is_integer(field.type) and field.type.bit_width == 64 and column.null_count:
            extremes: Any = pc.min_max(column).as_py()
            if max(abs(extremes["min"] or 0), abs(extremes["max"] or 0)) > _EXACT_IN_FLOAT:
                # pandas would make floats of integers with gaps, and round them.
                frame[field.name] = column.to_pandas(types_mapper=_NULLABLE.get)
    return frame


_NULLABLE: Any = {pa.int64(): pd.Int64Dtype(), pa.uint64(): pd.UInt64Dtype()}
