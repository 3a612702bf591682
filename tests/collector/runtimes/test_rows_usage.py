"""Where usage is and what is odd about it: rows U01 to U15 of the project's list of wire cases."""

from __future__ import annotations

import json

import pytest

from tasc_collector.canonical import canonical_bytes
from tasc_collector.runtimes.flags import DialectFlags, UsagePosition
from tasc_collector.runtimes.profile import Framing, Route
from tasc_collector.runtimes.result import Usage, UsageFlag
from tasc_collector.runtimes.verdict import AnswerReason, Outcome
from tests.support.answers import MODEL, one, read, sse

CHAT, TEXT, RESPONSES, NATIVE_CHAT = Route.CHAT_COMPLETIONS, Route.COMPLETIONS, Route.RESPONSES, Route.NATIVE_CHAT
SSE, JSON = Framing.SSE, Framing.JSON
COUNTS = {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8}


def numbers(usage):
    return (usage.input, usage.output, usage.total)


def test_u01_usage_on_a_chunk_of_its_own(reads, chunks):
    answer = reads("vllm", CHAT, SSE, sse(chunks.text("Hello", "stop"), chunks.usage(), "[DONE]"))
    assert answer.usage == Usage(5, 3, 8)


def test_u01_usage_elsewhere_does_not_count_where_a_chunk_of_its_own_is_promised(reads, chunks):
    body = sse(chunks.usage(), chunks.text("Hello", "stop", usage=COUNTS), "[DONE]")
    assert reads("vllm", CHAT, SSE, body).reason is AnswerReason.USAGE_MISSING


def test_u02_usage_on_the_finish_chunk(reads):
    answer = read(one("llama.cpp", TEXT, SSE))
    assert answer.usage == Usage(5, 3, 8, cached=1)


def test_u03_running_usage_gives_tokens_per_event_and_is_never_added(reads, chunks):
    running = [{"prompt_tokens": 5, "completion_tokens": n, "total_tokens": 5 + n} for n in (1, 3, 4)]
    body = sse(
        chunks.text("Hello", usage=running[0]),
        chunks.text(" there", usage=running[1]),
        chunks.text("!", "stop", usage=running[2]),
        chunks.usage(5, 4, 9),
        "[DONE]",
    )
    answer = reads("vllm", CHAT, SSE, body)
    assert numbers(answer.usage) == (5, 4, 9)
    assert [event.tokens for event in answer.events] == [1, 2, 1]
    every = DialectFlags(usage_position=UsagePosition.EVERY)
    assert numbers(reads("vllm", CHAT, SSE, body, flags=every).usage) == (5, 4, 9)


def test_u04_zeros_on_every_chunk_and_then_the_real_usage(reads, chunks):
    answer = read(one("ollama", TEXT, SSE))
    assert answer.usage == Usage(5, 3, 8)
    placeholder = sse(chunks.text("x", "stop", usage=dict.fromkeys(COUNTS, 0)), chunks.usage(), "[DONE]")
    assert reads("lm-studio", CHAT, SSE, placeholder).usage == Usage(5, 3, 8)
    assert [event.tokens for event in answer.events] == [None, None, None]


def test_u05_absent_usage_is_missing_and_never_zero(reads, chunks):
    answer = reads("vllm", CHAT, SSE, sse(chunks.text("Hello", "stop"), "[DONE]"))
    assert (answer.outcome, answer.reason, answer.usage) == (Outcome.TRUNCATED, AnswerReason.USAGE_MISSING, None)
    free = DialectFlags(usage_required=False)
    without = reads("vllm", CHAT, SSE, sse(chunks.text("Hello", "stop"), "[DONE]"), flags=free)
    assert (without.outcome, without.usage) == (Outcome.COMPLETED, None)


def test_u06_usage_null_on_all_chunks_but_the_last(reads, chunks):
    body = sse(chunks.text("Hello", usage=None), chunks.text("!", "stop", usage=None), chunks.usage(), "[DONE]")
    assert numbers(reads("tgi", CHAT, SSE, body).usage) == (5, 3, 8)


def test_u07_two_different_final_usages_are_flagged_and_the_last_is_kept(reads, chunks):
    body = sse(chunks.text("Hello", "stop"), chunks.usage(), chunks.usage(5, 4, 9), "[DONE]")
    answer = reads("vllm", CHAT, SSE, body)
    assert numbers(answer.usage) == (5, 4, 9)
    assert answer.usage.flags == {UsageFlag.CONFLICT}
    assert answer.usage.conflict
    same = reads("vllm", CHAT, SSE, sse(chunks.text("Hello", "stop"), chunks.usage(), chunks.usage(), "[DONE]"))
    assert not same.usage.conflict


def test_u08_empty_choices_without_usage_say_nothing(reads, chunks):
    extra = {"model": MODEL, "choices": [], "sglext": {"routed_experts": "AAAA"}}
    body = sse(chunks.text("Hello", "stop"), extra, chunks.usage(), "[DONE]")
    assert reads("sglang", CHAT, SSE, body).usage == Usage(5, 3, 8)
    only = reads("sglang", CHAT, SSE, sse(chunks.text("Hello", "stop"), extra, "[DONE]"))
    assert only.reason is AnswerReason.USAGE_MISSING


def test_u09_the_object_name_of_the_usage_chunk_does_not_matter():
    item = one("mlx-lm", TEXT, SSE)
    assert b'"object":"chat.completion","model"' in item.body
    assert read(item).usage == Usage(5, 3, 8, cached=0)


def test_u10_old_names_in_a_responses_body(reads):
    item = one("sglang", RESPONSES, JSON)
    assert b'"prompt_tokens":5' in item.body
    assert numbers(read(item).usage) == (5, 3, 8)
    assert reads("vllm", RESPONSES, JSON, item.body).reason is AnswerReason.USAGE_MISSING


def test_u11_a_total_that_is_not_the_sum_is_flagged(reads, chunks):
    answer = reads("vllm", CHAT, SSE, sse(chunks.text("Hello", "stop"), chunks.usage(5, 3, 9), "[DONE]"))
    assert numbers(answer.usage) == (5, 3, 9)
    assert answer.usage.flags == {UsageFlag.TOTAL_DIFFERS}


def test_u12_usage_of_the_first_of_several_choices_is_flagged(reads, chunks):
    body = sse(
        chunks.text("Hello", "stop"),
        chunks.text("Bye", "stop", index=1),
        chunks.usage(),
        "[DONE]",
    )
    answer = reads("llama.cpp", CHAT, SSE, body, expected_choices=2)
    assert (answer.outcome, answer.choices, answer.text) == (Outcome.COMPLETED, 2, "Hello")
    assert answer.usage.flags == {UsageFlag.FIRST_CHOICE_ONLY}
    assert reads("vllm", CHAT, SSE, body, expected_choices=2).usage.flags == frozenset()


def test_u13_a_count_that_ollama_left_out_is_unknown(reads):
    line = {"model": MODEL, "message": {"content": ""}, "done": True, "done_reason": "stop", "prompt_eval_count": 5}
    answer = reads("ollama", NATIVE_CHAT, JSON, canonical_bytes(line))
    assert answer.outcome is Outcome.COMPLETED
    assert answer.usage == Usage(5, None, None)


def test_u14_hard_coded_zeros_are_unknown():
    answer = read(one("ollama", RESPONSES, JSON))
    assert (answer.usage.cached, answer.usage.reasoning) == (None, None)
    told = read(one("vllm", RESPONSES, JSON))
    assert (told.usage.cached, told.usage.reasoning) == (0, 0)


@pytest.mark.parametrize("bad", ["-1", "3.0", "1e3", "true", '"3"', "[3]", "10000000000"])
def test_u15_what_is_no_count_is_a_violation(reads, chunks, bad):
    body = sse(chunks.text("Hello", "stop"), chunks.usage(5, 424242, 8), "[DONE]").replace(b"424242", bad.encode())
    assert reads("vllm", CHAT, SSE, body).reason is AnswerReason.USAGE_INVALID
    native = json.dumps({"model": MODEL, "response": "x", "done": True, "done_reason": "stop", "eval_count": 424242})
    answer = reads("ollama", Route.NATIVE_GENERATE, JSON, native.replace("424242", bad).encode())
    assert answer.reason is AnswerReason.USAGE_INVALID


def test_u15_an_integer_beyond_every_exact_number_is_not_json(reads, chunks):
    body = sse(chunks.text("Hello", "stop"), chunks.usage(5, 424242, 8), "[DONE]").replace(
        b"424242", b"9007199254740993"
    )
    assert reads("vllm", CHAT, SSE, body).outcome is Outcome.PROTOCOL_VIOLATION


def test_usage_that_is_not_an_object_is_a_violation(reads, chunks):
    body = sse(chunks.text("Hello", "stop"), {"model": MODEL, "choices": [], "usage": [5, 3]}, "[DONE]")
    assert reads("vllm", CHAT, SSE, body).reason is AnswerReason.USAGE_INVALID


def test_zero_output_tokens_beside_output_are_flagged(reads, chunks):
    answer = reads("vllm", CHAT, SSE, sse(chunks.text("Hello", "stop"), chunks.usage(5, 0, 5), "[DONE]"))
    assert answer.usage.flags == {UsageFlag.ZERO_WITH_OUTPUT}


def test_details_larger_than_their_whole_are_flagged(reads, chunks):
    usage = chunks.usage(prompt_tokens_details={"cached_tokens": 6})
    answer = reads("vllm", CHAT, SSE, sse(chunks.text("Hello", "stop"), usage, "[DONE]"))
    assert answer.usage.flags == {UsageFlag.DETAIL_EXCEEDS}


def test_a_total_that_no_provider_reports_is_marked_as_derived():
    assert read(one("ollama", NATIVE_CHAT, JSON)).usage == Usage(5, 3, 8, flags=frozenset({UsageFlag.TOTAL_DERIVED}))
    studio = read(one("lm-studio", NATIVE_CHAT, JSON)).usage
    assert studio == Usage(5, 3, 8, reasoning=0, flags=frozenset({UsageFlag.TOTAL_DERIVED}))
    assert not studio.conflict


def test_reasoning_tokens_at_the_top_level_are_read(reads, chunks):
    answer = reads("sglang", CHAT, SSE, sse(chunks.text("Hello", "stop"), chunks.usage(reasoning_tokens=2), "[DONE]"))
    assert answer.usage.reasoning == 2
