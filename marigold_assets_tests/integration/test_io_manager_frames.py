"""Every type of frame goes in and comes out; what is no frame is refused, and the old rows stay."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Optional

import dagster as dg
import duckdb
import pandas as pd
import pyarrow as pa
import pytest

from marigold_assets.model import TableName
from marigold_assets.stores.duckdb import DuckDBStore

DAYS = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-02-01")
D1, D2, D3 = "2024-01-01", "2024-01-02", "2024-01-03"
pytestmark = [
    pytest.mark.slow,
    # Dagster's words about what these assets themselves use
    pytest.mark.filterwarnings("ignore:Parameter `backfill_policy`"),
    pytest.mark.filterwarnings("ignore:Parameter `data_version`"),
    pytest.mark.filterwarnings("ignore:Parameter `metadata` of function `AssetValueLoader"),
]


def pandas_frame(key):
    return pd.DataFrame({"d": pd.to_datetime([key] * 2).astype("datetime64[us]"), "v": [1, 2], "name": ["a", None]})


def arrow_table(key):
    return pa.Table.from_pandas(pandas_frame(key), preserve_index=False)


def polars_frame(key):
    return pytest.importorskip("polars").from_arrow(arrow_table(key))


VALUES = "SELECT TIMESTAMP '{}' AS d, v::BIGINT AS v, name FROM (VALUES (1, 'a'), (2, NULL)) AS t (v, name)"
GIVEN = {
    "pandas": pandas_frame,
    "polars": polars_frame,
    "polars lazy": lambda key: polars_frame(key).lazy(),
    "arrow table": arrow_table,
    "arrow reader": lambda key: arrow_table(key).to_reader(),
    "arrow batches": lambda key: pa.RecordBatchReader.from_batches(
        arrow_table(key).schema, iter(arrow_table(key).to_batches(max_chunksize=1))
    ),
    "duckdb relation": lambda key: duckdb.from_arrow(arrow_table(key)),
    "duckdb query": lambda key: duckdb.sql(
        f"SELECT TIMESTAMP '{key}' AS d, v::BIGINT AS v, name FROM (VALUES (1, 'a'), (2, NULL)) AS t (v, name)"
    ),
    "sql": lambda key: (
        f"SELECT TIMESTAMP '{key}' AS d, v::BIGINT AS v, name FROM (VALUES (1, 'a'), (2, NULL)) AS t (v, name)"
    ),
}


def asset_of(make, **options):
    def t(context):
        return make(context.partition_key)

    options = {"partitions_def": DAYS, "metadata": {"partition_expr": "d"}, **options}
    return dg.asset(key=["s", "t"], **options)(t)


@pytest.mark.parametrize("kind", GIVEN)
def test_any_frame_can_be_given_and_all_give_the_same_rows_and_version(warehouse, kind):
    warehouse.materialize(asset_of(pandas_frame), key=D1)
    for key in (D1, D2):
        warehouse.materialize(asset_of(GIVEN[kind]), key=key)
    assert warehouse.rows("SELECT v, name FROM s.t ORDER BY d, v") == [(1, "a"), (2, None)] * 2
    (_, first), (_, again), (_, second) = warehouse.events(["s", "t"])
    assert first.tags["dagster/data_version"] == again.tags["dagster/data_version"]
    names = [column.name for column in second.metadata["dataframe_columns"].value.columns]
    assert names == ["d", "v", "name"]
    assert second.metadata["dagster/partition_row_count"].value == 2


def loaded_types():
    polars = pytest.importorskip("polars")
    return {
        pd.DataFrame: lambda frame: frame.to_dict("list"),
        polars.DataFrame: lambda frame: frame.to_dict(as_series=False),
        polars.LazyFrame: lambda frame: frame.collect().to_dict(as_series=False),
        pa.Table: lambda table: table.to_pydict(),
        pa.RecordBatchReader: lambda reader: reader.read_all().to_pydict(),
        duckdb.DuckDBPyRelation: lambda relation: relation.to_arrow_table().to_pydict(),
    }


@pytest.mark.parametrize("number", range(6))
def test_an_input_is_loaded_as_the_frame_that_its_annotation_names(warehouse, loader, number):
    annotation, as_dict = list(loaded_types().items())[number]
    asset, seen = asset_of(arrow_table), []
    for key in (D1, D2):
        warehouse.materialize(asset, key=key)
    for wanted in (annotation, Optional[annotation]):  # noqa: UP045 - as people write it
        reader = loader(asset.key, seen, wanted, partitions_def=DAYS, metadata={"columns": ["v", "name"]})
        warehouse.materialize(asset.to_source_asset(), reader, key=D2)
    for frame in seen:
        assert isinstance(frame, annotation)
        found = as_dict(frame)
        assert found["v"] == [1, 2]
        assert found["name"][0] == "a"
        assert pd.isna(found["name"][1])


@pytest.mark.parametrize("annotation", [dict[str, pa.Table], Mapping[str, pa.Table]])
def test_a_dict_annotation_loads_one_frame_a_partition(warehouse, loader, annotation):
    asset, seen = asset_of(arrow_table), []
    for key in (D1, D3):
        warehouse.materialize(asset, key=key)
    reader = loader(asset.key, seen, annotation, partitions_def=DAYS, backfill_policy=dg.BackfillPolicy.single_run())
    warehouse.materialize(asset.to_source_asset(), reader, keys=(D1, D3))
    assert {key: table.num_rows for key, table in seen[0].items()} == {D1: 2, D2: 0, D3: 2}


def test_an_input_of_sql_text_can_be_used_in_the_sql_that_an_asset_returns(warehouse):
    asset = asset_of(arrow_table)

    @dg.asset(
        key=["s", "sums"], partitions_def=DAYS, metadata={"partition_expr": "d"}, ins={"t": dg.AssetIn(["s", "t"])}
    )
    def sums(t: str) -> str:
        return f"SELECT d, sum(v) AS v FROM ({t}) GROUP BY d"

    for key in (D1, D2):
        warehouse.materialize(asset, sums, key=key)
    assert warehouse.rows("SELECT v FROM s.sums") == [(3,), (3,)]


def test_sql_may_read_the_very_partition_that_it_replaces(warehouse):
    warehouse.materialize(asset_of(arrow_table), key=D1)
    warehouse.materialize(asset_of(lambda key: "SELECT d, v + 10 AS v, name FROM s.t"), key=D1)
    assert warehouse.rows("SELECT v FROM s.t ORDER BY v") == [(11,), (12,)]


@pytest.mark.parametrize(
    "sql",
    [
        "DROP TABLE s.t",
        "SELECT 1 AS v; DROP TABLE s.t",
        "not sql",
        "",
        "SELECT * FROM no_such_table",
        "DELETE FROM s.t",
        "s.t",
        "SHOW TABLES",
        "show s.t",
        "-- what is there?\nDESCRIBE s.t",
        "/* s.t */ ( describe s.t )",
        "SUMMARIZE s.t",
        "PRAGMA table_info('s.t')",
        "EXPLAIN SELECT 1",
        "CALL pragma_version()",
    ],
)
def test_text_that_is_no_single_select_is_refused(warehouse, sql):
    warehouse.materialize(asset_of(arrow_table), key=D1)
    line = warehouse.refused(asset_of(lambda key: sql), key=D1)
    assert "'s/t'" in line
    assert "Remedy" in line


@pytest.mark.parametrize("sql", ["SHOW TABLES", "DESCRIBE s.t", "SUMMARIZE s.t", "(SHOW DATABASES)"])
def test_sql_that_only_tells_of_tables_makes_no_first_table(warehouse, sql):
    warehouse.refused(dg.asset(key=["s", "whole"])(lambda: sql))


@pytest.mark.parametrize(
    "sql",
    [
        "FROM s.t",
        "TABLE s.t",
        "(SELECT * FROM s.t)",
        "WITH x AS (FROM s.t) SELECT * FROM x",
        "/* why */ -- and how\n select * from s.t",
        "SELECT * FROM (VALUES (TIMESTAMP '2024-01-01', 1, 'a'), (TIMESTAMP '2024-01-01', 2, NULL)) AS x (d, v, name)",
    ],
)
def test_every_form_of_a_query_is_taken(warehouse, sql):
    warehouse.materialize(asset_of(arrow_table), key=D1)
    warehouse.materialize(asset_of(lambda key: sql), key=D1)
    assert warehouse.rows("SELECT v, name FROM s.t ORDER BY v") == [(1, "a"), (2, None)]


@pytest.mark.parametrize(
    ("sql", "word"),
    [
        ("SELECT d, v, name FROM s.t AS a, s.t AS b", "Ambiguous reference"),
        ("SELECT d, v, nam AS name FROM s.t", "nam"),
        ("SELECT d, v, no_such_function(name) AS name FROM s.t", "no_such_function"),
        ("SELECT d, ? AS v, name FROM s.t", "parameters"),
        ("SELECT * FROM 'nope.csv'", "nope.csv"),
        ("FROM read_parquet('/nope/x.parquet')", "/nope/x.parquet"),
    ],
)
def test_a_fault_in_the_sql_returned_is_told_as_that_and_nothing_else(warehouse, sql, word):
    warehouse.materialize(asset_of(arrow_table), key=D1)
    line = warehouse.refused(asset_of(lambda key: sql), key=D1)
    assert word in line
    assert "the SQL returned" in line
    assert "partition_expr" not in line
    assert "DESCRIBE" not in line
    assert "'s/t'" in line
    assert f"'{D1}'" in line


@pytest.mark.parametrize("annotation", [list, int, dict[int, pd.DataFrame], pd.Series, dict[str, int]])
def test_an_annotation_that_names_no_frame_is_refused_with_those_that_do(warehouse, loader, annotation):
    asset = asset_of(arrow_table)
    warehouse.materialize(asset, key=D1)
    line = warehouse.refused(asset.to_source_asset(), loader(asset.key, [], annotation, partitions_def=DAYS), key=D1)
    assert "pandas.DataFrame" in line
    assert "'s/t'" in line


@pytest.mark.parametrize("annotation", [Any, object, None])
@pytest.mark.parametrize("default", ["pandas", "polars", "arrow"])
def test_an_input_without_annotation_is_loaded_as_the_default(warehouse, default, annotation):
    asset, seen = asset_of(arrow_table), []
    warehouse.materialize(asset, key=D1)

    def reader(t):
        seen.append(t)

    reader.__annotations__ = {"return": None, **({} if annotation is None else {"t": annotation})}
    reader = dg.asset(ins={"t": dg.AssetIn(["s", "t"])}, partitions_def=DAYS)(reader)
    manager = warehouse.io_manager(default_load_type=default)
    warehouse.materialize(asset.to_source_asset(), reader, key=D1, resources={"io_manager": manager})
    expected = {"pandas": pd.DataFrame, "polars": pytest.importorskip("polars").DataFrame, "arrow": pa.Table}
    assert isinstance(seen[0], expected[default])


def test_an_unknown_default_is_refused_when_the_manager_is_made(warehouse):
    with pytest.raises(ValueError, match="default_load_type"):
        warehouse.io_manager(default_load_type="spark")


WRONG = {
    "None": (lambda key: None, "-> None"),
    "a list": (lambda key: [pandas_frame(key)], "list"),
    "a list of dicts": (lambda key: [{"d": key, "v": 1}], "list"),
    "a dict": (lambda key: {"d": [key]}, "dict"),
    "a series": (lambda key: pandas_frame(key)["v"], "pandas"),
    "a number": (lambda key: 5, "int"),
    "a polars series": (lambda key: polars_frame(key)["v"], "polars"),
    "a record batch": (lambda key: arrow_table(key).to_batches()[0], "pyarrow"),
    "python objects in polars": (
        lambda key: polars_frame(key).with_columns(o=pytest.importorskip("polars").Series([object(), object()])),
        "'o'",
    ),
}


@pytest.mark.parametrize("kind", WRONG)
def test_what_is_no_frame_is_refused_and_the_old_rows_stay(warehouse, kind):
    make, word = WRONG[kind]
    warehouse.materialize(asset_of(arrow_table), key=D1)
    warehouse.materialize(asset_of(arrow_table), key=D2)
    line = warehouse.refused(asset_of(make), key=D2)
    assert word in line
    assert "'s/t'" in line
    assert f"'{D2}'" in line
    assert len(warehouse.events(["s", "t"], D2)) == 1


def test_an_asset_annotated_to_return_none_leaves_the_table_alone(warehouse):
    warehouse.materialize(asset_of(arrow_table), key=D1)

    @dg.asset(key=["s", "t"], partitions_def=DAYS, metadata={"partition_expr": "d"})
    def t(context) -> None:
        return None

    before = warehouse.dump()
    assert warehouse.materialize(t, key=D1).success
    assert warehouse.dump() == before


def test_a_materialize_result_without_a_value_leaves_the_table_alone(warehouse):
    warehouse.materialize(asset_of(arrow_table), key=D1)
    before = warehouse.dump()

    @dg.asset(key=["s", "t"], partitions_def=DAYS, metadata={"partition_expr": "d"})
    def t(context) -> dg.MaterializeResult:
        return dg.MaterializeResult(metadata={"mine": 1})

    assert warehouse.materialize(t, key=D1).success
    assert warehouse.dump() == before
    assert warehouse.events(["s", "t"])[-1][1].metadata["mine"].value == 1


def test_a_materialize_result_with_a_value_is_stored(warehouse):
    @dg.asset(key=["s", "t"], partitions_def=DAYS, metadata={"partition_expr": "d"})
    def t(context) -> dg.MaterializeResult[pd.DataFrame]:
        return dg.MaterializeResult(value=pandas_frame(context.partition_key), metadata={"mine": 1}, tags={"my": "tag"})

    assert warehouse.materialize(t, key=D1).success
    assert warehouse.rows("SELECT v FROM s.t ORDER BY v") == [(1,), (2,)]
    [(_, event)] = warehouse.events(["s", "t"])
    assert event.metadata["mine"].value == 1
    assert event.metadata["dagster/partition_row_count"].value == 2
    assert event.tags["my"] == "tag"
    assert event.tags["dagster/data_version"].startswith("mh1:")


def test_an_output_keeps_the_tags_metadata_and_version_that_the_user_gave(warehouse):
    @dg.asset(key=["s", "t"], partitions_def=DAYS, metadata={"partition_expr": "d"}, code_version="3")
    def t(context):
        return dg.Output(
            pandas_frame(context.partition_key),
            metadata={"dagster/partition_row_count": 99, "mine": "yes"},
            tags={"my": "tag"},
            data_version=dg.DataVersion("my version"),
        )

    warehouse.materialize(t, key=D1)
    [(_, event)] = warehouse.events(["s", "t"])
    assert event.metadata["mine"].value == "yes"
    assert event.metadata["dagster/partition_row_count"].value == 99
    assert event.metadata["marigold/content_hash"].value.startswith("mh1:")
    assert event.tags["my"] == "tag"
    assert event.tags["dagster/data_version"] == "my version"
    assert event.tags["dagster/code_version"] == "3"
    assert "marigold/swap_id" in event.tags


def test_a_data_version_set_through_the_context_is_kept(warehouse):
    @dg.asset(key=["s", "t"], partitions_def=DAYS, metadata={"partition_expr": "d"})
    def t(context):
        context.set_data_version(context.asset_key, dg.DataVersion("my version"))
        return pandas_frame(context.partition_key)

    warehouse.materialize(t, key=D1)
    [(_, event)] = warehouse.events(["s", "t"])
    assert event.tags["dagster/data_version"] == "my version"
    assert event.metadata["marigold/content_hash"].value.startswith("mh1:")


def test_a_multi_asset_stores_each_of_its_assets(warehouse, loader):
    @dg.multi_asset(
        outs={
            "left": dg.AssetOut(key=["s", "left"], metadata={"partition_expr": "d"}, is_required=False),
            "right": dg.AssetOut(key=["s", "right"], metadata={"partition_expr": "d"}, is_required=False),
        },
        partitions_def=DAYS,
        can_subset=True,
    )
    def both(context):
        for name in sorted(context.op_execution_context.selected_output_names):
            yield dg.Output(pandas_frame(context.partition_key), output_name=name)

    warehouse.materialize(both, key=D1)
    warehouse.materialize(both, key=D2, selection=[dg.AssetKey(["s", "right"])])
    assert warehouse.rows("SELECT count(*) FROM s.left") == [(2,)]
    assert warehouse.rows("SELECT count(*) FROM s.right") == [(4,)]
    assert [m.partition for _, m in warehouse.events(["s", "right"])] == [D1, D2]


def test_a_graph_asset_stores_what_its_last_op_returns(warehouse):
    @dg.op(out=dg.Out(io_manager_key="plain"))
    def numbers(context):
        return pandas_frame(context.partition_key)

    @dg.op
    def doubled(frame):
        return frame.assign(v=frame["v"] * 2)

    @dg.graph_asset(key=["s", "t"], partitions_def=DAYS, metadata={"partition_expr": "d"})
    def t():
        return doubled(numbers())

    warehouse.materialize(t, key=D1, resources={"plain": dg.mem_io_manager})
    assert warehouse.rows("SELECT v FROM s.t ORDER BY v") == [(2,), (4,)]
    [(_, event)] = warehouse.events(["s", "t"])
    assert event.metadata["dagster/partition_row_count"].value == 2


def test_definitions_load_an_asset_outside_of_a_run(warehouse):
    asset = asset_of(arrow_table)

    @dg.asset(key=["s", "whole"])
    def whole():
        return arrow_table(D1)

    for key in (D1, D2):
        warehouse.materialize(asset, key=key)
    warehouse.materialize(whole)
    defs = dg.Definitions(assets=[asset, whole], resources={"io_manager": warehouse.io_manager()})
    before = warehouse.rows("SELECT last_token FROM marigold.counter")
    frame = defs.load_asset_value(["s", "t"], partition_key=D2, instance=warehouse.instance)
    assert frame["d"].tolist() == [pd.Timestamp(D2)] * 2
    assert defs.load_asset_value(["s", "whole"], python_type=pa.Table, instance=warehouse.instance).num_rows == 2
    columns = defs.load_asset_value(["s", "whole"], instance=warehouse.instance, metadata={"columns": ["v"]})
    assert list(columns.columns) == ["v"]
    assert warehouse.rows("SELECT last_token FROM marigold.counter") == before


def test_contexts_built_by_hand_store_and_load(warehouse):
    manager = warehouse.io_manager()
    key = dg.AssetKey(["s", "t"])
    out = dg.build_output_context(
        asset_key=key, partition_key=D1, asset_partitions_def=DAYS, definition_metadata={"partition_expr": "d"}
    )
    list(manager.handle_output(out, pandas_frame(D1)) or ())
    back = dg.build_input_context(
        asset_key=key,
        partition_key=D1,
        asset_partitions_def=DAYS,
        asset_partition_key_range=dg.PartitionKeyRange(D1, D1),
        upstream_output=out,
        dagster_type=dg.PythonObjectDagsterType(pa.Table),
    )
    assert manager.load_input(back).num_rows == 2


def test_a_reader_of_many_batches_is_streamed(warehouse):
    batches = 0

    def stream(key):
        nonlocal batches
        schema = arrow_table(key).schema
        for _ in range(200):
            batches += 1
            yield arrow_table(key).to_batches()[0].cast(schema)

    asset = asset_of(lambda key: pa.RecordBatchReader.from_batches(arrow_table(key).schema, stream(key)))
    warehouse.materialize(asset, key=D1)
    assert batches == 200
    assert warehouse.rows("SELECT count(*) FROM s.t") == [(400,)]


def test_a_reader_that_fails_in_the_middle_leaves_the_old_rows(warehouse):
    def broken(key):
        yield arrow_table(key).to_batches()[0]
        raise RuntimeError("the source went away")

    warehouse.materialize(asset_of(arrow_table), key=D1)
    asset = asset_of(lambda key: pa.RecordBatchReader.from_batches(arrow_table(key).schema, broken(key)))
    first, note = warehouse.refused(asset, key=D1, whole=True).splitlines()[:2]
    assert first == "RuntimeError: the source went away"
    assert "'s/t'" in note
    assert "nothing was changed" in note


def test_a_source_that_comes_back_is_asked_again(warehouse):
    tries = []

    def flaky(key):
        tries.append(key)
        yield arrow_table(key).to_batches()[0]
        if len(tries) < 3:
            raise ConnectionError("the source went away")

    def stream(key):
        return pa.RecordBatchReader.from_batches(arrow_table(key).schema, flaky(key))

    asset = asset_of(stream, retry_policy=dg.RetryPolicy(max_retries=3))
    assert warehouse.materialize(asset, key=D1).success
    assert len(tries) == 3
    assert warehouse.rows("SELECT count(*) FROM s.t") == [(2,)]


def test_a_stream_that_reads_the_database_it_is_stored_in_is_refused_at_once(warehouse):
    warehouse.materialize(asset_of(arrow_table), key=D1)

    def lazy(key):
        for number in range(2):
            store = DuckDBStore(warehouse.path)
            yield from store.read(TableName(schema="s", name="t")).slice(number, 1).to_batches()

    asset = asset_of(lambda key: pa.RecordBatchReader.from_batches(arrow_table(key).schema, lazy(key)))
    line = warehouse.refused(asset, key=D1)
    assert "partition '2024-01-01', table 's.t'" in line
    assert "reads this very database" in line
    assert "return SQL" in line
