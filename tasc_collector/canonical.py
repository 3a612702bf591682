"""Canonical JSON (RFC 8785) and domain-separated SHA-256 digests.

Everything that is signed or digested in this project goes through this module. A digest is public identity, not
authenticity; keys are in ``identity`` (HMAC) and ``signing`` (Ed25519).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any, TypeAlias

import orjson
import rfc8785

from tasc_collector.errors import InputError

JsonScalar: TypeAlias = str | int | float | bool | None
JsonValue: TypeAlias = JsonScalar | Sequence["JsonValue"] | Mapping[str, "JsonValue"]

MAX_SAFE_INTEGER = 2**53 - 1
"""Largest integer that every JSON implementation keeps exactly (IEEE 754 double); larger ones are refused."""


_PLAIN = frozenset({str, int, bool, type(None)})
_ORJSON = orjson.OPT_SORT_KEYS | orjson.OPT_STRICT_INTEGER


def _is_plain_fraction(number: float) -> bool:
    """True if both forms write a float alike: no integer (``1.0`` is ``1``), no exponent, not infinite or NaN."""
    return 1e-3 <= abs(number) < 1e15 and not number.is_integer()


_SAME, _FLOATS, _OTHER = range(3)
"""How far orjson's sorted output is from RFC 8785: the same, the same but for floats that each writes in a form of its own,
or something else.
"""


def _fast(value: JsonValue) -> int:
    """Whether orjson can write a value that it has taken: ``_SAME``, ``_FLOATS`` or ``_OTHER``.

    orjson sorts keys by code point; RFC 8785 by UTF-16 unit. They differ only where a key has a character above U+D7FF.
    The walk visits containers only and leaves their scalars to C: in Python it would cost more than the encoding.
    """
    found = _SAME
    left: list[Any] = [value]  # Any: type() below tells what it is
    while left:
        item = left.pop()
        kind = type(item)
        if kind is dict:
            if not "".join(item).isascii():
                return _OTHER
            item = item.values()
        elif kind is not list and kind is not tuple:
            if kind is float:
                if not _is_plain_fraction(item):
                    found = _FLOATS
            elif kind not in _PLAIN:
                return _OTHER
            continue
        if not _PLAIN.issuperset(map(type, item)):
            left += [member for member in item if type(member) not in _PLAIN]
    return found


@lru_cache(maxsize=4096)
def _number(value: float) -> bytes:
    """A float as RFC 8785 writes it; records repeat prices and shares."""
    return rfc8785.dumps(value)


def _written(value: Any) -> Any:  # Any: a JSON value, and orjson's fragments in it
    """The value with every float that orjson would write in another form already written.

    Raises:
        ValueError: a number is not finite.
    """
    kind = type(value)
    if kind is float:
        if _is_plain_fraction(value):
            return value
        whole = value.is_integer() and abs(value) <= MAX_SAFE_INTEGER
        return int(value) if whole else orjson.Fragment(_number(value))
    if kind in _PLAIN:
        return value
    if _PLAIN.issuperset(map(type, value.values() if kind is dict else value)):
        return value
    if kind is dict:
        return {name: _written(member) for name, member in value.items()}
    return [_written(member) for member in value]


def canonical_bytes(value: JsonValue) -> bytes:
    """RFC 8785 bytes of a JSON value.

    Raises:
        InputError: the value is not JSON, has an integer beyond 2^53-1, a non-finite number or a lone surrogate.
    """
    try:
        data = orjson.dumps(value, option=_ORJSON)
        if type(value) is dict and data.isascii() and _PLAIN.issuperset(map(type, value.values())):
            return data  # most records of a journal
        found = _fast(value)
    except TypeError:  # what the fast encoder refuses, or a value without an end, is for the careful one to judge
        found = _OTHER
    if found == _SAME:
        return data
    if found == _FLOATS:
        with suppress(ValueError):
            return orjson.dumps(_written(value), option=_ORJSON)
    with suppress(TypeError, ValueError, RecursionError):
        return rfc8785.dumps(value)
    # not raised within: the encoder's own error holds the value
    raise InputError(
        "value has no canonical form", rule="RFC 8785: finite numbers, integers within 2^53-1, valid Unicode"
    )


def canonical_member(name: str, value: bytes) -> bytes:
    """Canonical bytes of an object with one member whose own canonical bytes are at hand.

    Args:
        name: name of the member; plain ASCII of our own.
        value: canonical bytes of its value.
    """
    return b'{"%b":%b}' % (name.encode("ascii"), value)


def sha256_hex(data: bytes) -> str:
    """Bare lowercase hex SHA-256 of bytes."""
    return hashlib.sha256(data).hexdigest()


def digest(domain: str, value: JsonValue) -> str:
    """``sha256:<hex>`` of the canonical form of ``{"domain": domain, "value": value}`` (original project, 9.1)."""
    return "sha256:" + sha256_hex(canonical_bytes({"domain": domain, "value": value}))


def digest_int(domain: str, value: JsonValue) -> int:
    """The same digest as a 256-bit integer; reducing it through a float would give another bucket."""
    return int(digest(domain, value)[7:], 16)


def utf16_key(text: str) -> bytes:
    """Sort key by UTF-16 code unit, the order that the original project uses for ids and JSON keys."""
    return text.encode("utf-16-be", "surrogatepass")
