"""What blocked partitions lack, and how a plan says to get it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from marigold_assets.backfill.refusing import Wish, refuse_plan
from marigold_assets.backfill.unblocking import unblocking
from marigold_assets.errors import ConfigurationError
from marigold_assets.planning.model import Absence, Lack
from marigold_assets.planning.states import AssetState
from marigold_assets_tests.unit.planning_states import SAME, STALE, all_of, asset, days, plan_of, shifted

KEYS = days(6)
D1, D2, D3, D4, D5, D6 = KEYS


def lacks(plan, owner):
    [one] = [one for one in plan.assets if one.owner == owner]
    return one.lacks


def test_what_is_not_selected_is_to_be_taken_along_by_the_name_of_what_lacks_it():
    raw = asset("raw", KEYS, wanted=(), built={D1}, is_selected=False)
    daily, report = asset("shop/daily", KEYS, reads={"raw": SAME}), asset("report", KEYS, reads={"shop/daily": SAME})
    plan = plan_of([raw, daily, report])
    found = Lack(owner="raw", absence=Absence.NOT_SELECTED, first=D2, last=D6, blocked=5)
    assert lacks(plan, "shop/daily") == lacks(plan, "report") == (found,)
    assert unblocking(plan) == [
        f"Blocked: 5 partitions of {owner} lack raw {D2} to {D6}; take it along: '*{owner}' is {owner} and all that it"
        " reads"
        for owner in ("shop/daily", "report")
    ]


def test_each_of_several_assets_is_told_what_helps_it_and_what_helps_all_is_told_once():
    raw = asset("raw", KEYS, wanted=(D5, D6), built={D5, D6})
    window, before = shifted(KEYS, -3, -1), shifted(KEYS, -1, -1)
    assets = [asset(owner, KEYS, wanted=(D5,), reads={"raw": window}) for owner in ("sum", "mean")]
    assets.append(asset("yesterday", KEYS, wanted=(D5,), reads={"raw": before}))
    assert unblocking(plan_of([raw, *assets])) == [
        f"Blocked: 2 partitions of sum, mean lack raw {D2}; begin earlier: --from {D2}",
        f"Blocked: 1 partition of yesterday lacks raw {D4}; begin earlier: --from {D4}",
    ]
    both = ("a|x", "b|x")
    chain = asset("total", both, wanted=("b|x",), reads={"total": shifted(both, -1)})
    assert unblocking(plan_of([chain]))[0].endswith("begin earlier: --from 'a|x'")


def test_a_chain_begins_with_the_first_day_that_is_missing_before_the_range():
    chain = asset("total", KEYS, wanted=(D5, D6), built={D1, D3}, chain=True)
    plan = plan_of([chain])
    assert lacks(plan, "total") == (Lack(owner="total", absence=Absence.BEFORE, first=D4, last=D4, blocked=2),)
    assert unblocking(plan) == [f"Blocked: 2 partitions of total lack total {D4}; begin earlier: --from {D4}"]
    [line] = unblocking(plan_of([replace(chain, built={D1})]))
    assert line == f"Blocked: 2 partitions of total lack total {D2} to {D4}; begin earlier: --from {D2}"
    assert plan_of([replace(chain, wanted=KEYS[1:], built={D1})]).left() == 0
    assert unblocking(plan_of([replace(chain, wanted=KEYS[1:], built={D1})])) == []


@pytest.mark.parametrize(
    ("raw", "reads", "asked", "said"),
    [
        ({"wanted": (D3,)}, shifted(KEYS, 1), {}, f"lacks raw {D4}; end later: --to {D4}"),
        ({"wanted": (D3,), "built": {D3}}, shifted(KEYS, -1), {}, f"lacks raw {D2}; begin earlier: --from {D2}"),
        ({"wanted": ()}, SAME, {}, "build raw first, by a range of its own: the range of this plan leaves that out"),
        ({"wanted": (D3,), "keys": KEYS[3:]}, SAME, {}, "nothing can build that: its definition has no such partition"),
        ({}, SAME, {"stale": True}, "plan without --stale, which leaves out what was never built"),
    ],
)
def test_the_remedy_fits_why_it_is_lacking(raw, reads, asked, said):
    keys = raw.pop("keys", KEYS)
    wanted = tuple(key for key in raw.pop("wanted", KEYS) if key in keys)
    above = asset("raw", keys, wanted=wanted, **raw)
    daily = asset("daily", KEYS, wanted=(D3,), built={D3}, verdicts={D3: STALE}, reads={"raw": reads})
    [line] = unblocking(plan_of([above, daily], **asked))
    assert line.startswith("Blocked: 1 partition of daily lacks raw ")
    assert said in line


def test_what_has_no_partitions_is_named_without_any():
    raw = AssetState(owner="raw", keys=(None,), is_selected=False)
    [line] = unblocking(plan_of([raw, asset("daily", KEYS, reads={"raw": all_of((None,))})]))
    assert line == "Blocked: 6 partitions of daily lack raw; take it along: '*daily' is daily and all that it reads"


def test_a_launch_is_refused_with_the_same_remedy():
    chain = asset("total", KEYS, wanted=(D5, D6), built={D1}, chain=True)
    with pytest.raises(ConfigurationError, match=rf"Remedy: begin earlier: --from {D2}[.]$"):
        refuse_plan(plan_of([chain]), Wish())
    raw = asset("raw", KEYS, wanted=(), built={D1}, is_selected=False)
    plan = plan_of([raw, asset("daily", KEYS, reads={"raw": SAME})])
    with pytest.raises(ConfigurationError, match=r"'\*daily' is daily and all that it reads; or launch the rest"):
        refuse_plan(plan, Wish())
    refuse_plan(plan, Wish(skip_blocked=True))


def test_a_plan_is_done_only_if_nothing_of_it_is_blocked_stale_or_to_be_built():
    raw = asset("raw", KEYS, built=set(KEYS))
    assert plan_of([raw]).is_done
    assert not plan_of([replace(raw, built=set(KEYS[:5]))]).is_done
    blocked = plan_of([asset("far", KEYS, wanted=(), is_selected=False), asset("daily", KEYS, reads={"far": SAME})])
    assert (blocked.is_empty, blocked.is_blocked, blocked.is_done) == (True, True, False)
