"""Keyed identities: HMAC-SHA-256 under a study's payload key (original project, sections 3 and 4.4).

Equal content under one study and key gives the same identity, so that evidence made elsewhere can be joined to a trace;
without the key nobody can test a guess of the content against it. A payload is hashed as it comes and is never kept.

The message is ``tasc/payload-identity/v1`` NUL study id NUL key id NUL content. Ids cannot hold NUL, so the parts are
unambiguous.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from tasc_collector.canonical import JsonValue, canonical_bytes
from tasc_collector.contracts.identities import KeyedIdentity
from tasc_collector.errors import InputError, LimitExceeded
from tasc_collector.limits import MAX_PAYLOAD_IDENTITY_BYTES, MIN_HMAC_KEY_BYTES

PAYLOAD_IDENTITY_DOMAIN: Final = b"tasc/payload-identity/v1"

KeyedIdKind: TypeAlias = Literal["trace", "decision", "attempt", "run"]

_KEYED_IDS: Final[Mapping[KeyedIdKind, tuple[str, str]]] = {
    "trace": ("trace-", "tasc/shadow-trace-id/v2"),
    "decision": ("route-", "tasc/shadow-route-decision-id/v2"),
    "attempt": ("attempt-", "tasc/shadow-attempt-id/v1"),
    "run": ("run-", "tasc/shadow-run-id/v1"),
}
"""Prefix and domain of each keyed id (original project, section 4.1)."""


@dataclass(frozen=True, slots=True)
class PayloadKey:
    """A study's payload key under its id. The key is not shown.

    Raises:
        InputError: the key is shorter than 32 bytes.
    """

    study_id: str
    key_id: str
    secret: bytes = field(repr=False)
    _front: hmac.HMAC = field(init=False, repr=False, compare=False)
    """The MAC after the part that all identities begin with, hashed once."""

    def __post_init__(self) -> None:
        if len(self.secret) < MIN_HMAC_KEY_BYTES:
            raise InputError(
                "the payload key is too short",
                rule=f"at least {MIN_HMAC_KEY_BYTES} bytes",
                way_out="make one with `tasc keys`",
            )
        prefix = b"\0".join((PAYLOAD_IDENTITY_DOMAIN, self.study_id.encode(), self.key_id.encode(), b""))
        object.__setattr__(self, "_front", hmac.new(self.secret, prefix, hashlib.sha256))

    def start(self) -> PayloadIdentity:
        """A new incremental identity."""
        return PayloadIdentity(self)

    def identify(self, content: bytes) -> KeyedIdentity:
        """Identity of content that is at hand whole."""
        identity = self.start()
        identity.update(content)
        return identity.finish()

    def identify_json(self, domain: str, value: JsonValue) -> KeyedIdentity:
        """Identity of the canonical form of ``{"domain": domain, "value": value}``."""
        return self.identify(canonical_bytes({"domain": domain, "value": value}))

    def keyed_id(self, kind: KeyedIdKind, value: JsonValue) -> str:
        """An id that only the key's holder can derive, such as ``trace-<64 hex>``; a slug.

        Args:
            kind: which id; it sets prefix and domain.
            value: the JSON value it stands for (original project, section 4.1, lists the members).
        """
        prefix, domain = _KEYED_IDS[kind]
        return prefix + self.identify_json(domain, value).value


class PayloadIdentity:
    """HMAC over a payload as it arrives; the bytes are not kept.

    Raises:
        LimitExceeded: (from ``update``) more than 16 MiB came.
    """

    __slots__ = ("_hmac", "_key_id", "size")

    def __init__(self, key: PayloadKey) -> None:
        self._hmac = key._front.copy()  # the key's own part
        self._key_id = key.key_id
        self.size = 0
        """Bytes so far."""

    def update(self, chunk: bytes | memoryview) -> None:
        """Take the next bytes."""
        self.size += len(chunk)
        if self.size > MAX_PAYLOAD_IDENTITY_BYTES:
            raise LimitExceeded("payload-identity-bytes")
        self._hmac.update(chunk)

    def finish(self) -> KeyedIdentity:
        """The identity of what came so far; more may follow for a longer payload's identity."""
        return KeyedIdentity(key_id=self._key_id, value=self._hmac.hexdigest())


def trace_id(
    key: PayloadKey,
    *,
    protocol_digest: str,
    collection_window_id: str | None,
    collection_window_membership_digest: str | None,
    policy_digest: str,
    case_id: str,
    group_id: str,
    replicate_id: str,
    profile_id: str,
    request_identity: KeyedIdentity,
    endpoint_binding_digest: str,
    authentication_reference: str | None,
    http_limits_digest: str,
) -> tuple[str, str]:
    """Trace id and route decision id of one execution (original project, section 4.1); both hash the same members.

    Returns:
        ``(trace-<hex>, route-<hex>)``.
    """
    value: JsonValue = {
        "studyId": key.study_id,
        "protocolDigest": protocol_digest,
        "collectionWindowId": collection_window_id,
        "collectionWindowMembershipDigest": collection_window_membership_digest,
        "policyDigest": policy_digest,
        "caseId": case_id,
        "groupId": group_id,
        "replicateId": replicate_id,
        "profileId": profile_id,
        "requestIdentity": request_identity.to_json(),
        "endpointBindingDigest": endpoint_binding_digest,
        "authenticationReference": authentication_reference,
        "httpLimitsDigest": http_limits_digest,
    }
    return key.keyed_id("trace", value), key.keyed_id("decision", value)


def attempt_id(key: PayloadKey, *, trace_id: str, attempt_number: int) -> str:
    """Id of one transport attempt (original project, section 4.1)."""
    return key.keyed_id("attempt", {"traceId": trace_id, "attemptNumber": attempt_number})
