"""What is known of an asset before anything is planned: gathered elsewhere, and judged here, in ``wanted``."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from marigold_assets.planning.model import Key, Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Reads:
    """How an asset reads another one, or itself.

    Attributes:
        inputs_of: The input partitions that a partition reads, those that do not exist included.
        is_required: Whether a partition cannot be built where one of them was never built.
        same_keys: Whether every partition reads just the one of its own name, under one partitions definition: then
            ``inputs_of`` need not be asked.
    """

    inputs_of: Callable[[Key], Collection[Key]]
    is_required: bool = True
    same_keys: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What is wrong with a partition that exists.

    Attributes:
        reason: ``STALE_CODE`` or ``STALE_INPUT``.
        because: The same in words.
        accepted: By what somebody has accepted it as it is, in words; ``None``: nobody has.
    """

    reason: Reason
    because: str
    accepted: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Through:
    """Why a partition is stale although building it again would mend nothing.

    Attributes:
        owner: The asset of the input that is stale.
        because: That input, in words.
        origin: What was restated in the first place, in words.
    """

    owner: str
    because: str
    origin: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AssetState:
    """An asset as it stands.

    Attributes:
        owner: The asset, as the ledger has it.
        keys: Its partitions, in order; ``(None,)`` if it has none.
        wanted: Those that somebody asks for, in that order; none of an asset that is only read.
        built: Those that exist.
        verdicts: Of those that exist and are not as present code and inputs would make them, why.
        unknown: Of those that exist and cannot be judged, why: nobody has recorded what has built them.
        reads: What it reads, itself included where it is a chain.
        keys_per_run: How many partitions a run builds at most; ``None``: as many as are ready.
        grouping: Assets whose grouping is equal, and not ``None``, may share a run where their partitions are the same:
            of one code location, partitions definition and backfill policy.
        lookback: How many partitions before a missing one are computed again as well, as its author says.
        code: What is to build it: its code version, or the fingerprint of code that has none; empty where neither is
            known.
        fingerprint: The fingerprint of that code, whether it has a version or not; empty where that is not known.
        stale_through: Of those that exist and that would be made of the same again, through which input they are stale
            all the same, and what was restated.
        elsewhere: What it reads and the code location does not have, so that nothing is known of it.
        is_selected: Whether the asset is asked for, though perhaps none of its partitions; otherwise it is only read.
        is_external: Whether nothing here builds it: then all of it counts as existing, and nobody knows.
        notes: What people should know.
    """

    owner: str
    keys: Sequence[Key]
    wanted: Sequence[Key] = ()
    built: Collection[Key] = frozenset()
    verdicts: Mapping[Key, Verdict] = field(default_factory=dict)
    unknown: Mapping[Key, str] = field(default_factory=dict)
    reads: Mapping[str, Reads] = field(default_factory=dict)
    keys_per_run: int | None = 1
    grouping: object = None
    lookback: int = 0
    code: str = ""
    fingerprint: str = ""
    stale_through: Mapping[Key, Through] = field(default_factory=dict)
    elsewhere: tuple[str, ...] = ()
    is_selected: bool = True
    is_external: bool = False
    notes: tuple[str, ...] = ()

    @property
    def is_chain(self) -> bool:
        """Whether a partition needs the one before it."""
        return self.owner in self.reads
