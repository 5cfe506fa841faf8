"""What daemon and queue make of a plan, and the price of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from marigold_assets.planning.bill import price
from marigold_assets.planning.history import DEFAULTS, history_of
from marigold_assets.planning.model import AssetHistory, AssetPlan, History, Limits, PlannedKey, Reason, Spread
from marigold_assets.planning.simulation import Pace, Simulator, Terms
from marigold_assets.planning.states import AssetState
from marigold_assets.planning.wanted import wanted
from marigold_assets_tests.unit.planning_states import SAME, all_of, asset, days, request, shifted


def keys(count):
    return tuple(PlannedKey(key=key, reason=Reason.MISSING, because="was never built") for key in days(count))


def plan(owner, count, **values):
    return AssetPlan(owner=owner, keys=keys(count), **values)


def simulated(assets, *, slots=None, tick=30.0, dequeue=0.0, start=5.0, end=1.0, first=3.0, later=2.0, **terms):
    owners = [one.owner for one in assets]
    pace = Pace(
        run_start=start,
        run_end=end,
        first_key=dict.fromkeys(owners, first),
        next_key=dict.fromkeys(owners, later),
    )
    terms = Terms(slots=slots, tick_seconds=tick, dequeue_seconds=dequeue, **terms)
    return Simulator(assets).run(pace, terms, in_detail=True)


def starts(outcome, owner):
    return [run.launched_at for run in outcome.timeline if run.owner == owner]


def ranges(outcome, owner):
    return [(run.first, run.stop) for run in outcome.timeline if run.owner == owner]


def test_one_run_after_the_first_look_of_the_daemon():
    outcome = simulated([plan("raw", 1)])
    assert starts(outcome, "raw") == [15.0]
    assert outcome.commits["raw"] == [15 + 5 + 3]
    assert (outcome.wall, outcome.busy, outcome.runs, outcome.peak) == (23.0, 9.0, 1, 1)


def test_a_range_pays_for_its_start_once():
    outcome = simulated([plan("raw", 4, keys_per_run=None)])
    assert outcome.commits["raw"] == [23.0, 25.0, 27.0, 29.0]
    assert (outcome.busy, outcome.runs) == (5 + 3 + 3 * 2 + 1, 1)


def test_slots_are_filled_first_come_first_served_oldest_first():
    outcome = simulated([plan("raw", 5)], slots=2)
    assert starts(outcome, "raw") == [15.0, 15.0, 24.0, 24.0, 33.0]
    assert ranges(outcome, "raw") == [(number, number + 1) for number in range(5)]
    assert outcome.peak == 2


def test_the_queue_takes_half_its_interval_to_see_a_free_slot():
    outcome = simulated([plan("raw", 2)], slots=1, dequeue=5.0)
    assert starts(outcome, "raw") == [17.5, 29.0]


def test_chunks_end_where_keys_do_not_follow_each_other():
    outcome = simulated([plan("raw", 7, keys_per_run=2, breaks=(3,))])
    assert ranges(outcome, "raw") == [(0, 2), (2, 3), (3, 5), (5, 7)]
    assert ranges(simulated([plan("raw", 7, keys_per_run=None, breaks=(3,))]), "raw") == [(0, 3), (3, 7)]


def test_a_chain_takes_one_look_of_the_daemon_per_run():
    outcome = simulated([plan("total", 3, is_chain=True)])
    assert starts(outcome, "total") == [15.0, 45.0, 75.0]
    assert starts(simulated([plan("total", 3, is_chain=True)], first=40.0), "total") == [15.0, 75.0, 135.0]
    assert ranges(simulated([plan("total", 5, is_chain=True, keys_per_run=2)]), "total") == [(0, 2), (2, 4), (4, 5)]
    assert ranges(simulated([plan("total", 5, is_chain=True, keys_per_run=None)]), "total") == [(0, 5)]


def test_a_chain_that_begins_anew_does_not_wait_but_for_its_turn():
    links = plan("total", 4, is_chain=True, breaks=(2,), restarts=(2,), keys_per_run=None)
    assert starts(simulated([links]), "total") == [15.0, 15.0]
    broken = replace(links, restarts=())
    assert starts(simulated([broken]), "total") == [15.0, 45.0]
    one_a_run = replace(links, keys_per_run=1)
    assert ranges(simulated([one_a_run]), "total") == [(0, 1), (1, 2), (2, 3), (3, 4)]
    assert starts(simulated([one_a_run]), "total") == [15.0, 45.0, 75.0, 105.0]


def test_what_shares_a_run_is_built_in_it_one_after_the_other():
    outcome = simulated([plan("raw", 2), plan("daily", 2, after=("raw",), in_run_of="raw")], slots=1)
    assert outcome.commits == {"raw": [23.0, 35.0], "daily": [26.0, 38.0]}
    assert (outcome.runs, outcome.busy) == (2, 2 * (5 + 3 + 3 + 1))


def test_what_does_not_waits_for_the_commit_and_the_next_look():
    daily = plan("daily", 2, after=("raw",), keys_per_run=2)
    outcome = simulated([plan("raw", 2), daily], slots=1)
    # raw is committed at 23 and 32: the look at 45 sees both, for one run.
    assert ranges(outcome, "daily") == [(0, 2)]
    assert starts(outcome, "daily") == [45.0]
    slow = simulated([plan("raw", 2), daily], slots=1, first=20.0)
    # at 40 and 66: the look at 45 sees one of them.
    assert [(run.first, run.requested_at) for run in slow.timeline if run.owner == "daily"] == [(0, 45.0), (1, 75.0)]


def test_a_chain_advances_with_what_it_waits_for():
    total = plan("total", 3, after=("raw",), is_chain=True, keys_per_run=None)
    outcome = simulated([plan("raw", 3), total], slots=1, first=20.0)
    waited = {run.first: run.requested_at for run in outcome.timeline if run.owner == "total"}
    for first, at in waited.items():
        assert outcome.commits["raw"][first] <= at
        assert first == 0 or outcome.commits["total"][first - 1] <= at


def test_whole_spans_are_waited_for():
    raw = asset("raw", days(4))
    window = asset("window", days(4), reads={"raw": shifted(days(4), -1, 0)})
    report = AssetState(owner="report", keys=(None,), wanted=(None,), reads={"raw": all_of(days(4))})
    outcome = simulated(wanted([raw, window, report], request()), slots=1, tick=0.0)
    commits = outcome.commits["raw"]
    for run in outcome.timeline:
        if run.owner == "window":
            assert run.requested_at >= max(commits[max(0, run.first - 1) : run.first + 1])
        if run.owner == "report":
            assert run.requested_at == max(commits)


def test_a_daemon_that_never_sleeps_sees_at_once():
    outcome = simulated([plan("total", 3, is_chain=True)], tick=0.0)
    assert starts(outcome, "total") == [0.0, 8.0, 16.0]


def test_without_order_a_chain_is_like_anything_else():
    assert starts(simulated([plan("total", 3, is_chain=True)], keeps_order=False), "total") == [15.0] * 3


def spread(median, p90=None, count=20):
    return Spread(median=median, p90=median if p90 is None else p90, count=count)


def history(owners, *, start=5.0, end=1.0, first=3.0, later=2.0, p90=1.0):
    return History(
        run_start=spread(start, start * p90),
        run_end=spread(end, end * p90),
        assets={
            owner: AssetHistory(first_key=spread(first, first * p90), next_key=spread(later, later * p90))
            for owner in owners
        },
    )


def billed(assets, *, slots=2, tick=30.0, dequeue=0.0, **values):
    limits = Limits(slots=slots, tick_seconds=tick, dequeue_seconds=dequeue)
    return price(assets, limits, history([one.owner for one in assets], **values))


def test_the_price_of_independent_days_under_a_limit():
    bill = billed([plan("raw", 30)], slots=3, p90=2.0)
    # Ten rounds of nine seconds, without the end of the last one, after 15 seconds.
    assert bill.wall.median == 15 + 10 * 9 - 1
    assert bill.wall.p90 == 30 + 10 * 18 - 2  # and after a whole tick
    assert (bill.runs, bill.busy.median, bill.busy.p90) == (30, 270.0, 540.0)
    assert bill.critical_path == 3.0
    assert bill.saved_by_slots == 9 * 9
    assert bill.saved_by_ticks == 15
    assert bill.saved_by_starts == 10 * 5
    assert bill.one_more_slot == 2 * 9
    assert (bill.parallel, bill.ordering_costs) == (bill.wall.median, 0.0)
    assert bill.best_keys_per_run == {"raw": (10, 15 + 5 + 3 + 9 * 2)}
    assert bill.assumed == ()


@pytest.mark.parametrize("first_look", [0.0, 4.0, 15.0, 29.0])
@pytest.mark.parametrize("assets", [[plan("total", 12, is_chain=True)], [plan("raw", 30)], []])
def test_the_price_of_a_launch_of_which_the_first_look_is_known_is_the_one_that_is_simulated_with_it(
    assets, first_look
):
    found = billed(assets, slots=3, p90=2.0).wall_from(first_look)
    pace, slow = (
        Pace(
            run_start=5.0 * factor,
            run_end=1.0 * factor,
            first_key=dict.fromkeys(("total", "raw"), 3.0 * factor),
            next_key=dict.fromkeys(("total", "raw"), 2.0 * factor),
        )
        for factor in (1, 2)
    )
    terms = Terms(slots=3, first_look_seconds=first_look, dequeue_seconds=0.0)
    assert found.median == Simulator(assets).run(pace, terms).wall
    assert found.p90 == Simulator(assets).run(slow, terms).wall


def test_the_price_of_order():
    bill = billed([plan("total", 12, is_chain=True)], slots=4)
    assert bill.wall.median == 15 + 11 * 30 + 8
    assert bill.parallel == 15 + 5 + 3 + 2 * 2  # three days in each of four runs
    assert bill.ordering_costs == bill.wall.median - bill.parallel
    assert bill.saved_by_slots == bill.one_more_slot == 0
    assert bill.saved_by_ticks == bill.wall.median - (12 * 8)
    assert bill.best_keys_per_run == {}


def test_one_run_cannot_be_cut_shorter_by_slots_and_needs_no_looks():
    bill = billed([plan("total", 12, is_chain=True, keys_per_run=None)])
    assert bill.wall.median == 15 + 5 + 3 + 11 * 2
    assert bill.critical_path == 3 + 11 * 2


def test_nothing_costs_nothing():
    bill = billed([AssetPlan(owner="raw", keys=())])
    assert (bill.runs, bill.wall.median, bill.busy.median, bill.critical_path) == (0, 0.0, 0.0, 0.0)
    assert bill.assumed == ()


def test_what_was_never_measured_is_assumed_and_said_so():
    assets = [plan("raw", 3), plan("new", 3)]
    bill = price(assets, Limits(slots=2), history(["raw"]))
    assert bill.assumed == ("new",)
    assert bill.wall.median > 0
    nothing = price(assets, Limits(slots=2), history_of([]))
    assert nothing.assumed == ("raw", "new")
    assert nothing.wall.median > DEFAULTS.asset.first_key.median


def test_all_that_share_runs_are_to_have_the_best_chunks():
    bill = billed([plan("raw", 30), plan("daily", 30, after=("raw",), in_run_of="raw")])
    assert set(bill.best_keys_per_run) == {"raw", "daily"}


def test_a_price_that_would_rise_with_one_slot_more_is_that_of_fewer():
    """With two slots the daemon sees both days at once, and has them built one after the other in one run."""
    assets = [plan("raw", 2), plan("daily", 2, after=("raw",), keys_per_run=None)]
    known = replace(
        history([]),
        assets={
            "raw": AssetHistory(first_key=spread(10.0), next_key=spread(10.0)),
            "daily": AssetHistory(first_key=spread(20.0), next_key=spread(40.0)),
        },
    )
    pace = Pace(
        run_start=5.0, run_end=1.0, first_key={"raw": 10.0, "daily": 20.0}, next_key={"raw": 10.0, "daily": 40.0}
    )
    walls = [Simulator(assets).run(pace, Terms(slots=slots, dequeue_seconds=0.0)).wall for slots in (1, 2, 3)]
    assert walls == [100.0, 110.0, 110.0]
    prices = [price(assets, Limits(slots=slots, dequeue_seconds=0.0), known) for slots in (1, 2, 3)]
    assert [one.wall.median for one in prices] == [100.0, 100.0, 100.0]
    assert [one.one_more_slot for one in prices] == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("slots", [1, 2, 5, None])
def test_more_keys_never_cost_less(slots):
    walls = [billed([plan("raw", count)], slots=slots).wall.median for count in range(1, 30)]
    assert walls == sorted(walls)


def test_assets_of_a_state_are_priced_with_those_that_share_their_runs():
    raw = asset("raw", days(4))
    daily = asset("daily", days(4), reads={"raw": SAME})
    bill = billed(wanted([raw, daily], request()))
    assert (bill.runs, bill.busy.median) == (4, 4 * (5 + 3 + 3 + 1))


def test_what_waits_is_held_back_while_what_it_waits_for_is_still_being_requested():
    """Dagster requests nothing of an asset in a look in which it requests what the rest of that asset waits for."""
    chain = plan("total", 4, is_chain=True)
    outcome = simulated([chain, plan("report", 4, after=("total",), keys_per_run=None)])
    assert starts(outcome, "total") == [15.0, 45.0, 75.0, 105.0]
    assert [(run.first, run.stop, run.requested_at) for run in outcome.timeline if run.owner == "report"] == [
        (0, 4, 135.0)
    ]


def test_a_chain_that_begins_anew_goes_on_while_its_other_part_is_still_at_work():
    links = plan("total", 8, is_chain=True, keys_per_run=None, breaks=(4, 5, 6), restarts=(5,))
    outcome = simulated([links], later=20.0)
    requested = [(run.first, run.stop, run.requested_at) for run in outcome.timeline]
    # The four are committed at 83, the one beside them at 23.
    assert requested == [(0, 4, 15.0), (5, 6, 15.0), (6, 8, 45.0), (4, 5, 105.0)]


def test_also_what_has_waited_is_cut_where_keys_do_not_follow_each_other():
    assets = [plan("raw", 4, breaks=(2,)), plan("daily", 4, after=("raw",), keys_per_run=None, breaks=(2,))]
    assert ranges(simulated(assets), "daily") == [(0, 2), (2, 4)]


def test_chains_share_a_run_only_while_they_keep_pace():
    raw = plan("raw", 4, keys_per_run=2)
    one = plan("one", 4, after=("raw",), is_chain=True, keys_per_run=2)
    two = replace(one, owner="two", in_run_of="one")
    alike = simulated([raw, one, two])
    assert [run.members for run in alike.timeline if run.owner == "one"] == [("one", "two")] * 2
    # In the run of both at 45 one is committed at 90 and two at 130: the look at 105 finds one alone.
    first, later = {"raw": 1.0, "one": 2.0, "two": 2.0}, {"raw": 1.0, "one": 38.0, "two": 38.0}
    pace = Pace(run_start=5.0, run_end=1.0, first_key=first, next_key=later)
    apart = Simulator([raw, one, two]).run(pace, Terms(slots=None, dequeue_seconds=0.0), in_detail=True)
    assert [(run.members, run.first, run.requested_at) for run in apart.timeline if run.owner != "raw"] == [
        (("one", "two"), 0, 45.0),
        (("one",), 2, 105.0),
        (("two",), 2, 135.0),
    ]
