"""The report of `marigold versions`: how long it takes from a cold start, over few partitions and over many.

Every figure is that of a process of its own. The ledger and the event log are those of a real range run of three days,
whose rows are then written once more for every other day.
"""

from __future__ import annotations

import os
import resource
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Sequence
from datetime import date, timedelta
from pathlib import Path
from statistics import median

import dagster as dg

from benchmarks.measuring import Figure, in_turn
from marigold_assets.location import LocatedAsset, LocationOptions, load
from marigold_assets.stores.session import FENCE_SCHEMA

_FEW = 3
_DAYS = {730: 0.3, 10_000: 2.0}  # seconds beyond the cold start
_COLD_SECONDS = 1.5
_ROUNDS, _ROUNDS_QUICK = 5, 2
_FIRST = date(1996, 1, 1)
RANGE_START, RANGE_END = "dagster/asset_partition_range_start", "dagster/asset_partition_range_end"

_DEFINITIONS = """
import dagster as dg

from marigold_assets import FencedPartitionIOManager, partitioned_asset

DAYS = dg.DailyPartitionsDefinition("{first}", end_date="{end}")


@partitioned_asset(partitions_def=DAYS, partition_expr="day", code_version="{version}")
def orders(context: dg.AssetExecutionContext) -> str:
    return f"SELECT DATE '{{context.partition_key}}' AS day, 1 AS cents"


@partitioned_asset(partitions_def=DAYS, partition_expr="day", code_version="{version}")
def total(context: dg.AssetExecutionContext, orders: str, previous: str | None) -> str:
    before = "0" if previous is None else f"(SELECT coalesce(sum(cents), 0) FROM ({{previous}}))"
    return f"SELECT day, cents + {{before}} AS cents FROM ({{orders}})"


defs = dg.Definitions([orders, total], resources={{"io_manager": FencedPartitionIOManager(database="{database}")}})
"""


def run(folder: Path, *, quick: bool) -> list[Figure]:
    """Measure.

    Args:
        folder: Where to put the databases.
        quick: Whether to measure less often.
    """
    sizes = [_FEW, *_DAYS]
    projects = {days: _project(folder / f"{days}", days) for days in sizes}
    busy: dict[str, list[float]] = {}

    def timed(name: str, folder: Path, *arguments: str) -> Callable[[int], None]:
        def once(number: int) -> None:
            took = command(folder, arguments)
            if number > 0:
                busy.setdefault(name, []).append(took)

        return once

    things = {"help": timed("help", folder, "--help")}
    for days, path in projects.items():
        things[f"{days}"] = timed(f"{days}", path.parent, "versions", "total", "-f", path.name)
    seconds = in_turn(things, rounds=_ROUNDS_QUICK if quick else _ROUNDS)
    cold, cold_busy = seconds[f"{_FEW}"], busy[f"{_FEW}"]
    what = f"a report over {_FEW} partitions: imports, definitions, event log"
    figures = [
        _figure("marigold --help", seconds["help"], busy["help"], None, "without Dagster"),
        _figure("cold start", cold, cold_busy, _COLD_SECONDS, what),
    ]
    for days, bound in _DAYS.items():
        beyond = [mine - start for mine, start in zip(seconds[f"{days}"], cold, strict=True)]
        beyond_busy = [mine - start for mine, start in zip(busy[f"{days}"], cold_busy, strict=True)]
        details = f"beyond the cold start; whole command {median(seconds[f'{days}']):.2f} s"
        figures.append(_figure(f"report over {days:,} partitions of a chain", beyond, beyond_busy, bound, details))
    return figures


def _figure(name: str, seconds: Sequence[float], busy: Sequence[float], bound: float | None, details: str) -> Figure:
    """A duration as a ratio to what it may take, so that all bounds are 1."""
    scale = 1.0 if bound is None else bound
    took, worked = (f"{min(some):.2f} / {median(some):.2f} / {max(some):.2f} s" for some in (seconds, busy))
    return Figure(
        benchmark="versions",
        name=name,
        value=median(seconds) / scale,
        unit="s" if bound is None else f"x of {bound:g} s",
        bound=None if bound is None else 1.0,
        low=min(seconds) / scale,
        high=max(seconds) / scale,
        details=f"min/median/max {took}, of the processor {worked}; {details}",
    )


def command(folder: Path, arguments: Sequence[str]) -> float:
    """Run a command; returns the seconds of the processor that it took."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    env = {**os.environ, "DAGSTER_HOME": str(folder / "home")}
    command = [str(Path(sys.executable).with_name("marigold")), *arguments]
    subprocess.run(command, cwd=folder, env=env, capture_output=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _project(folder: Path, days: int) -> Path:
    """Definitions, a database and an instance, of which a fifth of the partitions is stale and a fifth of version 1."""
    home = folder / "home"
    home.mkdir(parents=True)
    (home / "dagster.yaml").touch()
    end = _FIRST + timedelta(days=days)
    paths = [folder / f"v{version}_{days}.py" for version in (1, 2)]
    for version, path in enumerate(paths, 1):
        text = _DEFINITIONS.format(first=_FIRST, end=end, version=version, database=folder / "shop.duckdb")
        path.write_text(text)
    location = load(LocationOptions(python_file=str(paths[1])))
    orders, total = location.asset("orders"), location.asset("total")
    with dg.DagsterInstance.local_temp(str(home)) as instance:
        for asset in (orders, total):
            materialize(asset, list(location.assets.values()), instance)
    multiply(orders, days)
    multiply(total, days)
    _multiply_events(home, days)
    return paths[1]


def _key(number: int, first: date = _FIRST) -> str:
    return (first + timedelta(days=number)).isoformat()


def materialize(
    asset: LocatedAsset, everything: Sequence[LocatedAsset], instance: dg.DagsterInstance, *, first: date = _FIRST
) -> None:
    """Build the first days of an asset by one run."""
    definitions = dg.Definitions([one.definition for one in everything], resources=dict(asset.resources))
    job = definitions.resolve_implicit_job_def_def_for_assets([asset.key])
    assert job is not None
    job.execute_in_process(
        instance=instance,
        asset_selection=[asset.key],
        tags={RANGE_START: _key(0, first), RANGE_END: _key(_FEW - 1, first)},
        run_config={"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}},
    )


def multiply(asset: LocatedAsset, days: int, *, first: date = _FIRST) -> None:
    """Append an entry of every other day, like that of the last one.

    Of what reads nothing every fifth day has been restated since; of the rest ten in fifty are of version 1.
    """
    last, before = _key(_FEW - 1, first), _key(_FEW - 2, first)
    day = f"DATE '{first}' + n::INTEGER"
    restated = "n % 5 = 4 AND inputs = '[]'"
    with asset.store.connector.write("benchmark") as connection:
        connection.execute(
            f"""
            INSERT INTO {FENCE_SCHEMA}.ledger BY NAME
            SELECT ledger.* REPLACE (
                n + (SELECT max(position) FROM {FENCE_SCHEMA}.ledger) AS position,
                strftime({day}, '%Y-%m-%d') AS partition_key,
                md5(n::VARCHAR || owner) AS swap_id,
                CASE WHEN {restated} THEN left(content_hash, -4) || 'beef' ELSE content_hash END AS content_hash,
                CASE WHEN n % 50 < 10 THEN '1' ELSE '2' END AS code_version,
                replace(
                    replace(inputs, '{last}', strftime({day}, '%Y-%m-%d')),
                    '{before}', strftime({day} - 1, '%Y-%m-%d')
                ) AS inputs
            )
            FROM {FENCE_SCHEMA}.ledger, range({_FEW}, {days}) AS days(n)
            WHERE owner = ? AND partition_key = ?
            """,
            [asset.owner, last],
        )


def _multiply_events(home: Path, days: int) -> None:
    """The same of the events of the last day: with all their tags, under other partitions."""
    database = home / "history" / "runs" / "index.db"
    with sqlite3.connect(database) as connection:
        columns = [row[1] for row in connection.execute("PRAGMA table_info(event_logs)")]
        columns = [name for name in columns if name not in ("id", "partition")]
        names = ", ".join(f'"{name}"' for name in columns)
        events = connection.execute(
            "SELECT id, asset_key FROM event_logs WHERE partition = ? AND dagster_event_type = 'ASSET_MATERIALIZATION'",
            [_key(_FEW - 1)],
        ).fetchall()
        for event, asset_key in events:
            for number in range(_FEW, days):
                found = connection.execute(
                    f"INSERT INTO event_logs ({names}, partition) SELECT {names}, ? FROM event_logs WHERE id = ?",
                    [_key(number), event],
                )
                connection.execute(
                    "INSERT INTO asset_event_tags (asset_key, event_id, key, value, event_timestamp)"
                    " SELECT asset_key, ?, key, value, event_timestamp FROM asset_event_tags"
                    " WHERE event_id = ? AND asset_key = ?",
                    [found.lastrowid, event, asset_key],
                )
