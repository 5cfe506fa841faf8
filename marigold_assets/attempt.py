"""The start of an attempt: the fencing token is drawn, and what is known to be written is claimed."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from weakref import WeakValueDictionary

import dagster as dg

from marigold_assets import budget, dagster_internals
from marigold_assets.admitting import admit_run, is_production
from marigold_assets.dry import dry_run, refuse_writing
from marigold_assets.errors import FencedOutError, MarigoldError, Where
from marigold_assets.model import Attempt, Claim
from marigold_assets.not_retried import allow_again, not_retried
from marigold_assets.process_priority import leave_processor_to_production
from marigold_assets.run_tags import PARTITION_TAG, RANGE_START_TAG, WILL_RETRY_ON_FAILURE_TAG
from marigold_assets.stores.admission import Lease
from marigold_assets.stores.base import PartitionStore
from marigold_assets.stores.duckdb import DuckDBStore

_SHOWN_ASSETS = 3
FENCED_OUT_BY_TAG = "marigold/fenced_out_by"
NOBODY = "nobody"


def owner_of(key: dg.AssetKey) -> str:
    """An asset key as users see it, under which claims are made."""
    return key.to_user_string()


def shown_keys(keys: Sequence[str]) -> str | None:
    """Some partition keys as messages name them."""
    return f"{keys[0]} ... {keys[-1]} ({len(keys)})" if len(keys) > 1 else (str(keys[0]) if keys else None)


@dataclass(slots=True, kw_only=True, weakref_slot=True, eq=False)
class RunningAttempt:
    """The attempt of a run in this process, for all IO managers and resources that work on one file.

    Under the multiprocess executor a process carries out one step, whose token is drawn when its resources are set up.
    In-process it carries out all of them: there, each step takes a token of its own when it first reads from the store,
    so that what it reads is as new as that. If it may have read elsewhere before, whoever came since the step before
    may know better, and is not overtaken (see :class:`marigold_assets.model.Attempt`).

    Attributes:
        store: Issues the tokens.
        attempt: The attempt of the present step.
    """

    store: PartitionStore
    attempt: Attempt
    _step: str | None = None
    _lease: Lease | None = None
    _writers: int | None = None
    _users: int = 0

    def begin(self) -> RunningAttempt:
        """Count one more that works with it."""
        self._users += 1
        return self

    def is_held_to(self, writers: int | None) -> bool:
        """Whether it has the slot that somebody needs who allows so many writers."""
        return writers is None or (self._writers is not None and self._writers <= writers)

    def hold(self, lease: Lease, writers: int) -> None:
        """Keep a slot of the database until it is over."""
        self._lease, self._writers = lease, writers

    def let_go(self) -> None:
        """Give the slot of the database back, if it has one."""
        lease, self._lease, self._writers = self._lease, None, None
        if lease is not None:
            lease.release()

    @property
    def is_over(self) -> bool:
        """Whether nobody works with it any more."""
        return self._users <= 0

    def end(self) -> None:
        """Count one less; the last gives the slot of the database back."""
        self._users -= 1
        if self.is_over:
            self.let_go()

    def reading(self, *, first: bool) -> Attempt:
        """The attempt of the running step, which is about to read from the store.

        Args:
            first: Whether it cannot have read anything anywhere before.
        """
        context = _asset_context()
        step = None if context is None else str(context.op_execution_context.op_handle)
        if context is not None and step != self._step and dagster_internals.is_one_of_many_steps(context):
            run_id, before = self.attempt.run_id, self.attempt.token
            self.attempt = Attempt(run_id=run_id, token=self.store.draw_token(run_id), since=None if first else before)
        self._step = step or self._step
        return self.attempt


_running: WeakValueDictionary[tuple[str, str], RunningAttempt] = WeakValueDictionary()


def begin_attempt(
    store: DuckDBStore,
    context: dg.InitResourceContext,
    *,
    max_backfill_writers: int | None,
    admission_timeout_seconds: float,
) -> RunningAttempt | None:
    """Draw the token of an attempt when its resources are set up, before any input is read.

    Under the multiprocess executor this happens once a step, and in-process once a run. Before that, the attempt waits
    until it may write: it is to be as new as possible when it begins. Where several work on one database in a run, the
    smallest number that any of them allows counts; whoever allows any number does not free the others from it.

    Args:
        store: The database.
        context: The context of the resource.
        max_backfill_writers: How many may write at once; ``None``: any number.
        admission_timeout_seconds: How long to wait for that.

    Returns:
        The attempt, or ``None`` where nothing is written: outside of a run, and in a dry one.

    Raises:
        dagster.Failure: The failure budget of its launch is spent.
        StoreBusyError: Another process held the store until the deadline.
        StoreUnavailableError: The store cannot be opened.
    """
    if context.run is None or context.instance is None or dry_run(context.run.run_id) is not None:
        return None
    _disown_inherited_tags(context.instance, context.run)
    allow_again(context.instance, context.run)
    leave_processor_to_production(context.run)
    if store.connector.follows_working_directory and context.log is not None:
        context.log.warning(
            f"'database' is a relative path, which means another file in every working directory; here it is"
            f" {store.connector.secrets.database}. Remedy: set an absolute path."
        )
    place = (context.run.run_id, os.path.realpath(store.connector.path))
    running = _running.get(place)
    is_first = running is None or running.is_over
    writers = None if is_production(context.run, context.instance) else max_backfill_writers
    if running is not None and not is_first and running.is_held_to(writers):
        return running.begin()
    planned = sorted(owner_of(key) for key in dagster_internals.planned_asset_keys(context.instance, context.run))
    where = _known_place(context.run, planned)
    with not_retried(context.instance, context.run), explained(context.instance, context.run.run_id, where):
        lease: Lease | None = None
        if writers is not None:
            if running is not None:
                running.let_go()  # who waited with a slot would wait for others who do so, too
            lease = admit_run(
                store,
                context.run,
                context.log,
                max_writers=writers,
                timeout_seconds=admission_timeout_seconds,
            )
        try:
            # Behind the wait, in which the others may have spent it.
            budget.refuse_if_spent(context.instance, context.run)
            if running is None or is_first:
                token = store.draw_token(context.run.run_id, _known_claims(context.run, planned))
                running = RunningAttempt(store=store, attempt=Attempt(run_id=context.run.run_id, token=token))
        except BaseException:
            if lease is not None:
                lease.release()
            raise
    if lease is not None and writers is not None:
        running.hold(lease, writers)
    _running[place] = running
    return running.begin()


def _disown_inherited_tags(instance: dg.DagsterInstance, run: dg.DagsterRun) -> None:
    """Take back what :func:`explained` said of the run that this one is a re-execution of: tags are inherited."""
    inherited = run.tags.get(FENCED_OUT_BY_TAG)
    if inherited in {None, NOBODY} or run.parent_run_id is None:
        return
    parent = instance.get_run_by_id(run.parent_run_id)
    if parent is not None and parent.tags.get(FENCED_OUT_BY_TAG) == inherited:
        will_retry = str(instance.run_retries_retry_on_asset_or_op_failure).lower()
        instance.add_run_tags(run.run_id, {FENCED_OUT_BY_TAG: NOBODY, WILL_RETRY_ON_FAILURE_TAG: will_retry})


def _known_place(run: dg.DagsterRun, assets: Sequence[str]) -> Where:
    more = f" and {len(assets) - _SHOWN_ASSETS} more" if len(assets) > _SHOWN_ASSETS else ""
    key = run.tags.get(PARTITION_TAG) or run.tags.get(RANGE_START_TAG)
    return Where(asset=(", ".join(assets[:_SHOWN_ASSETS]) + more) or None, partition=key)


def _known_claims(run: dg.DagsterRun, assets: Sequence[str]) -> list[Claim]:
    """What a run is known to write before any of its steps has started.

    A run of one partition claims it for all of its assets, but not the tables without partitions in the same run:
    twenty runs of twenty days would otherwise overtake each other on them. A range run claims when a step knows its
    keys.
    """
    if RANGE_START_TAG in run.tags:
        return []
    key = run.tags.get(PARTITION_TAG)
    return [Claim(owner=asset, partition_key=key) for asset in assets]


def assets_of_step() -> frozenset[dg.AssetKey]:
    """The assets that the running step makes; none for the step of an op."""
    context = _asset_context()
    return frozenset() if context is None else frozenset(context.selected_asset_keys)


def claims_of_range_step() -> list[Claim]:
    """What the running step of a range run writes; nothing for any other step."""
    context = _asset_context()
    if context is None or RANGE_START_TAG not in context.run.tags:
        return []
    try:
        keys = context.partition_keys
    except dg.DagsterInvariantViolationError:  # the range is that of other steps: this one has no partitions
        return []
    assets = sorted(context.selected_asset_keys)
    return [Claim(owner=owner_of(asset), partition_key=str(key)) for asset in assets for key in keys]


def _asset_context() -> dg.AssetExecutionContext | None:
    """The context of the running step, unless it is that of an op or there is none."""
    try:
        context: object = dg.AssetExecutionContext.get()  # in the step of an op it is something else
    except (dg.DagsterInvariantViolationError, TypeError):
        return None
    return context if isinstance(context, dg.AssetExecutionContext) else None


def stand_in_attempt(store: PartitionStore) -> Attempt:
    """An attempt for a context that was built by hand, outside of any run.

    Raises:
        ConfigurationError: A dry run is under way.
    """
    refuse_writing()
    run_id = f"no run: {uuid.uuid4()}"
    return Attempt(run_id=run_id, token=store.draw_token(run_id))


@contextmanager
def explained(
    instance: dg.DagsterInstance | None, run_id: str | None, where: Where, *, reader: str | None = None
) -> Iterator[None]:
    """Fail a step so that Dagster does what the error means.

    Args:
        instance: Where the run is known, if it is.
        run_id: The run.
        where: The place, for errors that do not know it themselves, such as that of a locked file.
        reader: The step that reads the place, where it is not the one that writes it.

    What cannot succeed by trying again becomes a :class:`dagster.Failure` that no retry policy retries. A run that was
    fenced out is also tagged, so that the instance does not retry it as a whole: two runs that retry each other's
    defeat would never end.
    """
    try:
        yield
    except KeyboardInterrupt as error:  # of the store, which knows no other; Dagster would retry it
        raise dg.DagsterExecutionInterruptedError from error
    except MarigoldError as error:
        if reader is not None:
            error.problem = f"{error.problem} (read by step {reader!r})"
        known = error.where
        error.where = Where(
            asset=known.get("asset") or where.get("asset"),
            partition=known.get("partition") or where.get("partition"),
            table=known.get("table") or where.get("table"),
        )
        if isinstance(error, FencedOutError) and instance is not None and run_id is not None:
            instance.add_run_tags(
                run_id, {FENCED_OUT_BY_TAG: error.superseded_by_run, WILL_RETRY_ON_FAILURE_TAG: "false"}
            )
        if error.retryable:
            raise
        raise dg.Failure(
            description=str(error),
            metadata={"marigold/error": error.kind, "marigold/remedy": error.remedy},
            allow_retries=False,
        ) from error
