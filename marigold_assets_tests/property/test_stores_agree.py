"""DuckDB against the reference model: whatever is done to both, both say the same."""

from __future__ import annotations

import os
import tempfile
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

import duckdb
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, rule

from marigold_assets.errors import MarigoldError
from marigold_assets.model import Acceptance, Attempt, Claim, CutOff, Definition, SwapOptions, TableName
from marigold_assets.stores import fence, tables
from marigold_assets.stores.duckdb import DuckDBStore
from marigold_assets.stores.memory import MemoryStore
from marigold_assets.stores.session import BEGIN, Session
from marigold_assets.testing.strategies import slice_of, table_of, values

TABLE = TableName(schema="sales", name="daily")
NOON = datetime(2025, 6, 1, 12, tzinfo=UTC)
KEYS = ("a", "b", "it's", "")
RUNS = ("first", "second", "third")
STRESS = bool(os.environ.get("MARIGOLD_STRESS"))

keys = st.lists(st.sampled_from(KEYS), min_size=1, max_size=3, unique=True)


class Agreement(RuleBasedStateMachine):
    """Runs every step on both stores and compares what they return or raise, and what they hold."""

    attempts = Bundle("attempts")
    swaps = Bundle("swaps")

    @initialize()
    def open_both(self):
        self.folder = tempfile.TemporaryDirectory()
        self.open = ExitStack()
        self.files = (MemoryStore(), None)
        self.reopen()
        self.numbers = iter(range(10_000))

    def teardown(self):
        with self.folder, self.open:
            self.compare_all()

    @rule()
    def reopen(self):
        self.close()
        self.path = str(Path(self.folder.name) / "market.duckdb")
        self.model, self.real = self.files = (self.files[0], DuckDBStore(self.path))

    def close(self):
        self.open.close()
        self.model, self.real = self.files

    @rule(attempt=attempts, wanted=keys)
    def keep_open(self, attempt, wanted):
        self.close()
        slices = [slice_of(key) for key in wanted]
        self.open.enter_context(self.files[1].connector.share())  # or nobody else could open it in this process
        self.model, self.real = (self.open.enter_context(store.keep_open(attempt, slices)) for store in self.files)

    @rule(attempt=attempts, claimed=keys)
    def claim_beside(self, attempt, claimed):
        """By another connection of this process, which knows nothing of what an opening remembers."""
        claims = [Claim(owner="daily", partition_key=key) for key in claimed]
        self.files[0].claim(attempt, claims)
        with duckdb.connect(self.path, config={"custom_user_agent": "dagster"}) as connection:
            session = Session(connection, None)
            tables.ensure(session.fenced)
            session.execute("begin", BEGIN)
            fence.touch_counter(session.fenced)
            fence.settle_claims(session.fenced, attempt, claims)
            session.execute("commit", "COMMIT")

    def both(self, action, shown=lambda result: result):
        def outcome(store):
            try:
                return shown(action(store))
            except MarigoldError as error:
                return type(error), error.where, vars(error).get("superseded_by_token")

        expected = outcome(self.model)
        found = outcome(self.real)
        assert found == expected
        return expected

    @rule(target=attempts, run_id=st.sampled_from(RUNS), claimed=st.lists(st.sampled_from(KEYS), max_size=2))
    def draw(self, run_id, claimed):
        claims = [Claim(owner="daily", partition_key=key) for key in claimed]
        return Attempt(run_id=run_id, token=self.both(lambda store: store.draw_token(run_id, claims)))

    @rule(attempt=attempts, claimed=keys)
    def claim(self, attempt, claimed):
        self.both(lambda store: store.claim(attempt, [Claim(owner="daily", partition_key=key) for key in claimed]))

    def run_swap(self, attempt, swapped, rows, swap_id, **more):
        owner = more.pop("owner", "daily")
        slices = [slice_of(key, owner=owner) for key in swapped]

        def shown(receipts):
            entries = [receipt.entry for receipt in receipts]
            told = [(e.partition_key, e.token, e.row_count, e.swap_id, e.confirmed) for e in entries]
            return told, [receipt.replayed for receipt in receipts]

        self.both(lambda store: store.swap(slices, rows, attempt=attempt, swap_id=swap_id, **more), shown)

    @rule(target=swaps, attempt=attempts, swapped=keys, data=st.data())
    def swap(self, attempt, swapped, data):
        found = data.draw(st.lists(st.tuples(st.sampled_from(swapped), values()), max_size=5))
        rows = table_of([{"key": key, "value": value} for key, value in found])
        call = (attempt, swapped, rows, f"swap {next(self.numbers)}")
        self.run_swap(*call)
        return call

    @rule(call=swaps)
    def replay(self, call):
        self.run_swap(*call)

    @rule(call=swaps, attempt=attempts)
    def repeat_under_another_token(self, call, attempt):
        self.run_swap(attempt, *call[1:])

    @rule(attempt=attempts, swapped=keys, other=st.sampled_from((*KEYS, None)))
    def swap_with_a_row_perhaps_outside(self, attempt, swapped, other):
        rows = table_of([{"key": swapped[0], "value": 1}, {"key": other, "value": 2}])
        self.run_swap(attempt, swapped, rows, f"swap {next(self.numbers)}")

    @rule(attempt=attempts, swapped=keys, evolve=st.booleans())
    def swap_with_another_column(self, attempt, swapped, evolve):
        rows = table_of([{"key": swapped[0], "value": 1}]).append_column("more", [["x"]])
        self.run_swap(attempt, swapped, rows, f"swap {next(self.numbers)}", options=SwapOptions(evolve=evolve))

    @rule(attempt=attempts, swapped=keys, cut_off=st.sampled_from(CutOff), data=st.data())
    def swap_what_may_be_stored(self, attempt, swapped, cut_off, data):
        options = SwapOptions(cut_off=cut_off)
        stored = [] if self.model.columns(TABLE) is None else self.model.read(TABLE).to_pylist()
        rows = [{"key": row["key"], "value": row["value"]} for row in stored if row["key"] in swapped]
        rows = data.draw(st.permutations(rows)) + data.draw(st.sampled_from(([], [{"key": swapped[0], "value": 7}])))
        self.run_swap(attempt, swapped, table_of(rows), f"swap {next(self.numbers)}", options=options)

    @rule(accepted=keys, version=st.sampled_from((None, "1")), ends=st.booleans())
    def accept(self, accepted, version, ends):
        definition = Definition(code_version=version, code_fingerprint=None, config_hash=None)
        recorded = [
            Acceptance(
                table=TABLE,
                owner="daily",
                partition_key=key,
                definition=definition,
                accepted_by="nadia",
                accepted_at=NOON,
                reason=f"{next(self.numbers)}",
                until=NOON if ends else None,
            )
            for key in accepted
        ]
        self.both(lambda store: store.accept(recorded))

    @rule(wanted=keys)
    def look_inputs_up(self, wanted):
        slices = [slice_of(key) for key in wanted]
        self.both(
            lambda store: store.inputs(slices),
            lambda found: [(one.owner, one.partition_key, one.content_hash is None) for one in found],
        )

    @rule(attempt=attempts, swapped=keys, owner=st.sampled_from(("daily", "weekly")), renamed=st.booleans())
    def swap_as_another_owner(self, attempt, swapped, owner, renamed):
        options = SwapOptions(renamed_from=("daily", "weekly") if renamed else ())
        self.run_swap(attempt, swapped, table_of([]), f"swap {next(self.numbers)}", owner=owner, options=options)

    @rule(wanted=st.lists(st.sampled_from(KEYS), max_size=3, unique=True))
    def read(self, wanted):
        if self.model.columns(TABLE) is not None:
            slices = [slice_of(key) for key in wanted]
            self.both(lambda store: store.read(TABLE, slices), lambda found: sorted(map(repr, found.to_pylist())))

    @rule(call=consumes(swaps))
    def ask_for_receipts(self, call):
        self.both(lambda store: store.receipts(call[3]), lambda found: [(e.partition_key, e.token) for e in found])

    @rule()
    def compare_all(self):
        def shown(entries):
            return [
                (e.partition_key, e.owner, e.run_id, e.token, e.swap_id, e.row_count, e.confirmed, e.conditions)
                for e in entries
            ]

        self.both(lambda store: store.ledger(), shown)
        self.both(lambda store: store.acceptances(TABLE))
        self.both(
            lambda store: None if store.columns(TABLE) is None else store.read(TABLE),
            lambda found: None if found is None else sorted(map(repr, found.to_pylist())),
        )
        for store in (self.model, self.real):
            for key, head in store.heads(TABLE).items():
                assert store.content_hash(slice_of(key), head.columns) == head.content_hash, store


TestAgreement = Agreement.TestCase
TestAgreement.settings = settings(max_examples=200 if STRESS else 6, stateful_step_count=30 if STRESS else 18)
