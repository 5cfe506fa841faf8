"""Safe partitioned backfills for Dagster: atomic, fenced partition swaps with a ledger of what built what."""

from __future__ import annotations

from importlib.metadata import version

from dagster_shared.libraries import DagsterLibraryRegistry

from marigold_assets.errors import (
    CommitUnknownError,
    ConfigurationError,
    FencedOutError,
    InvalidDataError,
    LossyCastError,
    MarigoldError,
    MissingTableError,
    RowsOutsidePartitionError,
    SchemaMismatchError,
    StoreBusyError,
    StoreUnavailableError,
    TableOwnedError,
    UnsupportedTypeError,
)
from marigold_assets.io_manager import FencedPartitionIOManager
from marigold_assets.model import LedgerEntry, Receipt
from marigold_assets.resource import FencedPartitionResource

__version__ = version("marigold-assets")

__all__ = [
    "CommitUnknownError",
    "ConfigurationError",
    "FencedOutError",
    "FencedPartitionIOManager",
    "FencedPartitionResource",
    "InvalidDataError",
    "LedgerEntry",
    "LossyCastError",
    "MarigoldError",
    "MissingTableError",
    "Receipt",
    "RowsOutsidePartitionError",
    "SchemaMismatchError",
    "StoreBusyError",
    "StoreUnavailableError",
    "TableOwnedError",
    "UnsupportedTypeError",
]

DagsterLibraryRegistry.register("marigold-assets", __version__, is_dagster_package=False)
