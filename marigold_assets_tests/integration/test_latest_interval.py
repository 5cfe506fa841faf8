"""Schedules and automation conditions that run the latest interval, once, and never catch up."""

# No `from __future__ import annotations` here: Dagster compares annotations with its classes.

import logging
import shlex
import signal
import warnings
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import dagster as dg
import dagster._daemon.daemon  # before the scheduler, or they import each other
import pytest
import time_machine
from dagster._core.remote_origin import InProcessCodeLocationOrigin
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import InProcessWorkspaceLoadTarget
from dagster._scheduler.scheduler import launch_scheduled_runs
from dagster._utils.error import SerializableErrorInfo

from marigold_assets import (
    ConfigurationError,
    build_latest_interval_schedule,
    latest_interval_condition,
    partitioned_asset,
)
from marigold_assets.cron import later

pytestmark = pytest.mark.slow  # Dagster's scheduler and conditions are evaluated

DAYS = dg.DailyPartitionsDefinition("2023-01-01")
GRACE = timedelta(hours=6)
SALES = dg.AssetKey("sales")
BERLIN = "Europe/Berlin"


def asset_of(definition, name="sales", **options):
    @partitioned_asset(partitions_def=definition, partition_expr="day", name=name, code_version="1", **options)
    def made(context: dg.AssetExecutionContext):
        raise NotImplementedError

    return made


def at(text, zone="UTC"):
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone))


def nightly(definition=DAYS, *, target=None, **options):
    return build_latest_interval_schedule(
        name="nightly", target=target or [asset_of(definition)], **{"grace": GRACE, **options}
    )


def ticked(schedule, due, now=None, *, instance=None):
    """What a tick does that comes at some time: the partitions that it launches, or why none."""
    with time_machine.travel(now or due, tick=False):
        found = schedule(dg.build_schedule_context(instance=instance, scheduled_execution_time=due))
    return found.skip_message if isinstance(found, dg.SkipReason) else [one.partition_key for one in found]


WEEKS = dg.WeeklyPartitionsDefinition("2023-01-01", day_offset=1)
MONTHS = dg.MonthlyPartitionsDefinition("2023-01-01", timezone=BERLIN)
HOURS = dg.HourlyPartitionsDefinition("2023-01-01-00:00", timezone=BERLIN)
MINUTES = dg.TimeWindowPartitionsDefinition(start="2023-01-01-00:00", cron_schedule="*/5 * * * *", fmt="%Y-%m-%d-%H:%M")
SHOP_DAYS = dg.DailyPartitionsDefinition("2023-01-01", timezone=BERLIN, hour_offset=5)


@pytest.mark.parametrize(
    ("definition", "options", "cron", "due", "key"),
    [
        (DAYS, {}, "0 0 * * *", at("2024-03-06"), "2024-03-05"),
        (DAYS, {"hour_of_day": 1, "minute_of_hour": 30}, "30 1 * * *", at("2024-03-06 01:30"), "2024-03-05"),
        (DAYS, {"cron_schedule": "0 9 * * 1-5"}, "0 9 * * 1-5", at("2024-03-06 09:00"), "2024-03-05"),
        (SHOP_DAYS, {}, "0 5 * * *", at("2024-03-31 05:00", BERLIN), "2024-03-30"),
        (SHOP_DAYS, {}, "0 5 * * *", at("2024-04-01 05:00", BERLIN), "2024-03-31"),
        (SHOP_DAYS, {}, "0 5 * * *", at("2024-10-28 05:00", BERLIN), "2024-10-27"),
        (HOURS, {"minute_of_hour": 10}, "10 * * * *", at("2024-03-31 03:10", BERLIN), "2024-03-31-01:00"),
        (HOURS, {}, "0 * * * *", at("2024-10-27 01:00"), "2024-10-27-02:00"),
        (WEEKS, {"hour_of_day": 4}, "0 4 * * 1", at("2024-03-04 04:00"), "2024-02-26"),
        (MONTHS, {"day_of_month": 3}, "0 0 3 * *", at("2024-03-03", BERLIN), "2024-02-01"),
        (MINUTES, {}, "*/5 * * * *", at("2024-03-03 00:05"), "2024-03-03-00:00"),
    ],
    ids=[
        "day",
        "offset",
        "cron",
        "short day",
        "after it",
        "long day",
        "hour",
        "hour twice",
        "week",
        "month",
        "minutes",
    ],
)
def test_a_tick_on_time_is_for_the_interval_that_has_just_ended(definition, options, cron, due, key):
    schedule = nightly(definition, **options)
    assert schedule.cron_schedule == cron
    assert schedule.execution_timezone == definition.timezone
    [found] = ticked(schedule, due, due + timedelta(seconds=40))
    assert found.startswith(key)
    start = definition.time_window_for_partition_key(found)
    assert start.end <= due < start.end + timedelta(days=4)


def test_the_hour_that_comes_twice_is_two_intervals():
    first, second = (ticked(nightly(HOURS), at(f"2024-10-27 0{hour}:00")) for hour in (1, 2))
    assert first != second
    windows = [HOURS.time_window_for_partition_key(key) for [key] in (first, second)]
    assert [window.end.astimezone(UTC) for window in windows] == [at("2024-10-27 01:00"), at("2024-10-27 02:00")]


def test_a_tick_that_comes_later_than_the_grace_is_skipped_and_says_what_how_late_and_what_fills_it():
    schedule = nightly(minute_of_hour=30)
    due = at("2024-03-06 00:30")
    assert ticked(schedule, due, due + GRACE) == ["2024-03-05"]
    said = ticked(schedule, due, due + GRACE + timedelta(minutes=12))
    assert said.startswith("2024-03-05 was skipped: its tick of 2024-03-06 00:30 UTC came 6 h 12 min late")
    assert "more than the grace of 6 h" in said
    command = shlex.split(said.partition("To fill it: ")[2])
    assert command == ["marigold", "launch", "sales", "--from", "2024-03-05", "--to", "2024-03-05"]


def test_a_tick_is_never_for_an_interval_that_a_newer_one_has_followed_however_long_the_grace():
    schedule = nightly(minute_of_hour=30, grace=timedelta(days=30))
    said = ticked(schedule, at("2024-03-06 00:30"), at("2024-03-07 00:10"))
    assert said.startswith("2024-03-05 was skipped: its tick of 2024-03-06 00:30 UTC came 23 h 40 min late, and")
    assert "2024-03-06 has ended since" in said


def test_a_cron_that_ticks_on_makes_a_late_interval_no_earlier():
    schedule = nightly(cron_schedule=["15 * * * *", "40 * * * *"])
    assert ticked(schedule, at("2024-03-06 06:15")) == ["2024-03-05"]
    said = ticked(schedule, at("2024-03-06 06:40"))
    assert "its tick of 2024-03-06 00:15 UTC came 6 h 25 min late" in said


def test_after_90_days_off_the_first_tick_runs_the_latest_day_alone():
    """C110: Dagster gives the latest missed tick alone, and the next one is on time."""
    schedule = nightly()
    assert "was skipped" in ticked(schedule, at("2024-03-31"), at("2024-03-31 14:00"))
    assert ticked(schedule, at("2024-04-01")) == ["2024-03-31"]


@pytest.fixture
def instance(tmp_path):
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        yield instance


LOCATION = """
from datetime import timedelta
import dagster as dg
from marigold_assets import build_latest_interval_schedule
@dg.asset(partitions_def={definition})
def {asset}(): ...
nightly = build_latest_interval_schedule(
    name="nightly",
    target={target},
    partitions_def={definition},
    grace=timedelta(hours=6),
    default_status=dg.DefaultScheduleStatus.RUNNING,
    {options}
)
defs = dg.Definitions(assets=[{asset}], schedules=[nightly])
"""


class Scheduler:
    """Dagster's scheduler on code locations that are loaded here; its runs stay in the queue."""

    def __init__(self, folder):
        self.folder, self.times = folder, {}
        queue = {"module": "dagster._core.run_coordinator", "class": "QueuedRunCoordinator"}
        self.instance = dg.DagsterInstance.local_temp(str(folder), overrides={"run_coordinator": queue})
        self.origins = {}

    def location(
        self, name, *, asset="sales", target=None, definition='dg.DailyPartitionsDefinition("2023-01-01")', options=""
    ):
        """Add a code location with a schedule named nightly, or have another version of it."""
        path = self.folder / f"{name}_{len(list(self.folder.iterdir()))}.py"
        path.write_text(
            LOCATION.format(asset=asset, target=target or f"[{asset}]", definition=definition, options=options)
        )
        code = LoadableTargetOrigin(python_file=str(path), working_directory=str(self.folder))
        self.origins[name] = InProcessCodeLocationOrigin(code, location_name=name)
        self.times.clear()

    def look(self, *times, crash_after=None):
        """What is launched at some times, as (code location, partition), the oldest first."""
        before = {run.run_id for run in self.instance.get_runs(dg.RunsFilter(statuses=[dg.DagsterRunStatus.QUEUED]))}
        flags = {"nightly": {crash_after: signal.SIGINT}} if crash_after else None
        workspace = InProcessWorkspaceLoadTarget(list(self.origins.values()))
        with warnings.catch_warnings():
            # Dagster itself reads the one of every schedule, and sets the others.
            warnings.filterwarnings("ignore", "Property `ScheduleDefinition.environment_vars`", DeprecationWarning)
            warnings.filterwarnings("ignore", r"Non-compliant tag keys like \['dagster/partition", DeprecationWarning)
            self._tick(workspace, times, flags)
        queued = self.instance.get_runs(dg.RunsFilter(statuses=[dg.DagsterRunStatus.QUEUED]))
        runs = [run for run in queued if run.run_id not in before]
        return [(run.tags["dagster/code_location"], run.tags["dagster/partition"]) for run in reversed(runs)]

    def _tick(self, workspace, times, flags):
        with WorkspaceProcessContext(self.instance, workspace) as process:
            for time in times:
                with time_machine.travel(at(time), tick=False):
                    found = launch_scheduled_runs(
                        process,
                        logging.getLogger("scheduler"),
                        at(time),
                        iteration_times=self.times,
                        debug_crash_flags=flags,
                    )
                    assert [one for one in found if isinstance(one, SerializableErrorInfo)] == []

    def killed(self, *times):
        """The scheduler ends when it has made a run and not submitted it."""
        with pytest.raises(KeyboardInterrupt):
            self.look(*times, crash_after="RUN_CREATED")
        [run] = self.instance.get_runs(dg.RunsFilter(statuses=[dg.DagsterRunStatus.NOT_STARTED]))
        self.times.clear()
        return run

    def skipped(self):
        """Why the last tick launched nothing."""
        [state] = self.instance.all_instigator_state()
        [tick] = self.instance.get_ticks(state.instigator_origin_id, state.selector_id, limit=1)
        return tick.skip_reason


@pytest.fixture
def scheduler(tmp_path):
    scheduler = Scheduler(tmp_path)
    with scheduler.instance:
        yield scheduler


def test_an_interval_that_was_launched_before_is_never_launched_again_whatever_became_of_it(scheduler):
    """After a changed cron, where another tick falls behind the same interval."""
    scheduler.location("shop", options="minute_of_hour=30")
    assert scheduler.look("2024-03-05 23:00", "2024-03-06 00:31", "2024-03-06 00:32") == [("shop", "2024-03-05")]
    scheduler.location("shop", options='cron_schedule="0 * * * *"')
    [run] = scheduler.instance.get_runs()
    assert scheduler.look("2024-03-06 02:00") == []
    assert f"launched 2024-03-05 by run {run.run_id} (queued) before" in scheduler.skipped()
    scheduler.instance.report_run_failed(run)
    assert scheduler.look("2024-03-06 03:00", "2024-03-07 00:00") == [("shop", "2024-03-06")]


STORES = """dg.MultiPartitionsDefinition(
    {"day": dg.DailyPartitionsDefinition("2023-01-01"), "store": dg.StaticPartitionsDefinition(["a", "b"])}
)"""


def test_an_interval_is_not_lost_where_the_scheduler_dies_before_it_has_submitted_the_run(scheduler):
    """Dagster does the same tick again, finds the run that it has made, and submits it."""
    scheduler.location("shop")
    scheduler.look("2024-03-05 23:00")
    made = scheduler.killed("2024-03-06 00:01")
    assert scheduler.look("2024-03-06 00:02", "2024-03-06 00:03") == [("shop", "2024-03-05")]
    assert [run.run_id for run in scheduler.instance.get_runs()] == [made.run_id]
    scheduler.location("shop", definition=STORES)
    scheduler.killed("2024-03-07 00:01")
    assert scheduler.look("2024-03-07 00:02") == [("shop", "2024-03-06|a"), ("shop", "2024-03-06|b")]


def test_nor_where_it_comes_back_after_the_next_tick_behind_that_interval(scheduler):
    """Dagster gives the last tick alone, which is not the one that the run was made for."""
    scheduler.location("shop", options='cron_schedule="*/10 * * * *"')
    scheduler.look("2024-03-05 23:59")
    scheduler.killed("2024-03-06 00:01")
    assert scheduler.look("2024-03-06 00:11", "2024-03-06 00:21") == [("shop", "2024-03-05")]


@pytest.mark.parametrize("is_selection", [False, True], ids=["assets", "selection"])
def test_schedules_of_one_name_in_two_code_locations_leave_each_other_alone(scheduler, is_selection):
    for name in ("orders", "visits"):
        scheduler.location(name, asset=name, target=f'"{name}"' if is_selection else None)
    assert sorted(scheduler.look("2024-03-05 23:00", "2024-03-06 00:01", "2024-03-06 00:02")) == [
        ("orders", "2024-03-05"),
        ("visits", "2024-03-05"),
    ]
    scheduler.location("orders", asset="orders", options='cron_schedule="0 * * * *"')
    assert scheduler.look("2024-03-06 01:00") == []


@pytest.mark.parametrize(
    ("definition", "day", "due", "key"),
    [
        ('dg.WeeklyPartitionsDefinition("2023-01-01")', "2024-03-03", "2024-03-10", "2024-03-03"),
        ('dg.MonthlyPartitionsDefinition("2023-01-01")', "2024-03-01", "2024-04-01", "2024-03-01"),
        (
            'dg.DailyPartitionsDefinition("2023-01-01", timezone="America/New_York")',
            "2024-03-03",
            "2024-03-04 05:00",
            "2024-03-03",
        ),
    ],
    ids=["weeks", "months", "another time zone"],
)
def test_an_interval_is_not_one_of_another_definition_that_has_the_same_key(scheduler, definition, day, due, key):
    scheduler.location("shop")
    end = at(day) + timedelta(days=1)
    assert scheduler.look(f"{day} 23:00", f"{end:%Y-%m-%d} 00:01") == [("shop", key)]
    scheduler.location("shop", definition=definition)
    moments = [at(due) + timedelta(minutes=minutes) for minutes in (-1, 1, 2)]
    assert scheduler.look(*(f"{one:%Y-%m-%d %H:%M}" for one in moments)) == [("shop", key)]


def test_runs_that_somebody_else_has_launched_do_not_count(instance):
    job = dg.Definitions([asset_of(DAYS)]).resolve_implicit_global_asset_job_def()
    for more in ({}, {"dagster/schedule_name": "another"}):
        tags = {"dagster/partition": "2024-03-05", **more}
        instance.create_run_for_job(job, tags=tags, status=dg.DagsterRunStatus.SUCCESS)
    assert ticked(nightly(), at("2024-03-06"), instance=instance) == ["2024-03-05"]


@pytest.mark.parametrize(
    ("definition", "due", "said"),
    [
        (dg.DailyPartitionsDefinition("2022-01-01"), at("2024-03-06"), ["2024-03-05"]),
        (dg.DailyPartitionsDefinition("2024-03-06"), at("2024-03-06"), "2024-03-05 has just ended, and is none"),
        (DAYS.__class__("2023-01-01", end_date="2024-01-01"), at("2024-03-06"), "those are 2023-01-01 to 2023-12-31"),
        (dg.DailyPartitionsDefinition("2023-01-01", end_offset=1), at("2024-03-06"), ["2024-03-05"]),
        (dg.DailyPartitionsDefinition("2023-01-01", exclusions=["0 0 * * 0"]), at("2024-03-04"), "2024-03-03 has just"),
    ],
    ids=["earlier start", "later start", "ended", "end offset", "left out"],
)
def test_whatever_becomes_of_the_definition_only_what_has_just_ended_is_run(definition, due, said):
    found = ticked(nightly(definition), due)
    assert found == said if isinstance(said, list) else said in found


def test_all_partitions_of_the_interval_are_run_where_there_is_another_dimension():
    stores = dg.MultiPartitionsDefinition({"day": DAYS, "store": dg.StaticPartitionsDefinition(["a", "b"])})
    schedule = build_latest_interval_schedule(
        name="nightly", target=dg.AssetSelection.assets("sales"), partitions_def=stores, grace=GRACE
    )
    assert ticked(schedule, at("2024-03-06")) == ["2024-03-05|a", "2024-03-05|b"]
    assert "marigold launch 'key:\"sales\"' --from" in ticked(schedule, at("2024-03-06"), at("2024-03-06 12:00"))


def test_assets_without_partitions_run_along():
    @dg.asset(deps=[SALES])
    def report():
        raise NotImplementedError

    assets = [asset_of(DAYS), report]
    schedule = nightly(target=assets)
    job = dg.Definitions(assets, schedules=[schedule]).resolve_job_def(schedule.job_name)
    assert {key.to_user_string() for key in job.asset_layer.executable_asset_keys} == {"sales", "report"}
    assert "launch sales --from" in ticked(schedule, at("2024-03-06"), at("2024-03-06 12:00"))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"target": [dg.AssetsDefinition(specs=[dg.AssetSpec("plain")])]}, "assets without partitions"),
        ({"definition": dg.StaticPartitionsDefinition(["a"])}, "needs partitions in time"),
        ({"target": [asset_of(DAYS), asset_of(WEEKS, "other")]}, "about 2 definitions of partitions"),
        ({"target": dg.AssetSelection.all()}, "does not tell its partitions"),
        ({"grace": timedelta(0)}, "every tick would come too late"),
        ({"cron_schedule": "0 1 * * *", "hour_of_day": 1}, "both a cron schedule and offsets"),
        ({"execution_timezone": BERLIN}, "a time zone without a cron schedule"),
    ],
)
def test_what_makes_no_sense_is_refused_at_definition(given, said):
    with pytest.raises(ConfigurationError, match=said) as error:
        nightly(given.pop("definition", DAYS), **given)
    assert "Remedy: " in str(error.value).splitlines()[0]


# --- the automation condition ---


class Sensor:
    """Evaluates the conditions of some assets time and again, as the sensor for them does."""

    def __init__(self):
        self.instance, self.cursor = dg.DagsterInstance.ephemeral(), None

    def look(self, when, *assets):
        """What is requested at some time, by asset."""
        keys = {asset.key for asset in assets}
        found = dg.evaluate_automation_conditions(
            defs=list(assets),
            instance=self.instance,
            asset_selection=dg.AssetSelection.assets(*keys),
            cursor=self.cursor,
            evaluation_time=at(when),
        )
        self.cursor = found.cursor
        wanted = {key.to_user_string(): sorted(map(str, found.get_requested_partitions(key))) for key in keys}
        return {name: partitions for name, partitions in wanted.items() if partitions}

    def report(self, asset, *partitions):
        for partition in partitions:
            self.instance.report_runless_asset_event(dg.AssetMaterialization(asset.key, partition=partition))


def conditioned(definition=DAYS, *, name="sales", of=None, grace=GRACE, delay=timedelta(0), **options):
    condition = latest_interval_condition(of or definition, grace=grace, delay=delay)
    return asset_of(definition, name, automation_condition=condition, **options)


@pytest.fixture
def sensor():
    return Sensor()


def test_the_latest_interval_is_requested_once_after_its_end(sensor):
    """C112: two years of days are missing when the condition is added."""
    sales = conditioned()
    seen = [(when, sensor.look(when, sales)) for when in ("2024-12-30 00:05", "2024-12-30 23:59")]
    assert [found for _, found in seen] == [{}, {}]
    assert sensor.look("2024-12-31 00:00:30", sales) == {"sales": ["2024-12-30"]}
    for when in ("2024-12-31 00:01", "2024-12-31 05:59", "2024-12-31 23:00"):
        assert sensor.look(when, sales) == {}
    assert sensor.look("2025-01-01 00:01", sales) == {"sales": ["2024-12-31"]}


@pytest.mark.parametrize(
    ("back", "requested"),
    [("2024-03-10 05:59", ["2024-03-09"]), ("2024-03-10 06:01", []), ("2024-03-10 23:00", [])],
)
def test_after_days_without_a_sensor_only_the_latest_interval_counts_and_only_within_its_grace(sensor, back, requested):
    sales = conditioned()
    sensor.look("2024-03-01 12:00", sales)
    assert sensor.look(back, sales) == ({"sales": requested} if requested else {})
    assert sensor.look("2024-03-10 23:59", sales) == {}
    assert sensor.look("2024-03-11 00:01", sales) == {"sales": ["2024-03-10"]}


@pytest.mark.parametrize(
    "changed",
    [
        conditioned(dg.DailyPartitionsDefinition("2020-01-01")),
        conditioned(grace=timedelta(hours=20)),
        conditioned(dg.DailyPartitionsDefinition("2020-01-01", timezone=BERLIN)),
    ],
    ids=["start date", "grace", "time zone"],
)
@pytest.mark.parametrize("was_requested", [True, False])
def test_a_changed_definition_requests_nothing_again(sensor, changed, was_requested):
    sales = conditioned()
    sensor.look("2024-03-01 12:00" if was_requested else "2024-03-02 00:10", sales)
    assert sensor.look("2024-03-02 00:20", sales) == ({"sales": ["2024-03-01"]} if was_requested else {})
    found = [sensor.look(f"2024-03-02 {time}", changed) for time in ("00:21", "00:22", "00:40", "05:00", "22:00")]
    assert [one for one in found if one] == []


@pytest.mark.parametrize("delay", [timedelta(minutes=30), timedelta(hours=3)])
def test_a_later_delay_makes_no_new_interval_of_one_that_was_requested(sensor, delay):
    sensor.look("2024-03-01 12:00", conditioned())
    assert sensor.look("2024-03-02 00:20", conditioned()) == {"sales": ["2024-03-01"]}
    delayed = conditioned(delay=delay)
    assert [sensor.look(f"2024-03-02 {time}", delayed) for time in ("00:21", "00:40", "03:01", "08:00")] == [{}] * 4
    assert sensor.look("2024-03-03 03:01", delayed) == {"sales": ["2024-03-02"]}


def test_what_is_built_or_being_built_already_is_not_requested(sensor):
    sales = conditioned()
    sensor.look("2024-03-01 23:00", sales)
    sensor.report(sales, "2024-03-01")
    assert sensor.look("2024-03-02 00:01", sales) == {}


def test_what_reads_others_waits_for_them_within_its_grace(sensor):
    sales = asset_of(DAYS)
    monthly = conditioned(name="reader", deps=[sales])
    sensor.look("2024-03-01 23:00", sales, monthly)
    assert sensor.look("2024-03-02 00:01", sales, monthly) == {}
    sensor.report(sales, "2024-03-01")
    assert sensor.look("2024-03-02 03:00", sales, monthly) == {"reader": ["2024-03-01"]}
    sensor.report(sales, "2024-03-02")
    assert sensor.look("2024-03-03 06:01", sales, monthly) == {}


def test_assets_that_read_each_other_are_requested_together_and_a_chain_after_its_day_before_alone(sensor):
    sales = conditioned()

    @partitioned_asset(
        partitions_def=DAYS,
        partition_expr="day",
        name="to_date",
        code_version="1",
        ins={"sales": dg.AssetIn("sales")},
        automation_condition=latest_interval_condition(DAYS, grace=GRACE),
    )
    def to_date(sales, previous):
        raise NotImplementedError

    sensor.look("2024-03-01 23:00", sales, to_date)
    assert sensor.look("2024-03-02 00:01", sales, to_date) == {"sales": ["2024-03-01"]}
    sensor.report(sales, "2024-03-01", "2024-03-02")
    sensor.report(to_date, "2024-03-01")
    assert sensor.look("2024-03-03 00:01", sales, to_date) == {"to_date": ["2024-03-02"]}


@pytest.mark.parametrize(
    "definition", [dg.StaticPartitionsDefinition([f"store {number}" for number in range(300)]), None]
)
def test_it_is_never_true_of_an_asset_whose_partitions_are_not_in_time(sensor, definition):
    """C112: somebody changes the partitions and forgets the condition."""

    @dg.asset(partitions_def=definition, automation_condition=latest_interval_condition(DAYS, grace=GRACE))
    def stores():
        raise NotImplementedError

    sensor.look("2024-03-01 23:00", conditioned(name="stores"))
    for when in ("2024-03-01 23:30", "2024-03-02 00:01", "2024-03-02 00:02", "2024-03-03 00:01"):
        assert sensor.look(when, stores) == {}


@pytest.mark.parametrize(
    ("definition", "grace", "looks", "key"),
    [
        (HOURS, timedelta(minutes=30), ("2024-03-05 11:58", "2024-03-05 12:01"), "2024-03-05-12:00"),
        (WEEKS, timedelta(days=2), ("2024-03-03 23:59", "2024-03-04 12:00"), "2024-02-26"),
        (MONTHS, timedelta(days=5), ("2024-02-29 22:00", "2024-02-29 23:05"), "2024-02-01"),
        (MINUTES, timedelta(minutes=2), ("2024-03-05 11:59", "2024-03-05 12:01"), "2024-03-05-11:55"),
        (SHOP_DAYS, timedelta(hours=20), ("2024-03-05 03:50", "2024-03-05 23:50"), "2024-03-04"),
    ],
    ids=["hours", "weeks", "months", "minutes", "shop days"],
)
def test_it_fits_all_partitions_in_time(sensor, definition, grace, looks, key):
    sales = conditioned(definition, grace=grace)
    assert [sensor.look(when, sales) for when in looks] == [{}, {"sales": [key]}]


def test_all_partitions_of_the_latest_interval_are_requested_where_there_is_another_dimension(sensor):
    stores = dg.MultiPartitionsDefinition({"day": DAYS, "store": dg.StaticPartitionsDefinition(["a", "b"])})

    @dg.asset(partitions_def=stores, automation_condition=latest_interval_condition(stores, grace=GRACE))
    def sales():
        raise NotImplementedError

    sensor.look("2024-03-01 23:00", sales)
    assert sensor.look("2024-03-02 00:01", sales) == {"sales": ["2024-03-01|a", "2024-03-01|b"]}
    assert sensor.look("2024-03-02 00:02", sales) == {}


def test_every_sensor_can_evaluate_it():
    """One of Dagster's own parts alone: a class of ours would be skipped in silence by the default sensor."""
    assert latest_interval_condition(DAYS, grace=GRACE).is_serializable


@pytest.mark.parametrize(
    ("definition", "options", "said"),
    [
        (dg.StaticPartitionsDefinition(["a"]), {}, "needs partitions in time"),
        (dg.DailyPartitionsDefinition("2023-01-01", end_date="2024-01-01"), {}, "come to an end"),
        (dg.DailyPartitionsDefinition("2023-01-01", exclusions=["0 0 * * 0"]), {}, "leave out intervals"),
        (dg.DailyPartitionsDefinition("2023-01-01", end_offset=1), {}, "have an end_offset"),
        (DAYS, {"grace": timedelta(0)}, "do not fit"),
        (DAYS, {"grace": timedelta(hours=24)}, "do not fit"),
        (DAYS, {"grace": timedelta(seconds=90)}, "do not fit"),
        (HOURS, {"grace": timedelta(minutes=40), "delay": timedelta(minutes=20)}, "do not fit"),
        (MONTHS, {"grace": timedelta(days=28)}, "do not fit"),
    ],
)
def test_a_condition_that_cannot_hold_is_refused_at_definition(definition, options, said):
    with pytest.raises(ConfigurationError, match=said):
        latest_interval_condition(definition, **{"grace": GRACE, **options})


@pytest.mark.parametrize(
    ("cron", "by", "expected"),
    [
        ("0 0 * * *", timedelta(hours=6), "0 6 * * *"),
        ("30 20 * * *", timedelta(hours=5, minutes=45), "15 2 * * *"),
        ("15 * * * *", timedelta(minutes=50), "5 * * * *"),
        ("*/15 * * * *", timedelta(minutes=14), "14,29,44,59 * * * *"),
        ("0 9,17 * * *", timedelta(hours=7), "0 0,16 * * *"),
        ("0 9,17 * * *", timedelta(hours=8), None),
        ("0 22 * * 6", timedelta(hours=3), "0 1 * * 0"),
        ("0 0 * * 7", timedelta(days=1), "0 0 * * 1"),
        ("0 0 1 * *", timedelta(days=27), "0 0 28 * *"),
        ("0 0 * * 1-5", timedelta(hours=1), None),
        ("0 0 1 1 *", timedelta(hours=1), None),
        ("@daily", timedelta(hours=1), None),
        ("0 0 * * *", timedelta(0), "0 0 * * *"),
        ("0 0 * * *", timedelta(seconds=30), None),
        ("5-10/0 * * * *", timedelta(minutes=1), None),
    ],
)
def test_a_cron_schedule_is_moved_as_far_as_cron_can_say_it(cron, by, expected):
    assert later(cron, by) == expected
