"""`python -m marigold_assets.market`: the week without a user interface, as a person runs it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import dagster as dg
import pytest

PROJECT = Path(__file__).parents[2]

pytestmark = pytest.mark.slow


def market(*arguments: str, warehouse: Path, home: Path | None = None) -> subprocess.CompletedProcess[str]:
    variables = {name: value for name, value in os.environ.items() if name != "DAGSTER_HOME"}
    variables |= {"MARIGOLD_MARKET_DB": str(warehouse)}
    if home is not None:
        variables["DAGSTER_HOME"] = str(home)
    command = [sys.executable, "-m", "marigold_assets.market", *arguments]
    return subprocess.run(command, cwd=PROJECT, env=variables, check=False, capture_output=True, text=True)


def test_it_prints_rows_and_report_and_records_the_runs_in_the_persistent_history(warehouse, tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    shutil.copy(PROJECT / "dagster.yaml", home)
    done = market("--from", "2024-12-24", "--days", "2", warehouse=warehouse, home=home)
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    assert ["2024-12-24", "1,065", "32", "26,903.82", "-", "-", "-"] in lines
    assert ["2024-12-25", "0", "0", "0.00", "-", "-", "-"] in lines
    assert "sales_to_date and customer_tiers were left out" in done.stdout
    assert "from 2024-01-01 to 2024-12-23" in done.stdout
    assert [line[:3] for line in lines if line[:1] == ["2024-12"]] == [
        ["2024-12", store, "1"] for store in ("Chamberí", "Lavapiés", "Malasaña", "Online")
    ]
    assert str(warehouse) in done.stdout
    with dg.DagsterInstance.from_config(str(home)) as instance:
        built = instance.get_materialized_partitions(dg.AssetKey("daily_sales"))
    assert built == {"2024-12-24", "2024-12-25"}


def test_the_chains_are_built_from_the_first_day_on_and_continued_where_they_ended(warehouse):
    for first, days, shown in (
        ("2024-01-01", "2", ["2024-01-02", "753", "32", "20,164.66", "41,447.59", "78", "0"]),
        ("2024-01-03", "1", ["2024-01-03", "801", "32", "20,613.30", "62,060.89", "116", "0"]),
    ):
        done = market("--from", first, "--days", days, warehouse=warehouse)
        assert done.returncode == 0, done.stderr
        assert shown in [line.split() for line in done.stdout.splitlines()]
        assert "left out" not in done.stdout


def test_a_failure_is_said_and_gives_a_failing_exit_code(tmp_path):
    done = market("--days", "1", warehouse=tmp_path)  # a folder is no database
    assert done.returncode == 1
    assert "2024-12-23: run" in done.stderr
    assert "failed" in done.stderr


@pytest.mark.parametrize("days", [("--days", "0"), ("--from", "2025-12-31", "--days", "2")])
def test_days_outside_the_calendar_are_refused_before_anything_is_done(warehouse, days):
    done = market(*days, warehouse=warehouse)
    assert done.returncode == 2
    assert "calendar" in done.stderr
    assert not warehouse.exists()
