"""Ranges of partitions, as commands are given them."""

from __future__ import annotations

import pytest

from marigold_assets.cli.ranges import range_ends
from marigold_assets.errors import ConfigurationError

PLACES = {key: number for number, key in enumerate(["a", ".b", "c.", "d...e", "f"])}


def ends(text):
    return range_ends(text, PLACES, PLACES.__getitem__, asset="sales")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a...f", (0, 4)),
        ("a....b", (0, 1)),
        ("c....f", (2, 4)),
        (".b...c.", (1, 2)),
        ("a...d...e", (0, 3)),
        ("d...e...f", (3, 4)),
        ("d...e...d...e", (3, 3)),
        ("a", None),
    ],
)
def test_keys_may_have_dots_themselves(text, found):
    assert ends(text) == found


def test_a_range_that_ends_before_it_begins_is_turned_round():
    with pytest.raises(ConfigurationError, match=r"--range a\.\.\.f"):
        ends("f...a")


def test_what_is_no_partition_is_left_to_the_look_up():
    with pytest.raises(KeyError, match="b"):
        ends("a...b")
