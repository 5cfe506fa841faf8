"""Values that a function closes over: told apart by what they hold, and the same in every process."""

from __future__ import annotations

import functools
import json
import operator
import os
import re
import subprocess
import sys
import threading
from collections import Counter, OrderedDict, defaultdict, deque
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from marigold_assets.code.loaded import code_fingerprint


def closing_over(value):
    def made(x):
        return x, value

    return made


def giving(value):
    return lambda: value


def of(value):
    return code_fingerprint(closing_over(value))


class Text(str):
    __slots__ = ()


class Whole(int):
    pass


class Named(dict):
    pass


class Private:
    __slots__ = ("__held",)

    def __init__(self, held):
        self.__held = held


class Client:
    def __init__(self, rate):
        self.rate, self.lock = rate, threading.Lock()


class Settings:
    def __init__(self, rate, order=()):
        for name in order:
            setattr(self, name, 1)
        self.rate, self.process = rate, os.urandom(8)

    def __getstate__(self):
        return {name: value for name, value in vars(self).items() if name != "process"}


class Kind(Enum):
    one = 1
    two = 2
    three = 3
    four = 4


MADE = [
    (lambda n: (max, min)[n]),
    (lambda n: (operator.add, operator.mul)[n]),
    (lambda n: (str.upper, str.lower)[n]),
    (lambda n: {"a": n}.get),
    (lambda n: functools.partial((round, max)[n], 1)),
    operator.itemgetter,
    (lambda n: OrderedDict(a=n)),
    (lambda n: defaultdict((int, str)[n])),
    (lambda n: defaultdict(int, a=n)),
    (lambda n: Counter(a=n)),
    (lambda n: deque([n])),
    (lambda n: MappingProxyType({"a": n})),
    (lambda n: {"a": n}.values()),
    (lambda n: SimpleNamespace(a=n)),
    range,
    slice,
    (lambda n: bytearray([n])),
    (lambda n: memoryview(bytes([n]))),
    (lambda n: re.compile("a" * 300 + str(n))),
    (lambda n: datetime(2024, 1, 1, tzinfo=ZoneInfo(("Europe/Paris", "Europe/Rome")[n]))),
    (lambda n: timezone(timedelta(hours=n))),
    Text,
    Whole,
    (lambda n: Named(a=n)),
    Private,
    Client,
    Settings,
    (lambda n: Path(str(n)) / "rows.csv"),
    (lambda n: b"x" * 10_000 + bytes([n])),
    (lambda n: [[object, str(i)] for i in range(3_000)] + [n]),
    (lambda n: (np.log, np.exp)[n]),
    np.float64,
    (lambda n: np.array([1, n])),
    (lambda n: np.dtype(("int64", "int32")[n])),
    (lambda n: pd.DataFrame({"a": ["x", n]})),
    (lambda n: pd.offsets.MonthEnd(n + 1)),
    (lambda n: pa.schema({"a": (pa.int64(), pa.int32())[n]})),
    (lambda n: pa.table({"a": [1, (2, None)[n]]})),
    (lambda n: pl.col("v") * n),
    (lambda n: [pl.col("v").is_in(["x", str(n)])]),
    (lambda n: pl.DataFrame({"a": [n]})),
    (lambda n: (pl.Int64, pl.Int32)[n]),
    (lambda n: (pl.Datetime("us"), pl.Datetime("ns"))[n]),
    (lambda n: {date(2024, 1, day) for day in range(1, 9 - n)}),
    (lambda n: frozenset(("a", Decimal(i + n)) for i in range(6))),
    (lambda n: {*Kind} - {Kind(n + 1)}),
    (lambda n: {lambda: 1, lambda: 2, (lambda: 3, lambda: 4)[n]}),
    (lambda n: {giving(i) for i in range(n, 5)}),
]


@pytest.mark.parametrize("make", MADE, ids=map(str, range(len(MADE))))
def test_what_a_value_holds_counts(make):
    assert of(make(0)) == of(make(0))
    assert of(make(0)) != of(make(1))


def test_which_of_two_things_a_container_holds_twice_counts():
    one, other = [lambda: 1], [lambda: 2]
    assert of([one, other, one]) != of([one, other, other])


def test_what_is_of_a_process_or_a_machine_alone_does_not_count():
    assert of(threading.Lock()) == of(threading.Lock())
    assert of(Client(1)) == of(Client(1))
    assert of(Settings(1, "ab")) == of(Settings(1, "ba"))
    assert of(Path("/a/rows.csv")) == of(Path("/b/rows.csv"))
    around = Settings(1)
    around.rate = around
    assert of(around) == of(around)


@pytest.mark.slow
def test_a_value_has_one_text_in_every_process():
    script = (
        "import json; from marigold_assets_tests.unit.test_code_values import MADE, of;"
        " print(json.dumps([of(make(0)) for make in MADE]))"
    )
    found = [
        json.loads(
            subprocess.run(
                [sys.executable, *option, "-c", script],
                env={**os.environ, "PYTHONHASHSEED": seed},
                capture_output=True,
                text=True,
                check=True,
            ).stdout
        )
        for seed, option in (("1", []), ("2", ["-O"]))
    ]
    assert [number for number, (one, other) in enumerate(zip(*found, strict=True)) if one != other] == []


def test_a_class_that_a_function_makes_counts_with_what_it_closes_over():
    def factory(rate):
        class Model:
            own = rate

            def apply(self, x, factor=0):
                return x, rate, factor

            half = functools.partialmethod(apply, factor=rate)

        def made(x):
            return Model().apply(x)

        return made

    def with_partial(rate):
        class Model:
            def apply(self, factor):
                return self, factor

            half = functools.partialmethod(apply, rate)

        return closing_over(Model)

    for make in (factory, with_partial):
        assert code_fingerprint(make(1)) == code_fingerprint(make(1))
        assert code_fingerprint(make(1)) != code_fingerprint(make(2))
