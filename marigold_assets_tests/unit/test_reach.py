"""Whether a function shows that it touches nothing but its arguments; in doubt it may touch something."""

from __future__ import annotations

import datetime as dt
import functools
import math
import os
import subprocess
from os import system
from pathlib import Path

import dagster as dg
import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pytest

from marigold_assets.code.reach import touches_only_its_arguments
from marigold_assets_tests.unit import test_code

CONNECTION = duckdb.connect()
RATE = 3
RATES = {"a": (1, 2)}
ZERO = pd.Timedelta(0)


def clean(frame):
    return frame.drop_duplicates().assign(rate=RATE)


def shout(value):
    return subprocess.run(["echo", value], check=True)


class Totals:
    def of(self, frame):
        return frame.sum() * RATE


class Log:
    def write(self, line):
        Path("log").write_text(line)


def of_pandas(orders: pd.DataFrame, previous: pd.DataFrame | None) -> pd.DataFrame:
    if previous is None:
        return clean(orders)
    return pd.concat([previous, orders]).groupby("store", as_index=False)["cents"].sum() + ZERO


def of_polars(context: dg.AssetExecutionContext, orders: pl.DataFrame) -> dg.MaterializeResult:
    day = dt.date.fromisoformat(context.partition_key)
    total = orders.filter(pl.col("day") == day).select(pl.sum("cents"))
    context.log.info("rows %s", math.floor(len(total)))
    return dg.MaterializeResult(value=total, metadata={"rates": RATES["a"][0]})


def of_helpers(orders):
    return functools.reduce(np.add, [Totals().of(clean(orders)), *map(len, sorted(orders))])


@pytest.mark.parametrize("function", [of_pandas, of_polars, of_helpers, clean])
def test_work_on_values_touches_nothing_else(function):
    assert touches_only_its_arguments(function)


def a_file(orders):
    return open("rows").read()  # noqa: PTH123 - that is what is found


def a_frame_of_a_file(orders):
    return pd.read_csv("rows.csv")


def a_lazy_frame_of_files(orders):
    return pl.scan_parquet("*.parquet")


def writes_a_file(orders):
    orders.to_parquet("rows.parquet")


def imports(orders):
    import duckdb

    return duckdb


def connects(orders):
    return duckdb.connect("warehouse.duckdb")


def has_a_connection(orders):
    return CONNECTION.execute("SELECT 1")


def has_a_connection_as_default(orders, connection=CONNECTION):
    return connection.execute("SELECT 1")


def uses_the_system(orders):
    return os.environ["HOME"]


def asks_for_resources(context, orders):
    return context.resources.warehouse


def asks_for_the_instance(context, orders):
    return context.instance


def starts_a_program(orders):
    return [shout(row) for row in orders]


def writes_by_an_object(orders):
    return Log().write("now")


def stands_for_another(orders):
    return shouting(orders)


def evaluates(orders):
    return eval("duckdb.connect()")


def of_another_package(orders):
    return pytest.approx(orders)


def runs_a_command(orders):
    return system("ls")


def calls_out_of_a_table(orders):
    return BY_NAME["shout"](orders)


def calls_out_of_a_list(orders, calls=[duckdb.connect]):  # noqa: B006
    return calls[0]()


def reads_text(orders):
    return np.loadtxt("rows.txt")


def queries_files(orders):
    return pl.sql("SELECT * FROM read_csv('rows.csv')")


def starts_a_process_by_dagster(orders):
    return dg.PipesSubprocessClient()


def has_an_argument_of_a_class_in_quotes(config: "Log"):  # noqa: UP037 - that is what is found
    return config.write("now")


shouting = functools.partial(shout)
BY_NAME = {"shout": shout}


@pytest.mark.parametrize(
    "function",
    [
        *(a_file, a_frame_of_a_file, a_lazy_frame_of_files, writes_a_file, imports, connects, has_a_connection),
        *(has_a_connection_as_default, uses_the_system, asks_for_resources, asks_for_the_instance, starts_a_program),
        *(writes_by_an_object, stands_for_another, evaluates, of_another_package, runs_a_command),
        *(calls_out_of_a_table, calls_out_of_a_list, reads_text, queries_files, starts_a_process_by_dagster),
        has_an_argument_of_a_class_in_quotes,
    ],
)
def test_whatever_may_reach_out_is_told(function):
    assert not touches_only_its_arguments(function)


def test_what_a_function_has_around_it_counts():
    def made(inner):
        def outer(orders):
            return inner(orders)

        return outer

    assert touches_only_its_arguments(made(clean))
    assert not touches_only_its_arguments(made(shout))
    assert not touches_only_its_arguments(made(test_code.pytest.raises))


def test_a_function_without_source_may_do_anything():
    scope = {}
    exec("def without_source(orders): return orders", scope)
    assert not touches_only_its_arguments(scope["without_source"])
