"""The server's side of HTTP/1.1: requests from bytes. Written here, so that nothing is repaired or hidden.

Rules
- The head is at most 64 KiB; the body has a Content-Length of at most 32 MiB. Chunked requests get 411.
- Bytes after a request are the next request (pipelining); nothing is dropped.
- What is not HTTP/1 (a TLS greeting on a plain port, for instance) raises ``BadRequest`` and the connection ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

_HEAD_MAX: Final = 64 * 1024
_BODY_MAX: Final = 32 * 1024 * 1024


class BadRequest(Exception):  # the name of the status
    """Bytes that are no acceptable request; ``status`` is the answer."""

    def __init__(self, status: int) -> None:
        super().__init__(f"status {status}")
        self.status = status


@dataclass(frozen=True, slots=True)
class RequestHead:
    """Request line and headers.

    Attributes:
        method: as sent.
        path: target without query.
        query: after ``?``, else empty.
        headers: names in lower case; of repeated ones the last.
        length: announced body bytes.
    """

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    length: int

    @property
    def wants_close(self) -> bool:
        """The client asked that the connection ends after the answer."""
        return self.headers.get("connection", "").lower() == "close"


@dataclass(frozen=True, slots=True)
class Request:
    """One whole request."""

    head: RequestHead
    body: bytes


def parse_head(data: bytes) -> RequestHead:
    """Request line and headers from the bytes before the blank line.

    Raises:
        BadRequest: 400 for anything malformed, 411 without a usable length, 413 for a body over the bound.
    """
    try:
        lines = data.decode("latin-1").split("\r\n")
        method, target, version = lines[0].split(" ")
        headers = {}
        for line in lines[1:]:
            name, colon, value = line.partition(":")
            if not colon or not name or name != name.strip():
                raise BadRequest(400)
            headers[name.lower()] = value.strip()
    except ValueError:
        raise BadRequest(400) from None
    if version not in {"HTTP/1.1", "HTTP/1.0"} or not target.startswith("/"):
        raise BadRequest(400)
    if "transfer-encoding" in headers:
        raise BadRequest(411)
    announced = headers.get("content-length", "0")
    if not announced.isascii() or not announced.isdigit():
        raise BadRequest(400)
    length = int(announced)
    if length > _BODY_MAX:
        raise BadRequest(413)
    path, _, query = target.partition("?")
    return RequestHead(method, path, query, headers, length)


class RequestParser:
    """Collects one request after another from a connection's bytes.

    Attributes:
        head: the head of the request that is being received, or None.
    """

    def __init__(self) -> None:
        self._buffer = bytearray()
        self.head: RequestHead | None = None

    @property
    def pending(self) -> int:
        """Bytes received that do not make a whole request yet, the head's not counted once it is parsed."""
        return len(self._buffer)

    def feed(self, data: bytes) -> None:
        """Take bytes as they came."""
        self._buffer += data

    def take_head(self) -> RequestHead | None:
        """The next head once it is complete, else None.

        Raises:
            BadRequest: see ``parse_head``; also a head over its bound or a first byte that starts no method.
        """
        if self._buffer and not 0x41 <= self._buffer[0] <= 0x5A:
            raise BadRequest(400)
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            if len(self._buffer) > _HEAD_MAX:
                raise BadRequest(431)
            return None
        self.head = parse_head(bytes(self._buffer[:end]))
        del self._buffer[: end + 4]
        return self.head

    def take_request(self) -> Request | None:
        """The whole request once its body is here, else None."""
        if self.head is None or len(self._buffer) < self.head.length:
            return None
        request = Request(self.head, bytes(self._buffer[: self.head.length]))
        del self._buffer[: self.head.length]
        self.head = None
        return request
