"""Which partitions are tried, whether inputs still hold, and what all that came of them means together."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marigold_assets.model import InputPartition
from marigold_assets.proof import (
    Candidate,
    ColumnDifference,
    Difference,
    Outcome,
    Replayed,
    Verdict,
    compare_inputs,
    sample,
    verdict,
)

BERLIN = "Europe/Berlin"


def days(count, *, zone=BERLIN, rows=lambda number: 100):
    midnight = datetime(2024, 1, 1, tzinfo=ZoneInfo(zone))
    edges = [midnight + timedelta(days=number) for number in range(count + 1)]  # of wall time
    return [
        Candidate(
            key=start.strftime("%Y-%m-%d"), row_count=rows(number), start=start.astimezone(UTC), end=end.astimezone(UTC)
        )
        for number, (start, end) in enumerate(pairwise(edges))
    ]


def test_the_sample_has_everything_that_is_likely_to_differ():
    candidates = days(731, rows=lambda number: {300: 5_000, 400: 0}.get(number, 100))
    chosen = {one.key: one.why for one in sample(candidates, size=12, seed=1, timezone=BERLIN)}
    assert chosen.pop("2024-01-01") == "first"
    assert chosen.pop("2025-12-31") == "last"
    assert chosen.pop("2025-03-30") == "clocks go forward"
    assert chosen.pop("2025-10-26") == "clocks go back"
    assert chosen.pop("2024-10-27") == "largest"
    assert chosen.pop("2025-02-04") == "empty"
    assert sorted(chosen.values()) == ["month end"] * 3 + ["random"] * 3
    ends = [datetime.fromisoformat(key) for key, why in chosen.items() if why == "month end"]
    assert all((day + timedelta(days=1)).day == 1 for day in ends)


def test_the_days_on_which_clocks_change_are_those_of_the_zone():
    chosen = {one.why: one.key for one in sample(days(366, zone="UTC"), size=12, seed=1)}
    assert "clocks go forward" not in chosen
    there = days(366, zone="America/New_York")
    chosen = {one.why: one.key for one in sample(there, size=12, seed=1, timezone="America/New_York")}
    assert (chosen["clocks go forward"], chosen["clocks go back"]) == ("2024-03-10", "2024-11-03")


@given(count=st.integers(0, 60), size=st.integers(1, 70), seed=st.integers(0, 2**32))
def test_the_sample_is_in_order_as_large_as_it_can_be_and_the_same_for_the_same_seed(count, size, seed):
    candidates = days(count, rows=lambda number: number % 7)
    chosen = sample(candidates, size=size, seed=seed, timezone=BERLIN)
    keys = [one.key for one in chosen]
    assert keys == sorted(set(keys))
    assert len(keys) == min(count, size)
    assert chosen == sample(candidates, size=size, seed=seed, timezone=BERLIN)


def test_another_seed_samples_others():
    samples = {tuple(one.key for one in sample(days(366), size=12, seed=seed)) for seed in range(5)}
    assert len(samples) == 5


def test_partitions_without_windows_are_sampled_too():
    candidates = [Candidate(key=key, row_count=len(key)) for key in ("a", "bb", "", "ccc", "d")]
    assert next(iter(sample(candidates, size=4, seed=0))).why == "first"
    assert len(sample(candidates, size=4, seed=0)) == 4


def a_hash(number, rows=2, probe="6c1ef9aa"):
    return f"mh1:{probe}:03bc38c8:{rows}:{number:016x}"


def inputs(**hashes):
    return [InputPartition(owner=owner, partition_key="k", content_hash=digest) for owner, digest in hashes.items()]


def compared(recorded, present, with_ledger=("a", "b")):
    return compare_inputs(recorded, present, with_ledger=with_ledger)


def test_inputs_that_hold_what_was_read_say_nothing():
    found = compared(inputs(a=a_hash(1), b=None), inputs(a=a_hash(1), b=None))
    assert (found.restated, found.unknown, found.added) == ({}, (), ())


@pytest.mark.parametrize(
    ("before", "now", "what"),
    [
        (a_hash(1), a_hash(2), "was restated"),
        (a_hash(1), None, "is gone"),
        (None, a_hash(1), "was not there then"),
        (a_hash(1, probe="00000000"), a_hash(1, rows=3), "was restated"),
    ],
)
def test_an_input_that_holds_something_else_is_named(before, now, what):
    assert compared(inputs(a=before), inputs(a=now)).restated == {("a", "k"): what}


def test_inputs_of_which_nobody_knows_are_uncertain():
    assert compared(inputs(c=None), inputs(c=None)).unknown == (("c", "k"),)
    other_release = compared(inputs(a=a_hash(1, probe="00000000")), inputs(a=a_hash(1)))
    assert (other_release.restated, other_release.unknown) == ({}, (("a", "k"),))


def test_what_is_read_now_only_is_added_and_what_is_read_no_longer_does_not_count():
    found = compared(inputs(a=a_hash(1), b=a_hash(2)), inputs(a=a_hash(1), c=a_hash(3)), with_ledger=("a", "c"))
    assert (found.restated, found.added) == ({}, (("c", "k"),))


DIFFERENCES = {
    Outcome.IDENTICAL: {},
    Outcome.ADDED: {"added": ("x",)},
    Outcome.CHANGED: {"columns": (ColumnDifference(name="x"),), "added": ("y",)},
}


@pytest.mark.parametrize(("outcome", "given"), DIFFERENCES.items())
def test_a_difference_has_an_outcome(outcome, given):
    assert Difference(stored_rows=1, computed_rows=1, **given).outcome is outcome


@pytest.mark.parametrize("given", [{"is_moved": True}, {"differing": 1}, {"only_stored": 1}, {"only_computed": 1}])
def test_rows_that_differ_in_any_way_are_changed(given):
    assert Difference(stored_rows=1, computed_rows=1, **given).outcome is Outcome.CHANGED


def judged(*outcomes, **options):
    return verdict([Replayed(partition_key="k", outcome=one) for one in outcomes], **options)


def test_all_partitions_must_be_identical_and_there_must_be_one():
    assert judged(Outcome.IDENTICAL, Outcome.IDENTICAL) is Verdict.IDENTICAL
    assert judged() is Verdict.UNKNOWN


@pytest.mark.parametrize("outcome", [Outcome.CHANGED, Outcome.FAILED, Outcome.ADDED])
def test_one_that_differs_is_enough(outcome):
    assert judged(Outcome.IDENTICAL, outcome, Outcome.INPUTS) is Verdict.CHANGED


@pytest.mark.parametrize("outcome", [one for one in Outcome if not one.is_compared])
def test_one_that_cannot_be_compared_leaves_it_open(outcome):
    assert judged(Outcome.IDENTICAL, outcome) is Verdict.UNKNOWN


def test_added_columns_may_be_allowed():
    assert judged(Outcome.IDENTICAL, Outcome.ADDED, allow_added=True) is Verdict.IDENTICAL
    assert judged(Outcome.CHANGED, Outcome.ADDED, allow_added=True) is Verdict.CHANGED


def test_the_exit_codes_are_the_verdicts():
    assert [one.value for one in (Verdict.IDENTICAL, Verdict.CHANGED, Verdict.UNKNOWN)] == [0, 1, 2]
