"""Plans: how long deciding and pricing take, and how much memory, over few partitions and over very many.

Every figure is that of a process of its own, beyond what one takes that plans nothing. What stands and what past runs
took is made up here; gathering it from a database is measured elsewhere.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median

from benchmarks.measuring import Figure, peak_mb
from marigold_assets.planning.as_json import from_json, to_json
from marigold_assets.planning.history import history_of
from marigold_assets.planning.making import make_plan
from marigold_assets.planning.model import BackfillPlan, Key, Limits, Reason, Request, RunSample
from marigold_assets.planning.states import AssetState, Reads, Verdict
from marigold_assets.planning.submitting import submissions

_CASES = {  # assets, partitions, seconds, megabytes
    "730 partitions x 4 assets": (4, 730, 0.5, 100.0),
    "36,500 partitions": (1, 36_500, 2.0, 250.0),
    "148,000 hours": (1, 148_000, 6.0, 500.0),
}
_SLOTS = 4
_ROUNDS, _ROUNDS_QUICK = 5, 2
_FIRST = datetime(2009, 1, 1, tzinfo=UTC)
_REASON = Verdict(reason=Reason.STALE_CODE, because="code 1 -> 2")


def run(_folder: Path, *, quick: bool) -> list[Figure]:
    """Measure.

    Args:
        _folder: Unused: a plan writes nothing.
        quick: Whether to measure less often.
    """
    rounds = _ROUNDS_QUICK if quick else _ROUNDS
    idle = median(_measured(0, 0)["megabytes"] for _ in range(rounds))
    figures = []
    for name, (assets, count, seconds_bound, megabytes_bound) in _CASES.items():
        found = [_measured(assets, count) for _ in range(rounds)]
        parts = ", ".join(
            f"{part} {median(one[part] for one in found):.3f} s" for part in ("plan", "submissions", "json")
        )
        seconds = [one["plan"] for one in found]
        megabytes = [one["megabytes"] - idle for one in found]
        figures += [
            _figure(name, [one / seconds_bound for one in seconds], f"x of {seconds_bound:g} s", 1.0, parts),
            _figure(name, megabytes, "MB", megabytes_bound, f"beyond {idle:.0f} MB of a process that plans nothing"),
        ]
    return figures


def _figure(name: str, values: Sequence[float], unit: str, bound: float, details: str) -> Figure:
    return Figure(
        benchmark="planning",
        name=name,
        value=round(median(values), 3),
        unit=unit,
        bound=bound,
        low=min(values),
        high=max(values),
        details=details,
    )


def _measured(assets: int, count: int) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.planning", str(assets), str(count)]
    found: dict[str, float] = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return found


def states(assets: int, count: int) -> list[AssetState]:
    """Independent assets and, from the third on, chains; a third of each missing and a third stale."""
    step = timedelta(hours=1) if count > 100_000 else timedelta(days=1)
    keys = tuple((_FIRST + number * step).strftime("%Y-%m-%d-%H:%M") for number in range(count))
    places = {key: number for number, key in enumerate(keys)}
    built = frozenset(keys[number] for number in range(count) if number % 3)
    stale: dict[Key, Verdict] = {keys[number]: _REASON for number in range(count) if number % 3 == 1}
    same = Reads(inputs_of=lambda key: (key,), same_keys=True)

    def before(key: str | None) -> tuple[str, ...]:
        place = places[key] if key is not None else 0
        return keys[max(0, place - 1) : place]

    found = []
    for number in range(assets):
        reads = {f"asset_{number - 1}": same} if number else {}
        if number > 1:
            reads[f"asset_{number}"] = Reads(inputs_of=before)
        found.append(
            AssetState(
                owner=f"asset_{number}",
                keys=keys,
                wanted=keys,
                built=built,
                verdicts=stale,
                reads=reads,
                grouping="days",
            )
        )
    return found


def _plan(assets: int, count: int) -> BackfillPlan:
    samples = [
        RunSample(
            launched_at=0.0,
            started_at=4.0,
            ended_at=11.0,
            swaps={f"asset_{number}": (7.0 + number % 3,) for number in range(assets)},
        )
        for _ in range(50)
    ]
    return make_plan(
        Request(selection="*"),
        states(assets, count),
        limits=Limits(slots=_SLOTS),
        history=history_of(samples),
        positions={},
        made_at=_FIRST,
    )


def _child(assets: int, count: int) -> None:
    begun = time.perf_counter()
    plan = _plan(assets, count)
    planned = time.perf_counter()
    submissions(plan, canary=3)
    cut = time.perf_counter()
    from_json(json.loads(json.dumps(to_json(plan))))
    saved = time.perf_counter()
    print(
        json.dumps(
            {
                "plan": planned - begun,
                "submissions": cut - planned,
                "json": saved - cut,
                "megabytes": peak_mb(),
            }
        )
    )


if __name__ == "__main__":
    _child(int(sys.argv[1]), int(sys.argv[2]))
