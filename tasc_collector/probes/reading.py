"""One GET of exactly one route over the strict transport: authorized, bounded, and nothing kept but what its reader takes."""

from __future__ import annotations

from dataclasses import dataclass, field

from tasc_collector.contracts.http_limits import HttpLimits
from tasc_collector.contracts.network_extension import NetworkExtension
from tasc_collector.contracts.trust_policy import CollectorTrustPolicy
from tasc_collector.errors import DispatchState, NotAuthorized, SecretUnavailable
from tasc_collector.invocation.prepare import Authentication
from tasc_collector.limits import PASSIVE_DEADLINE_MS, PASSIVE_MAX_BYTES
from tasc_collector.runtimes.result import Arrival
from tasc_collector.secrets import SecretStore
from tasc_collector.transport.clock import Clock
from tasc_collector.transport.codes import Code, category_of
from tasc_collector.transport.exchange import exchange
from tasc_collector.transport.network import NetworkAccess, SystemNetwork
from tasc_collector.transport.policy import authorize
from tasc_collector.transport.result import ExchangeRequest, ExchangeResult
from tasc_collector.transport.trust import trust_of

MS = 1_000_000
_CONNECT_MS = 3_000


@dataclass(frozen=True, slots=True)
class ReadTarget:
    """Which server is read, and under whose authority.

    Args:
        policy: the operator's trust policy.
        alias: endpoint alias in it.
        runtime: runtime that the policy names for the endpoint.
        build: its build.
        extension: the operator's network extension, if there is one.
        authentication: how a read authenticates, or None.
        secrets: where its secret is looked up, at the time of the read.
    """

    policy: CollectorTrustPolicy = field(repr=False)
    alias: str
    runtime: str
    build: str
    extension: NetworkExtension | None = field(default=None, repr=False)
    authentication: Authentication | None = field(default=None, repr=False)
    secrets: SecretStore | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class RouteAnswer:
    """How a read ended.

    Args:
        result: how far it came; the server's status is in it.
        body: body of a complete 200 answer, else None; never shown.
    """

    result: ExchangeResult
    body: bytes | None = field(repr=False)


def can_read(target: ReadTarget, path: str) -> bool:
    """Whether the policy lists exactly this route for GET; nothing is contacted."""
    endpoint = target.policy.endpoint(target.alias)
    return endpoint is not None and any(
        route.method == "GET" and route.path_prefix == path for route in endpoint.routes
    )


async def read_route(
    target: ReadTarget,
    path: str,
    *,
    clock: Clock,
    network: NetworkAccess | None = None,
    deadline_ms: int = PASSIVE_DEADLINE_MS,
    max_bytes: int = PASSIVE_MAX_BYTES,
) -> RouteAnswer:
    """Read one route.

    Args:
        target: the server and the authority.
        path: exact path.
        clock: both clocks.
        network: lookups and sockets; the system's if None.
        deadline_ms: total deadline; the policy's maximum where that is less.
        max_bytes: most bytes of the body.

    Raises:
        NotAuthorized: the policy does not list exactly this route; nothing was sent.
    """
    if not can_read(target, path):
        raise NotAuthorized(
            "the trust policy does not list this route",
            where=target.alias,
            field=f"GET {path}",
            rule="a probe reads exactly the routes that the policy lists, no prefix of them",
            way_out=f"add the route to the endpoint {target.alias} in the trust policy, or leave the probe out",
        )
    deadline_ms = min(deadline_ms, target.policy.maximum_request_duration_ms)
    route = next(
        route
        for endpoint in target.policy.endpoints
        if endpoint.alias == target.alias
        for route in endpoint.routes
        if route.method == "GET" and route.path_prefix == path
    )
    authentication = target.authentication if route.authentication_references else None
    authorized = authorize(
        target.policy,
        alias=target.alias,
        runtime=target.runtime,
        build=target.build,
        method="GET",
        path=path,
        authentication_reference=None if authentication is None else authentication.reference,
        duration_ms=deadline_ms,
        extension=target.extension,
        now_ms=clock.wall_ns() // MS,
    )
    try:
        secret = _secret(target, authentication)
    except SecretUnavailable:
        return RouteAnswer(
            ExchangeResult(
                state=DispatchState.NOT_SENT,
                code=Code.AUTHENTICATION_UNAVAILABLE,
                category=category_of(Code.AUTHENTICATION_UNAVAILABLE, None),
            ),
            None,
        )
    chunks: list[bytes] = []

    def take(body: bytes, _: Arrival) -> None:
        chunks.append(body)

    async def no_lease() -> None:
        """A read belongs to no window and is never repeated."""

    key_folder = None if target.secrets is None else target.secrets.key_folder
    request = ExchangeRequest(
        authorized=authorized,
        headers=(("accept", "application/json, text/plain"),),
        body=b"",
        limits=HttpLimits(
            max_response_bytes=max_bytes,
            connect_timeout_ms=min(_CONNECT_MS, deadline_ms),
            headers_timeout_ms=deadline_ms,
            body_timeout_ms=deadline_ms,
            deadline_ms=deadline_ms,
        ),
        deadline_ns=clock.now_ns() + deadline_ms * MS,
        close_delimited=True,
        secret=secret,
        tls=trust_of(authorized, key_folder=key_folder) if authorized.origin.secure else None,
    )
    result = await exchange(request, lease=no_lease, on_data=take, clock=clock, network=network or SystemNetwork())
    return RouteAnswer(result, b"".join(chunks) if result.succeeded else None)


def _secret(target: ReadTarget, authentication: Authentication | None) -> tuple[str, bytes] | None:
    if authentication is None or target.secrets is None:
        return None
    return authentication.header, target.secrets.resolve(authentication.source).reveal()
