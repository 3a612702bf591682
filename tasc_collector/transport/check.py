"""What would happen on the way to an endpoint, step by step, without sending one application byte.

Each step says whether it would be allowed and why; the first step that fails ends the check. The report is for the
operator's own terminal: it names the operator's own host and addresses, and never a secret.
"""

from __future__ import annotations

import socket
from collections.abc import Awaitable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeVar

from tasc_collector.contracts.network_extension import NetworkExtension
from tasc_collector.contracts.trust_policy import CollectorTrustPolicy, TrustedRoute
from tasc_collector.errors import InputError, SecretUnavailable, TascError, TransportError
from tasc_collector.secrets import SecretStore
from tasc_collector.transport.addresses import parse_address
from tasc_collector.transport.certificates import CertificateFacts, authorities_of, facts_of
from tasc_collector.transport.clock import Clock
from tasc_collector.transport.codes import Code
from tasc_collector.transport.exchange import within
from tasc_collector.transport.network import NetworkAccess, reset
from tasc_collector.transport.origins import HostKind
from tasc_collector.transport.policy import AuthorizedRequest, authorize
from tasc_collector.transport.resolver import choose, refusal
from tasc_collector.transport.tls import TlsChannel, TlsSettings
from tasc_collector.transport.trust import trust_of

T = TypeVar("T")
_SPAN_NS = 5_000_000_000
_EXPIRES_SOON_DAYS = 14


@dataclass(frozen=True, slots=True)
class CheckStep:
    """One step on the way.

    Args:
        name: what was checked.
        good: whether it would be allowed.
        detail: why, in words for the operator.
        took_ms: how long it took, for steps on the network.
    """

    name: str
    good: bool
    detail: str
    took_ms: float | None = None


class _Failed(Exception):
    pass


@dataclass(frozen=True, slots=True)
class EndpointCheck:
    """What to check.

    Args:
        policy: the operator's trust policy.
        alias: endpoint alias.
        extension: the operator's network extension, or None.
        secret_source: ``env:`` or ``keyfile:`` reference of the endpoint's secret, or None.
        secrets: where it is looked up.
    """

    policy: CollectorTrustPolicy
    alias: str
    extension: NetworkExtension | None
    secret_source: str | None
    secrets: SecretStore


async def check_endpoint(what: EndpointCheck, *, clock: Clock, network: NetworkAccess) -> tuple[CheckStep, ...]:
    """Walk the way to an endpoint up to TLS and stop there; no application byte is sent.

    Args:
        what: the endpoint and its surroundings.
        clock: both clocks.
        network: lookups and sockets.

    Raises:
        InputError: the trust policy has no such endpoint.
    """
    steps: list[CheckStep] = []
    endpoint = what.policy.endpoint(what.alias)
    if endpoint is None:
        known = ", ".join(entry.alias for entry in what.policy.endpoints)
        raise InputError("the trust policy has no such endpoint", field="alias", way_out=f"use one of: {known}")
    steps.append(CheckStep("runtime", good=True, detail=f"{endpoint.runtime.profile_id} {endpoint.runtime.build}"))
    steps.extend(_route_step(route) for route in endpoint.routes)
    steps.append(_secret_step(what))
    try:
        await _walk(what, endpoint.routes[0], steps, clock, network)
    except _Failed:
        return tuple(steps)
    return tuple(steps)


def _route_step(route: TrustedRoute) -> CheckStep:
    needs = " or ".join(route.authentication_references) or "none"
    return CheckStep(
        "route", good=True, detail=f"{route.method} {route.path_prefix} and below; authentication: {needs}"
    )


def _secret_step(what: EndpointCheck) -> CheckStep:
    if what.secret_source is None:
        endpoint = what.policy.endpoint(what.alias)
        wanted = endpoint is not None and any(route.authentication_references for route in endpoint.routes)
        rule = "absent: a route requires authentication, and the endpoint file names no secret"
        return CheckStep(
            "secret", good=not wanted, detail=rule if wanted else "none is named, and no route requires one"
        )
    try:
        what.secrets.resolve(what.secret_source)
    except (SecretUnavailable, InputError) as error:
        return CheckStep("secret", good=False, detail=str(error))
    return CheckStep("secret", good=True, detail="present and usable; its value was not shown")


async def _walk(
    what: EndpointCheck, route: TrustedRoute, steps: list[CheckStep], clock: Clock, network: NetworkAccess
) -> None:
    try:
        request = authorize(
            what.policy,
            alias=what.alias,
            runtime=_runtime(what)[0],
            build=_runtime(what)[1],
            method=route.method,
            path=route.path_prefix,
            authentication_reference=next(iter(route.authentication_references), None),
            duration_ms=1,
            extension=what.extension,
            now_ms=clock.wall_ns() // 1_000_000,
        )
    except InputError as error:
        steps.append(CheckStep("origin", good=False, detail=str(error)))
        raise _Failed from None
    origin = request.origin
    steps.append(CheckStep("origin", good=True, detail=f"{origin.text} ({origin.kind.value})"))
    channel = _channel(request, what, steps) if origin.secure else None
    answers = [origin.host]
    if origin.kind is HostKind.NAME:
        answers = await _timed("resolve", network.resolve(origin.host, origin.port), Code.RESOLVE_TIMEOUT, steps, clock)
    steps.extend(_answer_step(answer, request) for answer in answers)
    try:
        address = choose(origin, answers, request.private_networks)
    except TransportError as error:
        steps.append(CheckStep("pin", good=False, detail=f"{error.code}: every answer must be one that may be reached"))
        raise _Failed from None
    steps.append(CheckStep("pin", good=True, detail=f"{address} port {origin.port}"))
    sock = await _timed("connect", network.connect(address, origin.port), Code.CONNECT_TIMEOUT, steps, clock)
    try:
        if _peer(network, sock) != str(address):
            steps.append(CheckStep("peer", good=False, detail="the kernel names another peer than the pinned address"))
            raise _Failed
        if channel is not None:
            await _timed("tls", channel.handshake(sock), Code.TLS_TIMEOUT, steps, clock, channel)
            steps.append(_certificate_step(channel.certificate()))
    finally:
        reset(sock)


def _runtime(what: EndpointCheck) -> tuple[str, str]:
    endpoint = what.policy.endpoint(what.alias)
    return ("", "") if endpoint is None else (endpoint.runtime.profile_id, endpoint.runtime.build)


def _channel(request: AuthorizedRequest, what: EndpointCheck, steps: list[CheckStep]) -> TlsChannel:
    """A TLS session that has not begun, and a step for what it trusts: each CA of the operator's file, or a pin."""
    try:
        settings = trust_of(request, key_folder=what.secrets.key_folder)
        steps.extend(_ca_steps(settings))
        return TlsChannel(settings, request.origin.host)
    except TascError as error:
        steps.append(CheckStep("trust", good=False, detail=str(error)))
        raise _Failed from None


def _ca_steps(settings: TlsSettings) -> list[CheckStep]:
    if settings.spki_pin is not None:
        return [CheckStep("ca", good=True, detail="none is asked: the server's public key is pinned")]
    if settings.ca_pem is None:
        return [CheckStep("ca", good=True, detail="the public CA set (certifi)")]
    found = authorities_of(settings.ca_pem)
    return [CheckStep("ca", good=_days(facts) >= 0, detail=f"{facts.subject}, {_ending(facts)}") for facts in found]


def _peer(network: NetworkAccess, sock: socket.socket) -> str | None:
    try:
        return network.peer(sock)
    except OSError:
        return None  # the peer has reset the connection already


def _answer_step(answer: str, request: AuthorizedRequest) -> CheckStep:
    address = parse_address(answer)
    if request.origin.kind is HostKind.LOOPBACK:
        return CheckStep("address", good=True, detail=f"{answer}: literal loopback, allowed by localMode")
    reason = "not-canonical" if address is None else refusal(address, request.private_networks)
    where = "in the endpoint's private networks" if request.private_networks else "public"
    return CheckStep(
        "address", good=reason is None, detail=f"{answer}: {where if reason is None else 'refused, ' + reason}"
    )


def _certificate_step(der: bytes | None) -> CheckStep:
    facts = facts_of(der)
    if facts is None:
        return CheckStep("certificate", good=False, detail="the server's certificate cannot be read")
    return CheckStep("certificate", good=True, detail=f"issued by {facts.issuer}, {_ending(facts)}")


def _days(facts: CertificateFacts) -> int:
    return facts.days_left(datetime.now(UTC))


def _ending(facts: CertificateFacts) -> str:
    days, date = _days(facts), facts.ends.strftime("%Y-%m-%d")
    if days < 0:
        return f"ended {date}"
    return f"ends {date}, in {days} days" + (" (soon)" if days <= _EXPIRES_SOON_DAYS else "")


async def _timed(
    name: str,
    step: Awaitable[T],
    code: Code,
    steps: list[CheckStep],
    clock: Clock,
    channel: TlsChannel | None = None,
) -> T:
    start = clock.now_ns()
    try:
        value = await within(step, _SPAN_NS, start + 2 * _SPAN_NS, code, clock)
    except TransportError as error:
        why = None if channel is None else channel.why
        detail = error.code if why is None else f"{error.code}: {why}"
        steps.append(CheckStep(name, good=False, detail=detail, took_ms=(clock.now_ns() - start) / 1e6))
        raise _Failed from None
    steps.append(CheckStep(name, good=True, detail="done", took_ms=(clock.now_ns() - start) / 1e6))
    return value
