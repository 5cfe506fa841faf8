"""``mh1``: the same for the same rows in any order, and different for every other multiset of rows."""

from __future__ import annotations

from collections import Counter

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from marigold_assets.fingerprint import Comparison, compare
from marigold_assets.model import Column, PartitionSlice, TableName
from marigold_assets.stores import measure
from marigold_assets.stores.session import Session

WHOLE = PartitionSlice(table=TableName(schema="main", name="t"), partition_key=None)
SCHEMA = pa.schema([("number", pa.int64()), ("text", pa.string()), ("ratio", pa.float64())])

rows = st.lists(
    st.fixed_dictionaries(
        {
            "number": st.none() | st.integers(-3, 3) | st.integers(-(2**63), 2**63 - 1),
            "text": st.none()
            | st.sampled_from(["", "a", "b"])
            | st.text(st.characters(exclude_categories=("Cs",)), max_size=4),
            "ratio": st.none() | st.sampled_from([0.0, 1.5]) | st.floats(allow_nan=False),
        }
    ),
    max_size=6,
)


@pytest.fixture(scope="module")
def session():
    with duckdb.connect() as connection:
        yield Session(connection, None)


def hash_of(session, given_rows, columns=None):
    session.connection.register("given", pa.Table.from_pylist(given_rows, schema=SCHEMA))
    session.connection.execute("CREATE OR REPLACE TABLE t AS FROM given")
    return measure.content_hash(session, WHOLE, session.table_columns(WHOLE.table), columns)


def multiset(given_rows):
    return Counter(tuple(0.0 if value == 0 else value for value in row.values()) for row in given_rows)


@pytest.mark.slow
@given(rows=rows, data=st.data())
def test_the_order_of_rows_and_columns_does_not_count(session, rows, data):
    shuffled = data.draw(st.permutations(rows))
    assert compare(hash_of(session, rows), hash_of(session, shuffled)) is Comparison.SAME
    columns = session.table_columns(WHOLE.table)
    assert hash_of(session, rows, columns) == hash_of(session, rows, columns[::-1])


@given(left=rows, right=rows)
def test_two_multisets_of_rows_hash_alike_only_if_they_are_equal(session, left, right):
    expected = Comparison.SAME if multiset(left) == multiset(right) else Comparison.DIFFERENT
    assert compare(hash_of(session, left), hash_of(session, right)) is expected


@given(rows=rows.filter(bool), data=st.data())
def test_any_single_change_is_seen(session, rows, data):
    before = hash_of(session, rows)
    number = data.draw(st.integers(0, len(rows) - 1))
    row = rows[number]
    changed = {**row, data.draw(st.sampled_from(["number", "text", "ratio"])): None}
    variants = {
        "doubled": [*rows, row],
        "doubled twice": [*rows, row, row],
        "dropped": rows[:number] + rows[number + 1 :],
        "emptied": [*rows[:number], changed, *rows[number + 1 :]],
    }
    for name, variant in variants.items():
        expected = Comparison.SAME if multiset(variant) == multiset(rows) else Comparison.DIFFERENT
        assert compare(before, hash_of(session, variant)) is expected, name


def test_values_that_move_between_rows_are_seen(session):
    left = [{"number": 1, "text": "a", "ratio": None}, {"number": 2, "text": "b", "ratio": None}]
    right = [{"number": 1, "text": "b", "ratio": None}, {"number": 2, "text": "a", "ratio": None}]
    assert compare(hash_of(session, left), hash_of(session, right)) is Comparison.DIFFERENT


def test_a_table_that_grew_hashes_as_before_over_its_former_columns(session):
    given_rows = [{"number": 1, "text": "a", "ratio": 0.5}]
    former = [Column(name="number", type="INTEGER"), Column(name="text", type="VARCHAR")]
    session.connection.execute("CREATE OR REPLACE TABLE t AS SELECT 1::INTEGER AS number, 'a' AS text")
    before = measure.content_hash(session, WHOLE, session.table_columns(WHOLE.table), None)
    assert hash_of(session, given_rows, former) == before
