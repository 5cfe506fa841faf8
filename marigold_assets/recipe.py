"""How a partitioned asset is built: what its definition says once, and what a run chooses."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

import dagster as dg
from pydantic import Field

from marigold_assets.code.loaded import LoadedCode
from marigold_assets.errors import ConfigurationError
from marigold_assets.inputs import Input
from marigold_assets.model import CutOff


class EarlyCutOff(Enum):
    """What happens to a partition whose rows would be the same again; the names are those of run config."""

    off = "off"
    on = "on"
    verify = "verify"


class BuildConfig(dg.Config):
    """What a run chooses about how to build; both default to what the asset says."""

    early_cutoff: EarlyCutOff | None = Field(
        default=None,
        description="off: compute and swap, whatever earlier runs have left. on: leave alone what would be the same"
        " again. verify: compute, compare, and refuse to overwrite what differs. YAML wants it in quotes.",
    )
    strict: bool | None = Field(
        default=None, description="Whether a past that was built by other code or inputs is refused."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How a partitioned asset is built, the same in every run.

    Attributes:
        function: Makes the rows of one key of its inputs.
        context_parameter: The parameter of the function that takes the context, if there is one.
        inputs: The assets that it reads, by parameter.
        io_manager_key: The resource that stores it.
        code: The code of the function, as it was loaded.
        cut_off: What happens to rows that are the same again, unless a run says otherwise.
        strict: Whether a past that was built by other code or inputs is refused, unless a run says otherwise.
        keys_per_statement: How many keys one statement of the function may compute.
    """

    function: Callable[..., Any]
    context_parameter: str | None
    inputs: tuple[Input, ...]
    io_manager_key: str
    code: LoadedCode
    cut_off: CutOff
    strict: bool
    keys_per_statement: int

    @property
    def code_fingerprint(self) -> str:
        """See :mod:`marigold_assets.code.loaded`."""
        return self.code.fingerprint


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """What a run chooses.

    Attributes:
        cut_off: See :class:`Recipe`.
        insists: Whether the run itself says that everything is to be computed.
        strict: See :class:`Recipe`.
        config: The config that the function takes, if it takes one.
        resources: The resources that it takes, by parameter.
    """

    cut_off: CutOff
    insists: bool
    strict: bool
    config: dg.Config | None
    resources: Mapping[str, Any]

    @classmethod
    def of(cls, recipe: Recipe, config: BuildConfig, resources: Mapping[str, Any], *, takes_config: bool) -> Choices:
        """The choices of a run, with the recipe's where it makes none."""
        chosen = config.early_cutoff
        return cls(
            cut_off=recipe.cut_off if chosen is None else CutOff(chosen.value),
            insists=chosen is EarlyCutOff.off,
            strict=recipe.strict if config.strict is None else config.strict,
            config=config if takes_config else None,
            resources=resources,
        )

    @property
    def config_hash(self) -> str | None:
        """Digest of the config that the function takes, without the choices; ``None`` if it takes none."""
        if self.config is None:
            return None
        text = self.config.model_dump_json(exclude=set(BuildConfig.model_fields))
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def config_class(wanted: type[dg.Config] | None) -> type[BuildConfig]:
    """The config of an asset: that which its function takes, and the choices.

    Raises:
        ConfigurationError: Both have a field of one name.
    """
    if wanted is None:
        return BuildConfig
    if clash := sorted(BuildConfig.model_fields.keys() & wanted.model_fields.keys()):
        raise ConfigurationError(
            f"{wanted.__name__} has the field {clash[0]!r}, which every partitioned asset has for itself",
            remedy="give the field another name",
        )
    return type(wanted.__name__, (wanted, BuildConfig), {"__module__": wanted.__module__, "__doc__": wanted.__doc__})
