from __future__ import annotations

from pathlib import Path

import pytest

from marigold_assets.testing import ForkServer


@pytest.fixture(scope="session")
def processes():
    """Runs the functions of children.py in processes that may be killed."""
    with ForkServer(Path(__file__).with_name("children.py")) as server:
        yield server
