"""Which partitions are odd, which are accepted, and in which columns definitions differ: by what is declared, and in
fact."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from marigold_assets.content import content_changes
from marigold_assets.lineage import Code
from marigold_assets.mixtures import ColumnChange, difference, mixture, needs_history
from marigold_assets.model import Acceptance, Definition, TableName
from marigold_assets_tests.unit.test_versions import START, entry, read

NOW = datetime(2026, 1, 1, tzinfo=UTC)
KEYS = ["d1", "d2", "d3", "d4", "d5", "d6"]


def built(*versions):
    """Heads of d1, d2, ... by their versions; ``None`` for one that was never built."""
    return {
        key: entry(key, version=one, position=number)
        for number, (key, one) in enumerate(zip(KEYS, versions, strict=False))
        if one is not None
    }


def definition(version, config=None):
    return Definition(code_version=version, code_fingerprint=None, config_hash=config)


def accepted(key, version="1", *, until=None, reason="seen", config=None):
    return Acceptance(
        table=TableName(schema="s", name="t"),
        owner="t",
        partition_key=key,
        definition=definition(version, config),
        accepted_by="tomas",
        accepted_at=START,
        reason=reason,
        until=until,
    )


def change(since, *columns):
    return ColumnChange(since=since, columns=frozenset(columns))


def found(*versions, present=None, **options):
    code = None if present is None else Code(version=present, fingerprint="f")
    return mixture(KEYS, built(*versions), present=code, now=NOW, **options)


def keys_of(stretches):
    return [key for one in stretches for key in one.keys]


def test_what_was_never_built_is_neither_odd_nor_wanted():
    assert found().wanted is None
    alone = found(None, "1", None, "1")
    assert (str(alone.wanted), alone.odd, alone.accepted) == ("1", (), ())


def test_where_the_present_code_is_not_known_it_is_that_of_the_newest_entry():
    mixed = found("1", "2", "2", "1", "2", None)
    assert str(mixed.wanted) == "2"
    assert [one.keys for one in mixed.odd] == [("d1",), ("d4",)]
    assert str(mixed.difference) == "all columns"


def test_what_the_present_code_version_has_built_is_never_odd():
    mixed = found("1", "1", "1", "2", present="2")
    assert keys_of(mixed.odd) == ["d1", "d2", "d3"]
    assert keys_of(found("1", "1", "2", present="3").odd) == ["d1", "d2"]


def test_where_no_version_is_declared_what_the_present_code_has_built_is_never_odd():
    of = {key: entry(key, version=None, fingerprint=one) for key, one in zip(KEYS, "aab", strict=False)}
    mixed = mixture(KEYS, of, present=Code(version=None, fingerprint="b"), now=NOW)
    assert keys_of(mixed.odd) == ["d1", "d2"]
    for unknown in (None, Code(version=None, fingerprint=None), Code(version=None, fingerprint="c")):
        assert keys_of(mixture(KEYS, of, present=unknown, now=NOW).odd) == ["d3"]


def test_accepted_partitions_are_not_odd_and_the_acceptance_is_told():
    some = [accepted("d1"), accepted("d2")]
    mixed = found("1", "1", "1", "2", present="2", acceptances=some)
    assert keys_of(mixed.odd) == ["d3"]
    assert [one.keys for one in mixed.accepted] == [("d1", "d2")]
    assert mixed.acceptances == (some[0],)  # one act, though it names two partitions
    assert keys_of(found("1", "1", "1", "2", present="2", acceptances=[accepted("d2")]).odd) == ["d1", "d3"]


def test_an_acceptance_holds_for_its_definition_alone():
    assert keys_of(found("3", "2", "2", present="2", acceptances=[accepted("d1", "1")]).odd) == ["d1"]
    assert keys_of(found("1", "2", "2", present="2", acceptances=[accepted("d1", "1", config="c")]).odd) == ["d1"]


@pytest.mark.parametrize(("until", "holds"), [(NOW, False), (NOW + timedelta(seconds=1), True), (None, True)])
def test_an_acceptance_ends(until, holds):
    mixed = found("1", "2", "2", present="2", acceptances=[accepted("d1", until=until)])
    assert (not mixed.odd) is holds


def test_the_last_acceptance_counts():
    withdrawn = accepted("d1", until=NOW - timedelta(days=1))
    assert found("1", "2", "2", present="2", acceptances=[accepted("d1"), withdrawn]).odd
    assert not found("1", "2", "2", present="2", acceptances=[withdrawn, accepted("d1")]).odd


def test_a_declared_change_touches_only_who_uses_its_columns():
    changes = {"3": change("2", "net_revenue")}
    mixed = found("2", "2", "3", present="3", changes=changes)
    assert keys_of(mixed.odd) == ["d1", "d2"]
    assert str(mixed.difference) == "net_revenue"
    assert not found("2", "2", "3", present="3", changes=changes, columns=["gross", "day"]).odd
    assert found("2", "2", "3", present="3", changes=changes, columns=["gross", "net_revenue"]).odd
    assert keys_of(found("1", "2", "3", present="3", changes=changes, columns=["gross"]).odd) == ["d1"]


@pytest.mark.parametrize(
    ("left", "right", "columns"),
    [
        ("3", "2", {"net"}),
        ("2", "3", {"net"}),
        ("4", "2", {"net", "tax"}),
        ("4", "4b", {"tax", "fee"}),
        ("3", "3", set()),
        ("5", "4", set()),  # a refactoring: no column is another
        ("1", "2", None),
        ("7", "8", None),  # declared in a circle that leads nowhere else
        ("7", "3", None),
        (None, "3", None),
    ],
)
def test_what_is_declared_adds_up_along_the_versions(left, right, columns):
    changes = {
        "3": change("2", "net"),
        "4": change("3", "tax"),
        "4b": change("3", "fee"),
        "5": change("4"),
        "7": change("7", "x"),
    }
    how = difference(definition(left), definition(right), changes)
    assert how.columns == columns
    assert how.touches(None) is (columns is None or bool(columns))


def test_another_config_may_change_every_column():
    assert difference(definition("1", "a"), definition("1", "b"), {}).columns is None


def history(*entries, key="d1"):
    """Entries of one partition in order: the version, what its input held, and the hash of each column."""
    return [
        replace(
            entry(
                key,
                position=number,
                version=version,
                fingerprint=f"cf2:{number}",
                inputs=() if holds is ... else [read("up", key, holds)],
                holds=number,
            ),
            column_hashes={name: (f"{value}", 0) for name, value in columns.items()},
            **({"content_hash": "mh1:00000000:00000000:1:0000000000000001"} if columns.get("same") else {}),
        )
        for number, (version, holds, columns) in enumerate(entries)
    ]


def judged(entries, *heads, **options):
    """The mixture of the newest of some entries, and of heads of other partitions, of which there is no history."""
    newest = {one.partition_key: one for one in entries} | {one.partition_key: one for one in heads}
    return mixture(KEYS, newest, present=None, now=NOW, history=entries, **options)


def test_content_hashes_show_which_columns_a_version_changed():
    old, new = history(("1", 1, {"day": 1, "net": 2, "gone": 3}), ("2", 1, {"day": 1, "net": 4, "added": 5}))
    [one] = content_changes([old, replace(new, row_count=11)])
    assert (one.before.code_version, one.after.code_version, one.partitions) == ("1", "2", 1)
    assert one.columns == {"net": 1, "added": 1, "gone": 1}
    assert (one.moved, one.row_counts, one.is_silent) == (0, 1, False)


def test_values_that_moved_between_rows_are_told():
    [one] = content_changes(history(("1", 1, {"day": 1}), ("2", 1, {"day": 1})))
    assert (one.columns, one.moved) == ({}, 1)


@pytest.mark.parametrize(("first", "second"), [(1, 2), (1, None), (None, None), (..., ...)])
def test_partitions_of_other_or_unknown_inputs_say_nothing_about_the_code(first, second):
    assert content_changes(history(("1", first, {"a": 1}), ("2", second, {"a": 2}))) == ()


def test_columns_that_are_admitted_to_differ_do_not_count():
    [one] = content_changes(history(("1", 1, {"A": 1, "b": 1}), ("2", 1, {"A": 2, "b": 2})), ignored=["a"])
    assert one.columns == {"b": 1}


def test_a_column_that_really_changed_counts_whatever_is_declared():
    entries = history(("1", 1, {"gross": 1, "net": 1}), ("2", 1, {"gross": 2, "net": 2}))
    other = entry("d2", version="1", position=-1)
    changes = {"2": change("1", "net")}
    assert not judged([], entries[1], other, changes=changes, columns=["gross"]).odd
    mixed = judged(entries, other, changes=changes, columns=["gross"])
    assert keys_of(mixed.odd) == ["d2"]
    [told] = mixed.contradicted
    assert told.columns == {"gross": 1}
    assert not judged(entries, other, changes={"2": change("1", "NET", "Gross")}, columns=["day"]).odd
    assert judged(entries, other).contradicted == ()


def test_what_one_step_changed_counts_for_all_versions_on_its_way():
    entries = history(("1", 1, {"a": 1, "x": 1}), ("2", 1, {"a": 2, "x": 2}))
    changes = {"2": change("1", "a"), "3": change("2", "b")}
    others = [entry("d2", version="1", position=7), entry("d3", version="3", position=8)]
    mixed = judged(entries, *others, changes=changes, columns=["x"])
    assert str(mixed.wanted) == "3"
    assert keys_of(mixed.odd) == ["d2"]
    assert keys_of(judged(entries, *others, changes=changes, columns=["a"]).odd) == ["d2"]
    assert keys_of(judged(entries, *others, changes=changes, columns=["b"]).odd) == ["d1", "d2"]


def test_rows_put_together_otherwise_make_a_declaration_void():
    entries = history(("1", 1, {"a": 1}), ("2", 1, {"a": 1}))
    other = entry("d2", version="1", position=-1)
    assert keys_of(judged(entries, other, changes={"2": change("1")}, columns=["a"]).odd) == ["d2"]


def test_other_code_under_one_version_is_another_definition_once_it_made_other_content():
    entries = history(("1", 1, {"a": 1}), ("1", 1, {"a": 2}))
    old = entry("d2", version="1", fingerprint="cf2:0", position=-1)
    mixed = judged(entries, old)
    assert str(mixed.wanted) == "1 (cf2:1)"
    assert [str(one.definition) for one in mixed.odd] == ["1 (cf2:0)"]
    assert mixed.definition_of(entries[1]) == mixed.wanted
    [told] = mixed.content
    assert told.columns == {"a": 1}
    assert not judged(history(("1", 1, {"a": 1, "same": 1}), ("1", 1, {"a": 1, "same": 1})), old).odd  # a refactoring
    assert not judged(entries, old, impure=["a"]).odd
    assert not judged(history(("1", 1, {"a": 1}), ("1", 2, {"a": 2})), old).odd  # of other inputs


def test_code_that_nobody_has_recorded_is_always_odd():
    of = {key: entry(key, version=None, fingerprint=None) for key in KEYS[:2]}
    alone = mixture(KEYS, of, present=None, now=NOW)
    assert alone.wanted is None
    assert keys_of(alone.odd) == ["d1", "d2"]
    beside = mixture(KEYS, {**of, "d3": entry("d3", version="1")}, present=None, now=NOW)
    assert (str(beside.wanted), keys_of(beside.odd)) == ("1", ["d1", "d2"])
    unknown = replace(accepted("d1"), definition=definition(None), accepted_at=NOW)
    assert keys_of(mixture(KEYS, of, present=None, now=NOW, acceptances=[unknown]).odd) == ["d2"]


def test_what_comes_after_an_acceptance_of_unknown_code_is_not_accepted():
    of = {key: entry(key, version=None, fingerprint=None, position=number) for number, key in enumerate(KEYS[:2])}
    given = [replace(accepted(key), definition=definition(None)) for key in KEYS[:2]]  # at START, before d2 was built
    assert keys_of(mixture(KEYS, of, present=None, now=NOW, acceptances=given).odd) == ["d2"]


def test_a_wider_type_is_no_other_content():
    old, new = history(("1", 1, {"a": 1, "same": 1}), ("1", 1, {"a": 1, "same": 1}))
    wider = replace(new, content_hash=new.content_hash.replace("00000000:00000000", "00000000:ffffffff"))
    assert [one.moved for one in content_changes([old, wider])] == [0]


def test_contradictions_between_versions_that_no_partition_has_any_more_do_not_count():
    same = {"a": 2, "x": 2, "same": 1}
    entries = history(("1", 1, {"a": 1, "x": 1, "same": 1}), ("2", 1, same), ("4", 1, same))
    changes = {"2": change("1", "a"), "3": change("2", "a"), "4": change("3")}
    other = entry("d2", version="3", position=-1)
    assert judged(entries, other, changes=changes).contradicted == ()
    oldest = entry("d3", version="1", position=-2)
    assert [one.columns for one in judged(entries, oldest, changes=changes).contradicted] == [{"x": 1}]


def test_the_history_has_a_say_only_where_something_is_declared_that_it_may_not_bear_out():
    same = {key: entry(key, fingerprint="cf2:1") for key in KEYS}
    assert not needs_history(same, {})
    assert not needs_history(same, {"2": change("1")})
    assert needs_history({**same, "d1": entry("d1", fingerprint="cf2:2")}, {})
    two = {**same, "d1": entry("d1", version="2", fingerprint="cf2:1")}
    assert not needs_history(two, {})
    assert needs_history(two, {"2": change("1")})
