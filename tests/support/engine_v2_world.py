"""A decision study in memory: a protocol, envelopes and checked evidence, with what a test changes. Nothing is signed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tasc_collector.canonical import sha256_hex
from tasc_collector.contracts.base import Parsed
from tasc_collector.contracts.context import AssessmentContext
from tasc_collector.contracts.envelope import TraceEnvelope
from tasc_collector.contracts.evidence import EvaluatorEvidence
from tasc_collector.contracts.evidence_trust import EvidenceReceipt, EvidenceStatus
from tasc_collector.contracts.protocol import ExperimentProtocol
from tasc_collector.contracts.scalars import timestamp_ms, timestamp_of_ms
from tasc_collector.contracts.trust_snapshot import EvaluatorTrustSnapshot
from tasc_collector.shadow.membership import group_split
from tasc_collector.signing import SigningKey
from tasc_pipeline.control.engine_v2 import Table, table_of
from tasc_pipeline.control.engine_v2_dataset import Sources
from tasc_pipeline.control.trace_checks import ProtocolTerms

CREATED, EXPIRES, AS_OF = "2026-07-01T00:00:00.000Z", "2026-09-01T00:00:00.000Z", "2026-07-20T00:00:00.000Z"
STARTED, SCORED_AT = "2026-07-10T00:00:00.000Z", "2026-07-11T00:00:00.000Z"
CHAMPION, CANDIDATE = "champion", "candidate"
_KEYS = [SigningKey.generate().public_key.spki for _ in range(3)]
_UNSIGNED = "A" * 86


def d(number: int) -> str:
    return f"sha256:{number:064x}"


def _profile(name: str) -> dict[str, Any]:
    return {
        "id": name,
        "runtime": {"name": "vllm", "build": "0.26.0"},
        "backend": {"name": "cuda", "build": "13.0"},
        "model": {"id": f"{name}-model", "revision": "1"},
        "tokenizer": {"id": f"{name}-tokenizer", "revision": "1"},
        "hardware": {"architecture": "x86-64", "accelerator": "any", "acceleratorCount": 1},
        "quantization": {"format": "bf16", "configurationDigest": d(1)},
        "chatTemplateDigest": d(2),
        "orchestration": {"kind": "direct", "configurationDigest": d(3)},
        "deploymentConfigurationDigest": d(4),
    }


def protocol(gates: dict[str, Any] | None = None, **changes: Any) -> Parsed[ExperimentProtocol]:
    """A protocol with one candidate, a predicate at 0.5, a critical slice and lenient gates."""
    value = {
        "version": "tasc-experiment-protocol-v2",
        "studyId": "study",
        "protocolVersion": "one",
        "owner": "tests",
        "createdAt": CREATED,
        "expiresAt": EXPIRES,
        "dispatchAuthority": {"keyId": "dispatch", "algorithm": "ed25519", "publicKeySpki": _KEYS[0]},
        "collectorAuthority": {"keyId": "collector", "algorithm": "ed25519", "publicKeySpki": _KEYS[1]},
        "splitMembership": {
            "algorithm": "tasc-seeded-sha256-group-bucket-v1",
            "seed": "split",
            "bucketCount": 2,
            "developmentBuckets": [0],
            "holdoutBuckets": [1],
        },
        "onlineWindowMembership": {
            "algorithm": "tasc-seeded-sha256-case-replicate-basis-points-v1",
            "seed": "sample",
            "sampleBasisPoints": 10_000,
        },
        "profiles": [_profile(CHAMPION), _profile(CANDIDATE)],
        "championProfileId": CHAMPION,
        "candidateProfileIds": [CANDIDATE],
        "routeSignal": {
            "definitionId": "confidence",
            "version": "1",
            "minimum": 0,
            "maximum": 1,
            "direction": "higher-is-more-confident",
            "calibrationDigest": d(5),
        },
        "evaluator": {
            "evaluatorId": "scorer",
            "rubricVersion": "1",
            "calibrationDigest": d(6),
            "producerKind": "deterministic",
            "producerId": "job",
            "producerVersion": "1",
            "requiredTrustedKeyIds": ["scorer-1"],
        },
        "candidatePolicySpace": {
            "version": "tasc-declarative-policy-space-v1",
            "maxCandidates": 4,
            "predicates": [
                {
                    "signalDefinitionId": "confidence",
                    "operator": "less-than",
                    "threshold": 0.5,
                    "routeToProfileId": CHAMPION,
                }
            ],
        },
        "gates": {
            "minimumMeanScore": 0,
            "nonInferiorityMargin": -1,
            "maximumFailureRate": 1,
            "maximumP95TtftMs": 10_000,
            "maximumP95EndToEndMs": 10_000,
            "maximumCostPerThousandRequestsUsd": 1_000,
            "minimumEvidenceCoverage": 0,
            "minimumIndependentGroups": 1,
            "minimumCriticalSliceGroups": 0,
            "serviceCapacity": {"kind": "disabled"},
        }
        | (gates or {}),
        "criticalSlices": ["hard"],
        "bootstrap": {"algorithm": "paired-group-percentile-v1", "seed": "draws", "iterations": 50, "alpha": 0.1},
        "shadowCollection": {
            "maximumLogicalExecutions": 100,
            "maximumConcurrency": 2,
            "attemptTimeoutMs": 10_000,
            "maximumAttempts": 2,
            "payloadPolicy": "keyed-identities-only",
        },
        "costAllocation": {"kind": "modeled", "modelDigest": d(7), "currency": "USD"},
        "endpointRequirements": [],
        "requiredCapabilities": [],
    } | changes
    return ExperimentProtocol.from_value(value)


PROTOCOL = protocol()
GROUPS = [
    name
    for name in (f"group-{number}" for number in range(40))
    if group_split(PROTOCOL.record.split_membership, name) == "dev"
]
"""Groups of the development split."""


def later(instant: str, ms: int) -> str:
    return timestamp_of_ms(timestamp_ms(instant) + ms)


def attempt(
    profile: str, *, start: str = STARTED, ttft_ms: int | None = 50, e2e_ms: int = 200, number: int = 1, **changes: Any
) -> dict[str, Any]:
    """A successful attempt; ``cost`` is modeled as 0.001 USD."""
    return {
        "attemptId": f"attempt-{number}",
        "attemptNumber": number,
        "dispatchState": "completed",
        "observerTimings": {
            "startedAt": start,
            "headersAt": None,
            "firstByteAt": None,
            "firstMeaningfulTokenAt": None if ttft_ms is None else later(start, ttft_ms),
            "completedAt": later(start, e2e_ms),
        },
        "status": "success",
        "finishReason": "stop",
        "partialOutput": False,
        "abortLifecycle": "not-aborted",
        "failureCategory": None,
        "requestedModel": {"id": f"{profile}-model", "revision": "1"},
        "resolvedModel": {"id": f"{profile}-model", "revision": None, "source": "provider-id-only"},
        "tokenUsage": {"input": None, "output": None, "total": None},
        "providerReported": {"timings": [], "metrics": []},
        "cost": {"kind": "modeled", "amount": 0.001, "currency": "USD", "modelDigest": d(7)},
        "payloads": {
            "request": {"algorithm": "hmac-sha256", "keyId": "payload", "value": "0" * 64},
            "response": None,
            "eventStream": None,
        },
    } | changes


FAILED: dict[str, Any] = {
    "status": "failure",
    "finishReason": None,
    "resolvedModel": None,
    "failureCategory": "timeout",
}
UNKNOWN: dict[str, Any] = FAILED | {"dispatchState": "sent_unknown"}


def trace(
    case: str,
    profile: str,
    *,
    group: str | None = None,
    replicate: str = "replicate-0",
    signal: float | None = 0.9,
    weight: float = 1,
    slices: Sequence[str] = (),
    attempts: Sequence[dict[str, Any]] | None = None,
    terms: Parsed[ExperimentProtocol] = PROTOCOL,
    **changes: Any,
) -> Parsed[TraceEnvelope]:
    """An envelope of the development split; what is not said is a success."""
    made = list(attempts) if attempts is not None else [attempt(profile)]
    record = terms.record
    success = made[-1]["status"] == "success"
    output = {
        "algorithm": "hmac-sha256",
        "keyId": "payload",
        "value": sha256_hex(f"{case} {replicate} {profile}".encode()),
    }
    value = {
        "version": "tasc-trace-envelope-v2",
        "studyId": "study",
        "protocolDigest": record.digest,
        "traceId": f"trace-{case}-{replicate}-{profile}",
        "caseId": case,
        "groupId": group or GROUPS[0],
        "replicateId": replicate,
        "split": "dev",
        "collectionWindowId": None,
        "collectionWindowMembershipDigest": None,
        "sourceMode": "imported",
        "collectionBinding": None,
        "profileId": profile,
        "executionProfileDigest": record.profile(profile).digest,
        "policyDigest": d(8),
        "observedRoute": {"selectedProfileId": profile, "decisionId": "route"},
        "workload": {"mode": "chat", "declaredTrafficWeight": weight, "inputTokenEstimate": None},
        "slices": list(slices),
        "routeSignal": None
        if signal is None
        else {
            "definitionId": "confidence",
            "version": "1",
            "calibrationDigest": d(5),
            "value": signal,
            "provenance": {"kind": "route-signal-observation", "sourceId": "router", "observedAt": STARTED},
        },
        "dispatchIntent": {
            "version": "tasc-dispatch-intent-v1",
            "issuedAt": STARTED,
            "authorityKeyId": "dispatch",
            "signatureAlgorithm": "ed25519",
            "signature": _UNSIGNED,
        },
        "attempts": made,
        "terminalOutputId": output if success else None,
        "collectorVersion": "tests",
        "collectorAttestation": {
            "version": "tasc-collector-attestation-v1",
            "collectedAt": made[-1]["observerTimings"]["completedAt"],
            "authorityKeyId": "collector",
            "signatureAlgorithm": "ed25519",
            "signature": _UNSIGNED,
        },
    } | changes
    return TraceEnvelope.from_value(value)


SNAPSHOT = EvaluatorTrustSnapshot.from_value(
    {
        "version": "tasc-evaluator-trust-snapshot-v1",
        "freshness": {"maximumEvidenceAgeMs": 30 * 86_400_000, "maximumFutureSkewMs": 0},
        "keys": [
            {
                "keyId": "scorer-1",
                "purpose": "evaluator-evidence",
                "algorithm": "ed25519",
                "publicKeySpki": _KEYS[2],
                "evaluatorId": "scorer",
                "producerId": "job",
                "authorizedRubricVersions": ["1"],
                "authorizedCalibrationDigests": [d(6)],
                "validFrom": CREATED,
                "validUntil": EXPIRES,
            }
        ],
        "revocations": [{"keyId": "scorer-1", "revokedAt": "2026-08-30T00:00:00.000Z", "reasonCode": "rotated"}],
    }
).record


def context(as_of: str = AS_OF) -> AssessmentContext:
    return AssessmentContext.issue(
        as_of=as_of,
        operator_trust_policy_snapshot_digest=SNAPSHOT.digest,
        evaluator_revocation_snapshot_digest=SNAPSHOT.revocations_digest,
    )


def receipt(
    of: Parsed[TraceEnvelope],
    score: float | str = 0.9,
    *,
    status: EvidenceStatus = EvidenceStatus.TRUSTED,
    under: AssessmentContext | None = None,
    **changes: Any,
) -> EvidenceReceipt:
    """Evidence about a trace as a check would have found it; a word instead of a score is that outcome."""
    record = of.record
    outcome = (
        {"kind": score, "reasonCode": "because"}
        if isinstance(score, str)
        else {"kind": "scored", "score": score, "range": {"minimum": 0, "maximum": 1}, "subscores": []}
    )
    value = {
        "version": "tasc-evaluator-evidence-v2",
        "studyId": "study",
        "protocolDigest": record.protocol_digest,
        "traceId": record.trace_id,
        "caseId": record.case_id,
        "replicateId": record.replicate_id,
        "profileId": record.profile_id,
        "split": record.split,
        "terminalOutputId": of.value["terminalOutputId"]
        or {"algorithm": "hmac-sha256", "keyId": "payload", "value": "f" * 64},
        "evaluator": {
            "evaluatorId": "scorer",
            "rubricVersion": "1",
            "calibrationDigest": d(6),
            "producer": {"kind": "deterministic", "producerId": "job", "version": "1"},
        },
        "outcome": outcome,
        "source": {"kind": "digest", "digest": d(9)},
        "producedAt": SCORED_AT,
        "keyId": "scorer-1",
        "signatureAlgorithm": "ed25519",
        "signature": _UNSIGNED,
    } | changes
    parsed = EvaluatorEvidence.from_value(value)
    return EvidenceReceipt(parsed.record, EvaluatorEvidence.digest_of(parsed.value), status, under or context())


def pair(
    case: str, champion: float = 0.9, candidate: float = 0.9, **fields: Any
) -> tuple[list[Parsed[TraceEnvelope]], list[EvidenceReceipt]]:
    """Both profiles of a case with their scores."""
    traces = [trace(case, CHAMPION, **fields), trace(case, CANDIDATE, **fields)]
    return traces, [receipt(traces[0], champion), receipt(traces[1], candidate)]


def table(
    traces: Sequence[Parsed[TraceEnvelope]],
    receipts: Sequence[EvidenceReceipt],
    terms: Parsed[ExperimentProtocol] = PROTOCOL,
) -> Table:
    """The joined table of both."""
    return table_of(Sources(ProtocolTerms.of(terms), traces, receipts, SNAPSHOT), verified=True)
