"""An input that is needed under one definition is refused as a mixture, unless that is accepted or does not matter."""

# No `from __future__ import annotations` here: Dagster compares the annotation of `context` with its classes.

from datetime import UTC, datetime, timedelta

import dagster as dg
import duckdb
import pandas as pd
import pytest

from marigold_assets import FencedPartitionIOManager, FencedPartitionResource, frames, partitioned_asset
from marigold_assets.model import Acceptance, Definition, TableName
from marigold_assets_tests.integration.conftest import failure_of

pytestmark = pytest.mark.slow

ONE_RUN = dg.BackfillPolicy.single_run()
DAYS = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-01-11")
ALL = dg.AllPartitionMapping()
TWO_DAYS = dg.TimeWindowPartitionMapping(start_offset=-1)
NEEDED = {"marigold/uniform_version": True}
CHANGES = {"marigold/column_versions": {"2": {"since": "1", "columns": ["net"]}}}


def day(number):
    return f"2024-01-{number:02d}"


def daily(version, **options):
    @partitioned_asset(
        partitions_def=DAYS, partition_expr="day", code_version=version, backfill_policy=ONE_RUN, **options
    )
    def sales(context: dg.AssetExecutionContext):
        return pd.DataFrame({"day": [pd.Timestamp(context.partition_key)], "gross": [2], "net": [int(version)]})

    return sales


def report(metadata=None, mapping=ALL):
    @dg.asset(ins={"sales": dg.AssetIn(partition_mapping=mapping, metadata={**NEEDED, **(metadata or {})})})
    def report(sales: pd.DataFrame) -> pd.DataFrame:
        return sales.agg("sum", numeric_only=True).to_frame().T

    return report


def of_two_days(annotation, **options):
    """Each day from itself and the day before."""

    def summed(sales):
        if isinstance(sales, str):
            return f"SELECT max(day) AS day, sum(net)::BIGINT AS net FROM ({sales})"
        if isinstance(sales, duckdb.DuckDBPyRelation):
            return sales.aggregate("max(day) AS day, sum(net)::BIGINT AS net")
        return pd.DataFrame({"day": [sales["day"].max()], "net": [int(sales["net"].sum())]})

    summed.__annotations__ = {"sales": annotation}
    return partitioned_asset(
        partitions_def=DAYS,
        partition_expr="day",
        ins={"sales": dg.AssetIn(partition_mapping=TWO_DAYS, metadata=NEEDED)},
        **options,
    )(summed)


@pytest.fixture
def mixed(warehouse):
    """Days 1 to 3 by version 1, days 4 to 6 by version 2."""
    warehouse.materialize(daily("1"), keys=(day(1), day(6)))
    warehouse.materialize(daily("2"), keys=(day(4), day(6)))
    return warehouse


def accept(warehouse, *numbers, version="1", until=None):
    store = FencedPartitionIOManager(database=warehouse.path).store
    store.accept(
        [
            Acceptance(
                table=TableName(schema="public", name="sales"),
                owner="sales",
                partition_key=day(number),
                definition=Definition(code_version=version, code_fingerprint=None, config_hash=None),
                accepted_by="Tomás",
                accepted_at=datetime.now(UTC),
                reason="the old days are closed",
                until=until,
            )
            for number in numbers
        ]
    )


def refused_read(warehouse, *assets, **options):
    result = warehouse.materialize(*assets, raise_on_error=False, **options)
    assert not result.success
    return failure_of(result).splitlines()[0]


def warnings_of(warehouse, run_id):
    return [entry.user_message for entry in warehouse.instance.all_logs(run_id) if entry.level == 30]


def test_a_mixture_is_refused_with_the_odd_partitions_and_what_to_do(mixed):
    line = refused_read(mixed, report(), daily("2"), selection=["report"])
    for text in (
        "asset 'sales'",
        "table 'public.sales'",
        f"3 partitions were built under another definition than 2: {day(1)} to {day(3)} (1)",
        f"marigold launch sales --from {day(1)} --to {day(3)} (its price: 'marigold plan'",
        f"marigold versions accept sales --range {day(1)}...{day(3)} --reason",
    ):
        assert text in line
    mixed.materialize(daily("2"), keys=(day(1), day(3)))
    assert mixed.materialize(report(), daily("2"), selection=["report"]).success


def test_a_reader_that_does_not_ask_is_given_everything(mixed):
    asked_for_nothing = report({"marigold/uniform_version": False})
    assert mixed.materialize(asked_for_nothing, daily("2"), selection=["report"]).success


def test_what_is_accepted_is_read_and_said(mixed):
    accept(mixed, 1, 2, 3)
    result = mixed.materialize(report(), daily("2"), selection=["report"])
    [said] = warnings_of(mixed, result.run_id)
    assert "3 partitions" in said
    assert "by Tomás" in said
    assert "the old days are closed" in said


def test_an_acceptance_covers_its_partitions_until_it_ends_or_they_are_built_otherwise(mixed):
    accept(mixed, 1, 2)
    assert f"{day(3)} (1)" in refused_read(mixed, report(), daily("2"), selection=["report"])
    accept(mixed, 1, 2, 3, until=datetime.now(UTC) - timedelta(seconds=1))
    assert "3 partitions" in refused_read(mixed, report(), daily("2"), selection=["report"])
    accept(mixed, 1, 2, 3)
    mixed.materialize(daily("0"), keys=(day(3), day(3)))
    assert f"{day(3)} (0)" in refused_read(mixed, report(), daily("2"), selection=["report"])


def test_a_declared_change_concerns_the_readers_of_its_columns_alone(mixed):
    upstream = daily("2", metadata=CHANGES)
    line = refused_read(mixed, report(), upstream, selection=["report"])
    assert "(net differ" in line
    assert mixed.materialize(report({"columns": ["day", "gross"]}), upstream, selection=["report"]).success
    assert "3 partitions" in refused_read(mixed, report({"columns": ["net"]}), upstream, selection=["report"])


def test_columns_are_named_as_the_database_names_them(mixed):
    upstream = daily("2", metadata=CHANGES)
    assert "3 partitions" in refused_read(mixed, report({"columns": ["DAY", "NET"]}), upstream, selection=["report"])


def test_partitions_between_those_that_are_read_are_in_no_remedy(mixed):
    @dg.asset(deps=[dg.AssetDep("sales", partition_mapping=ALL)])
    def report(context: dg.AssetExecutionContext, db: FencedPartitionResource) -> None:
        db.read(context, "sales", pd.DataFrame, uniform_version=True, keys=[day(5), day(3), day(1)])

    resources = {"db": FencedPartitionResource(database=mixed.path)}
    line = refused_read(mixed, report, daily("2"), selection=["report"], resources=resources)
    assert f"accept sales --range {day(1)}...{day(1)} --range {day(3)}...{day(3)} --reason" in line


def test_rows_of_another_tool_are_refused_since_nobody_knows_what_made_them(mixed):
    accept(mixed, 1, 2, 3)
    assert mixed.materialize(report(), daily("2"), selection=["report"]).success
    mixed.rows("INSERT INTO public.sales VALUES (TIMESTAMP '2024-01-09', 1, 1)")
    line = refused_read(mixed, report(), daily("2"), selection=["report"])
    assert f"partition '{day(9)}' has rows that the ledger does not know" in line
    mixed.rows("UPDATE public.sales SET day = TIMESTAMP '2024-01-02' WHERE day = TIMESTAMP '2024-01-09'")
    line = refused_read(mixed, report(), daily("2"), selection=["report"])
    assert f"partition '{day(2)}' has rows that the ledger does not know" in line

    @dg.asset
    def whole(context: dg.AssetExecutionContext, db: FencedPartitionResource) -> None:
        db.read(context, "sales", pd.DataFrame, uniform_version=True)

    resources = {"db": FencedPartitionResource(database=mixed.path)}
    assert "the table has 7 rows, and the ledger knows of 6" in refused_read(mixed, whole, resources=resources)


def test_a_table_that_had_partitions_once_is_judged_as_the_whole_that_it_is_now(mixed):
    @dg.asset(code_version="9")
    def sales() -> pd.DataFrame:
        return pd.DataFrame({"day": [pd.Timestamp(day(1))], "gross": [2], "net": [9]})

    @dg.asset(ins={"sales": dg.AssetIn(metadata=NEEDED)})
    def report(sales: pd.DataFrame) -> None:
        assert list(sales["net"]) == [9]

    assert mixed.materialize(sales, report).success


def test_an_input_of_another_io_manager_cannot_be_needed_under_one_definition(mixed):
    summed = of_two_days(pd.DataFrame)

    @dg.asset(partitions_def=DAYS, io_manager_key="files")
    def sales() -> pd.DataFrame:
        return rows_of_day(None)

    options = {"selection": ["summed"], "key": day(2), "resources": {"files": dg.mem_io_manager}}
    reads_files = partitioned_asset(
        partitions_def=DAYS,
        partition_expr="day",
        ins={"sales": dg.AssetIn(metadata=NEEDED, input_manager_key="files")},
        name="summed",
    )(lambda sales: sales)
    assert summed.key == reads_files.key
    assert "its IO manager keeps no ledger" in refused_read(mixed, reads_files, sales, **options)


def test_what_is_swapped_while_it_is_read_is_read_again(mixed):
    """The check and the read open the database one after the other: a backfill may come in between."""
    mixed.materialize(daily("2"), keys=(day(1), day(3)))
    seen, rivals = [], [daily("3"), daily("2")]
    load = frames.load

    def overtaken(store, what, wanted, where):
        if rivals:
            mixed.materialize(rivals.pop(), keys=(day(2), day(2)))
        return load(store, what, wanted, where)

    @dg.asset(ins={"sales": dg.AssetIn(partition_mapping=ALL, metadata=NEEDED)})
    def report(sales: pd.DataFrame) -> None:
        seen.append(sorted(set(sales["net"])))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(frames, "load", overtaken)
        result = mixed.materialize(report, daily("2"), selection=["report"], raise_on_error=False)
    assert seen == []
    assert f"{day(2)} (3)" in failure_of(result)
    mixed.materialize(daily("2"), keys=(day(2), day(2)))
    rivals.append(daily("2"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(frames, "load", overtaken)
        assert mixed.materialize(report, daily("2"), selection=["report"]).success
    assert seen == [[2]]


def test_a_silent_change_under_one_version_is_refused_once_the_ledger_shows_it(warehouse):
    orders = partitioned_asset(partitions_def=DAYS, partition_expr="day", code_version="1", name="orders")(rows_of_day)
    warehouse.materialize(orders, keys=(day(1), day(4)))
    warehouse.materialize(of_orders(1), orders, selection=["sales"], keys=(day(1), day(4)))
    warehouse.materialize(of_orders(2), orders, selection=["sales"], keys=(day(3), day(4)))
    line = refused_read(warehouse, report(), of_orders(2), orders, selection=["report"])
    assert "2 partitions were built under another definition than 1 (cf2:" in line
    assert f"{day(1)} to {day(2)} (1 (cf2:" in line


def of_orders(factor, code_version="1", **options):
    @partitioned_asset(partitions_def=DAYS, partition_expr="day", code_version=code_version, name="sales", **options)
    def changed(orders: pd.DataFrame):
        return orders.assign(net=orders["net"] * factor)

    return changed


def rows_of_day(context):
    return pd.DataFrame({"day": [pd.Timestamp(context.partition_key)], "net": [1]})


def test_code_that_nobody_has_recorded_is_no_definition(warehouse):
    @dg.asset(partitions_def=DAYS, metadata={"partition_expr": "day"})
    def sales(context: dg.AssetExecutionContext) -> pd.DataFrame:
        return rows_of_day(context)

    warehouse.materialize(sales, key=day(1))
    line = refused_read(warehouse, report(), sales, selection=["report"])
    assert "1 partition was built by code that nobody has recorded" in line
    assert "declare a code_version" in line
    assert f"marigold launch sales --from {day(1)} --to {day(1)} --restate (its price" in line


def test_a_declaration_that_the_ledger_contradicts_does_not_help(warehouse):
    metadata = {"marigold/column_versions": {"2": {"since": "1", "columns": ["gross"]}}}
    orders = partitioned_asset(partitions_def=DAYS, partition_expr="day", code_version="1", name="orders")(rows_of_day)
    warehouse.materialize(orders, keys=(day(1), day(3)))
    warehouse.materialize(of_orders(1), orders, selection=["sales"], keys=(day(1), day(3)))
    new = of_orders(2, code_version="2", metadata=metadata)
    warehouse.materialize(new, orders, selection=["sales"], key=day(3))
    line = refused_read(warehouse, report({"columns": ["net"]}), new, orders, selection=["report"])
    assert f"{day(1)} to {day(2)} (1) (gross, net differ)" in line


@pytest.mark.parametrize("annotation", [pd.DataFrame, str, duckdb.DuckDBPyRelation])
def test_a_partition_that_reads_several_is_refused_where_they_are_mixed(mixed, annotation):
    summed = of_two_days(annotation)
    assert mixed.materialize(summed, daily("2"), selection=["summed"], keys=(day(2), day(3))).success
    assert mixed.materialize(summed, daily("2"), selection=["summed"], keys=(day(5), day(6))).success
    line = refused_read(mixed, summed, daily("2"), selection=["summed"], key=day(4))
    assert f"partition '{day(4)}'" in line
    assert f"{day(3)} (1)" in line
    accept(mixed, 3)
    result = mixed.materialize(summed, daily("2"), selection=["summed"], keys=(day(4), day(5)))
    assert result.success
    assert len(warnings_of(mixed, result.run_id)) == 1


def test_many_keys_of_one_statement_are_each_judged_by_what_they_read(mixed):
    summed = of_two_days(str, keys_per_statement=3)
    line = refused_read(mixed, summed, daily("2"), selection=["summed"], keys=(day(2), day(6)))
    assert f"{day(3)} (1)" in line


def test_an_input_in_another_database_is_judged_by_its_own_ledger(mixed, tmp_path):
    other = FencedPartitionIOManager(database=str(tmp_path / "other.duckdb"))

    @partitioned_asset(
        partitions_def=DAYS,
        partition_expr="day",
        ins={"sales": dg.AssetIn(partition_mapping=TWO_DAYS, metadata=NEEDED, input_manager_key="io_manager")},
        io_manager_key="other",
    )
    def summed(sales: pd.DataFrame):
        return pd.DataFrame({"day": [sales["day"].max()], "net": [int(sales["net"].sum())]})

    resources = {"other": other}
    assert mixed.materialize(summed, daily("2"), selection=["summed"], key=day(6), resources=resources).success
    line = refused_read(mixed, summed, daily("2"), selection=["summed"], key=day(4), resources=resources)
    assert f"{day(3)} (1)" in line


def test_the_resource_refuses_a_mixture_when_asked(mixed):
    @dg.asset(deps=[dg.AssetDep("sales", partition_mapping=ALL)])
    def report(context: dg.AssetExecutionContext, db: FencedPartitionResource) -> None:
        db.read(context, "sales", pd.DataFrame, uniform_version=True, columns=["gross"])

    resources = {"db": FencedPartitionResource(database=mixed.path)}
    options = {"selection": ["report"], "resources": resources}
    assert "3 partitions" in refused_read(mixed, report, daily("2"), **options)
    assert mixed.materialize(report, daily("2", metadata=CHANGES), **options).success
    accept(mixed, 1, 2, 3)
    assert mixed.materialize(report, daily("2"), **options).success


@pytest.mark.parametrize(
    "given", [["3"], {"3": ["net"]}, {"3": {"since": "2", "columns": "net"}}, {"3": {"columns": ["net"]}}]
)
def test_a_declaration_that_says_nothing_is_refused(mixed, given):
    upstream = daily("2", metadata={"marigold/column_versions": given})
    line = refused_read(mixed, report(), upstream, selection=["report"])
    assert "marigold/column_versions" in line
    assert '"since": "2"' in line
