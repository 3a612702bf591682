"""What would happen on the way to an endpoint, step by step, without sending one application byte.

Each step says whether it would be allowed and why; the first step that fails ends the check. The report is for the
operator's own terminal: it names the operator's own host and addresses, and never a secret.
"""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeVar

from cryptography import x509
from cryptography.x509.oid import NameOID

from tasc_collector.contracts.network_extension import NetworkExtension
from tasc_collector.contracts.trust_policy import CollectorTrustPolicy, TrustedRoute
from tasc_collector.errors import InputError, SecretUnavailable, TascError, TransportError
from tasc_collector.secrets import SecretStore
from tasc_collector.transport.addresses import parse_address
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
        return CheckStep("secret", good=True, detail="none is named")
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
        if network.peer(sock) != str(address):
            steps.append(CheckStep("peer", good=False, detail="the kernel names another peer than the pinned address"))
            raise _Failed
        if origin.secure:
            channel = TlsChannel(_settings(request, what, steps), origin.host)
            await _timed("tls", channel.handshake(sock), Code.TLS_TIMEOUT, steps, clock)
            steps.append(_certificate_step(channel.certificate()))
    finally:
        reset(sock)


def _runtime(what: EndpointCheck) -> tuple[str, str]:
    endpoint = what.policy.endpoint(what.alias)
    return ("", "") if endpoint is None else (endpoint.runtime.profile_id, endpoint.runtime.build)


def _settings(request: AuthorizedRequest, what: EndpointCheck, steps: list[CheckStep]) -> TlsSettings:
    try:
        return trust_of(request, key_folder=what.secrets.key_folder)
    except TascError as error:
        steps.append(CheckStep("trust", good=False, detail=str(error)))
        raise _Failed from None


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
    if der is None:
        return CheckStep("certificate", good=False, detail="the server showed none")
    certificate = x509.load_der_x509_certificate(der)
    days = (certificate.not_valid_after_utc - datetime.now(UTC)).days
    soon = " (soon)" if days <= _EXPIRES_SOON_DAYS else ""
    expiry = certificate.not_valid_after_utc.strftime("%Y-%m-%d")
    return CheckStep(
        "certificate",
        good=True,
        detail=f"issued by {_common_name(certificate.issuer)}, ends {expiry}, in {days} days{soon}",
    )


def _common_name(name: x509.Name) -> str:
    found = name.get_attributes_for_oid(NameOID.COMMON_NAME) or name.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
    text = str(found[0].value) if found else "an issuer without a name"
    return "".join(char if char.isprintable() else "?" for char in text[:80])


async def _timed(name: str, step: Awaitable[T], code: Code, steps: list[CheckStep], clock: Clock) -> T:
    start = clock.now_ns()
    try:
        value = await within(step, _SPAN_NS, start + 2 * _SPAN_NS, code, clock)
    except TransportError as error:
        steps.append(CheckStep(name, good=False, detail=error.code, took_ms=(clock.now_ns() - start) / 1e6))
        raise _Failed from None
    steps.append(CheckStep(name, good=True, detail="done", took_ms=(clock.now_ns() - start) / 1e6))
    return value
