"""Identity and content faults do on the wire what they say: the I and S rows."""

from __future__ import annotations

import pytest

from tasc_collector.contract_servers.faults import identity
from tasc_collector.contract_servers.faults.identity import ENCRYPTED, MODEL_PATH
from tests.support.fault_cases import CHAT, RESPONSES, TEXT, Case, finishes, outcome, usages

CASES = (
    Case("model-differs", "vllm", TEXT, lambda a, n: a.events[0]["model"] == "contract/impostor"),
    Case(
        "model-switches",
        "vllm",
        TEXT,
        lambda a, n: [e["model"] for e in a.events[:-1]] == ["contract/vllm-small"] * 3 + ["contract/impostor"] * 4,
    ),
    Case("model-missing", "vllm", TEXT, lambda a, n: not any("model" in event for event in a.events[:-1])),
    Case("model-null", "vllm", TEXT, lambda a, n: all(event["model"] is None for event in a.events[:-1])),
    Case("model-path", "llama.cpp", TEXT, lambda a, n: a.events[0]["model"] == MODEL_PATH),
    Case("id-empty", "vllm", TEXT, lambda a, n: {event["id"] for event in a.events[:-1]} == {""}),
    Case(
        "id-changing",
        "tensorrt-llm",
        TEXT,
        lambda a, n: len({event["id"] for event in a.events[:-1]}) == len(a.events) - 1,
    ),
    Case("id-colliding", "vllm", TEXT, lambda a, n: int(a.events[0]["id"].removeprefix("cmpl-")) < 999),
    Case("fingerprint-mismatch", "vllm", TEXT, lambda a, n: a.events[-2]["system_fingerprint"] == "vllm-0.1.0-0"),
    Case("remote-host", "ollama", "/api/chat", lambda a, n: all(line["remote_host"] for line in a.lines)),
    Case(
        "remote-model", "ollama", "/api/chat", lambda a, n: all(line["remote_model"] == "big:cloud" for line in a.lines)
    ),
    Case(
        "created-changing",
        "sglang",
        CHAT,
        lambda a, n: len({event["created"] for event in a.events[:-1]}) == len(a.events) - 1,
    ),
    Case("echo-request-id", "vllm", TEXT, lambda a, n: a.header("x-request-id") is not None and a.body == n.body),
    Case(
        "reasoning-first",
        "sglang",
        CHAT,
        lambda a, n: (
            [e["choices"][0]["delta"]["reasoning_content"] for e in a.events[1:4]]
            == [" secret", " chain", " of thought"]
        ),
    ),
    Case(
        "encrypted-content",
        "ollama",
        RESPONSES,
        lambda a, n: a.events[-1]["response"]["encrypted_content"] == ENCRYPTED,
    ),
    Case(
        "zero-content",
        "vllm",
        CHAT,
        lambda a, n: finishes(a) == ["stop"] and usages(a)[-1]["completion_tokens"] == 6 and len(a.events) == 4,
    ),
    Case("zero-content", "tgi", "/generate_stream", lambda a, n: [e["generated_text"] for e in a.events] == [""]),
    Case(
        "logprobs-unasked",
        "vllm",
        TEXT,
        lambda a, n: a.events[0]["choices"][0]["logprobs"]["tokens"] == [a.events[0]["choices"][0]["text"]],
    ),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.fault}-{case.runtime}")
def test_the_fault_does_what_it_says(case: Case) -> None:
    answer, normal = outcome(case)
    assert case.check(answer, normal), answer.raw[-900:]


def test_every_fault_of_the_table_has_a_case() -> None:
    assert {fault.name for fault in identity.FAULTS} == {case.fault for case in CASES}
