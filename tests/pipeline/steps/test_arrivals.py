"""What evidence that came asks for, from batches and windows written by hand."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tasc_pipeline.home import Home
from tasc_pipeline.steps import arrivals
from tasc_pipeline.steps.arrivals import Look, Seen, Wanted

FIRST, SECOND = "w.r01-00000001", "w.r02-00000002"
BEFORE, WATERMARK, AFTER = "2026-11-29T11:00:00.000Z", "2026-11-29T12:00:00.000Z", "2026-11-29T13:00:00.000Z"
BATCH, OTHER = "sha256:" + "a" * 64, "sha256:" + "b" * 64
MOST = 25


@pytest.fixture
def home(tmp_path: Path) -> Home:
    found = Home(tmp_path)
    (found.study("study") / "evidence").mkdir(parents=True)
    (found.study("study") / "study.toml").write_text("")
    seal(found, FIRST)
    close(found, FIRST)
    return found


def write(path: Path, value: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))


def look(home: Home, seen: Seen, now: str) -> Look:
    """A look whose cursor goes through its text, as it does between two ticks."""
    found = arrivals.look(home, seen, now, most=MOST)
    assert Seen.parse(found.after.text()) == found.after
    return found


def seal(
    home: Home,
    key: str,
    *,
    revision: int = 1,
    watermark: str = WATERMARK,
    before: str | None = None,
    window_id: str = "w",
) -> None:
    write(
        home.window(key) / "declaration.json",
        {
            "studyId": "study",
            "studyKind": "decision",
            "protocolDigest": "sha256:" + "0" * 64,
            "windowId": window_id,
            "revision": revision,
            "predecessorKey": before,
            "eventTimeStartInclusive": "2026-11-29T10:00:00.000Z",
            "eventTimeEndExclusive": "2026-11-29T10:30:00.000Z",
            "ingestionWatermark": watermark,
        },
    )


def close(home: Home, key: str) -> None:
    counts = {"planned": 2, "accepted": 2, "notSent": 0, "notAttempted": 0}
    write(home.window(key) / "link.json", {"planDigest": BATCH, "closedAt": BEFORE, "counts": counts})


def assess(home: Home, key: str) -> None:
    report = {"comparisons": [], "decision": {"status": "PASS"}, "coverage": 1.0, "asOf": AFTER}
    write(home.window(key) / "assessment.json", report)


def arrive(home: Home, at: str, *, name: str = "a", mtime_ns: int = 1_000, keys: tuple[str, ...] = (FIRST,)) -> None:
    path = home.study("study") / "evidence" / f"{name}.json"
    write(path, {"contentDigest": "sha256:" + name * 64, "addedAt": at, "windowKeys": list(keys)})
    os.utime(path, ns=(mtime_ns, mtime_ns))


def asked(found: Look) -> list[Wanted]:
    return found.wanted


def test_evidence_before_the_watermark_is_assessed_once_the_watermark_has_passed(home: Home) -> None:
    arrive(home, BEFORE)
    early = look(home, Seen(), BEFORE)
    assert asked(early) == [] and early.after.waiting == {FIRST: (BATCH, BEFORE)}
    later = look(home, early.after, WATERMARK)
    assert asked(later) == [Wanted(FIRST, False, BATCH)]
    assert asked(look(home, later.after, AFTER)) == [], "what was asked for is not asked for again"


def test_evidence_after_the_watermark_names_the_window_and_asks_for_no_run(home: Home) -> None:
    arrive(home, AFTER)
    found = look(home, Seen(), AFTER)
    assert (asked(found), found.late) == ([], {FIRST: BATCH})
    assert look(home, found.after, AFTER).late == {}


def test_a_sealed_revision_is_closed_and_then_assessed(home: Home) -> None:
    seal(home, SECOND, revision=2, watermark=AFTER, before=FIRST)
    assert asked(look(home, Seen(), AFTER)) == [Wanted(SECOND, True, "close")]
    close(home, SECOND)
    assert asked(look(home, Seen(), AFTER)) == [Wanted(SECOND, False, "assess")]
    assess(home, SECOND)
    assert asked(look(home, Seen(), AFTER)) == []


def test_evidence_that_a_revision_waited_for_counts_in_the_revision(home: Home) -> None:
    seal(home, SECOND, revision=2, watermark=AFTER, before=FIRST)
    close(home, SECOND)
    assess(home, SECOND)
    arrive(home, "2026-11-29T12:30:00.000Z")
    assert asked(look(home, Seen(), AFTER)) == [Wanted(SECOND, False, BATCH)]


def test_what_is_over_the_bound_of_a_look_is_asked_for_in_the_next_ones(home: Home) -> None:
    keys = tuple(f"n{number:02}.r01-00000000" for number in range(60))
    for key in keys:
        seal(home, key, window_id=key)
        close(home, key)
    arrive(home, BEFORE, keys=keys)
    seen, rounds = Seen(), []
    for _ in range(4):
        found = look(home, seen, AFTER)
        rounds.append([item.window_key for item in found.wanted])
        seen = found.after
    assert [len(keys) for keys in rounds] == [25, 25, 10, 0]
    assert sorted(key for keys in rounds for key in keys) == list(keys), "each once"
    assert seen.waiting == {}


def test_revisions_that_are_stuck_are_asked_for_once_and_take_no_place_of_another(home: Home) -> None:
    stuck = [f"n{number:02}.r02-00000000" for number in range(MOST + 5)]
    for key in stuck:
        seal(home, key, revision=2, before=FIRST, window_id=key)
    first = look(home, Seen(), AFTER)
    arrive(home, BEFORE)
    second = look(home, first.after, AFTER)
    assert [item.window_key for item in first.wanted] == stuck[:MOST]
    assert second.wanted == [Wanted(FIRST, False, BATCH), *(Wanted(key, True, "close") for key in stuck[MOST:])]
    assert asked(look(home, second.after, AFTER)) == []
    close(home, stuck[0])
    assert asked(look(home, second.after, AFTER)) == [Wanted(stuck[0], False, "assess")]


def test_evidence_of_a_window_whose_folder_is_not_there_yet_waits_for_it(home: Home) -> None:
    later = "later.r01-00000003"
    arrive(home, BEFORE, keys=(later,))
    early = look(home, Seen(), AFTER)
    assert asked(early) == [] and early.after.waiting == {later: (BATCH, BEFORE)}
    home.window(later).mkdir(parents=True)
    (home.window(later) / "declaration.json").write_text("{")
    unreadable = look(home, early.after, AFTER)
    assert asked(unreadable) == [] and unreadable.late == {}
    seal(home, later, window_id="later")
    close(home, later)
    assert asked(look(home, unreadable.after, AFTER)) == [Wanted(later, False, BATCH)]


def test_late_evidence_does_not_take_the_assessment_of_what_came_in_time(home: Home) -> None:
    arrive(home, BEFORE)
    early = look(home, Seen(), BEFORE)
    arrive(home, AFTER, name="b", mtime_ns=2_000)
    found = look(home, early.after, AFTER)
    assert asked(found) == [Wanted(FIRST, False, BATCH)] and found.late == {FIRST: OTHER}


def test_a_batch_that_cannot_be_read_or_is_of_no_window_asks_for_nothing(home: Home) -> None:
    (home.study("study") / "evidence" / "bad.json").write_text("{")
    path = home.study("study") / "evidence" / "other.json"
    write(path, {"contentDigest": BATCH, "addedAt": BEFORE, "windowKeys": ["forged.r01-00000000"]})
    found = look(home, Seen(), AFTER)
    assert (asked(found), found.late) == ([], {})


@pytest.mark.parametrize(
    "text", [None, "", "[]", "{", '{"untilNs": "x", "waiting": {}}', '{"waiting": 1, "untilNs": 1}']
)
def test_a_cursor_that_was_lost_or_edited_begins_anew(text: str | None) -> None:
    assert Seen.parse(text) == Seen()
