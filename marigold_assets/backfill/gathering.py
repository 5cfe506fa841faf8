"""What a plan is made from: how every asset of a selection stands, what it reads, and how long it took before.

Nothing is written: no database, no history and no other file is made or changed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime

import dagster as dg

from marigold_assets import dagster_loading, partitions, versions
from marigold_assets.attempt import owner_of
from marigold_assets.backfill.keyed import Keyed
from marigold_assets.backfill.limits import limits_of
from marigold_assets.backfill.past_prices import said_of_past_prices
from marigold_assets.backfill.past_runs import past_runs
from marigold_assets.backfill.ranges import asked_for
from marigold_assets.backfill.reads import reads_of
from marigold_assets.backfill.selecting import select
from marigold_assets.backfill.stale import Found, found_by, said_of, through_of
from marigold_assets.errors import Where
from marigold_assets.location import CodeLocation, LocatedAsset, LocationOptions
from marigold_assets.planning.history import history_of
from marigold_assets.planning.making import make_plan
from marigold_assets.planning.model import BackfillPlan, Key, Request
from marigold_assets.planning.naming import is_or_are
from marigold_assets.planning.states import AssetState, Reads, Through
from marigold_assets.surveying.gathering import gather_ledger, instance_home
from marigold_assets.surveying.ledgers import Ledgers

_ELSEWHERE = Reads(inputs_of=lambda key: (key,), is_required=False, same_keys=True)
"""How an asset reads one of which nothing is known, its partitions included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathered:
    """How the assets of a selection stand.

    Attributes:
        states: Those assets, and what they read.
        positions: By asset that has a ledger, its newest position; 0 where nothing was ever written.
        assets: The assets of the selection, by their keys as users see them.
        found: What is known of their partitions that exist, by asset.
        readers: Assets that read some of the selection and are not in it.
        notes: What else people should know.
    """

    states: tuple[AssetState, ...]
    positions: Mapping[str, int]
    assets: Mapping[str, LocatedAsset]
    found: Mapping[str, Found]
    readers: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@contextmanager
def live_instance() -> Iterator[dg.DagsterInstance | None]:
    """The instance that DAGSTER_HOME names, for whoever only reads; ``None`` if it names none.

    Raises:
        ConfigurationError: DAGSTER_HOME is no folder.
    """
    home = instance_home()
    if home is None:
        yield None
        return
    with dagster_loading.reading_instance(home) as instance:
        yield instance


def plan_of(found: Gathered, request: Request, *, instance: dg.DagsterInstance | None, now: datetime) -> BackfillPlan:
    """Make the plan from what was gathered.

    Args:
        found: How the assets stand.
        request: What is asked for.
        instance: The live instance, for its limits and for past runs.
        now: When it is made (aware, UTC).
    """
    stored = [one for one in found.assets.values() if one.has_ledger]
    writers = [manager.max_backfill_writers for one in stored for manager in one.opened()]
    samples = past_runs(instance, stored)
    plan = make_plan(
        request,
        found.states,
        limits=limits_of(instance, min((one for one in writers if one is not None), default=None)),
        history=history_of(samples),
        positions=found.positions,
        made_at=now,
    )
    notes = found.notes
    if not plan.is_empty:
        notes = (*notes, *said_of_past_prices(instance, [one.owner for one in plan.assets if one.keys]))
    if found.readers and not plan.is_empty:
        verb = "reads" if len(found.readers) == 1 else "read"
        notes = (
            *notes,
            f"{', '.join(found.readers)} {verb} what this plan builds, and {is_or_are(found.readers)} not in it",
        )
    return said_of(plan, found.found, notes)


def gather_states(
    location: CodeLocation,
    request: Request,
    *,
    instance: dg.DagsterInstance | None,
    now: datetime,
    options: LocationOptions | None = None,
) -> Gathered:
    """Look at the assets of a selection and at what they read.

    Args:
        location: The code location.
        request: What is asked for.
        instance: Where dynamic partitions and events are.
        now: When (aware, UTC).
        options: What names the code location, for where the version lock is.

    Raises:
        ConfigurationError: The selection or the range names what there is not, or an asset is not set up to be stored.
        StoreBusyError: Another process holds a database.
    """
    selected = select(location, request.selection)
    chosen = {one.owner: one for one in selected.assets}
    looking = _Looking(location, instance, now, options)
    asked = asked_for({owner: looking.keyed(one) for owner, one in chosen.items()}, request.first, request.last)
    read = {owner: one for asset in chosen.values() for owner, one in looking.upstream(asset).items()}
    states, known = [], {}
    for owner, asset in chosen.items():
        state, known[owner] = looking.state(asset, asked.keys[owner], asked.notes.get(owner, ()))
        states.append(state)
    left_out = [f"{owner}: {note}" for owner, some in asked.notes.items() if not asked.keys[owner] for note in some]
    states += [looking.read_only(one) for owner, one in read.items() if owner not in chosen]
    everything = {**read, **chosen}
    return Gathered(
        states=tuple(states),
        positions={owner: looking.ledgers.of(one).position for owner, one in everything.items() if one.has_ledger},
        assets=chosen,
        found=known,
        readers=looking.readers(chosen),
        notes=(*selected.notes, *left_out, *looking.notes),
    )


class _Looking:
    """Looks at assets, at everything once."""

    def __init__(
        self,
        location: CodeLocation,
        instance: dg.DagsterInstance | None,
        now: datetime,
        options: LocationOptions | None,
    ) -> None:
        self._location, self._instance, self._now, self._options = location, instance, now, options
        self._keyed: dict[str, Keyed] = {}
        self._by_definition: list[Keyed] = []
        self.ledgers = Ledgers(location)
        self.notes: list[str] = []

    def keyed(self, asset: LocatedAsset) -> Keyed:
        """The partitions of an asset; those of equal definitions are looked up once."""
        if asset.owner not in self._keyed:
            definition = asset.partitions_def
            known = next((one for one in self._by_definition if one.definition == definition), None)
            if known is None:
                known = Keyed(definition, asset.partition_keys(self._instance, as_of=self._now))
                self._by_definition.append(known)
            self._keyed[asset.owner] = known
        return self._keyed[asset.owner]

    def upstream(self, asset: LocatedAsset) -> Mapping[str, LocatedAsset]:
        """What an asset reads, as far as the code location has it; itself, if it is a chain."""
        keys = {one.asset_key for one in asset.spec.deps}
        return {owner: one for owner, one in self._location.assets.items() if one.key in keys}

    def _elsewhere(self, asset: LocatedAsset) -> tuple[str, ...]:
        """What an asset reads that the code location does not have."""
        known = {one.key for one in self._location.assets.values()}
        return tuple(owner_of(one.asset_key) for one in asset.spec.deps if one.asset_key not in known)

    def readers(self, chosen: Mapping[str, LocatedAsset]) -> tuple[str, ...]:
        """What reads some assets and is none of them."""
        keys = {one.key for one in chosen.values()}
        others = (one for one in self._location.assets.values() if one.owner not in chosen)
        return tuple(one.owner for one in others if any(dep.asset_key in keys for dep in one.spec.deps))

    def state(self, asset: LocatedAsset, wanted: Sequence[Key], notes: Sequence[str]) -> tuple[AssetState, Found]:
        """How an asset stands that is asked for."""
        keyed = self.keyed(asset)
        policy = asset.definition.backfill_policy
        reads = self._reads(asset, keyed)
        built, found = self._judged(asset, keyed, reads)
        fingerprint = "" if asset.loaded_code is None else asset.loaded_code.fingerprint
        state = AssetState(
            owner=asset.owner,
            keys=keyed.keys,
            wanted=wanted,
            built=built,
            verdicts=found.verdicts,
            unknown=found.unknown,
            reads=reads,
            keys_per_run=1 if policy is None or keyed.definition is None else policy.max_partitions_per_run,
            grouping=None if keyed.definition is None else (asset.arguments, keyed.definition, policy),
            lookback=partitions.lookback(asset.spec.metadata, Where(asset=asset.owner)),
            code=asset.code.version or asset.code.fingerprint or "",
            fingerprint=fingerprint,
            stale_through=found.through,
            elsewhere=self._elsewhere(asset),
            notes=(*notes, *found.notes),
        )
        return state, found

    def read_only(self, asset: LocatedAsset) -> AssetState:
        """How an asset stands that is only read."""
        keyed = self.keyed(asset)
        return AssetState(
            owner=asset.owner,
            keys=keyed.keys,
            built=self._existing(asset, keyed)[0],
            stale_through=self._stale_through(asset),
            is_selected=False,
            is_external=not asset.definition.is_materializable,
        )

    def _stale_through(self, asset: LocatedAsset) -> Mapping[Key, Through]:
        """What of an asset that is only read was built from what was restated since."""
        if not asset.has_ledger or not any(one.provenance.inputs for one in self.ledgers.of(asset).heads.values()):
            return {}
        heads = self.ledgers.related_to(asset).heads
        own = [(asset.owner, key) for key in self.ledgers.of(asset).heads]
        return {key: through_of(one) for (_, key), one in versions.stale(own, heads).items()}

    def _reads(self, asset: LocatedAsset, keyed: Keyed) -> Mapping[str, Reads]:
        return {
            owner: reads_of(asset, one, ours=keyed, theirs=self.keyed(one), as_of=self._now, instance=self._instance)
            for owner, one in self.upstream(asset).items()
        }

    def _judged(self, asset: LocatedAsset, keyed: Keyed, reads: Mapping[str, Reads]) -> tuple[Collection[Key], Found]:
        existing, notes = self._existing(asset, keyed)
        if not asset.has_ledger:
            said = "exists; which code has built it, and from which inputs, is not recorded"
            return existing, Found(remarks=dict.fromkeys(existing, said), notes=notes)
        if not existing:
            return existing, Found(notes=notes)
        evidence = gather_ledger(self.ledgers, asset, keyed.keys, self._options)
        read = {owner: self._location.assets[owner] for owner in reads}
        elsewhere = self._elsewhere(asset)
        found = found_by(
            evidence,
            self._now,
            {**reads, **dict.fromkeys(elsewhere, _ELSEWHERE)},
            unledgered=[*elsewhere, *(owner for owner, one in read.items() if not one.has_ledger)],
            external=[*elsewhere, *(owner for owner, one in read.items() if not one.definition.is_materializable)],
            records_inputs=asset.is_partitioned_asset,
        )
        return existing, replace(found, notes=(*notes, *evidence.notes, *found.notes))

    def _existing(self, asset: LocatedAsset, keyed: Keyed) -> tuple[Collection[Key], tuple[str, ...]]:
        """Which partitions of an asset exist, and what is to be said of that."""
        if asset.has_ledger:
            return self._in_ledger(asset)
        if not asset.definition.is_materializable:
            return frozenset(keyed.keys), ()
        if self._instance is None:
            return frozenset(), ("it keeps no ledger, and DAGSTER_HOME is not set, so all of it counts as missing",)
        note = "it keeps no ledger: what of it exists is known by the event log, and nothing of it counts as stale"
        if keyed.definition is None:
            event = self._instance.get_latest_materialization_event(asset.key)
            return frozenset([] if event is None else [None]), (note,)
        return frozenset(self._instance.get_materialized_partitions(asset.key)), (note,)

    def _in_ledger(self, asset: LocatedAsset) -> tuple[Collection[Key], tuple[str, ...]]:
        looked = self.ledgers.of(asset)
        connector = asset.store.connector
        if connector.follows_working_directory:
            note = (
                f"'database' is a relative path, another file in every working directory: here it is"
                f" {connector.secrets.database}"
            )
            self.notes += [] if note in self.notes else [note]
        if not connector.exists():
            note = f"the database {connector.secrets.database} does not exist yet"
            self.notes += [] if note in self.notes else [note]
            return frozenset(), ()
        if looked.stored_rows is None and looked.heads:
            return frozenset(), (f"its table {asset.table} does not exist any more, so all of it counts as missing",)
        return looked.heads.keys(), ()
