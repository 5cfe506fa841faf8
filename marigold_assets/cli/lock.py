"""``marigold versions lock`` and ``check``: code and its version change together, or somebody says why not."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from marigold_assets.cli.failing import FOUND
from marigold_assets.cli.options import location_options
from marigold_assets.cli.who import user
from marigold_assets.errors import ConfigurationError
from marigold_assets.lock_file import FILE, Lock

if TYPE_CHECKING:
    from marigold_assets.loading import LocationOptions
    from marigold_assets.location import CodeLocation, LocatedAsset
    from marigold_assets.lock import Finding, PresentCode

_PROJECT = "pyproject.toml"
_lock_file = click.option(
    "--lock-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help=f"The file. Default: {FILE} beside {_PROJECT}, or in the working directory.",
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
    """
    from marigold_assets.lock import renewed

    accepted = _accepted(assets, accept_changes=accept_changes, reason=reason, by=by)
    path = lock_file or default_file(Path.cwd())
    before = Lock.load(path) if path.exists() else Lock(assets={})
    present = _present(options, assets, before)
    after, refused = renewed(before, present, only=assets or None, accepted=accepted)
    if after != before or not path.exists():
        after.save(path)
    names = before.assets.keys() | after.assets.keys()
    written = sorted(name for name in names if before.assets.get(name) != after.assets.get(name))
    if as_json:
        _print_json(path, refused, {"assets": len(after.assets), "written": written}, is_failure=_is_refused)
    else:
        click.echo(f"{path}: {_counted(len(after.assets))}, {_listed(written) or 'as it was'}.")
        _print(refused)
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

    path = lock_file or default_file(Path.cwd())
    known = Lock.load(path)
    present = _present(options, assets, known)
    found = [one for one in compare(known, present) if not assets or one.asset in assets]

    def fails(one: Finding) -> bool:
        return strict or not one.is_note

    failures = [one for one in found if fails(one)]
    looked_at = len(assets) or len(present)
    if as_json:
        _print_json(path, found, {"assets": looked_at}, is_failure=fails)
    else:
        _print(failures)
        _print([one for one in found if not fails(one)], note="Note: ")
        how = f"{len(failures):,} differ from {path}." if failures else f"as {path} has them."
        click.echo(f"{_counted(looked_at)}: {how}")
    if failures:
        raise click.exceptions.Exit(FOUND)


def default_file(folder: Path) -> Path:
    """Where the lock file is if nobody says: beside the project's file, in a folder or the nearest one above."""
    for one in (folder, *folder.parents):
        if (one / FILE).exists() or (one / _PROJECT).exists():
            return one / FILE
        if (one / ".git").exists():
            break
    return folder / FILE


def present_code(asset: LocatedAsset) -> PresentCode | None:
    """The code of an asset as it is loaded; ``None`` if no Python function makes it."""
    from marigold_assets.lock import PresentCode

    code = asset.loaded_code
    if code is None:
        return None
    return PresentCode(version=asset.spec.code_version, fingerprint=code.fingerprint, parts=code.parts)


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


def _present(options: LocationOptions, wanted: Collection[str], known: Lock) -> Mapping[str, PresentCode]:
    """The code of the assets that are asked for, or of all that a Python function makes."""
    location = _loaded(options)
    names = wanted or location.assets
    gone = known.assets.keys() - location.assets.keys()
    found = {name: present_code(location.asset(name)) for name in names if name not in gone}
    if missing := [name for name in wanted if name in found and found[name] is None]:
        raise ConfigurationError(
            "no Python function makes the asset, so that there is no code to write down",
            remedy="leave it out",
            asset=missing[0],
        )
    return {name: one for name, one in found.items() if one is not None}


def _loaded(options: LocationOptions) -> CodeLocation:
    """All code locations: one that does not load would look as if its assets were gone."""
    from marigold_assets.loading import Loader
    from marigold_assets.location import CodeLocation

    loader = Loader(options)
    for _ in loader.steps():
        for name, why in loader.failed.items():
            raise ConfigurationError(
                f"code location {name!r} does not load: {why}", remedy="correct it, or name another: -l LOCATION"
            )
    return CodeLocation(loader.loaded)


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
