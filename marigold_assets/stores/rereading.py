"""A DuckDB file that is open for reading only: what is computed from it again is measured there, and never stored."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from datetime import datetime

from marigold_assets.fingerprint import Comparison, compare
from marigold_assets.model import LedgerEntry, PartitionSlice
from marigold_assets.proof import Computed, Difference
from marigold_assets.stores import comparison, sql
from marigold_assets.stores.base import Rows
from marigold_assets.stores.duckdb import DuckDBStore, KeptDuckDBStore
from marigold_assets.stores.opening import Brief

_CLOCKS = (
    *("now", "current_timestamp", "get_current_timestamp", "transaction_timestamp", "current_date", "today"),
    *("current_localtimestamp", "current_time", "get_current_time", "current_localtime"),
)


@contextmanager
def reread(store: DuckDBStore, *, alone: bool = True) -> Iterator[RereadStore]:
    """Open a store once for several calls that only read, beside other readers; writers wait.

    Args:
        store: The store.
        alone: Whether no code of users runs within the block.

    Raises:
        StoreBusyError: Another process held the file until the deadline.
        StoreUnavailableError: There is no such file, or it cannot be opened.
    """
    with Brief(store.connector, None).kept_reading(alone=alone) as opening:
        yield RereadStore(opening)


class RereadStore(KeptDuckDBStore):
    """The store that :func:`reread` gives."""

    def set_clock(self, now: datetime) -> None:
        """Have SQL that is run here see another time.

        Args:
            now: The time (aware).
        """
        values = {
            "current_date": f"CAST({sql.literal(now)} AS DATE)",
            "today": f"CAST({sql.literal(now)} AS DATE)",
            "current_localtimestamp": f"CAST({sql.literal(now)} AS TIMESTAMP)",
            "current_localtime": f"CAST(CAST({sql.literal(now)} AS TIMESTAMP) AS TIME)",
            **dict.fromkeys(("current_time", "get_current_time"), f"CAST({sql.literal(now)} AS TIMETZ)"),
        }
        with self._opening.reading() as session:
            for name in _CLOCKS:  # a macro hides the function of its name
                meaning = values.get(name, sql.literal(now))
                session.execute("set clock", f"CREATE OR REPLACE TEMP MACRO {name}() AS {meaning}")

    def is_as_swapped(self, slice_: PartitionSlice, head: LedgerEntry) -> bool | None:
        """Whether a slice holds what the ledger says; ``None`` where that cannot be told."""
        if self.columns(slice_.table) is None:
            return False
        missing = {c.name for c in head.columns} - {c.name for c in self.columns(slice_.table) or ()}
        if missing:
            return False
        found = compare(head.content_hash, self.content_hash(slice_, head.columns))
        return None if found is Comparison.UNKNOWN else found is Comparison.SAME

    def measured(self, slice_: PartitionSlice, rows: Rows) -> Computed:
        """What rows are, in types of their own.

        Raises:
            MarigoldError: They cannot be computed.
        """
        with self._session_for(slice_.table, [slice_]) as session:
            return comparison.measured(session, comparison.stage(session, slice_, rows))

    def compared(
        self, slice_: PartitionSlice, rows: Rows, *, head: LedgerEntry, ignored: Collection[str] = ()
    ) -> tuple[Computed, Difference]:
        """Compare rows with those that a slice holds, as a swap would store them.

        Args:
            slice_: The slice.
            rows: Its rows, computed anew.
            head: Its newest ledger entry.
            ignored: Columns that do not count.

        Raises:
            MarigoldError: They cannot be computed, or would be refused.
        """
        with self._session_for(slice_.table, [slice_]) as session:
            staged = comparison.stage(session, slice_, rows)
            found = comparison.compared(session, slice_, staged, built=head.columns, ignored=ignored)
            return comparison.measured(session, staged), found
