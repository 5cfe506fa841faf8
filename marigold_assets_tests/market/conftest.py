"""What the market's tests share: a warehouse of their own, and the real assets and checks on it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import dagster as dg
import duckdb
import pytest

from marigold_assets import FencedPartitionIOManager
from marigold_assets.market.definitions import ASSETS, CHECKS

Rows = list[tuple[Any, ...]]
Materialize = Callable[..., dg.ExecuteInProcessResult]
Query = Callable[[str], Rows]

# Of a run with chains and other assets. The market's package turns it off; pytest's own filters come before that.
VARYING_POLICIES = r"Asset job \S+ materializes assets with varying BackfillPolicies"


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    return tmp_path / "warehouse.duckdb"


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


@pytest.fixture
def materialize(warehouse: Path, instance: dg.DagsterInstance) -> Materialize:
    return materializer(warehouse, instance)


def materializer(warehouse: Path, instance: dg.DagsterInstance) -> Materialize:
    """Materialize a day, a range of days `(first, last)`, or with neither what is not partitioned."""

    def materialize(
        selection: Sequence[str] | dg.AssetSelection,
        days: str | tuple[str, str] | None = None,
        *,
        fails: bool = False,
    ) -> dg.ExecuteInProcessResult:
        tags = {}
        if isinstance(days, tuple):
            tags = {
                "dagster/asset_partition_range_start": days[0],
                "dagster/asset_partition_range_end": days[1],
            }
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=VARYING_POLICIES)
            return dg.materialize(
                [*ASSETS, *CHECKS],
                selection=selection,
                partition_key=days if isinstance(days, str) else None,
                tags=tags,
                resources={"io_manager": FencedPartitionIOManager(database=str(warehouse), schema="market")},
                instance=instance,
                raise_on_error=not fails,
            )

    return materialize


@pytest.fixture
def query(warehouse: Path) -> Query:
    return inquirer(warehouse)


def inquirer(warehouse: Path) -> Query:
    """Ask the warehouse directly, past everything that is tested here."""

    def query(sql: str) -> Rows:
        with duckdb.connect(str(warehouse), read_only=True) as connection:
            return connection.execute(sql).fetchall()

    return query


@pytest.fixture
def outcomes() -> Callable[[dg.ExecuteInProcessResult], dict[str, bool]]:
    """Whether each check of a run passed."""
    return lambda result: {e.check_name: e.passed for e in result.get_asset_check_evaluations()}
