"""Whether what is stored is what the present code would make of the present inputs, by the ledger alone."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from marigold_assets.lineage import Code, first_restated, same_inputs
from marigold_assets.model import FencingToken, InputPartition, LedgerEntry, Provenance, TableName

A, B = "mh1:00000000:00000000:1:000000000000000a", "mh1:00000000:00000000:1:000000000000000b"
OTHER_PROBE = "mh1:ffffffff:00000000:1:000000000000000a"
NOW = Code(version="1", fingerprint="f", config_hash="c")
UNDECLARED = Code(version=None, fingerprint="f")


def read(digest, key="x", owner="orders"):
    return InputPartition(owner=owner, partition_key=key, content_hash=digest)


def entry(key="d1", *, inputs=(), version="1", fingerprint="f", config_hash="c"):
    return LedgerEntry(
        position=1,
        table=TableName(schema="s", name="t"),
        owner="t",
        partition_key=key,
        run_id="r",
        token=FencingToken(1),
        swap_id="i",
        row_count=1,
        content_hash=A,
        column_hashes={},
        columns=(),
        provenance=Provenance(
            code_version=version, code_fingerprint=fingerprint, config_hash=config_hash, inputs=tuple(inputs)
        ),
        committed_at=datetime(2024, 1, 1, tzinfo=UTC),
    )


@pytest.mark.parametrize(
    ("recorded", "present", "same"),
    [
        ([], [], True),
        ([read(A)], [read(A)], True),
        ([read(A)], [read(B)], False),
        ([read(A)], [], False),
        ([], [read(A)], False),
        ([read(A)], [read(A, key="y")], False),
        ([read(A), read(B, key="y")], [read(B, key="y"), read(A)], True),
        ([read(A)], [read(OTHER_PROBE)], False),
        ([read(A)], [read(None)], False),
        ([read(None)], [read(A)], False),
    ],
)
def test_inputs_are_the_same_if_all_hashes_are_known_and_equal(recorded, present, same):
    assert same_inputs(recorded, present, unknown=False) is same
    assert same_inputs(recorded, present, unknown=True) is same


@pytest.mark.parametrize("unknown", [False, True])
def test_two_unknown_hashes_count_as_the_caller_says(unknown):
    assert same_inputs([read(None)], [read(None)], unknown=unknown) is unknown


@pytest.mark.parametrize(
    ("code", "changed", "declared", "built"),
    [
        (NOW, {}, True, True),
        (NOW, {"fingerprint": "g"}, True, False),
        (NOW, {"version": "2"}, False, False),
        (NOW, {"version": None}, False, False),
        (NOW, {"config_hash": "d"}, False, False),
        (UNDECLARED, {"version": None, "config_hash": None}, True, True),
        (UNDECLARED, {"version": None, "config_hash": None, "fingerprint": "g"}, False, False),
    ],
)
def test_code_is_what_its_author_calls_it_and_undeclared_what_it_is(code, changed, declared, built):
    assert code.declared_same(entry(**changed)) is declared
    assert code.built(entry(**changed)) is built


def test_the_first_partition_that_no_longer_holds_is_found():
    heads = {key: entry(key, inputs=[read(A, key)]) for key in ("d1", "d2", "d3")}
    inputs = {("orders", key): A for key in heads}
    assert first_restated(["d1", "d2", "d3"], heads, inputs, NOW) is None
    inputs["orders", "d3"] = inputs["orders", "d2"] = B
    key, why = first_restated(["d1", "d2", "d3"], heads, inputs, NOW)
    assert key == "d2"
    assert "orders 'd2'" in why
    assert first_restated(["d1"], heads, inputs, NOW) is None
    assert first_restated(["unknown", "d3"], heads, inputs, NOW)[0] == "d3"


@pytest.mark.parametrize("now", [None, OTHER_PROBE])
def test_what_cannot_be_compared_is_not_called_restated(now):
    assert first_restated(["d1"], {"d1": entry(inputs=[read(A)])}, {("orders", "x"): now}, NOW) is None


@pytest.mark.parametrize(
    ("code", "changed", "word"),
    [
        (NOW, {"version": "0"}, "code version '0', which is '1' now"),
        (NOW, {"config_hash": "d"}, "another config"),
        (UNDECLARED, {"version": None, "config_hash": None, "fingerprint": "g"}, "other code"),
    ],
)
def test_what_has_changed_is_named(code, changed, word):
    key, why = first_restated(["d1"], {"d1": entry(**changed)}, {}, code)
    assert key == "d1"
    assert word in why
