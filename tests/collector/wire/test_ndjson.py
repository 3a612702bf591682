from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasc_collector.errors import InputError, WireError
from tasc_collector.wire.json import JsonValue
from tasc_collector.wire.ndjson import NdjsonDecoder, NdjsonLimits


def _read(chunks: list[bytes], limits: NdjsonLimits | None = None) -> tuple[list[JsonValue], str]:
    decoder, rows = NdjsonDecoder(limits or NdjsonLimits()), []
    try:
        for chunk in chunks:
            rows += decoder.feed(chunk)
        rows += decoder.finish()
    except WireError as error:
        return rows, error.code
    return rows, "incomplete" if decoder.trailing_incomplete else "complete"


def _bytewise(data: bytes) -> list[bytes]:
    return [data[i : i + 1] for i in range(len(data))]


@pytest.mark.parametrize(
    ("data", "rows", "verdict"),
    [
        (b'{"a":1}\n{"a":2}\r\n', [{"a": 1}, {"a": 2}], "complete"),
        (b'{"a":1}\n{"a":2}', [{"a": 1}, {"a": 2}], "complete"),
        (b'{"a":1}\n{"a":2', [{"a": 1}], "incomplete"),
        (b'{"a":1}\n{"a":"}', [{"a": 1}], "incomplete"),
        (b'{"a":1}\n{"a":"\xe2\x82', [{"a": 1}], "incomplete"),
        (b"1\n23", [1], "incomplete"),
        (b'{"a":1}\n{"a":2}}', [{"a": 1}], "invalid-json"),
        (b'{"a":1}\n<html', [{"a": 1}], "invalid-json"),
        (b'{"a":1}\n{"a":1,"a":1}', [{"a": 1}], "duplicate-key"),
        (b'{"a":1}\n{"\xff', [{"a": 1}], "invalid-utf8"),
        (b'{"a":1}\n\n{"a":2}\n', [{"a": 1}], "blank-line"),
        (b'{"a":1}\n\r\n', [{"a": 1}], "blank-line"),
        (b'{"a":1}\n{"a":NaN}\n{"a":3}\n', [{"a": 1}], "invalid-json"),
        (b'\xef\xbb\xbf{"a":1}\n', [], "utf8-bom"),
        (b"[" * 40 + b"\n", [], "depth-limit"),
    ],
)
def test_rows(data: bytes, rows: list[JsonValue], verdict: str) -> None:
    assert _read([data]) == _read(_bytewise(data)) == (rows, verdict)


@pytest.mark.parametrize(
    ("limits", "data", "kept", "code"),
    [
        (NdjsonLimits(max_bytes=8), b'{"a":1}\n{"a":2}\n', 1, "byte-limit"),
        (NdjsonLimits(max_line_bytes=7), b'{"a":1}\r\n{"a":12}\n', 1, "line-byte-limit"),
        (NdjsonLimits(max_line_bytes=7), b'{"a":1}\n{"a":1234', 1, "line-byte-limit"),
        (NdjsonLimits(max_items=1), b'{"a":1}\n{"a":2}\n', 1, "item-limit"),
        (NdjsonLimits(max_items=1), b'{"a":1}\n{"a":2}', 1, "item-limit"),
        (NdjsonLimits(max_chunks=1), b"", 0, "invalid-chunk"),
    ],
)
def test_limits(limits: NdjsonLimits, data: bytes, kept: int, code: str) -> None:
    rows, verdict = _read([data], limits)
    assert (len(rows), verdict) == (kept, code)


def test_a_refused_stream_stays_refused() -> None:
    decoder = NdjsonDecoder()
    assert decoder.feed(b'{"a":1}\n\n') == [{"a": 1}]
    for _ in range(2):
        with pytest.raises(WireError) as refused:
            decoder.feed(b'{"a":2}\n')
        assert refused.value.code == "blank-line"
    with pytest.raises(WireError):
        decoder.finish()


def test_bounds_have_hard_maxima() -> None:
    with pytest.raises(InputError) as refused:
        NdjsonLimits(max_items=65_537)
    assert refused.value.field == "max_items"


_pieces = st.sampled_from(
    [b'{"a":1}', b'{"a":"x\\n"}', '{"é":[]}'.encode(), b"\n", b"\n", b"\r\n", b'{"a":', b"12", b"\xff", b"}", b" "]
)


@settings(max_examples=400, deadline=None)
@given(st.lists(_pieces, max_size=10).map(b"".join), st.lists(st.integers(1, 80), max_size=5))
def test_how_chunks_are_cut_changes_nothing(data: bytes, places: list[int]) -> None:
    cuts = [0, *sorted({place for place in places if place < len(data)}), len(data)]
    chunks = [data[a:b] for a, b in pairwise(cuts) if a < b]
    assert _read(chunks) == _read(_bytewise(data))


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.sampled_from([b'{"a":1}\n', b'{"b":"\xc3\xa9"}\n', b"[12]\n"]), min_size=1, max_size=4).map(b"".join),
    st.data(),
)
def test_a_cut_stream_gives_the_first_rows_and_is_never_refused(data: bytes, draw: st.DataObject) -> None:
    place = draw.draw(st.integers(1, len(data)))
    whole, _ = _read([data])
    rows, verdict = _read([data[:place]])
    assert whole[: len(rows)] == rows
    assert verdict == ("complete" if data[place - 1 : place] in b"\n}]" else "incomplete")
