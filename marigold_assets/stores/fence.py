"""The fence as SQL, inside a transaction that somebody else began.

Every transaction that inserts into a table of the fence updates the counter first: two inserts do not conflict in
DuckDB, two updates of a row do. A high-water mark is written, too, never only read: a plain UPDATE of an existing row
is checked, and its row count is the verdict (see :mod:`marigold_assets.stores.tables`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter

from marigold_assets.errors import FencedOutError, TableOwnedError
from marigold_assets.model import (
    Attempt,
    Claim,
    FencingToken,
    PartitionSlice,
    TableName,
)
from marigold_assets.stores.session import FENCE_SCHEMA, Execute

_MOST_PARAMETERS = 1_000


def draw_token(execute: Execute) -> FencingToken:
    """Take the next token, and conflict with whoever inserts here (see :func:`touch_counter`)."""
    # Two updates of a row conflict only where they write the same column: so the position moves too.
    moved = "last_token = last_token + 1, last_position = last_position + 1"
    [(token,)] = execute("draw token", f"UPDATE {FENCE_SCHEMA}.counter SET {moved} RETURNING last_token")
    return FencingToken(int(token))


def touch_counter(execute: Execute, positions: int = 1) -> int:
    """Make this transaction conflict with every other one that inserts here; reserve ledger positions.

    At least one is reserved, used or not: DuckDB does not write an update that changes no value, and what is not
    written conflicts with nothing.

    Returns:
        The first position reserved.
    """
    moved = "last_position = last_position + ?"
    update = f"UPDATE {FENCE_SCHEMA}.counter SET {moved} RETURNING last_position"
    [(last,)] = execute("touch counter", update, [positions])
    return int(last) - positions + 1


def position(execute: Execute) -> int:
    """Where the counter stands, without moving it."""
    [(last,)] = execute("read counter", f"SELECT last_position FROM {FENCE_SCHEMA}.counter")
    return int(last)


@dataclass(frozen=True, slots=True, kw_only=True)
class Keys:
    """Some partition keys of one owner, as a condition over a table with a column ``partition_key``."""

    condition: str
    parameters: tuple[str | list[str], ...]

    @classmethod
    def of(cls, keys: Sequence[str | None]) -> Keys:
        """The condition; many keys go as one value, or reading the statement would take longer than running it."""
        if list(keys) == [None]:
            return cls(condition="partition_key IS NULL", parameters=())
        named = [key for key in keys if key is not None]
        if len(named) > _MOST_PARAMETERS:
            return cls(condition="partition_key IN (SELECT unnest(?::VARCHAR[]))", parameters=(named,))
        condition = f"partition_key IN ({', '.join('?' * len(named))})"
        return cls(condition=condition, parameters=tuple(named))

    @classmethod
    def any_of(cls, keys: Sequence[str | None] | None) -> Keys:
        """The condition for keys of which some may be ``None``, or for all that there are."""
        if keys is None:
            return cls(condition="true", parameters=())
        named = list(dict.fromkeys(key for key in keys if key is not None))
        alternatives = (["partition_key IS NULL"] if None in keys else []) + (
            [cls.of(named).condition] if named else []
        )
        parameters = cls.of(named).parameters if named else ()
        return cls(condition=f"({' OR '.join(alternatives) or 'false'})", parameters=parameters)


def settle_claims(execute: Execute, attempt: Attempt, claims: Iterable[Claim]) -> dict[Claim, tuple[str, int]]:
    """Record the claims that this run has not recorded yet, and find the rivals of those it has (S2).

    A first claim is never renewed: a run is as late as its first claim.

    Returns:
        For every claim that another run made later than this one, that run and its token.
    """
    rivals: dict[Claim, tuple[str, int]] = {}
    missing: list[Claim] = []
    by_owner: dict[str, list[str | None]] = {}
    for claim in dict.fromkeys(claims):
        by_owner.setdefault(claim.owner, []).append(claim.partition_key)
    for owner, keys in by_owner.items():
        for group in ([key for key in keys if key is not None], [None] if None in keys else []):
            if not group:
                continue
            wanted = Keys.of(group)
            rows = execute(
                "read claims",
                f"SELECT partition_key, run_id, token FROM {FENCE_SCHEMA}.claims"
                f" WHERE owner = ? AND {wanted.condition}",
                [owner, *wanted.parameters],
            )
            mine = {key: token for key, run_id, token in rows if run_id == attempt.run_id}
            missing += [Claim(owner=owner, partition_key=key) for key in group if key not in mine]
            for key, run_id, token in sorted(rows, key=itemgetter(2)):
                if run_id != attempt.run_id and token > mine.get(key, attempt.oldest):
                    rivals[Claim(owner=owner, partition_key=key)] = (run_id, token)
    if missing:
        owners, named = [claim.owner for claim in missing], [claim.partition_key for claim in missing]
        execute(
            "claim",
            f"INSERT INTO {FENCE_SCHEMA}.claims SELECT unnest(?::VARCHAR[]), unnest(?::VARCHAR[]), ?, ?",
            [owners, named, attempt.run_id, attempt.token],
        )
    return rivals


def refuse_rivals(slices: Sequence[PartitionSlice], attempt: Attempt, rivals: Mapping[Claim, tuple[str, int]]) -> None:
    """Refuse an attempt whose claim has been overtaken.

    Raises:
        FencedOutError: One of the slices has a rival.
    """
    for slice_ in slices:
        rival = rivals.get(Claim(owner=slice_.owner, partition_key=slice_.partition_key))
        if rival is not None:
            raise _fenced_out(slice_, rival, attempt)


def raise_high_water(execute: Execute, slices: Sequence[PartitionSlice], attempt: Attempt) -> None:
    """Write this attempt's token as the high-water mark of every slice: the check that a stale snapshot cannot pass.

    Raises:
        FencedOutError: A later attempt has committed to one of the slices.
    """
    table = slices[0].table
    keys = [slice_.partition_key for slice_ in slices]
    if _update_marks(execute, table, keys, attempt) == len(slices):
        return
    found = dict(_marks(execute, table, keys))
    for slice_ in slices:
        later = found.get(slice_.partition_key)
        if later is not None and _is_later(later, attempt):
            raise _fenced_out(slice_, later, attempt)
    created = [slice_ for slice_ in slices if slice_.partition_key not in found]
    if created:
        named, owners = [slice_.partition_key for slice_ in created], [slice_.owner for slice_ in created]
        execute(
            "create fence rows",
            f"INSERT INTO {FENCE_SCHEMA}.fence SELECT ?, unnest(?::VARCHAR[]), unnest(?::VARCHAR[]), ?, ?",
            [table.key, named, owners, attempt.token, attempt.run_id],
        )


def clear(execute: Execute, slices: Sequence[PartitionSlice], attempt: Attempt) -> list[PartitionSlice]:
    """Claim slices of one table, and raise the high-water mark of those that an attempt may write.

    Returns:
        Those.
    """
    if _other_owner(execute, slices[0]) is not None:
        return []
    claims = {slice_: Claim(owner=slice_.owner, partition_key=slice_.partition_key) for slice_ in slices}
    rivals = settle_claims(execute, attempt, claims.values())
    later = {
        key
        for key, mark in _marks(execute, slices[0].table, [s.partition_key for s in claims])
        if _is_later(mark, attempt)
    }
    free = [s for s, claim in claims.items() if claim not in rivals and s.partition_key not in later]
    if free:
        raise_high_water(execute, free, attempt)
    return free


def refuse_later_commits(execute: Execute, slices: Sequence[PartitionSlice], attempt: Attempt) -> None:
    """Refuse an attempt that came too late, without writing: for work that comes before the swap proper.

    Raises:
        FencedOutError: A later attempt has committed to one of the slices.
    """
    found = dict(_marks(execute, slices[0].table, [slice_.partition_key for slice_ in slices]))
    for slice_ in slices:
        later = found.get(slice_.partition_key)
        if later is not None and _is_later(later, attempt):
            raise _fenced_out(slice_, later, attempt)


def _update_marks(execute: Execute, table: TableName, keys: Sequence[str | None], attempt: Attempt) -> int:
    wanted = Keys.of(keys)
    [(count,)] = execute(
        "raise high-water mark",
        f"UPDATE {FENCE_SCHEMA}.fence SET high_water = ?, run_id = ?"
        f" WHERE table_key = ? AND {wanted.condition} AND high_water <= CASE WHEN run_id = ? THEN ? ELSE ? END",
        [
            *(attempt.token, attempt.run_id, table.key),
            *wanted.parameters,
            *(attempt.run_id, attempt.token, attempt.oldest),
        ],
    )
    return int(count)


def _is_later(mark: tuple[str, int], attempt: Attempt) -> bool:
    run_id, token = mark
    return token > (attempt.token if run_id == attempt.run_id else attempt.oldest)


def _marks(execute: Execute, table: TableName, keys: Sequence[str | None]) -> list[tuple[str | None, tuple[str, int]]]:
    wanted = Keys.of(keys)
    rows = execute(
        "read fence",
        f"SELECT partition_key, run_id, high_water FROM {FENCE_SCHEMA}.fence"
        f" WHERE table_key = ? AND {wanted.condition}",
        [table.key, *wanted.parameters],
    )
    return [(key, (run_id, mark)) for key, run_id, mark in rows]


def key_of_equal_value(
    execute: Execute, slices: Sequence[PartitionSlice], casts: Sequence[str | None]
) -> tuple[PartitionSlice, str] | None:
    """A key whose value in the table is also that of another key, which has rows by the ledger.

    Args:
        execute: Runs a statement.
        slices: Slices to be written.
        casts: By dimension, the type to which a key is cast; ``None`` where it is compared as text.

    Returns:
        The slice and the other key.
    """
    if not any(casts):
        return None
    if len(casts) == 1:
        same = [f"TRY_CAST(fence.partition_key AS {casts[0]}) = TRY_CAST(mine.key AS {casts[0]})"]
    else:
        texts = [
            tuple(f"string_split({key}, '|')[{n}]" for key in ("fence.partition_key", "mine.key"))
            for n in range(1, len(casts) + 1)
        ]
        same = [
            f"{theirs} = {ours}" if kind is None else f"TRY_CAST({theirs} AS {kind}) = TRY_CAST({ours} AS {kind})"
            for (theirs, ours), kind in zip(texts, casts, strict=True)
        ]
    newest = (
        f"SELECT arg_max(row_count, position) FROM {FENCE_SCHEMA}.ledger AS ledger"
        " WHERE ledger.table_key = fence.table_key AND ledger.partition_key = fence.partition_key"
    )
    found = execute(
        "look for equal keys",
        f"SELECT mine.key, fence.partition_key FROM {FENCE_SCHEMA}.fence AS fence, (SELECT unnest(?) AS key) AS mine"
        f" WHERE fence.table_key = ? AND fence.partition_key <> mine.key AND {' AND '.join(same)} AND ({newest}) > 0"
        " LIMIT 1",
        [[slice_.partition_key for slice_ in slices], slices[0].table.key],
    )
    if not found:
        return None
    [(mine, other)] = found
    return next(slice_ for slice_ in slices if slice_.partition_key == mine), str(other)


def check_owner(execute: Execute, slice_: PartitionSlice, renamed_from: Sequence[str]) -> None:
    """Refuse to write a table that belongs to another asset.

    Args:
        execute: Runs a statement.
        slice_: A slice to be written.
        renamed_from: Former owners whose table this one takes over.

    Raises:
        TableOwnedError: Another asset writes this table.
    """
    table, owner = slice_.table, slice_.owner
    if renamed_from:
        execute(
            "take over from former owner",
            f"UPDATE {FENCE_SCHEMA}.fence SET owner = ? WHERE table_key = ? AND list_contains(?, owner)",
            [owner, table.key, list(renamed_from)],
        )
    other = _other_owner(execute, slice_)
    if other is not None:
        raise TableOwnedError(
            f"the table already belongs to {other!r}, and {owner!r} maps to it too",
            remedy='give one of them another table by metadata={"schema": ...}, or by its key_prefix where no schema is'
            f' configured; if the asset was renamed, say metadata={{"marigold/renamed_from": {other!r}}}',
            **slice_.where,
        )


def _other_owner(execute: Execute, slice_: PartitionSlice) -> str | None:
    rows = execute(
        "check owner",
        f"SELECT owner FROM {FENCE_SCHEMA}.fence WHERE table_key = ? AND owner <> ? LIMIT 1",
        [slice_.table.key, slice_.owner],
    )
    return str(rows[0][0]) if rows else None


def _fenced_out(slice_: PartitionSlice, later: tuple[str, int], attempt: Attempt) -> FencedOutError:
    run_id, token = later
    return FencedOutError(
        run_id=attempt.run_id,
        token=attempt.token,
        superseded_by_run=run_id,
        superseded_by_token=int(token),
        **slice_.where,
    )
