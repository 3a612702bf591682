from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasc_collector.errors import InputError, LimitExceeded, WireError
from tasc_collector.wire.sse import SseDecoder, SseEvent, SseLimits


def _read(chunks: list[bytes], limits: SseLimits | None = None) -> tuple[list[SseEvent], str]:
    """Every event that came out, and how the stream ended."""
    decoder, events = SseDecoder(limits or SseLimits()), []
    try:
        for chunk in chunks:
            events += decoder.feed(chunk)
        decoder.finish()
    except WireError as error:
        return events, error.code
    return events, "incomplete" if decoder.trailing_incomplete else "complete"


def _bytewise(data: bytes) -> list[bytes]:
    return [data[i : i + 1] for i in range(len(data))]


def test_an_event_has_its_name_id_and_retry() -> None:
    data = b"event: delta\nid: 7\nretry: 250\ndata: a\ndata: b\n\ndata:c\n\n"
    expected = [SseEvent("delta", "a\nb", "7", 250), SseEvent("", "c", "7", None)]
    assert _read([data]) == (expected, "complete")
    assert _read(_bytewise(data)) == (expected, "complete")


def test_a_burst_of_plain_events_is_read_in_order() -> None:
    data = b"".join(b"data: %d\n\n" % number for number in range(5))
    assert [event.data for event in _read([data])[0]] == ["0", "1", "2", "3", "4"]


def test_a_frame_that_looks_plain_but_holds_more_lines_is_read_line_by_line() -> None:
    data = b"data: 1\n\ndata: 2\ndata: 3\n\n: c\n\ndata: 4\n\n\ndata: 5\n\n"
    assert [event.data for event in _read([data])[0]] == ["1", "2\n3", "4", "5"]


def test_comments_are_counted_and_dispatch_nothing() -> None:
    decoder = SseDecoder()
    assert decoder.feed(b": ping\n\n: ping\n\n:") == []
    decoder.finish()
    assert (decoder.comments, decoder.trailing_incomplete) == (3, False)


@pytest.mark.parametrize("rest", [b"data: [DONE]\n", b"data: [DONE]", b"event: x\n", b"d", b"\xef\xbb"])
def test_an_unterminated_event_is_not_dispatched(rest: bytes) -> None:
    if rest == b"\xef\xbb":
        assert _read([rest]) == ([], "incomplete")
    assert _read([b"data: 1\n\n" + rest]) == ([SseEvent("", "1", "", None)], "incomplete")


def test_a_carriage_return_at_the_end_of_a_chunk_ends_the_line_at_once() -> None:
    decoder = SseDecoder()
    assert decoder.feed(b"data: x\r\n\r") == [SseEvent("", "x", "", None)]
    assert decoder.feed(b"\ndata: y\r\r") == [SseEvent("", "y", "", None)]


def test_good_events_come_before_the_refusal_of_the_same_chunk() -> None:
    data = b"data: good\n\ndata: \xff\n\ndata: after\n\n"
    assert _read([data]) == _read(_bytewise(data)) == ([SseEvent("", "good", "", None)], "invalid-utf8")


def test_a_refused_stream_stays_refused() -> None:
    decoder = SseDecoder()
    with pytest.raises(WireError):
        decoder.feed(b"data: \xff\n\n")
    with pytest.raises(WireError) as again:
        decoder.feed(b"data: fine\n\n")
    assert again.value.code == "invalid-utf8"
    with pytest.raises(WireError):
        decoder.finish()


def test_an_empty_chunk_is_refused() -> None:
    with pytest.raises(WireError) as refused:
        SseDecoder().feed(b"")
    assert refused.value.code == "invalid-chunk"


@pytest.mark.parametrize(
    ("limits", "data", "kept", "code"),
    [
        (SseLimits(max_bytes=20), b"data: 1\n\ndata: 2\n\ndata: 3\n\n", 2, "byte-limit"),
        (SseLimits(max_lines=5), b"data: 1\n\ndata: 2\n\ndata: 3\n\n", 2, "line-limit"),
        (SseLimits(max_line_bytes=8), b"data: 12\n\ndata: 123\n\n", 1, "line-byte-limit"),
        (SseLimits(max_line_bytes=8), b"data: 12\n\ndata: 123", 1, "line-byte-limit"),
        (SseLimits(max_events=2), b"data: 1\n\ndata: 2\n\ndata: 3\n\n", 2, "event-limit"),
        (SseLimits(max_events=2), b":\n\ndata: 1\n\n:\n\ndata: 2\n\ndata: 3\n\n", 2, "event-limit"),
        (SseLimits(max_event_bytes=15), b"data: 1\ndata: 2\n\ndata: 1\ndata: 23\n\n", 1, "event-byte-limit"),
        (SseLimits(max_event_bytes=15), b"data: 1\ndata: 2\n\ndata: 1\ndata: 23\n", 1, "event-byte-limit"),
        (SseLimits(max_field_bytes=3), b"data:123\n\ndata:1234\n\n", 1, "field-byte-limit"),
    ],
)
def test_limits(limits: SseLimits, data: bytes, kept: int, code: str) -> None:
    for chunks in ([data], _bytewise(data)):
        events, verdict = _read(chunks, limits)
        assert (len(events), verdict) == (kept, code)


def test_chunk_limit() -> None:
    decoder = SseDecoder(SseLimits(max_chunks=2))
    assert decoder.feed(b"da") == []
    assert decoder.feed(b"ta: 1\n\n") == [SseEvent("", "1", "", None)]
    with pytest.raises(LimitExceeded) as refused:
        decoder.feed(b"data: 2\n\n")
    assert refused.value.code == "chunk-limit"


def test_a_long_event_in_small_chunks_costs_time_in_proportion() -> None:
    decoder = SseDecoder(SseLimits(max_line_bytes=1024 * 1024, max_field_bytes=1024 * 1024))
    decoder.feed(b"data: ")
    for _ in range(16_000):
        assert decoder.feed(b"x" * 64) == []
    assert len(decoder.feed(b"\n\n")[0].data) == 16_000 * 64


def test_retry_beyond_its_bound_is_ignored() -> None:
    decoder = SseDecoder()
    events = decoder.feed(b"retry: 86400001\ndata: 1\n\nretry: 86400000\ndata: 2\n\n")
    assert [event.retry_ms for event in events] == [None, 86_400_000]
    assert decoder.retry_ms == 86_400_000


def test_bounds_have_hard_maxima() -> None:
    with pytest.raises(InputError) as refused:
        SseLimits(max_bytes=16 * 1024 * 1024 + 1)
    assert refused.value.field == "max_bytes"


_lines = st.sampled_from(
    [
        b"data: x",
        b"data:",
        b"data",
        b"data: {}",
        b": c",
        b":",
        b"event: e",
        b"id: 1",
        b"id: \0",
        b"retry: 5",
        b"",
        b"",
        b"foo: 1",
        "data: \u00e9\U0001f600".encode(),
        b"data: \xff",
        b"\xef\xbb\xbfdata: b",
    ]
)
_ends = st.sampled_from([b"\n", b"\n", b"\n", b"\r\n", b"\r"])
_streams = st.lists(st.tuples(_lines, _ends), max_size=14).map(
    lambda parts: b"".join(line + end for line, end in parts)
)


@settings(max_examples=400, deadline=None)
@given(_streams, st.lists(st.integers(0, 120), max_size=6), st.booleans())
def test_how_chunks_are_cut_changes_nothing(data: bytes, places: list[int], bom: bool) -> None:
    data = (b"\xef\xbb\xbf" if bom else b"") + data
    cuts = [0, *sorted({place for place in places if 0 < place < len(data)}), len(data)]
    chunks = [data[a:b] for a, b in pairwise(cuts) if a < b]
    assert _read(chunks) == _read(_bytewise(data))


@settings(max_examples=200, deadline=None)
@given(_streams, st.integers(0, 120))
def test_a_cut_stream_gives_the_first_events_of_the_whole(data: bytes, place: int) -> None:
    whole, _ = _read(_bytewise(data))
    part, _ = _read(_bytewise(data[:place]))
    assert whole[: len(part)] == part
