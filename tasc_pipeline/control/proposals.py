"""The next experiment that a decision suggests, bounded by a budget, or why there is none (section 3.16). Pure.

Rules:

1. Reasons to hold are asked first, in this order: a holdout decision is never tuned on; a window that passes needs no
   experiment; a stale decision is repaired, not explored, unless only the evaluator made it stale; a budget of fewer
   than two executions or attempts, or of no time, compares nothing. Then the diagnosis; without one there is none to
   propose; and what was registered before is not proposed again.
2. ``_SYMPTOMS`` is the order of diagnoses; the first that shows is the diagnosis. Missing capacity alone is never
   insufficient evidence, and a gate whose value is not known shows nothing: an interval that was not computed is no
   regression.
3. A development decision without a nomination is read over all its candidates, any other over its own policy.
4. A proposal changes one variable, decides nothing and registers nothing: the operator does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from tasc_collector.contracts.proposal import (
    DIAGNOSES,
    CapabilityFinding,
    CapabilityRequirement,
    ChangedCapability,
    ChangedVariable,
    Diagnosis,
    EvidenceRequirement,
    ExpectedDecision,
    ExperimentBudget,
    ExperimentHistory,
    HeldExperiment,
    HoldReason,
    ProposedExperiment,
    StopCondition,
    intent_digest,
)
from tasc_pipeline.control.decided import MISSING_CAPACITY, Decided

Proposal: TypeAlias = ProposedExperiment | HeldExperiment

EVALUATOR_REASON: Final = "evaluator-"
"""Every stale reason that only the evaluator's side can cause begins so."""
SLICE_QUALITY: Final = "slice-quality"
"""Gates on one critical slice's score; the original had the diagnosis but never such a gate."""
NOBODY: Final = "sha256:" + "0" * 64

HYPOTHESES: Final[Mapping[Diagnosis, str]] = {
    "insufficient-evidence": "More paired evidence under the same controls makes the assessment decidable.",
    "evaluator-drift": "An evaluator calibrated again under the same rubric gives evidence that is trusted now.",
    "quality-regression": "Another policy of the same space keeps the champion's quality within the margin.",
    "critical-slice-regression": "Another policy of the same space keeps the quality of the critical slices.",
    "ttft-regression": "Another execution profile reaches the gate on time to first token.",
    "tail-latency-regression": "Another execution profile reaches the gate on end-to-end tail latency.",
    "error-regression": "Another execution profile reaches the gate on failures.",
    "cost-regression": "Another execution profile reaches the gate on cost.",
    "unavailable-capacity": "Observed capacity of exactly the nominated policy makes the window decidable.",
    "capability-mismatch": "A profile that has the required capability can be assessed.",
    "sealed-shadow-replication": "The nomination holds in a sealed shadow window of other cases.",
}
"""What each proposal supposes; fixed, so that one experiment always has one intent digest."""


@dataclass(frozen=True, slots=True)
class Symptoms:
    """What of a decision matters for the next experiment.

    Args:
        decision: the decision.
        reasons: why evidence was insufficient.
        failed: ids of gates with a known value that does not hold.
        finding: a required capability that a profile of this protocol lacks, if one is known.
    """

    decision: Decided
    reasons: frozenset[str]
    failed: frozenset[str]
    finding: CapabilityFinding | None

    @classmethod
    def of(cls, decision: Decided, history: ExperimentHistory) -> Symptoms:
        """Read them from a decision and what was found about its protocol before (rule 3)."""
        read = decision.read_policies
        findings = sorted(
            (item for item in history.findings if item.protocol_digest == decision.protocol_digest),
            key=lambda item: (item.profile_id, item.capability_id, item.capability_evidence_digest),
        )
        return cls(
            decision,
            frozenset(reason for item in read for reason in item.lacking)
            if decision.status == "INSUFFICIENT_EVIDENCE"
            else frozenset(),
            frozenset(gate for item in read for gate in item.failed),
            findings[0] if findings else None,
        )

    def fails(self, *gates: str) -> bool:
        """Whether one of these gates has a value that does not hold."""
        return not self.failed.isdisjoint(gates)


_SYMPTOMS: Final[Mapping[Diagnosis, Callable[[Symptoms], bool]]] = {
    "insufficient-evidence": lambda found: bool(found.reasons - {MISSING_CAPACITY}),
    "evaluator-drift": lambda found: found.decision.status == "STALE",
    "quality-regression": lambda found: found.fails("paired-quality", "minimum-mean-score"),
    "critical-slice-regression": lambda found: any(gate.startswith(SLICE_QUALITY) for gate in found.failed),
    "ttft-regression": lambda found: found.fails("maximum-p95-ttft", "maximum-share-beyond-ttft"),
    "tail-latency-regression": lambda found: found.fails("maximum-p95-end-to-end", "maximum-share-beyond-end-to-end"),
    "error-regression": lambda found: found.fails("maximum-failure-rate"),
    "cost-regression": lambda found: found.fails("maximum-cost-per-thousand"),
    "unavailable-capacity": lambda found: found.decision.phase == "window" and MISSING_CAPACITY in found.reasons,
    "capability-mismatch": lambda found: found.finding is not None,
    "sealed-shadow-replication": lambda found: (
        found.decision.phase == "development" and found.decision.status == "NOMINATED"
    ),
}
"""Rule 2: every diagnosis, first that shows."""


def propose(decision: Decided, history: ExperimentHistory, budget: ExperimentBudget) -> Proposal:
    """The next experiment after a decision, or why none is proposed.

    Args:
        decision: what was decided.
        history: what was registered and found before.
        budget: the most that the next experiment may use.
    """
    reason = _hold_reason(decision, budget)
    if reason is not None:
        return _held(decision, history, budget, reason)
    symptoms = Symptoms.of(decision, history)
    diagnosis = next((name for name, shows in _SYMPTOMS.items() if shows(symptoms)), None)
    if diagnosis is None:
        return _held(decision, history, budget, "no-actionable-diagnosis")
    fields = _proposed(symptoms, history, budget, diagnosis)
    # the intent covers only what is proposed, so it is taken from a draft whose own two digests do not count
    draft = ProposedExperiment.model_construct(**fields, experiment_intent_digest=NOBODY, decision_digest=NOBODY)
    intent = intent_digest(draft.to_json())
    known = next((item for item in history.registered_experiments if item.experiment_intent_digest == intent), None)
    if known is not None:
        return _held(
            decision,
            history,
            budget,
            "duplicate-registered-experiment",
            related_protocol_digest=known.registered_protocol_digest,
        )
    return ProposedExperiment.issue(**fields, experiment_intent_digest=intent)


def _hold_reason(decision: Decided, budget: ExperimentBudget) -> HoldReason | None:
    """Rule 1, before any diagnosis."""
    held: tuple[tuple[HoldReason, bool], ...] = (
        ("holdout-tuning-forbidden", decision.phase == "holdout"),
        ("assessment-already-passing", decision.phase == "window" and decision.status == "PASS"),
        (
            "structural-staleness",
            decision.status == "STALE"
            and not all(reason.startswith(EVALUATOR_REASON) for reason in decision.stale_reasons),
        ),
        (
            "insufficient-proposal-budget",
            budget.max_logical_executions < 2 or budget.max_attempts < 2 or budget.max_wall_clock_ms == 0,
        ),
    )
    return next((reason for reason, holds in held if holds), None)


def _proposed(
    symptoms: Symptoms, history: ExperimentHistory, budget: ExperimentBudget, diagnosis: Diagnosis
) -> dict[str, Any]:  # Any: fields of ProposedExperiment
    rule, decision, finding = DIAGNOSES[diagnosis], symptoms.decision, symptoms.finding
    changed: ChangedVariable | ChangedCapability
    evidence: tuple[EvidenceRequirement | CapabilityRequirement, ...]
    if diagnosis == "capability-mismatch" and finding is not None:
        changed = ChangedCapability(target_id=finding.capability_id, profile_id=finding.profile_id)
        evidence = (
            CapabilityRequirement(
                protocol_digest=finding.protocol_digest,
                profile_id=finding.profile_id,
                capability_id=finding.capability_id,
                evidence_digest=finding.capability_evidence_digest,
            ),
        )
    else:
        changed = ChangedVariable.model_validate({"kind": rule.variable, "target_id": rule.target_id})
        evidence = tuple(EvidenceRequirement(kind=kind) for kind in rule.evidence)
    return {
        **_common(decision, history, budget),
        "status": "PROPOSED",
        "diagnosis": diagnosis,
        "hypothesis": HYPOTHESES[diagnosis],
        "changed_variable": changed,
        "frozen_controls": rule.frozen_controls,
        "evidence_requirements": evidence,
        "stop_condition": StopCondition(budget_digest=budget.budget_digest),
        "expected_decision": ExpectedDecision(),
    }


def _held(
    decision: Decided,
    history: ExperimentHistory,
    budget: ExperimentBudget,
    reason: HoldReason,
    *,
    related_protocol_digest: str | None = None,
) -> HeldExperiment:
    return HeldExperiment.issue(
        **_common(decision, history, budget), hold_reason=reason, related_protocol_digest=related_protocol_digest
    )


def _common(
    decision: Decided, history: ExperimentHistory, budget: ExperimentBudget
) -> dict[str, Any]:  # Any: fields of either shape
    return {
        "parent_assessment_digest": decision.decision_digest,
        "parent_protocol_digest": decision.protocol_digest,
        "history_digest": history.history_digest,
        "budget": budget,
    }
