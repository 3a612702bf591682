"""Faults in the order and writing of a stream's events: the T rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

import orjson

from tasc_collector.canonical import JsonValue
from tasc_collector.contract_servers.faults.model import JSON, SSE, STREAMS, Fault, StreamEdit
from tasc_collector.contract_servers.frames import DONE_FRAME, Frame, FrameKind, comment, write_sse
from tasc_collector.contract_servers.plan import Piece, Plan

_CLOSING: Final = frozenset({FrameKind.FINISH, FrameKind.USAGE, FrameKind.END, FrameKind.DONE})


def _closing(edit: StreamEdit, *kinds: FrameKind) -> list[Frame]:
    return [frame for frame in edit.frames if frame.kind in kinds]


def _broken(edit: StreamEdit) -> list[Frame]:
    """The events before the break, none of which ends anything."""
    return [frame for frame in edit.frames[: edit.break_at] if frame.kind not in _CLOSING]


def _done_only(edit: StreamEdit) -> list[Frame]:
    return [DONE_FRAME]


def _error_then(*kinds: FrameKind, done: bool) -> Callable[[StreamEdit], list[Frame]]:
    """Half of the answer, the dialect's error event, then the closing events of the given kinds and ``[DONE]``."""

    def change(edit: StreamEdit) -> list[Frame]:
        before = _broken(edit)
        error = edit.dialect.error_frame(edit.generation, len(before))
        return [*before, error, *_closing(edit, *kinds), *([DONE_FRAME] if done else [])]

    return change


def _error_first(edit: StreamEdit) -> list[Frame]:
    return [edit.dialect.error_frame(edit.generation, 0)]


def _invalid_json_error(edit: StreamEdit) -> list[Frame]:
    """Transformers Serve pastes the message between quotes, so that a quote in it breaks the JSON."""
    return [*_broken(edit), Frame(FrameKind.ERROR, raw=b'data: {"error": "template "x" failed"}\n\n')]


def _malformed_event(edit: StreamEdit) -> list[Frame]:
    bad = Frame(FrameKind.ERROR, raw=b'data: {"choices": [{"index": 0, "delta":\n\n')
    return [*edit.frames[: edit.break_at], bad, *edit.frames[edit.break_at :]]


def _malformed_line(edit: StreamEdit) -> list[Frame]:
    if edit.frames and edit.frames[-1].kind is FrameKind.END and edit.dialect.form == "ndjson":
        bad = Frame(FrameKind.ERROR, raw=b'{"model": \n')
        return [*edit.frames[: edit.break_at], bad, *edit.frames[edit.break_at :]]
    return _malformed_event(edit)


def _swallowed_error(edit: StreamEdit) -> list[Frame]:
    """Ollama's OpenAI routes: the error becomes an empty chunk with an empty model, then the stream just ends."""
    before = _broken(edit)
    template = next((frame.body for frame in before if isinstance(frame.body, dict) and "choices" in frame.body), None)
    if not isinstance(template, dict):
        return before
    delta: JsonValue = {"index": 0, "delta": {"role": "assistant", "content": ""}, "text": "", "finish_reason": None}
    return [*before, Frame(FrameKind.ERROR, {**template, "model": "", "choices": [delta]})]


def _without(*kinds: FrameKind) -> Callable[[StreamEdit], list[Frame]]:
    return lambda edit: [frame for frame in edit.frames if frame.kind not in kinds]


def _after_done(edit: StreamEdit) -> list[Frame]:
    """The first event that carries text once more, after the end."""
    again = next(frame for frame in edit.frames if frame.tokens or frame is edit.frames[-1])
    return [*edit.frames, again._replace(tokens=0)]


def _two_dones(edit: StreamEdit) -> list[Frame]:
    return [*edit.frames, edit.frames[-1]]


def _comments_everywhere(edit: StreamEdit) -> list[Frame]:
    frames = [comment("ping - 2026-09-21 13:00:00")]
    for frame in edit.frames:
        frames += [frame, comment("")]
    return frames


def _comment_inside(edit: StreamEdit) -> list[Frame]:
    """A comment line within every event, before its data."""
    return [frame._replace(raw=b": inside\n" + write_sse(frame)) for frame in edit.frames]


def _data_null(edit: StreamEdit) -> list[Frame]:
    return [Frame(FrameKind.META, raw=b"data: null\n\n"), *edit.frames]


def _trailing_blank(edit: StreamEdit) -> list[Frame]:
    return [
        frame._replace(raw=write_sse(frame)[:-2] + b" \n\n") if frame.kind is not FrameKind.DONE else frame
        for frame in edit.frames
    ]


def _pretty(frame: Frame) -> bytes:
    head = b"" if frame.event is None else b"event: " + frame.event.encode() + b"\n"
    lines = orjson.dumps(frame.body, option=orjson.OPT_INDENT_2).split(b"\n")
    return head + b"".join(b"data: " + line + b"\n" for line in lines) + b"\n"


def _multi_line(edit: StreamEdit) -> list[Frame]:
    """Each event's JSON over several ``data:`` lines; white space between tokens may be a line end."""
    return [frame if frame.raw is not None else frame._replace(raw=_pretty(frame)) for frame in edit.frames]


def _no_blank(edit: StreamEdit) -> list[Frame]:
    return [frame._replace(raw=write_sse(frame).replace(b"data: ", b"data:", 1)) for frame in edit.frames]


def _unterminated_last(edit: StreamEdit) -> list[Frame]:
    """The last event without its blank line : it must not be dispatched (WHATWG, event streams)."""
    last = edit.frames[-1]
    raw = last.raw if last.raw is not None else write_sse(last)
    return [*edit.frames[:-1], last._replace(raw=raw.rstrip(b"\n") + b"\n")]


def _line_ends(end: bytes) -> Callable[[Plan], Plan]:
    """JSON writes no raw line end, so every LF of the body is one of the framing."""
    return lambda plan: replace(plan, pieces=tuple(Piece(p.due_s, p.data.replace(b"\n", end)) for p in plan.pieces))


def _recut(size: int) -> Callable[[Plan], Plan]:
    """The same body in pieces of ``size`` bytes, each its own chunk and write; 0 makes one piece of it."""

    def change(plan: Plan) -> Plan:
        if not size:
            last_s = plan.pieces[-1].due_s if plan.pieces else 0.0
            return replace(plan, pieces=(Piece(last_s, plan.body),), stamp=None)
        pieces = [Piece(p.due_s, p.data[at : at + size]) for p in plan.pieces for at in range(0, len(p.data), size)]
        return replace(plan, pieces=tuple(pieces), stamp=None, per_write=1)

    return change


def _first_bytes(data: bytes) -> Callable[[Plan], Plan]:
    def change(plan: Plan) -> Plan:
        first, *others = plan.pieces or (Piece(0.0, b""),)
        return replace(plan, pieces=(Piece(first.due_s, data + first.data), *others))

    return change


FAULTS: Final[tuple[Fault, ...]] = (
    Fault("done-only", ("T01",), "[DONE] and nothing else", SSE, frames=_done_only),
    Fault("error-then-done", ("T02",), "an error event in the middle, then [DONE]", SSE, frames=_error_then(done=True)),
    Fault(
        "error-usage-done",
        ("T03",),
        "an error event, usage, then [DONE]",
        SSE,
        frames=_error_then(FrameKind.USAGE, done=True),
    ),
    Fault("error-then-eof", ("T04",), "an error event, then a clean end", STREAMS, frames=_error_then(done=False)),
    Fault(
        "error-then-end",
        ("R14",),
        "an error event, then the terminal event as on success",
        STREAMS,
        frames=_error_then(FrameKind.END, done=False),
    ),
    Fault("error-first", ("T04",), "an error event before any token, then a clean end", STREAMS, frames=_error_first),
    Fault("error-invalid-json", ("T14",), "an error event that is no JSON", SSE, frames=_invalid_json_error),
    Fault(
        "swallowed-error",
        ("R13",),
        "an empty chunk instead of an error, then a clean end (Ollama)",
        SSE,
        frames=_swallowed_error,
    ),
    Fault("malformed-event", ("T14",), "one event that is no JSON in the middle", STREAMS, frames=_malformed_line),
    Fault("eof-after-deltas", ("T05",), "half of the deltas, then a clean end", STREAMS, frames=_broken),
    Fault("no-done", ("T07",), "everything but [DONE]", SSE, frames=_without(FrameKind.DONE)),
    Fault("frames-after-done", ("T09",), "one more event after the end", STREAMS, frames=_after_done),
    Fault("two-dones", ("T09",), "the terminator twice", STREAMS, frames=_two_dones),
    Fault("comments-everywhere", ("T10",), "comments before and between events", SSE, frames=_comments_everywhere),
    Fault("comment-inside", ("T10",), "a comment line within every event", SSE, frames=_comment_inside),
    Fault("crlf", ("T11",), "CRLF line ends", STREAMS, plan=_line_ends(b"\r\n")),
    Fault("cr-only", ("T11",), "CR line ends", SSE, plan=_line_ends(b"\r")),
    Fault(
        "crlf-split",
        ("T11",),
        "CRLF line ends, every byte in its own write",
        SSE,
        plan=lambda plan: _recut(1)(_line_ends(b"\r\n")(plan)),
    ),
    Fault("byte-by-byte", ("T11",), "every byte in its own chunk and write", STREAMS, plan=_recut(1)),
    Fault("odd-cuts", ("T11",), "the body in pieces of 7 bytes", STREAMS, plan=_recut(7)),
    Fault("one-piece", ("T11",), "all events in one write", STREAMS, plan=_recut(0)),
    Fault("multi-line-data", ("T11",), "the JSON of an event over several data lines", SSE, frames=_multi_line),
    Fault("no-blank-after-colon", ("T11",), "data: without its blank", SSE, frames=_no_blank),
    Fault("byte-order-mark", ("T11",), "a leading U+FEFF", STREAMS | JSON, plan=_first_bytes(b"\xef\xbb\xbf")),
    Fault(
        "invalid-utf8", ("T11",), "a byte that is no UTF-8 at the beginning", STREAMS | JSON, plan=_first_bytes(b"\xff")
    ),
    Fault("data-null", ("T12",), "a first event with data null (llama.cpp, several prompts)", SSE, frames=_data_null),
    Fault(
        "trailing-blank", ("T13",), "a blank after the JSON of every event (TensorRT-LLM)", SSE, frames=_trailing_blank
    ),
    Fault(
        "unterminated-last-event", ("T05",), "the last event without its blank line", STREAMS, frames=_unterminated_last
    ),
    Fault(
        "json-for-stream",
        ("T20",),
        "a stream was asked for, JSON is answered",
        STREAMS,
        ask=lambda ask: replace(ask, stream=False),
    ),
    Fault(
        "stream-for-json",
        ("T20",),
        "JSON was asked for, a stream is answered",
        JSON,
        ask=lambda ask: replace(ask, stream=True),
    ),
)
"""Stream faults."""
