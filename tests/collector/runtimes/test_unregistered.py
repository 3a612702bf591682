"""Streams of servers without a profile, read with flags alone: those that docs/runtimes.md gives for them."""

from __future__ import annotations

import pytest

from tasc_collector.runtimes.flags import flags_from_value
from tasc_collector.runtimes.profile import Framing, Route
from tasc_collector.runtimes.verdict import AnswerReason, FinishReason, Outcome
from tasc_collector.runtimes.workflows import WORKFLOWS
from tests.support.answers import one, read, sse

CHAT, RESPONSES, SSE = Route.CHAT_COMPLETIONS, Route.RESPONSES, Framing.SSE
USAGE = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}


def flags_of(name, route):
    (found,) = (item.flags[route] for item in WORKFLOWS if item.name == name)
    return flags_from_value(found)


def reading(name, route, body, **options):
    return read(one("vllm", route, SSE), body, flags=flags_of(name, route), **options)


def chunk(delta, finish=None, **more):
    choice = {"index": 0, "delta": delta, **({} if finish is None else {"finish_reason": finish})}
    return {"id": "req-1", "object": "chat.completion.chunk", "model": "demo-1", "choices": [choice], **more}


TRANSFORMERS = sse(
    chunk({"role": "assistant"}),
    chunk({"content": "Hello"}),
    chunk({"content": "!"}),
    chunk({}, "stop", usage=USAGE),
)


def test_transformers_serve_ends_without_done():
    answer = reading("Transformers Serve", CHAT, TRANSFORMERS)
    assert (answer.outcome, answer.finish_reason, len(answer.events)) == (Outcome.COMPLETED, FinishReason.STOP, 2)
    assert (answer.usage.input, answer.usage.output, answer.usage.total) == (5, 2, 7)
    for size in range(len(TRANSFORMERS)):
        assert reading("Transformers Serve", CHAT, TRANSFORMERS[:size]).outcome is Outcome.TRUNCATED


def test_transformers_serve_errors():
    half = sse(chunk({"content": "Hello"}))
    assert reading("Transformers Serve", CHAT, half + sse({"error": "x"})).reason is AnswerReason.ERROR_FRAME
    broken = reading("Transformers Serve", CHAT, half + sse('{"error": "it is a "quote""}'))
    assert broken.reason is AnswerReason.ERROR_FRAME_INVALID


def test_transformers_serve_responses_have_no_event_lines():
    final = {"model": "demo-1", "status": "completed", "output": [], "usage": {"input_tokens": 5, "output_tokens": 2}}
    body = sse(
        {"type": "response.created", "sequence_number": 0, "response": {"model": "demo-1", "status": "queued"}},
        {"type": "response.output_text.delta", "sequence_number": 1, "delta": "Hello"},
        {"type": "response.completed", "sequence_number": 2, "response": final},
    )
    answer = reading("Transformers Serve", RESPONSES, body, max_tokens=2)
    assert (answer.outcome, answer.finish_reason) == (Outcome.COMPLETED, FinishReason.UNAVAILABLE)
    assert answer.length_suspected


def test_dynamo_has_done_after_responses_too():
    def events(name, **response):
        return sse(
            ("response.created", {"type": "response.created", "sequence_number": 0, "response": {"model": "demo-1"}}),
            ("response.output_text.delta", {"type": "response.output_text.delta", "sequence_number": 1, "delta": "Hi"}),
            (name, {"type": name, "sequence_number": 2, "response": {"model": "demo-1", "output": [], **response}}),
            "[DONE]",
        )

    usage = {"input_tokens": 5, "output_tokens": 2, "total_tokens": 7}
    cut = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}, "usage": usage}
    answer = reading("NVIDIA Dynamo", RESPONSES, events("response.incomplete", **cut))
    assert (answer.outcome, answer.finish_reason) == (Outcome.COMPLETED, FinishReason.LENGTH)
    failed = reading("NVIDIA Dynamo", RESPONSES, events("response.failed", status="failed", usage=None))
    assert failed.reason is AnswerReason.RESPONSE_FAILED
    whole = events("response.completed", status="completed", usage=usage)
    assert reading("NVIDIA Dynamo", RESPONSES, whole).finish_reason is FinishReason.STOP
    assert (
        reading("NVIDIA Dynamo", RESPONSES, whole.replace(b"data: [DONE]\n\n", b"")).reason
        is AnswerReason.TERMINATOR_MISSING
    )


def test_dynamo_error_frames_are_flat():
    body = sse(chunk({"content": "Hi"}), {"message": "x", "type": "overloaded", "code": 503}, "[DONE]")
    assert reading("NVIDIA Dynamo", CHAT, body).reason is AnswerReason.ERROR_FRAME


def test_a_stream_that_llama_cpp_python_gave_up_is_not_complete():
    interrupted = sse(chunk({"content": "Hi"}), "[DONE]")
    assert reading("llama-cpp-python server", CHAT, interrupted).reason is AnswerReason.FINISH_REASON_MISSING
    whole = sse(chunk({"content": "Hi"}), chunk({}, "stop"), "[DONE]")
    answer = reading("llama-cpp-python server", CHAT, b": ping - now\r\n\r\n" + whole)
    assert (answer.outcome, answer.usage, answer.comments) == (Outcome.COMPLETED, None, 1)


def test_localai_has_empty_reasons_and_zeros_before_the_end():
    zeros = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
    body = sse(
        chunk({"content": "Hi"}, "", usage=zeros),
        chunk({"content": "!"}, "", usage=zeros),
        chunk({}, "stop", usage=USAGE),
        "[DONE]",
    )
    answer = reading("LocalAI", CHAT, body)
    assert (answer.outcome, answer.usage.total, answer.usage.conflict) == (Outcome.COMPLETED, 7, False)


def test_xinference_ends_lines_with_crlf():
    whole = sse(chunk({"content": "Hi"}), chunk({}, "stop", usage=USAGE), "[DONE]").replace(b"\n", b"\r\n")
    assert reading("Xinference", CHAT, whole).outcome is Outcome.COMPLETED
    broken = sse(chunk({"content": "Hi"}), {"error": "x"}).replace(b"\n", b"\r\n")
    assert reading("Xinference", CHAT, broken).reason is AnswerReason.ERROR_FRAME


@pytest.mark.parametrize("flags", [{}, {"usage_position": "finish"}])
def test_usage_may_be_anywhere_unless_the_file_says_where(flags):
    early = sse(chunk({"content": "Hi"}, usage=USAGE), chunk({}, "stop"), "[DONE]")
    answer = read(one("vllm", CHAT, SSE), early, flags=flags_from_value(flags))
    assert (answer.reason is AnswerReason.COMPLETED) is (flags == {})
