"""A strict incremental reader of exactly one HTTP/1.1 response. Pure: bytes in, body bytes out.

Rules (RFC 9112, narrowed; where the RFC lets a client be lenient, this one is not):

1. The status line and every field line end with CRLF; nothing precedes the status line; no bare CR or LF, no folding,
   no white space before a colon, no control character. Names are tokens.
2. Header bytes and header count are bounded over *all* heads together, interim ones and trailers included, and are
   counted before a line is looked at. 101 is refused; other 1xx are skipped, unless they announce a body, say HTTP/1.0 or
   are more than ``MAX_INTERIM_HEADS``.
3. The body is framed by one ``Content-Length`` or by ``Transfer-Encoding: chunked``, never both, never twice, never
   with another coding. Chunk extensions and trailers are checked, bounded and dropped; a trailer that frames is
   refused.
4. A body that only the end of the connection ends is refused in a 2xx answer, because a cut cannot be seen, unless
   the caller says that the dialect has its own terminator (``close_delimited``; MLX-LM answers HTTP/1.0 so).
5. Any byte after the end of the message is a violation.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from tasc_collector.errors import LimitExceeded, WireError
from tasc_collector.limits import MAX_INTERIM_HEADS
from tasc_collector.transport.codes import Code

_STATUS = re.compile(rb"HTTP/1\.([01]) ([1-5][0-9]{2})(?: [\t\x20-\x7e\x80-\xff]*)?")
_TOKEN = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_FIELD = re.compile(rb"(%b):([\t\x20-\x7e\x80-\xff]*)" % _TOKEN)
_QUOTED = rb"\"(?:[\t \x21\x23-\x5b\x5d-\x7e\x80-\xff]|\\[\t \x21-\x7e\x80-\xff])*\""
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,8})(?:;%b(?:=(?:%b|%b))?)*" % (_TOKEN, _TOKEN, _QUOTED))
_LENGTH = re.compile(rb"[0-9]{1,15}")
_CHUNK_LINE_MAX = 256
_NO_BODY = frozenset({204, 304})
_FRAMING = frozenset(
    {b"content-length", b"transfer-encoding", b"content-encoding", b"content-type", b"content-range", b"trailer"}
)


@dataclass(frozen=True, slots=True)
class Http1Limits:
    """Bounds of one response; all are sizes in bytes or counts."""

    header_bytes: int = 16_384
    header_count: int = 64
    body_bytes: int = 8_388_608
    chunks: int = 4_096


@dataclass(frozen=True, slots=True, repr=False)
class Head:
    """Status and header fields of the final response. ``repr`` shows the status only."""

    status: int
    version: int
    """Minor version: 0 or 1."""
    fields: tuple[tuple[bytes, bytes], ...]
    """Lower-case names with their values, in order."""

    def __repr__(self) -> str:
        return f"Head(status={self.status})"

    def all(self, name: bytes) -> list[bytes]:
        """Every value of a field, in order; ``name`` is lower case."""
        return [value for key, value in self.fields if key == name]


# states of the reader; plain integers, because they are compared for every read of every stream
_HEAD, _LENGTH_BODY, _CLOSE_BODY, _CHUNK_SIZE, _CHUNK_DATA, _CHUNK_END, _TRAILER, _DONE = range(8)


class ResponseReader:
    """Reads one response. Feed it bytes as they come; it returns body bytes and keeps only what it cannot decide yet.

    Args:
        limits: bounds.
        close_delimited: accept a body that only the connection's end ends (rule 4).
    """

    __slots__ = (
        "_interim",
        "_left",
        "_limits",
        "_rest",
        "_state",
        "body_bytes",
        "chunks",
        "close_delimited",
        "head",
        "header_bytes",
        "header_count",
    )

    def __init__(self, limits: Http1Limits, *, close_delimited: bool = False) -> None:
        self._limits = limits
        self.close_delimited = close_delimited
        self._state = _HEAD
        self._rest = b""
        self._left = 0
        self._interim = 0
        self.head: Head | None = None
        self.header_bytes = 0
        self.header_count = 0
        self.body_bytes = 0
        self.chunks = 0

    @property
    def complete(self) -> bool:
        """True once the message ended by its own framing."""
        return self._state == _DONE

    def feed(self, data: bytes) -> bytes:
        """Take bytes in order and return the body bytes among them, joined.

        Raises:
            WireError: the bytes are not one strict response; ``code`` is a word of ``Code``.
            LimitExceeded: a bound was passed.
        """
        if self._rest:
            data = self._rest + data
            self._rest = b""
        elif self._state == _CHUNK_SIZE:
            body = self._one_whole_chunk(data)
            if body is not None:
                return body
        pos = 0
        if self._state == _HEAD:
            pos = self._read_head(data)
            if self._state == _HEAD:
                return b""
        if self._state == _DONE:
            if pos < len(data):
                raise WireError(Code.BYTES_AFTER_END)
            return b""
        if self._state == _LENGTH_BODY:
            return self._read_length(data, pos)
        if self._state == _CLOSE_BODY:
            body = data[pos:] if pos else data
            self._count(len(body))
            return body
        return self._read_chunks(data, pos)

    def end(self) -> None:
        """Say that the connection ended.

        Raises:
            WireError: the response is not complete; nothing at all came: ``connection-closed``.
        """
        if self._state == _CLOSE_BODY:
            self._state = _DONE
        elif self._state != _DONE:
            nothing = self._state == _HEAD and not self._rest and self.header_bytes == 0
            raise WireError(Code.CONNECTION_CLOSED if nothing else Code.RESPONSE_TRUNCATED)

    def _count(self, size: int) -> None:
        self.body_bytes += size
        if self.body_bytes > self._limits.body_bytes:
            raise LimitExceeded(Code.RESPONSE_TOO_LARGE)

    def _read_head(self, data: bytes) -> int:
        """Read heads until a final one; returns where the body begins. Keeps an incomplete head in ``_rest``."""
        pos = 0
        while True:
            end = data.find(b"\r\n\r\n", pos)
            size = (len(data) if end < 0 else end + 4) - pos
            if self.header_bytes + size > self._limits.header_bytes:
                raise LimitExceeded(Code.RESPONSE_HEADERS_TOO_LARGE if self.header_bytes == 0 else Code.INTERIM_FLOOD)
            if end < 0:
                if data[pos : pos + 7] != b"HTTP/1."[: len(data) - pos]:
                    raise WireError(Code.INVALID_STATUS_LINE)
                self._rest = data[pos:] if pos else data
                return len(data)
            self.header_bytes += size
            head = self._parse_head(data[pos:end])
            pos = end + 4
            if head.status == 101:
                raise WireError(Code.UPGRADE_REFUSED)
            if head.status >= 200:
                self.head = head
                self._frame(head)
                return pos
            if head.version == 0 or head.all(b"content-length") or head.all(b"transfer-encoding"):
                raise WireError(Code.INVALID_FRAMING)
            self._interim += 1
            if self._interim > MAX_INTERIM_HEADS:
                raise LimitExceeded(Code.INTERIM_FLOOD)
            if pos == len(data):
                return pos

    def _parse_head(self, block: bytes) -> Head:
        lines = block.split(b"\r\n")
        self.header_count += len(lines) - 1
        if self.header_count > self._limits.header_count:
            raise LimitExceeded(Code.RESPONSE_HEADERS_TOO_LARGE)
        status = _STATUS.fullmatch(lines[0])
        if status is None:
            raise WireError(Code.INVALID_STATUS_LINE)
        return Head(int(status[2]), int(status[1]), tuple(_field(line) for line in lines[1:]))

    def _frame(self, head: Head) -> None:
        lengths, codings = head.all(b"content-length"), head.all(b"transfer-encoding")
        if lengths and codings:
            raise WireError(Code.INVALID_FRAMING)
        if codings:
            if len(codings) != 1 or codings[0].lower() != b"chunked" or head.version == 0 or head.status in _NO_BODY:
                raise WireError(Code.INVALID_FRAMING)
            self._state = _CHUNK_SIZE
            return
        if lengths and (len(lengths) != 1 or _LENGTH.fullmatch(lengths[0]) is None):
            raise WireError(Code.INVALID_FRAMING)
        if head.status in _NO_BODY:
            self._state = _DONE
        elif lengths:
            self._left = int(lengths[0])
            if self._left > self._limits.body_bytes:
                raise LimitExceeded(Code.RESPONSE_TOO_LARGE)
            self._state = _LENGTH_BODY if self._left else _DONE
        elif head.status < 300 and not self.close_delimited:
            raise WireError(Code.UNFRAMED_RESPONSE)
        else:
            # the body of a refusal is dropped, so where it was cut does not matter
            self._state = _CLOSE_BODY

    def _read_length(self, data: bytes, pos: int) -> bytes:
        body = data[pos:] if pos else data
        if len(body) > self._left:
            raise WireError(Code.BYTES_AFTER_END)
        self._left -= len(body)
        self._count(len(body))
        if self._left == 0:
            self._state = _DONE
        return body

    def _one_whole_chunk(self, data: bytes) -> bytes | None:
        """The payload where ``data`` is exactly one chunk without extensions, which is what a paced stream's read is;
        else None.
        """
        end = data.find(b"\r\n", 0, _CHUNK_LINE_MAX)
        if end <= 0:
            return None
        size = _plain_size(data[:end])
        stop = end + 2 + size
        if size == 0 or len(data) != stop + 2 or data[stop:] != b"\r\n":
            return None
        self.chunks += 1
        self.body_bytes += size
        if self.chunks > self._limits.chunks:
            raise LimitExceeded(Code.RESPONSE_CHUNK_LIMIT)
        if self.body_bytes > self._limits.body_bytes:
            raise LimitExceeded(Code.RESPONSE_TOO_LARGE)
        return data[end + 2 : stop]

    def _read_chunks(self, data: bytes, pos: int) -> bytes:
        parts: list[bytes] = []
        size = len(data)
        state, left = self._state, self._left
        while pos < size:
            if state == _CHUNK_SIZE:
                end = data.find(b"\r\n", pos, pos + _CHUNK_LINE_MAX)
                if end < 0:
                    if size - pos >= _CHUNK_LINE_MAX or not _could_be_chunk_line(data[pos:]):
                        raise WireError(Code.INVALID_CHUNK)
                    break
                line = data[pos:end]
                stop = end + 2 + _plain_size(line)
                if end + 2 < stop and data[stop : stop + 2] == b"\r\n":
                    self._count_chunk(stop - end - 2)
                    parts.append(data[end + 2 : stop])
                    pos = stop + 2
                    continue
                left = self._chunk_size(line)
                pos = end + 2
                state = _CHUNK_DATA if left else _TRAILER
            elif state == _CHUNK_DATA:
                piece = data[pos : pos + left]
                parts.append(piece)
                pos += len(piece)
                left -= len(piece)
                if left == 0:
                    state = _CHUNK_END
            elif state == _CHUNK_END:
                if size - pos == 1:
                    if data[pos:] != b"\r":
                        raise WireError(Code.INVALID_CHUNK)
                    break
                if data[pos : pos + 2] != b"\r\n":
                    raise WireError(Code.INVALID_CHUNK)
                pos += 2
                state = _CHUNK_SIZE
            elif state == _TRAILER:
                end = data.find(b"\r\n", pos)
                if self.header_bytes + (size if end < 0 else end) - pos > self._limits.header_bytes:
                    raise LimitExceeded(Code.RESPONSE_HEADERS_TOO_LARGE)
                if end < 0:
                    break
                state = self._trailer(data[pos:end])
                pos = end + 2
            else:
                raise WireError(Code.BYTES_AFTER_END)
        self._state, self._left = state, left
        self._rest = data[pos:]
        body = parts[0] if len(parts) == 1 else b"".join(parts)
        self._count(len(body))
        return body

    def _chunk_size(self, line: bytes) -> int:
        match = _CHUNK.fullmatch(line)
        if match is None:
            raise WireError(Code.INVALID_CHUNK)
        if len(line) > len(match[1]):
            self.header_bytes += len(line) - len(match[1])
            if self.header_bytes > self._limits.header_bytes:
                raise LimitExceeded(Code.RESPONSE_HEADERS_TOO_LARGE)
        left = int(match[1], 16)
        if left:
            self._count_chunk(left)
        return left

    def _count_chunk(self, size: int) -> None:
        self.chunks += 1
        if self.chunks > self._limits.chunks:
            raise LimitExceeded(Code.RESPONSE_CHUNK_LIMIT)
        if self.body_bytes + size > self._limits.body_bytes:
            raise LimitExceeded(Code.RESPONSE_TOO_LARGE)

    def _trailer(self, line: bytes) -> int:
        if not line:
            return _DONE
        self.header_bytes += len(line) + 2
        self.header_count += 1
        if self.header_count > self._limits.header_count:
            raise LimitExceeded(Code.RESPONSE_HEADERS_TOO_LARGE)
        if _field(line)[0] in _FRAMING:
            raise WireError(Code.INVALID_FRAMING)
        return _TRAILER


def _field(line: bytes) -> tuple[bytes, bytes]:
    match = _FIELD.fullmatch(line)
    if match is None:
        raise WireError(Code.INVALID_RESPONSE_HEADERS)
    return match[1].lower(), match[2].strip(b" \t")


@lru_cache(maxsize=4_096)
def _plain_size(line: bytes) -> int:
    """Size of a chunk line without extensions, or 0. Remembered: the events of a stream have few different sizes."""
    match = _CHUNK.fullmatch(line)
    return int(line, 16) if match is not None and len(match[1]) == len(line) else 0


def _could_be_chunk_line(start: bytes) -> bool:
    """True if an unfinished chunk line could still become a good one."""
    line = start.removesuffix(b"\r")
    return not line or (line[:1] in b"0123456789abcdefABCDEF" and b"\n" not in line and b"\r" not in line)
