"""Frames: the events of one answer before they are bytes, and the two ways to write them.

Rules
- A dialect turns a generation into frames; a fault edits frames; a writer here turns each into bytes. Nothing else
  makes body bytes, so what a fault does is exact.
- A frame that carries ``raw`` is written as it stands; its ``body`` is ignored.
- ``tokens`` says how many output tokens a frame carries; only such frames take up time (see ``plan.schedule``).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from enum import Enum, StrEnum
from typing import Final, NamedTuple, TypeAlias

import orjson

from tasc_collector.canonical import JsonValue


class Absent(Enum):
    """The value of a field that is left out, told apart from null."""

    ABSENT = "absent"


ABSENT: Final = Absent.ABSENT
Maybe: TypeAlias = JsonValue | Absent
"""A field's value: any JSON, deliberately wrong kinds included, or left out."""


class FrameKind(StrEnum):
    """What a frame is for; faults select by it."""

    META = "meta"
    ROLE = "role"
    REASONING = "reasoning"
    TOKEN = "token"  # noqa: S105  # of text, not of access
    FINISH = "finish"
    USAGE = "usage"
    END = "end"
    DONE = "done"
    COMMENT = "comment"
    ERROR = "error"
    BODY = "body"


_SLOT: Final = "\x01text\x01"


class Mould:
    """The chunks of one stream that differ in one text only, encoded once.

    Args:
        chunk: makes the chunk's JSON from a text.
    """

    __slots__ = ("_chunk", "_halves")

    def __init__(self, chunk: Callable[[str], JsonValue]) -> None:
        self._chunk = chunk
        self._halves: tuple[bytes, bytes] | None = None

    def write(self, text: str, *, spaced: bool) -> bytes:
        """The event for one text, exactly as if it were encoded by itself."""
        if self._halves is None:
            data = b"data: " + encode(self._chunk(_SLOT), spaced=spaced) + b"\n\n"
            before, _, after = data.partition(encode(_SLOT, spaced=spaced))
            self._halves = before, after
        return self._halves[0] + encode(text, spaced=spaced) + self._halves[1]


class Frame(NamedTuple):
    """One event of a stream, or the one body of a JSON answer.

    A named tuple, not a dataclass: one is made per token and this is the server's hot path.

    Attributes:
        kind: its purpose.
        body: the JSON value it carries.
        event: SSE event name, where the dialect writes one.
        tokens: output tokens that it carries.
        raw: exact bytes to write instead.
        mould: writes the event from ``text`` instead of ``body``; only where no fault looks into bodies.
        text: what goes into the mould.
    """

    kind: FrameKind
    body: JsonValue = None
    event: str | None = None
    tokens: int = 0
    raw: bytes | None = None
    mould: Mould | None = None
    text: str = ""


DONE_FRAME: Final = Frame(FrameKind.DONE, raw=b"data: [DONE]\n\n")
"""The sentinel of the OpenAI dialects."""


def comment(text: str) -> Frame:
    """An SSE comment line with its blank line, as keep-alives are written."""
    return Frame(FrameKind.COMMENT, raw=f": {text}\n\n".encode() if text else b":\n\n")


def put(target: dict[str, JsonValue], **fields: Maybe) -> dict[str, JsonValue]:
    """Add every field that is not absent; returns ``target``."""
    for name, value in fields.items():
        if not isinstance(value, Absent):
            target[name] = value
    return target


def encode(value: JsonValue, *, spaced: bool = False) -> bytes:
    """JSON bytes: compact, or with a blank after comma and colon as Python's ``json.dumps`` writes (MLX-LM)."""
    return json.dumps(value).encode() if spaced else orjson.dumps(value)


def write_sse(frame: Frame, *, spaced: bool = False) -> bytes:
    """The frame as one server-sent event with LF line ends."""
    if frame.raw is not None:
        return frame.raw
    if frame.mould is not None:
        return frame.mould.write(frame.text, spaced=spaced)
    data = encode(frame.body, spaced=spaced)
    if frame.event is None:
        return b"data: " + data + b"\n\n"
    return b"event: " + frame.event.encode() + b"\ndata: " + data + b"\n\n"


def write_ndjson(frame: Frame, *, spaced: bool = False) -> bytes:
    """The frame as one line of newline-delimited JSON."""
    return frame.raw if frame.raw is not None else encode(frame.body, spaced=spaced) + b"\n"
