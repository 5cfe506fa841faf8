"""Modules are edited at random: the fingerprint changes exactly when what they mean may have changed."""

from __future__ import annotations

import ast
import importlib
import itertools
import os
import shutil
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from marigold_assets.code.loaded import code_fingerprint

LONG = bool(os.environ.get("MARIGOLD_STRESS"))
OPERATORS = st.sampled_from(["+", "-", "*", "//"])
NUMBERS = st.integers(1, 9)
TEXTS = st.sampled_from(["SELECT 1", "SELECT 2", "SELECT 2 -- two"])


@dataclass(frozen=True, kw_only=True)
class Meaning:
    """What the code does: each field is a place in it that says something."""

    operator: str = "+"
    helpers: tuple[tuple[str, int], ...] = (("+", 1), ("-", 2), ("*", 3))  # each calls the next
    rate: int = 1
    pattern: int = 1
    query: str = "SELECT 1"
    loaded_query: str = "SELECT 1"
    default: int = 1
    option: int = 1
    limit: int = 1
    base_limit: int = 1
    method: str = "+"
    steps: tuple[int, ...] = (0, 1)
    registered: int = 1
    decorated: int = 1
    partial: int = 1
    within: int = 1
    late: int = 1
    text: str = "a"
    captured: int = 1


@dataclass(frozen=True, kw_only=True)
class Looks:
    """What does not count: where things are, in which order, how they are called outside, and remarks."""

    package: str = "shop"
    other: str = "helpers"
    moved: frozenset[str] = frozenset()  # definitions that are in the other module
    order: int = 0
    remark: str = ""
    docstring: str = ""
    spaces: bool = False
    unused: int = 0
    metadata: str = ""
    alias: bool = False
    import_within: bool = False


def definitions(meaning):
    """The text of each definition by name; those that name others only by their plain names may be moved."""
    found = {}
    for number, (operator, constant) in enumerate(meaning.helpers):
        following = f"helper{number + 1}(x)" if number + 1 < len(meaning.helpers) else "x"
        found[f"helper{number}"] = f"def helper{number}(x):\n    return {following} {operator} {constant}\n"
    found["RATE"] = f"RATE = {meaning.rate}\n"
    found["PATTERN"] = f"PATTERN = re.compile('a{{{meaning.pattern}}}')\n"
    found["LOADED"] = "LOADED = (Path(__file__).parent / 'sql' / 'loaded.sql').read_text()\n"
    found["Base"] = f"class Base:\n    limit = {meaning.base_limit}\n"
    found["Model"] = (
        f"class Model(Base):\n    own = {meaning.limit}\n    def apply(self, x):\n"
        f"        return x {meaning.method} self.own\n"
    )
    for number in range(2):
        found[f"step{number}"] = f"def step{number}(x):\n    return x + {number}\n"
    found["STEPS"] = f"STEPS = [{', '.join(f'step{number}' for number in meaning.steps)}]\n"
    found["REGISTRY"] = "REGISTRY = {}\n"
    found["register"] = (
        "def register(name):\n    def keep(function):\n        REGISTRY[name] = function\n        return function\n"
        "    return keep\n"
    )
    found["registered"] = f"@register('eu')\ndef registered(x):\n    return x + {meaning.registered}\n"
    found["times"] = (
        "def times(factor):\n    def decorate(function):\n        @functools.wraps(function)\n"
        "        def wrapper(x):\n            return factor * function(x)\n        return wrapper\n"
        "    return decorate\n"
    )
    found["decorated"] = f"@times({meaning.decorated})\ndef decorated(x):\n    return x\n"
    found["PARTIAL"] = f"PARTIAL = functools.partial(max, {meaning.partial})\n"
    found["LATE"] = f"LATE = {{'late': lambda x: x + {meaning.late}}}\n"
    return found


MOVABLE = ["RATE", "PATTERN", "Base", "times", "step0", "step1", "register"]
ALONG = {"register": ["REGISTRY"]}  # what it names


def asset(meaning, looks):
    doc = f"    '''{looks.docstring}'''\n" if looks.docstring else ""
    within = "" if not looks.import_within else f"        from {looks.package}.{looks.other} import far\n"
    far = "far"
    if looks.alias:
        within = f"        from {looks.package}.{looks.other} import far as distant\n"
        far = "distant"
    equals = "  =  (" if looks.spaces else " = ("
    return (
        f"@dg.asset(metadata={{'said': {looks.metadata!r}}}, description={looks.metadata!r})\n"
        f"def made(context, default={meaning.default}, *, option={meaning.option}):\n{doc}"
        f"    {looks.remark and '# ' + looks.remark}\n"
        f"    def inner(x):\n{within}        return {far}(x)\n"
        f"    total{equals}helper0(default) {meaning.operator} option)\n"
        f"    query = (Path(__file__).parent / 'sql' / f'{{total}}_query.sql').read_text()\n"
        f"    text = f'{meaning.text}{{total:>{{RATE}}}}{meaning.text}'\n"
        f"    return total, RATE, PATTERN, query, LOADED, Model().apply(1), [step(1) for step in STEPS], text, \\\n"
        f"        REGISTRY['eu'](1), decorated(1), PARTIAL(1), LATE['late'](1), inner(1), captured(1)\n"
    )


HEAD = "import functools\nimport re\nfrom pathlib import Path\n"


def written(folder, meaning, looks):
    """Write the package."""
    package = folder / looks.package
    (package / "sql").mkdir(parents=True)
    found = definitions(meaning)
    moved = [name for name in found if name in looks.moved or any(name in ALONG.get(one, ()) for one in looks.moved)]
    far = f"def far(x):\n    return x + {meaning.within}\n"
    factory = "def factory(taken):\n    def captured(x):\n        return x + taken\n    return captured\n"
    other = [HEAD, *(found[name] for name in moved), far, factory]
    # What is above the asset and what is below it: functions may be anywhere, the rest in the order of its use.
    above = [name for name in found if name not in moved and found[name].startswith("def ")]
    rest = [name for name in found if name not in moved and name not in above]
    turned = above[looks.order % max(len(above), 1) :] + above[: looks.order % max(len(above), 1)]
    cut = len(turned) // 2
    unused = "".join(f"def unused{number}(x):\n    return {number}\n\n" for number in range(looks.unused))
    names = ", ".join([*moved, "factory", *([] if looks.import_within or looks.alias else ["far"])])
    gap = "\n" * (looks.order % 3) + (f"# {looks.remark}\n" if looks.remark else "")
    first = [f"captured = factory({meaning.captured})\n", *(found[name] for name in turned[:cut]), unused]
    last = [found[name] for name in turned[cut:]] + [found[name] for name in rest]
    main = [
        HEAD,
        f"import dagster as dg\nfrom {looks.package}.{looks.other} import {names}\n",
        *first,
        asset(meaning, looks),
        *last,
    ]
    (package / "__init__.py").write_text("")
    (package / f"{looks.other}.py").write_text("\n".join(other))
    (package / "assets.py").write_text(f"\n{gap}".join(main))
    (package / "sql" / "of_query.sql").write_text(meaning.query)
    (package / "sql" / "loaded.sql").write_text(meaning.loaded_query)
    (package / "sql" / "unused.sql").write_text(looks.remark)


def fingerprint(meaning, looks):
    """The fingerprint of the package, loaded for real."""
    folder = Path(tempfile.mkdtemp())
    try:
        written(folder, meaning, looks)
        sys.path.insert(0, str(folder))
        importlib.invalidate_caches()
        made = importlib.import_module(f"{looks.package}.assets").made
        return code_fingerprint(made.op.compute_fn.decorated_fn)
    finally:
        with suppress(ValueError):
            sys.path.remove(str(folder))
        for name in [one for one in sys.modules if one.partition(".")[0] == looks.package]:
            del sys.modules[name]
        shutil.rmtree(folder)


SAYS = {
    "operator": OPERATORS,
    "method": OPERATORS,
    "helpers": st.lists(st.tuples(OPERATORS, NUMBERS), min_size=1, max_size=4).map(tuple),
    "query": TEXTS,
    "loaded_query": TEXTS,
    "steps": st.permutations([0, 1]).map(tuple) | st.just((0,)),
    "text": st.sampled_from(["a", "b", "é", "{{"]),
    **{name: NUMBERS for name, value in vars(Meaning()).items() if type(value) is int},
}
DOES_NOT = {
    "package": st.sampled_from(["shop", "market_of_marigolds"]),
    "other": st.sampled_from(["helpers", "cleaning"]),
    "moved": st.frozensets(st.sampled_from(MOVABLE)),
    "order": st.integers(0, 9),
    "remark": st.sampled_from(["", "as it was", "value = 1"]),
    "docstring": st.sampled_from(["", "What it says.", "What it does."]),
    "spaces": st.booleans(),
    "unused": st.integers(0, 2),
    "metadata": st.sampled_from(["", "daily", "hourly"]),
    "alias": st.booleans(),
    "import_within": st.booleans(),
}


class Edits(RuleBasedStateMachine):
    """Edits one after the other. Whatever was seen before must have the fingerprint that it had then, and no other."""

    @initialize(meaning=st.builds(Meaning), looks=st.builds(Looks))
    def begin(self, meaning, looks):
        self.meaning, self.looks = meaning, looks
        self.seen = {}
        self.look()

    def look(self):
        found = fingerprint(self.meaning, self.looks)
        assert self.seen.setdefault(self.meaning, found) == found, "the same meaning has another fingerprint"
        same = [meaning for meaning, known in self.seen.items() if known == found]
        assert same == [self.meaning], "another meaning has the same fingerprint"

    @rule(edit=st.sampled_from(sorted(SAYS)).flatmap(lambda name: st.tuples(st.just(name), SAYS[name])))
    def change_what_it_means(self, edit):
        name, value = edit
        self.meaning = replace(self.meaning, **{name: value})
        self.look()

    @rule(edit=st.sampled_from(sorted(DOES_NOT)).flatmap(lambda name: st.tuples(st.just(name), DOES_NOT[name])))
    def change_how_it_looks(self, edit):
        name, value = edit
        self.looks = replace(self.looks, **{name: value})
        self.look()


TestEdits = pytest.mark.slow(Edits.TestCase)
TestEdits.settings = settings(max_examples=300 if LONG else 25, stateful_step_count=30 if LONG else 12)


@pytest.mark.slow
def test_every_place_that_says_something_counts_and_no_other():
    """Each edit at least once, whatever the machine has come to try."""
    before = fingerprint(Meaning(), Looks())
    changed = {
        "operator": "-",
        "method": "*",
        "helpers": (("+", 1), ("-", 2), ("*", 4)),
        "query": "SELECT 2",
        "loaded_query": "SELECT 2",
        "steps": (1, 0),
        "text": "b",
    }
    for name in vars(Meaning()):
        assert fingerprint(replace(Meaning(), **{name: changed.get(name, 2)}), Looks()) != before, name
    kept = {"package": "other_shop", "other": "cleaning", "moved": frozenset(MOVABLE), "order": 4, "unused": 2}
    for name, value in vars(Looks()).items():
        given = kept.get(name, True if type(value) is bool else "said")
        assert fingerprint(Meaning(), replace(Looks(), **{name: given})) == before, name


def test_a_module_that_is_written_out_again_by_python_has_the_same_fingerprint(tmp_path):
    """Reformatted as a whole: quotes, brackets and line breaks of another kind."""
    written(tmp_path / "a", Meaning(), Looks())
    text = (tmp_path / "a" / "shop" / "assets.py").read_text()
    assert ast.unparse(ast.parse(text)) != text
    names = itertools.count()

    def of(given):
        folder = tmp_path / f"b{next(names)}"
        written(folder, Meaning(), Looks())
        (folder / "shop" / "assets.py").write_text(given)
        sys.path.insert(0, str(folder))
        importlib.invalidate_caches()
        try:
            return code_fingerprint(importlib.import_module("shop.assets").made.op.compute_fn.decorated_fn)
        finally:
            sys.path.remove(str(folder))
            for name in [one for one in sys.modules if one.partition(".")[0] == "shop"]:
                del sys.modules[name]

    assert of(text) == of(ast.unparse(ast.parse(text)))
