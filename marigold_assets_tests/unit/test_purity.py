"""What the static look finds: real modules, written to files, with every way to name what is impure."""

from __future__ import annotations

import importlib.util
import itertools
import sys
import textwrap

import pytest

from marigold_assets.code.impurities import Kind
from marigold_assets.code.purity import look

_numbers = itertools.count()


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Writes a module to a file and imports it."""

    def make(source):
        name = f"looked_at_{next(_numbers)}"
        path = tmp_path / f"{name}.py"
        path.write_text(textwrap.dedent(source))
        spec = importlib.util.spec_from_file_location(name, path)
        made = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, name, made)
        spec.loader.exec_module(made)
        return made

    return make


def found(module, source, **options):
    """The findings in the function ``rows`` of a module, as (kind, line, is_weak)."""
    findings = look(module(source).rows, **options)
    return [(one.kind, one.line, one.is_weak) for one in findings]


def only(kind, line, *, weak=False):
    return [(kind, line, weak)]


CLOCKS = {
    "module": ("import datetime", "datetime.datetime.now()"),
    "class": ("from datetime import datetime", "datetime.utcnow()"),
    "alias of class": ("from datetime import datetime as dt", "dt.now(tz=None)"),
    "alias of module": ("import datetime as d", "d.date.today()"),
    "date": ("from datetime import date", "date.today()"),
    "time": ("import time", "time.time()"),
    "function": ("from time import time_ns as clock", "clock()"),
    "localtime of now": ("import time", "time.localtime()"),
    "strftime of now": ("import time", "time.strftime('%Y')"),
    "pandas": ("import pandas as pd", "pd.Timestamp.now()"),
    "pandas class": ("from pandas import Timestamp", "Timestamp.today()"),
    "pandas word": ("import pandas as pd", "pd.Timestamp('now')"),
    "numpy word": ("import numpy as np", "np.datetime64('today')"),
    "mentioned only": ("from datetime import datetime", "list(map(lambda _: datetime.now, [1]))"),
    "kept by a module": ("import time\nclock = time.time", "clock()"),
    "chained": ("import datetime", "datetime.datetime.now().date().isoformat()"),
}


@pytest.mark.parametrize(("imports", "text"), CLOCKS.values(), ids=CLOCKS)
def test_a_clock_is_found_by_whatever_name(module, imports, text):
    source = f"{imports}\ndef rows(orders):\n    return orders, {text}\n"
    assert found(module, source) == only(Kind.CLOCK, source.count("\n"))


def test_a_clock_imported_within_the_function_is_found(module):
    source = """\
        def rows(orders):
            from datetime import datetime as dt
            import time as t
            return dt.now(), t.time()
        """
    assert [kind for kind, _, _ in found(module, source)] == [Kind.CLOCK, Kind.CLOCK]


def test_a_clock_is_found_in_what_the_function_uses_of_its_project(module):
    source = """\
        import functools
        from datetime import datetime

        class Stamp:
            def value(self):
                return datetime.now()

        @functools.lru_cache
        def stamp():
            return Stamp().value()

        def rows(orders):
            return stamp()
        """
    assert found(module, source) == only(Kind.CLOCK, 6)


def test_what_is_called_alike_but_is_something_else_is_not_found(module):
    source = """\
        import datetime

        def rows(orders, time, random, now=None):
            now = time.time() + random.random()
            datetime = orders
            return datetime.now(), now, __import__
        """
    assert found(module, source) == []


PURE = {
    "moment from a number, in a zone": ("import datetime", "datetime.datetime.fromtimestamp(0, datetime.UTC)"),
    "zone by keyword": ("import datetime", "datetime.datetime.fromtimestamp(0, tz=datetime.UTC)"),
    "another zone": ("import datetime", "datetime.datetime(2024, 1, 1).astimezone(datetime.UTC)"),
    "seeded": ("import random", "random.Random('2024-01-01').random()"),
    "seeded numpy": ("import numpy as np", "np.random.default_rng(7).normal()"),
    "seeded sample": ("", "orders.sample(3, random_state=1)"),
    "draws of a seeded generator": ("import random", "random.Random('k').sample(orders, 3)"),
    "shuffled by a seeded generator": ("import random", "random.Random('k').shuffle(orders)"),
    "name-based uuid": ("import uuid", "uuid.uuid5(uuid.NAMESPACE_DNS, 'a')"),
    "sorted set": ("", "sorted({1, 2})"),
    "length of a set": ("", "len(set(orders))"),
    "sum over a set": ("", "sum(x for x in {1, 2})"),
    "durations": ("import time", "time.perf_counter()"),
    "database in memory": ("import duckdb", "duckdb.connect(':memory:')"),
    "prose": ("", "'the orders of today(), from now on'"),
    "column of the name": ("", "orders['current_date']"),
    "ordered limit": ("", "f'SELECT * FROM ({orders}) ORDER BY id LIMIT 3'"),
    "quoted in SQL": ("", "f\"SELECT 'now()' AS x FROM ({orders})\""),
    "comment in SQL": ("", "f'SELECT 1 FROM ({orders}) -- now()'"),
    "common table": ("", "f'WITH own AS (SELECT 1 FROM ({orders})) SELECT * FROM own'"),
    "frame by its name": ("import duckdb", "duckdb.sql('SELECT * FROM orders')"),
    "extract": ("", "f'SELECT extract(year FROM day) AS y FROM ({orders})'"),
    "compared": ("", "f'SELECT a IS DISTINCT FROM b AS c FROM ({orders})'"),
    "an object that answers to anything": ("from polars import col", "orders.select(col('a') + col.b)"),
    "number within": ("", "f'SELECT row_number() OVER (ORDER BY id) AS n FROM ({orders})'"),
}


@pytest.mark.parametrize(("imports", "text"), PURE.values(), ids=PURE)
def test_what_is_determined_is_not_found(module, imports, text):
    assert found(module, f"{imports}\ndef rows(orders):\n    return {text}\n") == []


OTHERS = {
    "random": ("import random", "random.choice([1, 2])", Kind.RANDOM),
    "random function": ("from random import gauss as g", "g(0, 1)", Kind.RANDOM),
    "unseeded": ("import random", "random.Random().random()", Kind.RANDOM),
    "numpy": ("import numpy as np", "np.random.rand(3)", Kind.RANDOM),
    "numpy function": ("from numpy.random import normal", "normal()", Kind.RANDOM),
    "unseeded numpy": ("import numpy as np", "np.random.default_rng()", Kind.RANDOM),
    "shared generator": ("import numpy as np\nrng = np.random.default_rng(7)", "rng.normal()", Kind.RANDOM),
    "sample": ("", "orders.sample(3)", Kind.RANDOM),
    "shuffle": ("", "orders.amount.shuffle()", Kind.RANDOM),
    "uuid": ("import uuid", "uuid.uuid4()", Kind.UNIQUE),
    "uuid function": ("from uuid import uuid1 as new", "new()", Kind.UNIQUE),
    "secrets": ("import secrets", "secrets.token_hex()", Kind.UNIQUE),
    "environ": ("import os", "os.environ['REGION']", Kind.ENVIRONMENT),
    "environ object": ("from os import environ as e", "e.get('REGION')", Kind.ENVIRONMENT),
    "getenv": ("from os import getenv", "getenv('REGION')", Kind.ENVIRONMENT),
    "working directory": ("from pathlib import Path", "Path.cwd()", Kind.ENVIRONMENT),
    "local zone": ("from datetime import datetime", "datetime.fromtimestamp(0)", Kind.ZONE),
    "own zone": ("", "orders.at.astimezone()", Kind.ZONE),
    "list of a set": ("", "list(set(orders))", Kind.ORDER),
    "join of a set": ("", "','.join({'a', 'b'})", Kind.ORDER),
    "enumerate a set": ("", "dict(enumerate({'a', 'b'} | set(orders)))", Kind.ORDER),
    "hash": ("", "hash('a')", Kind.ORDER),
    "append to a file": ("", "open('log', 'a')", Kind.WRITE),
    "append to a table": ("", "orders.to_sql('t', None, if_exists='append')", Kind.WRITE),
    "append to CSV": ("", "orders.to_csv('t.csv', mode='a')", Kind.WRITE),
    "SQL database": ("import pandas as pd", "pd.read_sql('t', None)", Kind.READ),
    "another database": ("import duckdb", "duckdb.connect('other.duckdb')", Kind.READ),
    "web": ("from urllib.request import urlopen", "urlopen('https://example.com')", Kind.READ),
    "SQL now": ("", "f'SELECT *, now() AS at FROM ({orders})'", Kind.CLOCK),
    "SQL current_date": ("", "f'SELECT * FROM ({orders}) WHERE day < current_date'", Kind.CLOCK),
    "SQL in a filter": ("", "orders.filter('day = today()')", Kind.CLOCK),
    "SQL random": ("", "f'SELECT random() AS r FROM ({orders})'", Kind.RANDOM),
    "SQL uuid": ("", "f'SELECT uuid() AS id FROM ({orders})'", Kind.UNIQUE),
    "SQL sequence": ("", "f\"SELECT nextval('s') AS id FROM ({orders})\"", Kind.UNIQUE),
    "SQL insert": ("", "'INSERT INTO log VALUES (1)'", Kind.WRITE),
    "SQL table": ("", "f'SELECT * FROM ({orders}) JOIN sales.customers USING (id)'", Kind.READ),
}


@pytest.mark.parametrize(("imports", "text", "kind"), OTHERS.values(), ids=OTHERS)
def test_every_kind_is_found(module, imports, text, kind):
    source = f"{imports}\ndef rows(orders):\n    return {text}\n"
    assert found(module, source) == only(kind, source.count("\n"))


WEAK = {
    "limit": ("", "f'SELECT * FROM ({orders}) LIMIT 3'", Kind.ROW_ORDER),
    "any value": ("", "f'SELECT any_value(x) AS x FROM ({orders})'", Kind.ROW_ORDER),
    "numbers": ("", "f'SELECT row_number() OVER () AS n FROM ({orders})'", Kind.ROW_ORDER),
    "file": ("import pandas as pd", "pd.read_csv('rates.csv')", Kind.READ),
    "loop over a set": ("", "[x for x in {1, 2}]", Kind.ORDER),
}


@pytest.mark.parametrize(("imports", "text", "kind"), WEAK.values(), ids=WEAK)
def test_what_only_may_be_impure_is_a_hint(module, imports, text, kind):
    source = f"{imports}\ndef rows(orders):\n    return {text}\n"
    assert found(module, source) == only(kind, source.count("\n"), weak=True)


def test_a_shared_generator_that_the_function_seeds_first_is_determined(module):
    source = """\
        import random
        import numpy as np

        def rows(context):
            random.seed(context.partition_key)
            np.random.seed(7)
            return random.random(), np.random.rand()
        """
    assert found(module, source) == []


def test_one_that_is_seeded_afterwards_is_not(module):
    source = """\
        import random

        def rows(context):
            value = random.random()
            random.seed(context.partition_key)
            return value
        """
    assert found(module, source) == only(Kind.RANDOM, 4)


def test_SQL_that_a_module_keeps_is_found_where_it_stands(module):
    source = '''\
        QUERY = """
            SELECT *, day AS d,
                current_timestamp AS loaded_at
            FROM {orders}
        """

        def rows(orders):
            return QUERY.format(orders=orders)
        '''
    findings = look(module(source).rows)
    assert [(one.kind, one.line, one.source) for one in findings] == [(Kind.CLOCK, 3, "current_timestamp AS loaded_at")]


def test_an_input_is_no_unknown_table(module):
    source = "def rows(context):\n    return 'SELECT * FROM sales.orders JOIN rates USING (day)'\n"
    assert found(module, source, tables=["sales.orders", "public.rates"]) == []


def test_an_input_without_partitions_is_found_where_it_is_taken(module):
    source = """\
        def rows(
            orders,
            customers,  # marigold: pure because customers never change
            products,
        ):
            return orders
        """
    findings = look(module(source).rows, unpartitioned={"customers": "crm/customers", "products": "products"})
    assert [(one.kind, one.line, one.waiver) for one in findings] == [
        (Kind.DIMENSION, 3, "customers never change"),
        (Kind.DIMENSION, 4, None),
    ]
    assert "crm/customers" in findings[0].what


def test_a_waiver_stands_on_the_line_or_alone_on_the_line_before(module):
    source = '''\
        import time

        def rows(orders):
            a = time.time()  # marigold: pure because it is only logged
            # marigold: pure because nobody reads it
            b = time.time()
            c = time.time()
            return f"""
                SELECT now() AS at -- marigold: pure because of the audit
                FROM ({orders})
            """
        '''
    findings = look(module(source).rows)
    assert [(one.line, one.waiver) for one in findings] == [
        (4, "it is only logged"),
        (6, "nobody reads it"),
        (7, None),
        (9, "of the audit"),
    ]


def test_a_waiver_without_a_reason_is_a_finding_and_waives_nothing(module):
    source = "import time\ndef rows(orders):\n    return time.time()  # marigold: pure because\n"
    findings = look(module(source).rows)
    assert [(one.kind, one.waiver) for one in findings] == [(Kind.CLOCK, None), (Kind.WAIVER, None)]


def test_a_waiver_does_not_change_the_code_fingerprint(module):
    from marigold_assets.code.loaded import code_fingerprint

    plain = "import time\ndef rows(orders):\n    return time.time()\n"
    waived = plain.replace("time.time()", "time.time()  # marigold: pure because it is only logged")
    assert code_fingerprint(module(plain).rows) == code_fingerprint(module(waived).rows)


def test_a_finding_says_why_and_what_to_do(module):
    [one] = look(module("import time\ndef rows(orders):\n    return time.time()\n").rows)
    assert (one.source, one.what) == ("return time.time()", "time.time()")
    assert "backfill" in one.kind.why
    assert "partition" in one.kind.remedy


def test_a_function_without_source_is_refused():
    namespace = {}
    exec("def rows(orders): return orders", namespace)
    with pytest.raises(ValueError, match="no source"):
        look(namespace["rows"])


def test_what_a_module_keeps_is_looked_at_where_the_function_uses_it(module):
    source = """\
        from datetime import datetime
        import os

        STARTED = datetime.now()
        UNUSED = datetime.now()
        try:
            HOME: str = os.environ["HOME"]
        except KeyError:
            HOME = ""

        def rows(orders):
            return orders.assign(at=STARTED, home=HOME)
        """
    assert sorted(found(module, source), key=str) == [*only(Kind.CLOCK, 4), *only(Kind.ENVIRONMENT, 7)]


def test_what_another_module_of_the_project_keeps_is_found_there(module, tmp_path, monkeypatch):
    (tmp_path / "kept_settings.py").write_text("import time\n\nBEGUN = time.time()\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    source = "from kept_settings import BEGUN as SINCE\n\ndef rows(orders):\n    return orders, SINCE\n"
    [one] = look(module(source).rows)
    assert (one.kind, one.line, one.file) == (Kind.CLOCK, 3, str(tmp_path / "kept_settings.py"))
    source = "import kept_settings\n\ndef rows(orders):\n    return orders, kept_settings.BEGUN\n"
    [one] = look(module(source).rows)
    assert (one.kind, one.line) == (Kind.CLOCK, 3)
    sys.modules.pop("kept_settings")


@pytest.mark.parametrize("text", ["context.run_id", "context.run.run_id"])
def test_the_run_is_no_part_of_the_partition_but_in_a_log(module, text):
    source = f"def rows(context, orders):\n    context.log.info({text})\n    return orders, {text}\n"
    assert found(module, source) == only(Kind.UNIQUE, 3)


MOMENTS = {
    "naive": ("datetime(2024, 1, 1)", [(Kind.ZONE, 3, False)]),
    "parsed": ("datetime.strptime(key, '%Y-%m-%d')", [(Kind.ZONE, 3, False)]),
    "perhaps with a zone": ("datetime.fromisoformat(key)", [(Kind.ZONE, 3, True)]),
    "in a zone": ("datetime(2024, 1, 1, tzinfo=UTC)", []),
    "parsed with a zone": ("datetime.strptime(key, '%Y-%m-%d%z')", []),
    "put into a zone": ("datetime(2024, 1, 1).replace(tzinfo=UTC)", []),
}


@pytest.mark.parametrize(("text", "expected"), MOMENTS.values(), ids=MOMENTS)
def test_the_timestamp_of_a_moment_without_a_zone_depends_on_that_of_the_process(module, text, expected):
    source = f"from datetime import UTC, datetime\ndef rows(key):\n    return {text}.timestamp()\n"
    assert found(module, source) == expected


def test_the_remedy_for_sql_is_one_of_sql(module):
    findings = look(module("def rows(orders):\n    return f'SELECT random(), uuid(), now() FROM ({orders})'\n").rows)
    assert len(findings) == 3
    assert not any("python" in one.remedy or "uuid5" in one.remedy or "random.Random" in one.remedy for one in findings)
