"""Whether what is stored is what the present code would make of the present inputs: pure comparisons of the ledger."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from marigold_assets.fingerprint import Comparison, compare
from marigold_assets.model import Definition, InputPartition, LedgerEntry, Place


@dataclass(frozen=True, slots=True, kw_only=True)
class Code:
    """The code that a run is about to use.

    Attributes:
        version: Its declared version, if any.
        fingerprint: See :mod:`marigold_assets.code.loaded`.
        config_hash: Digest of the config that the function is given, if it takes any.
    """

    version: str | None
    fingerprint: str | None
    config_hash: str | None = None

    def built(self, entry: LedgerEntry) -> bool:
        """Whether the very same code has built what an entry tells of."""
        return self.declared_same(entry) and entry.provenance.code_fingerprint == self.fingerprint

    def declared_same(self, entry: LedgerEntry) -> bool:
        """Whether its author calls the code that has built it the same; undeclared, whether it is."""
        return self.difference(entry) is None

    def difference(self, entry: LedgerEntry) -> str | None:
        """What else has built what an entry tells of, if anything."""
        found = entry.provenance
        if found.code_version != self.version:
            return f"code version {found.code_version!r}, which is {self.version!r} now"
        if self.version is None and found.code_fingerprint != self.fingerprint:
            return "other code"
        return None if found.config_hash == self.config_hash else "another config"

    def has_built(self, entry: LedgerEntry) -> bool | None:
        """Whether code of its version has built what an entry tells of, whatever the config; ``None``: nobody knows."""
        return self.is_version(entry.provenance.code_version, entry.provenance.code_fingerprint)

    def is_version(self, version: str | None, fingerprint: str | None) -> bool | None:
        """Whether other code goes by its version; undeclared, whether it is the same; ``None``: nobody knows."""
        if self.version is not None or version is not None:
            return version == self.version
        if self.fingerprint is None or fingerprint is None or _method(self.fingerprint) != _method(fingerprint):
            return None
        return fingerprint == self.fingerprint

    def would_build(self, entry: LedgerEntry) -> Definition:
        """The definition under which it would build that again, with the config that it was built with."""
        return Definition(
            code_version=self.version,
            code_fingerprint=self.fingerprint if self.version is None else None,
            config_hash=entry.provenance.config_hash,
        )

    def is_of(self, definition: Definition) -> bool:
        """Whether a definition is one of its version."""
        if definition.code_version != self.version:
            return False
        if self.version is not None and None in {definition.code_fingerprint, self.fingerprint}:
            return True
        return self.fingerprint is not None and definition.code_fingerprint == self.fingerprint


def _method(fingerprint: str) -> str:
    """How a fingerprint was made: those of two methods say nothing about each other."""
    return fingerprint.partition(":")[0]


def same_inputs(recorded: Iterable[InputPartition], present: Iterable[InputPartition], *, unknown: bool) -> bool:
    """Whether inputs hold now what they held when they were read.

    Args:
        recorded: What the ledger says they held.
        present: What they hold now.
        unknown: What to say where both hashes are unknown.
    """
    before = {(one.owner, one.partition_key): one.content_hash for one in recorded}
    now = {(one.owner, one.partition_key): one.content_hash for one in present}
    return before.keys() == now.keys() and all(_same(before[key], now[key], unknown=unknown) for key in before)


def _same(before: str | None, now: str | None, *, unknown: bool) -> bool:
    if before is None or now is None:
        return unknown and before is now
    return compare(before, now) is Comparison.SAME


def is_restated(recorded: str | None, now: str) -> bool:
    """Whether an input holds something else now than was read; ``None`` was recorded where nothing was there yet."""
    return recorded is None or compare(recorded, now) is Comparison.DIFFERENT


def first_restated(
    keys: Sequence[str],
    heads: Mapping[str | None, LedgerEntry],
    inputs: Mapping[Place, str | None],
    code: Code,
) -> tuple[str, str] | None:
    """The first partition of a chain that its present code and inputs would not make as it is.

    Args:
        keys: The chain's partitions in order.
        heads: Their newest ledger entries; a partition without one is not judged.
        inputs: What all input partitions hold now, the chain's own among them.
        code: The present code.

    Returns:
        The partition, and what was restated since it was built; ``None`` if all is as it should be.
    """
    for key in keys:
        entry = heads.get(key)
        if entry is None:
            continue
        if (other := code.difference(entry)) is not None:
            return key, other
        for read in entry.provenance.inputs:
            now = inputs.get((read.owner, read.partition_key))
            if now is None or not is_restated(read.content_hash, now):  # or nothing is known of it
                continue
            when = "before that was materialized" if read.content_hash is None else "as it was before it was restated"
            return key, f"{read.owner} {read.partition_key!r} {when}"
    return None
