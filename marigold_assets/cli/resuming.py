"""How people go on with what is left of a launch."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from marigold_assets.backfill.watching import Progress
    from marigold_assets.cli.instance import Ledgers
    from marigold_assets.location import LocationOptions


def resume_command(progress: Progress, ledgers: Ledgers, options: LocationOptions) -> str | None:
    """The command that launches what is left; ``None`` if nothing is, or no single command does."""
    from marigold_assets.backfill.request import words_of
    from marigold_assets.backfill.resuming import rest_of
    from marigold_assets.backfill.wishing import wish_of_tags
    from marigold_assets.backfill.wishing import words_of as words_of_wish

    rest = None if progress.is_built and progress.is_whole else rest_of(progress, ledgers.partitions)
    if rest is None:
        return None
    wished = words_of_wish(wish_of_tags(progress.backfills[0].tags))
    return shlex.join(["marigold", "launch", *options.arguments(), *words_of(rest), *wished])


def how_to_go_on(progress: Progress, ledgers: Ledgers, options: LocationOptions) -> str | None:
    """The same in words; ``None`` where nothing is left, or nobody knows what."""
    if (progress.is_built and progress.is_whole) or not progress.total:
        return None
    command = resume_command(progress, ledgers, options)
    if progress.is_built and not progress.is_whole:
        return f"The rest follows as long as whoever launched it still waits for the canary; else go on: {command}"
    if command is None:
        return "To go on, launch it again where it was launched: what is left of it is no single range of partitions."
    return f"To go on: {command}"
