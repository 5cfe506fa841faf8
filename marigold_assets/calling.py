"""Calling the function of a partitioned asset for one key, and taking apart what it returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dagster as dg

from marigold_assets import dagster_internals, frames
from marigold_assets.attempt import owner_of, shown_keys
from marigold_assets.errors import ConfigurationError, MarigoldError
from marigold_assets.one_key import PartitionContext
from marigold_assets.recipe import Choices, Recipe

_NO_VALUE: Any = dg.MaterializeResult().value
"""Dagster's word for a result that brings no value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Returned:
    """What the function has returned, taken apart.

    Attributes:
        value: The rows, as one of the types that can be stored.
        metadata: More metadata for the materialization.
        tags: More tags for it.
        checks: Results of the asset's own checks.
        columns: Names and types of the columns in the frame's own words, where it has any.
    """

    value: Any
    metadata: Mapping[str, Any]
    tags: Mapping[str, str]
    checks: Sequence[dg.AssetCheckResult]
    columns: Sequence[tuple[str, str]] | None


def call(
    recipe: Recipe,
    choices: Choices,
    context: dg.AssetExecutionContext,
    keys: Sequence[str],
    *,
    arguments: Mapping[str, Any],
    upstream_keys: Callable[[str, Sequence[str]], Sequence[str]],
) -> Returned:
    """Call the function.

    Args:
        recipe: The function, and its parameters.
        choices: Config and resources.
        context: The context of the step.
        keys: The key, or those that one statement computes.
        arguments: What it reads, by parameter.
        upstream_keys: Tells which partitions of an input some keys read.

    Raises:
        ConfigurationError: It returned no rows of one partition.
        Exception: Whatever the function raises, with a note that says where.
    """
    narrowed = PartitionContext(context, keys, lambda name: upstream_keys(name, keys))
    given = {**arguments, **choices.resources}
    if recipe.context_parameter is not None:
        given[recipe.context_parameter] = narrowed
    if choices.config is not None:
        given["config"] = choices.config
    try:
        with dagster_internals.current_context(narrowed):
            value = recipe.function(**given)
    except MarigoldError:
        raise
    except dg.Failure as failure:  # such as that of a FencedPartitionResource, which says what it was about
        cause = failure.__cause__
        if not isinstance(cause, MarigoldError):
            raise
        cause.problem += f" (within the function of asset {owner_of(context.asset_key)!r}, {shown_keys(keys)!r})"
        raise cause from None
    except Exception as error:
        error.add_note(
            f"Raised for asset {owner_of(context.asset_key)!r}, partition {shown_keys(keys)!r}. The partitions before"
            " it are built, and the old rows of this one are unchanged; building again continues here."
        )
        raise
    return _taken_apart(value, narrowed.added, recipe.function.__name__)


def _taken_apart(value: Any, added: Mapping[str, Any], name: str) -> Returned:
    metadata, tags = dict(added), {}
    checks: Sequence[dg.AssetCheckResult] = ()
    if isinstance(value, dg.MaterializeResult | dg.Output):
        if value.data_version is not None:
            raise ConfigurationError(
                f"the function {name!r} returned data version {value.data_version.value!r}, but that of a partition is"
                " the hash of its contents",
                remedy="leave it out; put the value into the metadata instead",
            )
        metadata |= value.metadata or {}
        tags = dict(value.tags or {})
        if isinstance(value, dg.MaterializeResult):
            checks = value.check_results or ()
        value = value.value
    if value is None or value is _NO_VALUE or isinstance(value, tuple | list):
        what = f"a {type(value).__name__} of {len(value)}" if isinstance(value, tuple | list) else "no rows"
        raise ConfigurationError(
            f"the function {name!r} returned {what}; the old rows are unchanged",
            remedy="return one frame with the rows of the partition; for a partition without rows, an empty frame",
        )
    return Returned(value=value, metadata=metadata, tags=tags, checks=checks, columns=frames.described_columns(value))
