"""Terminators, error frames and framing: rows T01 to T21 of the project's list of wire cases."""

from __future__ import annotations

import pytest

from tasc_collector.runtimes.answer import AnswerReader
from tasc_collector.runtimes.flags import DialectFlags, UsagePosition
from tasc_collector.runtimes.profile import Framing, Route
from tasc_collector.runtimes.registry import get_profile, profiles
from tasc_collector.runtimes.verdict import AnswerReason, FinishReason, Outcome
from tests.support.answers import AT_ONCE, MODEL, one, read, sse

CHAT, TEXT, RESPONSES, NATIVE_CHAT = Route.CHAT_COMPLETIONS, Route.COMPLETIONS, Route.RESPONSES, Route.NATIVE_CHAT
SSE, JSON = Framing.SSE, Framing.JSON


def test_t01_done_without_a_choice_is_a_violation(reads):
    assert reads("vllm", CHAT, SSE, b"data: [DONE]\n\n").reason is AnswerReason.NO_OUTPUT
    assert reads("vllm", CHAT, SSE, b"data: [DONE]\n\n").outcome is Outcome.PROTOCOL_VIOLATION


@pytest.mark.parametrize("runtime", ["vllm", "sglang", "tgi"])
def test_t02_error_frame_then_done_is_a_provider_error(reads, chunks, runtime):
    body = sse(chunks.text("Hello"), chunks.error(), "[DONE]")
    assert reads(runtime, CHAT, SSE, body).reason is AnswerReason.ERROR_FRAME


def test_t03_usage_after_an_error_frame_is_not_accepted(reads, chunks):
    answer = reads("sglang", CHAT, SSE, sse(chunks.text("Hello"), chunks.error(), chunks.usage(), "[DONE]"))
    assert (answer.outcome, answer.usage) == (Outcome.PROVIDER_ERROR, None)


def test_t04_error_frame_and_clean_end_is_a_provider_error(reads, chunks):
    assert reads("llama.cpp", CHAT, SSE, sse(chunks.text("Hello"), chunks.error())).reason is AnswerReason.ERROR_FRAME


def test_an_error_frame_wins_over_everything_before_and_after_it(reads, chunks):
    whole = [chunks.text("Hello", "stop"), chunks.usage(), "[DONE]"]
    for place in range(len(whole) + 1):
        body = sse(*whole[:place], chunks.error(), *whole[place:])
        assert reads("vllm", CHAT, SSE, body).outcome is Outcome.PROVIDER_ERROR, place
        assert reads("vllm", CHAT, SSE, body, clean_end=False).outcome is Outcome.PROVIDER_ERROR, place


def test_an_event_named_error_is_an_error_whatever_it_holds(reads, chunks):
    body = sse(chunks.text("Hello"), ("error", {"anything": 1}), "[DONE]")
    assert reads("lm-studio", CHAT, SSE, body).reason is AnswerReason.ERROR_FRAME


def test_t05_clean_end_after_deltas_is_truncated(reads, chunks):
    answer = reads("mlx-lm", CHAT, SSE, sse(chunks.text("Hello"), chunks.text(" there")))
    assert (answer.outcome, answer.reason) == (Outcome.TRUNCATED, AnswerReason.TERMINATOR_MISSING)
    assert answer.partial_output


@pytest.mark.parametrize(("runtime", "route"), [("vllm", RESPONSES), ("llama.cpp", CHAT)])
def test_t06_an_unfinished_chunked_body_is_truncated(runtime, route):
    item = one(runtime, route, SSE)
    assert read(item, item.body[:-40], clean_end=False).reason is AnswerReason.TRANSPORT_CUT


def test_t07_finish_reason_without_done_is_truncated_unless_the_profile_has_no_done(reads, chunks):
    body = sse(chunks.text("Hello"), chunks.text("", "stop", usage=chunks.usage()["usage"]))
    assert reads("mlx-lm", CHAT, SSE, body).reason is AnswerReason.TERMINATOR_MISSING
    no_done = DialectFlags(has_done=False, usage_position=UsagePosition.FINISH)
    assert reads("mlx-lm", CHAT, SSE, body, flags=no_done).outcome is Outcome.COMPLETED
    assert (
        reads("mlx-lm", CHAT, SSE, sse(chunks.text("Hello")), flags=no_done).reason
        is AnswerReason.FINISH_REASON_MISSING
    )


def test_t08_done_without_a_finish_reason_is_truncated(reads, chunks):
    answer = reads("llama.cpp", CHAT, SSE, sse(chunks.text("Hello"), "[DONE]"))
    assert (answer.outcome, answer.reason) == (Outcome.TRUNCATED, AnswerReason.FINISH_REASON_MISSING)


@pytest.mark.parametrize("after", ["[DONE]", {"model": MODEL, "choices": []}, "null"])
def test_t09_a_frame_after_done_is_a_violation(reads, chunks, after):
    body = sse(chunks.text("Hello", "stop"), chunks.usage(), "[DONE]", after)
    answer = reads("vllm", CHAT, SSE, body)
    assert answer.outcome is Outcome.PROTOCOL_VIOLATION
    unfinished = reads("vllm", CHAT, SSE, sse(chunks.text("Hello", "stop"), chunks.usage(), "[DONE]") + b"data: {")
    assert unfinished.reason is AnswerReason.AFTER_TERMINATOR


@pytest.mark.parametrize(
    ("runtime", "route", "framing"),
    [
        ("vllm", RESPONSES, SSE),
        ("lm-studio", NATIVE_CHAT, SSE),
        ("ollama", NATIVE_CHAT, Framing.NDJSON),
        ("tgi", Route.NATIVE_GENERATE, SSE),
    ],
)
def test_t09_nothing_follows_the_last_frame_of_any_dialect(runtime, route, framing):
    item = one(runtime, route, framing)
    frames = item.body.splitlines(keepends=True)
    again = item.body + (b"".join(frames[:3]) if framing is SSE else frames[0])
    assert read(item, again).reason is AnswerReason.AFTER_TERMINATOR


def test_t10_comments_are_neither_tokens_nor_first_output(chunks):
    reader = AnswerReader(get_profile("mlx-lm", "0.31.3"), CHAT, SSE, MODEL)
    for at_ns, data in enumerate([b": keepalive 1/2\n\n", b": keepalive 2/2\n\n", sse(chunks.text("Hello"))[:20]]):
        reader.feed(data, AT_ONCE._replace(at_ns=at_ns))
    reader.feed(b"", AT_ONCE)
    rest = sse(chunks.text("Hello"))[20:] + b":\n\n" + sse(chunks.text("!", "stop"), chunks.usage(), "[DONE]")
    reader.feed(rest, AT_ONCE._replace(at_ns=7))
    answer = reader.finish(clean_end=True)
    assert (answer.first_token_ns, len(answer.events), answer.comments) == (7, 2, 3)


def test_t11_line_ends_cuts_and_data_of_several_lines(reads, chunks):
    body = sse(chunks.text("Grüße"), chunks.text("!", "stop"), chunks.usage(), "[DONE]")
    item = one("vllm", CHAT, SSE)
    crlf = body.replace(b"\n", b"\r\n")
    for variant in (body, crlf, body.replace(b"\n", b"\r")):
        answer = read(item, variant, cuts=tuple(range(1, len(variant))))
        assert (answer.outcome, answer.text) == (Outcome.COMPLETED, "Grüße!")
    folded = body.replace(b'"choices":', b'"choices":\ndata:', 1)
    assert read(item, folded).text == "Grüße!"


def test_t12_a_null_frame_is_skipped_only_where_the_profile_says_so(reads):
    item = one("llama.cpp", TEXT, SSE)
    body = b"data: null\n\n" + item.body
    for cuts in ((), (12,), tuple(range(1, len(body)))):
        assert read(item, body, cuts=cuts).outcome is Outcome.COMPLETED
    chat = one("llama.cpp", CHAT, SSE)
    assert read(chat, b"data: null\n\n" + chat.body).reason is AnswerReason.NOT_AN_OBJECT


def test_t13_a_blank_after_the_json_of_a_data_line_is_nothing(reads, chunks):
    body = sse(chunks.text("Hello", "stop"), chunks.usage(), "[DONE]").replace(b"}\n", b"} \n", 1)
    assert reads("tensorrt-llm", CHAT, SSE, body).outcome is Outcome.COMPLETED


def test_t14_an_error_frame_that_is_not_json_is_a_violation_without_its_text(reads, chunks):
    answer = reads("vllm", CHAT, SSE, sse(chunks.text("Hello"), '{"error":"it said "no""}'))
    assert (answer.outcome, answer.reason) == (Outcome.PROTOCOL_VIOLATION, AnswerReason.ERROR_FRAME_INVALID)
    assert "it said" not in repr(answer)


def test_t15_no_byte_at_all_is_truncated(reads):
    assert reads("mlx-lm", CHAT, JSON, b"", clean_end=False).reason is AnswerReason.TRANSPORT_CUT
    assert reads("mlx-lm", CHAT, JSON, b"").reason is AnswerReason.EMPTY_BODY
    assert reads("mlx-lm", CHAT, SSE, b"").reason is AnswerReason.EMPTY_BODY


@pytest.mark.parametrize("profile", profiles(), ids=lambda profile: profile.runtime)
def test_t16_a_null_body_is_no_answer(reads, profile):
    for route in profile.routes:
        answer = reads(profile.runtime, route, JSON, b"null")
        assert (answer.outcome, answer.reason) == (Outcome.PROTOCOL_VIOLATION, AnswerReason.NOT_AN_OBJECT)


@pytest.mark.parametrize("profile", profiles(), ids=lambda profile: profile.runtime)
def test_t17_a_body_with_an_error_is_a_provider_error_whatever_its_status(reads, profile):
    for route in profile.routes:
        for body in (b'{"error":"Unexpected endpoint"}', b'{"error":{"message":"x","type":"y"}}'):
            assert reads(profile.runtime, route, JSON, body).outcome is Outcome.PROVIDER_ERROR


def test_t18_an_empty_model_list_is_a_failed_probe():
    notes = [route.note for route in get_profile("mlx-lm", "0.31.3").observations if route.path == "/v1/models"]
    assert notes
    assert "empty" in notes[0]


def test_t19_text_under_the_json_media_type_is_a_violation(reads):
    answer = reads("mlx-lm", CHAT, JSON, b"Not Found")
    assert (answer.outcome, answer.reason) == (Outcome.PROTOCOL_VIOLATION, AnswerReason.JSON_INVALID)


def test_t20_json_for_a_stream_and_a_stream_for_json_are_refused(chunks):
    vllm = get_profile("vllm", "0.26.0")
    for asked, answered in (
        (SSE, "application/json"),
        (JSON, "text/event-stream"),
        (SSE, "application/x-ndjson"),
        (SSE, None),
    ):
        reader = AnswerReader(vllm, CHAT, asked, MODEL)
        reader.head(status=200, content_type=answered)
        reader.feed(sse(chunks.text("Hello", "stop"), chunks.usage(), "[DONE]"), AT_ONCE)
        assert reader.finish(clean_end=True).reason is AnswerReason.CONTENT_TYPE_MISMATCH


def test_t20_the_wrong_framing_is_never_complete_without_its_header_either(reads):
    whole = one("vllm", CHAT, JSON).body
    assert reads("vllm", CHAT, SSE, whole).outcome is not Outcome.COMPLETED
    assert reads("vllm", CHAT, JSON, one("vllm", CHAT, SSE).body).reason is AnswerReason.JSON_INVALID


def test_t21_a_close_delimited_stream_is_read_and_only_done_ends_it():
    item = one("mlx-lm", CHAT, SSE)
    assert item.profile.routes[CHAT].flags.close_delimited
    assert read(item).finish_reason is FinishReason.STOP
    assert read(item, item.body.replace(b"data: [DONE]\n\n", b"")).reason is AnswerReason.TERMINATOR_MISSING
    assert {p.runtime for p in profiles() for r in p.routes.values() if r.flags.close_delimited} == {"mlx-lm"}
