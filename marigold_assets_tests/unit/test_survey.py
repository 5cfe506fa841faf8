"""What the report says of an asset: from heads, acceptances, code and events alone."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from marigold_assets.cli.columns import tabulated
from marigold_assets.lineage import Code
from marigold_assets.mixtures import ColumnChange
from marigold_assets.model import (
    Acceptance,
    Definition,
    FencingToken,
    InputPartition,
    LedgerEntry,
    Provenance,
    TableName,
)
from marigold_assets.surveying.agreement import Events
from marigold_assets.surveying.evidence import Evidence
from marigold_assets.surveying.survey import consecutive, mixture_of, survey

TABLE = TableName(schema="s", name="t")
NOW = datetime(2024, 6, 1, tzinfo=UTC)
KEYS = [f"d{number}" for number in range(1, 7)]


def content(number):
    return f"mh1:00000000:00000000:1:{number:016x}"


def entry(key, position=1, *, version="1", fingerprint="f", inputs=(), holds=1, owner="t", run="r", backfill=None):
    return LedgerEntry(
        position=position,
        table=TABLE,
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
            code_version=version, code_fingerprint=fingerprint, backfill_id=backfill, inputs=tuple(inputs)
        ),
        committed_at=NOW - timedelta(hours=100 - position),
    )


def acceptance(key, version="1", until=None, by="Nadia"):
    definition = Definition(code_version=version, code_fingerprint=None, config_hash=None)
    return Acceptance(
        table=TABLE,
        owner="t",
        partition_key=key,
        definition=definition,
        accepted_by=by,
        accepted_at=NOW - timedelta(days=1),
        reason="prices of that time",
        until=until,
    )


def report(*entries, keys=KEYS, present=("1", "f"), related=(), related_as=None, **given):
    heads = {one.partition_key: one for one in entries}
    evidence = Evidence(
        **{
            "owner": "t",
            "table": TABLE,
            "keys": keys,
            "heads": heads,
            "history": entries,
            "related": related_as or {(one.owner, one.partition_key): one for one in (*entries, *related)},
            "unknown": {},
            "reads": False,
            "acceptances": (),
            "present": Code(version=present[0], fingerprint=present[1]),
            "changes": {},
            "events": None,
            "stored_rows": sum(one.row_count for one in heads.values()) if heads else None,
            **given,
        }
    )
    return survey(evidence, now=NOW)


def runs(found):
    return [one.keys for one in found]


def test_stretches_name_runs_and_backfills_in_the_order_of_writing():
    found = report(
        entry("d1", 3, run="c", backfill="b2"),
        entry("d2", 1, run="a", backfill="b1"),
        entry("d3", 2, run="a", backfill="b1", version="2"),
    )
    first, second, missing = found.written
    assert (first.keys, first.run_ids, first.backfill_ids) == (("d1", "d2"), ("a", "c"), ("b1", "b2"))
    assert (second.keys, str(second.definition)) == (("d3",), "2")
    assert (missing.definition, missing.keys) == (None, ("d4", "d5", "d6"))
    assert (found.built, found.row_count) == (3, 30)


def test_exactly_what_the_present_code_version_has_not_built_is_code_stale():
    built = [entry(key, version="1" if key in ("d3", "d5") else "2") for key in KEYS[:5]]
    found = report(*built, present=("2", "f"))
    assert [(one.keys, str(one.before), str(one.after)) for one in found.code_stale] == [
        (("d3",), "1", "2"),
        (("d5",), "1", "2"),
    ]
    assert not found.is_well
    assert report(*(entry(key, version="2") for key in KEYS), present=("2", "f")).is_well


def test_without_versions_the_fingerprints_count_and_what_is_not_recorded_is_unknown():
    found = report(
        entry("d1", version=None, fingerprint="cf2:f"),
        entry("d2", version=None, fingerprint="cf2:g"),
        entry("d3", version=None, fingerprint=None),
        entry("d4", version="1"),
        present=(None, "cf2:f"),
    )
    assert runs(found.code_stale) == [("d2",), ("d4",)]
    assert found.code_unknown == ("d3",)


def test_what_no_declared_version_can_judge_is_not_well_unless_it_is_accepted():
    built = entry("d1", version=None, fingerprint="cf1:f")
    found = report(built, present=(None, "cf2:f"))
    assert (found.code_unjudged, found.code_stale, found.is_well) == (("d1",), (), False)
    definition = Definition(code_version=None, code_fingerprint="cf1:f", config_hash=None)
    found = report(built, present=(None, "cf2:f"), acceptances=[replace(acceptance("d1"), definition=definition)])
    assert (found.code_unknown, found.code_unjudged, found.is_well) == (("d1",), (), True)
    assert report(entry("d1", fingerprint="cf1:f"), present=("1", "cf2:f")).is_well


@pytest.mark.parametrize(("hours", "well"), [(0, True), (1, False)])
def test_of_code_that_nobody_has_recorded_only_what_was_there_is_accepted(hours, well):
    built = entry("d1", version=None, fingerprint=None)
    definition = Definition(code_version=None, code_fingerprint=None, config_hash=None)
    given = replace(acceptance("d1"), definition=definition, accepted_at=built.committed_at - timedelta(hours=hours))
    found = report(built, present=(None, "cf2:f"), acceptances=[given])
    assert (not found.code_unjudged, found.written[0].accepted is not None) == (well, well)


def test_other_code_under_the_same_version_is_told_and_is_not_wrong():
    built = [entry(f"d{number}", fingerprint=one) for number, one in enumerate(("c:f", "c:g", None, "b:g", "c:h"), 1)]
    found = report(*built, present=("1", "c:f"), same_code=["c:h"])
    assert (found.other_code, found.code_unknown) == (("d2",), ("d4",))
    assert found.is_well


@pytest.mark.parametrize(
    ("until", "well"), [(None, True), (NOW + timedelta(days=1), True), (NOW, False), (NOW - timedelta(days=1), False)]
)
def test_what_is_accepted_is_not_wrong_until_it_ends(until, well):
    given = [entry("d1"), entry("d2", version="2")]
    found = report(*given, present=("2", "f"), acceptances=[acceptance("d1", until=until)])
    assert found.is_well is well
    assert (found.written[0].accepted is not None) is well
    assert [one.accepted for one in found.code_stale] == [well]


def test_what_is_accepted_of_another_definition_does_not_count():
    found = report(entry("d1"), entry("d2", version="2"), present=("2", "f"), acceptances=[acceptance("d1", "0")])
    assert not found.is_well
    assert found.written[0].accepted is None


def test_a_stretch_ends_where_another_word_accepts():
    accepted = [acceptance("d1"), acceptance("d2"), acceptance("d3", by="Tomás")]
    found = report(*(entry(key) for key in KEYS[:4]), present=("2", "f"), acceptances=accepted)
    assert runs(found.written) == [("d1", "d2"), ("d3",), ("d4",), ("d5", "d6")]


def test_a_version_that_is_declared_to_change_no_column_is_not_wrong():
    changes = {"2": ColumnChange(since="1", columns=frozenset())}
    found = report(entry("d1"), entry("d2", version="2"), present=("2", "f"), changes=changes)
    assert [(one.keys, one.columns, one.counts) for one in found.code_stale] == [(("d1",), frozenset(), False)]
    assert found.is_well
    changes = {"2": ColumnChange(since="1", columns=frozenset({"net"}))}
    found = report(entry("d1"), entry("d2", version="2"), present=("2", "f"), changes=changes)
    assert str(found.mixture.difference) == "net"
    assert not found.is_well


def test_stale_at_any_depth_with_the_reason():
    raw = entry("d1", owner="raw", holds=2)
    read = InputPartition(owner="raw", partition_key="d1", content_hash=content(1))
    before = InputPartition(owner="t", partition_key="d1", content_hash=content(1))
    found = report(entry("d1", inputs=[read]), entry("d2", inputs=[before]), related=[raw])
    assert [(one.partition_key, one.depth, one.origin) for one in found.stale] == [
        ("d1", 1, ("raw", "d1")),
        ("d2", 2, ("raw", "d1")),
    ]
    assert not found.is_well


def test_partitions_whose_inputs_nobody_has_recorded_are_told():
    assert report(entry("d1"), reads=True).unrecorded == ("d1",)
    assert report(entry("d1"), reads=False).unrecorded == ()


def test_partitions_that_the_asset_no_longer_has_are_apart_in_the_order_of_writing():
    found = report(entry("d1"), entry("y", 5), entry("x", 4), entry(None, 3))
    assert runs(found.retired) == [(None, "x", "y")]
    assert found.built == 1


def test_event_log_and_ledger_disagree_in_three_ways_and_may_say_nothing():
    events = Events(
        materialized=frozenset({"d1", "d2", "d4", "d5", "d6"}),
        data_versions={"d1": content(1), "d2": content(9), "d4": content(1), "d5": "mh1s:joint", "d6": "my own"},
    )
    built = [entry(key) for key in KEYS if key != "d4"]
    found = report(*built, events=events).disagreement
    assert (found.event_missing, found.ledger_missing, found.differing) == (("d3",), ("d4",), ("d2",))
    assert found.unknown == ("d5", "d6")


def test_a_data_version_that_says_nothing_is_not_wrong_and_a_missing_event_is():
    joint = Events(materialized=frozenset({"d1"}), data_versions={"d1": "mh1s:joint"})
    assert report(entry("d1"), events=joint).is_well
    assert not report(entry("d1"), events=Events(materialized=frozenset(), data_versions={})).is_well


def test_an_event_of_another_swap_is_wrong_although_the_content_is_the_same():
    given = {"materialized": frozenset({"d1", "d2"}), "data_versions": {"d1": content(1), "d2": content(1)}}
    built = [entry("d1", 1), entry("d2", 2)]
    found = report(*built, events=Events(**given, swap_ids={"d1": "1", "d2": "0"}))
    assert (found.disagreement.other_swap, found.disagreement.differing, found.is_well) == (("d2",), (), False)
    assert not found.disagreement.is_everywhere
    assert report(*built, events=Events(**given, swap_ids={"d1": "1"})).is_well
    assert report(*built, events=Events(materialized=frozenset(), data_versions={})).disagreement.is_everywhere


def test_what_was_built_under_a_former_key_has_its_event_there():
    built = [entry("d1", owner="was_t"), entry("d2", owner="was_t"), entry("d3"), entry("d4")]
    events = Events(materialized=frozenset({"d2", "d3"}), data_versions={"d2": content(9), "d3": content(1)})
    found = report(*built, events=events).disagreement
    assert (found.event_missing, found.differing, found.known) == (("d4",), ("d2",), 3)


@pytest.mark.parametrize(("keys", "other"), [(["d1"], None), ([None], "d1")])
def test_what_was_built_before_an_asset_got_partitions_or_lost_them_has_no_event(keys, other):
    events = Events(materialized=frozenset(keys), data_versions={keys[0]: content(1)})
    found = report(entry(other, 1), entry(keys[0], 2), keys=keys, events=events, stored_rows=10)
    assert (found.disagreement.counts, found.disagreement.known, found.is_well) == (False, 1, True)
    nothing = Events(materialized=frozenset(), data_versions={})
    assert report(entry(other, 1), entry(keys[0], 2), keys=keys, events=nothing).disagreement.event_missing == (
        keys[0],
    )


@pytest.mark.parametrize(("stored", "agrees"), [(10, True), (20, False), (9, False), (None, False)])
def test_a_table_that_was_written_whole_has_no_rows_of_before(stored, agrees):
    found = report(entry("d1", 1), entry(None, 2), keys=[None], stored_rows=stored)
    assert (found.table.least, found.table.most, found.table.agrees) == (10, 10, agrees)


@pytest.mark.parametrize(
    ("built", "stored", "agrees"),
    [
        (["d1", "d2"], 20, True),
        (["d1", "d2"], 19, False),
        (["d1", "d2"], 21, False),
        (["d1", "d2"], None, False),
        ([], None, True),
        ([], 0, True),
        ([], 3, False),
        (["d1", "gone"], 10, True),
        (["d1", "gone"], 20, True),
        (["d1", "gone"], 9, False),
        (["d1", "gone"], 21, False),
    ],
)
def test_the_rows_of_the_table_are_those_of_the_ledger(built, stored, agrees):
    found = report(*(entry(key) for key in built), stored_rows=stored)
    assert (found.table.agrees, found.is_well) == (agrees, agrees)


READ = {"lost": content(1), "files": None}


def test_inputs_that_were_recorded_and_are_known_no_more_are_not_judged():
    inputs = [InputPartition(owner=name, partition_key="d1", content_hash=held) for name, held in READ.items()]
    found = report(entry("d1", inputs=inputs), unknown={"lost": "why", "files": "why"})
    assert (found.unjudged, found.stale, found.is_well) == (("lost",), (), False)
    assert report(entry("d1", inputs=inputs), unknown={"files": "why"}).is_well


def test_what_is_stale_is_called_as_it_is_called_now():
    raw = entry("d1", owner="raw", holds=2)
    own = entry("d1", inputs=[InputPartition(owner="was_raw", partition_key="d1", content_hash=content(1))])
    [stale] = report(own, related_as={("t", "d1"): own, ("was_raw", "d1"): raw}, renamed={"was_raw": "raw"}).stale
    assert (stale.because, stale.origin) == (("raw", "d1"), ("raw", "d1"))


def test_what_the_asset_no_longer_has_is_odd_for_whoever_accepts_and_does_not_say_what_is_wanted():
    built = [entry("d1", 1), *(entry(key, number, version="0") for number, key in enumerate(("x", "y"), 2))]
    found = report(*built, present=("9", "f"))
    assert str(found.mixture.wanted) == "1"
    assert found.mixture.odd == ()
    [odd] = mixture_of(found.evidence, NOW, with_retired=True).odd
    assert odd.keys == ("x", "y")


@pytest.mark.parametrize("width", [30, 60, 80, 100, 140, None])
def test_no_key_and_no_time_is_cut_whatever_the_width(width):
    keys = [f"2024-01-{number:02d}" for number in range(1, 21)]
    built = [entry(key, number, version=f"v{number % 2}", run="ae4413e1") for number, key in enumerate(keys)]
    lines = "\n".join(tabulated("Built under", report(*built, keys=keys).written, width)).splitlines()
    assert all(key in "\n".join(lines) for key in keys)
    assert all(line == line.rstrip() for line in lines)
    assert width is None or max(map(len, lines)) <= width
    assert ("first write" in lines[0]) is (width is None or width == 140)
    assert width == 60 or sum("2024-05" in line for line in lines) == len(keys)
    long = "2024-01-01T00:00:00+02:00|a-rather-long-place"
    assert long in "\n".join(tabulated("Built under", report(entry(long), keys=[long]).written, width))


def test_an_asset_without_partitions_is_one_partition():
    events = Events(materialized=frozenset({None}), data_versions={None: content(1)})
    found = report(entry(None), keys=[None], events=events)
    assert (runs(found.written), found.built, found.is_well) == ([(None,)], 1, True)


def test_runs_of_partitions_keep_the_order_and_strangers_come_last():
    assert consecutive(["d5", "x", "d1", "d2"], KEYS) == [("d1", "d2"), ("d5",), ("x",)]
    assert consecutive([], KEYS) == []
