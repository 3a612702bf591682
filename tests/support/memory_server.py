"""A server without a port: it answers on one end of a socket pair, at once, and counts what reached it.

The collector's end is a real non-blocking socket, so transport, event loop and kernel are the real ones; ``step`` is asked
before each of its calls, so that a process can die or fail there. The server's part runs inside the collector's call to
``send``: its count is exact whatever happens to the collector afterwards.
"""

from __future__ import annotations

import hashlib
import socket
from collections import Counter
from collections.abc import Callable

import orjson

from tasc_collector.transport.addresses import Address
from tasc_collector.transport.codes import Code
from tasc_collector.transport.resolver import not_sent

Step = Callable[[str], object]
TOKENS = 3
_PEER = "127.0.0.1"


def _chunk(**changes: object) -> bytes:
    choice = {"index": 0, "text": "", "logprobs": None, "finish_reason": None, "stop_reason": None}
    base = {
        "id": "cmpl-1",
        "object": "text_completion",
        "created": 1,
        "model": "org/model",
        "choices": [choice],
        "usage": None,
    }
    if "text" in changes or "finish_reason" in changes:
        base["choices"] = [{**choice, **changes}]
    else:
        base |= {"choices": [], **changes}
    return b"data: " + orjson.dumps(base) + b"\n\n"


def _answer() -> bytes:
    usage = {"prompt_tokens": 3, "total_tokens": 3 + TOKENS, "completion_tokens": TOKENS}
    events = [_chunk(text=f" {number}") for number in range(TOKENS)]
    body = b"".join([*events, _chunk(text="", finish_reason="stop"), _chunk(usage=usage), b"data: [DONE]\n\n"])
    return b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n" % len(body) + body


ANSWER = _answer()
"""What vLLM streams on ``/v1/completions`` for a short answer."""


class MemoryServer:
    """A ``NetworkAccess`` that is also the server behind it.

    Args:
        step: asked before connect, send and receive, as ``net-connect``, ``net-send``, ``net-receive``.
        sent: the server's count: requests by a digest of their body. Give it, and it outlives the collector's process.
        refuse: the port where connecting fails as it does where nobody listens; True for every port.
        silent: takes requests and never answers.
    """

    def __init__(
        self,
        step: Step = lambda _: None,
        sent: Counter[str] | None = None,
        *,
        refuse: bool | int = False,
        silent: bool = False,
    ) -> None:
        self._step, self.sent, self._refuse, self._silent = step, Counter() if sent is None else sent, refuse, silent
        self.on_request: Callable[[], None] = lambda: None
        self.connects = 0

    async def resolve(self, host: str, port: int) -> list[str]:
        raise AssertionError("a literal address is not looked up")

    async def connect(self, address: Address, port: int) -> socket.socket:
        self._step("net-connect")
        self.connects += 1
        if self._refuse is True or (self._refuse and self._refuse == port):
            raise not_sent(Code.CONNECT_REFUSED)
        ours, theirs = socket.socketpair()
        return _Client(self, ours, theirs, str(port))

    def peer(self, sock: socket.socket) -> str:
        return _PEER

    def received(self, request: bytes, port: str) -> bytes:
        """The server's part: count a whole request, answer it."""
        head, _, body = request.partition(b"\r\n\r\n")
        length = next(int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.startswith(b"content-length"))
        if len(body) != length:
            raise AssertionError("a request is handed over in one piece")
        self.sent[port + " " + hashlib.sha256(body).hexdigest()] += 1
        self.on_request()
        return b"" if self._silent else ANSWER


class _Client(socket.socket):
    """The collector's end of a socket pair."""

    def __init__(self, server: MemoryServer, ours: socket.socket, theirs: socket.socket, port: str) -> None:
        super().__init__(ours.family, ours.type, ours.proto, fileno=ours.detach())
        self.setblocking(False)
        self._server, self._theirs, self._port = server, theirs, port

    def send(self, data: bytes, flags: int = 0) -> int:  # type: ignore[override]  # positional, as it is called
        self._server._step("net-send")
        count = super().send(data, flags)
        answer = self._server.received(self._theirs.recv(1 << 20), self._port)
        if answer:
            self._theirs.sendall(answer)
            self._theirs.close()  # or the collector would watch the tail of the answer for its grace time
        return count

    def recvmsg(self, *arguments: int) -> tuple[bytes, list[tuple[int, int, bytes]], int, object]:  # type: ignore[override]  # positional, as it is called
        try:
            self._server._step("net-receive")
        except BaseException:  # the loop calls this and would only log it: the dead read nothing
            raise ConnectionResetError from None
        return super().recvmsg(*arguments)

    def close(self) -> None:
        self._theirs.close()
        super().close()

    def __del__(self) -> None:
        """A collector that is killed closes nothing; a socket that is dropped open warns, in whatever test then runs."""
        self.close()
