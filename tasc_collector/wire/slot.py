"""Reading a stream whose events differ in one string only, which is what nearly all of a token stream is.

A *slot* is one JSON text with one of its strings left open: all that stands before the string's first character, and
all from its closing quotation mark on. Rules:

1. A slot is learned from a text that was read in full. Putting another text into the place must give the same value
   with only that one string changed; this is checked by reading such a text. Then the place is inside a string, and
   what can be the inside of a JSON string can only be that string's content there.
2. A text fits if it is the slot with such characters, or with what is by itself, between two quotation marks, one JSON
   string. What does not fit is read in full; nothing is ever guessed.
3. The bounds of JSON hold for every text that fits: it has the tokens of the one that was learned, and the string is
   short.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import orjson

from tasc_collector.errors import WireError
from tasc_collector.wire.json import JsonLimits, JsonValue, parse_json

SLOT_MAX_CHARACTERS = 4_096
"""Most characters of the open strings of one chunk. A token has a few; more is read in full."""
_PROBE = "another text"

Path: TypeAlias = Sequence[str | int]
"""Keys and indices from a document to one of its values."""


@dataclass(frozen=True, slots=True)
class StringSlot:
    """A JSON text with one string left open, between ``before`` and ``after``."""

    before: str
    after: str
    _head: bytes = field(init=False, repr=False, compare=False)
    _tail: bytes = field(init=False, repr=False, compare=False)
    _ends: int = field(init=False, repr=False, compare=False)
    _seam: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        head, tail = f"data: {self.before}".encode(), f"{self.after}\n\n".encode()
        object.__setattr__(self, "_head", head)
        object.__setattr__(self, "_tail", tail)
        object.__setattr__(self, "_ends", len(head) + len(tail))
        object.__setattr__(self, "_seam", (tail + head).decode())

    def fit(self, events: bytes) -> list[str] | None:
        """The open strings of events that all fit, or None where the events must be read in full.

        Args:
            events: one or more whole events of one ``data`` line each, blank lines included.
        """
        size = len(events) - self._ends
        if size < 0 or not events.startswith(self._head) or not events.endswith(self._tail):
            return None
        try:
            inside = events[len(self._head) : len(self._head) + size].decode()
        except UnicodeDecodeError:
            return None
        if inside.isprintable() and size <= SLOT_MAX_CHARACTERS and '"' not in inside and "\\" not in inside:
            return [inside]
        strings = inside.split(self._seam)
        joined = "".join(strings)
        if len(joined) > SLOT_MAX_CHARACTERS:
            return None
        return strings if is_plain(joined) else _unescaped(strings)

    def fit_each(self, events: list[bytes]) -> list[str] | None:
        """``fit`` for events at hand one by one, the common case only: plain characters."""
        head, tail, ends = self._head, self._tail, self._ends
        first, last = len(head), -len(tail)
        inside: list[bytes] = []
        for event in events:
            if len(event) < ends or not event.startswith(head) or not event.endswith(tail):
                return None
            inside.append(event[first:last])
        try:
            strings = b"\n".join(inside).decode().split("\n")
        except UnicodeDecodeError:
            return None
        joined = "".join(strings)
        fitting = len(strings) == len(events) and len(joined) <= SLOT_MAX_CHARACTERS and is_plain(joined)
        return strings if fitting else None

    def opened(self, texts: Iterable[str]) -> list[str]:
        """The open strings of the first of these texts, up to one that does not fit.

        Args:
            texts: whole JSON texts, as events held them.
        """
        before, after = self.before, self.after
        first, last, ends = len(before), -len(after), len(before) + len(after)
        strings: list[str] = []
        for text in texts:
            if not text.startswith(before) or not text.endswith(after) or len(text) < ends:
                break
            strings.append(text[first:last])
        joined = "".join(strings)
        if len(joined) <= SLOT_MAX_CHARACTERS and is_plain(joined):
            return strings
        fitting, size = 0, 0
        for string in strings:
            size += len(string)
            if size > SLOT_MAX_CHARACTERS or not (is_plain(string) or _unescaped([string])):
                break
            fitting += 1
        return _unescaped(strings[:fitting]) or []


def is_plain(string: str) -> bool:
    """True if the characters stand for themselves inside a JSON string, and none is a line end."""
    return string.isprintable() and '"' not in string and "\\" not in string


def _unescaped(strings: list[str]) -> list[str] | None:
    """The strings with their escapes resolved, or None if one of them is not the whole inside of a JSON string."""
    try:
        return [string if is_plain(string) else str(orjson.loads(f'"{string}"')) for string in strings]
    except orjson.JSONDecodeError:
        return None


def learn_slot(text: str, value: JsonValue, path: Path, limits: JsonLimits) -> StringSlot | None:
    """The slot of one string of a document.

    Args:
        text: the document, in one line.
        value: what was read from it.
        path: where its string is.
        limits: the bounds under which it was read.

    Returns:
        The slot, or None where the string is not written plainly, where more than one string of the document looks
        like it, or where a longer string could break a bound.
    """
    string = _at(value, path)
    if not isinstance(string, str) or not string or not is_plain(string) or "\n" in text or "\r" in text:
        return None
    quoted = f'"{string}"'
    place = text.find(quoted)
    if place < 0 or text.find(quoted, place + 1) >= 0:
        return None
    if 4 * (len(text) + SLOT_MAX_CHARACTERS) > limits.max_bytes or limits.max_string < 2 * SLOT_MAX_CHARACTERS:
        return None
    slot = StringSlot(text[: place + 1], text[place + 1 + len(string) :])
    try:
        probe = parse_json(f"{slot.before}{_PROBE}{slot.after}".encode(), limits)
    except WireError:
        return None
    return slot if _same_but_for(value, probe, path) else None


def _at(value: JsonValue, path: Path) -> JsonValue:
    for step in path:
        if isinstance(step, str):
            if not isinstance(value, Mapping) or step not in value:
                return None
            value = value[step]
        elif isinstance(value, list) and step < len(value):
            value = value[step]
        else:
            return None
    return value


def _same_but_for(value: JsonValue, probe: JsonValue, path: Path) -> bool:
    """True if the probe is the value with the probe's text at the path."""
    if not path:
        return probe == _PROBE
    step, rest = path[0], path[1:]
    if isinstance(value, dict) and isinstance(probe, dict) and isinstance(step, str):
        others = {key: item for key, item in value.items() if key != step}
        return (
            value.keys() == probe.keys()
            and others == {key: item for key, item in probe.items() if key != step}
            and _same_but_for(value[step], probe[step], rest)
        )
    if isinstance(value, list) and isinstance(probe, list) and isinstance(step, int) and len(value) == len(probe):
        others_before, others_after = value[:step] == probe[:step], value[step + 1 :] == probe[step + 1 :]
        return others_before and others_after and _same_but_for(value[step], probe[step], rest)
    return False
