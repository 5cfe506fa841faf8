"""Why each partition is in a plan, or is not, for people."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from marigold_assets.backfill.explaining import Explained, ExplainedAsset, ReadInput
from marigold_assets.cli.columns import plain, shown
from marigold_assets.cli.plan_report import stretches
from marigold_assets.cli.rendering import dots, shown_range
from marigold_assets.planning.model import PlannedKey
from marigold_assets.planning.naming import counted


def show(found: Explained, *, to: Console, most: int | None) -> None:
    """Print an explanation.

    Args:
        found: The explanation.
        to: Where.
        most: How many lines an asset; ``None``: all.
    """
    for number, asset in enumerate(found.assets):
        if number:
            _line(to)
        _line(to, asset.owner, "bold")
        _asset(asset, to, most)
    for note in found.plan.notes:
        _line(to, f"Note: {note}.")


def _line(to: Console, text: str = "", style: str = "") -> None:
    to.print(Text(text, style=style, overflow="ignore", no_wrap=True))


def _asset(asset: ExplainedAsset, to: Console, most: int | None) -> None:
    lines = stretches(asset.found, asset.order, alike=True)
    count = len(lines) if most is None else most
    is_planned = {one.key: isinstance(one, PlannedKey) for one in asset.found}
    for one in lines[:count]:
        is_or_are = "is" if len(one.keys) == 1 else "are"
        verb = "would be built" if is_planned[one.keys[0]] else f"{is_or_are} left alone"
        _line(to, f"  {shown_range(one.keys)} {verb}, {one.reason}: {plain(one.because)}")
        for read in asset.inputs.get(one.keys[0], ()):
            _line(to, f"    reads {_said(read)}")
        if asset.inputs and not asset.inputs.get(one.keys[0]):
            _line(to, "    reads no other asset")
    if len(lines) > count:
        left = sum(len(one.keys) for one in lines[count:])
        _line(to, f"  {dots(to)} and {counted(left)} in {len(lines) - count:,} more lines; --all shows them")


def _said(read: ReadInput) -> str:
    if not read.count:
        return f"{read.owner}: no partition"
    what = _keys(read)
    if read.is_external:
        return f"{what}: built outside of this code location, which does not know what exists of it"
    parts = [
        (read.planned, "is built by this plan", "are built by this plan"),
        (read.built, "exists", "exist"),
        (read.count - read.planned - read.built, "does not exist", "do not exist"),
    ]
    if read.count == 1:
        state = next(single for number, single, _ in parts if number)
    else:
        state = ", ".join(f"{number:,} {single if number == 1 else many}" for number, single, many in parts if number)
    tail = ""
    if read.missing:
        tail = f" ({', '.join(map(shown, read.missing[:3]))}{'' if len(read.missing) <= 3 else ', ...'})"
        tail += "" if read.is_required else ", which may be missing"
    return f"{what}: {state}{tail if read.count > 1 or not read.is_required else ''}"


def _keys(read: ReadInput) -> str:
    if read.keys == (None,):
        return read.owner
    if read.count == 1:
        return f"{read.owner} {shown(read.keys[0])}"
    if read.count > len(read.keys):
        return f"{read.owner} {counted(read.count)} from {shown(read.keys[0])}"
    return f"{read.owner} {shown(read.keys[0])} to {shown(read.keys[-1])} ({counted(read.count)})"
