"""Canaries: strings that must be found nowhere, in any of the spellings in which a program may leave them."""

from __future__ import annotations

import base64
import json
import traceback
from collections.abc import Iterable
from pathlib import Path
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


def everything_of(error: BaseException) -> str:
    """All that an exception shows, and all that hangs on it: its chain also where that is suppressed, arguments, fields."""
    shown, waiting, seen = ["".join(traceback.format_exception(error))], [error], set()
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        shown += [repr(one), str(one), repr(one.args), repr(vars(one)), *getattr(one, "__notes__", ())]
        waiting += [link for link in (one.__cause__, one.__context__) if link is not None]
    return "\n".join(shown)


def everything_in(folders: Iterable[Path]) -> str:
    """The names and bytes of every file below some folders, without the zeros that were set aside at a file's end."""
    shown = []
    for path in (found for folder in folders for found in sorted(folder.rglob("*"))):
        shown.append(path.name)
        if path.is_file():
            shown.append(path.read_bytes().rstrip(b"\0").decode("latin-1"))
    return "\n".join(shown)
