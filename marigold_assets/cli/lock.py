"""``marigold versions lock`` and ``check``: code and its version change together, or somebody says why not."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from marigold_assets.cli.failing import FOUND
from marigold_assets.cli.locked_code import (
    Present,
    again,
    command_options,
    present,
    refuse_undeclared,
)
from marigold_assets.cli.options import location_options
from marigold_assets.cli.running import foreign_code
from marigold_assets.cli.who import user
from marigold_assets.errors import ConfigurationError
from marigold_assets.lock_file import FILE, Lock
from marigold_assets.surveying.lock_place import PROJECT, lock_path

if TYPE_CHECKING:
    from marigold_assets.loading import LocationOptions
    from marigold_assets.lock import Finding

_lock_file = click.option(
    "--lock-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help=f"The file. Default: {FILE} beside {PROJECT}, at or above the definitions or the working directory.",
)
_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.command()
@click.argument("assets", nargs=-1)
@location_options
@_lock_file
@click.option("--accept-changes", is_flag=True, help="ASSETS mean the same as before, although their code has changed.")
@click.option("--reason", help="Why they do; the file keeps it.")
@click.option("--by", metavar="NAME", help="Who says so. Default: the user of git, or else of the system.")
@_json
def lock(
    assets: tuple[str, ...],
    *,
    options: LocationOptions,
    lock_file: Path | None,
    accept_changes: bool,
    reason: str | None,
    by: str | None,
    as_json: bool,
) -> None:
    """Write down which code goes by which version, of ASSETS or of all.

    Where code has changed and its code_version has not, nothing is written down unless --accept-changes says that it
    means the same. Exits with 1 if there is any such asset.

    An asset that does not exist any more is taken out if all code locations of the workspace were looked at. With -f,
    -m or -l others are kept, unless they are named.
    """
    from marigold_assets.lock import renewed

    accepted = _accepted(assets, accept_changes=accept_changes, reason=reason, by=by)
    path = lock_file or lock_path(options)
    before = Lock.load(path) if path.exists() else Lock(assets={})
    with foreign_code():
        found = present(options, assets, before)
    if accepted is not None:
        for name in found.named:
            refuse_undeclared(name, found.code.get(name))
    after, left = renewed(before, found.code, only=found.judged(before), accepted=accepted)
    if after != before or not path.exists():
        _refuse_overtaken(path, before)
        after.save(path)
    names = before.assets.keys() | after.assets.keys()
    written = sorted(name for name in names if before.assets.get(name) != after.assets.get(name))
    refused = _for_commands(left, options, lock_file)
    if as_json:
        _print_json(
            path,
            refused,
            {"assets": len(after.assets), "written": written, **_part(found, before)},
            is_failure=_is_refused,
        )
    else:
        click.echo(f"{path}: {_counted(len(after.assets))}, {_listed(written) or 'as it was'}.")
        _print(refused)
        _print_left_out(found, before)
    if refused:
        raise click.exceptions.Exit(FOUND)


@click.command()
@click.argument("assets", nargs=-1)
@location_options
@_lock_file
@click.option("--strict", is_flag=True, help="Fail for changed code without a declared version, too.")
@_json
def check(
    assets: tuple[str, ...], *, options: LocationOptions, lock_file: Path | None, strict: bool, as_json: bool
) -> None:
    """Fail where code has changed and its version has not, or where the lock file is out of date.

    Looks at ASSETS or at all, and names the functions that have changed. Exits with 0 if all is well and with 1 if not.
    """
    from marigold_assets.lock import compare

    path = lock_file or lock_path(options)
    known = Lock.load(path, write_again=again(options, lock_file))
    with foreign_code():
        looked = present(options, assets, known)
    judged = looked.judged(known)
    found = [one for one in compare(known, looked.code) if judged is None or one.asset in judged]
    found = _for_commands(found, options, lock_file)

    def fails(one: Finding) -> bool:
        return strict or not one.is_note

    failures = [one for one in found if fails(one)]
    looked_at = len(looked.named) or len(looked.code)
    if as_json:
        _print_json(path, found, {"assets": looked_at, **_part(looked, known)}, is_failure=fails)
    else:
        _print(failures)
        _print([one for one in found if not fails(one)], note="Note: ")
        how = f"{len(failures):,} differ from {path}." if failures else f"as {path} has them."
        click.echo(f"{_counted(looked_at)}: {how}")
        _print_left_out(looked, known)
    if failures:
        raise click.exceptions.Exit(FOUND)


def _refuse_overtaken(path: Path, before: Lock) -> None:
    """Refuse to write over what others have written while the code was loaded."""
    if path.exists() and Lock.load(path) != before:
        raise ConfigurationError(f"{path} was written meanwhile", remedy="run it again")


def _accepted(
    assets: Collection[str], *, accept_changes: bool, reason: str | None, by: str | None
) -> tuple[str, datetime, str] | None:
    if not accept_changes:
        if reason is not None or by is not None:
            raise click.UsageError("--reason and --by go with --accept-changes.")
        return None
    if not assets:
        raise click.UsageError("Name the assets whose changes are accepted.")
    if reason is None or not reason.strip():
        raise click.UsageError("--accept-changes needs a --reason.")
    return (by or user()).strip(), datetime.now(UTC).replace(microsecond=0), " ".join(reason.split())


def _for_commands(findings: Sequence[Finding], options: LocationOptions, lock_file: Path | None) -> list[Finding]:
    return [replace(one, options=command_options(options, lock_file)) for one in findings]


def _part(found: Present, known: Lock) -> dict[str, Any]:
    return {"looked_at": found.where, "not_looked_at": sorted(found.left_out(known))}


def _print_left_out(found: Present, known: Lock) -> None:
    left_out = found.left_out(known)
    if left_out:
        click.echo(f"Only {found.where} was looked at; {_counted(len(left_out))} of the lock may lie elsewhere.")


def _print(findings: Sequence[Finding], note: str = "") -> None:
    for one in findings:
        click.echo(f"{note}{one.asset}: {one.what}.")
        for when, how in one.ways_out:
            click.echo(f"  If {when}: {how}")


def _print_json(
    path: Path, findings: Sequence[Finding], more: Mapping[str, Any], *, is_failure: Callable[[Finding], bool]
) -> None:
    from marigold_assets.cli.as_json import dumps

    listed = [
        {
            "asset": one.asset,
            "kind": one.kind.value,
            "fails": is_failure(one),
            "message": one.what,
            "code_version": {"lock": one.before, "code": one.after},
            "parts": {"changed": list(one.changed), "added": list(one.added), "removed": list(one.removed)},
            "ways_out": [{"if": when, "do": how} for when, how in one.ways_out],
        }
        for one in findings
    ]
    is_well = not any(map(is_failure, findings))
    click.echo(dumps({"lock_file": str(path), "is_well": is_well, **more, "findings": listed}))


def _is_refused(_: Finding) -> bool:
    return True


def _counted(number: int) -> str:
    return f"{number:,} asset{'' if number == 1 else 's'}"


def _listed(names: Sequence[str]) -> str:
    return f"written anew: {', '.join(names)}" if names else ""
