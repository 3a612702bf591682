"""Digests of compute's own records, in the shape that the whole project uses.

A digest is SHA-256 over the RFC 8785 form of ``{"domain": ..., "value": ...}``. This package may not import the
collector's module; for JSON without floats, with safe integers and ASCII keys, sorted-key JSON *is* the RFC 8785 form,
and anything else is refused here.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from tasc_compute.codec import Json
from tasc_compute.errors import ContractError

_MAX_SAFE_INTEGER = 2**53 - 1
_CHUNK_BYTES = 1 << 20


def _plain(value: Json) -> bool:
    if value is None or isinstance(value, bool | str):
        return True
    if isinstance(value, int):
        return abs(value) <= _MAX_SAFE_INTEGER
    if isinstance(value, list):
        return all(_plain(item) for item in value)
    if isinstance(value, dict):
        return all(key.isascii() and _plain(item) for key, item in value.items())
    return False


def digest(domain: str, value: Json) -> str:
    """``sha256:<hex>`` over ``{"domain": domain, "value": value}``.

    Raises:
        ContractError: the value holds a float, an unsafe integer, a key outside ASCII or a lone surrogate.
    """
    if not _plain(value):
        raise ContractError("value has no digest form", rule="no floats, integers within 2^53-1, ASCII keys")
    text = json.dumps({"domain": domain, "value": value}, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    try:
        return "sha256:" + hashlib.sha256(text.encode()).hexdigest()
    except UnicodeEncodeError:
        raise ContractError("value has no digest form", rule="valid Unicode") from None


def file_sha256(path: Path) -> str:
    """``sha256:<hex>`` of a file's bytes, read in chunks.

    Raises:
        ContractError: the file cannot be read.
    """
    state = hashlib.sha256()
    try:
        with path.open("rb") as stream:
            while chunk := stream.read(_CHUNK_BYTES):
                state.update(chunk)
    except OSError as error:
        raise ContractError(
            f"cannot be read ({error.strerror})", where=path.name, way_out="check the model path of the recipe"
        ) from None
    return "sha256:" + state.hexdigest()
