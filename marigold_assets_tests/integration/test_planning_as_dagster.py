"""The simulation of a plan against Dagster's own backfill daemon: at every look both request the same runs.

The daemon's code is carried out look by look, on a real instance; instead of carrying out the runs, what the simulation
says is committed until then is reported as materialized.
"""

from __future__ import annotations

import logging
import os
import time
from collections import Counter

import dagster as dg
import pytest
from dagster._core.definitions.assets.graph.asset_graph_subset import AssetGraphSubset
from dagster._core.definitions.events import AssetKeyPartitionKey
from dagster._core.events import DagsterEvent, StepMaterializationData
from dagster._core.execution.backfill import BulkActionStatus, PartitionBackfill
from dagster._core.instance_for_test import instance_for_test
from dagster._core.remote_origin import InProcessCodeLocationOrigin
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import InProcessWorkspaceLoadTarget
from dagster._daemon.backfill import execute_backfill_iteration

from marigold_assets.planning.model import Request
from marigold_assets.planning.simulation import Pace, Simulator, Terms
from marigold_assets.planning.states import AssetState, Reads
from marigold_assets.planning.wanted import wanted
from marigold_assets_tests.integration import planned_location
from marigold_assets_tests.integration.planned_location import CASES, KEYS, KEYS_PER_RUN
from marigold_assets_tests.unit.planning_states import all_of, shifted

pytestmark = [pytest.mark.slow]
RANGE = ("dagster/asset_partition_range_start", "dagster/asset_partition_range_end")
# Everything done at the next look; slots so few, and partitions so slow, that each look finds some; and in between.
PACES = [(None, 1.0, 1.0), (1, 20.0, 9.0), (2, 40.0, 35.0)]
ALL = [(case, number) for case in CASES for number in range(len(PACES))]
CHOSEN = ALL if os.environ.get("MARIGOLD_STRESS") else [(case, at % len(PACES)) for at, case in enumerate(CASES)]


@pytest.fixture(scope="module")
def daemon(tmp_path_factory):
    # One file for the events of all runs: Dagster's own choice, one a run, takes a second for each.
    events = {
        "module": "dagster._core.storage.event_log",
        "class": "ConsolidatedSqliteEventLogStorage",
        "config": {"base_dir": str(tmp_path_factory.mktemp("events"))},
    }
    queue = {"run_queue": {"max_concurrent_runs": 1}, "telemetry": {"enabled": False}}
    with instance_for_test(overrides={**queue, "event_log_storage": events}) as instance:
        origin = LoadableTargetOrigin(python_file=planned_location.__file__)
        target = InProcessWorkspaceLoadTarget(InProcessCodeLocationOrigin(origin))
        with WorkspaceProcessContext(instance, target) as process:
            yield process


def states_of(case):
    found = []
    for name, one in CASES[case].items():
        reads = {}
        for other, offsets in one.reads.items():
            if offsets is None:
                reads[other] = all_of(KEYS, required=False)
            elif offsets == (0, 0):
                reads[other] = Reads(inputs_of=lambda key: (key,), is_required=False, same_keys=True)
            else:
                reads[other] = shifted(KEYS, *range(offsets[0], offsets[1] + 1), required=False)
        keys = KEYS if one.is_partitioned else (None,)
        planned = one.planned if one.is_partitioned else (None,)
        found.append(
            AssetState(
                owner=name,
                keys=keys,
                wanted=keys,
                built=set(keys) - set(planned),
                unknown=dict.fromkeys(set(keys) - set(planned), "left alone"),
                reads=reads,
                keys_per_run=KEYS_PER_RUN[one.policy],
                grouping=(one.is_partitioned, one.policy),
            )
        )
    return found


def simulated(plans, pace):
    slots, first, later = pace
    owners = [one.owner for one in plans]
    durations = Pace(
        run_start=2.0,
        run_end=1.0,
        first_key=dict.fromkeys(owners, first),
        next_key=dict.fromkeys(owners, later),
    )
    return Simulator(plans).run(durations, Terms(slots=slots, dequeue_seconds=0.0), in_detail=True)


def requested(instance, backfill_id, seen):
    """The runs that the daemon has requested since: the assets of each, and its partitions."""
    runs = instance.get_runs(dg.RunsFilter(tags={"dagster/backfill": backfill_id}))
    for run in runs:
        if run.run_id in seen:
            continue
        first, last = (run.tags.get(tag, run.tags.get("dagster/partition")) for tag in RANGE)
        keys = (None,) if first is None else KEYS[KEYS.index(first) : KEYS.index(last) + 1]
        seen[run.run_id] = (tuple(sorted(key.path[-1] for key in run.asset_selection)), keys)
        yield seen[run.run_id]


@pytest.mark.parametrize(("case", "number"), CHOSEN)
def test_at_every_look_the_daemon_requests_the_runs_of_the_simulation(daemon, case, number):
    instance, backfill_id = daemon.instance, f"{case}-{number}"
    plans = wanted(states_of(case), Request(selection="*"))
    outcome = simulated(plans, PACES[number])
    keys = {one.owner: [key.key for key in one.keys] for one in plans}
    graph = daemon.create_request_context().asset_graph
    target = {AssetKeyPartitionKey(dg.AssetKey([case, owner]), key) for owner, some in keys.items() for key in some}
    instance.add_backfill(
        PartitionBackfill.from_asset_graph_subset(
            backfill_id=backfill_id,
            backfill_timestamp=time.time(),
            tags={},
            dynamic_partitions_store=instance,
            asset_graph_subset=AssetGraphSubset.from_asset_partition_set(target, graph),
            title=None,
            description=None,
            run_config=None,
        )
    )
    expected, actual, seen, reported = {}, {}, {}, set()
    for run in outcome.timeline:
        mine = (tuple(sorted(run.members)), tuple(keys[run.owner][run.first : run.stop]))
        expected.setdefault(run.requested_at, Counter())[mine] += 1
    looks = int((max(expected) - 15) // 30) + 1
    for now in (15.0 + 30 * look for look in range(looks)):
        commits = [
            (at, owner, key)
            for owner, some in outcome.commits.items()
            for at, key in zip(some, keys[owner], strict=True)
            if at <= now
        ]
        for _, owner, key in sorted(commits, key=lambda one: one[0]):
            if (owner, key) not in reported:
                reported.add((owner, key))
                (run_id,) = (one for one, (assets, some) in seen.items() if owner in assets and key in some)
                materialize(instance, run_id, dg.AssetKey([case, owner]), key)
        assert [error for error in execute_backfill_iteration(daemon, logging.getLogger("test")) if error] == []
        if found := Counter(requested(instance, backfill_id, seen)):
            actual[now] = found
    # The next case is not to look at this one again.
    instance.update_backfill(instance.get_backfill(backfill_id).with_status(BulkActionStatus.CANCELED))
    assert actual == expected


def materialize(instance, run_id, asset_key, key):
    run = instance.get_run_by_id(run_id)
    event = DagsterEvent(
        event_type_value="ASSET_MATERIALIZATION",
        job_name=run.job_name,
        event_specific_data=StepMaterializationData(dg.AssetMaterialization(asset_key, partition=key)),
    )
    instance.report_dagster_event(event, run_id)
