"""Spans of time that commands take are numbers that somebody can wait for."""

from __future__ import annotations

import click
import pytest

from marigold_assets.cli.main import _Marigold

NUMBERS = [
    (name, option)
    for name in _Marigold.parts
    for command in [_Marigold().get_command(click.Context(_Marigold()), name)]
    for option in command.params
    if isinstance(option.type, type(click.FLOAT))
]


def test_these_are_all_of_them():
    assert [(name, option.name) for name, option in NUMBERS] == [
        ("cancel", "timeout"),
        ("doctor", "timeout"),
        ("gaps", "grace_hours"),
        ("purity", "seconds"),
    ]


@pytest.mark.parametrize(("name", "option"), NUMBERS, ids=[name for name, _ in NUMBERS])
def test_what_is_no_number_or_too_large_is_refused(name, option):
    context = click.Context(click.Command(name))
    assert option.process_value(context, "6.5") == 6.5
    for text in ("nan", "-nan", "inf", "-inf", "1e12", "-1", "many"):
        with pytest.raises(click.BadParameter):
            option.process_value(context, text)
