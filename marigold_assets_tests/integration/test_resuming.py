"""What is left of a launch is asked for again: all of it, and no more than was wanted."""

from __future__ import annotations

from datetime import UTC, datetime

import dagster as dg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from marigold_assets.backfill.keyed import Keyed
from marigold_assets.backfill.price import PRICE_TAG, Price
from marigold_assets.backfill.ranges import asked_for
from marigold_assets.backfill.request import REQUEST_TAG, request_as_tag
from marigold_assets.backfill.resuming import rest_of
from marigold_assets.backfill.watching import AssetProgress, Backfill, Progress
from marigold_assets.budget import LAUNCH_TAG
from marigold_assets.errors import ConfigurationError
from marigold_assets.planning.model import Estimate, Request

DAYS = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-01-11")
SHOPS = dg.StaticPartitionsDefinition(["x", "y", "z"])
BOTH = dg.MultiPartitionsDefinition({"day": DAYS, "shop": SHOPS})
PARTITIONS = {
    "daily": Keyed(DAYS, DAYS.get_partition_keys()),
    "by_shop": Keyed(SHOPS, SHOPS.get_partition_keys()),
    "both": Keyed(BOTH, [str(key) for key in BOTH.get_partition_keys()]),
    "report": Keyed(None, (None,)),
}
MOMENT = datetime(2024, 3, 1, tzinfo=UTC)
NOTHING = Estimate(median=1.0, p90=1.0)


def progress(left, *, asked=None, planned=None, total=None, **more):
    """A launch, or a backfill of something else, with what is left of each of its assets."""
    total = max(len(PARTITIONS[owner].keys) for owner in left) if total is None else total
    tags = {} if asked is None else {REQUEST_TAG: request_as_tag(asked), LAUNCH_TAG: "launched"}
    if planned is not None:
        price = Price(wall=NOTHING, busy=NOTHING, runs=1, partitions=planned)
        tags[PRICE_TAG] = price.as_tag()
    backfill = Backfill(
        backfill_id="first",
        status=more.pop("status", "CANCELED"),
        title=None,
        description=None,
        tags=tags,
        created_at=MOMENT,
        ended_at=MOMENT,
        error=None,
        targets={},
        built={},
        job=more.pop("job", None),
    )
    assets = [
        AssetProgress(
            owner=owner,
            total=total,
            built=total - len(keys),
            confirmed=0,
            elsewhere=0,
            running=0,
            failed=0,
            canceled=0,
            is_exact=True,
            left=tuple(keys),
        )
        for owner, keys in left.items()
    ]
    name = more.pop("name", "launched")
    runs = {"queued_runs": 0, "running_runs": 0, "succeeded_runs": 0, "failed_runs": 0, "canceled_runs": 0, **more}
    return Progress(
        name=name,
        backfills=(backfill,),
        assets=tuple(assets),
        busy_seconds=None,
        troubles=(),
        failed_when_done=0,
        failed_checks=(),
        price=Price.of_tags(tags),
        first_commit=None,
        last_commit=None,
        seen_at=MOMENT,
        **runs,
    )


def meant(request, owner):
    """The partitions that a launch of a request is about."""
    return asked_for({owner: PARTITIONS[owner]}, request.first, request.last).keys[owner]


@st.composite
def lefts(draw):
    owner = draw(st.sampled_from(["daily", "by_shop", "both"]))
    keys = PARTITIONS[owner].keys
    chosen = draw(st.sets(st.integers(0, len(keys) - 1), min_size=1))
    return owner, [key for number, key in enumerate(keys) if number in chosen]


@given(lefts(), st.booleans(), st.booleans())
def test_all_that_is_left_is_asked_for_again(made, restate, is_whole):
    owner, left = made
    asked = Request(selection=owner, restate=restate)
    total = len(PARTITIONS[owner].keys)
    found = rest_of(
        progress({owner: left}, asked=asked, planned=total if is_whole else total + 5, total=total), PARTITIONS.get
    )
    assert set(left) <= set(meant(found, owner))
    if not restate or not is_whole:
        assert found == asked
    elif owner == "daily":
        assert (found.first, found.last) == (left[0], left[-1])


@given(lefts())
def test_of_a_backfill_of_something_else_exactly_what_is_left_is_computed_again_or_nothing_is_proposed(made):
    owner, left = made
    found = rest_of(progress({owner: left}), PARTITIONS.get)
    if found is not None:
        assert found.restate
        assert list(meant(found, owner)) == left
    elif owner != "both":
        places = [PARTITIONS[owner].place[key] for key in left]
        assert places != list(range(places[0], places[-1] + 1))


def test_what_was_not_launched_behind_a_canary_is_left_as_well():
    asked = Request(selection="daily", first="2024-01-01", last="2024-01-10", restate=True)
    canary = progress({"daily": ["2024-01-02"]}, asked=asked, planned=10, total=3)
    assert rest_of(canary, PARTITIONS.get) == asked
    whole = progress({"daily": ["2024-01-02", "2024-01-05"]}, asked=asked, planned=10)
    assert rest_of(whole, PARTITIONS.get).first == "2024-01-02"
    done = progress({"daily": []}, asked=asked, planned=10, total=3)
    assert done.is_built
    assert not done.is_well
    assert rest_of(done, PARTITIONS.get) == asked


def test_one_backfill_of_a_launch_is_whole_by_itself():
    asked = Request(selection="daily", restate=True)
    given = {"asked": asked, "planned": 100, "total": 3}
    assert progress({"daily": []}, name="first", **given).is_well
    assert not progress({"daily": []}, **given).is_well
    left = progress({"daily": ["2024-01-02", "2024-01-03"]}, name="first", **given)
    assert rest_of(left, PARTITIONS.get).first == "2024-01-02"


def test_what_is_left_of_a_backfill_of_several_assets_by_something_else():
    days = ["2024-01-02", "2024-01-03"]
    found = rest_of(progress({"daily": days, "report": [None], "by_shop": []}), PARTITIONS.get)
    assert (found.first, found.last, found.restate) == (*days, True)
    assert found.selection == 'key:"daily" or key:"report"'
    assert rest_of(progress({"daily": days, "by_shop": ["x"]}), PARTITIONS.get) is None
    assert rest_of(progress({"daily": days}), lambda _: None) is None


def test_a_backfill_of_a_job_is_well_when_its_runs_were():
    of_job = {"total": 0, "status": "COMPLETED_SUCCESS", "job": "j"}
    no_assets = {"daily": []}
    assert progress(no_assets, succeeded_runs=2, **of_job).is_well
    assert not progress(no_assets, succeeded_runs=1, failed_runs=1, **of_job).is_well
    assert not progress(no_assets, succeeded_runs=1, canceled_runs=1, **of_job).is_well
    assert not progress(no_assets, succeeded_runs=1, running_runs=1, **of_job | {"status": "REQUESTED"}).is_well
    assert not progress(no_assets, succeeded_runs=1, **of_job | {"status": "CANCELED"}).is_well
    assert not progress(no_assets, **of_job).is_well


@pytest.mark.parametrize(("first", "last"), [("2024-01-02|y", "2024-01-04|x"), ("2024-01-04|x", "2024-01-02|y")])
def test_a_range_that_is_reversed_in_one_dimension_is_refused_and_not_empty(first, last):
    with pytest.raises(ConfigurationError, match="ends before it begins"):
        asked_for({"both": PARTITIONS["both"]}, first, last)
