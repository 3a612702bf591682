"""Our requests to the contract servers and their answers through our readers: two sides written apart must agree.

The servers import nothing of the profiles, and every fault has the row of the list of wire cases that it stands for.
"""

from __future__ import annotations

import contextlib
import socket

import pytest

from tasc_collector.contract_servers import FAULTS, Behaviour, ContractServer
from tasc_collector.invocation.capture import CapturedAnswer, CaptureKind, read_capture
from tasc_collector.runtimes.profile import Framing, Route
from tasc_collector.runtimes.registry import get_profile, profiles
from tasc_collector.runtimes.request import BuiltRequest, Generation, Message, Role, build_request
from tasc_collector.runtimes.result import UsageFlag
from tests.support.answers import MODEL

CHATS = (Route.CHAT_COMPLETIONS, Route.NATIVE_CHAT)
PINS = {profile.runtime: profile.build for profile in profiles()}


def request(runtime: str, route: Route, *, stream: bool) -> BuiltRequest:
    messages = (Message(Role.USER, "name a tree"),) if route in CHATS else None
    prompt = None if route in CHATS else "name a tree"
    generation = Generation(MODEL, 8, stream, messages=messages, prompt=prompt)
    return build_request(get_profile(runtime, PINS[runtime]), route, generation)


def call(port: int, built: BuiltRequest) -> tuple[bytes, bool]:
    """All bytes of the response, and whether the connection broke."""
    head = (
        f"POST {built.path} HTTP/1.1\r\nHost: x\r\nAccept: {built.accept}\r\nContent-Type: {built.content_type}\r\n"
        f"Content-Length: {len(built.body)}\r\nConnection: close\r\n\r\n"
    )
    received, broken = b"", True
    with socket.create_connection(("127.0.0.1", port), 10) as connection, contextlib.suppress(ConnectionError):
        connection.sendall(head.encode() + built.body)
        while data := connection.recv(65536):
            received += data
        broken = False
    return received, broken


def answer_of(server: ContractServer, runtime: str, route: Route, *, stream: bool) -> CapturedAnswer:
    built = request(runtime, route, stream=stream)
    raw, broken = call(server.port, built)
    kind = CaptureKind(runtime, route, built.framing, raw_http=True, cut=broken, model=MODEL, max_tokens=8)
    return read_capture(raw, kind)


@pytest.mark.parametrize("profile", profiles(), ids=lambda profile: profile.runtime)
def test_every_route_and_framing_is_answered_and_read(profile):
    with ContractServer(profile.runtime, behaviour=Behaviour(tokens=5, model=MODEL)) as server:
        for route, invocation in profile.routes.items():
            for stream in (False, True):
                answer = answer_of(server, profile.runtime, route, stream=stream).answer
                assert (answer.outcome, answer.reason) == ("completed", "completed"), (route, stream, answer)
                assert answer.usage is not None
                assert answer.usage.output == 5
                assert len(answer.events) == (5 if stream else 0)
                assert answer.resolved_model == (MODEL if invocation.flags.names_model else None)
                assert answer.text


C, T, R, N, G = (
    Route.CHAT_COMPLETIONS,
    Route.COMPLETIONS,
    Route.RESPONSES,
    Route.NATIVE_CHAT,
    Route.NATIVE_GENERATE,
)
SSE, JSON, NDJSON = Framing.SSE, Framing.JSON, Framing.NDJSON
READ = (
    # row, fault, runtime, route, framing -> outcome, reason
    ("T01", "done-only", "vllm", C, SSE, "protocol_violation", "no-output"),
    ("T02", "error-then-done", "vllm", C, SSE, "provider_error", "error-frame"),
    ("T02", "error-then-done", "tgi", C, SSE, "provider_error", "error-frame"),
    ("T03", "error-usage-done", "sglang", C, SSE, "provider_error", "error-frame"),
    ("T04", "error-then-eof", "llama.cpp", C, SSE, "provider_error", "error-frame"),
    ("T04", "error-then-eof", "ollama", N, NDJSON, "provider_error", "error-frame"),
    ("T05", "eof-after-deltas", "mlx-lm", C, SSE, "truncated", "terminator-missing"),
    ("T05", "unterminated-last-event", "vllm", C, SSE, "truncated", "frame-incomplete"),
    ("T06", "body-cut", "vllm", R, SSE, "truncated", "transport-cut"),
    ("T06", "body-cut", "llama.cpp", C, SSE, "truncated", "transport-cut"),
    ("T07", "no-done", "mlx-lm", C, SSE, "truncated", "terminator-missing"),
    ("T08", "done-without-finish", "llama.cpp", C, SSE, "truncated", "finish-reason-missing"),
    ("T09", "frames-after-done", "vllm", C, SSE, "protocol_violation", "after-terminator"),
    ("T09", "two-dones", "vllm", C, SSE, "protocol_violation", "after-terminator"),
    ("T10", "comments-everywhere", "llama.cpp", C, SSE, "completed", "completed"),
    ("T10", "comment-inside", "tgi", C, SSE, "completed", "completed"),
    ("T11", "crlf", "vllm", C, SSE, "completed", "completed"),
    ("T11", "cr-only", "vllm", C, SSE, "completed", "completed"),
    ("T11", "crlf-split", "vllm", R, SSE, "completed", "completed"),
    ("T11", "byte-by-byte", "lm-studio", N, SSE, "completed", "completed"),
    ("T11", "multi-line-data", "vllm", R, SSE, "completed", "completed"),
    ("T11", "invalid-utf8", "vllm", C, SSE, "protocol_violation", "framing-invalid"),
    ("T12", "data-null", "llama.cpp", T, SSE, "completed", "completed"),
    ("T12", "data-null", "vllm", T, SSE, "protocol_violation", "not-an-object"),
    ("T13", "trailing-blank", "tensorrt-llm", C, SSE, "completed", "completed"),
    ("T14", "error-invalid-json", "vllm", C, SSE, "protocol_violation", "error-frame-invalid"),
    ("T14", "malformed-event", "vllm", C, SSE, "protocol_violation", "json-invalid"),
    ("T16", "null-body", "tensorrt-llm", C, JSON, "protocol_violation", "not-an-object"),
    ("T17", "error-200", "lm-studio", N, JSON, "provider_error", "error-body"),
    ("T19", "text-200", "mlx-lm", C, JSON, "protocol_violation", "json-invalid"),
    ("T20", "json-for-stream", "vllm", C, SSE, "protocol_violation", "content-type-mismatch"),
    ("T20", "stream-for-json", "vllm", R, JSON, "protocol_violation", "content-type-mismatch"),
    ("T21", "close-delimited", "mlx-lm", C, SSE, "completed", "completed"),
    ("U05", "usage-absent", "sglang", C, SSE, "truncated", "usage-missing"),
    ("U10", "responses-old-usage-names", "sglang", R, JSON, "completed", "completed"),
    ("U15", "usage-negative", "vllm", C, JSON, "protocol_violation", "usage-invalid"),
    ("U15", "usage-float", "ollama", N, NDJSON, "protocol_violation", "usage-invalid"),
    ("U15", "usage-string", "vllm", R, SSE, "protocol_violation", "usage-invalid"),
    ("R02", "raw-eos-token", "tgi", C, SSE, "completed", "completed"),
    ("R03", "finish-empty", "vllm", C, SSE, "truncated", "finish-reason-missing"),
    ("R04", "finish-abort", "vllm", C, SSE, "truncated", "finish-aborted"),
    ("R04", "finish-abort", "sglang", C, SSE, "truncated", "finish-aborted"),
    ("R05", "finish-error", "vllm", C, JSON, "provider_error", "finish-error"),
    ("R05", "finish-unknown", "vllm", C, JSON, "protocol_violation", "finish-reason-unknown"),
    ("R06", "done-load", "ollama", N, NDJSON, "protocol_violation", "not-an-inference"),
    ("R07", "done-without-reason", "ollama", G, NDJSON, "truncated", "finish-reason-missing"),
    ("R08", "done-false", "ollama", N, JSON, "truncated", "not-done"),
    ("R09", "completed-incomplete", "vllm", R, SSE, "completed", "completed"),
    ("R11", "response-incomplete", "vllm", R, SSE, "completed", "completed"),
    ("R12", "response-failed", "sglang", R, SSE, "provider_error", "response-failed"),
    ("R13", "no-terminal", "ollama", R, SSE, "truncated", "terminator-missing"),
    ("R13", "swallowed-error", "ollama", C, SSE, "truncated", "terminator-missing"),
    ("R14", "error-then-end", "lm-studio", N, SSE, "provider_error", "error-frame"),
    ("I01", "model-differs", "vllm", C, SSE, "protocol_violation", "model-mismatch"),
    ("I01", "model-switches", "vllm", C, SSE, "protocol_violation", "model-mismatch"),
    ("I02", "model-missing", "vllm", C, JSON, "protocol_violation", "model-missing"),
    ("I03", "model-path", "llama.cpp", C, SSE, "completed", "completed"),
    ("I04", "id-changing", "tensorrt-llm", C, SSE, "completed", "completed"),
    ("I05", "fingerprint-mismatch", "vllm", C, SSE, "completed", "completed"),
    ("I06", "remote-host", "ollama", N, NDJSON, "protocol_violation", "remote-model"),
    ("I07", "created-changing", "sglang", C, SSE, "completed", "completed"),
    ("S01", "reflect-prompt", "vllm", C, JSON, "provider_error", "http-status"),
    ("S05", "reasoning-first", "vllm", C, SSE, "completed", "completed"),
    ("S05", "encrypted-content", "ollama", R, SSE, "completed", "completed"),
    ("S07", "logprobs-unasked", "llama.cpp", C, SSE, "completed", "completed"),
)


@pytest.mark.parametrize(
    ("row", "fault", "runtime", "route", "framing", "outcome", "reason"),
    READ,
    ids=[f"{row}-{fault}-{runtime}-{route}-{framing}" for row, fault, runtime, route, framing, *_ in READ],
)
def test_a_fault_of_the_list_is_read_as_it_must_be(row, fault, runtime, route, framing, outcome, reason):
    assert row in FAULTS[fault].rows
    with ContractServer(runtime, behaviour=Behaviour(tokens=5, model=MODEL, fault=fault)) as server:
        answer = answer_of(server, runtime, route, stream=framing is not JSON).answer
    assert (answer.outcome, answer.reason) == (outcome, reason)


@pytest.mark.parametrize(
    ("fault", "runtime", "route", "flags"),
    [
        ("usage-conflict", "vllm", C, {UsageFlag.CONFLICT}),
        ("usage-sum-wrong", "vllm", C, {UsageFlag.TOTAL_DIFFERS}),
        ("usage-zeros-then-real", "lm-studio", C, set()),
        ("usage-every-chunk", "tensorrt-llm", C, set()),
        ("usage-null-until-last", "tgi", C, set()),
    ],
)
def test_odd_usage_is_flagged_and_the_answer_stands(fault, runtime, route, flags):
    with ContractServer(runtime, behaviour=Behaviour(tokens=5, model=MODEL, fault=fault)) as server:
        answer = answer_of(server, runtime, route, stream=True).answer
    assert answer.outcome == "completed"
    assert answer.usage is not None
    assert answer.usage.flags == flags


@pytest.mark.parametrize("runtime", ["vllm", "sglang", "llama.cpp", "ollama"])
def test_reasoning_and_answer_are_told_apart(runtime):
    with ContractServer(runtime, behaviour=Behaviour(tokens=3, reasoning_tokens=2, model=MODEL)) as server:
        answer = answer_of(server, runtime, C, stream=True).answer
    assert [event.kind for event in answer.events] == ["reasoning"] * 2 + ["answer"] * 3


BROKEN = (
    "body-cut",
    "reset-mid-body",
    "eof-after-deltas",
    "malformed-event",
    "error-then-eof",
    "unterminated-last-event",
    "server-error",
    "reset-before-status",
)
"""Faults after which a stream is whole in no dialect."""


@pytest.mark.parametrize("profile", profiles(), ids=lambda profile: profile.runtime)
def test_no_broken_stream_is_a_success_on_any_route_of_any_profile(profile):
    with ContractServer(profile.runtime, behaviour=Behaviour(tokens=5, model=MODEL)) as server:
        for route in profile.routes:
            assert answer_of(server, profile.runtime, route, stream=True).answer.outcome == "completed"
            for fault in BROKEN:
                server.behaviour = Behaviour(tokens=5, model=MODEL, fault=fault)
                answer = answer_of(server, profile.runtime, route, stream=True).answer
                assert answer.outcome in {"truncated", "provider_error", "protocol_violation"}, (route, fault)
                assert answer.usage is None or answer.usage.output == 5, "tokens are the server's count or unknown"
            server.behaviour = Behaviour(tokens=5, model=MODEL)
