"""``@partitioned_asset``: a function of one partition key becomes an asset that builds one day or two years."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from typing import Any, Literal, cast

import dagster as dg

from marigold_assets import frames, partitions
from marigold_assets.building import build_partitions
from marigold_assets.code.loaded import LoadedCode
from marigold_assets.errors import ConfigurationError, MarigoldError
from marigold_assets.inputs import ALLOW_MISSING, Input
from marigold_assets.model import CutOff
from marigold_assets.recipe import Choices, Recipe, config_class
from marigold_assets.signature import PREVIOUS, Signature, dagster_signature, signature_of
from marigold_assets.uniformity import UNIFORM

_KEYS_A_RUN = 100


class PartitionedAssetsDefinition(dg.AssetsDefinition):
    """An asset made by :func:`partitioned_asset`. Called like a function, it is the function: for unit tests."""

    def __call__(self, *args: object, **kwargs: object) -> object:
        """Call the decorated function with frames of your own."""
        return inspect.unwrap(self._computed)(*args, **kwargs)

    @property
    def code(self) -> LoadedCode:
        """The code of the function, as it was loaded."""
        found: LoadedCode = self._computed.code
        return found

    @property
    def _computed(self) -> Any:
        computed: Any = self.op.compute_fn
        return computed.decorated_fn


def partitioned_asset(
    *,
    partitions_def: dg.PartitionsDefinition[Any],
    partition_expr: str | Mapping[str, str] | None = None,
    name: str | None = None,
    key_prefix: str | Sequence[str] | None = None,
    key: Any | None = None,
    ins: Mapping[str, dg.AssetIn] | None = None,
    early_cutoff: Literal["off", "on", "verify"] = "off",
    strict: bool = False,
    keys_per_statement: int = 1,
    backfill_policy: dg.BackfillPolicy | None = None,
    io_manager_key: str = "io_manager",
    metadata: Mapping[str, Any] | None = None,
    required_resource_keys: AbstractSet[str] | None = None,
    **asset_options: Any,
) -> Callable[[Callable[..., Any]], PartitionedAssetsDefinition]:
    """Make an asset of a function of one partition key.

    The function sees the inputs of its key and returns its rows, also where a run is about a range: then it is called
    key by key, in order. Every key is swapped by itself under the run's fencing token and reported by a materialization
    of its own, with its row count and its content hash as data version. What is built stays built: a retry, a
    re-execution or the rest of a backfill continues behind it.

    A parameter is the asset of its name (see ``ins``), loaded as its annotation says: pandas, polars or Arrow; SQL text
    (``str``) or ``duckdb.DuckDBPyRelation`` to compute inside the database. The parameter ``previous`` is the asset's
    own previous partition, ``None`` for the first, and makes it a chain. ``context``, ``config: <dagster.Config>`` and
    resources are as in ``dagster.asset``; the context is that of the one key.

    The function may return its rows within ``dagster.MaterializeResult(value=...)`` or ``dagster.Output``, with
    metadata of the partition, and with results of ``check_specs``: where a blocking one fails, nothing is swapped.

    Args:
        partitions_def: The partitions.
        partition_expr: The column or SQL expression that tells a row's partition; by dimension for
            multi-dimensional partitions.
        name: Name of the asset; that of the function by default.
        key_prefix: Prefix of its key.
        key: Its whole key, instead of name and prefix.
        ins: Keys, partition mappings and metadata of inputs: ``columns`` to load, ``marigold/allow_missing`` to take
            partitions that were never materialized for empty, ``marigold/uniform_version`` to refuse partitions that
            were built under several definitions. ``input_manager_key`` names the IO manager of an input
            that this asset's IO manager does not store.
        early_cutoff: ``"on"`` leaves partitions alone whose code and inputs, or whose new rows, are what they were;
            ``"verify"`` computes and refuses to overwrite what differs. A run may choose otherwise by its config.
        strict: Whether a chain refuses to build upon a past that was made by other code or inputs, instead of
            reporting it. A run may choose otherwise by its config.
        keys_per_statement: For functions over SQL or relations whose rows of one key depend on that key alone: how many
            keys one call may compute. They are swapped together, all or none.
        backfill_policy: By default all of a chain in one run, and up to 100 keys a run otherwise.
        io_manager_key: The resource that stores it, a ``FencedPartitionIOManager``.
        metadata: More metadata of the asset (see ``FencedPartitionIOManager``).
        required_resource_keys: Resources that the function takes from its context.
        asset_options: Everything else that ``dagster.asset`` takes: code_version, deps, description, tags, owners,
            kinds, group_name, retry_policy, pool, check_specs, automation_condition, op_tags, ...

    Raises:
        ConfigurationError: The function or the options make no sense.
    """

    def define(function: Callable[..., Any]) -> PartitionedAssetsDefinition:
        asset_key = _asset_key(function, name, key_prefix, key)
        with _about(asset_key):
            _refuse_options(asset_options)
            signature = signature_of(function)
            assets_in = _assets_in(signature, ins or {}, asset_key, partitions_def)
            is_chain = any(one.key == asset_key for one in assets_in.values())
            recipe = Recipe(
                function=function,
                context_parameter=signature.context,
                inputs=tuple(_input(one, signature.inputs[one], found) for one, found in assets_in.items()),
                io_manager_key=io_manager_key,
                code=LoadedCode(function),
                cut_off=_cut_off(early_cutoff),
                strict=strict,
                keys_per_statement=keys_per_statement,
            )
            _refuse_many_keys(recipe, is_chain=is_chain)
            compute = _compute_function(recipe, signature)
            own_metadata = _metadata(partition_expr, metadata)
        managers = [one.input_manager_key for one in recipe.inputs if one.input_manager_key is not None]
        wanted = [io_manager_key, *managers, *signature.resources]
        with warnings.catch_warnings():  # Dagster says "beta" for every backfill policy
            warnings.filterwarnings("ignore", message="Parameter `backfill_policy`", category=dg.BetaWarning)
            made = dg.asset(
                key=asset_key,
                ins={one: _without_loading(found) for one, found in assets_in.items()},
                partitions_def=partitions_def,
                metadata=own_metadata,
                backfill_policy=backfill_policy or _policy(is_chain=is_chain),
                io_manager_key=io_manager_key,
                required_resource_keys={*wanted, *(required_resource_keys or ())},
                dagster_type=dg.Nothing,
                **asset_options,
            )(compute)
        made.__class__ = PartitionedAssetsDefinition
        return cast("PartitionedAssetsDefinition", made)

    return define


@contextmanager
def _about(key: dg.AssetKey) -> Iterator[None]:
    """Have errors name the asset that is being defined."""
    try:
        yield
    except MarigoldError as error:
        error.where["asset"] = key.to_user_string()
        raise


def _asset_key(
    function: Callable[..., Any], name: str | None, prefix: str | Sequence[str] | None, key: Any | None
) -> dg.AssetKey:
    if key is not None:
        if name is not None or prefix is not None:
            raise ConfigurationError("both a key and its parts are given", remedy="give key, or name and key_prefix")
        return dg.AssetKey.from_coercible(key)
    parts = [prefix] if isinstance(prefix, str) else list(prefix or ())
    return dg.AssetKey([*parts, name or str(getattr(function, "__name__", type(function).__name__))])


_NOT_TAKEN = {
    "config_schema": "annotate the parameter 'config' with a subclass of dagster.Config",
    "dagster_type": "the rows go to the database; annotate the function with what it returns",
    "io_manager_def": "put the IO manager into the resources, and name it by io_manager_key",
    "output_required": "return an empty frame for a partition without rows",
    "resource_defs": "put them into the resources of the Definitions",
}


def _refuse_options(options: Mapping[str, Any]) -> None:
    for name, remedy in _NOT_TAKEN.items():
        if name in options:
            raise ConfigurationError(f"a partitioned asset takes no {name!r}", remedy=remedy)


def _assets_in(
    signature: Signature,
    ins: Mapping[str, dg.AssetIn],
    own: dg.AssetKey,
    partitions_def: dg.PartitionsDefinition[Any],
) -> dict[str, dg.AssetIn]:
    """The assets read, by parameter, each with its key."""
    if unknown := sorted(ins.keys() - signature.inputs.keys()):
        raise ConfigurationError(
            f"ins names {unknown[0]!r}, which is no parameter of the function",
            remedy="add the parameter, or name the asset in deps if the function does not read it",
        )
    found = {}
    for name in signature.inputs:
        given = ins.get(name, dg.AssetIn())
        key = given.key or dg.AssetKey([*(given.key_prefix or ()), name])
        if name == PREVIOUS and not given.key and not given.key_prefix:
            key = own
        mapping = given.partition_mapping
        if key == own and mapping is None:
            mapping = _one_before(partitions_def)
        found[name] = given._replace(key=key, key_prefix=None, partition_mapping=mapping)
    return found


def _one_before(partitions_def: dg.PartitionsDefinition[Any]) -> dg.PartitionMapping:
    """The mapping of a chain: one step back in time, and the same of every other dimension."""
    back = dg.TimeWindowPartitionMapping(start_offset=-1, end_offset=-1)
    if isinstance(partitions_def, dg.TimeWindowPartitionsDefinition):
        return back
    if isinstance(partitions_def, dg.MultiPartitionsDefinition) and partitions_def.has_time_window_dimension:
        time = partitions_def.time_window_dimension.name
        same = dg.IdentityPartitionMapping()
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Class `MultiPartitionMapping`", category=dg.BetaWarning)
            return dg.MultiPartitionMapping(
                {
                    one.name: dg.DimensionPartitionMapping(one.name, back if one.name == time else same)
                    for one in partitions_def.partitions_defs
                }
            )
    raise ConfigurationError(
        "a chain needs partitions in time, or nothing says which is the previous one",
        remedy="use a time partitions definition, or leave out the parameter 'previous'",
    )


def _input(name: str, annotation: Any, given: dg.AssetIn) -> Input:
    metadata = given.metadata or {}
    columns = metadata.get("columns")
    if given.input_manager_key is None and not frames.is_loadable_type(annotation):
        raise ConfigurationError(
            f"parameter {name!r} is annotated as {annotation!r}, which no asset can be loaded as",
            remedy=f"annotate it as one of {frames.names_of_types()}, or leave the annotation out",
        )
    return Input(
        name=name,
        annotation=annotation,
        columns=None if columns is None else tuple(columns),
        input_manager_key=given.input_manager_key,
        allow_missing=bool(metadata.get(ALLOW_MISSING, False)),
        uniform=bool(metadata.get(UNIFORM, False)),
    )


def _without_loading(given: dg.AssetIn) -> dg.AssetIn:
    """The same dependency for Dagster, which is not to load it: once a range instead of once a key."""
    return dg.AssetIn(
        key=given.key, metadata=given.metadata, partition_mapping=given.partition_mapping, dagster_type=dg.Nothing
    )


def _cut_off(given: str) -> CutOff:
    try:
        return CutOff(given)
    except ValueError:
        raise ConfigurationError(
            f"early_cutoff is {given!r}", remedy=f"choose one of {', '.join(repr(one.value) for one in CutOff)}"
        ) from None


def _refuse_many_keys(recipe: Recipe, *, is_chain: bool) -> None:
    if recipe.keys_per_statement < 1:
        raise ConfigurationError(f"keys_per_statement is {recipe.keys_per_statement}", remedy="give 1 or more")
    if recipe.keys_per_statement == 1:
        return
    if is_chain:
        raise ConfigurationError(
            "a chain computes one partition after another, but keys_per_statement asks for several at once",
            remedy="leave out keys_per_statement",
        )
    if not recipe.inputs or not all(one.is_in_warehouse for one in recipe.inputs):
        raise ConfigurationError(
            "keys_per_statement is for functions whose inputs are all SQL or relations",
            remedy="annotate the inputs as str or duckdb.DuckDBPyRelation, or leave out keys_per_statement",
        )


def _metadata(partition_expr: str | Mapping[str, str] | None, metadata: Mapping[str, Any] | None) -> dict[str, Any]:
    found = dict(metadata or {})
    if partition_expr is not None:
        found[partitions.PARTITION_EXPR] = partition_expr if isinstance(partition_expr, str) else dict(partition_expr)
    if partitions.PARTITION_EXPR not in found:
        raise ConfigurationError(
            "nothing says which column a row's partition is in",
            remedy='give partition_expr="<column or SQL expression>"',
        )
    return found


def _policy(*, is_chain: bool) -> dg.BackfillPolicy:
    """A chain in one run, since the daemon would release a run of it every 30 s; otherwise runs that share the work."""
    return dg.BackfillPolicy.single_run() if is_chain else dg.BackfillPolicy.multi_run(_KEYS_A_RUN)


def _compute_function(recipe: Recipe, signature: Signature) -> Callable[..., Any]:
    """The function that Dagster calls: with context and config, but no rows."""
    config = config_class(signature.config)

    def compute(context: dg.AssetExecutionContext, config: Any) -> Iterator[Any]:
        resources = {name: context.resources.original_resource_dict[name] for name in signature.resources}
        choices = Choices.of(recipe, config, resources, takes_config=signature.config is not None)
        yield from build_partitions(recipe, context, choices)

    compute.__name__ = recipe.function.__name__
    compute.__doc__ = recipe.function.__doc__
    compute.__module__ = recipe.function.__module__
    compute.__wrapped__ = recipe.function  # type: ignore[attr-defined]
    compute.code = recipe.code  # type: ignore[attr-defined]
    seen = dagster_signature(config)
    compute.__signature__ = seen  # type: ignore[attr-defined]
    compute.__annotations__ = {name: parameter.annotation for name, parameter in seen.parameters.items()}
    return compute
