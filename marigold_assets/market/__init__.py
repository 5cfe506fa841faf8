"""Marigold Market: the example code location, and the documentation by example."""

from __future__ import annotations

import warnings

import dagster as dg

# Dagster says "beta" for every backfill policy. The market wants its policy, and a console without that line.
warnings.filterwarnings("ignore", message="Parameter `backfill_policy`", category=dg.BetaWarning)
