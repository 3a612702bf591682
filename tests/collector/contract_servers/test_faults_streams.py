"""Stream faults do on the wire what they say: the T rows."""

from __future__ import annotations

import pytest

from tasc_collector.contract_servers.faults import streams
from tasc_collector.contract_servers.generation import PROVIDER_TEXT
from tests.support.fault_cases import CHAT, TEXT, Case, finishes, has_error, outcome

CASES = (
    Case("done-only", "vllm", CHAT, lambda a, n: a.body == b"data: [DONE]\n\n"),
    Case(
        "error-then-done",
        "vllm",
        CHAT,
        lambda a, n: has_error(a.events[-2]) and a.events[-1] == "[DONE]" and a.events[:-2] == n.events[:4],
    ),
    Case(
        "error-usage-done",
        "sglang",
        CHAT,
        lambda a, n: has_error(a.events[-3]) and a.events[-2]["choices"] == [] and a.events[-1] == "[DONE]",
    ),
    Case(
        "error-then-eof",
        "llama.cpp",
        CHAT,
        lambda a, n: a.events[-1] == {"error": {"message": PROVIDER_TEXT, "code": 500, "type": "server_error"}},
    ),
    Case(
        "error-then-eof",
        "ollama",
        "/api/chat",
        lambda a, n: a.lines[-1] == {"error": PROVIDER_TEXT} and not a.lines[-2]["done"],
    ),
    Case(
        "error-then-eof",
        "tgi",
        "/generate_stream",
        lambda a, n: a.events[-1] == {"error": PROVIDER_TEXT, "error_type": "generation"},
    ),
    Case(
        "error-then-end",
        "lm-studio",
        "/api/v1/chat",
        lambda a, n: [e["type"] for e in a.events[-2:]] == ["error", "chat.end"],
    ),
    Case("error-first", "vllm", TEXT, lambda a, n: len(a.events) == 1 and has_error(a.events[0])),
    Case(
        "error-invalid-json",
        "vllm",
        CHAT,
        lambda a, n: a.body.endswith(b'data: {"error": "template "x" failed"}\n\n') if a.raw else False,
    ),
    Case(
        "swallowed-error",
        "ollama",
        CHAT,
        lambda a, n: a.events[-1]["model"] == "" and a.events[-1]["choices"][0]["delta"]["content"] == "",
    ),
    Case(
        "malformed-event",
        "vllm",
        TEXT,
        lambda a, n: a.body.count(b'"delta":\n\n') == 1 and a.body.endswith(b"data: [DONE]\n\n"),
    ),
    Case("malformed-event", "ollama", "/api/generate", lambda a, n: a.body.count(b'{"model": \n') == 1),
    Case(
        "eof-after-deltas",
        "mlx-lm",
        CHAT,
        lambda a, n: finishes(a) == [] and "[DONE]" not in a.events and a.end == "eof",
    ),
    Case(
        "eof-after-deltas",
        "ollama",
        "/api/chat",
        lambda a, n: [line["done"] for line in a.lines] == [False, False, False],
    ),
    Case("no-done", "vllm", TEXT, lambda a, n: a.events == n.events[:-1] and a.raw.endswith(b"0\r\n\r\n")),
    Case("frames-after-done", "vllm", TEXT, lambda a, n: a.events == [*n.events, n.events[0]]),
    Case("two-dones", "vllm", TEXT, lambda a, n: a.events[-2:] == ["[DONE]", "[DONE]"]),
    Case(
        "comments-everywhere",
        "llama.cpp",
        CHAT,
        lambda a, n: a.body.startswith(b": ping") and a.body.count(b":\n\n") == len(n.events) and a.events == n.events,
    ),
    Case(
        "comment-inside",
        "llama.cpp",
        CHAT,
        lambda a, n: a.body.count(b": inside\ndata: ") == len(n.events) and a.events == n.events,
    ),
    Case(
        "crlf",
        "vllm",
        CHAT,
        lambda a, n: a.body.replace(b"\r\n", b"\n") == n.body and a.body.count(b"\r\n") == n.body.count(b"\n"),
    ),
    Case("cr-only", "vllm", CHAT, lambda a, n: b"\n" not in a.body and a.body.replace(b"\r", b"\n") == n.body),
    Case("crlf-split", "vllm", TEXT, lambda a, n: a.raw.count(b"1\r\n\r\r\n1\r\n\n\r\n") == n.body.count(b"\n")),
    Case(
        "byte-by-byte", "vllm", TEXT, lambda a, n: a.body == n.body and b"2\r\n" not in a.raw.replace(b"\r\n2\r\n", b"")
    ),
    Case("odd-cuts", "vllm", TEXT, lambda a, n: a.body == n.body and a.raw.count(b"\r\n7\r\n") > 100),
    Case(
        "one-piece",
        "vllm",
        TEXT,
        lambda a, n: a.body == n.body and a.raw.endswith(b"\r\n0\r\n\r\n") and f"{len(n.body):x}\r\n".encode() in a.raw,
    ),
    Case(
        "multi-line-data",
        "vllm",
        TEXT,
        lambda a, n: a.events[:-1] == n.events[:-1] and a.body.count(b"data:") > 5 * len(n.events),
    ),
    Case(
        "no-blank-after-colon",
        "vllm",
        TEXT,
        lambda a, n: b"data: {" not in a.body and a.body.count(b"data:{") == len(n.events) - 1,
    ),
    Case("byte-order-mark", "vllm", TEXT, lambda a, n: a.body == b"\xef\xbb\xbf" + n.body),
    Case("invalid-utf8", "vllm", TEXT, lambda a, n: a.body == b"\xff" + n.body),
    Case("data-null", "llama.cpp", TEXT, lambda a, n: a.body == b"data: null\n\n" + n.body),
    Case("trailing-blank", "tensorrt-llm", CHAT, lambda a, n: a.body.count(b"} \n\n") == len(n.events) - 1),
    Case("unterminated-last-event", "vllm", TEXT, lambda a, n: a.body == n.body[:-1]),
    Case(
        "json-for-stream",
        "vllm",
        TEXT,
        lambda a, n: a.header("content-type") == "application/json" and "choices" in a.json,
    ),
    Case(
        "stream-for-json",
        "vllm",
        TEXT,
        lambda a, n: str(a.header("content-type")).startswith("text/event-stream"),
        stream=False,
    ),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.fault}-{case.runtime}")
def test_the_fault_does_what_it_says(case: Case) -> None:
    answer, normal = outcome(case)
    assert case.check(answer, normal), answer.raw[-900:]


def test_every_fault_of_the_table_has_a_case() -> None:
    assert {fault.name for fault in streams.FAULTS} == {case.fault for case in CASES}
