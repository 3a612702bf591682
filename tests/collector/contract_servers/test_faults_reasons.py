"""Reason faults do on the wire what they say: the R rows."""

from __future__ import annotations

import pytest

from tasc_collector.contract_servers.faults import reasons
from tests.support.fault_cases import CHAT, RESPONSES, TEXT, Case, finishes, outcome

CASES = (
    Case(
        "finish-stop", "tgi", "/generate_stream", lambda a, n: a.events[-1]["details"]["finish_reason"] == "eos_token"
    ),
    Case("finish-length", "vllm", CHAT, lambda a, n: finishes(a) == ["length"]),
    Case(
        "finish-tool-calls",
        "vllm",
        CHAT,
        lambda a, n: finishes(a) == ["tool_calls"] and "tool_calls" in a.events[1]["choices"][0]["delta"],
    ),
    Case("raw-eos-token", "tgi", CHAT, lambda a, n: finishes(a) == ["eos_token"]),
    Case("raw-stop-sequence", "tgi", CHAT, lambda a, n: finishes(a) == ["stop_sequence"]),
    Case("finish-empty", "tgi", TEXT, lambda a, n: set(finishes(a)) == {""}),
    Case(
        "finish-null",
        "vllm",
        CHAT,
        lambda a, n: finishes(a) == [] and a.events[-1] == "[DONE]" and len(a.events) == len(n.events),
    ),
    Case(
        "done-without-finish", "llama.cpp", CHAT, lambda a, n: finishes(a) == [] and len(a.events) == len(n.events) - 1
    ),
    Case("finish-abort", "vllm", CHAT, lambda a, n: finishes(a) == ["abort"]),
    Case("finish-error", "vllm", CHAT, lambda a, n: finishes(a) == ["error"]),
    Case("finish-repetition", "vllm", CHAT, lambda a, n: finishes(a) == ["repetition"]),
    Case("finish-content-filter", "sglang", CHAT, lambda a, n: finishes(a) == ["content_filter"]),
    Case("finish-unknown", "vllm", CHAT, lambda a, n: finishes(a) == ["moonphase"]),
    Case("done-load", "ollama", "/api/chat", lambda a, n: a.lines[-1]["done_reason"] == "load"),
    Case("done-unload", "ollama", "/api/chat", lambda a, n: a.lines[-1]["done_reason"] == "unload"),
    Case(
        "done-without-reason",
        "ollama",
        "/api/chat",
        lambda a, n: a.lines[-1]["done"] and "done_reason" not in a.lines[-1],
    ),
    Case(
        "done-false",
        "ollama",
        "/api/chat",
        lambda a, n: a.json["done"] is False and "eval_count" not in a.json,
        stream=False,
    ),
    Case(
        "completed-incomplete",
        "llama.cpp",
        RESPONSES,
        lambda a, n: (a.events[-1]["type"], a.events[-1]["response"]["status"]) == ("response.completed", "incomplete"),
    ),
    Case(
        "completed-at-limit",
        "vllm",
        RESPONSES,
        lambda a, n: (a.events[-1]["type"], a.events[-1]["response"]["status"]) == ("response.completed", "completed"),
    ),
    Case(
        "response-incomplete",
        "vllm",
        RESPONSES,
        lambda a, n: a.events[-1]["type"] == "response.incomplete" and b"event: response.incomplete\n" in a.body,
    ),
    Case(
        "response-failed",
        "sglang",
        RESPONSES,
        lambda a, n: a.events[-1]["type"] == "response.failed" and a.events[-1]["sequence_number"] == len(a.events) - 1,
    ),
    Case(
        "no-terminal",
        "ollama",
        RESPONSES,
        lambda a, n: a.events == n.events[:-1] and a.events[-1]["type"] == "response.output_item.done",
    ),
    Case(
        "two-choices-one-finish",
        "vllm",
        CHAT,
        lambda a, n: finishes(a) == ["stop"] and {e["choices"][0]["index"] for e in a.events[:-2]} == {0, 1},
    ),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.fault}-{case.runtime}")
def test_the_fault_does_what_it_says(case: Case) -> None:
    answer, normal = outcome(case)
    assert case.check(answer, normal), answer.raw[-900:]


def test_every_fault_of_the_table_has_a_case() -> None:
    assert {fault.name for fault in reasons.FAULTS} == {case.fault for case in CASES}
