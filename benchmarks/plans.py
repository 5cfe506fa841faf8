"""`marigold plan` as a command: how long it takes from a cold start, over few partitions and over very many.

Every figure is that of a process of its own, beyond that of one that plans three partitions. The ledgers are those of
real range runs of three days, whose entries are then written once more for every other day: a fifth is stale.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path
from statistics import median

import dagster as dg

from benchmarks import versions
from benchmarks.measuring import Figure, in_turn
from marigold_assets.location import LocationOptions, load

_FEW = 3
_CASES = {(4, 730): 1.0, (1, 36_500): 5.0}  # assets and partitions of each: seconds beyond the cold start
_ROUNDS, _ROUNDS_QUICK = 5, 2
_FIRST = date(1926, 1, 1)

_HEAD = """
import dagster as dg

from marigold_assets import FencedPartitionIOManager, partitioned_asset

DAYS = dg.DailyPartitionsDefinition("{first}", end_date="{end}")


@partitioned_asset(partitions_def=DAYS, partition_expr="day", code_version="2")
def asset_1(context: dg.AssetExecutionContext) -> str:
    return f"SELECT DATE '{{context.partition_key}}' AS day, 1 AS cents"
"""
_NEXT = """

@partitioned_asset(partitions_def=DAYS, partition_expr="day", code_version="2")
def asset_{number}(asset_{before}: str{previous}) -> str:
    return asset_{before}
"""
_TAIL = """

defs = dg.Definitions([{assets}], resources={{"io_manager": FencedPartitionIOManager(database="{database}")}})
"""


def run(folder: Path, *, quick: bool) -> list[Figure]:
    """Measure.

    Args:
        folder: Where to put the databases.
        quick: Whether to measure less often.
    """
    projects = {case: _project(folder / f"{case[0]}_{case[1]}", *case) for case in [(4, _FEW), *_CASES]}

    def timed(path: Path) -> Callable[[int], None]:
        return lambda _: _plan(path)

    seconds = in_turn(
        {f"{case}": timed(path) for case, path in projects.items()}, rounds=_ROUNDS_QUICK if quick else _ROUNDS
    )
    cold = seconds[f"{(4, _FEW)}"]
    figures = []
    for case, bound in _CASES.items():
        took = seconds[f"{case}"]
        beyond = [mine - start for mine, start in zip(took, cold, strict=True)]
        figures.append(
            Figure(
                benchmark="plans",
                name=f"{case[1]:,} partitions x {case[0]} assets" if case[0] > 1 else f"{case[1]:,} partitions",
                value=median(beyond) / bound,
                unit=f"x of {bound:g} s",
                bound=1.0,
                low=min(beyond) / bound,
                high=max(beyond) / bound,
                details=f"beyond a cold start of {median(cold):.2f} s; whole command {median(took):.2f} s",
            )
        )
    return figures


def _plan(path: Path) -> None:
    versions.command(path.parent, ["plan", "*", "-f", path.name])


def _project(folder: Path, assets: int, days: int) -> Path:
    home, path = folder / "home", folder / f"plans_{assets}_{days}.py"
    home.mkdir(parents=True)
    (home / "dagster.yaml").touch()
    names = [f"asset_{number}" for number in range(1, assets + 1)]
    text = _HEAD.format(first=_FIRST, end=_FIRST + timedelta(days=days))
    for number in range(2, assets + 1):
        previous = ", previous: str | None" if number == assets else ""
        text += _NEXT.format(number=number, before=number - 1, previous=previous)
    path.write_text(text + _TAIL.format(assets=", ".join(names), database=folder / "shop.duckdb"))
    location = load(LocationOptions(python_file=str(path)))
    everything = list(location.assets.values())
    with dg.DagsterInstance.local_temp(str(home)) as instance:
        for name in names:
            versions.materialize(location.asset(name), everything, instance, first=_FIRST)
    for name in names:
        versions.multiply(location.asset(name), days, first=_FIRST)
    return path
