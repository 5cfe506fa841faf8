from __future__ import annotations

import importlib
import sys
import textwrap

import pytest


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Writes and imports modules of one file, and forgets them."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    written = []

    def write(name, text):
        (tmp_path / f"{name}.py").write_text(textwrap.dedent(text))
        written.append(name)
        importlib.invalidate_caches()
        return importlib.reload(sys.modules[name]) if name in sys.modules else importlib.import_module(name)

    yield write
    for name in written:
        sys.modules.pop(name, None)
