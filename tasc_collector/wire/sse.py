"""Server-sent events, as WHATWG HTML section 9.2.6 reads them, incrementally and within bounds.

Rules:

1. A line ends with LF, CR or CRLF, wherever the chunks are cut. One byte order mark at the very start is dropped.
2. A blank line dispatches the event of the lines before it, if one of them was ``data``; otherwise it drops them.
3. ``data`` lines are joined by LF; ``event`` names the event; ``id`` (without NUL) stays for all later events;
   ``retry`` takes ASCII digits only; one space after the colon is dropped; a line that begins with a colon is a
   comment; other fields are ignored.
4. What no blank line ended is never dispatched: at the end it only sets ``trailing_incomplete``.
5. Stricter than WHATWG: bytes that are not UTF-8 are refused, not replaced, so that what is recorded is what was sent.
6. Every bound is checked before the bytes that would break it are kept. Line ends count as one byte each.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

from tasc_collector import limits as bounds
from tasc_collector.wire.intake import Intake, check_bounds
from tasc_collector.wire.refusals import WireCode
from tasc_collector.wire.slot import StringSlot

_ASCII_DIGITS = re.compile("[0-9]{1,12}")
"""A reconnection time; more digits are beyond any bound."""
_CR = 0x0D
_BOM = b"\xef\xbb\xbf"
_HARD = {
    "max_bytes": bounds.SSE_BYTES_HARD,
    "max_chunks": bounds.SSE_CHUNKS_HARD,
    "max_lines": bounds.SSE_LINES_HARD,
    "max_line_bytes": bounds.SSE_LINE_BYTES_HARD,
    "max_events": bounds.SSE_EVENTS_HARD,
    "max_event_bytes": bounds.SSE_EVENT_BYTES_HARD,
    "max_field_bytes": bounds.SSE_FIELD_BYTES_HARD,
    "max_retry_ms": bounds.SSE_RETRY_MS_HARD,
}


@dataclass(frozen=True, slots=True)
class SseLimits:
    """Bounds of one event stream.

    Args:
        max_bytes: bytes of the stream.
        max_chunks: chunks in which it comes.
        max_lines: lines, blank ones and comments included.
        max_line_bytes: bytes of a line.
        max_events: events dispatched.
        max_event_bytes: bytes of the lines of one event, its comments included.
        max_field_bytes: bytes of the value of one line.
        max_retry_ms: longest reconnection time that is taken over, in milliseconds.

    Raises:
        InputError: a bound is not positive, or above its hard maximum.
    """

    max_bytes: int = bounds.SSE_MAX_BYTES
    max_chunks: int = bounds.SSE_MAX_CHUNKS
    max_lines: int = bounds.SSE_MAX_LINES
    max_line_bytes: int = bounds.SSE_MAX_LINE_BYTES
    max_events: int = bounds.SSE_MAX_EVENTS
    max_event_bytes: int = bounds.SSE_MAX_EVENT_BYTES
    max_field_bytes: int = bounds.SSE_MAX_FIELD_BYTES
    max_retry_ms: int = bounds.SSE_MAX_RETRY_MS

    def __post_init__(self) -> None:
        check_bounds(self, _HARD, where="SSE limits")


class SseEvent(NamedTuple):
    """One dispatched event.

    ``event`` is "" where the server named none (WHATWG: "message"). ``id`` is the last id that any event so far had.
    ``retry_ms`` is the reconnection time that this event's own lines gave, if any.
    """

    event: str
    data: str
    id: str
    retry_ms: int | None


_new = tuple.__new__
"""Builds an event without the argument binding of ``SseEvent``, which would be half of the cost of decoding it."""


class SseDecoder:
    """Decodes one event stream.

    A chunk that holds good and bad bytes gives its good events first; the refusal comes with the next call.
    """

    def __init__(self, limits: SseLimits = SseLimits()) -> None:
        self._limits = limits
        self._intake = Intake(limits)
        self._start: bytes | None = b""
        self._after_cr = False
        self._pending = bytearray()
        self._lines = 0
        self._events = 0
        self._last_id = ""
        self._easy_bytes = min(limits.max_line_bytes, limits.max_event_bytes, limits.max_field_bytes)
        self.comments = 0
        """Comment lines read so far (keep-alives)."""
        self.retry_ms: int | None = None
        """The last valid reconnection time of the stream, in milliseconds."""
        self.trailing_incomplete = False
        """After ``finish``: the stream ended inside an event, which was not dispatched."""

    def feed(self, chunk: bytes) -> list[SseEvent]:
        """Events whose last byte is in this chunk.

        Args:
            chunk: the next bytes, at least one.

        Raises:
            LimitExceeded: a bound of the stream is broken.
            WireError: the bytes are not UTF-8, or the chunk is empty.
        """
        chunk = self._intake.admit(chunk)
        if self._start is not None:
            chunk = self._without_bom(chunk)
        if self._after_cr or _CR in chunk:
            chunk = self._with_line_feeds(chunk)
        pending = self._pending
        if not pending and chunk.endswith(b"\n\n"):
            events = self._read_block(chunk[:-2])
        else:
            seam = max(len(pending) - 1, 0)
            pending += chunk
            end = pending.rfind(b"\n\n", seam)
            events = []
            if end >= 0:
                events = self._read_block(bytes(pending[:end]))
                del pending[: end + 2]
            if len(pending) > self._easy_bytes and not self._intake.refused:
                self._check_pending()
        if not events:
            self._intake.check()
        return events

    def feed_slot(self, chunk: bytes, slot: StringSlot) -> list[str] | None:
        """Take a chunk in which every event that ends is one ``data`` line that fits the slot.

        Args:
            chunk: the next bytes, at least one.
            slot: the JSON text that each event is expected to be.

        Returns:
            The open string of each event, as many as ``feed`` would give events; or None, with nothing taken, where any
            event is another or a bound is near: then ``feed`` has to read the chunk.
        """
        pending = self._pending
        if self._intake.refused or self._start is not None or self._after_cr:
            return None
        ended, rest = chunk, b""
        if pending or not chunk.endswith(b"\n\n"):
            if len(pending) + len(chunk) > self._easy_bytes or _CR in chunk:
                return None
            ended, rest = self._split(chunk)
        strings = slot.fit(ended) if ended and len(ended) <= self._easy_bytes else None
        if strings is None:
            if ended:
                return None
            strings = []
        if not self._count(len(strings), len(chunk)):
            return None
        if not ended:
            pending += rest
        elif pending or rest:
            pending[:] = rest
        return strings

    def feed_each(self, chunks: list[bytes], slot: StringSlot) -> list[str] | None:
        """``feed_slot`` for chunks that hold one whole event each: the open string of each, or None, with nothing taken."""
        if self._pending or self._intake.refused or self._start is not None or self._after_cr:
            return None
        strings = slot.fit_each(chunks) if len(max(chunks, key=len)) <= self._easy_bytes else None
        if strings is None or not self._count(len(strings), sum(map(len, chunks)), len(chunks)):
            return None
        return strings

    def _count(self, events: int, size: int, chunks: int = 1) -> bool:
        """Count events of one line each; False, and nothing is counted, where a bound is near."""
        lines, events = self._lines + 2 * events, self._events + events
        if lines > self._limits.max_lines or events > self._limits.max_events or not self._intake.take(size, chunks):
            return False
        self._lines, self._events = lines, events
        return True

    def _split(self, chunk: bytes) -> tuple[bytes, bytes]:
        """What ends with this chunk, from the first pending byte on, and what is left; if nothing ends, the chunk."""
        if 0x0A not in chunk:
            return b"", chunk
        data = bytes(self._pending) + chunk
        end = data.rfind(b"\n\n") + 2
        return (data[:end], data[end:]) if end >= 2 else (b"", chunk)

    def finish(self) -> None:
        """Tell that the stream has ended.

        Raises:
            WireError: a refusal that the last chunk held back.
        """
        self._intake.check()
        for line in (self._start or b"").split(b"\n") + self._pending.split(b"\n"):
            if line.startswith(b":"):
                self.comments += 1
            elif line:
                self.trailing_incomplete = True

    def _without_bom(self, chunk: bytes) -> bytes:
        start = (self._start or b"") + chunk
        if len(start) < len(_BOM) and _BOM.startswith(start):
            self._start = start
            return b""
        self._start = None
        return start.removeprefix(_BOM)

    def _with_line_feeds(self, chunk: bytes) -> bytes:
        if self._after_cr and chunk:
            self._after_cr = False
            chunk = chunk.removeprefix(b"\n")
        if chunk.endswith(b"\r"):
            self._after_cr = True
        return chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _check_pending(self) -> None:
        """Refuse an event that is not complete and already too large."""
        pending, limits = self._pending, self._limits
        if len(pending) - pending.endswith(b"\n") > limits.max_event_bytes:
            self._intake.refuse(WireCode.EVENT_BYTE_LIMIT)
        elif len(pending) - (pending.rfind(b"\n") + 1) > limits.max_line_bytes:
            self._intake.refuse(WireCode.LINE_BYTE_LIMIT)

    def _read_block(self, block: bytes) -> list[SseEvent]:
        """Events of whole frames: everything before a blank line."""
        limits = self._limits
        lines = block.count(b"\n") + 2
        crowded = self._lines + lines > limits.max_lines or self._events + lines > limits.max_events
        if crowded or len(block) > self._easy_bytes:
            return self._read_carefully(block)
        try:
            text = block.decode()
        except UnicodeDecodeError:
            return self._read_carefully(block)
        self._lines += lines
        events: list[SseEvent] = []
        frames = text.split("\n\n")
        last_id = self._last_id
        if lines == 2 * len(frames) and text.startswith("data: ") and text.count("\n\ndata: ") == len(frames) - 1:
            events = [_new(SseEvent, ("", frame[6:], last_id, None)) for frame in frames]  # each is one line of data
        else:
            for frame in frames:
                self._read_lines(frame, events)
        self._events += len(events)
        return events

    def _read_carefully(self, block: bytes) -> list[SseEvent]:
        """The same, frame by frame, up to the first that breaks a bound or is not UTF-8."""
        events: list[SseEvent] = []
        for frame in block.split(b"\n\n"):
            code = self._why_refused(frame)
            if code is not None:
                self._intake.refuse(code)
                break
            self._lines += frame.count(b"\n") + 2
            before = len(events)
            self._read_lines(frame.decode(), events)
            self._events += len(events) - before
            if self._events > self._limits.max_events:
                del events[before - len(events) :]
                self._intake.refuse(WireCode.EVENT_LIMIT)
                break
        return events

    def _why_refused(self, frame: bytes) -> WireCode | None:
        limits = self._limits
        if len(frame) > limits.max_event_bytes:
            return WireCode.EVENT_BYTE_LIMIT
        if self._lines + frame.count(b"\n") + 2 > limits.max_lines:
            return WireCode.LINE_LIMIT
        for line in frame.split(b"\n"):
            if len(line) > limits.max_line_bytes:
                return WireCode.LINE_BYTE_LIMIT
            if len(line) - (line.find(b":") + 1) > limits.max_field_bytes:
                return WireCode.FIELD_BYTE_LIMIT
        try:
            frame.decode()
        except UnicodeDecodeError:
            return WireCode.INVALID_UTF8
        return None

    def _read_lines(self, frame: str, events: list[SseEvent]) -> None:
        """Lines up to a blank line that follows the frame; a blank line inside dispatches too."""
        data: list[str] = []
        event, retry_ms = "", None
        for line in [*frame.split("\n"), ""]:
            if not line:
                if data:
                    events.append(SseEvent(event, "\n".join(data), self._last_id, retry_ms))
                data, event, retry_ms = [], "", None
                continue
            name, _, value = line.partition(":")
            if not name:
                self.comments += 1
                continue
            value = value.removeprefix(" ")
            if name == "data":
                data.append(value)
            elif name == "event":
                event = value
            elif name == "id":
                if "\0" not in value:
                    self._last_id = value
            elif name == "retry" and _ASCII_DIGITS.fullmatch(value) and int(value) <= self._limits.max_retry_ms:
                self.retry_ms = retry_ms = int(value)
