"""What is known of an asset before anything is said of it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from marigold_assets.lineage import Code
from marigold_assets.mixtures import Changes
from marigold_assets.model import Acceptance, Definition, LedgerEntry, TableName
from marigold_assets.surveying.agreement import Events, Key
from marigold_assets.versions import Heads


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Everything that is known of an asset.

    Attributes:
        owner: The asset as the ledger has it.
        table: Its table.
        keys: Its partitions in order; ``[None]`` if it has none.
        heads: The newest ledger entries of its table.
        history: Its whole ledger, in order; empty where it is not mixed.
        related: The heads of everything that it was built from, and its own.
        unknown: Owners of inputs of which nothing is known, with the reason.
        reads: Whether it reads other assets.
        acceptances: What was accepted, in order.
        present: The code that is loaded now.
        changes: What its author declares of code versions.
        events: What the event log says; ``None`` where there is none to ask.
        no_events: Why not.
        home: The folder of the Dagster instance whose event log that is.
        stored_rows: How many rows its table holds; ``None``: there is no such table.
        renamed: Former keys of assets that it was built from, with what they are called now.
        same_code: Fingerprints of other code that the lock file says makes the same as the present.
        notes: What else people should know.
        options: What names its code location to this command.
        impure: Columns that are admitted to differ whenever they are computed.
    """

    owner: str
    table: TableName
    keys: Sequence[Key]
    heads: Mapping[Key, LedgerEntry]
    history: Sequence[LedgerEntry]
    related: Heads
    unknown: Mapping[str, str]
    reads: bool
    acceptances: Sequence[Acceptance]
    present: Code
    changes: Changes
    events: Events | None
    no_events: str | None = None
    home: str | None = None
    stored_rows: int | None = None
    renamed: Mapping[str, str] = field(default_factory=dict)
    same_code: Collection[str] = ()
    notes: Sequence[str] = ()
    options: Sequence[str] = ()
    impure: Collection[str] = ()


def is_mixed(keys: Sequence[Key], heads: Mapping[Key, LedgerEntry]) -> bool:
    """Whether partitions were built by several codes."""
    return len({Definition.exactly(heads[key]) for key in keys if key in heads}) > 1
