"""Marigold Market: the example code location, and the documentation by example."""

from __future__ import annotations

import warnings

# A night builds one day of everything, chains included. How many days a backfill puts into a run is nothing to it, but
# Dagster warns whenever that differs within a job.
warnings.filterwarnings("ignore", message=r"Asset job \S+ materializes assets with varying BackfillPolicies")
