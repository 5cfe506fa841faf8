"""Code beside a version lock: the code of all assets that are looked at."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from marigold_assets.errors import ConfigurationError
from marigold_assets.lock_file import WRITE_AGAIN, Lock, PresentCode

if TYPE_CHECKING:
    from marigold_assets.loading import LocationOptions
    from marigold_assets.location import CodeLocation, LocatedAsset


@dataclass(frozen=True, slots=True, kw_only=True)
class Present:
    """The code of assets as it is now.

    Attributes:
        code: The code by asset; of all that had other keys, too, whatever was asked for.
        named: The assets that were asked for, under their present keys; none: all.
        where: The part of the code locations that was looked at; ``None``: all of the workspace.
        assets: All assets of them, also those that no Python function makes.
    """

    code: Mapping[str, PresentCode]
    named: Collection[str]
    where: str | None
    assets: Collection[str]

    def judged(self, known: Lock) -> Collection[str] | None:
        """The assets of which something can be said; ``None``: all.

        Of a part of the code locations nobody can say that an asset of the lock is gone: it may lie elsewhere.
        """
        if self.named:
            return self.named
        return None if self.where is None else {*self.code, *(known.assets.keys() & self.assets)}

    def left_out(self, known: Lock) -> Collection[str]:
        """The assets of a lock of which nothing was said, since they were not found in a part of the code locations."""
        from marigold_assets.lock import former_keys

        if self.named or self.where is None:
            return ()
        return known.assets.keys() - self.assets - set(former_keys(known, self.code).values())


def command_options(options: LocationOptions, lock_file: Path | None) -> tuple[str, ...]:
    """What is to be said to other commands, so that they look at the same code and at the same lock."""
    return (*options.arguments(), *(() if lock_file is None else ("--lock-file", str(lock_file))))


def again(options: LocationOptions, lock_file: Path | None) -> str:
    """The command that writes the lock."""
    return " ".join(one for one in (WRITE_AGAIN, shlex.join(command_options(options, lock_file))) if one)


def present_code(asset: LocatedAsset) -> PresentCode | None:
    """The code of an asset as it is loaded; ``None`` if no Python function makes it.

    Raises:
        ConfigurationError: Its metadata makes no sense.
    """
    from marigold_assets import partitions
    from marigold_assets.errors import Where

    code = asset.loaded_code
    if code is None:
        return None
    has_former = partitions.RENAMED_FROM in asset.spec.metadata
    where = Where(asset=asset.owner)
    return PresentCode(
        version=asset.spec.code_version,
        fingerprint=code.fingerprint,
        parts=code.parts,
        renamed_from=partitions.swap_options(asset.spec.metadata, where).renamed_from if has_former else (),
    )


def renaming_code(assets: Mapping[str, LocatedAsset]) -> Mapping[str, PresentCode]:
    """The code of the assets that had other keys, and of those that have one of these keys now.

    Raises:
        ConfigurationError: The metadata of one makes no sense.
    """
    from marigold_assets.partitions import RENAMED_FROM

    renamed = {name: present_code(one) for name, one in assets.items() if RENAMED_FROM in one.spec.metadata}
    former = {key for one in renamed.values() if one is not None for key in one.renamed_from}
    found = {**{name: present_code(assets[name]) for name in sorted(former & assets.keys())}, **renamed}
    return {name: one for name, one in found.items() if one is not None}


def refuse_undeclared(asset: str, code: PresentCode | None) -> None:
    """Refuse to have code go by a version that it does not declare.

    Raises:
        ConfigurationError: It declares none.
    """
    if code is not None and code.version is None:
        raise ConfigurationError(
            "no code_version is declared, so that changed code is another version by itself, whatever the lock says",
            remedy='declare a code_version first: code_version="1"',
            asset=asset,
        )


def present(options: LocationOptions, wanted: Collection[str], known: Lock) -> Present:
    """The code of the assets that are asked for, or of all that a Python function makes.

    The former key of an asset, under which the lock has it, means that asset.

    Raises:
        ConfigurationError: A code location does not load, has no such asset, or two have other code for one.
    """
    from marigold_assets.lock import former_keys

    locations, everything = _loaded(options)
    renaming = renaming_code(everything.assets) if wanted else {}
    former = {old: name for name, old in former_keys(known, renaming).items()}
    named = tuple(dict.fromkeys(one if one in everything.assets else former.get(one, one) for one in wanted))
    code: dict[str, PresentCode] = {}
    assets = {name for location in locations.values() for name in location.assets}
    made_in: dict[str, str] = {}
    for where, location in locations.items():
        for name in sorted(location.assets.keys() & set(named or location.assets)):
            one = present_code(location.asset(name))
            if one is None:
                continue
            if name in code and (one.version, one.fingerprint) != (code[name].version, code[name].fingerprint):
                raise _in_two(name, made_in[name], where)
            code[name], made_in[name] = one, where
    for name in named:
        if name not in assets and name not in known.assets:
            everything.asset(name)
        if name in assets and name not in code:
            raise ConfigurationError(
                "no Python function makes the asset, so that there is no code to write down",
                remedy="leave it out",
                asset=name,
            )
    return Present(code={**renaming, **code}, named=named, where=_part(options), assets=assets)


def _part(options: LocationOptions) -> str | None:
    """What names a part of the code locations, if one is named."""
    one = options.location or options.python_file or options.module_name
    return one if one is None else repr(one)


def _in_two(asset: str, one: str, other: str) -> ConfigurationError:
    return ConfigurationError(
        f"code locations {one!r} and {other!r} both make the asset, by other code each, and a lock has room for one",
        remedy=f"give one of them another key, or lock each by itself: -l {shlex.quote(one)} --lock-file FILE",
        asset=asset,
    )


def _loaded(options: LocationOptions) -> tuple[Mapping[str, CodeLocation], CodeLocation]:
    """All code locations by name, and together: one that does not load would look as if its assets were gone."""
    from marigold_assets.loading import Loader
    from marigold_assets.location import CodeLocation

    loader = Loader(options)
    found: dict[str, CodeLocation] = {}
    count = 0
    for name in loader.steps():
        for why in loader.failed.values():
            raise ConfigurationError(why, remedy="correct it, or look at others only: -l LOCATION")
        found[name] = CodeLocation(loader.loaded[count:])
        count = len(loader.loaded)
    return found, CodeLocation(loader.loaded)
