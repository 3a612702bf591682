"""Whether evidence is trusted at an instant: a pure function of evidence, operator snapshot and context.

The status is the first that applies, in this order (original project, section 3.3):

1. ``context-mismatch``: the context does not name this snapshot's two digests.
2. ``unknown-key``: the snapshot has no key of that id.
3. ``malformed-signature``: not 64 canonical bytes.  4. ``invalid-signature``: not that key's over this evidence.
5. ``revoked``: the key was revoked at or before ``asOf``.
6. ``future-dated``: produced later than ``asOf`` by more than the allowed skew.
7. ``stale``: older than the allowed age.
8. ``key-not-yet-valid``, 9. ``key-expired``: produced outside the key's interval (both ends belong to it).
10. ``unauthorized-evidence``: not the key's evaluator, producer, rubric or calibration.
11. ``trusted``.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tasc_collector.canonical import digest
from tasc_collector.contracts.base import Parsed
from tasc_collector.contracts.context import AssessmentContext
from tasc_collector.contracts.evidence import (
    EVIDENCE_FIELD,
    EVIDENCE_SIGNATURE_DOMAIN,
    EvaluatorEvidence,
    evidence_preimage,
)
from tasc_collector.contracts.scalars import timestamp_ms
from tasc_collector.contracts.trust_snapshot import EvaluatorKey, EvaluatorTrustSnapshot
from tasc_collector.errors import SignatureError
from tasc_collector.signing import PublicKey, decode_b64u, is_signed

SOURCE_DOMAIN: Final = "tasc/assessment-evaluator-source/v2"


class EvidenceStatus(StrEnum):
    """Result of checking one piece of evidence."""

    CONTEXT_MISMATCH = "context-mismatch"
    UNKNOWN_KEY = "unknown-key"
    MALFORMED_SIGNATURE = "malformed-signature"
    INVALID_SIGNATURE = "invalid-signature"
    REVOKED = "revoked"
    FUTURE_DATED = "future-dated"
    STALE = "stale"
    KEY_NOT_YET_VALID = "key-not-yet-valid"
    KEY_EXPIRED = "key-expired"
    UNAUTHORIZED_EVIDENCE = "unauthorized-evidence"
    TRUSTED = "trusted"


@dataclass(frozen=True, slots=True)
class EvidenceReceipt:
    """What the check found, bound to the context it was made under."""

    evidence: EvaluatorEvidence
    evidence_digest: str
    status: EvidenceStatus
    context: AssessmentContext

    @property
    def trusted(self) -> bool:
        """Whether the evidence may count."""
        return self.status is EvidenceStatus.TRUSTED

    @property
    def source_digest(self) -> str:
        """Digest of this result as a member of a window's evaluator set; it depends on the context."""
        return digest(
            SOURCE_DOMAIN,
            {
                "kind": "authentic-verification-receipt",
                "evidenceDigest": self.evidence_digest,
                "status": self.status.value,
                "trusted": self.trusted,
                "assessedAt": self.context.as_of,
                "assessmentContextDigest": self.context.context_digest,
                "operatorTrustPolicySnapshotDigest": self.context.operator_trust_policy_snapshot_digest,
                "evaluatorRevocationSnapshotDigest": self.context.evaluator_revocation_snapshot_digest,
                "keyId": self.evidence.key_id,
            },
        )


def check_evidence(
    evidence: Parsed[EvaluatorEvidence], snapshot: EvaluatorTrustSnapshot, context: AssessmentContext
) -> EvidenceReceipt:
    """Check one piece of evidence by the rules of this module.

    Args:
        evidence: as it was read; the signature is checked over exactly that value.
        snapshot: the operator's trust.
        context: the assessment it is for; ``as_of`` is its clock.
    """
    status = _status(evidence, snapshot, context)
    return EvidenceReceipt(evidence.record, EvaluatorEvidence.digest_of(evidence.value), status, context)


def _status(
    parsed: Parsed[EvaluatorEvidence], snapshot: EvaluatorTrustSnapshot, context: AssessmentContext
) -> EvidenceStatus:
    evidence = parsed.record
    named = (context.operator_trust_policy_snapshot_digest, context.evaluator_revocation_snapshot_digest)
    if named != (snapshot.digest, snapshot.revocations_digest):
        return EvidenceStatus.CONTEXT_MISMATCH
    key = snapshot.key(evidence.key_id)
    if key is None:
        return EvidenceStatus.UNKNOWN_KEY
    if not _is_well_formed(evidence.signature):
        return EvidenceStatus.MALFORMED_SIGNATURE
    public_key, content = PublicKey.from_spki(key.public_key_spki), evidence_preimage(parsed.value)
    if not is_signed(public_key, EVIDENCE_SIGNATURE_DOMAIN, EVIDENCE_FIELD, content, evidence.signature):
        return EvidenceStatus.INVALID_SIGNATURE
    if any(item.key_id == key.key_id and item.revoked_at <= context.as_of for item in snapshot.revocations):
        return EvidenceStatus.REVOKED
    return _time_status(evidence, key, snapshot, context) or _authorized(evidence, key)


def _is_well_formed(signature: str) -> bool:
    try:
        return len(decode_b64u(signature)) == 64
    except SignatureError:
        return False


def _time_status(
    evidence: EvaluatorEvidence, key: EvaluatorKey, snapshot: EvaluatorTrustSnapshot, context: AssessmentContext
) -> EvidenceStatus | None:
    age_ms = timestamp_ms(context.as_of) - timestamp_ms(evidence.produced_at)
    if -age_ms > snapshot.freshness.maximum_future_skew_ms:
        return EvidenceStatus.FUTURE_DATED
    if age_ms > snapshot.freshness.maximum_evidence_age_ms:
        return EvidenceStatus.STALE
    if evidence.produced_at < key.valid_from:
        return EvidenceStatus.KEY_NOT_YET_VALID
    if evidence.produced_at > key.valid_until:
        return EvidenceStatus.KEY_EXPIRED
    return None


def _authorized(evidence: EvaluatorEvidence, key: EvaluatorKey) -> EvidenceStatus:
    claim = evidence.evaluator
    allowed = (
        key.evaluator_id == claim.evaluator_id
        and key.producer_id == claim.producer.producer_id
        and claim.rubric_version in key.authorized_rubric_versions
        and claim.calibration_digest in key.authorized_calibration_digests
    )
    return EvidenceStatus.TRUSTED if allowed else EvidenceStatus.UNAUTHORIZED_EVIDENCE
