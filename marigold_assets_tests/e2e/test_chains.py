"""Chains and ranges of days under a real daemon with the project's own dagster.yaml, and workers that are killed."""

from __future__ import annotations

import os
import random
from collections import Counter
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.execution.backfill import BulkActionStatus

pytestmark = [pytest.mark.processes, pytest.mark.daemon, pytest.mark.timeout(900)]

SETTINGS = (Path(__file__).parents[2] / "dagster.yaml").read_text(encoding="utf-8")
LOCATION = Path(__file__).with_name("chain_location.py")
KEYS = [*(f"2024-01-{number:02d}" for number in range(1, 32)), *(f"2024-02-{number:02d}" for number in range(1, 30))]
KILLS = 10 if os.environ.get("MARIGOLD_STRESS") else 2
SEED = int(os.environ.get("MARIGOLD_SEED", "20240229"))


@pytest.fixture(scope="module")
def shop(zygote, helpers):
    """An instance with a daemon and the root of the chains built, for all tests of this file: each has its own asset."""
    with helpers.new_room() as room:
        rig = helpers.Rig(zygote, room, SETTINGS, LOCATION)
        try:
            yield Shop(rig, helpers)
        finally:
            rig.close()


class Shop:
    """What the tests of chains ask of an instance."""

    def __init__(self, rig, helpers):
        self.rig, self.helpers = rig, helpers
        self.range_run("orders")
        for twin in ("whole", "sql_whole"):
            self.range_run(twin)
        self.rig.start_daemon()

    def range_run(self, asset):
        """Build all of an asset in one run that nobody disturbs."""
        run = self.rig.run(f"{asset}_together", (KEYS[0], KEYS[-1]))
        assert self.rig.succeeded(run), self.rig.logs()

    def backfill(self, launch, asset, keys=KEYS, **tags):
        params = {"assetSelection": [{"path": [asset]}], "partitionNames": list(keys)}
        return launch(self.helpers.LAUNCH_BACKFILL, backfillParams=params)["backfillId"]

    def ledger(self, asset):
        return self.rig.store.ledger(self.rig.table(asset))

    def keys_called(self, asset):
        return [day for day, _ in self.rig.calls(asset)]

    def events(self, asset):
        """All materializations of an asset, the oldest first, by day."""
        wanted = dg.AssetRecordsFilter(asset_key=dg.AssetKey(asset))
        records = self.rig.instance.fetch_materializations(wanted, limit=10_000, ascending=True).records
        found = {}
        for record in records:
            found.setdefault(record.partition_key, []).append(record.asset_materialization)
        return found

    def rows(self, asset, until="9999-12-31"):
        return self.rig.query(
            f"SELECT day::DATE, product, cents FROM shop.{asset} WHERE day <= DATE '{until}' ORDER BY ALL"
        )

    def assert_like(self, asset, twin="whole", keys=KEYS):
        """The content is that of a chain that nobody disturbed, and ledger and events say so once."""
        heads, wanted = (self.rig.store.heads(self.rig.table(name)) for name in (asset, twin))
        assert sorted(heads) == list(keys)
        assert self.rows(asset) == self.rows(twin, until=keys[-1])
        assert {key: head.content_hash for key, head in heads.items()} == {
            key: wanted[key].content_hash for key in keys
        }
        events = self.events(asset)
        assert sorted(events) == list(keys)
        for key, said in events.items():
            head = heads[key]
            for event in said:
                assert event.metadata["dagster/partition_row_count"].value == head.row_count
                assert event.tags["dagster/data_version"] == head.content_hash
            assert said[-1].tags["marigold/swap_id"] == head.swap_id

    def assert_swapped_once(self, asset, keys=KEYS):
        assert [entry.partition_key for entry in self.ledger(asset)] == list(keys)


def test_a_chain_whose_worker_is_killed_at_any_key_continues_there_and_ends_well(shop):
    luck = random.Random(SEED)
    killed = {}
    for number in range(KILLS):
        # In turn: within the function, between commit and event, and at any moment after the function was called.
        place, what = [("function", "kill worker"), ("commit", "kill worker"), ("function", None)][number % 3]
        what = what or f"kill worker in {luck.uniform(0.0, 0.2):.3f}"
        killed[f"killed_{number}"] = (place, luck.choice(KEYS), what)
    for asset, (place, key, what) in killed.items():
        shop.rig.order(place, asset, key, what)
    with shop.rig.user_interface() as launch:
        backfills = {asset: shop.backfill(launch, asset) for asset in killed}
        for asset, backfill in backfills.items():
            assert shop.rig.await_backfill(backfill) is BulkActionStatus.COMPLETED_SUCCESS
            place, key, what = killed[asset]
            assert shop.rig.is_obeyed(place, asset, key)
            first, second = shop.rig.runs_of(backfill)
            assert first.status is dg.DagsterRunStatus.FAILURE
            assert second.status is dg.DagsterRunStatus.SUCCESS
            assert second.parent_run_id == first.run_id
            shop.assert_like(asset, "whole" if int(asset[-1]) % 2 else "sql_whole")
            shop.assert_swapped_once(asset)
            twice = [day for day, count in Counter(shop.keys_called(asset)).items() if count > 1]
            assert sorted(set(shop.keys_called(asset))) == KEYS
            if what == "kill worker":
                assert twice == ([key] if place == "function" else [])
                # What was built before is said, and by the run that has built it, or else by the one that found it.
                assert [run for _, run in shop.rig.calls(asset)].count(first.run_id) == KEYS.index(key) + 1
            else:
                assert len(twice) <= 1
                assert all(day >= key for day in twice)
