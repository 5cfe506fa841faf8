"""The tables of the fence and of the ledger, and what an older release left of them.

Five tables in schema ``marigold`` of the very database that holds the data, so that all commit together:

* ``counter``: one row with the last token, the last position and the format of these tables. Every transaction that
  inserts into the others updates it first: two inserts do not conflict in DuckDB, two updates of a row do.
* ``claims``: which run meant to write which partition, under its first token.
* ``fence``: per slice the high-water mark, which is the highest token that has committed to it. Never deleted.
* ``ledger``: one row a swap and partition, never changed (see :mod:`marigold_assets.stores.ledger`).
* ``acceptances``: which partitions are accepted as they were built, never changed either (see
  :mod:`marigold_assets.stores.acceptances`).

None has a primary key: with one, DuckDB up to 2.0 does not check an update from a stale snapshot against a committed
in-place update. A plain UPDATE of an existing row is checked; its row count is the verdict.

The view ``versions`` is for people: which code built which partition, and which rows are those. Where partitions were
cut anew, as when months came after days, a row may lie within several: those that a newer one overlaps have no bounds
and no value there, so that no row is joined twice, and ``is_current`` is false of them.
"""

from __future__ import annotations

import duckdb

from marigold_assets.errors import ConfigurationError
from marigold_assets.stores.session import FENCE_SCHEMA, Execute

FORMAT = 3


def accepted_of(built: str, acceptances: str) -> str:
    """What is joined to a ledger entry for the acceptance that holds of it, as ``accepted``, if one does.

    Where codes of one version are accepted one by one, it has to be that very code. Where nobody has recorded what the
    code was, only what was there to be looked at is accepted. Each condition compares one side with the other: with an
    OR over both, DuckDB before 2.0 refuses the subqueries.

    Args:
        built: The alias of the ledger.
        acceptances: The table of acceptances, rendered.
    """
    return f"""{acceptances} AS accepted
    ON accepted.table_key = {built}.table_key
    AND accepted.partition_key IS NOT DISTINCT FROM {built}.partition_key
    AND accepted.code_version IS NOT DISTINCT FROM {built}.code_version
    AND accepted.code_fingerprint IS NOT DISTINCT FROM CASE WHEN {built}.code_version IS NULL
        OR ({built}.table_key, {built}.code_version, {built}.code_fingerprint)
            IN (SELECT (table_key, code_version, code_fingerprint) FROM {acceptances}) THEN {built}.code_fingerprint END
    AND accepted.config_hash IS NOT DISTINCT FROM {built}.config_hash
    AND (accepted.until IS NULL OR accepted.until > now())
    AND {built}.committed_at <= CASE WHEN coalesce(accepted.code_version, accepted.code_fingerprint) IS NOT NULL
        THEN TIMESTAMPTZ 'infinity' ELSE accepted.accepted_at END
    AND accepted.position IN (SELECT max(position) FROM {acceptances}
        GROUP BY table_key, partition_key, code_version, code_fingerprint, config_hash)"""


_ACCEPTANCES = f"""
CREATE TABLE {FENCE_SCHEMA}.acceptances (
    position BIGINT NOT NULL, table_key VARCHAR NOT NULL, table_schema VARCHAR NOT NULL, table_name VARCHAR NOT NULL,
    owner VARCHAR NOT NULL, partition_key VARCHAR, code_version VARCHAR, code_fingerprint VARCHAR, config_hash VARCHAR,
    accepted_by VARCHAR NOT NULL, accepted_at TIMESTAMPTZ NOT NULL, reason VARCHAR NOT NULL, until TIMESTAMPTZ);
"""
# Tables without their schema: a view finds them in its own, whatever the file is called where it is opened or attached.
# Texts as bytes, in which letters differ whatever the collation. Only entries that cross others are compared.
_VERSIONS = f"""
CREATE OR REPLACE VIEW {FENCE_SCHEMA}.versions AS
WITH heads AS (
    SELECT *, slice = '[]' AS is_whole, encode(json_extract(slice, '$[*].expression')::VARCHAR) AS cut,
        encode(json_extract(slice, '$[*].value')::VARCHAR) AS texts,
        CAST(json_extract_string(slice, '$[*].start')[1] AS TIMESTAMPTZ) AS first_moment,
        CAST(json_extract_string(slice, '$[*].end')[1] AS TIMESTAMPTZ) AS last_moment
    FROM ledger WHERE position IN (SELECT max(position) FROM ledger GROUP BY table_key, partition_key)),
placed AS (
    SELECT *, max(CASE WHEN is_whole THEN position END) OVER (PARTITION BY table_key) AS newest_whole,
        min(cut) OVER (PARTITION BY table_key) IS DISTINCT FROM max(cut) OVER (PARTITION BY table_key)
            OR first_moment < max(last_moment) OVER (in_line ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
            OR lead(first_moment) OVER in_line < last_moment
            OR (first_moment IS NULL AND count(*) OVER in_line > 1) AS is_crossed
    FROM heads WINDOW in_line AS (PARTITION BY table_key, cut, texts ORDER BY first_moment, last_moment)),
covered AS (
    SELECT DISTINCT older.position FROM placed AS older JOIN placed AS newer
        ON newer.table_key = older.table_key AND newer.position > older.position
        AND (newer.cut IS DISTINCT FROM older.cut OR newer.texts IS NOT DISTINCT FROM older.texts)
        AND coalesce(newer.first_moment < older.last_moment AND newer.last_moment > older.first_moment, true)
    WHERE older.is_crossed AND newer.is_crossed AND NOT older.is_whole AND NOT newer.is_whole)
SELECT built.table_schema, built.table_name, built.owner AS asset, built.partition_key, built.code_version,
    built.code_fingerprint, built.config_hash, built.row_count, built.run_id, built.backfill_id, built.token,
    built.committed_at, built.content_hash, coalesce(built.confirmed, false) AS confirmed,
    CASE WHEN is_current THEN first_moment END AS starts, CASE WHEN is_current THEN last_moment END AS ends,
    CASE WHEN is_current THEN CAST(json_extract_string(built.slice, '$[*].local_start')[1] AS TIMESTAMP) END
        AS local_starts,
    CASE WHEN is_current THEN CAST(json_extract_string(built.slice, '$[*].local_end')[1] AS TIMESTAMP) END
        AS local_ends,
    (CASE WHEN is_current THEN json_extract_string(built.slice, '$[*].value')[1] END) COLLATE C AS value, built.slice,
    accepted.accepted_by, accepted.accepted_at, accepted.until AS accepted_until, accepted.reason AS accepted_reason,
    built.is_current
FROM (SELECT *, coalesce(position >= newest_whole, true) AND position NOT IN (FROM covered) AS is_current FROM placed)
    AS built
LEFT JOIN {accepted_of("built", "acceptances")}
"""
_TABLES = f"""
CREATE SCHEMA IF NOT EXISTS {FENCE_SCHEMA};
CREATE TABLE {FENCE_SCHEMA}.counter (last_token BIGINT NOT NULL, last_position BIGINT NOT NULL,
    format INTEGER NOT NULL);
INSERT INTO {FENCE_SCHEMA}.counter VALUES (0, 0, {FORMAT});
CREATE TABLE {FENCE_SCHEMA}.claims (
    owner VARCHAR NOT NULL, partition_key VARCHAR, run_id VARCHAR NOT NULL, token BIGINT NOT NULL);
CREATE TABLE {FENCE_SCHEMA}.fence (
    table_key VARCHAR NOT NULL, partition_key VARCHAR, owner VARCHAR NOT NULL,
    high_water BIGINT NOT NULL, run_id VARCHAR);
CREATE TABLE {FENCE_SCHEMA}.ledger (
    position BIGINT NOT NULL, table_key VARCHAR NOT NULL, table_schema VARCHAR NOT NULL, table_name VARCHAR NOT NULL,
    owner VARCHAR NOT NULL, partition_key VARCHAR, run_id VARCHAR NOT NULL, token BIGINT NOT NULL,
    swap_id VARCHAR NOT NULL, row_count BIGINT NOT NULL, content_hash VARCHAR NOT NULL, column_hashes VARCHAR NOT NULL,
    columns VARCHAR NOT NULL, code_version VARCHAR, step VARCHAR, backfill_id VARCHAR, inputs VARCHAR NOT NULL,
    committed_at TIMESTAMPTZ NOT NULL, code_fingerprint VARCHAR, config_hash VARCHAR, confirmed BOOLEAN,
    slice VARCHAR);
{_ACCEPTANCES};
{_VERSIONS};
"""
# The counter goes first: it makes an upgrade conflict with whoever writes the ledger meanwhile.
_MARK_UPGRADED = f"UPDATE {FENCE_SCHEMA}.counter SET format = {FORMAT}, last_position = last_position + 1;"
_FROM_1 = f"""
ALTER TABLE {FENCE_SCHEMA}.ledger ADD COLUMN code_fingerprint VARCHAR;
ALTER TABLE {FENCE_SCHEMA}.ledger ADD COLUMN config_hash VARCHAR;
ALTER TABLE {FENCE_SCHEMA}.ledger ADD COLUMN confirmed BOOLEAN;
"""
_FROM_2 = f"""
ALTER TABLE {FENCE_SCHEMA}.ledger ADD COLUMN slice VARCHAR;
{_ACCEPTANCES};
{_VERSIONS};
"""
_UPGRADES = {1: _MARK_UPGRADED + _FROM_1 + _FROM_2, 2: _MARK_UPGRADED + _FROM_2}
"""By the format that is found."""


def ensure(execute: Execute) -> None:
    """Create the tables where there are none, and upgrade those of an older release; each in one transaction.

    To be called outside a transaction: a failed look-up aborts one.

    Raises:
        ConfigurationError: Another release of this package made the tables.
    """
    try:
        rows = execute("format", f"SELECT format FROM {FENCE_SCHEMA}.counter")
    except duckdb.CatalogException:
        _carry_out(execute, "fence tables", _TABLES)
        return
    if rows == [(FORMAT,)]:
        return
    upgrade = _UPGRADES.get(rows[0][0]) if len(rows) == 1 else None
    if upgrade is None:
        raise ConfigurationError(
            f"the database's fence and ledger have format {rows}, and this release knows {FORMAT}",
            remedy="install the release of marigold-assets that wrote it",
        )
    _carry_out(execute, "upgrade", upgrade)


def exist(execute: Execute) -> bool:
    """Whether there are such tables, of whatever format. To be called outside a transaction."""
    try:
        execute("format", f"SELECT format FROM {FENCE_SCHEMA}.counter")
    except duckdb.CatalogException:
        return False
    return True


def _carry_out(execute: Execute, label: str, statements: str) -> None:
    # Letters differ whatever collation the user has set.
    collated = statements.replace("VARCHAR", "VARCHAR COLLATE C")
    execute(f"begin {label}", "BEGIN TRANSACTION")
    for statement in filter(str.strip, collated.split(";")):
        execute(f"create {label}", statement)
    execute(f"commit {label}", "COMMIT")
