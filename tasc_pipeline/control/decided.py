"""What a controller and a proposal read of a decision, whichever analysis made it. Pure.

Rules:

1. Engine v2's decision is taken as it is, under its own digest; a decision of our own analysis under its report's.
2. A gate *failed* where its value is known and does not hold; by our own analysis, where its whole interval is beyond.
   A gate that is undecided or unknown is no failure: it is what evidence *lacks*.
3. Missing capacity has one name in both, because it is lacking in another way than evidence is.
4. A decision that is STALE only because its window's watermark is still to come *waits*: it is made again after that, and
   is never recorded, because a controller does not come back from STALE.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from tasc_collector.contracts.controller_facts import SelectedPolicy
from tasc_collector.contracts.decision import AssessmentDecision, CandidateAssessment
from tasc_collector.contracts.policy import PolicyBundle
from tasc_collector.contracts.report import AssessmentReport, GateResult
from tasc_collector.errors import DigestMismatch, InputError

Phase = Literal["development", "holdout", "window"]
MISSING_CAPACITY: Final = "required-service-capacity-unavailable"
CAPACITY_GATE: Final = "minimum-service-capacity"
_WAITS: Final = frozenset({"before-watermark", "window-not-yet-sealed-at-assessment-time"})
"""Stale reasons of rule 4, of our own analysis and of engine v2."""


@dataclass(frozen=True, slots=True)
class DecidedPolicy:
    """One policy of a decision.

    Args:
        policy_digest: the policy.
        failed: ids of the gates that failed.
        lacking: why evidence was insufficient; empty where it was not.
    """

    policy_digest: str
    failed: frozenset[str]
    lacking: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """A decision on a study's development, holdout or window.

    Args:
        phase: what was decided on.
        status: of the decision.
        decision_digest: by which it is recorded (rule 1).
        assessment_context_digest: when and by which trust.
        protocol_digest: of the study.
        dataset_digest: of the joined rows.
        trace_set_digest: of the traces.
        evaluator_set_digest: of the evidence.
        window_manifest_digest: of a window.
        selected_policy: the nominated or frozen policy.
        stale_reasons: why it is STALE.
        policies: what was ruled on.
    """

    phase: Phase
    status: str
    decision_digest: str
    assessment_context_digest: str
    protocol_digest: str
    dataset_digest: str
    trace_set_digest: str
    evaluator_set_digest: str
    window_manifest_digest: str | None
    selected_policy: SelectedPolicy | None
    stale_reasons: tuple[str, ...]
    policies: tuple[DecidedPolicy, ...]

    @property
    def waits(self) -> bool:
        """Whether it says nothing yet (rule 4)."""
        return self.status == "STALE" and not _WAITS.isdisjoint(self.stale_reasons)

    @property
    def read_policies(self) -> tuple[DecidedPolicy, ...]:
        """The selected policy, or every policy where none was selected."""
        selected = self.selected_policy
        return tuple(item for item in self.policies if selected is None or item.policy_digest == selected.policy_digest)


def of_decision(decision: AssessmentDecision) -> Decided:
    """A decision of engine v2."""
    policy = decision.selected_policy
    return Decided(
        phase=decision.phase,
        status=decision.status,
        decision_digest=decision.decision_digest,
        assessment_context_digest=decision.assessment_context_digest,
        protocol_digest=decision.protocol_digest,
        dataset_digest=decision.dataset_digest,
        trace_set_digest=decision.trace_set_digest,
        evaluator_set_digest=decision.evaluator_set_digest,
        window_manifest_digest=decision.window_manifest_digest,
        selected_policy=None if policy is None else _selected(policy),
        stale_reasons=decision.stale_reasons,
        policies=tuple(_candidate(item) for item in decision.candidates),
    )


def of_report(report: AssessmentReport, policies: Mapping[str, PolicyBundle]) -> Decided:
    """A decision of our own analysis.

    Args:
        report: of a decision study's window.
        policies: the study's policy bundles by digest.

    Raises:
        InputError: it is the report of a comparison.
        DigestMismatch: it selects a policy that the study has no file of.
    """
    decision = report.decision
    sources = None if decision is None else decision.sources
    if decision is None or sources is None:
        raise InputError(
            "the report holds no decision",
            where=report.window_key,
            field="decision",
            rule="only windows of a decision study move a controller",
            way_out=f"assess the window: tasc assess {report.window_key}",
        )
    nominates = sources.phase != "development" or decision.status == "NOMINATED"
    if nominates and decision.policy_digest not in policies:
        raise DigestMismatch(
            "the report's policy is not one of the study's",
            where=report.window_key,
            field="decision.policyDigest",
            way_out="restore the files of the study's policies/ folder",
        )
    ruled: Sequence[tuple[str, str, tuple[GateResult, ...]]] = [
        (item.policy_digest, item.status, item.gates) for item in decision.policies
    ] or [(decision.policy_digest, decision.status, decision.gates)]
    return Decided(
        phase=sources.phase,
        status=decision.status,
        decision_digest=report.digest,
        assessment_context_digest=sources.assessment_context_digest,
        protocol_digest=report.protocol_digest,
        dataset_digest=sources.dataset_digest,
        trace_set_digest=report.trace_set_digest,
        evaluator_set_digest=sources.evaluator_set_digest,
        window_manifest_digest=sources.window_manifest_digest,
        selected_policy=_selected(policies[decision.policy_digest]) if nominates else None,
        stale_reasons=decision.reasons if decision.status == "STALE" else (),
        policies=tuple(
            DecidedPolicy(
                digest,
                frozenset(gate.id for gate in gates if gate.state == "failed"),
                frozenset(_lacks(gate) for gate in gates if gate.state != "passed")
                if status == "INSUFFICIENT_EVIDENCE"
                else frozenset(),
            )
            for digest, status, gates in ruled
        ),
    )


def _selected(policy: PolicyBundle) -> SelectedPolicy:
    return SelectedPolicy(policy_digest=policy.policy_digest, issued_at=policy.issued_at, expires_at=policy.expires_at)


def _candidate(item: CandidateAssessment) -> DecidedPolicy:
    return DecidedPolicy(
        item.policy_digest,
        frozenset(gate.id for gate in item.gates if gate.actual is not None and not gate.passed),
        frozenset(item.insufficiency_reasons),
    )


def _lacks(gate: GateResult) -> str:
    return MISSING_CAPACITY if gate.id == CAPACITY_GATE else gate.id
