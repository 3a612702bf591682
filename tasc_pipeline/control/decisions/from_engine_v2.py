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
from tasc_pipeline.control.decisions.reporting import DecidedWindow, window_report
from tasc_pipeline.control.observations import Observation, ordered

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
    again = f"tasc assess {window.window_key}"
    result = result_of(decision, again, window.watermark, as_of=as_of, cost_model_digest=cost_model_digest)
    return window_report(
        window,
        protocol,
        result,
        ordered(observations),
        engine=ENGINE,
        protocol_digest=decision.protocol_digest,
        analysis_digest=analysis_digest,
        as_of=as_of,
        coverage=_shown(decision).coverage.evidence_coverage,
        warnings=decision.warnings,
        missing=words.missing(result, rejected, None, window.window_key),
    )


def result_of(
    decision: AssessmentDecision, again: str, watermark: str, *, as_of: str, cost_model_digest: str | None
) -> DecisionResult:
    """The decision with its sentence, as a person reads it.

    Args:
        decision: as the engine gave it.
        again: the command that makes the decision again, for the sentence.
        watermark: evidence counts until then.
        as_of: of the assessment context.
        cost_model_digest: of the study's cost model.
    """
    shown = _shown(decision)
    found = tuple(_gate(item, shown) for item in shown.gates)
    reasons = decision.stale_reasons or shown.rejection_reasons
    waits = "window-not-yet-sealed-at-assessment-time" in decision.stale_reasons
    return DecisionResult(
        status=decision.status,
        policy_digest=shown.policy_digest,
        gates=found,
        reasons=tuple(sorted({reason.replace(":", ".") for reason in reasons})),
        sentence=words.of_engine(decision.status, shown.policy, found, reasons, again, as_of, watermark),
        wait_until=watermark if waits else None,
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
