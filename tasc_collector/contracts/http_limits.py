"""Bounds of one HTTP call, and the digest that plans and traces carry (original project, section 2.5)."""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated, Any, ClassVar

from pydantic import Field
from pydantic.alias_generators import to_camel

from tasc_collector.canonical import digest
from tasc_collector.contracts.base import Record
from tasc_collector.limits import HTTP_CEILINGS, HTTP_DEFAULTS

_RequestBytes = Annotated[int, Field(ge=1, le=HTTP_CEILINGS["max_request_bytes"])]
_HeaderBytes = Annotated[int, Field(ge=1, le=HTTP_CEILINGS["max_response_header_bytes"])]
_Headers = Annotated[int, Field(ge=1, le=HTTP_CEILINGS["max_response_headers"])]
_ResponseBytes = Annotated[int, Field(ge=1, le=HTTP_CEILINGS["max_response_bytes"])]
_Chunks = Annotated[int, Field(ge=1, le=HTTP_CEILINGS["max_response_chunks"])]
_SecretBytes = Annotated[int, Field(ge=1, le=HTTP_CEILINGS["max_secret_header_bytes"])]
_ConnectMs = Annotated[int, Field(ge=1, le=HTTP_CEILINGS["connect_timeout_ms"])]
_HeadersMs = Annotated[int, Field(ge=1, le=HTTP_CEILINGS["headers_timeout_ms"])]
_BodyMs = Annotated[int, Field(ge=1, le=HTTP_CEILINGS["body_timeout_ms"])]
_DeadlineMs = Annotated[int, Field(ge=1, le=HTTP_CEILINGS["deadline_ms"])]


class HttpLimits(Record):
    """Bounds of one call. A field that is left out takes its default; the digest is always over all ten."""

    domain: ClassVar[str] = "tasc/runtime-invocation-http-limits/v1"
    omitted: ClassVar[frozenset[str]] = frozenset(to_camel(name) for name in HTTP_DEFAULTS)

    max_request_bytes: _RequestBytes = HTTP_DEFAULTS["max_request_bytes"]
    max_response_header_bytes: _HeaderBytes = HTTP_DEFAULTS["max_response_header_bytes"]
    max_response_headers: _Headers = HTTP_DEFAULTS["max_response_headers"]
    max_response_bytes: _ResponseBytes = HTTP_DEFAULTS["max_response_bytes"]
    max_response_chunks: _Chunks = HTTP_DEFAULTS["max_response_chunks"]
    max_secret_header_bytes: _SecretBytes = HTTP_DEFAULTS["max_secret_header_bytes"]
    connect_timeout_ms: _ConnectMs = HTTP_DEFAULTS["connect_timeout_ms"]
    headers_timeout_ms: _HeadersMs = HTTP_DEFAULTS["headers_timeout_ms"]
    body_timeout_ms: _BodyMs = HTTP_DEFAULTS["body_timeout_ms"]
    deadline_ms: _DeadlineMs = HTTP_DEFAULTS["deadline_ms"]

    @classmethod
    def digest_of(cls, value: dict[str, Any]) -> str:  # Any: a JSON object
        """Digest over the ten fields, with defaults where ``value`` leaves one out."""
        return digest(cls.domain, {**cls().to_json(), **value})

    @property
    def digest(self) -> str:
        """Digest of these limits; remembered, because every lease and envelope names it and a study has one or two."""
        return _digest(self)


@lru_cache(maxsize=64)
def _digest(limits: HttpLimits) -> str:
    return limits.digest_of(limits.to_json())
