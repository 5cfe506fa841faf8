"""The ledgers of a code location, each looked at once, however many assets were built from what they tell of."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from marigold_assets import partitions
from marigold_assets.errors import ConfigurationError, MarigoldError, Where
from marigold_assets.location import CodeLocation, LocatedAsset
from marigold_assets.model import LedgerEntry, Place
from marigold_assets.surveying.agreement import Key

_TRIES = 3

Heads = Mapping[Key, LedgerEntry]


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """What the ledger and the table of an asset say at one moment.

    Attributes:
        heads: The newest ledger entries of its table.
        stored_rows: How many rows that holds; ``None``: there is no such table.
        notes: What else people should know.
    """

    heads: Heads
    stored_rows: int | None
    notes: tuple[str, ...] = ()

    @property
    def position(self) -> int:
        """The newest position of its ledger; 0 where nothing was ever written."""
        return max((entry.position for entry in self.heads.values()), default=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Related:
    """The heads of an asset and of everything that it was built from, at any depth.

    Attributes:
        heads: The heads, under every key that the ledger has of their asset.
        unknown: Owners of inputs of which nothing is known, with the reason.
        renamed: Former keys of assets, with what they are called now.
    """

    heads: Mapping[Place, LedgerEntry]
    unknown: Mapping[str, str]
    renamed: Mapping[str, str]


class Ledgers:
    """The ledgers of a code location.

    Args:
        location: The code location.
    """

    def __init__(self, location: CodeLocation) -> None:
        self._location = location
        self._former = _former_keys(location)
        self._looked: dict[str, Looked] = {}

    def of(self, asset: LocatedAsset) -> Looked:
        """What the ledger of an asset says; nothing, where there is no database.

        Raises:
            ConfigurationError: It is stored by something else.
            StoreBusyError: Another process holds the database.
        """
        if asset.owner not in self._looked:
            self._looked[asset.owner] = _look(asset)
        return self._looked[asset.owner]

    def history_of(self, asset: LocatedAsset) -> tuple[LedgerEntry, ...]:
        """The whole ledger of an asset, in order."""
        known = {entry.position: entry for entry in self.of(asset).heads.values()}
        known |= {entry.position: entry for entry in asset.store.superseded(asset.table)}
        return tuple(known[position] for position in sorted(known))

    def related_to(self, asset: LocatedAsset) -> Related:
        """The heads of an asset and of everything that it was built from."""
        heads: dict[Place, LedgerEntry] = {}
        unknown: dict[str, str] = {}
        renamed: dict[str, str] = {}
        due: list[tuple[str, Heads]] = [(asset.owner, self.of(asset).heads)]
        seen = {asset.owner}
        while due:
            owner, found = due.pop()
            heads |= {(owner, key): entry for key, entry in found.items()}
            read = {one.owner for entry in found.values() for one in entry.provenance.inputs}
            for name in sorted(read - seen):
                seen.add(name)
                try:
                    due.append((name, self._heads_of(name, asset, renamed)))
                except MarigoldError as error:
                    unknown[name] = error.problem
        return Related(heads=heads, unknown=unknown, renamed=renamed)

    def _heads_of(self, owner: str, reader: LocatedAsset, renamed: dict[str, str]) -> Heads:
        """The heads of an asset, by its present key, by a former one, or by what the ledger alone has of it."""
        assets = self._location.assets
        now = self._former.get(owner, owner) if owner not in assets else owner
        if now in assets:
            asset = assets[now]
            try:
                asset.refuse_missing_database()
                if found := self.of(asset).heads:
                    renamed |= {} if now == owner else {owner: now}
                    return found
                problem = "its ledger is empty"
            except MarigoldError as error:
                problem = error.problem
        else:
            problem = "the code location does not have it"
        table = reader.store.table_of(owner)
        if table is None:
            raise ConfigurationError(problem, remedy="materialize it, or name the code location that has it")
        return reader.store.heads(table)


def _look(asset: LocatedAsset) -> Looked:
    """The newest ledger entries of a table, its rows at the same time, and a note if it is written time and again."""
    tries = 0
    while True:
        tries += 1
        heads, rows = asset.store.heads(asset.table), asset.store.row_count(asset.table)
        newest = asset.store.newest(asset.table)
        if (newest and newest.position) == max((entry.position for entry in heads.values()), default=None):
            return Looked(heads=heads, stored_rows=rows)
        if tries == _TRIES:
            note = f"the table was written while it was counted, {_TRIES} times: look again later"
            return Looked(heads=heads, stored_rows=rows, notes=(note,))


def _former_keys(location: CodeLocation) -> dict[str, str]:
    """By former key of an asset, what it is called now; of those that several assets claim, nothing."""
    found: dict[str, list[str]] = {}
    for owner, asset in location.assets.items():
        if partitions.RENAMED_FROM in asset.spec.metadata:
            with suppress(MarigoldError):  # or a mistake in any asset would be one in all reports
                for former in partitions.swap_options(asset.spec.metadata, Where(asset=owner)).renamed_from:
                    found.setdefault(former, []).append(owner)
    return {former: owners[0] for former, owners in found.items() if len(owners) == 1}
