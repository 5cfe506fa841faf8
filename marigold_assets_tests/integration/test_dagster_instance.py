"""The parts of a live Dagster instance that are not public are still what they were."""

from __future__ import annotations

import inspect
import threading
import time
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import dagster as dg
import pytest
from dagster._core.execution.backfill import BULK_ACTION_TERMINAL_STATUSES, BulkActionStatus
from dagster._daemon import backfill as backfill_daemon
from dagster._daemon import controller
from dagster._daemon.daemon import BackfillDaemon
from dagster._daemon.types import DaemonHeartbeat

from marigold_assets import dagster_instance
from marigold_assets.errors import ConfigurationError

LOCATION = """
import dagster as dg

DAYS = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-02-01")
BOTH = dg.MultiPartitionsDefinition({"day": DAYS, "shop": dg.StaticPartitionsDefinition(["x", "y"])})


@dg.asset(partitions_def=DAYS, key_prefix="shop")
def orders(): ...


@dg.asset(partitions_def=BOTH)
def visits(): ...


@dg.asset(deps=[orders])
def report(): ...


defs = dg.Definitions(assets=[orders, visits, report])
"""


def of(name, *ranges):
    key = {"assetKey": {"path": name.split("/")}}
    return key | ({"partitions": {"ranges": [{"start": a, "end": b} for a, b in ranges]}} if ranges else {})


@pytest.fixture
def instance(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "dagster.yaml").write_text("telemetry: {enabled: false}\n", encoding="utf-8")
    with dg.DagsterInstance.from_config(str(tmp_path / "home")) as instance:
        yield instance


@pytest.mark.slow
def test_a_backfill_is_launched_through_the_api_as_it_was_asked_for_and_read_back(instance, tmp_path):
    (tmp_path / "shop.py").write_text(LOCATION, encoding="utf-8")
    params = {
        "partitionsByAssets": [
            of("shop/orders", ("2024-01-01", "2024-01-03"), ("2024-01-09", "2024-01-09")),
            of("visits", ("2024-01-04|x", "2024-01-04|x"), ("2024-01-05|y", "2024-01-05|y")),
            of("report"),
        ],
        "title": dagster_instance.title_of('marigold: 100 % of "orders"'),
        "description": "12 min",
        "tags": [{"key": "marigold/launch", "value": "abcdefgh"}],
    }
    with dagster_instance.api(instance, python_file="shop.py") as api:
        made = api.launch_backfill(params)
        for wrong, why in (
            (of("shop/orders", ("2024-01-01", "2025-01-03")), "2025-01-03"),
            (of("shop/nothing", ("2024-01-01", "2024-01-03")), "nothing"),
        ):
            with pytest.raises(ConfigurationError, match=f"Dagster refuses the backfill: .*{why}"):
                api.launch_backfill({"partitionsByAssets": [wrong]})

    [found] = dagster_instance.backfills(instance, tags={"marigold/launch": "abcdefgh"}, only_active=True)
    assert found == dagster_instance.backfill(instance, made)
    assert found.targets == {
        "shop/orders": {"2024-01-01", "2024-01-02", "2024-01-03", "2024-01-09"},
        "visits": {"2024-01-04|x", "2024-01-05|y"},
        "report": {None},
    }
    assert (found.title, found.description) == ("marigold: 100 ' of 'orders'", "12 min")
    assert (found.status, found.is_active, found.error, found.ended_at) == ("REQUESTED", True, None, None)
    assert not any(found.built.values())
    assert timedelta(0) <= datetime.now(UTC) - found.created_at < timedelta(minutes=1)
    assert dagster_instance.backfills(instance, tags={"marigold/launch": "other"}) == []

    assert dagster_instance.ask_to_cancel(instance, made)
    assert not dagster_instance.ask_to_cancel(instance, made)
    assert dagster_instance.backfill(instance, made).status == "CANCELING"
    assert dagster_instance.backfill(instance, "nothing") is None


@pytest.mark.slow
def test_a_code_location_that_does_not_load_is_an_error_that_says_why(instance, tmp_path):
    (tmp_path / "broken.py").write_text("raise RuntimeError('the till is closed')", encoding="utf-8")
    with (
        pytest.raises(ConfigurationError, match="does not load in a code server"),
        dagster_instance.api(instance, python_file="broken.py"),
    ):
        pass


def test_the_standings_of_a_backfill_that_has_not_ended_are_all_that_there_are():
    ended = {one.value for one in BULK_ACTION_TERMINAL_STATUSES}
    assert {one.value for one in BulkActionStatus} - ended == dagster_instance.ACTIVE


def test_a_daemon_that_never_ran_has_no_heartbeat_and_its_parts_have_the_names_they_had(instance):
    required = set(instance.get_required_daemon_types())
    for part in (dagster_instance.BACKFILL_DAEMON, dagster_instance.QUEUE_DAEMON):
        assert part in required
        assert dagster_instance.last_heartbeat(instance, part) is None
    assert "heartbeat_tolerance_seconds" in inspect.signature(controller.get_daemon_statuses).parameters


@pytest.mark.slow
def test_the_daemon_says_that_it_lives_right_before_it_looks_at_the_backfills(instance, monkeypatch):
    assert controller.DEFAULT_DAEMON_INTERVAL_SECONDS == controller.DEFAULT_HEARTBEAT_INTERVAL_SECONDS == 30
    looks, said, over = [], [], threading.Event()

    def look(*_args, **_kwargs):
        looks.append((time.time(), dagster_instance.seconds_to_look(instance, tick_seconds=1.0)))
        said.append(dagster_instance.last_heartbeat(instance, dagster_instance.BACKFILL_DAEMON).timestamp())
        time.sleep(0.2)  # a backfill is at work
        yield None

    monkeypatch.setattr(controller, "DEFAULT_DAEMON_INTERVAL_SECONDS", 1.0)
    monkeypatch.setattr(backfill_daemon, "execute_backfill_iteration", look)
    daemon = BackfillDaemon(settings={"use_threads": False})
    arguments = (SimpleNamespace(instance=instance), "me", over, 1.0, 300)
    thread = threading.Thread(target=daemon.run_daemon_loop, args=arguments)
    thread.start()
    time.sleep(4.5)
    over.set()
    thread.join()
    assert len(looks) >= 4
    assert all(0 <= at - beat < 0.15 for (at, _), beat in zip(looks, said, strict=True))
    assert all(0.8 < left <= 1.0 for _, left in looks)


def test_the_next_look_is_known_while_the_daemon_is_on_time(instance):
    part = dagster_instance.BACKFILL_DAEMON
    for age, left in ((0, 30), (12, 18), (29, 1), (31, 0), (34, 0), (40, None), (3_600, None), (-60, None)):
        instance.add_daemon_heartbeat(DaemonHeartbeat(time.time() - age, part, "me", []))
        found = dagster_instance.seconds_to_look(instance, tick_seconds=30.0)
        assert found == (left if left is None else pytest.approx(left, abs=0.5)), age


def test_the_next_look_of_a_daemon_that_never_ran_is_not_known(instance):
    assert dagster_instance.seconds_to_look(instance, tick_seconds=30.0) is None


def test_a_run_that_is_not_there_is_not_ended_and_a_queued_one_would_be_without_its_worker(instance):
    assert not dagster_instance.end_run(instance, "0" * 36)
    source = inspect.getsource(type(instance.run_coordinator).cancel_run)
    assert "if run.status == DagsterRunStatus.QUEUED:" in source
    assert "report_run_canceled(run)" in source


def test_a_title_is_one_that_dagster_takes():
    assert dagster_instance.title_of('a%b*c"d\n e') == "a'b'c'd e"
    assert len(dagster_instance.title_of("x" * 200)) == dagster_instance.TITLE_LENGTH
