"""dagster.yaml: accepted by this Dagster, and what it bounds leaves room for production."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
import yaml

PROJECT = Path(__file__).parents[2]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    shutil.copy(PROJECT / "dagster.yaml", tmp_path)
    return tmp_path


@pytest.fixture
def project_instance(home: Path) -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.from_config(str(home)) as instance:
        yield instance


def test_backfills_are_bounded_and_production_always_finds_a_free_slot(project_instance):
    queue = project_instance.get_concurrency_config().run_queue_config
    limits = {limit["key"]: limit["limit"] for limit in queue.tag_concurrency_limits}
    assert set(limits) == {"dagster/backfill", "dagster/asset_partition_range_start"}
    assert all("value" not in limit for limit in queue.tag_concurrency_limits)
    # A run may stand under one limit or under both; the sum is what backfilling takes at the very most.
    assert sum(limits.values()) < queue.max_concurrent_runs


def test_a_run_that_failed_on_its_own_account_is_not_retried_but_one_whose_worker_died_is(project_instance):
    assert project_instance.run_retries_enabled
    assert project_instance.run_retries_max_retries > 0
    assert project_instance.run_retries_retry_on_asset_or_op_failure is False


def test_a_run_that_nobody_watches_any_more_gives_its_slot_back(project_instance):
    assert project_instance.run_monitoring_enabled
    assert project_instance.run_monitoring_max_runtime_seconds > 0
    assert project_instance.run_monitoring_start_timeout_seconds > 0
    assert project_instance.run_monitoring_cancel_timeout_seconds > 0


def test_nothing_is_sent_anywhere(project_instance):
    assert project_instance.telemetry_enabled is False
    assert project_instance.nux_enabled is False


def test_the_history_lies_in_dagster_home_whatever_the_working_directory(home, tmp_path_factory, monkeypatch):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    monkeypatch.chdir(elsewhere)
    with dg.DagsterInstance.from_config(str(home)) as instance:
        assert instance.get_runs() == []
    assert list(elsewhere.iterdir()) == []
    assert (home / "history").is_dir()


def test_no_setting_holds_a_path():
    settings = yaml.safe_load((PROJECT / "dagster.yaml").read_text(encoding="utf-8"))
    assert "base_dir" not in str(settings)
    assert "storage" not in settings


@pytest.mark.slow
def test_the_workspace_loads_the_market_from_another_folder(tmp_path):
    command = [sys.executable, "-m", "dagster", "definitions", "validate"]
    command += ["--workspace", str(PROJECT / "workspace.yaml")]
    variables = {**os.environ, "PYTHONPATH": str(PROJECT)}
    done = subprocess.run(command, cwd=tmp_path, env=variables, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "marigold_market" in done.stderr + done.stdout
