"""What the operator lets the collector reach: the collector trust policy (original project, sections 3.7 and 5).

Rules:

1. Aliases, references and store roots are sorted and unique; an unsorted file is put in order before it is digested.
2. An origin is spelled by the rules of ``origin_grammar``; plain http, which is to this machine only, needs local mode.
3. Whether a literal or resolved address is public is decided where the connection is made, at the time it is made.
4. The endpoint binding digest covers one endpoint and its orchestration descriptor, so that a change of another
   endpoint, key or root does not unbind a plan.
"""

from __future__ import annotations

import posixpath
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from tasc_collector.canonical import canonical_bytes, digest, utf16_key
from tasc_collector.contracts.base import Model, Record
from tasc_collector.contracts.instance import RuntimeBuild
from tasc_collector.contracts.origin_grammar import read_origin
from tasc_collector.contracts.rules import SortedIds, require, require_unique, sorted_unique
from tasc_collector.contracts.scalars import OpaqueId
from tasc_collector.limits import (
    MAX_ALLOWLIST_ITEMS,
    MAX_ORIGIN_LENGTH,
    MAX_PATH_LENGTH,
    MAX_REQUEST_DURATION_MS,
    MAX_STORE_ROOT_LENGTH,
    MAX_TRUSTED_ENDPOINTS,
    MAX_TRUSTED_ROUTES,
)

LocalMode = Literal["disabled", "literal-loopback-only"]
Method = Literal["GET", "POST"]

ENDPOINT_BINDING_DOMAIN = "tasc/collector-endpoint-binding/v1"
ENDPOINT_BINDING_VERSION = "tasc-collector-endpoint-binding-v1"


def _origin(text: str) -> str:
    read_origin(text)
    return text


def _path(text: str) -> str:
    segments = text.split("/")[1:]
    require(text == "/" or not any(part in {".", ".."} for part in segments), "no '.' or '..' segment")
    return text


def _store_root(text: str) -> str:
    require(
        text.startswith("/")
        and text != "/"
        and posixpath.normpath(text) == text
        and "\0" not in text
        and not text.startswith("//"),
        "a store root is an absolute, normalized folder below /",
    )
    return text


Origin = Annotated[str, StringConstraints(min_length=1, max_length=MAX_ORIGIN_LENGTH), AfterValidator(_origin)]
"""Canonical http or https origin; see rule 2."""
PathPrefix = Annotated[
    str, StringConstraints(pattern=r"^(?:/|(?:/[A-Za-z0-9._~-]+)+)$", max_length=MAX_PATH_LENGTH), AfterValidator(_path)
]
"""``/`` or segments without escapes, without a trailing slash."""
StoreRoot = Annotated[
    str, StringConstraints(min_length=2, max_length=MAX_STORE_ROOT_LENGTH), AfterValidator(_store_root)
]


class TrustedRoute(Model):
    """A method and path prefix (whole segments) and the authentication references of which one must be used."""

    method: Method
    path_prefix: PathPrefix
    authentication_references: Annotated[SortedIds, Field(max_length=MAX_ALLOWLIST_ITEMS)]


def _routes(routes: tuple[TrustedRoute, ...]) -> tuple[TrustedRoute, ...]:
    require_unique(((route.method, route.path_prefix) for route in routes), "a method and path prefix may stand once")
    return tuple(sorted(routes, key=lambda route: (route.method, utf16_key(route.path_prefix))))


class TrustedEndpoint(Model):
    """One server that may be reached, under an alias that reveals nothing."""

    alias: OpaqueId
    origin: Origin
    runtime: RuntimeBuild
    routes: Annotated[
        tuple[TrustedRoute, ...], Field(min_length=1, max_length=MAX_TRUSTED_ROUTES), AfterValidator(_routes)
    ]

    def binding_digest(self, orchestration_descriptor_digest: str | None = None) -> str:
        """Digest that plans, receipts and traces hold for this endpoint; see rule 4."""
        return digest(
            ENDPOINT_BINDING_DOMAIN,
            {
                "schemaVersion": ENDPOINT_BINDING_VERSION,
                "endpoint": self.to_json(),
                "orchestrationDescriptorDigest": orchestration_descriptor_digest,
            },
        )

    @property
    def is_loopback(self) -> bool:
        """Whether the origin is plain http to a literal loopback address."""
        return self.origin.startswith("http://")


def _endpoints(endpoints: tuple[TrustedEndpoint, ...]) -> tuple[TrustedEndpoint, ...]:
    require_unique((endpoint.alias for endpoint in endpoints), "an alias may stand once")
    return tuple(sorted(endpoints, key=lambda endpoint: utf16_key(endpoint.alias)))


class CollectorTrustPolicy(Record):
    """Every endpoint, route, secret reference, evaluator key and store that the operator allows; nothing else is."""

    domain: ClassVar[str] = "tasc/collector-trust-policy/v1"

    schema_version: Literal["tasc-collector-trust-policy-v1"] = "tasc-collector-trust-policy-v1"
    local_mode: LocalMode
    maximum_request_duration_ms: Annotated[int, Field(ge=1, le=MAX_REQUEST_DURATION_MS)]
    endpoints: Annotated[
        tuple[TrustedEndpoint, ...], Field(min_length=1, max_length=MAX_TRUSTED_ENDPOINTS), AfterValidator(_endpoints)
    ]
    secret_references: Annotated[SortedIds, Field(max_length=MAX_ALLOWLIST_ITEMS)]
    evaluator_key_ids: Annotated[SortedIds, Field(max_length=MAX_ALLOWLIST_ITEMS)]
    store_roots: Annotated[tuple[StoreRoot, ...], Field(max_length=MAX_ALLOWLIST_ITEMS), AfterValidator(sorted_unique)]

    @model_validator(mode="after")
    def _semantics(self) -> Self:
        known = set(self.secret_references)
        for endpoint in self.endpoints:
            require(
                self.local_mode == "literal-loopback-only" or not endpoint.is_loopback,
                f"endpoint {endpoint.alias}: plain http needs localMode literal-loopback-only",
            )
            for route in endpoint.routes:
                require(
                    known.issuperset(route.authentication_references),
                    f"endpoint {endpoint.alias}: every authentication reference must be in secretReferences",
                )
        return self

    @classmethod
    def digest_of(cls, value: dict[str, Any]) -> str:  # Any: a JSON object
        """Digest over the policy in order; see rule 1."""
        return digest(
            cls.domain, cls.model_validate_json(canonical_bytes(value), by_alias=True, by_name=False).to_json()
        )

    def endpoint(self, alias: str) -> TrustedEndpoint | None:
        """The endpoint of an alias, or None."""
        return next((endpoint for endpoint in self.endpoints if endpoint.alias == alias), None)
