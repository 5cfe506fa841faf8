"""Files of SQL that change while code is loaded: what was read is what it was, and what is read later is told."""

from __future__ import annotations

import os
import textwrap

import dagster as dg
import duckdb
import pytest

from marigold_assets import FencedPartitionIOManager
from marigold_assets.code.loaded import LoadedCode, code_fingerprint

HEAD = "from pathlib import Path\nHERE = Path(__file__).parent\n"


@pytest.fixture
def module(module):
    """The same, beside ``daily.sql``."""
    return lambda name, text: module(name, HEAD + textwrap.dedent(text))


@pytest.fixture
def sql(tmp_path):
    """Writes ``daily.sql``."""
    file = tmp_path / "daily.sql"
    file.write_text("SELECT 1\n")
    return file


READ_WHEN_LOADED = {
    "name": 'QUERY = (HERE / "daily.sql").read_text()\ndef made(x): return QUERY',
    "one_line": 'QUERY = (HERE / "daily.sql").read_text().strip()\ndef made(x): return QUERY',
    "class": 'class Q:\n    SALES = (HERE / "daily.sql").read_text()\ndef made(x): return Q.SALES',
    "all": 'ALL = {p.stem: p.read_text().strip() for p in HERE.glob("*.sql")}\ndef made(x): return ALL["daily"]',
    "helper": (
        "def load(n): return (HERE / f'{n}.sql').read_text().strip()\nclass Q:\n    text = load('daily')\n"
        "QUERY = load('daily')\ndef made(x): return QUERY"
    ),
    "closure": (
        "def factory(text):\n    def made(x): return text\n    return made\n"
        "made = factory((HERE / 'daily.sql').read_text())"
    ),
}
READ_WHEN_RUN = {
    "function": 'def made(x): return (HERE / "daily.sql").read_text()',
    "helper": "def load(n): return (HERE / f'{n}.sql').read_text()\ndef made(x): return load('daily')",
    "path": 'FILE = HERE / "daily.sql"\ndef made(x): return FILE.read_text()',
    "paths": 'FILES = {"a": ["daily.sql"]}\ndef made(x): return (HERE / FILES["a"][0]).read_text()',
    "class": 'class Q:\n    FILE = HERE / "daily.sql"\n    def read(self): return self.FILE.read_text()\n'
    "def made(x): return Q().read()",
    "method": 'class Q:\n    def read(self): return (HERE / "daily.sql").read_text()\nQ1 = Q()\n'
    "def made(x): return Q1.read()",
    "lambda": 'STEPS = [lambda: (HERE / "daily.sql").read_text()]\ndef made(x): return STEPS[0]()',
}


@pytest.mark.parametrize("how", READ_WHEN_LOADED)
def test_sql_that_was_read_when_the_code_was_loaded_is_that_of_then(module, sql, how):
    name, text = f"sql_loaded_{how}", READ_WHEN_LOADED[how]
    loaded = LoadedCode(module(name, text).made)
    expected = code_fingerprint(module(name, text).made)
    sql.write_text("SELECT 22\n")
    assert loaded.fingerprint == expected
    assert loaded.changed_files() == []
    assert code_fingerprint(module(name, text).made) != expected


@pytest.mark.parametrize("how", READ_WHEN_RUN)
def test_sql_that_functions_read_when_they_run_is_told_to_have_changed(module, sql, how):
    name, text = f"sql_run_{how}", READ_WHEN_RUN[how]
    loaded = LoadedCode(module(name, text).made)
    expected = code_fingerprint(module(name, text).made)
    assert loaded.changed_files() == []
    os.utime(sql, (1, 1))
    sql.write_text("SELECT 1\n")
    assert loaded.changed_files() == []  # written again with the same text
    sql.write_text("SELECT 2\n")
    assert loaded.changed_files() == [sql]
    assert loaded.fingerprint == expected
    assert code_fingerprint(module(name, text).made) != expected
    sql.unlink()
    assert loaded.changed_files() == [sql]


def test_what_must_not_be_iterated_over_is_not(module):
    text = "import dagster as dg\nDAYS = dg.DailyPartitionsDefinition('2024-01-01')\ndef made(x): return [DAYS], DAYS"
    assert LoadedCode(module("sql_records", text).made).changed_files() == []


def test_a_run_ends_where_sql_that_it_reads_has_changed(module, sql, tmp_path):
    sql.write_text("SELECT TIMESTAMP '$day' AS day, 1 AS v")
    text = """
        import dagster as dg
        from marigold_assets import partitioned_asset
        DAYS = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-01-05")
        @partitioned_asset(partitions_def=DAYS, partition_expr="day", backfill_policy=dg.BackfillPolicy.single_run())
        def sales(context: dg.AssetExecutionContext) -> str:
            query = HERE / "daily.sql"
            if context.partition_key == "2024-01-03":
                query.write_text(query.read_text().replace("1 AS v", "2 AS v"))
            return query.read_text().replace("$day", context.partition_key)
    """
    database = str(tmp_path / "w.duckdb")

    def run():
        return dg.materialize(
            [module("sql_run", text).sales],
            resources={"io_manager": FencedPartitionIOManager(database=database)},
            tags={
                "dagster/asset_partition_range_start": "2024-01-01",
                "dagster/asset_partition_range_end": "2024-01-04",
            },
            raise_on_error=False,
        )

    def values():
        with duckdb.connect(database) as connection:
            return [v for (v,) in connection.execute("SELECT v FROM public.sales ORDER BY day").fetchall()]

    failed = run()
    assert values() == [1, 1]
    [failure] = failed.get_step_failure_events()
    message = failure.event_specific_data.error.to_string()
    assert "daily.sql has changed" in message
    assert "run it again" in message
    assert run().success  # loaded anew
    assert values() == [2, 2, 2, 2]
