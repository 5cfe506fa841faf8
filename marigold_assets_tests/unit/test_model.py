from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from marigold_assets.model import PartitionSlice, TableName, derive_swap_id

parts = st.lists(st.none() | st.text(max_size=5) | st.integers(), max_size=4)


@given(left=parts, right=parts)
def test_swap_ids_are_equal_exactly_for_equal_parts(left, right):
    same = [None if part is None else str(part) for part in left] == [None if p is None else str(p) for p in right]
    assert (derive_swap_id(*left) == derive_swap_id(*right)) == same


def test_a_swap_id_does_not_depend_on_the_process():
    assert derive_swap_id("run", 7, None, "2024-01-01") == "a89cb81f263d54bd5009af2d921a4ba5"


def test_parts_do_not_run_into_each_other():
    ids = {derive_swap_id(*each) for each in [("ab", "c"), ("a", "bc"), ("abc",), ("abc", ""), ("abc", None), ()]}
    assert len(ids) == 6


def test_the_identity_of_a_table_ignores_ascii_case_and_no_other():
    assert TableName(schema="Sales", name="DAILY").key == TableName(schema="sales", name="daily").key
    assert TableName(schema="s", name="É").key != TableName(schema="s", name="é").key
    assert TableName(schema="a.b", name="c").key != TableName(schema="a", name="b.c").key


def test_an_error_names_what_a_slice_knows_of_itself():
    slice_ = PartitionSlice(table=TableName(schema="s", name="t"), partition_key=None)
    assert slice_.where == {"asset": None, "partition": None, "table": "s.t"}
