"""A bounded next experiment, or why there is none (original project, section 3.16).

Rules:

1. A budget covers at least one attempt per execution. A history names each experiment intent and each registered
   protocol once; it is put in canonical order before it is digested.
2. A proposal changes one variable, the one that its diagnosis points to, and freezes every control but those that the
   variable touches; its evidence requirements are the diagnosis's. ``DIAGNOSES`` is that table.
3. It stops at its budget's first limit, decides nothing itself, and its intent digest covers everything it proposes, so
   that the same experiment is recognized when it is proposed again.
4. Only the hold reason ``duplicate-registered-experiment`` names the protocol that was already registered.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final, Literal, Self

from pydantic import Discriminator, Field, Tag, model_validator

from tasc_collector.canonical import canonical_bytes, digest
from tasc_collector.contracts.base import Model, OptionalDigestRecord, Record
from tasc_collector.contracts.rules import require, require_unique
from tasc_collector.contracts.scalars import Digest, NonNegative, Slug, Text

INTENT_DOMAIN: Final = "tasc/experiment-intent/v2"

Diagnosis = Literal[
    "insufficient-evidence",
    "evaluator-drift",
    "quality-regression",
    "critical-slice-regression",
    "ttft-regression",
    "tail-latency-regression",
    "error-regression",
    "cost-regression",
    "unavailable-capacity",
    "capability-mismatch",
    "sealed-shadow-replication",
]
HoldReason = Literal[
    "holdout-tuning-forbidden",
    "assessment-already-passing",
    "structural-staleness",
    "insufficient-proposal-budget",
    "no-actionable-diagnosis",
    "duplicate-registered-experiment",
]
FrozenControl = Literal[
    "evaluator-calibration",
    "execution-profiles",
    "holdout-membership",
    "payload-policy",
    "policy-gates",
    "production-state",
    "routing-policy",
    "sampling-membership",
]
EvidenceKind = Literal[
    "paired-evaluator-evidence",
    "independent-group-coverage",
    "critical-slice-coverage",
    "observer-timing-evidence",
    "observer-failure-evidence",
    "attempt-cost-evidence",
    "exact-policy-capacity-evidence",
    "sealed-shadow-window-evidence",
    "evaluator-calibration-evidence",
]

_CONTROLS: Final[tuple[FrozenControl, ...]] = (
    "evaluator-calibration",
    "execution-profiles",
    "holdout-membership",
    "payload-policy",
    "policy-gates",
    "production-state",
    "routing-policy",
    "sampling-membership",
)
_THIRTY_DAYS_MS: Final = 30 * 24 * 60 * 60 * 1000


class ExperimentBudget(OptionalDigestRecord):
    """``tasc-experiment-budget-v1``: the most that a next experiment may use."""

    domain: ClassVar[str] = "tasc/experiment-budget/v1"
    self_digest_field: ClassVar[str | None] = "budget_digest"

    version: Literal["tasc-experiment-budget-v1"] = "tasc-experiment-budget-v1"
    max_logical_executions: Annotated[int, Field(ge=0, le=1_000_000)]
    max_attempts: Annotated[int, Field(ge=0, le=8_000_000)]
    max_cost_usd: NonNegative
    max_wall_clock_ms: Annotated[int, Field(ge=0, le=_THIRTY_DAYS_MS)]
    payload_policy: Literal["keyed-identities-only"] = "keyed-identities-only"
    budget_digest: Digest

    @model_validator(mode="after")
    def _covers(self) -> Self:
        require(self.max_attempts >= self.max_logical_executions, "maxAttempts must cover every logical execution")
        return self


class RegisteredExperiment(Model):
    """An experiment that followed from a proposal."""

    parent_protocol_digest: Digest
    experiment_intent_digest: Digest
    registered_protocol_digest: Digest
    outcome_assessment_digest: Digest | None


class CapabilityFinding(Model):
    """A capability that a study requires and a profile does not have."""

    kind: Literal["required-capability-mismatch"] = "required-capability-mismatch"
    protocol_digest: Digest
    profile_id: Slug
    capability_id: Slug
    capability_evidence_digest: Digest


class ExperimentHistory(OptionalDigestRecord):
    """``tasc-experiment-history-v1``: what was registered and found before."""

    domain: ClassVar[str] = "tasc/experiment-history/v1"
    self_digest_field: ClassVar[str | None] = "history_digest"

    version: Literal["tasc-experiment-history-v1"] = "tasc-experiment-history-v1"
    registered_experiments: Annotated[tuple[RegisteredExperiment, ...], Field(max_length=256)]
    findings: Annotated[tuple[CapabilityFinding, ...], Field(max_length=128)]
    history_digest: Digest

    @model_validator(mode="after")
    def _once(self) -> Self:
        registered = self.registered_experiments
        require_unique(
            (item.experiment_intent_digest for item in registered), "registeredExperiments: an intent may stand once"
        )
        require_unique(
            (item.registered_protocol_digest for item in registered), "registeredExperiments: a protocol may stand once"
        )
        require_unique(self.findings, "findings: a finding may stand once")
        return self

    @classmethod
    def digest_of(cls, value: dict[str, Any]) -> str:  # Any: a JSON object
        """Digest over the history in canonical order."""
        lists = ("registeredExperiments", "findings")
        ordered = {
            name: sorted(value[name], key=canonical_bytes)  # their text is ASCII: bytes sort as UTF-16 units do
            for name in lists
            if isinstance(value.get(name), (list, tuple))
        }
        return super().digest_of({**value, **ordered})


class ChangedVariable(Model):
    """The one thing that the next experiment varies."""

    kind: Literal[
        "evidence-collection",
        "evaluator-calibration",
        "routing-policy",
        "execution-profile",
        "capacity-observation",
        "evidence-window",
    ]
    target_id: Slug


class ChangedCapability(Model):
    """A required capability of one profile is what the next experiment varies."""

    kind: Literal["required-capability"] = "required-capability"
    target_id: Slug
    profile_id: Slug


class EvidenceRequirement(Model):
    """Evidence that the next experiment must bring."""

    kind: EvidenceKind


class CapabilityRequirement(Model):
    """Evidence about one capability of one profile."""

    kind: Literal["runtime-capability-evidence"] = "runtime-capability-evidence"
    protocol_digest: Digest
    profile_id: Slug
    capability_id: Slug
    evidence_digest: Digest


class StopCondition(Model):
    """The experiment ends at the first limit of its budget."""

    kind: Literal["first-budget-limit"] = "first-budget-limit"
    budget_digest: Digest


class ExpectedDecision(Model):
    """What follows from either outcome; neither deploys."""

    if_supported: Literal["REASSESS_WITH_REGISTERED_PROTOCOL"] = "REASSESS_WITH_REGISTERED_PROTOCOL"
    otherwise: Literal["HOLD"] = "HOLD"


@dataclass(frozen=True, slots=True)
class DiagnosisRule:
    """What a diagnosis proposes: the variable, the control that it releases (or none), the evidence it asks for."""

    variable: str
    target_id: str | None
    released: FrozenControl | None
    evidence: tuple[EvidenceKind, ...]

    @property
    def frozen_controls(self) -> tuple[FrozenControl, ...]:
        """Every control but the released one, in canonical order."""
        return tuple(control for control in _CONTROLS if control != self.released)


def _policy_rule(*evidence: EvidenceKind) -> DiagnosisRule:
    return DiagnosisRule("routing-policy", "selected-policy", "routing-policy", evidence)


def _profile_rule(*evidence: EvidenceKind) -> DiagnosisRule:
    return DiagnosisRule("execution-profile", "selected-profile", "execution-profiles", evidence)


DIAGNOSES: Final[Mapping[Diagnosis, DiagnosisRule]] = {
    "insufficient-evidence": DiagnosisRule(
        "evidence-collection",
        "assessment-evidence",
        None,
        ("independent-group-coverage", "observer-failure-evidence", "paired-evaluator-evidence"),
    ),
    "evaluator-drift": DiagnosisRule(
        "evaluator-calibration", "external-evaluator", "evaluator-calibration", ("evaluator-calibration-evidence",)
    ),
    "quality-regression": _policy_rule("independent-group-coverage", "paired-evaluator-evidence"),
    "critical-slice-regression": _policy_rule("critical-slice-coverage", "paired-evaluator-evidence"),
    "ttft-regression": _profile_rule(
        "observer-failure-evidence", "observer-timing-evidence", "paired-evaluator-evidence"
    ),
    "tail-latency-regression": _profile_rule(
        "observer-failure-evidence", "observer-timing-evidence", "paired-evaluator-evidence"
    ),
    "error-regression": _profile_rule("observer-failure-evidence", "paired-evaluator-evidence"),
    "cost-regression": _profile_rule("attempt-cost-evidence", "paired-evaluator-evidence"),
    "unavailable-capacity": DiagnosisRule(
        "capacity-observation", "nominated-window", None, ("exact-policy-capacity-evidence",)
    ),
    "capability-mismatch": DiagnosisRule("required-capability", None, "execution-profiles", ()),
    "sealed-shadow-replication": DiagnosisRule(
        "evidence-window",
        "sealed-shadow-window",
        "sampling-membership",
        ("independent-group-coverage", "paired-evaluator-evidence", "sealed-shadow-window-evidence"),
    ),
}
"""What each diagnosis leads to (original, section 3.16). A capability's target and evidence are its finding's."""


def _variable_form(value: Any) -> str:  # Any: a JSON value or a model
    kind = value.get("kind") if isinstance(value, dict) else getattr(value, "kind", None)
    return "capability" if kind == "required-capability" else "plain"


def _evidence_form(value: Any) -> str:  # Any: a JSON value or a model
    kind = value.get("kind") if isinstance(value, dict) else getattr(value, "kind", None)
    return "capability" if kind == "runtime-capability-evidence" else "plain"


Variable = Annotated[
    Annotated[ChangedVariable, Tag("plain")] | Annotated[ChangedCapability, Tag("capability")],
    Discriminator(_variable_form),
]
Requirement = Annotated[
    Annotated[EvidenceRequirement, Tag("plain")] | Annotated[CapabilityRequirement, Tag("capability")],
    Discriminator(_evidence_form),
]


class _ProposalDecision(Record):
    """What both outcomes have."""

    domain: ClassVar[str] = "tasc/experiment-proposal-decision/v2"
    self_digest_field: ClassVar[str | None] = "decision_digest"

    version: Literal["tasc-experiment-proposal-decision-v2"] = "tasc-experiment-proposal-decision-v2"
    parent_assessment_digest: Digest
    parent_protocol_digest: Digest
    history_digest: Digest
    budget: ExperimentBudget
    authority: Literal["operator-registration-required"] = "operator-registration-required"
    attestation: Literal["unattested"] = "unattested"
    decision_digest: Digest

    @model_validator(mode="after")
    def _budget_digest(self) -> Self:
        require(self.budget.budget_digest == self.budget.digest, "budget.budgetDigest must be that of the budget")
        return self


class ProposedExperiment(_ProposalDecision):
    """The next experiment, for the operator to register or not."""

    status: Literal["PROPOSED"] = "PROPOSED"
    diagnosis: Diagnosis
    hypothesis: Text
    changed_variable: Variable
    frozen_controls: Annotated[tuple[FrozenControl, ...], Field(min_length=1, max_length=8)]
    evidence_requirements: Annotated[tuple[Requirement, ...], Field(min_length=1, max_length=8)]
    stop_condition: StopCondition
    expected_decision: ExpectedDecision
    experiment_intent_digest: Digest

    @model_validator(mode="after")
    def _follows_from_diagnosis(self) -> Self:
        rule, changed = DIAGNOSES[self.diagnosis], self.changed_variable
        require(changed.kind == rule.variable, "changedVariable must be the one that the diagnosis points to")
        require(
            rule.target_id in (None, changed.target_id), "changedVariable.targetId must be the one of the diagnosis"
        )
        require(self.frozen_controls == rule.frozen_controls, "frozenControls must be those of the diagnosis, in order")
        if isinstance(changed, ChangedCapability):
            expected: tuple[Model, ...] = tuple(
                item
                for item in self.evidence_requirements[:1]
                if isinstance(item, CapabilityRequirement)
                and (item.protocol_digest, item.profile_id, item.capability_id)
                == (self.parent_protocol_digest, changed.profile_id, changed.target_id)
            )
        else:
            expected = tuple(EvidenceRequirement(kind=kind) for kind in rule.evidence)
        require(
            self.evidence_requirements == expected and bool(expected),
            "evidenceRequirements must be those of the diagnosis, in order",
        )
        return self

    @model_validator(mode="after")
    def _digests(self) -> Self:
        require(
            self.stop_condition.budget_digest == self.budget.budget_digest,
            "stopCondition.budgetDigest must be the budget's",
        )
        require(
            self.experiment_intent_digest == intent_digest(self.to_json()),
            "experimentIntentDigest must be that of the proposal's intent",
        )
        return self


class HeldExperiment(_ProposalDecision):
    """No next experiment, and why."""

    status: Literal["HOLD"] = "HOLD"
    hold_reason: HoldReason
    related_protocol_digest: Digest | None

    @model_validator(mode="after")
    def _related(self) -> Self:
        require(
            (self.hold_reason == "duplicate-registered-experiment") == (self.related_protocol_digest is not None),
            "relatedProtocolDigest is set exactly for duplicate-registered-experiment",
        )
        return self


_INTENT_FIELDS: Final = (
    "parentAssessmentDigest",
    "parentProtocolDigest",
    "diagnosis",
    "hypothesis",
    "changedVariable",
    "frozenControls",
    "evidenceRequirements",
    "stopCondition",
    "expectedDecision",
)


def intent_digest(value: Mapping[str, Any]) -> str:  # Any: a JSON object
    """Digest of what a proposal proposes, by which a repeated one is recognized.

    Args:
        value: JSON value of a ``ProposedExperiment``; its two own digests need not be right yet.
    """
    intent = {name: value[name] for name in _INTENT_FIELDS}
    budget_digest = value["budget"]["budgetDigest"]
    return digest(INTENT_DOMAIN, {"version": "tasc-experiment-intent-v2", "budgetDigest": budget_digest, **intent})
