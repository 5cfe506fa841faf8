"""What a plan costs, in words, each number with its unit."""

from __future__ import annotations

from collections.abc import Iterator

from marigold_assets.backfill.price import spoken
from marigold_assets.planning.history import DEFAULTS
from marigold_assets.planning.model import BackfillPlan, Bill, Limits
from marigold_assets.planning.naming import counted

_NOTHING = 0.5  # seconds that are not worth a word


def bill_lines(plan: BackfillPlan) -> Iterator[tuple[str, str]]:
    """What a plan costs: titles, and what is to be said under each."""
    bill, limits = plan.bill, plan.bill.limits
    wall, busy = (f"{spoken(one.median)} (median) to {spoken(one.p90)}" for one in (bill.wall, bill.busy))
    yield "time", f"{wall} (9 of 10), from the launch until the last partition is committed"
    yield "runs", f"{bill.runs:,}, {_at_once(limits)}; they take {wall if wall == busy else busy} of run time together"
    yield "at least", f"{spoken(bill.critical_path)}, with slots without end and without any waiting (critical path)"
    yield "bound by", _bound_by(bill)
    if any(one.is_chain and one.keys for one in plan.assets):
        yield "order", _order(bill)
    if limits.slots is not None:
        saved = spoken(bill.one_more_slot) if bill.one_more_slot >= _NOTHING else "nothing"
        yield "one more slot", f"would save {saved}"
    sizes = {one.owner: one.keys_per_run for one in plan.assets}
    for owner, (size, best) in bill.best_keys_per_run.items():
        if size != sizes.get(owner) and bill.wall.median - best >= 1:
            yield "best size", f"of a run of {owner}: {counted(size)}, which would take {spoken(best)} in all"
    if bill.assumed:
        yield "no history", _assumed(bill)


def _at_once(limits: Limits) -> str:
    at_once = "all at once" if limits.slots is None else f"at most {limits.slots:,} at once"
    return f"{at_once} ({limits.source})" if limits.source else at_once


def _bound_by(bill: Bill) -> str:
    causes = [
        ("slots", bill.saved_by_slots),
        (f"the daemon's tick of {bill.limits.tick_seconds:g} s", bill.saved_by_ticks),
        ("the start of runs", bill.saved_by_starts),
    ]
    found = [f"{what}, {spoken(seconds)}" for what, seconds in causes if seconds >= _NOTHING]
    return "; ".join(found) or "the work itself"


def _order(bill: Bill) -> str:
    if bill.ordering_costs < _NOTHING:
        return "costs nothing"
    return (
        f"costs {spoken(bill.ordering_costs)}: {spoken(bill.wall.median)} in order, and {spoken(bill.parallel)} if no"
        " partition had to wait for another one of its asset"
    )


def _assumed(bill: Bill) -> str:
    first, later = DEFAULTS.asset.first_key, DEFAULTS.asset.next_key
    return (
        f"of {', '.join(bill.assumed)}: {spoken(first.median)} to {spoken(first.p90)} are assumed for the first"
        f" partition of a run, {spoken(later.median)} to {spoken(later.p90)} for each later one; nothing of it is"
        " measured"
    )
