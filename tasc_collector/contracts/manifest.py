"""The sealed window's manifest: bounds, membership, and what was in it, by digest (original project, section 3.5).

A revision may change only the watermark (never backwards), the closure reason, the two set digests and the capacity
evidence, must change a set or the capacity, and names the digest of the manifest before it.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from tasc_collector.canonical import digest
from tasc_collector.contracts.base import Model, Record
from tasc_collector.contracts.membership import MembershipRule, membership_digest
from tasc_collector.contracts.rules import require
from tasc_collector.contracts.scalars import Digest, NonNegative, Positive, Slug, Timestamp
from tasc_collector.errors import InputError

__all__ = [
    "CapacityReported",
    "CapacityUnavailable",
    "MembershipRule",
    "WindowManifest",
    "check_revision",
]

CAPACITY_EVIDENCE_DOMAIN = "tasc/controller-window-capacity-evidence/v1"

_FIXED_FIELDS = (
    "window_id",
    "protocol_digest",
    "frozen_policy_digest",
    "event_time_start_inclusive",
    "event_time_end_exclusive",
    "membership_rule",
    "membership_digest",
)
_SOURCE_FIELDS = ("trace_set_digest", "evaluator_set_digest", "capacity_evidence")


class CapacityUnavailable(Model):
    """Nobody reported the capacity of the window."""

    kind: Literal["unavailable"] = "unavailable"
    reason_code: Slug


class CapacityReported(Model):
    """The throughput that the operator declares for the window, in output tokens per second."""

    kind: Literal["reported"] = "reported"
    metric: Literal["aggregate-output-tokens-per-second"] = "aggregate-output-tokens-per-second"
    value: NonNegative
    source: Literal["operator-reported"] = "operator-reported"
    declaration_digest: Digest
    frozen_policy_digest: Digest
    event_time_start_inclusive: Timestamp
    event_time_end_exclusive: Timestamp


CapacityEvidence = Annotated[CapacityUnavailable | CapacityReported, Field(discriminator="kind")]


class WindowManifest(Record):
    """``tasc-window-manifest-v2``; see the rules of this module."""

    domain: ClassVar[str] = "tasc/window-manifest/v2"
    self_digest_field: ClassVar[str | None] = "self_digest"

    version: Literal["tasc-window-manifest-v2"] = "tasc-window-manifest-v2"
    window_id: Slug
    protocol_digest: Digest
    frozen_policy_digest: Digest
    event_time_start_inclusive: Timestamp
    event_time_end_exclusive: Timestamp
    ingestion_watermark: Timestamp
    closure_reason: Slug
    membership_rule: MembershipRule
    membership_digest: Digest
    revision: Positive
    predecessor_manifest_digest: Digest | None
    trace_set_digest: Digest
    evaluator_set_digest: Digest
    capacity_evidence: CapacityEvidence
    self_digest: Digest

    @model_validator(mode="after")
    def _semantics(self) -> Self:
        require(
            self.event_time_start_inclusive < self.event_time_end_exclusive,
            "eventTimeEndExclusive must be after eventTimeStartInclusive",
        )
        require(
            self.ingestion_watermark >= self.event_time_end_exclusive,
            "ingestionWatermark must not be before the window's end",
        )
        require(
            (self.revision == 1) == (self.predecessor_manifest_digest is None),
            "predecessorManifestDigest is null exactly in revision 1",
        )
        require(
            self.membership_digest == membership_digest(self.window_id, self.protocol_digest, self.membership_rule),
            "membershipDigest must be that of windowId, protocolDigest and membershipRule",
        )
        capacity = self.capacity_evidence
        if isinstance(capacity, CapacityReported):
            require(
                (capacity.frozen_policy_digest, capacity.event_time_start_inclusive, capacity.event_time_end_exclusive)
                == (self.frozen_policy_digest, self.event_time_start_inclusive, self.event_time_end_exclusive),
                "capacityEvidence must be for the manifest's policy and bounds",
            )
        return self

    @property
    def capacity_evidence_digest(self) -> str:
        """Digest of the capacity evidence, as the controller's projection of a window carries it."""
        return digest(CAPACITY_EVIDENCE_DOMAIN, self.capacity_evidence.to_json())


def check_revision(before: WindowManifest, after: WindowManifest) -> None:
    """Check that ``after`` is a lawful revision of ``before``.

    Raises:
        InputError: it changes a fixed field, skips a revision, names another predecessor, moves the watermark back, or
            changes nothing that an assessment would see.
    """
    changed = [name for name in _FIXED_FIELDS if getattr(before, name) != getattr(after, name)]
    for holds, field, rule in (
        (
            not changed,
            changed[0] if changed else None,
            "a revision keeps window, protocol, policy, bounds and membership",
        ),
        (after.revision == before.revision + 1, "revision", "a revision is the next number"),
        (
            after.predecessor_manifest_digest == before.self_digest,
            "predecessorManifestDigest",
            "a revision names its predecessor",
        ),
        (
            after.ingestion_watermark >= before.ingestion_watermark,
            "ingestionWatermark",
            "the watermark never moves back",
        ),
        (
            any(getattr(before, name) != getattr(after, name) for name in _SOURCE_FIELDS),
            "traceSetDigest",
            "a revision changes a set digest or the capacity evidence",
        ),
    ):
        if not holds:
            raise InputError(
                "not a revision of the manifest before it",
                where=after.window_id,
                field=field,
                rule=rule,
                way_out="make the revision from the manifest it follows",
            )
