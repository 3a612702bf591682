"""The decision of engine v2 as a report that a person reads: the same gates and status, nothing computed anew. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tasc_collector.contracts.decision import AssessmentDecision, CandidateAssessment, Gate
from tasc_collector.contracts.protocol import ExperimentProtocol
from tasc_collector.contracts.report import (
    AssessmentReport,
    DecisionResult,
    DecisionSources,
    GateResult,
    Interval,
    PolicyResult,
)
from tasc_pipeline.control.decisions import gates, words
from tasc_pipeline.control.decisions.deciding import DecidedWindow
from tasc_pipeline.control.observations import Observation, ordered
from tasc_pipeline.control.summaries import counts_of, missing_words, profile_summary, timing_warnings

ENGINE = "tasc-assessment-engine-v2"


def report_of(
    decision: AssessmentDecision,
    window: DecidedWindow,
    protocol: ExperimentProtocol,
    observations: Sequence[Observation],
    *,
    as_of: str,
    analysis_digest: str,
    cost_model_digest: str | None,
    rejected: Mapping[str, int],
) -> AssessmentReport:
    """The report of an engine v2 decision.

    Args:
        decision: as the engine gave it.
        window: which window it is.
        protocol: of the study.
        observations: one per planned execution, for counts and latencies.
        as_of: of the assessment context.
        analysis_digest: of the analysis plan that selects this engine.
        cost_model_digest: of the plan's cost model.
        rejected: evidence that does not count, by reason.
    """
    rows = ordered(observations)
    shown = _shown(decision)
    found = tuple(_gate(item, shown) for item in shown.gates)
    reasons = decision.stale_reasons or shown.rejection_reasons
    waits = "window-not-yet-sealed-at-assessment-time" in decision.stale_reasons
    result = DecisionResult(
        status=decision.status,
        policy_digest=shown.policy_digest,
        gates=found,
        reasons=tuple(sorted({reason.replace(":", ".") for reason in reasons})),
        sentence=words.of_engine(
            decision.status, shown.policy, found, reasons, window.window_key, as_of, window.watermark
        ),
        wait_until=window.watermark if waits else None,
        policies=tuple(
            PolicyResult(
                policy_digest=item.policy_digest,
                status=item.status,
                gates=tuple(_gate(gate, item) for gate in item.gates),
            )
            for item in decision.candidates
        )
        if decision.phase == "development"
        else (),
        sources=DecisionSources(
            phase=decision.phase,
            assessment_context_digest=decision.assessment_context_digest,
            dataset_digest=decision.dataset_digest,
            evaluator_set_digest=decision.evaluator_set_digest,
            cost_model_digest=cost_model_digest,
            window_manifest_digest=decision.window_manifest_digest,
        ),
    )
    return AssessmentReport(
        engine=ENGINE,
        study_id=window.study_id,
        study_kind="decision",
        window_key=window.window_key,
        protocol_digest=decision.protocol_digest,
        declaration_digest=window.declaration_digest,
        plan_digest=window.plan_digest,
        trace_set_digest=decision.trace_set_digest,
        analysis_plan_digest=analysis_digest,
        as_of=as_of,
        counts=counts_of(rows),
        coverage=shown.coverage.evidence_coverage,
        profiles=(
            profile_summary(rows, protocol.champion_profile_id, "champion"),
            *(profile_summary(rows, name, "candidate") for name in sorted(protocol.candidate_profile_ids)),
        ),
        comparisons=(),
        decision=result,
        warnings=(*timing_warnings(rows), *decision.warnings),
        missing=(*missing_words(rows), *words.missing(result, rejected, None)),
    )


def _shown(decision: AssessmentDecision) -> CandidateAssessment:
    """The frozen or nominated policy; else the one with the most gates passed."""
    if decision.selected_policy_digest is not None:
        return next(item for item in decision.candidates if item.policy_digest == decision.selected_policy_digest)
    return min(decision.candidates, key=lambda item: (-sum(gate.passed for gate in item.gates), item.policy_digest))


def _gate(found: Gate, candidate: CandidateAssessment) -> GateResult:
    name, _, slice_id = found.id.partition(":")
    inference = candidate.inference
    interval = None
    if name == gates.QUALITY.id and inference is not None:
        interval = Interval(
            low=inference.interval.lo,
            high=inference.interval.hi,
            confidence=1 - inference.alpha,
            method=inference.method,
        )
    unavailable = found.actual is None
    return GateResult(
        id=name,
        operator=found.operator,
        threshold=found.threshold,
        actual=found.actual,
        interval=interval,
        evidence_class=found.evidence_class,
        passed=found.passed,
        reason=None if found.passed else "nothing-is-known" if unavailable else "beyond-the-bound-as-a-point",
        state="passed" if found.passed else "unavailable" if unavailable else "failed",
        slice=slice_id or None,
        unit=gates.RULES[name].unit,
    )
