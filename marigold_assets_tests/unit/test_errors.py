"""What every error says first, and what a handler may rely on."""

from __future__ import annotations

import pickle

import pytest

from marigold_assets import errors
from marigold_assets.errors import (
    CommitUnknownError,
    FencedOutError,
    InvalidDataError,
    MarigoldError,
    StoreBusyError,
)

WHERE = {"asset": "sales/daily", "partition": "2024-01-01", "table": "sales.daily"}


def subclasses(kind=MarigoldError):
    return [kind, *(found for child in kind.__subclasses__() for found in subclasses(child))]


def make(kind, **more):
    if kind is FencedOutError:
        return kind(run_id="old", token=1, superseded_by_run="new", superseded_by_token=2, **WHERE)
    if kind is CommitUnknownError:
        more["swap_ids"] = ("x", "y")
    return kind("something is wrong", remedy="do something", **WHERE, **more)


@pytest.mark.parametrize("kind", subclasses(), ids=lambda kind: kind.__name__)
def test_the_first_line_names_asset_partition_table_and_remedy(kind):
    first = str(make(kind)).splitlines()[0]
    assert first.startswith("asset 'sales/daily', partition '2024-01-01', table 'sales.daily': ")
    assert "Remedy: " in first
    assert first.endswith(".")


@pytest.mark.parametrize("kind", subclasses(), ids=lambda kind: kind.__name__)
def test_an_error_survives_the_way_to_another_process(kind):
    before = make(kind)
    after = pickle.loads(pickle.dumps(before))
    assert type(after) is kind
    assert (str(after), vars(after)) == (str(before), vars(before))


def test_kinds_are_distinct_words():
    kinds = [kind.kind for kind in subclasses()]
    assert len(set(kinds)) == len(kinds)


def test_only_what_may_go_away_by_waiting_is_retryable():
    assert {kind for kind in subclasses() if kind.retryable} == {StoreBusyError, CommitUnknownError}


def test_an_unknown_place_is_left_out():
    assert str(InvalidDataError("bad rows", remedy="mend them")) == "Bad rows. Remedy: mend them."
    assert str(InvalidDataError("bad rows", remedy="mend them", table="t")) == "table 't': bad rows. Remedy: mend them."


def test_newlines_cannot_push_the_remedy_off_the_first_line():
    error = InvalidDataError("bad\n rows.\n", remedy="mend\nthem.", partition="a\nb", detail="line\nline")
    first, *rest = str(error).splitlines()
    assert first == r"partition 'a\nb': bad rows. Remedy: mend them."
    assert rest == ["line", "line"]


def test_a_fenced_out_run_is_told_who_came_after_it():
    error = make(FencedOutError)
    assert "run old (token 1) is superseded by run new (token 2)" in str(error)
    assert "do not retry" in str(error)
    assert not error.retryable


def test_every_error_has_the_one_root():
    found = [each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, Exception)]
    assert all(issubclass(each, MarigoldError) for each in found)
