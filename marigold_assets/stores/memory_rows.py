"""Arrow rows for :mod:`marigold_assets.stores.memory`: to which slice each belongs, and what they hash to."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence

import pyarrow as pa

from marigold_assets.errors import ConfigurationError, RowsOutsidePartitionError
from marigold_assets.fingerprint import MODULUS, ContentHash, probe_of, schema_digest
from marigold_assets.model import Column, Equals, PartitionSlice, fold
from marigold_assets.stores import memory_types
from marigold_assets.stores.predicate import ExpressionKind, interval_bounds

_Test = Callable[[object], bool]


def members(rows: pa.Table, slices: Sequence[PartitionSlice]) -> list[bool]:
    """For every row, whether it belongs to one of the slices."""
    tests = [_tests(rows.schema, slice_) for slice_ in slices]
    values = {name: rows.column(name).to_pylist() for name in {name for test in tests for name, _ in test}}
    return [
        any(all(test(values[name][number]) for name, test in conditions) for conditions in tests)
        for number in range(rows.num_rows)
    ]


def rows_of(rows: pa.Table, slice_: PartitionSlice) -> pa.Table:
    """The rows that belong to a slice."""
    return rows.filter(pa.array(members(rows, [slice_]), pa.bool_()))


def _tests(schema: pa.Schema, slice_: PartitionSlice) -> list[tuple[str, _Test]]:
    """Column and test of every condition."""
    by_key = {fold(name): name for name in schema.names}
    tests: list[tuple[str, _Test]] = []
    for condition in slice_.conditions:
        name = by_key.get(fold(condition.expression))
        if name is None:
            raise ConfigurationError(
                f"partition expression {condition.expression!r} is not a column of the table",
                remedy="name a column: the in-memory store knows no SQL",
                **slice_.where,
            )
        kind = schema.field(name).type
        if isinstance(condition, Equals):
            tests.append((name, _equals(memory_types.parse(condition.value, kind))))
        else:
            low, high = interval_bounds(condition, ExpressionKind.of(memory_types.sql_name(kind)), slice_)
            tests.append((name, _between(low, high)))
    return tests


def _equals(wanted: object) -> _Test:
    return lambda value: value is not None and wanted is not None and value == wanted


def _between(low: object, high: object) -> _Test:
    return lambda value: value is not None and low <= value < high  # type: ignore[operator]


def refuse_outside(slices: Sequence[PartitionSlice], rows: pa.Table) -> None:
    """Refuse rows that belong to no slice, or to more than one.

    Raises:
        MarigoldError: There is one.
    """
    hits = [sum(hit) for hit in zip(*(members(rows, [slice_]) for slice_ in slices), strict=True)]
    if any(count > 1 for count in hits):
        raise ConfigurationError(
            "the partitions overlap", remedy="let every row belong to one partition only", **slices[0].where
        )
    if outside := hits.count(0):
        raise RowsOutsidePartitionError(
            f"{outside} of {rows.num_rows} rows lie outside the partition{'s' if len(slices) > 1 else ''}",
            remedy="return only rows of the partition asked for; the old rows are unchanged",
            **slices[0].where,
        )


def content_hash(rows: pa.Table, columns: Sequence[Column]) -> ContentHash:
    """Hash rows as ``mh1`` does, with a hash function of its own."""
    values: Mapping[str, list[object]] = rows.to_pydict()
    ordered = [values[name] for name in sorted(values)]
    return ContentHash(
        probe=_PROBE,
        schema=schema_digest(columns),
        row_count=rows.num_rows,
        row_sum=_sum(zip(*ordered, strict=True)),
    )


def column_hashes(rows: pa.Table) -> dict[str, tuple[str, int]]:
    """Per column the hash sum and the number of NULLs."""
    return {
        name: (f"{_sum((value,) for value in values):016x}", values.count(None))
        for name, values in sorted(rows.to_pydict().items())
    }


def _sum(rows: Iterable[tuple[object, ...]]) -> int:
    return sum(map(_hash_of, rows)) % MODULUS


def _hash_of(row: tuple[object, ...]) -> int:
    return int.from_bytes(hashlib.sha256(repr(row).encode("utf-8", "surrogatepass")).digest()[:8], "big")


_PROBE = probe_of([_hash_of((value,)) for value in (0, 1.5, "marigold", None, True)])
