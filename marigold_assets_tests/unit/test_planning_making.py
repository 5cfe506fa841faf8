"""Plans as they are made, compared, saved and cut into backfills."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest

from marigold_assets.errors import ConfigurationError
from marigold_assets.planning.as_json import from_json, to_json
from marigold_assets.planning.making import changed
from marigold_assets.planning.model import Order, Reason
from marigold_assets.planning.states import AssetState, Verdict
from marigold_assets.planning.submitting import submissions
from marigold_assets_tests.unit.planning_states import NOW, SAME, STALE, all_of, asset, days, plan_of, shifted

KEYS = days(6)
D1, D2, D3, D4, D5, D6 = KEYS


def market(count, **values):
    """Independent days, a chain and what reads all of it."""
    keys = days(count)
    return [
        asset("raw", keys, **values),
        asset("daily", keys, reads={"raw": SAME}, **values),
        asset("total", keys, reads={"daily": SAME}, chain=True, **values),
        AssetState(owner="report", keys=(None,), wanted=(None,), reads={"total": all_of(keys)}),
    ]


def test_a_plan_names_where_the_ledger_was_and_what_it_costs():
    plan = plan_of(market(6))
    assert plan.positions == {"raw": 7, "daily": 7, "total": 7, "report": 7}
    assert (plan.size, plan.is_empty, plan.made_at) == (19, False, NOW)
    assert plan.bill.runs == 6 + 6 + 1
    assert plan_of([asset("raw", KEYS, built=set(KEYS))]).is_empty


def test_two_plans_of_the_same_do_not_differ():
    assert changed(plan_of(market(6)), plan_of(market(6), made_at=NOW + timedelta(hours=1))) is None


def test_what_has_changed_is_told_in_words():
    before = plan_of([asset("raw", KEYS)])
    assert changed(before, plan_of([asset("raw", KEYS, built={D2})])) == f"raw[{D2}] is not to be built any more"
    assert changed(before, plan_of([asset("raw", KEYS, built=set(KEYS))])) == "nothing of raw is to be built any more"
    assert changed(plan_of([asset("raw", KEYS, built={D2, D3})]), before) == (
        f"raw[{D2}], raw[{D3}] are to be built as well"
    )
    stale = plan_of([asset("raw", KEYS, built={D2}, verdicts={D2: STALE})])
    assert changed(before, stale) == f"raw[{D2}] is STALE_CODE instead of MISSING"
    assert changed(before, plan_of([asset("raw", KEYS, keys_per_run=2)])) == "raw is built in other runs"
    assert changed(plan_of([]), before) == f"raw[{D1}], raw[{D2}], raw[{D3}] and 3 more are to be built as well"


def test_a_plan_of_code_that_changed_again_or_of_other_runs_is_another_one():
    def stale(because, **values):
        verdicts = dict.fromkeys(KEYS, Verdict(reason=Reason.STALE_CODE, because=because))
        return plan_of([asset("raw", KEYS, built=set(KEYS), verdicts=verdicts, **values)])

    told = changed(stale("code 1 -> 2"), stale("code 1 -> 3"))
    assert told.endswith("3 more are STALE_CODE (code 1 -> 3) instead of STALE_CODE (code 1 -> 2)")
    assert changed(stale("x", code="1"), stale("x", code="2")) == "raw is built by other code: 2, not 1"
    missing = plan_of([asset("raw", KEYS, code="1")])
    assert changed(missing, plan_of([asset("raw", KEYS, code="2")])) == "raw is built by other code: 2, not 1"
    assert changed(missing, plan_of([asset("raw", KEYS)])) == "raw is built by other code: unknown, not 1"
    first, second = (plan_of([asset("raw", KEYS, code="1", fingerprint=one)]) for one in ("cf2:a", "cf2:b"))
    assert changed(first, second) == "raw is built by code that was not the same, though it is still called 1"
    first, second = (plan_of([asset("raw", KEYS, fingerprint=one)]) for one in ("cf2:a", "cf2:b"))
    assert changed(first, second) == "raw is built by code that was not the same"
    assert changed(missing, first) is not None
    assert changed(first, first) is None


def test_a_plan_whose_partitions_wait_for_others_is_another_one():
    def daily(reads=None, **values):
        return plan_of([asset("raw", KEYS), asset("daily", KEYS, reads=reads or {"raw": SAME}, **values)])

    assert daily().assets[1].in_run_of == "raw"
    assert changed(daily(), daily(grouping="others")) == "daily is built in other runs"
    window = {"raw": shifted(KEYS, -1, 0)}
    assert changed(daily(window), daily({"raw": shifted(KEYS, -2, 0)})) == (
        "daily is built in other runs, or in another order"
    )
    assert changed(daily(window), daily(window)) is None


def keys_of(some):
    return [{owner: list(keys) for owner, keys in one.keys.items()} for one in some]


def test_a_plan_is_one_backfill_below_production():
    (one,) = submissions(plan_of(market(3), first=D1, last=D3))
    assert one.keys == {"raw": days(3), "daily": days(3), "total": days(3), "report": (None,)}
    assert one.priority < 0
    assert one.title == f"marigold: everything, {D1} to {D3}"
    assert not one.is_canary


@pytest.mark.parametrize(
    ("selection", "said"),
    [
        ("*", "everything"),
        ("daily_sales*", "daily_sales and all downstream"),
        ("*shop/orders", "shop/orders and all upstream"),
        ("*shop/orders*", "shop/orders and all upstream and downstream"),
        ("+orders*", "+orders and all downstream"),
        ("++orders+", "++orders+"),
        ('key:"shop/orders"+ or group:till', "key:shop/orders+ or group:till"),
        ('key:"shop/*"', "key:shop/..."),
    ],
)
def test_titles_say_in_words_what_dagster_does_not_take(selection, said):
    plan = plan_of([asset("raw", KEYS)])
    (one,) = submissions(replace(plan, request=replace(plan.request, selection=selection)))
    assert one.title == f"marigold: {said}"


def test_nothing_to_do_is_no_backfill():
    plan = plan_of([asset("raw", KEYS, built=set(KEYS))])
    assert submissions(plan) == submissions(plan, canary=3) == ()


def test_the_newest_come_first_through_backfills_of_falling_priority():
    plan = plan_of([asset("raw", KEYS), asset("daily", KEYS, reads={"raw": SAME})], order=Order.NEWEST_FIRST)
    found = submissions(plan)
    assert keys_of(found) == [{"raw": [key], "daily": [key]} for key in reversed(KEYS)]
    assert [one.priority for one in found] == [-1, -2, -3, -4, -5, -6]
    assert found[0].title.endswith("(1 of 6)")


def test_there_are_at_most_so_many_backfills_and_none_cuts_a_run():
    keys = days(1000)
    plan = plan_of([asset("raw", keys, keys_per_run=3, built={keys[500]})], order=Order.NEWEST_FIRST)
    found = submissions(plan)
    assert len(found) == 32
    flat = [key for one in found for key in one.keys["raw"]]
    assert sorted(flat) == sorted(set(keys) - {keys[500]})
    newest = [max(one.keys["raw"]) for one in found]
    assert newest == sorted(newest, reverse=True)
    for one in found[:15]:  # of what follows the break: whole runs of three, counted from there
        assert all((keys.index(key) - 501) % 3 == at % 3 for at, key in enumerate(one.keys["raw"]))


@pytest.mark.parametrize(
    ("states", "why"),
    [
        ([asset("total", KEYS, chain=True)], "asset 'total': its partitions are built one upon the other"),
        (
            [asset("raw", KEYS), asset("daily", KEYS, reads={"raw": SAME}, keys_per_run=2)],
            "asset 'daily': it waits for raw in this plan",
        ),
    ],
)
def test_the_newest_cannot_come_first_where_they_wait_for_others(states, why):
    with pytest.raises(ConfigurationError, match=why):
        plan_of(states, order=Order.NEWEST_FIRST)
    plan = plan_of(states)
    other = replace(plan, request=replace(plan.request, order=Order.NEWEST_FIRST))
    with pytest.raises(ConfigurationError, match=why):
        submissions(other)


def test_what_waits_for_nothing_that_is_planned_may_come_newest_first():
    chain = asset("total", KEYS, built=set(KEYS[:5]), chain=True)
    daily = asset("daily", KEYS, reads={"raw": SAME}, keys_per_run=2)
    plan = plan_of([asset("raw", KEYS, built=set(KEYS), wanted=()), daily, chain], order=Order.NEWEST_FIRST)
    assert keys_of(submissions(plan))[0] == {"daily": [D5, D6], "total": [D6]}


def test_canaries_are_spread_over_the_range_and_go_first_alone():
    keys = days(100)
    plan = plan_of([asset("raw", keys), asset("daily", keys, reads={"raw": SAME})])
    first, rest = submissions(plan, canary=3)
    assert first.is_canary
    assert not rest.is_canary
    assert first.keys == {"raw": (keys[0], keys[50], keys[99]), "daily": (keys[0], keys[50], keys[99])}
    assert first.title.endswith("(canary)")
    assert first.priority > rest.priority
    assert first.size + rest.size == plan.size


def test_canaries_are_of_every_reason():
    keys = days(100)
    raw = asset("raw", keys, built=set(keys[:97]), verdicts=dict.fromkeys(keys[:97], STALE))
    raw = replace(raw, verdicts={**raw.verdicts, keys[40]: Verdict(reason=Reason.STALE_INPUT, because="x changed")})
    first = submissions(plan_of([raw]), canary=3)[0]
    reasons = {one.key: one.reason for one in plan_of([raw]).assets[0].keys}
    assert {reasons[key] for key in first.keys["raw"]} == {Reason.MISSING, Reason.STALE_CODE, Reason.STALE_INPUT}
    assert len(submissions(plan_of([raw]), canary=1)[0].keys["raw"]) == 1


def test_with_a_chain_the_first_ones_are_canaries_and_nothing_waits_for_the_others():
    first, rest = submissions(plan_of(market(10)), canary=2)
    assert first.keys == {"raw": days(2), "daily": days(2), "total": days(2)}
    assert rest.keys["report"] == (None,)


def test_canaries_read_no_input_that_is_left_to_the_others():
    keys = days(10)
    window = asset("window", keys, reads={"raw": shifted(keys, -1, 0)}, keys_per_run=2)
    first, _ = submissions(plan_of([asset("raw", keys), window]), canary=3)
    assert first.keys["window"] == (keys[0],)


def test_as_many_canaries_as_partitions_leave_nothing():
    (one,) = submissions(plan_of([asset("raw", KEYS)]), canary=10)
    assert one.is_canary
    assert one.size == 6


def test_a_plan_survives_json_exactly():
    keys = days(20)
    accepted = replace(STALE, accepted="by nadia: seen")
    verdicts = {keys[1]: STALE, keys[3]: accepted}
    raw = asset("raw", keys, built=set(keys[:9]), verdicts=verdicts, lookback=1, fingerprint="cf2:a")
    late = asset("late", keys, wanted=keys[4:], built={keys[4]}, reads={"far": SAME}, chain=True)
    window = asset("window", keys, reads={"raw": shifted(keys, -1, 0)}, notes=("slow",))
    states = [asset("far", keys, wanted=(), is_selected=False), late, raw, window, *market(3)[1:]]
    plan = plan_of(
        states, first=keys[0], restate=False, made_at=datetime(2026, 1, 1, 2, tzinfo=timezone(timedelta(hours=2)))
    )
    again = from_json(json.loads(json.dumps(to_json(plan))))
    assert again == plan
    assert any(one.lacks for one in plan.assets)
    assert any(one.fingerprint for one in plan.assets)
    assert changed(plan, again) is None


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ([], "This is no plan"),
        ({"version": 1}, "This is no plan"),
        ({"format": "marigold/plan", "version": 99}, "has format 99"),
        ({"format": "marigold/plan", "version": 1}, "has format 1, and this release reads 2"),
        ({"format": "marigold/plan", "version": 2}, "The plan is damaged"),
    ],
)
def test_what_is_no_plan_is_refused(values, why):
    with pytest.raises(ConfigurationError, match=why):
        from_json(values)


def test_a_damaged_plan_is_refused():
    values = json.loads(json.dumps(to_json(plan_of(market(3)))))
    for change in ({"made_at": "2026-01-01"}, {"assets": [{}]}, {"request": None}, {"bill": {"wall": 1}}):
        with pytest.raises(ConfigurationError, match="damaged"):
            from_json({**values, **change})


def places(values, path=()):
    """Every place in JSON values, by the way there."""
    yield path
    some = values.items() if isinstance(values, dict) else enumerate(values) if isinstance(values, list) else ()
    for name, one in some:
        yield from places(one, (*path, name))


def at(values, path, new):
    """The same values with another one at a place."""
    if not path:
        return new
    some = dict(values) if isinstance(values, dict) else list(values)
    some[path[0]] = at(some[path[0]], path[1:], new)
    return some


WRONG = ("three", 3, -1, 1.5, float("nan"), True, None, [], {}, [["x"]], {"x": {}})


def test_whatever_is_wrong_in_a_plan_is_refused_or_makes_no_difference_to_its_types():
    keys = days(4)
    window = asset("window", keys, reads={"raw": shifted(keys, -1, 0)}, keys_per_run=2, built={keys[1]})
    late = asset("late", keys, wanted=keys[2:], chain=True)
    values = json.loads(json.dumps(to_json(plan_of([asset("raw", keys), window, late, *market(2)[2:]]))))
    paths = list(places(values))
    assert len(paths) > 100
    refused = 0
    for path in paths:
        for wrong in WRONG:
            try:
                plan = from_json(at(values, path, wrong))
            except ConfigurationError:
                refused += 1
                continue
            json.dumps(to_json(plan), allow_nan=False)
            if plan.assets and not plan.is_empty:
                submissions(plan, canary=1)
    assert refused > len(paths) * len(WRONG) / 2


@pytest.mark.parametrize(
    ("path", "wrong", "why"),
    [
        (("request", "lookback"), "3", "lookback is '3'"),
        (("request", "lookback"), -3, "lookback is -3"),
        (("request", "restate"), 1, "restate is 1"),
        (("request", "selection"), " ", "selection is empty"),
        (("made_at",), "0001-01-01T00:00:00+23:59", "OverflowError"),
        (("bill", "wall", "median"), "60", "wall.median is '60'"),
        (("bill", "wall", "p90"), float("inf"), "wall.p90 is inf"),
        (("bill", "busy"), {"median": 1.0}, "missing 1 required"),
        (("bill", "limits", "slots"), -1, "slots is below"),
        (("assets", 0, "keys_per_run"), "5", "keys_per_run is '5'"),
        (("assets", 0, "keys_per_run"), 0, "keys_per_run is 0"),
        (("assets", 0, "keys", 0, "keys", 0), 7, "key is 7"),
        (("assets", 0, "keys", 0, "keys", 0), D2, "there twice"),
        (("assets", 1, "owner"), "raw", "raw is there twice"),
        (("assets", 1, "after"), ["gone"], "after names gone"),
        (("assets", 1, "after"), "raw", "str instead of a list"),
        (("assets", 1, "in_run_of"), "gone", "in_run_of names gone"),
        (("assets", 2, "breaks"), [9], "breaks are no places"),
        (("positions", "raw"), -1, "positions.raw is -1"),
    ],
)
def test_what_is_wrong_in_a_plan_is_named(path, wrong, why):
    values = json.loads(json.dumps(to_json(plan_of(market(3)))))
    with pytest.raises(ConfigurationError, match="The plan is damaged") as caught:
        from_json(at(values, path, wrong))
    assert why in str(caught.value) + str(caught.value.detail)
