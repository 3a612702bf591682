"""What one exchange came to: how far it got, as the write ledger proves it, and when everything happened."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from tasc_collector.contracts.http_limits import HttpLimits
from tasc_collector.errors import Category, DispatchState
from tasc_collector.transport.codes import Code
from tasc_collector.transport.policy import AuthorizedRequest
from tasc_collector.transport.tls import TlsSettings


@dataclass(slots=True)
class Marks:
    """Moments of one call, absolute nanoseconds of one monotonic clock; None where not reached."""

    queued: int | None = None
    begun: int | None = None
    """When the call left the queue: everything before is queue time."""
    resolved: int | None = None
    connected: int | None = None
    secured: int | None = None
    leased: int | None = None
    request_started: int | None = None
    """Right before the first application byte was handed to the system: the write ledger's entry."""
    request_written: int | None = None
    headers: int | None = None
    first_byte: int | None = None
    """Arrival of the first body byte."""
    last_byte: int | None = None
    """Arrival of the last byte of the response."""
    ended: int | None = None
    """When the exchange was over for us, whatever way."""


@dataclass(frozen=True, slots=True)
class ExchangeRequest:
    """One request, complete.

    Args:
        authorized: the authority to make it.
        headers: further header fields (``accept``, ``content-type``); host, length, encoding and connection are added.
        body: request body; empty for GET.
        limits: bounds of the call.
        deadline_ns: absolute total deadline on the monotonic clock.
        content_types: media types that a 200 answer may have; empty for any.
        close_delimited: the dialect ends a body by closing and has its own terminator.
        secret: secret header as name and value, or None.
        tls: how the certificate is trusted; None takes what the operator's extension says, without a client
            certificate.
    """

    authorized: AuthorizedRequest
    headers: tuple[tuple[str, str], ...] = field(repr=False)
    body: bytes = field(repr=False)
    limits: HttpLimits
    deadline_ns: int
    content_types: frozenset[str] = frozenset()
    close_delimited: bool = False
    secret: tuple[str, bytes] | None = field(default=None, repr=False)
    tls: TlsSettings | None = field(default=None, repr=False)


@dataclass(slots=True)
class ExchangeResult:
    """How one exchange ended. A success is: state completed, status 200, no code.

    Args:
        state: ``not_sent`` exactly when no application byte's write began; ``completed`` when the answer is complete.
        marks: when.
        status: HTTP status of the answer, where its head came.
        content_type: media type without parameters.
        retry_after_s: the answer's ``Retry-After`` in seconds, bounded.
        request_id: the provider's request id, where it is harmless.
        clean_end: the answer ended by its own framing, with nothing after it.
        category: persisted failure category, None for a success.
        code: why it failed, None for a success.
        started_at_ms: wall clock of ``marks.request_started``, milliseconds since 1970.
        request_bytes: application bytes whose write began.
        response_bytes: application bytes that were read.
        body_bytes: body bytes among them.
        reads: reads that brought something.
        lag_max_ns: largest (read minus arrival); None without kernel times.
        start_uncertainty_ns: how long the first hand-over to the system took, so how uncertain ``request_started`` is.
        clock_set: the wall clock was set during the call, so kernel times may have been mapped wrongly.
        peer: the address at the other end.
    """

    state: DispatchState = DispatchState.NOT_SENT
    marks: Marks = field(default_factory=Marks)
    status: int | None = None
    content_type: str | None = None
    retry_after_s: int | None = None
    request_id: str | None = None
    clean_end: bool = False
    category: Category | None = None
    code: Code | None = None
    started_at_ms: int | None = None
    request_bytes: int = 0
    response_bytes: int = 0
    body_bytes: int = 0
    reads: int = 0
    lag_max_ns: int | None = None
    start_uncertainty_ns: int = 0
    clock_set: bool = False
    peer: str | None = field(default=None, repr=False)

    @property
    def succeeded(self) -> bool:
        """True for a complete 200 answer."""
        return self.state is DispatchState.COMPLETED and self.code is None


class ExchangeCancelled(asyncio.CancelledError):
    """The caller cancelled an exchange. It stays a cancellation; ``result`` says how far the call had come."""

    def __init__(self, result: ExchangeResult) -> None:
        super().__init__("cancelled")
        self.result = result
