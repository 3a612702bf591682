"""What is kept of one call, its error allowlist, HTTP limits, and probe evidence."""

from __future__ import annotations

from typing import Any

import pytest

from tasc_collector.contracts.http_limits import HttpLimits
from tasc_collector.contracts.persistence import ERROR_MESSAGES, PersistedError, RuntimeInvocationPersistence
from tasc_collector.contracts.probe import CapabilityProbeEvidence
from tasc_collector.errors import Category, InputError
from tasc_collector.limits import HTTP_CEILINGS, HTTP_DEFAULTS

Value = dict[str, Any]
D = "sha256:" + "1" * 64


def _keyed(digit: str) -> Value:
    return {"algorithm": "hmac-sha256", "keyId": "payload", "value": digit * 64}


COMPLETED: Value = {
    "schemaVersion": "tasc-runtime-invocation-persistence-v1",
    "status": "completed",
    "endpointBindingDigest": D,
    "profile": {"id": "ollama", "build": "0.32.5"},
    "route": "nativeGenerate",
    "requestedModel": {"id": "m:1b", "revision": "sha256:abc"},
    "resolvedModel": {"id": "m:1b", "revision": None, "verification": "provider-reported"},
    "requestIdentity": _keyed("a"),
    "responseIdentity": _keyed("b"),
    "eventStreamIdentity": _keyed("b"),
    "terminalOutputIdentity": _keyed("c"),
    "finishReason": "stop",
    "providerUsage": {"inputTokens": 3, "outputTokens": 5, "totalTokens": 8},
    "providerTiming": {"totalDurationNs": 12},
    "finalUsage": "present",
    "partialOutput": False,
    "dispatchState": "completed",
    "abortLifecycle": "not-aborted",
    "wireTiming": {"startedAt": "2026-07-23T00:00:00.000Z", "headersMs": 1.5, "completedMs": 9},
    "streamTiming": None,
    "error": None,
}
ERROR: Value = PersistedError.of(Category.TIMEOUT, runtime="ollama").to_json()
FAILED: Value = {
    **COMPLETED,
    "status": "failed",
    "resolvedModel": None,
    "responseIdentity": None,
    "eventStreamIdentity": None,
    "terminalOutputIdentity": None,
    "finishReason": None,
    "providerUsage": None,
    "providerTiming": {},
    "finalUsage": "missing",
    "dispatchState": "not_sent",
    "wireTiming": None,
    "error": ERROR,
}


@pytest.mark.parametrize("value", [COMPLETED, FAILED], ids=["completed", "failed"])
def test_a_call_is_read_and_written_again(value: Value) -> None:
    record = RuntimeInvocationPersistence.from_value(value).record
    assert record.to_json() == value


@pytest.mark.parametrize(
    ("value", "rule"),
    [
        ({**COMPLETED, "terminalOutputIdentity": None}, "terminalOutputIdentity"),
        ({**FAILED, "terminalOutputIdentity": _keyed("c")}, "terminalOutputIdentity"),
        ({**COMPLETED, "dispatchState": "sent_unknown"}, "dispatchState completed"),
        ({**COMPLETED, "finishReason": None}, "finishReason"),
        ({**COMPLETED, "resolvedModel": None}, "resolvedModel"),
        ({**COMPLETED, "finalUsage": "missing"}, "finalUsage present"),
        ({**COMPLETED, "partialOutput": True}, "no partial output"),
        ({**COMPLETED, "error": ERROR}, "no error"),
        ({**COMPLETED, "abortLifecycle": "deadline-exceeded"}, "not aborted"),
        ({**FAILED, "error": None}, "has an error"),
        ({**FAILED, "responseIdentity": _keyed("b")}, "no responseIdentity"),
        ({**COMPLETED, "providerTiming": {"totalDurationNs": 86_400_000_000_001}}, "less than or equal"),
        ({**COMPLETED, "wireTiming": {**COMPLETED["wireTiming"], "headersMs": None}}, "leave the field out"),
        ({**COMPLETED, "route": "embeddings"}, "chatCompletions"),
    ],
)
def test_a_broken_rule_is_refused_by_name(value: Value, rule: str) -> None:
    with pytest.raises(InputError, match=rule):
        RuntimeInvocationPersistence.from_value(value)


@pytest.mark.parametrize("category", list(Category))
def test_a_persisted_error_has_the_fixed_text_of_its_category(category: Category) -> None:
    error = PersistedError.of(category, status=500, runtime="vllm", request_id="req-1")
    assert error.message == ERROR_MESSAGES[category]
    with pytest.raises(ValueError, match="fixed text"):
        PersistedError(**{**dict(error), "message": "the provider said something"})


@pytest.mark.parametrize("request_id", ["sk-abcdefgh1", "Bearer", "a b", "-a", "a" * 129, "my-secret", ""])
def test_an_error_id_that_could_be_a_credential_is_refused(request_id: str) -> None:
    with pytest.raises(ValueError, match=r"credential|pattern|at most|at least"):
        PersistedError.of(Category.TIMEOUT, request_id=request_id)


def test_default_http_limits_have_the_published_digest() -> None:
    assert HttpLimits().digest == "sha256:d432fc762905fffb462e8f980a48aff7a3fd689c6be1e634809ff10693384152"
    shorter = "sha256:3821776e6903dfbc4edb779900af93097a402dd718634c9de9b72512dcfd23e1"
    assert HttpLimits(deadline_ms=10_000).digest == shorter
    assert HttpLimits.digest_of({"deadlineMs": 10_000}) == shorter


@pytest.mark.parametrize("name", sorted(HTTP_CEILINGS))
def test_http_limits_end_at_their_ceilings(name: str) -> None:
    assert getattr(HttpLimits(), name) == HTTP_DEFAULTS[name]
    assert getattr(HttpLimits(**{name: HTTP_CEILINGS[name]}), name) == HTTP_CEILINGS[name]
    for wrong in (0, HTTP_CEILINGS[name] + 1):
        with pytest.raises(ValueError, match=r"equal to"):
            HttpLimits(**{name: wrong})


def _unverified() -> Value:
    return {"basis": "unverified", "observed": None}


PROBE: Value = {
    "schemaVersion": "tasc-runtime-capability-probe-v1",
    "source": "live-probe",
    "capability": "modelDiscovery",
    "state": "supported",
    "probedAt": "2026-07-23T00:00:00.000Z",
    "identityVerification": {
        "endpointBinding": "operator-policy",
        "runtimeBuild": {"basis": "operator-policy", "observed": None},
        "backend": _unverified(),
        "modelId": {"basis": "provider-reported", "observed": "m"},
        "modelRevision": _unverified(),
        "configurationDigest": _unverified(),
    },
    "endpointDescriptorDigest": D,
    "runtime": {"profileId": "vllm", "build": "0.26.0"},
    "backend": {"name": "cuda", "build": "13.0"},
    "model": {"id": "m", "revision": "r1"},
    "configurationDigest": D,
}


def test_probe_evidence_is_read_and_written_again() -> None:
    assert CapabilityProbeEvidence.from_value(PROBE).record.to_json() == PROBE


@pytest.mark.parametrize(
    ("part", "claim", "rule"),
    [
        ("modelId", {"basis": "provider-reported", "observed": None}, "observed is set exactly"),
        ("modelId", {"basis": "unverified", "observed": "m"}, "observed is set exactly"),
        ("modelId", {"basis": "provider-reported", "observed": "other"}, "modelId: observed must be the configured"),
        ("modelRevision", {"basis": "provider-reported", "observed": "r2"}, "modelRevision"),
        ("runtimeBuild", {"basis": "provider-reported", "observed": "0.26.1"}, "runtimeBuild"),
        ("runtimeBuild", _unverified(), "operator-policy"),
        ("backend", {"basis": "provider-reported", "observed": {"name": "rocm", "build": "6"}}, "backend"),
        ("configurationDigest", {"basis": "provider-reported", "observed": "x"}, "configurationDigest"),
    ],
)
def test_a_probe_claims_no_more_than_it_saw(part: str, claim: Value, rule: str) -> None:
    seen = {**PROBE["identityVerification"], part: claim}
    with pytest.raises(InputError, match=rule):
        CapabilityProbeEvidence.from_value({**PROBE, "identityVerification": seen})
