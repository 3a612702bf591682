"""Bounded, strict JSON: what RFC 8259 allows, minus everything that two readers could understand differently.

Rules:

1. Every bound is checked on the bytes, before a value is built. A bound that the size of the text already proves costs
   nothing; otherwise the *skeleton* (the text with its strings emptied) is counted exactly.
2. Strict UTF-8, no byte order mark, no NaN or Infinity, no bytes after the value, no half surrogate pair.
3. No integer beyond 2^53-1 in either direction; no number that becomes infinite. ``1.0`` stays a float.
4. No object has a key twice, after unescaping. The parser keeps the last of two; so the value, written again, would
   have fewer quotation marks than the text. The two numbers are equal exactly when no key was dropped.
5. A refusal names its reason and never holds a byte of the text: not in its message, cause or context.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import orjson

from tasc_collector import limits as bounds
from tasc_collector.canonical import MAX_SAFE_INTEGER, JsonValue
from tasc_collector.errors import WireError
from tasc_collector.wire.intake import check_bounds
from tasc_collector.wire.refusals import WireCode, refusal

__all__ = ["EVENT_JSON", "RECORD_JSON", "RESPONSE_JSON", "JsonDecoder", "JsonLimits", "JsonValue", "parse_json"]

_UNREMARKABLE_NUMBER = 49
"""Most characters of a number whose digit runs are all under 16: sign, 15, point, 15, exponent mark and sign, 15."""
_LONG_RUN = b"0" * 16
"""2^53-1 has 16 digits: without a run of 16 digits no integer is too large and no number is long."""
_BLUR = bytes.maketrans(b"123456789[", b"000000000{")
"""Makes every digit a zero and every opener a brace: one pass, after which both are quick to look for."""
_BACKSLASH = 0x5C
"""As a number: ``in`` tries bytes as a number first, and the exception costs more than the search."""
_PUNCTUATION = b"{}[],:"
_SHAPE = b"{}[],"
_NOT_SHAPE = bytes(set(range(256)) - set(_SHAPE))
_PUNCTUATION_TO_SPACE = bytes.maketrans(_PUNCTUATION + b'"', b" " * 7)
_CONTINUATION = bytes(range(0x80, 0xC0))
_ASTRAL_LEAD = bytes(set(range(256)) - set(range(0xF0, 0xF5)))
_INTEGER = re.compile(rb"-?[0-9]+")
_FLOAT = re.compile(rb"-?[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
_HALF_SURROGATE = re.compile(
    rb"\\u[dD](?:[89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F][0-9a-fA-F]{2})|[c-fC-F][0-9a-fA-F]{2})"
)
_SURROGATE_PAIR = re.compile(rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}")


@dataclass(frozen=True, slots=True)
class JsonLimits:
    """Bounds of one JSON document. The defaults are those of a whole response.

    Args:
        max_bytes: bytes of the text.
        max_depth: containers inside one another.
        max_object_keys: keys of all objects together.
        max_array_items: items of any one array.
        max_tokens: lexical tokens, punctuation included.
        max_string: UTF-16 code units of any string or key, after unescaping.
        max_number: characters of any number.

    Raises:
        InputError: a bound is not positive, or above its hard maximum.
    """

    max_bytes: int = bounds.JSON_MAX_BYTES
    max_depth: int = bounds.JSON_MAX_DEPTH
    max_object_keys: int = bounds.JSON_MAX_KEYS
    max_array_items: int = bounds.JSON_MAX_ITEMS
    max_tokens: int = bounds.JSON_MAX_TOKENS
    max_string: int = bounds.JSON_MAX_STRING
    max_number: int = bounds.JSON_MAX_NUMBER
    free_bytes: int = field(init=False, repr=False, compare=False)
    """Texts up to this size cannot break the bounds on keys, items, tokens and strings, whatever they hold."""

    def __post_init__(self) -> None:
        check_bounds(self, _HARD, where="JSON limits")
        free = min(self.max_tokens, self.max_object_keys, self.max_array_items, self.max_string)
        object.__setattr__(self, "free_bytes", free if self.max_number >= _UNREMARKABLE_NUMBER else 0)


_HARD = {
    "max_bytes": bounds.JSON_BYTES_HARD,
    "max_depth": bounds.JSON_DEPTH_HARD,
    "max_object_keys": bounds.JSON_KEYS_HARD,
    "max_array_items": bounds.JSON_ITEMS_HARD,
    "max_tokens": bounds.JSON_TOKENS_HARD,
    "max_string": bounds.JSON_STRING_HARD,
    "max_number": bounds.JSON_NUMBER_HARD,
}

RESPONSE_JSON = JsonLimits()
"""One whole JSON response of a server."""
EVENT_JSON = JsonLimits(max_bytes=bounds.JSON_EVENT_MAX_BYTES, max_string=bounds.JSON_EVENT_MAX_BYTES)
"""One JSON document inside a stream."""
RECORD_JSON = JsonLimits(
    bounds.RECORD_MAX_BYTES,
    bounds.RECORD_MAX_DEPTH,
    bounds.RECORD_MAX_KEYS,
    bounds.RECORD_MAX_ITEMS,
    bounds.RECORD_MAX_TOKENS,
    bounds.RECORD_MAX_STRING,
    bounds.RECORD_MAX_NUMBER,
)
"""One record file."""


def parse_json(data: bytes, limits: JsonLimits = RESPONSE_JSON) -> JsonValue:
    """Read one JSON document.

    Args:
        data: the whole text, UTF-8.
        limits: its bounds.

    Returns:
        dicts, lists, str, int, float, bool and None, freshly built.

    Raises:
        LimitExceeded: a bound is broken; no value was built.
        WireError: the bytes are not strict JSON; ``code`` says why. ``invalid-json`` with an ``offset`` equal to the
            length means that the text ends before its value does.
    """
    size = len(data)
    if size > limits.max_bytes:
        raise refusal(WireCode.BYTE_LIMIT)
    blurred = data.translate(_BLUR)
    if size > limits.free_bytes or blurred.find(_LONG_RUN) >= 0 or blurred.count(b"{") > limits.max_depth:
        _check_exactly(data, limits)
    value: JsonValue = None
    position = -1
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        position = error.pos
    if position >= 0:  # raised out here so that the parser's error, which holds the text, is not our context
        raise _why_refused(data, position)
    again = orjson.dumps(value)
    if again != data and _quotation_marks(again) != _quotation_marks(data):
        raise refusal(WireCode.DUPLICATE_KEY)
    return value


class JsonDecoder:
    """Reads one JSON document that comes in chunks. What is kept never exceeds the bound on its bytes.

    Args:
        limits: bounds of the document.
    """

    def __init__(self, limits: JsonLimits = RESPONSE_JSON) -> None:
        self._limits = limits
        self._text = bytearray()

    def feed(self, chunk: bytes) -> None:
        """Take the next bytes.

        Raises:
            LimitExceeded: they are more than the document may have; the chunk is not kept.
        """
        if len(self._text) + len(chunk) > self._limits.max_bytes:
            raise refusal(WireCode.BYTE_LIMIT)
        self._text += chunk

    def finish(self) -> JsonValue:
        """The value, once all bytes are there.

        Raises:
            WireError: as ``parse_json``.
        """
        return parse_json(bytes(self._text), self._limits)


def _quotation_marks(text: bytes) -> int:
    """Number of quotation marks that open or close a string of valid JSON."""
    if _BACKSLASH in text:
        text = _without_escaped_marks(text)
    return text.count(b'"')


def _without_escaped_marks(text: bytes) -> bytes:
    r"""The text with one ordinary character for each ``\\`` and each ``\"``, so that every mark left is a delimiter.

    A run of backslashes begins outside of any escape, so pairing it from the left is how a reader pairs it.
    """
    return text.replace(b"\\\\", b"_").replace(b'\\"', b"_")


def _check_exactly(data: bytes, limits: JsonLimits) -> None:
    """Count everything that is bounded. Of bytes that are not JSON the counts mean nothing; the parser refuses them."""
    marks = _quotation_marks(data)
    if marks // 2 > limits.max_tokens:
        raise refusal(WireCode.TOKEN_LIMIT)
    pieces = _without_escaped_marks(data).split(b'"')
    if len(data) > limits.max_string and any(
        len(string) > limits.max_string and _utf16_units(string) > limits.max_string for string in pieces[1::2]
    ):
        raise refusal(WireCode.DECODED_STRING_LIMIT)
    skeleton = b'"'.join(pieces[0::2])
    del pieces
    _check_shape(skeleton, limits)
    if skeleton.count(b":") > limits.max_object_keys:
        raise refusal(WireCode.OBJECT_KEY_LIMIT)
    tokens = marks // 2 + sum(skeleton.count(mark) for mark in (b"{", b"}", b"[", b"]", b",", b":"))
    if tokens > limits.max_tokens:
        raise refusal(WireCode.TOKEN_LIMIT)
    scalars = skeleton.translate(_PUNCTUATION_TO_SPACE).split()
    if tokens + len(scalars) > limits.max_tokens:
        raise refusal(WireCode.TOKEN_LIMIT)
    for scalar in scalars:
        if len(scalar) > limits.max_number:
            raise refusal(WireCode.NUMERIC_TOKEN_LIMIT)
        if len(scalar) > 15 and _INTEGER.fullmatch(scalar) and abs(int(scalar)) > MAX_SAFE_INTEGER:
            raise refusal(WireCode.NUMBER_RANGE)


def _check_shape(skeleton: bytes, limits: JsonLimits) -> None:
    """Depth and items of each array, in one pass that stops at the first breach."""
    openers = skeleton.count(b"{") + skeleton.count(b"[")
    if openers <= limits.max_depth and skeleton.count(b",") < limits.max_array_items:
        return
    commas: list[int] = []
    arrays: list[bool] = []
    # more marks than the token limit need not be looked at: the tokens are counted next
    for mark in skeleton.translate(None, _NOT_SHAPE)[: limits.max_tokens + 1]:
        if mark == 0x2C:
            if arrays and arrays[-1]:
                commas[-1] += 1
                if commas[-1] >= limits.max_array_items:
                    raise refusal(WireCode.ARRAY_ITEM_LIMIT)
        elif mark & 2:  # "[" is 0x5B and "{" is 0x7B; their closers have this bit clear
            if len(arrays) >= limits.max_depth:
                raise refusal(WireCode.DEPTH_LIMIT)
            arrays.append(mark == 0x5B)
            commas.append(0)
        elif arrays:
            arrays.pop()
            commas.pop()


def _utf16_units(string: bytes) -> int:
    r"""UTF-16 code units of the inside of a JSON string in which ``\\`` and ``\"`` are one character each."""
    escapes, unicode_escapes = string.count(b"\\"), string.count(b"\\u")
    characters = len(string.translate(None, _CONTINUATION)) + len(string.translate(None, _ASTRAL_LEAD))
    return characters - escapes - 4 * unicode_escapes


def _why_refused(data: bytes, position: int) -> WireError:
    """The refusal of bytes that the parser does not take; ``position`` is where it stopped, in characters."""
    if data.startswith(b"\xef\xbb\xbf"):
        return refusal(WireCode.UTF8_BOM, offset=0)
    text = data.decode(errors="ignore")
    if len(text.encode()) != len(data):
        return refusal(WireCode.INVALID_UTF8)
    code = _why_invalid(data) if position < len(text) else WireCode.INVALID_JSON
    return refusal(code, offset=position if data.isascii() else len(text[:position].encode()))


def _why_invalid(data: bytes) -> WireCode:
    """The reason for UTF-8 text that breaks off before its end."""
    plain = _without_escaped_marks(data)
    if _HALF_SURROGATE.search(_SURROGATE_PAIR.sub(b"_", plain)):
        return WireCode.INVALID_UNICODE
    skeleton = b'"'.join(plain.split(b'"')[0::2])
    numbers = (word for word in skeleton.translate(_PUNCTUATION_TO_SPACE).split() if _FLOAT.fullmatch(word))
    if any(float(number) in (float("inf"), float("-inf")) for number in numbers):
        return WireCode.NUMBER_RANGE
    return WireCode.INVALID_JSON
