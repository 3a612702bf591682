"""Every transport, framing and status fault does on the wire what its name says; a raw client looks at the bytes."""

from __future__ import annotations

import gzip
import json
import socket
from collections.abc import Callable
from typing import Any

import pytest

from tasc_collector.contract_servers import FAULTS, Behaviour, ContractServer, EntryKind
from tasc_collector.contract_servers.faults import framing, statuses, transport
from tasc_collector.contract_servers.faults.model import Moment
from tasc_collector.contract_servers.faults.statuses import LOCATION
from tasc_collector.contract_servers.generation import PROVIDER_TEXT
from tests.support.wire_client import Received, call, connect, drain, request_bytes

PATH = "/v1/completions"
STREAM = {"prompt": "name a tree", "stream": True, "stream_options": {"include_usage": True}}
WHOLE = {"prompt": "name a tree"}


def ask(
    fault: str | None, body: Any = STREAM, *, limit: int | None = None, timeout_s: float = 5.0, **behaviour: Any
) -> Received:
    with ContractServer("vllm", behaviour=Behaviour(tokens=6, fault=fault, **behaviour)) as server:
        return call(server.port, "POST", PATH, body, limit=limit, timeout_s=timeout_s)


NORMAL = ask(None)
NORMAL_JSON = ask(None, WHOLE)


def chunked_to_the_end(answer: Received) -> bool:
    return answer.raw.endswith(b"0\r\n\r\n")


# --- before an answer ------------------------------------------------------------------------------------------------


def test_refused_has_a_port_on_which_nothing_listens() -> None:
    with ContractServer("vllm", behaviour=Behaviour(fault="refused")) as server, pytest.raises(ConnectionRefusedError):
        connect(server.port)


def test_backlog_full_lets_a_connect_hang() -> None:
    with ContractServer("vllm", behaviour=Behaviour(fault="backlog-full")) as server, pytest.raises(TimeoutError):
        connect(server.port, timeout_s=0.5)


@pytest.mark.parametrize(
    ("fault", "end"), [("reset-at-accept", "reset"), ("close-at-accept", "eof"), ("silent-accept", "open")]
)
def test_faults_at_accept_answer_nothing(fault: str, end: str) -> None:
    with ContractServer("vllm", behaviour=Behaviour(fault=fault)) as server:
        try:
            with connect(server.port, timeout_s=0.5 if end == "open" else 5.0) as sock:
                seen = drain(sock)
        except ConnectionResetError:  # the reset may come before the connect has returned
            seen = Received(b"", "reset")
        assert seen == Received(b"", end)
        assert server.ledger.wait_for(lambda ledger: ledger.connections == 1)
        assert (server.ledger.requests, server.ledger.entries[0].fault) == (0, fault)


def test_a_fault_at_accept_can_hit_the_numbered_connections_only() -> None:
    with ContractServer("vllm", behaviour=Behaviour(fault="close-at-accept", fault_calls=frozenset({2}))) as server:
        answers = []
        for _ in range(3):
            with connect(server.port) as sock:
                sock.sendall(request_bytes("GET", "/version"))
                answers.append(drain(sock).raw[:15])
    assert answers == [b"HTTP/1.1 200 OK", b"", b"HTTP/1.1 200 OK"]


def head_of_a_large_request(server: ContractServer) -> tuple[socket.socket, bytes]:
    sock = connect(server.port, timeout_s=2.0)
    data = request_bytes("POST", PATH, {"prompt": "x" * 8_000_000})
    head, _, rest = data.partition(b"\r\n\r\n")
    sock.sendall(head + b"\r\n\r\n")
    return sock, rest


@pytest.mark.parametrize(("fault", "answer"), [("reset-in-request", b""), ("early-413", b"HTTP/1.1 413")])
def test_faults_at_the_head_break_off_before_the_body(fault: str, answer: bytes) -> None:
    with ContractServer("vllm", behaviour=Behaviour(fault=fault)) as server:
        sock, _ = head_of_a_large_request(server)
        with sock:
            received = drain(sock)
        assert (received.raw[:12], received.end) == (answer, "reset")
        assert server.ledger.wait_for(lambda ledger: ledger.partial_requests == 1)
        assert server.ledger.inference_calls == 0


def test_stop_reading_lets_a_large_body_get_stuck() -> None:
    with ContractServer("vllm", behaviour=Behaviour(fault="stop-reading")) as server:
        sock, rest = head_of_a_large_request(server)
        with sock, pytest.raises(TimeoutError):
            sock.sendall(rest * 4)


def test_early_faults_are_the_ones_that_act_before_an_answer() -> None:
    assert {name for name, fault in FAULTS.items() if fault.moment is not Moment.ANSWER} == {
        "refused",
        "backlog-full",
        "reset-at-accept",
        "close-at-accept",
        "silent-accept",
        "reset-in-request",
        "stop-reading",
        "early-413",
    }


# --- answers --------------------------------------------------------------------------------------------------------

Check = Callable[[Received], bool]

CHECKS: dict[str, tuple[Any, Check]] = {
    "close-before-status": (STREAM, lambda a: (a.raw, a.end) == (b"", "eof")),
    "reset-before-status": (STREAM, lambda a: (a.raw, a.end) == (b"", "reset")),
    "half-close": (STREAM, lambda a: (a.raw, a.end) == (b"", "eof")),
    "stall-headers": (STREAM, lambda a: (a.raw, a.end) == (b"", "open")),
    "partial-headers-stall": (STREAM, lambda a: (a.raw, a.end) == (NORMAL.raw[:27], "open")),
    "partial-headers-cut": (STREAM, lambda a: (a.raw, a.end) == (NORMAL.raw[:27], "eof")),
    "drip-headers": (STREAM, lambda a: 10 <= len(a.raw) < 60 and NORMAL.raw.startswith(a.raw)),
    "drip-body": (
        STREAM,
        lambda a: a.head == NORMAL.head and len(a.raw) < len(a.head) + 60 and NORMAL.raw.startswith(a.raw),
    ),
    "stall-body": (STREAM, lambda a: a.end == "open" and a.events == NORMAL.events[:3] and not chunked_to_the_end(a)),
    "body-cut": (STREAM, lambda a: a.end == "eof" and a.events == NORMAL.events[:3] and not chunked_to_the_end(a)),
    "reset-mid-body": (STREAM, lambda a: a.end == "reset" and a.events == NORMAL.events[:3]),
    "length-cut": (WHOLE, lambda a: a.end == "eof" and int(a.header("content-length") or 0) == len(a.body) + 64),
    "endless-1xx": (STREAM, lambda a: a.raw.count(b"HTTP/1.1 103") > 1_000 and b"200" not in a.raw),
    "endless-body": (STREAM, lambda a: a.body.count(b"data: {") > 500 and not chunked_to_the_end(a)),
    "eof-framed": (
        STREAM,
        lambda a: a.raw.startswith(b"HTTP/1.1") and a.header("transfer-encoding") is None and a.events == NORMAL.events,
    ),
    "close-delimited": (STREAM, lambda a: a.raw.startswith(b"HTTP/1.0") and a.body == NORMAL.body and a.end == "eof"),
    "gzip-body": (
        WHOLE,
        lambda a: a.header("content-encoding") == "gzip" and gzip.decompress(a.body) == NORMAL_JSON.body,
    ),
    "unknown-encoding": (WHOLE, lambda a: a.header("content-encoding") == "br" and a.body == NORMAL_JSON.body),
    "html-content-type": (
        STREAM,
        lambda a: a.header("content-type") == "text/html; charset=utf-8" and a.body == NORMAL.body,
    ),
    "no-content-type": (STREAM, lambda a: a.header("content-type") is None and a.body == NORMAL.body),
    "huge-headers": (WHOLE, lambda a: len(a.head) > 300_000 and a.body == NORMAL_JSON.body),
    "wide-headers": (WHOLE, lambda a: 60_000 < len(a.head) < 61_000 and a.body == NORMAL_JSON.body),
    "many-headers": (WHOLE, lambda a: a.head.count(b"\r\n") > 10_000 and a.body == NORMAL_JSON.body),
    "continue-then-answer": (STREAM, lambda a: a.raw.startswith(b"HTTP/1.1 100") and a.raw.endswith(NORMAL.raw)),
    "flood-1xx": (STREAM, lambda a: a.raw.count(b"HTTP/1.1 103") == 1_000 and a.raw.endswith(NORMAL.raw)),
    "extra-bytes": (STREAM, lambda a: a.raw == NORMAL.raw + b"these bytes belong to no response"),
    "second-response": (STREAM, lambda a: a.raw == NORMAL.raw + b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"),
    "both-framings": (
        STREAM,
        lambda a: a.header("transfer-encoding") == "chunked" and a.header("content-length") == "5",
    ),
    "two-lengths": (WHOLE, lambda a: a.head.lower().count(b"content-length:") == 3),
    "short-length": (WHOLE, lambda a: a.header("content-length") == "5" and a.body == NORMAL_JSON.body),
    "bad-chunk-size": (STREAM, lambda a: a.raw.partition(b"\r\n\r\n")[2].startswith(b"zz\r\n") and a.end == "eof"),
    "chunk-extension": (STREAM, lambda a: b";x=" + b"e" * 65_536 in a.raw and a.events == NORMAL.events),
    "trailer-flood": (
        STREAM,
        lambda a: a.raw.count(b"X-T") == 2_000 and a.events == NORMAL.events and a.raw.endswith(b"v\r\n\r\n"),
    ),
    "folded-header": (STREAM, lambda a: b"\r\nX-Folded: one\r\n two\r\n" in a.head),
    "nul-in-header": (STREAM, lambda a: b"\x00" in a.head),
    "bad-status-line": (STREAM, lambda a: a.raw.startswith(b"HTPP/1.1 200")),
    "http2-preface": (STREAM, lambda a: a.raw[:4] == b"\x00\x00\x12\x04" and b"HTTP" not in a.raw),
    "bad-request": (WHOLE, lambda a: a.status == 400 and a.json["error"]["message"] == PROVIDER_TEXT),
    "unauthorized": (WHOLE, lambda a: a.status == 401 and a.header("www-authenticate") == "Bearer"),
    "forbidden": (WHOLE, lambda a: a.status == 403),
    "not-found": (WHOLE, lambda a: a.status == 404),
    "overloaded-429": (WHOLE, lambda a: (a.status, a.header("retry-after")) == (429, "1")),
    "not-implemented": (WHOLE, lambda a: a.status == 501 and a.json["error"]["type"] == "not_supported_error"),
    "server-error": (WHOLE, lambda a: a.status == 500 and a.json["error"]["type"] == "InternalServerError"),
    "server-error-text": (WHOLE, lambda a: (a.status, a.body) == (500, b"Internal Server Error")),
    "unavailable-503": (WHOLE, lambda a: (a.status, a.header("retry-after")) == (503, "1")),
    "redirect": (WHOLE, lambda a: (a.status, a.header("location")) == (307, LOCATION)),
    "no-content": (WHOLE, lambda a: (a.status, a.body) == (204, b"")),
    "reset-content": (WHOLE, lambda a: (a.status, a.body) == (205, b"")),
    "partial-content": (WHOLE, lambda a: (a.status, a.header("content-range")) == (206, "bytes 0-5/99")),
    "null-body": (WHOLE, lambda a: (a.status, a.body) == (200, b"null")),
    "error-200": (WHOLE, lambda a: a.status == 200 and a.json["error"]["message"] == PROVIDER_TEXT),
    "empty-body": (WHOLE, lambda a: (a.status, a.body) == (200, b"")),
    "not-found-text": (
        WHOLE,
        lambda a: (a.status, a.body, a.header("content-type")) == (404, b"Not Found", "application/json"),
    ),
    "text-200": (WHOLE, lambda a: (a.status, a.body) == (200, b"Not Found")),
    "reflect-prompt": (WHOLE, lambda a: a.status == 400 and b"name a tree" in a.body),
}
"""Fault to (request body, what must be true of the received bytes)."""

LIMITS = {"endless-1xx": 200_000, "endless-body": 200_000, "drip-headers": 10, "drip-body": len(NORMAL.head) + 10}
"""Bytes after which the client has seen enough of what would go on."""
WAITING = {"stall-headers", "partial-headers-stall", "stall-body"}


@pytest.mark.parametrize("fault", sorted(CHECKS))
def test_the_fault_does_what_it_says(fault: str) -> None:
    body, check = CHECKS[fault]
    answer = ask(fault, body, limit=LIMITS.get(fault), timeout_s=0.6 if fault in WAITING else 20.0)
    assert check(answer), (answer.raw[:400], answer.end)


def test_every_fault_of_these_tables_is_tested() -> None:
    named = {fault.name for module in (transport, framing, statuses) for fault in module.FAULTS}
    early = {name for name in named if FAULTS[name].moment is not Moment.ANSWER}
    assert named - early == set(CHECKS)


@pytest.mark.parametrize(("fault", "end"), [("body-cut", "eof"), ("reset-mid-body", "reset"), ("stall-body", "open")])
def test_a_json_body_breaks_in_its_middle(fault: str, end: str) -> None:
    answer = ask(fault, WHOLE, timeout_s=0.6 if end == "open" else 5.0)
    assert NORMAL_JSON.body.startswith(answer.body)
    assert (len(answer.body), answer.end) == (len(NORMAL_JSON.body) // 2, end)


@pytest.mark.parametrize(("at", "texts"), [(0, 0), (1, 1), (5, 5)])
def test_a_broken_stream_stops_after_the_given_number_of_token_events(at: int, texts: int) -> None:
    answer = ask("body-cut", fault_at=at)
    assert [event["choices"][0]["text"] for event in answer.events] == [
        event["choices"][0]["text"] for event in NORMAL.events[:texts]
    ]


def test_retry_after_is_what_the_behaviour_says() -> None:
    assert ask("overloaded-429", WHOLE, retry_after_s=7).header("retry-after") == "7"
    assert ask("unavailable-503", WHOLE, retry_after_s=None).header("retry-after") is None


def test_a_redirected_client_finds_nobody_at_the_other_end() -> None:
    assert LOCATION.startswith("http://127.0.0.1:9/")


@pytest.mark.parametrize("runtime", ["vllm", "sglang", "llama.cpp", "ollama", "tgi", "lm-studio", "mlx-lm"])
def test_status_faults_speak_the_runtimes_error_shape(runtime: str) -> None:
    shapes = {
        "vllm": {"error"}, "llama.cpp": {"error"}, "ollama": {"error"}, "lm-studio": {"error"}, "mlx-lm": {"error"},
        "sglang": {"object", "message", "type", "param", "code"}, "tgi": {"error", "error_type"},
    }  # fmt: skip
    with ContractServer(runtime, behaviour=Behaviour(fault="server-error")) as server:
        answer = call(server.port, "POST", "/v1/chat/completions", {"messages": []})
    assert set(json.loads(answer.body)) == shapes[runtime]


def test_an_answer_that_a_fault_ends_still_counts_as_a_call() -> None:
    with ContractServer("vllm", behaviour=Behaviour(fault="close-before-status")) as server:
        call(server.port, "POST", PATH, WHOLE)
        call(server.port, "POST", PATH, WHOLE)
        assert server.ledger.inference_calls == 2
        assert [entry.fault for entry in server.ledger.entries if entry.kind is EntryKind.REQUEST] == [
            "close-before-status"
        ] * 2


def test_an_endless_answer_does_not_starve_the_other_connections() -> None:
    behaviour = Behaviour(fault="endless-body", fault_calls=frozenset({1}))
    with ContractServer("vllm", behaviour=behaviour) as server, connect(server.port, timeout_s=20) as greedy:
        greedy.sendall(request_bytes("POST", PATH, STREAM))
        assert greedy.recv(10)
        assert call(server.port, "POST", PATH, WHOLE, timeout_s=20).status == 200
