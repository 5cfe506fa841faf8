"""What past runs tell of durations: medians that one slow run does not move."""

from __future__ import annotations

from marigold_assets.planning.history import DEFAULTS, asset_history, history_of
from marigold_assets.planning.model import RunSample


def sample(swaps, *, launched=100.0, started=105.0, ended=None):
    last = max((at for some in swaps.values() for at in some), default=started)
    return RunSample(
        launched_at=launched, started_at=started, ended_at=last + 1.0 if ended is None else ended, swaps=swaps
    )


def single(seconds):
    return sample({"raw": (105.0 + seconds,)})


def test_without_runs_everything_is_assumed_and_says_so():
    history = history_of([])
    assert (history.run_start, history.run_end) == (DEFAULTS.run_start, DEFAULTS.run_end)
    assert history.assets == {}
    assert asset_history(history, "raw").is_assumed


def test_a_range_tells_of_its_first_and_its_later_partitions():
    history = history_of([sample({"raw": (110.0, 112.0, 114.0)})])
    raw = history.assets["raw"]
    assert (raw.first_key.median, raw.first_key.count) == (5.0, 1)
    assert (raw.next_key.median, raw.next_key.count) == (2.0, 2)
    assert (history.run_start.median, history.run_end.median) == (5.0, 1.0)
    assert not raw.is_assumed


def test_assets_of_one_run_share_its_time_out():
    history = history_of([sample({"raw": (110.0, 112.0), "daily": (120.0, 121.0)})])
    raw, daily = history.assets["raw"], history.assets["daily"]
    assert (raw.first_key.median, raw.next_key.median) == (5.0, 2.0)
    assert (daily.first_key.median, daily.next_key.median) == (8.0, 1.0)


def test_where_steps_overlap_the_parts_still_add_up_to_the_whole():
    swaps = {"raw": (110.0, 114.0, 118.0), "daily": (111.0, 115.0, 119.0)}
    history = history_of([sample(swaps)])
    total = sum(one.first_key.median + 2 * one.next_key.median for one in history.assets.values())
    assert total == 119.0 - 105.0


def test_one_outlier_moves_neither_median_nor_p90():
    usual = history_of([single(10.0 + number / 10) for number in range(20)]).assets["raw"]
    some = [single(10.0 + number / 10) for number in range(19)]
    moved = history_of([*some, single(500.0)]).assets["raw"]
    assert abs(moved.first_key.median - usual.first_key.median) < 0.2
    assert moved.first_key.p90 <= usual.first_key.p90
    assert moved.first_key.count == 20


def test_one_slow_partition_of_a_range_does_not_move_the_others():
    swaps = [110.0 + 2 * number for number in range(20)]
    slow = [*swaps[:10], *(at + 98.0 for at in swaps[10:])]
    raw = history_of([sample({"raw": tuple(slow)})]).assets["raw"]
    assert (raw.next_key.median, raw.next_key.p90) == (2.0, 3.0)


def test_what_often_takes_long_is_no_outlier():
    some = [single(10.0)] * 14 + [single(100.0)] * 6
    raw = history_of(some).assets["raw"]
    assert (raw.first_key.median, raw.first_key.p90) == (10.0, 100.0)


def test_a_range_of_uneven_partitions_takes_their_sum_not_their_median():
    swaps, at = [], 105.0
    for number in range(31):
        at += 1.0 if number % 2 else 3.0
        swaps.append(at)
    raw = history_of([sample({"raw": tuple(swaps)})]).assets["raw"]
    assert raw.next_key.median == 2.0
    assert raw.next_key.p90 == 3.0


def test_without_ranges_a_later_partition_is_taken_to_last_as_long_as_a_first():
    raw = history_of([single(10.0), single(12.0)]).assets["raw"]
    assert (raw.next_key.median, raw.next_key.p90, raw.next_key.count) == (11.0, 16.5, 0)
    assert not raw.is_assumed


def backfills(count, *, runs=20, seconds=10.0, apart=86_400.0):
    """Runs that all took the same, of some backfills."""
    for number in range(count):
        for run in range(runs):
            at = number * apart + run * 60.0
            yield RunSample(
                launched_at=at, started_at=at + 5.0, ended_at=at + 7.0 + seconds, swaps={"raw": (at + 5.0 + seconds,)}
            )


def test_runs_of_one_backfill_that_all_took_the_same_do_not_promise_that_the_next_will():
    history = history_of(backfills(1))
    for one, usual in ((history.assets["raw"].first_key, 10.0), (history.run_start, 5.0), (history.run_end, 2.0)):
        assert (one.median, one.p90, one.count) == (usual, usual * 1.5, 20)


def test_the_more_occasions_the_nearer_the_p90_may_be_to_the_median():
    found = [history_of(backfills(count)).assets["raw"].first_key.p90 for count in (1, 2, 5, 50)]
    assert [round(one, 2) for one in found] == [15.0, 12.5, 11.0, 10.1]
    close = history_of(backfills(5, apart=1_500.0)).assets["raw"].first_key
    assert (close.p90, close.count) == (15.0, 100)


def test_a_single_run_may_be_far_from_the_next_one():
    raw = history_of(backfills(1, runs=1)).assets["raw"]
    assert (raw.first_key.median, raw.first_key.p90) == (10.0, 20.0)


def test_runs_that_built_nothing_tell_of_their_start_alone():
    history = history_of([sample({}), sample({"raw": ()})])
    assert (history.run_start.count, history.run_end.count, history.assets) == (2, 0, {})


def test_a_run_without_a_recorded_start_is_taken_to_start_as_usual():
    unknown = sample({"raw": (110.0,)}, started=None, ended=111.0)
    history = history_of([sample({"raw": (109.0,)}), unknown])
    assert history.run_start.count == 1
    assert (history.assets["raw"].first_key.median, history.assets["raw"].first_key.count) == (4.5, 2)
    alone = history_of([sample({"raw": (102.0,)}, started=None, ended=103.0)])
    assert alone.assets["raw"].first_key.median == 0.0


def test_clocks_that_go_backwards_give_no_negative_time():
    history = history_of([sample({"raw": (104.0,)}, started=105.0, ended=103.0)])
    assert history.assets["raw"].first_key.median == 0.0
    assert history.run_end.median == 0.0
