"""Every way in which a call can end below the dialect, as allow-listed words, and the persisted category of each.

The words and categories follow the error allowlist of the original project (its sections 2.6 and 2.7); it has fewer
words, and ours map into its nine categories.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from tasc_collector.errors import Category


class Code(StrEnum):
    """Why a call did not complete."""

    RESOLVE_FAILED = "resolve-failed"
    RESOLVE_TIMEOUT = "resolve-timeout"
    ADDRESS_REFUSED = "address-refused"
    CONNECT_REFUSED = "connect-refused"
    CONNECT_FAILED = "connect-failed"
    CONNECT_TIMEOUT = "connect-timeout"
    PEER_MISMATCH = "peer-mismatch"
    TLS_FAILED = "tls-failed"
    TLS_TIMEOUT = "tls-timeout"
    TLS_PIN_MISMATCH = "tls-pin-mismatch"
    UNSOLICITED_BYTES = "unsolicited-bytes"
    DEADLINE_EXCEEDED = "deadline-exceeded"
    CALLER_CANCELLED = "caller-cancelled"
    AUTHENTICATION_UNAVAILABLE = "authentication-unavailable"
    WRITE_TIMEOUT = "write-timeout"
    HEADERS_TIMEOUT = "headers-timeout"
    BODY_TIMEOUT = "body-timeout"
    CONNECTION_RESET = "connection-reset"
    CONNECTION_CLOSED = "connection-closed"
    RESPONSE_TRUNCATED = "response-truncated"
    EARLY_RESPONSE = "early-response"
    BYTES_AFTER_END = "bytes-after-end"
    INVALID_STATUS_LINE = "invalid-status-line"
    INVALID_RESPONSE_HEADERS = "invalid-response-headers"
    RESPONSE_HEADERS_TOO_LARGE = "response-headers-too-large"
    INTERIM_FLOOD = "interim-flood"
    UPGRADE_REFUSED = "upgrade-refused"
    INVALID_FRAMING = "invalid-framing"
    UNFRAMED_RESPONSE = "unframed-response"
    INVALID_CHUNK = "invalid-chunk"
    RESPONSE_CHUNK_LIMIT = "response-chunk-limit"
    RESPONSE_TOO_LARGE = "response-too-large"
    COMPRESSED_RESPONSE = "compressed-response"
    CONTENT_TYPE_REFUSED = "content-type-refused"
    REDIRECT_DENIED = "redirect-denied"
    UNEXPECTED_STATUS = "unexpected-status"
    PROVIDER_ERROR = "provider-error"
    CONSUMER_FAILED = "consumer-failed"


TIMEOUTS = frozenset(
    {
        Code.RESOLVE_TIMEOUT,
        Code.CONNECT_TIMEOUT,
        Code.TLS_TIMEOUT,
        Code.WRITE_TIMEOUT,
        Code.HEADERS_TIMEOUT,
        Code.BODY_TIMEOUT,
        Code.DEADLINE_EXCEEDED,
    }
)
"""Codes of a deadline that passed."""

_TRANSPORT = frozenset(
    {
        Code.RESOLVE_FAILED,
        Code.CONNECT_REFUSED,
        Code.CONNECT_FAILED,
        Code.PEER_MISMATCH,
        Code.TLS_FAILED,
        Code.TLS_PIN_MISMATCH,
        Code.CONNECTION_RESET,
        Code.CONNECTION_CLOSED,
        Code.RESPONSE_TRUNCATED,
    }
)

CATEGORY_OF: Mapping[Code, Category] = {
    **dict.fromkeys(Code, Category.INVALID_RESPONSE),
    **dict.fromkeys(TIMEOUTS, Category.TIMEOUT),
    **dict.fromkeys(_TRANSPORT, Category.TRANSPORT),
    Code.ADDRESS_REFUSED: Category.AUTHORIZATION,
    Code.CALLER_CANCELLED: Category.CANCELLED,
    Code.AUTHENTICATION_UNAVAILABLE: Category.AUTHENTICATION,
    Code.CONSUMER_FAILED: Category.INTERNAL,
}
"""Persisted category of each code; an answered status has its own, see ``category_of``."""

_STATUS_CATEGORY: Mapping[int, Category] = {
    401: Category.AUTHENTICATION,
    403: Category.AUTHORIZATION,
    429: Category.RATE_LIMIT,
}


def category_of(code: Code, status: int | None) -> Category:
    """The persisted category of an ending: a complete non-2xx answer is told apart by its status."""
    if code is Code.PROVIDER_ERROR and status is not None and status in _STATUS_CATEGORY:
        return _STATUS_CATEGORY[status]
    return CATEGORY_OF[code]
