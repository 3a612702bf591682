"""A server of raw bytes on loopback: a script per connection, and a ledger of what came. The server's count is the
oracle.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

Script = Callable[["Peer"], None]


class Peer:
    """One accepted connection, for a script to play on."""

    def __init__(self, sock: socket.socket, server: RawServer) -> None:
        self.sock, self.server = sock, server
        self.received = b""

    def read_request(self) -> bytes:
        """Read one whole request (head and the body its length announces)."""
        while b"\r\n\r\n" not in self.received:
            if not self._more():
                return self.received
        head, _, body = self.received.partition(b"\r\n\r\n")
        lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
        need = int(lengths[0].split(b":")[1]) if lengths else 0
        while len(body) < need:
            if not self._more():
                return self.received
            body = self.received.partition(b"\r\n\r\n")[2]
        self.server.requests.append(self.received)
        return self.received

    def _more(self) -> bool:
        data = self.sock.recv(65_536)
        self.received += data
        return bool(data)

    def send(self, *parts: bytes) -> None:
        for part in parts:
            self.sock.sendall(part)

    def fin(self) -> None:
        self.sock.close()

    def rst(self) -> None:
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        if isinstance(self.sock, ssl.SSLSocket):
            socket.socket(fileno=self.sock.detach()).close()
        else:
            self.sock.close()

    def hold(self) -> None:
        """Keep the connection open and silent until the client lets go or the test ends."""
        while not self.server.stopping.is_set():
            try:
                if not self.sock.recv(65_536):
                    return
            except OSError:
                return


class RawServer:
    """Accepts on 127.0.0.1 and plays a script on each connection in a thread of its own.

    Args:
        script: what happens after accept (and after the handshake, with ``tls``).
        tls: server context, or None.
        handshake: False leaves the handshake to the script.
    """

    def __init__(self, script: Script, *, tls: ssl.SSLContext | None = None, handshake: bool = True) -> None:
        self._script, self._tls, self._handshake = script, tls, handshake
        self._listener = socket.socket()
        self._listener.bind(("127.0.0.1", 0))
        self._listener.listen(128)
        self.port: int = self._listener.getsockname()[1]
        self.origin = f"http://127.0.0.1:{self.port}"
        self.connections = 0
        self.requests: list[bytes] = []
        self.stopping = threading.Event()
        self._last: object = None
        self._open: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._acceptor = threading.Thread(target=self._accept, daemon=True)

    def _accept(self) -> None:
        while True:
            try:
                sock, peer = self._listener.accept()
            except OSError:
                return
            if peer == self._last:
                sock.close()
                return
            self.connections += 1
            self._open.append(sock)
            thread = threading.Thread(target=self._play, args=(sock,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _play(self, sock: socket.socket) -> None:
        with contextlib.suppress(OSError, ValueError):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls is not None and self._handshake:
                sock = self._tls.wrap_socket(sock, server_side=True)
                self._open.append(sock)
            self._script(Peer(sock, self))
        with contextlib.suppress(OSError):
            sock.close()

    async def asked(self, requests: int = 1, limit_s: float = 60.0) -> None:
        """Wait until it has read so many requests; its threads cannot tell an event loop."""
        async with asyncio.timeout(limit_s):
            while len(self.requests) < requests:  # noqa: ASYNC110 - a thread fills the list
                await asyncio.sleep(0.001)

    def __enter__(self) -> Self:
        self._acceptor.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stopping.set()
        with socket.socket() as last:  # every connection before it is accepted and counted, a reset one too
            last.bind(("127.0.0.1", 0))
            self._last = last.getsockname()
            last.settimeout(5)
            with contextlib.suppress(OSError):
                last.connect(("127.0.0.1", self.port))
            self._acceptor.join(5)
        self._listener.close()
        for sock in self._open:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            with contextlib.suppress(OSError):
                sock.close()
        for thread in self._threads:
            thread.join(5)


def answer(
    body: bytes = b'{"ok":true}', *, status: str = "200 OK", content_type: str = "application/json", extra: bytes = b""
) -> bytes:
    """A whole answer with a content length."""
    return b"HTTP/1.1 %b\r\nContent-Type: %b\r\nContent-Length: %d\r\n%b\r\n%b" % (
        status.encode(),
        content_type.encode(),
        len(body),
        extra,
        body,
    )
