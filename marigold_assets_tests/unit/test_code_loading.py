"""The fingerprint is that of the code as it was loaded, whatever has become of its files since."""

from __future__ import annotations

import linecache
import os
import pickle
import runpy
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from marigold_assets.code.loaded import LoadedCode, code_fingerprint, code_parts

OLD = "def made(x):\n    'Old.'\n    return helper(x) + RATE\n\nRATE = 1\n\ndef helper(x):\n    return x + 1\n"


@pytest.mark.parametrize(
    ("old", "new"), [("RATE = 1", "RATE = 2"), ("x + 1", "x + 2"), ("def made", "\n\ndef made"), (OLD, "broken(")]
)
def test_a_file_that_changes_after_the_asset_is_defined_does_not_change_its_code(module, tmp_path, old, new):
    expected = code_fingerprint(module("loading", OLD).made)
    loaded = LoadedCode(module("loading", OLD).made)
    (tmp_path / "loading.py").write_text(OLD.replace(old, new))
    linecache.checkcache()
    assert loaded.fingerprint == expected


@pytest.mark.parametrize(("old", "new"), [("RATE = 1", "RATE = 22"), ("x + 1", "x + 22"), ("helper(x) + RATE", "0")])
def test_where_the_text_of_loading_is_gone_the_fingerprint_is_neither(module, tmp_path, old, new):
    of_old = code_fingerprint(module("gone", OLD).made)
    of_new = code_fingerprint(module("gone", OLD.replace(old, new)).made)
    made = module("gone", OLD).made
    (tmp_path / "gone.py").write_text(OLD.replace(old, new))
    found = code_fingerprint(made)
    assert len({of_old, of_new, found}) == 3
    assert found == code_fingerprint(made)


def test_a_module_that_is_loaded_again_has_its_new_code_and_what_was_loaded_before_its_old_one(module):
    other = OLD.replace("helper(x) + RATE", "helper(x) - RATE")
    expected = code_fingerprint(module("again", OLD).made)
    loaded = LoadedCode(module("again", OLD).made)
    after = LoadedCode(module("again", other).made)
    assert after.fingerprint == code_fingerprint(module("again_other", other).made)
    assert loaded.fingerprint == expected != after.fingerprint


def test_modules_that_were_loaded_before_the_asset_keep_their_text_too(module, tmp_path):
    helpers = "import re\nPATTERN = re.compile('a')\ndef clean(x):\n    return PATTERN.sub('', x)\n"
    module("beside_helpers", helpers)
    made = module("beside", "import beside_helpers\ndef made(x):\n    return beside_helpers.clean(x)\n").made
    expected, loaded = code_fingerprint(made), LoadedCode(made)
    (tmp_path / "beside_helpers.py").write_text(helpers.replace("compile('a')", "compile('bb')"))
    linecache.checkcache()
    assert loaded.fingerprint == expected


def test_sql_that_a_module_has_read_is_what_it_has_read(module, tmp_path):
    (tmp_path / "orders_of_day.sql").write_text("SELECT 1\n")
    text = """
        from pathlib import Path
        QUERY = Path(__file__).with_name("orders_of_day.sql").read_text()
        def made(x):
            return QUERY
    """
    made = module("reads_sql", text).made
    expected = code_fingerprint(made)
    (tmp_path / "orders_of_day.sql").write_text("SELECT 2\n")
    assert code_fingerprint(made) == expected  # it has the old one
    assert code_fingerprint(module("reads_sql", text).made) != expected


def test_what_a_cache_holds_and_where_a_file_is_do_not_count(module):
    text = """
        import functools, os
        from pathlib import Path
        SEEN = {}
        FOLDER = str(Path(__file__).parent)
        @functools.cache
        def costly(x):
            return x
        def made(x):
            return SEEN, FOLDER, os.environ, costly(x)
    """
    made = module("cached_one", text).made
    before = code_fingerprint(made)
    sys.modules["cached_one"].SEEN["a"] = 1
    sys.modules["cached_one"].FOLDER = "/elsewhere"
    assert code_fingerprint(made) == before == code_fingerprint(module("cached_two", text).made)


def test_code_of_a_notebook_has_its_text_in_no_file():
    def of(*cells):
        scope = {"__name__": "__main__"}
        for number, cell in enumerate(cells):
            file = f"<cell {os.urandom(4).hex()} {number}>"
            linecache.cache[file] = len(cell), None, cell.splitlines(keepends=True), file
            exec(compile(cell, file, "exec"), scope)
        return code_fingerprint(scope["made"])

    made, helper = "def made(x):\n    return helper(x) + RATE\n", "RATE = 1\ndef helper(x):\n    return x\n"
    assert of(made, helper) == of(helper, "# A remark.\n" + made)
    assert len({of(made, helper), of(made, helper.replace("1", "2")), of(made, helper.replace("x\n", "-x\n"))}) == 3


def test_a_file_that_runs_under_another_name_has_one_fingerprint(module, tmp_path):
    expected = code_fingerprint(module("renamed_before", OLD).made)
    assert code_fingerprint(module("renamed_after", OLD).made) == expected
    made = runpy.run_path(str(tmp_path / "renamed_before.py"))["made"]
    assert code_fingerprint(made) == expected


def test_code_that_was_sent_elsewhere_is_that_of_where_it_was_loaded(module, tmp_path):
    loaded = LoadedCode(module("sent", OLD).made)
    sent = pickle.loads(pickle.dumps(loaded))
    (tmp_path / "sent.py").write_text(OLD.replace("x + 1", "x + 2"))
    assert (sent.fingerprint, sent.parts) == (loaded.fingerprint, loaded.parts)


def test_threads_that_ask_at_once_get_one_answer(module):
    loaded = LoadedCode(module("asked_at_once", OLD).made)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: loaded.parts, range(32)))
    assert all(one is found[0] for one in found)


def even(number):
    return number == 0 or not even(number - 1)


def with_an_assertion(number):
    assert even(number)


def test_a_function_that_a_test_runner_has_rewritten_is_read_from_its_text():
    assert list(code_parts(with_an_assertion)) == ["with_an_assertion", "even"]


def test_constants_of_a_module_that_is_loaded_again_are_the_new_ones(module):
    old, new = "RATES = {'eu': 1}\nRATE = 1\n", "RATES = {'eu': 2}\nRATE = 2\n"
    made = "import constants\ndef made(x):\n    return constants.RATES, constants.RATE\n"
    module("constants", old)
    before = LoadedCode(module("uses_constants", made).made)
    linecache.getlines(sys.modules["constants"].__file__)  # as a traceback does
    module("constants", new)
    after = LoadedCode(module("uses_constants", made).made)
    sys.modules.pop("constants")
    module("constants", old)
    assert code_fingerprint(module("uses_constants", made).made) == before.fingerprint != after.fingerprint


def test_to_define_one_more_asset_reads_no_file_again(module, monkeypatch):
    module("shared_one", "def clean(x):\n    return x\n")
    assets = module("many_assets", "import shared_one\n" + "".join(f"def made{n}(x): return {n}\n" for n in range(50)))
    LoadedCode(assets.made0)
    looked_at = []
    monkeypatch.setattr(linecache, "checkcache", looked_at.append)
    for number in range(50):
        LoadedCode(vars(assets)[f"made{number}"])
    assert looked_at == []
