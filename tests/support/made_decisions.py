"""Decisions and reports written by hand: valid records with as little in them as a controller reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tasc_collector.contracts.decision import (
    AssessmentDecision,
    Bounds,
    CandidateAssessment,
    Coverage,
    Estimator,
    Gate,
    Inference,
    Metric,
    Metrics,
)
from tasc_collector.contracts.policy import PolicyBundle, control_policy
from tasc_collector.contracts.protocol import ExperimentProtocol
from tasc_collector.contracts.report import (
    AssessmentReport,
    DecisionResult,
    DecisionSources,
    ExecutionCounts,
    GateResult,
    PolicyResult,
)

D = "sha256:" + "3" * 64
SETS = {"dataset_digest": D, "trace_set_digest": D, "evaluator_set_digest": D}
_UNKNOWN = Metric(value=None, evidence_class="unavailable")
_METRICS = Metrics(**dict.fromkeys(Metrics.model_fields, _UNKNOWN))
_COVERAGE = Coverage(
    case_count=0, replicate_count=0, group_count=0, effective_traffic_mass=0, critical_slice_groups=(), failure_count=0,
    missing_evidence_count=0, evidence_coverage=0,
)  # fmt: skip
_INFERENCE = Inference(
    alpha=0.05, case_count=1, replicate_count=1, group_count=1, effective_traffic_mass=1, estimate=0.1,
    interval=Bounds(lo=0.0, hi=0.2), iterations=100, seed=1, positive=False,
)  # fmt: skip


def _candidate(policy: PolicyBundle, status: str, reasons: Sequence[str]) -> CandidateAssessment:
    failed = (
        Gate(
            id="maximum-p95-ttft", operator="<=", threshold=100.0, actual=200.0, evidence_class="measured", passed=False
        ),
    )
    gates = failed if status == "HOLD" else ()
    rejected = (
        ("stale",) if status == "STALE" else tuple(sorted((*reasons, *(f"failed-gate:{gate.id}" for gate in gates))))
    )
    return CandidateAssessment(
        policy=policy,
        policy_digest=policy.policy_digest,
        status=status,  # type: ignore[arg-type]  # a status as text
        replay=(),
        metrics=_METRICS,
        gates=gates,
        coverage=_COVERAGE,
        inference=_INFERENCE if status in ("PASS", "HOLD") else None,
        insufficiency_reasons=tuple(reasons),
        rejection_reasons=rejected,
    )


def made_decision(
    protocol: ExperimentProtocol,
    policy: PolicyBundle,
    phase: str,
    status: str,
    *,
    reasons: Sequence[str] = (),
    stale: Sequence[str] = (),
    **changes: Any,
) -> AssessmentDecision:
    """A decision on one policy.

    Args:
        protocol: of the study.
        policy: the candidate policy.
        phase: development, holdout or window.
        status: of the decision.
        reasons: why evidence is insufficient.
        stale: why it is stale.
        changes: fields that differ, such as the set digests.
    """
    candidate = {"NOMINATED": "PASS", "NO_CANDIDATE": "HOLD"}.get(status, status)
    selected = policy if phase != "development" or status == "NOMINATED" else None
    control = control_policy(protocol, policy.issued_at)
    return AssessmentDecision.issue(
        **{
            "phase": phase,
            "status": status,
            "assessment_context_digest": D,
            "protocol_digest": protocol.digest,
            **SETS,
            "window_manifest_digest": None,
            "estimator": Estimator(alpha=0.05, iterations=100, seed=1),
            "control": _candidate(control, "STALE" if status == "STALE" else "PASS", ()),
            "candidates": (_candidate(policy, candidate, reasons),),
            "selected_policy": selected,
            "selected_policy_digest": None if selected is None else selected.policy_digest,
            "stale_reasons": tuple(stale),
            "warnings": (),
            "unavailable_metrics": (),
            **changes,
        }
    )


def made_report(
    decision: AssessmentDecision, window_key: str, *, engine: str = "tasc-decision-engine-1", **changes: Any
) -> AssessmentReport:
    """The report of a decision, as our own analysis writes it.

    Args:
        decision: what was decided.
        window_key: of the window.
        engine: which analysis made it.
        changes: fields of the decision in the report that differ.
    """
    shown = decision.candidates[0]
    gates = tuple(
        GateResult(
            id=gate.id, operator=gate.operator, threshold=gate.threshold, actual=gate.actual, interval=None,
            evidence_class=gate.evidence_class, passed=gate.passed, reason=None,
            state="passed" if gate.passed else "failed",
        )
        for gate in shown.gates
    )  # fmt: skip
    fields: dict[str, Any] = {
        "status": decision.status,
        "policy_digest": shown.policy_digest,
        "gates": gates,
        "reasons": decision.stale_reasons,
        "sentence": "made by hand",
        "policies": (PolicyResult(policy_digest=shown.policy_digest, status=shown.status, gates=gates),)
        if decision.phase == "development"
        else (),
        "sources": DecisionSources(
            phase=decision.phase,
            assessment_context_digest=decision.assessment_context_digest,
            dataset_digest=decision.dataset_digest,
            evaluator_set_digest=decision.evaluator_set_digest,
            cost_model_digest=None,
            window_manifest_digest=decision.window_manifest_digest,
        ),
    }
    return AssessmentReport(
        engine=engine,
        study_id="choice",
        study_kind="decision",
        window_key=window_key,
        protocol_digest=decision.protocol_digest,
        declaration_digest=D,
        plan_digest=D,
        trace_set_digest=decision.trace_set_digest,
        analysis_plan_digest=D,
        as_of="2026-11-29T00:00:00.000Z",
        counts=ExecutionCounts(
            planned=0, success=0, failure=0, sent_unknown=0, not_sent=0, not_attempted=0, reasons=()
        ),
        coverage=None,
        profiles=(),
        comparisons=(),
        decision=DecisionResult(**{**fields, **changes}),
        warnings=(),
        missing=(),
    )
