"""What a cascade would have given, case by case, every figure written by hand.

The champion answers after 50 ms and ends at 300 ms, the candidate after 20 ms and at 100 ms; a call costs 0.001 USD. A signal
below 0.5 goes to the champion at once.
"""

from __future__ import annotations

from typing import Any

import pytest

from tasc_collector.contracts.decision import CandidateAssessment, ReplayRow
from tasc_pipeline.control.engine_v2 import assess_development
from tests.support.engine_v2_world import (
    CANDIDATE,
    CHAMPION,
    FAILED,
    STARTED,
    UNKNOWN,
    attempt,
    context,
    later,
    receipt,
    table,
    trace,
)

NO_COST = {"cost": {"kind": "unavailable"}}


def cascade(
    *,
    champion: dict[str, Any] | None = None,
    candidate: dict[str, Any] | None = None,
    candidates: list[dict[str, Any]] | None = None,
    signal: float | None = 0.9,
    profiles: tuple[str, ...] = (CHAMPION, CANDIDATE),
) -> CandidateAssessment:
    """The cascade's assessment of one case; the champion scores 0.8, the candidate 0.4."""
    made = {
        CHAMPION: [attempt(CHAMPION, **{"ttft_ms": 50, "e2e_ms": 300} | (champion or {}))],
        CANDIDATE: candidates or [attempt(CANDIDATE, **{"ttft_ms": 20, "e2e_ms": 100} | (candidate or {}))],
    }
    traces = [trace("case-1", profile, signal=signal, attempts=made[profile]) for profile in profiles]
    answered = [item for item in traces if item.record.terminal_output_id is not None]
    scores = {CHAMPION: 0.8, CANDIDATE: 0.4}
    receipts = [receipt(item, scores[item.record.profile_id]) for item in answered]
    decision = assess_development(table(traces, receipts), context())
    return next(item for item in decision.candidates if item.policy.kind == "cascade")


def only_row(found: CandidateAssessment) -> ReplayRow:
    (row,) = found.replay
    return row


FAILS = FAILED | {"ttft_ms": None}
CASES: dict[str, tuple[dict[str, Any], tuple[Any, ...]]] = {
    # selected, asked, status, score, TTFT, E2E, cost
    "the candidate answers": ({}, (CANDIDATE, 1, "success", 0.4, 20, 100, 0.001)),
    "a signal at the threshold is not below it": ({"signal": 0.5}, (CANDIDATE, 1, "success", 0.4, 20, 100, 0.001)),
    "a signal below it asks the champion alone": ({"signal": 0.49}, (CHAMPION, 1, "success", 0.8, 50, 300, 0.001)),
    "a champion that was asked alone and fails scores zero": (
        {"signal": 0.1, "champion": FAILS},
        (CHAMPION, 1, "failure", 0, 300, 300, 0.001),
    ),
    "a failed candidate is followed by the champion": (
        {"candidate": FAILS},
        (CHAMPION, 2, "success", 0.8, 100 + 50, 100 + 300, 0.002),
    ),
    "both fail": (
        {"candidate": FAILS, "champion": FAILS},
        (CHAMPION, 2, "failure", 0, 100 + 300, 100 + 300, 0.002),
    ),
    "a candidate of which nobody knows is followed by the champion": (
        {"candidate": UNKNOWN | {"ttft_ms": None}},
        (CHAMPION, 2, "success", 0.8, 150, 400, 0.002),
    ),
    "an answer without a first token counts from its end": (
        {"candidate": {"ttft_ms": None}},
        (CANDIDATE, 1, "success", 0.4, 100, 100, 0.001),
    ),
    "several attempts count from the first": (
        {
            "candidates": [
                attempt(CANDIDATE, ttft_ms=None, e2e_ms=60, **FAILED),
                attempt(CANDIDATE, number=2, start=later(STARTED, 80), ttft_ms=20, e2e_ms=100),
            ]
        },
        (CANDIDATE, 1, "success", 0.4, 100, 180, 0.002),
    ),
    "one cost that is not known leaves the sum unknown": (
        {"candidate": FAILS | NO_COST},
        (CHAMPION, 2, "success", 0.8, 150, 400, None),
    ),
    "the cost of who was not asked does not matter": (
        {"signal": 0.1, "candidate": NO_COST},
        (CHAMPION, 1, "success", 0.8, 50, 300, 0.001),
    ),
}


@pytest.mark.parametrize(("given", "wanted"), CASES.values(), ids=[name.replace(" ", "-") for name in CASES])
def test_each_way_through_a_cascade(given: dict[str, Any], wanted: tuple[Any, ...]) -> None:
    found = cascade(**given)
    row = only_row(found)
    assert (
        row.selected_profile_id,
        len(row.attempted_profile_ids),
        row.status,
        row.score,
        row.ttft_ms,
        row.end_to_end_latency_ms,
        row.cost_usd,
    ) == wanted
    assert row.escalated == (wanted[1] == 2)
    assert found.metrics.ttft_ms.value == wanted[4]
    # nobody was served by the cascade: whatever it says is modeled
    assert found.metrics.end_to_end_latency_ms.evidence_class == row.score_evidence_class == "modeled"


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"signal": None}, "missing-route-signal"),
        ({"profiles": (CANDIDATE,)}, "missing-required-profile"),
        ({"profiles": (CHAMPION,)}, "missing-required-profile"),
        ({"signal": 0.1, "champion": UNKNOWN | {"ttft_ms": None}}, "ambiguous-execution"),
        ({"candidate": FAILS | NO_COST}, "required-cost-evidence-unavailable"),
    ],
)
def test_what_a_cascade_cannot_do_without(given: dict[str, Any], reason: str) -> None:
    found = cascade(**given)
    assert found.status == "INSUFFICIENT_EVIDENCE"
    assert reason in found.insufficiency_reasons
    assert found.inference is None
