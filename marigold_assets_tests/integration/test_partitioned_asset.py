"""``@partitioned_asset``: one key, a range and a chain, each swapped, recorded and reported key by key."""

from __future__ import annotations

import warnings

import dagster as dg
import duckdb
import pandas as pd
import polars as pl
import pytest

from marigold_assets import report
from marigold_assets.asset import partitioned_asset
from marigold_assets.errors import ConfigurationError
from marigold_assets_tests.integration.conftest import failure_of

DAYS = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-02-01")
MONTH = ("2024-01-01", "2024-01-31")


class Shop:
    """A small chain of assets whose function calls are noted, and whose rows a test can change."""

    def __init__(self, *, version="1", **options):
        self.calls = []
        self.amounts = {}
        self.failing = set()
        shop = self

        @partitioned_asset(partitions_def=DAYS, partition_expr="day", code_version="1")
        def orders(context: dg.AssetExecutionContext) -> pd.DataFrame:
            shop.calls.append(("orders", context.partition_key))
            day = pd.Timestamp(context.partition_key)
            return pd.DataFrame({"day": day, "cents": [day.day, shop.amounts.get(context.partition_key, 0)]})

        @partitioned_asset(partitions_def=DAYS, partition_expr="day", code_version=version, **options)
        def balance(
            context: dg.AssetExecutionContext, orders: pl.DataFrame, previous: pl.DataFrame | None
        ) -> pl.DataFrame:
            shop.calls.append(("balance", context.partition_key))
            if context.partition_key in shop.failing:
                raise RuntimeError("the till is closed")
            before = 0 if previous is None else previous["cents"].item()
            day = pd.Timestamp(context.partition_key).to_pydatetime()
            return pl.DataFrame({"day": [day], "cents": [before + orders["cents"].sum()]})

        self.orders, self.balance = orders, balance

    def called(self, name):
        """The keys that a function was called for since somebody last asked."""
        found = [key for asset, key in self.calls if asset == name]
        self.calls = [call for call in self.calls if call[0] != name]
        return found


def day(number):
    return f"2024-01-{number:02d}"


def days(first, last):
    return [day(number) for number in range(first, last + 1)]


def config(asset="balance", **choices):
    quiet = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
    return {**quiet, "ops": {asset: {"config": choices}}}


def run(warehouse, *assets, keys=MONTH, choices=None, **options):
    tags = {"dagster/asset_partition_range_start": keys[0], "dagster/asset_partition_range_end": keys[1]}
    return dg.materialize(
        list(assets),
        instance=warehouse.instance,
        resources={"io_manager": warehouse.io_manager()},
        tags={**tags, **options.pop("tags", {})},
        run_config=choices or {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}},
        raise_on_error=options.pop("raise_on_error", True),
        **options,
    )


def balances(warehouse):
    return dict(warehouse.rows("SELECT strftime(day, '%Y-%m-%d'), cents FROM public.balance"))


def expected(amounts=None):
    total, found = 0, {}
    for number in range(1, 32):
        total += number + (amounts or {}).get(day(number), 0)
        found[day(number)] = total
    return found


@pytest.mark.slow
def test_a_range_run_calls_the_function_key_by_key_and_reports_every_key_by_itself(warehouse):
    shop = Shop()
    run(warehouse, shop.orders)
    assert shop.called("orders") == days(1, 31)
    events = warehouse.events("orders")
    assert [event.partition for _, event in events] == days(1, 31)
    ledger = {e.partition_key: e for e in warehouse.io_manager().store.ledger()}
    for _, event in events:
        entry = ledger[event.partition]
        assert event.metadata["dagster/partition_row_count"].value == 2
        assert event.tags["dagster/data_version"] == entry.content_hash
        assert event.tags["dagster/code_version"] == entry.provenance.code_version == "1"
        assert event.tags[report.SWAP_ID] == entry.swap_id
        assert event.metadata[report.TOKEN].value == entry.token
    assert len({e.content_hash for e in ledger.values()}) == 31
    assert len({e.swap_id for e in ledger.values()}) == 31


@pytest.mark.slow
def test_a_chain_is_built_in_order_within_one_run(warehouse):
    shop = Shop()
    run(warehouse, shop.orders)
    run(warehouse, shop.balance, shop.orders, selection=["balance"])
    assert shop.called("balance") == days(1, 31)
    assert balances(warehouse) == expected()
    head = warehouse.io_manager().store.ledger()[-1]
    own = {(one.owner, one.partition_key): one.content_hash for one in head.provenance.inputs}
    hashes = {(e.owner, e.partition_key): e.content_hash for e in warehouse.io_manager().store.ledger()}
    assert own == {("orders", day(31)): hashes["orders", day(31)], ("balance", day(30)): hashes["balance", day(30)]}


@pytest.mark.slow
def test_a_chain_out_of_order_fails_at_once_with_the_right_button_and_succeeds_in_order(warehouse):
    shop = Shop()
    run(warehouse, shop.orders)
    both = (shop.orders, shop.balance)
    result = run(warehouse, *both, selection=["balance"], keys=(day(5), day(6)), raise_on_error=False)
    first = failure_of(result).splitlines()[0]
    for word in (
        "balance",
        day(5),
        f"marigold launch balance --from {day(1)} --to {day(5)}",
        "in order",
        "asset's own page",
    ):
        assert word in first
    assert not shop.called("balance")
    assert not warehouse.events("balance")
    run(warehouse, *both, selection=["balance"], keys=(day(1), day(4)))
    run(warehouse, *both, selection=["balance"], keys=(day(5), day(31)))
    assert balances(warehouse) == expected()


@pytest.mark.slow
def test_a_failure_keeps_what_is_built_and_a_reexecution_continues_there(warehouse):
    shop = Shop()
    run(warehouse, shop.orders)
    both, only = (shop.orders, shop.balance), {"selection": ["balance"]}
    shop.failing = {day(10)}
    failed = run(warehouse, *both, **only, raise_on_error=False)
    assert not failed.success
    assert shop.called("balance") == days(1, 10)
    assert [event.partition for _, event in warehouse.events("balance")] == days(1, 9)
    shop.failing = set()
    stamps = warehouse.rows("SELECT committed_at FROM marigold.ledger WHERE owner = 'balance' ORDER BY position")
    run(warehouse, *both, **only)  # the same code over the same inputs, after a failed run
    assert shop.called("balance") == days(10, 31)
    assert balances(warehouse) == expected()
    after = warehouse.rows("SELECT committed_at FROM marigold.ledger WHERE owner = 'balance' ORDER BY position")
    assert after[:9] == stamps
    outcomes = [e.metadata[report.OUTCOME].value for _, e in warehouse.events("balance")]
    assert outcomes == ["swapped"] * 9 + ["unchanged"] * 9 + ["swapped"] * 22


@pytest.mark.slow
def test_what_a_failed_run_has_built_is_built_anew_once_a_retry_of_it_has_come_through(warehouse):
    shop = Shop()
    both, only = (shop.orders, shop.balance), {"selection": ["balance"], "keys": (day(1), day(4))}
    run(warehouse, shop.orders, keys=only["keys"])
    shop.failing = {day(3)}
    failed = run(warehouse, *both, **only, raise_on_error=False)
    shop.failing = set()
    run(warehouse, *both, **only, tags={"dagster/root_run_id": failed.run_id})
    assert shop.called("balance") == [*days(1, 3), *days(3, 4)]
    run(warehouse, *both, **only)
    assert shop.called("balance") == days(1, 4)


@pytest.mark.slow
def test_a_success_is_repeated_in_full_unless_early_cut_off_says_otherwise(warehouse):
    shop = Shop()
    both = (shop.orders, shop.balance)
    run(warehouse, *both, selection=["orders"])
    run(warehouse, *both, selection=["balance"])
    shop.calls.clear()
    run(warehouse, *both, selection=["balance"])
    assert shop.called("balance") == days(1, 31)
    run(warehouse, *both, selection=["balance"], choices=config(early_cutoff="on"))
    assert shop.called("balance") == []
    assert [e.metadata[report.OUTCOME].value for _, e in warehouse.events("balance")][-31:] == ["unchanged"] * 31


@pytest.mark.slow
def test_a_restated_day_is_rebuilt_and_the_chain_stops_where_nothing_changes_any_more(warehouse):
    shop = Shop(early_cutoff="on")
    both = (shop.orders, shop.balance)
    run(warehouse, *both, selection=["orders"])
    run(warehouse, *both, selection=["balance"])
    shop.calls.clear()
    shop.amounts = {day(10): 7, day(20): -7}
    run(warehouse, *both, selection=["orders"])
    run(warehouse, *both, selection=["balance"])
    assert shop.called("balance") == days(10, 20)
    assert balances(warehouse) == expected(shop.amounts)


@pytest.mark.slow
def test_a_day_that_comes_out_the_same_is_confirmed_and_not_swapped(warehouse):
    shop = Shop()
    run(warehouse, shop.orders)
    before = warehouse.dump()['"public"."orders"']
    run(warehouse, shop.orders, choices=config("orders", early_cutoff="on"))
    assert shop.called("orders") == days(1, 31) * 2  # it reads nothing that could tell whether it would change
    entries = warehouse.io_manager().store.ledger()
    assert [e.confirmed for e in entries] == [False] * 31 + [True] * 31
    assert warehouse.dump()['"public"."orders"'] == before
    events = warehouse.events("orders")[31:]
    assert {e.metadata[report.OUTCOME].value for _, e in events} == {"confirmed"}


@pytest.mark.slow
def test_verify_refuses_to_overwrite_what_differs_and_names_the_column(warehouse):
    shop = Shop()
    run(warehouse, shop.orders)
    run(warehouse, shop.orders, choices=config("orders", early_cutoff="verify"))
    shop.amounts = {day(4): 9}
    before = warehouse.rows("FROM public.orders ORDER BY ALL")
    result = run(warehouse, shop.orders, choices=config("orders", early_cutoff="verify"), raise_on_error=False)
    first = failure_of(result).splitlines()[0]
    assert "orders" in first
    assert day(4) in first
    assert "cents" in first
    assert warehouse.rows("FROM public.orders ORDER BY ALL") == before


@pytest.mark.slow
def test_other_code_is_recorded_and_rebuilds_although_inputs_are_the_same(warehouse):
    shop = Shop()
    both = (shop.orders, shop.balance)
    run(warehouse, *both, selection=["orders"])
    run(warehouse, *both, selection=["balance"])
    newer = Shop(version="2", early_cutoff="on")
    run(warehouse, newer.orders, newer.balance, selection=["balance"], keys=(day(1), day(3)))
    assert newer.called("balance") == days(1, 3)
    heads = warehouse.io_manager().store.heads(warehouse.io_manager().store.ledger()[-1].table)
    assert {key: heads[key].provenance.code_version for key in days(2, 5)} == {
        day(2): "2",
        day(3): "2",
        day(4): "1",
        day(5): "1",
    }


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.slow
def test_a_past_that_was_restated_is_reported_and_refused_in_strict_mode(warehouse, strict):
    shop = Shop(strict=strict)
    both = (shop.orders, shop.balance)
    run(warehouse, *both, selection=["orders"])
    run(warehouse, *both, selection=["balance"], keys=(day(1), day(10)))
    shop.amounts = {day(3): 5}
    run(warehouse, shop.orders, keys=(day(3), day(3)))
    result = run(warehouse, *both, selection=["balance"], keys=(day(11), day(12)), raise_on_error=False)
    assert result.success is not strict
    if strict:
        assert day(3) in failure_of(result)
        assert "build the chain again" in failure_of(result)
        assert warehouse.events("balance", day(11)) == []
    else:
        [(_, event)] = warehouse.events("balance", day(11))
        assert day(3) in event.metadata["marigold/stale_previous"].value
        [(_, later)] = warehouse.events("balance", day(12))
        assert later.metadata["marigold/stale_previous"] == event.metadata["marigold/stale_previous"]


@pytest.mark.slow
def test_a_past_of_other_code_is_reported(warehouse):
    shop = Shop()
    run(warehouse, shop.orders)
    run(warehouse, shop.orders, shop.balance, selection=["balance"], keys=(day(1), day(3)))
    newer = Shop(version="2")
    run(warehouse, newer.orders, newer.balance, selection=["balance"], keys=(day(4), day(4)))
    [(_, event)] = warehouse.events("balance", day(4))
    assert "'1'" in event.metadata["marigold/stale_previous"].value


class SqlShop:
    """The same assets over SQL text or relations."""

    def __init__(self, kind, **options):
        self.calls = []
        shop = self

        @partitioned_asset(partitions_def=DAYS, partition_expr="day", code_version="1")
        def orders(context: dg.AssetExecutionContext) -> pd.DataFrame:
            at = pd.Timestamp(context.partition_key)
            return pd.DataFrame({"day": at, "cents": [at.day, 0]})

        if kind is str:

            def daily(context, orders):
                shop.calls.append(tuple(context.partition_keys))
                return f"SELECT day, sum(cents)::BIGINT AS cents FROM ({orders}) GROUP BY ALL"

            def balance(daily, previous):
                before = "0" if previous is None else f"(SELECT cents FROM ({previous}))"
                return f"SELECT day, cents + {before} AS cents FROM ({daily})"

        else:

            def daily(context, orders):
                shop.calls.append(tuple(context.partition_keys))
                return orders.aggregate("day, sum(cents)::BIGINT AS cents")

            def balance(daily, previous):
                if previous is None:
                    return daily
                return daily.cross(previous.project("cents AS before")).project("day, cents + before AS cents")

        daily.__annotations__ = {"context": dg.AssetExecutionContext, "orders": kind}
        balance.__annotations__ = {"daily": kind, "previous": kind}
        self.orders = orders
        self.daily = partitioned_asset(partitions_def=DAYS, partition_expr="day", **options)(daily)
        self.balance = partitioned_asset(partitions_def=DAYS, partition_expr="day")(balance)


@pytest.mark.parametrize("kind", [str, duckdb.DuckDBPyRelation])
@pytest.mark.slow
def test_sql_and_relations_give_what_frames_give_with_the_same_record(warehouse, kind):
    shop = SqlShop(kind)
    every = (shop.orders, shop.daily, shop.balance)
    for name in ("orders", "daily", "balance"):
        run(warehouse, *every, selection=[name])
    assert shop.calls == [(key,) for key in days(1, 31)]
    assert balances(warehouse) == expected()
    store = warehouse.io_manager().store
    head = store.ledger()[-1]
    hashes = {(e.owner, e.partition_key): e.content_hash for e in store.ledger()}
    assert {(one.owner, one.partition_key): one.content_hash for one in head.provenance.inputs} == {
        ("daily", day(31)): hashes["daily", day(31)],
        ("balance", day(30)): hashes["balance", day(30)],
    }
    assert [e.partition for _, e in warehouse.events("balance")] == days(1, 31)


@pytest.mark.parametrize("kind", [str, duckdb.DuckDBPyRelation])
@pytest.mark.slow
def test_a_statement_may_compute_many_keys_with_one_ledger_row_and_event_each(warehouse, kind):
    shop = SqlShop(kind, keys_per_statement=12)
    run(warehouse, shop.orders)
    run(warehouse, shop.orders, shop.daily, selection=["daily"])
    assert shop.calls == [tuple(days(1, 12)), tuple(days(13, 24)), tuple(days(25, 31))]
    entries = [e for e in warehouse.io_manager().store.ledger() if e.owner == "daily"]
    assert [e.partition_key for e in entries] == days(1, 31)
    assert [[(one.owner, one.partition_key) for one in e.provenance.inputs] for e in entries] == [
        [("orders", key)] for key in days(1, 31)
    ]
    assert [e.partition for _, e in warehouse.events("daily")] == days(1, 31)
    assert {e.metadata["dagster/partition_row_count"].value for _, e in warehouse.events("daily")} == {1}


@pytest.mark.parametrize("kind", [str, duckdb.DuckDBPyRelation])
@pytest.mark.slow
def test_a_missing_input_is_refused_before_anything_is_written(warehouse, kind):
    shop = SqlShop(kind)
    run(warehouse, shop.orders, keys=(day(1), day(3)))
    result = run(warehouse, shop.orders, shop.daily, selection=["daily"], keys=(day(3), day(5)), raise_on_error=False)
    first = failure_of(result).splitlines()[0]
    for word in ("daily", day(4), "orders", "never materialized"):
        assert word in first
    assert [e.partition for _, e in warehouse.events("daily")] == [day(3)]


def test_the_function_is_itself_when_called(warehouse):
    @partitioned_asset(partitions_def=DAYS, partition_expr="day")
    def doubled(context: dg.AssetExecutionContext, orders: pd.DataFrame):
        return orders.assign(cents=2 * orders["cents"], day=context.partition_key)

    found = doubled(dg.build_asset_context(partition_key=day(1)), orders=pd.DataFrame({"cents": [3]}))
    assert found.to_dict("records") == [{"cents": 6, "day": day(1)}]
    assert isinstance(doubled, dg.AssetsDefinition)


def test_the_last_line_of_the_log_sums_up_what_has_become_of_the_partitions(warehouse):
    state = {"fails": True}

    @partitioned_asset(partitions_def=DAYS, partition_expr="day")
    def orders(context: dg.AssetExecutionContext):
        if state["fails"] and context.partition_key == day(3):
            raise ValueError
        return pd.DataFrame({"day": [pd.Timestamp(context.partition_key)]})

    def said():
        run = warehouse.instance.get_runs(limit=1)[0]
        return [
            log.user_message for log in warehouse.instance.all_logs(run.run_id) if "partitions:" in log.user_message
        ]

    warehouse.materialize(orders, keys=(day(1), day(4)), raise_on_error=False)
    [text] = said()
    assert text.endswith(f"4 partitions: 2 swapped, 2 left; building again continues at '{day(3)}'")
    state["fails"] = False
    warehouse.materialize(orders, keys=(day(3), day(4)))
    assert said()[0].endswith("2 partitions: 2 swapped")


def returning(value, **options):
    @partitioned_asset(partitions_def=DAYS, partition_expr="day", **options)
    def odd(context: dg.AssetExecutionContext):
        return value(context) if callable(value) else value

    return odd


FRAME = pd.DataFrame({"day": [pd.Timestamp(day(1))], "cents": [1]})


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "no rows"),
        (lambda _: (FRAME, FRAME), "tuple of 2"),
        (lambda _: [FRAME], "list of 1"),
        (lambda _: dg.MaterializeResult(metadata={"a": 1}), "no rows"),
        (lambda _: 42, "int"),
        (lambda _: FRAME.assign(day=pd.Timestamp(day(9))), "1 of 1 rows lie outside"),
        (lambda _: dg.MaterializeResult(value=FRAME, data_version=dg.DataVersion("x")), "data version"),
        (lambda context: context.set_data_version(context.asset_key, dg.DataVersion("x")), "data version"),
    ],
)
@pytest.mark.slow
def test_what_is_no_rows_of_the_key_is_refused_and_the_old_rows_stay(warehouse, value, words):
    run(warehouse, returning(lambda context: FRAME.assign(day=pd.Timestamp(context.partition_key))))
    before = warehouse.dump()
    result = run(warehouse, returning(value), keys=(day(1), day(2)), raise_on_error=False)
    first = failure_of(result).splitlines()[0]
    assert words in first
    assert "odd" in first
    assert day(1) in first
    assert "Remedy" in first
    assert warehouse.dump() == before
    assert len(warehouse.events("odd")) == 31


@pytest.mark.parametrize(
    ("function", "words"),
    [
        ("def f(context): yield 1", "yields"),
        ("async def f(context): return 1", "asynchronous"),
        ("def f(*args): return 1", "args"),
        ("def f(a, **kwargs): return 1", "kwargs"),
        ("def f(a: int): return 1", "int"),
        ("def f(a) -> None: ...", "None"),
        ("def f(config: dict): ...", "Config"),
    ],
)
def test_a_function_that_cannot_be_one_of_one_key_is_refused_when_it_is_defined(function, words):
    scope = {}
    exec(function, scope)
    with pytest.raises(ConfigurationError, match=words):
        partitioned_asset(partitions_def=DAYS, partition_expr="day")(scope["f"])


def test_options_that_make_no_sense_are_refused_when_they_are_given():
    def chain(previous: str): ...
    def plain(a: pd.DataFrame): ...

    statics = dg.StaticPartitionsDefinition(["a", "b"])
    for function, options, words in (
        (chain, {"keys_per_statement": 2}, "chain"),
        (plain, {"keys_per_statement": 2}, "SQL or relations"),
        (plain, {"keys_per_statement": 0}, "keys_per_statement"),
        (plain, {"early_cutoff": "maybe"}, "maybe"),
        (plain, {"ins": {"b": dg.AssetIn("b")}}, "'b'"),
        (plain, {"partition_expr": None}, "partition"),
        (plain, {"config_schema": {"a": int}}, "config"),
        (chain, {"partitions_def": statics}, "time"),
    ):
        with pytest.raises(ConfigurationError, match=words):
            partitioned_asset(**{"partitions_def": DAYS, "partition_expr": "day", **options})(function)


class Rate(dg.Config):
    factor: int = 2


class Bank(dg.ConfigurableResource):
    name: str


def test_context_config_and_resources_are_those_of_dagster(warehouse):
    seen = []

    @partitioned_asset(
        partitions_def=DAYS,
        partition_expr="day",
        key_prefix=["finance"],
        group_name="money",
        owners=["team:finance"],
        kinds={"pandas"},
        tags={"tier": "gold"},
        metadata={"about": "interest"},
        retry_policy=dg.RetryPolicy(max_retries=1),
        pool="bank",
        description="Interest of a day.",
    )
    def interest(context: dg.AssetExecutionContext, config: Rate, bank: Bank):
        seen.append((context.partition_key, context.partition_keys, context.partition_time_window, bank.name))
        context.add_output_metadata({"factor": config.factor})
        context.log.info("here")
        return dg.MaterializeResult(
            value=pd.DataFrame({"day": [pd.Timestamp(context.partition_key)], "cents": [config.factor]}),
            metadata={"rows": 1},
            tags={"shade": "blue"},
        )

    dg.materialize(
        [interest],
        instance=warehouse.instance,
        resources={"io_manager": warehouse.io_manager(), "bank": Bank(name="B")},
        tags={"dagster/asset_partition_range_start": day(1), "dagster/asset_partition_range_end": day(2)},
        run_config={**config("finance__interest", factor=3)},
    )
    assert [(key, keys, name) for key, keys, _, name in seen] == [(day(n), (day(n),), "B") for n in (1, 2)]
    assert [(w.end - w.start).days for _, _, w, _ in seen] == [1, 1]
    _, event = warehouse.events(["finance", "interest"])[-1]
    assert event.metadata["factor"].value == 3
    assert event.metadata["rows"].value == 1
    assert event.tags["shade"] == "blue"
    assert warehouse.rows("SELECT DISTINCT cents FROM finance.interest") == [(3,)]
    spec = interest.specs_by_key[dg.AssetKey(["finance", "interest"])]
    assert (spec.group_name, list(spec.owners), spec.kinds, spec.tags["tier"]) == (
        "money",
        ["team:finance"],
        {"pandas"},
        "gold",
    )
    assert spec.description == "Interest of a day."
    assert interest.op.retry_policy.max_retries == 1
    assert interest.op.pool == "bank"
    entry = warehouse.io_manager().store.ledger()[-1]
    assert entry.provenance.config_hash
    assert entry.provenance.code_fingerprint.startswith("cf2:")


@pytest.mark.slow
def test_an_input_that_another_io_manager_stores_may_be_of_any_type_and_is_no_reason_to_leave_a_key_alone(
    warehouse, tmp_path
):
    calls = []

    @dg.asset(io_manager_key="files")
    def rates() -> dict:
        return {"factor": 3}

    @partitioned_asset(
        partitions_def=DAYS,
        partition_expr="day",
        code_version="1",
        early_cutoff="on",
        ins={"rates": dg.AssetIn(input_manager_key="files")},
    )
    def scaled(context: dg.AssetExecutionContext, orders: pd.DataFrame, rates: dict) -> pd.DataFrame:
        calls.append(context.partition_key)
        return orders.assign(cents=orders["cents"] * rates["factor"])

    shop = Shop()
    resources = {"io_manager": warehouse.io_manager(), "files": dg.FilesystemIOManager(base_dir=str(tmp_path))}
    run(warehouse, shop.orders, keys=(day(1), day(2)))
    dg.materialize([rates], instance=warehouse.instance, resources=resources)
    for _ in range(2):
        warehouse.materialize(
            shop.orders, rates, scaled, selection=["scaled"], keys=(day(1), day(2)), resources=resources
        )
    assert calls == days(1, 2) * 2
    assert warehouse.rows("SELECT sum(cents) FROM public.scaled") == [(9,)]
    outcomes = [event.metadata[report.OUTCOME].value for _, event in warehouse.events("scaled")]
    assert outcomes == ["swapped"] * 2 + ["confirmed"] * 2


@pytest.mark.slow
def test_another_config_is_another_input_for_early_cut_off(warehouse):
    calls = []

    @partitioned_asset(partitions_def=DAYS, partition_expr="day", early_cutoff="on", code_version="1")
    def scaled(context: dg.AssetExecutionContext, config: Rate, orders: pd.DataFrame):
        calls.append(context.partition_key)
        return orders.assign(cents=orders["cents"] * config.factor)

    shop = Shop()
    run(warehouse, shop.orders, keys=(day(1), day(3)))
    for factor in (2, 2, 5):
        run(
            warehouse,
            shop.orders,
            scaled,
            selection=["scaled"],
            keys=(day(1), day(3)),
            choices=config("scaled", factor=factor),
        )
    assert calls == days(1, 3) * 2
    assert warehouse.rows("SELECT sum(cents) FROM public.scaled") == [(30,)]


@pytest.mark.slow
def test_a_later_asset_in_the_same_run_reads_what_was_built(warehouse):
    shop = Shop()
    seen = []

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.BetaWarning)

        @dg.asset(partitions_def=DAYS, backfill_policy=dg.BackfillPolicy.multi_run(100))
        def reader(orders: pd.DataFrame) -> None:
            seen.append(len(orders))

    run(warehouse, shop.orders, reader)
    assert seen == [62]


@pytest.mark.slow
def test_own_checks_are_evaluated_key_by_key_and_a_failed_blocking_one_keeps_the_rows_out(warehouse):
    bad = set()

    @partitioned_asset(
        partitions_def=DAYS,
        partition_expr="day",
        check_specs=[
            dg.AssetCheckSpec("positive", asset="checked", blocking=True),
            dg.AssetCheckSpec("soft", asset="checked"),
        ],
    )
    def checked(context: dg.AssetExecutionContext):
        ok = context.partition_key not in bad
        return dg.MaterializeResult(
            value=FRAME.assign(day=pd.Timestamp(context.partition_key)),
            check_results=[
                dg.AssetCheckResult(passed=ok, check_name="positive"),
                dg.AssetCheckResult(passed=context.partition_key != day(2), check_name="soft"),
            ],
        )

    result = run(warehouse, checked, keys=(day(1), day(3)))
    assert {e.check_name: e.passed for e in result.get_asset_check_evaluations()} == {"positive": True, "soft": False}
    bad.add(day(5))
    result = run(warehouse, checked, keys=(day(4), day(6)), raise_on_error=False)
    assert not result.success
    assert "positive" in failure_of(result)
    assert [e.partition for _, e in warehouse.events("checked")] == days(1, 4)
    assert {e.check_name: e.passed for e in result.get_asset_check_evaluations()}["positive"] is False


def told(result):
    """By check: whether it passed, what its metadata says in numbers and keys, and its description."""
    names = ("evaluated_partitions", "unevaluated_partitions", "failed_partitions")
    return {
        found.check_name: (
            found.passed,
            *(getattr(found.metadata.get(f"marigold/{name}"), "value", None) for name in names),
            found.description,
        )
        for found in result.get_asset_check_evaluations()
    }


@pytest.mark.slow
def test_a_check_is_evaluated_for_every_partition_of_a_run_also_with_early_cut_off(warehouse):
    @partitioned_asset(
        partitions_def=DAYS,
        partition_expr="day",
        code_version="1",
        early_cutoff="on",
        check_specs=[dg.AssetCheckSpec("soft", asset="checked")],
    )
    def checked(context: dg.AssetExecutionContext, orders: pd.DataFrame):
        passed = context.partition_key != day(2)
        return dg.MaterializeResult(
            value=orders, check_results=[dg.AssetCheckResult(passed=passed, description="As it should.")]
        )

    shop = Shop()
    run(warehouse, shop.orders, keys=(day(1), day(5)))
    found = [
        told(run(warehouse, shop.orders, checked, selection=["checked"], keys=(day(1), day(last)))) for last in (3, 5)
    ]
    assert found == [
        {"soft": (False, 3, 0, [day(2)], "As it should.")},
        {"soft": (False, 5, 0, [day(2)], "As it should.")},
    ]


@pytest.mark.slow
def test_a_check_of_a_step_that_fails_says_of_how_many_partitions_it_tells(warehouse):
    @partitioned_asset(
        partitions_def=DAYS, partition_expr="day", check_specs=[dg.AssetCheckSpec("soft", asset="checked")]
    )
    def checked(context: dg.AssetExecutionContext):
        if context.partition_key == day(3):
            raise RuntimeError
        return dg.MaterializeResult(
            value=FRAME.assign(day=pd.Timestamp(context.partition_key)),
            check_results=[dg.AssetCheckResult(passed=True)],
        )

    result = run(warehouse, checked, keys=(day(1), day(5)), raise_on_error=False)
    assert told(result) == {"soft": (True, 2, 3, None, "Evaluated for 2 of 5 partitions.")}


@pytest.mark.slow
def test_a_check_of_one_statement_tells_of_all_the_keys_that_it_computed(warehouse):
    @partitioned_asset(
        partitions_def=DAYS,
        partition_expr="day",
        keys_per_statement=3,
        check_specs=[dg.AssetCheckSpec("soft", asset="checked")],
    )
    def checked(context: dg.AssetExecutionContext, orders: str):
        passed = day(5) not in context.partition_keys
        return dg.MaterializeResult(value=orders, check_results=[dg.AssetCheckResult(passed=passed)])

    shop = Shop()
    run(warehouse, shop.orders, keys=(day(1), day(7)))
    result = run(warehouse, shop.orders, checked, selection=["checked"], keys=(day(1), day(7)))
    assert told(result) == {"soft": (False, 7, 0, days(4, 6), None)}
