"""The code location of the test of the doctor: nothing but sentinels."""

from __future__ import annotations

import dagster as dg

from marigold_assets import build_sentinel_job

defs = dg.Definitions(jobs=[build_sentinel_job()])
