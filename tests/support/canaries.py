"""Canaries: strings that must be found nowhere, in any of the spellings in which a program may leave them."""

from __future__ import annotations

import base64
import json
from urllib.parse import quote


def spellings(canary: str) -> set[str]:
    """The canary as it is, in base64 at each offset, in hex, URL-coded and JSON-escaped."""
    raw = canary.encode()
    found = {
        canary,
        raw.hex(),
        raw.hex().upper(),
        quote(canary, safe=""),
        json.dumps(canary)[1:-1],
        "".join(f"\\u{ord(char):04x}" for char in canary),
    }
    for offset in range(3):
        coded = base64.b64encode(b"\0" * offset + raw).decode().rstrip("=")
        # the first and last characters mix with what stands beside the canary
        found.add(coded[4 if offset else 0 : -2])
        found.add(coded[4 if offset else 0 : -2].replace("+", "-").replace("/", "_"))
    return found


def found_in(text: str, canaries: list[str]) -> list[str]:
    """The canaries that a text holds in any spelling."""
    return [canary for canary in canaries if any(spelling in text for spelling in spellings(canary))]
