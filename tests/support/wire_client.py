"""A raw HTTP client for tests of the contract servers: it keeps every byte that comes, with no opinion."""

from __future__ import annotations

import json
import socket
import ssl
from dataclasses import dataclass
from typing import Any

PROMPTS: dict[str, Any] = {
    "messages": [{"role": "user", "content": "name a tree"}],
    "prompt": "name a tree",
    "input": "name a tree",
    "inputs": "name a tree",
}
"""A value for each prompt field that a route may have."""


@dataclass(frozen=True)
class Received:
    """What came back: all bytes, and how the connection ended (``eof``, ``reset`` or ``open``)."""

    raw: bytes
    end: str

    @property
    def status(self) -> int:
        return int(self.raw.split(b" ", 2)[1])

    @property
    def head(self) -> bytes:
        return self.raw.partition(b"\r\n\r\n")[0]

    def header(self, name: str) -> str | None:
        for line in self.head.split(b"\r\n")[1:]:
            key, _, value = line.partition(b":")
            if key.decode().lower() == name.lower():
                return value.decode().strip()
        return None

    @property
    def body(self) -> bytes:
        """The body without chunk coding."""
        data = self.raw.partition(b"\r\n\r\n")[2]
        if self.header("transfer-encoding") != "chunked":
            return data
        out, at = bytearray(), 0
        while (line_end := data.find(b"\r\n", at)) >= 0:
            length = int(data[at:line_end].split(b";")[0], 16)
            if not length:
                break
            out += data[line_end + 2 : line_end + 2 + length]
            at = line_end + length + 4
        return bytes(out)

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def events(self) -> list[Any]:
        """The data of every SSE event: JSON where it is some, else the text; event names are left out."""
        found = []
        for block in self.body.decode().split("\n\n"):
            lines = [
                line.removeprefix("data:").removeprefix(" ") for line in block.split("\n") if line.startswith("data:")
            ]
            if lines:
                text = "\n".join(lines)
                found.append(json.loads(text) if text.startswith("{") else text)
        return found

    @property
    def lines(self) -> list[Any]:
        """The body as newline-delimited JSON."""
        return [json.loads(line) for line in self.body.split(b"\n") if line.strip()]


def request_bytes(method: str, path: str, body: Any = None, *, close: bool = True, headers: str = "") -> bytes:
    """One request; JSON body where given."""
    data = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    line = f"{method} {path} HTTP/1.1\r\nHost: contract\r\n"
    own = f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n"
    return (line + own + headers + ("Connection: close\r\n" if close else "") + "\r\n").encode() + data


def drain(sock: socket.socket, *, limit: int | None = None) -> Received:
    """Read to the end, to ``limit`` bytes, or until nothing comes within the socket's timeout."""
    raw = b""
    try:
        while limit is None or len(raw) < limit:
            data = sock.recv(65_536)
            if not data:
                return Received(raw, "eof")
            raw += data
    except TimeoutError:
        return Received(raw, "open")
    except ConnectionError:
        return Received(raw, "reset")
    return Received(raw, "open")


def connect(
    port: int, *, timeout_s: float = 5.0, context: ssl.SSLContext | None = None, name: str = "localhost"
) -> socket.socket:
    """A connection to loopback, TLS where a context is given."""
    sock = socket.create_connection(("127.0.0.1", port), timeout_s)
    return sock if context is None else context.wrap_socket(sock, server_hostname=name)


def call(
    port: int,
    method: str,
    path: str,
    body: Any = None,
    *,
    timeout_s: float = 5.0,
    limit: int | None = None,
    headers: str = "",
) -> Received:
    """One request on a connection of its own."""
    with connect(port, timeout_s=timeout_s) as sock:
        try:
            sock.sendall(request_bytes(method, path, body, headers=headers))
        except ConnectionError:
            return Received(b"", "reset")
        return drain(sock, limit=limit)


def ask_body(field: str, model: str, *, stream: bool | None = None, **more: Any) -> dict[str, Any]:
    """A request body for a route whose prompt field is ``field``."""
    body: dict[str, Any] = {"model": model, field: PROMPTS[field]}
    if stream is not None:
        body["stream"] = stream
        if stream and field in ("messages", "prompt"):
            body["stream_options"] = {"include_usage": True}
    return body | more
