"""The code fingerprint: another one when the code is, and the same in every process when it is not."""

from __future__ import annotations

import functools
import importlib
import os
import re
import subprocess
import sys
import textwrap
from decimal import Decimal
from enum import Enum
from pathlib import Path

import pytest

from marigold_assets.code.loaded import code_fingerprint, code_parts

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
    script = (
        "import shop.assets; from marigold_assets.code.loaded import code_fingerprint as c; print(c(shop.assets.made))"
    )
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


def test_of_a_great_many_definitions_all_count(tmp_path, monkeypatch):
    def of(name, changed):
        steps = [f"def step{n}():\n    return {n == changed} or step{n + 1}()" for n in range(1_200)]
        (tmp_path / f"{name}.py").write_text("\n".join(steps))
        monkeypatch.syspath_prepend(str(tmp_path))
        importlib.invalidate_caches()
        module = importlib.import_module(name)
        monkeypatch.delitem(sys.modules, name)
        return code_fingerprint(module.step0)

    assert len({of(f"steps_{changed}", changed) for changed in (None, 600, 1_199)}) == 3


SPREAD = {
    "helpers.py": """
        import re
        from decimal import Decimal
        from functools import partial
        from math import ceil as rounded

        import numpy as np

        PATTERN = re.compile("a+")
        CENT = Decimal("0.01")
        REGISTRY = {}
        RATES = {"eu": 1}
        RATES["us"] = 2

        def register(name):
            def keep(function):
                REGISTRY[name] = function
                return function
            return keep

        @register("eu")
        def of_europe(value):
            return value * 3

        class Base:
            floor = 4

        class Model(Base):
            def __init__(self, rate):
                self.rate = rate

            def apply(self, value):
                return helper_of_model(value)

        def helper_of_model(value):
            return value + 5

        MODEL = Model(6)

        def imported_within(value):
            return value - 7

        def also_within(value):
            return value - 8
    """,
    "late.py": """
        def only_within(value):
            return value // 9
    """,
    "queries/daily.sql": """
        SELECT 10
    """,
    "queries/by_region_eu.sql": """
        SELECT 11
    """,
    "assets.py": """
        from pathlib import Path
        from {package} import helpers
        from {package}.helpers import CENT, MODEL, PATTERN, RATES, REGISTRY, np, partial, rounded

        QUERY = (Path(__file__).parent / "queries" / "daily.sql").read_text()

        def made(orders, region="eu", factor=12, when=lambda: 13):
            from .helpers import imported_within
            from {package}.late import only_within as late

            def inner(value):
                from . import helpers as inside
                return inside.also_within(value)

            rows = [step(orders) for step in STEPS] + [BELOW, BY_NAME["x"](1)]
            rows += [REGISTRY[region](1), MODEL.apply(2), helpers.rounded(3), rounded(4), np.add(1, 2)]
            rows += [PATTERN, CENT, RATES, imported_within(1), late(2), inner(3), PARTLY(), Config().days]
            return rows, QUERY, (Path(__file__).parent / f"queries/by_region_{region}.sql").read_text()

        BELOW = 14
        PARTLY = partial(max, 15)

        def clean(value):
            return value + 16

        def dedupe(value):
            return value + 17

        def reached_late(value):
            return value + 18

        class Config:
            days = 19

        STEPS = [clean, dedupe]
        BY_NAME = {"x": lambda value: reached_late(value)}

        def unused(value):
            return value + 20
    """,
}


@pytest.fixture
def spread(tmp_path, monkeypatch):
    """Fingerprints the function of a package that refers to its parts in many ways, some text of which was replaced."""
    numbers = iter(range(100))

    def forget():
        for module in [one for one in sys.modules if one.partition(".")[0] == "spread"]:
            del sys.modules[module]

    def write(old="", new="", *, parts=False):
        forget()
        folder = tmp_path / f"spread{next(numbers)}" / "spread"
        assert not old or sum(text.count(old) for text in SPREAD.values()) == 1, old
        for name, text in SPREAD.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            given = text.replace("{package}", "spread")
            (folder / name).write_text(textwrap.dedent(given.replace(old, new) if old else given))
        monkeypatch.syspath_prepend(str(folder.parent))
        importlib.invalidate_caches()
        made = importlib.import_module("spread.assets").made
        return code_parts(made) if parts else code_fingerprint(made)

    yield write
    forget()


@pytest.mark.parametrize(
    ("old", "new", "part"),
    [
        ("BELOW = 14", "BELOW = 114", "BELOW"),
        ("value + 16", "value + 116", "clean"),
        ("value + 17", "value + 117", "dedupe"),
        ("value + 18", "value + 118", "reached_late"),
        ("[clean, dedupe]", "[dedupe, clean]", "STEPS"),
        ("days = 19", "days = 119", "Config"),
        ("partial(max, 15)", "partial(max, 115)", "PARTLY"),
        ('compile("a+")', 'compile("b+")', "PATTERN"),
        ('Decimal("0.01")', 'Decimal("0.1")', "CENT"),
        ('RATES["us"] = 2', 'RATES["us"] = 3', "RATES"),
        ("value * 3", "value * 103", "of_europe"),
        ("floor = 4", "floor = 104", "Base"),
        ("self.rate = rate", "self.rate = -rate", "Model"),
        ("value + 5", "value + 105", "helper_of_model"),
        ("Model(6)", "Model(106)", "MODEL"),
        ("value - 7", "value - 107", "imported_within"),
        ("value - 8", "value - 108", "also_within"),
        ("value // 9", "value // 109", "only_within"),
        ("SELECT 10", "SELECT 110", "daily.sql"),
        ("SELECT 11", "SELECT 111", "by_region_eu.sql"),
        ("factor=12", "factor=112", "made"),
        ("lambda: 13", "lambda: 113", "made"),
        ("import ceil as rounded", "import floor as rounded", "made"),
    ],
)
def test_what_is_below_within_or_held_counts_and_is_named(spread, old, new, part):
    before, after = spread(parts=True), spread(old, new, parts=True)
    assert before.keys() == after.keys()
    assert [name for name in before if before[name] != after[name]] == [part]
    assert spread() != spread(old, new)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("value + 20", "value + 120"),
        ("import numpy as np", "import numpy as np  # numbers"),
        (
            "from . import helpers as inside\n                return inside",
            "from . import helpers\n                return helpers",
        ),
        ("import only_within as late", "import only_within as late  # it is"),
        ("rows = [step(orders)", "rows = [(step)(  orders)"),
    ],
)
def test_unused_definitions_aliases_and_layout_do_not_count(spread, old, new):
    assert spread() == spread(old, new)


def test_the_fingerprint_is_whole_also_where_an_asset_stands_above_what_it_uses(spread):
    assert {"clean", "dedupe", "BELOW", "Config", "reached_late"} <= spread(parts=True).keys()


def test_of_two_parts_of_one_name_the_second_has_a_number(tmp_path, monkeypatch):
    folder = tmp_path / "twice"
    folder.mkdir()
    texts = {"__init__": "", "eur": "def convert(x): return x\n", "usd": "def convert(x): return -x\n"}
    texts["assets"] = "from twice import eur, usd\ndef made(x): return eur.convert(x) - usd.convert(x)\n"
    for name, text in texts.items():
        (folder / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    assert list(code_parts(importlib.import_module("twice.assets").made)) == ["made", "convert", "convert (2)"]


def test_modules_that_only_functions_import_are_followed(tmp_path, monkeypatch):
    def of(name, changed):
        folder = tmp_path / name
        (folder / "deep").mkdir(parents=True)
        texts = {f"n{n}": f"def value():\n    return {n == changed}\n" for n in range(4)}
        texts["deep/inner"] = f"def value():\n    return {changed == 4}\n"
        texts |= {"__init__": "", "deep/__init__": "", "fails": f"raise OSError({changed == 5})\n"}
        texts["assets"] = """
            def made(x):
                import NAME.n0, NAME.deep.inner
                import NAME.n1 as first
                from NAME import n2
                from . import n3
                if x:
                    from NAME.fails import never
                    import NAME.is_not_there
                return NAME.n0.value() + first.value() + n2.value() + n3.value() + NAME.deep.inner.value() + never()
        """
        for module, text in texts.items():
            (folder / f"{module}.py").write_text(textwrap.dedent(text).replace("NAME", name))
        monkeypatch.syspath_prepend(str(tmp_path))
        importlib.invalidate_caches()
        return code_fingerprint(importlib.import_module(f"{name}.assets").made)

    found = [of(f"only_within_{changed}", changed) for changed in range(6)]
    assert len({*found[:5], of("only_within_none", None)}) == 6


def test_a_module_that_is_used_as_an_object_counts_as_a_whole(tmp_path, monkeypatch):
    assets = """
        from {package} import steps
        def made(x): return getattr(steps, f"step_{x}")(x)
    """
    steps = "from math import floor\ndef step_a(x): return floor(x)\ndef step_b(x): return {}\n"
    found = [
        in_a_package(tmp_path, monkeypatch, f"object_{number}", assets=assets, steps=steps.format(number))
        for number in range(2)
    ]
    assert found[0] != found[1]


def test_what_a_star_import_brings_and_what_changes_a_module_count(tmp_path, monkeypatch):
    assets = """
        from {package}.far import *
        from {package} import settings
        settings.options.append(OPTION)
        settings.configure(CONFIGURED)
        def made(x): return near(x), RATE, settings.value()
    """
    texts = {"OPTION": 0, "CONFIGURED": 0, "RATE": 0, "NEAR": 0}

    def of(number, **changed):
        given = {**texts, **changed}
        return in_a_package(
            tmp_path,
            monkeypatch,
            f"star_{number}",
            assets=assets.replace("OPTION", str(given["OPTION"])).replace("CONFIGURED", str(given["CONFIGURED"])),
            far=f"RATE = iter([{given['RATE']}])\ndef near(x): return {given['NEAR']}\n",
            settings="options = []\ndef configure(x): options.append(x)\ndef value(): return options\n",
        )

    assert len({of(number, **{name: 1}) for number, name in enumerate(texts)} | {of(9)}) == 5
    assert of(10) == of(11)


def test_which_of_two_helpers_of_one_name_is_meant_counts(tmp_path, monkeypatch):
    assets = """
        from {package} import eur, usd
        from {package}.CHOSEN import convert
        def made(x): return eur.convert(x), usd.convert(x), last(x)
        def last(x): return convert(x)
    """
    found = [
        in_a_package(
            tmp_path,
            monkeypatch,
            f"chosen_{one}",
            assets=assets.replace("CHOSEN", one),
            eur="def convert(x): return x",
            usd="def convert(x): return -x",
        )
        for one in ("eur", "usd")
    ]
    assert found[0] != found[1]


def test_on_what_it_depends_that_a_name_is_bound_counts(tmp_path, monkeypatch):
    assets = """
        import sys
        if sys.maxsize > LIMIT:
            RATE = max
        else:
            RATE = min
        def made(x): return RATE(x, 1)
    """
    found = {
        in_a_package(tmp_path, monkeypatch, f"bound_{number}", assets=assets.replace("LIMIT", str(number)))
        for number in range(2)
    }
    assert len(found) == 2


def test_decorators_that_make_an_asset_do_not_count_on_what_is_called_either(tmp_path, monkeypatch):
    def of(number, decorator, result=1):
        assets = f"""
            import dagster as dg
            from marigold_assets import partitioned_asset
            {decorator}
            def other(): return {result}
            def made(x): return other()
        """
        return in_a_package(tmp_path, monkeypatch, f"called_{number}", assets=assets)

    same = ["", "@dg.asset", "@dg.asset(metadata={'a': 1})", "@dg.asset(metadata={'a': 2}, code_version='3')"]
    found = {of(number, decorator) for number, decorator in enumerate(same)}
    assert len(found) == 1
    assert of("changed", "@dg.asset", 2) not in found


def test_defaults_of_a_function_that_a_factory_makes_count_by_their_values():
    def factory(given, path):
        def made(x, rate=given, folder=path, names=frozenset({"a", "b", given})):
            return x, rate, folder, names

        return made

    found = [code_fingerprint(factory(given, Path("/here") / name)) for given, name in ((1, "x"), (2, "x"), (1, "y"))]
    assert len(set(found)) == 3
    assert code_fingerprint(factory(1, Path("/elsewhere/x"))) == found[0]  # the folder is one of the machine


def test_objects_that_a_function_closes_over_count_by_what_they_hold():
    def of(value):
        return code_fingerprint(made_by_factory(value, value))

    given = [
        (lambda x: x + 1, lambda x: x + 2),
        (functools.partial(made_by_factory, 1), functools.partial(made_by_factory, 2)),
        (Held(1), Held(2)),
        ({"a": [Held(1)]}, {"a": [Held(2)]}),
        ({Kind.one}, {Kind.two}),
        (Held(1).method, Held(2).method),
        (Decimal("0.1"), Decimal("0.2")),
        (re.compile("a"), re.compile("b")),
        (os.path.join, os.path.split),
        ({Held, Kind}, {Held}),
        (Slotted(1), Slotted(2)),
    ]
    for one, other in given:
        assert of(one) == of(one)
        assert of(one) != of(other), one
    assert of(object()) == of(object())
    around = []
    around.append((around, even))
    assert of(around) != of([])


class Held:
    def __init__(self, value):
        self.value = value

    def method(self):
        return self.value


class Slotted:
    __slots__ = ("value",)

    def __init__(self, value):
        self.value = value


class Kind(Enum):
    one = 1
    two = 2


def test_a_script_runs_its_main_part_in_no_import(tmp_path, monkeypatch):
    text = "RATE = [1]\ndef made(x):\n    return RATE\nif __name__ == '__main__':\n    RATE.append({})\n"
    for number in range(2):
        (tmp_path / f"script_{number}.py").write_text(text.format(number))
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    first, second = (code_fingerprint(importlib.import_module(f"script_{number}").made) for number in range(2))
    assert first == second


def test_two_functions_of_one_line_are_told_apart():
    first, second = (lambda x: x + 1), (lambda x: x + 2)  # fmt: skip
    assert code_fingerprint(first) != code_fingerprint(second)
    assert list(code_parts(first).values()) != list(code_parts(second).values())


def test_coroutines_of_a_kind_that_is_marked_later_have_a_text(tmp_path, monkeypatch):
    texts = [
        f"import types\n@types.coroutine\ndef wait(x):\n{remark}    yield x\ndef made(x):\n    return wait(x)\n"
        for remark in ("", "    # once\n")
    ]
    found = [
        in_a_package(tmp_path, monkeypatch, f"coroutines_{number}", assets=text) for number, text in enumerate(texts)
    ]
    assert found[0] == found[1]


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
