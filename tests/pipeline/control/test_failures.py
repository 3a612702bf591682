from __future__ import annotations

import math
from dataclasses import replace

import pytest

from tasc_pipeline.control.failures import FailurePairs, failure_bounds, failure_pairs, failure_rate
from tasc_pipeline.control.intervals import Levels
from tasc_pipeline.control.observations import Observation
from tasc_pipeline.control.pairing import by_profile
from tests.support.comparison_rows import BASE

STATES = {
    "success": {},
    "failure": {"status": "failure"},
    "sent_unknown": {"dispatch_state": "sent_unknown", "status": "aborted"},
    "not_sent": {"state": "not_sent", "dispatch_state": "not_sent", "status": None},
    "not_attempted": {"state": "not_attempted", "dispatch_state": None, "status": None},
}


def _window(*units: tuple[str, str, str]) -> tuple[dict, dict]:
    """Units as (group, champion's state, candidate's state); replicates of one case per group."""
    rows: list[Observation] = []
    for replicate, (group, first, second) in enumerate(units):
        shared = replace(BASE, group_id=group, case_id="case-" + group, replicate=replicate)
        rows += [
            replace(shared, profile_id="champion", **STATES[first]),
            replace(shared, profile_id="candidate", **STATES[second]),
        ]
    return by_profile(rows, "champion"), by_profile(rows, "candidate")


def test_every_state_without_an_answer_is_taken_both_ways() -> None:
    for state in ("sent_unknown", "not_sent", "not_attempted"):
        found = failure_pairs(*_window(("a", "success", state), ("b", "success", "success")))
        assert (found.known, found.best, found.worst) == ({0.0: 1}, {0.0: 2}, {0.0: 1, 1.0: 1})
        turned = failure_pairs(*_window(("a", state, "success"), ("b", "success", "success")))
        assert (turned.known, turned.best, turned.worst) == ({0.0: 1}, {-1.0: 1, 0.0: 1}, {0.0: 2})
        assert (turned.champion_missing, turned.candidate_missing) == (1, 0)


def test_replicates_share_their_groups_difference() -> None:
    found = failure_pairs(
        *_window(("a", "success", "failure"), ("a", "success", "success"), ("b", "failure", "success"))
    )
    assert found.known == {-1.0: 1, 0.5: 1}
    assert (found.groups, found.known_pairs, found.planned_pairs) == (2, 3, 3)


def test_a_cases_weight_is_its_share_of_the_group() -> None:
    light = replace(BASE, group_id="a", case_id="one", weight=1.0)
    heavy = replace(BASE, group_id="a", case_id="two", weight=3.0)
    champion = by_profile([light, heavy], "champion")
    candidate = {
        unit: replace(item, profile_id="candidate", status="failure" if item.weight == 3 else "success")
        for unit, item in champion.items()
    }
    assert failure_pairs(champion, candidate).known == {0.75: 1}


def test_rate_over_what_is_known() -> None:
    _, candidate = _window(("a", "success", "failure"), ("b", "success", "success"), ("c", "success", "not_sent"))
    assert failure_rate(candidate) == 0.5
    assert failure_rate({}) is None


def test_the_adjusted_normal_interval_by_hand() -> None:
    # 100 groups, 12 of +1, 2 of -1: 102 with one of each added, mean 10/102, sum of squares about it 16 - 100/102
    found = {-1.0: 2, 0.0: 86, 1.0: 12}
    bounds, method = failure_bounds(FailurePairs(found, found, found, 100, 100, 0, 0), Levels(0.95))
    reach = 1.959964 * math.sqrt(16 - 100 / 102) / 102
    assert method == "adjusted-normal-paired"
    assert bounds.estimate == pytest.approx(0.1)
    assert bounds.low == pytest.approx(10 / 102 - reach, abs=1e-6)
    assert bounds.high == pytest.approx(10 / 102 + reach, abs=1e-6)


def test_few_differing_groups_get_exact_bounds_never_a_point() -> None:
    bounds, method = failure_bounds(FailurePairs({0.0: 30}, {0.0: 30}, {0.0: 30}, 30, 30, 0, 0), Levels(0.95))
    assert method == "betting"
    assert bounds.low == pytest.approx(-bounds.high)
    assert 0.1 < bounds.high < 0.15


def test_nothing_known_gives_nothing() -> None:
    bounds, _ = failure_bounds(failure_pairs(*_window(("a", "not_sent", "success"))), Levels(0.95))
    assert (bounds.estimate, bounds.low, bounds.high) == (None, None, None)
