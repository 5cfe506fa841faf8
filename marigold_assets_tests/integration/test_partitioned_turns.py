"""``@partitioned_asset`` whose function is quick: the database stays open while it runs, and that must not show."""

from __future__ import annotations

import subprocess
import sys
import time

import dagster as dg
import duckdb
import pandas as pd
import polars as pl
import pytest

from marigold_assets import FencedPartitionResource
from marigold_assets.asset import partitioned_asset
from marigold_assets.stores.duckdb import DuckDBStore
from marigold_assets_tests.integration.conftest import failure_of

pytestmark = pytest.mark.slow

DAYS = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-01-13")
KEYS = tuple(DAYS.get_partition_keys())
LATE = KEYS[6]  # by then the function is known to be quick


class Ledger:
    """A chain whose function does something else before its rows of one day, and is quick on all others."""

    def __init__(self, meanwhile=lambda: None):
        self.calls = []
        ledger = self

        @partitioned_asset(partitions_def=DAYS, partition_expr="day", code_version="1")
        def balance(context: dg.AssetExecutionContext, previous: pl.DataFrame | None):
            ledger.calls.append(context.partition_key)
            if context.partition_key == LATE:
                meanwhile()
            before = 0 if previous is None else previous["cents"].item()
            return pl.DataFrame({"day": [pd.Timestamp(context.partition_key).to_pydatetime()], "cents": [before + 1]})

        self.asset = balance


@pytest.fixture
def openings(monkeypatch):
    """What the store was kept open for: how many partitions each time."""
    counted, keep_open = [], DuckDBStore.keep_open

    def counting(store, attempt, slices=(), **options):
        counted.append(len(slices))
        return keep_open(store, attempt, slices, **options)

    monkeypatch.setattr(DuckDBStore, "keep_open", counting)
    return counted


def build(warehouse, ledger, **options):
    return warehouse.materialize(ledger.asset, keys=(KEYS[0], KEYS[-1]), raise_on_error=False, **options)


def assert_built(warehouse, result):
    assert result.success, failure_of(result)
    cents = [value for (value,) in warehouse.rows("SELECT cents FROM public.balance ORDER BY day")]
    assert cents == list(range(1, len(KEYS) + 1))
    assert [event.partition for _, event in warehouse.events("balance")] == list(KEYS)


def test_a_quick_function_has_the_database_opened_few_times(warehouse, openings):
    assert_built(warehouse, build(warehouse, Ledger()))
    assert len(openings) <= 6, openings  # once a second, and as long as it is not known to be quick


def test_a_slow_function_has_the_database_closed_while_it_runs(warehouse, openings):
    @partitioned_asset(partitions_def=DAYS, partition_expr="day", code_version="1")
    def slow(context: dg.AssetExecutionContext):
        time.sleep(0.02)
        duckdb.connect(warehouse.path, read_only=True).close()
        return pl.DataFrame({"day": [pd.Timestamp(context.partition_key).to_pydatetime()]})

    warehouse.materialize(Ledger().asset, keys=(KEYS[0], KEYS[1]))
    openings.clear()
    warehouse.materialize(slow, keys=(KEYS[0], KEYS[-1]))
    assert openings == [0, *[1] * len(KEYS)]


OTHER_PROCESS = """
import sys
from marigold_assets.stores.duckdb import DuckDBStore
DuckDBStore(sys.argv[1], lock_timeout_seconds=30).draw_token("another")
"""
READER = "import duckdb, sys; duckdb.connect(sys.argv[1], read_only=True)"


def test_another_process_has_its_turn_while_a_quick_function_takes_long_for_once(warehouse):
    def meanwhile():
        subprocess.run([sys.executable, "-c", OTHER_PROCESS, warehouse.path], check=True, timeout=60)

    ledger = Ledger(meanwhile)
    assert_built(warehouse, build(warehouse, ledger))
    assert ledger.calls.count(LATE) == 1


@pytest.mark.parametrize("kind", ["connection with other settings", "program"])
def test_a_quick_function_that_opens_the_database_itself_for_once_is_called_again(warehouse, kind):
    def meanwhile():
        if kind == "program":
            subprocess.run([sys.executable, "-c", READER, warehouse.path], check=True, timeout=60)
        else:
            duckdb.connect(warehouse.path, read_only=True).close()

    ledger = Ledger(meanwhile)
    assert_built(warehouse, build(warehouse, ledger))
    assert ledger.calls.count(LATE) <= 2


def test_a_quick_function_that_uses_the_resource_for_once_waits_for_it(warehouse):
    resource = FencedPartitionResource(database=warehouse.path)
    seen = []

    def meanwhile():
        with resource.get_connection() as connection:
            seen.extend(connection.execute("SELECT max(cents) FROM public.balance").fetchone())

    assert_built(warehouse, build(warehouse, Ledger(meanwhile)))
    assert seen == [KEYS.index(LATE)]  # all that came before is committed


@pytest.mark.parametrize("error", [ValueError, duckdb.BinderException, KeyboardInterrupt])
def test_an_error_of_a_quick_function_is_that_of_the_function(warehouse, error):
    def meanwhile():
        raise error("the till is closed")

    ledger = Ledger(meanwhile)
    result = build(warehouse, ledger)
    assert not result.success
    if error is not KeyboardInterrupt:
        assert "the till is closed" in failure_of(result)
    assert warehouse.rows("SELECT count(*) FROM public.balance") == [(KEYS.index(LATE),)]
    assert ledger.calls.count(LATE) == (2 if error is duckdb.BinderException else 1)
    assert warehouse.materialize(Ledger().asset, keys=(LATE, KEYS[-1])).success
    assert warehouse.rows("SELECT max(cents) FROM public.balance") == [(len(KEYS),)]
