"""Which windows tell something; every expected word is written by hand."""

from __future__ import annotations

import pytest

from tasc_collector.contracts.operations import Notice
from tasc_pipeline.control.notices import (
    Look,
    failed_run,
    missing_window,
    notices_of,
    period_ms,
    standing,
)

AT = "2026-11-29T10:{:02d}:00.000Z"


def looks(*verdicts: str, coverage: float | None = 1.0) -> list[Look]:
    return [
        Look(f"w{place}.r01-0000000{place}", AT.format(place), {"candidate": verdict}, coverage)
        for place, verdict in enumerate(verdicts)
    ]


def told(*verdicts: str, agreeing: int = 2) -> list[tuple[str | None, str | None]]:
    found = notices_of("study", "comparison", looks(*verdicts), agreeing_windows=agreeing, floor=0.5)
    return [(notice.before, notice.after) for notice in found]


@pytest.mark.parametrize(
    ("verdicts", "changes"),
    [
        (("worse",), []),
        (("worse", "worse"), [("undecided", "worse")]),
        (("worse", "worse", "worse"), []),
        (("no-worse", "no-worse", "worse"), []),
        (("no-worse", "no-worse", "worse", "worse"), [("no-worse", "worse")]),
        (("no-worse", "no-worse", "worse", "undecided"), []),
        (("no-worse", "no-worse", "worse", "undecided", "worse", "worse"), [("no-worse", "worse")]),
        (("undecided", "undecided"), []),
        (("no-worse", "no-worse", "undecided", "undecided"), [("no-worse", "undecided")]),
    ],
)
def test_a_change_is_told_when_two_windows_agree(
    verdicts: tuple[str, ...], changes: list[tuple[str | None, str | None]]
) -> None:
    assert told(*verdicts) == changes


def test_an_operator_may_want_every_change() -> None:
    assert told("no-worse", "worse", agreeing=1) == [("no-worse", "worse")]


def test_the_standing_word_needs_a_run() -> None:
    assert standing(["a", "b", "a", "b"], 2, "none") == "none"
    assert standing(["a", "a", "a", "b", "b"], 3, "none") == "a"


def test_a_status_of_a_decision_is_spelled_as_a_slug() -> None:
    passed = [Look(f"w.r0{n}-00000000", AT.format(n), {None: "PASS"}, 1.0) for n in (1, 2)]
    [notice] = notices_of("study", "decision", passed, agreeing_windows=2, floor=0.5)
    assert (notice.before, notice.after) == ("insufficient-evidence", "pass")


def test_candidates_are_told_apart_by_nothing_so_the_same_words_are_told_once() -> None:
    both = [Look(f"w.r0{n}-00000000", AT.format(n), {"a": "worse", "b": "worse"}, 1.0) for n in (1, 2)]
    assert len(notices_of("study", "comparison", both, agreeing_windows=2, floor=0.5)) == 1


def test_coverage_is_told_where_it_goes_under_its_floor() -> None:
    low, high = looks("worse", coverage=0.4), looks("worse", coverage=0.6)
    kinds = [
        [n.kind for n in notices_of("study", "comparison", windows, agreeing_windows=9, floor=0.5)]
        for windows in (low, high, high + low, high + low + low)
    ]
    assert kinds == [["coverage-low"], [], ["coverage-low"], []]


def test_a_missing_window_is_told_after_two_periods() -> None:
    hour = period_ms(["2026-11-29T08:00:00.000Z", "2026-11-29T09:00:00.000Z"], None)
    assert hour == 3_600_000
    key, start = "w.r01-00000000", "2026-11-29T09:00:00.000Z"
    assert missing_window("study", key, start, hour, as_of="2026-11-29T10:59:59.999Z") is None
    notice = missing_window("study", key, start, hour, as_of="2026-11-29T11:00:00.000Z")
    assert notice is not None and (notice.kind, notice.window_key) == ("window-missing", key)
    assert period_ms([start], None) is None and period_ms([start], 15.0) == 900_000


def test_a_guessed_period_is_at_least_an_hour_and_a_named_one_is_as_named() -> None:
    starts = ["2026-11-29T09:00:00.000Z", "2026-11-29T09:00:07.000Z"]
    assert period_ms(starts, None) == 3_600_000
    assert period_ms(starts, 1.0) == 60_000
    assert period_ms(["2026-11-29T06:00:00.000Z", "2026-11-29T09:00:00.000Z"], None) == 10_800_000


def test_a_notice_holds_nothing_but_its_words() -> None:
    notice = failed_run("study", "w.r01-00000000", "transport", at=AT.format(0))
    assert notice.to_json() == {
        "version": "tasc-notice-v1",
        "kind": "run-failed",
        "studyId": "study",
        "windowKey": "w.r01-00000000",
        "before": None,
        "after": "transport",
        "at": "2026-11-29T10:00:00.000Z",
    }
    assert set(Notice.model_fields) == {"version", "kind", "study_id", "window_key", "before", "after", "at"}
