"""What is to be done with every partition of one asset, once what it reads has been judged; pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from marigold_assets.errors import ConfigurationError
from marigold_assets.planning.lacking import Cause, cause_of, lacks_of
from marigold_assets.planning.model import Key, Lack, Reason, Request, Skip, SkippedKey
from marigold_assets.planning.naming import named
from marigold_assets.planning.states import AssetState, Reads, Verdict

How = tuple[Reason, str]
"""Why a partition is planned, and the same in words."""

CURRENT: Final = "is what present code and inputs make"
"""The words for what is current, where nothing else is to be said of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """An asset whose partitions were judged.

    Attributes:
        state: The asset as it stands.
        positions: Its partitions, each with its place in their order.
        planned: What is built, in order.
        skipped: What was asked for and is left alone, in order.
        blocked: Of what cannot be built, what is missing to that.
        outdated: What exists, is not built and becomes stale through what is.
        lacks: What is missing to those that were asked for and cannot be built.
        notes: What people should know.
    """

    state: AssetState
    positions: Mapping[Key, int]
    planned: Mapping[Key, How]
    skipped: tuple[SkippedKey, ...]
    blocked: Mapping[Key, Cause]
    outdated: Collection[Key]
    lacks: tuple[Lack, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def reaches_back(self) -> bool:
        """Whether something is built that was not asked for."""
        return not self.planned.keys() <= set(self.state.wanted)


def judge(state: AssetState, request: Request, above: Mapping[str, Judged]) -> Judged:
    """Judge an asset.

    Args:
        state: The asset.
        request: What is asked for.
        above: All that it reads, judged, as far as that is known.

    Raises:
        ConfigurationError: A partition is asked for that is none.
    """
    positions = {key: number for number, key in enumerate(state.keys)}
    asked = _asked(state, positions)
    judging = _Judging(state, request, positions, above)
    judging.pass_over(asked, {})
    last = positions[asked[-1]] if asked else -1
    lookback = _looking_back(judging, max(request.lookback, state.lookback))
    if lookback or any(one.reaches_back for one in above.values() if one.state.owner in state.reads):
        before = [key for key in state.keys[:last] if key in judging.built]
        sequence = sorted({*asked, *before}, key=positions.__getitem__)
        judging = _Judging(state, request, positions, above, asked=frozenset(asked))
        judging.pass_over(sequence, lookback)
    outdated = judging.outdated()
    return Judged(
        state=state,
        positions=positions,
        planned=judging.planned,
        skipped=tuple(judging.skipped),
        blocked=judging.blocked,
        outdated=outdated,
        lacks=lacks_of(
            [judging.blocked[one.key] for one in judging.skipped if one.reason is Skip.BLOCKED],
            {**{owner: one.state for owner, one in above.items()}, state.owner: state},
        ),
        notes=tuple(judging.notes(outdated)),
    )


def _asked(state: AssetState, positions: Mapping[Key, int]) -> list[Key]:
    try:
        asked = sorted(dict.fromkeys(state.wanted), key=positions.__getitem__)
    except KeyError as error:
        key = error.args[0]
        raise ConfigurationError(
            "it is asked for, and is no partition of the asset" if key is not None else "the asset has partitions",
            remedy="ask for partitions that its definition has",
            asset=state.owner,
            partition=key,
        ) from None
    return asked


def _looking_back(judging: _Judging, reach: int) -> dict[Key, Key]:
    """What precedes a missing partition by no more than the lookback and exists, each with that missing one."""
    found: dict[Key, Key] = {}
    covered = 0
    for key, (reason, _) in judging.planned.items():
        if reach and reason is Reason.MISSING:
            place = judging.positions[key]
            for number in range(max(covered, place - reach), place):
                before = judging.state.keys[number]
                if before in judging.built:
                    found[before] = key
            covered = place
    return found


@dataclass(frozen=True, slots=True)
class _Input:
    """What an asset reads: the other asset as far as it is known, or itself."""

    owner: str
    reads: Reads
    other: Judged | None

    def of(self, key: Key) -> Collection[Key]:
        return (key,) if self.reads.same_keys else self.reads.inputs_of(key)


@dataclass(slots=True)
class _Seen:
    """What was found of input partitions: many partitions may read the very same."""

    inputs: Collection[Key] | None = None
    why: str | None = None
    cause: Cause | None = None


class _Judging:
    """One pass over partitions in their order.

    Args:
        state: The asset.
        request: What is asked for.
        positions: The places of its partitions.
        above: What it reads, judged.
        asked: Which partitions are asked for; ``None``: all that are passed over.
    """

    def __init__(
        self,
        state: AssetState,
        request: Request,
        positions: Mapping[Key, int],
        above: Mapping[str, Judged],
        *,
        asked: Collection[Key] | None = None,
    ) -> None:
        self.state, self.request, self.positions = state, request, positions
        self.built = state.built if isinstance(state.built, (set, frozenset)) else frozenset(state.built)
        self.planned: dict[Key, How] = {}
        self.skipped: list[SkippedKey] = []
        self.blocked: dict[Key, Cause] = {}
        self._asked = asked
        known = {owner: reads for owner, reads in state.reads.items() if owner == state.owner or owner in above}
        self._inputs = [
            _Input(owner, reads, None if owner == state.owner else above[owner]) for owner, reads in known.items()
        ]
        self._moving = [one for one in self._inputs if one.other is None or one.other.planned]
        self._required = [one for one in self._inputs if one.reads.is_required]
        self._rebuilt_last: dict[str, _Seen] = {}
        self._blocked_last: dict[str, _Seen] = {}

    def pass_over(self, keys: Iterable[Key], lookback: Mapping[Key, Key]) -> None:
        """Judge partitions, given in order."""
        for key in keys:
            is_asked = self._asked is None or key in self._asked
            rebuilt = self._rebuilt(key) if self._moving else None
            if not is_asked and rebuilt is None and key not in lookback:
                continue
            how = self._how(key, rebuilt, lookback.get(key))
            if isinstance(how[0], Reason) and self._required and (why := self._blocked(key)) is not None:
                how = Skip.BLOCKED, why
            if isinstance(how[0], Reason):
                self.planned[key] = how[0], how[1]
            elif is_asked:
                self.skipped.append(SkippedKey(key=key, reason=how[0], because=how[1]))

    def _how(self, key: Key, rebuilt: str | None, missing: Key) -> tuple[Reason | Skip, str]:
        """What to do with a partition, were all its inputs there."""
        if key not in self.built:
            if self.request.stale:
                return Skip.MISSING, "was never built, and only what is stale was asked for"
            return Reason.MISSING, "was never built"
        verdict = self.state.verdicts.get(key)
        if verdict is not None and verdict.accepted is None:
            return verdict.reason, verdict.because
        if rebuilt is not None:  # what was accepted, or cannot be judged, was made of other inputs as well
            return Reason.STALE_INPUT, rebuilt
        left, why = self._left(key, verdict)
        if missing is not None and left is Skip.CURRENT:
            return Reason.LOOKBACK, f"precedes {missing}, which is missing"
        if self.request.restate:
            return Reason.RESTATEMENT, f"computed again on request{'' if left is Skip.CURRENT else f', though {why}'}"
        if (through := self.state.stale_through.get(key)) is not None:
            return Skip.STALE, f"stale only through {through.because}, which this plan does not build"
        return left, why

    def _left(self, key: Key, verdict: Verdict | None) -> tuple[Skip, str]:
        """As what a partition is left alone of which nothing is wrong that building it would mend."""
        if verdict is not None:
            return Skip.ACCEPTED, f"{verdict.because}, accepted: {verdict.accepted}"
        if key in self.state.unknown:
            return Skip.UNKNOWN, self.state.unknown[key]
        return Skip.CURRENT, CURRENT

    def _rebuilt(self, key: Key) -> str | None:
        """Which input of a partition the plan builds."""
        for one in self._moving:
            inputs = one.of(key)
            seen = self._rebuilt_last.get(one.owner)
            if seen is None or seen.inputs is not inputs:
                planned = self.planned if one.other is None else one.other.planned
                seen = _Seen(inputs, next((_in_words(one, each, planned) for each in inputs if each in planned), None))
                if one.other is not None:  # of its own partitions more are planned meanwhile
                    self._rebuilt_last[one.owner] = seen
            if seen.why is not None:
                return seen.why
        return None

    def _blocked(self, key: Key) -> str | None:
        """Which required input of a partition there will not be."""
        for one in self._required:
            inputs = one.of(key)
            seen = self._blocked_last.get(one.owner)
            if seen is None or seen.inputs is not inputs:
                seen = self._absent(one, inputs)
                if one.other is not None:
                    self._blocked_last[one.owner] = seen
            if seen.why is not None and seen.cause is not None:
                self.blocked[key] = seen.cause
                return seen.why
        return None

    def _absent(self, one: _Input, inputs: Collection[Key]) -> _Seen:
        """The first of some required inputs that there will not be."""
        other: _Judging | Judged = self if one.other is None else one.other
        there = self.built if one.other is None else one.other.state.built
        planned, blocked, places = other.planned, other.blocked, other.positions
        for key in inputs:
            if key in there or key in planned:
                continue
            name = named(one.owner, key)
            if key in blocked:
                cause = blocked[key]
                return _Seen(inputs, f"{name} does not exist and cannot be built: {cause.words}", cause)
            cause = cause_of(other.state, key, places, is_only_stale=self.request.stale)
            return _Seen(inputs, cause.words, cause)
        return _Seen(inputs)

    def outdated(self) -> set[Key]:
        """What exists and becomes stale, since what it was built from is built by the plan or becomes stale itself."""
        found: set[Key] = set()
        sources: list[tuple[_Input, tuple[Collection[Key], ...]]] = []
        for one in self._inputs:
            own: tuple[Collection[Key], ...] = (self.planned, found)
            sources.append((one, own if one.other is None else (one.other.planned, one.other.outdated)))
        if not any(group for _, moving in sources for group in moving):
            return found
        left = {one.key for one in self.skipped} | self.planned.keys() | self.state.verdicts.keys()
        for key in self.state.keys:
            if key not in left and key in self.built:
                for one, moving in sources:
                    if any(each in group for each in one.of(key) for group in moving):
                        found.add(key)
                        break
        return found

    def notes(self, outdated: Collection[Key]) -> Iterable[str]:
        """What people should know of what is not in the plan."""
        if outdated:
            places = sorted(outdated, key=self.positions.__getitem__)
            yield _outdated(self.state, places)
        for one in self._inputs:
            if (note := self._upon_stale(one)) is not None:
                yield note

    def _upon_stale(self, one: _Input) -> str | None:
        """The first partition that is about to be built upon one that is stale and stays so."""
        is_own = one.other is None
        state, moving = (self.state, self.planned) if one.other is None else (one.other.state, one.other.planned)
        if not state.verdicts and not state.stale_through:
            return None
        last_inputs = None
        for key in self.planned:
            inputs = one.of(key)
            if inputs is last_inputs:
                continue
            last_inputs = inputs
            for each in inputs:
                if each in moving or (why := _why_stale(state, each, with_accepted=is_own)) is None:
                    continue
                upon = f"{named(self.state.owner, key)} is built upon {named(one.owner, each)}"
                what = f"{upon}, which is not in this plan though it is stale ({why})"
                if not is_own:
                    return f"{what}, and becomes stale with it; plan {one.owner} as well"
                return f"{what}: runs tell of that in their log, and refuse it if strict{self._mended_from(each)}"
        return None

    def _mended_from(self, key: Key) -> str:
        """From where on a chain is to be built again, so that what it holds there is not stale."""
        state = self.state
        stale = [one for one in (*state.verdicts, *state.stale_through) if _why_stale(state, one) is not None]
        first = min((self.positions[one] for one in stale if one in self.positions), default=None)
        if first is None or first > self.positions[key]:
            return ""
        others = {one.owner for one in state.stale_through.values()} - {state.owner}
        along = f"plan {' and '.join(sorted(others))} as well and " if others else ""
        return f"; to mend it, {along}begin with {state.keys[first]}"


def _why_stale(state: AssetState, key: Key, *, with_accepted: bool = False) -> str | None:
    """Why a partition is stale, in words; ``None``: it is not."""
    verdict, through = state.verdicts.get(key), state.stale_through.get(key)
    if verdict is not None and (with_accepted or verdict.accepted is None):
        return verdict.because
    return None if through is None else f"{through.origin} was restated"


def _in_words(one: _Input, key: Key, planned: Mapping[Key, How]) -> str:
    return f"{named(one.owner, key)} is {'built' if planned[key][0] is Reason.MISSING else 'rebuilt'}"


def _outdated(state: AssetState, keys: Sequence[Key]) -> str:
    first, last = keys[0], keys[-1]
    if not state.wanted:
        if len(keys) == 1:
            return f"{named(state.owner, first)} is not in this plan, and becomes stale through it"
        return (
            f"{state.owner} is not in this plan, and {len(keys):,} of its partitions, {first} to {last},"
            " become stale through it"
        )
    if len(keys) == 1:
        return f"{named(state.owner, first)} becomes stale through this plan; to include it, plan to {last}"
    return (
        f"{len(keys):,} more partitions of {state.owner}, {first} to {last}, become stale through this plan;"
        f" to include them, plan to {last}"
    )
