"""Why a parser refuses bytes: one allowlisted word per reason, one sentence, one way out.

The words are those of the original project's codec errors where it has one. A refusal never holds a byte of the input:
only its word and, where it is known, the offset of the byte.
"""

from __future__ import annotations

from enum import StrEnum

from tasc_collector.errors import LimitExceeded, WireError


class WireCode(StrEnum):
    """Every reason for which JSON, SSE, NDJSON or Prometheus text is refused."""

    BYTE_LIMIT = "byte-limit"
    DEPTH_LIMIT = "depth-limit"
    OBJECT_KEY_LIMIT = "object-key-limit"
    ARRAY_ITEM_LIMIT = "array-item-limit"
    TOKEN_LIMIT = "token-limit"  # noqa: S105  # a JSON token
    DECODED_STRING_LIMIT = "decoded-string-limit"
    NUMERIC_TOKEN_LIMIT = "numeric-token-limit"  # noqa: S105  # a JSON token
    CHUNK_LIMIT = "chunk-limit"
    LINE_LIMIT = "line-limit"
    LINE_BYTE_LIMIT = "line-byte-limit"
    EVENT_LIMIT = "event-limit"
    EVENT_BYTE_LIMIT = "event-byte-limit"
    FIELD_BYTE_LIMIT = "field-byte-limit"
    ITEM_LIMIT = "item-limit"
    SAMPLE_LIMIT = "sample-limit"
    LABEL_LIMIT = "label-limit"
    NAME_LIMIT = "name-limit"
    NUMBER_RANGE = "number-range"
    DUPLICATE_KEY = "duplicate-key"
    INVALID_UNICODE = "invalid-unicode"
    INVALID_UTF8 = "invalid-utf8"
    UTF8_BOM = "utf8-bom"
    INVALID_JSON = "invalid-json"
    INVALID_CHUNK = "invalid-chunk"
    BLANK_LINE = "blank-line"
    DUPLICATE_SAMPLE = "duplicate-sample"
    UNSUPPORTED_SYNTAX = "unsupported-syntax"


SENTENCES: dict[WireCode, str] = {
    WireCode.BYTE_LIMIT: "more bytes than the limit allows",
    WireCode.DEPTH_LIMIT: "objects and arrays are nested deeper than the limit allows",
    WireCode.OBJECT_KEY_LIMIT: "more object keys than the limit allows",
    WireCode.ARRAY_ITEM_LIMIT: "an array has more items than the limit allows",
    WireCode.TOKEN_LIMIT: "more JSON tokens than the limit allows",
    WireCode.DECODED_STRING_LIMIT: "a string is longer than the limit allows",
    WireCode.NUMERIC_TOKEN_LIMIT: "a number has more characters than the limit allows",
    WireCode.CHUNK_LIMIT: "more chunks than the limit allows",
    WireCode.LINE_LIMIT: "more lines than the limit allows",
    WireCode.LINE_BYTE_LIMIT: "a line has more bytes than the limit allows",
    WireCode.EVENT_LIMIT: "more events than the limit allows",
    WireCode.EVENT_BYTE_LIMIT: "an event has more bytes than the limit allows",
    WireCode.FIELD_BYTE_LIMIT: "a field has more bytes than the limit allows",
    WireCode.ITEM_LIMIT: "more rows than the limit allows",
    WireCode.SAMPLE_LIMIT: "more samples than the limit allows",
    WireCode.LABEL_LIMIT: "a sample has more labels, or a longer label, than the limit allows",
    WireCode.NAME_LIMIT: "a metric name is longer than the limit allows",
    WireCode.NUMBER_RANGE: "a number is beyond 2^53-1 as an integer, or not finite",
    WireCode.DUPLICATE_KEY: "an object has the same key twice",
    WireCode.INVALID_UNICODE: "a string has half of a surrogate pair",
    WireCode.INVALID_UTF8: "the bytes are not UTF-8",
    WireCode.UTF8_BOM: "the text begins with a byte order mark",
    WireCode.INVALID_JSON: "the text is not JSON (RFC 8259)",
    WireCode.INVALID_CHUNK: "a chunk is empty",
    WireCode.BLANK_LINE: "a row is blank",
    WireCode.DUPLICATE_SAMPLE: "a sample with the same name and labels came before",
    WireCode.UNSUPPORTED_SYNTAX: "the line is not Prometheus text",
}

_FORMAT_WAY_OUT = "capture the bytes and show them with `tasc wire`; the server has to send what its format says"
_LIMIT_WAY_OUT = "ask for less (fewer tokens, no logprobs), or raise the named limit where it can be raised"


def refusal(code: WireCode, *, offset: int | None = None) -> WireError:
    """The error for one reason: a ``LimitExceeded`` for every ``*-limit``, otherwise a ``WireError``.

    Args:
        code: why the bytes are refused.
        offset: byte offset of the reason in the bytes that were given, where it is known.
    """
    if code.endswith("-limit"):
        return LimitExceeded(code.value, SENTENCES[code], offset=offset, way_out=_LIMIT_WAY_OUT)
    return WireError(code.value, SENTENCES[code], offset=offset, way_out=_FORMAT_WAY_OUT)
