"""A decision about a window becomes its report, whichever analysis made it. Pure.

What is said of the executions themselves (counts, latencies, what is not known of them) is said here, once; the decision
with its sentence, warnings and gaps comes from its analysis.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tasc_collector.contracts.protocol import ExperimentProtocol
from tasc_collector.contracts.report import AssessmentReport, DecisionResult
from tasc_pipeline.control.observations import Observation
from tasc_pipeline.control.summaries import counts_of, missing_words, profile_summary, timing_warnings


@dataclass(frozen=True, slots=True)
class DecidedWindow:
    """Which window it is.

    Args:
        study_id: of the study.
        window_key: of the window.
        collected_as: key of revision 1, whose executions they are. It is part of every seed, so that a revision without
            other evidence draws nothing anew.
        declaration_digest: of its declaration.
        plan_digest: of the plan it was collected by.
        policy_digest: of the frozen policy.
        trace_set_digest: digest over the accepted envelopes.
        start: first instant of the window.
        watermark: evidence counts until then.
    """

    study_id: str
    window_key: str
    collected_as: str
    declaration_digest: str
    plan_digest: str
    policy_digest: str
    trace_set_digest: str
    start: str
    watermark: str


def window_report(
    window: DecidedWindow,
    protocol: ExperimentProtocol,
    decision: DecisionResult,
    rows: Sequence[Observation],
    *,
    engine: str,
    protocol_digest: str,
    analysis_digest: str,
    as_of: str,
    coverage: float | None,
    warnings: Sequence[str],
    missing: Sequence[str],
) -> AssessmentReport:
    """The report of a decision.

    Args:
        window: which window it is.
        protocol: whose profiles are told of.
        decision: what was decided.
        rows: one per planned execution, in their fixed order.
        engine: the analysis, with its version.
        protocol_digest: of the protocol as it was read.
        analysis_digest: of the plan that selects the analysis.
        as_of: the instant that the decision speaks for.
        coverage: share of the evidence that is there; null where nothing was judged.
        warnings: what the analysis warns of.
        missing: what it lacks, in words.
    """
    return AssessmentReport(
        engine=engine,
        study_id=window.study_id,
        study_kind="decision",
        window_key=window.window_key,
        protocol_digest=protocol_digest,
        declaration_digest=window.declaration_digest,
        plan_digest=window.plan_digest,
        trace_set_digest=window.trace_set_digest,
        analysis_plan_digest=analysis_digest,
        as_of=as_of,
        counts=counts_of(rows),
        coverage=coverage,
        profiles=(
            profile_summary(rows, protocol.champion_profile_id, "champion"),
            *(profile_summary(rows, name, "candidate") for name in sorted(protocol.candidate_profile_ids)),
        ),
        comparisons=(),
        decision=decision,
        warnings=(*timing_warnings(rows), *warnings),
        missing=(*missing_words(rows), *missing),
    )
