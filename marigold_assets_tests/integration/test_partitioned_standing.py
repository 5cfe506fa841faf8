"""What may be left alone, and what must not be: rows that went, pasts that moved, rivals, other stores, own checks."""

from __future__ import annotations

import dagster as dg
import pandas as pd
import pytest

from marigold_assets import FencedPartitionIOManager, report
from marigold_assets.asset import partitioned_asset
from marigold_assets_tests.integration.conftest import failure_of
from marigold_assets_tests.integration.test_partitioned_asset import DAYS, Shop, config, day, days, run

pytestmark = pytest.mark.slow  # the quick tests have test_partitioned_asset.py


FIVE = (day(1), day(5))


def totals(warehouse):
    return dict(warehouse.rows("SELECT strftime(day, '%Y-%m-%d'), cents FROM public.balance ORDER BY 1"))


def built(warehouse, *, keys=FIVE, **options):
    """A shop whose orders and balances of some days are there."""
    shop = Shop(**options)
    run(warehouse, shop.orders, keys=keys)
    run(warehouse, shop.orders, shop.balance, selection=["balance"], keys=keys)
    shop.calls.clear()
    return shop


def balance(warehouse, shop, keys=FIVE, **options):
    return run(warehouse, shop.orders, shop.balance, selection=["balance"], keys=keys, **options)


EXPECTED = {day(1): 1, day(2): 3, day(3): 6, day(4): 10, day(5): 15}


@pytest.mark.parametrize("damage", ["DROP TABLE public.balance", "DELETE FROM public.balance WHERE day < '2024-01-04'"])
def test_rows_that_went_are_built_again_and_a_chain_does_not_start_anew_upon_them(warehouse, damage):
    shop = built(warehouse, early_cutoff="on")
    warehouse.rows(damage)
    result = balance(warehouse, shop, keys=(day(4), day(4)), raise_on_error=False)
    if "DROP" in damage:
        assert "in order" in failure_of(result)
    balance(warehouse, shop)
    assert totals(warehouse) == EXPECTED


def left_over(warehouse, **options):
    """A shop whose chain was cut short at day 4 by a failed run, and which would come through now."""
    shop = Shop()
    run(warehouse, shop.orders, keys=FIVE)
    shop.failing = {day(4)}
    balance(warehouse, shop, raise_on_error=False, **options)
    shop.failing = set()
    shop.calls.clear()
    return shop


def test_a_run_that_insists_builds_also_what_a_failed_run_has_left(warehouse):
    shop = left_over(warehouse)
    balance(warehouse, shop, choices=config(early_cutoff="off"))
    assert shop.called("balance") == days(1, 5)


def test_what_a_failed_run_has_left_is_taken_up_once(warehouse):
    shop = left_over(warehouse)
    for expected in (days(4, 5), days(1, 5)):
        balance(warehouse, shop)
        assert shop.called("balance") == expected


LAUNCH, OTHER, RESTATE = {"marigold/launch": "aaaaaaaa"}, {"marigold/launch": "bbbbbbbb"}, '{"restate":true}'


@pytest.mark.parametrize("before", [{}, OTHER, {**OTHER, "dagster/backfill": "other"}])
def test_a_launch_builds_also_what_a_failed_run_that_is_none_of_it_has_left(warehouse, before):
    shop = left_over(warehouse, tags=before)
    balance(warehouse, shop, tags={**LAUNCH, "dagster/backfill": "own", "marigold/request": RESTATE})
    assert shop.called("balance") == days(1, 5)


@pytest.mark.parametrize("backfill", [{}, {"dagster/backfill": "again"}])
def test_a_launch_takes_up_what_its_own_failed_runs_have_left(warehouse, backfill):
    shop = left_over(warehouse, tags={**LAUNCH, "dagster/backfill": "own"})
    balance(warehouse, shop, tags={**LAUNCH, **backfill, "marigold/request": RESTATE})
    assert shop.called("balance") == days(4, 5)


@pytest.mark.parametrize(
    ("tags", "expected", "outcome"),
    [
        ({**LAUNCH, "marigold/request": RESTATE}, days(1, 5), "confirmed"),
        ({**LAUNCH, "marigold/request": '{"lookback":3}'}, [], "unchanged"),
        ({**LAUNCH, "marigold/request": "not json"}, [], "unchanged"),
        ({"marigold/request": RESTATE}, [], "unchanged"),
    ],
)
def test_a_restatement_computes_also_what_early_cut_off_would_leave_alone(warehouse, tags, expected, outcome):
    shop = built(warehouse, early_cutoff="on")
    balance(warehouse, shop, tags=tags)
    assert shop.called("balance") == expected
    assert warehouse.events("balance", day(5))[-1][1].metadata[report.OUTCOME].value == outcome


def test_a_step_that_came_through_in_a_failed_run_is_nothing_left_over(warehouse):
    shop = Shop()
    run(warehouse, shop.orders, keys=FIVE)

    @dg.asset(deps=[shop.balance])
    def mail():
        raise RuntimeError

    both = (shop.orders, shop.balance, mail)
    assert not run(warehouse, *both, selection=["balance", "mail"], keys=FIVE, raise_on_error=False).success
    shop.calls.clear()
    balance(warehouse, shop)
    assert shop.called("balance") == days(1, 5)


def test_metadata_of_the_input_previous_leaves_it_the_own_past(warehouse):
    @partitioned_asset(
        partitions_def=Shop().orders.partitions_def,
        partition_expr="day",
        ins={"previous": dg.AssetIn(metadata={"columns": ["n"]})},
    )
    def count(context: dg.AssetExecutionContext, previous: pd.DataFrame | None):
        n = 1 if previous is None else int(previous["n"].iloc[0]) + 1
        assert previous is None or list(previous.columns) == ["n"]
        return pd.DataFrame({"day": [pd.Timestamp(context.partition_key)], "n": [n]})

    run(warehouse, count, keys=FIVE)
    assert warehouse.rows("SELECT max(n) FROM public.count") == [(5,)]


def elsewhere(warehouse, shop, tmp_path, **options):
    other = FencedPartitionIOManager(database=str(tmp_path / "other.duckdb"))

    @partitioned_asset(
        partitions_def=shop.orders.partitions_def, partition_expr="day", io_manager_key="other", code_version="1"
    )
    def rates(context: dg.AssetExecutionContext):
        return pd.DataFrame({"day": [pd.Timestamp(context.partition_key)], "rate": [shop.amounts.get("rate", 2)]})

    return other, rates


def test_an_input_of_another_file_is_missed_and_known_by_its_ledger(warehouse, tmp_path):
    shop = Shop()
    other, rates = elsewhere(warehouse, shop, tmp_path)
    calls = []

    @partitioned_asset(
        partitions_def=shop.orders.partitions_def,
        partition_expr="day",
        ins={"rates": dg.AssetIn(input_manager_key="other")},
        early_cutoff="on",
    )
    def priced(context: dg.AssetExecutionContext, rates: pd.DataFrame):
        calls.append(context.partition_key)
        return rates

    def materialize(*selection, keys, **options):
        return dg.materialize(
            [rates, priced],
            selection=list(selection),
            instance=warehouse.instance,
            resources={"io_manager": warehouse.io_manager(), "other": other},
            tags={"dagster/asset_partition_range_start": keys[0], "dagster/asset_partition_range_end": keys[1]},
            run_config={"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}},
            **options,
        )

    materialize("rates", keys=(day(1), day(2)))
    result = materialize("priced", keys=(day(1), day(3)), raise_on_error=False)
    assert f"its partition '{day(3)}' was never materialized" in failure_of(result)
    assert calls == days(1, 2)
    materialize("priced", keys=(day(1), day(2)))
    assert calls == days(1, 2)
    shop.amounts["rate"] = 3
    materialize("rates", keys=(day(2), day(2)))
    materialize("priced", keys=(day(1), day(2)))
    assert calls == [*days(1, 2), day(2)]


def test_a_mere_dependency_in_another_io_manager_is_not_looked_up_here(warehouse, tmp_path):
    shop = Shop()
    other, rates = elsewhere(warehouse, shop, tmp_path)
    calls = []

    @partitioned_asset(partitions_def=shop.orders.partitions_def, partition_expr="day", deps=[rates], early_cutoff="on")
    def priced(context: dg.AssetExecutionContext):
        calls.append(context.partition_key)
        return pd.DataFrame({"day": [pd.Timestamp(context.partition_key)]})

    for _ in range(2):
        dg.materialize(
            [rates, priced],
            selection=["priced"],
            instance=warehouse.instance,
            resources={"io_manager": warehouse.io_manager(), "other": other},
            partition_key=day(1),
        )
    assert calls == [day(1), day(1)]


def test_a_partition_that_somebody_has_built_meanwhile_is_not_reported_as_it_was(warehouse):
    shop = built(warehouse, early_cutoff="on")
    shop.amounts = {day(1): 7}
    run(warehouse, shop.orders, keys=(day(1), day(1)))
    rival = Shop(version="2")
    rival.amounts = {day(3): 100}

    class Slow(dg.ConfigurableResource):
        def wait(self):
            run(warehouse, rival.orders, keys=(day(3), day(3)))

    @partitioned_asset(partitions_def=shop.orders.partitions_def, partition_expr="day", early_cutoff="on")
    def slow(context: dg.AssetExecutionContext, orders: pd.DataFrame, previous: pd.DataFrame | None):
        if context.partition_key == day(1) and shop.failing:
            run(warehouse, shop.orders, other_slow(), selection=["slow"], keys=(day(2), day(5)))
        return orders

    def other_slow():
        @partitioned_asset(
            name="slow", partitions_def=shop.orders.partitions_def, partition_expr="day", code_version="2"
        )
        def again(orders: pd.DataFrame, previous: pd.DataFrame | None):
            return orders.assign(cents=orders["cents"] + 1)

        return again

    run(warehouse, shop.orders, slow, selection=["slow"], keys=FIVE)
    shop.amounts = {day(1): 8}
    run(warehouse, shop.orders, keys=(day(1), day(1)))
    # A look that is older than what a rival writes while day 1 is computed.
    shop.failing = {"now"}
    result = run(warehouse, shop.orders, slow, selection=["slow"], keys=FIVE, raise_on_error=False)
    assert "superseded" in failure_of(result)
    store = warehouse.io_manager().store
    heads = store.heads(store.ledger()[-1].table)
    for key in days(2, 5):
        _, event = warehouse.events("slow", key)[-1]
        assert event.tags["dagster/data_version"] == heads[key].content_hash


@pytest.mark.parametrize("strict", [True, False])
def test_what_is_restated_while_a_chain_is_built_upon_it_is_told_at_the_end(warehouse, strict):
    shop, meanwhile = Shop(), []
    run(warehouse, shop.orders, keys=FIVE)

    @partitioned_asset(partitions_def=shop.orders.partitions_def, partition_expr="day", strict=strict)
    def chain(context: dg.AssetExecutionContext, orders: pd.DataFrame, previous: pd.DataFrame | None):
        if context.partition_key == day(4):
            while meanwhile:
                meanwhile.pop()()
        return orders.head(1)

    shop.amounts = {day(2): 7, day(5): 8}
    meanwhile.append(lambda: run(warehouse, shop.orders, keys=(day(2), day(5))))
    result = run(warehouse, shop.orders, chain, selection=["chain"], keys=FIVE, raise_on_error=False)
    said = [log.user_message for log in warehouse.instance.all_logs(result.run_id)]
    if strict:
        said = [failure_of(result)]
    assert result.success is not strict
    assert any(f"'{day(2)}'" in text and "restated" in text and "chain" in text for text in said), said
    assert [event.partition for _, event in warehouse.events("chain")] == days(1, 5)


def test_the_own_past_that_is_built_anew_while_a_chain_goes_on_is_told_at_the_end(warehouse):
    meanwhile = []

    @partitioned_asset(partitions_def=DAYS, partition_expr="day")
    def chain(context: dg.AssetExecutionContext, previous: pd.DataFrame | None):
        while meanwhile and context.partition_key == day(4):
            meanwhile.pop()()
        before = 0 if previous is None else int(previous["cents"].iloc[0])
        return pd.DataFrame({"day": [pd.Timestamp(context.partition_key)], "cents": [before + state["step"]]})

    state = {"step": 1}
    run(warehouse, chain, keys=(day(1), day(2)))

    def restate():
        state["step"] = 10
        run(warehouse, chain, keys=(day(1), day(2)), choices={"ops": {"chain": {"config": {"early_cutoff": "off"}}}})

    meanwhile.append(restate)
    result = run(warehouse, chain, keys=(day(3), day(5)))
    said = [log.user_message for log in warehouse.instance.all_logs(result.run_id)]
    assert any(f"chain '{day(2)}' as it was before it was restated" in text for text in said), said


def test_an_input_that_is_restated_meanwhile_is_seen_before_a_partition_is_left_alone(warehouse):
    shop, meanwhile = Shop(), []
    run(warehouse, shop.orders, keys=FIVE)

    @partitioned_asset(partitions_def=shop.orders.partitions_def, partition_expr="day", early_cutoff="on")
    def copied(context: dg.AssetExecutionContext, orders: pd.DataFrame):
        while meanwhile:
            meanwhile.pop()()
        return orders

    run(warehouse, shop.orders, copied, selection=["copied"], keys=FIVE)
    shop.amounts = {day(1): 7}
    run(warehouse, shop.orders, keys=(day(1), day(1)))
    shop.amounts = {day(4): 100}
    meanwhile.append(lambda: run(warehouse, shop.orders, keys=(day(4), day(4))))
    run(warehouse, shop.orders, copied, selection=["copied"], keys=FIVE)
    assert warehouse.rows(f"SELECT max(cents) FROM public.copied WHERE day = '{day(4)}'") == [(100,)]
    outcomes = [warehouse.events("copied", key)[-1][1].metadata[report.OUTCOME].value for key in days(1, 5)]
    assert outcomes == ["swapped", "unchanged", "unchanged", "swapped", "unchanged"]


@pytest.mark.parametrize("strict", [False, True])
def test_a_chain_whose_calendar_begins_later_says_that_it_starts_anew(warehouse, strict):
    built(warehouse)
    later = dg.DailyPartitionsDefinition(day(3), end_date="2024-02-01")

    @partitioned_asset(name="balance", partitions_def=later, partition_expr="day", strict=strict, code_version="1")
    def anew(context: dg.AssetExecutionContext, previous: pd.DataFrame | None):
        return pd.DataFrame({"day": [pd.Timestamp(context.partition_key)], "cents": [1]})

    result = run(warehouse, anew, keys=(day(3), day(4)), raise_on_error=False)
    assert result.success is not strict
    if strict:
        assert day(2) in failure_of(result)
    else:
        assert day(2) in warehouse.events("balance", day(3))[-1][1].metadata["marigold/stale_previous"].value


def test_strict_looks_at_the_past_also_behind_partitions_that_are_left_alone(warehouse):
    shop = built(warehouse, strict=True, early_cutoff="on")
    shop.amounts = {day(1): 5, day(5): 5}
    run(warehouse, shop.orders, keys=FIVE)
    result = balance(warehouse, shop, keys=(day(3), day(5)), raise_on_error=False)
    assert day(1) in failure_of(result)
    assert totals(warehouse) == EXPECTED


def test_an_input_that_was_allowed_to_be_missing_and_came_later_is_restated(warehouse):
    shop = Shop()

    @partitioned_asset(
        partitions_def=shop.orders.partitions_def,
        partition_expr="day",
        ins={"orders": dg.AssetIn(metadata={"marigold/allow_missing": True})},
    )
    def loose(context: dg.AssetExecutionContext, orders: pd.DataFrame, previous: pd.DataFrame | None):
        return pd.DataFrame({"day": [pd.Timestamp(context.partition_key)], "n": [len(orders)]})

    run(warehouse, shop.orders, keys=(day(1), day(1)))
    run(warehouse, shop.orders, loose, selection=["loose"], keys=(day(1), day(2)))
    run(warehouse, shop.orders, keys=(day(2), day(3)))
    run(warehouse, shop.orders, loose, selection=["loose"], keys=(day(3), day(3)))
    _, event = warehouse.events("loose", day(3))[-1]
    assert "before that was materialized" in event.metadata["marigold/stale_previous"].value


def test_an_input_that_is_not_declared_with_its_partitions_is_refused(warehouse):
    shop = Shop()
    run(warehouse, shop.orders, keys=FIVE)

    @partitioned_asset(partitions_def=shop.orders.partitions_def, partition_expr="day")
    def sums(context: dg.AssetExecutionContext, orders: pd.DataFrame):
        return pd.DataFrame({"day": [pd.Timestamp(context.partition_key)], "n": [len(orders)]})

    for others in ([], [dg.AssetSpec("orders")]):
        result = run(warehouse, sums, *others, keys=(day(1), day(2)), selection=["sums"], raise_on_error=False)
        assert "partitions_def" in failure_of(result)
        assert "orders" in failure_of(result)


def test_names_that_the_package_reports_by_are_its_own(warehouse):
    @partitioned_asset(partitions_def=Shop().orders.partitions_def, partition_expr="day")
    def mine(context: dg.AssetExecutionContext):
        return dg.MaterializeResult(
            value=pd.DataFrame({"day": [pd.Timestamp(context.partition_key)]}),
            tags={"dagster/data_version": "x", report.SWAP_ID: "x", "mine": "x"},
            metadata={report.CONTENT_HASH: "x", "mine": "x"},
        )

    run(warehouse, mine, keys=(day(1), day(1)))
    [(_, event)] = warehouse.events("mine")
    [entry] = warehouse.io_manager().store.ledger()
    assert event.tags["dagster/data_version"] == entry.content_hash == event.metadata[report.CONTENT_HASH].value
    assert event.tags[report.SWAP_ID] == entry.swap_id
    assert event.tags["mine"] == event.metadata["mine"].value == "x"


def test_the_past_of_a_chain_of_several_dimensions_is_its_own_line(warehouse):
    both = dg.MultiPartitionsDefinition(
        {"day": Shop().orders.partitions_def, "store": dg.StaticPartitionsDefinition(["a", "b"])}
    )
    amounts = {"a": 1, "b": 1}

    def multi(**options):
        return partitioned_asset(
            partitions_def=both, partition_expr={"day": "day", "store": "store"}, code_version="1", **options
        )

    @multi()
    def source(context: dg.AssetExecutionContext):
        key = context.multi_partition_key.keys_by_dimension
        return pd.DataFrame({"day": [pd.Timestamp(key["day"])], "store": [key["store"]], "n": [amounts[key["store"]]]})

    @multi(strict=True)
    def line(source: pd.DataFrame, previous: pd.DataFrame | None):
        return source

    def build(asset, number, store):
        key = dg.MultiPartitionKey({"day": day(number), "store": store})
        return dg.materialize(
            [source, line],
            selection=[asset],
            partition_key=key,
            instance=warehouse.instance,
            resources={"io_manager": warehouse.io_manager()},
            raise_on_error=False,
        )

    for number in (1, 2):
        for store in ("a", "b"):
            assert build("source", number, store).success
            assert number == 2 or build("line", number, store).success
    amounts["a"] = 2
    assert build("source", 1, "a").success
    assert not build("line", 2, "a").success
    assert build("line", 2, "b").success


def test_an_asset_with_checks_of_its_own_evaluates_every_partition_of_a_run(warehouse):
    calls, failing = [], set()

    @partitioned_asset(
        partitions_def=Shop().orders.partitions_def,
        partition_expr="day",
        early_cutoff="on",
        check_specs=[dg.AssetCheckSpec("positive", asset="checked")],
        retry_policy=dg.RetryPolicy(max_retries=1),
    )
    def checked(context: dg.AssetExecutionContext, orders: pd.DataFrame):
        calls.append(context.partition_key)
        if context.partition_key in failing:
            failing.clear()
            raise RuntimeError
        passed = context.partition_key != day(1)
        return dg.MaterializeResult(value=orders, check_results=[dg.AssetCheckResult(passed=passed)])

    shop = Shop()
    run(warehouse, shop.orders, keys=(day(1), day(3)))
    failing.add(day(3))
    for _ in range(2):
        result = run(warehouse, shop.orders, checked, selection=["checked"], keys=(day(1), day(3)))
        last = result.get_asset_check_evaluations()[-1]
        assert not last.passed
        assert last.metadata["marigold/failed_partitions"].value == [day(1)]
    assert calls == [*days(1, 3), *days(1, 3), *days(1, 3)]


def test_a_declared_check_without_a_result_keeps_the_rows_out(warehouse):
    @partitioned_asset(
        partitions_def=Shop().orders.partitions_def,
        partition_expr="day",
        check_specs=[dg.AssetCheckSpec("positive", asset="checked", blocking=True)],
    )
    def checked(context: dg.AssetExecutionContext):
        return pd.DataFrame({"day": [pd.Timestamp(context.partition_key)]})

    result = run(warehouse, checked, keys=(day(1), day(1)), raise_on_error=False)
    assert "no result of check 'positive'" in failure_of(result)
    assert not warehouse.events("checked")
