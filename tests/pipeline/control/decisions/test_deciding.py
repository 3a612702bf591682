from __future__ import annotations

import random
from dataclasses import replace

import pytest

from tasc_collector.contracts.policy import policy_space
from tasc_collector.contracts.report import AssessmentReport, GateResult
from tasc_pipeline.control.decisions import words
from tasc_pipeline.control.decisions.capacity import Capacity
from tests.support.decision_windows import (
    START,
    WATERMARK,
    analysis,
    changed,
    decided,
    failed,
    lost,
    protocol,
    rows,
)


def gate(report: AssessmentReport, gate_id: str, slice_id: str | None = None) -> GateResult:
    assert report.decision is not None
    return next(item for item in report.decision.gates if (item.id, item.slice) == (gate_id, slice_id))


def test_a_window_that_holds_every_gate_passes_and_says_why() -> None:
    report = decided(rows(1))
    decision = report.decision
    assert decision is not None
    assert decision.status == "PASS"
    assert {item.state for item in decision.gates} == {"passed"}
    assert decision.reasons == ()
    assert decision.sentence.startswith("candidate may take the traffic: every gate holds: score against the champion")
    assert [item.id for item in decision.gates] == [
        "paired-quality",
        "minimum-mean-score",
        "maximum-failure-rate",
        "maximum-p95-ttft",
        "maximum-p95-end-to-end",
        "maximum-cost-per-thousand",
        "minimum-evidence-coverage",
        "minimum-independent-groups",
    ]
    cost = gate(report, "maximum-cost-per-thousand")
    assert (cost.actual, cost.evidence_class) == (0.17, "modeled"), "40 tokens at 1 and 65 at 2 dollars a million"
    assert gate(report, "paired-quality").evidence_class == "reported"


def test_a_worse_score_holds_the_policy_back() -> None:
    report = decided(rows(2, candidate_score=0.8))
    quality = gate(report, "paired-quality")
    assert report.decision is not None and report.decision.status == "HOLD"
    assert (quality.state, quality.reason) == ("failed", "beyond-the-bound")
    assert quality.interval is not None and quality.interval.high is not None and quality.interval.high < -0.05
    assert report.decision.reasons == ("failed.paired-quality",)
    assert report.decision.sentence.startswith("candidate must not take the traffic: score against the champion")


def test_one_unknown_answer_widens_the_bounds_and_collapses_nothing() -> None:
    whole = rows(3, groups=200)
    clear, hidden = decided(whole), decided(changed(whole, "candidate", 1, lost))
    assert clear.decision is not None and hidden.decision is not None
    assert (clear.decision.status, hidden.decision.status) == ("PASS", "PASS")
    for name in ("paired-quality", "minimum-mean-score", "maximum-failure-rate", "maximum-p95-ttft"):
        before, after = gate(clear, name), gate(hidden, name)
        assert before.interval is not None and after.interval is not None
        assert None not in (before.interval.low, before.interval.high, after.interval.low, after.interval.high)
        assert after.interval.high - after.interval.low > before.interval.high - before.interval.low, name  # type: ignore[operator]  # looked at above
    quality = gate(hidden, "paired-quality")
    assert quality.worst is not None and quality.best is not None and quality.worst < quality.best
    assert quality.best - quality.worst == pytest.approx(1 / 200)
    assert hidden.decision.evidence is not None and hidden.decision.evidence.sent_unknown == 1
    assert "1 of 400 executions were sent and nobody knows what became of them" in hidden.missing


def test_many_unknown_answers_leave_the_decision_open_and_say_that_they_decide_it() -> None:
    report = decided(changed(rows(4, groups=200), "candidate", 18, lost))
    assert report.decision is not None and report.decision.status == "INSUFFICIENT_EVIDENCE"
    assert gate(report, "maximum-failure-rate").reason == "unknown-executions-decide" or (
        gate(report, "paired-quality").reason == "unknown-executions-decide"
    )
    assert gate(report, "maximum-p95-ttft").interval is not None
    assert gate(report, "maximum-p95-ttft").interval.high is None  # type: ignore[union-attr]  # looked at above


def test_a_collectors_fault_is_counted_apart_and_is_no_failure_of_the_model() -> None:
    report = decided(changed(rows(5, groups=200), "candidate", 2, lambda row: lost(row, "not_sent")))
    assert report.decision is not None and report.decision.evidence is not None
    assert report.decision.evidence.not_sent == 2 and report.decision.evidence.protocol_failures == 0
    assert gate(report, "maximum-failure-rate").actual == 0.0
    assert gate(report, "maximum-failure-rate").worst == pytest.approx(0.01)
    assert "2 of 400 executions were never sent: the collector's fault, not the model's" in report.missing


def test_a_failure_scores_zero_and_counts_as_a_failure() -> None:
    report = decided(changed(rows(6), "candidate", 30, failed))
    assert report.decision is not None and report.decision.status == "HOLD"
    assert gate(report, "maximum-failure-rate").actual == 0.3
    assert gate(report, "maximum-failure-rate").state == "failed"
    assert gate(report, "minimum-mean-score").actual == pytest.approx(0.7 * 0.9, abs=0.02)


def test_coverage_below_the_gate_is_too_little_evidence_whatever_the_rest_says() -> None:
    report = decided(changed(rows(7, candidate_score=0.5), "candidate", 40, lost))
    assert report.decision is not None and report.decision.status == "INSUFFICIENT_EVIDENCE"
    assert (gate(report, "minimum-evidence-coverage").actual, report.coverage) == (0.8, 0.8)


def test_without_prices_the_cost_gate_is_unavailable_and_never_a_pass() -> None:
    report = decided(rows(8), priced=False)
    cost = gate(report, "maximum-cost-per-thousand")
    assert (cost.state, cost.passed, cost.evidence_class, cost.reason) == (
        "unavailable",
        False,
        "unavailable",
        "no-cost-model",
    )
    assert report.decision is not None and report.decision.status == "INSUFFICIENT_EVIDENCE"
    assert "cost of a thousand calls not known, at most 1 USD: the study has no cost model" in report.missing


def test_before_the_watermark_nothing_is_judged_and_the_time_to_wait_is_said() -> None:
    report = decided(rows(9), as_of="2026-03-01T22:28:30.000Z")
    decision = report.decision
    assert decision is not None
    assert (decision.status, decision.wait_until, decision.gates) == ("STALE", WATERMARK, ())
    assert decision.reasons == ("before-watermark",)
    assert "Wait 1 h 32 min from that instant, then: tasc assess swap.r01-00000000." in decision.sentence


@pytest.mark.parametrize(
    ("as_of", "reason"),
    [("2027-01-01T00:00:00.000Z", "protocol-expired"), ("2026-01-15T00:00:00.000Z", "policy-not-yet-valid")],
)
def test_outside_protocol_and_policy_nothing_is_judged(as_of: str, reason: str) -> None:
    report = decided(rows(10), as_of=as_of)
    assert report.decision is not None and report.decision.status == "STALE"
    assert reason in report.decision.reasons


def test_a_policy_of_after_the_windows_start_is_no_ground() -> None:
    rules = protocol()
    late = policy_space(rules, "2026-03-01T12:00:00.000Z")[0]
    assert late.issued_at > START
    report = decided(rows(11), rules=rules, policies=[late])
    assert report.decision is not None
    assert report.decision.reasons == ("policy-issued-after-window-start",)


def test_a_capacity_gate_passes_on_measured_throughput_and_stays_open_without_load() -> None:
    rules = protocol(
        serviceCapacity={
            "kind": "minimum-measured-window-throughput",
            "metric": "aggregate-output-tokens-per-second",
            "minimum": 100.0,
        }
    )
    for capacity, state, status, reason in (
        (Capacity(120.0, False, None), "passed", "PASS", None),
        (Capacity(80.0, False, None), "undecided", "INSUFFICIENT_EVIDENCE", "server-was-not-full"),
        (Capacity(80.0, True, None), "failed", "HOLD", "beyond-the-bound-as-a-point"),
        (None, "unavailable", "INSUFFICIENT_EVIDENCE", "no-metric-scrape"),
    ):
        report = decided(rows(12), rules=rules, capacity=capacity)
        found = gate(report, "minimum-service-capacity")
        assert report.decision is not None
        assert (found.state, report.decision.status, found.reason) == (state, status, reason)


def test_a_slice_that_is_worse_is_found_by_its_own_gate() -> None:
    good, bad = rows(13, groups=150), rows(14, groups=50, candidate_score=0.78, slices=("long",))
    bad = [
        replace(
            row,
            observation=replace(
                row.observation, case_id=f"long-{row.observation.case_id}", group_id=f"long-{row.observation.group_id}"
            ),
        )
        for row in bad
    ]
    rules = protocol(critical_slices=("long",), minimumCriticalSliceGroups=10, nonInferiorityMargin=-0.08)
    report = decided([*good, *bad], rules=rules, plan=analysis(rules, slice_gates=("long",)))
    assert gate(report, "paired-quality").state == "passed"
    assert gate(report, "slice-quality", "long").state == "failed"
    assert gate(report, "minimum-critical-slice-groups", "long").actual == 50.0
    assert report.decision is not None and report.decision.status == "HOLD"


def test_a_cascade_without_route_signals_is_unknown_and_not_a_pass() -> None:
    report = decided(rows(15), kind="cascade")
    assert report.decision is not None and report.decision.evidence is not None
    assert report.decision.evidence.unrouted == 100
    assert report.decision.status == "INSUFFICIENT_EVIDENCE"


def test_a_cascade_asks_the_champion_where_its_predicate_holds() -> None:
    hard = [replace(row, route_signal=0.9) for row in rows(16, candidate_score=0.2)]
    report = decided(hard, kind="cascade")
    assert report.decision is not None and report.decision.status == "PASS"
    assert gate(report, "paired-quality").actual == 0.0
    assert gate(report, "maximum-p95-ttft").evidence_class == "modeled"


def test_development_nominates_the_cheapest_policy_that_passes() -> None:
    rules = protocol()
    policies = policy_space(rules, "2026-02-01T00:00:00.000Z")
    report = decided(rows(17, signal=0.1), rules=rules, policies=policies, phase="development")
    decision = report.decision
    assert decision is not None
    assert decision.status == "NOMINATED"
    assert {item.status for item in decision.policies} == {"PASS"}
    assert decision.policy_digest == min(item.policy_digest for item in policies), "both cost the same here"
    worse = decided(rows(17, signal=0.1, candidate_score=0.5), rules=rules, policies=policies, phase="development")
    assert worse.decision is not None and worse.decision.status == "NO_CANDIDATE"
    assert worse.decision.summary is None


def test_the_same_rows_in_any_order_give_the_same_bytes() -> None:
    found = changed(rows(18, groups=90, replicates=2), "champion", 3, lost)
    shuffled = list(found)
    random.Random(5).shuffle(shuffled)
    assert decided(found).canonical() == decided(shuffled).canonical()


def test_replicates_make_a_case_more_exact_and_not_more_important() -> None:
    single = rows(19, groups=90)
    again = [
        replace(row, observation=replace(row.observation, replicate=1))
        for row in single
        if row.observation.case_id == "case-000"
    ]
    one, two = decided(single), decided([*single, *again])
    assert gate(two, "minimum-mean-score").actual == gate(one, "minimum-mean-score").actual


def test_percentiles_of_itl_and_tpot_are_those_worked_out_by_hand() -> None:
    """A hundred groups of one call each: the 95th of 100 values, and Clopper and Pearson's bounds of 5 % of 100 calls.

    At 95 % confidence none of 100 beyond a value bounds the share to 3.6 %, one to 5.4 %: the upper end is the largest value.
    Eleven of 100 beyond do not leave 5 % possible: the lower end is no lower than the ninetieth value.
    """
    found = []
    for row in rows(7):
        place = int(row.observation.case_id[-3:]) + 1
        slower = 3.0 if row.observation.profile_id == "candidate" else 1.0
        observation = replace(row.observation, itl_p50_ms=slower * place, tpot_ms=2 * slower * place)
        found.append(replace(row, observation=observation))
    decision = decided(found).decision
    assert decision is not None
    shown = {(item.id, item.side): item for item in decision.figures}
    for name, side, step in (
        ("p95-itl", "champion", 1),
        ("p95-itl", "policy", 3),
        ("p95-tpot", "champion", 2),
        ("p95-tpot", "policy", 6),
    ):
        item = shown[name, side]
        assert item.interval is not None
        assert (item.estimate, item.interval.high) == (95 * step, 100 * step)
        assert item.interval.low is not None and 90 * step <= item.interval.low < 95 * step
        assert (item.unit, item.evidence_class, item.executions) == ("ms", "measured", 100)


def test_a_score_of_nearly_nothing_is_written_without_a_sign() -> None:
    assert [words.amount(value, "score") for value in (-0.0004, 0.0004, -0.0006)] == ["0.000", "0.000", "-0.001"]
