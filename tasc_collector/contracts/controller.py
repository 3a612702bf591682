"""The controller's event and snapshot (original project, section 3.14).

An event extends the chain by one fact: it names the event before it, and its own id is the digest of its content. A
snapshot is what a chain adds up to. ``controller_coherence`` says which snapshots a chain can add up to; the
transitions themselves are the control side's.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from tasc_collector.canonical import digest
from tasc_collector.contracts.base import Model, Record
from tasc_collector.contracts.controller_coherence import ControllerState, check_snapshot
from tasc_collector.contracts.controller_facts import (
    AssessmentProjection,
    ControllerFact,
    DeploymentObservation,
    DevelopmentEvidence,
    SelectedPolicy,
    WindowProjection,
)
from tasc_collector.contracts.rules import require
from tasc_collector.contracts.scalars import Digest, Slug, Timestamp
from tasc_collector.limits import (
    MAX_CONTROLLER_ASSESSMENTS,
    MAX_CONTROLLER_EVENTS,
    MAX_CONTROLLER_WINDOW_REVISIONS,
    MAX_CONTROLLER_WINDOWS,
)

__all__ = [
    "ControllerAnchor",
    "ControllerEvent",
    "ControllerSnapshot",
    "ControllerState",
    "WindowLedger",
    "fact_digest",
]

FACT_DOMAIN = "tasc/controller-fact/v1"


def fact_digest(fact: Model) -> str:
    """Digest of a fact, as its event carries it."""
    return digest(FACT_DOMAIN, fact.to_json())


class ControllerEvent(Record):
    """``tasc-controller-event-v1``; ``event_id`` is its own digest."""

    domain: ClassVar[str] = "tasc/controller-event/v1"
    self_digest_field: ClassVar[str | None] = "event_id"

    version: Literal["tasc-controller-event-v1"] = "tasc-controller-event-v1"
    controller_id: Slug
    study_id: Slug
    protocol_digest: Digest
    sequence: Annotated[int, Field(ge=1, le=MAX_CONTROLLER_EVENTS)]
    predecessor_event_id: Digest | None
    occurred_at: Timestamp
    fact: ControllerFact
    fact_digest: Digest
    event_id: Digest

    @model_validator(mode="after")
    def _semantics(self) -> Self:
        require(
            (self.sequence == 1) == (self.predecessor_event_id is None),
            "predecessorEventId is null exactly in sequence 1",
        )
        require(self.fact_digest == fact_digest(self.fact), "factDigest must be that of the fact")
        return self


class WindowLedger(Model):
    """A window's revisions in order."""

    window_id: Slug
    revisions: Annotated[tuple[WindowProjection, ...], Field(min_length=1, max_length=MAX_CONTROLLER_WINDOW_REVISIONS)]


class ControllerSnapshot(Record):
    """``tasc-controller-snapshot-v1``: the state that a chain of events adds up to."""

    domain: ClassVar[str] = "tasc/controller-snapshot/v1"
    self_digest_field: ClassVar[str | None] = "snapshot_digest"

    version: Literal["tasc-controller-snapshot-v1"] = "tasc-controller-snapshot-v1"
    controller_id: Slug
    study_id: Slug
    protocol_digest: Digest
    protocol_created_at: Timestamp
    protocol_expires_at: Timestamp
    state: ControllerState
    sequence: Annotated[int, Field(ge=0, le=MAX_CONTROLLER_EVENTS)]
    last_event_id: Digest | None
    last_event_at: Timestamp | None
    collection_id: Slug | None
    development_evidence: DevelopmentEvidence | None
    selected_policy: SelectedPolicy | None
    assessments: Annotated[tuple[AssessmentProjection, ...], Field(max_length=MAX_CONTROLLER_ASSESSMENTS)]
    windows: Annotated[tuple[WindowLedger, ...], Field(max_length=MAX_CONTROLLER_WINDOWS)]
    deployment_observation: DeploymentObservation | None
    stale_reasons: Annotated[tuple[Slug, ...], Field(max_length=64)]
    attestation: Literal["unattested"] = "unattested"
    snapshot_digest: Digest

    @model_validator(mode="after")
    def _coherent(self) -> Self:
        check_snapshot(self)
        return self

    @classmethod
    def genesis(
        cls, *, controller_id: str, study_id: str, protocol_digest: str, created_at: str, expires_at: str
    ) -> Self:
        """The empty DRAFT that the first event extends."""
        empty: dict[str, Any] = dict.fromkeys(  # Any: field values, all empty
            (
                "last_event_id",
                "last_event_at",
                "collection_id",
                "development_evidence",
                "selected_policy",
                "deployment_observation",
            )
        )
        return cls.issue(
            controller_id=controller_id,
            study_id=study_id,
            protocol_digest=protocol_digest,
            protocol_created_at=created_at,
            protocol_expires_at=expires_at,
            state="DRAFT",
            sequence=0,
            assessments=(),
            windows=(),
            stale_reasons=(),
            **empty,
        )

    @property
    def anchor(self) -> ControllerAnchor:
        """What pins this snapshot from outside the log."""
        return ControllerAnchor(
            controller_id=self.controller_id,
            study_id=self.study_id,
            protocol_digest=self.protocol_digest,
            sequence=self.sequence,
            last_event_id=self.last_event_id,
            snapshot_digest=self.snapshot_digest,
        )


class ControllerAnchor(Record):
    """``tasc-controller-anchor-v1``: a checkpoint; a log that does not pass through it is not the one that was pinned."""

    domain: ClassVar[str] = "tasc/controller-anchor/v1"

    version: Literal["tasc-controller-anchor-v1"] = "tasc-controller-anchor-v1"
    controller_id: Slug
    study_id: Slug
    protocol_digest: Digest
    sequence: Annotated[int, Field(ge=0, le=MAX_CONTROLLER_EVENTS)]
    last_event_id: Digest | None
    snapshot_digest: Digest

    @model_validator(mode="after")
    def _genesis(self) -> Self:
        require((self.sequence == 0) == (self.last_event_id is None), "lastEventId is null exactly in sequence 0")
        return self
