"""The short way through a token stream gives the answer that the long way gives."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import accumulate, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasc_collector.runtimes.answer import AnswerReader
from tasc_collector.runtimes.dialects.base import DialectReader
from tasc_collector.runtimes.profile import Framing, Route
from tasc_collector.runtimes.registry import get_profile
from tasc_collector.runtimes.result import Answer, Arrival

PROFILE = get_profile("vllm", "0.26.0")


def _frame(delta: dict[str, object], finish: str | None = None, **more: object) -> bytes:
    value = {
        "id": "c",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
        **more,
    }
    return b"data: " + json.dumps(value, ensure_ascii=False).encode() + b"\n\n"


END = (
    _frame({}, "stop")
    + b'data: {"model":"m","choices":[],"usage":{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3}}\n\n'
    + b"data: [DONE]\n\n"
)


def _read(chunks: list[bytes]) -> Answer:
    reader = AnswerReader(PROFILE, Route.CHAT_COMPLETIONS, Framing.SSE, "m", keep_text=True)
    place = 0
    for chunk in chunks:
        place += len(chunk)
        reader.feed(chunk, Arrival(place, 3, 4))
    return reader.finish(clean_end=True)


def _read_in_full(chunks: list[bytes], monkeypatch: pytest.MonkeyPatch) -> Answer:
    with monkeypatch.context() as patch:
        patch.setattr("tasc_collector.runtimes.dialects.openai._ChoicesReader.open_text", DialectReader.open_text)
        return _read(chunks)


_pieces = st.one_of(
    st.text(max_size=5).map(lambda text: _frame({"content": text})),
    st.sampled_from(
        [
            _frame({"content": "tok"}),
            _frame({"content": ""}),
            _frame({"role": "assistant", "content": "x"}),
            _frame({"reasoning_content": "think"}),
            _frame({"reasoning_content": "more"}),
            _frame({"reasoning": "r", "content": "c"}),
            _frame({"tool_calls": [{"index": 0}]}),
            _frame({"content": "y"}, logprobs=None),
            b": ping\n\n",
            _frame({"content": "z"}, usage={"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}),
            b'data: {"error":{"message":"no"}}\n\n',
            b"data: [DONE]\n\n",
            b"data: {}\n\n",
            b"data: \xff\n\n",
            _frame({}, "stop"),
        ]
    ),
)


@settings(max_examples=400, deadline=None)
@given(st.lists(_pieces, max_size=12), st.lists(st.integers(1, 900), max_size=5), st.booleans())
def test_the_short_way_gives_the_same_answer(pieces: list[bytes], places: list[int], by_frame: bool) -> None:
    stream = [_frame({"role": "assistant", "content": ""}), *pieces, END]
    data = b"".join(stream)
    cuts = [0, *sorted({place for place in places if place < len(data)}), len(data)]
    chunks = stream if by_frame else [data[a:b] for a, b in pairwise(cuts)]
    patch = pytest.MonkeyPatch()
    assert _read(chunks) == _read_in_full(chunks, patch)


def test_frames_that_differ_in_more_than_text_are_read_in_full() -> None:
    frames = [_frame({"content": f"t{number}"}, created=number) for number in range(300)]
    answer = _read([*frames, END])
    assert (answer.outcome, len(answer.events), answer.text) == ("completed", 300, "".join(f"t{n}" for n in range(300)))


def test_another_model_in_the_middle_of_a_steady_stream_is_seen() -> None:
    frames = [_frame({"content": "a"}), _frame({"content": "b"}), _frame({"content": "c"}, model="other"), END]
    assert _read(frames).reason == "model-mismatch"


def test_uncertainty_of_a_burst_spans_to_the_read_before() -> None:
    frames = [_frame({"content": word}) for word in ("a", "b", "c")]
    answer = _read([frames[0], frames[1] + frames[2], END])
    first = len(frames[0])
    burst = first + len(frames[1]) + len(frames[2])
    assert [(event.at_ns, event.uncertainty_ns, event.lag_ns) for event in answer.events] == [
        (first, 3, 4),
        (burst, burst - first, 4),
        (burst, 3, 4),
    ]
    assert replace(answer, events=()).reason == "completed"


def test_many_small_reads_keep_a_time_each() -> None:
    words = ["a", "", *(f"w{number}" for number in range(99))]
    frames = [_frame({"content": word}) for word in words]
    answer = _read([*frames, END])
    assert (answer.reason, answer.text, answer.frames) == ("completed", "".join(words), 104)
    ends = accumulate(map(len, frames))
    assert [event.at_ns for event in answer.events] == [end for end, word in zip(ends, words, strict=True) if word]
    assert {(event.uncertainty_ns, event.lag_ns) for event in answer.events} == {(3, 4)}


def test_what_is_asked_midway_counts_every_read() -> None:
    reader = AnswerReader(PROFILE, Route.CHAT_COMPLETIONS, Framing.SSE, "m")
    for number in range(1, 8):
        reader.feed(_frame({"content": f"w{number}"}), Arrival(number))
        assert (reader.output_events, reader.decided) == (number, False)
    reader.feed(_frame({"content": "last"}), Arrival(9))
    reader.feed(b'data: {"error":{"message":"no"}}\n\n', Arrival(10))
    assert (reader.decided, reader.output_events) == (True, 8)


def test_a_burst_in_one_read_is_read_in_full_only_where_it_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """128 tokens in one read: the first is read in full, the next ones are the same but for their text."""
    from tasc_collector.runtimes.dialects.openai import ChatReader

    full, frame = [0], ChatReader.frame

    def counted(reader: ChatReader, name: str, value: object) -> None:
        full[0] += 1
        frame(reader, name, value)  # type: ignore[arg-type]  # as it came

    monkeypatch.setattr(ChatReader, "frame", counted)
    words = [f"t{number}" for number in range(126)] + ['say "x"', "\n"]
    answer = _read(
        [_frame({"role": "assistant", "content": ""}) + b"".join(_frame({"content": w}) for w in words) + END]
    )
    assert (answer.outcome, answer.text, len(answer.events)) == ("completed", "".join(words), 128)
    assert full == [4], "the role, the first token, the finish reason, the usage"
