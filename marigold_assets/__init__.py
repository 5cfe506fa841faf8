"""Safe partitioned backfills for Dagster: atomic, fenced partition swaps with a ledger of what built what."""

from __future__ import annotations

from importlib.metadata import version

from dagster_shared.libraries import DagsterLibraryRegistry

from marigold_assets.asset import PartitionedAssetsDefinition, partitioned_asset
from marigold_assets.checks import build_uniform_version_check
from marigold_assets.errors import (
    CommitUnknownError,
    ConfigurationError,
    ContentDiffersError,
    FencedOutError,
    InvalidDataError,
    LossyCastError,
    MarigoldError,
    MissingInputError,
    MissingTableError,
    MixedVersionsError,
    RestatedPastError,
    RowsOutsidePartitionError,
    SchemaMismatchError,
    StoreBusyError,
    StoreUnavailableError,
    TableOwnedError,
    UnsupportedTypeError,
)
from marigold_assets.io_manager import FencedPartitionIOManager
from marigold_assets.model import LedgerEntry, Receipt
from marigold_assets.one_key import PartitionContext
from marigold_assets.recipe import BuildConfig, EarlyCutOff
from marigold_assets.resource import FencedPartitionResource

__version__ = version("marigold-assets")

__all__ = [
    "BuildConfig",
    "CommitUnknownError",
    "ConfigurationError",
    "ContentDiffersError",
    "EarlyCutOff",
    "FencedOutError",
    "FencedPartitionIOManager",
    "FencedPartitionResource",
    "InvalidDataError",
    "LedgerEntry",
    "LossyCastError",
    "MarigoldError",
    "MissingInputError",
    "MissingTableError",
    "MixedVersionsError",
    "PartitionContext",
    "PartitionedAssetsDefinition",
    "Receipt",
    "RestatedPastError",
    "RowsOutsidePartitionError",
    "SchemaMismatchError",
    "StoreBusyError",
    "StoreUnavailableError",
    "TableOwnedError",
    "UnsupportedTypeError",
    "build_uniform_version_check",
    "partitioned_asset",
]

DagsterLibraryRegistry.register("marigold-assets", __version__, is_dagster_package=False)
