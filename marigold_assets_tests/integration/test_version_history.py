"""A scripted history of one asset, and what every command says of it.

Version 1 has built 2024, version 2 the first half of 2025. Then the code is tidied up without a change of meaning, is
changed in silence, reads the clock, and at last becomes version 3, which declares to change one column.
"""

from __future__ import annotations

import json
import shutil

import dagster as dg
import duckdb
import pytest

from marigold_assets_tests.integration.cli_project import Project

pytestmark = pytest.mark.slow

OF_2024 = [f"2024-{number:02d}-01" for number in range(1, 13)]
OF_2025 = [f"2025-{number:02d}-01" for number in range(1, 13)]
HALF = OF_2025[:6]

HEAD = """
from datetime import datetime

import dagster as dg
import pandas as pd

from marigold_assets import FencedPartitionIOManager, build_uniform_version_check, partitioned_asset

MONTHS = dg.MonthlyPartitionsDefinition("2024-01-01", end_date="2026-01-01")


@partitioned_asset(partitions_def=MONTHS, partition_expr="month", code_version="1")
def orders(context: dg.AssetExecutionContext):
    month = pd.Timestamp(context.partition_key)
    return pd.DataFrame({"month": [month] * 3, "order_id": [1, 2, 2], "cents": [100 * month.month, 50, 50]})

"""
SALES = """
@partitioned_asset(partitions_def=MONTHS, partition_expr="month", code_version="%s", metadata=%s)
def sales(orders: pd.DataFrame):
    kept = clean(orders)
    return pd.DataFrame(
        {"month": kept["month"].iloc[:1], "gross": [int(kept["cents"].sum())], "net": [net(int(kept["cents"].sum()))]}
    )

"""
REST = """
@dg.asset(ins={"sales": dg.AssetIn(partition_mapping=dg.AllPartitionMapping(),
          metadata={"marigold/uniform_version": True, "columns": ["month", "gross"]})})
def of_gross(sales: pd.DataFrame) -> pd.DataFrame:
    return sales.agg("sum", numeric_only=True).to_frame().T


@dg.asset(ins={"sales": dg.AssetIn(partition_mapping=dg.AllPartitionMapping(),
          metadata={"marigold/uniform_version": True})})
def of_all(sales: pd.DataFrame) -> pd.DataFrame:
    return sales.agg("sum", numeric_only=True).to_frame().T


defs = dg.Definitions(
    assets=[orders, sales, of_gross, of_all],
    asset_checks=[build_uniform_version_check(asset=sales)],
    resources={"io_manager": FencedPartitionIOManager(database="%s")},
)
"""
AS_DELIVERED = "def clean(orders):\n    return orders\n"
ONCE = "def clean(orders):\n    return orders.drop_duplicates()\n"
ONCE_TIDIED = (
    "def clean(orders):\n    # Every order once.\n    return orders.groupby(list(orders), as_index=False).first()\n"
)
FIRST_ONLY = "def clean(orders):\n    return orders.drop_duplicates('month')\n"
BY_THE_CLOCK = "def clean(orders):\n    return orders.drop_duplicates().assign(cents=datetime.now().year)\n"
NET = "def net(cents):\n    return cents * 79 // 100\n"
LESS_TAX = "def net(cents):\n    return cents * 83 // 100\n"
ONLY_NET = {"marigold/column_versions": {"3": {"since": "2", "columns": ["net"]}}}


class History(Project):
    """The project, whose definitions change."""

    def deploy(self, name, version, *helpers, metadata=None):
        """Write the definitions of one moment."""
        path = self.folder / f"{name}_{self.folder.name}.py"
        text = [HEAD, *helpers, SALES % (version, metadata or {}), REST % self.database]
        path.write_text("\n".join(text), encoding="utf-8")
        return str(path)

    def months(self, path, first, last, *assets):
        self.build(path, *(assets or ("sales",)), keys=(first, last))

    def says(self, path, *words, code=0):
        """What a command about the versions prints."""
        return self.run("versions", *words, "-f", path, code=code)

    def fails_to_read(self, path, reader):
        """Why a reader of everything fails."""
        with pytest.raises(dg.Failure) as raised:
            self.build(path, reader)
        return str(raised.value.description).splitlines()[0]


@pytest.fixture(scope="module")
def history(tmp_path_factory):
    """Version 1 for 2024, version 2 for the first half of 2025, and the lock of that moment."""
    history = History(tmp_path_factory.mktemp("history"))
    history.home.mkdir()
    (history.home / "dagster.yaml").touch()
    first = history.deploy("first", "1", AS_DELIVERED, NET)
    history.months(first, OF_2024[0], OF_2025[-1], "orders")
    history.months(first, OF_2024[0], OF_2024[-1])
    second = history.deploy("second", "2", ONCE, NET)
    history.months(second, HALF[0], HALF[-1])
    history.run("versions", "lock", "-f", second, "--lock-file", str(history.folder / "code_versions.lock"))
    return history


@pytest.fixture
def lock(history):
    """The lock, as it was when version 2 was deployed."""
    path = history.folder / "code_versions.lock"
    before = path.read_text(encoding="utf-8")
    yield ["--lock-file", str(path)]
    path.write_text(before, encoding="utf-8")


@pytest.fixture(autouse=True)
def at_the_project(history, monkeypatch):
    monkeypatch.chdir(history.folder)


def ranges(found):
    return [(one["first"], one["last"], one["partitions"]) for one in found]


def labels(found, name="definition"):
    return [one[name] and one[name]["label"] for one in found]


def test_the_report_tells_the_versions_apart(history):
    found = history.report(history.deploy("second", "2", ONCE, NET), "sales")
    assert ranges(found["stretches"]) == [
        (OF_2024[0], OF_2024[-1], 12),
        (HALF[0], HALF[-1], 6),
        (OF_2025[6], OF_2025[-1], 6),
    ]
    assert labels(found["stretches"]) == ["1", "2", None]
    [old] = found["code_stale"]
    assert (old["keys"], labels([old], "before"), labels([old], "after")) == (OF_2024, ["1"], ["2"])
    assert found["mixture"]["columns"] is None
    assert ranges(found["mixture"]["odd"]) == [(OF_2024[0], OF_2024[-1], 12)]
    assert (found["stale"], found["other_code_same_version"], found["column_changes"]) == ([], [], [])
    assert found["event_log"]["compared"]
    assert not any(found["event_log"][name] for name in ("event_missing", "ledger_missing", "differing"))
    assert not found["is_well"]


def test_a_refactoring_is_found_proven_and_carried_over(history, lock):
    tidied = history.deploy("tidied", "2", ONCE_TIDIED, NET)
    said = history.says(tidied, "check", *lock, code=1)
    assert "clean" in said
    assert "code_version" in said
    proven = history.says(tidied, "prove", "sales", "--range", f"{HALF[0]}...{HALF[-1]}", "--lock", *lock)
    assert "identical" in proven
    assert history.says(tidied, "check", *lock)
    [record] = json.loads((history.folder / "code_versions.lock").read_text())["assets"]["sales"]["equivalent"]
    assert set(record["partitions"]) <= set(HALF)
    assert history.report(tidied, "sales")["other_code_same_version"] == []


def test_a_silent_change_is_found_and_cannot_be_proven(history, lock):
    silent = history.deploy("silent", "2", FIRST_ONLY, NET)
    assert "clean" in history.says(silent, "check", *lock, code=1)
    words = ["prove", "sales", "--range", f"{HALF[0]}...{HALF[-1]}", "--lock", *lock]
    before = (history.folder / "code_versions.lock").read_bytes()
    found = json.loads(history.says(silent, *words, "--json", code=1))
    assert (history.folder / "code_versions.lock").read_bytes() == before
    assert [one["outcome"] for one in found["partitions"]] == ["changed"] * len(HALF)
    told = {column["name"]: column["largest"] for column in found["partitions"][0]["difference"]["columns"]}
    assert told == {"gross": "-50", "net": "-39"}
    assert [one["keys"] for one in history.report(silent, "sales")["other_code_same_version"]] == [HALF]


def test_what_reads_the_clock_is_impure(history):
    impure = history.deploy("impure", "2", BY_THE_CLOCK, NET)
    said = history.run("purity", "sales", "-f", impure, code=1)
    assert "datetime.now()" in said
    assert "return orders.drop_duplicates().assign(cents=datetime.now().year)" in said
    assert history.run("purity", "sales", "-f", history.deploy("second", "2", ONCE, NET))


def test_a_change_of_one_column_concerns_its_readers_alone(history, tmp_path):
    """And 2024, which nobody wants to rebuild, is accepted: what is left is the column."""
    history = History(shutil.copytree(history.folder, tmp_path / "later"))  # the other tests are about what was before
    third = history.deploy("third", "3", ONCE, LESS_TAX, metadata=ONLY_NET)
    history.months(third, HALF[-1], OF_2025[6])
    assert f"12 partitions were built under another definition than 3: {OF_2024[0]} to {OF_2024[-1]} (1)" in (
        history.fails_to_read(third, "of_gross")
    )
    history.says(third, "accept", "sales", "--range", f"{OF_2024[0]}...{OF_2024[-1]}", "--reason", "audited as it is")
    found = history.report(third, "sales")
    assert found["mixture"]["columns"] == ["net"]
    assert ranges(found["mixture"]["odd"]) == [(HALF[0], HALF[-2], 5)]
    assert [one["accepted"]["reason"] for one in found["stretches"] if one["accepted"]] == ["audited as it is"]
    [change] = [one for one in found["column_changes"] if labels([one], "before") == ["2"]]
    assert (labels([change], "after"), change["partitions"], change["columns"]) == (["3"], 1, {"net": 1})
    history.build(third, "of_gross")
    assert "5 partitions were built under another definition than 3" in history.fails_to_read(third, "of_all")
    history.months(third, HALF[0], HALF[-2])
    history.build(third, "of_all")
    assert history.report(third, "sales")["is_well"]
    analyst_joins_rows_to_versions(history, third)


def analyst_joins_rows_to_versions(history, path):
    """Without Dagster and this package; the SELECT for it comes from the command."""
    with duckdb.connect(str(history.database), config={"custom_user_agent": "dagster"}) as connection:
        rows = connection.execute(
            "SELECT year(month), code_version, accepted_reason, count(*) FROM public.sales s LEFT JOIN"
            " marigold.versions v ON v.table_schema = 'public' AND v.table_name = 'sales'"
            " AND s.month >= v.local_starts AND s.month < v.local_ends GROUP BY ALL ORDER BY ALL"
        ).fetchall()
        assert rows == [(2024, "1", "audited as it is", 12), (2025, "3", None, 7)]
    query = history.says(path, "show", "sales", "--sql")
    with duckdb.connect(str(history.database), config={"custom_user_agent": "dagster"}) as connection:
        told = connection.execute(f"SELECT marigold_code_version, count(*) FROM ({query}) GROUP BY 1 ORDER BY 1")
        assert told.fetchall() == [("1", 12), ("3", 7)]
