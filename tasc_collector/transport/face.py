"""The httpx face: ``httpx.Request`` in, ``httpx.Response`` out, our own one-shot exchange below.

For reads of a server's own routes (models, health, metrics), which are small and whole. Generations go through
``invocation``, which reads them as they come. There is no pool, no redirect, no environment and no retry below this
face, and a request goes only where the trust policy lets its alias go, whatever its URL says: the URL must be the
endpoint's own.

httpx logs the URL of every request at INFO. An origin is nowhere to be seen, so importing this module leaves those lines out.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

import httpx

from tasc_collector.contracts.http_limits import HttpLimits
from tasc_collector.contracts.network_extension import NetworkExtension
from tasc_collector.contracts.trust_policy import CollectorTrustPolicy
from tasc_collector.errors import NotAuthorized, TransportError
from tasc_collector.runtimes.result import Arrival
from tasc_collector.transport.clock import Clock
from tasc_collector.transport.codes import Code
from tasc_collector.transport.exchange import SECRET_HEADERS, Lease, exchange
from tasc_collector.transport.http1 import Head
from tasc_collector.transport.network import NetworkAccess, SystemNetwork
from tasc_collector.transport.policy import AuthorizedRequest, authorize
from tasc_collector.transport.result import ExchangeRequest, ExchangeResult
from tasc_collector.transport.tls import TlsSettings

_MS = 1_000_000
_FORWARDED = ("accept", "content-type")
_ANSWERED = (Code.PROVIDER_ERROR, Code.REDIRECT_DENIED, Code.UNEXPECTED_STATUS)


def _names_no_url(record: logging.LogRecord) -> bool:
    return not any(isinstance(argument, httpx.URL) for argument in record.args or ())


logging.getLogger("httpx").addFilter(_names_no_url)


@dataclass(frozen=True, slots=True)
class FaceTarget:
    """Where a face may go and as what.

    Args:
        policy: the operator's trust policy.
        alias: endpoint alias in it.
        runtime: runtime that is trusted there.
        build: its build.
        limits: bounds of each request.
        authentication: the policy's reference, the header field and the secret's bytes, or None.
        extension: the operator's network extension, or None.
        tls: how the certificate is trusted; None takes what the extension says.
        close_delimited: the server ends bodies by closing (HTTP/1.0), and says so in its profile.
    """

    policy: CollectorTrustPolicy = field(repr=False)
    alias: str
    runtime: str
    build: str
    limits: HttpLimits
    authentication: tuple[str, str, bytes] | None = field(default=None, repr=False)
    extension: NetworkExtension | None = field(default=None, repr=False)
    tls: TlsSettings | None = field(default=None, repr=False)
    close_delimited: bool = False


class OneShotTransport(httpx.AsyncBaseTransport):
    """An httpx transport of which every request is one exchange on one new connection.

    A complete answer of any status comes back as a response; the body of a non-200 answer is dropped. Everything else
    raises ``TransportError`` with its code and the state that the write ledger proves. ``last`` is the result of the
    last exchange.

    Args:
        target: where requests may go.
        clock: both clocks.
        lease: awaited before each first byte; by default nothing is leased.
        network: lookups and sockets.
    """

    def __init__(
        self, target: FaceTarget, *, clock: Clock, lease: Lease | None = None, network: NetworkAccess | None = None
    ) -> None:
        self._target, self._clock = target, clock
        self._lease = lease or _no_lease
        self._network = network or SystemNetwork()
        self.last: ExchangeResult | None = None

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Make one exchange.

        Raises:
            NotAuthorized: the policy does not allow it, or the URL is not the endpoint's.
            TransportError: no complete answer came.
        """
        target = self._target
        authorized = self._authorize(request)
        headers: list[tuple[bytes, bytes]] = []
        parts: list[bytes] = []

        def on_head(head: Head) -> None:
            headers.extend(head.fields)

        def on_data(body: bytes, arrival: Arrival) -> None:
            parts.append(body)

        secret = None if target.authentication is None else (target.authentication[1], target.authentication[2])
        result = self.last = await exchange(
            ExchangeRequest(
                authorized=authorized,
                headers=tuple((name, request.headers[name]) for name in _FORWARDED if name in request.headers),
                body=await request.aread(),
                limits=target.limits,
                deadline_ns=self._clock.now_ns() + target.limits.deadline_ms * _MS,
                close_delimited=target.close_delimited,
                secret=secret,
                tls=target.tls,
            ),
            lease=self._lease,
            on_head=on_head,
            on_data=on_data,
            clock=self._clock,
            network=self._network,
        )
        if result.status is None or not result.clean_end or result.code not in {None, *_ANSWERED}:
            raise TransportError(
                result.code or Code.CONNECTION_CLOSED, result.state, result.category or TransportError.category
            )
        return httpx.Response(result.status, headers=headers, content=b"".join(parts), request=request)

    def _authorize(self, request: httpx.Request) -> AuthorizedRequest:
        target, url = self._target, request.url
        if SECRET_HEADERS & {name.lower() for name in request.headers}:
            raise NotAuthorized(
                "the request carries a secret of its own", field="headers", way_out="let the target authenticate"
            )
        authorized = authorize(
            target.policy,
            alias=target.alias,
            runtime=target.runtime,
            build=target.build,
            method=request.method,
            path=url.raw_path.decode("ascii").partition("?")[0],
            authentication_reference=None if target.authentication is None else target.authentication[0],
            duration_ms=target.limits.deadline_ms,
            extension=target.extension,
            now_ms=self._clock.wall_ns() // _MS,
        )
        origin = authorized.origin
        port = url.port or {"http": 80, "https": 443}.get(url.scheme)
        if (
            (url.scheme, url.host, port) != (origin.scheme, origin.host, origin.port)
            or b"?" in url.raw_path
            or url.fragment
            or url.userinfo
        ):
            raise NotAuthorized(
                "the URL is not the endpoint's",
                field="url",
                rule="scheme, host and port of the endpoint, without query and fragment",
                way_out="build the URL from the endpoint's origin",
            )
        return authorized


async def _no_lease() -> None:
    return
