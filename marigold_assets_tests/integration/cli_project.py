"""A project with definitions files, a database and a Dagster instance, for tests of the command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import dagster as dg
from click.testing import CliRunner

from marigold_assets.cli.main import main
from marigold_assets.location import LocationOptions, load

RANGE_START, RANGE_END = "dagster/asset_partition_range_start", "dagster/asset_partition_range_end"

SHOP = """
import dagster as dg
import pandas as pd

from marigold_assets import FencedPartitionIOManager, partitioned_asset

DAYS = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-02-01")


@partitioned_asset(partitions_def=DAYS, partition_expr="day", code_version="{raw}", key_prefix=["shop"])
def raw_orders(context: dg.AssetExecutionContext):
    return pd.DataFrame({{"day": [pd.Timestamp(context.partition_key)] * 2, "cents": [1, {cents}]}})


RAW = {{"raw_orders": dg.AssetIn(["shop", "raw_orders"])}}


@partitioned_asset(partitions_def=DAYS, partition_expr="day", code_version="{sales}", ins=RAW)
def daily_sales(context: dg.AssetExecutionContext, raw_orders: pd.DataFrame):
    cents = raw_orders["cents"].sum()
    return pd.DataFrame({{"day": [pd.Timestamp(context.partition_key)], "cents": [cents], "n": [{n}]}})


@partitioned_asset(partitions_def=DAYS, partition_expr="day", code_version="1")
def sales_to_date(context: dg.AssetExecutionContext, daily_sales: pd.DataFrame, previous: pd.DataFrame | None):
    cents = daily_sales["cents"].sum() + (0 if previous is None else previous["cents"].sum())
    return pd.DataFrame({{"day": [pd.Timestamp(context.partition_key)], "cents": [cents]}})


defs = dg.Definitions(
    assets=[raw_orders, daily_sales, sales_to_date],
    resources={{"io_manager": FencedPartitionIOManager(database="{database}")}},
)
"""


BOUND = """
concurrency:
  runs:
    max_concurrent_runs: 8
    tag_concurrency_limits:
      - key: dagster/backfill
        limit: 3
"""


def day(number):
    return f"2024-01-{number:02d}"


@dataclass(frozen=True)
class Project:
    """A folder to work in."""

    folder: Path

    @property
    def home(self):
        return self.folder / "home"

    @property
    def database(self):
        return self.folder / "shop.duckdb"

    def shop(self, name="shop", *, raw="1", sales="1", cents=10, n=1, text=SHOP):
        """Write definitions; of another name where they differ, since a process imports a file once."""
        path = self.folder / f"{name}_{self.folder.name}.py"
        path.write_text(text.format(raw=raw, sales=sales, cents=cents, n=n, database=self.database))
        return path

    def build(self, path, *assets, keys=None, key=None):
        """Build some assets with the definitions of a file, for a range of keys or for one."""
        location = load(LocationOptions(python_file=str(path)))
        wanted = [location.asset(name) for name in assets]
        with dg.DagsterInstance.local_temp(str(self.home)) as instance:
            for one in wanted:
                job = dg.Definitions(
                    [found.definition for found in location.assets.values()], resources=dict(one.resources)
                ).resolve_implicit_job_def_def_for_assets([one.key])
                ran = job.execute_in_process(
                    instance=instance,
                    asset_selection=[one.key],
                    partition_key=key,
                    tags={RANGE_START: keys[0], RANGE_END: keys[1]} if keys else {},
                    run_config={"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}},
                )
                assert ran.success

    def run(self, *arguments, code=0, home=True):
        """Run a command in this process; what it prints."""
        env = {"DAGSTER_HOME": str(self.home) if home is True else home or None, "COLUMNS": None}
        ran = CliRunner(env=env).invoke(main, list(arguments), catch_exceptions=False)
        assert ran.exit_code == code, ran.output
        return ran.stderr if code == 2 else ran.stdout

    def report(self, path, asset, *arguments, **how):
        """The report about an asset, as JSON."""
        return json.loads(self.run("versions", asset, "-f", str(path), "--json", *arguments, **how))

    def process(self, *arguments, env=None, cwd=None):
        """Run the command in a process of its own."""
        command = [str(Path(sys.executable).with_name("marigold")), *arguments]
        given = {**os.environ, "DAGSTER_HOME": str(self.home), **(env or {})}
        given = {name: value for name, value in given.items() if value is not None}
        return subprocess.run(
            command, cwd=cwd or self.folder, env=given, capture_output=True, text=True, timeout=60, check=False
        )


def two_versions(folder, *, settings=""):
    """Twenty days of version 1; five of daily_sales again by version 2; one day of orders restated afterwards."""
    project = Project(folder)
    project.home.mkdir()
    (project.home / "dagster.yaml").write_text(settings)
    first = project.shop("first")
    project.build(first, "shop/raw_orders", "daily_sales", "sales_to_date", keys=(day(1), day(20)))
    second = project.shop("second", sales="2", n=2, cents=11)
    project.build(second, "daily_sales", keys=(day(1), day(5)))
    project.build(second, "shop/raw_orders", key=day(12))
    return project
