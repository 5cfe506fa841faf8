"""Which table an asset has, whatever its name, and that two assets never share one."""

from __future__ import annotations

import dagster as dg
import pandas as pd
import pytest

from marigold_assets import FencedPartitionIOManager
from marigold_assets_tests.integration.conftest import failure_of

pytestmark = pytest.mark.slow

DAYS = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-02-01")
D1, D2 = "2024-01-01", "2024-01-02"


def daily(key, column="d", *, metadata=None):
    @dg.asset(key=list(key), partitions_def=DAYS, metadata={"partition_expr": column, **(metadata or {})})
    def days(context):
        return pd.DataFrame({column: [pd.Timestamp(context.partition_key)], "v": [1]})

    return days


KEYS = [
    ["s", "order"],
    ["s", "my-table"],
    ["select", "t"],
    ["my-schema", "t"],
    ["1st", "t"],
    ["s", "table"],
    ["s", "duckdb_tables"],
    ["main", "t"],
    ["temp_", "t"],
]


@pytest.mark.parametrize("key", KEYS, ids="/".join)
def test_any_name_makes_a_table_that_can_be_written_twice_and_read(warehouse, loader, key):
    asset, seen = daily(key), []
    reader = loader(asset.key, seen, pd.DataFrame, metadata={"columns": ["v"]}, partitions_def=DAYS)
    for day in (D1, D2, D1):
        warehouse.materialize(asset, reader, key=day)
    assert [frame["v"].tolist() for frame in seen] == [[1]] * 3
    assert [list(frame.columns) for frame in seen] == [["v"]] * 3
    quoted = ".".join(f'"{part}"' for part in key)
    assert warehouse.rows(f"SELECT count(*) FROM {quoted}") == [(2,)]


@pytest.mark.parametrize(
    "column", ["order", "Order Date", "group", "order-date", "Größe", "1st", 'say "d"', "a.b", "end"]
)
def test_any_column_can_hold_the_partition(warehouse, loader, column):
    asset, seen = daily(["s", "t"], column), []
    reader = loader(asset.key, seen, pd.DataFrame, metadata={"columns": [column]}, partitions_def=DAYS)
    for day in (D1, D2, D1):
        warehouse.materialize(asset, reader, key=day)
    assert [frame[column].tolist() for frame in seen] == [[pd.Timestamp(day)] for day in (D1, D2, D1)]
    assert warehouse.rows("SELECT count(*) FROM s.t") == [(2,)]


PAIRS = [
    (["raw", "eu", "orders"], ["clean", "eu", "orders"]),
    (["S", "Orders"], ["s", "orders"]),
    (["orders"], ["public", "orders"]),
]


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: " and ".join("/".join(key) for key in pair))
def test_two_assets_never_share_a_table(warehouse, pair):
    first, second = (daily(key) for key in pair)
    warehouse.materialize(first, key=D1)
    line = warehouse.refused(second, key=D2)
    assert repr("/".join(pair[0])) in line
    assert repr("/".join(pair[1])) in line
    both = dg.materialize(
        [first, second],
        partition_key=D2,
        instance=warehouse.instance,
        resources={"io_manager": warehouse.io_manager()},
        raise_on_error=False,
    )
    assert not both.success
    assert len(both.get_step_failure_events()) == 1


def test_an_unpartitioned_asset_never_takes_the_table_of_another(warehouse):
    warehouse.materialize(daily(["s", "t"]), key=D1)

    @dg.asset(key=["x", "s", "t"])
    def t():
        return pd.DataFrame({"d": [pd.Timestamp(D1)], "v": [2]})

    assert "'s/t'" in warehouse.refused(t)


def test_a_renamed_asset_takes_its_table_over_when_it_says_so(warehouse):
    warehouse.materialize(daily(["s", "t"]), key=D1)
    renamed = daily(["x", "s", "t"], metadata={"marigold/renamed_from": "s/t"})
    for day in (D1, D2):
        warehouse.materialize(renamed, key=day)
    assert warehouse.rows("SELECT count(*) FROM s.t") == [(2,)]
    warehouse.refused(daily(["s", "t"]), key=D1)


@pytest.mark.parametrize(
    "metadata",
    [{"marigold/evolve": "yes"}, {"marigold/evolv": True}, {"marigold/evolve": 1}, {"marigold/renamed_from": 7}],
)
def test_metadata_that_says_nothing_of_the_kind_is_refused(warehouse, metadata):
    [name] = metadata
    line = warehouse.refused(daily(["s", "t"], metadata=metadata), key=D1)
    assert f"asset 's/t', partition '{D1}', table 's.t': " in line
    assert name in line


@pytest.mark.parametrize("value", [True, dg.MetadataValue.bool(True)])
def test_metadata_may_be_plain_or_typed(warehouse, value):
    warehouse.materialize(daily(["s", "t"]), key=D1)
    grown = {"marigold/evolve": value, "marigold/renamed_from": dg.MetadataValue.text("s/before")}

    @dg.asset(key=["s", "t"], partitions_def=DAYS, metadata={"partition_expr": "d", **grown})
    def more(context):
        return pd.DataFrame({"d": [pd.Timestamp(context.partition_key)], "v": [1], "w": [2]})

    warehouse.materialize(more, key=D2)
    assert warehouse.rows("SELECT w FROM s.t ORDER BY d") == [(None,), (2,)]


def test_an_op_never_takes_the_table_of_an_asset(warehouse):
    warehouse.materialize(daily(["s", "t"]), key=D1)

    @dg.op(out={"t": dg.Out(metadata={"schema": "s"})})
    def make():
        return pd.DataFrame({"v": [1]})

    @dg.job(resource_defs={"io_manager": warehouse.io_manager()})
    def job():
        make()

    before = warehouse.dump()
    result = job.execute_in_process(instance=warehouse.instance, raise_on_error=False)
    assert not result.success
    assert warehouse.dump() == before


def test_the_tables_of_the_fence_are_nobodys(warehouse):
    assert "'marigold'" in warehouse.refused(daily(["marigold", "ledger"]), key=D1)
    assert "'marigold'" in warehouse.refused(daily(["Marigold", "sales"]), key=D1)


@pytest.mark.parametrize("in_metadata", [None, "from_metadata"])
@pytest.mark.parametrize("configured", [None, "from_config"])
@pytest.mark.parametrize("prefix", [[], ["from_prefix"], ["far", "from_prefix"]], ids="/".join)
def test_the_schema_is_that_of_metadata_then_config_then_prefix_then_public(
    warehouse, loader, in_metadata, configured, prefix
):
    @dg.asset(key=[*prefix, "t"], metadata={"schema": in_metadata} if in_metadata else {})
    def t():
        return pd.DataFrame({"v": [1]})

    seen = []
    reader = loader(t.key, seen, pd.DataFrame)
    manager = warehouse.io_manager(schema=configured) if configured else warehouse.io_manager()
    warehouse.materialize(t, reader, resources={"io_manager": manager})
    expected = in_metadata or configured or (prefix[-1] if prefix else "public")
    assert warehouse.rows(f"SELECT v FROM {expected}.t") == [(1,)]
    [(_, event)] = warehouse.events(t.key)
    assert event.metadata["dagster/table_name"].value == f"{expected}.t"
    assert len(seen[0]) == 1


@pytest.mark.parametrize("metadata", [{}, {"schema": "s"}, {"schema": "s", "table": "named"}, {"table": "named"}])
@pytest.mark.parametrize("configured", [None, "from_config"])
def test_an_op_names_its_table_by_output_or_metadata(warehouse, metadata, configured):
    @dg.op(out={"made": dg.Out(metadata=metadata)})
    def make():
        return pd.DataFrame({"a": [1], "b": [2]})

    seen = []

    @dg.op(ins={"made": dg.In(metadata={"columns": ["b"]})}, out={"result": dg.Out(io_manager_key="plain")})
    def use(made: pd.DataFrame):
        seen.append(made)

    manager = warehouse.io_manager(schema=configured) if configured else warehouse.io_manager()

    @dg.job(resource_defs={"io_manager": manager, "plain": dg.mem_io_manager})
    def job():
        use(make())

    for _ in range(2):
        assert job.execute_in_process(instance=warehouse.instance).success
    schema = metadata.get("schema") or configured or "public"
    assert warehouse.rows(f"SELECT a, b FROM {schema}.{metadata.get('table', 'made')}") == [(1, 2)]
    assert [frame.to_dict("list") for frame in seen] == [{"b": [2]}] * 2


def test_ops_that_hand_on_results_by_one_name_read_their_own_or_none(warehouse):
    """As with the peer, a chain may reuse a table; but nobody is given what another op has written."""

    @dg.op(ins={"one": dg.In(dg.Nothing)})
    def ten():
        return pd.DataFrame({"v": [10]})

    @dg.op
    def more(frame: pd.DataFrame):
        return frame + 1

    @dg.op(out={"sum": dg.Out(dg.Nothing)})
    def both(left: pd.DataFrame, right: pd.DataFrame) -> None:
        raise AssertionError

    resources = {"io_manager": warehouse.io_manager()}

    @dg.job(resource_defs=resources)
    def chain():
        more.alias("last")(more(ten()))

    @dg.job(resource_defs=resources)
    def branches():
        start = ten()
        both(more.alias("left")(start), more.alias("right")(ten.alias("other")()))

    assert chain.execute_in_process(instance=warehouse.instance).success
    assert warehouse.rows("SELECT v FROM public.result") == [(12,)]
    result = branches.execute_in_process(instance=warehouse.instance, raise_on_error=False)
    assert not result.success
    message = failure_of(result).splitlines()[0]
    assert "table 'public.result': the table holds what step" in message
    assert "Out(metadata=" in message


def test_the_outputs_of_one_step_are_not_taken_for_each_other(warehouse):
    seen = []

    @dg.op(out=dg.DynamicOut())
    def fan():
        for key in "abc":
            yield dg.DynamicOutput(pd.DataFrame({"v": [key]}), mapping_key=key)

    same = {"table": "both"}

    @dg.op(out={"x": dg.Out(metadata=same), "y": dg.Out(metadata=same)})
    def two():
        return pd.DataFrame({"v": ["x"]}), pd.DataFrame({"v": ["y"]})

    @dg.op(out=dg.Out(io_manager_key="plain"))
    def see(frame: pd.DataFrame):
        seen.append(frame["v"].tolist())

    resources = {"io_manager": warehouse.io_manager(), "plain": dg.mem_io_manager}

    @dg.job(resource_defs=resources)
    def mapped():
        fan().map(see)

    @dg.job(resource_defs=resources)
    def pair():
        x, _y = two()
        see(x)

    for job in (mapped, pair):
        result = job.execute_in_process(instance=warehouse.instance, raise_on_error=False)
        assert not result.success
    assert seen in ([], [["c"]])  # what was written last is what it is


def test_an_op_reads_the_output_of_its_own_run(warehouse):
    """A run that another one overtakes between two of its ops is refused, and not given the other's rows."""
    resources = {"io_manager": warehouse.io_manager()}
    overtaken, seen = [], []

    @dg.op
    def make(context):
        return pd.DataFrame({"run": [context.run_id]})

    @dg.op(out=dg.Out(io_manager_key="plain"))
    def wait(frame: pd.DataFrame):
        if not overtaken:
            overtaken.append(True)
            assert job.execute_in_process(instance=warehouse.instance).success

    @dg.op(ins={"after": dg.In(dg.Nothing)}, out=dg.Out(io_manager_key="plain"))
    def use(context, frame: pd.DataFrame):
        seen.append((context.run_id, frame["run"].tolist()))

    @dg.job(resource_defs={**resources, "plain": dg.mem_io_manager})
    def job():
        made = make()
        use(made, after=wait(made))

    result = job.execute_in_process(instance=warehouse.instance, raise_on_error=False)
    assert not result.success
    assert len(seen) == 1
    assert all(read == [run] for run, read in seen)


@dg.op
def handed_on():
    return pd.DataFrame({"v": [1]})


@dg.op(out=dg.Out(io_manager_key="plain"))
def fails_once(context, frame: pd.DataFrame):
    assert frame["v"].tolist() == [1]
    if context.run.parent_run_id is None:
        raise ValueError


@dg.job(
    resource_defs={
        "io_manager": FencedPartitionIOManager(database=dg.EnvVar("MARIGOLD_TEST_DATABASE")),
        "plain": dg.mem_io_manager,
    },
    executor_def=dg.in_process_executor,
)
def re_executed():
    fails_once(handed_on())


def test_a_re_execution_reads_what_its_parent_has_written(warehouse, monkeypatch):
    monkeypatch.setenv("MARIGOLD_TEST_DATABASE", warehouse.path)
    job = dg.reconstructable(re_executed)
    with dg.execute_job(job, warehouse.instance) as first:
        assert not first.success
    again = dg.ReexecutionOptions.from_failure(first.run_id, warehouse.instance)
    with dg.execute_job(job, warehouse.instance, reexecution_options=again) as second:
        assert second.success
    assert warehouse.rows("SELECT count(*) FROM marigold.ledger") == [(1,)]


def test_an_op_handles_its_own_partitioned_job(warehouse):
    """An op's output has no partitions of its own, also in a partitioned job: it is the whole table."""

    @dg.op
    def numbers(context):
        return pd.DataFrame({"key": [context.partition_key]})

    @dg.job(resource_defs={"io_manager": warehouse.io_manager()}, partitions_def=DAYS)
    def job():
        numbers()

    for key in (D1, D2):
        job.execute_in_process(instance=warehouse.instance, partition_key=key)
    assert warehouse.rows("SELECT key FROM public.result") == [(D2,)]


@pytest.mark.parametrize("columns", [["v"], ["V"], ["v", "d"], ["d", "v"]])
def test_an_input_loads_the_columns_that_it_asks_for_in_their_order(warehouse, loader, columns):
    asset, seen = daily(["s", "t"]), []
    reader = loader(asset.key, seen, pd.DataFrame, metadata={"columns": columns}, partitions_def=DAYS)
    warehouse.materialize(asset, reader, key=D1)
    assert [name.lower() for name in seen[0].columns] == [name.lower() for name in columns]


def test_an_unknown_column_is_refused_with_those_that_exist(warehouse, loader):
    asset = daily(["s", "t"])
    warehouse.materialize(asset, key=D1)
    reader = loader(
        asset.key, [], pd.DataFrame, metadata={"columns": ["v", "x'; DROP TABLE s.t; --"]}, partitions_def=DAYS
    )
    line = warehouse.refused(asset.to_source_asset(), reader, key=D1)
    assert "DROP TABLE" in line
    assert "d, v" in line
    assert "'s/t'" in line


def test_a_table_that_does_not_exist_is_refused_by_name(warehouse, loader):
    asset = daily(["s", "t"])
    line = warehouse.refused(asset.to_source_asset(), loader(asset.key, [], pd.DataFrame, partitions_def=DAYS), key=D1)
    assert "'s.t'" in line
    assert "'s/t'" in line
    assert f"'{D1}'" in line
    assert "does not exist" in line
