"""The grammar of one line of Prometheus text: a sample, or what a comment declares.

Sources: Prometheus "exposition formats" 0.0.4 (spaces and tabs between tokens, trailing comma, escapes of label
values), its UTF-8 names in quotation marks, and OpenMetrics 1.0 for exemplars and timestamps in seconds.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import NamedTuple

_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*+"
_LABEL = r"[a-zA-Z_][a-zA-Z0-9_]*+"
_QUOTED = r'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_DECIMAL = r"[-+]?(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][-+]?[0-9]++)?"
_VALUE = rf"(?:{_DECIMAL}|[-+]?(?i:infinity|inf)|(?i:nan))"
_S = r"[ \t]*+"

_HEAD = re.compile(rf"{_S}(?P<name>{_NAME})?(?:{_S}(?P<brace>\{{(?!count:))|[ \t]++)")
_PAIR = re.compile(rf"{_S}(?P<name>{_LABEL}|{_QUOTED}){_S}={_S}(?P<value>{_QUOTED}){_S}")
_QUOTED_NAME = re.compile(rf"{_S}(?P<name>{_QUOTED}){_S}(?=[,}}])")
_TAIL = re.compile(
    rf"{_S}(?:(?P<value>{_VALUE})|(?P<native>\{{count:[^{{}}\"]*+\}}))(?:[ \t]++(?P<time>{_DECIMAL}))?"
    rf"(?P<exemplar>[ \t]++\#[ \t]++\{{)?{_S}"
)
_EXEMPLAR_TAIL = re.compile(rf"[ \t]++{_VALUE}(?:[ \t]++{_DECIMAL})?{_S}")
_DECLARATION = re.compile(
    rf"{_S}\#{_S}(?P<what>HELP|TYPE|UNIT)[ \t]++(?P<name>{_NAME}|{_QUOTED})(?:[ \t]++(?P<text>.*))?", re.DOTALL
)
_TYPE_OR_UNIT = re.compile(rf"{_S}\#{_S}(?:TYPE|UNIT)(?:[ \t]|$)")
_TIME_BOUND = 2.0**64
_MILLISECONDS = re.compile(r"[-+]?[0-9]{1,19}")
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPED = {"n": "\n", "\\": "\\", '"': '"'}


class SampleLine(NamedTuple):
    """A sample as one line gives it. ``value`` is None for a native histogram, whose buckets are not read."""

    name: str
    labels: tuple[tuple[str, str], ...]
    value: float | None
    time: str | None
    exemplar: bool


class Declaration(NamedTuple):
    """What a HELP, TYPE or UNIT comment says of a metric."""

    what: str
    name: str
    text: str


def unquote(text: str) -> str:
    """A name or label value without its quotation marks and escapes; an unknown escape stays as it is written."""
    if not text.startswith('"'):
        return text
    text = text[1:-1]
    return _ESCAPE.sub(lambda found: _ESCAPED.get(found[1], found[0]), text) if "\\" in text else text


def read_sample(line: str) -> SampleLine | None:
    """The sample of a line, with its labels sorted by name; None where the line is no sample.

    A label name that comes twice, and the reserved ``__name__``, are refused.
    """
    head = _HEAD.match(line)
    if head is None:
        return None
    name, position = head["name"], head.end()
    labels: list[tuple[str, str]] = []
    if head["brace"]:
        if name is None:
            quoted = _QUOTED_NAME.match(line, position)
            if quoted is None:
                return None
            name, position = unquote(quoted["name"]), quoted.end()
            position += line.startswith(",", position)
        position = _read_labels(line, position, labels)
        if position < 0:
            return None
    tail = _TAIL.match(line, position)
    if name is None or tail is None:
        return None
    end = tail.end()
    if tail["exemplar"]:
        end = _read_labels(line, end, [])
        rest = _EXEMPLAR_TAIL.match(line, end) if end >= 0 else None
        if rest is None:
            return None
        end = rest.end()
    if end != len(line):
        return None
    names = {label for label, _ in labels}
    if len(names) != len(labels) or "__name__" in names:
        return None
    value = None if tail["native"] else float(tail["value"])
    return SampleLine(name, tuple(sorted(labels)), value, tail["time"], bool(tail["exemplar"]))


def _read_labels(line: str, position: int, labels: list[tuple[str, str]]) -> int:
    """Read ``name="value", ...}`` from a position into ``labels``; the position after the brace, or -1."""
    while (pair := _PAIR.match(line, position)) is not None:
        labels.append((unquote(pair["name"]), unquote(pair["value"])))
        position = pair.end()
        if not line.startswith(",", position):
            break
        position += 1
    else:
        blank = _BLANK.match(line, position)
        position = blank.end() if blank else position
        if not labels and line.startswith(",", position):
            blank = _BLANK.match(line, position + 1)
            position = blank.end() if blank else position
    return position + 1 if line.startswith("}", position) else -1


_BLANK = re.compile(_S)


def read_declaration(line: str) -> Declaration | None:
    """What a comment line declares; None for an ordinary comment."""
    found = _DECLARATION.fullmatch(line)
    return Declaration(found["what"], unquote(found["name"]), found["text"] or "") if found else None


def is_broken_declaration(line: str) -> bool:
    """True for a TYPE or UNIT comment that names no metric. A HELP comment without one is only prose."""
    return _TYPE_OR_UNIT.match(line) is not None


def nanoseconds(time: str, *, seconds: bool) -> int | None:
    """A sample's time since 1970: written as an integer of milliseconds, or (OpenMetrics) in decimal seconds.

    None where it is not written so, or is too far away for any clock.
    """
    if not seconds and not _MILLISECONDS.fullmatch(time):
        return None
    near = float(time)
    if abs(near) >= _TIME_BOUND:
        return None
    exact = Decimal(near) if "e" in time.lower() else Decimal(time)
    return int(exact * (1_000_000_000 if seconds else 1_000_000))
