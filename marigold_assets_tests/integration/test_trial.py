"""Functions computed twice, once under other conditions and in another process: what depends on what."""

from __future__ import annotations

import functools
import os
import time

import pytest

from marigold_assets.disturbance import PROCESS
from marigold_assets.loading import LocationOptions
from marigold_assets.location import load
from marigold_assets.trial import ALWAYS, FAILURE, try_out

pytestmark = pytest.mark.slow

KEYS = ["2024-01-01", "2024-01-02", "2024-01-03"]

DEFINITIONS = """
import os, random, time, uuid
from datetime import datetime, timezone

import dagster as dg
import pandas as pd

from marigold_assets import FencedPartitionIOManager, partitioned_asset

DAILY = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-01-11")
options = dict(partitions_def=DAILY, partition_expr="day")
COUNTER = []


def frame(context, **columns):
    return pd.DataFrame({"day": [pd.Timestamp(context.partition_key)] * 2, "id": [1, 2], **columns})


@partitioned_asset(**options)
def pure(context) -> pd.DataFrame:
    print("computing", context.partition_key)
    dice = random.Random(context.partition_key)
    rows = frame(context, dice=dice.random(), order=sorted({"a", "b"}))
    return rows.iloc[:: -1 if random.random() < 0.5 else 1]  # rows have no order


@partitioned_asset(**options, metadata={"marigold/impure_columns": {"waived": "nobody reads it"}})
def every_way(context) -> pd.DataFrame:
    COUNTER.append(context.partition_key)
    names = list({"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"})
    return frame(
        context,
        year=datetime.now(timezone.utc).year,
        token=str(uuid.uuid4()),
        hour=datetime.fromtimestamp(0).hour,
        zone=time.strftime("%Z", time.localtime(0)),
        name="".join(names),
        position=COUNTER.index(context.partition_key) % 3,
        waived=datetime.now().timestamp(),
    )


@partitioned_asset(**options)
def sql(pure: str) -> str:
    return f"SELECT *, current_date AS today, now() AS at FROM ({pure})"


@partitioned_asset(**options)
def sometimes(context) -> pd.DataFrame:
    if datetime.now().year > YEAR:
        raise ValueError("too late")
    return frame(context)


@partitioned_asset(**options)
def never(context) -> pd.DataFrame:
    raise ValueError("no such file")


STARTED, TODAY = datetime.now(), datetime.now().date()


@partitioned_asset(**options)
def loaded(context) -> pd.DataFrame:
    return frame(context, started=STARTED, today=str(TODAY), order="".join({"a", "b", "c", "d", "e", "f", "g", "h"}))


YEAR = datetime.now().year
defs = dg.Definitions(
    assets=[pure, every_way, sql, sometimes, never, loaded],
    resources={"io_manager": FencedPartitionIOManager(database=os.environ["MARIGOLD_TEST_DATABASE"])},
)
"""


@pytest.fixture
def tried(tmp_path, warehouse, monkeypatch, capfd):
    """Tries an asset of the definitions out, after building what it reads."""
    monkeypatch.setenv("MARIGOLD_TEST_DATABASE", warehouse.path)
    path = tmp_path / "tried_location.py"
    path.write_text(DEFINITIONS)
    options = LocationOptions(python_file=str(path), attribute="defs")

    def run(name, *, builds=("pure",), keys=KEYS, **more):
        location = load(options)
        for one in builds:
            definition = location.asset(one).definition
            assert warehouse.materialize(definition, keys=(KEYS[0], KEYS[-1])).success
        before = warehouse.dump()
        capfd.readouterr()
        found = try_out(functools.partial(load, options), location, location.asset(name), keys, seed=5, **more)
        assert warehouse.dump() == before
        assert capfd.readouterr().out == ""
        return found

    return run


def causes(found):
    return {one.what: one.causes for one in found.dependences}


def test_a_pure_function_differs_in_nothing(tried):
    zone, environment = time.tzname, dict(os.environ)
    found = tried("pure")
    assert (found.keys, found.dependences, found.unjudged) == (tuple(KEYS), (), {})
    assert (time.tzname, dict(os.environ)) == (zone, environment)


def test_every_dependence_is_found_in_its_column_with_its_cause(tried):
    found = tried("every_way")
    assert causes(found) == {
        "year": ("the clock",),
        "token": (ALWAYS,),
        "hour": ("the time zone of the process",),
        "zone": ("the time zone of the process",),
        "name": ("the hash seed of the process",),
        "position": ("the order of the partitions",),
        "waived": (ALWAYS,),
    }
    waived = {one.what: one.waiver for one in found.dependences if one.waiver}
    assert waived == {"waived": "nobody reads it"}
    assert all(one.is_column for one in found.dependences)
    position = next(one for one in found.dependences if one.what == "position")
    assert position.partitions == ("2024-01-01", "2024-01-03")  # the middle one stays


def test_what_a_module_has_kept_since_it_was_loaded_lies_with_the_process(tried):
    assert causes(tried("loaded", keys=KEYS[:1])) == {
        "started": (PROCESS,),
        "today": (PROCESS,),
        "order": ("the hash seed of the process",),
    }


def test_the_clock_of_the_database_is_another_one_too(tried):
    found = causes(tried("sql"))
    assert found.keys() == {"today", "at"}
    assert found["today"] == ("the clock",)


def test_a_function_that_fails_at_another_time_depends_on_it(tried):
    found = tried("sometimes")
    assert causes(found) == {FAILURE: ("the clock",)}
    assert (found.dependences[0].is_column, found.dependences[0].partitions) == (False, tuple(KEYS))


def test_a_function_that_always_fails_cannot_be_judged(tried):
    found = tried("never")
    assert (found.keys, found.dependences) == ((), ())
    assert found.unjudged == dict.fromkeys(KEYS, "ValueError: no such file")
