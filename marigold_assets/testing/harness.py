"""What the tests of the store contract share: fixtures to be supplied, helpers, and a store with two slices."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

import pyarrow as pa
import pytest

from marigold_assets.model import Attempt, Claim, Receipt, TableName
from marigold_assets.stores.base import PartitionStore
from marigold_assets.testing.strategies import slice_of, table_of

ByHand = Callable[[TableName, pa.Table | None], None]
"""Replaces all rows of a table, or drops it, as another tool would: ``by_hand(table, rows)``; ``None`` drops."""

MakeStore = Callable[..., PartitionStore]
"""Opens the test's storage: ``make_store(observer=None)``. Called twice, it opens the same storage twice."""

TABLE = TableName(schema="sales", name="daily")


def sorted_rows(table: pa.Table) -> list[dict[str, Any]]:
    """Rows in an order that does not depend on the store."""
    return sorted(table.to_pylist(), key=repr)


def rows(key: str, *values: int | None) -> list[dict[str, Any]]:
    """Rows of one slice."""
    return [{"key": key, "value": value} for value in values]


def swap(
    store: PartitionStore, attempt: Attempt, rows_by_key: Mapping[str, list[int | None]], **more: Any
) -> tuple[Receipt, ...]:
    """Swap slices by key."""
    given = table_of([row for key, values in rows_by_key.items() for row in rows(key, *values)])
    slices = [slice_of(key) for key in rows_by_key]
    return store.swap(slices, given, attempt=attempt, **{"swap_id": f"swap {attempt.token}", **more})


def state(store: PartitionStore) -> tuple[Any, ...]:
    """Everything that a refused swap must leave as it is."""
    columns = store.columns(TABLE)
    return columns, None if columns is None else sorted_rows(store.read(TABLE)), store.ledger()


class StoreHarness:
    """Fixtures of the contract's tests; ``make_store`` is to be supplied."""

    @pytest.fixture
    def make_store(self) -> MakeStore:
        """Opens one and the same storage on every call: ``make_store(observer=None)``."""
        raise NotImplementedError  # every store has its own; a suite without one must not pass

    @pytest.fixture
    def busy(self) -> AbstractContextManager[str] | None:
        """Keeps the storage busy from outside, and says by which text its holder is named; ``None``: impossible."""
        return None

    @pytest.fixture
    def by_hand(self) -> ByHand:
        """Writes a table without the store's knowledge: ``by_hand(table, rows)``. Needs to be supplied, if possible."""
        pytest.skip("nobody but the store itself writes its tables")

    @pytest.fixture
    def store(self, make_store: MakeStore) -> PartitionStore:
        """A store without data."""
        return make_store()

    @pytest.fixture
    def attempt(self, store: PartitionStore) -> Attempt:
        """A first attempt, whose run has claimed nothing yet."""
        return self.draw(store, "first")

    @staticmethod
    def draw(store: PartitionStore, run_id: str, *keys: str) -> Attempt:
        """Start an attempt of a run, with claims."""
        claims = [Claim(owner="daily", partition_key=key) for key in keys]
        return Attempt(run_id=run_id, token=store.draw_token(run_id, claims))

    @pytest.fixture
    def filled(self, store: PartitionStore, attempt: Attempt) -> PartitionStore:
        """A store with slices ``a`` and ``b``."""
        swap(store, attempt, {"a": [1, 2], "b": [3]})
        return store
