"""Whether the ledger, the event log of the Dagster instance and the table itself say the same: pure comparisons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from marigold_assets.model import LedgerEntry

Key = str | None
_SINGLE = "mh1:"  # of several partitions together it is another word


@dataclass(frozen=True, slots=True, kw_only=True)
class Events:
    """What the event log of the Dagster instance says.

    Attributes:
        materialized: Partitions that have a materialization.
        data_versions: The data version of the newest one, of those that have any.
        swap_ids: Which swap the newest one tells of, of those that another run has logged than the ledger says.
    """

    materialized: frozenset[Key]
    data_versions: Mapping[Key, str]
    swap_ids: Mapping[Key, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Disagreement:
    """Where the event log and the ledger do not say the same.

    Attributes:
        event_missing: The ledger knows a partition, and no event does.
        ledger_missing: An event knows a partition, and the ledger does not.
        differing: The newest event tells of other content than the ledger.
        other_swap: The newest event tells of the same content, and of another swap: under another version, perhaps.
        unknown: The newest event carries a data version that says nothing of this one partition.
        known: How many partitions either knows.
    """

    event_missing: tuple[Key, ...] = ()
    ledger_missing: tuple[Key, ...] = ()
    differing: tuple[Key, ...] = ()
    other_swap: tuple[Key, ...] = ()
    unknown: tuple[Key, ...] = ()
    known: int = 0

    @property
    def counts(self) -> bool:
        """Whether something is wrong."""
        return bool(self.wrong)

    @property
    def wrong(self) -> int:
        """Of how many partitions."""
        return sum(map(len, (self.event_missing, self.ledger_missing, self.differing, self.other_swap)))

    @property
    def is_everywhere(self) -> bool:
        """Whether nothing agrees: then it is another instance, or another database, that is compared."""
        return self.wrong > 0 and self.wrong == self.known


def disagreement(keys: Sequence[Key], heads: Mapping[Key, LedgerEntry], events: Events, *, owner: str) -> Disagreement:
    """Compare event log and ledger.

    What was built before the asset got partitions, or lost them, has no event of the present kind. What was built
    under a former key has its event there.

    Args:
        keys: The partitions of the asset in order; ``[None]`` if it has none.
        heads: The newest ledger entries of its table.
        events: What the event log says.
        owner: The asset as the ledger has it now.
    """
    is_whole = None in keys
    found: dict[str, list[Key]] = {}
    known = 0
    for key in dict.fromkeys([*keys, *heads, *events.materialized]):
        entry = heads.get(key)
        if (key is None) != is_whole:
            continue
        if entry is not None and entry.owner != owner and key not in events.materialized:
            continue
        known += entry is not None or key in events.materialized
        if (what := _differs(key, entry, events)) is not None:
            found.setdefault(what, []).append(key)
    return Disagreement(**{what: tuple(some) for what, some in found.items()}, known=known)


def _differs(key: Key, entry: LedgerEntry | None, events: Events) -> str | None:
    if key not in events.materialized:
        return None if entry is None else "event_missing"
    if entry is None:
        return "ledger_missing"
    told = events.data_versions.get(key)
    if told is not None and told.startswith(_SINGLE) and told != entry.content_hash:
        return "differing"
    if events.swap_ids.get(key, entry.swap_id) != entry.swap_id:
        return "other_swap"
    return "unknown" if told is None or not told.startswith(_SINGLE) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRows:
    """How many rows a table has, and how many it should have.

    Attributes:
        stored: How many it has; ``None``: there is no such table.
        least: How many the ledger has of the partitions that the asset has now.
        most: How many together with those of partitions that it has no longer: where days became months, rows are
            in both. What a later write of the whole table has replaced is in neither.
    """

    stored: int | None
    least: int
    most: int

    @property
    def agrees(self) -> bool:
        """Whether that is what the ledger says, as far as it can tell."""
        return self.most == 0 if self.stored is None else self.least <= self.stored <= self.most


def table_rows(stored: int | None, keys: Sequence[Key], heads: Mapping[Key, LedgerEntry]) -> TableRows:
    """Compare the number of rows of a table with what the ledger says."""
    own, whole = set(keys), heads.get(None)
    left = {key: entry for key, entry in heads.items() if whole is None or entry.position >= whole.position}
    return TableRows(
        stored=stored,
        least=sum(entry.row_count for key, entry in left.items() if key in own),
        most=sum(entry.row_count for entry in left.values()),
    )
