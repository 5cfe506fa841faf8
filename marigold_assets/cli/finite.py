"""Options that are spans of time: numbers that somebody can wait for."""

from __future__ import annotations

import math
from typing import Any, Final

import click

LONGEST_HOURS: Final = 24.0 * 36_500
"""A hundred years."""
LONGEST_SECONDS: Final = 86_400.0 * 365
"""A year."""


class FiniteRange(click.FloatRange):
    """A range of numbers, as ``click.FloatRange``, which takes what is not a number for one within."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Refuse also what is no number, and infinity.

        Raises:
            click.BadParameter: The number is none, or out of range.
        """
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number.", param, ctx)
        return number
