from __future__ import annotations

import pytest

from marigold_assets.fingerprint import Comparison, ContentHash, compare, probe_of, schema_digest
from marigold_assets.model import Column

A = ContentHash(probe="aaaaaaaa", schema="bbbbbbbb", row_count=3, row_sum=255)


def variant(**changes):
    fields = {name: getattr(A, name) for name in ("probe", "schema", "row_count", "row_sum")}
    return str(ContentHash(**{**fields, **changes}))


def test_the_text_names_probe_schema_count_and_sum():
    assert str(A) == "mh1:aaaaaaaa:bbbbbbbb:3:00000000000000ff"
    assert ContentHash.parse(str(A)) == A


@pytest.mark.parametrize("text", ["", "mh1", "mh2:a:b:1:f", "mh1:a:b:1", "mh1:a:b:1:f:g", "mh1:a:b:x:f", "mh1:a:b:1:g"])
def test_other_text_is_no_hash_and_compares_as_unknown(text):
    with pytest.raises(ValueError, match=r"content hash|invalid literal"):
        ContentHash.parse(text)
    assert compare(text, str(A)) is Comparison.UNKNOWN
    assert compare(str(A), text) is Comparison.UNKNOWN


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, Comparison.SAME),
        ({"row_sum": 254}, Comparison.DIFFERENT),
        ({"schema": "cccccccc"}, Comparison.DIFFERENT),
        ({"row_count": 4}, Comparison.DIFFERENT),
        ({"probe": "cccccccc"}, Comparison.UNKNOWN),
        ({"probe": "cccccccc", "row_sum": 1}, Comparison.UNKNOWN),
        ({"probe": "cccccccc", "row_count": 4}, Comparison.DIFFERENT),
    ],
)
def test_hashes_are_compared_only_under_one_hash_function(changes, expected):
    assert compare(str(A), variant(**changes)) is expected


def test_the_order_of_columns_does_not_count_but_names_and_types_do():
    a, b = Column(name="a", type="INTEGER"), Column(name="b", type="VARCHAR")
    assert schema_digest([a, b]) == schema_digest([b, a])
    others = [[a], [a, Column(name="b", type="INTEGER")], [a, Column(name="B", type="VARCHAR")], [a, b, b]]
    assert len({schema_digest(columns) for columns in [[a, b], *others]}) == 5


def test_a_probe_depends_on_every_golden_hash():
    assert probe_of([1, 2]) == probe_of((1, 2)) != probe_of([2, 1])
    assert len(probe_of([])) == 8
