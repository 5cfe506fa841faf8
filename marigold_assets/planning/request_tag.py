"""The tag by which a run knows what the launch that it is part of was asked for; pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

REQUEST_TAG: Final = "marigold/request"
"""Has every backfill that a launch consists of, and so every run: the request as JSON, without what is as usual."""


def restates(tags: Mapping[str, str]) -> bool:
    """Whether what is current is to be computed again, by the tags of a run or backfill."""
    try:
        found = json.loads(tags[REQUEST_TAG])
    except (KeyError, ValueError):
        return False
    return isinstance(found, Mapping) and found.get("restate") is True
