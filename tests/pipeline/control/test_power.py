from __future__ import annotations

import math

import pytest

from tasc_pipeline.control.comparing import compare
from tasc_pipeline.control.power import (
    Spread,
    Wanted,
    failure_groups_needed,
    groups_needed,
    guessed_spread,
    spreads_of,
    study_notes,
    windows_needed,
)
from tests.support.comparison_rows import question, rows


def test_groups_by_hand() -> None:
    # (1.959964 + 0.841621) * 0.3 / ln 1.1 = 8.8184; squared 77.76
    assert groups_needed(Spread("ttft", "median", 0.3, 1), 1.10, Wanted()) == 78
    assert groups_needed(Spread("ttft", "p95", 0.03, 1), 1.10, Wanted()) == 60
    assert groups_needed(Spread("ttft", "median", 0.3, 1), 1.10, Wanted(ratio=1.10)) is None


def test_a_guess_by_hand_and_replicates_only_help_within() -> None:
    assert guessed_spread(0.1, 0.2, 2) == pytest.approx(math.sqrt(math.pi / 2) * math.sqrt(0.01 + 0.04))
    assert guessed_spread(0.1, 0.2, 10**9) == pytest.approx(math.sqrt(math.pi / 2) * 0.1)


def test_windows_until_a_sequence_says_so() -> None:
    spread = Spread("ttft", "median", 0.3, 1)
    assert windows_needed(spread, 1.10, 10**6, Wanted()) == 1
    # error 0.03: at t windows 0.03 (radius + 0.8416 / sqrt(t)) <= 0.0953, so radius(t) + 0.8416 / sqrt(t) <= 3.177:
    # t = 1 gives 4.60, t = 2 gives 2.34 + 0.60 = 2.94
    assert windows_needed(spread, 1.10, 100, Wanted()) == 2
    assert windows_needed(spread, 1.0001, 10, Wanted()) is None


def test_failures_by_hand() -> None:
    assert failure_groups_needed(0.02, 0.0, Wanted()) == 217
    # (1.959964 + 0.841621)^2 * 2 * 0.05 * 0.95 / 0.02^2 = 1864.1
    assert failure_groups_needed(0.02, 0.05, Wanted()) == 1865


def test_spreads_of_earlier_windows_foretell_their_intervals() -> None:
    windows = [compare(question(window=number), rows(40 + number)).summary for number in range(3)]
    spreads = {(item.metric, item.statistic): item for item in spreads_of(windows)}
    # two calls with noise 0.03 each per replicate, two replicates: 1.2533 * 0.03 = 0.0376 where replicates average
    assert spreads["ttft", "median"].per_group == pytest.approx(0.0376, rel=0.35)
    assert spreads["ttft", "median"].windows == 3
    assert spreads_of([]) == []


def test_a_user_knows_before_the_window_what_it_cannot_say() -> None:
    asked = question(failure_margin=0.02)
    # 1 - 0.0125 ** (1 / 24) = 0.167; 0.98 ** 217 is the first power below 0.0125
    [failures, tails] = study_notes(24, asked.margins, asked.rule)
    assert failures == (
        "failures: if none occurs, 24 case groups exclude more than 16.7% of them; the margin of 2.0% takes 217 groups, "
        "so a window stays undecided or worse -> use more prompts or a larger --failure-margin, or make the study "
        "--recurring (10 windows)"
    )
    assert tails == "95th percentiles are shown and do not decide below 60 case groups"
    again = question(failure_margin=0.02, recurring=True)
    assert "or 10 windows of this recurring study; until then" in study_notes(24, again.margins, again.rule)[0]
    assert study_notes(217, asked.margins, asked.rule) == [
        "failures: if none occurs, 217 case groups exclude more than 2.0% of them; the margin of 2.0% takes 217 groups"
    ]
    assert study_notes(9, asked.margins, asked.rule)[1] == (
        "9 case groups, the study asks for 10: every window stays undecided"
    )
