"""Proving: 12 partitions of 10,000 rows computed again and compared, beside the run that has built them.

Everything is loaded before the clock starts. The ratio tells what it costs to prove what was built; the bound is one of
seconds, whatever the code does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from typing import Any

import dagster as dg
import pandas as pd

from benchmarks.measuring import Figure, in_turn
from marigold_assets import FencedPartitionIOManager, partitioned_asset
from marigold_assets.location import CodeLocation, LocatedAsset
from marigold_assets.proof import Outcome
from marigold_assets.replay import replay

_PARTITIONS, _ROWS = 12, 10_000
_BOUND_SECONDS = 5.0
_ROUNDS, _ROUNDS_QUICK = 5, 2
_DAYS = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-01-13")
_KEYS = list(_DAYS.get_partition_keys())
_OPTIONS: Mapping[str, Any] = {"partitions_def": _DAYS, "partition_expr": "day"}


@partitioned_asset(**_OPTIONS)
def orders(context: dg.AssetExecutionContext) -> str:
    """Orders of a day, made by the database."""
    amounts = "(hash(i) % 100000) / 100.0 AS amount, i % 7 AS shop, 'order ' || i AS note"
    return f"SELECT DATE '{context.partition_key}' AS day, i AS id, {amounts} FROM range({_ROWS}) AS orders(i)"


@partitioned_asset(**_OPTIONS)
def in_pandas(orders: pd.DataFrame) -> pd.DataFrame:
    """The same with one column more, in pandas."""
    return orders.assign(net=orders["amount"].astype("float64") * 0.8)


@partitioned_asset(**_OPTIONS)
def in_sql(orders: str) -> str:
    """The same in SQL."""
    return f"SELECT *, CAST(amount AS DOUBLE) * 0.8 AS net FROM ({orders})"


@partitioned_asset(**_OPTIONS)
def in_a_chain(orders: pd.DataFrame, previous: pd.DataFrame | None) -> pd.DataFrame:
    """Running totals of every order number."""
    before = 0.0 if previous is None else previous["total"]
    return orders[["day", "id"]].assign(total=orders["amount"].astype("float64") + before)


def run(folder: Path, *, quick: bool) -> list[Figure]:
    """Measure.

    Args:
        folder: Where to put the database.
        quick: Whether to measure less often.
    """
    manager = FencedPartitionIOManager(database=str(folder / "shop.duckdb"))
    definitions = dg.Definitions([orders, in_pandas, in_sql, in_a_chain], resources={"io_manager": manager})
    location = CodeLocation.of(definitions)
    _build(location, location.asset("orders"))
    things: dict[str, Callable[[int], object]] = {}
    for name in ("in_pandas", "in_sql", "in_a_chain"):
        asset = location.asset(name)
        _build(location, asset)
        things[f"build {name}"] = lambda _, asset=asset: _build(location, asset)  # type: ignore[misc]
        things[f"prove {name}"] = lambda _, asset=asset: _prove(location, asset)  # type: ignore[misc]
    seconds = in_turn(things, rounds=_ROUNDS_QUICK if quick else _ROUNDS)
    figures = []
    for name in ("in_pandas", "in_sql", "in_a_chain"):
        built, proven = seconds[f"build {name}"], seconds[f"prove {name}"]
        ratio = median(mine / theirs for mine, theirs in zip(proven, built, strict=True))
        figures.append(
            Figure(
                benchmark="proving",
                name=f"{_PARTITIONS} partitions of {_ROWS:,} rows {name.replace('_', ' ')}",
                value=median(proven),
                unit="s",
                bound=_BOUND_SECONDS,
                low=min(proven),
                high=max(proven),
                details=f"{ratio:.2f}x of the run that builds them, which takes {median(built):.2f} s",
            )
        )
    return figures


def _build(location: CodeLocation, asset: LocatedAsset) -> None:
    everything = [one.definition for one in location.assets.values()]
    definitions = dg.Definitions(everything, resources=dict(asset.resources))
    job = definitions.resolve_implicit_job_def_def_for_assets([asset.key])
    assert job is not None
    with dg.DagsterInstance.ephemeral() as instance:
        job.execute_in_process(
            instance=instance,
            asset_selection=[asset.key],
            tags={"dagster/asset_partition_range_start": _KEYS[0], "dagster/asset_partition_range_end": _KEYS[-1]},
            run_config={"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}},
        )


def _prove(location: CodeLocation, asset: LocatedAsset) -> None:
    found = replay(location, asset, _KEYS)
    assert [one.outcome for one in found] == [Outcome.IDENTICAL] * _PARTITIONS
