"""Safe partitioned backfills for Dagster: atomic, fenced partition swaps with a ledger of what built what."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING

from dagster_shared.libraries import DagsterLibraryRegistry

if TYPE_CHECKING:
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
        PlanConflictError,
        RestatedPastError,
        RowsOutsidePartitionError,
        SchemaMismatchError,
        StoreBusyError,
        StoreUnavailableError,
        TableOwnedError,
        UnsupportedTypeError,
    )
    from marigold_assets.gap_checks import build_gaps_check
    from marigold_assets.io_manager import FencedPartitionIOManager
    from marigold_assets.latest_interval import build_latest_interval_schedule, latest_interval_condition
    from marigold_assets.model import LedgerEntry, Receipt
    from marigold_assets.one_key import PartitionContext
    from marigold_assets.recipe import BuildConfig, EarlyCutOff
    from marigold_assets.resource import FencedPartitionResource
    from marigold_assets.sentinel import build_sentinel_job

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
    "PlanConflictError",
    "Receipt",
    "RestatedPastError",
    "RowsOutsidePartitionError",
    "SchemaMismatchError",
    "StoreBusyError",
    "StoreUnavailableError",
    "TableOwnedError",
    "UnsupportedTypeError",
    "build_gaps_check",
    "build_latest_interval_schedule",
    "build_sentinel_job",
    "build_uniform_version_check",
    "latest_interval_condition",
    "partitioned_asset",
]

_HOMES = {
    "BuildConfig": "recipe",
    "CommitUnknownError": "errors",
    "ConfigurationError": "errors",
    "ContentDiffersError": "errors",
    "EarlyCutOff": "recipe",
    "FencedOutError": "errors",
    "FencedPartitionIOManager": "io_manager",
    "FencedPartitionResource": "resource",
    "InvalidDataError": "errors",
    "LedgerEntry": "model",
    "LossyCastError": "errors",
    "MarigoldError": "errors",
    "MissingInputError": "errors",
    "MissingTableError": "errors",
    "MixedVersionsError": "errors",
    "PartitionContext": "one_key",
    "PartitionedAssetsDefinition": "asset",
    "PlanConflictError": "errors",
    "Receipt": "model",
    "RestatedPastError": "errors",
    "RowsOutsidePartitionError": "errors",
    "SchemaMismatchError": "errors",
    "StoreBusyError": "errors",
    "StoreUnavailableError": "errors",
    "TableOwnedError": "errors",
    "UnsupportedTypeError": "errors",
    "build_gaps_check": "gap_checks",
    "build_latest_interval_schedule": "latest_interval",
    "build_sentinel_job": "sentinel",
    "build_uniform_version_check": "checks",
    "latest_interval_condition": "latest_interval",
    "partitioned_asset": "asset",
}
"""The module of every name, which is imported when the name is asked for: a command that needs none starts at once."""


def __getattr__(name: str) -> object:
    """Import a name."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    """All names, imported or not."""
    return sorted({*globals(), *__all__})


DagsterLibraryRegistry.register("marigold-assets", __version__, is_dagster_package=False)
