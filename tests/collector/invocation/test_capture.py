from __future__ import annotations

import json

import pytest

from tasc_collector.errors import InputError
from tasc_collector.invocation.capture import CaptureKind, read_capture
from tasc_collector.runtimes.flags import flags_from_value
from tasc_collector.runtimes.profile import Framing, Route

CHAT = CaptureKind("vllm", Route.CHAT_COMPLETIONS, Framing.SSE)
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"


def _stream(*, model: str = "m", done: bool = True) -> bytes:
    def frame(choices: object, usage: object = None) -> bytes:
        value = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": model, "choices": choices}
        return b"data: " + json.dumps({**value, "usage": usage} if usage else value).encode() + b"\n\n"

    def delta(content: dict[str, str], finish: str | None = None) -> list[object]:
        return [{"index": 0, "delta": content, "finish_reason": finish}]

    usage = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
    frames = [
        frame(delta({"role": "assistant", "content": ""})),
        frame(delta({"content": "Hel"})),
        frame(delta({"content": "lo"})),
        frame(delta({}, "stop")),
        frame([], usage),
    ]
    return b"".join(frames) + (b"data: [DONE]\n\n" if done else b"")


def _framed(body: bytes, head: bytes = HEAD) -> bytes:
    return head + b"Content-Length: %d\r\n\r\n" % len(body) + body


def _raw(**changes: object) -> CaptureKind:
    return CaptureKind("vllm", Route.CHAT_COMPLETIONS, Framing.SSE, raw_http=True, **changes)  # type: ignore[arg-type]


def test_a_whole_stream_is_completed_and_its_events_have_their_places() -> None:
    body = _stream()
    answer = read_capture(body, CHAT).answer
    assert (answer.outcome, answer.reason, answer.finish_reason) == ("completed", "completed", "stop")
    assert answer.usage is not None
    assert (answer.usage.input, answer.usage.output, answer.usage.total) == (3, 2, 5)
    assert answer.resolved_model == "m"
    assert answer.text == "Hello"
    ends = [body.index(word) for word in (b"Hel", b'lo"')]
    assert [event.at_ns for event in answer.events] == [body.index(b"\n\n", end) + 2 for end in ends]


def test_a_cut_is_never_completed() -> None:
    cut = CaptureKind("vllm", Route.CHAT_COMPLETIONS, Framing.SSE, cut=True)
    assert read_capture(_stream(), cut).answer.reason == "transport-cut"


def test_a_named_model_must_be_the_one_that_was_asked_for() -> None:
    kind = CaptureKind("vllm", Route.CHAT_COMPLETIONS, Framing.SSE, model="other")
    assert read_capture(_stream(), kind).answer.reason == "model-mismatch"


@pytest.mark.parametrize("size", [7, 100_000])
def test_raw_http_in_chunks(size: int) -> None:
    body = _stream()
    pieces = [body[i : i + size] for i in range(0, len(body), size)]
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces)
    data = HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"
    read = read_capture(data, _raw())
    assert (read.answer.outcome, read.status, read.content_type) == ("completed", 200, "text/event-stream")


def test_raw_http_that_ends_early_is_a_cut() -> None:
    read = read_capture(_framed(_stream())[:-20], _raw())
    assert (read.answer.outcome, read.answer.reason, read.transport) == (
        "truncated",
        "transport-cut",
        "response-truncated",
    )
    whole = read_capture(_framed(_stream()), _raw(cut=True))
    assert (whole.answer.outcome, whole.transport) == ("truncated", None)


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (_framed(_stream()) + b"x", "bytes-after-end"),
        (b"HTTP/2 200\r\n\r\n", "invalid-status-line"),
        (HEAD + b"Content-Length: 1\r\nContent-Length: 1\r\n\r\nx", "invalid-framing"),
        (HEAD + b"\r\n" + _stream(), "unframed-response"),
    ],
)
def test_broken_http_framing_is_a_violation(data: bytes, code: str) -> None:
    read = read_capture(data, _raw())
    assert (read.answer.outcome, read.answer.wire_code, read.transport) == ("protocol_violation", code, code)


def test_status_and_media_type_decide() -> None:
    refused = read_capture(_framed(b"{}", b"HTTP/1.1 429 Too Many\r\nContent-Type: application/json\r\n"), _raw())
    assert (refused.answer.reason, refused.status) == ("http-status", 429)
    foreign = read_capture(_framed(_stream(), b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n"), _raw())
    assert foreign.answer.reason == "content-type-mismatch"


def test_flags_describe_a_runtime_that_nobody_registered() -> None:
    flags = flags_from_value({"has_done": False, "close_delimited": True})
    kind = CaptureKind("newcomer", Route.CHAT_COMPLETIONS, Framing.SSE, raw_http=True, flags=flags)
    read = read_capture(HEAD + b"\r\n" + _stream(done=False), kind)
    assert read.answer.outcome == "completed"
    assert read_capture(HEAD + b"\r\n" + _stream(done=True), kind).answer.outcome == "protocol_violation"


def test_an_unknown_runtime_or_route_is_refused_with_a_way_out() -> None:
    with pytest.raises(InputError) as unknown:
        read_capture(b"", CaptureKind("newcomer", Route.CHAT_COMPLETIONS, Framing.SSE))
    assert "vllm" in str(unknown.value)
    with pytest.raises(InputError):
        read_capture(b"", CaptureKind("newcomer", Route.CHAT_COMPLETIONS, Framing.NDJSON, flags=flags_from_value({})))


def test_the_model_is_found_where_each_dialect_names_it() -> None:
    rows = (
        b'{"model":"m:1","created_at":"t","response":"hi","done":false}\n'
        + json.dumps(
            {
                "model": "m:1",
                "created_at": "t",
                "response": "",
                "done": True,
                "done_reason": "stop",
                "total_duration": 5,
                "load_duration": 1,
                "prompt_eval_count": 2,
                "prompt_eval_duration": 1,
                "eval_count": 1,
                "eval_duration": 2,
            }
        ).encode()
        + b"\n"
    )
    read = read_capture(rows, CaptureKind("ollama", Route.NATIVE_GENERATE, Framing.NDJSON)).answer
    assert (read.outcome, read.resolved_model) == ("completed", "m:1")
