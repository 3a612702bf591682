"""A small study written by hand: protocol, policy, trace, manifest, plan; and the two keys that sign it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from tasc_collector.contracts.controller import ControllerSnapshot
from tasc_collector.contracts.envelope import (
    ATTESTATION_DOMAIN,
    ATTESTATION_FIELD,
    DISPATCH_DOMAIN,
    DISPATCH_FIELD,
    attestation_preimage,
    dispatch_preimage,
)
from tasc_collector.contracts.membership import membership_digest
from tasc_collector.contracts.policy import PolicyBundle
from tasc_collector.contracts.protocol import ExperimentProtocol
from tasc_collector.contracts.shadow_plan import ShadowRunPlan
from tasc_collector.signing import SigningKey

Value = dict[str, Any]
D = "sha256:" + "1" * 64
DISPATCH = SigningKey.generate()
COLLECTOR = SigningKey.generate()


def _profile(profile_id: str, runtime: str) -> Value:
    return {
        "id": profile_id,
        "runtime": {"name": runtime, "build": "1.0"},
        "backend": {"name": "cuda", "build": "13.0"},
        "model": {"id": "model", "revision": "r1"},
        "tokenizer": {"id": "tokenizer", "revision": "r1"},
        "hardware": {"architecture": "x86-64", "accelerator": "h100", "acceleratorCount": 1},
        "quantization": {"format": "bf16", "configurationDigest": D},
        "chatTemplateDigest": D,
        "orchestration": {"kind": "direct", "configurationDigest": D},
        "deploymentConfigurationDigest": D,
    }


def _authority(name: str, key: SigningKey) -> Value:
    return {"keyId": name, "algorithm": "ed25519", "publicKeySpki": key.public_key.spki}


PROTOCOL: Value = {
    "version": "tasc-experiment-protocol-v2",
    "studyId": "study",
    "protocolVersion": "1",
    "owner": "the inference team",
    "createdAt": "2026-07-20T00:00:00.000Z",
    "expiresAt": "2026-09-01T00:00:00.000Z",
    "dispatchAuthority": _authority("dispatch", DISPATCH),
    "collectorAuthority": _authority("collector", COLLECTOR),
    "splitMembership": {
        "algorithm": "tasc-seeded-sha256-group-bucket-v1",
        "seed": "split",
        "bucketCount": 4,
        "developmentBuckets": [0, 1, 2],
        "holdoutBuckets": [3],
    },
    "onlineWindowMembership": {
        "algorithm": "tasc-seeded-sha256-case-replicate-basis-points-v1",
        "seed": "sample",
        "sampleBasisPoints": 10000,
    },
    "profiles": [_profile("champion", "vllm"), _profile("candidate", "sglang")],
    "championProfileId": "champion",
    "candidateProfileIds": ["candidate"],
    "routeSignal": {
        "definitionId": "confidence",
        "version": "1",
        "minimum": 0,
        "maximum": 1,
        "direction": "higher-is-more-confident",
        "calibrationDigest": D,
    },
    "evaluator": {
        "evaluatorId": "evaluator",
        "rubricVersion": "rubric 1",
        "calibrationDigest": D,
        "producerKind": "deterministic",
        "producerId": "producer",
        "producerVersion": "1.0",
        "requiredTrustedKeyIds": ["evaluator-key"],
    },
    "candidatePolicySpace": {
        "version": "tasc-declarative-policy-space-v1",
        "maxCandidates": 2,
        "predicates": [
            {
                "signalDefinitionId": "confidence",
                "operator": "less-than",
                "threshold": 0.7,
                "routeToProfileId": "champion",
            }
        ],
    },
    "gates": {
        "minimumMeanScore": 0.9,
        "nonInferiorityMargin": -0.05,
        "maximumFailureRate": 0,
        "maximumP95TtftMs": 1000,
        "maximumP95EndToEndMs": 1200.5,
        "maximumCostPerThousandRequestsUsd": 12,
        "minimumEvidenceCoverage": 1,
        "minimumIndependentGroups": 4,
        "minimumCriticalSliceGroups": 2,
        "serviceCapacity": {"kind": "disabled"},
    },
    "criticalSlices": ["recovery"],
    "bootstrap": {"algorithm": "paired-group-percentile-v1", "seed": "draws", "iterations": 128, "alpha": 0.05},
    "shadowCollection": {
        "maximumLogicalExecutions": 16,
        "maximumConcurrency": 2,
        "attemptTimeoutMs": 10000,
        "maximumAttempts": 2,
        "payloadPolicy": "keyed-identities-only",
    },
    "costAllocation": {"kind": "unavailable"},
    "endpointRequirements": [
        {"runtimeName": "vllm", "endpointAlias": "endpoint-a", "transport": "https"},
        {"runtimeName": "sglang", "endpointAlias": "endpoint-b", "transport": "https"},
    ],
    "requiredCapabilities": [],
}


def _keyed(digit: str) -> Value:
    return {"algorithm": "hmac-sha256", "keyId": "payload", "value": digit * 64}


def _attempt(number: int, second: int) -> Value:
    def at(ms: int) -> str:
        return f"2026-07-23T00:00:{second:02d}.{ms:03d}Z"

    return {
        "attemptId": f"attempt-{number}",
        "attemptNumber": number,
        "dispatchState": "completed",
        "observerTimings": {
            "startedAt": at(0),
            "headersAt": at(20),
            "firstByteAt": at(20),
            "firstMeaningfulTokenAt": at(30),
            "completedAt": at(90),
        },
        "status": "success",
        "finishReason": "stop",
        "partialOutput": False,
        "abortLifecycle": "not-aborted",
        "failureCategory": None,
        "requestedModel": {"id": "model", "revision": "r1"},
        "resolvedModel": {"id": "model", "revision": None, "source": "provider-id-only"},
        "tokenUsage": {
            kind: {"value": 7, "source": "provider-reported", "semantics": f"provider-{kind}-tokens"}
            for kind in ("input", "output", "total")
        },
        "providerReported": {
            "timings": [{"name": "load-duration", "valueMs": 1.5, "source": "provider-reported"}],
            "metrics": [],
        },
        "cost": {"kind": "unavailable"},
        "payloads": {"request": _keyed("a"), "response": _keyed("b"), "eventStream": _keyed("c")},
    }


def _trace() -> Value:
    protocol = ExperimentProtocol.from_value(PROTOCOL).record
    return {
        "version": "tasc-trace-envelope-v2",
        "studyId": "study",
        "protocolDigest": protocol.digest,
        "traceId": "trace-1",
        "caseId": "case-1",
        "groupId": "group-1",
        "replicateId": "replicate-0",
        "split": "online",
        "collectionWindowId": "window-1",
        "collectionWindowMembershipDigest": membership_digest(
            "window-1", protocol.digest, protocol.online_window_membership
        ),
        "sourceMode": "shadow",
        "collectionBinding": {
            "shadowPlanDigest": D,
            "endpointAlias": "endpoint-a",
            "endpointBindingDigest": D,
            "route": "completions",
            "authenticationReference": None,
            "httpLimitsDigest": D,
            "capabilityReceiptDigests": [],
        },
        "profileId": "champion",
        "executionProfileDigest": protocol.profiles[0].digest,
        "policyDigest": D,
        "observedRoute": {"selectedProfileId": "champion", "decisionId": "route-1"},
        "workload": {"mode": "completion", "declaredTrafficWeight": 1, "inputTokenEstimate": None},
        "slices": ["routine"],
        "routeSignal": {
            "definitionId": "confidence",
            "version": "1",
            "calibrationDigest": D,
            "value": 0.5,
            "provenance": {
                "kind": "route-signal-observation",
                "sourceId": "router",
                "observedAt": "2026-07-23T00:00:00.000Z",
            },
        },
        "dispatchIntent": {
            "version": "tasc-dispatch-intent-v1",
            "issuedAt": "2026-07-23T00:00:00.000Z",
            "authorityKeyId": "dispatch",
            "signatureAlgorithm": "ed25519",
        },
        "attempts": [_attempt(1, 1)],
        "terminalOutputId": _keyed("d"),
        "collectorVersion": "collector 1",
        "collectorAttestation": {
            "version": "tasc-collector-attestation-v1",
            "collectedAt": "2026-07-23T00:00:02.000Z",
            "authorityKeyId": "collector",
            "signatureAlgorithm": "ed25519",
        },
    }


def sign_trace(value: Value, *, dispatch: SigningKey = DISPATCH, collector: SigningKey = COLLECTOR) -> Value:
    """``value`` with both signatures made again."""
    intent, attestation = value["dispatchIntent"], value["collectorAttestation"]
    intent["signature"] = dispatch.sign(DISPATCH_DOMAIN, DISPATCH_FIELD, dispatch_preimage(value))
    attestation["signature"] = collector.sign(ATTESTATION_DOMAIN, ATTESTATION_FIELD, attestation_preimage(value))
    return value


def _plan() -> Value:
    protocol = ExperimentProtocol.from_value(PROTOCOL).record
    selected = {"issuedAt": "2026-07-21T00:00:00.000Z", "expiresAt": protocol.expires_at}
    policy = PolicyBundle.issue(
        kind="fast-only", primary_profile_id="candidate", expert_profile_id="champion", predicates=(),
        fallback_profile_id=None, protocol_digest=protocol.digest, issued_at=selected["issuedAt"],
        expires_at=protocol.expires_at, signer=None,
    )  # fmt: skip
    selected["policyDigest"] = policy.policy_digest
    evidence = {"datasetDigest": D, "traceSetDigest": D, "evaluatorSetDigest": D}
    snapshot = {
        "version": "tasc-controller-snapshot-v1",
        "controllerId": "controller",
        "studyId": "study",
        "protocolDigest": protocol.digest,
        "protocolCreatedAt": protocol.created_at,
        "protocolExpiresAt": protocol.expires_at,
        "state": "SHADOW_ASSESSING",
        "sequence": 5,
        "lastEventId": D,
        "lastEventAt": "2026-07-22T00:00:00.000Z",
        "collectionId": "collection",
        "developmentEvidence": evidence,
        "selectedPolicy": selected,
        "assessments": [
            {
                "version": "tasc-controller-assessment-projection-v1",
                "decisionDigest": D,
                "assessmentContextDigest": D,
                "protocolDigest": protocol.digest,
                **evidence,
                "selectedPolicy": selected,
                "attestation": "unattested",
                "phase": "development",
                "status": "NOMINATED",
                "windowManifestDigest": None,
            }
        ],
        "windows": [],
        "deploymentObservation": None,
        "staleReasons": [],
        "attestation": "unattested",
    }
    snapshot["snapshotDigest"] = ControllerSnapshot.digest_of(snapshot)
    rule = protocol.online_window_membership
    targets = [
        {
            "profileId": name,
            "endpointAlias": alias,
            "endpointBindingDigest": D,
            "route": "completions",
            "authenticationReference": None,
            "httpLimitsDigest": D,
            "capabilityReceiptDigests": [],
            "executionProfileDigest": protocol.profile(name).digest,
            "runtimeName": protocol.profile(name).runtime.name,
            "transport": "https",
        }
        for name, alias in (("candidate", "endpoint-b"), ("champion", "endpoint-a"))
    ]
    return issue_plan(
        {
            "version": "tasc-shadow-run-plan-v1",
            "authority": "out-of-band-controller-only-no-deployment-authority",
            "controllerSnapshot": snapshot,
            "controllerSnapshotDigest": snapshot["snapshotDigest"],
            "protocol": copy.deepcopy(PROTOCOL),
            "protocolDigest": protocol.digest,
            "frozenPolicy": policy.to_json(),
            "frozenPolicyDigest": policy.policy_digest,
            "window": {
                "windowId": "window-1",
                "eventTimeStartInclusive": "2026-07-23T00:00:00.000Z",
                "eventTimeEndExclusive": "2026-07-23T01:00:00.000Z",
                "membershipRule": rule.to_json(),
                "membershipDigest": membership_digest("window-1", protocol.digest, rule),
            },
            "collectionTargets": targets,
            "workBudget": {
                "maxCases": 4,
                "maxProfiles": 2,
                "maxReplicates": 4,
                "maxLogicalExecutions": 8,
                "maxAttempts": 16,
                "maxNetworkCalls": 16,
                "maxDurableRecords": 64,
                "maxRequestBytes": 1048576,
                "maxResponseBytes": 67108864,
                "maxWallClockMs": 3600000,
                "maxConcurrency": 2,
            },
            "issuedAt": "2026-07-22T00:00:00.000Z",
            "expiresAt": "2026-07-23T01:00:00.000Z",
        }
    )


def issue_plan(value: Value) -> Value:
    """``value`` with the plan's own digest made again."""
    value["planDigest"] = ShadowRunPlan.digest_of(value)
    return value


@pytest.fixture
def protocol_value() -> Value:
    """A protocol to change."""
    return copy.deepcopy(PROTOCOL)


@pytest.fixture
def trace_value() -> Value:
    """A signed trace to change."""
    return sign_trace(_trace())


@pytest.fixture
def attempt_value() -> Callable[[int, int], Value]:
    """Builds an attempt by number and second of its start."""
    return _attempt


@pytest.fixture
def resign() -> Callable[..., Value]:
    """Signs a changed trace again, with other keys where given."""
    return sign_trace


@pytest.fixture
def plan_value() -> Value:
    """A shadow run plan to change."""
    return _plan()


@pytest.fixture
def reissue() -> Callable[[Value], Value]:
    """Makes a changed plan's own digest again."""
    return issue_plan
