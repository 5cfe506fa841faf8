"""The code fingerprint: another one when the code is, and the same in every process when it is not."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import textwrap

import pytest

from marigold_assets.code import code_fingerprint

HELPERS = """
    import functools

    RATE = 3
    NAMES = {"a", "b"}
    NESTED = ({"x", "y", "z"}, {"k": frozenset({1, 2})})

    def base(value):
        return value * 2

    def filter(value):  # as a builtin function is called
        return value

    @functools.cache
    def cached(value):
        return value + 10

    def times(factor):
        def decorate(function):
            @functools.wraps(function)
            def wrapper(value):
                return factor * function(value)
            return wrapper
        return decorate

    @times(4)
    def wrapped(value):
        return value - 1

    partly = functools.partial(base, 7)
    first = lambda value: value + 1
    second = lambda value: value + 2

    class Parent:
        limit = 5

    class Child(Parent):
        @staticmethod
        def clip(value):
            return min(value, Child.limit)

    def unused():
        return "never"
"""

ASSETS = """
    from {package} import helpers
    from {package}.helpers import Child, base, cached, filter, first, partly, second, wrapped

    def made(orders, factor=2):
        '''What it says.'''
        # a remark
        total = base(orders) + helpers.RATE + cached(orders) + filter(orders) + wrapped(orders) + partly()
        return total * factor + first(1) + second(2) + Child.clip(3) + len(helpers.NAMES | helpers.NESTED[0])
"""


@pytest.fixture
def fingerprint(tmp_path, monkeypatch):
    """Fingerprints the function of a package of its own, some text of which was replaced."""
    monkeypatch.syspath_prepend(str(tmp_path))
    numbers = iter(range(100))
    created = []

    def write(old="", new=""):
        name = "shop"
        for module in [module for module in sys.modules if module.partition(".")[0] == name]:
            del sys.modules[module]
        folder = tmp_path / f"version{next(numbers)}" / name
        folder.mkdir(parents=True)
        texts = {"__init__": "", "helpers": HELPERS, "assets": ASSETS.replace("{package}", name)}
        assert not old or any(old in text for text in texts.values())
        for module, text in texts.items():
            (folder / f"{module}.py").write_text(textwrap.dedent(text.replace(old, new) if old else text))
        monkeypatch.syspath_prepend(str(folder.parent))
        importlib.invalidate_caches()
        created.append(folder.parent)
        return code_fingerprint(importlib.import_module(f"{name}.assets").made)

    yield write
    for module in [module for module in sys.modules if module.partition(".")[0] == "shop"]:
        del sys.modules[module]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("total * factor", "total / factor"),
        ("factor=2", "factor=5"),
        ("value * 2", "value * 3"),
        ("RATE = 3", "RATE = 4"),
        ('NAMES = {"a", "b"}', 'NAMES = {"a", "c"}'),
        ('"x", "y", "z"', '"x", "y", "w"'),
        ("value):  # as a builtin function is called\n        return value", "value):\n        return -value"),
        ("value + 10", "value + 11"),
        ("@times(4)", "@times(5)"),
        ("factor * function(value)", "factor + function(value)"),
        ("value - 1", "value - 2"),
        ("partial(base, 7)", "partial(base, 8)"),
        ("value: value + 1", "value: value + 3"),
        ("value: value + 2", "value: value + 3"),
        ("min(value", "max(value"),
        ("limit = 5", "limit = 6"),
    ],
)
def test_whatever_the_function_uses_of_its_package_counts(fingerprint, old, new):
    assert fingerprint() != fingerprint(old, new)


def in_a_package(tmp_path, monkeypatch, name, **texts):
    """The fingerprint of ``made`` in the module ``assets`` of a new package."""
    folder = tmp_path / name
    folder.mkdir()
    for module, text in {"__init__": "", **texts}.items():
        (folder / f"{module}.py").write_text(textwrap.dedent(text).replace("{package}", name))
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    return code_fingerprint(importlib.import_module(f"{name}.assets").made)


def test_helpers_of_one_name_in_two_modules_are_told_apart(tmp_path, monkeypatch):
    assets = """
        from {package} import eur, usd
        def made(x): return eur.convert(x) - usd.convert(x)
    """
    helper = "FACTOR = {}\ndef convert(x): return x * FACTOR\n"
    of_rates = {"a": (2, 3), "b": (3, 2), "c": (2, 3)}
    found = [
        in_a_package(tmp_path, monkeypatch, f"rates_{name}", assets=assets, eur=helper.format(e), usd=helper.format(u))
        for name, (e, u) in of_rates.items()
    ]
    assert found[0] == found[2] != found[1]  # and how the package is called does not count


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("What it says.", "What it does."),
        ("# a remark", "# another remark"),
        ("total = base", "total  =  base"),
        ('return "never"', 'return "ever"'),
        ("RATE = 3", "\n\n    RATE = 3  # per cent"),
    ],
)
def test_remarks_layout_and_what_is_not_used_do_not_count(fingerprint, old, new):
    assert fingerprint() == fingerprint(old, new)


@pytest.mark.slow
def test_it_is_the_same_in_every_process(fingerprint, tmp_path):
    expected = fingerprint()
    script = "import shop.assets; from marigold_assets.code import code_fingerprint as c; print(c(shop.assets.made))"
    found = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONPATH": str(tmp_path / "version0"), "PYTHONHASHSEED": str(seed)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for seed in (1, 2)
    }
    assert found == {expected}


FLAT = {
    "shop_orders": """
        import shop_clean
        from shop_clean import Row, trimmed
        from shop_installed import rate

        def made(orders):
            return shop_clean.RATE * trimmed(orders) + shop_clean.whole(orders) + Row().cents + rate()
    """,
    "shop_clean": """
        from shop_text import words

        RATE = 3

        class Row:
            cents = 100

        def trimmed(value):
            return value + 1

        def whole(value):
            return words(value) + 2
    """,
    "shop_text": """
        def words(value):
            return value + 4
    """,
    "site-packages/shop_installed": """
        def rate():
            return 5
    """,
}


@pytest.fixture
def flat(tmp_path, monkeypatch):
    """Fingerprints the function of a project without packages, some text of which was replaced."""
    numbers = iter(range(100))

    def forget():
        for module in FLAT:
            sys.modules.pop(module.rpartition("/")[2], None)

    def write(old="", new=""):
        forget()
        folder = tmp_path / f"flat{next(numbers)}"
        assert not old or any(old in text for text in FLAT.values())
        for module, text in FLAT.items():
            file = folder / f"{module}.py"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(textwrap.dedent(text.replace(old, new) if old else text))
        for path in (folder / "site-packages", folder):
            monkeypatch.syspath_prepend(str(path))
        importlib.invalidate_caches()
        return code_fingerprint(importlib.import_module("shop_orders").made)

    yield write
    forget()


def test_modules_beside_the_definitions_count_and_installed_ones_do_not(flat):
    before = flat()
    assert flat() == before
    for old, new in (
        ("RATE = 3", "RATE = 4"),
        ("cents = 100", "cents = 10"),
        ("value + 1", "value - 1"),
        ("words(value) + 2", "words(value) - 2"),
        ("value + 4", "value - 4"),
    ):
        assert flat(old, new) != before, old
    assert flat("return 5", "return 6") == before
    assert flat("def words(value):", "def words(value):  # of a remark") == before


def test_of_a_great_many_definitions_the_nearest_count(tmp_path, monkeypatch):
    def of(name, changed):
        steps = [f"def step{n}():\n    return {n == changed} or step{n + 1}()" for n in range(2_000)]
        (tmp_path / f"{name}.py").write_text("\n".join(steps))
        monkeypatch.syspath_prepend(str(tmp_path))
        importlib.invalidate_caches()
        module = importlib.import_module(name)
        monkeypatch.delitem(sys.modules, name)
        for n in range(2_000):
            getattr(module, f"step{n}").__module__ = "steps"
        return code_fingerprint(module.step0)

    before = of("steps_before", None)
    assert of("steps_near", 900) != before
    assert of("steps_far", 1_500) == before


def made_by_factory(region, tax):
    def made(orders):
        return orders.filter(region).map(lambda value: value * tax)

    return made


def test_functions_that_a_factory_makes_differ_by_what_they_close_over():
    found = [made_by_factory(*given) for given in (("eu", 1), ("us", 1), ("eu", 2))]
    assert len({code_fingerprint(one) for one in found}) == 3
    assert code_fingerprint(found[0]) == code_fingerprint(made_by_factory("eu", 1))


def test_a_function_without_source_is_told_apart_by_what_it_does():
    def of(text):
        scope = {"__name__": __name__}
        exec(text, scope)
        return code_fingerprint(scope["made"])

    same = "def made(a):\n    def inner(b):\n        return b in {'x', 'y'} and RATE\n    return inner(a)\nRATE = 1"
    assert of(same) == of(same)
    for old, new in (("'y'", "'z'"), ("RATE = 1", "RATE = 2"), ("inner(a)", "not inner(a)")):
        assert of(same) != of(same.replace(old, new))


def test_functions_that_name_each_other_come_to_an_end():
    assert code_fingerprint(even) != code_fingerprint(odd)


def even(number):
    return number == 0 or odd(number - 1)


def odd(number):
    return number != 0 and even(number - 1)
