"""The form of every field of a trace envelope v2, written down a second time from the original project's facts (section 3.2)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any

Check = Callable[[Any], bool]

_SLUG = re.compile(r"[a-z0-9](?:[a-z0-9._-]*[a-z0-9])?")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_INSTANT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3}Z")
_B64U = re.compile(r"[A-Za-z0-9_-]{1,512}")
_HEX = re.compile(r"[0-9a-f]{64}")
_CREDENTIAL = re.compile(
    r"\b(bearer|basic)\s+\S+|\b(api[-_ ]?key|authorization|password|secret)\b\s*[:=]|\bsk-[a-z0-9_-]{8,}", re.I
)
_SCORED = re.compile(r"evaluator|judge|quality|reward|score")
_MOST = 2**53 - 1


def slug(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= 128 and _SLUG.fullmatch(value) is not None


def digest_text(value: Any) -> bool:
    return isinstance(value, str) and _DIGEST.fullmatch(value) is not None


def instant(value: Any) -> bool:
    if not isinstance(value, str) or _INSTANT.fullmatch(value) is None:
        return False
    try:
        return datetime.fromisoformat(value.replace("Z", "+00:00")).strftime("%Y-%m-%dT%H:%M:%S") == value[:19]
    except ValueError:
        return False


def text(value: Any) -> bool:
    """Trace text: at most 256 UTF-16 units, no outer white space, nothing like a credential."""
    if not isinstance(value, str) or not value or value != value.strip():
        return False
    return len(value.encode("utf-16-le")) <= 512 and _CREDENTIAL.search(value) is None


def b64u(value: Any) -> bool:
    return isinstance(value, str) and _B64U.fullmatch(value) is not None


def whole(value: Any) -> bool:
    return type(value) is int and 0 <= value <= _MOST


def number(value: Any) -> bool:
    return type(value) in (int, float) and value == value and abs(value) != float("inf")


def amount(value: Any) -> bool:
    return number(value) and value >= 0


def one_of(*words: Any) -> Check:
    return lambda value: any(value is word or (value == word and type(value) is type(word)) for word in words)


def maybe(check: Check) -> Check:
    return lambda value: value is None or check(value)


def many(check: Check, least: int, most: int, *, unique: bool = False, ordered: bool = False) -> Check:
    def holds(value: Any) -> bool:
        if not isinstance(value, list) or not least <= len(value) <= most or not all(map(check, value)):
            return False
        return (not unique or len(set(value)) == len(value)) and (not ordered or value == sorted(value))

    return holds


def fields(table: Mapping[str, Check], omitted: Iterable[str] = ()) -> Check:
    """An object with exactly these fields."""
    must = set(table) - set(omitted)

    def holds(value: Any) -> bool:
        if not isinstance(value, dict) or not must <= set(value) <= set(table):
            return False
        return all(table[name](item) for name, item in value.items())

    return holds


def either(*checks: Check) -> Check:
    return lambda value: any(check(value) for check in checks)


KEYED = fields(
    {
        "algorithm": one_of("hmac-sha256"),
        "keyId": slug,
        "value": lambda v: isinstance(v, str) and _HEX.fullmatch(v) is not None,
    }
)
_REFERENCE = fields(
    {"kind": one_of("controlled-reference"), "storeId": slug, "referenceId": slug, "digest": digest_text}, ["digest"]
)
PAYLOAD = either(KEYED, _REFERENCE)
COUNT = fields(
    {
        "value": whole,
        "source": one_of("observer-derived", "provider-reported", "modeled"),
        "semantics": slug,
        "tokenizerDigest": digest_text,
    },
    ["tokenizerDigest"],
)
_USD = {"amount": amount, "currency": one_of("USD")}
COST = either(
    fields({"kind": one_of("unavailable")}),
    fields({"kind": one_of("measured"), **_USD, "evidenceDigest": digest_text}),
    fields({"kind": one_of("modeled"), **_USD, "modelDigest": digest_text}),
    fields({"kind": one_of("provider-reported"), **_USD}),
)
_REPORTED = one_of("provider-reported")
ATTEMPT_FIELDS: dict[str, Check] = {
    "attemptId": slug,
    "attemptNumber": lambda value: whole(value) and 1 <= value <= 8,
    "dispatchState": one_of("not_sent", "sent_unknown", "completed"),
    "observerTimings": fields(
        {
            "startedAt": instant,
            "headersAt": maybe(instant),
            "firstByteAt": maybe(instant),
            "firstMeaningfulTokenAt": maybe(instant),
            "completedAt": instant,
        }
    ),
    "status": one_of("success", "failure", "aborted"),
    "finishReason": maybe(slug),
    "partialOutput": one_of(True, False),
    "abortLifecycle": one_of("not-aborted", "abort-requested", "abort-confirmed", "abort-ambiguous"),
    "failureCategory": maybe(slug),
    "requestedModel": fields({"id": text, "revision": text}),
    "resolvedModel": maybe(
        either(
            fields({"id": text, "revision": text, "source": _REPORTED}),
            fields({"id": text, "revision": one_of(None), "source": one_of("provider-id-only")}),
        )
    ),
    "tokenUsage": fields({"input": maybe(COUNT), "output": maybe(COUNT), "total": maybe(COUNT)}),
    "providerReported": fields(
        {
            "timings": many(fields({"name": slug, "valueMs": amount, "source": _REPORTED}), 0, 32),
            "metrics": many(
                fields(
                    {
                        "name": lambda value: slug(value) and _SCORED.search(value) is None,
                        "value": number,
                        "unit": slug,
                        "source": _REPORTED,
                    }
                ),
                0,
                32,
            ),
        }
    ),
    "cost": COST,
    "payloads": fields({"request": PAYLOAD, "response": maybe(PAYLOAD), "eventStream": maybe(PAYLOAD)}),
}
TRACE_FIELDS: dict[str, Check] = {
    "version": one_of("tasc-trace-envelope-v2"),
    "studyId": slug,
    "protocolDigest": digest_text,
    "traceId": slug,
    "caseId": slug,
    "groupId": slug,
    "replicateId": slug,
    "split": one_of("dev", "holdout", "online"),
    "collectionWindowId": maybe(slug),
    "collectionWindowMembershipDigest": maybe(digest_text),
    "sourceMode": one_of("imported", "observed", "shadow"),
    "collectionBinding": maybe(
        fields(
            {
                "shadowPlanDigest": digest_text,
                "endpointAlias": slug,
                "endpointBindingDigest": digest_text,
                "route": one_of("chatCompletions", "completions", "responses", "nativeChat", "nativeGenerate"),
                "authenticationReference": maybe(slug),
                "httpLimitsDigest": digest_text,
                "capabilityReceiptDigests": many(digest_text, 0, 16, unique=True, ordered=True),
            }
        )
    ),
    "profileId": slug,
    "executionProfileDigest": digest_text,
    "policyDigest": digest_text,
    "observedRoute": fields({"selectedProfileId": slug, "decisionId": slug}),
    "workload": fields(
        {
            "mode": slug,
            "declaredTrafficWeight": lambda value: number(value) and value > 0,
            "inputTokenEstimate": maybe(whole),
        }
    ),
    "slices": many(slug, 0, 64, unique=True),
    "routeSignal": maybe(
        fields(
            {
                "definitionId": slug,
                "version": text,
                "calibrationDigest": digest_text,
                "value": number,
                "provenance": fields(
                    {"kind": one_of("route-signal-observation"), "sourceId": slug, "observedAt": instant}
                ),
            }
        )
    ),
    "dispatchIntent": fields(
        {
            "version": one_of("tasc-dispatch-intent-v1"),
            "issuedAt": instant,
            "authorityKeyId": slug,
            "signatureAlgorithm": one_of("ed25519"),
            "signature": b64u,
        }
    ),
    "attempts": many(fields(ATTEMPT_FIELDS), 1, 8),
    "terminalOutputId": maybe(KEYED),
    "collectorVersion": text,
    "collectorAttestation": fields(
        {
            "version": one_of("tasc-collector-attestation-v1"),
            "collectedAt": instant,
            "authorityKeyId": slug,
            "signatureAlgorithm": one_of("ed25519"),
            "signature": b64u,
        }
    ),
}
