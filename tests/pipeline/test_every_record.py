"""Every record class of the catalogue: each field removed, added or retyped is refused by its name.

Most values are what a real study leaves on disk; the others are written here. A class without a value fails the test.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from tasc_collector.contracts.base import Record
from tasc_collector.contracts.catalogue import RECORD_CLASSES, record_class
from tasc_collector.contracts.collection import CollectionPlan
from tasc_collector.contracts.decision_answers import DecisionAnswers
from tasc_collector.contracts.http_limits import HttpLimits
from tasc_collector.contracts.notices import NoticeRules
from tasc_collector.errors import InputError
from tasc_pipeline.home.toml_records import read_toml
from tasc_pipeline.steps.decision_answers import read_answers
from tasc_pipeline.steps.export import export_traces
from tasc_pipeline.steps.fork_study import fork_study
from tasc_pipeline.steps.new_study import NewStudy, Server, new_study
from tasc_pipeline.steps.validate import TOML_RECORDS
from tests.support import sample_warehouse
from tests.support.decision_windows import policy, protocol
from tests.support.decision_world import STUDY, decision_world
from tests.support.made_decisions import made_decision
from tests.support.mutations import check_every_field
from tests.support.window import now

Value = dict[str, Any]
D: Final = "sha256:" + "1" * 64
AT, LATER = "2026-07-20T00:00:00.000Z", "2026-09-01T00:00:00.000Z"
SIGNATURE: Final = {"authorityKeyId": "key-1", "signatureAlgorithm": "ed25519", "signature": "A" * 86}
BUILD: Final = {"profileId": "vllm", "build": "0.26.0"}
BACKEND: Final = {"name": "cuda", "build": "13.0"}
MODEL: Final = {"id": "model", "revision": "r1"}
UNVERIFIED: Final = {"basis": "unverified", "observed": None}
VERIFICATION: Final = {
    "endpointBinding": "operator-policy",
    "runtimeBuild": {"basis": "provider-reported", "observed": "0.26.0"},
    "backend": UNVERIFIED,
    "modelId": {"basis": "provider-reported", "observed": "model"},
    "modelRevision": UNVERIFIED,
    "configurationDigest": UNVERIFIED,
}
PROBE: Final = {
    "schemaVersion": "tasc-runtime-capability-probe-v1",
    "source": "live-probe",
    "capability": "completions",
    "state": "supported",
    "probedAt": AT,
    "identityVerification": VERIFICATION,
    "endpointDescriptorDigest": D,
    "runtime": BUILD,
    "backend": BACKEND,
    "model": MODEL,
    "configurationDigest": D,
}
KEYED: Final = {"algorithm": "hmac-sha256", "keyId": "payload", "value": "a" * 64}
MARKS: Final = (
    "begun", "resolved", "connected", "secured", "leased", "requestStarted", "requestWritten", "headers", "firstByte",
    "firstToken", "firstVisibleToken", "lastToken", "lastByte",
)  # fmt: skip
ENDPOINT_FILE: Final = {
    "schemaVersion": "tasc-cli-runtime-endpoint-v1",
    "endpointAlias": "endpoint-a",
    "authentication": {
        "reference": "endpoint-a-auth",
        "header": "x-api-key",
        "environmentVariable": "TASC_RUNTIME_AUTH_A",
    },
}
TARGET: Final = {
    "profileId": "champion",
    "endpoint": ENDPOINT_FILE,
    "instance": {
        "endpointDescriptorDigest": D,
        "runtime": BUILD,
        "backend": BACKEND,
        "model": MODEL,
        "configurationDigest": D,
    },
    "route": "completions",
}
BY_HAND: Final[tuple[Value, ...]] = (
    {
        "version": "tasc-assessment-context-v2",
        "asOf": AT,
        "operatorTrustPolicySnapshotDigest": D,
        "evaluatorRevocationSnapshotDigest": D,
    },
    PROBE,
    {
        "version": "tasc-capability-receipt-v1",
        "capability": "completions",
        "state": "supported",
        "effect": "inference-canary",
        "endpointAlias": "endpoint-a",
        "endpointBindingDigest": D,
        "runtime": BUILD,
        "backend": BACKEND,
        "model": MODEL,
        "configurationDigest": D,
        "route": "completions",
        "framing": "sse",
        "identityVerification": VERIFICATION,
        "notProved": ["stop-sequences"],
        "reason": "observed",
        "status": 200,
        "dispatchState": "completed",
        "calls": 1,
        "measured": [{"metric": "requests-running", "labels": [], "value": 1.0}],
        "observedAt": AT,
        "validUntil": LATER,
        "evidence": PROBE,
        "signature": SIGNATURE,
    },
    {
        "schemaVersion": "tasc-endpoint-descriptor-v1",
        "origin": "https://models.example",
        "basePath": "/v1",
        "runtime": BUILD,
        "orchestration": {
            "kind": "ray-serve",
            "build": "2.50",
            "configurationDigest": D,
            "locator": {"applicationName": "app", "deploymentName": "llm"},
        },
        "authority": {"deployment": "none", "network": "unverified"},
    },
    {
        "version": "tasc-experiment-budget-v1",
        "maxLogicalExecutions": 10,
        "maxAttempts": 20,
        "maxCostUsd": 1.5,
        "maxWallClockMs": 60000,
        "payloadPolicy": "keyed-identities-only",
    },
    {
        "version": "tasc-experiment-history-v1",
        "registeredExperiments": [
            {
                "parentProtocolDigest": D,
                "experimentIntentDigest": D,
                "registeredProtocolDigest": "sha256:" + "2" * 64,
                "outcomeAssessmentDigest": None,
            }
        ],
        "findings": [
            {
                "kind": "required-capability-mismatch",
                "protocolDigest": D,
                "profileId": "champion",
                "capabilityId": "streaming",
                "capabilityEvidenceDigest": D,
            }
        ],
    },
    ENDPOINT_FILE,
    {"schemaVersion": "tasc-cli-shadow-profiles-v2", "targets": [TARGET, {**TARGET, "profileId": "candidate"}]},
    {
        "schemaVersion": "tasc-cli-shadow-identity-v2",
        "studyId": "study",
        "keyId": "payload",
        "hmacKeyEnvironmentVariable": "TASC_SHADOW_HMAC_A",
        "dispatchPrivateKeyEnvironmentVariable": "TASC_SHADOW_SIGNING_A",
        "collectorPrivateKeyEnvironmentVariable": "TASC_SHADOW_SIGNING_B",
    },
    {
        "version": "tasc-authorization-revocation-v1",
        "authorizationDigest": D,
        "revokedAt": AT,
        "reasonCode": "study-over",
        "signature": SIGNATURE,
    },
    {
        "version": "tasc-standing-authorization-v1",
        "authorizationId": "hourly",
        "studyId": "study",
        "protocolDigest": D,
        "purposes": ["comparison"],
        "targets": [
            {
                "profileId": "champion",
                "endpointAlias": "endpoint-a",
                "endpointBindingDigest": D,
                "route": "completions",
                "laneWidth": 2,
            }
        ],
        "effects": ["inference-canary"],
        "ceilings": {
            "windowsPerDay": 24,
            "windowsInAll": 100,
            "callsPerDay": 1000,
            "outputTokensPerDay": 100000,
            "canaryCallsPerDay": 4,
            "costUsdPerDay": 3.5,
        },
        "costModelDigest": D,
        "issuedAt": AT,
        "expiresAt": LATER,
        "signature": SIGNATURE,
    },
    {
        "version": "tasc-build-profile-v1",
        "runtime": "vllm",
        "build": "0.33.0",
        "wireBase": {"runtime": "vllm", "build": "0.26.0"},
        "declaredBy": "operator",
        "createdAt": AT,
    },
    {
        "version": "tasc-collector-fault-v1",
        "windowKey": "window.r01-11111111",
        "planDigest": D,
        "traceId": None,
        "caseId": "case-1",
        "groupId": "group-1",
        "replicateId": "replicate-1",
        "replicateIndex": 0,
        "profileId": "champion",
        "state": "not_attempted",
        "reason": "window-closed",
        "category": None,
        "attempts": 0,
        "recordedAt": AT,
    },
    {
        "version": "tasc-compacted-manifest-v1",
        "table": "traces",
        "schemaId": "tasc-traces-v1",
        "generation": 1,
        "covers": [{"windowKey": "window.r01-11111111", "sha256": "a" * 64, "rows": 3}],
        "parts": [{"file": "part-12345678.parquet", "rows": 3, "bytes": 100, "sha256": "a" * 64}],
        "signature": SIGNATURE,
    },
    {
        "version": "tasc-network-extension-v1",
        "studyId": "study",
        "endpoints": [
            {
                "alias": "endpoint-a",
                "privateNetworks": {
                    "cidrs": ["10.20.0.0/16"],
                    "caFile": {"path": "/etc/ca.pem", "digest": D},
                    "spkiPin": None,
                },
                "clientCertificate": "keyfile:client.pem",
            }
        ],
        "issuedAt": AT,
        "expiresAt": LATER,
    },
    {
        "version": "tasc-notice-v1",
        "kind": "verdict-changed",
        "studyId": "study",
        "windowKey": "window.r01-11111111",
        "before": "no-worse",
        "after": "worse",
        "at": AT,
    },
    {
        "version": "tasc-metrics-scrape-v1",
        "windowKey": "window.r01-11111111",
        "endpointAlias": "endpoint-a",
        "endpointBindingDigest": D,
        "phase": "during",
        "scrapedAt": AT,
        "tookNs": 1000,
        "values": [{"metric": "requests-running", "labels": [], "value": 1.0}],
        "histograms": [{"metric": "ttft", "labels": [], "upperBounds": [0.1], "cumulativeCounts": [1, 2], "sum": 0.3}],
        "ignoredSamples": 0,
        "nonFiniteSamples": 0,
        "signature": SIGNATURE,
    },
    {
        "version": "tasc-metrics-scrape-batch-v1",
        "windowKey": "window.r01-11111111",
        "lines": 64,
        "contentDigest": D,
        "signedAt": AT,
        "signature": SIGNATURE,
    },
    {
        "version": "tasc-notice-post-v1",
        "noticeDigest": D,
        "state": "completed",
        "httpStatus": 204,
        "code": None,
        "at": AT,
    },
    {
        "version": "tasc-notice-rules-v1",
        "agreeingWindows": 2,
        "periodMinutes": 60.0,
        "webhook": {
            "origin": "https://hooks.example",
            "path": "/tasc",
            "header": "authorization",
            "secret": "keyfile:webhook.key",
        },
    },
    {
        "schemaVersion": "tasc-runtime-invocation-persistence-v1",
        "status": "completed",
        "endpointBindingDigest": D,
        "profile": {"id": "ollama", "build": "0.32.5"},
        "route": "nativeGenerate",
        "requestedModel": {"id": "m:1b", "revision": "sha256:abc"},
        "resolvedModel": {"id": "m:1b", "revision": None, "verification": "provider-reported"},
        "requestIdentity": KEYED,
        "responseIdentity": KEYED,
        "eventStreamIdentity": KEYED,
        "terminalOutputIdentity": KEYED,
        "finishReason": "stop",
        "providerUsage": {"inputTokens": 3, "outputTokens": 5, "totalTokens": 8},
        "providerTiming": {"totalDurationNs": 12},
        "finalUsage": "present",
        "partialOutput": False,
        "dispatchState": "completed",
        "abortLifecycle": "not-aborted",
        "wireTiming": {"startedAt": AT, "headersMs": 1.5, "completedMs": 9},
        "streamTiming": None,
        "error": None,
    },
    {
        "version": "tasc-trace-timeline-v1",
        "traceId": "trace-1",
        "traceDigest": D,
        "attemptId": "attempt-1",
        "framing": "sse",
        "marks": {f"{name}Ns": place * 1000 for place, name in enumerate(MARKS)},
        "events": {"offsetNs": [5000], "tokens": [1], "kind": ["answer"], "uncertaintyNs": [0]},
        "eventsDropped": 0,
        "arrivalUncertaintyNs": 0,
        "collectorLagNs": 100,
        "timingFlagged": False,
        "requestBytes": 100,
        "responseBytes": 200,
        "reads": 2,
        "peer": "peer-1",
        "cachedInputTokens": 0,
        "reasoningTokens": None,
    },
)
"""Valid values of records that the study below does not leave on disk."""
ELSEWHERE: Final[Mapping[str, str]] = {
    "ProposedExperiment": "tests/collector/contracts/test_proposal.py",
    "HeldExperiment": "tests/collector/contracts/test_proposal.py",
    "ControllerEvent": "tests/collector/contracts/test_mutations.py",
    "ControllerSnapshot": "tests/collector/contracts/test_mutations.py",
}
"""Classes that another file changes field by field."""
OPTIONAL: Final = frozenset(
    {
        "contextDigest",
        "budgetDigest",
        "historyDigest",
        "tokenizerDigest",
        "httpLimits",
        "endpointDescriptor",
        "authentication",
        "authenticationReference",
        *HttpLimits.omitted,
        "totalDurationNs",
        "headersMs",
    }
)
"""Members that a file may leave out."""
BY_RULE: Final[Mapping[type[Record], frozenset[str]]] = {
    DecisionAnswers: frozenset({"champion", "candidate"}),
    NoticeRules: frozenset({"header", "secret"}),
}
"""Members whose absence is refused by the rule about several of them, which names the object."""
UNTOUCHED: Final = frozenset(
    {"shadowRunPlan", "controllerSnapshot", "protocol", "frozenPolicy", "snapshot", "evidence"}
)
"""Members whose inside is another record, which has its own turn."""


def _values(folder: Path) -> dict[type[Record], Value]:
    """One value of every record class that a study and a window leave."""
    with decision_world(folder, cases=4) as made:
        made.to_collecting()
        made.to_shadow_assessing()
        key = made.collected("window")
        made.add_scores(key)
        compared = NewStudy(
            "compared", "tests", Server(made.champion.origin), (Server(made.candidate.origin),), made.cases
        )
        new_study(made.home, compared, now())
        fork_study(made.home, STUDY, ("gates.maximum_failure_rate=0.5",), now())
        files = sorted(path for path in made.home.root.rglob("*") if path.suffix in (".json", ".ndjson", ".toml"))
        traces = next(iter(export_traces(made.home, key)))
        answers = read_answers(folder / "answers" / "answers.toml", ())
    found: dict[type[Record], Value] = {}
    for path in files:
        if path.suffix == ".toml":
            cls = next(
                (item for item in TOML_RECORDS if str(item.model_fields["version"].default) in path.read_text()), None
            )
            if cls is not None:
                found[cls] = read_toml(cls, path).to_json()
            continue
        lines = path.read_bytes().splitlines()
        _add(found, json.loads(lines[0]) if lines else {})
    evaluated = protocol()
    _add(found, json.loads(traces))
    _add(found, answers.to_json())
    _add(found, sample_warehouse.assessment("window.r01-11111111").to_json())
    _add(found, made_decision(evaluated, policy(evaluated), "development", "NOMINATED").to_json())
    embedded = found[CollectionPlan]["shadowRunPlan"]
    _add(found, embedded)
    for value in BY_HAND:
        _add(found, json.loads(json.dumps(value)))  # no part is shared with another
    return found


def _add(found: dict[type[Record], Value], value: Value) -> None:
    try:
        cls = record_class(value)
    except InputError:
        return
    found[cls] = value


@pytest.fixture(scope="module")
def values(tmp_path_factory: pytest.TempPathFactory) -> dict[type[Record], Value]:
    return _values(tmp_path_factory.mktemp("records"))


@pytest.mark.parametrize("cls", RECORD_CLASSES, ids=lambda cls: cls.__name__)
def test_every_field_of_every_record_is_guarded(cls: type[Record], values: dict[type[Record], Value]) -> None:
    if cls.__name__ in ELSEWHERE and cls not in values:
        page = Path(__file__).resolve().parents[2] / ELSEWHERE[cls.__name__]
        assert f"check_every_field({cls.__name__}" in page.read_text()
        return
    assert cls in values, "no value of this class"
    cls.from_value(values[cls], where="file.json")
    check_every_field(cls, values[cls], optional=OPTIONAL | BY_RULE.get(cls, frozenset()), untouched=UNTOUCHED)
