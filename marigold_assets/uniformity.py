"""One definition, or a refusal: what checks and readers say of a mixture, and what may be done about it."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from marigold_assets import mixtures, partitions, versions
from marigold_assets.errors import MixedVersionsError, Where
from marigold_assets.lineage import Code
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
        code: Its present code, as far as that is known.
        changes: What it declares of its code versions.
        takes_ranges: Whether one run builds a range of it, so that Dagster's command line can do that; yes, where the
            running job does not know.
    """

    table: TableName
    owner: str
    code: Code | None
    changes: Changes
    takes_ranges: bool


def subject_of(node: Any, table: TableName, owner: str) -> Subject:
    """An asset that is read, as the running job knows it.

    Args:
        node: What that knows of it (see :func:`marigold_assets.dagster_internals.upstream_node`), if anything.
        table: Its table.
        owner: Its key, as users see it.

    Raises:
        ConfigurationError: What it declares of its code versions makes no sense.
    """
    metadata = {} if node is None else node.metadata
    return Subject(
        table=table,
        owner=owner,
        code=None if node is None else Code(version=node.code_version, fingerprint=None),
        changes=partitions.column_changes(metadata, Where(asset=owner, table=str(table))),
        takes_ranges=node is None or not node.is_executable or partitions.takes_ranges(node.backfill_policy),
    )


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
    # Only a declaration has some columns not count, and only then has it to be borne out.
    is_declared = bool(subject.changes) and len(versions.definitions(heads)) > 1
    content = mixtures.content_changes(store.ledger(subject.table)) if is_declared else ()

    def judged(acceptances: Iterable[Acceptance]) -> Mixture:
        return mixtures.mixture(
            keys,
            heads,
            present=subject.code,
            now=now,
            acceptances=acceptances,
            changes=subject.changes,
            content=content,
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
        remedy=remedy(subject, found),
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


def remedy(subject: Subject, found: Mixture) -> str:
    """How the odd partitions are rebuilt, or accepted."""
    some = [one.keys for one in found.odd[:_MOST_SHOWN]]
    commands = [rebuild_command(subject.owner, keys, takes_ranges=subject.takes_ranges) for keys in some]
    known = "; ".join(command for command in commands if command is not None)
    by_command = f", or by {known}" if known else ""
    span = shlex.quote(f"{some[0][0]}...{some[0][-1]}")
    accept = f"marigold versions accept {shlex.quote(subject.owner)} --range {span} --reason TEXT"
    return f"rebuild them by a backfill from the asset's page{by_command}; or accept them as they are: {accept}"


def rebuild_command(
    owner: str, keys: Sequence[str | None], *, takes_ranges: bool, arguments: Sequence[str] = ()
) -> str | None:
    """The command that builds partitions that follow each other again; ``None`` where only a backfill does.

    Args:
        owner: The asset, as users see its key.
        keys: The partitions.
        takes_ranges: Whether one run builds a range of it.
        arguments: What names its code location.
    """
    command = ["dagster", "asset", "materialize", *arguments, "--select", owner]
    if keys[0] is None:
        return shlex.join(command)
    if len(keys) == 1:
        return shlex.join([*command, "--partition", str(keys[0])])
    return shlex.join([*command, "--partition-range", f"{keys[0]}...{keys[-1]}"]) if takes_ranges else None


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
