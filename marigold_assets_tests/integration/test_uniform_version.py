"""The asset check that all partitions of an asset were built under one definition."""

# No `from __future__ import annotations` here: Dagster compares annotations with its classes.

import dagster as dg
import pandas as pd
import pytest

from marigold_assets import FencedPartitionResource, build_uniform_version_check, partitioned_asset
from marigold_assets.errors import ConfigurationError
from marigold_assets_tests.integration.conftest import failure_of

pytestmark = pytest.mark.slow

ONE_RUN = dg.BackfillPolicy.single_run()
DAYS = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-01-16")


def day(number):
    return f"2024-01-{number:02d}"


def daily(version="1", policy=ONE_RUN):
    @partitioned_asset(partitions_def=DAYS, partition_expr="day", code_version=version, backfill_policy=policy)
    def sales(context: dg.AssetExecutionContext):
        return pd.DataFrame({"day": [pd.Timestamp(context.partition_key)], "cents": [1]})

    return sales


def build(warehouse, version, first, last):
    warehouse.materialize(daily(version), keys=(day(first), day(last)))


def checked(warehouse, asset, *, tags=None, **options):
    check = build_uniform_version_check(asset=asset, **options)
    job = dg.define_asset_job("only_the_check", selection=dg.AssetSelection.checks(check))
    resources = {"io_manager": warehouse.io_manager()}
    defs = dg.Definitions([asset], asset_checks=[check], jobs=[job], resources=resources)
    ran = defs.resolve_job_def("only_the_check").execute_in_process(instance=warehouse.instance, tags=tags)
    [evaluation] = ran.get_asset_check_evaluations()
    return evaluation


def test_partitions_of_one_version_pass(warehouse):
    build(warehouse, "1", 1, 5)
    evaluation = checked(warehouse, daily("1"))
    assert evaluation.passed
    assert evaluation.description == "all under 1"
    assert evaluation.metadata["marigold/partitions"].value == 5


def test_a_mixture_fails_and_says_which_partitions_are_odd_and_how_to_rebuild_them(warehouse):
    build(warehouse, "1", 1, 3)
    build(warehouse, "2", 4, 9)
    build(warehouse, "1", 7, 7)
    evaluation = checked(warehouse, daily("2"))
    assert not evaluation.passed
    assert evaluation.metadata["marigold/odd_partitions"].value == 4
    for text in (
        f"{day(1)} to {day(3)} (1)",
        f"marigold launch sales --from {day(1)} --to {day(3)};",
        f"marigold launch sales --from {day(7)} --to {day(7)} (its price: 'marigold plan'",
        f"accept sales --range {day(1)}...{day(3)} --range {day(7)}...{day(7)} --reason TEXT",
    ):
        assert text in evaluation.description
    records = [record.data for record in evaluation.metadata["marigold/definitions"].records]
    assert [(record["definition"], record["partitions"]) for record in records] == [
        *(("1", 3), ("2", 3), ("1", 1), ("2", 2), ("not built", 6)),
    ]
    build(warehouse, "2", 1, 3)
    build(warehouse, "2", 7, 7)
    assert checked(warehouse, daily("2")).passed


def test_partitions_of_the_present_version_are_never_the_odd_ones(warehouse):
    build(warehouse, "1", 1, 8)
    build(warehouse, "2", 2, 2)
    assert checked(warehouse, daily("2")).metadata["marigold/odd_partitions"].value == 7
    assert checked(warehouse, daily("3")).metadata["marigold/odd_partitions"].value == 7


def test_where_no_version_is_declared_the_code_counts(warehouse):
    def of_code(cents):
        @partitioned_asset(partitions_def=DAYS, partition_expr="day")
        def sales(context: dg.AssetExecutionContext):
            return pd.DataFrame({"day": [pd.Timestamp(context.partition_key)], "cents": [cents]})

        return sales

    warehouse.materialize(of_code(1), keys=(day(1), day(3)))
    assert checked(warehouse, of_code(1)).passed
    assert checked(warehouse, of_code(2)).passed
    warehouse.materialize(of_code(2), keys=(day(3), day(3)))
    evaluation = checked(warehouse, of_code(1))
    assert evaluation.metadata["marigold/odd_partitions"].value == 1
    assert f"{day(3)}...{day(3)}" in evaluation.description


def test_an_asset_that_was_never_built_passes_and_says_so(warehouse):
    evaluation = checked(warehouse, daily())
    assert evaluation.passed
    assert "no partition" in evaluation.description


def test_partitions_that_are_gone_from_the_definition_do_not_count(warehouse):
    build(warehouse, "1", 1, 5)

    @partitioned_asset(
        partitions_def=dg.DailyPartitionsDefinition(day(4), end_date=day(9)), partition_expr="day", code_version="2"
    )
    def sales(context: dg.AssetExecutionContext):
        return pd.DataFrame({"day": [pd.Timestamp(context.partition_key)], "cents": [1]})

    assert checked(warehouse, sales).metadata["marigold/partitions"].value == 2


def test_in_a_run_of_a_backfill_which_may_be_rebuilding_the_others_a_mixture_only_warns(warehouse):
    build(warehouse, "1", 1, 3)
    build(warehouse, "2", 1, 1)
    assert checked(warehouse, daily("2")).severity is dg.AssetCheckSeverity.ERROR
    amid = checked(warehouse, daily("2"), tags={"dagster/backfill": "abcdefgh"})
    assert (amid.passed, amid.severity) == (False, dg.AssetCheckSeverity.WARN)
    assert amid.metadata["marigold/odd_partitions"].value == 2


@pytest.mark.parametrize("blocking", [True, False])
def test_a_blocking_check_keeps_what_is_behind_from_being_built_in_the_same_run(warehouse, blocking):
    build(warehouse, "1", 1, 3)
    sales = daily("2", policy=None)

    @partitioned_asset(partitions_def=DAYS, partition_expr="day")
    def report(sales: pd.DataFrame):
        return sales

    check = build_uniform_version_check(asset=sales, blocking=blocking)
    warehouse.materialize(sales, report, check, keys=(day(4), day(5)), raise_on_error=False)
    assert len(warehouse.events("sales", day(5))) == 1
    assert len(warehouse.events("report", day(5))) == (0 if blocking else 1)


def test_columns_that_the_table_does_not_have_and_rows_of_another_tool_do_not_pass(warehouse):
    build(warehouse, "1", 1, 3)
    assert checked(warehouse, daily("1"), columns=["CENTS"]).passed
    with pytest.raises(ConfigurationError, match=r"'nonsuch', which the table does not have. Remedy: name some of day"):
        checked(warehouse, daily("1"), columns=["nonsuch"])
    warehouse.rows("INSERT INTO public.sales VALUES (TIMESTAMP '2024-01-09', 1)")
    evaluation = checked(warehouse, daily("1"))
    assert not evaluation.passed
    assert evaluation.description == "the table has 4 rows, and the ledger knows of 3"
    warehouse.rows("DROP TABLE public.sales")
    assert checked(warehouse, daily("1")).description == "there is no table, and the ledger knows of 3 rows"


def test_days_that_were_never_built_are_in_no_remedy(warehouse):
    build(warehouse, "1", 1, 1)
    build(warehouse, "1", 3, 3)
    build(warehouse, "2", 4, 4)
    evaluation = checked(warehouse, daily("2"))
    assert f"--range {day(1)}...{day(1)} --range {day(3)}...{day(3)}" in evaluation.description
    assert f"--from {day(1)} --to {day(1)}; marigold launch sales --from {day(3)} --to" in evaluation.description


def test_an_asset_that_writes_through_the_resource_is_checked_by_it(warehouse):
    @dg.asset(partitions_def=DAYS, metadata={"partition_expr": "day"}, code_version="1")
    def sales(context, warehouse: FencedPartitionResource):
        rows = pd.DataFrame({"day": [pd.Timestamp(context.partition_key)], "cents": [1]})
        return warehouse.swap(context, rows)

    resources = {"warehouse": FencedPartitionResource(database=warehouse.path)}
    check = build_uniform_version_check(asset=sales, io_manager_key="warehouse")
    result = warehouse.materialize(sales, check, key=day(1), resources=resources)
    [evaluation] = result.get_asset_check_evaluations()
    assert (evaluation.passed, evaluation.description) == (True, "all under 1")


def test_other_assets_and_other_io_managers_are_refused(warehouse):
    @dg.asset
    def whole():
        return 1

    with pytest.raises(ConfigurationError, match=r"asset 'whole'.*one asset with partitions"):
        build_uniform_version_check(asset=whole)
    check = build_uniform_version_check(asset=daily(), io_manager_key="files")
    resources = {"files": dg.mem_io_manager}
    result = warehouse.materialize(daily(), check, keys=(day(1), day(1)), resources=resources, raise_on_error=False)
    assert "keeps no ledger" in failure_of(result)
