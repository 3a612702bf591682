"""The order of one call.

1. The authorization is one that was issued here; the message is built and bounded.
2. Resolve; check every answer; pin the first.
3. Connect to exactly that address; the peer that the kernel names must be it.
4. TLS, where the origin is https: name or pin checked.
5. Lease: the caller makes durable that a byte may leave now. A failure up to here is provably ``not_sent``.
6. The deadline and the silence of the peer are checked once more; then the first byte leaves (``Conversation.run``).
7. Read the answer to its end. Close, or reset where the end was not clean.

Nothing of the environment is read, nothing is retried, no redirect is followed, no connection is used twice.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from typing import TypeVar

from tasc_collector.errors import InputError, TransportError
from tasc_collector.transport.arrival import ArrivalClock
from tasc_collector.transport.clock import Clock
from tasc_collector.transport.codes import Code, category_of
from tasc_collector.transport.conversation import Conversation, OnData, OnHead
from tasc_collector.transport.loop_turns import watched_turns
from tasc_collector.transport.network import NetworkAccess, SystemNetwork, has_kernel_times, reset
from tasc_collector.transport.origins import HostKind
from tasc_collector.transport.policy import require_issued
from tasc_collector.transport.resolver import choose, not_sent
from tasc_collector.transport.result import ExchangeCancelled, ExchangeRequest, ExchangeResult
from tasc_collector.transport.tls import TlsChannel, TlsSettings
from tasc_collector.transport.trust import trust_of

Lease = Callable[[], Awaitable[None]]
T = TypeVar("T")

_MS = 1_000_000
_NAME = re.compile(r"[a-z][a-z0-9-]{0,63}")
_VALUE = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]{0,8190}[\x21-\x7e])?")
_OURS = frozenset(
    {
        "host",
        "connection",
        "content-length",
        "accept-encoding",
        "transfer-encoding",
        "te",
        "trailer",
        "upgrade",
        "expect",
    }
)
SECRET_HEADERS = frozenset({"authorization", "x-api-key"})
"""The only header fields that may carry a secret."""
_SYSTEM = SystemNetwork()


async def exchange(
    request: ExchangeRequest,
    *,
    lease: Lease,
    on_head: OnHead | None = None,
    on_data: OnData,
    clock: Clock,
    network: NetworkAccess = _SYSTEM,
    queued_ns: int | None = None,
    result: ExchangeResult | None = None,
    origin_ns: int = 0,
) -> ExchangeResult:
    """Make one call. It returns however the call ends; what failed is in ``code`` and ``category``.

    Args:
        request: what is asked, with its authority.
        lease: awaited after TLS and before byte one; what it raises passes through, and nothing was sent.
        on_head: called with the head of a 200 answer.
        on_data: called with the body bytes of each read of a 200 answer and their ``Arrival``.
        clock: the clock of all marks; the event loop's timers run on the same one.
        network: lookups and sockets.
        queued_ns: when the caller began to wait for its turn; now, where it did not.
        result: an empty result to fill, for a caller that wants to read the ledger while the call runs.
        origin_ns: moment of ``clock`` from which arrivals are counted; 0 gives absolute ones. Marks are always
            absolute.

    Raises:
        NotAuthorized: the authorization was not issued in this process.
        InputError: the message breaks a bound or holds a malformed header; nothing was sent.
        ExchangeCancelled: the caller cancelled; ``result`` says how far the call had come.
    """
    require_issued(request.authorized)
    message = _message(request)
    trust = None
    if request.authorized.origin.secure:
        trust = request.tls or trust_of(request.authorized, key_folder=None)
    result = ExchangeResult() if result is None else result
    result.marks.begun = clock.now_ns()
    result.marks.queued = result.marks.begun if queued_ns is None else queued_ns
    try:
        await _call(request, message, trust, result, lease, on_head, on_data, clock, network, origin_ns)
    except TransportError as error:
        result.code = Code(error.code)
    except asyncio.CancelledError:
        result.code = Code.CALLER_CANCELLED
        _close_books(result, clock)
        raise ExchangeCancelled(result) from None
    _close_books(result, clock)
    return result


def _close_books(result: ExchangeResult, clock: Clock) -> None:
    result.marks.ended = clock.now_ns()
    if result.code is not None:
        result.category = category_of(result.code, result.status)


async def _call(
    request: ExchangeRequest,
    message: bytes,
    trust: TlsSettings | None,
    result: ExchangeResult,
    lease: Lease,
    on_head: OnHead | None,
    on_data: OnData,
    clock: Clock,
    network: NetworkAccess,
    origin_ns: int,
) -> None:
    marks, origin, limits = result.marks, request.authorized.origin, request.limits

    async def phase(step: Awaitable[T], code: Code) -> T:
        return await within(step, limits.connect_timeout_ms * _MS, request.deadline_ns, code, clock)

    answers = [origin.host]
    if origin.kind is HostKind.NAME:
        answers = await phase(network.resolve(origin.host, origin.port), Code.RESOLVE_TIMEOUT)
    address = choose(origin, answers, request.authorized.private_networks)
    marks.resolved = clock.now_ns()
    sock = await phase(network.connect(address, origin.port), Code.CONNECT_TIMEOUT)
    conversation: Conversation | None = None
    with ExitStack() as stack:
        stack.callback(lambda: reset(sock) if conversation is None else conversation.close())
        turns = None if has_kernel_times(sock) else stack.enter_context(watched_turns(clock))
        stamps = ArrivalClock(clock, origin_ns, turns)
        try:
            result.peer = network.peer(sock)
        except OSError:
            raise not_sent(Code.CONNECTION_RESET) from None
        if result.peer != str(address):
            raise not_sent(Code.PEER_MISMATCH)
        marks.connected = clock.now_ns()
        tls: TlsChannel | None = None
        if trust is not None:
            tls = TlsChannel(trust, origin.host)
            await phase(tls.handshake(sock), Code.TLS_TIMEOUT)
            marks.secured = clock.now_ns()
        await lease()
        marks.leased = clock.now_ns()
        if marks.leased >= request.deadline_ns:
            raise not_sent(Code.DEADLINE_EXCEEDED)
        conversation = Conversation(
            sock, tls, request, result, clock=clock, stamps=stamps, on_head=on_head, on_data=on_data
        )
        conversation.refuse_early_bytes()
        await conversation.run(message)


async def within(step: Awaitable[T], span_ns: int, deadline_ns: int, code: Code, clock: Clock) -> T:
    """Await one step for at most its own span and the total deadline.

    Args:
        step: what is awaited.
        span_ns: most time of this step.
        deadline_ns: end of the whole call on ``clock``.
        code: what an overrun span is called; an overrun deadline is ``DEADLINE_EXCEEDED``.
        clock: monotonic.

    Raises:
        TransportError: the time is over; nothing was sent.
    """
    left = deadline_ns - clock.now_ns()
    try:
        async with asyncio.timeout(max(min(left, span_ns), 0) / 1e9):
            return await step
    except TimeoutError:
        raise not_sent(Code.DEADLINE_EXCEEDED if left <= span_ns else code) from None


def _message(request: ExchangeRequest) -> bytes:
    """Head and body of the request, in one piece so that they leave together."""
    authorized, limits = request.authorized, request.limits
    if len(request.body) > limits.max_request_bytes:
        raise _malformed(
            "body", f"at most {limits.max_request_bytes} bytes", "shorten the case, or raise the limit in the study"
        )
    fields = [("host", authorized.origin.authority), *request.headers]
    for name, value in fields:
        if _NAME.fullmatch(name) is None or _VALUE.fullmatch(value) is None:
            raise _malformed("headers", "lower-case names and visible ASCII values", "correct the header")
    if any(name in _OURS or name in SECRET_HEADERS for name, _ in request.headers):
        raise _malformed("headers", "framing and secret headers are not given here", "leave the header out")
    lines = [f"{authorized.method} {authorized.path} HTTP/1.1".encode("ascii")]
    lines += [f"{name}: {value}".encode("ascii") for name, value in fields]
    if request.secret is not None:
        lines.append(_secret_line(*request.secret, limit=limits.max_secret_header_bytes))
    lines += [b"accept-encoding: identity", b"connection: close"]
    if authorized.method != "GET":
        lines.append(b"content-length: %d" % len(request.body))
    elif request.body:
        raise _malformed("body", "a GET request has none", "leave the body out")
    return b"\r\n".join((*lines, b"", b"")) + request.body


def _secret_line(name: str, value: bytes, *, limit: int) -> bytes:
    if name not in SECRET_HEADERS:
        raise _malformed(
            "secret", "a secret goes into authorization or x-api-key", "use one of these two header fields"
        )
    if (
        not value
        or len(name) + len(value) > limit
        or any(not 0x20 <= byte <= 0x7E for byte in value)
        or value != value.strip()
    ):
        raise _malformed(
            "secret",
            "visible ASCII of bounded length, no white space at either end",
            "set the secret again without a newline",
        )
    return name.encode("ascii") + b": " + value


def _malformed(field: str, rule: str, way_out: str) -> InputError:
    return InputError("the request cannot be sent", field=field, rule=rule, way_out=way_out)
