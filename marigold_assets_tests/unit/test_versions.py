"""Which code built which partition, and what is stale at any depth: by the ledger alone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from marigold_assets.model import Definition, FencingToken, InputPartition, LedgerEntry, Provenance, TableName
from marigold_assets.versions import definitions, stale, stretches

START = datetime(2024, 1, 1, tzinfo=UTC)


def content(number):
    return f"mh1:00000000:00000000:1:{number:016x}"


def entry(key, *, owner="t", position=1, version="1", fingerprint="f", config=None, inputs=(), holds=1, run="r"):
    return LedgerEntry(
        position=position,
        table=TableName(schema="s", name=owner),
        owner=owner,
        partition_key=key,
        run_id=run,
        token=FencingToken(1),
        swap_id=f"{position}",
        row_count=10,
        content_hash=content(holds),
        column_hashes={},
        columns=(),
        provenance=Provenance(
            code_version=version, code_fingerprint=fingerprint, config_hash=config, inputs=tuple(inputs)
        ),
        committed_at=START + timedelta(hours=position),
    )


def read(owner, key, holds=1):
    return InputPartition(owner=owner, partition_key=key, content_hash=None if holds is None else content(holds))


def heads(*entries):
    return {(one.owner, one.partition_key): one for one in entries}


def test_partitions_that_follow_each_other_under_one_definition_are_one_stretch():
    of = {
        "d1": entry("d1", position=5, run="b"),
        "d2": entry("d2", position=3, run="a"),
        "d3": entry("d3", position=4, version="2", run="a"),
        "d5": entry("d5", position=6, run="c"),
    }
    first, second, missing, last = stretches(["d1", "d2", "d3", "d4", "d5"], of)
    assert (first.keys, first.row_count, first.run_ids) == (("d1", "d2"), 20, ("a", "b"))
    assert (first.first_write, first.last_write) == (START + timedelta(hours=3), START + timedelta(hours=5))
    assert str(second.definition) == "2"
    assert (missing.definition, missing.keys, missing.row_count) == (None, ("d4",), 0)
    assert last.definition == first.definition
    assert [str(one) for one in definitions(of)] == ["1", "2"]


@pytest.mark.parametrize(
    ("left", "right", "same"),
    [
        ({"fingerprint": "f"}, {"fingerprint": "g"}, True),  # its author says that both mean the same
        ({"version": None, "fingerprint": "f"}, {"version": None, "fingerprint": "g"}, False),
        ({"version": None, "fingerprint": None}, {"version": None, "fingerprint": None}, True),
        ({"version": "1"}, {"version": None}, False),
        ({"config": "c"}, {"config": None}, False),
    ],
)
def test_a_definition_is_the_declared_version_or_else_the_code_and_the_config(left, right, same):
    assert (Definition.of(entry("d1", **left)) == Definition.of(entry("d1", **right))) is same


def test_a_partition_whose_input_was_restated_is_stale_and_so_is_all_that_was_built_on_it():
    known = heads(
        entry("d1", owner="raw", holds=7),
        entry("d2", owner="raw"),
        entry("d1", owner="daily", inputs=[read("raw", "d1")]),
        entry("d2", owner="daily", inputs=[read("raw", "d2")]),
        entry("d1", owner="total", inputs=[read("daily", "d1")]),
        entry("d2", owner="total", inputs=[read("daily", "d2"), read("total", "d1")]),
        entry("d3", owner="total", inputs=[read("daily", "d3"), read("total", "d2")]),
    )
    found = stale(known, known)
    assert set(found) == {("daily", "d1"), ("total", "d1"), ("total", "d2"), ("total", "d3")}
    assert [found["total", f"d{n}"].depth for n in (1, 2, 3)] == [2, 3, 4]
    assert found["daily", "d1"].because == ("raw", "d1")
    assert found["total", "d3"].because == ("total", "d2")
    assert {one.origin for one in found.values()} == {("raw", "d1")}


@pytest.mark.parametrize(("recorded", "is_stale"), [(1, False), (2, True), (None, True)])
def test_an_input_is_restated_if_it_holds_something_else_now(recorded, is_stale):
    known = heads(entry("d1", owner="raw"), entry("d1", inputs=[read("raw", "d1", recorded)]))
    assert bool(stale([("t", "d1")], known)) is is_stale


def test_an_input_of_which_nothing_is_known_makes_nothing_stale():
    known = heads(entry("d1", inputs=[read("elsewhere", "d1")]))
    assert stale([("t", "d1"), ("t", "d2")], known) == {}


def test_a_diamond_tells_the_nearest_cause():
    known = heads(
        entry("d1", owner="raw", holds=7),
        entry("d1", owner="long", inputs=[read("raw", "d1")]),
        entry("d1", owner="longer", inputs=[read("long", "d1")]),
        entry("d1", inputs=[read("longer", "d1"), read("long", "d1")]),
    )
    found = stale([("t", "d1")], known)["t", "d1"]
    assert (found.because, found.depth) == (("long", "d1"), 2)


def test_a_chain_of_ten_thousand_partitions_is_followed_to_its_end():
    chain = [entry("0", owner="raw", holds=7), entry("1", inputs=[read("raw", "0")])]
    chain += [entry(f"{n}", inputs=[read("t", f"{n - 1}")]) for n in range(2, 10_001)]
    known = heads(*chain)
    found = stale([("t", "10000")], known)
    assert found["t", "10000"].depth == 10_000
    assert len(stale([("t", f"{n}") for n in range(1, 10_001)], known)) == 10_000


def test_partitions_that_read_each_other_do_not_go_round_for_ever():
    known = heads(entry("d1", inputs=[read("t", "d2")]), entry("d2", inputs=[read("t", "d1", 5)]))
    assert set(stale([("t", "d1"), ("t", "d2")], known)) == {("t", "d1"), ("t", "d2")}
