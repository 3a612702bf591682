"""Keyed identities: the published value, chunking, key length, and what the ids hang on."""

from __future__ import annotations

import hashlib
import hmac

import pytest

from tasc_collector.canonical import canonical_bytes
from tasc_collector.errors import InputError, LimitExceeded
from tasc_collector.identity import PayloadKey, attempt_id, trace_id
from tasc_collector.limits import MAX_PAYLOAD_IDENTITY_BYTES

KEY = PayloadKey("study-alpha", "study-alpha-payload-key", b"\x07" * 32)
PROMPT_IDENTITY = "a0e28d1857ead84d491a26e63d14fcecb34a08ccdcaf36aa27b382c729231614"
DIGEST = "sha256:" + "0" * 64


def _trace_id(key: PayloadKey = KEY, **changes: str | None) -> tuple[str, str]:
    fields: dict[str, str | None] = {
        "protocol_digest": DIGEST,
        "collection_window_id": "window-1",
        "collection_window_membership_digest": DIGEST,
        "policy_digest": DIGEST,
        "case_id": "case-1",
        "group_id": "group-1",
        "replicate_id": "replicate-0",
        "profile_id": "champion",
        "endpoint_binding_digest": DIGEST,
        "authentication_reference": None,
        "http_limits_digest": DIGEST,
    }
    return trace_id(key, request_identity=key.identify(b"request"), **{**fields, **changes})  # type: ignore[arg-type]


def test_published_payload_identity() -> None:
    identity = KEY.identify(b"private prompt")
    assert identity.to_json() == {
        "algorithm": "hmac-sha256",
        "keyId": "study-alpha-payload-key",
        "value": PROMPT_IDENTITY,
    }


def test_chunks_give_the_identity_of_the_whole() -> None:
    identity = KEY.start()
    for part in (b"private", b"", memoryview(b" prompt")):
        identity.update(part)
    assert identity.finish().value == PROMPT_IDENTITY
    assert identity.size == 14


@pytest.mark.parametrize(
    "other",
    [
        PayloadKey("study-beta", "study-alpha-payload-key", b"\x07" * 32),
        PayloadKey("study-alpha", "another-key", b"\x07" * 32),
        PayloadKey("study-alpha", "study-alpha-payload-key", b"\x08" * 32),
    ],
    ids=["study", "key-id", "key"],
)
def test_study_key_id_and_key_each_change_the_identity(other: PayloadKey) -> None:
    assert other.identify(b"private prompt").value != PROMPT_IDENTITY


def test_a_short_key_is_refused() -> None:
    with pytest.raises(InputError, match="32 bytes"):
        PayloadKey("study", "key", b"\x07" * 31)


def test_the_key_is_not_shown() -> None:
    key = PayloadKey("study", "key", b"S3cret-S3cret-S3cret-S3cret-S3cret")
    assert "S3cret" not in repr(key)


def test_more_than_the_bound_is_refused() -> None:
    identity = KEY.start()
    identity.update(bytes(MAX_PAYLOAD_IDENTITY_BYTES))
    with pytest.raises(LimitExceeded, match="payload-identity-bytes"):
        identity.update(b"x")


def test_trace_and_decision_ids_are_keyed_slugs_over_the_same_members() -> None:
    trace, decision = _trace_id()
    members = {
        "studyId": "study-alpha",
        "protocolDigest": DIGEST,
        "collectionWindowId": "window-1",
        "collectionWindowMembershipDigest": DIGEST,
        "policyDigest": DIGEST,
        "caseId": "case-1",
        "groupId": "group-1",
        "replicateId": "replicate-0",
        "profileId": "champion",
        "requestIdentity": KEY.identify(b"request").to_json(),
        "endpointBindingDigest": DIGEST,
        "authenticationReference": None,
        "httpLimitsDigest": DIGEST,
    }
    for found, prefix, domain in (
        (trace, "trace-", "tasc/shadow-trace-id/v2"),
        (decision, "route-", "tasc/shadow-route-decision-id/v2"),
    ):
        message = canonical_bytes({"domain": domain, "value": members})
        head = b"tasc/payload-identity/v1\0study-alpha\0study-alpha-payload-key\0"
        assert found == prefix + hmac.new(b"\x07" * 32, head + message, hashlib.sha256).hexdigest()


@pytest.mark.parametrize(
    "change",
    [{"profile_id": "candidate"}, {"replicate_id": "replicate-1"}, {"collection_window_id": None}],
    ids=["profile", "replicate", "window"],
)
def test_every_member_changes_the_trace_id(change: dict[str, str | None]) -> None:
    assert _trace_id(**change)[0] != _trace_id()[0]


def test_attempt_ids_differ_by_number() -> None:
    first, second = (attempt_id(KEY, trace_id="trace-x", attempt_number=number) for number in (1, 2))
    assert first.startswith("attempt-")
    assert first != second
    assert first == KEY.keyed_id("attempt", {"attemptNumber": 1, "traceId": "trace-x"})
