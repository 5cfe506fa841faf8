"""The command and the package start at once: what is not asked for is not imported."""

from __future__ import annotations

import subprocess
import sys

import pytest

import marigold_assets

HEAVY = ("dagster", "pandas", "pyarrow", "duckdb", "polars", "rich")


def imported_by(code):
    """Which of the heavy packages some code imports, in a process of its own."""
    tell = f"; import sys; print('heavy:', [one for one in {HEAVY!r} if one in sys.modules], file=sys.stderr)"
    ran = subprocess.run([sys.executable, "-c", code + tell], capture_output=True, text=True, check=True, timeout=60)
    return ran.stderr.rsplit("heavy: ", 1)[1].strip(), ran.stdout


@pytest.mark.parametrize(
    "arguments", [["--help"], ["versions", "--help"], ["--version"], ["versions"], ["plan", "--help"]]
)
def test_help_imports_neither_dagster_nor_a_database(arguments):
    code = f"from marigold_assets.cli.main import main\ntry: main({arguments!r})\nexcept SystemExit: pass\nNone"
    heavy, said = imported_by(code)
    assert heavy == "[]"
    assert "version" in said or arguments != ["--version"]


@pytest.mark.slow
def test_the_package_imports_its_names_when_they_are_asked_for():
    assert imported_by("import marigold_assets")[0] == "[]"
    assert imported_by("from marigold_assets import MarigoldError, LedgerEntry")[0] == "[]"
    assert "'dagster'" in imported_by("from marigold_assets import partitioned_asset")[0]


def test_all_names_of_the_package_are_there():
    for name in marigold_assets.__all__:
        assert getattr(marigold_assets, name).__module__.startswith("marigold_assets")
    assert set(marigold_assets.__all__) <= set(dir(marigold_assets))
    assert sorted(marigold_assets.__all__) == list(marigold_assets.__all__)
    assert set(marigold_assets._HOMES) == set(marigold_assets.__all__)


def test_a_name_that_it_does_not_have_is_refused():
    with pytest.raises(AttributeError, match="no attribute 'partition_asset'"):
        _ = marigold_assets.partition_asset
    assert not hasattr(marigold_assets, "__path_of_nothing__")
