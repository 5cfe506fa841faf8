"""Stored partitions computed again: what is reported, and that nothing whatsoever is written."""

from __future__ import annotations

import hashlib
import shutil
from datetime import timedelta
from pathlib import Path

import dagster as dg
import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from marigold_assets import FencedPartitionIOManager, FencedPartitionResource, partitioned_asset
from marigold_assets.disturbance import Conditions
from marigold_assets.errors import ConfigurationError, StoreUnavailableError
from marigold_assets.location import CodeLocation
from marigold_assets.model import TableName
from marigold_assets.partitions import IMPURE_COLUMNS
from marigold_assets.proof import Outcome
from marigold_assets.replay import replay
from marigold_assets.stores.rereading import reread
from marigold_assets_tests.integration.conftest import Warehouse

pytestmark = pytest.mark.slow  # each runs Dagster twice

DAILY = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-01-11")
KEYS = DAILY.get_partition_keys()
FIRST = ["2024-01-01", "2024-01-02", "2024-01-03"]
EMPTY = "2024-01-03"


@partitioned_asset(partitions_def=DAILY, partition_expr="day")
def orders(context) -> pd.DataFrame:
    number = 0 if context.partition_key == EMPTY else 4
    day = pd.Timestamp(context.partition_key)
    return pd.DataFrame(
        {
            "day": pd.Series([day] * number, dtype="datetime64[ns]"),
            "order_id": pd.Series(range(number), dtype="int64"),
            "amount": pd.Series([10.0 * n for n in range(number)], dtype="float64"),
            "at": pd.Series([day + timedelta(hours=n) for n in range(number)], dtype="datetime64[ns]"),
        }
    )


def asset(function, *, name="sales", **options):
    given = {"partitions_def": DAILY, "partition_expr": "day", **options}
    return partitioned_asset(name=name, **given)(function)


def as_stored(orders: pd.DataFrame) -> pd.DataFrame:
    return orders.assign(net=orders.amount * 0.8)


@pytest.fixture
def replayed(warehouse):
    """Computes partitions again with other code, and makes sure that nothing is written."""

    def run(*assets, keys=FIRST, name="sales", resources=None, **options):
        io_manager = warehouse.io_manager()
        definitions = dg.Definitions(assets=list(assets), resources={"io_manager": io_manager, **(resources or {})})
        location = CodeLocation.of(definitions)
        before, dump = digest(warehouse.path), warehouse.dump()
        events = logged(warehouse.instance)
        found = replay(location, location.asset(name), keys, instance=warehouse.instance, **options)
        assert digest(warehouse.path) == before
        assert not Path(f"{warehouse.path}.wal").exists()
        assert warehouse.dump() == dump
        assert logged(warehouse.instance) == events
        assert [one.partition_key for one in found] == list(keys)
        return found

    return run


def digest(path):
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def logged(instance):
    return {run.run_id: len(instance.all_logs(run.run_id)) for run in instance.get_runs()}


def build(warehouse, *assets, keys=("2024-01-01", "2024-01-04"), **options):
    """Build the orders and what is made of them; a chain shares no run with others."""
    alone = [one for one in assets if one.key in one.dependency_keys]
    together = [one for one in assets if one not in alone]
    assert warehouse.materialize(orders, *together, keys=keys, **options).success
    for one in alone:
        assert warehouse.materialize(orders, one, keys=keys, selection=[one]).success


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """A database with what most tests begin with."""
    path = str(tmp_path_factory.mktemp("template") / "market.duckdb")
    with dg.DagsterInstance.ephemeral() as instance:
        build(Warehouse(path, instance), asset(as_stored))
    return path


@pytest.fixture
def standard(template):
    return lambda warehouse: shutil.copy(template, warehouse.path)


def outcomes(found):
    return [one.outcome for one in found]


def test_a_refactoring_is_identical(warehouse, replayed, standard):
    standard(warehouse)

    def otherwise(orders: pd.DataFrame) -> pd.DataFrame:
        found = orders.copy()
        found.insert(0, "net", found["amount"].mul(0.8))
        return found.iloc[::-1]

    found = replayed(orders, asset(otherwise))
    assert outcomes(found) == [Outcome.IDENTICAL] * 3
    assert [one.difference.stored_rows for one in found] == [4, 4, 0]


KINDS = {
    "polars": lambda: asset(_in_polars),
    "arrow": lambda: asset(_in_arrow),
    "relation": lambda: asset(_as_relation),
    "SQL": lambda: asset(_in_sql),
    "SQL of frames": lambda: asset(_frames_to_sql),
    "stream": lambda: asset(_as_stream),
    "many keys a statement": lambda: asset(_in_sql, keys_per_statement=5),
}


def _in_polars(orders: pl.LazyFrame) -> pl.LazyFrame:
    return orders.with_columns(net=pl.col("amount") * 0.8)


def _in_arrow(orders: pa.Table) -> pa.Table:
    return pa.Table.from_pandas(as_stored(orders.to_pandas()), preserve_index=False)


def _as_relation(orders: duckdb.DuckDBPyRelation) -> duckdb.DuckDBPyRelation:
    return orders.project("*, amount * 0.8 AS net")


def _in_sql(orders: str) -> str:
    return f"SELECT *, amount * 0.8::DOUBLE AS net FROM ({orders})"


def _frames_to_sql(orders: pd.DataFrame) -> str:
    assert len(orders.columns) == 4
    return "SELECT TIMESTAMP '2024-01-01' AS day, 1 AS order_id, 2.0 AS amount"


def _as_stream(orders: pd.DataFrame) -> pa.RecordBatchReader:
    return pa.Table.from_pandas(as_stored(orders), preserve_index=False).to_reader()


@pytest.mark.parametrize("make", KINDS.values(), ids=KINDS)
def test_every_kind_of_function_is_proven(warehouse, replayed, make):
    is_constant = make is KINDS["SQL of frames"]
    keys = FIRST[:1] if is_constant else FIRST
    build(warehouse, make(), keys=(keys[0], keys[-1]))
    assert outcomes(replayed(orders, make(), keys=keys)) == [Outcome.IDENTICAL] * len(keys)


def test_one_kind_of_function_proves_another(warehouse, replayed, standard):
    standard(warehouse)
    assert outcomes(replayed(orders, asset(_in_sql))) == [Outcome.IDENTICAL] * 3


@pytest.mark.parametrize("in_sql", [False, True])
def test_another_value_in_some_rows_is_reported_with_column_and_change(warehouse, replayed, standard, in_sql):
    standard(warehouse)

    def in_frames(orders: pd.DataFrame) -> pd.DataFrame:
        found = as_stored(orders)
        return found.assign(net=found.net.where(found.order_id < 2, found.net - 0.5 * found.order_id))

    def in_database(orders: str) -> str:
        change = "CASE WHEN order_id < 2 THEN 0 ELSE 0.5 * order_id END"
        return f"SELECT *, amount * 0.8 - {change} AS net FROM ({orders})"

    first, _, empty = replayed(orders, asset(in_database if in_sql else in_frames))
    assert (first.outcome, empty.outcome) == (Outcome.CHANGED, Outcome.IDENTICAL)
    [column] = first.difference.columns
    assert (column.name, column.rows, column.smallest, column.largest) == ("net", 2, "-1.5", "-1.0")
    assert first.difference.matched_by == ("order_id",)
    example = first.difference.examples[0]
    assert (dict(example.key), dict(example.stored), dict(example.computed)) == (
        {"order_id": "2"},
        {"net": "16.0"},
        {"net": "15.0"},
    )


def test_an_added_column_is_no_change_of_the_others(warehouse, replayed, standard):
    standard(warehouse)
    first, *_ = replayed(orders, asset(lambda_with_extra))
    assert (first.outcome, first.difference.added, first.difference.columns) == (Outcome.ADDED, ("extra",), ())


def lambda_with_extra(orders: pd.DataFrame) -> pd.DataFrame:
    return as_stored(orders).assign(extra=1)


def test_a_column_that_is_added_and_another_that_changes_are_told_apart(warehouse, replayed, standard):
    standard(warehouse)

    def changed(orders: pd.DataFrame) -> pd.DataFrame:
        return lambda_with_extra(orders).assign(amount=orders.amount + 1)

    first, *_ = replayed(orders, asset(changed))
    assert first.outcome is Outcome.CHANGED
    assert (first.difference.added, [one.name for one in first.difference.columns]) == (("extra",), ["amount"])


def test_a_column_that_came_to_the_table_later_is_added_for_partitions_built_before(warehouse, replayed):
    evolving = {"metadata": {"marigold/evolve": True}}
    build(warehouse, asset(as_stored, **evolving))
    later = asset(lambda_with_extra, **evolving)
    assert warehouse.materialize(orders, later, key="2024-01-02", selection=[later]).success
    found = replayed(orders, later)
    assert outcomes(found) == [Outcome.ADDED, Outcome.IDENTICAL, Outcome.ADDED]
    assert outcomes(replayed(orders, asset(as_stored, **evolving))) == [
        Outcome.IDENTICAL,
        Outcome.CHANGED,
        Outcome.IDENTICAL,
    ]


def test_a_column_that_is_gone_is_a_change(warehouse, replayed, standard):
    standard(warehouse)
    first, *_ = replayed(orders, asset(lambda_of_nothing_more))
    [column] = first.difference.columns
    assert (first.outcome, column.name, column.note) == (Outcome.CHANGED, "net", "stored, but no longer computed")


def lambda_of_nothing_more(orders: pd.DataFrame) -> pd.DataFrame:
    return orders


def test_values_that_moved_between_rows_are_found(warehouse, replayed, standard):
    standard(warehouse)

    def moved(orders: pd.DataFrame) -> pd.DataFrame:
        return orders.assign(net=(orders.amount * 0.8).to_numpy()[::-1])

    first, *_ = replayed(orders, asset(moved))
    assert (first.outcome, first.difference.is_moved, first.difference.differing) == (Outcome.CHANGED, True, 4)
    assert [one.name for one in first.difference.columns] == ["net"]


def test_rows_that_are_missing_or_new_are_counted_and_shown(warehouse, replayed, standard):
    standard(warehouse)

    def others(orders: pd.DataFrame) -> pd.DataFrame:
        kept = as_stored(orders).iloc[1:]
        return pd.concat([kept, kept.iloc[-1:].assign(order_id=77), kept.iloc[-1:].assign(order_id=78)])

    first, *_ = replayed(orders, asset(others))
    found = first.difference
    assert (found.stored_rows, found.computed_rows, found.only_stored, found.only_computed) == (4, 5, 1, 2)
    assert (found.columns, found.differing, found.matched_by) == ((), 0, ("order_id",))
    assert [one.stored["order_id"] for one in found.examples if one.stored] == ["0"]
    assert [one.computed["order_id"] for one in found.examples if one.computed] == ["77", "78"]


def test_rows_that_nothing_tells_apart_are_counted(warehouse, replayed):
    def alike(orders: pd.DataFrame) -> pd.DataFrame:
        return pd.DataFrame({"day": orders.day, "grade": ["a", "a", "b", "b"][: len(orders)]})

    def changed(orders: pd.DataFrame) -> pd.DataFrame:
        return pd.DataFrame({"day": orders.day, "grade": ["a", "a", "a", "b"][: len(orders)]})

    build(warehouse, asset(alike))
    first, *_ = replayed(orders, asset(changed))
    found = first.difference
    assert (first.outcome, found.matched_by, found.only_stored, found.only_computed) == (Outcome.CHANGED, (), 1, 1)
    assert [one.name for one in found.columns] == ["grade"]


def test_dates_and_times_tell_by_how_much(warehouse, replayed):
    def dated(orders: pd.DataFrame) -> pd.DataFrame:
        return orders.assign(due=orders.day.dt.date)

    def later(orders: pd.DataFrame) -> pd.DataFrame:
        return orders.assign(due=(orders.day + timedelta(days=3)).dt.date, at=orders["at"] + timedelta(hours=2))

    build(warehouse, asset(dated))
    first, *_ = replayed(orders, asset(later))
    found = {one.name: (one.smallest, one.largest) for one in first.difference.columns}
    assert found == {"due": ("3 days", "3 days"), "at": ("02:00:00", "02:00:00")}


def test_a_type_that_the_table_cannot_hold_is_a_change_and_no_error(warehouse, replayed):
    def numbers(orders: pd.DataFrame) -> pd.DataFrame:
        return orders.assign(points=orders.order_id)

    def fractions(orders: pd.DataFrame) -> pd.DataFrame:
        return orders.assign(points=orders.order_id + 0.5 * (orders.order_id == 3))

    def texts(orders: pd.DataFrame) -> pd.DataFrame:
        return orders.assign(points=orders.order_id.astype(str))

    build(warehouse, asset(numbers))
    first, *_ = replayed(orders, asset(fractions))
    [column] = first.difference.columns
    assert (column.name, column.rows, column.largest) == ("points", 1, "0.5")
    assert column.note == "DOUBLE now, BIGINT stored"
    first, *_ = replayed(orders, asset(texts))
    [column] = first.difference.columns
    assert (first.outcome, column.name, column.note) == (Outcome.CHANGED, "points", "VARCHAR now, BIGINT stored")


def test_a_type_that_fits_is_no_change(warehouse, replayed, standard):
    def whole(orders: pd.DataFrame) -> pd.DataFrame:
        return as_stored(orders).assign(order_id=orders.order_id.astype("float64"))

    standard(warehouse)
    assert outcomes(replayed(orders, asset(whole))) == [Outcome.IDENTICAL] * 3


def test_a_function_that_raises_fails_for_its_partition_only(warehouse, replayed, standard):
    standard(warehouse)

    def picky(context, orders: pd.DataFrame) -> pd.DataFrame:
        if context.partition_key == "2024-01-02":
            raise ZeroDivisionError("no orders\nto divide by")
        return as_stored(orders)

    _, second, third = replayed(orders, asset(picky))
    assert (second.outcome, second.reason) == (Outcome.FAILED, "ZeroDivisionError: no orders")
    assert third.outcome is Outcome.IDENTICAL


def test_rows_outside_of_the_partition_fail(warehouse, replayed, standard):
    standard(warehouse)

    def early(orders: pd.DataFrame) -> pd.DataFrame:
        return as_stored(orders).assign(day=orders.day - timedelta(days=1))

    first, _, empty = replayed(orders, asset(early))
    assert first.outcome is Outcome.FAILED
    assert "4 of 4 rows lie outside the partition" in first.reason
    assert empty.outcome is Outcome.IDENTICAL


@pytest.mark.parametrize("returned", ["SELECT nonsense", "DROP TABLE public.orders", "SELECT 1; SELECT 2"])
def test_SQL_that_makes_no_sense_fails_and_does_nothing(warehouse, replayed, returned):
    build(warehouse, asset(_in_sql))

    def nonsense(orders: str) -> str:
        return returned

    assert outcomes(replayed(orders, asset(nonsense))) == [Outcome.FAILED] * 3


@pytest.mark.parametrize("make", [as_stored, _in_sql])
def test_an_input_that_was_restated_is_named_and_nothing_is_compared(warehouse, replayed, make):
    build(warehouse, asset(make))

    def corrected(context) -> pd.DataFrame:
        return orders(context).assign(amount=1.0)

    other = asset(corrected, name="orders")
    assert warehouse.materialize(other, key="2024-01-02").success
    found = replayed(other, asset(make))
    assert outcomes(found) == [Outcome.IDENTICAL, Outcome.INPUTS, Outcome.IDENTICAL]
    assert found[1].reason == "orders '2024-01-02' was restated"
    assert found[1].difference is None


def test_an_input_whose_rows_have_gone_is_named(warehouse, replayed, standard):
    standard(warehouse)
    warehouse.rows("DELETE FROM public.orders WHERE day = '2024-01-02'")
    assert replayed(orders, asset(as_stored))[1].reason == "orders '2024-01-02' is gone"


@pytest.mark.parametrize("make", [as_stored, _in_sql])
def test_an_input_that_another_tool_has_written_is_named_and_nothing_is_compared(warehouse, replayed, make):
    build(warehouse, asset(make))
    warehouse.rows("UPDATE public.orders SET amount = 7 WHERE day = '2024-01-02' AND order_id = 1")
    found = replayed(orders, asset(make))
    assert outcomes(found) == [Outcome.IDENTICAL, Outcome.INPUTS, Outcome.IDENTICAL]
    assert found[1].reason == "orders '2024-01-02' was altered by another tool"


def test_an_input_of_another_database_that_another_tool_has_written_is_named(warehouse, replayed, tmp_path):
    path = str(tmp_path / "other.duckdb")
    other = FencedPartitionIOManager(database=path)

    @partitioned_asset(partitions_def=DAILY, partition_expr="day", io_manager_key="other")
    def rates(context) -> pd.DataFrame:
        return pd.DataFrame({"day": [pd.Timestamp(context.partition_key)], "rate": [2.0]})

    def with_rates(orders: pd.DataFrame, rates: pd.DataFrame) -> pd.DataFrame:
        return orders.assign(net=orders.amount * rates.rate.iloc[0])

    made = asset(with_rates, ins={"rates": dg.AssetIn(input_manager_key="other")})
    for one in (orders, rates, made):
        ran = warehouse.materialize(
            orders, rates, made, keys=("2024-01-01", "2024-01-04"), selection=[one], resources={"other": other}
        )
        assert ran.success
    with duckdb.connect(path) as connection:
        connection.execute("UPDATE public.rates SET rate = 3 WHERE day = '2024-01-03'")
    found = replayed(orders, rates, made, resources={"other": other})
    assert outcomes(found) == [Outcome.IDENTICAL, Outcome.IDENTICAL, Outcome.INPUTS]
    assert found[2].reason == "rates '2024-01-03' was altered by another tool"


def test_rows_that_another_tool_has_written_are_not_compared(warehouse, replayed, standard):
    standard(warehouse)
    warehouse.rows("UPDATE public.sales SET net = 7 WHERE day = '2024-01-02' AND order_id = 1")
    found = replayed(orders, asset(as_stored))
    assert outcomes(found) == [Outcome.IDENTICAL, Outcome.ALTERED, Outcome.IDENTICAL]
    assert "another tool has written its rows" in found[1].reason


def test_a_partition_that_was_never_built_has_nothing_to_be_compared_with(warehouse, replayed, standard):
    standard(warehouse)
    assert outcomes(replayed(orders, asset(as_stored), keys=["2024-01-01", "2024-01-08"])) == [
        Outcome.IDENTICAL,
        Outcome.MISSING,
    ]


def test_an_input_that_is_read_now_only_is_compared_and_noted(warehouse, replayed):
    rates = asset(lambda_of_rates, name="rates")
    build(warehouse, asset(as_stored), rates)

    def with_rates(orders: pd.DataFrame, rates: pd.DataFrame) -> pd.DataFrame:
        return orders.assign(net=orders.amount * (rates.rate.iloc[0] if len(rates) else 1))

    first, *_ = replayed(orders, rates, asset(with_rates))
    assert first.outcome is Outcome.IDENTICAL
    assert first.notes == ("reads rates '2024-01-01' now, which it did not when it was built",)


def lambda_of_rates(orders: pd.DataFrame) -> pd.DataFrame:
    return orders[["day"]].drop_duplicates().assign(rate=0.8)


class _Files(dg.IOManager):
    def handle_output(self, context, obj): ...

    def load_input(self, context):
        return pd.DataFrame({"rate": [0.8]})


def test_inputs_of_other_io_managers_are_compared_and_said_to_be_unknown(warehouse, replayed):
    @dg.asset(partitions_def=DAILY, io_manager_key="files")
    def rates(): ...

    def with_rates(orders: pd.DataFrame, rates: pd.DataFrame) -> pd.DataFrame:
        return orders.assign(net=orders.amount * rates.rate.iloc[0])

    made = asset(with_rates, ins={"rates": dg.AssetIn(input_manager_key="files")})
    files = dg.IOManagerDefinition.hardcoded_io_manager(_Files())
    assert warehouse.materialize(orders, keys=("2024-01-01", "2024-01-04")).success
    assert warehouse.materialize(
        orders, rates, made, keys=("2024-01-01", "2024-01-04"), selection=[made], resources={"files": files}
    ).success
    first, *_ = replayed(orders, rates, made, resources={"files": files})
    assert first.outcome is Outcome.IDENTICAL
    assert first.notes == ("nobody can tell whether rates '2024-01-01' still holds what it was built from",)


def chained(function):
    return asset(function, name="to_date")


def to_date(context, orders: pd.DataFrame, previous: pd.DataFrame | None) -> pd.DataFrame:
    before = 0.0 if previous is None else previous.total.iloc[0]
    return pd.DataFrame({"day": [pd.Timestamp(context.partition_key)], "total": [before + orders.amount.sum()]})


def test_a_chain_reads_its_past_as_it_is_stored(warehouse, replayed):
    build(warehouse, chained(to_date))

    def more(context, orders: pd.DataFrame, previous: pd.DataFrame | None) -> pd.DataFrame:
        return to_date(context, orders, previous).assign(total=lambda frame: frame.total + 1)

    assert outcomes(replayed(orders, chained(to_date), name="to_date")) == [Outcome.IDENTICAL] * 3
    found = replayed(orders, chained(more), name="to_date", keys=["2024-01-02", "2024-01-04"])
    assert [one.difference.columns[0].largest for one in found] == ["1.0", "1.0"]


def test_a_chain_whose_past_was_built_anew_otherwise_is_not_compared(warehouse, replayed):
    build(warehouse, chained(to_date))

    def more(context, orders: pd.DataFrame, previous: pd.DataFrame | None) -> pd.DataFrame:
        return to_date(context, orders, previous).assign(total=lambda frame: frame.total + 1)

    assert warehouse.materialize(orders, chained(more), key="2024-01-02", selection=["to_date"]).success
    found = replayed(orders, chained(to_date), name="to_date")
    assert outcomes(found) == [Outcome.IDENTICAL, Outcome.CHANGED, Outcome.INPUTS]
    assert found[2].reason == "to_date '2024-01-02' was restated"


class Rate(dg.Config):
    rate: float = 0.8


def with_config(orders: pd.DataFrame, config: Rate) -> pd.DataFrame:
    return orders.assign(net=orders.amount * config.rate)


def test_another_config_is_said_and_nothing_is_compared(warehouse, replayed):
    build(warehouse, asset(with_config), config={"sales": {"rate": 0.5}})
    first, *_ = replayed(orders, asset(with_config))
    assert (first.outcome, "--config" in first.reason) == (Outcome.CONFIG, True)
    same = {"ops": {"sales": {"config": {"rate": 0.5}}}}
    assert outcomes(replayed(orders, asset(with_config), config=same)) == [Outcome.IDENTICAL] * 3


def test_config_that_does_not_fit_is_refused(warehouse, replayed):
    build(warehouse, asset(with_config))
    with pytest.raises(ConfigurationError, match="the config does not fit"):
        replayed(orders, asset(with_config), config={"ops": {"sales": {"config": {"rate": "high"}}}})


def test_columns_that_are_said_to_be_impure_are_left_out(warehouse, replayed):
    def stamped(orders: pd.DataFrame) -> pd.DataFrame:
        return as_stored(orders).assign(loaded_at=pd.Timestamp.now())

    build(warehouse, asset(stamped))
    assert outcomes(replayed(orders, asset(stamped)))[0] is Outcome.CHANGED
    waived = asset(stamped, metadata={IMPURE_COLUMNS: {"loaded_at": "when it came"}})
    assert outcomes(replayed(orders, waived)) == [Outcome.IDENTICAL] * 3


def test_a_column_without_a_reason_is_refused(warehouse, replayed, standard):
    standard(warehouse)
    with pytest.raises(ConfigurationError, match="a reason for each column"):
        replayed(orders, asset(as_stored, metadata={IMPURE_COLUMNS: {"net": " "}}))


def test_checks_of_the_asset_are_evaluated_and_a_blocking_one_fails(warehouse, replayed, standard):
    spec = dg.AssetCheckSpec("positive", asset="sales", blocking=True)

    def checked(context, orders: pd.DataFrame) -> dg.MaterializeResult:
        passed = context.partition_key != "2024-01-02"
        return dg.MaterializeResult(value=as_stored(orders), check_results=[dg.AssetCheckResult(passed=passed)])

    standard(warehouse)
    assert outcomes(replayed(orders, asset(checked, check_specs=[spec]))) == [
        Outcome.IDENTICAL,
        Outcome.FAILED,
        Outcome.IDENTICAL,
    ]


def test_partitions_of_several_dimensions_are_replayed(warehouse, replayed):
    grid = dg.MultiPartitionsDefinition({"day": DAILY, "shop": dg.StaticPartitionsDefinition(["a", "b"])})

    def visits(context) -> pd.DataFrame:
        parts = context.partition_key.keys_by_dimension
        return pd.DataFrame({"day": [pd.Timestamp(parts["day"])], "shop": [parts["shop"]]})

    made = asset(visits, name="visits", partitions_def=grid, partition_expr={"day": "day", "shop": "shop"})
    keys = ["2024-01-01|a", "2024-01-02|b"]
    for key in keys:
        assert warehouse.materialize(made, key=grid.get_partition_key_from_str(key)).success
    assert outcomes(replayed(made, keys=keys, name="visits")) == [Outcome.IDENTICAL] * 2


def test_dynamic_partitions_are_replayed(warehouse, replayed):
    shops = dg.DynamicPartitionsDefinition(name="shops")
    warehouse.instance.add_dynamic_partitions("shops", ["a", "b"])

    def visits(context) -> pd.DataFrame:
        return pd.DataFrame({"shop": [context.partition_key]})

    made = asset(visits, name="visits", partitions_def=shops, partition_expr="shop")
    for key in ("a", "b"):
        assert warehouse.materialize(made, key=key).success
    assert outcomes(replayed(made, keys=["a", "b"], name="visits")) == [Outcome.IDENTICAL] * 2


def test_a_resource_of_this_package_reads_but_does_not_write(warehouse, replayed, standard):
    standard(warehouse)
    resource = FencedPartitionResource(database=warehouse.path)

    def reading(context, orders: pd.DataFrame, market: FencedPartitionResource) -> pd.DataFrame:
        with market.get_connection() as connection:
            assert connection.execute("SELECT count(*) FROM public.sales").fetchone() == (12,)
            if context.partition_key == "2024-01-02":
                connection.execute("DELETE FROM public.sales")
        return as_stored(orders)

    def claiming(context, orders: pd.DataFrame, market: FencedPartitionResource) -> pd.DataFrame:
        market.claim(context, "sales")
        return as_stored(orders)

    found = replayed(orders, asset(reading), resources={"market": resource})
    assert outcomes(found) == [Outcome.IDENTICAL, Outcome.FAILED, Outcome.IDENTICAL]
    assert "read-only" in found[1].reason
    found = replayed(orders, asset(claiming), resources={"market": resource})
    assert outcomes(found) == [Outcome.FAILED] * 3
    assert "the function writes for itself" in found[0].reason


def test_the_clock_of_SQL_is_shifted_too(warehouse, replayed):
    def dated(orders: str) -> str:
        return f"SELECT *, current_date AS today FROM ({orders})"

    build(warehouse, asset(dated))
    assert outcomes(replayed(orders, asset(dated)))[0] is Outcome.IDENTICAL
    ahead = Conditions(clock=timedelta(days=400))
    first, *_ = replayed(orders, asset(dated), conditions=ahead)
    assert (first.outcome, first.reason) == (Outcome.CHANGED, None)
    [column] = first.difference.columns
    assert (column.name, column.smallest) == ("today", "400 days")


def test_a_store_that_is_open_for_reading_writes_nothing(warehouse, standard):
    standard(warehouse)
    store = warehouse.io_manager().store
    before = digest(warehouse.path)
    with reread(store) as opened:
        assert opened.read(TableName(schema="public", name="sales")).num_rows == 12
        with pytest.raises(ConfigurationError, match="kept open for reading"):
            opened.draw_token("run")
    assert digest(warehouse.path) == before


def test_a_plain_asset_is_refused(warehouse, replayed):
    @dg.asset(partitions_def=DAILY, metadata={"partition_expr": "day"})
    def plain() -> pd.DataFrame: ...

    build(warehouse)
    with pytest.raises(ConfigurationError, match="not made by @partitioned_asset"):
        replayed(plain, name="plain")


def test_a_database_that_is_not_there_is_said_once(tmp_path, warehouse):
    definitions = dg.Definitions(assets=[orders, asset(as_stored)], resources={"io_manager": warehouse.io_manager()})
    location = CodeLocation.of(definitions)
    with pytest.raises((ConfigurationError, StoreUnavailableError), match="does not exist"):
        replay(location, location.asset("sales"), FIRST)
    assert not Path(warehouse.path).exists()


class Broken(dg.ConfigurableResource):
    password: str = ""

    def setup_for_execution(self, context):
        raise RuntimeError("no password")


def test_a_resource_that_cannot_be_set_up_is_named(warehouse, replayed, standard):
    def using(orders: pd.DataFrame, broken: Broken) -> pd.DataFrame:
        return as_stored(orders)

    standard(warehouse)
    with pytest.raises(ConfigurationError, match="no password"):
        replayed(orders, asset(using), resources={"broken": Broken()})
