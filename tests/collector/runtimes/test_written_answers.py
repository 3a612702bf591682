"""Every route and framing of every profile, read from bytes written by hand: success, missing usage, failure, and what
becomes of the successful one when it is cut, damaged, too large or cut short by time-out or cancel.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tasc_collector.runtimes.answer import AnswerLimits
from tasc_collector.runtimes.profile import Framing, Route
from tasc_collector.runtimes.registry import profiles
from tasc_collector.runtimes.result import BuildMatch, OutputKind
from tasc_collector.runtimes.verdict import AnswerReason, Outcome
from tasc_collector.wire.json import JsonLimits
from tasc_collector.wire.ndjson import NdjsonLimits
from tasc_collector.wire.sse import SseLimits
from tests.support.answers import AT_ONCE, Written, all_written, one, read, reader_for, summary, written

SUCCESSES = written("success")
by_name = pytest.mark.parametrize("item", SUCCESSES, ids=lambda item: item.name)


@pytest.mark.parametrize("item", all_written(), ids=lambda item: item.name)
def test_is_read_as_its_head_says(item: Written) -> None:
    answer = read(item)
    assert summary(answer) == item.expected
    assert answer.text == (item.text or "")
    assert answer.text_bytes == len((item.text or "").encode())


def test_every_route_and_framing_has_the_three_answers() -> None:
    there = {(item.profile.runtime, item.route, item.framing, item.variant) for item in all_written()}
    wanted = {
        (profile.runtime, route, framing, variant)
        for profile in profiles()
        for route, invocation in profile.routes.items()
        for framing in invocation.framings
        for variant in ("success", "no-usage", "failure")
    }
    assert wanted - there == set()


@by_name
def test_no_truncation_is_complete(item: Written) -> None:
    """At any byte before the last one that says something, even if the transport calls that end clean."""
    end = len(item.body.rstrip(b"\n")) if item.framing is not Framing.SSE else len(item.body)
    for size in range(end):
        answer = read(item, item.body[:size])
        assert answer.outcome is not Outcome.COMPLETED, size
        if item.framing is not Framing.JSON:
            assert answer.outcome is Outcome.TRUNCATED, (size, answer.reason)


@by_name
def test_a_transport_that_breaks_is_never_complete(item: Written) -> None:
    """Time-out, cancel and reset after the last byte look alike to the reader."""
    answer = read(item, clean_end=False)
    assert (answer.outcome, answer.reason) == (Outcome.TRUNCATED, AnswerReason.TRANSPORT_CUT)


@by_name
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_cutting_changes_nothing(item: Written, data: st.DataObject) -> None:
    whole = read(item)
    places = data.draw(st.lists(st.integers(1, max(1, len(item.body) - 1)), max_size=20, unique=True))
    assert read(item, cuts=tuple(sorted(places))) == whole


@by_name
def test_byte_by_byte_changes_nothing(item: Written) -> None:
    assert read(item, cuts=tuple(range(1, len(item.body)))) == read(item)


@by_name
def test_bytes_that_are_not_utf8_are_a_violation(item: Written) -> None:
    place = item.body.index(b"Hello")
    answer = read(item, item.body[:place] + b"\xff" + item.body[place + 1 :])
    assert answer.outcome is Outcome.PROTOCOL_VIOLATION
    assert answer.reason in (AnswerReason.FRAMING_INVALID, AnswerReason.JSON_INVALID)
    assert answer.wire_code == "invalid-utf8"


@by_name
def test_a_duplicate_key_is_a_violation(item: Written) -> None:
    place = item.body.index(b'"Hello')
    start = item.body.rindex(b"{", 0, place)
    answer = read(item, item.body[: start + 1] + b'"zz":1,"zz":1,' + item.body[start + 1 :])
    assert answer.outcome is Outcome.PROTOCOL_VIOLATION
    assert answer.wire_code == "duplicate-key"


@by_name
def test_an_answer_beyond_its_bounds_is_our_limit_not_a_success(item: Written) -> None:
    small = AnswerLimits(
        body_json=JsonLimits(max_bytes=100),
        frame_json=JsonLimits(max_bytes=100),
        sse=SseLimits(max_bytes=100),
        ndjson=NdjsonLimits(max_bytes=100),
    )
    answer = read(item, limits=small)
    assert (answer.outcome, answer.reason) == (Outcome.PROTOCOL_VIOLATION, AnswerReason.LIMIT_EXCEEDED)
    assert answer.wire_code == "byte-limit"
    assert answer.body_bytes == len(item.body)


@by_name
def test_another_status_or_media_type_is_not_an_answer(item: Written) -> None:
    failed = reader_for(item)
    failed.head(status=503, content_type=item.framing.media_type)
    assert failed.finish(clean_end=True).reason is AnswerReason.HTTP_STATUS
    other = reader_for(item)
    other.head(status=200, content_type="text/html")
    assert other.finish(clean_end=True).reason is AnswerReason.CONTENT_TYPE_MISMATCH
    right = reader_for(item)
    right.head(status=200, content_type=f"{item.framing.media_type}; charset=utf-8")
    assert not right.decided


@pytest.mark.parametrize(
    "item", [item for item in SUCCESSES if item.framing is not Framing.JSON], ids=lambda item: item.name
)
def test_text_reaches_the_sink_as_it_comes_and_is_not_kept_unasked(item: Written) -> None:
    pieces: list[bytes] = []
    reader = reader_for(item, text_sink=pieces.append)
    assert "Hello" not in repr(read(item))
    for place in range(len(item.body)):
        reader.feed(item.body[place : place + 1], AT_ONCE)
    assert pieces == [b"Hello", b" there", b"!"]
    assert [event.kind for event in reader.finish(clean_end=True).events] == [OutputKind.ANSWER] * 3


def test_fingerprints_tell_the_build_where_the_runtime_puts_it_there() -> None:
    seen = {item.profile.runtime: read(item).build_match for item in SUCCESSES if item.route == "chatCompletions"}
    assert seen["vllm"] is BuildMatch.MATCHES
    assert seen["mlx-lm"] is BuildMatch.MATCHES
    assert seen["llama.cpp"] is BuildMatch.UNAVAILABLE
    assert seen["tgi"] is BuildMatch.UNAVAILABLE


def test_provider_timings_keep_their_units() -> None:
    ollama = next(item for item in SUCCESSES if item.profile.runtime == "ollama" and item.framing is Framing.NDJSON)
    assert {(t.name, t.value, t.unit.value) for t in read(ollama).provider_timings} == {
        ("totalDurationNs", 900_000_000, "ns"),
        ("loadDurationNs", 1_000_000, "ns"),
        ("promptEvaluationDurationNs", 200_000_000, "ns"),
        ("evaluationDurationNs", 600_000_000, "ns"),
    }
    llama = one("llama.cpp", Route.CHAT_COMPLETIONS, Framing.SSE)
    assert {(t.name, t.value, t.unit.value) for t in read(llama).provider_timings} == {
        ("prompt_ms", 12.5, "ms"),
        ("predicted_ms", 30.25, "ms"),
    }
    studio = next(item for item in SUCCESSES if item.profile.runtime == "lm-studio" and item.route == "nativeChat")
    assert {(t.name, t.value, t.unit.value) for t in read(studio).provider_timings} == {
        ("time_to_first_token_seconds", 0.25, "s"),
    }
