"""What changes the names of a module, where it is imported from everywhere, and which names it may mean."""

from __future__ import annotations

import importlib
import itertools
import sys
import textwrap

import pytest

from marigold_assets.code.loaded import code_fingerprint


@pytest.fixture
def flat(tmp_path, monkeypatch):
    """Fingerprints ``made`` of a project of some files, of which ``defs`` is one."""
    numbers = itertools.count()
    made = set()

    def write(texts, old="", new=""):
        folder = tmp_path / str(next(numbers))
        assert not old or sum(text.count(old) for text in texts.values()) == 1
        for name in made:
            sys.modules.pop(name, None)
        for name, text in texts.items():
            file = folder / f"{name}.py"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(textwrap.dedent(text.replace(old, new) if old else text))
        made.update(module for name in texts for module in (name.partition("/")[0], name.replace("/", ".")))
        monkeypatch.syspath_prepend(str(folder))
        importlib.invalidate_caches()
        return code_fingerprint(importlib.import_module("defs").made)

    yield write
    for name in made:
        sys.modules.pop(name, None)


COUNTS = {
    "a call that is given a name": "RATES = {}\ndef load(d, v): d['x'] = v\nload(RATES, 11)\ndef made(x): return RATES",
    "a function that binds it": "X = None\ndef f(v):\n    global X\n    X = v\nf(11)\ndef made(x): return X",
    "in it": "def f():\n    global X\n    X = [11]\nf()\ndef made(x): return X",
    "one that another one calls": (
        "X = None\ndef f(v):\n    global X\n    X = v\ndef g(v): f(v)\nDONE = g(11)\ndef made(x): return X"
    ),
    "a function that appends": "STEPS = []\ndef add(k): STEPS.append(k)\nadd(11)\ndef made(x): return STEPS",
    "a decorator": (
        "ALL = {}\ndef rated(v):\n    def keep(f):\n        ALL[f.__name__] = v\n        return f\n    return keep\n"
        "@rated(11)\ndef g(x): return x\ndef made(x): return ALL"
    ),
    "another name": "R = {}\nQ = R\nS = Q\nS['a'] = 11\ndef made(x): return R",
    "a loop": "A, B = {}, {}\nfor one in (A, B):\n    one['a'] = 11\ndef made(x): return B",
    "an implementation": (
        "from functools import singledispatch\n@singledispatch\ndef clean(x): return 0\n"
        "@clean.register\ndef _(x: int): return 11\n@clean.register\ndef _(x: str): return 12\n"
        "def made(x): return clean(x)"
    ),
    "the type that one is for": (
        "from functools import singledispatch\nKINDS = [int] * 100\n"
        "@singledispatch\ndef clean(x): return 0\n"
        "@clean.register(KINDS[11])\ndef _(x): return 1\n@clean.register(str)\ndef _(x): return 2\n"
        "def made(x): return clean(x)"
    ),
}


@pytest.mark.parametrize("name", COUNTS)
def test_whatever_changes_a_name_counts(flat, name):
    texts = {"defs": COUNTS[name]}
    assert flat(texts) == flat(texts)
    assert flat(texts) != flat(texts, "11", "99")


def test_implementations_of_other_modules_count_where_they_are_loaded(flat):
    texts = {
        "base": "from functools import singledispatch\n@singledispatch\ndef clean(x): return 0",
        "more": "from base import clean\n@clean.register\ndef _(x: int): return 11",
        "defs": "import base, more\ndef made(x): return base.clean(x)",
    }
    assert flat(texts) != flat(texts, "11", "99")


@pytest.mark.parametrize(
    ("defs", "counting"),
    [
        ("from a import *\nfrom b import *\n", "b"),
        ("from b import *\nfrom a import *\n", "a"),
        ("def g(x): return 0\nfrom a import *\n", "a"),
        ("from a import *\ndef g(x): return b.g(x)\nimport b\n", "b"),
        ("from b import *\ntry:\n    from a import *\nexcept ImportError:\n    pass\n", "ab"),
        ("from c import *\n", "a"),
    ],
)
def test_of_names_that_come_from_everywhere_the_last_one_counts(flat, defs, counting):
    texts = {
        "a": "def g(x): return 'in a'",
        "b": "def g(x): return 'in b'",
        "c": "from a import g as _hidden\ng = _hidden\n__all__ = ['g']",
        "defs": f"{defs}\ndef made(x): return g(x)",
    }
    before = flat(texts)
    for module in "ab":
        assert (flat(texts, f"in {module}", "changed") != before) == (module in counting)


def test_a_module_that_is_used_as_an_object_has_the_names_that_it_imports(flat):
    texts = {
        "steps/__init__": "from .a import clean\nfrom .b import *\nfrom . import c",
        "steps/a": "def clean(x): return 11",
        "steps/b": "def dedupe(x): return 12",
        "steps/c": "import steps\ndef last(x): return 13",
        "defs": "import steps\ndef made(x): return getattr(steps, x)",
    }
    found = {flat(texts), *(flat(texts, str(number), "99") for number in (11, 12, 13))}
    assert len(found) == 4


def test_names_that_are_bound_within_comprehensions_are_those_of_the_function(flat):
    texts = {"defs": "y = 11\ndef made(x):\n    a = [[(y := q) for q in p] for p in x]\n    return y"}
    assert flat(texts) == flat(texts, "11", "99")
    texts = {"defs": "y = 11\ndef made(x):\n    global y\n    a = [(y := q) for q in x]\n    return y"}
    assert flat(texts) != flat(texts, "11", "99")


def test_calls_that_functions_are_given_to_do_not_change_them(flat):
    texts = {
        "lib": "def clean(x): return x\nclass App:\n    def add(self, *given): pass",
        "defs": (
            "from lib import App, clean\napp = App()\napp.add(11)\napp.add(clean, 12)\nprint(clean)\n"
            "def own(x): return x\napp.add(own, 13)\ndef made(x): return own(clean(x))"
        ),
    }
    assert len({flat(texts), *(flat(texts, str(number), "99") for number in (11, 12, 13))}) == 1


def test_imports_within_functions_are_found_beside_their_module(flat, tmp_path, monkeypatch):
    texts = {
        "defs": "def made(x):\n    from rare import value\n    return value()",
        "rare": "import rarer\ndef value(): return rarer.value()",
        "rarer": "def value(): return 11",
    }
    found = {flat(texts)}
    for old, new in (("", ""), ("11", "99")):
        folder = tmp_path / f"beside{new}"
        folder.mkdir()
        for name, text in texts.items():
            sys.modules.pop(name, None)
            (folder / f"{name}.py").write_text(text.replace(old, new) if old else text)
        with monkeypatch.context() as patch:
            patch.setattr(sys, "path", [str(folder), *sys.path])
            importlib.invalidate_caches()
            made = importlib.import_module("defs").made
        path = [one for one in sys.path if not one.startswith(str(tmp_path))]
        monkeypatch.setattr(sys, "path", path)
        found.add(code_fingerprint(made))
        assert sys.path == path
    assert len(found) == 2
