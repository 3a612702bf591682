"""A slow, exact reader of the strict JSON profile, character by character: the oracle of the fast one."""

from __future__ import annotations

import re

from tasc_collector.wire.json import JsonLimits, JsonValue

_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


class RefusedError(Exception):
    """The text is refused; ``code`` is "limit" for a bound and "syntax" for the rest."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


class _Reader:
    def __init__(self, text: str, limits: JsonLimits) -> None:
        self.text, self.limits, self.at = text, limits, 0
        self.tokens = self.keys = 0

    def bound(self, *, holds: bool) -> None:
        if not holds:
            raise RefusedError("limit")

    def token(self) -> None:
        self.tokens += 1
        self.bound(holds=self.tokens <= self.limits.max_tokens)

    def space(self) -> None:
        while self.at < len(self.text) and self.text[self.at] in " \t\r\n":
            self.at += 1

    def take(self, character: str) -> bool:
        self.space()
        if self.text.startswith(character, self.at):
            self.at += 1
            self.token()
            return True
        return False

    def need(self, character: str) -> None:
        if not self.take(character):
            raise RefusedError("syntax")

    def value(self, depth: int) -> JsonValue:
        self.space()
        if self.take("["):
            return self.array(depth + 1)
        if self.take("{"):
            return self.object(depth + 1)
        if self.text.startswith('"', self.at):
            return self.string()
        for word, value in (("true", True), ("false", False), ("null", None)):
            if self.text.startswith(word, self.at):
                self.at += len(word)
                self.token()
                return value
        return self.number()

    def array(self, depth: int) -> JsonValue:
        self.bound(holds=depth <= self.limits.max_depth)
        items: list[JsonValue] = []
        if self.take("]"):
            return items
        while True:
            self.bound(holds=len(items) < self.limits.max_array_items)
            items.append(self.value(depth))
            if self.take("]"):
                return items
            self.need(",")

    def object(self, depth: int) -> JsonValue:
        self.bound(holds=depth <= self.limits.max_depth)
        items: dict[str, JsonValue] = {}
        if self.take("}"):
            return items
        while True:
            self.space()
            if not self.text.startswith('"', self.at):
                raise RefusedError("syntax")
            key = self.string()
            self.keys += 1
            self.bound(holds=self.keys <= self.limits.max_object_keys)
            if key in items:
                raise RefusedError("syntax")
            self.need(":")
            items[key] = self.value(depth)
            if self.take("}"):
                return items
            self.need(",")

    def string(self) -> str:
        self.token()
        self.at += 1
        units: list[str] = []
        while True:
            if self.at >= len(self.text) or self.text[self.at] < " ":
                raise RefusedError("syntax")
            character = self.text[self.at]
            self.at += 1
            if character == '"':
                break
            if character == "\\":
                character = self.escape()
            units.append(character)
        encoded = "".join(units).encode("utf-16-be", "surrogatepass")
        try:
            decoded = encoded.decode("utf-16-be")
        except UnicodeDecodeError:
            raise RefusedError("syntax") from None
        self.bound(holds=len(encoded) // 2 <= self.limits.max_string)
        return decoded

    def escape(self) -> str:
        letter = self.text[self.at : self.at + 1]
        self.at += 1
        if letter == "u":
            digits = self.text[self.at : self.at + 4]
            self.at += 4
            if not re.fullmatch("[0-9a-fA-F]{4}", digits):
                raise RefusedError("syntax")
            return chr(int(digits, 16))
        if letter not in _ESCAPES or not letter:
            raise RefusedError("syntax")
        return _ESCAPES[letter]

    def number(self) -> JsonValue:
        found = _NUMBER.match(self.text, self.at)
        if found is None:
            raise RefusedError("syntax")
        self.token()
        self.at = found.end()
        self.bound(holds=len(found[0]) <= self.limits.max_number)
        if found[1] is None and found[2] is None:
            whole = int(found[0])
            if abs(whole) > 2**53 - 1:
                raise RefusedError("syntax")
            return whole
        real = float(found[0])
        if real in (float("inf"), float("-inf")):
            raise RefusedError("syntax")
        return real


def read_exactly(data: bytes, limits: JsonLimits) -> JsonValue:
    """The value of a text, or ``RefusedError``."""
    if len(data) > limits.max_bytes:
        raise RefusedError("limit")
    try:
        reader = _Reader(data.decode(), limits)
    except UnicodeDecodeError:
        raise RefusedError("syntax") from None
    value = reader.value(0)
    reader.space()
    if reader.at != len(reader.text):
        raise RefusedError("syntax")
    return value
