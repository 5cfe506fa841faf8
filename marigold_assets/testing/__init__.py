"""For authors of stores and of assets: the store contract as a test suite, strategies, and ways to die in the middle.

Needs ``pytest`` and ``hypothesis``, which the package itself does not.

* :class:`StoreContract` - subclass it, supply the fixture ``make_store``, and pytest runs S1-S12 on your store.
* :mod:`marigold_assets.testing.strategies` - Hypothesis strategies for names, keys, rows and slices.
* :func:`kill_at`, :func:`fail_at` - statement observers that kill the process, or raise, at a chosen statement.
* :class:`ForkServer` - runs functions in processes that may be killed, at the price of a fork each.
"""

from __future__ import annotations

from marigold_assets.testing.contract import StoreContract
from marigold_assets.testing.crashes import Crash, fail_at, kill_at, record
from marigold_assets.testing.processes import ForkServer, Outcome

__all__ = ["Crash", "ForkServer", "Outcome", "StoreContract", "fail_at", "kill_at", "record"]
