"""What the function of a partitioned asset asks for, by its parameters: read once, when the asset is defined."""

from __future__ import annotations

import functools
import inspect
import operator
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import dagster as dg

from marigold_assets import dagster_internals
from marigold_assets.errors import ConfigurationError

PREVIOUS = "previous"
"""The parameter for the asset's own previous partition."""

_CONTEXT_NAMES = ("context", "_context", "context_", "_")


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """The parameters of a function, by what they are for.

    Attributes:
        context: Name of the parameter for the context, if there is one.
        config: Class of the parameter ``config``, if there is one.
        resources: Annotations of the resources wanted, by parameter.
        inputs: Annotations of the assets read, by parameter, in order; ``previous`` is one of them.
        returns: The annotation of the result.
    """

    context: str | None
    config: type[dg.Config] | None
    resources: Mapping[str, Any]
    inputs: Mapping[str, Any]
    returns: Any


def signature_of(function: Callable[..., Any]) -> Signature:
    """Read the parameters of a function.

    Raises:
        ConfigurationError: It cannot be called with one key's inputs and return one key's rows.
    """
    if not inspect.isfunction(function):
        raise ConfigurationError(
            f"{function!r} is no function", remedy="define one by def, and call from it what computes the rows"
        )
    name = function.__name__
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ConfigurationError(
            f"the function {name!r} yields, but it is to return the rows of one partition",
            remedy="return them; for a stream of rows return a pyarrow.RecordBatchReader",
        )
    if inspect.iscoroutinefunction(function):
        raise ConfigurationError(
            f"the function {name!r} is asynchronous, but partitions are built one after another",
            remedy="define it by def, and call asyncio.run within it",
        )
    parameters = list(inspect.signature(function).parameters.values())
    for parameter in parameters:
        if parameter.kind not in {parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY}:
            raise ConfigurationError(
                f"the function {name!r} has the parameter {parameter}, for which there is no asset",
                remedy="name every parameter as the asset that it reads",
            )
    hints = _hints(function)
    context = parameters[0].name if parameters and _is_context(parameters[0].name, hints) else None
    named = {parameter.name: hints.get(parameter.name, Any) for parameter in parameters if parameter.name != context}
    config = named.pop("config", None)
    if config is not None and not (isinstance(config, type) and issubclass(config, dg.Config)):
        raise ConfigurationError(
            f"the parameter 'config' of {name!r} is annotated as {config!r}",
            remedy="annotate it with a subclass of dagster.Config",
        )
    if hints.get("return") is type(None):
        raise ConfigurationError(
            f"the function {name!r} is annotated to return None",
            remedy="return the rows of the partition, or use dagster.asset for one that writes for itself",
        )
    resources = {
        key: annotation for key, annotation in named.items() if dagster_internals.is_resource_annotation(annotation)
    }
    inputs = {key: annotation for key, annotation in named.items() if key not in resources}
    for parameter in parameters:
        if parameter.name in inputs and parameter.default is not parameter.empty and parameter.default is not None:
            raise ConfigurationError(
                f"the parameter {parameter.name!r} of {name!r} has a default value, which is never used: it is the"
                " asset of that name",
                remedy="take the value from the config, or from around the function",
            )
    return Signature(
        context=context,
        config=config,
        resources=resources,
        inputs={key: _plain(annotation) for key, annotation in inputs.items()},
        returns=hints.get("return", Any),
    )


def _is_context(name: str, hints: Mapping[str, Any]) -> bool:
    wanted = hints.get(name)
    return name in _CONTEXT_NAMES or (isinstance(wanted, type) and issubclass(wanted, dg.AssetExecutionContext))


def _hints(function: Callable[..., Any]) -> Mapping[str, Any]:
    """Annotations as objects, also where they are text; what cannot be evaluated is named."""
    try:
        return typing.get_type_hints(function, include_extras=True)
    except (NameError, AttributeError, SyntaxError, TypeError) as error:
        raise ConfigurationError(
            f"an annotation of {function.__name__!r} cannot be evaluated: {error}",
            remedy="import the type at run time, outside of 'if TYPE_CHECKING'",
        ) from None


def _plain(annotation: Any) -> Any:
    """An annotation without what ``Annotated`` says beside it."""
    if typing.get_origin(annotation) is typing.Annotated:
        return _plain(typing.get_args(annotation)[0])
    if typing.get_origin(annotation) in {typing.Union, types.UnionType}:
        return functools.reduce(operator.or_, map(_plain, typing.get_args(annotation)))
    return annotation


def dagster_signature(config: type[dg.Config]) -> inspect.Signature:
    """The parameters that Dagster itself has to fill: it asks for resources by another way, and is to load no rows."""
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    filled = {"context": dg.AssetExecutionContext, "config": config}
    return inspect.Signature([inspect.Parameter(name, kind, annotation=found) for name, found in filled.items()])
