"""From frames to timed writes: the last step in which an answer is still a value.

Rules
- A ``Plan`` is an HTTP response with its body in timed pieces; a transport fault edits it.
- A ``Wire`` is what the connection plays: writes with due times, then one ``End``. It has no HTTP left in it, so a
  fault can put any byte anywhere.
- Due times are seconds after the request's last byte was read and never decrease.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from http import HTTPStatus
from typing import NamedTuple

from tasc_collector.contract_servers.frames import Frame

Headers = tuple[tuple[str, str], ...]


class Coding(StrEnum):
    """How the body's end is marked."""

    LENGTH = "length"
    CHUNKED = "chunked"
    CLOSE = "close"


class End(StrEnum):
    """What the server does after the last write."""

    CLEAN = "clean"
    FIN = "fin"
    RESET = "reset"
    STALL = "stall"
    HALF_CLOSE = "half-close"


class Piece(NamedTuple):
    """Body bytes that belong together (usually one event) and when they are due."""

    due_s: float
    data: bytes


class Write(NamedTuple):
    """Bytes for one ``write`` and when they are due; ``stamped`` ones get the send time when they leave."""

    due_s: float
    data: bytes
    stamped: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """One HTTP response.

    Attributes:
        status: status code.
        headers: in order and in the case in which they are written, framing headers excluded.
        pieces: the body.
        coding: how the end of the body is marked.
        version: 1.1 or 1.0.
        head_due_s: when the head is written; the first piece's time where the engine sends both together.
        end: what follows the last write.
        cut: the body's end mark is left out (no last chunk; ``content-length`` promises more than comes).
        keep_alive: the connection may carry another request.
        stamp: turns (event, send time in ns) into the stamped event; None stamps nothing.
        per_write: pieces due together that share one write.
        break_at: index of the first piece that a broken body no longer sends.
    """

    status: int
    headers: Headers
    pieces: tuple[Piece, ...]
    coding: Coding
    version: str = "1.1"
    head_due_s: float = 0.0
    end: End = End.CLEAN
    cut: bool = False
    keep_alive: bool = True
    stamp: Callable[[bytes, int], bytes] | None = None
    per_write: int = 1
    break_at: int = 0

    @property
    def body(self) -> bytes:
        """The whole body without its coding."""
        return b"".join(piece.data for piece in self.pieces)


@dataclass(frozen=True, slots=True)
class Wire:
    """Timed writes and an end.

    Attributes:
        writes: in due order; may be endless.
        end: what follows the last write.
        keep_alive: the connection stays open for another request after a clean end.
        stamp: applied to stamped writes when they leave.
    """

    writes: Iterable[Write]
    end: End
    keep_alive: bool = True
    stamp: Callable[[bytes, int], bytes] | None = None


def schedule(frames: Sequence[Frame], ttft_ms: float, itl_ms: float, role_ms: float | None) -> list[float]:
    """Due time of every frame in seconds.

    The first frame with tokens is due at ``ttft_ms``, each later one ``itl_ms`` after the one before. Frames without
    tokens are due with the frame before them, those ahead of the first token at ``role_ms`` (``ttft_ms`` if None).
    """
    now_ms = ttft_ms if role_ms is None else min(role_ms, ttft_ms)
    started = False
    dues = []
    for frame in frames:
        if frame.tokens:
            now_ms = now_ms + itl_ms if started else ttft_ms
            started = True
        dues.append(now_ms / 1000)
    return dues


def chunk(data: bytes) -> bytes:
    """One HTTP/1.1 chunk (RFC 9112, 7.1)."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Unknown"


def head_bytes(plan: Plan) -> bytes:
    """Status line and headers of a plan, with the framing header that its coding needs."""
    lines = [f"HTTP/{plan.version} {plan.status} {_phrase(plan.status)}"]
    lines += [f"{name}: {value}" for name, value in plan.headers]
    if plan.coding is Coding.LENGTH:
        promised = sum(len(piece.data) for piece in plan.pieces) + (64 if plan.cut else 0)
        lines.append(f"Content-Length: {promised}")
    elif plan.coding is Coding.CHUNKED:
        lines.append("Transfer-Encoding: chunked")
    if not plan.keep_alive:
        lines.append("Connection: close")
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def _grouped(pieces: Sequence[Piece], per_write: int) -> Iterable[tuple[float, list[bytes]]]:
    group: list[bytes] = []
    due_s = 0.0
    for piece in pieces:
        if group and (piece.due_s != due_s or len(group) == per_write):
            yield due_s, group
            group = []
        due_s = piece.due_s
        group.append(piece.data)
    if group:
        yield due_s, group


def _chunking(stamp: Callable[[bytes, int], bytes]) -> Callable[[bytes, int], bytes]:
    return lambda data, now_ns: chunk(stamp(data, now_ns))


def to_wire(plan: Plan) -> Wire:
    """The writes of a plan; head and body go out apart unless they are due together in one piece (JSON answers)."""
    chunked = plan.coding is Coding.CHUNKED
    writes: list[Write] = []
    if plan.stamp is not None:
        writes += [Write(due_s, data, stamped=True) for due_s, data in plan.pieces]
    elif plan.per_write == 1:
        writes += [Write(due_s, chunk(data) if chunked else data) for due_s, data in plan.pieces]
    else:
        for due_s, group in _grouped(plan.pieces, plan.per_write):
            writes.append(Write(due_s, b"".join([chunk(data) for data in group] if chunked else group)))
    last_s = plan.pieces[-1].due_s if plan.pieces else plan.head_due_s
    if chunked and not plan.cut:
        writes.append(Write(last_s, b"0\r\n\r\n"))
    head = head_bytes(plan)
    if plan.coding is Coding.LENGTH and len(writes) <= 1:
        writes = [Write(last_s, head + (writes[0].data if writes else b""))]
    else:
        writes.insert(0, Write(plan.head_due_s, head))
    stamp = _chunking(plan.stamp) if plan.stamp is not None and chunked else plan.stamp
    end = End.FIN if plan.end is End.CLEAN and (plan.coding is Coding.CLOSE or plan.cut) else plan.end
    return Wire(writes, end, plan.keep_alive and plan.coding is not Coding.CLOSE, stamp)
