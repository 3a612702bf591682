"""Metrics routes count the calls that really came, with the gaps that the pinned builds have."""

from __future__ import annotations

import re

import pytest

from tasc_collector.contract_servers import CONTRACTS, Behaviour, ContractServer
from tests.support.wire_client import ask_body, call, connect, request_bytes

PATH = "/v1/completions"


def metric(server: ContractServer, name: str, path: str = "/metrics") -> float:
    """The one sample that begins with ``name``."""
    text = call(server.port, "GET", path).body.decode()
    found = re.findall(rf"^{re.escape(name)}(?:\{{[^}}]*\}})? (\S+)$", text, re.MULTILINE)
    assert len(found) == 1, name
    return float(found[0])


@pytest.mark.parametrize(
    ("runtime", "path", "prompt", "generated"),
    [
        ("vllm", PATH, "vllm:prompt_tokens_total", "vllm:generation_tokens_total"),
        ("sglang", PATH, "sglang:prompt_tokens_total", "sglang:generation_tokens_total"),
        ("llama.cpp", PATH, "llamacpp:prompt_tokens_total", "llamacpp:tokens_predicted_total"),
        ("tgi", "/generate", "tgi_request_input_length_sum", "tgi_request_generated_tokens_sum"),
    ],
)
def test_token_counters_add_up_over_calls(runtime: str, path: str, prompt: str, generated: str) -> None:
    field = CONTRACTS[runtime].inference[path].fields.prompt
    with ContractServer(runtime, behaviour=Behaviour(tokens=5)) as server:
        for _ in range(3):
            call(server.port, "POST", path, ask_body(field, server.model, stream=False))
        assert metric(server, prompt) == 3 * 4
        assert metric(server, generated) == 3 * 5


def test_vllm_counts_reasons_and_sums_times() -> None:
    with ContractServer("vllm", behaviour=Behaviour(tokens=4, ttft_ms=20, itl_ms=10)) as server:
        call(server.port, "POST", PATH, {"prompt": "ash"})
        call(server.port, "POST", PATH, {"prompt": "ash", "max_tokens": 2})
        text = call(server.port, "GET", "/metrics").body.decode()
        assert metric(server, "vllm:time_to_first_token_seconds_sum") == pytest.approx(0.04)
        assert metric(server, "vllm:e2e_request_latency_seconds_sum") == pytest.approx(0.05 + 0.03)
    assert 'finished_reason="stop",model_name="contract/vllm-small",engine="0"} 1' in text
    assert 'finished_reason="length",model_name="contract/vllm-small",engine="0"} 1' in text


def test_running_is_one_while_a_stream_is_open() -> None:
    with ContractServer("vllm", behaviour=Behaviour(fault="stall-body")) as server, connect(server.port) as sock:
        sock.sendall(request_bytes("POST", PATH, {"prompt": "ash", "stream": True}))
        assert sock.recv(1)
        assert metric(server, "vllm:num_requests_running") == 1


def leave_in_the_middle(server: ContractServer) -> None:
    with connect(server.port) as sock:
        sock.sendall(request_bytes("POST", PATH, {"prompt": "ash", "stream": True}))
        assert sock.recv(1)
    assert server.ledger.wait_for(lambda ledger: ledger.cancelled == 1)


def test_c03_llama_cpp_counts_the_prompt_of_a_call_that_was_left_but_no_output() -> None:
    with ContractServer("llama.cpp", behaviour=Behaviour(fault="stall-body")) as server:
        leave_in_the_middle(server)
        assert metric(server, "llamacpp:prompt_tokens_total") == 2
        assert metric(server, "llamacpp:tokens_predicted_total") == 0
        assert metric(server, "llamacpp:requests_processing") == 0


def test_c04_vllm_raises_no_abort_counter_when_a_client_leaves() -> None:
    with ContractServer("vllm", behaviour=Behaviour(fault="stall-body")) as server:
        leave_in_the_middle(server)
        text = call(server.port, "GET", "/metrics").body.decode()
        assert re.search(r'request_success_total\{finished_reason="abort"[^}]*\} 0\n', text)
        assert metric(server, "vllm:num_requests_running") == 0


def test_p03_tensorrt_llm_iteration_rows_are_drained_by_the_read() -> None:
    with ContractServer("tensorrt-llm") as server:
        for _ in range(2):
            call(server.port, "POST", PATH, {"model": server.model, "prompt": "ash"})
        rows = [call(server.port, "GET", "/metrics").json for _ in range(2)]
    assert [len(found) for found in rows] == [2, 0]
    assert rows[0][0]["kvCacheStats"]["usedNumBlocks"] == 10


def test_a_generating_health_check_raises_the_generation_counter() -> None:
    with ContractServer("sglang") as server:
        call(server.port, "GET", "/health_generate")
        assert metric(server, "sglang:generation_tokens_total") == 1


@pytest.mark.parametrize("runtime", ["vllm", "sglang", "llama.cpp", "tgi"])
def test_an_exposition_is_lines_of_comments_and_samples_ended_by_a_newline(runtime: str) -> None:
    with ContractServer(runtime) as server:
        body = call(server.port, "GET", "/metrics").body.decode()
    assert body.endswith("\n")
    pattern = r'# (HELP|TYPE) \S+ .+|[a-zA-Z_:][\w:]*(\{([a-z_]+="[^"]*",?)*\})? \S+'
    assert [line for line in body.splitlines() if not re.fullmatch(pattern, line)] == []
