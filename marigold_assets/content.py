"""What really changed from code to code: partitions that were computed again from the same inputs, compared; pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from marigold_assets.fingerprint import Comparison, ContentHash, compare
from marigold_assets.model import Definition, InputPartition, LedgerEntry, fold

_Pair = tuple[Definition, Definition]


@dataclass(frozen=True, slots=True, kw_only=True)
class ContentChange:
    """What became of partitions that were built by one code and then, from the same inputs, by another.

    Attributes:
        before: The older definition.
        after: The newer one.
        partitions: How many partitions that were.
        columns: Per column that has not the same content, how many partitions differ in it.
        moved: How many partitions differ only in which values stand in one row together.
        row_counts: How many partitions have another number of rows.
    """

    before: Definition
    after: Definition
    partitions: int
    columns: Mapping[str, int]
    moved: int
    row_counts: int = 0

    @property
    def is_silent(self) -> bool:
        """Whether both declare the same version and config."""
        return (self.before.code_version, self.before.config_hash) == (
            self.after.code_version,
            self.after.config_hash,
        ) and self.before.code_version is not None


def content_changes(entries: Iterable[LedgerEntry], *, ignored: Collection[str] = ()) -> tuple[ContentChange, ...]:
    """Which columns really changed from one code to the next, by the content hashes of each column.

    Partitions whose inputs were others, or are not known, say nothing about the code and are left out.

    Args:
        entries: Ledger entries of one table in the order of the ledger.
        ignored: Columns that do not count.

    Returns:
        One for each two definitions, which name the code exactly, whatever version it declared.
    """
    without = set(map(fold, ignored))
    newest: dict[str | None, LedgerEntry] = {}
    compared: dict[_Pair, list[tuple[LedgerEntry, LedgerEntry]]] = defaultdict(list)
    for entry in entries:
        before = newest.get(entry.partition_key)
        newest[entry.partition_key] = entry
        if before is None or not _from_the_same(before, entry):
            continue
        pair = Definition.exactly(before), Definition.exactly(entry)
        if pair[0] != pair[1] and compare(before.content_hash, entry.content_hash) is not Comparison.UNKNOWN:
            compared[pair].append((before, entry))
    return tuple(_content_change(pair, found, without) for pair, found in compared.items())


def _content_change(
    pair: _Pair, found: Sequence[tuple[LedgerEntry, LedgerEntry]], without: Collection[str]
) -> ContentChange:
    columns: Counter[str] = Counter()
    moved = row_counts = 0
    for before, after in found:
        names = [*after.column_hashes, *(name for name in before.column_hashes if name not in after.column_hashes)]
        differing = [name for name in names if before.column_hashes.get(name) != after.column_hashes.get(name)]
        columns.update(name for name in differing if fold(name) not in without)
        moved += not differing and _row_sum(before) != _row_sum(after)
        row_counts += before.row_count != after.row_count
    return ContentChange(
        before=pair[0],
        after=pair[1],
        partitions=len(found),
        columns=dict(columns),
        moved=moved,
        row_counts=row_counts,
    )


def _row_sum(entry: LedgerEntry) -> int:
    """The sum of its rows' hashes, which does not change where a column is only given a wider type."""
    return ContentHash.parse(entry.content_hash).row_sum


def _from_the_same(before: LedgerEntry, after: LedgerEntry) -> bool:
    """Whether both were computed from the same, as far as that is recorded: an asset without inputs reads elsewhere."""
    ours, theirs = _contents(before.provenance.inputs), _contents(after.provenance.inputs)
    return bool(ours) and ours == theirs and None not in ours.values()


def _contents(inputs: Iterable[InputPartition]) -> dict[tuple[str, str | None], str | None]:
    return {(one.owner, one.partition_key): one.content_hash for one in inputs}
