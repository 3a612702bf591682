"""Canonical JSON (RFC 8785) and domain-separated SHA-256 digests.

Everything that is signed or digested in this project goes through this module. A digest is public identity, not
authenticity; keys are in ``identity`` (HMAC) and ``signing`` (Ed25519).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
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


def _simple(value: JsonValue) -> bool:
    """True if orjson's sorted output equals RFC 8785, or orjson refuses: plain floats, keys without astral characters.

    orjson sorts keys by code point; RFC 8785 by UTF-16 unit. They differ only where a key has a character above U+D7FF.
    The walk visits containers only and leaves their scalars to C: in Python it would cost more than the encoding.

    Raises:
        TypeError: a key is no text.
    """
    left: list[Any] = [value]  # Any: type() below tells what it is
    while left:
        item = left.pop()
        kind = type(item)
        if kind is dict:
            if not "".join(item).isascii():
                return False
            item = item.values()
        elif kind is not list and kind is not tuple:
            if kind in _PLAIN or (kind is float and _is_plain_fraction(item)):
                continue
            return False
        if not _PLAIN.issuperset(map(type, item)):
            left += [member for member in item if type(member) not in _PLAIN]
    return True


def canonical_bytes(value: JsonValue) -> bytes:
    """RFC 8785 bytes of a JSON value.

    Raises:
        InputError: the value is not JSON, has an integer beyond 2^53-1, a non-finite number or a lone surrogate.
    """
    with suppress(
        TypeError
    ):  # what the fast encoder refuses, or a value without an end, is for the careful one to judge
        data = orjson.dumps(value, option=_ORJSON)
        if _simple(value):
            return data
    try:
        return rfc8785.dumps(value)
    except (TypeError, ValueError, RecursionError):
        raise InputError(
            "value has no canonical form", rule="RFC 8785: finite numbers, integers within 2^53-1, valid Unicode"
        ) from None


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
