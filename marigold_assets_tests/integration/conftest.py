from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import dagster as dg
import duckdb
import pytest

from marigold_assets import FencedPartitionIOManager
from marigold_assets.testing import ForkServer

RANGE_START, RANGE_END = "dagster/asset_partition_range_start", "dagster/asset_partition_range_end"


@pytest.fixture(scope="session")
def processes():
    """Runs the functions of children.py in processes that may be killed."""
    with ForkServer(Path(__file__).with_name("children.py")) as server:
        yield server


@dataclass(frozen=True)
class Warehouse:
    """A DuckDB file and a Dagster instance, with what the tests ask of them."""

    path: str
    instance: dg.DagsterInstance

    def io_manager(self, **settings):
        return FencedPartitionIOManager(**{"database": self.path, **settings})

    def materialize(self, *assets, key=None, keys=None, resources=None, tags=None, config=None, **options):
        """Materialize assets for one partition key, or for a range of them in one run; config by name of the step."""
        given = list(assets)
        tags = {**(tags or {}), **({RANGE_START: keys[0], RANGE_END: keys[1]} if keys else {})}
        return dg.materialize(
            given,
            partition_key=key,
            instance=self.instance,
            resources={"io_manager": self.io_manager(), **(resources or {})},
            tags=tags,
            run_config={
                "loggers": {"console": {"config": {"log_level": "CRITICAL"}}},
                "ops": {name: {"config": chosen} for name, chosen in (config or {}).items()},
            },
            **options,
        )

    def refused(self, *assets, whole=False, **options):
        """The error, or its first line, of a run that fails, writes nothing and reports nothing."""
        before = self.dump()
        result = self.materialize(*assets, raise_on_error=False, **options)
        assert not result.success
        assert not result.asset_materializations_for_node(result.get_step_failure_events()[0].step_key)
        assert self.dump() == before
        return failure_of(result) if whole else failure_of(result).splitlines()[0]

    @contextmanager
    def connected(self):
        """Gives a function that asks the file; each time to open it takes longer than to ask."""
        with duckdb.connect(self.path, config={"custom_user_agent": "dagster"}) as connection:
            connection.execute("SET TimeZone = 'UTC'")
            yield lambda query, *parameters: connection.execute(query, list(parameters)).fetchall()

    def rows(self, query, *parameters):
        with self.connected() as ask:
            return ask(query, *parameters)

    def dump(self):
        """Everything that is stored in tables, but for claims and counters, which every attempt leaves."""
        if not Path(self.path).exists():
            return {}
        with self.connected() as ask:
            names = ask(
                "SELECT schema_name, table_name FROM duckdb_tables() WHERE (schema_name, table_name) NOT IN"
                " (('marigold', 'counter'), ('marigold', 'claims')) ORDER BY ALL"
            )
            quoted = [".".join('"' + part.replace('"', '""') + '"' for part in name) for name in names]
            found = {name: (ask(f"DESCRIBE {name}"), ask(f"FROM {name} ORDER BY ALL")) for name in quoted}
        return {name: rows for name, rows in found.items() if rows[1] or not name.startswith('"marigold"')}

    def events(self, key, partition=None):
        """The materializations of an asset, oldest first, as (event, materialization)."""
        found = self.instance.fetch_materializations(dg.AssetKey.from_coercible(key), limit=10_000).records
        return [
            (record.event_log_entry.dagster_event, record.asset_materialization)
            for record in reversed(found)
            if partition is None or record.partition_key == partition
        ]


def failure_of(result):
    """What a failed run says, as a person reads it."""
    [event] = result.get_step_failure_events()
    data = event.step_failure_data
    if data.user_failure_data is not None:
        return data.user_failure_data.description
    error = data.error
    while error.cause is not None:
        error = error.cause
    return error.message


@pytest.fixture
def warehouse(tmp_path):
    with dg.DagsterInstance.ephemeral() as instance:
        yield Warehouse(str(tmp_path / "market.duckdb"), instance)


@pytest.fixture
def loader():
    """Makes an asset that hands what it is given to a list."""

    def make(upstream, seen, annotation, *, metadata=None, name="reader", **options):
        def reader(context, upstream):
            seen.append(upstream)

        reader.__annotations__ = {"upstream": annotation, "return": None}
        ins = {"upstream": dg.AssetIn(upstream, metadata=metadata, partition_mapping=options.pop("mapping", None))}
        return dg.asset(name=name, ins=ins, **options)(reader)

    return make
