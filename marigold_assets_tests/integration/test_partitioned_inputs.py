"""What ``@partitioned_asset`` reads: partition mappings of every kind, and assets that lie in other IO managers."""

from __future__ import annotations

import pickle
import warnings
from contextlib import contextmanager
from typing import Any

import dagster as dg
import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from marigold_assets import FencedPartitionIOManager
from marigold_assets.asset import partitioned_asset
from marigold_assets.stores.connection import Connector
from marigold_assets.stores.duckdb import DuckDBStore
from marigold_assets_tests.integration.conftest import failure_of

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:Class `MultiToSingleDimensionPartitionMapping`")]

DAYS = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-01-16")
REGIONS = dg.StaticPartitionsDefinition(["east", "north", "west"])
CELLS = dg.MultiPartitionsDefinition({"date": DAYS, "region": REGIONS})


def day(number):
    return f"2024-01-{number:02d}"


def days_of(frame):
    return sorted(pd.to_datetime(pd.Series(frame["day"])).dt.strftime("%Y-%m-%d"))


@partitioned_asset(partitions_def=DAYS, partition_expr="day", code_version="1")
def orders(context: dg.AssetExecutionContext) -> pd.DataFrame:
    at = pd.Timestamp(context.partition_key)
    return pd.DataFrame({"day": [at], "cents": [at.day]})


@partitioned_asset(partitions_def=CELLS, partition_expr={"date": "day", "region": "region"}, code_version="1")
def cells(context: dg.AssetExecutionContext) -> pd.DataFrame:
    date, region = (context.partition_key.keys_by_dimension[name] for name in ("date", "region"))
    return pd.DataFrame({"day": [pd.Timestamp(date)], "region": [region], "cents": [pd.Timestamp(date).day]})


def inputs_of(warehouse, owner, key):
    entry = [e for e in warehouse.io_manager().store.ledger() if (e.owner, e.partition_key) == (owner, key)][-1]
    return [(one.owner, one.partition_key) for one in entry.provenance.inputs]


class TodayAndLastWeek(dg.PartitionMapping):
    """Today, and the same weekday of the week before, where there is one."""

    @property
    def description(self):
        return "today and a week ago"

    def validate_partition_mapping(self, upstream_partitions_def, downstream_partitions_def): ...

    def get_upstream_mapped_partitions_result_for_partitions(
        self, downstream_partitions_subset, downstream_partitions_def, upstream_partitions_def, *args, **kwargs
    ):
        wanted = []
        for key in downstream_partitions_subset.get_partition_keys():
            at = pd.Timestamp(key)
            wanted += [
                str(moment.date()) for moment in (at - pd.Timedelta(days=7), at) if moment >= pd.Timestamp(day(1))
            ]
        from dagster._core.definitions.partitions.mapping import UpstreamPartitionsResult

        return UpstreamPartitionsResult(
            partitions_subset=upstream_partitions_def.subset_with_partition_keys(wanted),
            required_but_nonexistent_subset=upstream_partitions_def.empty_subset(),
        )

    def get_downstream_partitions_for_partitions(self, *args, **kwargs):
        raise NotImplementedError  # only what is upstream is asked for


def back(days):
    return dg.TimeWindowPartitionMapping(start_offset=-days, end_offset=-days)


MAPPINGS = {
    "same": (None, lambda n: [n]),
    "identity": (dg.IdentityPartitionMapping(), lambda n: [n]),
    "yesterday": (back(1), lambda n: [n - 1]),
    "window": (dg.TimeWindowPartitionMapping(start_offset=-2, end_offset=0), lambda n: [n - 2, n - 1, n]),
    "weekday": (TodayAndLastWeek(), lambda n: [n - 7, n] if n > 7 else [n]),
    "every": (dg.AllPartitionMapping(), lambda n: list(range(1, 16))),
    "newest": (dg.LastPartitionMapping(), lambda n: [15]),
    "some": (dg.SpecificPartitionsPartitionMapping([day(4), day(9)]), lambda n: [4, 9]),
}


def numbers_in(upstream):
    """The days of what a function is given, each of which has one row with its number."""
    if isinstance(upstream, duckdb.DuckDBPyRelation):
        return sorted(value for (value,) in upstream.project("cents").fetchall())
    if isinstance(upstream, dict):
        return sorted(upstream.values())
    return [upstream] if isinstance(upstream, int) else sorted(pd.Series(upstream["cents"]).tolist())


def readers(found, annotation, **given):
    """An asset for every mapping, which notes what it is given."""

    def make(name, mapping):
        def read(context, upstream):
            found[name, context.partition_key] = upstream if isinstance(upstream, str) else numbers_in(upstream)
            return pd.DataFrame({"day": [pd.Timestamp(context.partition_key)], "n": [1]})

        read.__annotations__ = {"upstream": annotation}
        ins = {"upstream": dg.AssetIn("orders", partition_mapping=mapping, **given)}
        return partitioned_asset(partitions_def=DAYS, partition_expr="day", name=name, ins=ins)(read)

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Non-built-in PartitionMappings")
        return [make(name, mapping) for name, (mapping, _) in MAPPINGS.items()]


def check_mappings(warehouse, found):
    expected = {(name, n): numbers(n) for name, (_, numbers) in MAPPINGS.items() for n in (7, 8)}
    assert {(name, pd.Timestamp(key).day): values for (name, key), values in found.items()} == expected
    for (name, n), numbers in expected.items():
        assert inputs_of(warehouse, name, day(n)) == [("orders", day(number)) for number in numbers]


@pytest.mark.parametrize("annotation", [pd.DataFrame, duckdb.DuckDBPyRelation, str])
def test_every_key_of_a_range_reads_the_partitions_that_its_mapping_says(warehouse, annotation):
    found = {}
    warehouse.materialize(orders, keys=(day(1), day(15)))
    every = readers(found, annotation)
    warehouse.materialize(orders, *every, keys=(day(7), day(8)), selection=list(MAPPINGS))
    if annotation is str:
        found = {
            place: [value for (value,) in warehouse.rows(f"SELECT cents FROM ({text}) ORDER BY ALL")]
            for place, text in found.items()
        }
    check_mappings(warehouse, found)


def test_so_it_does_where_another_io_manager_has_the_input(warehouse, tmp_path):
    found = {}
    (tmp_path / "files" / "orders").mkdir(parents=True)
    for number in range(1, 16):
        (tmp_path / "files" / "orders" / day(number)).write_bytes(pickle.dumps(number))

    @dg.asset(name="orders", partitions_def=DAYS, io_manager_key="files")
    def in_files():
        raise AssertionError

    every = readers(found, Any, input_manager_key="files")
    files = {"files": dg.FilesystemIOManager(base_dir=str(tmp_path / "files"))}
    warehouse.materialize(in_files, *every, keys=(day(7), day(8)), selection=list(MAPPINGS), resources=files)
    check_mappings(warehouse, found)


class Other:
    """Another file, in which ``orders`` has other rows than the table of that name in the asset's own file."""

    def __init__(self, warehouse, tmp_path, **settings):
        self.manager = FencedPartitionIOManager(database=str(tmp_path / "other.duckdb"), **settings)

        @partitioned_asset(partitions_def=DAYS, partition_expr="day", io_manager_key="other", name="orders")
        def theirs(context: dg.AssetExecutionContext) -> pd.DataFrame:
            at = pd.Timestamp(context.partition_key)
            return pd.DataFrame({"day": [at], "cents": [at.day + 100]})

        self.orders, self.resources = theirs, {"other": self.manager}
        warehouse.materialize(theirs, keys=(day(1), day(5)), resources=self.resources)


@pytest.mark.parametrize("annotation", [pd.DataFrame, pl.LazyFrame, pa.RecordBatchReader, duckdb.DuckDBPyRelation])
@pytest.mark.parametrize("together", [1, 3])
def test_an_input_in_another_file_comes_from_there(warehouse, tmp_path, annotation, together):
    warehouse.materialize(orders, keys=(day(2), day(4)))
    other = Other(warehouse, tmp_path)
    if together > 1 and annotation is not duckdb.DuckDBPyRelation:
        pytest.skip("frames come one key at a time")

    def copied(context, upstream):
        if isinstance(upstream, pl.LazyFrame):
            return upstream.with_columns(pl.col("cents") * 2)
        return upstream.assign(cents=upstream["cents"] * 2) if isinstance(upstream, pd.DataFrame) else upstream

    copied.__annotations__ = {"upstream": annotation}
    ins = {"upstream": dg.AssetIn("orders", input_manager_key="other")}
    asset = partitioned_asset(partitions_def=DAYS, partition_expr="day", ins=ins, keys_per_statement=together)(copied)
    warehouse.materialize(other.orders, asset, keys=(day(2), day(4)), selection=["copied"], resources=other.resources)
    factor = 2 if annotation in {pd.DataFrame, pl.LazyFrame} else 1
    assert warehouse.rows("SELECT cents FROM public.copied ORDER BY ALL") == [(factor * (100 + n),) for n in (2, 3, 4)]
    assert [inputs_of(warehouse, "copied", day(n)) for n in (2, 3, 4)] == [[("orders", day(n))] for n in (2, 3, 4)]


def test_local_and_other_inputs_together_are_read_each_from_where_it_lies(warehouse, tmp_path):
    other = Other(warehouse, tmp_path)

    @partitioned_asset(partitions_def=DAYS, partition_expr="day", code_version="1", name="local")
    def local(context: dg.AssetExecutionContext) -> pd.DataFrame:
        at = pd.Timestamp(context.partition_key)
        return pd.DataFrame({"day": [at], "cents": [at.day]})

    @partitioned_asset(
        partitions_def=DAYS, partition_expr="day", ins={"theirs": dg.AssetIn("orders", input_manager_key="other")}
    )
    def joined(local: duckdb.DuckDBPyRelation, theirs: pd.DataFrame):
        return local.project(f"day, cents + {theirs['cents'].item()} AS cents")

    every = (local, other.orders, joined)
    warehouse.materialize(*every, keys=(day(2), day(3)), selection=["local", "joined"], resources=other.resources)
    assert warehouse.rows("SELECT cents FROM public.joined ORDER BY ALL") == [(104,), (106,)]
    assert sorted(inputs_of(warehouse, "joined", day(3))) == [("local", day(3)), ("orders", day(3))]


@pytest.mark.parametrize("begins", [1, 3])
@pytest.mark.parametrize("first", [0, 1])
def test_a_mapping_that_looks_ahead_is_refused_where_nothing_is_yet(warehouse, first, begins):
    definition = dg.DailyPartitionsDefinition(day(begins), end_date="2024-01-16")
    ahead = dg.TimeWindowPartitionMapping(start_offset=first, end_offset=1)

    @partitioned_asset(
        partitions_def=definition, partition_expr="day", ins={"orders": dg.AssetIn(partition_mapping=ahead)}
    )
    def looking(context: dg.AssetExecutionContext, orders: pd.DataFrame):
        return pd.DataFrame({"day": [pd.Timestamp(context.partition_key)], "cents": [len(orders)]})

    warehouse.materialize(orders, keys=(day(13), day(15)))
    every = {"selection": ["looking"], "keys": (day(13), day(15)), "raise_on_error": False}
    said = failure_of(warehouse.materialize(orders, looking, **every)).splitlines()[0]
    for word in ("looking", day(15), f"1 after {day(15)}", "no such partition"):
        assert word in said
    assert [event.partition for _, event in warehouse.events("looking")] == [day(13), day(14)]


@pytest.mark.parametrize("annotation", [pd.DataFrame, duckdb.DuckDBPyRelation])
def test_the_own_file_is_closed_while_another_one_is_opened(warehouse, tmp_path, annotation, monkeypatch):
    """Or two runs that read each other's files would wait for each other."""
    warehouse.materialize(orders, keys=(day(2), day(4)))
    other, opened, read = Other(warehouse, tmp_path), [], Connector.read

    @contextmanager
    def reading(connector, **options):
        if str(connector.path) != warehouse.path:
            DuckDBStore(warehouse.path, lock_timeout_seconds=5).draw_token("somebody else")
            opened.append(connector.path)
        with read(connector, **options) as connection:
            yield connection

    monkeypatch.setattr(Connector, "read", reading)

    @partitioned_asset(partitions_def=DAYS, partition_expr="day", code_version="1", name="local")
    def local(context: dg.AssetExecutionContext) -> pd.DataFrame:
        return pd.DataFrame({"day": [pd.Timestamp(context.partition_key)]})

    def joined(local, theirs):
        return local

    joined.__annotations__ = {"local": annotation, "theirs": pd.DataFrame}
    ins = {"theirs": dg.AssetIn("orders", input_manager_key="other")}
    options = {"ins": ins, "code_version": "1", "early_cutoff": "on"}
    asset = partitioned_asset(partitions_def=DAYS, partition_expr="day", **options)(joined)
    every = (local, other.orders, asset)
    warehouse.materialize(*every, keys=(day(2), day(4)), selection=["local", "joined"], resources=other.resources)
    assert warehouse.rows("SELECT count(*) FROM public.joined") == [(3,)]
    assert len(opened) >= 3
    warehouse.materialize(*every, keys=(day(2), day(4)), selection=["joined"], resources=other.resources)
    _, event = warehouse.events("joined", day(4))[-1]
    assert event.metadata["marigold/outcome"].value == "unchanged"


def test_an_input_of_the_peer_comes_as_it_stores_it(warehouse, tmp_path):
    peer = pytest.importorskip("dagster_duckdb_pandas")
    theirs = peer.DuckDBPandasIOManager(database=str(tmp_path / "theirs.duckdb"), schema="shop")

    @dg.asset(partitions_def=DAYS, metadata={"partition_expr": "day"}, io_manager_key="theirs")
    def counts(context):
        at = pd.Timestamp(context.partition_key)
        return pd.DataFrame({"day": [at], "cents": [at.day]})

    @partitioned_asset(
        partitions_def=DAYS, partition_expr="day", ins={"counts": dg.AssetIn(input_manager_key="theirs")}
    )
    def copied(counts: pd.DataFrame):
        return counts

    for number in (2, 3):
        warehouse.materialize(counts, key=day(number), resources={"theirs": theirs})
    warehouse.materialize(counts, copied, keys=(day(2), day(3)), selection=["copied"], resources={"theirs": theirs})
    assert warehouse.rows("SELECT cents FROM public.copied ORDER BY day") == [(2,), (3,)]


def test_sql_text_over_another_file_is_refused_since_it_would_read_this_one(warehouse, tmp_path):
    warehouse.materialize(orders, keys=(day(2), day(4)))
    other = Other(warehouse, tmp_path)

    @partitioned_asset(
        partitions_def=DAYS, partition_expr="day", ins={"upstream": dg.AssetIn("orders", input_manager_key="other")}
    )
    def copied(upstream: str):
        return upstream

    found = warehouse.refused(  # and not what lies under the same name here
        other.orders, copied, keys=(day(2), day(4)), selection=["copied"], resources=other.resources
    )
    for word in ("copied", "upstream", "SQL", "another"):
        assert word in found


def test_an_input_in_another_schema_of_the_same_file_is_read_in_place(warehouse):
    resources = {"other": warehouse.io_manager(schema="staging")}

    @partitioned_asset(partitions_def=DAYS, partition_expr="day", io_manager_key="other", name="orders")
    def staged(context: dg.AssetExecutionContext) -> pd.DataFrame:
        return pd.DataFrame({"day": [pd.Timestamp(context.partition_key)], "cents": [7]})

    @partitioned_asset(partitions_def=DAYS, partition_expr="day", ins={"orders": dg.AssetIn(input_manager_key="other")})
    def copied(orders: duckdb.DuckDBPyRelation):
        return orders

    warehouse.materialize(staged, copied, keys=(day(1), day(2)), resources=resources)
    assert warehouse.rows("SELECT count(*), sum(cents) FROM public.copied") == [(2, 14)]
    entry = warehouse.io_manager().store.ledger()[-1]
    assert entry.provenance.inputs[0].content_hash is not None


@pytest.mark.parametrize("declared", ["asset", "source"])
def test_an_input_of_another_io_manager_that_is_not_named_is_a_clear_error(warehouse, declared, tmp_path):
    if declared == "asset":

        @dg.asset(name="orders", partitions_def=DAYS, io_manager_key="files")
        def upstream(): ...

    else:
        upstream = dg.AssetSpec("orders", partitions_def=DAYS).with_io_manager_key("files")

    @partitioned_asset(partitions_def=DAYS, partition_expr="day")
    def copied(orders: pd.DataFrame):
        return orders

    files = {"files": dg.FilesystemIOManager(base_dir=str(tmp_path))}
    found = warehouse.refused(upstream, copied, key=day(1), selection=["copied"], resources=files)
    for word in ("copied", "orders", "files", "input_manager_key"):
        assert word in found


STATIC = dg.StaticPartitionMapping({"east": ["1", "2"], "north": "1", "west": "2"})


def test_static_dynamic_and_multi_dimensional_inputs_follow_their_mappings(warehouse):
    seen = {}
    names = dg.DynamicPartitionsDefinition(name="names")
    warehouse.instance.add_dynamic_partitions("names", ["ann", "O'Brien"])

    @partitioned_asset(partitions_def=REGIONS, partition_expr="region")
    def regions(context: dg.AssetExecutionContext) -> pd.DataFrame:
        return pd.DataFrame({"region": [context.partition_key]})

    @partitioned_asset(partitions_def=names, partition_expr="name")
    def people(context: dg.AssetExecutionContext) -> pd.DataFrame:
        return pd.DataFrame({"name": [context.partition_key]})

    @partitioned_asset(
        partitions_def=dg.StaticPartitionsDefinition(["1", "2"]),
        partition_expr="zone",
        ins={
            "regions": dg.AssetIn(partition_mapping=STATIC),
            "people": dg.AssetIn(partition_mapping=dg.AllPartitionMapping()),
        },
    )
    def zones(context, regions: pd.DataFrame, people: duckdb.DuckDBPyRelation):
        seen[context.partition_key] = (
            sorted(regions["region"]),
            sorted(name for (name,) in people.fetchall()),
            sorted(context.asset_partition_keys_for_input("regions")),
        )
        return pd.DataFrame({"zone": [context.partition_key]})

    warehouse.materialize(regions, keys=("east", "west"))
    for name in ("ann", "O'Brien"):
        warehouse.materialize(people, key=name)
    warehouse.materialize(regions, people, zones, keys=("1", "2"), selection=["zones"])
    everybody = ["O'Brien", "ann"]
    assert seen == {
        "1": (["east", "north"], everybody, ["east", "north"]),
        "2": (["east", "west"], everybody, ["east", "west"]),
    }


@pytest.mark.parametrize("annotation", [pd.DataFrame, str])
def test_a_daily_asset_reads_all_regions_of_its_day(warehouse, annotation):
    def totals(context, cells):
        if isinstance(cells, str):
            return f"SELECT day, count(*) AS n, sum(cents)::BIGINT AS cents FROM ({cells}) GROUP BY day"
        return pd.DataFrame({"day": cells["day"][:1], "n": [len(cells)], "cents": [cells["cents"].sum()]})

    totals.__annotations__ = {"cells": annotation}
    mapping = dg.MultiToSingleDimensionPartitionMapping(partition_dimension_name="date")
    ins = {"cells": dg.AssetIn(partition_mapping=mapping)}
    asset = partitioned_asset(partitions_def=DAYS, partition_expr="day", ins=ins)(totals)
    for number in (1, 2):
        for region in ("east", "north", "west"):
            warehouse.materialize(cells, key=dg.MultiPartitionKey({"date": day(number), "region": region}))
    warehouse.materialize(cells, asset, keys=(day(1), day(2)), selection=["totals"])
    assert warehouse.rows("SELECT n, cents FROM public.totals ORDER BY day") == [(3, 3), (3, 6)]
    assert len(inputs_of(warehouse, "totals", day(2))) == 3


def test_weeks_of_days_and_days_of_hours_are_summed(warehouse):
    hours = dg.HourlyPartitionsDefinition("2024-01-01-00:00", end_date="2024-01-02-00:00")

    @partitioned_asset(partitions_def=hours, partition_expr="at")
    def clicks(context: dg.AssetExecutionContext) -> pd.DataFrame:
        return pd.DataFrame({"at": [context.partition_time_window.start.replace(tzinfo=None)], "n": [1]})

    @partitioned_asset(partitions_def=DAYS, partition_expr="day")
    def daily(context, clicks: pl.DataFrame):
        return pl.DataFrame({"day": [clicks["at"].min()], "n": [clicks["n"].sum()]})

    @partitioned_asset(
        partitions_def=dg.WeeklyPartitionsDefinition("2023-12-31", end_date="2024-01-14"), partition_expr="week"
    )
    def weekly(context, orders: pd.DataFrame):
        start = context.partition_time_window.start.replace(tzinfo=None)
        return pd.DataFrame({"week": [start], "cents": [orders["cents"].sum()]})

    warehouse.materialize(clicks, keys=("2024-01-01-00:00", "2024-01-01-23:00"))
    warehouse.materialize(clicks, daily, key=day(1), selection=["daily"])
    assert warehouse.rows("SELECT n FROM public.daily") == [(24,)]
    warehouse.materialize(orders, keys=(day(7), day(13)))
    warehouse.materialize(orders, weekly, key=day(7), selection=["weekly"])
    assert warehouse.rows("SELECT cents FROM public.weekly") == [(sum(range(7, 14)),)]
    first = warehouse.refused(orders, weekly, key="2023-12-31", selection=["weekly"])
    for word in ("weekly", "2023-12-31", "orders", "no such partition"):
        assert word in first


def test_partitions_that_there_cannot_be_are_named_and_those_before_are_built(warehouse):
    ended = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-01-04")

    @partitioned_asset(partitions_def=ended, partition_expr="day", name="orders")
    def former(context: dg.AssetExecutionContext) -> pd.DataFrame:
        return pd.DataFrame({"day": [pd.Timestamp(context.partition_key)]})

    @partitioned_asset(partitions_def=DAYS, partition_expr="day")
    def late(orders: pd.DataFrame):
        return orders

    warehouse.materialize(former, keys=(day(2), day(3)))
    every, only = (former, late), {"selection": ["late"], "keys": (day(2), day(5))}
    first = failure_of(warehouse.materialize(*every, **only, raise_on_error=False)).splitlines()[0]
    for word in ("late", day(4), "orders", "no such partition"):
        assert word in first
    assert [event.partition for _, event in warehouse.events("late")] == [day(2), day(3)]


@pytest.mark.parametrize("place", ["here", "another file"])
def test_where_a_mapping_asks_for_nothing_the_input_is_empty(warehouse, tmp_path, place):
    other = Other(warehouse, tmp_path)
    warehouse.materialize(orders, keys=(day(1), day(1)))
    seen = []
    given = {"input_manager_key": "other"} if place != "here" else {}

    @partitioned_asset(
        partitions_def=DAYS, partition_expr="day", ins={"orders": dg.AssetIn(partition_mapping=back(1), **given)}
    )
    def later(context, orders: pd.DataFrame):
        seen.append((list(orders.columns), len(orders)))
        return pd.DataFrame({"day": [pd.Timestamp(context.partition_key)]})

    upstream = orders if place == "here" else other.orders
    warehouse.materialize(upstream, later, keys=(day(1), day(2)), selection=["later"], resources=other.resources)
    assert seen == [(["day", "cents"], 0), (["day", "cents"], 1)]


@pytest.mark.parametrize("fetched", [False, True])
def test_a_missing_input_is_refused_also_where_the_function_fetches(warehouse, fetched):
    warehouse.materialize(orders, key=day(1))

    @partitioned_asset(partitions_def=DAYS, partition_expr="day")
    def copied(context, orders: duckdb.DuckDBPyRelation):
        return pd.DataFrame({"day": [pd.Timestamp(context.partition_key)]}) if fetched else orders

    first = failure_of(
        warehouse.materialize(orders, copied, keys=(day(1), day(3)), selection=["copied"], raise_on_error=False)
    ).splitlines()[0]
    for word in ("copied", day(2), "orders", "never materialized"):
        assert word in first
    assert [event.partition for _, event in warehouse.events("copied")] == [day(1)]


def test_an_unpartitioned_input_and_its_columns_come_whole_to_every_key(warehouse):
    @dg.asset
    def rates() -> pd.DataFrame:
        return pd.DataFrame({"name": ["a", "b"], "rate": [2, 3], "unused": [0, 0]})

    seen = []

    @partitioned_asset(
        partitions_def=DAYS, partition_expr="day", ins={"rates": dg.AssetIn(metadata={"columns": ["rate"]})}
    )
    def priced(context, orders: pd.DataFrame, rates: pl.DataFrame):
        seen.append(rates.columns)
        return orders.assign(cents=orders["cents"] * rates["rate"].sum())

    warehouse.materialize(rates)
    warehouse.materialize(orders, keys=(day(1), day(2)))
    warehouse.materialize(orders, rates, priced, keys=(day(1), day(2)), selection=["priced"])
    assert seen == [["rate"]] * 2
    assert warehouse.rows("SELECT cents FROM public.priced ORDER BY day") == [(5,), (10,)]
    assert inputs_of(warehouse, "priced", day(2)) == [("orders", day(2)), ("rates", None)]


def test_partitions_that_may_be_missing_count_as_empty(warehouse):
    seen = {}

    @partitioned_asset(
        partitions_def=DAYS,
        partition_expr="day",
        ins={"orders": dg.AssetIn(metadata={"marigold/allow_missing": True})},
    )
    def lenient(context, orders: pd.DataFrame):
        seen[context.partition_key] = len(orders)
        return pd.DataFrame({"day": [pd.Timestamp(context.partition_key)], "n": [len(orders)]})

    warehouse.materialize(orders, lenient, key=day(1), selection=["lenient"])
    warehouse.materialize(orders, key=day(2))
    warehouse.materialize(orders, lenient, keys=(day(2), day(3)), selection=["lenient"])
    assert seen == {day(1): 0, day(2): 1, day(3): 0}
