"""What a controller can learn, one kind of fact each (original project, section 3.14).

A fact holds projections: digests, states and instants of a decision, manifest or observation, never the thing itself.
Who may record which fact in which state is the controller's business, not this module's.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from tasc_collector.contracts.base import Model
from tasc_collector.contracts.rules import require
from tasc_collector.contracts.scalars import Digest, Positive, Slug, Timestamp

DevelopmentStatus = Literal["NOMINATED", "NO_CANDIDATE", "INSUFFICIENT_EVIDENCE", "STALE"]
AssessmentStatus = Literal["PASS", "HOLD", "INSUFFICIENT_EVIDENCE", "STALE"]
DriftScope = Literal["evaluator", "execution-profile", "assessment-context", "source", "policy", "window"]


class SelectedPolicy(Model):
    """The policy that was nominated, with its validity."""

    policy_digest: Digest
    issued_at: Timestamp
    expires_at: Timestamp

    @model_validator(mode="after")
    def _interval(self) -> Self:
        require(self.issued_at < self.expires_at, "expiresAt must be after issuedAt")
        return self


class DevelopmentEvidence(Model):
    """What the development assessment is made from."""

    dataset_digest: Digest
    trace_set_digest: Digest
    evaluator_set_digest: Digest


class _AssessmentProjection(Model):
    """What every recorded assessment has."""

    version: Literal["tasc-controller-assessment-projection-v1"] = "tasc-controller-assessment-projection-v1"
    decision_digest: Digest
    assessment_context_digest: Digest
    protocol_digest: Digest
    dataset_digest: Digest
    trace_set_digest: Digest
    evaluator_set_digest: Digest
    attestation: Literal["unattested"] = "unattested"


class DevelopmentAssessment(_AssessmentProjection):
    """A development decision; it has a selected policy exactly when it nominated one."""

    selected_policy: SelectedPolicy | None
    phase: Literal["development"] = "development"
    status: DevelopmentStatus
    window_manifest_digest: None = None

    @model_validator(mode="after")
    def _nominates(self) -> Self:
        require(
            (self.status == "NOMINATED") == (self.selected_policy is not None),
            "selectedPolicy is set exactly when status is NOMINATED",
        )
        return self


class HoldoutAssessment(_AssessmentProjection):
    """A decision on held-out groups."""

    selected_policy: SelectedPolicy
    phase: Literal["holdout"] = "holdout"
    status: AssessmentStatus
    window_manifest_digest: None = None


class WindowAssessment(_AssessmentProjection):
    """A decision on a sealed window."""

    selected_policy: SelectedPolicy
    phase: Literal["window"] = "window"
    status: AssessmentStatus
    window_manifest_digest: Digest


AssessmentProjection = Annotated[
    DevelopmentAssessment | HoldoutAssessment | WindowAssessment, Field(discriminator="phase")
]


class WindowProjection(Model):
    """A sealed window's manifest in one revision, by digests."""

    version: Literal["tasc-controller-window-projection-v1"] = "tasc-controller-window-projection-v1"
    window_id: Slug
    manifest_digest: Digest
    protocol_digest: Digest
    frozen_policy_digest: Digest
    event_time_start_inclusive: Timestamp
    event_time_end_exclusive: Timestamp
    ingestion_watermark: Timestamp
    revision: Positive
    predecessor_manifest_digest: Digest | None
    trace_set_digest: Digest
    evaluator_set_digest: Digest
    capacity_evidence_digest: Digest

    @model_validator(mode="after")
    def _semantics(self) -> Self:
        require(self.event_time_start_inclusive < self.event_time_end_exclusive, "a window ends after it starts")
        require(
            self.event_time_end_exclusive <= self.ingestion_watermark,
            "ingestionWatermark must not be before the window's end",
        )
        require(
            (self.revision == 1) == (self.predecessor_manifest_digest is None),
            "predecessorManifestDigest is null exactly in revision 1",
        )
        return self


class DeploymentObservation(Model):
    """Somebody else deployed the policy, and somebody saw it."""

    source: Literal["external-deployment-observation"] = "external-deployment-observation"
    attestation: Literal["unattested"] = "unattested"
    observation_id: Slug
    environment_id: Slug
    policy_digest: Digest
    observed_at: Timestamp


class _Fact(Model):
    """What every fact has."""

    version: Literal["tasc-controller-fact-v1"] = "tasc-controller-fact-v1"


class ProtocolRegistered(_Fact):
    """The operator registered the protocol."""

    kind: Literal["protocol-registered"] = "protocol-registered"
    protocol_created_at: Timestamp
    protocol_expires_at: Timestamp


class CollectionStarted(_Fact):
    """Collection of development evidence began."""

    kind: Literal["collection-started"] = "collection-started"
    collection_id: Slug


class DevelopmentEvidenceReady(_Fact):
    """Development evidence is complete."""

    kind: Literal["development-evidence-ready"] = "development-evidence-ready"
    evidence: DevelopmentEvidence


class DevelopmentAssessmentRecorded(_Fact):
    """Development evidence was assessed."""

    kind: Literal["development-assessment-recorded"] = "development-assessment-recorded"
    projection: DevelopmentAssessment


class ShadowAssessmentStarted(_Fact):
    """Shadow collection under the frozen policy began."""

    kind: Literal["shadow-assessment-started"] = "shadow-assessment-started"
    frozen_policy_digest: Digest


class HoldoutAssessmentRecorded(_Fact):
    """Held-out groups were assessed."""

    kind: Literal["holdout-assessment-recorded"] = "holdout-assessment-recorded"
    projection: HoldoutAssessment


class WindowManifestRecorded(_Fact):
    """A window was sealed or revised."""

    kind: Literal["window-manifest-recorded"] = "window-manifest-recorded"
    projection: WindowProjection


class WindowAssessmentRecorded(_Fact):
    """A sealed window was assessed."""

    kind: Literal["window-assessment-recorded"] = "window-assessment-recorded"
    window_id: Slug
    projection: WindowAssessment


class DeploymentObserved(_Fact):
    """The selected policy was seen in production."""

    kind: Literal["deployment-observed"] = "deployment-observed"
    observation: DeploymentObservation


class IdentityDriftRecorded(_Fact):
    """Something is no longer what the study fixed."""

    kind: Literal["identity-drift-recorded"] = "identity-drift-recorded"
    source: Literal["operator-projection"] = "operator-projection"
    attestation: Literal["unattested"] = "unattested"
    scope: DriftScope
    expected_digest: Digest
    observed_digest: Digest
    reason_code: Slug

    @model_validator(mode="after")
    def _differs(self) -> Self:
        require(self.expected_digest != self.observed_digest, "a drift has two different digests")
        return self


class ProtocolExpiryObserved(_Fact):
    """The protocol's validity ended."""

    kind: Literal["protocol-expiry-observed"] = "protocol-expiry-observed"
    as_of: Timestamp


class ControllerRetired(_Fact):
    """The operator ended the controller."""

    kind: Literal["controller-retired"] = "controller-retired"
    reason_code: Slug


ControllerFact = Annotated[
    ProtocolRegistered
    | CollectionStarted
    | DevelopmentEvidenceReady
    | DevelopmentAssessmentRecorded
    | ShadowAssessmentStarted
    | HoldoutAssessmentRecorded
    | WindowManifestRecorded
    | WindowAssessmentRecorded
    | DeploymentObserved
    | IdentityDriftRecorded
    | ProtocolExpiryObserved
    | ControllerRetired,
    Field(discriminator="kind"),
]
