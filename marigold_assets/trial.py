"""Whether a function depends on its partition alone, tried out: it is run twice, once under other conditions.

The second run is one of a process of its own, which loads the code location anew, under other conditions, too: another
hash seed, and nothing that modules have kept from the first run. What differs between the two is not determined by the
partition. Only then more runs find out which of the conditions is enough.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager, redirect_stdout
from dataclasses import dataclass, replace
from multiprocessing import get_context
from typing import Any

from marigold_assets.disturbance import NAMES, PROCESS, Conditions, disturbed, otherwise, variables
from marigold_assets.errors import ConfigurationError
from marigold_assets.location import CodeLocation, LocatedAsset
from marigold_assets.proof import Computed, Outcome, Replayed
from marigold_assets.replay import dynamic_partitions, impure_columns, replay

ROWS = "number of rows"
TOGETHER = "values that stand in one row together"
FAILURE = "whether it fails"
ALWAYS = "every time that it is computed"
TOGETHER_ONLY = "only several of the conditions together"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependence:
    """Something that depends on more than the partition.

    Attributes:
        what: The column, or another word for what differs.
        is_column: Whether it is a column.
        partitions: In which partitions.
        causes: Which of the conditions alone are enough.
        waiver: Why it is said to be no matter, if it is.
    """

    what: str
    is_column: bool
    partitions: tuple[str, ...]
    causes: tuple[str, ...]
    waiver: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What came of it.

    Attributes:
        keys: The partitions that were computed twice and could be judged.
        seed: What decided about the seeds.
        dependences: What differed.
        unjudged: The other partitions, each with the reason.
    """

    keys: tuple[str, ...]
    seed: int
    dependences: tuple[Dependence, ...]
    unjudged: Mapping[str, str]


def try_out(
    load: Callable[[], CodeLocation],
    location: CodeLocation,
    asset: LocatedAsset,
    keys: Sequence[str],
    *,
    seed: int,
    instance: Any = None,
    config: Mapping[str, Any] | None = None,
) -> Trial:
    """Compute partitions twice, and find out what differs.

    The function and its resources are run for real, several times.

    Args:
        load: Loads the code location once more, in another process: a picklable function.
        location: The same, loaded here.
        asset: The asset.
        keys: The partitions.
        seed: Decides about the seeds.
        instance: Where dynamic partitions are.
        config: Run config.

    Raises:
        ConfigurationError: It cannot be run, here or in another process.
        StoreBusyError: Another process held the database until the deadline.
        StoreUnavailableError: The database cannot be opened.
    """
    is_chain = asset.key in asset.definition.dependency_keys
    conditions = otherwise(is_chain=is_chain, seed=seed)
    elsewhere = _Elsewhere(
        load=load,
        name=asset.owner,
        keys=tuple(keys),
        dynamic=dynamic_partitions(location, asset, instance),
        config=config or {},
    )

    def here(under: Conditions) -> Sequence[Replayed]:
        with redirect_stdout(sys.stderr):
            return replay(location, asset, keys, instance=instance, config=config, conditions=under, is_compared=False)

    with elsewhere.started(conditions, loading=conditions.before) as other:
        usual = here(Conditions())
        unusual = elsewhere.result(other)
    unjudged = {
        one.partition_key: why
        for one, two in zip(usual, unusual, strict=True)
        if (why := _why_not(one, two)) is not None
    }
    judged = [key for key in keys if key not in unjudged]
    found = _differing(usual, unusual, judged)
    causes = _causes(found, conditions, usual, judged, here=here, elsewhere=elsewhere) if found else {}
    waived = impure_columns(asset)
    return Trial(
        keys=tuple(judged),
        seed=seed,
        dependences=tuple(_dependences(found, causes, waived, keys)),
        unjudged=unjudged,
    )


def _causes(
    differing: _Found,
    conditions: Conditions,
    usual: Sequence[Replayed],
    judged: Sequence[str],
    *,
    here: Callable[[Conditions], Sequence[Replayed]],
    elsewhere: _Elsewhere,
) -> dict[str, _Found]:
    """What each of the conditions alone makes differ.

    Another order matters to what modules keep, and needs a process that has kept nothing: beside one with the same hash
    seed in the usual order. What another process with that same hash seed makes differ, lies with the process: it has
    loaded the code at another time, of another clock.
    """
    always = _differing(usual, here(Conditions()), judged)
    if differing <= always:
        return {"nothing": always}
    hashing = Conditions(hash_seed=conditions.hash_seed)
    turned = replace(hashing, is_reversed=True) if conditions.is_reversed else None
    with ExitStack() as until_end:
        hashed = until_end.enter_context(elsewhere.started(hashing))
        loaded = until_end.enter_context(elsewhere.started(hashing, loading=conditions.before))
        reordered = None if turned is None else until_end.enter_context(elsewhere.started(turned))
        found = {"nothing": always}
        for name, one in conditions.alone().items():
            if name not in {"nothing", NAMES["hash_seed"], NAMES["is_reversed"]}:
                found[name] = _differing(usual, here(one), judged)
        other = elsewhere.result(hashed)
        found[PROCESS] = of_process = _differing(other, elsewhere.result(loaded), judged)
        found[NAMES["hash_seed"]] = _differing(usual, other, judged) - of_process
        if reordered is not None:
            found[NAMES["is_reversed"]] = _differing(other, elsewhere.result(reordered), judged) - of_process
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """Dynamic partitions that somebody else has looked up."""

    partitions: Mapping[str, list[str]]

    def get_dynamic_partitions(self, name: str) -> list[str]:
        return self.partitions.get(name, [])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Elsewhere:
    """What another process is to compute."""

    load: Callable[[], CodeLocation]
    name: str
    keys: tuple[str, ...]
    dynamic: Mapping[str, list[str]]
    config: Mapping[str, Any]

    @contextmanager
    def started(
        self, conditions: Conditions, *, loading: Conditions | None = None
    ) -> Iterator[Future[tuple[Replayed, ...]]]:
        """Have a process compute.

        Args:
            conditions: Under which it calls the function.
            loading: Under which it loads the code.
        """
        with ProcessPoolExecutor(max_workers=1, mp_context=get_context("spawn")) as pool:
            with variables(conditions):
                future = pool.submit(_compute, self, conditions, loading or Conditions())
            yield future

    def result(self, future: Future[tuple[Replayed, ...]]) -> tuple[Replayed, ...]:
        try:
            return future.result()
        except BrokenProcessPool:
            raise ConfigurationError(
                "the process that was to compute it under other conditions has ended before it had",
                remedy="look at what it said on stderr: its function, or a module that it imports, may end the process",
                asset=self.name,
            ) from None


def _compute(job: _Elsewhere, conditions: Conditions, loading: Conditions) -> tuple[Replayed, ...]:
    with redirect_stdout(sys.stderr):
        with disturbed(loading):
            location = job.load()
        return replay(
            location,
            location.asset(job.name),
            job.keys,
            instance=_Known(partitions=job.dynamic),
            config=job.config,
            conditions=conditions,
            is_compared=False,
        )


def _why_not(one: Replayed, two: Replayed) -> str | None:
    """Why a partition cannot be judged, if so."""
    if one.outcome is two.outcome is Outcome.FAILED:
        return one.reason
    if Outcome.FAILED not in {one.outcome, two.outcome} and one.inputs != two.inputs:
        return "an input was restated between the two runs"
    return None


_Found = set[tuple[str, str]]
"""What differs, and in which partition; a column after a tab."""


def _differing(usual: Sequence[Replayed], other: Sequence[Replayed], judged: Sequence[str]) -> _Found:
    return {
        (what, one.partition_key)
        for one, two in zip(usual, other, strict=True)
        if one.partition_key in judged
        for what in _what_differs(one.computed, two.computed)
    }


def _what_differs(one: Computed | None, two: Computed | None) -> list[str]:
    if one is None or two is None:
        return [FAILURE] if one is not two else []
    if one.content_hash == two.content_hash:
        return []
    if one.row_count != two.row_count:
        return [ROWS]
    types = [{column.name: column.type for column in computed.columns} for computed in (one, two)]
    names = dict.fromkeys((*types[0], *types[1]))
    differing = [
        name
        for name in names
        if one.column_hashes.get(name) != two.column_hashes.get(name) or types[0].get(name) != types[1].get(name)
    ]
    return [f"\t{name}" for name in differing] or [TOGETHER]


def _dependences(
    found: _Found, causes: Mapping[str, _Found], waived: Mapping[str, str], keys: Sequence[str]
) -> Iterator[Dependence]:
    for what in sorted({what for what, _ in found}):
        own = {place for place in found if place[0] == what}
        if own & causes["nothing"]:
            reasons = [ALWAYS]
        else:
            reasons = [name for name, differing in causes.items() if own & differing] or [TOGETHER_ONLY]
        name = what.removeprefix("\t")
        is_column = name != what
        yield Dependence(
            what=name,
            is_column=is_column,
            partitions=tuple(key for key in keys if (what, key) in own),
            causes=tuple(reasons),
            waiver=waived.get(name) if is_column else None,
        )
