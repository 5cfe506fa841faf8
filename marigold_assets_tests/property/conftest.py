from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# A shared machine is slow at times, and a store writes to disk: time is no criterion here.
settings.register_profile(
    "marigold",
    deadline=None,
    derandomize=not os.environ.get("MARIGOLD_STRESS"),
    max_examples=300 if os.environ.get("MARIGOLD_STRESS") else 40,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("marigold")
