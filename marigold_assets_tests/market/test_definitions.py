"""The code location: where its warehouse lies, what its schedule does, that it needs public names only."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import warnings
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import dagster as dg
import pytest
import time_machine

import marigold_assets
from marigold_assets import FencedPartitionIOManager
from marigold_assets.market import definitions
from marigold_assets.market.assets import DAYS, customer_tiers, daily_sales, raw_orders, sales_to_date
from marigold_assets.market.schedules import nightly
from marigold_assets_tests.market.conftest import VARYING_POLICIES

PROJECT = Path(definitions.__file__).parents[2]
MADRID = ZoneInfo("Europe/Madrid")


def warehouse_seen_from(folder: Path, **variables: str) -> str:
    program = "from marigold_assets.market.definitions import WAREHOUSE; print(WAREHOUSE)"
    inherited = {name: value for name, value in os.environ.items() if name != "MARIGOLD_MARKET_DB"}
    return subprocess.run(
        [sys.executable, "-c", program],
        cwd=folder,
        env={**inherited, "PYTHONPATH": str(PROJECT), **variables},
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()


def tick(instant: datetime) -> list[dg.RunRequest] | dg.SkipReason:
    with time_machine.travel(instant, tick=False):
        return nightly(dg.build_schedule_context(scheduled_execution_time=instant))


@pytest.mark.slow
def test_the_warehouse_is_the_same_from_every_working_directory(tmp_path):
    assert warehouse_seen_from(tmp_path) == str(PROJECT / "data" / "marigold_market.duckdb")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_the_warehouse_can_lie_elsewhere_and_loading_the_definitions_does_not_make_its_folder(tmp_path):
    elsewhere = tmp_path / "not yet" / "warehouse.duckdb"
    assert warehouse_seen_from(tmp_path, MARIGOLD_MARKET_DB=str(elsewhere)) == str(elsewhere)
    assert list(tmp_path.iterdir()) == []


def test_the_first_run_makes_the_folder_of_the_warehouse(tmp_path, instance):
    elsewhere = tmp_path / "not yet" / "warehouse.duckdb"
    io_manager = definitions.MarketIOManager(database=str(elsewhere), schema="market")
    dg.materialize([raw_orders], partition_key="2024-01-01", resources={"io_manager": io_manager}, instance=instance)
    assert elsewhere.exists()


def test_the_calendar_has_two_years_of_days_and_an_end():
    keys = DAYS.get_partition_keys(current_time=datetime(2030, 1, 1, tzinfo=UTC))
    assert (keys[0], keys[-1], len(keys)) == ("2024-01-01", "2025-12-31", 731)


def test_independent_days_can_share_a_run_and_a_chain_takes_one_for_all_of_its_days():
    assert raw_orders.backfill_policy == daily_sales.backfill_policy == dg.BackfillPolicy.multi_run(100)
    assert sales_to_date.backfill_policy == customer_tiers.backfill_policy == dg.BackfillPolicy.single_run()
    assert raw_orders.partitions_def == daily_sales.partitions_def


def test_every_asset_says_which_code_built_it_and_what_it_is():
    for asset in definitions.ASSETS:
        [spec] = asset.specs
        assert spec.code_version
        assert spec.description
        assert spec.kinds
        assert spec.group_name == "market"


@pytest.mark.parametrize(
    ("instant", "yesterday"),
    [
        (datetime(2024, 3, 6, 0, 30, tzinfo=MADRID), "2024-03-05"),
        (datetime(2024, 3, 5, 23, 30, tzinfo=UTC), "2024-03-05"),
        (datetime(2024, 4, 1, 0, 30, tzinfo=MADRID), "2024-03-31"),
        (datetime(2024, 10, 28, 0, 30, tzinfo=MADRID), "2024-10-27"),
        (datetime(2026, 1, 1, 0, 30, tzinfo=MADRID), "2025-12-31"),
    ],
    ids=["plain", "told in UTC", "after a short day", "after a long day", "the last day"],
)
def test_a_night_materializes_the_day_that_has_just_ended(instant, yesterday):
    [request] = tick(instant)
    assert request.partition_key == yesterday


@pytest.mark.parametrize("night", [date(2024, 1, 1), date(2026, 1, 2), date(2031, 5, 5)])
def test_a_night_outside_the_calendar_is_skipped_and_says_why(night):
    skipped = tick(datetime(night.year, night.month, night.day, 0, 30, tzinfo=MADRID))
    assert isinstance(skipped, dg.SkipReason)
    yesterday = night - timedelta(days=1)
    assert (skipped.skip_message or "").startswith(f"{yesterday} has just ended, and is none of the partitions")


def test_the_schedule_waits_to_be_turned_on():
    assert nightly.default_status == dg.DefaultScheduleStatus.STOPPED
    assert (nightly.cron_schedule, nightly.execution_timezone) == ("30 0 * * *", "Europe/Madrid")


@pytest.fixture
def night(warehouse, instance):
    """Runs the schedule's job for a night, as the schedule does."""
    resources = {"io_manager": FencedPartitionIOManager(database=str(warehouse), schema="market")}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=VARYING_POLICIES)
        job = dg.Definitions(
            assets=definitions.ASSETS,
            asset_checks=definitions.CHECKS,
            schedules=[nightly],
            resources=resources,
        ).resolve_job_def(nightly.job_name)
    return lambda key, **options: job.execute_in_process(partition_key=key, instance=instance, **options)


def built(result):
    return {event.asset_key.to_user_string() for event in result.get_asset_materialization_events()}


@pytest.mark.slow
def test_a_night_builds_everything_upon_the_night_before_and_checks_it(night, outcomes):
    for key in ("2024-01-01", "2024-01-02"):
        result = night(key)
        assert built(result) == {asset.key.to_user_string() for asset in definitions.ASSETS}
        assert list(outcomes(result).values()) == [True] * len(definitions.CHECKS)


@pytest.mark.slow
def test_a_night_after_a_gap_builds_sales_and_report_and_names_the_day_that_the_chains_miss(night):
    night("2024-01-01")
    result = night("2024-01-03", raise_on_error=False)
    assert not result.success
    assert built(result) == {"raw_orders", "daily_sales", "revenue_report"}
    failures = {event.step_key: event for event in result.get_step_failure_events()}
    assert set(failures) == {"sales_to_date", "customer_tiers"}
    for event in failures.values():
        assert "past is missing from partition '2024-01-02'" in event.step_failure_data.user_failure_data.description


def test_the_example_uses_public_names_only():
    for module in Path(definitions.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.ImportFrom) or node.module in {None, "__future__"}:
                continue
            if node.module == "marigold_assets":
                assert {alias.name for alias in node.names} <= set(marigold_assets.__all__)
            elif not node.module.startswith("marigold_assets.market."):
                assert not node.module.startswith("marigold_assets.")
                assert not any(part.startswith("_") for part in node.module.split("."))
