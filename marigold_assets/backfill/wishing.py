"""How somebody wanted a plan to be launched, as it is kept in the tags of backfills and as words of a command."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Final

from marigold_assets.backfill.refusing import Wish

WISH_TAG: Final = "marigold/wish"
_USUAL: Final = Wish()


def wish_as_tag(wish: Wish) -> str:
    """A wish as a tag holds it, without what is as usual."""
    usual = asdict(_USUAL)
    given = {name: value for name, value in asdict(wish).items() if value != usual[name]}
    return json.dumps(given, separators=(",", ":"))


def wish_of_tags(tags: Mapping[str, str]) -> Wish:
    """The wish that was kept in tags; the usual one if there is none that can be understood."""
    try:
        return Wish(**json.loads(tags[WISH_TAG]))
    except (KeyError, ValueError, TypeError):
        return _USUAL


def words_of(wish: Wish) -> list[str]:
    """The same as arguments of ``marigold launch``."""
    words: list[str] = []
    if wish.canary:
        words += ["--canary", str(wish.canary)]
    if wish.max_failures is not None:
        words += ["--max-failures", str(wish.max_failures)]
    if wish.most_partitions != _USUAL.most_partitions:
        words += ["--max-partitions", str(wish.most_partitions)]
    for option, is_given in (("--skip-blocked", wish.skip_blocked), ("--without-daemon", wish.without_daemon)):
        words += [option] if is_given else []
    for option, text in (("--unbounded", wish.unbounded), ("--title", wish.title)):
        words += [] if text is None else [option, text]
    return words + [word for name, value in wish.tags.items() for word in ("--tag", f"{name}={value}")]
