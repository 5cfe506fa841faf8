"""Assets in every shape that decides who shares a run with whom: of one backfill each."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field

import dagster as dg

DAYS = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-01-08")
KEYS = tuple(DAYS.get_partition_keys())
POLICIES = {
    "none": None,
    "multi_2": dg.BackfillPolicy.multi_run(2),
    "multi_4": dg.BackfillPolicy.multi_run(4),
    "single": dg.BackfillPolicy.single_run(),
}
KEYS_PER_RUN = {"none": 1, "multi_2": 2, "multi_4": 4, "single": None}


@dataclass(frozen=True, kw_only=True)
class Shape:
    """An asset: what it reads by which offsets of days (``None``: all), and which of its days are to be built."""

    reads: dict[str, tuple[int, int] | None] = field(default_factory=dict)
    policy: str = "none"
    planned: tuple[str, ...] = KEYS
    is_partitioned: bool = True


def shape(policy: str = "none", *, planned: tuple[str, ...] = KEYS, **reads: tuple[int, int] | None) -> Shape:
    return Shape(reads=reads, policy=policy, planned=planned)


SAME, BEFORE, WINDOW = (0, 0), (-1, -1), (-1, 0)
HOLES = KEYS[:2] + KEYS[3:5] + KEYS[6:]
CASES: dict[str, dict[str, Shape]] = {
    "independent": {"a": shape(), "b": shape("multi_2", planned=HOLES), "c": shape("single", planned=HOLES)},
    "shared": {"a": shape(), "b": shape(a=SAME), "c": shape(a=SAME, b=SAME)},
    "shared_chunks": {"a": shape("multi_2", planned=HOLES), "b": shape("multi_2", planned=HOLES, a=SAME)},
    "siblings": {"a": shape("multi_4"), "b": shape("multi_4"), "c": shape("multi_4", a=SAME), "d": shape("multi_2")},
    "other_keys": {"a": shape(), "b": shape(planned=KEYS[:3], a=SAME)},
    "other_policy": {"a": shape(), "b": shape("multi_4", a=SAME), "c": shape("single", b=SAME)},
    "chain": {"a": shape(a=BEFORE)},
    "chain_chunks": {"a": shape("multi_4", a=BEFORE)},
    "chain_single": {"a": shape("single", a=BEFORE)},
    "chain_behind": {"a": shape(), "b": shape(a=SAME, b=BEFORE)},
    "chain_behind_single": {"a": shape("single"), "b": shape("single", a=SAME, b=BEFORE)},
    "behind_a_chain": {"a": shape("multi_2", a=BEFORE), "b": shape(a=SAME)},
    "behind_a_chain_single": {"a": shape("single", a=BEFORE), "b": shape("single", a=SAME)},
    "two_chains": {"a": shape(), "b": shape("multi_4", a=SAME, b=BEFORE), "c": shape("multi_4", a=SAME, c=BEFORE)},
    "chain_and_other": {"a": shape("single", a=BEFORE), "b": shape("single"), "c": shape("multi_2", c=BEFORE)},
    "chain_with_holes": {"a": shape("multi_2", planned=HOLES, a=BEFORE), "b": shape("single", planned=HOLES, b=BEFORE)},
    "window": {"a": shape(), "b": shape(a=WINDOW)},
    "window_single": {"a": shape("single"), "b": shape("single", a=WINDOW)},
    "window_holes_single": {"a": shape("single", planned=HOLES), "b": shape("single", planned=HOLES, a=WINDOW)},
    "window_chunks": {"a": shape("multi_4"), "b": shape("multi_4", a=WINDOW), "c": shape("multi_4", b=SAME)},
    "whole": {"a": shape("multi_4"), "z": Shape(reads={"a": None}, is_partitioned=False)},
    "market": {
        "a": shape(),
        "b": shape(a=SAME),
        "c": shape("single", b=SAME, c=BEFORE),
        "d": shape("single", a=SAME, d=BEFORE),
        "z": Shape(reads={"c": None, "d": None}, is_partitioned=False),
    },
}


def _mapping(offsets: tuple[int, int] | None) -> dg.PartitionMapping:
    if offsets is None:
        return dg.AllPartitionMapping()
    return dg.TimeWindowPartitionMapping(start_offset=offsets[0], end_offset=offsets[1])


def _definition(case: str, name: str, one: Shape) -> dg.AssetsDefinition:
    @dg.asset(
        key=[case, name],
        partitions_def=DAYS if one.is_partitioned else None,
        backfill_policy=POLICIES[one.policy],
        deps=[dg.AssetDep([case, other], partition_mapping=_mapping(offsets)) for other, offsets in one.reads.items()],
    )
    def made() -> None:
        """Never run."""

    return made


with warnings.catch_warnings(action="ignore", category=dg.BetaWarning):  # policies are beta
    defs = dg.Definitions([_definition(case, name, one) for case, some in CASES.items() for name, one in some.items()])
