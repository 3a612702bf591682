"""Canonical JSON (RFC 8785) and domain-separated SHA-256 digests.

Everything that is signed or digested in this project goes through this module. A digest is public identity, not
authenticity; keys are in ``identity`` (HMAC) and ``signing`` (Ed25519).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TypeAlias

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
    The walk leaves scalars to C, because in Python it would cost more than the encoding.
    """
    kind = type(value)
    items: Iterable[JsonValue]
    if kind is dict:
        if not all(map(str.isascii, value)):  # type: ignore[arg-type]  # kind is dict
            return False
        items = value.values()  # type: ignore[union-attr]  # kind is dict
    elif kind is list or kind is tuple:
        items = value  # type: ignore[assignment]  # kind is a sequence
    else:
        return kind in _PLAIN or (kind is float and _is_plain_fraction(value))  # type: ignore[arg-type]  # kind is float
    return _PLAIN.issuperset(map(type, items)) or all(map(_simple, items))


def canonical_bytes(value: JsonValue) -> bytes:
    """RFC 8785 bytes of a JSON value.

    Raises:
        InputError: the value is not JSON, has an integer beyond 2^53-1, a non-finite number or a lone surrogate.
    """
    with suppress(TypeError, RecursionError):  # what the fast encoder refuses is for the careful one to judge
        if _simple(value):
            return orjson.dumps(value, option=_ORJSON)
    try:
        return rfc8785.dumps(value)
    except (TypeError, ValueError, RecursionError):
        raise InputError(
            "value has no canonical form", rule="RFC 8785: finite numbers, integers within 2^53-1, valid Unicode"
        ) from None


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
