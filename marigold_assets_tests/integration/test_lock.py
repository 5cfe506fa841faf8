"""``marigold versions lock`` and ``check`` on real projects."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import dagster as dg
import pytest
from click.testing import CliRunner

from marigold_assets.cli.main import main
from marigold_assets.loading import LocationOptions
from marigold_assets.location import load
from marigold_assets.lock import Lock
from marigold_assets.surveying.lock_place import lock_path

DEFINITIONS = """
    import dagster as dg
    import pandas as pd
    from marigold_assets import FencedPartitionIOManager, partitioned_asset
    from HELPERS import clean

    DAYS = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-02-01")

    @partitioned_asset(partitions_def=DAYS, partition_expr="day", code_version="2", key_prefix=["shop"])
    def daily_sales(context: dg.AssetExecutionContext):
        'Sales of a day.'
        return pd.DataFrame({"day": [pd.Timestamp(context.partition_key)], "cents": [clean(1)]})

    @dg.asset(code_version="1")
    def plain():
        return twice(1)

    @dg.multi_asset(specs=[dg.AssetSpec("eu", code_version="1"), dg.AssetSpec("us")])
    def both():
        twice(2)

    def twice(x):
        return x * 2

    defs = dg.Definitions(
        assets=[daily_sales, plain, both, dg.AssetSpec("from_outside")],
        resources={"io_manager": FencedPartitionIOManager(database="DATABASE")},
    )
"""
HELPERS = """
    def clean(x):
        return x + 1
"""


def default_file(folder):
    return lock_path(LocationOptions(working_directory=str(folder)))


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A folder to work in, with a lock file for all that is deployed into it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text("")
    return Project(tmp_path)


class Project:
    def __init__(self, folder):
        self.folder, self._count = folder, 0

    def deploy(self, old="", new=""):
        """Write the definitions, some text of which is replaced, to files of a new name: processes load them once."""
        self._count += 1
        helpers = f"helpers_{self._count}_{self.folder.name}"
        self.file = self.folder / f"definitions_{self._count}_{self.folder.name}.py"
        assert not old or old in DEFINITIONS + HELPERS
        texts = {self.file: DEFINITIONS, self.folder / f"{helpers}.py": HELPERS}
        for path, text in texts.items():
            given = text.replace(old, new) if old else text
            given = given.replace("HELPERS", helpers).replace("DATABASE", str(self.folder / "shop.duckdb"))
            path.write_text(textwrap.dedent(given))
        return self

    def deploy_also(self, *changes):
        """Replace more text in the definitions, which no process has loaded yet."""
        for old, new in changes:
            assert old in self.file.read_text()
            self.file.write_text(self.file.read_text().replace(old, new))

    def workspace(self, *files):
        self.places = self.folder / "workspace.yaml"
        listed = "".join(f"  - python_file: {file}\n" for file in files or (self.file,))
        self.places.write_text(f"load_from:\n{listed}")

    def run(self, command, *arguments, everywhere=False):
        where = ["-w", str(self.places)] if everywhere else ["-f", str(self.file)]
        return CliRunner().invoke(main, ["versions", command, *where, *arguments])

    def lock(self, *arguments):
        return self.run("lock", *arguments)

    def check(self, *arguments):
        return self.run("check", *arguments)

    @property
    def locked(self):
        return Lock.load(self.folder / "code_versions.lock").assets


NEW = """@dg.asset(name="simple", code_version="1", metadata={"marigold/renamed_from": "plain"})
    def plain():
        return twice(1)"""
ACCEPT = '--accept-changes --reason "..."'
CHANGED = ("return x + 1", "return x + 10")


def test_what_is_locked_passes_also_where_only_names_of_files_and_remarks_differ(project):
    found = project.deploy().lock()
    assert (found.exit_code, found.stderr) == (0, "")
    assert "4 assets, written anew: eu, plain, shop/daily_sales, us." in found.stdout
    assert project.locked.keys() == {"eu", "plain", "shop/daily_sales", "us"}  # without the asset from outside
    assert project.locked["shop/daily_sales"].version == "2"
    assert project.locked["shop/daily_sales"].parts.keys() == {"daily_sales", "clean"}
    assert project.locked["eu"].parts == project.locked["us"].parts
    assert "4 assets: as" in project.check().stdout
    found = project.deploy("'Sales of a day.'", "'What was sold.'  # by day").check()
    assert (found.exit_code, found.stderr) == (0, "")


def test_changed_code_under_an_unchanged_version_fails_and_the_function_is_named(project):
    project.deploy().lock()
    found = project.deploy(*CHANGED).check()
    assert found.exit_code == 1
    file = project.file
    assert found.stdout.splitlines()[:4] == [
        "shop/daily_sales: clean changed, but code_version is still '2'.",
        f"  If it means something else now: set code_version to another one, then marigold versions lock -f {file}",
        f"  If it means the same, and that can be shown: marigold versions prove shop/daily_sales -f {file} --lock",
        f"  If it means the same to you: marigold versions lock shop/daily_sales -f {file} {ACCEPT}",
    ]
    assert project.check("plain").exit_code == 0


def test_lock_does_not_write_down_what_nobody_has_accepted(project):
    project.deploy().lock()
    before = project.locked
    found = project.deploy(*CHANGED).lock()
    assert found.exit_code == 1
    assert "as it was." in found.stdout
    assert "clean changed, but code_version is still '2'" in found.stdout
    assert project.locked == before


def test_a_new_version_is_asked_for_in_the_lock_and_written_down(project):
    project.deploy().lock()
    project.deploy('code_version="2"', 'code_version="3"')
    found = project.check()
    assert found.exit_code == 1
    assert "shop/daily_sales: code_version is '3' now, but the lock has '2'." in found.stdout
    assert project.lock().exit_code == 0
    assert project.check().exit_code == 0
    assert project.locked["shop/daily_sales"].earlier.keys() == {"2"}


def test_a_change_is_accepted_on_the_record(project):
    project.deploy().lock()
    project.deploy(*CHANGED)
    found = project.lock("shop/daily_sales", "--accept-changes", "--reason", "never called", "--by", "Nadia")
    assert found.exit_code == 0
    assert project.check().exit_code == 0
    [accepted] = project.locked["shop/daily_sales"].accepted
    assert (accepted.by, accepted.reason, accepted.after) == (
        "Nadia",
        "never called",
        project.locked["shop/daily_sales"].fingerprint,
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ["--accept-changes", "--reason", "all of them"],
        ["shop/daily_sales", "--accept-changes"],
        ["shop/daily_sales", "--accept-changes", "--reason", " "],
        ["shop/daily_sales", "--reason", "why"],
    ],
)
def test_a_change_is_accepted_by_name_and_with_a_reason(project, arguments):
    assert project.deploy().lock(*arguments).exit_code == 2
    assert not default_file(project.folder).exists()


def test_code_without_a_version_may_change_unless_strictly_seen(project):
    project.deploy().lock()
    project.deploy("twice(2)", "twice(3)")
    assert project.check("us").exit_code == 0
    assert "Note: us: both changed; no code_version is declared" in project.check("us").stdout
    assert project.check("us", "--strict").exit_code == 1
    assert "eu: both changed, but code_version is still '1'." in project.check("eu").stdout
    assert project.lock("us").exit_code == 0
    assert project.check("us", "--strict").exit_code == 0


def test_assets_that_come_and_go_are_seen(project):
    project.deploy().lock()
    project.deploy("plain", "simple").workspace()
    found = project.run("check", everywhere=True)
    assert found.exit_code == 1
    assert "plain: the lock has an asset that does not exist any more." in found.stdout
    assert "simple: the asset is not in the lock." in found.stdout
    assert project.run("check", "plain", everywhere=True).exit_code == 1
    assert project.run("lock", everywhere=True).exit_code == 0
    assert project.run("check", everywhere=True).exit_code == 0


def test_a_part_of_the_code_locations_leaves_the_assets_of_others_in_the_lock(project):
    project.deploy().lock()
    before = project.locked
    project.deploy("plain", "simple")
    found = project.lock()
    assert (found.exit_code, project.locked.keys()) == (0, {*before, "simple"})
    assert project.locked["plain"] == before["plain"]
    said = f"Only '{project.file}' was looked at; 1 asset of the lock may lie elsewhere."
    assert said in found.stdout.splitlines()
    found = project.check()
    assert (found.exit_code, said in found.stdout) == (0, True)


def test_an_asset_that_is_named_may_be_taken_out_also_by_a_part(project):
    project.deploy().lock()
    project.deploy("plain", "simple")
    found = project.check("plain")
    assert (found.exit_code, f"marigold versions lock plain -f {project.file}" in found.stdout) == (1, True)
    assert project.lock("plain").exit_code == 0
    assert "plain" not in project.locked


def test_one_asset_of_two_code_locations_is_refused_unless_it_is_the_same_code(project):
    project.deploy()
    first = project.file
    project.deploy()
    second = project.file
    project.workspace(first, second)
    assert project.run("lock", everywhere=True).exit_code == 0
    project.deploy("twice(1)", "twice(3)")
    project.workspace(first, project.file)
    for command in ("lock", "check"):
        found = project.run(command, everywhere=True)
        assert found.exit_code == 2
        assert found.stderr.count("both make the asset") == 1
        assert all(file.stem in found.stderr for file in (first, project.file))
        assert "'plain'" in found.stderr


def test_a_renamed_asset_is_the_one_that_the_lock_has(project):
    project.deploy().lock()
    renamed = ('@dg.asset(code_version="1")\n    def plain():\n        return twice(1)', NEW)
    project.deploy(*renamed)
    found = project.check("simple")
    assert (found.exit_code, "simple: the lock has the asset as plain." in found.stdout) == (1, True)
    project.deploy(renamed[0], NEW.replace("twice(1)", "twice(3)"))
    found = project.check()
    assert (found.exit_code, "simple: plain changed, but code_version is still '1'." in found.stdout) == (1, True)
    found = project.lock()
    assert (found.exit_code, "plain" in project.locked, "simple" in project.locked) == (1, True, False)
    assert project.lock("simple", "--accept-changes", "--reason", "checked").exit_code == 0
    assert ("plain" in project.locked, len(project.locked["simple"].accepted)) == (False, 1)
    assert project.check().exit_code == 0


def test_a_former_key_means_the_asset_that_has_another_one_now(project):
    project.deploy().lock()
    project.deploy('@dg.asset(code_version="1")\n    def plain():\n        return twice(1)', NEW)
    before = project.locked["plain"]
    found = project.check("plain")
    assert (found.exit_code, "simple: the lock has the asset as plain." in found.stdout) == (1, True)
    assert project.lock("plain").exit_code == 0
    assert ("plain" in project.locked, project.locked["simple"].fingerprint) == (False, before.fingerprint)
    assert project.check().exit_code == 0


def test_the_key_of_another_asset_is_no_former_one_where_assets_are_named(project):
    project.deploy().lock()
    project.deploy("    def twice(x):", f"    {NEW.replace('def plain', 'def simple')}\n\n    def twice(x):")
    project.deploy_also(("assets=[daily_sales,", "assets=[daily_sales, simple,"))
    before = project.locked["plain"]
    assert project.lock("simple").exit_code == 0
    assert project.locked["plain"] == before
    assert project.check().exit_code == 0


def test_what_is_written_while_the_code_is_loaded_is_not_written_over(project):
    project.deploy().lock()
    path = project.folder / "code_versions.lock"
    other = path.read_text().replace('"code_version": "2"', '"code_version": "3"')
    path.with_name("other.lock").write_text(other)
    project.deploy(
        '@dg.asset(code_version="1")',
        'import shutil; shutil.copy("other.lock", "code_versions.lock")\n    @dg.asset(code_version="5")',
    )
    found = project.lock()
    assert (found.exit_code, "was written meanwhile" in found.stderr) == (2, True)
    assert path.read_text() == other


def test_no_change_of_code_without_a_version_can_be_accepted(project):
    project.deploy().lock()
    project.deploy("twice(2)", "twice(3)")
    before = project.locked
    found = project.lock("us", "--accept-changes", "--reason", "the same to me")
    assert (found.exit_code, "declare a code_version first" in found.stderr) == (2, True)
    assert project.locked == before


def test_the_lock_is_looked_for_beside_the_definitions(project, tmp_path_factory, monkeypatch):
    project.deploy()
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    assert project.lock("-d", str(project.folder)).exit_code == 0
    assert (project.folder / "code_versions.lock").exists()
    assert project.check("-d", str(project.folder)).exit_code == 0


def test_findings_as_json(project):
    project.deploy()
    found = json.loads(project.lock("--json").stdout)
    assert (found["is_well"], found["assets"], found["findings"]) == (True, 4, [])
    assert json.loads(project.check("--json").stdout)["is_well"]
    found = project.deploy(*CHANGED).check("--json")
    assert found.exit_code == 1
    found = json.loads(found.stdout)
    [one] = found["findings"]
    assert (found["is_well"], found["format"], one["asset"], one["kind"], one["fails"]) == (
        False,
        1,
        "shop/daily_sales",
        "code_changed",
        True,
    )
    assert one["parts"] == {"changed": ["clean"], "added": [], "removed": []}
    assert [way["do"].split()[0] for way in one["ways_out"]] == ["set", "marigold", "marigold"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["plian"], "perhaps plain"),
        (["from_outside"], "no Python function makes the asset"),
        (["--lock-file", "missing/other.lock"], "cannot be written"),
    ],
)
def test_what_cannot_be_done_is_told_in_one_message(project, arguments, said):
    found = project.deploy().lock(*arguments)
    assert found.exit_code == 2
    assert said in found.stderr
    assert "Traceback" not in found.stderr


def test_a_lock_that_is_missing_or_broken_is_told(project):
    found = project.deploy().check()
    assert (found.exit_code, "marigold versions lock" in found.stderr) == (2, True)
    (project.folder / "code_versions.lock").write_text("<<<<<<< HEAD\n")
    for found in (project.check(), project.lock()):
        assert (found.exit_code, "both sides of a merge" in found.stderr) == (2, True)


def test_a_code_location_that_does_not_load_is_no_reason_to_forget_its_assets(project):
    project.deploy()
    broken = project.folder / f"broken_{project.folder.name}.py"
    broken.write_text("import what_is_not_there\n")
    workspace = project.folder / "workspace.yaml"
    files = "".join(f"  - python_file: {file}\n" for file in (project.file, broken))
    workspace.write_text(f"load_from:\n{files}")
    found = CliRunner().invoke(main, ["versions", "lock", "-w", str(workspace)])
    assert found.exit_code == 2
    assert found.stderr.count("does not load") == 1
    assert "-l LOCATION" in found.stderr
    assert not default_file(project.folder).exists()


def test_the_file_is_beside_that_of_the_project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    inner = tmp_path / "project" / "inner"
    inner.mkdir(parents=True)
    (tmp_path / ".git").mkdir()
    assert default_file(inner) == inner / "code_versions.lock"
    (tmp_path / "project" / "pyproject.toml").write_text("")
    assert default_file(inner) == tmp_path / "project" / "code_versions.lock"


def heads(location, name):
    found = location.asset(name)
    return {key: head.provenance for key, head in found.store.heads(found.table).items()}


def test_the_lock_has_the_fingerprint_that_the_ledger_gets(project):
    project.deploy().lock()
    location = load(LocationOptions(python_file=str(project.file)))
    found = location.asset("shop/daily_sales")
    result = dg.materialize([found.definition], partition_key="2024-01-01", resources=found.resources)
    assert result.success
    assert heads(location, "shop/daily_sales")["2024-01-01"].code_fingerprint == (
        project.locked["shop/daily_sales"].fingerprint
    )


REDEPLOYED = """
    import sys
    from pathlib import Path
    import dagster as dg
    from marigold_assets.loading import LocationOptions
    from marigold_assets.location import load

    file, helpers = map(Path, sys.argv[1:])
    found = load(LocationOptions(python_file=str(file))).asset("shop/daily_sales")
    for path, old, new in ((helpers, "x + 1", "x + 10"), (file, "[clean(1)]", "[clean(2)]")):
        assert old in path.read_text()
        path.write_text(path.read_text().replace(old, new))
    dg.materialize([found.definition], partition_key="2024-01-01", resources=found.resources)
"""


@pytest.mark.slow
def test_a_process_that_has_loaded_the_old_code_stamps_it_although_the_files_are_new(project):
    project.deploy().lock()
    before = project.locked["shop/daily_sales"].fingerprint
    helpers = next(project.folder.glob("helpers_*.py"))
    script = project.folder / "redeployed.py"
    script.write_text(textwrap.dedent(REDEPLOYED))
    subprocess.run(
        [sys.executable, script, project.file, helpers],
        check=True,
        cwd=project.folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(project.folder), str(Path(__file__).parents[2])])},
        capture_output=True,
    )
    location = load(LocationOptions(python_file=str(project.file)))
    assert "clean(2)" in project.file.read_text()
    assert heads(location, "shop/daily_sales")["2024-01-01"].code_fingerprint == before
