"""Chains of ``@partitioned_asset``: hours, weeks, zones, several dimensions, holes, and pasts of other tools."""

from __future__ import annotations

import dagster as dg
import duckdb
import pandas as pd
import polars as pl
import pytest

from marigold_assets import report
from marigold_assets.asset import partitioned_asset
from marigold_assets_tests.integration.conftest import failure_of

pytestmark = pytest.mark.slow  # the quick tests have test_partitioned_asset.py


DAYS = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-01-16")


def day(number):
    return f"2024-01-{number:02d}"


def counter(partitions_def, kind=pd.DataFrame, *, expr="moment", **options):
    """A chain that counts its partitions."""

    def count(context, previous):
        start = context.partition_time_window.start
        if kind is str:
            before = "0" if previous is None else f"(SELECT n FROM ({previous}))"
            return f"SELECT TIMESTAMPTZ '{start.isoformat()}' AS moment, {before} + 1 AS n"
        before = 0 if previous is None else previous["n"].item()
        return pd.DataFrame({"moment": [pd.Timestamp(start).tz_convert("UTC")], "n": [before + 1]})

    count.__annotations__ = {"previous": kind}
    return partitioned_asset(partitions_def=partitions_def, partition_expr=expr, code_version="1", **options)(count)


BERLIN, NEW_YORK = "Europe/Berlin", "America/New_York"


@pytest.mark.parametrize("kind", [pd.DataFrame, str])
@pytest.mark.parametrize(
    ("definition", "length"),
    [
        (dg.HourlyPartitionsDefinition("2024-01-01-00:00", end_date="2024-01-01-05:00"), 5),
        (dg.HourlyPartitionsDefinition("2024-10-27-00:00", end_date="2024-10-27-05:00", timezone=BERLIN), 6),
        (dg.HourlyPartitionsDefinition("2024-03-31-00:00", end_date="2024-03-31-05:00", timezone=BERLIN), 4),
        (dg.WeeklyPartitionsDefinition("2024-01-07", end_date="2024-02-04"), 4),
        (dg.DailyPartitionsDefinition("2024-11-02", end_date="2024-11-05", timezone=NEW_YORK), 3),
        (dg.DailyPartitionsDefinition("2024-03-30", end_date="2024-04-02", timezone=BERLIN, hour_offset=2), 2),
        (dg.MonthlyPartitionsDefinition("2024-01-01", end_date="2024-04-01"), 3),
    ],
)
def test_a_chain_counts_its_partitions_whatever_their_length_and_zone(warehouse, kind, definition, length):
    keys = definition.get_partition_keys()
    assert len(keys) == length
    asset = counter(definition, kind)
    warehouse.materialize(asset, keys=(keys[0], keys[-1]))
    assert [n for (n,) in warehouse.rows("SELECT n FROM public.count ORDER BY moment")] == list(range(1, length + 1))
    assert [event.partition for _, event in warehouse.events("count")] == keys


REGIONS = dg.StaticPartitionsDefinition(["east", "west"])


@pytest.mark.parametrize("time", ["date", "when"])  # before and after the other dimension, which Dagster sorts by name
@pytest.mark.parametrize("kind", [pl.DataFrame, duckdb.DuckDBPyRelation])
def test_every_region_has_a_chain_of_its_own(warehouse, time, kind):
    cells = dg.MultiPartitionsDefinition({time: DAYS, "region": REGIONS})

    def total(context, previous):
        key = context.partition_key.keys_by_dimension
        if previous is None:
            before = 0
        else:
            rows = previous.fetchall() if kind is duckdb.DuckDBPyRelation else previous.rows()
            [(_, region, before)] = rows
            assert region == key["region"]
        step = 1 if key["region"] == "east" else 10
        return pd.DataFrame({"day": [pd.Timestamp(key[time])], "region": [key["region"]], "n": [before + step]})

    total.__annotations__ = {"previous": kind}
    asset = partitioned_asset(partitions_def=cells, partition_expr={time: "day", "region": "region"})(total)
    first, last = (dg.MultiPartitionKey({time: day(n), "region": r}) for n, r in ((1, "east"), (3, "west")))
    warehouse.materialize(asset, keys=(first, last))
    found = warehouse.rows("SELECT region, n FROM public.total ORDER BY region, day")
    assert found == [*[("east", n) for n in (1, 2, 3)], *[("west", n) for n in (10, 20, 30)]]
    entry = warehouse.io_manager().store.ledger()[-1]
    before = dg.MultiPartitionKey({time: day(2), "region": "west"})
    assert [(one.owner, one.partition_key) for one in entry.provenance.inputs] == [("total", str(before))]


def test_a_chain_may_be_spelled_as_in_dagster(warehouse):
    back = dg.TimeWindowPartitionMapping(start_offset=-1, end_offset=-1)

    @partitioned_asset(partitions_def=DAYS, partition_expr="day", ins={"balance": dg.AssetIn(partition_mapping=back)})
    def balance(context, balance: pl.DataFrame | None):
        before = 0 if balance is None else balance["n"].item()
        return pd.DataFrame({"day": [pd.Timestamp(context.partition_key)], "n": [before + 10]})

    assert balance.backfill_policy.policy_type.name == "SINGLE_RUN"
    warehouse.materialize(balance, keys=(day(1), day(3)))
    assert warehouse.rows("SELECT n FROM public.balance ORDER BY day") == [(10,), (20,), (30,)]
    first = failure_of(warehouse.materialize(balance, key=day(5), raise_on_error=False)).splitlines()[0]
    for word in ("balance", day(5), day(4), "in order"):
        assert word in first


def test_a_chain_may_look_a_week_back(warehouse):
    back = dg.TimeWindowPartitionMapping(start_offset=-7, end_offset=-1)
    seen = {}

    @partitioned_asset(
        partitions_def=DAYS, partition_expr="day", ins={"previous": dg.AssetIn("trend", partition_mapping=back)}
    )
    def trend(context, previous: dict[str, pd.DataFrame] | None):
        seen[context.partition_key] = previous and list(previous)
        return pd.DataFrame({"day": [pd.Timestamp(context.partition_key)], "n": [1]})

    warehouse.materialize(trend, keys=(day(1), day(9)))
    assert seen[day(1)] is None
    assert seen[day(3)] == [day(1), day(2)]
    assert seen[day(9)] == [day(n) for n in range(2, 9)]


@pytest.mark.parametrize("kind", [pd.DataFrame, str])
def test_a_hole_in_the_past_stops_the_chain_and_names_it(warehouse, kind):
    asset = counter(DAYS, kind)
    warehouse.materialize(asset, keys=(day(1), day(3)))
    found = warehouse.refused(asset, keys=(day(6), day(8)))
    for word in (
        "count",
        day(6),
        f"from partition '{day(4)}' on",
        "in order",
        f"marigold launch count --from {day(4)} --to {day(6)}",
    ):
        assert word in found
    assert warehouse.rows("SELECT count(*) FROM public.count") == [(3,)]


@pytest.mark.parametrize("kind", [pd.DataFrame, str])
def test_a_past_that_another_tool_wrote_is_built_upon_and_noted_by_its_contents(warehouse, kind):
    with duckdb.connect(warehouse.path) as connection:
        connection.execute(
            "CREATE SCHEMA IF NOT EXISTS public; CREATE TABLE public.count (moment TIMESTAMPTZ, n BIGINT)"
        )
        connection.execute("INSERT INTO public.count VALUES ('2024-01-01 00:00:00+00', 41)")
    asset = counter(DAYS, kind, early_cutoff="on")
    warehouse.materialize(asset, keys=(day(2), day(3)))
    assert warehouse.rows("SELECT n FROM public.count ORDER BY moment") == [(41,), (42,), (43,)]
    first = warehouse.io_manager().store.ledger()[0]
    [read] = first.provenance.inputs
    assert (read.partition_key, read.content_hash is not None) == (day(1), True)
    warehouse.materialize(asset, keys=(day(2), day(3)))
    outcomes = [event.metadata[report.OUTCOME].value for _, event in warehouse.events("count")]
    assert outcomes == ["swapped"] * 2 + ["unchanged"] * 2
    with duckdb.connect(warehouse.path) as connection:
        connection.execute("UPDATE public.count SET n = 1 WHERE n = 41")
    warehouse.materialize(asset, keys=(day(2), day(3)))
    assert warehouse.rows("SELECT n FROM public.count ORDER BY moment") == [(1,), (2,), (3,)]


def test_an_empty_day_in_a_chain_is_no_hole(warehouse):
    seen = []

    @partitioned_asset(partitions_def=DAYS, partition_expr="day")
    def visits(context, previous: pd.DataFrame):
        seen.append(None if previous is None else (list(previous.columns), len(previous)))
        at = pd.Timestamp(context.partition_key)
        return pd.DataFrame({"day": [at], "n": [1]}).head(0 if at.day in {1, 3} else 1)

    warehouse.materialize(visits, keys=(day(1), day(4)))
    assert seen == [None, (["day", "n"], 0), (["day", "n"], 1), (["day", "n"], 0)]
    counts = [event.metadata["dagster/partition_row_count"].value for _, event in warehouse.events("visits")]
    assert counts == [0, 1, 0, 1]


class Rate(dg.Config):
    factor: int


@pytest.mark.parametrize("kind", [pd.DataFrame, str])
@pytest.mark.parametrize(("strict", "cut_off"), [(False, "off"), (True, "off"), (False, "on")])
def test_a_past_of_another_config_is_told_from_one_of_other_code(warehouse, kind, strict, cut_off):
    def scaled(context, config, previous):
        if kind is str:
            before = "0" if previous is None else f"(SELECT n FROM ({previous}))"
            return f"SELECT DATE '{context.partition_key}' AS day, {before} + {config.factor} AS n"
        before = 0 if previous is None else previous["n"].item()
        return pd.DataFrame({"day": [pd.Timestamp(context.partition_key)], "n": [before + config.factor]})

    scaled.__annotations__ = {"config": Rate, "previous": kind}
    asset = partitioned_asset(partitions_def=DAYS, partition_expr="day", strict=strict, early_cutoff=cut_off)(scaled)
    warehouse.materialize(asset, keys=(day(1), day(2)), config={"scaled": {"factor": 2}})
    again = {"config": {"scaled": {"factor": 5}}, "raise_on_error": False}
    result = warehouse.materialize(asset, keys=(day(3), day(4)), **again)
    if strict:
        assert "another config" in failure_of(result)
        assert warehouse.rows("SELECT max(n) FROM public.scaled") == [(4,)]
    else:
        [(_, event)] = warehouse.events("scaled", day(3))
        assert "another config" in event.metadata["marigold/stale_previous"].value
        assert warehouse.rows("SELECT max(n) FROM public.scaled") == [(14,)]


def test_config_with_a_required_field_is_asked_for(warehouse):
    @partitioned_asset(partitions_def=DAYS, partition_expr="day")
    def scaled(context, config: Rate):
        return pd.DataFrame({"day": [pd.Timestamp(context.partition_key)], "n": [config.factor]})

    with pytest.raises(dg.DagsterInvalidConfigError, match="factor"):
        warehouse.materialize(scaled, key=day(1))


@pytest.mark.parametrize("kind", [duckdb.DuckDBPyRelation, str])
def test_early_cut_off_of_chunks_rebuilds_what_changed_and_confirms_the_rest(warehouse, kind):
    amounts, calls = {}, []

    @partitioned_asset(partitions_def=DAYS, partition_expr="day", code_version="1")
    def orders(context):
        key = context.partition_key
        return pd.DataFrame({"day": [pd.Timestamp(key)] * 2, "cents": [1, amounts.get(key, 0)], "note": [key, ""]})

    def daily(context, orders):
        calls.append(tuple(context.partition_keys))
        if kind is str:
            return f"SELECT day, sum(cents)::BIGINT AS cents FROM ({orders}) GROUP BY ALL"
        return orders.aggregate("day, sum(cents)::BIGINT AS cents")

    daily.__annotations__ = {"orders": kind}
    asset = partitioned_asset(
        partitions_def=DAYS, partition_expr="day", keys_per_statement=5, code_version="1", early_cutoff="on"
    )(daily)

    def build():
        calls.clear()
        warehouse.materialize(orders, keys=(day(1), day(4)))
        warehouse.materialize(orders, asset, keys=(day(1), day(4)), selection=["daily"])
        return list(calls)

    assert build() == [tuple(day(n) for n in range(1, 5))]
    assert build() == []
    amounts[day(3)] = 7
    assert build() == [(day(3),)]
    assert warehouse.rows("SELECT cents FROM public.daily ORDER BY day") == [(1,), (1,), (8,), (1,)]


@pytest.mark.parametrize("kind", [pd.DataFrame, str])
def test_verifying_a_chain_compares_every_day_and_stops_at_the_one_that_differs(warehouse, kind):
    asset = counter(DAYS, kind)
    warehouse.materialize(asset, keys=(day(1), day(5)))
    verify = {"config": {"count": {"early_cutoff": "verify"}}, "keys": (day(1), day(5)), "raise_on_error": False}
    assert warehouse.materialize(asset, **verify).success
    with duckdb.connect(warehouse.path) as connection:
        connection.execute("UPDATE public.count SET n = 30 WHERE n = 3")
    result = warehouse.materialize(asset, **verify)
    first = failure_of(result).splitlines()[0]
    for word in ("count", day(3), "'n'"):
        assert word in first
    assert warehouse.rows("SELECT n FROM public.count ORDER BY moment") == [(1,), (2,), (30,), (4,), (5,)]
