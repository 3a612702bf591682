"""One view of both analyses' decisions: what failed, what lacks, what waits, which policy was selected."""

from __future__ import annotations

import pytest

from tasc_collector.contracts.policy import policy_space
from tasc_collector.contracts.report import GateResult, PolicyResult
from tasc_collector.errors import DigestMismatch, InputError, NotAuthorized
from tasc_pipeline.control.controller_sources import development_assessment, holdout_assessment
from tasc_pipeline.control.decided import MISSING_CAPACITY, of_decision, of_report
from tests.support.engine_v2_world import PROTOCOL
from tests.support.made_decisions import made_decision, made_report

KEY = "window-1.r01-01234567"
TERMS = PROTOCOL.record
POLICIES = {policy.policy_digest: policy for policy in policy_space(TERMS, TERMS.created_at)}
POLICY = next(policy for policy in POLICIES.values() if policy.kind == "fast-only")


def gate(name: str, state: str, actual: float | None = 1.0) -> GateResult:
    return GateResult(
        id=name, operator="<=", threshold=0.5, actual=actual, interval=None,
        evidence_class="unavailable" if actual is None else "measured", passed=state == "passed", reason=None,
        state=state,  # type: ignore[arg-type]  # a state as text
    )  # fmt: skip


def test_both_analyses_give_one_view_under_their_own_digests() -> None:
    decision = made_decision(TERMS, POLICY, "holdout", "HOLD")
    report = made_report(decision, KEY)
    first, second = of_decision(decision), of_report(report, POLICIES)
    assert first.decision_digest == decision.decision_digest
    assert second.decision_digest == report.digest
    for name in ("phase", "status", "protocol_digest", "trace_set_digest", "selected_policy", "policies"):
        assert getattr(first, name) == getattr(second, name)
    assert first.read_policies[0].failed == {"maximum-p95-ttft"}
    assert holdout_assessment(second).projection.decision_digest == report.digest


def test_what_is_undecided_lacks_evidence_and_fails_nothing() -> None:
    gates = (
        gate("paired-quality", "undecided"),
        gate("minimum-service-capacity", "unavailable", None),
        gate("maximum-failure-rate", "passed", 0.1),
        gate("maximum-p95-ttft", "failed"),
    )
    decision = made_decision(TERMS, POLICY, "holdout", "INSUFFICIENT_EVIDENCE", reasons=["evaluator-abstention"])
    found = of_report(made_report(decision, KEY, gates=gates), POLICIES).policies[0]
    assert found.failed == {"maximum-p95-ttft"}
    assert found.lacking == {"paired-quality", MISSING_CAPACITY, "maximum-p95-ttft"}
    assert of_decision(decision).policies[0].lacking == {"evaluator-abstention"}
    held = made_report(made_decision(TERMS, POLICY, "holdout", "HOLD"), KEY, gates=gates)
    assert of_report(held, POLICIES).policies[0].lacking == frozenset()


def test_development_selects_only_what_it_nominates() -> None:
    nominated = of_report(made_report(made_decision(TERMS, POLICY, "development", "NOMINATED"), KEY), POLICIES)
    assert nominated.selected_policy is not None
    assert (nominated.selected_policy.policy_digest, nominated.selected_policy.issued_at) == (
        POLICY.policy_digest,
        POLICY.issued_at,
    )
    decision = made_decision(TERMS, POLICY, "development", "NO_CANDIDATE")
    ruled = tuple(
        PolicyResult(policy_digest=digest, status="HOLD", gates=(gate("maximum-p95-ttft", "failed"),))
        for digest in sorted(POLICIES)
    )
    none = of_report(made_report(decision, KEY, policies=ruled), POLICIES)
    assert none.selected_policy is None and len(none.read_policies) == len(POLICIES)
    assert development_assessment(none).projection.status == "NO_CANDIDATE"


@pytest.mark.parametrize("reason", ["before-watermark", "window-not-yet-sealed-at-assessment-time"])
def test_a_decision_before_its_watermark_waits_and_is_no_fact(reason: str) -> None:
    decision = of_decision(made_decision(TERMS, POLICY, "holdout", "STALE", stale=[reason]))
    assert decision.waits
    with pytest.raises(NotAuthorized, match="says nothing yet"):
        holdout_assessment(decision)
    stale = of_decision(made_decision(TERMS, POLICY, "holdout", "STALE", stale=["protocol-expired"]))
    assert not stale.waits and holdout_assessment(stale).projection.status == "STALE"


def test_a_report_that_cannot_be_a_fact_is_refused() -> None:
    decision = made_decision(TERMS, POLICY, "holdout", "PASS")
    with pytest.raises(DigestMismatch, match="not one of the study's"):
        of_report(made_report(decision, KEY), {})
    with pytest.raises(InputError, match="holds no decision"):
        of_report(made_report(decision, KEY, sources=None), POLICIES)
    with pytest.raises(InputError, match="the decision is of phase holdout"):
        development_assessment(of_decision(decision))
