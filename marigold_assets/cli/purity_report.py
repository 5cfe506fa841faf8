"""What ``marigold purity`` says, to people and to programs."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from marigold_assets import partitions
from marigold_assets.cli.columns import shown
from marigold_assets.cli.failing import CANNOT, FOUND
from marigold_assets.code.located import place_of
from marigold_assets.code.purity import Finding, look
from marigold_assets.errors import ConfigurationError, MarigoldError
from marigold_assets.location import CodeLocation, LocatedAsset
from marigold_assets.planning.naming import counted
from marigold_assets.trial import Dependence, Trial

_SHOWN_KEYS = 4
_COMMENT = "# marigold: pure because <reason>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What there is to say.

    Attributes:
        asset: The asset.
        findings: What was found in the code.
        trial: What came of computing it twice; ``None``: nobody has.
        is_strict: Whether hints fail, too.
    """

    asset: str
    findings: Sequence[Finding]
    trial: Trial | None
    is_strict: bool

    @property
    def failing(self) -> list[Finding]:
        """The findings that are neither waived nor mere hints."""
        return [one for one in self.findings if one.waiver is None and (self.is_strict or not one.is_weak)]

    @property
    def dependences(self) -> Sequence[Dependence]:
        """What has differed between two computations."""
        return self.trial.dependences if self.trial is not None else ()

    @property
    def is_judged(self) -> bool:
        """Whether anything could be computed twice that was to be."""
        return self.trial is None or bool(self.trial.keys)

    @property
    def exit_code(self) -> int:
        """The exit code of the command."""
        if self.failing or any(one.waiver is None for one in self.dependences):
            return FOUND
        return 0 if self.is_judged else CANNOT


def look_at(location: CodeLocation, asset: LocatedAsset) -> tuple[Finding, ...]:
    """Find what is impure in the code of an asset, in the order of files and lines.

    Raises:
        ConfigurationError: There is no source of its function.
    """
    function = asset.function
    if function is None or place_of(function) is None:
        raise ConfigurationError(
            "there is no source of its function that could be looked at",
            remedy="define it in a file",
            asset=asset.owner,
        )
    schema = _schema_of(asset)
    tables, unpartitioned = [], {}
    parameters = {key: name for name, key in asset.definition.keys_by_input_name.items()}
    for key in sorted(asset.definition.dependency_keys):
        name = key.to_user_string()
        known = location.assets.get(name)
        tables.append(str(partitions.table_of_asset(key, {} if known is None else known.spec.metadata, schema)))
        if known is not None and known.partitions_def is None:
            unpartitioned[parameters.get(key, name)] = name
    found = look(function, tables=tables, unpartitioned=unpartitioned)
    return tuple(sorted(found, key=lambda one: (one.file, one.line)))


def _schema_of(asset: LocatedAsset) -> str | None:
    try:
        return asset.manager.schema_
    except MarigoldError:  # of the database, which is not needed to look at code
        return None


def render(report: Report, *, to: Console) -> None:
    """Print a report."""
    for one in report.findings:
        for line in _finding(one, is_hint=one.is_weak and not report.is_strict):
            to.print(line)
    trial = report.trial
    for dependence in report.dependences:
        for line in _dependence(dependence):
            to.print(line)
    for key, why in trial.unjudged.items() if trial is not None else ():
        to.print(f"{shown(key)} could not be judged: {why}")
    to.print(_sum(report))


def _finding(one: Finding, *, is_hint: bool) -> Iterator[str]:
    hint = " (hint)" if is_hint else ""
    yield f"{_path(one.file)}:{one.line}: {one.kind.label}{hint}: {one.what}"
    yield f"    {one.source}"
    if one.waiver is not None:
        yield f"    waived: {one.waiver}"
    else:
        yield f"    Why: {one.kind.why}."
        yield f"    Remedy: {one.remedy}."
        yield f"    To waive it: {_COMMENT}"


def _dependence(one: Dependence) -> Iterator[str]:
    keys = ", ".join(map(shown, one.partitions[:_SHOWN_KEYS]))
    more = ", ..." if len(one.partitions) > _SHOWN_KEYS else ""
    what = f"column {one.what}" if one.is_column else one.what
    yield f"{what} differs when it is computed twice, in {counted(len(one.partitions))}: {keys}{more}"
    if one.waiver is not None:
        yield f"    waived: {one.waiver}"
    else:
        yield f"    Cause: {', '.join(one.causes)}."
        if one.is_column:
            yield f"    To waive it: {_metadata(one.what)}"


def _metadata(column: str) -> str:
    """What waives a column; the comment in the code does not: it does not say which columns it makes differ."""
    return f'metadata={{"{partitions.IMPURE_COLUMNS}": {{{json.dumps(column, ensure_ascii=False)}: "<reason>"}}}}'


def _sum(report: Report) -> str:
    waived = [one for one in report.findings if one.waiver is not None]
    waived_columns = [one for one in report.dependences if one.waiver is not None]
    hints = [one for one in report.findings if one.waiver is None and one not in report.failing]
    parts = [
        f"{counted(len(report.failing), 'finding')} in the code",
        *([f"{counted(len(hints), 'hint')}"] if hints else []),
        *([f"{len(waived) + len(waived_columns)} waived"] if waived or waived_columns else []),
    ]
    if report.trial is not None:
        differing = sum(one.waiver is None for one in report.dependences)
        tried = f"{counted(len(report.trial.keys))} computed twice (seed {report.trial.seed})"
        parts.append(f"{tried}: {differing or 'nothing'} {'differ' if differing > 1 else 'differs'}")
    verdict = {0: "pure as far as was looked", FOUND: "impure", CANNOT: "not judged"}[report.exit_code]
    return f"{report.asset}: {', '.join(parts)}. {verdict[:1].upper()}{verdict[1:]}."


def _path(file: str) -> str:
    """A file as seen from here, if it is below."""
    here = Path.cwd()
    return os.path.relpath(file, here) if Path(file).is_relative_to(here) else file


def as_json(report: Report) -> str:
    """A report for programs."""
    trial = report.trial
    found: dict[str, Any] = {
        "asset": report.asset,
        "is_pure": report.exit_code == 0,
        "findings": [
            {
                "kind": one.kind.label,
                "what": one.what,
                "file": _path(one.file),
                "line": one.line,
                "source": one.source,
                "is_hint": one.is_weak,
                "why": one.kind.why,
                "remedy": one.remedy,
                "waiver": one.waiver,
            }
            for one in report.findings
        ],
        "trial": None
        if trial is None
        else {
            "seed": trial.seed,
            "partitions": list(trial.keys),
            "unjudged": dict(trial.unjudged),
            "dependences": [
                {
                    "what": one.what,
                    "is_column": one.is_column,
                    "partitions": list(one.partitions),
                    "causes": list(one.causes),
                    "waiver": one.waiver,
                }
                for one in trial.dependences
            ],
        },
    }
    return json.dumps(found, indent=2, ensure_ascii=False)
