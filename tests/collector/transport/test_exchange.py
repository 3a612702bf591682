"""One call on plain loopback: order, ledger, marks, bounds."""

from __future__ import annotations

import asyncio
import copy
import pickle
import ssl
import threading
import time
from pathlib import Path

import pytest

from tasc_collector.contracts.http_limits import HttpLimits
from tasc_collector.errors import Category, DispatchState, InputError, JournalFailed, NotAuthorized
from tasc_collector.transport.clock import SystemClock
from tasc_collector.transport.codes import Code
from tasc_collector.transport.exchange import exchange
from tasc_collector.transport.network import SO_TIMESTAMPNS
from tasc_collector.transport.policy import AuthorizedRequest
from tasc_collector.transport.result import ExchangeCancelled, ExchangeRequest, ExchangeResult
from tasc_collector.transport.tls import TlsSettings
from tests.support import chains
from tests.support.calls import Call, LabNetwork, authorized, call, run_call
from tests.support.raw_server import Peer, RawServer, answer


def serve(*parts: bytes, status: str = "200 OK") -> RawServer:
    def script(peer: Peer) -> None:
        peer.read_request()
        peer.send(*parts)
        peer.fin()

    return RawServer(script)


def test_a_whole_answer_completes_and_the_server_saw_exactly_one_request() -> None:
    with serve(answer()) as server:
        done = run_call(server.origin, body=b'{"prompt":"x"}')
    assert done.result.state is DispatchState.COMPLETED
    assert (done.result.status, done.result.code, done.result.category, done.result.clean_end) == (
        200,
        None,
        None,
        True,
    )
    assert done.body == b'{"ok":true}'
    assert done.leases == 1
    assert server.connections == 1
    head, _, body = server.requests[0].partition(b"\r\n\r\n")
    assert body == b'{"prompt":"x"}'
    assert head.split(b"\r\n") == [
        b"POST /v1/completions HTTP/1.1",
        b"host: 127.0.0.1:%d" % server.port,
        b"accept: application/json",
        b"content-type: application/json",
        b"accept-encoding: identity",
        b"connection: close",
        b"content-length: 14",
    ]


def test_marks_rise_in_the_order_of_the_call_and_tls_is_null_on_plain_http() -> None:
    with serve(answer()) as server:
        marks = run_call(server.origin).result.marks
    order = [
        marks.queued,
        marks.begun,
        marks.resolved,
        marks.connected,
        marks.leased,
        marks.request_started,
        marks.request_written,
        marks.headers,
        marks.first_byte,
        marks.last_byte,
        marks.ended,
    ]
    assert None not in order
    assert order == sorted(order, key=int)
    assert marks.secured is None


@pytest.mark.skipif(SO_TIMESTAMPNS is None, reason="the system gives no kernel receive times on TCP")
def test_arrival_is_the_kernels_time_even_where_the_event_loop_reads_late() -> None:
    """The loop is blocked until 40 ms after the second piece was sent: its arrival stays where it was, the lag is
    told.
    """
    sent = threading.Event()

    def script(peer: Peer) -> None:
        peer.read_request()
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n")
        peer.server.stopping.wait(0.03)
        peer.send(b"2\r\n  \r\n0\r\n\r\n")
        sent.set()
        peer.fin()

    async def blocked() -> Call:
        await call(server.origin)  # the first socket of a process turns kernel times on a moment later
        sent.clear()

        async def block() -> None:
            await server.asked(2)
            await asyncio.sleep(0.01)
            sent.wait(60)
            time.sleep(0.04)  # noqa: ASYNC251 - blocking the loop is the point

        blocker = asyncio.create_task(block())
        done = await call(server.origin)
        await blocker
        return done

    with RawServer(script) as server:
        done = asyncio.run(blocked())
    last = done.arrivals[-1]
    assert last.uncertainty_ns == 0
    assert last.lag_ns is not None
    assert last.lag_ns >= 39_000_000
    assert done.result.lag_max_ns == last.lag_ns


def test_the_lease_is_awaited_before_the_first_byte_leaves() -> None:
    seen: list[int] = []

    async def lease() -> None:
        await asyncio.sleep(0)
        seen.append(len(server.requests))

    with serve(answer()) as server:
        done = run_call(server.origin, lease=lease)
        assert seen == [0]
        assert done.result.marks.leased <= done.result.marks.request_started
        assert len(server.requests) == 1


def test_a_lease_that_fails_passes_through_and_nothing_was_sent() -> None:
    async def lease() -> None:
        raise JournalFailed("the journal cannot be written")

    result = ExchangeResult()
    with serve(answer()) as server:
        with pytest.raises(JournalFailed):
            run_call(server.origin, lease=lease, result=result)
    assert server.requests == []
    assert result.state is DispatchState.NOT_SENT
    assert result.marks.request_started is None


def test_a_deadline_that_passes_during_the_lease_sends_nothing() -> None:
    async def lease() -> None:
        await asyncio.sleep(0.06)

    with serve(answer()) as server:
        done = run_call(server.origin, lease=lease, deadline_ms=50)
    assert (done.result.state, done.result.code) == (DispatchState.NOT_SENT, Code.DEADLINE_EXCEEDED)
    assert done.result.category is Category.TIMEOUT
    assert server.requests == []


def test_a_peer_that_closed_before_byte_one_is_not_sent_to() -> None:
    def script(peer: Peer) -> None:
        peer.fin()

    async def lease() -> None:
        async with asyncio.timeout(60):
            while server.connections == 0:  # noqa: ASYNC110 - a thread counts
                await asyncio.sleep(0.001)
        await asyncio.sleep(0.02)

    with RawServer(script) as server:
        done = run_call(server.origin, lease=lease)
    assert (done.result.state, done.result.code) == (DispatchState.NOT_SENT, Code.CONNECTION_CLOSED)


def test_a_peer_that_speaks_before_it_is_asked_is_not_sent_to() -> None:
    def script(peer: Peer) -> None:
        peer.send(b"SSH-2.0-OpenSSH_9.2\r\n")
        peer.hold()

    async def lease() -> None:
        await asyncio.sleep(0.03)

    with RawServer(script) as server:
        done = run_call(server.origin, lease=lease)
    assert (done.result.state, done.result.code) == (DispatchState.NOT_SENT, Code.UNSOLICITED_BYTES)
    assert done.result.category is Category.INVALID_RESPONSE


def test_a_peer_that_speaks_with_the_end_of_the_handshake_is_not_sent_to(tmp_path: Path) -> None:
    """The answer comes in one segment with the handshake's last record, before anything was asked: it answers nothing."""
    context = chains.CASES["tls 1.2"][2]().server_context(tmp_path)

    def script(peer: Peer) -> None:
        read, write = ssl.MemoryBIO(), ssl.MemoryBIO()
        session = context.wrap_bio(read, write, server_side=True)
        while True:
            try:
                session.do_handshake()
            except ssl.SSLWantReadError:
                peer.send(write.read())
                read.write(peer.sock.recv(65_536))
            else:
                break
        session.write(answer())
        peer.send(write.read())
        peer.hold()

    with RawServer(script) as server:
        done = run_call(
            f"https://{chains.HOST}", network=LabNetwork(server.port), tls=TlsSettings(ca_pem=chains.root().pem)
        )
    assert (done.result.state, done.result.code) == (DispatchState.NOT_SENT, Code.UNSOLICITED_BYTES)
    assert done.body == b""


def test_a_body_that_streams_in_pieces_is_handed_over_as_it_comes() -> None:
    with serve(
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n",
        b"3\r\nab\n\r\n",
        b"1\r\nc\r\n0\r\n\r\n",
    ) as server:
        done = run_call(server.origin, content_types=frozenset({"text/event-stream"}))
    assert done.body == b"ab\nc"
    assert done.result.body_bytes == 4
    assert done.result.clean_end


@pytest.mark.parametrize(
    ("status", "code", "category"),
    [
        ("401 Unauthorized", Code.PROVIDER_ERROR, Category.AUTHENTICATION),
        ("403 Forbidden", Code.PROVIDER_ERROR, Category.AUTHORIZATION),
        ("429 Too Many Requests", Code.PROVIDER_ERROR, Category.RATE_LIMIT),
        ("503 Service Unavailable", Code.PROVIDER_ERROR, Category.INVALID_RESPONSE),
        ("302 Found", Code.REDIRECT_DENIED, Category.INVALID_RESPONSE),
        ("206 Partial Content", Code.UNEXPECTED_STATUS, Category.INVALID_RESPONSE),
    ],
)
def test_a_complete_refusal_is_an_answered_failure_and_its_body_is_dropped(
    status: str, code: Code, category: Category
) -> None:
    extra = b"Retry-After: 7\r\nX-Request-Id: req-12.a\r\nLocation: http://169.254.169.254/\r\n"
    with serve(answer(b'{"error":"secret text"}', status=status, extra=extra)) as server:
        done = run_call(server.origin)
    result = done.result
    assert (result.state, result.code, result.category, result.status) == (
        DispatchState.COMPLETED,
        code,
        category,
        int(status[:3]),
    )
    assert (result.retry_after_s, result.request_id, done.body) == (7, "req-12.a", b"")
    assert server.connections == 1
    assert "secret" not in repr(result)


def test_an_answer_of_another_media_type_is_refused_before_its_body() -> None:
    with serve(answer(content_type="text/html")) as server:
        done = run_call(server.origin)
    assert (done.result.state, done.result.code, done.body) == (
        DispatchState.SENT_UNKNOWN,
        Code.CONTENT_TYPE_REFUSED,
        b"",
    )


def test_a_body_over_the_limit_stops_the_call_within_one_read() -> None:
    limits = HttpLimits(max_response_bytes=1_000)
    chunk = b"400\r\n" + b"x" * 1_024 + b"\r\n"

    def script(peer: Peer) -> None:
        peer.read_request()
        peer.send(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n")
        for _ in range(10_000):
            peer.send(chunk)

    with RawServer(script) as server:
        done = run_call(server.origin, limits=limits)
    assert done.result.code is Code.RESPONSE_TOO_LARGE
    assert done.result.response_bytes <= 1_000 + 65_536


def test_a_drip_that_never_ends_is_stopped_by_the_total_deadline() -> None:
    def script(peer: Peer) -> None:
        peer.read_request()
        peer.send(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100000\r\n\r\n")
        while not peer.server.stopping.wait(0.01):
            peer.send(b"x")

    with RawServer(script) as server:
        done = run_call(server.origin, deadline_ms=150)
    assert (done.result.state, done.result.code) == (DispatchState.SENT_UNKNOWN, Code.DEADLINE_EXCEEDED)
    assert done.result.marks.ended - done.result.marks.begun >= 150_000_000


def test_cancelling_stays_a_cancellation_and_tells_how_far_the_call_had_come() -> None:
    async def observed() -> ExchangeResult:
        caught: list[ExchangeCancelled] = []

        async def inner() -> None:
            try:
                await call(server.origin)
            except ExchangeCancelled as error:
                caught.append(error)
                raise

        task = asyncio.create_task(inner())
        await server.asked()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return caught[0].result

    def script(peer: Peer) -> None:
        peer.read_request()
        peer.hold()

    with RawServer(script) as server:
        got = asyncio.run(observed())
    assert (got.state, got.code, got.category) == (
        DispatchState.SENT_UNKNOWN,
        Code.CALLER_CANCELLED,
        Category.CANCELLED,
    )


def test_a_consumer_that_fails_ends_the_call_without_its_exception() -> None:
    def failing(data: bytes, arrival: object) -> None:
        raise RuntimeError("CANARY " + data.decode())

    async def go() -> ExchangeResult:
        async def lease() -> None:
            return

        clock = SystemClock()
        request = ExchangeRequest(authorized(server.origin), (), b"{}", HttpLimits(), clock.now_ns() + 5_000_000_000)
        return await exchange(request, lease=lease, on_data=failing, clock=clock)

    with serve(answer()) as server:
        result = asyncio.run(go())
    assert (result.code, result.category) == (Code.CONSUMER_FAILED, Category.INTERNAL)
    assert "CANARY" not in repr(result)


def test_an_authorization_cannot_be_forged_copied_or_pickled() -> None:
    with serve(answer()) as server:
        real = authorized(server.origin)
        fields = {name: getattr(real, name) for name in AuthorizedRequest.__slots__ if not name.startswith("__")}
        forged = AuthorizedRequest(**fields)
        with pytest.raises(NotAuthorized):
            run_call(server.origin, authority=forged)
        with pytest.raises(TypeError):
            copy.copy(real)
        with pytest.raises(TypeError):
            copy.deepcopy(real)
        with pytest.raises(TypeError):
            pickle.dumps(real)
    assert server.connections == 0


@pytest.mark.parametrize(
    "headers",
    [
        (("x-a", "CANARY\r\nb: c"),),
        (("X-Upper", "CANARY"),),
        (("host", "evil.example"),),
        (("authorization", "Bearer CANARY"),),
        (("x-a", "CANARYé"),),
    ],
)
def test_a_malformed_or_reserved_header_is_refused_without_echo(headers: tuple[tuple[str, str], ...]) -> None:
    with serve(answer()) as server:
        with pytest.raises(InputError) as refusal:
            run_call(server.origin, headers=headers)
    assert headers[0][1] not in str(refusal.value)
    assert server.connections == 0


@pytest.mark.parametrize("value", [b"Bearer CANARY\n", b"", b"a\x00b", b" a", b"x" * 9_000])
def test_a_malformed_secret_is_refused_without_echo(value: bytes) -> None:
    with serve(answer()) as server:
        with pytest.raises(InputError) as refusal:
            run_call(server.origin, secret=("authorization", value))
    assert "CANARY" not in str(refusal.value)
    assert server.connections == 0


def test_a_secret_leaves_in_its_own_header_and_in_no_repr() -> None:
    with serve(answer()) as server:
        done = run_call(server.origin, secret=("x-api-key", b"CANARY"))
    assert b"\r\nx-api-key: CANARY\r\n" in server.requests[0]
    assert "CANARY" not in repr(done.result)
