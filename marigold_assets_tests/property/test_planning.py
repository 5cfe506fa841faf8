"""Whatever stands and whatever is asked for: order, bounds and prices of plans."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from itertools import pairwise

from hypothesis import assume, given
from hypothesis import strategies as st

from marigold_assets.errors import ConfigurationError
from marigold_assets.planning.as_json import from_json, to_json
from marigold_assets.planning.bill import price
from marigold_assets.planning.history import history_of
from marigold_assets.planning.model import AssetHistory, History, Limits, Order, Reason, RunSample, Spread
from marigold_assets.planning.simulation import Pace, Simulator, Terms
from marigold_assets.planning.states import AssetState, Reads, Verdict
from marigold_assets.planning.submitting import submissions
from marigold_assets_tests.unit.planning_states import SAME, all_of, asset, days, plan_of, shifted

KEYS = days(9)
ORDERS = st.sampled_from(Order)
seconds = st.sampled_from([1.0, 4.0, 17.0, 40.0])
chunks = st.sampled_from([1, 1, 2, 3, None])


@st.composite
def readings(draw, names):
    """What an asset reads of those before it."""
    some = draw(st.lists(st.sampled_from(names), unique=True, max_size=2)) if names else []
    kinds = {
        "same": lambda required: replace(SAME, is_required=required),
        "window": lambda required: shifted(KEYS, -1, 0, required=required),
        "later": lambda required: shifted(KEYS, 1, required=required),
        "all": lambda required: all_of(KEYS, required=required),
    }
    return {
        owner: kinds[draw(st.sampled_from(["same", "same", "same", *kinds]))](draw(st.booleans())) for owner in some
    }


@st.composite
def standings(draw):
    """Assets that read each other, each with some partitions built, some stale, some accepted, some unknown."""
    states = []
    for owner in "abcd"[: draw(st.integers(1, 4))]:
        reads = draw(readings([one.owner for one in states]))
        offsets = draw(st.sampled_from([None, None, (-1,), (-2, -1), (-3,)]))
        if offsets is not None:
            reads[owner] = shifted(KEYS, *offsets, required=draw(st.booleans()))
        built = draw(st.sets(st.sampled_from(KEYS)))
        verdicts, unknown = {}, {}
        for key in sorted(built):
            how = draw(st.sampled_from(["fine", "fine", "code", "input", "accepted", "unknown"]))
            if how == "unknown":
                unknown[key] = "no entry"
            elif how != "fine":
                reason = Reason.STALE_INPUT if how == "input" else Reason.STALE_CODE
                accepted = "by nadia" if how == "accepted" else None
                verdicts[key] = Verdict(reason=reason, because=how, accepted=accepted)
        first, last = sorted(draw(st.tuples(st.integers(0, 9), st.integers(0, 9))))
        states.append(
            asset(
                owner,
                KEYS,
                reads=reads,
                wanted=KEYS[first:last],
                built=built,
                verdicts=verdicts,
                unknown=unknown,
                keys_per_run=draw(chunks),
                grouping=draw(st.sampled_from(["x", "x", None])),
                lookback=draw(st.sampled_from([0, 0, 2])),
            )
        )
    if draw(st.booleans()):
        read = states[0].owner
        reads = {read: Reads(inputs_of=lambda key: KEYS)}
        states.append(AssetState(owner="z", keys=(None,), wanted=(None,), reads=reads, grouping=None))
    return states


@st.composite
def plans(draw):
    states = draw(standings())
    values = {"restate": draw(st.booleans()), "stale": draw(st.booleans()), "lookback": draw(st.integers(0, 2))}
    return states, plan_of(states, **values)


@st.composite
def paces(draw, owners):
    return Pace(
        run_start=draw(seconds),
        run_end=draw(seconds),
        first_key={owner: draw(seconds) for owner in owners},
        next_key={owner: draw(seconds) for owner in owners},
    )


def inputs(states):
    """Of every partition, by asset: what it reads of which asset."""
    return {one.owner: {owner: reads.inputs_of for owner, reads in one.reads.items()} for one in states}


@given(made=plans())
def test_every_partition_asked_for_is_planned_or_skipped_exactly_once(made):
    states, plan = made
    assert sorted(one.owner for one in plan.assets) == sorted(one.owner for one in states if one.wanted)
    for one in plan.assets:
        (state,) = (state for state in states if state.owner == one.owner)
        counted = Counter(key.key for key in (*one.keys, *one.skipped))
        assert set(counted.values()) <= {1}
        assert set(state.wanted) <= set(counted)
        assert {key.key for key in one.skipped} <= set(state.wanted)
        for keys in (one.keys, one.skipped):
            places = [state.keys.index(key.key) for key in keys]
            assert places == sorted(places)


@given(made=plans())
def test_what_is_planned_has_its_inputs_and_what_reads_it_is_planned_or_left_for_a_reason(made):
    states, plan = made
    by_owner = {state.owner: state for state in states}
    planned = {one.owner: {key.key for key in one.keys} for one in plan.assets}
    for one in plan.assets:
        state = by_owner[one.owner]
        for owner, reads in state.reads.items():
            there = set(by_owner[owner].built) | planned.get(owner, set())
            for key in planned[one.owner]:
                assert not reads.is_required or set(reads.inputs_of(key)) <= there
            for key in one.skipped:
                if set(reads.inputs_of(key.key)) & planned.get(owner, set()):
                    assert key.reason.value in {"ACCEPTED", "UNKNOWN", "BLOCKED", "MISSING"}


@given(made=plans(), data=st.data())
def test_in_the_simulation_no_partition_is_begun_before_its_inputs_are_committed(made, data):
    states, plan = made
    owners = [one.owner for one in plan.assets]
    slots, tick = data.draw(st.sampled_from([1, 2, 3, None])), data.draw(st.sampled_from([0.0, 30.0]))
    terms = Terms(slots=slots, tick_seconds=tick)
    outcome = Simulator(plan.assets).run(data.draw(paces(owners)), terms, in_detail=True)
    by_owner = {one.owner: one for one in plan.assets}
    committed = {
        (owner, key.key): at
        for owner, commits in outcome.commits.items()
        for key, at in zip(by_owner[owner].keys, commits, strict=True)
    }
    assert len(committed) == plan.size
    assert outcome.wall == max(committed.values(), default=0.0)
    runs = {
        (owner, by_owner[owner].keys[at].key): run
        for run in outcome.timeline
        for owner in run.members
        for at in range(run.first, run.stop)
    }
    assert len(runs) == plan.size
    read = inputs(states)
    for (owner, key), run in runs.items():
        for other, inputs_of in read[owner].items():
            for one in inputs_of(key):
                if (other, one) in committed:
                    before = committed[other, one]
                    # Of the same run it is built before, of another one it is committed before this one is requested.
                    assert before <= run.requested_at or (runs[other, one] is run and before <= committed[owner, key])


@given(made=plans(), data=st.data())
def test_in_the_simulation_the_bound_is_never_exceeded_and_every_run_is_a_contiguous_chunk(made, data):
    states, plan = made
    slots = data.draw(st.integers(1, 3))
    pace = data.draw(paces([one.owner for one in plan.assets]))
    outcome = Simulator(plan.assets).run(pace, Terms(slots=slots), in_detail=True)
    edges = sorted(
        [(run.launched_at, 1) for run in outcome.timeline] + [(run.ended_at, -1) for run in outcome.timeline]
    )
    running = 0
    for _, step in edges:
        running += step
        assert running <= slots
    by_owner = {one.owner: one for one in plan.assets}
    places = {state.owner: {key: number for number, key in enumerate(state.keys)} for state in states}
    for run in outcome.timeline:
        one = by_owner[run.owner]
        numbers = [places[run.owner][key.key] for key in one.keys[run.first : run.stop]]
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
        assert one.keys_per_run is None or len(numbers) <= one.keys_per_run
        assert run.ended_at - run.launched_at > 0
    assert outcome.runs == len(outcome.timeline)
    assert abs(outcome.busy - sum(run.ended_at - run.launched_at for run in outcome.timeline)) < 1e-6
    assert outcome.peak <= slots


@st.composite
def histories(draw):
    def spread():
        median = draw(seconds)
        return Spread(median=median, p90=median * draw(st.sampled_from([1.0, 3.0])), count=9)

    assets = {owner: AssetHistory(first_key=spread(), next_key=spread()) for owner in "abc"}
    return History(run_start=spread(), run_end=spread(), assets=assets)


@given(made=plans(), history=histories())
def test_one_slot_more_never_costs_more(made, history):
    _, plan = made
    bills = [price(plan.assets, Limits(slots=slots), history) for slots in (1, 2, 3, 4, 5)]
    for fewer, more in pairwise(bills):
        assert more.wall.median <= fewer.wall.median
        assert more.wall.p90 <= fewer.wall.p90
        assert abs(fewer.wall.median - more.wall.median - fewer.one_more_slot) < 1e-6


@given(made=plans(), history=histories(), slots=st.sampled_from([1, 2, 4, None]))
def test_prices_make_sense(made, history, slots):
    _, plan = made
    bill = price(plan.assets, Limits(slots=slots), history)
    assert 0 <= bill.critical_path <= bill.wall.median <= bill.wall.p90
    assert bill.busy.median <= bill.busy.p90
    assert (bill.wall.median > 0) is (not plan.is_empty)
    for saved in (bill.saved_by_slots, bill.saved_by_ticks, bill.saved_by_starts, bill.ordering_costs):
        assert 0 <= saved <= bill.wall.median
    assert bill.one_more_slot <= bill.saved_by_slots + 1e-6 or bill.saved_by_slots == 0
    assert set(bill.assumed) <= {"d", "z"}


@given(made=plans())
def test_a_plan_survives_json_exactly(made):
    _, plan = made
    assert from_json(json.loads(json.dumps(to_json(plan)))) == plan


@given(made=plans(), order=ORDERS, canary=st.integers(0, 4))
def test_submissions_build_exactly_what_the_plan_does_and_canaries_need_nothing_of_the_others(made, order, canary):
    states, plan = made
    plan = replace(plan, request=replace(plan.request, order=order))
    try:
        found = submissions(plan, canary=canary)
    except ConfigurationError:
        assume(False)
    built = Counter((owner, key) for one in found for owner, keys in one.keys.items() for key in keys)
    assert built == Counter((one.owner, key.key) for one in plan.assets for key in one.keys)
    assert [one.number for one in found] == list(range(len(found)))
    priorities = [one.priority for one in found]
    assert all(one < 0 for one in priorities)
    assert priorities == sorted(set(priorities), reverse=True)
    assert all(one.size for one in found)
    canaries = [one for one in found if one.is_canary]
    assert canaries == list(found[: len(canaries)])
    read = inputs(states)
    for one in canaries:
        assert canary > 0
        assert all(len(keys) <= canary for keys in one.keys.values())
        mine = {(owner, key) for owner, keys in one.keys.items() for key in keys}
        for owner, key in mine:
            for other, inputs_of in read[owner].items():
                for each in inputs_of(key):
                    assert (other, each) not in built or (other, each) in mine


@given(
    durations=st.lists(st.floats(1.0, 1.4), min_size=10, max_size=30),
    factor=st.floats(5.0, 100.0),
)
def test_one_run_that_takes_long_moves_no_price(durations, factor):
    def median_and_p90(some):
        samples = [
            RunSample(launched_at=0.0, started_at=1.0, ended_at=2.0 + one, swaps={"a": (1.0 + one,)}) for one in some
        ]
        first = plan_history(samples).first_key
        return first.median, first.p90

    usual = median_and_p90(durations)
    moved = median_and_p90([*durations, factor * 2])
    assert abs(moved[0] - usual[0]) <= 0.4
    assert moved[1] <= 1.5 * max(durations) + 1e-9  # of one occasion, which shows less than there is


def plan_history(samples):
    return history_of(samples).assets["a"]
