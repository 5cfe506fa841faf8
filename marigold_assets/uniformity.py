"""One definition, or a refusal: what checks and readers say of a mixture, and what may be done about it."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from marigold_assets import mixtures
from marigold_assets.errors import MixedVersionsError, Where
from marigold_assets.mixtures import Changes, Mixture
from marigold_assets.model import Acceptance, LedgerEntry, TableName
from marigold_assets.stores.base import PartitionStore
from marigold_assets.versions import Stretch

UNIFORM = "marigold/uniform_version"
"""Metadata of an input: whether partitions that are read together must have been built under one definition."""
_MOST_SHOWN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A table that is read or checked.

    Attributes:
        table: The table.
        owner: Its asset, as users see the key.
        code_version: The version that its present code declares, if any.
        changes: What it declares of its code versions.
    """

    table: TableName
    owner: str
    code_version: str | None
    changes: Changes


def mixture_of(
    store: PartitionStore,
    subject: Subject,
    keys: Sequence[str | None],
    heads: Mapping[str | None, LedgerEntry],
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

    def judged(acceptances: Iterable[Acceptance]) -> Mixture:
        return mixtures.mixture(
            keys,
            heads,
            present=subject.code_version,
            now=now,
            acceptances=acceptances,
            changes=subject.changes,
            columns=columns,
        )

    found = judged(())
    return judged(store.acceptances(subject.table)) if found.odd else found


def refuse_mixture(
    store: PartitionStore,
    subject: Subject,
    keys: Sequence[str | None] | None,
    columns: Collection[str] | None,
    *,
    where: Where,
    warn: Callable[[str], None],
) -> None:
    """Refuse partitions that were built under several definitions, unless that is accepted.

    Args:
        store: Where the ledger is.
        subject: The table that is read.
        keys: The partitions that are read; ``None``: all.
        columns: The columns that are read; ``None``: all.
        where: Who reads, for the error.
        warn: Told what is mixed all the same, since somebody accepts it.

    Raises:
        MixedVersionsError: They were.
    """
    heads = store.heads(subject.table, keys)
    found = mixture_of(store, subject, sorted(heads, key=str) if keys is None else keys, heads, columns)
    if not found.odd:
        if found.accepted:
            warn(f"input {subject.owner}: {said_of_accepted(found)}")
        return
    raise MixedVersionsError(
        f"input {subject.owner} is needed under one definition, but {said_of_odd(found)}",
        remedy=remedy(subject.owner, found),
        **where,
    )


def said_of_odd(found: Mixture) -> str:
    """Which partitions are odd, and in what."""
    count = sum(len(one.keys) for one in found.odd)
    what = f"{count} partition{' was' if count == 1 else 's were'}"
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


def remedy(owner: str, found: Mixture) -> str:
    """The commands that rebuild the odd partitions, or accept them."""
    name = shlex.quote(owner)
    spans = [shlex.quote(f"{one.keys[0]}...{one.keys[-1]}") for one in found.odd[:_MOST_SHOWN]]
    rebuild = "; ".join(f"dagster asset materialize --select {name} --partition-range {span}" for span in spans)
    accept = f"marigold versions accept {name} --range {spans[0]} --reason ..."
    return f"rebuild them from the asset's page, or by {rebuild}; or accept them as they are: {accept}"


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
