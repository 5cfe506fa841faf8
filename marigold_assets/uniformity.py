"""One definition, or a refusal: what checks and readers say of a mixture, and what may be done about it."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from typing import Any, TypeVar

from marigold_assets import mixtures, partitions
from marigold_assets.errors import MixedVersionsError, Where
from marigold_assets.lineage import Code
from marigold_assets.mixtures import Changes, Mixture
from marigold_assets.model import Acceptance, LedgerEntry, PartitionSlice, TableName
from marigold_assets.stores.base import PartitionStore
from marigold_assets.versions import Stretch

UNIFORM = "marigold/uniform_version"
"""Metadata of an input: whether partitions that are read together must have been built under one definition."""
PRICE = "its price: 'marigold plan' with the same words"
"""What is said beside :func:`rebuild_command`, which shows the price itself before it asks."""
_MOST_SHOWN = 3
_TRIES = 3

Heads = Mapping[str | None, LedgerEntry]
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A table that is read or checked.

    Attributes:
        table: The table.
        owner: Its asset, as users see the key.
        code: Its present code, as far as that is known.
        changes: What it declares of its code versions.
        impure: Columns that it admits to differ whenever they are computed.
        keys: Gives its partitions in order, as far as they are known.
    """

    table: TableName
    owner: str
    code: Code | None
    changes: Changes
    impure: Collection[str]
    keys: Callable[[], Sequence[str]]


def subject_of(node: Any, table: TableName, owner: str, instance: Any) -> Subject:
    """An asset that is read, as the running job knows it.

    Args:
        node: What that knows of it (see :func:`marigold_assets.dagster_internals.upstream_node`), if anything.
        table: Its table.
        owner: Its key, as users see it.
        instance: Where dynamic partitions are.

    Raises:
        ConfigurationError: What it declares of its columns makes no sense.
    """
    metadata = {} if node is None else node.metadata
    definition = None if node is None else node.partitions_def
    where = Where(asset=owner, table=str(table))

    @cache
    def keys() -> Sequence[str]:
        if definition is None:
            return ()
        return [str(key) for key in definition.get_partition_keys(dynamic_partitions_store=instance)]

    return Subject(
        table=table,
        owner=owner,
        code=None if node is None else Code(version=node.code_version, fingerprint=None),
        changes=partitions.column_changes(metadata, where),
        impure=partitions.impure_columns(metadata, where).keys(),
        keys=keys,
    )


def mixture_of(
    store: PartitionStore,
    subject: Subject,
    keys: Sequence[str | None],
    heads: Heads,
    columns: Collection[str] | None = None,
) -> Mixture:
    """How far partitions of a table were built under one definition, by the ledger.

    Args:
        store: Where the ledger is.
        subject: The table.
        keys: The partitions in order.
        heads: Their newest ledger entries.
        columns: The columns that count; ``None``: all.
    """
    now = datetime.now(UTC)
    history = store.ledger(subject.table) if mixtures.needs_history(heads, subject.changes) else ()

    def judged(acceptances: Iterable[Acceptance]) -> Mixture:
        return mixtures.mixture(
            keys,
            heads,
            present=subject.code,
            now=now,
            acceptances=acceptances,
            changes=subject.changes,
            history=history,
            impure=subject.impure,
            columns=columns,
        )

    found = judged(())
    acceptances = store.acceptances(subject.table) if found.odd else ()
    if acceptances:  # which are of definitions as the whole ledger tells them apart
        history = store.ledger(subject.table)
    return judged(acceptances) if acceptances else found


def read_uniform(
    store: PartitionStore,
    subject: Subject,
    slices: Sequence[PartitionSlice] | None,
    load: Callable[[], T],
    *,
    columns: Collection[str] | None,
    where: Where,
    warn: Callable[[str], None],
) -> T:
    """Load partitions that are needed under one definition, and refuse them where they have several.

    Args:
        store: Where they are.
        subject: Their table.
        slices: The partitions; ``None``: the whole table.
        load: Loads them.
        columns: The columns that are read; ``None``: all.
        where: Who reads, for the error.
        warn: Told what is mixed all the same, since somebody accepts it.

    Raises:
        MixedVersionsError: They have several, or are swapped time and again meanwhile.
    """
    for _ in range(_TRIES):
        before = refuse_mixture(store, subject, slices, columns, where=where, warn=warn)
        loaded = load()
        after = store.heads(subject.table, _keys_of(slices))
        if _swaps(of_its_kind(after) if slices is None else after) == _swaps(before):
            return loaded
    raise MixedVersionsError(
        f"input {subject.owner} is needed under one definition, but was written while it was read, {_TRIES} times",
        remedy="run again when the backfill of it has ended",
        **where,
    )


def refuse_mixture(
    store: PartitionStore,
    subject: Subject,
    slices: Sequence[PartitionSlice] | None,
    columns: Collection[str] | None,
    *,
    where: Where,
    warn: Callable[[str], None],
) -> Heads:
    """Refuse partitions that were built under several definitions, unless that is accepted.

    Args:
        store: Where the ledger is.
        subject: The table that is read.
        slices: The partitions that are read; ``None``: the whole table.
        columns: The columns that are read; ``None``: all.
        where: Who reads, for the error.
        warn: Told what is mixed all the same, since somebody accepts it.

    Returns:
        The newest ledger entries of the partitions.

    Raises:
        MixedVersionsError: They were, or hold rows that the ledger does not know.
    """
    heads = _known_heads(store, subject, slices, where)
    found = mixture_of(store, subject, _in_order(heads, subject.keys()), heads, columns)
    if found.odd:
        found = replace(found, odd=tuple(without_gaps(found.odd, subject.keys())))
        raise MixedVersionsError(
            f"input {subject.owner} is needed under one definition, but {said_of_odd(found)}",
            remedy=remedy(subject, found),
            **where,
        )
    if found.accepted:
        warn(f"input {subject.owner}: {said_of_accepted(found)}")
    return heads


def _keys_of(slices: Sequence[PartitionSlice] | None) -> list[str | None] | None:
    return None if slices is None else [slice_.partition_key for slice_ in slices]


def _swaps(heads: Heads) -> dict[str | None, int]:
    return {key: entry.position for key, entry in heads.items()}


def _in_order(heads: Heads, keys: Sequence[str]) -> list[str | None]:
    """The partitions of some entries, in order; those that the asset does not have any more come last."""
    places = {key: place for place, key in enumerate(keys)}
    return sorted(heads, key=lambda key: (places.get(str(key), len(places)), str(key)))


def without_gaps(stretches: Iterable[Stretch], keys: Sequence[str]) -> Iterable[Stretch]:
    """Stretches, parted where a partition lies between two of them: no remedy may name that.

    Args:
        stretches: Partitions, some of which may not have been looked at, or built.
        keys: All partitions in order.
    """
    places = {key: place for place, key in enumerate(keys)}
    for one in stretches:
        run: list[str | None] = []
        for key in one.keys:
            follows = run and places.get(str(key), -2) == places.get(str(run[-1]), -2) + 1
            if run and not follows:
                yield replace(one, keys=tuple(run))
                run = []
            run.append(key)
        yield replace(one, keys=tuple(run))


def settled(
    store: PartitionStore, table: TableName, keys: Sequence[str | None] | None, look: Callable[[], T]
) -> tuple[Heads, T]:
    """The newest entries of partitions, and what is looked up beside them, as of one moment.

    Each opens the database by itself; where something is swapped in between, both are looked up again, a few times.

    Args:
        store: Where to look.
        table: The table.
        keys: The partitions; ``None``: all.
        look: Looks up the rest.
    """
    heads = store.heads(table, keys)
    found = look()
    for _ in range(_TRIES):
        newer = store.heads(table, keys)
        if _swaps(newer) == _swaps(heads):
            break
        heads, found = newer, look()
    return heads, found


def of_its_kind(heads: Heads) -> dict[str | None, LedgerEntry]:
    """The entries without those of partitions, of a table that has none any more; and the other way round."""
    newest = max(heads.values(), key=lambda entry: entry.position, default=None)
    if newest is None:
        return {}
    is_whole = newest.partition_key is None
    return {key: entry for key, entry in heads.items() if (key is None) is is_whole}


def _known_heads(
    store: PartitionStore, subject: Subject, slices: Sequence[PartitionSlice] | None, where: Where
) -> Heads:
    """The newest entries of what is read; rows that another tool has written are refused.

    Raises:
        MixedVersionsError: There are such: nobody knows under which definition.
    """
    if slices is None:
        heads, stored = settled(store, subject.table, None, lambda: store.row_count(subject.table))
        heads = of_its_kind(heads)
        unknown = unknown_rows(stored, subject.keys(), heads)
    else:
        heads, contents = settled(store, subject.table, _keys_of(slices), lambda: store.inputs(slices))
        recorded = {key: entry.content_hash for key, entry in heads.items()}
        found = [one.partition_key for one in contents if one.content_hash != recorded.get(one.partition_key)]
        more = f" and {len(found) - 1} more" if len(found) > 1 else ""
        unknown = f"partition {found[0]!r}{more} has rows that the ledger does not know" if found else None
    if unknown is not None:
        raise MixedVersionsError(
            f"input {subject.owner} is needed under one definition, but {unknown}",
            remedy=f"materialize these partitions of {subject.owner}, or correct what another tool has written",
            **where,
        )
    return heads


def unknown_rows(stored: int | None, keys: Sequence[str], heads: Heads) -> str | None:
    """What there is to say where a table has another number of rows than the ledger; ``None`` if it has not.

    Args:
        stored: The number of rows; ``None``: there is no table.
        keys: The partitions that the asset has, as far as they are known. Those that it had before may lie beneath
            them, as days where there are months now.
        heads: The newest ledger entries of the table.
    """
    own = set(keys)
    most = sum(entry.row_count for entry in heads.values())
    least = sum(entry.row_count for key, entry in heads.items() if key in own) if own else most
    if stored is None:
        return f"there is no table, and the ledger knows of {most} rows" if most else None
    return None if least <= stored <= most else f"the table has {stored} rows, and the ledger knows of {most}"


def said_of_odd(found: Mixture) -> str:
    """Which partitions are odd, and in what."""
    count = sum(len(one.keys) for one in found.odd)
    what = f"{count} partition{' was' if count == 1 else 's were'}"
    if found.wanted is None:
        return f"{what} built by code that nobody has recorded: {_ranges(found.odd)}"
    return (
        f"{what} built under another definition than {found.wanted}: {_ranges(found.odd)} ({found.difference} differ)"
    )


def said_of_accepted(found: Mixture) -> str:
    """Which partitions are accepted although they are odd, and by whom."""
    count = sum(len(one.keys) for one in found.accepted)
    by = "; ".join(_acceptance(one) for one in found.acceptances[:_MOST_SHOWN])
    more = f"; and {len(found.acceptances) - _MOST_SHOWN} more" if len(found.acceptances) > _MOST_SHOWN else ""
    what = f"{count} partition{'' if count == 1 else 's'} built under another definition than {found.wanted}"
    return f"{what} {'is' if count == 1 else 'are'} accepted: {_ranges(found.accepted)}, {by}{more}"


def remedy(subject: Subject, found: Mixture) -> str:
    """How the odd partitions are rebuilt, or accepted."""
    declare = ""
    if any(one.definition is not None and one.definition.is_unknown for one in found.odd):
        declare = "declare a code_version, and "
    some = [one.keys for one in found.odd[:_MOST_SHOWN]]
    commands = "; ".join(
        rebuild_command(subject.owner, one.keys, restate=not _is_built_anyway(subject.code, one))
        for one in found.odd[:_MOST_SHOWN]
    )
    more = " and so on" if len(found.odd) > _MOST_SHOWN else ""
    if some[0][0] is None:
        return f"{declare}build it again: {commands} ({PRICE})"
    which = ["--all-odd"]
    if len(found.odd) <= _MOST_SHOWN:
        which = [word for keys in some for word in ("--range", f"{keys[0]}...{keys[-1]}")]
    accept = shlex.join(["marigold", "versions", "accept", subject.owner, *which, "--reason", "TEXT"])
    return f"{declare}build them again: {commands}{more} ({PRICE}); or accept them as they are: {accept}"


def rebuild_command(owner: str, keys: Sequence[str | None], *, restate: bool, arguments: Sequence[str] = ()) -> str:
    """The command that builds partitions that follow each other again.

    Args:
        owner: The asset, as users see its key.
        keys: The partitions.
        restate: Whether a plan would leave some of them alone otherwise. What is stale it builds anyway, and after a
            failure it goes on with what is left of it.
        arguments: What names its code location.
    """
    ends = [] if keys[0] is None else ["--from", str(keys[0]), "--to", str(keys[-1])]
    return shlex.join(["marigold", "launch", owner, *ends, *(["--restate"] if restate else []), *arguments])


def _is_built_anyway(code: Code | None, one: Stretch) -> bool:
    """Whether a plan builds odd partitions without being told to: since the present code version has not built them."""
    found = one.definition
    return (
        code is not None and found is not None and code.is_version(found.code_version, found.code_fingerprint) is False
    )


def _ranges(stretches: Sequence[Stretch]) -> str:
    shown = ", ".join(f"{_range(one)} ({one.definition})" for one in stretches[:_MOST_SHOWN])
    more = len(stretches) - _MOST_SHOWN
    return f"{shown}, and {more} more stretch{'' if more == 1 else 'es'}" if more > 0 else shown


def _range(one: Stretch) -> str:
    first, last = (str(key) for key in (one.keys[0], one.keys[-1]))
    return first if first == last else f"{first} to {last}"


def _acceptance(one: Acceptance) -> str:
    until = "" if one.until is None else f" until {one.until.isoformat(timespec='minutes')}"
    return f"by {one.accepted_by} on {one.accepted_at.date().isoformat()}{until}: {one.reason}"
