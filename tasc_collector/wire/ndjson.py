"""Newline-delimited JSON, incrementally and within bounds.

Rules:

1. A row is one JSON document and ends with LF; a CR before it is white space of JSON. A blank row is refused.
2. The last row may lack its LF if it is complete. A bare number there may be the beginning of a longer one: not a row.
3. What is left at the end and only lacks its own end sets ``trailing_incomplete`` and is dropped. What no more bytes
   would mend is refused.
4. Each row is held to the JSON rules (``wire.json``), so a byte order mark, a duplicate key or NaN refuses the stream.
"""

from __future__ import annotations

import codecs
from dataclasses import dataclass

from tasc_collector import limits as bounds
from tasc_collector.errors import WireError
from tasc_collector.wire.intake import Intake, check_bounds
from tasc_collector.wire.json import JsonLimits, JsonValue, parse_json
from tasc_collector.wire.refusals import WireCode

ROW_JSON = JsonLimits(
    bounds.NDJSON_MAX_LINE_BYTES,
    bounds.NDJSON_MAX_DEPTH,
    bounds.NDJSON_MAX_KEYS,
    bounds.NDJSON_MAX_ARRAY_ITEMS,
    bounds.NDJSON_MAX_TOKENS,
    bounds.JSON_EVENT_MAX_BYTES,
    bounds.JSON_MAX_NUMBER,
)
"""One row, as the original bounds it."""

_HARD = {
    "max_bytes": bounds.NDJSON_BYTES_HARD,
    "max_chunks": bounds.NDJSON_CHUNKS_HARD,
    "max_line_bytes": bounds.NDJSON_LINE_BYTES_HARD,
    "max_items": bounds.NDJSON_ITEMS_HARD,
}


@dataclass(frozen=True, slots=True)
class NdjsonLimits:
    """Bounds of one stream of rows.

    Args:
        max_bytes: bytes of the stream.
        max_chunks: chunks in which it comes.
        max_line_bytes: bytes of a row, without its line end.
        max_items: rows.

    Raises:
        InputError: a bound is not positive, or above its hard maximum.
    """

    max_bytes: int = bounds.NDJSON_MAX_BYTES
    max_chunks: int = bounds.NDJSON_MAX_CHUNKS
    max_line_bytes: int = bounds.NDJSON_MAX_LINE_BYTES
    max_items: int = bounds.NDJSON_MAX_ITEMS

    def __post_init__(self) -> None:
        check_bounds(self, _HARD, where="NDJSON limits")


class NdjsonDecoder:
    """Decodes one stream of rows.

    A chunk that holds good and bad rows gives its good rows first; the refusal comes with the next call.

    Args:
        limits: bounds of the stream.
        row_limits: bounds of the JSON of each row.
    """

    def __init__(self, limits: NdjsonLimits = NdjsonLimits(), row_limits: JsonLimits = ROW_JSON) -> None:
        self._limits, self._row_limits = limits, row_limits
        self._intake = Intake(limits)
        self._pending = bytearray()
        self._items = 0
        self.trailing_incomplete = False
        """After ``finish``: the stream ended inside a row, which was dropped."""

    def feed(self, chunk: bytes) -> list[JsonValue]:
        """Rows whose line end is in this chunk.

        Args:
            chunk: the next bytes, at least one.

        Raises:
            LimitExceeded: a bound of the stream or of a row is broken.
            WireError: a row is blank or not strict JSON, or the chunk is empty.
        """
        chunk = self._intake.admit(chunk)
        end = chunk.rfind(b"\n")
        rows: list[JsonValue] = []
        if end >= 0:
            block = bytes(self._pending) + chunk[:end]
            self._pending.clear()
            rows = self._read_rows(block)
        if not self._intake.refused:
            self._pending += chunk[end + 1 :]
            if len(self._pending) > self._limits.max_line_bytes + 1:
                self._intake.refuse(WireCode.LINE_BYTE_LIMIT)
        if not rows:
            self._intake.check()
        return rows

    def finish(self) -> list[JsonValue]:
        """The last row, if it is complete and lacks only its line end.

        Raises:
            WireError: a refusal that the last chunk held back, or the last row breaks a rule that no more bytes mend.
        """
        self._intake.check()
        rest = bytes(self._pending)
        self._pending.clear()
        if not rest.strip(b" \t\r"):
            return []
        text, bad_utf8 = _decode_beginning(rest)
        code = WireCode.INVALID_UTF8 if bad_utf8 else self._over_limit(rest)
        row: JsonValue = None
        if code is None:
            try:
                row = parse_json(text, self._row_limits)
                self.trailing_incomplete = text != rest or isinstance(row, int | float)
            except WireError as error:
                self.trailing_incomplete = error.code == WireCode.INVALID_JSON and error.offset == len(text)
                code = None if self.trailing_incomplete else WireCode(error.code)
        if code is not None:
            self._intake.refuse(code)
            self._intake.check()
        return [] if self.trailing_incomplete else [row]

    def _read_rows(self, block: bytes) -> list[JsonValue]:
        rows: list[JsonValue] = []
        for line in block.split(b"\n"):
            code = WireCode.BLANK_LINE if not line.strip(b" \t\r") else self._over_limit(line)
            row: JsonValue = None
            if code is None:
                try:
                    row = parse_json(line, self._row_limits)
                except WireError as error:
                    code = WireCode(error.code)
            if code is not None:
                self._intake.refuse(code)
                break
            self._items += 1
            rows.append(row)
        return rows

    def _over_limit(self, line: bytes) -> WireCode | None:
        if len(line) - line.endswith(b"\r") > self._limits.max_line_bytes:
            return WireCode.LINE_BYTE_LIMIT
        return WireCode.ITEM_LIMIT if self._items >= self._limits.max_items else None


def _decode_beginning(data: bytes) -> tuple[bytes, bool]:
    """The whole characters at the beginning of the data, and whether what follows them can never become one."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        return decoder.decode(data).encode(), False
    except UnicodeDecodeError:
        return b"", True
