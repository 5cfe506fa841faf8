"""Changing one import: from the IO managers of dagster-duckdb to ours, on their databases, and back."""

from __future__ import annotations

import dagster as dg
import pandas as pd
import pytest

from marigold_assets import FencedPartitionIOManager

peer = pytest.importorskip("dagster_duckdb_pandas")

DAYS = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-02-01")
KEYS = [f"2024-01-{day:02}" for day in range(1, 32)]
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:Parameter `backfill_policy`")]


def days(version):
    @dg.asset(key=["s", "t"], partitions_def=DAYS, metadata={"partition_expr": "d"})
    def t(context):
        key = context.partition_key
        day = pd.Timestamp(key).day
        return pd.DataFrame(
            {"d": pd.to_datetime([key] * 3), "v": [day, day + version, 0.5], "name": ["a", None, f"version {version}"]}
        )

    return t


def test_a_database_of_the_peer_is_taken_over_without_migration_and_given_back(warehouse, loader):
    theirs = {"io_manager": peer.DuckDBPandasIOManager(database=warehouse.path)}
    for key in KEYS:
        warehouse.materialize(days(1), key=key, resources=theirs)
    before = warehouse.rows("SELECT * FROM s.t ORDER BY ALL")
    warehouse.materialize(days(2), key="2024-01-10")
    untouched = "SELECT * FROM s.t WHERE d <> '2024-01-10' ORDER BY ALL"
    assert warehouse.rows(untouched) == [row for row in before if str(row[0].date()) != "2024-01-10"]
    assert warehouse.rows("SELECT v, name FROM s.t WHERE d = '2024-01-10' ORDER BY v") == [
        (0.5, "version 2"),
        (10.0, "a"),
        (12.0, None),
    ]
    seen = []
    reader = loader(["s", "t"], seen, pd.DataFrame, partitions_def=DAYS, backfill_policy=dg.BackfillPolicy.single_run())
    warehouse.materialize(days(2).to_source_asset(), reader, keys=(KEYS[0], KEYS[-1]))
    assert len(seen[0]) == 93
    warehouse.materialize(days(3), key="2024-01-11", resources=theirs)
    reader = loader(["s", "t"], seen, pd.DataFrame, partitions_def=DAYS)
    for key in ("2024-01-10", "2024-01-11"):
        warehouse.materialize(days(3).to_source_asset(), reader, key=key, resources=theirs)
    assert [frame["name"].tolist()[2] for frame in seen[1:]] == ["version 2", "version 3"]


def test_settings_of_the_peer_are_ours(warehouse):
    ours = FencedPartitionIOManager.model_fields
    for name, field in peer.DuckDBPandasIOManager.model_fields.items():
        assert ours[name].annotation == field.annotation
        assert ours[name].default == field.default
        assert ours[name].alias == field.alias


def partitioned(key, **metadata):
    @dg.asset(key=key, partitions_def=DAYS, metadata={"partition_expr": "d", **metadata})
    def asset(context):
        return pd.DataFrame({"d": pd.to_datetime([context.partition_key]), "v": [1]})

    return asset


def whole(key, **metadata):
    @dg.asset(key=key, metadata=metadata)
    def asset():
        return pd.DataFrame({"v": [1, 2]})

    return asset


CASES = {
    "one part": (lambda: whole(["t"]), {}, None),
    "prefix": (lambda: whole(["p", "t"]), {}, None),
    "long prefix": (lambda: whole(["a", "b", "t"]), {}, None),
    "config": (lambda: whole(["p", "t"]), {"schema": "c"}, None),
    "metadata": (lambda: whole(["p", "t"], schema="m"), {"schema": "c"}, None),
    "table metadata of an asset": (lambda: whole(["p", "t"], table="other"), {}, None),
    "partition": (lambda: partitioned(["p", "t"]), {}, "2024-01-02"),
    "partition, config": (lambda: partitioned(["t"]), {"schema": "c"}, "2024-01-02"),
}


@pytest.mark.parametrize("case", CASES)
def test_tables_and_metadata_are_those_of_the_peer(tmp_path, case):
    make, settings, key = CASES[case]
    found = {}
    for name, manager in (("theirs", peer.DuckDBPandasIOManager), ("ours", FencedPartitionIOManager)):
        database = str(tmp_path / f"{name}.duckdb")
        with dg.DagsterInstance.ephemeral() as instance:
            resources = {"io_manager": manager(database=database, **settings)}
            result = dg.materialize([make()], partition_key=key, instance=instance, resources=resources)
            [event] = result.get_asset_materialization_events()
            metadata = event.materialization.metadata
        found[name] = {key: value.value for key, value in metadata.items()}
        # The peer puts the path of the database before the table's name, where it shows what an EnvVar holds.
        found[name]["dagster/table_name"] = found[name]["dagster/table_name"].removeprefix(f"{database}.")
        found[name]["Query"] = " ".join(found[name]["Query"].split())
    assert found["ours"].keys() >= found["theirs"].keys()
    for name in found["theirs"].keys() - {"Query"}:
        assert found["ours"][name] == found["theirs"][name], name
    plain = found["ours"]["Query"].replace('"', "").split(" WHERE ")[0]
    assert plain == found["theirs"]["Query"].split(" WHERE ")[0]


@pytest.mark.parametrize("metadata", [{}, {"schema": "m"}, {"table": "other"}, {"schema": "m", "table": "other"}])
@pytest.mark.parametrize("settings", [{}, {"schema": "c"}])
def test_the_tables_of_ops_are_those_of_the_peer(tmp_path, metadata, settings):
    @dg.op(out={"made": dg.Out(metadata=metadata)})
    def make():
        return pd.DataFrame({"v": [1]})

    @dg.op
    def use(made: pd.DataFrame) -> None:
        assert made["v"].tolist() == [1]

    @dg.job
    def job():
        use(make())

    database = str(tmp_path / "x.duckdb")
    for manager in (peer.DuckDBPandasIOManager, FencedPartitionIOManager):
        with dg.DagsterInstance.ephemeral() as instance:
            resources = {"io_manager": manager(database=database, **settings)}
            assert job.execute_in_process(instance=instance, resources=resources).success
    import duckdb

    with duckdb.connect(database) as connection:
        tables = connection.execute(
            "SELECT schema_name, table_name FROM duckdb_tables() WHERE schema_name <> 'marigold'"
        ).fetchall()
    assert tables == [(metadata.get("schema") or settings.get("schema") or "public", metadata.get("table", "made"))]
