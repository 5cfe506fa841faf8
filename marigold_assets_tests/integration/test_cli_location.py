"""Code locations, loaded as Dagster's own commands load them, and one clear error for each that does not."""

from __future__ import annotations

import sys
from textwrap import dedent

import dagster as dg
import pandas as pd
import pytest

from marigold_assets import FencedPartitionIOManager, FencedPartitionResource, dagster_loading, partitioned_asset
from marigold_assets.code.loaded import code_fingerprint
from marigold_assets.errors import ConfigurationError, StoreUnavailableError
from marigold_assets.location import CodeLocation, LocationOptions, environment, load

DAYS = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-01-11")
ASSET = """
import dagster as dg
from marigold_assets import FencedPartitionIOManager

@dg.asset(key={key!r}, code_version="4")
def one() -> None: ...

{name} = dg.Definitions([one], resources={{"io_manager": FencedPartitionIOManager(database={database})}})
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The working directory, whose modules are forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    known = dict(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - set(known):
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def write(folder, file, key=("one",), *, name="defs", database='"x.duckdb"', before=""):
    path = folder / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(before + ASSET.format(key=list(key), name=name, database=database))
    return path


def refusal(options, asset=None):
    with pytest.raises(ConfigurationError) as found:
        load(LocationOptions(**options), asset).asset(asset or "one")
    return str(found.value)


def test_a_python_file(folder):
    write(folder, "a.py", ("shop", "one"))
    location = load(LocationOptions(python_file="a.py"))
    assert list(location.assets) == ["shop/one"]
    asset = location.asset("shop/one")
    assert (asset.spec.code_version, str(asset.table), asset.partition_keys()) == ("4", "shop.one", [None])
    assert asset.store.connector.path == folder / "x.duckdb"
    assert asset.arguments == ("-f", "a.py")


def test_a_module_of_the_working_directory_or_of_another_one(folder):
    write(folder, "here_it_is.py")
    write(folder, "sub/there_it_is.py")
    assert load(LocationOptions(module_name="here_it_is")).asset("one").arguments == ("-m", "here_it_is")
    found = load(LocationOptions(module_name="there_it_is", working_directory=str(folder / "sub"))).asset("one")
    assert found.arguments == ("-m", "there_it_is", "-d", str(folder / "sub"))
    assert str(folder / "sub") not in sys.path


def test_an_attribute_chooses_among_several_definitions(folder):
    text = write(folder, "many.py", ("a",), name="first").read_text() + ASSET.format(
        key=["b"], name="second", database='"y.duckdb"'
    )
    (folder / "many.py").write_text(text + "\ndef made(): return second\n")
    assert list(load(LocationOptions(python_file="many.py", attribute="second")).assets) == ["b"]
    assert list(load(LocationOptions(python_file="many.py", attribute="made")).assets) == ["b"]
    assert "more than one Definitions" in refusal({"python_file": "many.py"})
    assert "third not found" in refusal({"python_file": "many.py", "attribute": "third"})


def test_a_function_that_makes_definitions_and_bare_assets_load_as_dagster_loads_them(folder):
    (folder / "lazy.py").write_text(
        dedent("""
            import dagster as dg
            @dg.asset
            def one(): ...
            @dg.definitions
            def defs(): return dg.Definitions([one])
        """)
    )
    (folder / "bare.py").write_text("import dagster as dg\n@dg.asset\ndef one(): ...\n")
    assert list(load(LocationOptions(python_file="lazy.py")).assets) == ["one"]
    assert list(load(LocationOptions(python_file="bare.py")).assets) == ["one"]


@pytest.mark.parametrize(
    "project",
    [
        '[tool.dagster]\nmodule_name = "mine"',
        '[tool.dg.project]\nroot_module = "x"\ncode_location_target_module = "mine"',
    ],
)
def test_without_options_the_project_of_the_working_directory(folder, project):
    write(folder, "mine.py", ("mine",))
    write(folder, "other.py", ("other",))
    (folder / "pyproject.toml").write_text(project)
    (folder / "workspace.yaml").write_text("load_from: [{python_file: other.py}]")
    assert list(load(LocationOptions()).assets) == ["mine"]
    (folder / "pyproject.toml").unlink()
    assert list(load(LocationOptions()).assets) == ["other"]


def workspace(folder, *entries):
    lines = ["load_from:", *(f"  - {entry}" for entry in entries)]
    (folder / "workspace.yaml").write_text("\n".join(lines))


def test_of_several_code_locations_the_one_that_makes_the_asset(folder):
    stub = 'import dagster as dg\ndefs = dg.Definitions([dg.AssetSpec("b")])\n'
    write(folder, "a.py", ("a",))
    (folder / "stub.py").write_text(stub)
    write(folder, "b.py", ("b",))
    workspace(folder, "python_file: a.py", "python_file: stub.py", "python_file: {relative_path: b.py}")
    found = load(LocationOptions(), "b").asset("b")
    assert found.definition.is_materializable
    assert found.arguments == ("-f", str(folder / "b.py"))
    assert "no asset 'b'" in refusal({"location": "a.py"}, "b")
    assert "no code location 'c.py'" in refusal({"location": "c.py"})


def test_a_code_location_that_does_not_load_keeps_no_other_from_loading_and_is_named_where_it_matters(folder):
    (folder / "broken.py").write_text("import there_is_no_such_module\n")
    write(folder, "b.py", ("b",))
    workspace(folder, "python_file: broken.py", "python_file: b.py", "grpc_server: {host: localhost, port: 1}")
    location = load(LocationOptions(), "c")
    assert location.asset("b").owner == "b"
    with pytest.raises(ConfigurationError) as refused:
        location.asset("c")
    told = str(refused.value)
    assert "No module named 'there_is_no_such_module'" in told
    assert "a server of its own" in told


def test_modules_of_one_name_in_two_code_locations_are_never_mistaken_for_each_other(folder):
    write(folder, "left/shared_name.py", ("left",))
    write(folder, "right/shared_name.py", ("right",))
    entry = "python_module: {module_name: shared_name, working_directory: %s, location_name: %s}"
    workspace(folder, *(entry % (folder / name, name) for name in ("left", "right")))
    assert "has a module 'shared_name', as has another one" in refusal({}, "right")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"python_file": "nowhere.py"}, "There is no file 'nowhere.py'"),
        ({"module_name": "no.such.module"}, "No module named 'no'"),
        ({"module_name": "json"}, "No Definitions"),
        ({"workspace": ("nowhere.yaml",)}, "There is no workspace file 'nowhere.yaml'"),
        ({"python_file": "a.py", "module_name": "a"}, "Several code locations are named"),
        ({}, "has no pyproject.toml with [tool.dagster]"),
    ],
)
def test_what_is_not_there_is_named(folder, options, told):
    message = refusal(options)
    assert told in message
    assert "Remedy:" in message


@pytest.mark.parametrize(
    ("code", "told", "line"),
    [
        ("def f(:\n    pass\n", "SyntaxError: invalid syntax", 1),
        ("import dagster\n\nraise ValueError('prices are missing')\n", "ValueError: prices are missing", 3),
        ("import dagster\nimport dagster as dg\n\ndg.Definitions([1])\n", "Error", 4),
    ],
)
def test_code_that_raises_is_told_by_its_cause_and_place_and_not_by_dagsters_stack(folder, code, told, line):
    (folder / "bad.py").write_text(code)
    message = refusal({"python_file": str(folder / "bad.py")})
    assert told in message
    assert f"bad.py:{line}" in message
    assert len(message.splitlines()) == 2
    assert "Traceback" not in message


def test_an_asset_that_is_not_there_is_told_by_its_nearest_neighbours(folder):
    assets = [dg.AssetSpec(["shop", "daily_sales"]), dg.AssetSpec(["lab", "daily_sales"]), dg.AssetSpec("customers")]
    location = CodeLocation.of(dg.Definitions(assets))
    for name, told in {
        "customer": "perhaps customers is meant",
        "shop/daily_sale": "perhaps shop/daily_sales",
        "daily_sales": "one of the 2 assets of this name: lab/daily_sales, shop/daily_sales",
        "zzz": "name one of customers, lab/daily_sales, shop/daily_sales",
    }.items():
        with pytest.raises(ConfigurationError, match=told):
            location.asset(name)
    with pytest.raises(ConfigurationError, match="nor any other"):
        CodeLocation.of(dg.Definitions()).asset("one")


def test_settings_are_looked_up_in_the_environment_and_in_the_env_file(folder, monkeypatch):
    write(folder, "a.py", database='dg.EnvVar("SHOP_DATABASE")')
    asset = load(LocationOptions(python_file="a.py")).asset("one")
    with pytest.raises(ConfigurationError, match="environment variable 'SHOP_DATABASE', which is not set"):
        _ = asset.store
    (folder / ".env").write_text(f"SHOP_DATABASE={folder}/SECRET123.duckdb\n")
    with environment():
        asset = load(LocationOptions(python_file="a.py")).asset("one")
        assert asset.store.connector.path == folder / "SECRET123.duckdb"
        with pytest.raises(StoreUnavailableError) as refused:
            asset.refuse_missing_database()
    assert "$SHOP_DATABASE does not exist" in str(refused.value)
    assert "SECRET123" not in str(refused.value)
    assert "SHOP_DATABASE" not in dagster_loading.environment_file(folder.parent)


def test_the_environment_is_what_it_was_afterwards(folder, monkeypatch):
    monkeypatch.setenv("SHOP_ONE", "before")
    (folder / ".env").write_text("SHOP_ONE=within\nSHOP_TWO=within\n")
    import os

    with environment():
        assert (os.environ["SHOP_ONE"], os.environ["SHOP_TWO"]) == ("within", "within")
    assert os.environ["SHOP_ONE"] == "before"
    assert "SHOP_TWO" not in os.environ


def test_what_code_prints_is_no_part_of_what_a_command_prints(folder, capsys):
    write(folder, "loud.py", before="print('loud')\n")
    load(LocationOptions(python_file="loud.py"))
    printed = capsys.readouterr()
    assert (printed.out, printed.err.strip()) == ("", "loud")


@partitioned_asset(partitions_def=DAYS, partition_expr="day")
def sales(context: dg.AssetExecutionContext):
    return pd.DataFrame({"day": [pd.Timestamp(context.partition_key)]})


@dg.asset
def plain() -> None: ...


@dg.asset
def written_by_hand(warehouse: FencedPartitionResource) -> None: ...


@dg.multi_asset(specs=[dg.AssetSpec("left", code_version="7"), dg.AssetSpec(["x", "right"], partitions_def=DAYS)])
def both(): ...


def located(**resources):
    given = {"io_manager": FencedPartitionIOManager(database="a.duckdb", schema="s"), **resources}
    return CodeLocation.of(dg.Definitions([sales, plain, written_by_hand, dg.AssetSpec("foreign")], resources=given))


def test_an_asset_knows_its_function_and_its_code(tmp_path):
    location = located(warehouse=FencedPartitionResource(database="b.duckdb"))
    asset = location.asset("sales")
    assert asset.function is not None
    assert asset.function.__name__ == "sales"
    assert asset.code_fingerprint == code_fingerprint(asset.function)
    assert len(asset.partition_keys()) == 10
    assert location.asset("plain").function is plain.op.compute_fn.decorated_fn
    assert location.asset("plain").code_fingerprint is None


def test_an_asset_is_stored_by_its_io_manager_or_by_the_resource_that_has_written_it(tmp_path):
    stored = {"warehouse": FencedPartitionResource(database=str(tmp_path / "b.duckdb"), schema="r")}
    assert str(located(**stored).asset("plain").table) == "s.plain"
    assert str(located(**stored).asset("written_by_hand").table) == "s.written_by_hand"
    stored["io_manager"] = dg.InMemoryIOManager()
    assert str(located(**stored).asset("written_by_hand").table) == "r.written_by_hand"


def test_what_is_stored_by_something_else_is_refused():
    location = located(io_manager=dg.FilesystemIOManager(), warehouse=FencedPartitionResource(database="b.duckdb"))
    with pytest.raises(ConfigurationError, match="'plain': the asset is stored by a FilesystemIOManager"):
        _ = location.asset("plain").store
    with pytest.raises(ConfigurationError, match="stored by something outside of Dagster"):
        _ = location.asset("foreign").store


def test_settings_that_only_a_run_gives_are_refused():
    location = located(
        io_manager=FencedPartitionIOManager.configure_at_launch(),
        warehouse=FencedPartitionResource(database="b.duckdb"),
    )
    with pytest.raises(ConfigurationError, match="settings of resource 'io_manager' are not complete"):
        _ = location.asset("plain").store


def test_dynamic_partitions_need_an_instance():
    names = dg.DynamicPartitionsDefinition(name="names")

    @dg.asset(partitions_def=names)
    def by_name() -> None: ...

    asset = CodeLocation.of(dg.Definitions([by_name])).asset("by_name")
    with pytest.raises(ConfigurationError, match="only a Dagster instance knows"):
        asset.partition_keys()
    with dg.DagsterInstance.ephemeral() as instance:
        instance.add_dynamic_partitions("names", ["b", "a"])
        assert asset.partition_keys(instance) == ["b", "a"]


def test_assets_that_are_made_together_are_told_apart():
    location = CodeLocation.of(dg.Definitions([both]))
    assert location.asset("left").spec.code_version == "7"
    assert (location.asset("left").partition_keys(), len(location.asset("x/right").partition_keys())) == ([None], 10)
