"""Usage faults do on the wire what they say: the U rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tasc_collector.contract_servers.faults import usage
from tests.support.fault_cases import CHAT, RESPONSES, TEXT, Case, finishes, outcome, usages
from tests.support.wire_client import Received


def count(value: Any) -> Callable[[Received, Received], bool]:
    return lambda a, n: (
        usages(a)[-1]["completion_tokens"] == value and type(usages(a)[-1]["completion_tokens"]) is type(value)
    )


CASES = (
    Case("usage-separate", "llama.cpp", TEXT, lambda a, n: a.events[-2]["choices"] == [] and len(usages(a)) == 1),
    Case(
        "usage-on-finish",
        "vllm",
        CHAT,
        lambda a, n: len(usages(a)) == 1 and a.events[-2]["choices"][0]["finish_reason"] == "stop",
    ),
    Case(
        "usage-every-chunk",
        "vllm",
        TEXT,
        lambda a, n: [u["completion_tokens"] for u in usages(a)] == [1, 2, 3, 4, 5, 6, 6],
    ),
    Case(
        "usage-zeros-then-real",
        "vllm",
        TEXT,
        lambda a, n: [u["completion_tokens"] for u in usages(a)] == [0, 0, 0, 0, 0, 0, 6],
    ),
    Case("usage-absent", "vllm", CHAT, lambda a, n: usages(a) == [] and finishes(a) == ["stop"]),
    Case("usage-absent", "vllm", CHAT, lambda a, n: "usage" not in a.json, stream=False),
    Case(
        "usage-null-until-last",
        "vllm",
        TEXT,
        lambda a, n: usages(a)[:-1] == [None] * 6 and usages(a)[-1]["completion_tokens"] == 6,
    ),
    Case("usage-conflict", "vllm", CHAT, lambda a, n: [u["completion_tokens"] for u in usages(a)] == [6, 1]),
    Case(
        "empty-choices-extra",
        "sglang",
        CHAT,
        lambda a, n: "sglext" in a.events[-3] and a.events[-3]["choices"] == [] and "usage" not in a.events[-3],
    ),
    Case(
        "usage-object-chat",
        "vllm",
        TEXT,
        lambda a, n: a.events[-2]["object"] == "chat.completion" and a.events[0]["object"] == "text_completion",
    ),
    Case(
        "responses-old-usage-names",
        "vllm",
        RESPONSES,
        lambda a, n: set(a.json["usage"]) == {"prompt_tokens", "completion_tokens", "total_tokens"},
        stream=False,
    ),
    Case(
        "usage-sum-wrong",
        "vllm",
        TEXT,
        lambda a, n: usages(a)[-1] == {"prompt_tokens": 4, "completion_tokens": 6, "total_tokens": 11},
    ),
    Case(
        "usage-first-choice",
        "llama.cpp",
        CHAT,
        lambda a, n: finishes(a) == ["stop", "stop"] and usages(a)[-1]["completion_tokens"] == 6,
    ),
    Case(
        "counts-zero", "ollama", "/api/generate", lambda a, n: "eval_count" not in a.lines[-1] and a.lines[-1]["done"]
    ),
    Case("cached-zero", "vllm", TEXT, lambda a, n: usages(a)[-1]["prompt_tokens_details"] == {"cached_tokens": 0}),
    Case("usage-negative", "vllm", TEXT, count(-3)),
    Case("usage-float", "vllm", TEXT, count(3.5)),
    Case("usage-huge", "vllm", TEXT, count(9_007_199_254_740_993)),
    Case("usage-bool", "vllm", TEXT, count(True)),
    Case("usage-string", "vllm", TEXT, count("3")),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.fault}-{case.runtime}")
def test_the_fault_does_what_it_says(case: Case) -> None:
    answer, normal = outcome(case)
    assert case.check(answer, normal), answer.raw[-900:]


def test_every_fault_of_the_table_has_a_case() -> None:
    assert {fault.name for fault in usage.FAULTS} == {case.fault for case in CASES}
