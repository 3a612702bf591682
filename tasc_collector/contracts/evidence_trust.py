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

Step 4 costs more than all others together, and its answer never changes: whoever remembers it under evidence and public
key passes ``verified`` and it is not asked again. Everything else is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Final

from tasc_collector.canonical import canonical_bytes, sha256_hex
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
        context = self.context
        frame = _source_frame(
            self.status,
            self.evidence.key_id,
            context.as_of,
            context.context_digest,
            context.operator_trust_policy_snapshot_digest,
            context.evaluator_revocation_snapshot_digest,
        )
        return f"sha256:{sha256_hex(frame % self.evidence_digest.encode())}"


@lru_cache(maxsize=256)
def _source_frame(status: EvidenceStatus, key_id: str, as_of: str, context: str, trust: str, revocations: str) -> bytes:
    """What the source digest of a piece of evidence is made over, with a place for the evidence's own digest.

    The pieces of one window share all else. No id, instant or digest holds a percent sign.
    """
    value = {
        "kind": "authentic-verification-receipt",
        "evidenceDigest": "%b",
        "status": status.value,
        "trusted": status is EvidenceStatus.TRUSTED,
        "assessedAt": as_of,
        "assessmentContextDigest": context,
        "operatorTrustPolicySnapshotDigest": trust,
        "evaluatorRevocationSnapshotDigest": revocations,
        "keyId": key_id,
    }
    return canonical_bytes({"domain": SOURCE_DOMAIN, "value": value})


Verified = Callable[[str, str], bool]
"""Whether the signature of evidence with this digest is known to hold under this public key (SPKI)."""


def _never(_digest: str, _spki: str) -> bool:
    return False


class EvidenceChecker:
    """Checks many pieces under one snapshot and context; what depends on these alone is derived once.

    Args:
        snapshot: the operator's trust.
        context: the assessment it is for; ``as_of`` is its clock.
        verified: signatures that were found to hold before.
    """

    def __init__(
        self, snapshot: EvaluatorTrustSnapshot, context: AssessmentContext, *, verified: Verified = _never
    ) -> None:
        named = (context.operator_trust_policy_snapshot_digest, context.evaluator_revocation_snapshot_digest)
        self._bound = named == (snapshot.digest, snapshot.revocations_digest)
        self._snapshot, self._context, self._verified = snapshot, context, verified
        self._keys = {key.key_id: (key, PublicKey.from_spki(key.public_key_spki)) for key in snapshot.keys}
        self._revoked = {item.key_id for item in snapshot.revocations if item.revoked_at <= context.as_of}

    def check(self, evidence: Parsed[EvaluatorEvidence]) -> EvidenceReceipt:
        """Check one piece of evidence by the rules of this module.

        Args:
            evidence: as it was read; the signature is checked over exactly that value.
        """
        evidence_digest = EvaluatorEvidence.digest_of(evidence.value)
        return EvidenceReceipt(evidence.record, evidence_digest, self._status(evidence, evidence_digest), self._context)

    def _status(self, parsed: Parsed[EvaluatorEvidence], evidence_digest: str) -> EvidenceStatus:
        evidence = parsed.record
        if not self._bound:
            return EvidenceStatus.CONTEXT_MISMATCH
        if evidence.key_id not in self._keys:
            return EvidenceStatus.UNKNOWN_KEY
        key, public_key = self._keys[evidence.key_id]
        if not _is_well_formed(evidence.signature):
            return EvidenceStatus.MALFORMED_SIGNATURE
        if not self._verified(evidence_digest, key.public_key_spki) and not _is_signed(parsed, public_key):
            return EvidenceStatus.INVALID_SIGNATURE
        if evidence.key_id in self._revoked:
            return EvidenceStatus.REVOKED
        return _time_status(evidence, key, self._snapshot, self._context) or _authorized(evidence, key)


def check_evidence(
    evidence: Parsed[EvaluatorEvidence], snapshot: EvaluatorTrustSnapshot, context: AssessmentContext
) -> EvidenceReceipt:
    """Check one piece of evidence; see ``EvidenceChecker``."""
    return EvidenceChecker(snapshot, context).check(evidence)


def _is_signed(parsed: Parsed[EvaluatorEvidence], public_key: PublicKey) -> bool:
    content = evidence_preimage(parsed.value)
    return is_signed(public_key, EVIDENCE_SIGNATURE_DOMAIN, EVIDENCE_FIELD, content, parsed.record.signature)


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
