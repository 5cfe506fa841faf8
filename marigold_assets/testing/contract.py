"""The store contract S1-S12 (see :mod:`marigold_assets.stores.base`) as a suite that runs on any store."""

from __future__ import annotations

from marigold_assets.testing.acceptance import AcceptanceContract
from marigold_assets.testing.confirmation import ConfirmationContract
from marigold_assets.testing.durability import DurabilityContract
from marigold_assets.testing.fencing import FencingContract
from marigold_assets.testing.lineage import LineageContract
from marigold_assets.testing.openings import OpeningContract
from marigold_assets.testing.replacement import ReplacementContract


class StoreContract(
    AcceptanceContract,
    ConfirmationContract,
    FencingContract,
    ReplacementContract,
    DurabilityContract,
    LineageContract,
    OpeningContract,
):
    """S1-S12 as tests. Subclass it, and supply the fixture ``make_store``; ``by_hand`` and ``busy`` where there are.

    Example:
        ::

            class TestMyStore(StoreContract):
                @pytest.fixture
                def make_store(self, tmp_path):
                    return lambda observer=None: MyStore(tmp_path / "data", observer=observer)
    """
