"""The parts of Dagster that are not public are still what they were, and what happens when they are not."""

from __future__ import annotations

import inspect
from datetime import UTC, datetime

import dagster as dg
import pandas as pd
import pytest

from marigold_assets import FencedPartitionIOManager, dagster_internals, dagster_loading

DAYS = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-02-01")
D1, D2, D3 = "2024-01-01", "2024-01-02", "2024-01-03"
pytestmark = pytest.mark.filterwarnings("ignore:Parameter `backfill_policy`")


@pytest.fixture
def days():
    @dg.asset(
        key=["s", "t"],
        partitions_def=DAYS,
        metadata={"partition_expr": "d"},
        backfill_policy=dg.BackfillPolicy.single_run(),
        code_version="4",
    )
    def t(context):
        keys = list(context.partition_keys)
        return dg.Output(pd.DataFrame({"d": pd.to_datetime(keys), "v": range(len(keys))}), tags={"my": "tag"})

    return t


def test_the_functions_that_make_events_take_what_they_took():
    step = dagster_internals.execute_step
    assert list(inspect.signature(step._get_output_asset_events).parameters) == [
        "asset_key",
        "asset_partitions",
        "output",
        "output_def",
        "io_manager_metadata",
        "step_context",
        "execution_type",
    ]
    assert list(inspect.signature(step._dagster_event_for_asset_event).parameters) == [
        "step_context",
        "asset_event",
        "batch_metadata",
    ]
    assert inspect.isgeneratorfunction(step._store_output)
    assert "output" in inspect.signature(step._store_output).parameters
    assert step._store_output.__globals__["__name__"] == step.__name__


def test_the_mark_that_events_are_already_written_is_looked_at_where_they_would_be():
    source = inspect.getsource(dagster_internals.execute_step._log_materialization_or_observation_events_for_asset)
    first = source.split("asset_key =")[0]
    assert "if SYSTEM_METADATA_KEY_SOURCE_ASSET_OBSERVATION in output.metadata:\n        return" in first


def test_the_attributes_that_are_reached_into_exist():
    output = dg.Output(1, metadata={"a": 1})
    assert output._metadata == output.metadata
    assert output._data_version is None
    assert output._tags == output.tags
    by_hand = dg.build_output_context()
    assert by_hand._step_context is None
    by_hand._events = dagster_internals._Late(["logged"], lambda: iter(["made"]))
    assert list(by_hand.consume_events()) == ["logged", "made"]
    by_hand.add_output_metadata({"mine": 7})
    assert by_hand._user_generated_metadata["mine"].value == 7


class Watching(FencedPartitionIOManager):
    """Notes what can be found out while an output is stored."""

    def handle_output(self, context, obj):
        SEEN.append(
            (
                dagster_internals.output_being_stored(),
                dagster_internals.step_context_of(context).step.key,
                dagster_internals.planned_asset_keys(
                    dagster_internals.step_context_of(context).instance,
                    dagster_internals.step_context_of(context).dagster_run,
                ),
            )
        )
        super().handle_output(context, obj)


SEEN = []


def test_the_output_being_stored_the_step_and_the_plan_of_its_run_are_found(warehouse, days):
    SEEN.clear()

    @dg.asset(deps=[days])
    def other() -> None: ...

    manager = Watching(database=warehouse.path)
    assert dagster_internals.output_being_stored() is None
    warehouse.materialize(days, other, key=D1, resources={"io_manager": manager})
    warehouse.materialize(days, other, key=D1, resources={"io_manager": manager}, selection=[days])
    for output, step, _ in SEEN:
        assert isinstance(output, dg.Output)
        assert output.tags["my"] == "tag"
        assert step == "s__t"
    assert [planned for _, _, planned in SEEN] == [{days.key, other.key}, {days.key}]


def test_the_plan_of_a_job_is_known_before_its_steps_start(warehouse, days):
    seen = []

    @dg.resource
    def resource(context):
        seen.append(dagster_internals.planned_asset_keys(context.instance, context.run))

    @dg.asset(key=["s", "u"], deps=[days], required_resource_keys={"resource"})
    def u() -> None: ...

    job = dg.define_asset_job("job", selection=[days, u])
    defs = dg.Definitions(
        assets=[days, u], jobs=[job], resources={"io_manager": warehouse.io_manager(), "resource": resource}
    )
    assert defs.resolve_job_def("job").execute_in_process(instance=warehouse.instance, partition_key=D1).success
    assert seen == [{days.key, u.key}]


def test_the_runs_of_a_schedule_are_found_by_its_name_and_tell_their_tick(warehouse, days):
    """By the names of tags that Dagster's scheduler sets, as the tests of schedules show with a real one."""

    @dg.schedule(cron_schedule="0 0 * * *", target=[days], name="nightly")
    def nightly(context): ...

    job = dg.Definitions([days]).resolve_implicit_global_asset_job_def()
    tags = {**dg.DagsterRun.tags_for_schedule(nightly), "dagster/partition": D1}
    due = {dagster_internals.SCHEDULED_EXECUTION_TIME_TAG: "2024-01-02T00:00:00+00:00"}
    runs = [warehouse.instance.create_run_for_job(job, tags=tags | more) for more in ({}, due)]
    found = dagster_internals.runs_of_schedule(warehouse.instance, "nightly", D1)
    assert {run.run_id: dagster_internals.tick_of(run) for run in found} == {
        runs[0].run_id: None,
        runs[1].run_id: datetime(2024, 1, 2, tzinfo=UTC),
    }
    for schedule, partition in (("nightly", D2), ("another", D1)):
        assert dagster_internals.runs_of_schedule(warehouse.instance, schedule, partition) == []


def test_a_selection_names_the_assets_that_a_code_location_has(days):
    repository = dg.Definitions([days]).get_repository_def()
    selection = dg.AssetSelection.from_string('key:"s/t"') | dg.AssetSelection.assets("nobody")
    assert dagster_internals.selected_assets(repository, selection) == {days.key}


def test_what_a_job_knows_of_its_assets_is_found_by_key(warehouse, days):
    found = []

    @dg.asset(deps=[days], partitions_def=DAYS, backfill_policy=dg.BackfillPolicy.single_run())
    def reader(context) -> None:
        found.append(dagster_internals.upstream_node(context, days.key))
        found.append(dagster_internals.upstream_node(context, dg.AssetKey("nobody")))

    warehouse.materialize(days, reader, key=D1)
    node, nobody = found
    assert node.metadata["partition_expr"] == "d"
    assert node.partitions_def == DAYS
    assert nobody is None


def fallen_back(warehouse, monkeypatch, days, **options):
    monkeypatch.setattr(dagster_internals, "output_being_stored", lambda: None)
    result = warehouse.materialize(days, **options)
    [warning] = [
        entry.user_message
        for entry in warehouse.instance.all_logs(result.run_id)
        if "stores outputs in a way that marigold_assets does not know" in entry.user_message
    ]
    assert warning
    return [event for _, event in warehouse.events(["s", "t"])]


def test_without_the_internals_a_single_partition_still_reports_all_but_our_tags(warehouse, monkeypatch, days):
    [event] = fallen_back(warehouse, monkeypatch, days, key=D1)
    assert event.partition == D1
    assert event.metadata["dagster/partition_row_count"].value == 1
    assert event.tags["dagster/data_version"] == event.metadata["marigold/content_hash"].value
    assert event.tags["dagster/code_version"] == "4"
    assert event.tags["my"] == "tag"
    assert "marigold/swap_id" not in event.tags


def test_without_the_internals_a_range_still_reports_every_partition_once(warehouse, monkeypatch, days):
    events = fallen_back(warehouse, monkeypatch, days, keys=(D1, D3))
    assert [event.partition for event in events] == [D1, D2, D3]
    assert all("dagster/partition_row_count" not in event.metadata for event in events)  # none rather than a wrong one
    assert warehouse.rows("SELECT count(*) FROM s.t") == [(3,)]


def test_with_the_internals_there_is_no_warning(warehouse, days):
    result = warehouse.materialize(days, keys=(D1, D3))
    warnings = [entry for entry in warehouse.instance.all_logs(result.run_id) if entry.level >= 30]
    assert warnings == []
    events = [event for _, event in warehouse.events(["s", "t"])]
    assert [event.partition for event in events] == [D1, D2, D3]
    assert len({event.tags["dagster/data_version"] for event in events}) == 3
    assert {event.tags["my"] for event in events} == {"tag"}
    assert {event.tags["dagster/code_version"] for event in events} == {"4"}


def test_the_current_context_of_a_step_can_be_narrowed(warehouse):
    found = []

    @dg.asset
    def step(context) -> None:
        other = dg.AssetExecutionContext(context.op_execution_context)
        with dagster_internals.current_context(other):
            found.append(dg.AssetExecutionContext.get() is other)
        found.append(dg.AssetExecutionContext.get() is context)

    warehouse.materialize(step)
    assert found == [True, True]


def test_resources_are_told_from_inputs_by_their_annotation():
    class Bank(dg.ConfigurableResource):
        name: str

    for wanted in (Bank, dg.ResourceParam[str]):
        assert dagster_internals.is_resource_annotation(wanted)
    for wanted in (pd.DataFrame, str, dict[str, pd.DataFrame], None, pd.DataFrame | None):
        assert not dagster_internals.is_resource_annotation(wanted)


def test_the_partitions_that_one_key_reads_are_those_of_its_mapping(warehouse, days):
    found = []
    back = dg.TimeWindowPartitionMapping(start_offset=-1, end_offset=-1)

    @dg.asset(
        ins={"before": dg.AssetIn(days.key, partition_mapping=back, dagster_type=dg.Nothing)},
        partitions_def=DAYS,
        backfill_policy=dg.BackfillPolicy.single_run(),
    )
    def reader(context) -> None:
        now = datetime.now(UTC)
        found.extend(dagster_internals.upstream_keys(context, days.key, key, now) for key in (D1, D3))
        found.append(dagster_internals.io_manager_key_of(context, days.key))
        found.append(dagster_internals.io_manager_key_of(context, dg.AssetKey("nobody")))

    warehouse.materialize(days, reader, key=D2)
    assert found == [((), ()), ((D2,), ()), "io_manager", None]


def test_an_output_whose_events_are_logged_adds_none_and_its_children_run(warehouse):
    ran = []

    @dg.asset(dagster_type=dg.Nothing, partitions_def=DAYS, backfill_policy=dg.BackfillPolicy.single_run())
    def parent(context):
        for key in context.partition_keys:
            context.log_event(dg.AssetMaterialization(context.asset_key, partition=key))
        yield dagster_internals.already_logged_output()

    @dg.asset(deps=[parent], partitions_def=DAYS, backfill_policy=dg.BackfillPolicy.single_run())
    def child() -> None:
        ran.append(True)

    warehouse.materialize(parent, child, keys=(D1, D3))
    assert ran == [True]
    assert [event.partition for _, event in warehouse.events("parent")] == [D1, D2, D3]


LOADED = """
import dagster as dg

@dg.asset(code_version="4")
def one(): ...

{name} = dg.Definitions([one], resources={{"store": dg.ResourceDefinition.hardcoded_resource(1)}})
"""


def origin(**given):
    return dagster_loading.Origin(**given)


def test_definitions_are_loaded_from_files_modules_and_attributes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name = f"loaded_{tmp_path.name}"
    path = tmp_path / f"{name}.py"
    path.write_text(LOADED.format(name="defs") + "\ndef made(): return defs\n")
    for found in (
        origin(python_file=str(path)),
        origin(python_file=str(path), attribute="defs"),
        origin(python_file=str(path), attribute="made"),
        origin(module_name=name),
        origin(module_name=name, attribute="made"),
        origin(package_name=name),
    ):
        [repository] = dagster_loading.load_repositories(found, str(tmp_path))
        assert list(repository.assets_defs_by_key) == [dg.AssetKey("one")]
        assert list(repository.get_top_level_resources()) == ["store"]


def test_code_locations_are_named_by_workspaces_and_projects(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "w.yaml").write_text(
        "load_from:\n  - python_file: {relative_path: a.py, location_name: here, attribute: x}\n"
        "  - grpc_server: {host: localhost, port: 4000, location_name: there}\n"
    )
    found = dagster_loading.locations_of_workspace(["w.yaml"])
    assert list(found) == ["here", "there"]
    assert found["there"] is None
    assert found["here"].python_file == str(tmp_path / "a.py")
    assert found["here"].get_cli_args()[:3] == ["-f", str(tmp_path / "a.py"), "-d"]
    for text in ('[tool.dagster]\nmodule_name = "m"', '[tool.dg.project]\nroot_module = "r"'):
        (tmp_path / "pyproject.toml").write_text(text)
        [one] = dagster_loading.locations_of_project("pyproject.toml").values()
        assert one.module_name in ("m", "r.definitions")
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'x'")
    assert dagster_loading.locations_of_project("pyproject.toml") == {}


def test_a_configured_resource_tells_its_class_and_settings_without_being_set_up(monkeypatch):
    manager = FencedPartitionIOManager(database=dg.EnvVar("SHOP_DB"), schema="s", connection_config={"threads": 1})
    resource = dg.Definitions(resources={"io": manager}).get_repository_def().get_top_level_resources()["io"]
    assert dagster_loading.configured_class(resource) is FencedPartitionIOManager
    assert dagster_loading.configured_class(dg.ResourceDefinition.hardcoded_resource(1)) is None
    monkeypatch.setenv("SHOP_DB", "/data/shop.duckdb")
    made = FencedPartitionIOManager(**dagster_loading.configured_values(resource))
    assert (made.database, made.schema_, made.connection_config) == ("/data/shop.duckdb", "s", {"threads": 1})
    monkeypatch.delenv("SHOP_DB")
    with pytest.raises(dg.DagsterInvalidConfigError):
        dagster_loading.configured_values(resource)


def test_the_env_file_is_read_as_dagster_reads_it(tmp_path, monkeypatch):
    monkeypatch.setenv("SHOP_ROOT", "/data")
    (tmp_path / ".env").write_text("SHOP_DB=${SHOP_ROOT}/shop.duckdb\n# a comment\nEMPTY\n")
    assert dagster_loading.environment_file(tmp_path) == {"SHOP_DB": "/data/shop.duckdb"}
    assert dagster_loading.environment_file(tmp_path / "nowhere") == {}


def test_the_newest_data_version_of_every_partition_comes_at_once(tmp_path):
    key = dg.AssetKey("one")
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        for partition, version in (("a", "v1"), ("b", "v2"), ("a", "v3"), ("c", None)):
            tags = {"dagster/data_version": version} if version else {}
            instance.report_runless_asset_event(dg.AssetMaterialization(key, partition=partition, tags=tags))
        storage = dagster_loading.event_storage(tmp_path)
        assert dagster_loading.latest_tags(storage, key, "dagster/data_version") == {"a": "v3", "b": "v2"}
        assert set(storage.get_materialized_partitions(key)) == {"a", "b", "c"}
        [entry] = storage.get_latest_materialization_events([key]).values()
        assert entry.asset_materialization.partition == "c"


class Remote:
    """An event log that is asked by the methods that all have."""

    def __init__(self, storage):
        self.get_latest_storage_id_by_partition = storage.get_latest_storage_id_by_partition
        self.get_event_records = storage.get_event_records


@pytest.mark.slow
@pytest.mark.parametrize("kind", [lambda storage: storage, Remote], ids=["SQL", "any"])
def test_what_the_newest_events_of_other_runs_say_comes_at_once(tmp_path, kind):
    key, name = dg.AssetKey("one"), "marigold/swap_id"

    @dg.asset(key=key, partitions_def=dg.StaticPartitionsDefinition(["a", "b", "c", "d"]))
    def one(context):
        yield dg.AssetMaterialization(key, partition=context.partition_key, tags={name: f"of-{context.run.run_id}"})
        yield dg.Output(None, metadata={"__source_asset_observation__": True})

    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        run = dg.materialize([one], partition_key="a", instance=instance).run_id
        newer = dg.materialize([one], partition_key="a", instance=instance).run_id
        for partition, event in {
            "b": {"metadata": {name: "as metadata", "other": {name: "within"}}},
            "c": {"tags": {"else": "x"}, "metadata": {"text": f'"{name}": "in a text"'}},
            "d": {"tags": {name: "unexpected"}},
        }.items():
            instance.report_runless_asset_event(dg.AssetMaterialization(key, partition=partition, **event))
        storage = dagster_loading.event_storage(tmp_path)
        expected = dict.fromkeys("abc", run)
        told = dagster_loading.told_by_others(kind(storage), key, expected, name)
        assert told == {"a": f"of-{newer}", "b": "as metadata"}
        assert dagster_loading.told_by_others(kind(storage), key, {"a": newer}, name) == {}


def test_an_event_log_that_was_never_written_is_not_made(tmp_path):
    assert dagster_loading.event_storage(tmp_path) is None
    (tmp_path / "dagster.yaml").write_text(f"storage:\n  sqlite:\n    base_dir: {tmp_path}/elsewhere\n")
    assert dagster_loading.event_storage(tmp_path) is None
    assert [one.name for one in tmp_path.iterdir()] == ["dagster.yaml"]


@pytest.mark.slow
def test_an_instance_that_was_never_used_tells_its_settings_and_is_not_made(tmp_path):
    (tmp_path / "dagster.yaml").write_text("concurrency:\n  runs:\n    max_concurrent_runs: 7\n")
    with dagster_loading.reading_instance(tmp_path) as instance:
        assert instance.get_concurrency_config().run_queue_config.max_concurrent_runs == 7
        assert instance.get_run_records() == []
        assert not instance.is_ephemeral
    assert [one.name for one in tmp_path.iterdir()] == ["dagster.yaml"]


@pytest.mark.slow
def test_an_instance_that_was_used_is_opened_as_it_is(tmp_path):
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        instance.report_runless_asset_event(dg.AssetMaterialization("orders", partition="a"))
    with dagster_loading.reading_instance(tmp_path) as instance:
        assert instance.get_materialized_partitions(dg.AssetKey("orders")) == {"a"}


def test_a_mapping_tells_which_partitions_are_read_without_a_run():
    days = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-01-04")
    as_of = datetime(2024, 2, 1, tzinfo=UTC)
    before = dg.TimeWindowPartitionMapping(start_offset=-1, end_offset=0)

    def read(mapping, key, definition):
        return dagster_internals.mapped_keys(mapping, key, definition, days, as_of=as_of, instance=None)

    assert read(before, "2024-01-03", days) == (("2024-01-02", "2024-01-03"), ())
    assert read(before, "2024-01-01", days) == (("2024-01-01",), ())
    earlier = dg.DailyPartitionsDefinition("2023-12-30", end_date="2024-01-04")
    assert read(dg.TimeWindowPartitionMapping(), "2023-12-31", earlier) == ((), ("2023-12-31",))
    assert read(dg.LastPartitionMapping(), None, None) == (("2024-01-03",), ())
    assert read(dg.SpecificPartitionsPartitionMapping(["2024-01-02"]), None, None) == (("2024-01-02",), ())
