"""The failure matrix: 36 scenarios on real sockets, plain and TLS, 20 calls each. The server's own count is the oracle.

Numbers are those of the table in which the behaviour of other clients was measured. A call is ``not_sent`` exactly
when the server cannot have read a byte of it; it is ``completed`` only with a whole answer.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tasc_collector.contracts.http_limits import HttpLimits
from tasc_collector.errors import DispatchState, InputError
from tasc_collector.transport.addresses import Address
from tasc_collector.transport.codes import Code
from tasc_collector.transport.network import SystemNetwork
from tasc_collector.transport.result import ExchangeCancelled
from tasc_collector.transport.tls import TlsSettings
from tests.support import chains
from tests.support.calls import Call, LabNetwork, call
from tests.support.raw_server import Peer, RawServer, Script, answer

REPEATS = 20
NOT_SENT, UNKNOWN, DONE = DispatchState.NOT_SENT, DispatchState.SENT_UNKNOWN, DispatchState.COMPLETED
JSON_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
BIG = b"x" * 1_000_000
# wide, so that a busy machine does not decide; the scenarios about time set their own
DEFAULTS = HttpLimits(connect_timeout_ms=30_000, headers_timeout_ms=60_000, body_timeout_ms=60_000, deadline_ms=60_000)
SHORT = HttpLimits(connect_timeout_ms=30_000, headers_timeout_ms=150, body_timeout_ms=150)


def after_request(*parts: bytes, end: Callable[[Peer], None] = Peer.fin) -> Script:
    def script(peer: Peer) -> None:
        peer.read_request()
        peer.send(*parts)
        end(peer)

    return script


def read_some(size: int, *parts: bytes, end: Callable[[Peer], None]) -> Script:
    def script(peer: Peer) -> None:
        got = 0
        while got < size:
            got += len(peer.sock.recv(min(4_096, size - got)))
        peer.send(*parts)
        end(peer)

    return script


def idle(peer: Peer) -> None:
    """Neither read nor write until the test ends."""
    peer.server.stopping.wait()


def half_close(peer: Peer) -> None:
    peer.sock.shutdown(socket.SHUT_WR)
    peer.hold()


def forever(first: bytes, item: bytes, pause: float = 0.0) -> Script:
    def script(peer: Peer) -> None:
        peer.read_request()
        peer.send(first)
        while not peer.server.stopping.wait(pause):
            peer.send(item)

    return script


@dataclass(frozen=True)
class Scenario:
    """What the server does, and which states and codes are then proved."""

    script: Script
    states: tuple[DispatchState, ...]
    codes: tuple[Code | None, ...]
    body: bytes = b"{}"
    limits: HttpLimits = DEFAULTS
    deadline_ms: int = 60_000


RESET_OR_CLOSED = (Code.CONNECTION_RESET, Code.CONNECTION_CLOSED)
SCENARIOS: dict[str, Scenario] = {
    "9 reset at accept": Scenario(
        Peer.rst, (NOT_SENT, UNKNOWN), (*RESET_OR_CLOSED, Code.CONNECT_FAILED, Code.TLS_FAILED)
    ),
    "10 closed at accept": Scenario(Peer.fin, (NOT_SENT, UNKNOWN), RESET_OR_CLOSED),
    "11 reset after the request": Scenario(after_request(end=Peer.rst), (UNKNOWN,), (Code.CONNECTION_RESET,)),
    "12 closed after the request": Scenario(after_request(), (UNKNOWN,), RESET_OR_CLOSED),
    "13 reset within the request": Scenario(read_some(1_000, end=Peer.rst), (UNKNOWN,), (Code.CONNECTION_RESET,), BIG),
    "14 early refusal, then reset": Scenario(
        read_some(1_000, answer(status="413 Content Too Large"), end=Peer.rst),
        (UNKNOWN, DONE),
        (Code.CONNECTION_RESET, Code.PROVIDER_ERROR),
        BIG,
    ),
    "14 early success": Scenario(read_some(1_000, answer(), end=idle), (UNKNOWN,), (Code.EARLY_RESPONSE,), BIG),
    "15 nobody reads": Scenario(idle, (UNKNOWN,), (Code.WRITE_TIMEOUT,), BIG, SHORT),
    "16 half-closed without an answer": Scenario(after_request(end=half_close), (UNKNOWN,), RESET_OR_CLOSED),
    "17 no head in time": Scenario(after_request(end=Peer.hold), (UNKNOWN,), (Code.HEADERS_TIMEOUT,), limits=SHORT),
    "18 head stalls": Scenario(
        after_request(JSON_HEAD, end=Peer.hold), (UNKNOWN,), (Code.HEADERS_TIMEOUT,), limits=SHORT
    ),
    "18 head is cut": Scenario(after_request(JSON_HEAD), (UNKNOWN,), (Code.RESPONSE_TRUNCATED,)),
    "19 body is cut": Scenario(
        after_request(JSON_HEAD + b"Content-Length: 50\r\n\r\n{"), (UNKNOWN,), (Code.RESPONSE_TRUNCATED,)
    ),
    "19 body is reset": Scenario(
        after_request(JSON_HEAD + b"Content-Length: 50\r\n\r\n{", end=Peer.rst), (UNKNOWN,), (Code.CONNECTION_RESET,)
    ),
    "20 no last chunk": Scenario(
        after_request(JSON_HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n"),
        (UNKNOWN,),
        (Code.RESPONSE_TRUNCATED,),
    ),
    "21 body ends with the connection": Scenario(
        after_request(JSON_HEAD + b"\r\n{}"), (UNKNOWN,), (Code.UNFRAMED_RESPONSE,)
    ),
    "22 more body than announced": Scenario(
        after_request(JSON_HEAD + b"Content-Length: 2\r\n\r\n{} "), (UNKNOWN,), (Code.BYTES_AFTER_END,)
    ),
    "22 a second answer a moment later": Scenario(
        after_request(answer(), answer()), (UNKNOWN,), (Code.BYTES_AFTER_END,)
    ),
    "23 interim answers": Scenario(
        after_request(b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n", answer()),
        (DONE,),
        (None,),
    ),
    "24 endless interim answers": Scenario(
        forever(b"", b"HTTP/1.1 102 Processing\r\n\r\n"), (UNKNOWN,), (Code.INTERIM_FLOOD,)
    ),
    "25 no content": Scenario(after_request(b"HTTP/1.1 204 No Content\r\n\r\n"), (DONE,), (Code.UNEXPECTED_STATUS,)),
    "25 partial content": Scenario(
        after_request(answer(status="206 Partial Content")), (DONE,), (Code.UNEXPECTED_STATUS,)
    ),
    "25 redirect": Scenario(after_request(answer(status="307 Temporary Redirect")), (DONE,), (Code.REDIRECT_DENIED,)),
    "26 unauthorized": Scenario(after_request(answer(status="401 Unauthorized")), (DONE,), (Code.PROVIDER_ERROR,)),
    "26 too many": Scenario(after_request(answer(status="429 Too Many Requests")), (DONE,), (Code.PROVIDER_ERROR,)),
    "26 unavailable, to the end of the connection": Scenario(
        after_request(b"HTTP/1.1 503 Service Unavailable\r\n\r\n<html>"), (DONE,), (Code.PROVIDER_ERROR,)
    ),
    "27 compressed": Scenario(
        after_request(answer(extra=b"Content-Encoding: gzip\r\n")), (UNKNOWN,), (Code.COMPRESSED_RESPONSE,)
    ),
    "28 head of 300 KB": Scenario(
        after_request(answer(extra=b"X: " + b"y" * 300_000 + b"\r\n")), (UNKNOWN,), (Code.RESPONSE_HEADERS_TOO_LARGE,)
    ),
    "29 head of 60 KB": Scenario(
        after_request(answer(extra=b"X: " + b"y" * 60_000 + b"\r\n")), (UNKNOWN,), (Code.RESPONSE_HEADERS_TOO_LARGE,)
    ),
    "30 head drips": Scenario(
        forever(b"HTTP/1.1 200 OK\r\nX: ", b"y", 0.02), (UNKNOWN,), (Code.HEADERS_TIMEOUT,), limits=SHORT
    ),
    "30 body drips": Scenario(
        forever(JSON_HEAD + b"Content-Length: 99999\r\n\r\n", b"y", 0.02),
        (UNKNOWN,),
        (Code.DEADLINE_EXCEEDED,),
        deadline_ms=1_000,
    ),
}


class SmallBuffers(SystemNetwork):
    """The machine's network with small send buffers, so that a megabyte does not fit into the kernel."""

    async def connect(self, address: Address, port: int) -> socket.socket:
        sock = await super().connect(address, port)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16_384)
        return sock


class SmallLab(LabNetwork):
    """The lab's network with small send buffers."""

    async def connect(self, address: Address, port: int) -> socket.socket:
        sock = await super().connect(address, port)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16_384)
        return sock


async def repeated(origin: str, **arguments: Any) -> list[Call]:
    arguments = {"limits": DEFAULTS, "deadline_ms": 60_000, **arguments}
    return list(await asyncio.gather(*(call(origin, **arguments) for _ in range(REPEATS))))


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize("name", SCENARIOS)
def test_the_state_is_what_the_ledger_proves(name: str, secure: bool, tmp_path: Path) -> None:
    scenario = SCENARIOS[name]
    context = chains.good().server_context(tmp_path) if secure else None
    with RawServer(scenario.script, tls=context) as server:
        arguments: dict[str, Any] = {
            "body": scenario.body,
            "limits": scenario.limits,
            "deadline_ms": scenario.deadline_ms,
            "network": SmallLab(server.port) if secure else SmallBuffers(),
        }
        if secure:
            arguments["tls"] = TlsSettings(ca_pem=chains.root().pem)
        done = asyncio.run(repeated(f"https://{chains.HOST}" if secure else server.origin, **arguments))
    results = [item.result for item in done]
    assert {result.state for result in results} <= set(scenario.states)
    assert {result.code for result in results} <= set(scenario.codes)
    assert server.connections == REPEATS
    sent = [result for result in results if result.state is not NOT_SENT]
    assert all((result.marks.request_started is not None) == (result.state is not NOT_SENT) for result in results)
    assert len(server.requests) <= len(sent)
    completed = [item for item in done if item.result.succeeded]
    assert all(item.body == b'{"ok":true}' for item in completed)


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
def test_33_to_36_every_call_is_one_connection_and_one_request(secure: bool, tmp_path: Path) -> None:
    """A server that offers to keep the connection, and poisons it after the answer, never gets a second request on
    it.
    """
    counts: list[int] = []

    def script(peer: Peer) -> None:
        peer.read_request()
        peer.send(answer(extra=b"Connection: keep-alive\r\n"))
        peer.server.stopping.wait(0.05)
        try:
            peer.send(answer(b'{"ok":"poison"}'))
            counts.append(len(peer.sock.recv(65_536)))
        except OSError:
            counts.append(0)

    context = chains.good().server_context(tmp_path) if secure else None
    with RawServer(script, tls=context) as server:
        arguments: dict[str, Any] = (
            {"network": LabNetwork(server.port), "tls": TlsSettings(ca_pem=chains.root().pem)} if secure else {}
        )
        done = asyncio.run(repeated(f"https://{chains.HOST}" if secure else server.origin, **arguments))
    # a call either ended before the poison came, or saw it and refused it
    assert {item.result.code for item in done} <= {None, Code.BYTES_AFTER_END}
    assert {item.body for item in done if item.result.succeeded} <= {b'{"ok":true}'}
    assert not any(b"poison" in item.body for item in done)
    assert (server.connections, len(server.requests)) == (REPEATS, REPEATS)
    assert set(counts) <= {0}


def test_1_a_name_that_does_not_resolve_is_not_sent_to() -> None:
    network = LabNetwork(9, [[]])
    done = asyncio.run(repeated("https://api.example.com", network=network))
    assert {(item.result.state, item.result.code) for item in done} == {(NOT_SENT, Code.RESOLVE_FAILED)}
    assert network.connects == []


@pytest.mark.parametrize(
    "answers", [["10.0.0.1"], ["93.184.216.34", "127.0.0.1"], ["::1"], ["fe80::1%lo"], ["93.184.216.34"] * 33]
)
def test_2_one_refused_answer_refuses_the_lookup(answers: list[str]) -> None:
    network = LabNetwork(9, [answers])
    done = asyncio.run(repeated("https://api.example.com", network=network))
    assert {item.result.state for item in done} == {NOT_SENT}
    assert {item.result.code for item in done} <= {Code.ADDRESS_REFUSED, Code.RESOLVE_FAILED}
    assert network.connects == []


def test_2_a_name_that_changes_its_answer_between_calls_is_checked_each_time(tmp_path: Path) -> None:
    with RawServer(after_request(answer()), tls=chains.good().server_context(tmp_path)) as server:
        network = LabNetwork(server.port, [["93.184.216.34"], ["169.254.169.254"]])

        async def twice() -> list[Call]:
            arguments: dict[str, Any] = {"network": network, "tls": TlsSettings(ca_pem=chains.root().pem)}
            return [await call(f"https://{chains.HOST}", **arguments) for _ in range(2)]

        first, second = asyncio.run(twice())
    assert first.result.state is DONE
    assert (second.result.state, second.result.code) == (NOT_SENT, Code.ADDRESS_REFUSED)
    assert network.connects == ["93.184.216.34"]


def test_2_a_peer_that_is_not_the_pinned_address_is_not_sent_to() -> None:
    with RawServer(Peer.hold) as server:
        network = LabNetwork(server.port, claimed_peer="10.0.0.1")
        done = asyncio.run(repeated("https://api.example.com", network=network))
    assert {(item.result.state, item.result.code) for item in done} == {(NOT_SENT, Code.PEER_MISMATCH)}


def test_3_a_refused_connection_is_not_sent() -> None:
    with RawServer(Peer.hold) as server:
        origin = server.origin
    done = asyncio.run(repeated(origin))
    assert {(item.result.state, item.result.code) for item in done} == {(NOT_SENT, Code.CONNECT_REFUSED)}


def test_4_a_connection_that_nobody_accepts_times_out_not_sent() -> None:
    with ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        address = listener.getsockname()
        for _ in range(3):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(address)
        limits = HttpLimits(connect_timeout_ms=300)
        done = asyncio.run(repeated(f"http://127.0.0.1:{address[1]}", limits=limits))
    assert {(item.result.state, item.result.code) for item in done} == {(NOT_SENT, Code.CONNECT_TIMEOUT)}
    assert {item.leases for item in done} == {0}


@pytest.mark.parametrize("name", ["wrong host", "expired", "unknown ca", "address for a name"])
def test_5_a_bad_certificate_is_not_sent_to(name: str, tmp_path: Path) -> None:
    with RawServer(after_request(answer()), tls=chains.CASES[name][2]().server_context(tmp_path)) as server:
        done = asyncio.run(
            repeated(
                f"https://{chains.HOST}", network=LabNetwork(server.port), tls=TlsSettings(ca_pem=chains.root().pem)
            )
        )
    assert {(item.result.state, item.result.code) for item in done} == {(NOT_SENT, Code.TLS_FAILED)}
    assert server.requests == []


@pytest.mark.parametrize(
    ("script", "code"),
    [
        (lambda peer: peer.send(b"HTTP/1.1 400 Bad Request\r\n\r\n"), Code.TLS_FAILED),
        (Peer.rst, Code.TLS_FAILED),
        (Peer.fin, Code.TLS_FAILED),
        (Peer.hold, Code.TLS_TIMEOUT),
    ],
    ids=["6 plain http", "7 reset in the handshake", "7 closed in the handshake", "8 stalled handshake"],
)
def test_6_to_8_a_handshake_that_fails_is_not_sent(script: Script, code: Code) -> None:
    with RawServer(script) as server:
        done = asyncio.run(
            repeated(
                "https://api.example.com", network=LabNetwork(server.port), limits=HttpLimits(connect_timeout_ms=400)
            )
        )
    # a reset may overtake the accept and be seen by the check of the peer
    assert {item.result.state for item in done} == {NOT_SENT}
    assert {item.result.code for item in done} <= {code, Code.CONNECTION_RESET, Code.CONNECT_FAILED}


def test_31_an_illegal_header_is_refused_before_any_connection() -> None:
    with RawServer(Peer.hold) as server:
        for _ in range(REPEATS):
            with pytest.raises(InputError):
                asyncio.run(call(server.origin, headers=(("x-a", "b\nc"),)))
    assert server.connections == 0


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
def test_32_a_cancelled_wait_is_unknown(secure: bool, tmp_path: Path) -> None:
    context = chains.good().server_context(tmp_path) if secure else None

    async def go() -> list[ExchangeCancelled]:
        arguments: dict[str, Any] = (
            {"network": LabNetwork(server.port), "tls": TlsSettings(ca_pem=chains.root().pem)} if secure else {}
        )
        caught: list[ExchangeCancelled] = []

        async def one() -> None:
            try:
                await call(f"https://{chains.HOST}" if secure else server.origin, **arguments)
            except ExchangeCancelled as error:
                caught.append(error)
                raise

        tasks = [asyncio.create_task(one()) for _ in range(REPEATS)]
        while len(server.requests) < REPEATS:  # noqa: ASYNC110 - a thread fills the list
            await asyncio.sleep(0.002)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return caught

    with RawServer(after_request(end=Peer.hold), tls=context) as server:
        caught = asyncio.run(go())
    assert [(error.result.state, error.result.code) for error in caught] == [(UNKNOWN, Code.CALLER_CANCELLED)] * REPEATS
