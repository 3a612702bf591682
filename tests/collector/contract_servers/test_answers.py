"""Answers follow from request and behaviour alone; times are planned, kept, and stamped."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest

from tasc_collector.contract_servers import CONTRACTS, Behaviour, ContractServer
from tasc_collector.contract_servers.asking import read_ask
from tasc_collector.contract_servers.contract import AnswerForm
from tasc_collector.contract_servers.frames import Frame, FrameKind, write_sse
from tasc_collector.contract_servers.generation import UsagePlace, case_digest, count_input_tokens, words
from tasc_collector.contract_servers.plan import schedule
from tasc_collector.contract_servers.responder import break_index, make_generation
from tasc_collector.errors import InputError
from tests.support.wire_client import Received, ask_body, call, connect, drain, request_bytes

PATH = "/v1/completions"


def post(server: ContractServer, prompt: str, **more: Any) -> Received:
    return call(server.port, "POST", PATH, {"prompt": prompt, **more})


@pytest.mark.parametrize("runtime", sorted(CONTRACTS))
def test_two_servers_give_the_same_bytes_for_the_same_request_in_any_order(runtime: str) -> None:
    def answers(order: tuple[str, ...]) -> dict[str, bytes]:
        with ContractServer(runtime) as server:
            return {text: call(server.port, "POST", "/v1/chat/completions", chat(server, text)).raw for text in order}

    def chat(server: ContractServer, text: str) -> dict[str, Any]:
        return {"model": server.model, "messages": [{"role": "user", "content": text}], "stream": True}

    assert answers(("ash", "birch")) == answers(("birch", "ash"))


def test_the_text_depends_on_the_case_and_the_seed() -> None:
    with ContractServer("vllm", behaviour=Behaviour(tokens=12)) as server:
        texts = {
            post(server, prompt, seed=seed).json["choices"][0]["text"] for prompt in ("ash", "birch") for seed in (1, 2)
        }
    assert len(texts) == 4


@pytest.mark.parametrize("stream", [False, True])
def test_the_prefix_stands_before_every_answer(stream: bool) -> None:
    with ContractServer("vllm", behaviour=Behaviour(answer_prefix="CANARY-1", tokens=2)) as server:
        first = post(server, "ash", stream=stream)
    event = first.events[0] if stream else first.json
    assert event["choices"][0]["text"].startswith("CANARY-1")


@pytest.mark.parametrize(
    ("cap", "tokens", "reason"), [(3, 3, "length"), (6, 6, "length"), (7, 6, "stop"), (None, 6, "stop")]
)
def test_the_cap_ends_an_answer_with_length(cap: int | None, tokens: int, reason: str) -> None:
    body = {"prompt": "ash", "max_tokens": cap} if cap is not None else {"prompt": "ash"}
    with ContractServer("vllm", behaviour=Behaviour(tokens=6)) as server:
        answer = call(server.port, "POST", PATH, body).json
    assert (answer["usage"]["completion_tokens"], answer["choices"][0]["finish_reason"]) == (tokens, reason)


def test_several_tokens_in_one_event_are_counted_as_several() -> None:
    with ContractServer("llama.cpp", behaviour=Behaviour(tokens=10, tokens_per_event=4)) as server:
        events = post(server, "ash", stream=True).events
    assert len([event for event in events[:-2] if event["choices"][0]["text"]]) == 3
    assert events[-2]["usage"]["completion_tokens"] == 10


def test_lengths_spread_over_cases_and_stay_within_the_spread() -> None:
    with ContractServer("vllm", behaviour=Behaviour(tokens=5, tokens_spread=4)) as server:
        lengths = {post(server, f"case {n}").json["usage"]["completion_tokens"] for n in range(30)}
    assert min(lengths) >= 5
    assert max(lengths) <= 9
    assert len(lengths) > 2


def test_input_tokens_are_a_quarter_of_the_canonical_bytes_rounded_up() -> None:
    assert [count_input_tokens(text) for text in ("", "abcdef", "abcdefg")] == [1, 2, 3]


def test_words_are_one_per_token_and_repeatable() -> None:
    digest = case_digest("ash")
    assert words(digest, 1, 40)[:5] == words(digest, 1, 5)
    assert len(words(digest, 1, 40)) == 40


# --- time -----------------------------------------------------------------------------------------------------------


def frames(*tokens: int) -> list[Frame]:
    return [Frame(FrameKind.TOKEN if count else FrameKind.META, tokens=count) for count in tokens]


def test_the_first_token_is_due_at_ttft_and_each_later_one_a_gap_after() -> None:
    assert schedule(frames(0, 1, 0, 1, 1, 0), 20, 5, None) == [0.02, 0.02, 0.02, 0.025, 0.03, 0.03]


def test_an_early_role_frame_is_due_before_the_first_token() -> None:
    assert schedule(frames(0, 1, 1), 20, 5, 1) == [0.001, 0.02, 0.025]


def test_a_stream_keeps_its_planned_gaps_by_its_own_stamps() -> None:
    behaviour = Behaviour(tokens=5, ttft_ms=30, itl_ms=20, stamp=True)
    with ContractServer("llama.cpp", behaviour=behaviour) as server:
        begun_ns = time.monotonic_ns()
        answer = post(server, "ash", stream=True)
    sent = [int(found) for found in re.findall(rb": sent_ns (\d+)\n", answer.body)]
    offsets_ms = [(at - begun_ns) / 1e6 for at in sent]
    assert len(sent) == 7  # five tokens, finish with usage, [DONE]
    assert sent == sorted(sent)
    assert all(at >= planned for at, planned in zip(offsets_ms, (30, 50, 70, 90, 110, 110, 110), strict=True))


def test_stamps_of_newline_delimited_json_are_a_field_of_every_line() -> None:
    with ContractServer("ollama", behaviour=Behaviour(tokens=2, stamp=True)) as server:
        answer = call(server.port, "POST", "/api/generate", {"model": server.model, "prompt": "ash"})
    assert [line["sent_ns"] > 0 for line in answer.lines] == [True, True, True]


def test_timing_spreads_by_case_within_its_share() -> None:
    contract = CONTRACTS["vllm"]
    route = contract.inference[PATH]
    behaviour = Behaviour(ttft_ms=100, itl_ms=10, timing_spread=0.2)
    times = []
    for number in range(40):
        ask = read_ask({"prompt": f"case {number}"}, route.fields)
        times.append(make_generation(contract, route, ask, case_digest(ask.prompt), behaviour).ttft_ms)
    assert min(times) >= 80
    assert max(times) <= 120
    assert max(times) - min(times) > 20


def test_a_json_answer_comes_after_its_last_planned_token() -> None:
    with ContractServer("vllm", behaviour=Behaviour(tokens=4, ttft_ms=40, itl_ms=20)) as server:
        begun_ns = time.monotonic_ns()
        post(server, "ash")
        assert (time.monotonic_ns() - begun_ns) / 1e6 >= 100


def test_events_that_are_due_together_can_share_a_write() -> None:
    with ContractServer("vllm", behaviour=Behaviour(tokens=10, events_per_write=4)) as server:
        grouped = post(server, "ash", stream=True)
    with ContractServer("vllm", behaviour=Behaviour(tokens=10)) as server:
        single = post(server, "ash", stream=True)
    assert grouped.raw == single.raw


# --- shared moulds --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("runtime", sorted(CONTRACTS))
@pytest.mark.parametrize("logprobs", [False, True])
def test_a_mould_writes_the_same_bytes_as_encoding_every_chunk(runtime: str, logprobs: bool) -> None:
    contract = CONTRACTS[runtime]
    for route in contract.inference.values():
        if route.dialect.form is not AnswerForm.SSE:
            continue
        ask = read_ask({route.fields.prompt: "ash", "stream": True, "logprobs": logprobs}, route.fields)
        plain = make_generation(contract, route, ask, case_digest("ash"), Behaviour(tokens=40))
        moulded = make_generation(contract, route, ask, case_digest("ash"), Behaviour(tokens=40), moulded=True)
        spaced = contract.http.spaced_json
        expected = [write_sse(frame, spaced=spaced) for frame in route.dialect.frames(plain)]
        assert [write_sse(frame, spaced=spaced) for frame in route.dialect.frames(moulded)] == expected


def test_running_usage_is_never_moulded() -> None:
    contract = CONTRACTS["tensorrt-llm"]
    route = contract.inference[PATH]
    ask = read_ask({"prompt": "ash", "stream": True, "stream_options": {"include_usage": True}}, route.fields)
    made = make_generation(contract, route, ask, case_digest("ash"), Behaviour(tokens=3), moulded=True)
    assert [frame.mould for frame in route.dialect.frames(made)] == [None] * 6
    assert made.usage_place in (None, UsagePlace.EVERY)


# --- faults: which calls --------------------------------------------------------------------------------------------


def test_break_index_is_in_the_middle_or_after_the_given_number_of_token_events() -> None:
    events = frames(0, 1, 1, 1, 1, 0, 0)
    assert [break_index(events, at) for at in (None, 0, 1, 4, 99)] == [3, 1, 2, 5, 5]


def test_a_fault_hits_the_numbered_calls_only() -> None:
    behaviour = Behaviour(fault="unavailable-503", fault_calls=frozenset({2, 4}))
    with ContractServer("vllm", behaviour=behaviour) as server:
        statuses = [post(server, f"case {n}").status for n in range(5)]
        assert call(server.port, "GET", "/health").status == 200
        faults = [entry.fault for entry in server.ledger.entries if entry.inference]
    assert statuses == [200, 503, 200, 503, 200]
    assert faults == ["", "unavailable-503", "", "unavailable-503", ""]


def test_a_share_of_calls_is_chosen_by_case_and_seed_not_by_order() -> None:
    def hit(order: list[int], seed: int) -> set[int]:
        with ContractServer("vllm", behaviour=Behaviour(fault="server-error", fault_share=0.3, seed=seed)) as server:
            return {n for n in order if post(server, f"case {n}").status == 500}

    forward, backward, other = hit(list(range(40)), 1), hit(list(reversed(range(40))), 1), hit(list(range(40)), 2)
    assert forward == backward
    assert forward != other
    assert 4 <= len(forward) <= 22


@pytest.mark.parametrize(
    ("scope", "inference", "observation"), [(None, 429, 200), ("observation", 200, 429), ("all", 429, 429)]
)
def test_the_scope_says_which_calls_a_fault_may_hit(scope: Any, inference: int, observation: int) -> None:
    with ContractServer("vllm", behaviour=Behaviour(fault="overloaded-429", fault_scope=scope)) as server:
        assert post(server, "ash").status == inference
        assert call(server.port, "GET", "/v1/models").status == observation


def test_the_behaviour_can_change_while_the_server_runs() -> None:
    with ContractServer("vllm") as server:
        before = post(server, "ash").status
        server.behaviour = Behaviour(fault="server-error")
        after = post(server, "ash").status
        server.behaviour = Behaviour()
        assert (before, after, post(server, "ash").status) == (200, 500, 200)


# --- bad input ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "words_"),
    [
        (lambda: ContractServer("nobody"), "choose one of: llama.cpp"),
        (lambda: ContractServer("vllm", "9.9.9"), "use the pinned build 0.26.0"),
        (lambda: ContractServer("vllm", behaviour=Behaviour(fault="no-such")), "--list-faults"),
        (lambda: Behaviour(fault_share=1.5), "fault_share: the value is out of range"),
        (lambda: Behaviour(ttft_ms=-1), "ttft_ms"),
    ],
)
def test_bad_arguments_are_refused_with_a_way_out(make: Any, words_: str) -> None:
    with pytest.raises(InputError, match=re.escape(words_)):
        make()


def test_a_taken_port_is_refused_with_a_way_out() -> None:
    with ContractServer("vllm") as server, pytest.raises(InputError, match="choose another port"):
        ContractServer("vllm", port=server.port)


def test_a_listening_fault_cannot_be_switched_on_later() -> None:
    with ContractServer("vllm") as server, pytest.raises(InputError, match="give it when the server is made"):
        server.behaviour = Behaviour(fault="refused")


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00", 400),
        (b"GET /health HTTP/1.1\r\nHost x\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", 411),
        (b"POST / HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n", 413),
        (b"GET /" + b"a" * 70_000, 431),
    ],
)
def test_what_is_no_acceptable_request_is_answered_and_the_connection_ends(sent: bytes, status: int) -> None:
    with ContractServer("vllm") as server, connect(server.port) as sock:
        sock.sendall(sent)
        assert drain(sock).status == status
        assert server.ledger.requests == 0


def test_a_client_that_half_closes_still_gets_its_answer() -> None:
    with ContractServer("vllm", behaviour=Behaviour(ttft_ms=20, tokens=2)) as server, connect(server.port) as sock:
        sock.sendall(request_bytes("POST", PATH, ask_body("prompt", server.model, stream=True)))
        sock.shutdown(1)
        assert drain(sock).events[-1] == "[DONE]"
