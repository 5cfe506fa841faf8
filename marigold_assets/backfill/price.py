"""The price of a launch, as it is kept in the tags of its backfills: what was predicted is not forgotten."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from marigold_assets.planning.model import BackfillPlan, Estimate

PRICE_TAG: Final = "marigold/price"
CANARY_TAG: Final = "marigold/canary"
"""Has a backfill that the rest of its launch waits for: the price is for everything at once."""
_MINUTE, _HOUR, _DAY = 60, 3_600, 86_400


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """What a launch was predicted to take.

    Attributes:
        wall: From the launch until the last partition is committed.
        busy: Run seconds.
        runs: How many runs.
        partitions: How many partitions, of all assets together.
        assumed: How many assets had no history, so that defaults stood in.
    """

    wall: Estimate
    busy: Estimate
    runs: int
    partitions: int
    assumed: int = 0

    @classmethod
    def of(cls, plan: BackfillPlan, *, first_look_seconds: float | None = None) -> Price:
        """The price of a plan that is launched now.

        Args:
            plan: The plan.
            first_look_seconds: In how long the daemon first looks at it; ``None``: nobody knows.
        """
        bill = plan.bill
        wall = bill.wall if first_look_seconds is None else bill.wall_from(first_look_seconds)
        return cls(wall=wall, busy=bill.busy, runs=bill.runs, partitions=plan.size, assumed=len(bill.assumed))

    @classmethod
    def of_tags(cls, tags: Mapping[str, str]) -> Price | None:
        """The price that was kept in tags; ``None`` if there is none that can be understood."""
        try:
            found = json.loads(tags[PRICE_TAG])
            return cls(
                wall=Estimate(median=float(found["wall"][0]), p90=float(found["wall"][1])),
                busy=Estimate(median=float(found["busy"][0]), p90=float(found["busy"][1])),
                runs=int(found["runs"]),
                partitions=int(found["partitions"]),
                assumed=int(found["assumed"]),
            )
        except (KeyError, ValueError, TypeError, IndexError):
            return None

    def as_tag(self) -> str:
        """The same as a tag holds it; seconds."""
        wall, busy = ([round(one.median, 1), round(one.p90, 1)] for one in (self.wall, self.busy))
        found = {"wall": wall, "busy": busy, "runs": self.runs, "partitions": self.partitions, "assumed": self.assumed}
        return json.dumps(found, separators=(",", ":"))

    def __str__(self) -> str:
        guess = f"; assumed, for want of history, of {self.assumed}" if self.assumed else ""
        return (
            f"{spoken(self.wall.median)} to {spoken(self.wall.p90)} for {self.partitions:,} partition"
            f"{'' if self.partitions == 1 else 's'} in {self.runs:,} run{'' if self.runs == 1 else 's'}, which take"
            f" {spoken(self.busy.median)} of run time together{guess}"
        )


def spoken(seconds: float) -> str:
    """A duration as people say it, with its unit: ``41 s``, ``12 min``, ``3 h 20 min``, ``2 d 4 h``."""
    if seconds < 2 * _MINUTE:
        return f"{seconds:.0f} s"
    if seconds < 2 * _HOUR:
        return f"{seconds / _MINUTE:.0f} min"
    if seconds < 2 * _DAY:
        hours, minutes = divmod(round(seconds / _MINUTE), _MINUTE)
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    days, hours = divmod(round(seconds / _HOUR), 24)
    return f"{days} d {hours} h" if hours else f"{days} d"
