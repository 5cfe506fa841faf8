"""The reference model meets the store contract."""

from __future__ import annotations

import pyarrow as pa
import pytest

from marigold_assets.errors import ConfigurationError
from marigold_assets.model import Attempt, Equals, PartitionSlice, TableName
from marigold_assets.stores.base import Query
from marigold_assets.stores.memory import MemoryStore
from marigold_assets.testing import StoreContract
from marigold_assets.testing.strategies import slice_of


class TestMemoryStore(StoreContract):
    @pytest.fixture
    def storage(self):
        return MemoryStore()

    @pytest.fixture
    def make_store(self, storage):
        return lambda observer=None: MemoryStore(same_storage_as=storage, observer=observer)

    @pytest.fixture
    def by_hand(self, storage):
        def write(table, rows):
            if rows is None:
                del storage._state.tables[table.key]
            else:
                storage._state.tables[table.key].rows = rows

        return write

    def test_sql_is_refused(self, store, attempt):
        with pytest.raises(ConfigurationError, match="SQL"):
            store.swap([slice_of("a")], Query(sql="SELECT 1"), attempt=attempt, swap_id="x")
        with pytest.raises(ConfigurationError, match="SQL"):
            store.query(TableName(schema="sales", name="daily"))

    def test_an_expression_that_is_no_column_is_refused(self, store):
        slice_ = PartitionSlice(
            table=TableName(schema="s", name="t"),
            partition_key="a",
            conditions=(Equals(expression="lower(key)", value="a"),),
            owner="t",
        )
        attempt = Attempt(run_id="x", token=store.draw_token("x"))
        with pytest.raises(ConfigurationError, match="lower"):
            store.swap([slice_], pa.table({"key": ["a"]}), attempt=attempt, swap_id="x")
