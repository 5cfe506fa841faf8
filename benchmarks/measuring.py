"""Timing things in turn, and telling what came out beside its bound."""

from __future__ import annotations

import gc
import resource
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One measured number beside its bound.

    Attributes:
        benchmark: Which benchmark it comes from.
        name: What was measured.
        value: The number; smaller is better.
        unit: Its unit: ``x`` for a ratio, ``MB``, ``failures``.
        bound: What it may be at most, or ``None`` where it is only told.
        low: The smallest of the single measurements, where there are several.
        high: The largest.
        details: What else is worth telling, such as medians and the noise.
    """

    benchmark: str
    name: str
    value: float
    unit: str
    bound: float | None
    low: float | None = None
    high: float | None = None
    details: str = ""

    @property
    def verdict(self) -> str:
        """Whether the bound was kept."""
        if self.bound is None:
            return ""
        return "ok" if self.value <= self.bound else "OVER"


def in_turn(things: Mapping[str, Callable[[int], object]], *, rounds: int) -> dict[str, list[float]]:
    """Time some things one after the other, round by round, so that a slow moment of the machine hits all of them.

    Every round starts with another one. The first round warms up and does not count.

    Args:
        things: What to time, by name. Each is called with the number of the round.
        rounds: How often to time each.

    Returns:
        Seconds by name, one a round.
    """
    names = list(things)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for number in range(rounds + 1):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            gc.collect()
            gc.disable()  # or the one that happens to fill the last free place pays for all the others
            start = time.perf_counter()
            things[name](number)
            elapsed = time.perf_counter() - start
            gc.enable()
            if number > 0:
                seconds[name].append(elapsed)
    return seconds


def ratio(
    benchmark: str,
    name: str,
    seconds: Mapping[str, Sequence[float]],
    *,
    of: str,
    to: str,
    bound: float | None,
) -> Figure:
    """The median of the ratios, round by round."""
    ratios = [mine / other for mine, other in zip(seconds[of], seconds[to], strict=True)]
    return Figure(
        benchmark=benchmark,
        name=name,
        value=median(ratios),
        unit="x",
        bound=bound,
        low=min(ratios),
        high=max(ratios),
        details=", ".join(f"{key} {milliseconds(seconds[key])}" for key in (of, to)) + f"; {noise(seconds[to])}",
    )


def milliseconds(seconds: Sequence[float]) -> str:
    """A median, for people."""
    return f"{1_000 * median(seconds):.1f} ms"


def noise(seconds: Sequence[float]) -> str:
    """How much one and the same thing varied: the spread of its middle half, and its worst over its best."""
    low, _, high = quantiles(seconds, n=4)
    return f"noise ±{50 * (high - low) / median(seconds):.0f}%, max/min {max(seconds) / min(seconds):.2f}"


def percentile(values: Sequence[float], percent: int) -> float:
    """A percentile of some values."""
    return quantiles(values, n=100, method="inclusive")[percent - 1]


def table(figures: Sequence[Figure]) -> str:
    """The figures as people read them."""
    rows = [("benchmark", "measured", "figure", "min-max", "bound", "", "details")]
    for figure in figures:
        span = "" if figure.low is None or figure.high is None else f"{figure.low:.2f}-{figure.high:.2f}"
        bound = "" if figure.bound is None else f"<= {figure.bound:g}"
        value = f"{figure.value:.2f} {figure.unit}" if figure.unit == "x" else f"{figure.value:g} {figure.unit}"
        rows.append((figure.benchmark, figure.name, value, span, bound, figure.verdict, figure.details))
    widths = [max(len(row[column]) for row in rows) for column in range(6)]
    return "\n".join(
        "  ".join([*(cell.ljust(width) for cell, width in zip(row[:6], widths, strict=True)), row[6]]) for row in rows
    )


def peak_mb() -> float:
    """How much memory this process has taken at most, in megabytes."""
    status = Path("/proc/self/status")
    if status.exists():  # Linux counts what was there before exec into ru_maxrss
        [line] = [line for line in status.read_text().splitlines() if line.startswith("VmHWM:")]
        return int(line.split()[1]) / 1e3
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1e6 if sys.platform == "darwin" else 1e3)
