"""What plans read of the ledger of a DuckDB file beside its heads."""

from __future__ import annotations

from marigold_assets.model import CutOff, SwapOptions
from marigold_assets.testing.harness import TABLE, swap


def test_superseded_entries_and_heads_are_the_whole_ledger(duck, draw):
    assert duck.superseded(TABLE) == ()
    for run, days in (("first", {"a": [1], "b": [2]}), ("second", {"a": [3]}), ("third", {"a": [4], "c": []})):
        swap(duck, draw(run), days)
    old = duck.superseded(TABLE)
    assert [(entry.run_id, entry.partition_key) for entry in old] == [("first", "a"), ("second", "a")]
    assert sorted([*old, *duck.heads(TABLE).values()], key=lambda entry: entry.position) == list(duck.ledger(TABLE))


def test_the_newest_runs_tell_when_they_committed_what_they_wrote(duck, draw):
    assert duck.recent_commits(TABLE, 5) == {}
    for run in ("first", "second"):
        attempt = draw(run)
        swap(duck, attempt, {"a": [1], "b": [2]})
        swap(duck, attempt, {"c": [len(run)]}, swap_id=f"another of {run}")
    swap(duck, draw("idle"), {"a": [1]}, options=SwapOptions(cut_off=CutOff.ON))  # only confirmed
    found = duck.recent_commits(TABLE, 5)
    assert list(found) == ["first", "second"]
    assert found["second"] == tuple(
        entry.committed_at.timestamp() for entry in duck.ledger(TABLE) if entry.run_id == "second"
    )
    assert list(duck.recent_commits(TABLE, 1)) == ["second"]
