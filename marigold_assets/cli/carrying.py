"""The version lock beside a proof: which partitions prove anything of it, and having it carry a version over."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from marigold_assets.cli.locked_code import again, present_code, refuse_undeclared, renaming_code
from marigold_assets.errors import ConfigurationError
from marigold_assets.lock import Lock, PresentCode, Proof, carry_over, equivalent, former_keys
from marigold_assets.model import LedgerEntry
from marigold_assets.proof import Outcome, Replayed
from marigold_assets.surveying.lock_place import lock_path

if TYPE_CHECKING:
    from marigold_assets.cli.sampling import Sampled, Wanted
    from marigold_assets.loading import LocationOptions
    from marigold_assets.location import CodeLocation, LocatedAsset


@dataclass(frozen=True, slots=True, kw_only=True)
class Carrying:
    """The lock that is to carry a version over, as it was before anything was computed.

    Attributes:
        path: The file.
        lock: What it says.
        asset: The asset.
        code: Its code as it is now.
        name: The key under which the lock has it.
        write_again: The command that writes the lock.
    """

    path: Path
    lock: Lock
    asset: LocatedAsset
    code: PresentCode
    name: str
    write_again: str

    @classmethod
    def of(cls, location: CodeLocation, asset: LocatedAsset, options: LocationOptions, path: Path | None) -> Carrying:
        """Read it.

        Raises:
            ConfigurationError: There is none, it does not have the asset, or nothing can be carried over.
        """
        found = path or lock_path(options)
        write_again = again(options, path)
        lock = Lock.load(found, write_again=write_again)
        code = present_code(asset)
        refuse_undeclared(asset.owner, code)
        if code is None:
            raise ConfigurationError("no Python function makes it", remedy="prove another", asset=asset.owner)
        # A former key may be that of another asset by now, or another asset may have had it, too.
        former = former_keys(lock, {**renaming_code(location.assets), asset.owner: code}).get(asset.owner)
        code, name = replace(code, renamed_from=() if former is None else (former,)), former or asset.owner
        # What cannot be carried over, need not be proven.
        nothing = Proof(partitions=(), proven_on=datetime.now(UTC).date(), sample="")
        carry_over(lock, asset.owner, code, nothing, write_again=write_again)
        return cls(path=found, lock=lock, asset=asset, code=code, name=name, write_again=write_again)

    @property
    def is_due(self) -> bool:
        """Whether the lock has other code."""
        return self.lock.assets[self.name].fingerprint != self.code.fingerprint

    def proves(self) -> Callable[[LedgerEntry], bool] | None:
        """Tells which partitions the code of the lock has built; ``None`` where nothing is to be proven."""
        return self._is_of_lock if self.is_due else None

    def _is_of_lock(self, entry: LedgerEntry) -> bool:
        """Whether the code in the lock has built a partition, or code that was proven to be the same."""
        known, built = self.lock.assets[self.name], entry.provenance
        is_same = equivalent(self.lock, self.name, built.code_fingerprint, known.fingerprint)
        return built.code_version == known.version and is_same

    def carry_over(self, replayed: Sequence[Replayed], sampled: Sampled, wanted: Wanted, *, is_proven: bool) -> str:
        """Have the present code go by the version of the code before it, if that is proven.

        Args:
            replayed: What came of the partitions that were tried.
            sampled: How they were chosen.
            wanted: What was asked for.
            is_proven: Whether all of them are identical.

        Returns:
            What was done, in words.

        Raises:
            ConfigurationError: Nothing that was tried proves anything of the code in the lock, or the code or what the
                lock says of it has changed meanwhile.
        """
        if not self.is_due and self.name == self.asset.owner:
            return f"{self.path} has the present code already"
        if not is_proven:
            added = any(one.outcome is Outcome.ADDED for one in replayed)
            why = ": columns were added, which needs a new code_version" if added else ""
            return f"{self.path} is as it was{why}"
        heads = self.asset.store.heads(self.asset.table, [one.partition_key for one in replayed])
        built = {str(key): entry for key, entry in heads.items() if self._is_of_lock(entry)}
        if self.is_due:
            self._refuse_unproven(built)
        how = "all" if wanted.size is None else f"{len(sampled.chosen)} of {sampled.among}, seed {wanted.seed}"
        if wanted.keys:
            how = f"{len(sampled.chosen)} that were named"
        proof = Proof(
            partitions=tuple(sorted(built)),
            proven_on=datetime.now(UTC).date(),
            sample=f"{how}; {len(built)} of them built by the code in the lock",
        )
        if self.asset.loaded_code is not None:
            self.asset.loaded_code.refuse_changed_files(asset=self.asset.owner)
        carry_over(self._lock_now(), self.asset.owner, self.code, proof).save(self.path)
        count = f"{len(built):,} partition{'' if len(built) == 1 else 's'}"
        only = "only " if len(built) < len(replayed) else ""
        return (
            f"{self.path}: the present code goes by code_version {self.code.version!r}, proven on {only}{count} that"
            " the code in the lock has built"
        )

    def _lock_now(self) -> Lock:
        """The lock as it is by now: others may have written of other assets while partitions were computed."""
        now = Lock.load(self.path, write_again=self.write_again)
        names = {self.name, self.asset.owner}
        if any(now.assets.get(name) != self.lock.assets.get(name) for name in names):
            raise ConfigurationError(
                f"{self.path} says something else of the asset than before its partitions were computed",
                remedy="run it again",
                asset=self.asset.owner,
            )
        return now

    def _refuse_unproven(self, built: dict[str, LedgerEntry]) -> None:
        if not built:
            raise ConfigurationError(
                "none of the partitions tried was built by the code that the lock has under code_version"
                f" {self.code.version!r}: that proves nothing of it",
                remedy="try others with --range, or --all",
                asset=self.asset.owner,
            )
        if not any(entry.row_count for entry in built.values()):
            raise ConfigurationError(
                "all partitions tried that the code in the lock has built are empty: that proves nothing of it",
                remedy="try others with --range, or --all",
                asset=self.asset.owner,
            )
