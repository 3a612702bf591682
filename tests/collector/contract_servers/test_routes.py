"""Every runtime serves every route of its profile, in the shapes of its pinned build."""

from __future__ import annotations

from typing import Any

import pytest

from tasc_collector.contract_servers import CONTRACTS, Behaviour, ContractServer
from tasc_collector.contract_servers.runtimes.replies import SECRET_MARKER
from tasc_collector.runtimes.profile import Framing, RuntimeProfile
from tasc_collector.runtimes.registry import profiles
from tests.support.wire_client import Received, ask_body, call

MEDIA = {Framing.JSON: "application/json", Framing.SSE: "text/event-stream", Framing.NDJSON: "application/x-ndjson"}


def ask(server: ContractServer, path: str, *, stream: bool, **more: Any) -> Received:
    field = CONTRACTS[server.runtime].inference[path].fields.prompt
    return call(server.port, "POST", path, ask_body(field, server.model, stream=stream, **more))


@pytest.mark.parametrize("profile", profiles(), ids=lambda profile: profile.runtime)
def test_every_inference_route_of_the_profile_answers_in_its_framing(profile: RuntimeProfile) -> None:
    with ContractServer(profile.runtime, profile.build) as server:
        for invocation in profile.routes.values():
            for framing, path in invocation.paths.items():
                answer = ask(server, path, stream=framing is not Framing.JSON)
                assert (answer.status, str(answer.header("content-type")).split(";")[0]) == (200, MEDIA[framing]), path


@pytest.mark.parametrize("profile", profiles(), ids=lambda profile: profile.runtime)
def test_every_observation_route_of_the_profile_answers_200(profile: RuntimeProfile) -> None:
    with ContractServer(profile.runtime) as server:
        statuses = {route.path: call(server.port, "GET", route.path).status for route in profile.observations}
    assert statuses == dict.fromkeys(statuses, 200)


@pytest.mark.parametrize("profile", profiles(), ids=lambda profile: profile.runtime)
def test_the_pinned_build_is_the_profiles_build(profile: RuntimeProfile) -> None:
    assert CONTRACTS[profile.runtime].build == profile.build


def test_vllm_chat_stream_has_a_role_chunk_then_text_and_the_last_text_on_the_finish_chunk() -> None:
    with ContractServer("vllm", behaviour=Behaviour(tokens=2)) as server:
        answer = ask(server, "/v1/chat/completions", stream=True)
    role, text, last, usage, done = answer.events
    assert role["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert role["prompt_token_ids"] is None
    assert text["choices"][0]["finish_reason"] is None
    assert last["choices"][0]["finish_reason"] == "stop"
    assert last["choices"][0]["delta"]["content"]
    assert usage["choices"] == []
    assert usage["usage"] == {"prompt_tokens": 11, "completion_tokens": 2, "total_tokens": 13}
    assert usage["system_fingerprint"].startswith("vllm-0.26.0-")
    assert done == "[DONE]"


def test_vllm_completions_without_include_usage_has_no_usage_frame() -> None:
    with ContractServer("vllm", behaviour=Behaviour(tokens=3)) as server:
        answer = call(server.port, "POST", "/v1/completions", {"prompt": "name a tree", "stream": True})
    assert [isinstance(event, str) or "usage" in event for event in answer.events] == [False, False, False, True]


def test_vllm_marks_a_cut_responses_answer_as_incomplete_within_response_completed() -> None:
    with ContractServer("vllm", behaviour=Behaviour(tokens=9)) as server:
        answer = ask(server, "/v1/responses", stream=True, max_output_tokens=4)
    last = answer.events[-1]
    assert (last["type"], last["response"]["status"]) == ("response.completed", "incomplete")
    assert last["response"]["incomplete_details"] == {"reason": "max_output_tokens"}
    assert last["response"]["usage"]["output_tokens"] == 4
    assert [event["sequence_number"] for event in answer.events] == list(range(len(answer.events)))


def test_r10_llama_cpp_says_completed_although_the_cap_ended_the_answer() -> None:
    with ContractServer("llama.cpp", behaviour=Behaviour(tokens=9)) as server:
        answer = ask(server, "/v1/responses", stream=True, max_output_tokens=4)
    last = answer.events[-1]
    assert (last["type"], last["response"]["status"]) == ("response.completed", "completed")
    assert "sequence_number" not in last
    assert last["timings"]["predicted_n"] == 4


def test_llama_cpp_completions_carries_usage_and_timings_on_the_finish_chunk_unasked() -> None:
    with ContractServer("llama.cpp", behaviour=Behaviour(tokens=2)) as server:
        answer = call(server.port, "POST", "/v1/completions", {"prompt": "name a tree", "stream": True})
    *_, finish, done = answer.events
    assert done == "[DONE]"
    assert finish["choices"][0] == {"index": 0, "text": "", "finish_reason": "stop"}
    assert finish["usage"] == {"prompt_tokens": 4, "completion_tokens": 2, "total_tokens": 6}
    assert finish["timings"]["prompt_n"] == 4


def test_llama_cpp_answers_under_its_own_model_name_whatever_was_asked() -> None:
    with ContractServer("llama.cpp") as server:
        answer = call(server.port, "POST", "/v1/completions", {"prompt": "name a tree", "model": "something/else"})
    assert answer.json["model"] == "contract-small.gguf"


def test_tensorrt_llm_puts_usage_on_every_chunk_unless_continuous_stats_are_off() -> None:
    with ContractServer("tensorrt-llm", behaviour=Behaviour(tokens=3)) as server:
        running = ask(server, "/v1/completions", stream=True)
        terminal = call(
            server.port,
            "POST",
            "/v1/completions",
            {
                "model": server.model, "prompt": "name a tree", "stream": True,
                "stream_options": {"include_usage": True, "continuous_usage_stats": False},
            },
        )  # fmt: skip
    counts = [event["usage"]["completion_tokens"] for event in running.events if event != "[DONE]"]
    assert counts == [1, 2, 3, 3, 3]
    assert [event for event in terminal.events[:-2] if "usage" in event] == []
    assert terminal.events[-2]["usage"]["completion_tokens"] == 3


def test_ollama_native_lines_end_with_done_reason_and_nanosecond_durations() -> None:
    with ContractServer("ollama", behaviour=Behaviour(tokens=3, ttft_ms=4, itl_ms=2)) as server:
        body = {"model": server.model, "prompt": "name a tree"}
        answer = call(server.port, "POST", "/api/generate", body)
    assert answer.header("content-type") == "application/x-ndjson"
    assert [line["done"] for line in answer.lines] == [False, False, False, True]
    last = answer.lines[-1]
    assert (last["done_reason"], last["prompt_eval_count"], last["eval_count"], last["response"]) == ("stop", 4, 3, "")
    assert (last["total_duration"], last["eval_duration"]) == (8_000_000, 4_000_000)


def test_ollama_leaves_out_durations_that_are_zero() -> None:
    with ContractServer("ollama", behaviour=Behaviour(tokens=1)) as server:
        answer = ask(server, "/api/chat", stream=False)
    assert answer.json["eval_count"] == 1
    assert not {name for name in answer.json if name.endswith("_duration")}


def test_ollama_completions_have_zeros_on_every_chunk_and_the_truth_on_the_last() -> None:
    with ContractServer("ollama", behaviour=Behaviour(tokens=2)) as server:
        answer = ask(server, "/v1/completions", stream=True)
    assert [event["usage"]["completion_tokens"] for event in answer.events[:-1]] == [0, 0, 0, 2]


def test_tgi_generate_gives_counts_only_with_details_and_times_in_headers() -> None:
    with ContractServer("tgi", behaviour=Behaviour(tokens=2, ttft_ms=3, itl_ms=2)) as server:
        bare = call(server.port, "POST", "/generate", {"inputs": "name a tree"})
        full = call(server.port, "POST", "/generate", {"inputs": "name a tree", "parameters": {"details": True}})
    assert set(bare.json) == {"generated_text"}
    assert full.json["details"]["finish_reason"] == "eos_token"
    assert full.json["details"]["generated_tokens"] == 2
    assert (full.header("x-compute-time"), full.header("x-total-time")) == ("0.005", "5")


def test_tgi_stream_ends_with_generated_text_and_no_done() -> None:
    with ContractServer("tgi", behaviour=Behaviour(tokens=2)) as server:
        answer = call(
            server.port, "POST", "/generate_stream", {"inputs": "name a tree", "parameters": {"details": True}}
        )
    first, last = answer.events
    assert first["generated_text"] is None
    assert last["generated_text"] == first["token"]["text"] + last["token"]["text"]
    assert last["details"] == {"finish_reason": "eos_token", "generated_tokens": 2, "seed": None, "input_length": 4}


def test_tgi_chat_chunks_have_an_empty_id_a_role_each_and_null_usage() -> None:
    with ContractServer("tgi", behaviour=Behaviour(tokens=1)) as server:
        text, finish, usage, _ = ask(server, "/v1/chat/completions", stream=True).events
    assert (text["id"], text["usage"], text["choices"][0]["delta"]["role"]) == ("", None, "assistant")
    assert finish["choices"][0]["finish_reason"] == "stop"
    assert usage["usage"]["completion_tokens"] == 1


def test_lm_studio_events_go_from_chat_start_to_chat_end_and_keep_nothing_when_told() -> None:
    with ContractServer("lm-studio", behaviour=Behaviour(tokens=2, reasoning_tokens=1)) as server:
        answer = ask(server, "/api/v1/chat", stream=True, store=False)
        kept = ask(server, "/api/v1/chat", stream=False)
    assert [event["type"] for event in answer.events] == [
        "chat.start",
        "prompt_processing.start",
        "prompt_processing.progress",
        "prompt_processing.end",
        "reasoning.start",
        "reasoning.delta",
        "reasoning.end",
        "message.start",
        "message.delta",
        "message.delta",
        "message.end",
        "chat.end",
    ]
    result = answer.events[-1]["result"]
    assert result["stats"]["total_output_tokens"] == 3
    assert result["stats"]["reasoning_output_tokens"] == 1
    assert "response_id" not in result
    assert kept.json["response_id"].startswith("resp_")


def test_mlx_lm_speaks_http_1_0_begins_with_a_keepalive_and_ends_by_closing() -> None:
    with ContractServer("mlx-lm", behaviour=Behaviour(tokens=1)) as server:
        answer = ask(server, "/v1/completions", stream=True)
    assert answer.raw.startswith(b"HTTP/1.0 200 ")
    assert b"Content-type: text/event-stream" in answer.head
    assert b"Content-Length" not in answer.head
    assert answer.body.startswith(b": keepalive 1/1\n\n")
    assert answer.events[-2]["object"] == "chat.completion"
    assert (answer.events[-1], answer.end) == ("[DONE]", "eof")


def test_q07_mlx_lm_sends_no_done_after_stream_options_without_include_usage() -> None:
    with ContractServer("mlx-lm") as server:
        body = {"messages": [{"role": "user", "content": "hi"}], "stream": True, "stream_options": {}}
        answer = call(server.port, "POST", "/v1/chat/completions", body)
    assert answer.events[-1]["choices"][0]["finish_reason"] == "stop"


def test_sglang_counts_reasoning_at_the_top_level_and_uses_old_names_in_responses_json() -> None:
    with ContractServer("sglang", behaviour=Behaviour(tokens=2)) as server:
        chat = ask(server, "/v1/chat/completions", stream=True)
        responses = ask(server, "/v1/responses", stream=False)
    assert chat.events[1]["choices"][0]["delta"].keys() == {"content", "reasoning_content"}
    assert chat.events[-2]["usage"]["reasoning_tokens"] == 0
    assert responses.json["usage"] == {"prompt_tokens": 4, "completion_tokens": 2, "total_tokens": 6}


@pytest.mark.parametrize(
    ("runtime", "path"), [("sglang", "/server_info"), ("llama.cpp", "/props"), ("sglang", "/model_info")]
)
def test_s03_s04_information_routes_leak_what_the_pinned_builds_leak(runtime: str, path: str) -> None:
    with ContractServer(runtime) as server:
        assert SECRET_MARKER.encode() in call(server.port, "GET", path).body


def test_s06_terminal_responses_events_repeat_the_whole_text() -> None:
    with ContractServer("ollama", behaviour=Behaviour(answer_prefix="CANARY", tokens=3)) as server:
        answer = ask(server, "/v1/responses", stream=True)
    whole = "".join(event["delta"] for event in answer.events if event["type"] == "response.output_text.delta")
    assert whole.startswith("CANARY")
    assert answer.events[-1]["response"]["output"][0]["content"][0]["text"] == whole


@pytest.mark.parametrize("runtime", sorted(CONTRACTS))
def test_reasoning_comes_before_the_answer_and_counts_as_output(runtime: str) -> None:
    with ContractServer(runtime, behaviour=Behaviour(tokens=2, reasoning_tokens=2)) as server:
        answer = ask(server, "/v1/chat/completions", stream=True)
    deltas = [event["choices"][0]["delta"] for event in answer.events if event != "[DONE]" and event["choices"]]
    kinds = [
        "reasoning" if delta.get("reasoning") or delta.get("reasoning_content") else "text"
        for delta in deltas
        if delta.get("reasoning") or delta.get("reasoning_content") or delta.get("content")
    ]
    usage = [event["usage"] for event in answer.events if event != "[DONE]" and event.get("usage")]
    assert kinds == ["reasoning", "reasoning", "text", "text"]
    assert usage[-1]["completion_tokens"] == 4
