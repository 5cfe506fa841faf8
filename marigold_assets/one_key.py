"""The context that the function of a partitioned asset sees: that of its own key, whatever range the run is about."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import dagster as dg

from marigold_assets.errors import ConfigurationError


class PartitionContext(dg.AssetExecutionContext):
    """The context of a running asset, narrowed to the keys that are being computed: one, or those of a statement.

    Metadata that is added goes to the materializations of these keys.

    Args:
        context: The context of the run.
        keys: The keys.
        upstream: Tells which partitions of an input they read.
    """

    def __init__(
        self, context: dg.AssetExecutionContext, keys: Sequence[str], upstream: Callable[[str], Sequence[str]]
    ) -> None:
        super().__init__(context.op_execution_context)
        self._keys = tuple(keys)
        self._upstream = upstream
        self.added: dict[str, Any] = {}

    @property
    def has_partition_key(self) -> bool:
        """Whether there is one key."""
        return len(self._keys) == 1

    @property
    def has_partition_key_range(self) -> bool:
        """Whether there are several keys."""
        return len(self._keys) > 1

    @property
    def partition_keys(self) -> Sequence[str]:
        """The keys that are being computed."""
        return self._keys

    @property
    def partition_key(self) -> str:
        """The key that is being computed.

        Raises:
            ConfigurationError: One statement computes several.
        """
        if len(self._keys) != 1:
            raise ConfigurationError(
                f"there is no one partition key: one statement computes {len(self._keys)} of them",
                remedy="use context.partition_keys, or leave out keys_per_statement",
            )
        return self._keys[0]

    @property
    def multi_partition_key(self) -> dg.MultiPartitionKey:
        """The key that is being computed, by dimension."""
        key = self.partition_key
        if not isinstance(key, dg.MultiPartitionKey):
            raise ConfigurationError("the partitions have one dimension", remedy="use context.partition_key")
        return key

    @property
    def partition_key_range(self) -> dg.PartitionKeyRange:
        """First and last of the keys that are being computed."""
        return dg.PartitionKeyRange(self._keys[0], self._keys[-1])

    @property
    def partition_time_window(self) -> dg.TimeWindow:
        """The time from the start of the first key to the end of the last."""
        return _window(self.assets_def.partitions_def, self._keys)

    def asset_partition_keys_for_input(self, input_name: str) -> Sequence[str]:
        """The partitions of an input that the keys read."""
        return self._upstream(input_name)

    def asset_partition_key_for_input(self, input_name: str) -> str:
        """The one partition of an input that the key reads.

        Raises:
            ConfigurationError: It reads none, or several.
        """
        keys = self._upstream(input_name)
        if len(keys) != 1:
            raise ConfigurationError(
                f"input {input_name!r} has {len(keys)} partitions here", remedy="use asset_partition_keys_for_input"
            )
        return keys[0]

    def asset_partition_key_range_for_input(self, input_name: str) -> dg.PartitionKeyRange:
        """First and last of the partitions of an input that the keys read."""
        keys = self._upstream(input_name)
        return dg.PartitionKeyRange(keys[0], keys[-1])

    @property
    def asset_partition_key_range(self) -> dg.PartitionKeyRange:
        """First and last of the keys that are being computed."""
        return self.partition_key_range

    def asset_partition_key_for_output(self, output_name: str = "result") -> str:  # noqa: ARG002 - there is one
        """The key that is being computed."""
        return self.partition_key

    def asset_partition_keys_for_output(self, output_name: str = "result") -> Sequence[str]:  # noqa: ARG002
        """The keys that are being computed."""
        return self.partition_keys

    def asset_partition_key_range_for_output(self, output_name: str = "result") -> dg.PartitionKeyRange:  # noqa: ARG002
        """First and last of the keys that are being computed."""
        return self.partition_key_range

    def asset_partitions_time_window_for_output(self, output_name: str = "result") -> dg.TimeWindow:  # noqa: ARG002
        """The time from the start of the first key to the end of the last."""
        return self.partition_time_window

    def asset_partitions_time_window_for_input(self, input_name: str = "result") -> dg.TimeWindow:
        """The time from the start of the first partition of an input that the keys read, to the end of the last."""
        return _window(self.asset_partitions_def_for_input(input_name), self._upstream(input_name))

    def add_output_metadata(
        self, metadata: Mapping[str, Any], output_name: str | None = None, mapping_key: str | None = None
    ) -> None:
        """Add metadata to the materializations of the keys that are being computed."""
        del output_name, mapping_key
        self.added.update(metadata)

    def add_asset_metadata(
        self,
        metadata: Mapping[str, Any],
        asset_key: dg.CoercibleToAssetKey | None = None,
        partition_key: str | None = None,
    ) -> None:
        """Add metadata to the materializations of the keys that are being computed."""
        del asset_key
        if partition_key is None or partition_key in self._keys:
            self.added.update(metadata)

    def set_data_version(self, asset_key: dg.AssetKey, data_version: dg.DataVersion) -> None:
        """Refused: the data version of a partition is the hash of its contents.

        Raises:
            ConfigurationError: Always.
        """
        raise ConfigurationError(
            f"data version {data_version.value!r} was set for {asset_key.to_user_string()}, but that of a partition is"
            " the hash of its contents",
            remedy="leave out set_data_version; put the value into the metadata instead",
        )


def _window(definition: dg.PartitionsDefinition[Any] | None, keys: Sequence[str]) -> dg.TimeWindow:
    if isinstance(definition, dg.MultiPartitionsDefinition) and definition.has_time_window_dimension:
        time = definition.time_window_dimension
        keys = [definition.get_partition_key_from_str(key).keys_by_dimension[time.name] for key in keys]
        definition = time.partitions_def
    if not isinstance(definition, dg.TimeWindowPartitionsDefinition) or not keys:
        raise ConfigurationError("the partitions are no windows of time", remedy="use context.partition_key")
    first, last = (definition.time_window_for_partition_key(key) for key in (keys[0], keys[-1]))
    return dg.TimeWindow(first.start, last.end)
