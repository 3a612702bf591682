"""Evaluator evidence and trust: outcome rules, and the order in which trust is decided."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tasc_collector.contracts.base import Parsed
from tasc_collector.contracts.context import AssessmentContext
from tasc_collector.contracts.evidence import (
    EVIDENCE_FIELD,
    EVIDENCE_SIGNATURE_DOMAIN,
    EvaluatorEvidence,
    evidence_preimage,
)
from tasc_collector.contracts.evidence_trust import EvidenceStatus, check_evidence
from tasc_collector.contracts.trust_snapshot import EvaluatorTrustSnapshot
from tasc_collector.errors import InputError
from tasc_collector.signing import SigningKey

Value = dict[str, Any]
KEY = SigningKey.generate()
D = "sha256:" + "1" * 64
DAY_MS = 24 * 60 * 60 * 1000

EVIDENCE: Value = {
    "version": "tasc-evaluator-evidence-v2",
    "studyId": "study",
    "protocolDigest": D,
    "traceId": "trace-1",
    "caseId": "case-1",
    "replicateId": "replicate-0",
    "profileId": "champion",
    "split": "online",
    "terminalOutputId": {"algorithm": "hmac-sha256", "keyId": "payload", "value": "a" * 64},
    "evaluator": {
        "evaluatorId": "evaluator",
        "rubricVersion": "rubric 1",
        "calibrationDigest": D,
        "producer": {"kind": "deterministic", "producerId": "producer", "version": "1.0"},
    },
    "outcome": {
        "kind": "scored",
        "score": 0.5,
        "range": {"minimum": 0, "maximum": 1},
        "subscores": [{"id": "tone", "score": 3, "range": {"minimum": 1, "maximum": 5}}],
    },
    "source": {"kind": "digest", "digest": D},
    "producedAt": "2026-07-23T00:00:00.000Z",
    "keyId": "evaluator-key",
    "signatureAlgorithm": "ed25519",
}
SNAPSHOT: Value = {
    "version": "tasc-evaluator-trust-snapshot-v1",
    "freshness": {"maximumEvidenceAgeMs": 2 * DAY_MS, "maximumFutureSkewMs": 30_000},
    "keys": [
        {
            "keyId": "evaluator-key",
            "purpose": "evaluator-evidence",
            "algorithm": "ed25519",
            "publicKeySpki": KEY.public_key.spki,
            "evaluatorId": "evaluator",
            "producerId": "producer",
            "authorizedRubricVersions": ["rubric 1"],
            "authorizedCalibrationDigests": [D],
            "validFrom": "2026-07-22T00:00:00.000Z",
            "validUntil": "2026-07-24T00:00:00.000Z",
        }
    ],
    "revocations": [],
}


def _signed(value: Value, key: SigningKey = KEY) -> Parsed[EvaluatorEvidence]:
    signature = key.sign(EVIDENCE_SIGNATURE_DOMAIN, EVIDENCE_FIELD, evidence_preimage(value))
    return EvaluatorEvidence.from_value({**value, "signature": signature})


def _context(snapshot: EvaluatorTrustSnapshot, as_of: str = "2026-07-23T12:00:00.000Z") -> AssessmentContext:
    return AssessmentContext.issue(
        as_of=as_of,
        operator_trust_policy_snapshot_digest=snapshot.digest,
        evaluator_revocation_snapshot_digest=snapshot.revocations_digest,
    )


def _status(evidence: Parsed[EvaluatorEvidence], snapshot: Value, as_of: str = "2026-07-23T12:00:00.000Z") -> str:
    trust = EvaluatorTrustSnapshot.from_value(snapshot).record
    return check_evidence(evidence, trust, _context(trust, as_of)).status


def test_current_authorized_evidence_is_trusted() -> None:
    assert _status(_signed(EVIDENCE), SNAPSHOT) == EvidenceStatus.TRUSTED


def _changed(**changes: Any) -> Value:
    return {**copy.deepcopy(SNAPSHOT), **changes}


def _key(**changes: Any) -> Value:
    return _changed(keys=[{**SNAPSHOT["keys"][0], **changes}])


REVOKED = [{"keyId": "evaluator-key", "revokedAt": "2026-07-23T12:00:00.000Z", "reasonCode": "lost"}]


@pytest.mark.parametrize(
    ("snapshot", "as_of", "expected"),
    [
        (_key(keyId="another"), "2026-07-23T12:00:00.000Z", "unknown-key"),
        (_changed(revocations=REVOKED), "2026-07-23T12:00:00.000Z", "revoked"),
        (_changed(revocations=REVOKED), "2026-07-23T11:59:59.999Z", "trusted"),
        (SNAPSHOT, "2026-07-22T23:59:30.000Z", "trusted"),
        (SNAPSHOT, "2026-07-22T23:59:29.999Z", "future-dated"),
        (SNAPSHOT, "2026-07-25T00:00:00.000Z", "trusted"),
        (SNAPSHOT, "2026-07-25T00:00:00.001Z", "stale"),
        (_key(validFrom="2026-07-23T00:00:00.001Z"), "2026-07-23T12:00:00.000Z", "key-not-yet-valid"),
        (_key(validUntil="2026-07-22T23:59:59.999Z"), "2026-07-23T12:00:00.000Z", "key-expired"),
        (_key(validUntil="2026-07-23T00:00:00.000Z"), "2026-07-23T12:00:00.000Z", "trusted"),
        (_key(evaluatorId="other"), "2026-07-23T12:00:00.000Z", "unauthorized-evidence"),
        (_key(producerId="other"), "2026-07-23T12:00:00.000Z", "unauthorized-evidence"),
        (_key(authorizedRubricVersions=["rubric 2"]), "2026-07-23T12:00:00.000Z", "unauthorized-evidence"),
        (
            _key(authorizedCalibrationDigests=["sha256:" + "2" * 64]),
            "2026-07-23T12:00:00.000Z",
            "unauthorized-evidence",
        ),
    ],
)
def test_each_reason_not_to_trust(snapshot: Value, as_of: str, expected: str) -> None:
    assert _status(_signed(EVIDENCE), snapshot, as_of) == expected


def test_signatures_are_malformed_or_invalid() -> None:
    short = EvaluatorEvidence.from_value({**EVIDENCE, "signature": "AAAA"})
    assert _status(short, SNAPSHOT) == EvidenceStatus.MALFORMED_SIGNATURE
    assert _status(_signed(EVIDENCE, SigningKey.generate()), SNAPSHOT) == EvidenceStatus.INVALID_SIGNATURE
    edited = _signed(EVIDENCE)
    value = {**edited.value, "outcome": {"kind": "missing", "reasonCode": "none"}}
    assert _status(EvaluatorEvidence.from_value(value), SNAPSHOT) == EvidenceStatus.INVALID_SIGNATURE


def test_a_context_of_another_snapshot_is_told_first() -> None:
    trust = EvaluatorTrustSnapshot.from_value(SNAPSHOT).record
    revoked = EvaluatorTrustSnapshot.from_value(_changed(revocations=REVOKED)).record
    receipt = check_evidence(_signed(EVIDENCE, SigningKey.generate()), revoked, _context(trust))
    assert receipt.status is EvidenceStatus.CONTEXT_MISMATCH
    assert not receipt.trusted


def test_a_revocation_changes_one_of_the_two_digests() -> None:
    trust = EvaluatorTrustSnapshot.from_value(SNAPSHOT).record
    revoked = EvaluatorTrustSnapshot.from_value(_changed(revocations=REVOKED)).record
    assert trust.digest == revoked.digest
    assert trust.revocations_digest != revoked.revocations_digest


def test_the_source_digest_depends_on_the_context() -> None:
    trust = EvaluatorTrustSnapshot.from_value(SNAPSHOT).record
    evidence = _signed(EVIDENCE)
    at = ["2026-07-23T12:00:00.000Z", "2026-07-23T13:00:00.000Z"]
    assert len({check_evidence(evidence, trust, _context(trust, as_of)).source_digest for as_of in at}) == 2


@pytest.mark.parametrize(
    ("outcome", "rule"),
    [
        ({"score": 1.1}, "within its range"),
        ({"range": {"minimum": 0, "maximum": 2}}, "exactly 0 to 1"),
        ({"range": {"minimum": 1, "maximum": 1}}, "maximum must exceed minimum"),
        ({"subscores": [{"id": "a", "score": 9, "range": {"minimum": 0, "maximum": 5}}]}, "within its range"),
        ({"subscores": [EVIDENCE["outcome"]["subscores"][0]] * 2}, "must not repeat"),
        ({"kind": "maybe"}, "not one of the kinds"),
    ],
)
def test_an_outcome_keeps_its_rules(outcome: Value, rule: str) -> None:
    with pytest.raises(InputError, match=rule):
        _signed({**EVIDENCE, "outcome": {**EVIDENCE["outcome"], **outcome}})


@pytest.mark.parametrize("kind", ["missing", "invalid", "abstained"])
def test_evidence_without_a_score_says_why(kind: str) -> None:
    record = _signed({**EVIDENCE, "outcome": {"kind": kind, "reasonCode": "timeout"}}).record
    assert record.outcome.to_json() == {"kind": kind, "reasonCode": "timeout"}


def test_a_source_may_be_a_controlled_reference() -> None:
    source = {"kind": "controlled-reference", "storeId": "scores", "referenceId": "row-7"}
    assert _signed({**EVIDENCE, "source": source}).record.source.to_json() == source


@pytest.mark.parametrize(
    ("snapshot", "rule"),
    [
        (_changed(keys=SNAPSHOT["keys"] * 2), "keyId must not repeat"),
        (_changed(keys=[SNAPSHOT["keys"][0], {**SNAPSHOT["keys"][0], "keyId": "second"}]), "public key may stand once"),
        (_changed(revocations=REVOKED * 2), "keyId must not repeat"),
        (_key(validUntil="2026-07-22T00:00:00.000Z"), "validUntil must be after"),
        (_key(publicKeySpki=KEY.public_key.spki[:-1]), "canonical"),
        (_changed(freshness={"maximumEvidenceAgeMs": 366 * DAY_MS, "maximumFutureSkewMs": 0}), "less than or equal"),
    ],
)
def test_a_snapshot_keeps_its_rules(snapshot: Value, rule: str) -> None:
    with pytest.raises(InputError, match=rule):
        EvaluatorTrustSnapshot.from_value(snapshot)
