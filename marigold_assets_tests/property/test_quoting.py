"""Any name and any value comes back as it went in."""

from __future__ import annotations

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from marigold_assets.model import Equals, PartitionSlice, TableName, fold
from marigold_assets.stores import sql
from marigold_assets.stores.session import Session
from marigold_assets.testing.strategies import column_names, keys, names, table_names


@pytest.fixture(scope="module")
def session():
    with duckdb.connect() as connection:
        yield Session(connection, None)


@given(name=names())
def test_an_identifier_comes_back_as_it_went_in(session, name):
    assert session.connection.execute(f"SELECT 1 AS {sql.identifier(name)}").description[0][0] == name


@given(value=keys())
def test_a_string_comes_back_as_it_went_in(session, value):
    assert session.execute("x", f"SELECT {sql.string(value)}") == [(value,)]


@given(table=table_names(), columns=column_names(), key=keys())
def test_a_table_is_made_and_sliced_under_any_names(session, table, columns, key):
    session.execute("x", f"CREATE SCHEMA IF NOT EXISTS {sql.identifier(table.schema)}")
    declared = ", ".join(f"{sql.identifier(name)} VARCHAR" for name in columns)
    session.execute("x", f"CREATE OR REPLACE TABLE {session.name(table)} ({declared})")
    found = session.table_columns(table)
    assert [column.name for column in found] == columns
    slice_ = PartitionSlice(table=table, partition_key=key, conditions=(Equals(expression=columns[0], value=key),))
    condition = session.predicate([slice_], found)
    session.execute("x", f"INSERT INTO {session.name(table)} ({sql.identifier(columns[0])}) VALUES (?), (NULL)", [key])
    assert session.execute("x", sql.select(session.name(table), columns[:1], condition.sql), condition.parameters) == [
        (key,)
    ]
    assert session.execute("x", sql.select(session.name(table), columns[:1], condition.display)) == [(key,)]


@given(left=names(), right=names())
def test_two_names_are_one_column_exactly_if_the_database_thinks_so(session, left, right):
    try:
        session.execute(
            "x", f"CREATE OR REPLACE TEMP TABLE two ({sql.identifier(left)} INT, {sql.identifier(right)} INT)"
        )
        distinct = True
    except duckdb.CatalogException:
        distinct = False
    assert distinct == (fold(left) != fold(right))


@given(
    name=st.sampled_from(["É", "é", "ß", "SS", "İ", "i̇", "K", "k", "A", "a", "Σ", "ς", "σ"]),
    other=st.sampled_from(["É", "é", "ß", "ss", "i", "I", "k", "a", "σ"]),
)
def test_only_ascii_case_is_folded(session, name, other):
    test_two_names_are_one_column_exactly_if_the_database_thinks_so.hypothesis.inner_test(session, name, other)


def test_table_identity_ignores_case():
    assert TableName(schema="Sales", name="DAILY").key == TableName(schema="sales", name="daily").key
    assert TableName(schema="a.b", name="c").key != TableName(schema="a", name="b.c").key
