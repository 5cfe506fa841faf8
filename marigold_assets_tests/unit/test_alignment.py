"""Fitting columns by name."""

from __future__ import annotations

import pytest

from marigold_assets.errors import SchemaMismatchError
from marigold_assets.model import Column, TableName
from marigold_assets.stores.alignment import align, kind_mismatch, refuse_unusable_names

WHERE = {"asset": "daily", "partition": "a", "table": str(TableName(schema="s", name="t"))}


def columns(**types):
    return [Column(name=name, type=kind) for name, kind in types.items()]


def fit(table, source, **options):
    return align(columns(**table), columns(**source), where=WHERE, **{"evolve": False, **options})


def test_equal_columns_are_selected_as_they_are_in_the_order_of_the_source():
    found = fit({"a": "INTEGER", "b": "VARCHAR"}, {"b": "VARCHAR", "a": "INTEGER"})
    assert found.selection == ('"b"', '"a"')
    assert not found.alters_table


def test_ascii_case_does_not_count_and_other_case_does():
    assert fit({"Amount": "INTEGER"}, {"AMOUNT": "INTEGER"}).selection == ('"AMOUNT" AS "Amount"',)
    with pytest.raises(SchemaMismatchError):
        fit({"é": "INTEGER"}, {"É": "INTEGER"})


@pytest.mark.parametrize(
    ("table", "source", "words"),
    [
        ({"a": "INTEGER"}, {"a": "INTEGER", "b": "DATE"}, "has not: 'b' (DATE)"),
        ({"a": "INTEGER", "b": "DATE"}, {"a": "INTEGER"}, "lack columns of the table: 'b' (DATE)"),
        ({"a": "INTEGER", "amount": "DATE"}, {"a": "INTEGER", "amounts": "DATE"}, "was 'amount' renamed to 'amounts'?"),
    ],
)
def test_other_columns_are_refused_by_name(table, source, words):
    with pytest.raises(SchemaMismatchError) as caught:
        fit(table, source)
    assert words in str(caught.value).splitlines()[0]
    assert caught.value.where == WHERE


def test_a_missing_column_is_refused_even_when_the_table_may_grow():
    with pytest.raises(SchemaMismatchError):
        fit({"a": "INTEGER", "b": "DATE"}, {"a": "INTEGER", "c": "DATE"}, evolve=True)


def test_an_added_column_grows_the_table_on_request():
    found = fit({"a": "INTEGER"}, {"a": "INTEGER", "b": "DATE", "c": '"NULL"'}, evolve=True)
    assert found.additions == (Column(name="b", type="DATE"), Column(name="c", type='"NULL"'))


@pytest.mark.parametrize(
    ("table", "source", "wider"),
    [("INTEGER", "BIGINT", "BIGINT"), ("INTEGER", "DOUBLE", "DOUBLE"), ("DATE", "TIMESTAMP", "TIMESTAMP")],
)
def test_a_type_widens_on_request_and_is_guarded_otherwise(table, source, wider):
    assert fit({"a": table}, {"a": source}, evolve=True).widenings == (Column(name="a", type=wider),)
    found = fit({"a": table}, {"a": source})
    assert not found.alters_table
    assert "TRY_CAST" in found.selection[0]
    assert "error(" in found.selection[0]


def test_a_narrower_type_never_narrows_the_table():
    assert not fit({"a": "BIGINT"}, {"a": "INTEGER"}, evolve=True).alters_table


@pytest.mark.parametrize(
    ("table", "source"),
    [
        ("INTEGER", "VARCHAR"),
        ("VARCHAR", "INTEGER"),
        ("TIMESTAMP", "TIMESTAMP WITH TIME ZONE"),
        ("DATE", "INTEGER"),
        ("VARCHAR[]", "INTEGER[]"),
        ("VARCHAR", "VARCHAR[]"),
        ("STRUCT(a INTEGER)", "STRUCT(b INTEGER)"),
        ("STRUCT(a INTEGER)", "STRUCT(a INTEGER, b INTEGER)"),
        ("BLOB", "VARCHAR"),
    ],
)
def test_another_kind_of_value_waits_for_proof_that_there_is_no_value_yet(table, source):
    assert fit({"a": table}, {"a": source}).retypings == (Column(name="a", type=source),)


def test_nothing_but_null_fits_every_column():
    found = fit({"a": "VARCHAR[]"}, {"a": '"NULL"'})
    assert found.selection == ('CAST("a" AS VARCHAR[]) AS "a"',)
    assert not found.alters_table


def test_the_fields_by_which_nested_types_differ_are_named():
    error = kind_mismatch(
        Column(name="a", type="STRUCT(x INTEGER, y INTEGER)[]"), Column(name="a", type="STRUCT(x INTEGER)[]"), WHERE
    )
    assert "added ['y']" in str(error)


@pytest.mark.parametrize("names", [[], [""], ["a", ""], ["a", "a"], ["a", "A"]], ids=str)
def test_unusable_names_are_refused(names):
    with pytest.raises(SchemaMismatchError):
        refuse_unusable_names([Column(name=name, type="INTEGER") for name in names], WHERE)
