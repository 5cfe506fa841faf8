"""What a plan is made from: selections, ranges, what partitions read, and what is known of them."""

from __future__ import annotations

import warnings
from datetime import UTC, datetime, timedelta

import dagster as dg
import pandas as pd
import pytest

from marigold_assets import FencedPartitionIOManager, partitioned_asset
from marigold_assets.backfill import gathering
from marigold_assets.backfill.keyed import Keyed
from marigold_assets.backfill.limits import limits_of
from marigold_assets.backfill.ranges import asked_for
from marigold_assets.backfill.reads import reads_of
from marigold_assets.backfill.selecting import select
from marigold_assets.dagster_internals import mapped_keys
from marigold_assets.errors import ConfigurationError
from marigold_assets.location import CodeLocation
from marigold_assets.planning.model import Request

pytestmark = pytest.mark.slow  # each loads definitions and looks at ledgers

NOW = datetime(2026, 3, 1, tzinfo=UTC)
DAYS = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-03-01")
LATER = dg.DailyPartitionsDefinition("2024-01-10", end_date="2024-02-20")
LONGER = dg.DailyPartitionsDefinition("2023-12-20", end_date="2024-03-10")
HOURS = dg.HourlyPartitionsDefinition("2024-01-01-00:00", end_date="2024-01-04-06:00")
MONTHS = dg.MonthlyPartitionsDefinition("2023-11-01", end_date="2024-04-01")
BERLIN = dg.DailyPartitionsDefinition("2024-03-28", end_date="2024-04-03", timezone="Europe/Berlin")
BERLIN_HOURS = dg.HourlyPartitionsDefinition("2024-03-29-00:00", end_date="2024-04-02-00:00", timezone="Europe/Berlin")
SHOPS = dg.StaticPartitionsDefinition(["north", "south", "west"])
BOTH = dg.MultiPartitionsDefinition({"day": DAYS, "shop": SHOPS})


def keys_of(definition):
    return Keyed(definition, [None] if definition is None else definition.get_partition_keys())


def asset(name, definition, **upstream):
    """An asset of ours; ``upstream``: by asset, its partition mapping, if any."""

    def function(context: dg.AssetExecutionContext, **inputs: pd.DataFrame) -> pd.DataFrame:
        raise NotImplementedError

    names = list(upstream)
    parameters = ", ".join(["context: dg.AssetExecutionContext", *(f"{one}: pd.DataFrame" for one in names)])
    scope = {"dg": dg, "pd": pd}
    exec(f"def {name}({parameters}) -> pd.DataFrame: raise NotImplementedError", scope)  # as its author would write it
    ins = {one: dg.AssetIn(partition_mapping=mapping) for one, mapping in upstream.items() if mapping is not None}
    expression = {"day": "d", "shop": "s"} if isinstance(definition, dg.MultiPartitionsDefinition) else "d"
    return partitioned_asset(partitions_def=definition, partition_expr=expression, ins=ins)(scope[name])


def location_of(*assets, database="nowhere.duckdb"):
    manager = FencedPartitionIOManager(database=str(database))
    return CodeLocation.of(dg.Definitions(assets, resources={"io_manager": manager}))


@pytest.fixture
def shop():
    @dg.asset(deps=["sales"])
    def report():
        raise NotImplementedError

    return location_of(
        asset("orders", DAYS), asset("sales", DAYS, orders=None), report, dg.AssetSpec(["files", "till"])
    )


class TestSelection:
    @pytest.mark.parametrize(
        ("selection", "found"),
        [
            ("orders", ["orders"]),
            ("orders+", ["orders", "sales"]),
            ("orders*", ["orders", "report", "sales"]),
            ("+sales", ["orders", "sales"]),
            ('key:"orders"+', ["orders", "report", "sales"]),
            ("key:orders or key:sales", ["orders", "sales"]),
            ("*", ["orders", "report", "sales"]),
            (" sales ", ["sales"]),
        ],
    )
    def test_is_in_dagsters_syntax(self, shop, selection, found):
        assert sorted(one.owner for one in select(shop, selection).assets) == found

    @pytest.mark.parametrize(
        ("selection", "said"),
        [
            ("oders", "there is no asset 'oders'. Remedy: perhaps orders is meant"),
            ("key:oders+", "there is no asset 'oders'. Remedy: perhaps orders is meant"),
            ("till", "perhaps files/till is meant"),
            ("files/till", "asset 'files/till': nothing in Dagster builds it"),
            ("group:none", "names no asset. Remedy: the code location has files/till, orders, report, sales"),
            (" ", "the selection is empty"),
            ("orders or sales", "Remedy: write 'key:orders or key:sales'"),
            ("orders, sales", "Remedy: write 'key:orders or key:sales'"),
            ("orders ((", "Dagster does not understand the selection 'orders (('"),
        ],
    )
    def test_that_makes_no_sense_is_refused_in_one_line(self, shop, selection, said):
        with pytest.raises(ConfigurationError) as caught:
            select(shop, selection)
        assert said.lower() in str(caught.value).lower()
        assert "\n" not in str(caught.value)

    def test_says_where_a_plus_stops(self, shop):
        [note] = select(shop, "orders+").notes
        assert (
            note == "'+' is one step downstream, as Dagster has it: report is not in this selection, but in 'orders*'"
        )
        assert select(shop, "orders++").notes == ()
        assert select(shop, "orders*").notes == ()

    def test_leaves_out_what_nothing_builds(self, shop):
        assert "files/till is left out: nothing in Dagster builds it" in select(shop, "key:files/till or *").notes[0]


def asked(definitions, first=None, last=None):
    found = asked_for({name: keys_of(one) for name, one in definitions.items()}, first, last)
    return {name: list(keys) for name, keys in found.keys.items()}, found.notes


class TestRange:
    @pytest.mark.parametrize(
        ("definition", "first", "last", "said"),
        [
            (DAYS, "2024-02-10", "2024-02-01", "ends before it begins. Remedy: turn it round: --from 2024-02-01"),
            (DAYS, "2023-12-31", None, "there is no partition '2023-12-31', which would lie before the first"),
            (DAYS, None, "2024-03-01", "there is no partition '2024-03-01', which would lie behind the last"),
            (DAYS, "2024-1-5", None, "there is no partition '2024-1-5'. Remedy: perhaps 2024-01-05 is meant"),
            (DAYS, "2024-01-05T00:00", None, "perhaps 2024-01-05 is meant"),
            (DAYS, "05.01.2024", None, "there is no partition '05.01.2024'"),
            (DAYS, "", None, "there is no partition ''"),
            (SHOPS, "nord", None, "there is no partition 'nord'. Remedy: perhaps north is meant"),
            (SHOPS, "west", "north", "ends before it begins"),
            (BOTH, "2024-01-05|nord", None, "there is no partition '2024-01-05|nord'"),
        ],
    )
    def test_that_makes_no_sense_is_refused_with_the_first_and_the_last_partition(self, definition, first, last, said):
        with pytest.raises(ConfigurationError) as caught:
            asked({"orders": definition}, first, last)
        keys = definition.get_partition_keys()
        assert said in str(caught.value)
        assert f"partitions of orders run from {keys[0]} to {keys[-1]}" in str(caught.value)
        assert "\n" not in str(caught.value)

    def test_that_ends_tomorrow_is_refused(self):
        today = datetime.now(UTC).date()
        endless = dg.DailyPartitionsDefinition((today - timedelta(days=5)).isoformat())
        with pytest.raises(ConfigurationError, match="whose interval has not ended"):
            asked({"orders": endless}, None, (today + timedelta(days=1)).isoformat())

    def test_of_what_has_no_partitions_is_refused(self):
        with pytest.raises(ConfigurationError, match="asset 'report': it has no partitions"):
            asked({"report": None}, "2024-01-01")

    def test_without_ends_is_everything(self):
        found, _ = asked({"orders": DAYS, "report": None, "shops": SHOPS})
        assert found == {"orders": DAYS.get_partition_keys(), "report": [None], "shops": ["north", "south", "west"]}

    def test_gives_assets_that_begin_later_what_they_have_of_it(self):
        found, notes = asked({"orders": DAYS, "sales": LATER, "report": None}, "2024-01-08", "2024-01-11")
        assert found == {
            "orders": ["2024-01-08", "2024-01-09", "2024-01-10", "2024-01-11"],
            "sales": ["2024-01-10", "2024-01-11"],
            "report": [None],
        }
        assert notes == {}
        assert asked({"sales": LATER, "orders": DAYS}, None, "2024-01-05")[0] == {
            "sales": [],
            "orders": [f"2024-01-0{number}" for number in range(1, 6)],
        }

    def test_gives_other_partitions_in_time_what_overlaps_it(self):
        found, notes = asked({"orders": DAYS, "months": MONTHS, "hours": HOURS}, "2024-01-31", "2024-02-01")
        assert found["months"] == ["2024-01-01", "2024-02-01"]
        assert found["hours"] == []
        assert notes["months"] == ("those that overlap the range, which is in partitions of orders",)
        found, _ = asked({"months": MONTHS, "orders": DAYS}, "2023-12-01", "2023-12-01")
        assert found == {"months": ["2023-12-01"], "orders": []}

    def test_takes_a_text_that_is_a_day_and_a_month_for_the_day(self):
        found, _ = asked({"months": MONTHS, "orders": DAYS}, "2024-02-01", "2024-02-01")
        assert found == {"months": ["2024-02-01"], "orders": ["2024-02-01"]}

    def test_of_hours_knows_days_with_another_number_of_them(self):
        found, _ = asked({"hours": BERLIN_HOURS, "days": BERLIN}, "2024-03-31", "2024-03-31")
        assert len(found["hours"]) == 23
        assert found["days"] == ["2024-03-31"]

    def test_of_several_dimensions_is_a_range_in_each_or_in_time(self):
        days = ["2024-01-05", "2024-01-06"]
        found, _ = asked({"both": BOTH}, "2024-01-05|north", "2024-01-06|south")
        assert found["both"] == [f"{day}|{shop}" for day in days for shop in ("north", "south")]
        found, _ = asked({"both": BOTH, "orders": DAYS}, *days)
        assert found["both"] == [f"{day}|{shop}" for day in days for shop in ("north", "south", "west")]

    def test_leaves_out_partitions_of_which_it_says_nothing(self):
        found, notes = asked({"orders": DAYS, "shops": SHOPS}, "2024-01-05", "2024-01-06")
        assert found["shops"] == []
        assert notes == {"shops": ("left out: the range is one of other partitions than it has",)}
        assert asked({"shops": SHOPS}, "south")[0] == {"shops": ["south", "west"]}

    def test_with_ends_of_two_kinds_is_refused(self):
        with pytest.raises(ConfigurationError, match="one is an interval, and the other is not"):
            asked({"orders": DAYS, "shops": SHOPS}, "2024-01-05", "west")


def shifted(start, end, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.BetaWarning)
        return dg.TimeWindowPartitionMapping(start_offset=start, end_offset=end, **options)


MAPPINGS = [
    (DAYS, DAYS, None),
    (DAYS, DAYS, dg.IdentityPartitionMapping()),
    (DAYS, DAYS, shifted(-2, 0)),
    (DAYS, DAYS, shifted(-3, -1)),
    (DAYS, DAYS, dg.AllPartitionMapping()),
    (DAYS, DAYS, dg.LastPartitionMapping()),
    (DAYS, LATER, None),
    (LATER, DAYS, None),
    (LONGER, DAYS, shifted(-1, 0)),
    (LONGER, LATER, shifted(-1, 0, allow_nonexistent_upstream_partitions=True)),
    (MONTHS, DAYS, None),
    (DAYS, MONTHS, None),
    (HOURS, DAYS, None),
    (DAYS, HOURS, None),
    (BERLIN_HOURS, BERLIN, None),
    (BERLIN, BERLIN_HOURS, None),
    (SHOPS, SHOPS, None),
    (BOTH, BOTH, None),
    (BOTH, DAYS, None),
    (BOTH, SHOPS, None),
    (DAYS, BOTH, None),
    (SHOPS, DAYS, dg.AllPartitionMapping()),
    (DAYS, SHOPS, dg.SpecificPartitionsPartitionMapping(["west"])),
]


def reading(ours, theirs, mapping):
    location = location_of(asset("orders", theirs), asset("sales", ours, orders=mapping))
    mine, other = keys_of(ours), keys_of(theirs)
    found = reads_of(
        location.asset("sales"), location.asset("orders"), ours=mine, theirs=other, as_of=NOW, instance=None
    )
    return location, mine, other, found


class TestReads:
    @pytest.mark.parametrize(("ours", "theirs", "mapping"), MAPPINGS)
    def test_are_what_dagster_says_of_every_partition(self, ours, theirs, mapping):
        location, mine, _, found = reading(ours, theirs, mapping)
        exact = location.asset("sales").definition.infer_partition_mapping(
            dg.AssetKey("sales"), dg.AssetKey("orders"), theirs
        )
        for key in mine.keys[:70]:
            exist, missing = mapped_keys(exact, key, ours, theirs, as_of=NOW, instance=None)
            assert sorted(found.inputs_of(key)) == sorted({*exist, *missing}), key
            if found.same_keys:
                assert list(found.inputs_of(key)) == [key]

    def test_beyond_the_last_partition_are_told_though_dagster_leaves_them_out(self):
        *_, found = reading(DAYS, DAYS, shifted(0, 1))
        assert list(found.inputs_of("2024-01-01")) == ["2024-01-01", "2024-01-02"]
        assert list(found.inputs_of("2024-02-29")) == ["2024-02-29", "1 after 2024-02-29"]
        *_, found = reading(DAYS, DAYS, shifted(0, 1, allow_nonexistent_upstream_partitions=True))
        assert list(found.inputs_of("2024-02-29")) == ["2024-02-29"]

    def test_of_a_chain_are_those_before_and_none_of_the_first(self):
        chain = asset("total", DAYS, previous=None)
        one, keyed = location_of(chain).asset("total"), keys_of(DAYS)
        found = reads_of(one, one, ours=keyed, theirs=keyed, as_of=NOW, instance=None)
        assert list(found.inputs_of("2024-01-01")) == []
        assert list(found.inputs_of("2024-01-31")) == ["2024-01-30"]
        assert found.is_required

    def test_of_a_chain_in_several_dimensions_keep_to_the_others(self):
        one, keyed = location_of(asset("total", BOTH, previous=None)).asset("total"), keys_of(BOTH)
        found = reads_of(one, one, ours=keyed, theirs=keyed, as_of=NOW, instance=None)
        assert list(found.inputs_of("2024-01-02|west")) == ["2024-01-01|west"]
        mapping = one.definition.infer_partition_mapping(one.key, one.key, BOTH)
        for key in keyed.keys[:40]:
            assert list(found.inputs_of(key)) == list(
                mapped_keys(mapping, key, BOTH, BOTH, as_of=NOW, instance=None)[0]
            )
        assert list(found.inputs_of("2024-01-01|west")) == []

    def test_are_required_where_nothing_is_to_be_built_without_them(self):
        allowed = dg.AssetIn(metadata={"marigold/allow_missing": True})

        @partitioned_asset(partitions_def=DAYS, partition_expr="d", ins={"maybe": allowed}, deps=["mentioned"])
        def sales(orders: pd.DataFrame, maybe: pd.DataFrame) -> pd.DataFrame:
            raise NotImplementedError

        @dg.asset
        def report(orders: pd.DataFrame) -> pd.DataFrame:
            raise NotImplementedError

        @dg.asset(partitions_def=DAYS, ins={"maybe": allowed}, deps=["mentioned"])
        def plain(orders: pd.DataFrame, maybe: pd.DataFrame) -> pd.DataFrame:
            raise NotImplementedError

        location = location_of(*[asset(name, DAYS) for name in ("orders", "maybe", "mentioned")], sales, plain, report)

        def is_required(reader, read):
            mine, other = location.asset(reader), location.asset(read)
            ours, theirs = keys_of(mine.partitions_def), keys_of(other.partitions_def)
            return reads_of(mine, other, ours=ours, theirs=theirs, as_of=NOW, instance=None).is_required

        for reader in ("sales", "plain"):
            assert is_required(reader, "orders")
            assert not is_required(reader, "maybe")
            assert not is_required(reader, "mentioned")
        assert not is_required("report", "orders")


def plan_of(location, selection, first=None, last=None, *, instance=None, now=NOW, **more):
    request = Request(selection=selection, first=first, last=last, **more)
    found = gathering.gather_states(location, request, instance=instance, now=now)
    return gathering.plan_of(found, request, instance=instance, now=now)


def planned(plan):
    return {one.owner: [key.key for key in one.keys] for one in plan.assets}


def skipped(plan, owner):
    [asset] = [one for one in plan.assets if one.owner == owner]
    return {one.key: (one.reason.value, one.because) for one in asset.skipped}


class TestPlan:
    def test_looks_back_as_far_as_an_asset_says(self, tmp_path):
        def says(reach):
            @partitioned_asset(partitions_def=DAYS, partition_expr="d", metadata={"marigold/lookback": reach})
            def late(context: dg.AssetExecutionContext) -> pd.DataFrame:
                return pd.DataFrame({"d": [pd.Timestamp(context.partition_key)]})

            return late

        manager = FencedPartitionIOManager(database=str(tmp_path / "shop.duckdb"))
        with dg.DagsterInstance.ephemeral() as instance:
            for key in DAYS.get_partition_keys()[:5]:
                dg.materialize([says(2)], partition_key=key, resources={"io_manager": manager}, instance=instance)
        location = location_of(says(2), database=tmp_path / "shop.duckdb")
        assert planned(plan_of(location, "late", "2024-01-06", "2024-01-06")) == {
            "late": ["2024-01-04", "2024-01-05", "2024-01-06"]
        }
        with pytest.raises(ConfigurationError, match="asset 'late': marigold/lookback is 'two'"):
            plan_of(location_of(says("two"), database=tmp_path / "shop.duckdb"), "late")

    def test_names_partitions_whose_inputs_there_cannot_be(self, tmp_path):
        orders, hourly = asset("orders", DAYS), asset("hourly", HOURS, orders=None)
        ahead = asset("ahead", DAYS, orders=shifted(0, 1))
        early = asset("early", LONGER, orders=None)
        location = location_of(orders, hourly, ahead, early, database=tmp_path / "shop.duckdb")
        plan = plan_of(location, "orders*")
        assert len(planned(plan)["hourly"]) == 78
        assert skipped(plan, "ahead").keys() == {"2024-02-29"}
        assert skipped(plan, "ahead")["2024-02-29"] == (
            "BLOCKED",
            "orders[1 after 2024-02-29] does not exist, and its definition has none",
        )
        assert skipped(plan, "early")["2023-12-20"][0] == "BLOCKED"
        assert len(skipped(plan, "early")) == 12 + 9
        assert planned(plan)["early"] == DAYS.get_partition_keys()

    def test_of_a_part_is_blocked_by_what_it_leaves_out(self, tmp_path):
        location = location_of(
            asset("orders", DAYS), asset("sales", DAYS, orders=None), database=tmp_path / "shop.duckdb"
        )
        plan = plan_of(location, "sales", "2024-01-05", "2024-01-06")
        assert plan.is_empty
        assert skipped(plan, "sales")["2024-01-05"] == (
            "BLOCKED",
            "orders[2024-01-05] does not exist, and is not in this plan",
        )

    def test_takes_an_external_asset_to_exist(self, tmp_path):
        till = dg.AssetSpec("till", partitions_def=DAYS)
        location = location_of(till, asset("orders", DAYS, till=None), database=tmp_path / "shop.duckdb")
        assert planned(plan_of(location, "orders")) == {"orders": DAYS.get_partition_keys()}

    def test_knows_an_asset_without_a_ledger_by_the_event_log(self, tmp_path):
        @dg.asset(partitions_def=SHOPS, io_manager_key="files")
        def plain():
            return 1

        manager = FencedPartitionIOManager(database=str(tmp_path / "shop.duckdb"))
        resources = {"io_manager": manager, "files": dg.FilesystemIOManager(base_dir=str(tmp_path))}
        location = CodeLocation.of(dg.Definitions([plain], resources=resources))
        with dg.DagsterInstance.ephemeral() as instance:
            instance.report_runless_asset_event(dg.AssetMaterialization("plain", partition="south"))
            plan = plan_of(location, "plain", instance=instance)
        assert planned(plan) == {"plain": ["north", "west"]}
        assert plan.assets[0].notes[0].startswith("it keeps no ledger: what of it exists is known by the event log")
        assert plan.positions == {}
        offline = plan_of(location, "plain")
        assert planned(offline) == {"plain": ["north", "south", "west"]}
        assert "DAGSTER_HOME is not set, so all of it counts as missing" in offline.assets[0].notes[0]

    def test_of_dynamic_partitions_needs_an_instance(self, tmp_path):
        dynamic = asset("orders", dg.DynamicPartitionsDefinition(name="shops"))
        location = location_of(dynamic, database=tmp_path / "shop.duckdb")
        with pytest.raises(ConfigurationError, match="set DAGSTER_HOME to the folder of the instance"):
            plan_of(location, "orders")
        with dg.DagsterInstance.ephemeral() as instance:
            with pytest.raises(ConfigurationError, match="it has no partition yet"):
                plan_of(location, "orders", "north", instance=instance)
            instance.add_dynamic_partitions("shops", ["north", "south", "west"])
            assert planned(plan_of(location, "orders", "south", instance=instance)) == {"orders": ["south", "west"]}

    def test_names_what_reads_it_and_what_the_range_leaves_out(self, tmp_path):
        by_shop = asset("shops", SHOPS, orders=dg.AllPartitionMapping())
        sales = asset("sales", DAYS, orders=None)
        location = location_of(asset("orders", DAYS), sales, by_shop, database=tmp_path / "shop.duckdb")
        notes = plan_of(location, "orders").notes
        assert "sales, shops read what this plan builds, and are not in it" in notes
        assert any("the database" in note and "does not exist yet" in note for note in notes)
        notes = plan_of(location, "orders*", "2024-01-05").notes
        assert "shops: left out: the range is one of other partitions than it has" in notes

    def test_shares_runs_only_within_equal_definitions_and_policies(self, tmp_path):
        location = location_of(
            asset("orders", DAYS),
            asset("sales", DAYS, orders=None),
            asset("later", LATER, orders=None),
            asset("total", DAYS, orders=None, previous=None),
            database=tmp_path / "shop.duckdb",
        )
        plan = {one.owner: one for one in plan_of(location, "*").assets}
        assert (plan["sales"].in_run_of, plan["sales"].keys_per_run) == ("orders", 100)
        assert plan["later"].in_run_of is None
        assert (plan["total"].in_run_of, plan["total"].keys_per_run, plan["total"].is_chain) == (None, None, True)


class TestLimits:
    def test_without_an_instance_are_assumed_and_say_so(self):
        found = limits_of(None)
        assert found.slots == 2
        assert found.source == "DAGSTER_HOME is not set: 2 slots are assumed"

    @pytest.mark.parametrize(
        ("runs", "slots", "said"),
        [
            (
                {"max_concurrent_runs": 8, "tag_concurrency_limits": [{"key": "dagster/backfill", "limit": 3}]},
                3,
                "the instance's limit on dagster/backfill",
            ),
            ({"max_concurrent_runs": 8}, 8, "max_concurrent_runs of the instance, which has no lower limit"),
            ({"max_concurrent_runs": -1}, None, "nothing bounds a backfill"),
        ],
    )
    def test_are_those_of_the_instance(self, tmp_path, runs, slots, said):
        overrides = {"concurrency": {"runs": runs}}
        with dg.DagsterInstance.local_temp(str(tmp_path), overrides=overrides) as instance:
            found = limits_of(instance)
            fewer, more = limits_of(instance, 1), limits_of(instance, 9)
        assert found.slots == slots
        assert said in found.source
        assert (fewer.slots, fewer.source) == (1, "max_backfill_writers of a database")
        assert more.slots == (9 if slots is None else slots)
