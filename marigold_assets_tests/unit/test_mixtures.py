"""Which partitions are odd, which are accepted, and in which columns definitions differ: by what is declared, and in
fact."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from marigold_assets.lineage import Code
from marigold_assets.mixtures import ColumnChange, content_changes, contradictions, difference, mixture
from marigold_assets.model import Acceptance, Definition, TableName
from marigold_assets_tests.unit.test_versions import START, entry, read

NOW = datetime(2026, 1, 1, tzinfo=UTC)
KEYS = ["d1", "d2", "d3", "d4", "d5", "d6"]


def built(*versions):
    """Heads of d1, d2, ... by their versions; ``None`` for one that was never built."""
    return {key: entry(key, version=one) for key, one in zip(KEYS, versions, strict=False) if one is not None}


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


def test_the_odd_ones_are_those_of_the_smaller_number():
    mixed = found("1", "2", "2", "1", "2", None)
    assert str(mixed.wanted) == "2"
    assert [one.keys for one in mixed.odd] == [("d1",), ("d4",)]
    assert str(mixed.difference) == "all columns"


def test_what_the_present_code_version_has_built_is_never_odd():
    mixed = found("1", "1", "1", "2", present="2")
    assert keys_of(mixed.odd) == ["d1", "d2", "d3"]
    assert keys_of(found("1", "1", "2", present="3").odd) == ["d3"]


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


def history(*entries):
    return [
        entry(
            "d1",
            position=number,
            version=version,
            inputs=[read("up", "d1", holds)] if holds is not ... else (),
            holds=number,
        )
        for number, (version, holds) in enumerate(entries)
    ]


def with_columns(one, **columns):
    return type(one)(**{**{name: getattr(one, name) for name in one.__slots__}, "column_hashes": columns})


def test_content_hashes_show_which_columns_a_version_changed():
    old, new = history(("1", 1), ("2", 1))
    old = with_columns(old, day=("a", 0), net=("b", 0), gone=("c", 0))
    new = with_columns(new, day=("a", 0), net=("B", 0), added=("d", 0))
    [one] = content_changes([old, new])
    assert (str(one.before), str(one.after), one.partitions) == ("1", "2", 1)
    assert one.columns == {"net": 1, "added": 1, "gone": 1}
    assert one.moved == 0


def test_a_column_that_really_changed_counts_whatever_is_declared():
    changes = {"2": change("1", "net")}
    old, new = history(("1", 1), ("2", 1))
    entries = [with_columns(old, gross=("a", 0), net=("b", 0)), with_columns(new, gross=("A", 0), net=("B", 0))]
    content = content_changes(entries)
    [told] = contradictions(content, changes)
    assert told.columns == {"gross": 1}
    assert contradictions(content, {}) == ()
    assert contradictions(content, {"2": change("1", "net", "gross")}) == ()
    options = {"present": "2", "changes": changes, "columns": ["gross"]}
    assert not found("1", "2", **options).odd
    assert keys_of(found("1", "2", content=content, **options).odd) == ["d1"]


def test_values_that_moved_between_rows_are_told():
    old, new = (with_columns(one, day=("a", 0)) for one in history(("1", 1), ("2", 1)))
    [one] = content_changes([old, new])
    assert (one.columns, one.moved) == ({}, 1)


@pytest.mark.parametrize("second", [2, None])
def test_partitions_of_other_or_unknown_inputs_say_nothing_about_the_code(second):
    assert content_changes(history(("1", 1), ("2", second))) == ()
    assert content_changes(history(("1", None), ("2", None))) == ()


def test_the_same_definition_again_is_no_change():
    assert content_changes(history(("1", 1), ("1", 1))) == ()
    assert [one.partitions for one in content_changes(history(("1", 1), ("1", 1), ("2", 1), ("1", 1)))] == [1, 1]
