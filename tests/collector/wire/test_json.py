from __future__ import annotations

import json
import math
import traceback

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasc_collector.errors import InputError, LimitExceeded, WireError
from tasc_collector.wire.json import RESPONSE_JSON, JsonDecoder, JsonLimits, JsonValue, parse_json
from tests.support.json_reference import RefusedError, read_exactly

TIGHT = JsonLimits(
    max_bytes=400, max_depth=3, max_object_keys=4, max_array_items=3, max_tokens=30, max_string=12, max_number=60
)


def _code(data: bytes, limits: JsonLimits = RESPONSE_JSON) -> str:
    with pytest.raises(WireError) as refused:
        parse_json(data, limits)
    return refused.value.code


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b' {"a": [1, 2.5, "x", true, null]} ', {"a": [1, 2.5, "x", True, None]}),
        (b'"\\ud83d\\ude00\\n"', "\U0001f600\n"),
        (b"9007199254740991", 9007199254740991),
        (b"-9007199254740991", -9007199254740991),
        (b"-0", 0),
        (b"1e2", 100.0),
        (b'{"a":{"k":1},"b":{"k":2}}', {"a": {"k": 1}, "b": {"k": 2}}),
        (b'{"a":"\\"b\\":","c":"\\\\"}', {"a": '"b":', "c": "\\"}),
    ],
)
def test_values(text: bytes, value: JsonValue) -> None:
    assert parse_json(text) == value


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (b'{"a":1,"a":2}', "duplicate-key"),
        (b'{"a":1,"\\u0061":2}', "duplicate-key"),
        (b'{"a":1,"a":"\\u0022"}', "duplicate-key"),
        (b'{"a":"\\\\","a":"\\""}', "duplicate-key"),
        (b'[{"x":{"":1,"":1}}]', "duplicate-key"),
        (b"9007199254740992", "number-range"),
        (b"-9007199254740992", "number-range"),
        (b"[18446744073709551616]", "number-range"),
        (b"1e400", "number-range"),
        (b'"\\ud800"', "invalid-unicode"),
        (b'"\\udc00\\ud800"', "invalid-unicode"),
        (b'"\\ud800\\ud83d\\ude00"', "invalid-unicode"),
        (b'"\xff"', "invalid-utf8"),
        (b'"\xed\xa0\x80"', "invalid-utf8"),
        (b"\xef\xbb\xbf{}", "utf8-bom"),
        (b"NaN", "invalid-json"),
        (b"{} {}", "invalid-json"),
        (b"", "invalid-json"),
    ],
)
def test_refusals(text: bytes, code: str) -> None:
    assert _code(text) == code


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (b" " * 401, "byte-limit"),
        (b"[[[[]]]]", "depth-limit"),
        (b'{"a":1,"b":2,"c":[{"d":1,"e":2}]}', "object-key-limit"),
        (b"[1,2,3,4]", "array-item-limit"),
        (b'["",[[1,2,3],[1,2,3],[1,2,3]],[1,2,3]]', "token-limit"),
        (b'"0123456789abc"', "decoded-string-limit"),
        (b'{"0123456789abc":1}', "decoded-string-limit"),
        (b"0." + b"0" * 60, "numeric-token-limit"),
    ],
)
def test_limits(text: bytes, code: str) -> None:
    assert _code(text, TIGHT) == code


@pytest.mark.parametrize(
    "text",
    [
        b" " * 397 + b"[ ]",
        b"[[[]]]",
        b'{"a":1,"b":2,"c":[{"d":1}]}',
        b"[1,2,3]",
        b'"[[[[[[[[[[[["',
        b'"\\u0061\\u0061\\u0061\\u0061\\u0061\\u0061\\u0061\\u0061\\u0061\\u0061\\u0061\\u0061"',
        '"\U0001f600\U0001f600\U0001f600\U0001f600\U0001f600\U0001f600"'.encode(),
        b'"\\\\\\\\\\"\\"\\\\\\\\\\"\\"\\n\\n\\n\\n"',
        b"0." + b"0" * 58,
    ],
)
def test_exactly_at_the_limit_is_read(text: bytes) -> None:
    assert parse_json(text, TIGHT) == json.loads(text)


def test_string_limit_counts_utf16_units() -> None:
    assert (
        _code('"\U0001f600\U0001f600\U0001f600\U0001f600\U0001f600\U0001f600x"'.encode(), TIGHT)
        == "decoded-string-limit"
    )
    assert _code(b'"' + b"\\ud83d\\ude00" * 6 + b'x"', TIGHT) == "decoded-string-limit"


def test_a_refusal_holds_nothing_of_the_text() -> None:
    for text in (b'{"a":"hunter2"', b'{"a":"hunter2","a":1}', b'"hunter2\xff"', b'["hunter2",99999999999999999999]'):
        with pytest.raises(WireError) as refused:
            parse_json(text)
        assert refused.value.__context__ is None
        assert "hunter2" not in "".join(traceback.format_exception(refused.value)) + repr(vars(refused.value))


@pytest.mark.parametrize("text", [b'{"a":"x', b"[1,", b'{"\xc3\xa9":tru', b'{"a":"\\ud83d'])
def test_a_text_that_only_lacks_its_end_is_refused_at_its_end(text: bytes) -> None:
    with pytest.raises(WireError) as refused:
        parse_json(text)
    assert (refused.value.code, refused.value.offset) == ("invalid-json", len(text))


def test_a_document_in_chunks() -> None:
    text = '{"a":"é"}'.encode()
    for size in (1, 3, 100):
        decoder = JsonDecoder(JsonLimits(max_bytes=len(text)))
        for start in range(0, len(text), size):
            decoder.feed(text[start : start + size])
        with pytest.raises(LimitExceeded) as refused:
            decoder.feed(b" ")
        assert refused.value.code == "byte-limit"
        assert decoder.finish() == {"a": "é"}


def test_the_offset_is_in_bytes() -> None:
    with pytest.raises(WireError) as refused:
        parse_json('{"é":x}'.encode())
    assert refused.value.offset == 6


def test_bounds_have_hard_maxima() -> None:
    with pytest.raises(InputError) as refused:
        JsonLimits(max_depth=65)
    assert refused.value.field == "max_depth"
    with pytest.raises(InputError):
        JsonLimits(max_tokens=0)


_keys = st.sampled_from(["a", "b", "\\u0061", "\\\\", '\\"', "é", ":", "[", "0123456789ab"])
_words = st.sampled_from(
    [
        "x",
        "",
        "\\n",
        "\\\\",
        '\\"',
        "\\u0022",
        "\\ud83d\\ude00",
        "\\ud83d",
        "é",
        "\U0001f600",
        "{",
        '":',
        "1234567890123456789",
    ]
)
_numbers = st.sampled_from(
    [
        "0",
        "-0",
        "1",
        "12",
        "1.5",
        "-2e3",
        "01",
        "1.",
        "1e400",
        "9007199254740991",
        "9007199254740992",
        "0.1234567890123456789",
        "123456789012345678901",
        "1e-400",
        "0." + "0" * 70,
    ]
)
_space = st.sampled_from(["", "", "", " ", "\n", "\t", "\x0b"])
_scalars = st.one_of(
    _numbers,
    st.lists(_words, max_size=3).map(lambda parts: '"' + "".join(parts) + '"'),
    st.sampled_from(["true", "null", "tru", "NaN"]),
)
_texts = st.recursive(
    _scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=5).map(lambda items: "[" + ",".join(items) + "]"),
        st.lists(st.tuples(_keys, _space, inner), max_size=4).map(
            lambda pairs: "{" + ",".join(f'"{key}"{space}:{value}' for key, space, value in pairs) + "}"
        ),
    ),
    max_leaves=12,
)


@settings(max_examples=600, deadline=None)
@given(_texts, st.integers(0, 40), st.sampled_from(["", "", "", "]", "}", '"', ",", "\\", "\x00", " 1"]), st.booleans())
def test_agrees_with_the_slow_exact_reader(text: str, place: int, noise: str, tight: bool) -> None:
    data = (text[:place] + noise + text[place:]).encode()
    limits = TIGHT if tight else RESPONSE_JSON
    try:
        expected = read_exactly(data, limits)
    except RefusedError as refused:
        with pytest.raises(WireError) as ours:
            parse_json(data, limits)
        if refused.code == "limit":  # a text may break a bound and the grammar; then either is a right answer
            assert isinstance(ours.value, LimitExceeded) or not _is_json(data)
        return
    got = parse_json(data, limits)
    assert repr(got) == repr(expected)


def _is_json(data: bytes) -> bool:
    try:
        json.loads(data)
    except ValueError:
        return False
    return True


@settings(max_examples=200, deadline=None)
@given(
    st.recursive(
        st.one_of(
            st.none(),
            st.booleans(),
            st.integers(-(2**53) + 1, 2**53 - 1),
            st.floats(allow_nan=False, allow_infinity=False),
            st.text(st.characters(exclude_categories=["Cs"])),
        ),
        lambda inner: st.one_of(
            st.lists(inner), st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner)
        ),
        max_leaves=20,
    ),
    st.booleans(),
    st.sampled_from([None, 1]),
)
def test_reads_back_what_python_writes(value: JsonValue, ascii_only: bool, indent: int | None) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent).encode()
    got = parse_json(text, JsonLimits(max_depth=64))
    assert got == value
    assert not isinstance(got, float) or math.isfinite(got)
