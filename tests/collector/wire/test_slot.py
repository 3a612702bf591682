"""The short way of reading token streams gives what the long way gives, or nothing."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasc_collector.errors import WireError
from tasc_collector.wire.json import EVENT_JSON, JsonLimits, parse_json
from tasc_collector.wire.slot import StringSlot, learn_slot
from tasc_collector.wire.sse import SseDecoder, SseLimits

PATH = ("choices", 0, "delta", "content")


def _chunk(text: str, *, spaced: bool = False) -> str:
    value = {"id": "c-1", "model": "m", "choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}]}
    return json.dumps(value, separators=None if spaced else (",", ":"), ensure_ascii=spaced)


def _learn(text: str) -> StringSlot | None:
    return learn_slot(text, parse_json(text.encode()), PATH, EVENT_JSON)


def _opened() -> tuple[SseDecoder, StringSlot]:
    decoder, slot = SseDecoder(), _learn(_chunk(" the"))
    assert slot is not None
    assert len(decoder.feed(f"data: {_chunk(' the')}\n\n".encode())) == 1
    return decoder, slot


@pytest.mark.parametrize("spaced", [True, False])
def test_a_slot_opens_the_string_at_the_path(spaced: bool) -> None:
    slot = _learn(_chunk("token", spaced=spaced))
    assert slot is not None
    assert slot.before + "token" + slot.after == _chunk("token", spaced=spaced)
    assert slot.before.endswith('"content": "' if spaced else '"content":"')


@pytest.mark.parametrize(
    "text",
    [
        _chunk(""),
        _chunk("a\nb"),
        _chunk('say "x"'),
        _chunk("m"),
        _chunk("content"),
        '{"choices":[{"delta":{"role":"x"}}]}',
        '{"choices":[{"delta":{"content":"\\u0061"}}]}',
        '{"choices":[{"delta":{"content":"a"}}],\n"x":1}',
    ],
)
def test_a_string_that_is_not_plain_or_not_unique_makes_no_slot(text: str) -> None:
    assert _learn(text) is None


def test_events_at_hand_one_by_one_fit_as_they_do_together() -> None:
    events = [f"data: {_chunk(text)}\n\n".encode() for text in (" one", "", " caf\u00e9")]
    decoder, slot = _opened()
    assert decoder.feed_each(events, slot) == [" one", "", " caf\u00e9"]
    for odd in (
        [events[0], events[1] + events[2]],
        [events[0], b"data: " + _chunk('say "x"').encode() + b"\n\n"],
        [events[0], events[1].replace(b"m", b"n", 1)],
        [events[0], events[2].replace(b"\xc3", b"")],
        [events[0][:-1], b"\n" + events[1]],
    ):
        assert decoder.feed_each(odd, slot) is None
    assert decoder.feed(events[0]) == [("", _chunk(" one"), "", None)], "nothing of them was taken"
    assert decoder.feed(events[1][:9]) == []
    assert decoder.feed_each(events, slot) is None, "an event is open"


def test_chunks_that_are_taken_together_count_one_by_one() -> None:
    event = f"data: {_chunk('x')}\n\n".encode()
    decoder, slot = SseDecoder(SseLimits(max_chunks=4)), _learn(_chunk("x"))
    assert slot is not None and decoder.feed(event)
    assert decoder.feed_each([event, event], slot) == ["x", "x"]
    assert decoder.feed_each([event, event], slot) is None, "one may still come"
    assert decoder.feed(event) == [("", _chunk("x"), "", None)]
    with pytest.raises(WireError, match="chunk"):
        decoder.feed(event)


def test_a_slot_needs_room_in_the_bounds() -> None:
    text = _chunk("token")
    value = parse_json(text.encode())
    assert learn_slot(text, value, PATH, JsonLimits(max_bytes=4096)) is None
    assert learn_slot(text, value, PATH, JsonLimits(max_string=4096)) is None


def test_a_burst_of_fitting_events_gives_their_strings() -> None:
    decoder, slot = _opened()
    words = [" cat", "", "é", "\U0001f600 {}:,[", "\n", '","role":"b', "\\", "\x7f"]
    for spaced in (False, True):
        slot = _learn(_chunk(" the", spaced=spaced)) or slot
        data = "".join(f"data: {_chunk(word, spaced=spaced)}\n\n" for word in words).encode()
        assert decoder.feed_slot(data, slot) == words


@pytest.mark.parametrize(
    "data",
    [
        f"data: {_chunk('a')}\n\ndata: [DONE]\n\n",
        f"data: {_chunk('a')}\n\n: ping\n\n",
        f"data: {_chunk('a')}\n\ndata: {_chunk('b')}\ndata: {_chunk('c')}\n\n",
        f"event: x\ndata: {_chunk('a')}\n\n",
        f"data: {_chunk('a')}\r\n\r\n",
        "data: " + _chunk("a").replace("a", 'b","content":"c') + "\n\n",
        "data: " + _chunk("a").replace("a", "b\\") + "\n\n",
        "data: " + _chunk("a").replace("a", "b\t") + "\n\n",
        "data: " + _chunk("a").replace("a", "\\ud83d") + "\n\n",
        f"data: {_chunk('x' * 5000)}\n\n",
        f"data: {_chunk('a')[:-1]}\n\n",
        "\n\n",
    ],
)
def test_what_does_not_fit_is_left_for_the_full_reading(data: str) -> None:
    decoder, slot = _opened()
    assert decoder.feed_slot(data.encode(), slot) is None
    untouched, _ = _opened()
    assert decoder.feed(data.encode()) == untouched.feed(data.encode())


def test_a_text_shorter_than_both_ends_together_does_not_fit() -> None:
    slot = StringSlot('{"a":"', '"a":"b"}')
    assert slot.fit(b'data: {"a":"b"}\n\n') is None


def test_a_chunk_that_ends_no_event_is_kept_for_the_next() -> None:
    decoder, slot = _opened()
    data = f"data: {_chunk('one')}\n\ndata: {_chunk('two')}\n\n".encode()
    got = [decoder.feed_slot(data[i : i + 1], slot) for i in range(len(data))]
    assert [strings for strings in got if strings] == [["one"], ["two"]]
    assert None not in got


def test_a_cut_event_is_taken_up_by_either_way() -> None:
    decoder, slot = _opened()
    data = f"data: {_chunk('one')}\n\ndata: {_chunk('two')}\n\n".encode()
    assert decoder.feed_slot(data[:150], slot) == ["one"]
    assert decoder.feed_slot(data[150:], slot) == ["two"]
    assert decoder.feed_slot(data[:150], slot) == ["one"]
    assert [event.data for event in decoder.feed(data[150:])] == [_chunk("two")]


def test_the_limits_of_the_stream_hold() -> None:
    event = f"data: {_chunk('x')}\n\n".encode()
    slot = _learn(_chunk("x y"))
    assert slot is not None
    for limits in (
        SseLimits(max_events=3),
        SseLimits(max_lines=6),
        SseLimits(max_chunks=3),
        SseLimits(max_bytes=3 * len(event)),
    ):
        decoder = SseDecoder(limits)
        decoder.feed(event)
        assert decoder.feed_slot(event, slot) == ["x"]
        assert decoder.feed_slot(event, slot) == ["x"]
        assert decoder.feed_slot(event, slot) is None


@settings(max_examples=400, deadline=None)
@given(
    st.text(min_size=1, max_size=6),
    st.lists(
        st.one_of(st.text(max_size=8), st.sampled_from(['"', "\\", '","x":"', "\n\ndata: ", "\x00", "content"])),
        min_size=1,
        max_size=4,
    ),
    st.booleans(),
    st.lists(st.integers(1, 600), max_size=3),
)
def test_the_short_way_agrees_with_the_long_way(first: str, words: list[str], escape: bool, places: list[int]) -> None:
    learned = _chunk(first)
    slot = _learn(learned)
    if slot is None:
        return
    # half of the time the words are put in raw, as a server with a broken encoder would
    texts = [_chunk(word) if escape else slot.before + word + slot.after for word in words]
    data = "".join(f"data: {text}\n\n" for text in texts).encode()
    cuts = [0, *sorted({place for place in places if place < len(data)}), len(data)]
    short, long = SseDecoder(), SseDecoder()
    for decoder in (short, long):
        decoder.feed(b":\n\n")
    for a, b in pairwise(cuts):
        strings = short.feed_slot(data[a:b], slot)
        events = long.feed(data[a:b])
        if strings is None:
            assert short.feed(data[a:b]) == events
        else:
            base = parse_json(learned.encode())
            for string, event in zip(strings, events, strict=True):
                value = json.loads(json.dumps(base))
                value["choices"][0]["delta"]["content"] = string
                assert parse_json(event.data.encode()) == value
                assert event[2:] == ("", None)


def test_texts_are_opened_up_to_the_first_that_does_not_fit() -> None:
    slot = _learn(_chunk(" the"))
    assert slot is not None
    words = [" cat", "", "é", '"', "\\", "\n"]
    assert slot.opened(map(_chunk, words)) == words
    assert slot.opened([*map(_chunk, words), "[DONE]", _chunk("late")]) == words
    assert slot.opened(["[DONE]"]) == []
    assert slot.opened([_chunk("a"), slot.before + 'b","x":"c' + slot.after, _chunk("d")]) == ["a"]
    assert slot.opened([_chunk("a"), _chunk("x" * 5_000), _chunk("b")]) == ["a"]
