"""Making calls in tests: a trust policy for one endpoint, and a network that redirects public addresses to loopback
and counts.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Address
from typing import Any

from tasc_collector.contracts.http_limits import HttpLimits
from tasc_collector.contracts.network_extension import NetworkExtension
from tasc_collector.contracts.trust_policy import CollectorTrustPolicy
from tasc_collector.runtimes.result import Arrival
from tasc_collector.transport.addresses import Address
from tasc_collector.transport.clock import SystemClock
from tasc_collector.transport.codes import Code
from tasc_collector.transport.exchange import exchange
from tasc_collector.transport.network import NetworkAccess, SystemNetwork
from tasc_collector.transport.policy import AuthorizedRequest, authorize
from tasc_collector.transport.resolver import not_sent
from tasc_collector.transport.result import ExchangeRequest, ExchangeResult
from tasc_collector.transport.tls import TlsSettings

PUBLIC = "93.184.216.34"
NAME = "api.example.com"


def policy_for(origin: str, **changes: Any) -> CollectorTrustPolicy:
    """A policy with one endpoint ``main`` that may POST /v1 and GET everything."""
    endpoint: dict[str, Any] = {
        "alias": "main",
        "origin": origin,
        "runtime": {"profileId": "vllm", "build": "0.26.0"},
        "routes": [
            {"method": "GET", "pathPrefix": "/", "authenticationReferences": []},
            {"method": "POST", "pathPrefix": "/v1", "authenticationReferences": []},
        ],
    }
    endpoint.update(changes.pop("endpoint", {}))
    return CollectorTrustPolicy.from_value(
        {
            "schemaVersion": "tasc-collector-trust-policy-v1",
            "localMode": "literal-loopback-only",
            "maximumRequestDurationMs": 60_000,
            "endpoints": [endpoint],
            "secretReferences": [],
            "evaluatorKeyIds": [],
            "storeRoots": [],
            **changes,
        }
    ).record


def authorized(origin: str, **changes: Any) -> AuthorizedRequest:
    """Authority for one POST to the endpoint of ``policy_for``."""
    arguments: dict[str, Any] = {
        "alias": "main",
        "runtime": "vllm",
        "build": "0.26.0",
        "method": "POST",
        "path": "/v1/completions",
        "authentication_reference": None,
        "duration_ms": 60_000,
    }
    policy = changes.pop("policy", None) or policy_for(origin)
    return authorize(policy, **{**arguments, **changes})


@dataclass
class LabNetwork:
    """A network of made-up public addresses: every connection goes to one loopback port, and everything is counted."""

    port: int
    answers: Sequence[Sequence[str]] = ((PUBLIC,),)
    """Answers of the first, second, ... lookup; the last repeats."""
    claimed_peer: str | None = None
    lookups: list[str] = field(default_factory=list)
    connects: list[str] = field(default_factory=list)
    _peers: dict[int, str] = field(default_factory=dict)

    async def resolve(self, host: str, port: int) -> list[str]:
        self.lookups.append(host)
        found = self.answers[min(len(self.lookups), len(self.answers)) - 1]
        if not found:
            raise not_sent(Code.RESOLVE_FAILED)
        return list(found)

    async def connect(self, address: Address, port: int) -> socket.socket:
        self.connects.append(str(address))
        sock = await SystemNetwork().connect(IPv4Address("127.0.0.1"), self.port)
        self._peers[sock.fileno()] = str(address)
        return sock

    def peer(self, sock: socket.socket) -> str:
        return self.claimed_peer or self._peers[sock.fileno()]


@dataclass
class Call:
    """One call's result, the body that was handed over, and how often it was leased."""

    result: ExchangeResult
    body: bytes
    leases: int
    arrivals: list[Arrival]


async def call(
    origin: str,
    *,
    body: bytes = b"{}",
    limits: HttpLimits | None = None,
    deadline_ms: int = 5_000,
    content_types: frozenset[str] = frozenset({"application/json"}),
    network: NetworkAccess | None = None,
    lease: Callable[[], Awaitable[None]] | None = None,
    authority: AuthorizedRequest | None = None,
    close_delimited: bool = False,
    secret: tuple[str, bytes] | None = None,
    tls: TlsSettings | None = None,
    extension: NetworkExtension | None = None,
    headers: tuple[tuple[str, str], ...] = (("accept", "application/json"), ("content-type", "application/json")),
    result: ExchangeResult | None = None,
) -> Call:
    """Make one call and collect what it gave."""
    clock = SystemClock()
    parts: list[bytes] = []
    arrivals: list[Arrival] = []
    leases = 0

    async def leased() -> None:
        nonlocal leases
        leases += 1
        if lease is not None:
            await lease()

    def take(data: bytes, arrival: Arrival) -> None:
        parts.append(data)
        arrivals.append(arrival)

    authority = authority or authorized(origin, extension=extension, now_ms=clock.wall_ns() // 1_000_000)
    done = await exchange(
        ExchangeRequest(
            authority,
            headers,
            body,
            limits or HttpLimits(),
            clock.now_ns() + deadline_ms * 1_000_000,
            content_types,
            close_delimited,
            secret,
            tls,
        ),
        lease=leased,
        on_data=take,
        clock=clock,
        network=network or SystemNetwork(),
        result=result,
    )
    return Call(done, b"".join(parts), leases, arrivals)


def run_call(origin: str, **arguments: Any) -> Call:
    """``call`` in an event loop of its own."""
    return asyncio.run(call(origin, **arguments))
