"""The windows of a run's partitions, and where they are shifted to, are those that Dagster finds one by one."""

from __future__ import annotations

import dagster as dg
import pytest

from marigold_assets.windows import Windows

DEFINITIONS = {
    "daily": dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-02-01"),
    "daily where the clock changes": dg.DailyPartitionsDefinition(
        "2024-03-25", end_date="2024-04-05", timezone="Europe/Berlin"
    ),
    "daily from five": dg.DailyPartitionsDefinition("2024-03-25", end_date="2024-04-05", hour_offset=5),
    "hourly where the clock changes": dg.HourlyPartitionsDefinition(
        "2024-10-26-20:00", end_date="2024-10-27-08:00", timezone="Europe/Berlin"
    ),
    "weekly": dg.WeeklyPartitionsDefinition("2024-01-01", end_date="2024-06-01"),
    "monthly": dg.MonthlyPartitionsDefinition("2023-01-01", end_date="2025-01-01"),
    "cron": dg.TimeWindowPartitionsDefinition(
        start="2024-01-01", end="2024-03-01", fmt="%Y-%m-%d", cron_schedule="0 0 * * 1,4"
    ),
}
SHIFTS = [(-1, -1), (-6, 0), (0, 0), (-2, -1), (1, 2), (0, -1)]


@pytest.fixture(params=DEFINITIONS.values(), ids=DEFINITIONS.keys())
def definition(request):
    return request.param


def test_windows_are_those_of_dagster(definition):
    keys = definition.get_partition_keys()[2:-1]
    windows = Windows(definition, keys)
    assert [windows.of(key) for key in keys] == [definition.time_window_for_partition_key(key) for key in keys]
    assert windows.of(definition.get_partition_keys()[0]) is None


@pytest.mark.parametrize("shift", SHIFTS)
def test_a_shift_leads_where_dagster_leads_or_is_left_to_dagster(definition, shift):
    keys = definition.get_partition_keys()[1:-1]
    mapping = dg.TimeWindowPartitionMapping(start_offset=shift[0], end_offset=shift[1])
    windows = Windows(definition, keys)
    told = {key: windows.shifted(key, mapping) for key in keys}
    for key, found in told.items():
        subset = definition.empty_subset().with_partition_keys([key])
        by_dagster = mapping.get_upstream_mapped_partitions_result_for_partitions(subset, definition, definition)
        assert found in {None, tuple(by_dagster.partitions_subset.get_partition_keys())}
    assert (shift == (0, -1)) == (not any(told.values()))


def test_what_has_gaps_or_no_time_is_left_to_dagster():
    back = dg.TimeWindowPartitionMapping(start_offset=-1, end_offset=-1)
    days = DEFINITIONS["daily"]
    weekdays = dg.TimeWindowPartitionsDefinition(
        start="2024-01-01", end="2024-03-01", fmt="%Y-%m-%d", cron_schedule="0 0 * * *", exclusions=["0 0 * * 6,0"]
    )
    shops = dg.StaticPartitionsDefinition(["a", "b", "c"])
    for definition, keys in [
        (days, ["2024-01-02", "2024-01-04", "2024-01-05"]),
        (weekdays, weekdays.get_partition_keys()),
        (shops, shops.get_partition_keys()),
        (None, ["a", "b"]),
    ]:
        windows = Windows(definition, keys)
        assert windows.of(keys[1]) is None
        assert windows.shifted(keys[1], back) is None
