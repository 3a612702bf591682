"""The decision of engine v2: ``tasc-assessment-decision-v2`` (original project, section 3.15).

Rules:

1. A value is null exactly where its evidence class is ``unavailable``; a gate passes exactly where its value holds.
2. A candidate with reasons is ``INSUFFICIENT_EVIDENCE`` and has no inference; one whose gates all pass is ``PASS``, else
   ``HOLD``. A ``STALE`` one has no rows, gates or inference.
3. Candidates stand in order of their policy digests. Development nominates one that passes; holdout and window have
   exactly one candidate, the frozen policy, and its status is the decision's.
4. A window's decision names its manifest, no other does. ``STALE`` is the decision's status exactly where there are
   stale reasons.

Nothing here is signed; the decision says so itself (``unattested``), and it never deploys.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from tasc_collector.contracts.base import Model, Record, SparseModel
from tasc_collector.contracts.policy import PolicyBundle
from tasc_collector.contracts.report import EvidenceClass
from tasc_collector.contracts.rules import Omittable, require, require_unique
from tasc_collector.contracts.scalars import Count, Digest, Finite, NonNegative, Positive, Ratio, Slug, Text
from tasc_collector.limits import MAX_ATTEMPTS, MAX_REPLAY_ROWS, MAX_SLICES

Phase = Literal["development", "holdout", "window"]
DecisionStatus = Literal["INSUFFICIENT_EVIDENCE", "NO_CANDIDATE", "NOMINATED", "PASS", "HOLD", "STALE"]
CandidateStatus = Literal["PASS", "HOLD", "INSUFFICIENT_EVIDENCE", "STALE"]
MetricName = Literal[
    "meanScore",
    "failureRate",
    "ttftMs",
    "endToEndLatencyMs",
    "costPerThousandRequestsUsd",
    "evidenceCoverage",
    "serviceCapacity",
]
_MAX_REASONS = 1_024


class Metric(SparseModel):
    """One value and how it is known; a reason where it is not."""

    omitted: ClassVar[frozenset[str]] = frozenset({"sourceDigest", "reason"})

    value: Finite | None
    evidence_class: EvidenceClass
    source_digest: Omittable[Digest] = None
    reason: Omittable[Text] = None

    @model_validator(mode="after")
    def _null_is_unavailable(self) -> Self:
        require(
            (self.value is None) == (self.evidence_class == "unavailable"),
            "value is null exactly where evidenceClass is unavailable",
        )
        return self


class Metrics(Model):
    """What a policy achieved; latencies are weighted 95th percentiles in milliseconds."""

    mean_score: Metric
    failure_rate: Metric
    ttft_ms: Metric
    end_to_end_latency_ms: Metric
    cost_per_thousand_requests_usd: Metric
    evidence_coverage: Metric
    service_capacity: Metric


class Gate(SparseModel):
    """One gate of the protocol."""

    omitted: ClassVar[frozenset[str]] = frozenset({"reason"})

    id: Text
    operator: Literal[">=", "<="]
    threshold: Finite
    actual: Finite | None
    evidence_class: EvidenceClass
    passed: bool
    reason: Omittable[Text] = None

    @model_validator(mode="after")
    def _holds(self) -> Self:
        require(
            (self.actual is None) == (self.evidence_class == "unavailable"),
            "actual is null exactly where evidenceClass is unavailable",
        )
        holds = self.actual is not None and (
            self.actual >= self.threshold if self.operator == ">=" else self.actual <= self.threshold
        )
        require(self.passed == holds, "passed must say whether actual holds against threshold")
        return self


class ReplayRow(Model):
    """One case replicate as it would have gone under the policy."""

    case_id: Slug
    replicate_id: Slug
    group_id: Slug
    attempted_profile_ids: Annotated[tuple[Slug, ...], Field(min_length=1, max_length=MAX_ATTEMPTS)]
    selected_profile_id: Slug
    status: Literal["success", "failure"]
    escalated: bool
    score: Finite | None
    score_evidence_class: EvidenceClass
    traffic_weight: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    slices: Annotated[tuple[Slug, ...], Field(max_length=MAX_SLICES)]
    ttft_ms: NonNegative
    end_to_end_latency_ms: NonNegative
    cost_usd: NonNegative | None

    @model_validator(mode="after")
    def _semantics(self) -> Self:
        require(
            self.attempted_profile_ids[-1] == self.selected_profile_id,
            "selectedProfileId is the last that was attempted",
        )
        require(
            self.escalated == (len(self.attempted_profile_ids) > 1),
            "escalated is true exactly where two were attempted",
        )
        require(self.ttft_ms <= self.end_to_end_latency_ms, "ttftMs must not exceed endToEndLatencyMs")
        require(
            (self.score is None) == (self.score_evidence_class == "unavailable"),
            "score is null exactly where scoreEvidenceClass is unavailable",
        )
        return self


class Bounds(Model):
    """Both ends of an interval."""

    lo: Finite
    hi: Finite

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        require(self.lo <= self.hi, "lo must not exceed hi")
        return self


class Inference(Model):
    """The paired difference of scores, candidate minus control, over groups."""

    method: Literal["paired-group-percentile-v1"] = "paired-group-percentile-v1"
    alpha: Annotated[float, Field(gt=0, lt=1)]
    case_count: Positive
    replicate_count: Positive
    group_count: Positive
    effective_traffic_mass: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    estimate: Finite
    interval: Bounds
    iterations: Annotated[int, Field(ge=1, le=1_000_000)]
    seed: Annotated[int, Field(ge=0, le=2**32 - 1)]
    positive: bool

    @model_validator(mode="after")
    def _positive(self) -> Self:
        require(self.positive == (self.interval.lo > 0), "positive must say whether interval.lo is above 0")
        return self


class SliceGroups(Model):
    """How many independent groups a critical slice has."""

    slice_id: Slug
    group_count: Count


class Coverage(Model):
    """How much of the traffic the pairs with two scores stand for."""

    case_count: Count
    replicate_count: Count
    group_count: Count
    effective_traffic_mass: NonNegative
    critical_slice_groups: Annotated[tuple[SliceGroups, ...], Field(max_length=MAX_SLICES)]
    failure_count: Count
    missing_evidence_count: Count
    evidence_coverage: Ratio


class CandidateAssessment(Model):
    """One policy against the control."""

    policy: PolicyBundle
    policy_digest: Digest
    status: CandidateStatus
    replay: Annotated[tuple[ReplayRow, ...], Field(max_length=MAX_REPLAY_ROWS)]
    metrics: Metrics
    gates: Annotated[tuple[Gate, ...], Field(max_length=128)]
    coverage: Coverage
    inference: Inference | None
    insufficiency_reasons: Annotated[tuple[Text, ...], Field(max_length=_MAX_REASONS)]
    rejection_reasons: Annotated[tuple[Text, ...], Field(max_length=_MAX_REASONS)]

    @model_validator(mode="after")
    def _status_follows(self) -> Self:
        require(self.policy_digest == self.policy.policy_digest, "policyDigest must be the policy's")
        failed = tuple(f"failed-gate:{gate.id}" for gate in self.gates if not gate.passed)
        if self.status == "STALE":
            require(
                not (self.replay or self.gates or self.inference or self.insufficiency_reasons),
                "a STALE candidate has no rows, gates or inference",
            )
            require(bool(self.rejection_reasons), "a STALE candidate has reasons")
            return self
        require(
            self.rejection_reasons == tuple(sorted((*self.insufficiency_reasons, *failed))),
            "rejectionReasons are the insufficiency reasons and the failed gates, sorted",
        )
        expected = "INSUFFICIENT_EVIDENCE" if self.insufficiency_reasons else "HOLD" if failed else "PASS"
        require(self.status == expected, "status must follow from reasons and gates")
        require(
            (self.inference is None) == bool(self.insufficiency_reasons),
            "inference is null exactly where there are insufficiency reasons",
        )
        return self


class Estimator(Model):
    """How the interval was drawn."""

    method: Literal["paired-group-percentile-v1"] = "paired-group-percentile-v1"
    alpha: Annotated[float, Field(gt=0, lt=1)]
    iterations: Annotated[int, Field(ge=1, le=1_000_000)]
    seed: Annotated[int, Field(ge=0, le=2**32 - 1)]


class AssessmentDecision(Record):
    """``tasc-assessment-decision-v2``; see the rules of this module."""

    domain: ClassVar[str] = "tasc/assessment-decision/v2"
    self_digest_field: ClassVar[str | None] = "decision_digest"

    version: Literal["tasc-assessment-decision-v2"] = "tasc-assessment-decision-v2"
    engine_version: Literal["tasc-assessment-engine-v2"] = "tasc-assessment-engine-v2"
    phase: Phase
    status: DecisionStatus
    assessment_context_digest: Digest
    protocol_digest: Digest
    dataset_digest: Digest
    trace_set_digest: Digest
    evaluator_set_digest: Digest
    window_manifest_digest: Digest | None
    estimator: Estimator
    control: CandidateAssessment
    candidates: Annotated[tuple[CandidateAssessment, ...], Field(min_length=1, max_length=10_000)]
    selected_policy: PolicyBundle | None
    selected_policy_digest: Digest | None
    stale_reasons: Annotated[tuple[Text, ...], Field(max_length=_MAX_REASONS)]
    warnings: Annotated[tuple[Text, ...], Field(max_length=_MAX_REASONS)]
    unavailable_metrics: tuple[MetricName, ...]
    attestation: Literal["unattested"] = "unattested"
    decision_digest: Digest

    @model_validator(mode="after")
    def _candidates(self) -> Self:
        digests = [item.policy_digest for item in self.candidates]
        require_unique(digests, "candidates: a policy may stand once")
        require(digests == sorted(digests), "candidates: must be in order of their policy digests")
        require(self.control.policy.kind == "expert-only", "control must be the expert-only policy")
        every = (self.control, *self.candidates)
        require(
            all(item.policy.protocol_digest == self.protocol_digest for item in every),
            "every policy must be of the decision's protocol",
        )
        require(
            (self.status == "STALE") == bool(self.stale_reasons), "status is STALE exactly where there are staleReasons"
        )
        require(
            all((item.status == "STALE") == (self.status == "STALE") for item in every),
            "candidates are STALE exactly where the decision is",
        )
        selected = None if self.selected_policy is None else self.selected_policy.policy_digest
        require(self.selected_policy_digest == selected, "selectedPolicyDigest must be the selected policy's")
        return self

    @model_validator(mode="after")
    def _phase(self) -> Self:
        require(
            (self.phase == "window") == (self.window_manifest_digest is not None),
            "windowManifestDigest is set exactly for a window",
        )
        if self.phase == "development":
            passing = {item.policy_digest for item in self.candidates if item.status == "PASS"}
            require(self.status not in ("PASS", "HOLD"), "a development decision nominates, or says why not")
            require(
                (self.status == "NOMINATED") == (self.selected_policy_digest in passing),
                "a nomination selects a candidate that passes",
            )
            require(self.status == "NOMINATED" or self.selected_policy is None, "only a nomination selects a policy")
            return self
        require(len(self.candidates) == 1, "holdout and window have exactly one candidate")
        require(self.status == self.candidates[0].status, "status must be the candidate's")
        require(
            self.selected_policy_digest == self.candidates[0].policy_digest, "selectedPolicy must be the candidate's"
        )
        return self
