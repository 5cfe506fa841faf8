"""What somebody asked for, as it is kept in the tags of backfills and as words of a command."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Final

from marigold_assets.planning import request_tag
from marigold_assets.planning.model import Order, Request

REQUEST_TAG: Final = request_tag.REQUEST_TAG


def request_as_tag(request: Request) -> str:
    """A request as a tag holds it, without what is as usual."""
    usual = asdict(Request(selection=""))
    given = {name: value for name, value in asdict(request).items() if value != usual[name]}
    return json.dumps(given | ({"order": request.order.value} if "order" in given else {}), separators=(",", ":"))


def request_of_tags(tags: Mapping[str, str]) -> Request | None:
    """The request that was kept in tags; ``None`` if there is none that can be understood."""
    try:
        found = json.loads(tags[REQUEST_TAG])
        return Request(**{**found, "order": Order(found["order"])} if "order" in found else found)
    except (KeyError, ValueError, TypeError):
        return None


def words_of(request: Request) -> list[str]:
    """The same as arguments of ``marigold plan`` and ``marigold launch``."""
    given: list[tuple[str, str | None]] = [("--from", request.first), ("--to", request.last)]
    if request.lookback:
        given.append(("--lookback", str(request.lookback)))
    if request.order is not Order.OLDEST_FIRST:
        given.append(("--order", request.order.value))
    words = [word for option, value in given if value is not None for word in (option, value)]
    flags = [name for name, is_given in (("--restate", request.restate), ("--stale", request.stale)) if is_given]
    return [request.selection, *words, *flags]
