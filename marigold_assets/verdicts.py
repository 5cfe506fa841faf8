"""The asset's own checks, evaluated by its function key by key: a failed blocking one keeps the rows out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import dagster as dg

from marigold_assets.errors import ConfigurationError, InvalidDataError

FAILED_PARTITIONS = "marigold/failed_partitions"


class Verdicts:
    """One verdict a check over all partitions of a step: passed if it has passed for every one.

    Args:
        specs: The asset's checks, by name.
    """

    def __init__(self, specs: Mapping[str, dg.AssetCheckSpec]) -> None:
        self._specs = specs
        self._failed: dict[str, list[str]] = {}
        self._shown: dict[str, dg.AssetCheckResult] = {}

    def add(self, key: str, results: Sequence[dg.AssetCheckResult]) -> None:
        """Take the results of one partition, before its rows are swapped.

        Raises:
            ConfigurationError: The asset has no such check.
            InvalidDataError: A blocking check has failed.
        """
        for result in results:
            name = result.check_name or (next(iter(self._specs)) if len(self._specs) == 1 else "")
            if name not in self._specs:
                raise ConfigurationError(
                    f"the function returned a result of check {name!r}, which the asset does not have",
                    remedy="declare it in check_specs, and name it in the result",
                )
            if not result.passed:
                self._failed.setdefault(name, []).append(key)
            if not result.passed or name not in self._failed:
                self._shown[name] = result
            if not result.passed and self._specs[name].blocking and result.severity is dg.AssetCheckSeverity.ERROR:
                raise InvalidDataError(
                    f"blocking check {name!r} failed: {result.description or dict(result.metadata)}",
                    remedy="correct the data or the code; the old rows are unchanged",
                )

    def results(self, asset_key: dg.AssetKey) -> Iterator[dg.AssetCheckResult]:
        """One result a check, with the partitions that failed."""
        for name, result in self._shown.items():
            failed = self._failed.get(name, [])
            yield dg.AssetCheckResult(
                passed=not failed,
                asset_key=asset_key,
                check_name=name,
                severity=result.severity,
                description=result.description,
                metadata={**result.metadata, **({FAILED_PARTITIONS: failed} if failed else {})},
            )
