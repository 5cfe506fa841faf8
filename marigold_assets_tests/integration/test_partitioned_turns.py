"""``@partitioned_asset`` whose function is quick: the database stays open while it runs, and that must not show."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

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


def ledger_of(*, seconds=0.0, error=None):
    """A chain that is quick; on one late day it takes so long, or fails."""

    @partitioned_asset(partitions_def=DAYS, partition_expr="day", code_version="1")
    def balance(context: dg.AssetExecutionContext, previous: pl.DataFrame | None):
        if context.partition_key == LATE:
            time.sleep(seconds)
            if error is not None:
                raise error
        before = 0 if previous is None else previous["cents"].item()
        return pl.DataFrame({"day": [pd.Timestamp(context.partition_key).to_pydatetime()], "cents": [before + 1]})

    return balance


@pytest.fixture
def openings(monkeypatch):
    """What the store was kept open for: how many partitions each time."""
    counted, keep_open = [], DuckDBStore.keep_open

    def counting(store, attempt, slices=(), **options):
        counted.append(len(slices))
        return keep_open(store, attempt, slices, **options)

    monkeypatch.setattr(DuckDBStore, "keep_open", counting)
    return counted


def build(warehouse, asset, **options):
    return warehouse.materialize(asset, keys=(KEYS[0], KEYS[-1]), raise_on_error=False, **options)


def assert_built(warehouse, result):
    assert result.success, failure_of(result)
    cents = [value for (value,) in warehouse.rows("SELECT cents FROM public.balance ORDER BY day")]
    assert cents == list(range(1, len(KEYS) + 1))
    assert [event.partition for _, event in warehouse.events("balance")] == list(KEYS)


def test_a_quick_function_has_the_database_opened_few_times(warehouse, openings):
    assert_built(warehouse, build(warehouse, ledger_of()))
    assert len(openings) <= 6, openings  # once a second, and as long as it is not known to be quick


def of_day(context):
    return pl.DataFrame({"day": [pd.Timestamp(context.partition_key).to_pydatetime()]})


def test_a_slow_function_has_the_database_closed_while_it_runs(warehouse, openings):
    @partitioned_asset(partitions_def=DAYS, partition_expr="day")
    def slow(context: dg.AssetExecutionContext):
        time.sleep(0.02)
        return of_day(context)

    assert build(warehouse, slow).success
    assert openings == [0, *[1] * len(KEYS)]


class Legacy(dg.ConfigurableIOManager):
    """Opens the same file by itself."""

    database: str

    def handle_output(self, context, obj):
        raise NotImplementedError  # it loads what others have stored: to be asked would be a fault

    def load_input(self, context):
        with duckdb.connect(self.database, read_only=True) as connection:
            return connection.execute("SELECT 1 AS n").df()


def connects(path):
    def made(context: dg.AssetExecutionContext):
        if context.partition_key == LATE:
            duckdb.connect(path, read_only=True).close()
        return of_day(context)

    return partitioned_asset(partitions_def=DAYS, partition_expr="day")(made)


def opens_the_file(path):
    def made(context: dg.AssetExecutionContext):
        if context.partition_key == LATE:
            os.close(os.open(path, os.O_RDONLY))
        return of_day(context)

    return partitioned_asset(partitions_def=DAYS, partition_expr="day")(made)


def takes_a_resource(path):
    def made(context: dg.AssetExecutionContext, shop: FencedPartitionResource):
        return of_day(context)

    return partitioned_asset(partitions_def=DAYS, partition_expr="day")(made)


def has_an_input_of_another_io_manager(path):
    def made(context: dg.AssetExecutionContext, counts: pd.DataFrame):
        return of_day(context)

    ins = {"counts": dg.AssetIn("counts", input_manager_key="legacy")}
    return partitioned_asset(partitions_def=DAYS, partition_expr="day", ins=ins)(made)


@pytest.mark.parametrize("define", [connects, opens_the_file, takes_a_resource, has_an_input_of_another_io_manager])
def test_a_function_that_may_open_the_database_has_it_closed_however_quick_it_is(warehouse, openings, define):
    path = warehouse.path
    warehouse.materialize(ledger_of(), keys=(KEYS[0], KEYS[1]))
    openings.clear()
    resources = {"shop": FencedPartitionResource(database=path), "legacy": Legacy(database=path)}
    result = build(warehouse, define(path), resources=resources)
    assert result.success, failure_of(result)
    assert openings == [0, *[1] * len(KEYS)]


WAITING = """
import sys, time
from marigold_assets.stores.duckdb import DuckDBStore
longest = 0.0
while True:
    begun = time.monotonic()
    DuckDBStore(sys.argv[1], lock_timeout_seconds=60).draw_token("another")
    longest = max(longest, time.monotonic() - begun)
    with open(sys.argv[2], "w") as file:
        file.write(str(longest))
"""


def test_another_process_has_its_turn_while_a_quick_function_takes_long_for_once(warehouse, tmp_path):
    waited = tmp_path / "waited"
    rival = subprocess.Popen([sys.executable, "-c", WAITING, warehouse.path, str(waited)])
    try:
        while not waited.exists():
            time.sleep(0.05)
        result = build(warehouse, ledger_of(seconds=8.0))
        time.sleep(0.5)
    finally:
        rival.kill()
        rival.wait()
    assert_built(warehouse, result)
    assert float(Path(waited).read_text() or 0) < 6.0  # and not the eight seconds


@pytest.mark.parametrize("error", [ValueError, duckdb.BinderException, KeyboardInterrupt])
def test_an_error_of_a_quick_function_leaves_all_before_it(warehouse, error):
    result = build(warehouse, ledger_of(error=error("the till is closed")))
    assert not result.success
    if error is not KeyboardInterrupt:
        assert "the till is closed" in failure_of(result)
    assert warehouse.rows("SELECT count(*) FROM public.balance") == [(KEYS.index(LATE),)]
    assert warehouse.materialize(ledger_of(), keys=(LATE, KEYS[-1])).success
    assert warehouse.rows("SELECT max(cents) FROM public.balance") == [(len(KEYS),)]
