"""Requests are refused, ignored or reflected as the pinned builds do: the Q rows and the error shapes."""

from __future__ import annotations

from typing import Any

import pytest

from tasc_collector.contract_servers import Behaviour, ContractServer
from tests.support.wire_client import call, connect, drain, request_bytes

CHAT = "/v1/chat/completions"
MESSAGES = [{"role": "user", "content": "sentinel-in-the-prompt"}]


def post(runtime: str, path: str, body: Any, **behaviour: Any) -> Any:
    with ContractServer(runtime, behaviour=Behaviour(**behaviour)) as server:
        return call(server.port, "POST", path, body)


def test_q01_tensorrt_llm_refuses_an_unknown_field() -> None:
    answer = post(
        "tensorrt-llm", CHAT, {"model": "contract-trt-small", "messages": MESSAGES, "chat_template_kwargs": {}}
    )
    assert answer.status == 400
    assert (answer.json["object"], answer.json["param"]) == ("error", "chat_template_kwargs")


@pytest.mark.parametrize("runtime", ["vllm", "sglang", "llama.cpp", "ollama", "tgi", "mlx-lm", "lm-studio"])
def test_q01_the_other_runtimes_ignore_an_unknown_field(runtime: str) -> None:
    assert post(runtime, CHAT, {"messages": MESSAGES, "not_a_field": 1}).status == 200


def test_q02_ollama_ignores_max_completion_tokens_and_honours_max_tokens() -> None:
    ignored = post("ollama", CHAT, {"messages": MESSAGES, "max_completion_tokens": 2}, tokens=9)
    honoured = post("ollama", CHAT, {"messages": MESSAGES, "max_tokens": 2}, tokens=9)
    assert ignored.json["usage"]["completion_tokens"] == 9
    assert honoured.json["usage"]["completion_tokens"] == 2
    assert honoured.json["choices"][0]["finish_reason"] == "length"


def test_q03_s01_vllm_refuses_stream_options_without_stream_and_reflects_the_prompt() -> None:
    answer = post("vllm", CHAT, {"messages": MESSAGES, "stream_options": {"include_usage": True}})
    assert answer.status == 400
    assert answer.json["error"]["param"] == "stream_options"
    assert b"sentinel-in-the-prompt" in answer.body


def test_q04_tgi_refuses_both_caps_and_a_stop_that_is_no_array() -> None:
    both = post("tgi", CHAT, {"messages": MESSAGES, "max_tokens": 1, "max_completion_tokens": 1})
    stop = post("tgi", CHAT, {"messages": MESSAGES, "stop": "END"})
    assert (both.status, both.json["error_type"]) == (422, "validation")
    assert stop.status == 422


def test_q06_ollama_native_routes_stream_by_default() -> None:
    answer = post("ollama", "/api/chat", {"model": "contract-small:latest", "messages": MESSAGES}, tokens=2)
    assert [line["done"] for line in answer.lines] == [False, False, True]


def test_q08_the_ledger_names_the_headers_that_a_client_sent() -> None:
    with ContractServer("llama.cpp") as server:
        call(server.port, "POST", CHAT, {"messages": MESSAGES}, headers="X-Conversation-Id: 1\r\n")
        entry = server.ledger.entries[-1]
    assert entry.headers == ("host", "content-type", "content-length", "x-conversation-id", "connection")


def test_q09_mlx_lm_knows_no_path_with_a_query() -> None:
    with ContractServer("mlx-lm") as server:
        plain = call(server.port, "GET", "/health")
        query = call(server.port, "GET", "/health?x=1")
    assert plain.status == 200
    assert (query.status, query.body, query.header("content-type")) == (404, b"Not Found", "application/json")


def test_q10_vllm_refuses_another_content_type() -> None:
    with ContractServer("vllm") as server, connect(server.port) as sock:
        sock.sendall(request_bytes("POST", CHAT, {"messages": MESSAGES}).replace(b"application/json", b"text/plain"))
        answer = drain(sock)
    assert (answer.status, answer.json["error"]["message"]) == (400, "Unsupported Media Type")


@pytest.mark.parametrize(("runtime", "status"), [("vllm", 400), ("llama.cpp", 200), ("mlx-lm", 200), ("sglang", 400)])
def test_a_cap_of_zero_is_refused_or_gives_one_token(runtime: str, status: int) -> None:
    answer = post(runtime, CHAT, {"messages": MESSAGES, "max_tokens": 0})
    assert answer.status == status
    if status == 200:
        assert answer.json["usage"]["completion_tokens"] == 1


@pytest.mark.parametrize(
    "body", [{"max_tokens": 4}, {"messages": MESSAGES, "max_tokens": -1}, {"messages": MESSAGES, "max_tokens": "4"}]
)
def test_t15_mlx_lm_closes_without_a_byte_on_bad_parameters(body: dict[str, Any]) -> None:
    answer = post("mlx-lm", CHAT, body)
    assert (answer.raw, answer.end) == (b"", "eof")


def test_llama_cpp_answers_500_to_malformed_json_with_a_fragment_of_it() -> None:
    answer = post("llama.cpp", CHAT, b'{"messages": [{"content": "sentinel')
    assert answer.status == 500
    assert "sentinel" in answer.json["error"]["message"]


@pytest.mark.parametrize(
    ("runtime", "status"),
    [("vllm", 400), ("sglang", 400), ("ollama", 400), ("tgi", 400), ("mlx-lm", 400), ("lm-studio", 400)],
)
def test_malformed_json_is_a_400_elsewhere(runtime: str, status: int) -> None:
    assert post(runtime, CHAT, b"{").status == status


@pytest.mark.parametrize(("runtime", "path"), [("vllm", CHAT), ("ollama", CHAT), ("ollama", "/api/chat")])
def test_an_unknown_model_is_a_404(runtime: str, path: str) -> None:
    assert post(runtime, path, {"model": "nobody/has-this", "messages": MESSAGES}).status == 404


def test_an_empty_native_prompt_only_loads_the_model() -> None:
    answer = post("ollama", "/api/generate", {"model": "contract-small:latest", "prompt": ""})
    assert (answer.json["done"], answer.json["done_reason"]) == (True, "load")


def test_a_failed_validation_of_a_forced_stream_is_a_200_with_an_error_frame() -> None:
    answer = post("tgi", "/generate_stream", {"parameters": {}})
    assert answer.status == 200
    assert [event["error_type"] for event in answer.events] == ["generation"]


@pytest.mark.parametrize(
    ("runtime", "status", "body"),
    [
        ("vllm", 404, b'{"detail":"Not Found"}'),
        ("llama.cpp", 404, b'{"error":{"code":404,"message":"File Not Found","type":"not_found_error"}}'),
        ("ollama", 404, b"404 page not found"),
        ("tgi", 404, b""),
        ("lm-studio", 200, b'{"error":"Unexpected endpoint or method."}'),
    ],
)
def test_an_unknown_route_gets_the_runtimes_own_answer(runtime: str, status: int, body: bytes) -> None:
    with ContractServer(runtime) as server:
        answer = call(server.port, "GET", "/no/such/route")
    assert (answer.status, answer.body) == (status, body)
