"""Gaps, found and told: pure."""

from __future__ import annotations

import shlex

import pytest

from marigold_assets.gaps import described, fill_command, fill_of, find_gaps, selection_of

DAYS = [f"2024-01-{number:02d}" for number in range(1, 32)]


def found(built, days=DAYS, **options):
    gaps = find_gaps(days, [days], {DAYS[number - 1] for number in built}, **options)
    return gaps, [(int(gap.keys[0][-2:]), int(gap.keys[-1][-2:])) for gap in gaps.gaps]


@pytest.mark.parametrize(
    ("built", "expected", "earlier"),
    [
        (range(1, 32), [], 0),
        ([*range(1, 11), *range(15, 31)], [(11, 14), (31, 31)], 0),
        ([5, 7, 31], [(6, 6), (8, 30)], 4),
        ([31], [], 30),
    ],
)
def test_gaps_are_what_is_missing_after_the_first_that_was_built(built, expected, earlier):
    gaps, ranges = found(built)
    assert ranges == expected
    assert gaps.earlier == earlier
    assert gaps.missing == sum(last - first + 1 for first, last in expected)
    assert gaps.since == DAYS[min(built) - 1]
    assert not gaps.is_from_start


def test_where_nothing_was_built_everything_is_missing():
    gaps, ranges = found([])
    assert ranges == [(1, 31)]
    assert gaps.is_from_start
    assert described(gaps) == "31 of 31 partitions since 2024-01-01 (the start of its partitions) are missing"


def test_where_all_that_was_built_is_gone_it_is_missing_from_the_first_that_was_built():
    gaps, ranges = found([5, 7], is_gone=True)
    assert ranges == [(5, 31)]
    assert (gaps.is_from_start, gaps.earlier) == (False, 4)


def test_everything_can_be_expected_from_the_start():
    gaps, ranges = found([5, 6], from_start=True)
    assert ranges == [(1, 4), (7, 31)]
    assert (gaps.is_from_start, gaps.earlier) == (True, 0)


def test_before_the_first_interval_has_ended_nothing_is_missing():
    gaps, ranges = found([], days=[])
    assert ranges == []
    assert described(gaps) == "no interval has ended yet"
    assert fill_of("sales", gaps) is None


def test_of_several_lines_each_is_looked_at_from_the_first_interval_that_any_has():
    lines = [[f"{day}|{store}" for day in DAYS[:4]] for store in "ab"]
    gaps = find_gaps(DAYS[:4], lines, {"2024-01-02|a", "2024-01-04|a", "2024-01-03|b"})
    assert [str(one) for one in gaps.gaps] == ["2024-01-03|a", "2024-01-02|b", "2024-01-04|b"]
    assert (gaps.expected, gaps.missing, gaps.earlier) == (6, 3, 2)
    assert fill_of("sales", gaps) == "marigold launch sales --from 2024-01-02 --to 2024-01-04"


def test_it_is_said_how_many_are_missing_since_when_and_how_many_there_never_were():
    gaps, _ = found([3, 5])
    assert described(gaps) == (
        "27 of 29 partitions since 2024-01-03 (the first that was built) are missing; 2 before it were never built"
    )


@pytest.mark.parametrize(
    ("owners", "selection"),
    [
        (["sales"], "sales"),
        (["shop/sales-2"], "shop/sales-2"),
        (["a b"], 'key:"a b"'),
        (["raw", "shop/sales"], 'key:"raw" or key:"shop/sales"'),
    ],
)
def test_assets_are_named_in_the_selection_syntax(owners, selection):
    assert selection_of(owners) == selection
    command = fill_command(selection, "a b", "$c", ["-f", "my file.py"])
    words = ["marigold", "launch", selection, "--from", "a b", "--to", "$c", "-f", "my file.py"]
    assert shlex.split(command) == words
