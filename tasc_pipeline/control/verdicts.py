"""The assessment of a comparison: a pure function of sealed inputs, the same bytes for the same inputs.

Procedure:

1. Observations are put in one order, so that the order in which they came changes nothing; counts are taken per profile
   and add up to what was planned.
2. Each candidate is compared with the champion (``comparing``), on its own margins' terms and at its own level: a study
   with several candidates asks several questions.
3. What is not known, and what should not be read over, is said in words.

Whatever is drawn comes from generators that depend on the rule's seed, the window and the figure only. Figures keep
nine significant digits, so that two machines agree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tasc_collector.contracts.collection import CollectionPlan
from tasc_collector.contracts.comparison import Comparison
from tasc_collector.contracts.report import AssessmentReport, ComparisonResult, WindowSummary
from tasc_pipeline.control.comparing import Question, compare
from tasc_pipeline.control.drift import DRIFT_P_VALUE, MISMATCH_EVIDENCE
from tasc_pipeline.control.fairness import Conditions
from tasc_pipeline.control.observations import Observation, ordered
from tasc_pipeline.control.sentences import NAMES
from tasc_pipeline.control.summaries import counts_of, missing_words, profile_summary, timing_warnings

ENGINE = "tasc-comparison-engine-4"


@dataclass(frozen=True, slots=True)
class AssessmentInputs:
    """What an assessment is a function of.

    Args:
        comparison: margins and rule.
        plan: what was to be collected.
        observations: one per planned execution.
        trace_set_digest: digest over the accepted envelopes.
        as_of: the instant the assessment speaks for: the window's close.
        earlier: per candidate, what the study's windows that closed before have left; rules a recurring study.
        conditions: per profile, load and throttling while the window was open.
    """

    comparison: Comparison
    plan: CollectionPlan
    observations: Sequence[Observation]
    trace_set_digest: str
    as_of: str
    earlier: Mapping[str, Sequence[WindowSummary]] = field(default_factory=dict)
    conditions: Mapping[str, Conditions] = field(default_factory=dict)


def assess_comparison(inputs: AssessmentInputs) -> AssessmentReport:
    """Assess one closed window of a comparison; see the procedure of this module."""
    plan = inputs.plan
    rows = ordered(inputs.observations)
    counts = counts_of(rows)
    results = tuple(_result(inputs, rows, candidate) for candidate in inputs.comparison.candidate_profile_ids)
    targets = sorted(plan.targets, key=lambda target: (target.role != "champion", target.profile_id))
    return AssessmentReport(
        engine=ENGINE,
        study_id=plan.study_id,
        study_kind="comparison",
        window_key=plan.window_key,
        protocol_digest=plan.protocol_digest,
        declaration_digest=plan.declaration_digest,
        plan_digest=plan.digest,
        trace_set_digest=inputs.trace_set_digest,
        analysis_plan_digest=plan.analysis_plan_digest,
        as_of=inputs.as_of,
        counts=counts,
        coverage=(counts.success + counts.failure) / counts.planned if counts.planned else None,
        profiles=tuple(profile_summary(rows, target.profile_id, target.role) for target in targets),
        comparisons=results,
        decision=None,
        warnings=(*timing_warnings(rows), *(line for result in results for line in _sequence_warnings(result))),
        missing=missing_words(rows),
    )


def _result(inputs: AssessmentInputs, rows: Sequence[Observation], candidate: str) -> ComparisonResult:
    question = Question(
        rule=inputs.comparison.rule,
        margins=inputs.comparison.margins,
        window_key=inputs.plan.window_key,
        as_of=inputs.as_of,
        champion=inputs.plan.champion.profile_id,
        candidate=candidate,
    )
    return compare(question, rows, inputs.earlier.get(candidate, ()), inputs.conditions)


def _sequence_warnings(result: ComparisonResult) -> list[str]:
    sequence, name = result.sequence, result.candidate_profile_id
    if sequence is None:
        return []
    lines = [
        f"{name}: {NAMES[item.metric]} {item.statistic} differs between windows by more than its error"
        for item in sequence.drift
        if item.p_value < DRIFT_P_VALUE
    ]
    if sequence.mismatch_evidence >= MISMATCH_EVIDENCE:
        lines.append(f"{name}: one side loses more answers than the other (sample-ratio mismatch)")
    return lines
