"""The token timeline: what is an event, when it came, how exactly that is known, how many tokens it carried."""

from __future__ import annotations

from tasc_collector.canonical import canonical_bytes
from tasc_collector.runtimes.answer import AnswerLimits, AnswerReader
from tasc_collector.runtimes.profile import Framing, Route
from tasc_collector.runtimes.registry import get_profile
from tasc_collector.runtimes.result import Arrival, OutputKind, TokenEvent
from tests.support.answers import MODEL, sse

CHAT = Route.CHAT_COMPLETIONS
VLLM = get_profile("vllm", "0.26.0")


def timeline(*reads, opened_at_ns=0, **options):
    reader = AnswerReader(VLLM, CHAT, Framing.SSE, MODEL, opened_at_ns=opened_at_ns, **options)
    for data, arrival in reads:
        reader.feed(data, arrival)
    return reader.finish(clean_end=True)


def test_only_output_is_an_event(chunks):
    answer = timeline(
        (sse(chunks.delta({"role": "assistant", "content": ""})), Arrival(10, 0, 0)),
        (b": keepalive\n\n", Arrival(20, 0, 0)),
        (sse(chunks.delta({"content": None})), Arrival(30, 0, 0)),
        (sse(chunks.delta({"reasoning": "a"})), Arrival(40, 0, 0)),
        (sse(chunks.delta({"content": "b"})), Arrival(50, 0, 1)),
        (sse(chunks.delta({"tool_calls": [{"index": 0}]})), Arrival(60, 0, 2)),
        (sse(chunks.delta({}, "tool_calls"), chunks.usage(), "[DONE]"), Arrival(70, 0, 3)),
    )
    assert answer.events == (
        TokenEvent(40, None, OutputKind.REASONING, 0, 0),
        TokenEvent(50, None, OutputKind.ANSWER, 0, 1),
        TokenEvent(60, None, OutputKind.TOOL, 0, 2),
    )
    assert (answer.first_token_ns, answer.last_token_ns) == (40, 60)


def test_an_event_has_the_time_of_the_chunk_that_completed_it(chunks):
    frame = sse(chunks.text("Hello"))
    answer = timeline((frame[:5], Arrival(10, 0, 0)), (frame[5:-1], Arrival(20, 0, 0)), (frame[-1:], Arrival(30, 0, 0)))
    assert [event.at_ns for event in answer.events] == [30]


def test_events_of_one_read_may_have_come_since_the_read_before(chunks):
    answer = timeline(
        (sse(chunks.text("a")), Arrival(100, 2, 0)),
        (sse(chunks.text("b"), chunks.text("c"), chunks.text("d")), Arrival(180, 2, 0)),
    )
    assert [(event.at_ns, event.uncertainty_ns) for event in answer.events] == [
        (100, 2),
        (180, 80),
        (180, 80),
        (180, 2),
    ]


def test_the_first_read_is_bounded_by_the_opening_of_the_body(chunks):
    answer = timeline((sse(chunks.text("a"), chunks.text("b")), Arrival(100, 0, 0)), opened_at_ns=70)
    assert [event.uncertainty_ns for event in answer.events] == [30, 0]


def test_without_kernel_times_the_uncertainty_is_unknown(chunks):
    answer = timeline((sse(chunks.text("a"), chunks.text("b")), Arrival(100, None, None)))
    assert [(event.uncertainty_ns, event.lag_ns) for event in answer.events] == [(None, None)] * 2


def test_tokens_come_from_ids_and_log_probabilities(chunks):
    ids = chunks.text("ab")
    ids["choices"][0]["token_ids"] = [1, 2]
    listed = chunks.text("cde")
    listed["choices"][0]["logprobs"] = {"content": [{"token": "x", "logprob": -1.5}] * 3}
    legacy = chunks.text("f")
    legacy["choices"][0]["logprobs"] = {"tokens": ["f"], "token_logprobs": [-0.5]}
    answer = timeline((sse(ids, listed, legacy, chunks.text("g")), Arrival(1, 0, 0)))
    assert [event.tokens for event in answer.events] == [2, 3, 1, None]


def test_a_delta_of_two_kinds_is_two_events_whose_tokens_are_not_known_apart(chunks):
    both = chunks.delta({"content": "b", "reasoning_content": "a"})
    both["choices"][0]["token_ids"] = [1, 2]
    answer = timeline((sse(both), Arrival(1, 0, 0)))
    assert [(event.kind, event.tokens) for event in answer.events] == [
        (OutputKind.REASONING, None),
        (OutputKind.ANSWER, None),
    ]


def test_the_timeline_is_bounded_and_says_what_it_dropped(chunks):
    frames = [chunks.text("a")] * 5
    answer = timeline((sse(*frames), Arrival(1, 0, 0)), limits=AnswerLimits(max_events=3))
    assert (len(answer.events), answer.events_dropped, answer.text_bytes) == (3, 2, 5)


def test_lines_of_ollama_and_frames_of_tgi_are_events():
    ollama = AnswerReader(get_profile("ollama", "0.32.5"), Route.NATIVE_GENERATE, Framing.NDJSON, MODEL)
    for at_ns, text in ((10, "a"), (20, ""), (30, "b")):
        ollama.feed(canonical_bytes({"model": MODEL, "response": text, "done": False}) + b"\n", Arrival(at_ns, 0, 0))
    last = {"model": MODEL, "response": "", "done": True, "done_reason": "stop", "eval_count": 2}
    ollama.feed(canonical_bytes(last), Arrival(40, 0, 0))
    answer = ollama.finish(clean_end=True)
    assert [(event.at_ns, event.tokens) for event in answer.events] == [(10, None), (30, None)]
    assert answer.usage is not None
    tgi = AnswerReader(get_profile("tgi", "3.3.7"), Route.NATIVE_GENERATE, Framing.SSE, MODEL)
    tgi.feed(sse({"token": {"text": "a", "special": False}, "generated_text": None}), Arrival(5, 0, 0))
    assert [(event.at_ns, event.tokens) for event in tgi.finish(clean_end=True).events] == [(5, 1)]


def test_a_whole_body_has_no_timeline():
    reader = AnswerReader(VLLM, CHAT, Framing.JSON, MODEL)
    reader.feed(b"{}", Arrival(5, 0, 0))
    assert reader.finish(clean_end=True).events == ()
