"""The tables of the fence and the ledger, as an older release left them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import duckdb
import pytest

from marigold_assets.errors import ConfigurationError
from marigold_assets.model import Acceptance, Attempt, Definition, InputPartition, Provenance, TableName
from marigold_assets.stores.duckdb import DuckDBStore
from marigold_assets.testing import Crash, fail_at
from marigold_assets.testing.strategies import slice_of, table_of

TABLE = TableName(schema="sales", name="daily")
MOMENT = datetime(2025, 1, 1, tzinfo=UTC)
PROVENANCE = Provenance(
    code_version="1",
    code_fingerprint="f",
    config_hash="c",
    inputs=(InputPartition(owner="raw", partition_key=None, content_hash=None),),
)
FORMAT_1 = """
    CREATE SCHEMA marigold;
    CREATE TABLE marigold.counter (last_token BIGINT NOT NULL, last_position BIGINT NOT NULL, format INTEGER NOT NULL);
    INSERT INTO marigold.counter VALUES (3, 5, 1);
    CREATE TABLE marigold.claims (owner VARCHAR COLLATE C NOT NULL, partition_key VARCHAR COLLATE C,
        run_id VARCHAR COLLATE C NOT NULL, token BIGINT NOT NULL);
    CREATE TABLE marigold.fence (table_key VARCHAR COLLATE C NOT NULL, partition_key VARCHAR COLLATE C,
        owner VARCHAR COLLATE C NOT NULL, high_water BIGINT NOT NULL, run_id VARCHAR COLLATE C);
    INSERT INTO marigold.fence VALUES ('sales\x1fdaily', 'a', 'daily', 3, 'old');
    CREATE TABLE marigold.ledger (position BIGINT NOT NULL, table_key VARCHAR COLLATE C NOT NULL,
        table_schema VARCHAR COLLATE C NOT NULL, table_name VARCHAR COLLATE C NOT NULL,
        owner VARCHAR COLLATE C NOT NULL, partition_key VARCHAR COLLATE C, run_id VARCHAR COLLATE C NOT NULL,
        token BIGINT NOT NULL, swap_id VARCHAR COLLATE C NOT NULL, row_count BIGINT NOT NULL,
        content_hash VARCHAR COLLATE C NOT NULL, column_hashes VARCHAR COLLATE C NOT NULL,
        columns VARCHAR COLLATE C NOT NULL, code_version VARCHAR COLLATE C, step VARCHAR COLLATE C,
        backfill_id VARCHAR COLLATE C, inputs VARCHAR COLLATE C NOT NULL, committed_at TIMESTAMPTZ NOT NULL);
    INSERT INTO marigold.ledger VALUES (5, 'sales\x1fdaily', 'sales', 'daily', 'daily', 'a', 'old', 3, 'first', 1,
        'mh1:0:0:1:0', '{}', '[["key", "VARCHAR"], ["value", "BIGINT"]]', 'v', 's', NULL, '{"abc": "v"}',
        TIMESTAMPTZ '2024-01-01 00:00:00+00');
    CREATE SCHEMA sales; CREATE TABLE sales.daily AS SELECT 'a' AS key, 1::BIGINT AS value;
"""


# What the release of format 2 made of such a file.
FORMAT_2 = (
    FORMAT_1
    + """
    UPDATE marigold.counter SET format = 2, last_position = last_position + 1;
    ALTER TABLE marigold.ledger ADD COLUMN code_fingerprint VARCHAR COLLATE C;
    ALTER TABLE marigold.ledger ADD COLUMN config_hash VARCHAR COLLATE C;
    ALTER TABLE marigold.ledger ADD COLUMN confirmed BOOLEAN;
"""
)


@pytest.fixture(params=[1, 2])
def old(request, path):
    """A file that an older release has written."""
    with duckdb.connect(str(path)) as connection:
        connection.execute({1: FORMAT_1, 2: FORMAT_2}[request.param])
    return path


def stored(path):
    with duckdb.connect(str(path)) as connection:
        [(found,)] = connection.execute("SELECT format FROM marigold.counter").fetchall()
        return found, {row[0] for row in connection.execute("DESCRIBE marigold.ledger").fetchall()}


def swap(store, key="a", value=2):
    attempt = draw_attempt(store)
    rows = table_of([{"key": key, "value": value}])
    return store.swap([slice_of(key)], rows, attempt=attempt, swap_id=f"{attempt.token}", provenance=PROVENANCE)


def accepted():
    return Acceptance(
        table=TABLE,
        owner="daily",
        partition_key="a",
        definition=Definition(code_version="v", code_fingerprint=None, config_hash=None),
        accepted_by="tomás",
        accepted_at=MOMENT,
        reason="known",
    )


def draw_attempt(store):
    return Attempt(run_id="new", token=store.draw_token("new"))


def test_a_file_of_an_older_format_is_read_as_it_is(old, duck):
    before = stored(old)
    [entry] = duck.ledger()
    assert (entry.position, entry.partition_key, entry.confirmed, entry.conditions) == (5, "a", False, None)
    assert entry.provenance == Provenance(code_version="v", step="s")
    assert duck.heads(TABLE) == {"a": entry}
    assert duck.receipts("first") == (entry,)
    assert duck.newest(TABLE) == entry
    assert duck.acceptances(TABLE) == ()
    assert stored(old) == before


def test_a_file_of_an_older_format_is_upgraded_by_the_first_write(old, duck):
    [receipt] = swap(duck)
    assert stored(old)[0] == 3
    first, second = duck.ledger()
    assert (first.swap_id, first.provenance.inputs) == ("first", ())
    assert second == receipt.entry
    assert second.provenance == PROVENANCE
    assert (first.conditions, second.conditions) == (None, slice_of("a").conditions)
    assert (first.token, second.token) == (3, 4)
    assert second.position > first.position


def test_an_upgrade_that_is_broken_off_at_any_statement_has_not_begun(old, duck):
    before, point = stored(old), 1
    while True:
        point += 1
        try:
            DuckDBStore(str(old), observer=fail_at(point)).draw_token("x")
        except Crash:
            if stored(old) == before:
                continue
        break
    assert point > 6  # the format, BEGIN, the counter, a column, a table, a view
    assert len(duck.ledger()) == 1
    swap(duck)


@pytest.mark.parametrize("point", ["create upgrade", "commit upgrade", "begin"])
def test_a_process_that_is_killed_while_it_upgrades_leaves_one_format_or_the_other(old, duck, processes, point):
    before, _ = stored(old)
    outcome = processes.call("draw_token_and_die", path=str(old), point=point)
    assert outcome.killed
    found, columns = stored(old)
    assert (found, "slice" in columns) == ((3, True) if point == "begin" else (before, False))
    [receipt] = swap(duck)
    assert duck.ledger()[-1] == receipt.entry


def test_what_a_new_file_has_is_what_an_upgraded_one_has(old, duck, tmp_path):
    duck.draw_token("x")
    DuckDBStore(str(tmp_path / "new.duckdb")).draw_token("x")
    found = []
    for path in (old, tmp_path / "new.duckdb"):
        with duckdb.connect(str(path)) as connection:
            within = "WHERE schema_name = 'marigold'"
            tables = connection.execute(f"SELECT table_name, sql FROM duckdb_tables() {within} ORDER BY ALL").fetchall()
            views = connection.execute(f"SELECT view_name, sql FROM duckdb_views() {within} ORDER BY ALL").fetchall()
            found.append(tables + views)
    assert found[0] == found[1]
    assert [name for name, _ in found[0]] == ["acceptances", "claims", "counter", "fence", "ledger", "versions"]


@pytest.mark.parametrize("number", [0, 4])
def test_the_tables_of_a_format_that_is_not_known_are_refused(old, duck, number):
    with duckdb.connect(str(old)) as connection:
        connection.execute("UPDATE marigold.counter SET format = ?", [number])
    with pytest.raises(ConfigurationError, match="format"):
        duck.draw_token("x")


def test_an_old_file_is_upgraded_by_accepting_a_partition(old, duck):
    duck.accept([accepted()])
    assert stored(old)[0] == 3
    assert duck.acceptances(TABLE) == (accepted(),)
    [entry] = duck.ledger()
    assert Definition.of(entry) == accepted().definition
    with duckdb.connect(str(old)) as connection:
        found = connection.execute("SELECT partition_key, slice, starts, accepted_by FROM marigold.versions").fetchall()
    assert found == [("a", None, None, "tomás")]


def test_instants_are_in_utc_whatever_the_session_zone(duck):
    attempt = draw_attempt(duck)
    with duck.keep_open(attempt) as kept:
        kept.swap([slice_of("a")], table_of([{"key": "a", "value": 1}]), attempt=attempt, swap_id="x")
        with kept._opening.reading() as session:
            session.configure("Asia/Kathmandu")
        kept.accept([accepted()])
        [found] = kept.acceptances(TABLE)
        [entry] = kept.ledger()
        assert session.zone == "Asia/Kathmandu"
    assert (found.accepted_at, found.accepted_at.tzinfo) == (MOMENT, UTC)
    assert entry.committed_at.tzinfo == UTC
    assert abs(entry.committed_at - datetime.now(UTC)) < timedelta(hours=1)


def test_keys_differ_by_letter_in_the_ledger_whatever_the_default_collation(old):
    store = DuckDBStore(str(old), config={"default_collation": "NOCASE"})
    swap(store, "A")
    assert set(store.heads(TABLE)) == {"a", "A"}
    assert [entry.swap_id for entry in store.receipts("FIRST")] == []
