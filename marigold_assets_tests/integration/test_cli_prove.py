"""``marigold versions prove`` and ``marigold purity`` as they are called: what they print, and their exit codes."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import dagster as dg
import pytest
from click.testing import CliRunner

from marigold_assets.cli.main import main
from marigold_assets.cli.purity_report import Report, render
from marigold_assets.cli.rendering import console
from marigold_assets.loading import LocationOptions
from marigold_assets.location import load
from marigold_assets.lock import Lock
from marigold_assets.trial import Dependence, Trial

pytestmark = pytest.mark.slow  # each runs the command and what it proves

DEFINITIONS = """
import os
from datetime import datetime

import dagster as dg
import pandas as pd

from marigold_assets import FencedPartitionIOManager, partitioned_asset

DAILY = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-03-01")


@partitioned_asset(partitions_def=DAILY, partition_expr="day", code_version="1")
def sales(context) -> pd.DataFrame:
    print("computing", context.partition_key)
    number = 0 if context.partition_key == "2024-01-05" else 3
    day = pd.Timestamp(context.partition_key)
    return pd.DataFrame({"day": pd.Series([day] * number, dtype="datetime64[ns]"), "id": range(number), "net": 1.5})


@dg.asset
def plain() -> None: ...


@dg.asset
def customers() -> None: ...


@partitioned_asset(partitions_def=DAILY, partition_expr="day")
def impure(sales: pd.DataFrame, customers: pd.DataFrame) -> pd.DataFrame:
    return sales.assign(year=datetime.now().year)  # marigold: pure because


@partitioned_asset(partitions_def=DAILY, partition_expr="day", metadata={"marigold/impure_columns": {"at": "audit"}})
def waived(sales: pd.DataFrame) -> pd.DataFrame:
    return sales.assign(at=datetime.now())  # marigold: pure because of the audit


defs = dg.Definitions(
    assets=[sales, plain, customers, impure, waived],
    resources={"io_manager": FencedPartitionIOManager(database=os.environ["MARIGOLD_TEST_DATABASE"])},
)
"""


class Project:
    """A file with definitions that is edited, and the command called on it."""

    def __init__(self, folder, warehouse):
        self.path, self.warehouse = folder / "proven_location.py", warehouse
        self.edit(lambda text: text, DEFINITIONS)

    def edit(self, change, text=None):
        before = text or self.path.read_text()
        after = change(before)
        assert after != before or text is not None
        self.path.write_text(after)
        os.utime(self.path, (time.time(), self.path.stat().st_mtime + 5))
        sys.modules.pop(self.path.stem, None)

    def build(self, first="2024-01-01", last="2024-01-20", name="sales"):
        location = load(LocationOptions(python_file=str(self.path)))
        assets = [location.asset(one).definition for one in {"sales", name}]
        selection = [dg.AssetKey(name)]
        assert self.warehouse.materialize(*assets, keys=(first, last), selection=selection).success

    def run(self, *arguments):
        sys.modules.pop(self.path.stem, None)
        before = self.warehouse.dump()
        result = CliRunner().invoke(main, [*arguments, "-f", str(self.path)], catch_exceptions=False)
        assert self.warehouse.dump() == before
        return result

    def prove(self, *arguments):
        return self.run("versions", "prove", "sales", *arguments)


@pytest.fixture
def project(tmp_path, warehouse, monkeypatch):
    monkeypatch.setenv("MARIGOLD_TEST_DATABASE", warehouse.path)
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text("")
    return Project(tmp_path, warehouse)


@pytest.fixture
def built(project):
    project.build()
    return project


def test_a_refactoring_is_proven_on_a_sample_with_a_printed_seed(built):
    built.edit(lambda text: text.replace('"net": 1.5', '"net": 3 / 2'))
    result = built.prove("--seed", "7")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0] == "sales: 12 of 20 partitions computed again (seed 7)"
    assert lines[-1] == "12 partitions: 12 identical. identical: the present code makes what is stored."
    shown = [line.split() for line in lines if line.strip().startswith("2024")]
    assert [line[:3] for line in shown if line[0] in {"2024-01-01", "2024-01-05"}] == [
        ["2024-01-01", "first", "identical"],
        ["2024-01-05", "empty", "identical"],
    ]
    assert "computing" in result.stderr
    assert built.prove("--seed", "7").stdout == result.stdout


def test_a_change_is_told_by_column_rows_and_examples_and_exits_with_1(built):
    built.edit(lambda text: text.replace('"net": 1.5}', '"net": [1.5, 1.5, 2.0][:number]}'))
    result = built.prove("--all")
    assert result.exit_code == 1
    assert "column net changed in 19 partitions, 19 rows" in result.stdout
    assert "net: 1 row, by 0.5" in result.stdout
    assert "  id=2: net 1.5 -> 2.0" in result.stdout
    assert "20 partitions: 19 changed, 1 identical. changed: " in result.stdout


def test_added_columns_are_a_change_unless_they_are_allowed(built):
    built.edit(lambda text: text.replace('"net": 1.5', '"net": 1.5, "gross": 2.0'))
    result = built.prove("--sample", "3")
    assert (result.exit_code, "column gross added in 3 partitions" in result.stdout) == (1, True)
    assert built.prove("--sample", "3", "--allow-added").exit_code == 0


def test_programs_are_given_json(built):
    built.edit(lambda text: text.replace('"net": 1.5', '"net": 2.5'))
    result = built.prove("--range", "2024-01-02...2024-01-03", "--all", "--json")
    found = json.loads(result.stdout)
    assert (result.exit_code, found["verdict"], found["seed"], found["among"]) == (1, "changed", None, 2)
    [first, _] = found["partitions"]
    assert (first["partition"], first["outcome"]) == ("2024-01-02", "changed")
    [column] = first["difference"]["columns"]
    assert (column["name"], column["rows"], column["largest"]) == ("net", 3, "1.0")


def test_partitions_that_cannot_be_compared_leave_it_open(built):
    result = built.prove("--all", "--range", "2024-01-19...2024-01-22")
    assert result.exit_code == 2
    assert "4 partitions: 2 identical, 2 never built. not judged: " in result.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--range", "2024-01-02...2030-01-01"], "the asset has no partition '2030-01-01'"),
        (["--range", "2024-01-03...2024-01-02"], "ends before it begins"),
        (["--range", "2024-02-01...2024-02-03"], "was ever built"),
        (["--config", "nowhere.yaml"], "cannot be read"),
        (["--sample", "0"], "not in the range"),
        (["--lock"], "code_versions.lock"),
    ],
)
def test_what_makes_no_sense_is_explained_and_exits_with_2(built, arguments, message):
    result = built.prove(*arguments)
    assert result.exit_code == 2
    assert message in result.stderr
    assert "Traceback" not in result.stderr


def test_the_code_of_any_asset_can_be_looked_at(project):
    project.edit(lambda text: text.replace("def plain() -> None: ...", "def plain() -> None: print(datetime.now())"))
    result = project.run("purity", "plain", "--static")
    assert (result.exit_code, "clock: datetime.now()" in result.stdout) == (1, True)


def test_findings_are_in_the_order_of_their_lines(project):
    project.edit(lambda text: text.replace("year=datetime.now().year)", "year=year())"))
    project.edit(
        lambda text: text.replace("def plain", "def year():\n    return datetime.now().year\n\n@dg.asset\ndef plain")
    )
    project.edit(lambda text: text.replace("@dg.asset\ndef year", "def year"))
    found = json.loads(project.run("purity", "impure", "--static", "--json").stdout)["findings"]
    lines = [one["line"] for one in found]
    assert len(lines) > 1
    assert lines == sorted(lines)
    assert found[0]["kind"] == "clock"


def test_what_differs_is_waived_by_metadata_and_what_is_missing_is_said():
    at = Dependence(what="at", is_column=True, partitions=("2024-01-01",), causes=("the clock",))
    trial = Trial(keys=("2024-01-01",), seed=1, dependences=(at, replace(at, what="by")), unjudged={})
    said = io.StringIO()
    report = Report(asset="sales", findings=(), trial=trial, is_strict=False)
    render(report, to=console(said))
    lines = said.getvalue().splitlines()
    assert '    To waive it: metadata={"marigold/impure_columns": {"at": "<reason>"}}' in lines
    assert lines[-1].endswith("1 partition computed twice (seed 1): 2 differ. Impure.")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("time.sleep(60)", "was not done within 1 seconds"),
        ('"TZ" in os.environ and os._exit(0)', "its function, or a module that it imports, may end the process"),
    ],
)
def test_a_function_that_hangs_or_ends_its_process_leaves_no_verdict(built, text, said):
    built.edit(lambda old: old.replace('    print("computing"', f'    import time; {text}\n    print("computing"'))
    command = [str(Path(sys.executable).with_name("marigold")), "purity", "sales", "--sample", "1", "-f"]
    seconds = ["--timeout", "1"] if "sleep" in text else []
    env = {name: value for name, value in os.environ.items() if name != "TZ"}
    ran = subprocess.run(
        [*command, str(built.path), *seconds], capture_output=True, text=True, timeout=60, check=False, env=env
    )
    assert (ran.returncode, ran.stdout) == (2, "")
    assert said in ran.stderr
    assert "__main__" not in ran.stderr


@pytest.mark.parametrize("command", [["versions", "prove"], ["purity"]])
def test_assets_that_cannot_be_replayed_are_refused(project, command):
    result = project.run(*command, "plain")
    assert result.exit_code == 2
    assert "not made by @partitioned_asset" in result.stderr


def test_identical_partitions_let_the_lock_carry_the_version_over(built, tmp_path):
    assert built.run("versions", "lock").exit_code == 0
    built.edit(lambda text: text.replace('"net": 1.5', '"net": 3 / 2'))
    assert built.run("versions", "check").exit_code == 1
    result = built.prove("--lock", "--sample", "4", "--seed", "1")
    assert result.exit_code == 0
    assert "the present code goes by code_version '1'" in result.stdout
    assert built.run("versions", "check").exit_code == 0
    assert "2024-01-01" in (tmp_path / "code_versions.lock").read_text()
    assert "has the present code already" in built.prove("--lock", "--sample", "4").stdout


def test_what_others_write_into_the_lock_meanwhile_is_kept_unless_it_is_of_the_same_asset(built, tmp_path):
    assert built.run("versions", "lock").exit_code == 0
    path = tmp_path / "code_versions.lock"
    swap = 'import pathlib; pathlib.Path("other.lock").replace("code_versions.lock")'
    built.edit(lambda text: text.replace('    print("computing"', f'    {swap}\n    print("computing"'))
    known = Lock.load(path)
    replace(known, assets={**known.assets, "sales": replace(known.assets["sales"], parts={})}).save(
        tmp_path / "other.lock"
    )
    result = built.prove("--lock", "--partition", "2024-01-02")
    assert (result.exit_code, "says something else of the asset" in result.stderr) == (2, True)
    known.save(path)
    without = {name: one for name, one in known.assets.items() if name != "plain"}
    Lock(assets=without).save(tmp_path / "other.lock")
    assert built.prove("--lock", "--partition", "2024-01-02").exit_code == 0
    written = Lock.load(path).assets
    assert ("plain" in written, len(written["sales"].equivalent)) == (False, 1)


@pytest.mark.parametrize("arguments", [["--lock"], []])
def test_sql_that_changes_while_partitions_are_computed_leaves_no_verdict(project, tmp_path, arguments):
    (tmp_path / "net.sql").write_text("select 1.5")
    project.edit(
        lambda text: text.replace(
            '"net": 1.5', '"net": float(Path(__file__).with_name("net.sql").read_text().split()[1])'
        )
    )
    project.edit(lambda text: text.replace("import os\n", "import os\nfrom pathlib import Path\n", 1))
    project.build()
    assert project.run("versions", "lock").exit_code == 0
    before = (tmp_path / "code_versions.lock").read_text()
    (tmp_path / "net.sql").write_text("select 2.5")
    back = 'os.replace("old.txt", "net.sql") if os.path.exists("old.txt") else None'
    project.edit(lambda text: text.replace('    print("computing"', f'    {back}\n    print("computing"'))
    (tmp_path / "old.txt").write_text("select 1.5")
    result = project.prove("--sample", "2", *arguments)
    assert result.exit_code == 2
    assert "net.sql has changed since the code was loaded" in result.stderr
    assert (tmp_path / "code_versions.lock").read_text() == before


def test_a_run_whose_sql_changes_under_it_swaps_nothing(project, tmp_path):
    (tmp_path / "net.sql").write_text("select 1.5")
    change = '(p := pathlib.Path(__file__).with_name("net.sql")).write_text(p.read_text() + " -- ")'
    project.edit(
        lambda text: text.replace('    print("computing"', f'    import pathlib; {change}\n    print("computing"')
    )
    with pytest.raises(dg.Failure, match=r"^asset 'sales', .*net\.sql has changed since the code was loaded"):
        project.build()
    assert project.warehouse.dump() == {}


def test_changed_partitions_do_not(built, tmp_path):
    assert built.run("versions", "lock").exit_code == 0
    before = (tmp_path / "code_versions.lock").read_text()
    built.edit(lambda text: text.replace('"net": 1.5', '"net": 2.5'))
    assert built.prove("--lock", "--sample", "4").exit_code == 1
    assert (tmp_path / "code_versions.lock").read_text() == before


def test_partitions_that_the_present_code_has_built_prove_nothing_of_the_code_before(built, tmp_path):
    assert built.run("versions", "lock").exit_code == 0
    built.edit(lambda text: text.replace('"net": 1.5', '"net": 3 / 2'))
    built.build()
    result = built.prove("--lock", "--sample", "4")
    assert result.exit_code == 2
    assert "none of the partitions tried was built by the code that the lock has" in result.stderr


def test_only_what_the_code_in_the_lock_has_built_proves_anything_of_it(built, tmp_path):
    built.edit(lambda text: text.replace('"net": 1.5', '"net": 0.5 * 3'))
    assert built.run("versions", "lock").exit_code == 0  # of code that has built nothing
    built.edit(lambda text: text.replace("0.5 * 3", "3 / 2"))
    result = built.prove("--lock", "--all")
    assert result.exit_code == 2
    assert "none of the partitions tried was built by the code that the lock has" in result.stderr


def test_the_sample_prefers_what_the_code_in_the_lock_has_built_and_the_lock_says_how_much(built, tmp_path):
    assert built.run("versions", "lock").exit_code == 0
    built.edit(lambda text: text.replace('"net": 1.5', '"net": 3 / 2'))
    built.build("2024-01-03", "2024-01-20")
    result = built.prove("--lock", "--sample", "4", "--seed", "1")
    assert result.exit_code == 0
    assert "proven on only 2 partitions that the code in the lock has built." in result.stdout
    [equivalent] = Lock.load(tmp_path / "code_versions.lock").assets["sales"].equivalent
    assert equivalent.proof.partitions == ("2024-01-01", "2024-01-02")
    assert equivalent.proof.sample == "4 of 20, seed 1; 2 of them built by the code in the lock"
    built.edit(lambda text: text.replace("3 / 2", "6 / 4"))
    assert built.prove("--lock", "--partition", "2024-01-01").exit_code == 0  # by way of the first proof


def test_empty_partitions_prove_nothing(built):
    assert built.run("versions", "lock").exit_code == 0
    built.edit(lambda text: text.replace('"net": 1.5', '"net": 9.5'))
    result = built.prove("--lock", "--partition", "2024-01-05")
    assert result.exit_code == 2
    assert "are empty: that proves nothing" in result.stderr
    assert built.prove("--partition", "2024-01-05").exit_code == 0


def test_added_columns_are_never_carried_over(built, tmp_path):
    assert built.run("versions", "lock").exit_code == 0
    before = (tmp_path / "code_versions.lock").read_text()
    built.edit(lambda text: text.replace('"net": 1.5', '"net": 1.5, "gross": 2.0'))
    result = built.prove("--sample", "3", "--allow-added", "--lock")
    assert result.exit_code == 1
    assert "code_versions.lock is as it was: columns were added, which needs a new code_version." in result.stdout
    assert (tmp_path / "code_versions.lock").read_text() == before


def test_code_without_a_version_cannot_be_carried_over(built):
    assert built.run("versions", "lock").exit_code == 0
    built.edit(lambda text: text.replace(', code_version="1"', ""))
    result = built.prove("--lock", "--sample", "2")
    assert (result.exit_code, "declare a code_version first" in result.stderr) == (2, True)


def test_partitions_are_named_and_a_range_is_turned_round(built):
    result = built.prove("--partition", "2024-01-03", "--partition", "2024-01-02", "--json")
    found = json.loads(result.stdout)
    assert [(one["partition"], one["why"]) for one in found["partitions"]] == [
        ("2024-01-03", "named"),
        ("2024-01-02", "named"),
    ]
    assert "no partition '2030-01-01'" in built.prove("--partition", "2030-01-01").stderr
    assert built.prove("--partition", "2024-01-03", "--all").exit_code == 2
    assert "--range 2024-01-02...2024-01-03" in built.prove("--range", "2024-01-03...2024-01-02").stderr


@pytest.mark.parametrize(
    ("key", "name", "code", "said"),
    [
        ('name="revenue"', "revenue", 2, "those of sales, as it was called, lie in table public.sales"),
        ('key_prefix=["shop"]', "shop/sales", 0, "the present code goes by code_version '1'"),
    ],
)
def test_a_renamed_asset_is_proven_as_far_as_its_table_is_the_same(built, key, name, code, said):
    assert built.run("versions", "lock").exit_code == 0
    built.edit(lambda text: text.replace('"net": 1.5', '"net": 3 / 2'))
    former = 'metadata={"marigold/renamed_from": "sales", "schema": "public"}'
    built.edit(lambda text: text.replace('code_version="1")', f'code_version="1", {former}, {key})', 1))
    result = built.run("versions", "prove", name, "--lock", "--sample", "2")
    assert (result.exit_code, said in result.output) == (code, True)


def test_row_counts_of_both_sides_are_named(built):
    built.edit(lambda text: text.replace("else 3", "else 2"))
    assert "computed 2, stored 3" in built.prove("--partition", "2024-01-02").stdout


def test_what_processes_of_the_function_print_does_not_spoil_the_json(built, capfd):
    built.edit(lambda text: text.replace('print("computing"', 'os.system("echo loud"); print("computing"'))
    built.edit(lambda text: f'{text}\nos.system("echo loading")\n')
    for arguments in (("versions", "prove", "sales", "--sample", "1"), ("purity", "sales", "--static")):
        built.run(*arguments, "--json")
        printed = capfd.readouterr()
        assert (printed.out, "loading" in printed.err) == ("", True)


@pytest.mark.parametrize("end", ["os._exit(0)", "raise SystemExit(0)"])
def test_a_function_that_ends_the_process_leaves_no_verdict(built, end):
    built.edit(lambda text: text.replace('    print("computing"', f'    {end}\n    print("computing"'))
    command = [str(Path(sys.executable).with_name("marigold")), "versions", "prove", "sales", "-f", str(built.path)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "asset 'sales'" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_findings_of_the_code_are_explained_with_file_and_line(project):
    result = project.run("purity", "impure", "--static")
    assert result.exit_code == 1
    number = next(n for n, line in enumerate(DEFINITIONS.splitlines(), 1) if "year=datetime.now()" in line)
    assert f"proven_location.py:{number}: clock: datetime.now()" in result.stdout
    assert "return sales.assign(year=datetime.now().year)" in result.stdout
    assert f"proven_location.py:{number}: waiver: a waiver without a reason" in result.stdout
    assert f"proven_location.py:{number - 1}: unpartitioned input: input customers" in result.stdout
    assert "Why: " in result.stdout
    assert "customer_tiers" in result.stdout
    assert result.stdout.splitlines()[-1] == "impure: 3 findings in the code. Impure."


def test_programs_are_given_the_findings_as_json(project):
    result = project.run("purity", "impure", "--static", "--json")
    found = json.loads(result.stdout)
    assert (result.exit_code, found["is_pure"], found["trial"]) == (1, False, None)
    assert [one["kind"] for one in found["findings"]] == ["unpartitioned input", "clock", "waiver"]


def test_a_pure_asset_is_computed_twice_and_exits_with_0(built):
    result = built.run("purity", "sales", "--sample", "2", "--seed", "3")
    assert result.exit_code == 0
    said = "sales: 0 findings in the code, 2 partitions computed twice (seed 3): nothing differs."
    assert result.stdout == f"{said} Pure as far as was looked.\n"


def test_what_is_waived_is_shown_with_its_reason_and_does_not_fail(built):
    built.build(name="waived")
    result = built.run("purity", "waived", "--sample", "2")
    assert result.exit_code == 0
    assert "    waived: of the audit" in result.stdout
    assert "column at differs when it is computed twice, in 2 partitions: 2024-01-01, 2024-01-20" in result.stdout
    assert "    waived: audit" in result.stdout
    assert "2 waived" in result.stdout
