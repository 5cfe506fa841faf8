"""The live instance that a command works on, and the ledgers of what runs there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from marigold_assets.errors import ConfigurationError, MarigoldError, StoreBusyError, StoreUnavailableError

if TYPE_CHECKING:
    import dagster as dg

    from marigold_assets.backfill.keyed import Keyed
    from marigold_assets.location import CodeLocation, LocationOptions
    from marigold_assets.model import LedgerEntry
    from marigold_assets.planning.model import Key


@contextmanager
def live_instance() -> Iterator[dg.DagsterInstance]:
    """The instance that DAGSTER_HOME names.

    Raises:
        ConfigurationError: It names none: what is done on a temporary one is lost.
    """
    import dagster as dg

    from marigold_assets.backfill.refusing import no_home
    from marigold_assets.surveying.gathering import instance_home

    if instance_home() is None:
        raise no_home()
    with dg.DagsterInstance.get() as instance:
        yield instance


class Ledgers:
    """The ledgers of the assets of a code location, as far as there are any.

    Attributes:
        note: Why there are none, if so.

    Args:
        options: The code location.
        instance: Where dynamic partitions are.
        location: The same code location, if it is loaded.
    """

    def __init__(
        self, options: LocationOptions, instance: dg.DagsterInstance, *, location: CodeLocation | None = None
    ) -> None:
        from marigold_assets.location import load

        self._instance, self._location = instance, location
        self._keys: dict[str, Sequence[Key]] = {}
        self._lasting: dict[str, Mapping[Key, LedgerEntry] | None] = {}
        self.note: str | None = None
        try:
            self._location = location or load(options)
        except MarigoldError as error:
            self.note = f"the ledgers are not read: {error.problem}"

    def heads(self, owner: str, keys: Sequence[Key]) -> Mapping[Key, LedgerEntry] | None:
        """The newest entries of some partitions of an asset; ``None`` where it has no ledger.

        While the database is busy they are what they last were.
        """
        asset = None if self._location is None else self._location.assets.get(owner)
        if asset is None:
            return None
        try:
            if not asset.store.connector.exists():
                return {}
            found = asset.store.heads(asset.table, keys)
        except ConfigurationError:
            found = None
        except StoreBusyError:
            return self._lasting.get(owner)
        except StoreUnavailableError as error:
            self.note = f"the ledger of {owner} is not read: {error.problem}"
            found = None
        self._lasting[owner] = found
        return found

    def keys(self, owner: str) -> Sequence[Key]:
        """The partitions of an asset in order; none where it is not known."""
        if owner not in self._keys:
            asset = None if self._location is None else self._location.assets.get(owner)
            self._keys[owner] = () if asset is None else asset.partition_keys(self._instance)
        return self._keys[owner]

    def partitions(self, owner: str) -> Keyed | None:
        """The partitions of an asset with what they mean; ``None`` where it is not known."""
        from marigold_assets.backfill.keyed import Keyed

        asset = None if self._location is None else self._location.assets.get(owner)
        return None if asset is None else Keyed(asset.partitions_def, self.keys(owner))

    def between(self, owner: str, first: str, last: str) -> Sequence[Key] | None:
        """The partitions of a range as Dagster takes it; ``None`` where it has none such, or the asset is not known.

        That of several dimensions has those between its ends in each of them.

        Args:
            owner: The asset.
            first: The one end, which is one of its partitions.
            last: The other one.
        """
        import dagster as dg

        asset = None if self._location is None else self._location.assets.get(owner)
        definition = None if asset is None else asset.partitions_def
        if not isinstance(definition, dg.MultiPartitionsDefinition):
            return None
        between = dg.PartitionKeyRange(first, last)
        found = definition.get_partition_keys_in_range(between, dynamic_partitions_store=self._instance)
        return [str(key) for key in found]
