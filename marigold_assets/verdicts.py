"""The asset's own checks, evaluated by its function key by key: a failed blocking one keeps the rows out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import dagster as dg

from marigold_assets.errors import ConfigurationError, InvalidDataError

FAILED_PARTITIONS = "marigold/failed_partitions"
EVALUATED_PARTITIONS = "marigold/evaluated_partitions"
UNEVALUATED_PARTITIONS = "marigold/unevaluated_partitions"


class Verdicts:
    """One verdict a check over all partitions of a step: passed if it has passed for every one that was evaluated.

    Args:
        specs: The asset's checks, by name.
        of: How many partitions the step is about. Of those that need no work, or that it did not come to, a check
            says nothing.
    """

    def __init__(self, specs: Mapping[str, dg.AssetCheckSpec], *, of: int) -> None:
        self._specs, self._of = specs, of
        self._evaluated: dict[str, int] = {}
        self._failed: dict[str, list[str]] = {}
        self._shown: dict[str, dg.AssetCheckResult] = {}

    def add(self, keys: Sequence[str], results: Sequence[dg.AssetCheckResult]) -> None:
        """Take the results of partitions that were computed together, before their rows are swapped.

        Raises:
            ConfigurationError: The asset has no such check, or one without a result.
            InvalidDataError: A blocking check has failed.
        """
        given = set()
        for result in results:
            name = result.check_name or (next(iter(self._specs)) if len(self._specs) == 1 else "")
            if name not in self._specs:
                raise ConfigurationError(
                    f"the function returned a result of check {name!r}, which the asset does not have",
                    remedy="declare it in check_specs, and name it in the result",
                )
            given.add(name)
            self._evaluated[name] = self._evaluated.get(name, 0) + len(keys)
            if not result.passed:
                self._failed.setdefault(name, []).extend(keys)
            if not result.passed or name not in self._failed:
                self._shown[name] = result
            if not result.passed and self._specs[name].blocking and result.severity is dg.AssetCheckSeverity.ERROR:
                raise InvalidDataError(
                    f"blocking check {name!r} failed: {result.description or dict(result.metadata)}",
                    remedy="correct the data or the code; the old rows are unchanged",
                )
        if missing := sorted(self._specs.keys() - given):
            raise ConfigurationError(
                f"the function returned no result of check {missing[0]!r}, which the asset declares",
                remedy="return one for every partition: MaterializeResult(value=..., check_results=[...])",
            )

    def results(self, asset_key: dg.AssetKey) -> Iterator[dg.AssetCheckResult]:
        """One result a check, with the partitions that failed, and how many it says nothing of."""
        for name, result in self._shown.items():
            failed, evaluated = self._failed.get(name, []), self._evaluated[name]
            left = self._of - evaluated
            partial = [f"Evaluated for {evaluated} of {self._of} partitions."] if left else []
            yield dg.AssetCheckResult(
                passed=not failed,
                asset_key=asset_key,
                check_name=name,
                severity=result.severity,
                description=" ".join([*([result.description] if result.description else []), *partial]) or None,
                metadata={
                    **result.metadata,
                    EVALUATED_PARTITIONS: evaluated,
                    UNEVALUATED_PARTITIONS: left,
                    **({FAILED_PARTITIONS: failed} if failed else {}),
                },
            )
