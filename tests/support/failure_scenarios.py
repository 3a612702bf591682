"""The failure matrix: what a server does in each scenario, and which states and codes are then proved.

Numbers are those of the table in which the behaviour of other clients was measured (1 to 8 and 31 fail before a server can
act, so they are made by the tests). Body and extra header of every answer come in as arguments, so that the same scenarios
serve a search for canaries.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tasc_collector.contracts.http_limits import HttpLimits
from tasc_collector.errors import DispatchState
from tasc_collector.transport.addresses import Address
from tasc_collector.transport.codes import Code
from tasc_collector.transport.network import SystemNetwork
from tests.support.calls import LabNetwork
from tests.support.raw_server import Peer, Script, answer

NOT_SENT, UNKNOWN, DONE = DispatchState.NOT_SENT, DispatchState.SENT_UNKNOWN, DispatchState.COMPLETED
BIG = b"x" * 1_000_000
# wide, so that a busy machine does not decide; the scenarios about time set their own
DEFAULTS = HttpLimits(connect_timeout_ms=30_000, headers_timeout_ms=60_000, body_timeout_ms=60_000, deadline_ms=60_000)
SHORT = HttpLimits(connect_timeout_ms=30_000, headers_timeout_ms=150, body_timeout_ms=150)


def after_request(*parts: bytes, end: Callable[[Peer], None] = Peer.fin) -> Script:
    """Read the request, send the parts, end."""

    def script(peer: Peer) -> None:
        peer.read_request()
        peer.send(*parts)
        end(peer)

    return script


def read_some(size: int, *parts: bytes, end: Callable[[Peer], None]) -> Script:
    """Read a part of the request, send the parts, end."""

    def script(peer: Peer) -> None:
        got = 0
        while got < size:
            more = len(peer.sock.recv(min(4_096, size - got)))
            if not more:
                return
            got += more
        peer.send(*parts)
        end(peer)

    return script


def idle(peer: Peer) -> None:
    """Neither read nor write until the test ends."""
    peer.server.stopping.wait(60)


def half_close(peer: Peer) -> None:
    """Say that nothing more comes, and go on reading."""
    peer.sock.shutdown(socket.SHUT_WR)
    peer.hold()


def forever(first: bytes, item: bytes, pause: float = 0.0) -> Script:
    """Read the request, then send without an end."""

    def script(peer: Peer) -> None:
        peer.read_request()
        peer.send(first)
        while not peer.server.stopping.wait(pause):
            peer.send(item)

    return script


def poisoned(first: bytes, poison: bytes, counts: list[int] | None = None) -> Script:
    """Offer to keep the connection, send one more answer after the first, and count what still comes."""

    def script(peer: Peer) -> None:
        peer.read_request()
        peer.send(first)
        peer.server.stopping.wait(0.05)
        more = 0
        try:
            peer.send(poison)
            more = len(peer.sock.recv(65_536))
        except OSError:
            pass  # the client has let go
        if counts is not None:
            counts.append(more)

    return script


@dataclass(frozen=True)
class Scenario:
    """What the server does, and which states and codes are then proved."""

    script: Script
    states: tuple[DispatchState, ...]
    codes: tuple[Code | None, ...]
    big: bool = False
    """Whether the request is larger than what the kernel buffers."""
    limits: HttpLimits = DEFAULTS
    deadline_ms: int = 60_000


RESET_OR_CLOSED = (Code.CONNECTION_RESET, Code.CONNECTION_CLOSED)


def scenarios(body: bytes = b'{"ok":true}', extra: bytes = b"") -> dict[str, Scenario]:
    """Scenarios 9 to 30 and 33 to 36 by name.

    Args:
        body: body of every answer that has one.
        extra: header lines of every answer, each with its CRLF.
    """

    def whole(status: str = "200 OK", more: bytes = b"") -> bytes:
        return answer(body, status=status, extra=extra + more)

    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n" + extra
    cut = head + b"Content-Length: %d\r\n\r\n" % (len(body) + 40) + body
    return {
        "9 reset at accept": Scenario(
            Peer.rst, (NOT_SENT, UNKNOWN), (*RESET_OR_CLOSED, Code.CONNECT_FAILED, Code.TLS_FAILED)
        ),
        "10 closed at accept": Scenario(Peer.fin, (NOT_SENT, UNKNOWN), RESET_OR_CLOSED),
        "11 reset after the request": Scenario(after_request(end=Peer.rst), (UNKNOWN,), (Code.CONNECTION_RESET,)),
        "12 closed after the request": Scenario(after_request(), (UNKNOWN,), RESET_OR_CLOSED),
        "13 reset within the request": Scenario(
            read_some(1_000, end=Peer.rst), (UNKNOWN,), (Code.CONNECTION_RESET,), big=True
        ),
        "14 early refusal, then reset": Scenario(
            read_some(1_000, whole("413 Content Too Large"), end=Peer.rst),
            (UNKNOWN, DONE),
            (Code.CONNECTION_RESET, Code.PROVIDER_ERROR),
            big=True,
        ),
        "14 early success": Scenario(read_some(1_000, whole(), end=idle), (UNKNOWN,), (Code.EARLY_RESPONSE,), big=True),
        "15 nobody reads": Scenario(idle, (UNKNOWN,), (Code.WRITE_TIMEOUT,), big=True, limits=SHORT),
        "16 half-closed without an answer": Scenario(after_request(end=half_close), (UNKNOWN,), RESET_OR_CLOSED),
        "17 no head in time": Scenario(after_request(end=Peer.hold), (UNKNOWN,), (Code.HEADERS_TIMEOUT,), limits=SHORT),
        "18 head stalls": Scenario(
            after_request(head, end=Peer.hold), (UNKNOWN,), (Code.HEADERS_TIMEOUT,), limits=SHORT
        ),
        "18 head is cut": Scenario(after_request(head), (UNKNOWN,), (Code.RESPONSE_TRUNCATED,)),
        "19 body is cut": Scenario(after_request(cut), (UNKNOWN,), (Code.RESPONSE_TRUNCATED,)),
        "19 body is reset": Scenario(after_request(cut, end=Peer.rst), (UNKNOWN,), (Code.CONNECTION_RESET,)),
        "20 no last chunk": Scenario(
            after_request(head + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n" % (len(body), body)),
            (UNKNOWN,),
            (Code.RESPONSE_TRUNCATED,),
        ),
        "21 body ends with the connection": Scenario(
            after_request(head + b"\r\n" + body), (UNKNOWN,), (Code.UNFRAMED_RESPONSE,)
        ),
        "22 more body than announced": Scenario(after_request(whole() + b" "), (UNKNOWN,), (Code.BYTES_AFTER_END,)),
        "22 a second answer a moment later": Scenario(
            after_request(whole(), whole()), (UNKNOWN,), (Code.BYTES_AFTER_END,)
        ),
        "22 a whole answer, then a reset": Scenario(after_request(whole(), end=Peer.rst), (DONE,), (None,)),
        "23 interim answers": Scenario(
            after_request(
                b"HTTP/1.1 100 Continue\r\n\r\n",
                b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n" + extra + b"\r\n",
                whole(),
            ),
            (DONE,),
            (None,),
        ),
        "24 endless interim answers": Scenario(
            forever(b"", b"HTTP/1.1 102 Processing\r\n" + extra + b"\r\n"), (UNKNOWN,), (Code.INTERIM_FLOOD,)
        ),
        "25 no content": Scenario(
            after_request(b"HTTP/1.1 204 No Content\r\n" + extra + b"\r\n"), (DONE,), (Code.UNEXPECTED_STATUS,)
        ),
        "25 reset content": Scenario(after_request(whole("205 Reset Content")), (DONE,), (Code.UNEXPECTED_STATUS,)),
        "25 partial content": Scenario(after_request(whole("206 Partial Content")), (DONE,), (Code.UNEXPECTED_STATUS,)),
        "25 redirect": Scenario(after_request(whole("307 Temporary Redirect")), (DONE,), (Code.REDIRECT_DENIED,)),
        "26 unauthorized": Scenario(after_request(whole("401 Unauthorized")), (DONE,), (Code.PROVIDER_ERROR,)),
        "26 too many": Scenario(
            after_request(whole("429 Too Many Requests", b"Retry-After: 7\r\n")), (DONE,), (Code.PROVIDER_ERROR,)
        ),
        "26 unavailable, to the end of the connection": Scenario(
            after_request(b"HTTP/1.1 503 Service Unavailable\r\n" + extra + b"\r\n" + body),
            (DONE,),
            (Code.PROVIDER_ERROR,),
        ),
        "27 compressed": Scenario(
            after_request(whole(more=b"Content-Encoding: gzip\r\n")), (UNKNOWN,), (Code.COMPRESSED_RESPONSE,)
        ),
        "28 head of 300 KB": Scenario(
            after_request(whole(more=b"X: " + b"y" * 300_000 + b"\r\n")),
            (UNKNOWN,),
            (Code.RESPONSE_HEADERS_TOO_LARGE,),
        ),
        "29 head of 60 KB": Scenario(
            after_request(whole(more=b"X: " + b"y" * 60_000 + b"\r\n")), (UNKNOWN,), (Code.RESPONSE_HEADERS_TOO_LARGE,)
        ),
        "30 head drips": Scenario(
            forever(b"HTTP/1.1 200 OK\r\n" + extra + b"X: ", b"y", 0.02),
            (UNKNOWN,),
            (Code.HEADERS_TIMEOUT,),
            limits=SHORT,
        ),
        "30 body drips": Scenario(
            forever(head + b"Content-Length: 99999\r\n\r\n" + body, b"y", 0.02),
            (UNKNOWN,),
            (Code.DEADLINE_EXCEEDED,),
            deadline_ms=1_000,
        ),
        "33 to 36 kept alive, and poisoned": Scenario(
            poisoned(whole(more=b"Connection: keep-alive\r\n"), whole()), (DONE, UNKNOWN), (None, Code.BYTES_AFTER_END)
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


@contextmanager
def nobody_accepts() -> Iterator[int]:
    """A port whose queue of connections is full (scenario 4)."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        fillers = [socket.socket() for _ in range(3)]
        try:
            for filler in fillers:
                filler.setblocking(False)
                filler.connect_ex(listener.getsockname())
            yield listener.getsockname()[1]
        finally:
            for filler in fillers:
                filler.close()
