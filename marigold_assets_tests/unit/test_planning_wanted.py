"""Which partitions a plan builds, which it leaves alone, and why."""

from __future__ import annotations

from dataclasses import replace

import pytest

from marigold_assets.errors import ConfigurationError
from marigold_assets.planning.model import PlannedKey, Reason
from marigold_assets.planning.states import AssetState, Reads, Through, Verdict
from marigold_assets.planning.wanted import wanted
from marigold_assets_tests.unit.planning_states import (
    SAME,
    STALE,
    all_of,
    asset,
    days,
    planned,
    request,
    shifted,
    skipped,
)

KEYS = days(6)
D1, D2, D3, D4, D5, D6 = KEYS


def all_alike(keys, reason):
    return dict.fromkeys(keys, reason)


def only(states, **values):
    (one,) = wanted(states, request(**values))
    return one


def test_what_was_never_built_is_missing_and_what_is_current_is_left_alone():
    raw = asset("raw", KEYS, wanted=KEYS[:4], built={D1, D3})
    assert planned([raw]) == {"raw": all_alike((D2, D4), "MISSING")}
    assert skipped([raw]) == {"raw": all_alike((D1, D3), "CURRENT")}


def test_four_stale_of_thirty_are_planned_and_the_others_told():
    keys = days(30)
    raw = asset("raw", keys, built=set(keys), verdicts=dict.fromkeys(keys[10:14], STALE))
    one = only([raw])
    assert [(key.key, key.reason.value, key.because) for key in one.keys] == [
        (key, "STALE_CODE", "code 1 -> 2") for key in keys[10:14]
    ]
    assert len(one.skipped) == 26
    assert {key.reason.value for key in one.skipped} == {"CURRENT"}


def test_only_what_is_stale_leaves_out_what_is_missing():
    raw = asset("raw", KEYS, built={D1, D2}, verdicts={D1: STALE})
    assert planned([raw], stale=True) == {"raw": {D1: "STALE_CODE"}}
    assert skipped([raw], stale=True) == {"raw": {D2: "CURRENT"} | all_alike(KEYS[2:], "MISSING")}


def test_accepted_and_unknown_partitions_are_left_alone_unless_restated():
    accepted = Verdict(reason=Reason.STALE_CODE, because="code 1 -> 2", accepted="by nadia: seen")
    raw = asset("raw", KEYS, built=set(KEYS), verdicts={D1: accepted}, unknown={D2: "no ledger entry"})
    assert planned([raw]) == {"raw": {}}
    one = only([raw])
    assert [(key.key, key.reason.value, key.because) for key in one.skipped[:2]] == [
        (D1, "ACCEPTED", "code 1 -> 2, accepted: by nadia: seen"),
        (D2, "UNKNOWN", "no ledger entry"),
    ]
    assert planned([raw], restate=True) == {"raw": all_alike(KEYS, "RESTATEMENT")}


def test_restating_keeps_the_reasons_that_hold_anyway():
    raw = asset("raw", KEYS, built={D1, D2, D3}, wanted=KEYS[:4], verdicts={D2: STALE})
    assert planned([raw], restate=True) == {
        "raw": {D1: "RESTATEMENT", D2: "STALE_CODE", D3: "RESTATEMENT", D4: "MISSING"}
    }


def test_what_is_built_makes_stale_what_reads_it():
    raw = asset("raw", KEYS, built={D1, D2, D3, D5}, verdicts={D2: STALE})
    daily = asset("daily", KEYS, built={D1, D2, D3, D4}, reads={"raw": SAME})
    report = asset("report", KEYS, built=set(KEYS), reads={"daily": SAME})
    assert planned([report, daily, raw]) == {
        "raw": {D2: "STALE_CODE", D4: "MISSING", D6: "MISSING"},
        "daily": {D2: "STALE_INPUT", D4: "STALE_INPUT", D5: "MISSING", D6: "MISSING"},
        "report": {D2: "STALE_INPUT", D4: "STALE_INPUT", D5: "STALE_INPUT", D6: "STALE_INPUT"},
    }
    plans = {one.owner: one for one in wanted([report, daily, raw], request())}
    assert list(plans) == ["raw", "daily", "report"]
    assert [key.because for key in plans["daily"].keys[:2]] == [f"raw[{D2}] is rebuilt", f"raw[{D4}] is built"]


def test_along_a_chain_everything_behind_is_stale():
    chain = asset("total", KEYS, built=set(KEYS), verdicts={D3: STALE}, chain=True)
    assert planned([chain]) == {"total": {D3: "STALE_CODE"} | all_alike(KEYS[3:], "STALE_INPUT")}


SEEN = Verdict(reason=Reason.STALE_CODE, because="code 1 -> 2", accepted="by nadia: seen")


@pytest.mark.parametrize(
    "known",
    [
        {"verdicts": {D2: STALE, D4: SEEN}},
        {"verdicts": {D2: STALE}, "unknown": {D4: "no entry"}},
    ],
    ids=["accepted", "unknown"],
)
def test_what_was_accepted_or_cannot_be_judged_is_taken_along_where_its_input_is_rebuilt(known):
    one = only([asset("total", KEYS, built=set(KEYS), chain=True, **known)])
    assert [key.key for key in one.keys] == list(KEYS[1:])
    assert one.keys[2] == PlannedKey(key=D4, reason=Reason.STALE_INPUT, because=f"total[{D3}] is rebuilt")


def test_beyond_the_end_what_becomes_stale_is_counted_and_how_to_take_it_along_is_told():
    chain = asset("total", KEYS, wanted=(D2, D3), built=set(KEYS[:5]), verdicts={D2: STALE}, chain=True)
    one = only([chain])
    assert [key.key for key in one.keys] == [D2, D3]
    assert one.notes == (
        f"2 more partitions of total, {D4} to {D5}, become stale through this plan; to include them, plan to {D5}",
    )


def test_nothing_becomes_stale_beyond_the_end_of_independent_days():
    raw = asset("raw", KEYS, wanted=(D2,), built=set(KEYS), verdicts={D2: STALE})
    daily = asset("daily", KEYS, wanted=(D2,), built=set(KEYS), reads={"raw": SAME})
    assert [one.notes for one in wanted([raw, daily], request())] == [(), ()]


def test_what_lies_between_and_is_not_in_the_plan_is_named():
    raw = asset("raw", KEYS, built=set(KEYS), verdicts={D2: STALE})
    daily = asset("daily", KEYS, built=set(KEYS), reads={"raw": SAME}, wanted=())
    report = asset("report", KEYS, built=set(KEYS), reads={"daily": SAME})
    plans = {one.owner: one for one in wanted([raw, daily, report], request())}
    assert plans["report"].keys == ()
    assert plans["report"].notes == (f"daily[{D2}] is not in this plan, and becomes stale through it",)


def test_what_lacks_an_input_is_blocked_and_so_is_what_reads_it():
    raw = asset("raw", KEYS, wanted=(), built={D1, D3})
    daily = asset("daily", KEYS, wanted=KEYS[:3], reads={"raw": SAME})
    report = asset("report", KEYS, wanted=KEYS[:3], reads={"daily": SAME})
    assert planned([raw, daily, report]) == {
        "daily": {D1: "MISSING", D3: "MISSING"},
        "report": {D1: "MISSING", D3: "MISSING"},
    }
    first, second = (one.skipped[0] for one in wanted([raw, daily, report], request()))
    cause = f"raw[{D2}] does not exist, and is not in this plan"
    assert (first.reason.value, first.because) == ("BLOCKED", cause)
    assert (second.reason.value, second.because) == (
        "BLOCKED",
        f"daily[{D2}] does not exist and cannot be built: {cause}",
    )


def test_a_chain_is_blocked_from_the_gap_on_and_names_the_cause_not_the_whole_way():
    raw = asset("raw", KEYS, wanted=(), built={D1, D3, D4, D5, D6})
    chain = asset("total", KEYS, reads={"raw": SAME}, chain=True)
    one = only([raw, chain])
    assert [key.key for key in one.keys] == [D1]
    assert [key.key for key in one.skipped] == list(KEYS[1:])
    assert one.skipped[-1].because == (
        f"total[{D5}] does not exist and cannot be built: raw[{D2}] does not exist, and is not in this plan"
    )


def test_an_input_that_its_definition_does_not_have_is_called_so():
    raw = asset("raw", KEYS[:5])
    daily = asset("daily", KEYS, reads={"raw": shifted(KEYS, +1)})
    late = asset("late", KEYS, reads={"raw": SAME})
    plans = {one.owner: one for one in wanted([raw, daily, late], request())}
    assert [(key.key, key.because) for key in plans["late"].skipped] == [
        (D6, f"raw[{D6}] does not exist, and its definition has none")
    ]
    assert [key.key for key in plans["daily"].skipped] == [D5]


def test_what_may_be_absent_blocks_nothing():
    raw = asset("raw", KEYS, wanted=(), built=set())
    daily = asset("daily", KEYS, reads={"raw": replace(SAME, is_required=False)})
    assert planned([raw, daily]) == {"daily": all_alike(KEYS, "MISSING")}


def test_stale_partitions_without_their_inputs_are_blocked_too_but_remain_inputs():
    raw = asset("raw", KEYS, wanted=(), built={D1})
    daily = asset("daily", KEYS, wanted=(D1, D2), built={D1, D2}, verdicts={D2: STALE}, reads={"raw": SAME})
    report = asset("report", KEYS, wanted=(D2,), reads={"daily": SAME})
    assert skipped([raw, daily, report]) == {"daily": {D1: "CURRENT", D2: "BLOCKED"}, "report": {}}


def test_looking_back_computes_again_what_precedes_a_missing_day_even_before_the_range():
    raw = asset("raw", KEYS, wanted=KEYS[3:], built={D1, D2, D3, D5}, lookback=1)
    assert planned([raw]) == {"raw": {D3: "LOOKBACK", D4: "MISSING", D5: "LOOKBACK", D6: "MISSING"}}
    assert planned([raw], lookback=2) == {
        "raw": {D2: "LOOKBACK", D3: "LOOKBACK", D4: "MISSING", D5: "LOOKBACK", D6: "MISSING"}
    }
    assert only([raw]).keys[0].because == f"precedes {D4}, which is missing"


def test_looking_back_passes_over_what_was_never_built_and_does_not_follow_what_is_stale():
    raw = asset("raw", KEYS, wanted=(D4, D6), built={D1, D3, D5, D6}, verdicts={D6: STALE})
    assert planned([raw], lookback=3) == {"raw": {D1: "LOOKBACK", D3: "LOOKBACK", D4: "MISSING", D6: "STALE_CODE"}}


def test_looking_back_passes_over_what_nobody_may_touch():
    accepted = replace(STALE, accepted="by nadia: seen")
    raw = asset("raw", KEYS, wanted=(D4,), built={D1, D2, D3}, verdicts={D3: accepted}, unknown={D2: "no entry"})
    assert planned([raw], lookback=3) == {"raw": {D1: "LOOKBACK", D4: "MISSING"}}


def test_what_is_built_upon_a_lookback_comes_along_before_the_range():
    raw = asset("raw", KEYS, wanted=KEYS[3:], built=set(KEYS[:3]), lookback=2)
    total = asset("total", KEYS, wanted=KEYS[3:], built=set(KEYS[:3]), reads={"raw": SAME}, chain=True)
    assert planned([raw, total]) == {
        "raw": {D2: "LOOKBACK", D3: "LOOKBACK"} | all_alike(KEYS[3:], "MISSING"),
        "total": {D2: "STALE_INPUT", D3: "STALE_INPUT"} | all_alike(KEYS[3:], "MISSING"),
    }


def test_a_chain_that_would_be_built_upon_a_stale_past_says_so():
    chain = asset("total", KEYS, wanted=KEYS[3:], built=set(KEYS[:3]), verdicts={D3: STALE}, chain=True)
    (note,) = only([chain]).notes
    assert note.startswith(f"total[{D4}] is built upon total[{D3}], which is not in this plan though it is stale")


THROUGH = Through(owner="total", because=f"total[{D1}]", origin=f"raw[{D1}]")


def test_what_is_stale_through_what_is_not_built_is_left_as_stale_and_built_with_what_it_reads():
    known = {"built": set(KEYS), "stale_through": {D2: THROUGH, D3: THROUGH}, "chain": True}
    one = only([asset("total", KEYS, wanted=KEYS[1:], **known)])
    assert [(key.key, key.reason.value) for key in one.skipped[:3]] == [(D2, "STALE"), (D3, "STALE"), (D4, "CURRENT")]
    assert one.skipped[0].because == f"stale only through total[{D1}], which this plan does not build"
    accepted = {D2: replace(STALE, accepted="by nadia: seen"), D4: replace(STALE, accepted="by nadia: seen")}
    assert skipped([asset("total", KEYS, wanted=KEYS[1:4], verdicts=accepted, **known)]) == {
        "total": {D2: "STALE", D3: "STALE", D4: "ACCEPTED"}
    }
    assert planned([asset("total", KEYS, verdicts={D1: STALE}, **known)]) == {
        "total": {D1: "STALE_CODE"} | all_alike(KEYS[1:], "STALE_INPUT")
    }
    assert planned([asset("total", KEYS, wanted=(D2,), **known)], restate=True) == {"total": {D2: "RESTATEMENT"}}


def test_what_is_built_upon_what_is_stale_and_stays_so_says_from_where_on_to_mend_it():
    known = {"verdicts": {D2: STALE}, "stale_through": {D3: THROUGH}}
    chain = asset("total", KEYS, wanted=KEYS[3:], built=set(KEYS[:3]), chain=True, **known)
    (note,) = only([chain]).notes
    assert note == (
        f"total[{D4}] is built upon total[{D3}], which is not in this plan though it is stale (raw[{D1}] was restated):"
        f" runs tell of that in their log, and refuse it if strict; to mend it, begin with {D2}"
    )
    read = asset("total", KEYS, wanted=(), built=set(KEYS), stale_through={D3: THROUGH})
    daily = asset("daily", KEYS, reads={"total": SAME})
    (note,) = only([read, daily]).notes
    assert note == (
        f"daily[{D3}] is built upon total[{D3}], which is not in this plan though it is stale (raw[{D1}] was restated),"
        " and becomes stale with it; plan total as well"
    )
    assert only([read, replace(daily, wanted=KEYS[3:])]).notes == ()


def test_an_asset_without_partitions_reads_all_of_another():
    raw = asset("raw", KEYS, wanted=(D6,), built=set(KEYS[:5]))
    report = AssetState(owner="report", keys=(None,), wanted=(None,), built={None}, reads={"raw": all_of(KEYS)})
    assert planned([report, raw]) == {"raw": {D6: "MISSING"}, "report": {None: "STALE_INPUT"}}
    assert skipped([replace(raw, wanted=(), built=set(KEYS[:5])), replace(report, built=set())]) == {
        "report": {None: "BLOCKED"}
    }


def test_assets_of_which_nothing_is_asked_are_not_in_the_plan():
    assert planned([asset("raw", KEYS, wanted=()), asset("daily", KEYS, wanted=())]) == {}


def test_partitions_asked_for_twice_or_out_of_order_are_planned_once_in_order():
    raw = asset("raw", KEYS, wanted=(D3, D1, D3, D2))
    assert [key.key for key in only([raw]).keys] == [D1, D2, D3]


def test_partitions_that_do_not_exist_and_circles_are_refused():
    with pytest.raises(ConfigurationError, match=r"asset 'raw', partition '2023-12-31': it is asked for.*Remedy"):
        planned([asset("raw", KEYS, wanted=("2023-12-31",))])
    with pytest.raises(ConfigurationError, match=r"in a circle: (a -> b -> a|b -> a -> b)"):
        planned([asset("a", KEYS, reads={"b": SAME}), asset("b", KEYS, reads={"a": SAME})])


def test_an_input_that_is_not_known_is_taken_to_be_there():
    assert planned([asset("daily", KEYS, reads={"elsewhere": SAME})]) == {"daily": all_alike(KEYS, "MISSING")}


def shape(states, **values):
    return {one.owner: (one.after, one.in_run_of) for one in wanted(states, request(**values))}


def test_assets_of_the_same_partitions_share_runs_and_chains_have_their_own():
    raw = asset("raw", KEYS)
    daily = asset("daily", KEYS, reads={"raw": SAME})
    report = asset("report", KEYS, reads={"daily": SAME, "raw": SAME})
    total = asset("total", KEYS, reads={"daily": SAME}, chain=True)
    last = asset("last", KEYS, reads={"total": SAME})
    assert shape([raw, daily, report, total, last]) == {
        "raw": ((), None),
        "daily": (("raw",), "raw"),
        "report": (("raw", "daily"), "raw"),
        "total": (("daily",), None),
        "last": (("total",), None),
    }


@pytest.mark.parametrize(
    "other",
    [
        {"grouping": "hours"},
        {"grouping": None},
        {"keys_per_run": 2},
        {"wanted": KEYS[1:]},
        {"reads": {"raw": shifted(KEYS, 0, -1)}},
    ],
)
def test_what_differs_in_partitions_policy_place_or_mapping_has_runs_of_its_own(other):
    daily = asset("daily", KEYS, **{"reads": {"raw": SAME}, **other})
    assert shape([asset("raw", KEYS), daily])["daily"][1] is None


def test_in_a_single_run_any_mapping_will_do():
    values = {"keys_per_run": None}
    daily = asset("daily", KEYS, reads={"raw": shifted(KEYS, 0, -1)}, **values)
    assert shape([asset("raw", KEYS, **values), daily])["daily"][1] == "raw"


def test_what_waits_for_two_that_run_apart_shares_with_neither():
    chain = asset("total", KEYS, chain=True)
    report = asset("report", KEYS, reads={"raw": SAME, "total": SAME})
    assert shape([asset("raw", KEYS), chain, report])["report"] == (("raw", "total"), None)


def test_assets_that_are_ready_at_the_same_time_share_runs():
    assert shape([asset("raw", KEYS), asset("other", KEYS)])["other"][1] == "raw"
    chains = [asset(owner, KEYS, reads={"raw": SAME}, chain=True) for owner in ("one", "two")]
    assert shape([asset("raw", KEYS), *chains])["two"][1] == "one"


def test_breaks_and_restarts_tell_where_keys_do_not_follow_each_other():
    raw = asset("raw", KEYS, built={D3})
    assert only([raw]).breaks == (2,)
    assert only([asset("raw", KEYS)]).breaks == ()
    asked = KEYS[:2] + KEYS[3:]
    total = asset("total", KEYS, wanted=asked, built={D3}, chain=True)
    assert (only([total]).breaks, only([total]).restarts) == ((2,), (2,))
    weekly = asset("total", KEYS, wanted=asked, built={D3}, reads={"total": shifted(KEYS, -2)})
    assert (only([weekly]).breaks, only([weekly]).restarts) == ((2,), (1,))


def test_spans_tell_which_planned_partitions_are_waited_for():
    raw = asset("raw", KEYS, built={D1, D2})
    window = asset("window", KEYS, wanted=KEYS[2:], reads={"raw": shifted(KEYS, -1, 0)})
    report = AssetState(owner="report", keys=(None,), wanted=(None,), reads={"raw": all_of(KEYS)})
    plans = {one.owner: one for one in wanted([raw, window, report], request())}
    assert plans["window"].spans == {"raw": ((0, 1), (0, 2), (1, 3), (2, 4))}
    assert plans["report"].spans == {"raw": ((0, 4),)}


def test_inputs_are_asked_for_only_where_they_are_not_of_the_same_name():
    asked = []

    def inputs_of(key):
        asked.append(key)
        return (key,)

    daily = asset("daily", KEYS, built={D1}, reads={"raw": Reads(inputs_of=inputs_of, same_keys=True)})
    planned([asset("raw", KEYS), daily])
    assert asked == []
