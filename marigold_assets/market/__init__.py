"""Marigold Market: the example code location, and the documentation by example."""

from __future__ import annotations

import warnings

import dagster as dg

# Dagster says "beta" for each backfill policy and "preview" for each partitioned check. The market uses both
# on purpose; whoever starts it should see their own warnings only.
warnings.filterwarnings("ignore", message="Parameter `backfill_policy`", category=dg.BetaWarning)
warnings.filterwarnings("ignore", message="Specifying a partitions_def", category=dg.PreviewWarning)
