"""The lock file and how code differs from it."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime

import pytest

from marigold_assets.errors import ConfigurationError
from marigold_assets.lock import (
    AcceptedChange,
    Equivalent,
    Kind,
    Lock,
    LockedCode,
    PresentCode,
    Proof,
    carry_over,
    compare,
    equivalent,
    lock_of,
    renewed,
)

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
PROOF = Proof(partitions=("2024-01-01", "2024-02-29"), proven_on=date(2026, 3, 1), sample="2 of 730, seed 7")


def code(version="1", fingerprint="a", **parts):
    return PresentCode(version=version, fingerprint=f"cf2:{fingerprint}", parts=parts or {"made": "1", "clean": "1"})


def locked(**given):
    return LockedCode(
        **{"version": "1", "fingerprint": "cf2:a", "parts": {"made": "1", "clean": "1"}, "earlier": {}, **given}
    )


FULL = Lock(
    assets={
        "shop/daily_sales": locked(
            version="3",
            earlier={"1": "cf2:x", "2": "cf2:y"},
            equivalent=(Equivalent(before="cf2:w", after="cf2:v", proof=PROOF),),
            accepted=(AcceptedChange(before="cf2:v", after="cf2:a", by="Nadia", at=NOW, reason='only a "rename"'),),
        ),
        "umsätze": locked(version=None),
    }
)


def test_what_was_saved_is_loaded(tmp_path):
    path = tmp_path / "code_versions.lock"
    FULL.save(path)
    assert Lock.load(path) == FULL
    assert [one.name for one in tmp_path.iterdir()] == [path.name]


def test_the_file_is_sorted_with_one_thing_a_line(tmp_path):
    path = tmp_path / "code_versions.lock"
    lock_of({"b": code(z="1", a="2"), "a": code(version=None, x="3")}).save(path)
    assert path.read_text() == (
        '{\n "assets": {\n'
        '  "a": {\n   "code_version": null,\n   "fingerprint": "cf2:a",\n   "parts": {\n    "x": "3"\n   }\n  },\n'
        '  "b": {\n   "code_version": "1",\n   "fingerprint": "cf2:a",\n   "parts": {\n    "a": "2",\n    "z": "1"\n'
        '   }\n  }\n },\n "format": 1\n}\n'
    )


def test_a_file_that_cannot_be_written_is_left_as_it_was(tmp_path):
    path = tmp_path / "code_versions.lock"
    path.mkdir()
    with pytest.raises(ConfigurationError, match=r"cannot be written.*--lock-file"):
        FULL.save(path)
    assert [one.name for one in tmp_path.iterdir()] == [path.name]


GOOD = FULL.text()


@pytest.mark.parametrize(
    ("text", "problem", "remedy"),
    [
        (GOOD.replace('"v"', "", 1)[:-20], "it is no JSON", "git checkout code_versions.lock"),
        ("", "it is no JSON", "marigold versions lock"),
        ("[]", "the file is no object", "git checkout"),
        (f"<<<<<<< HEAD\n{GOOD}=======\n{GOOD}>>>>>>> other\n", "both sides of a merge", "git checkout --ours"),
        (GOOD.replace('"format": 1', '"format": 2'), "later version of marigold-assets", "install that version"),
        (GOOD.replace('"format": 1', '"format": "1"'), "'format' of the file is missing", "git checkout"),
        (GOOD.replace('"shop/daily_sales"', '"umsätze"'), "'umsätze' is there twice", "git checkout"),
        (GOOD.replace('"fingerprint"', '"fingerprnt"', 1), "unknown key 'fingerprnt'", "git checkout"),
        (GOOD.replace('"code_version": "3"', '"code_version": 3'), "'code_version' of", "git checkout"),
        (GOOD.replace('"made": "1"', '"made": 1', 1), "'made' of 'parts' of", "git checkout"),
        (GOOD.replace('"2024-01-01"', "20240101"), "'partitions' of 'equivalent'", "git checkout"),
        (GOOD.replace("2026-03-01T12:00:00+00:00", "2026-03-01T12:00:00"), "'at' of 'accepted'", "git checkout"),
        (GOOD.replace('"2026-03-01"', '"yesterday"'), "'proven_on' of 'equivalent'", "git checkout"),
    ],
)
def test_a_file_that_is_no_lock_is_one_clear_error(tmp_path, text, problem, remedy):
    path = tmp_path / "code_versions.lock"
    path.write_text(text)
    with pytest.raises(ConfigurationError) as caught:
        Lock.load(path)
    assert str(path) in caught.value.problem
    assert problem in caught.value.problem
    assert remedy in caught.value.remedy


def test_a_missing_file_and_one_of_bytes_are_clear_errors(tmp_path):
    with pytest.raises(ConfigurationError, match=r"there is no.*marigold versions lock|There is no"):
        Lock.load(tmp_path / "code_versions.lock")
    (tmp_path / "code_versions.lock").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigurationError, match="cannot be read"):
        Lock.load(tmp_path / "code_versions.lock")


def only(lock, present):
    [found] = compare(lock, present)
    return found


def test_what_is_as_it_was_is_not_mentioned():
    assert compare(lock_of({"a": code(), "b": code(None)}), {"a": code(), "b": code(None)}) == ()


def test_changed_code_under_one_version_is_found_with_its_parts_and_three_ways_out():
    before = lock_of({"daily_sales": code("2", "a", daily_sales="1", clean="1", RATE="1")})
    found = only(before, {"daily_sales": code("2", "b", daily_sales="1", clean="2", dedupe="1")})
    assert (found.kind, found.is_note, found.is_refused) == (Kind.CODE_CHANGED, False, True)
    assert (found.changed, found.added, found.removed) == (("clean",), ("dedupe",), ("RATE",))
    assert found.what == "clean changed, dedupe is used now, RATE is not used any more, but code_version is still '2'"
    bump, prove, accept = [how for _, how in found.ways_out]
    assert "set code_version to another one" in bump
    assert prove == "marigold versions prove daily_sales --lock"
    assert accept == 'marigold versions lock daily_sales --accept-changes --reason "..."'


def test_several_changed_parts_are_listed_and_an_other_order_is_told():
    before = lock_of({"a": code("2", "a", x="1", y="1", z="1")})
    assert only(before, {"a": code("2", "b", x="2", y="2", z="2")}).what.startswith("x, y and z changed, but")
    assert only(before, {"a": code("2", "b", x="1", y="1", z="1")}).what.startswith("the way in which its parts")


@pytest.mark.parametrize(
    ("before", "now", "kind"),
    [
        ({"a": locked()}, {"a": code("2", "b")}, Kind.VERSION_CHANGED),
        ({"a": locked()}, {"a": code("2", "a")}, Kind.VERSION_CHANGED),
        ({"a": locked()}, {"a": code(None, "a")}, Kind.VERSION_CHANGED),
        ({"a": locked(version=None)}, {"a": code("1", "a")}, Kind.VERSION_CHANGED),
        ({}, {"a": code()}, Kind.NOT_LOCKED),
        ({"a": locked()}, {}, Kind.GONE),
        ({"a": locked(fingerprint="cf1:a")}, {"a": code()}, Kind.OTHER_METHOD),
        ({"a": locked(version=None)}, {"a": code(None, "b")}, Kind.UNDECLARED_CHANGED),
        ({"a": locked(version="2", earlier={"1": "cf2:b"})}, {"a": code("1", "c")}, Kind.VERSION_REUSED),
        ({"a": locked(version="2", earlier={"1": "cf2:b"})}, {"a": code("1", "b")}, Kind.VERSION_CHANGED),
        ({"a": locked(version="2", earlier={"1": "cf1:b"})}, {"a": code("1", "b")}, Kind.VERSION_CHANGED),
    ],
)
def test_each_difference_is_of_one_kind(before, now, kind):
    found = only(Lock(assets=before), now)
    assert found.kind is kind
    assert found.is_note == (kind is Kind.UNDECLARED_CHANGED)
    assert found.is_refused == (kind is Kind.VERSION_REUSED)
    assert all("marigold versions lock" in how for _, how in found.ways_out)
    assert found.what


def test_the_lock_is_renewed_but_for_changes_that_nobody_has_accepted():
    before = Lock(assets={"bumped": locked(), "changed": locked(), "gone": locked(), "free": locked(version=None)})
    now = {"bumped": code("2", "b"), "changed": code("1", "b"), "new": code(), "free": code(None, "b")}
    after, refused = renewed(before, now)
    assert [one.asset for one in refused] == ["changed"]
    assert after.assets.keys() == {"bumped", "changed", "free", "new"}
    assert after.assets["bumped"] == locked(version="2", fingerprint="cf2:b", earlier={"1": "cf2:a"})
    assert after.assets["changed"] == before.assets["changed"]
    assert after.assets["free"].fingerprint == "cf2:b"
    assert [one.kind for one in compare(after, now)] == [Kind.CODE_CHANGED]


def test_only_the_assets_that_are_named_are_renewed():
    before = Lock(assets={"a": locked(), "gone": locked()})
    after, _ = renewed(before, {"a": code("2"), "b": code()}, only=["b"])
    assert after.assets == {**before.assets, "b": locked()}


def test_an_accepted_change_stays_on_the_record():
    before = Lock(assets={"a": locked()})
    after, refused = renewed(before, {"a": code("1", "b")}, accepted=("Nadia", NOW, "a new name"))
    assert refused == ()
    assert after.assets["a"].accepted == (
        AcceptedChange(before="cf2:a", after="cf2:b", by="Nadia", at=NOW, reason="a new name"),
    )
    assert compare(after, {"a": code("1", "b")}) == ()
    again, _ = renewed(after, {"a": code("1", "c")}, accepted=("Tomás", NOW, "another"))
    assert [one.by for one in again.assets["a"].accepted] == ["Nadia", "Tomás"]
    bumped, _ = renewed(again, {"a": code("2", "d")})
    assert bumped.assets["a"] == locked(version="2", fingerprint="cf2:d", earlier={"1": "cf2:c"})


def test_an_earlier_version_can_be_taken_back_if_it_is_the_same_code_or_accepted_as_the_same():
    before, _ = renewed(Lock(assets={"a": locked()}), {"a": code("2", "b")})
    back, refused = renewed(before, {"a": code("1", "a")})
    assert refused == ()
    assert back.assets["a"] == locked(earlier={"2": "cf2:b"})
    _, refused = renewed(before, {"a": code("1", "c")})
    assert [one.kind for one in refused] == [Kind.VERSION_REUSED]
    taken, _ = renewed(before, {"a": code("1", "c")}, accepted=("Nadia", NOW, "a remark"))
    assert [(one.before, one.after) for one in taken.assets["a"].accepted] == [("cf2:a", "cf2:c")]


def test_proven_code_goes_by_the_version_of_the_code_before_it():
    before = Lock(assets={"a": locked(), "b": locked()})
    after = carry_over(before, "a", code("1", "b", made="2"), PROOF)
    assert after.assets["a"].version == "1"
    assert after.assets["a"].equivalent == (Equivalent(before="cf2:a", after="cf2:b", proof=PROOF),)
    assert compare(after, {"a": code("1", "b", made="2"), "b": code()}) == ()
    assert carry_over(after, "a", code("1", "b", made="2"), PROOF) == after
    assert json.loads(after.text())["assets"]["a"]["equivalent"][0]["proven_on"] == "2026-03-01"


def test_nothing_is_carried_over_to_another_version_or_from_nowhere():
    before = Lock(assets={"a": locked()})
    with pytest.raises(ConfigurationError, match="set code_version back to '1'"):
        carry_over(before, "a", code("2", "b"), PROOF)
    with pytest.raises(ConfigurationError, match="asset 'b': the asset is not in the lock"):
        carry_over(before, "b", code("1", "b"), PROOF)


def test_codes_are_equivalent_if_proofs_lead_from_one_to_the_other():
    proven = tuple(Equivalent(before=a, after=b, proof=PROOF) for a, b in (("cf2:a", "cf2:b"), ("cf2:c", "cf2:b")))
    said = AcceptedChange(before="cf2:c", after="cf2:d", by="Nadia", at=NOW, reason="a rename")
    lock = Lock(assets={"sales": locked(equivalent=proven, accepted=(said,))})
    assert equivalent(lock, "sales", "cf2:a", "cf2:c")
    assert equivalent(lock, "sales", "cf2:x", "cf2:x")
    assert not equivalent(lock, "sales", "cf2:a", "cf2:d")
    assert equivalent(lock, "sales", "cf2:a", "cf2:d", with_accepted=True)
    assert not equivalent(lock, "other", "cf2:a", "cf2:b")
    assert not equivalent(lock, "sales", None, None)


def test_what_was_proven_is_kept_when_the_version_changes():
    proven = (Equivalent(before="cf2:z", after="cf2:a", proof=PROOF),)
    after, _ = renewed(Lock(assets={"sales": locked(equivalent=proven)}), {"sales": code("2", "b")})
    assert equivalent(after, "sales", "cf2:z", "cf2:a")
