"""Numbers and JSON from what vendor tools print: a value or ``None``, never a guess and never an exception.

Tools print ``[N/A]``, ``ERR!``, ``[Unknown Error]``, units, quoted numbers and warnings before their JSON. Everything
that is not plainly a number in its range cannot be told. Readers of small files of /proc and /sys are here too.
"""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Final

from tasc_compute.codec import Json
from tasc_compute.limits import SYSFS_MAX_BYTES

MIB: Final = 1024 * 1024
KIB: Final = 1024

_NUMBER: Final = re.compile(r"\s*([+-]?\d{1,20}(?:\.\d{1,20})?)\s*([A-Za-z%]{0,4})\s*")
_ABSENT: Final = frozenset({"n/a", "[n/a]", "[not supported]", "not supported"})
_JSON_STARTS: Final = re.compile(r"[\[{]")
_JSON_TRIES: Final = 64
_HOTTEST_C: Final = 150
_MOST_WATTS: Final = 20_000


def number(value: object) -> float | None:
    """A number that a tool printed: 12, "12", "12 MiB", {"value": 12, "unit": "MB"}; ``None`` for anything else."""
    if isinstance(value, dict):
        inner = value.get("value")
        return None if isinstance(inner, dict) else number(inner)
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return float(value) if -1e20 < value < 1e20 else None
    if isinstance(value, str):
        found = _NUMBER.fullmatch(value)
        return float(found[1]) if found else None
    return None


def _within(value: object, low: float, high: float) -> float | None:
    found = number(value)
    return found if found is not None and low <= found <= high else None


def percent(value: object) -> float | None:
    """A share of 0 to 100."""
    return _within(value, 0, 100)


def celsius(value: object) -> float | None:
    """A temperature of 1 to 150 degrees: a sensor that is not there reads 0, -1 or far above."""
    return _within(value, 1, _HOTTEST_C)


def watts(value: object) -> float | None:
    """A power of 0 to 20,000 watts."""
    return _within(value, 0, _MOST_WATTS)


def size(value: object, unit: int = 1) -> int | None:
    """A number of bytes that was printed in ``unit`` bytes."""
    found = number(value)
    return int(found * unit) if found is not None and found >= 0 and math.isfinite(found) else None


def text(value: object, longest: int = 128) -> str | None:
    """A printable word or name; ``None`` for placeholders and anything that is no text."""
    if not isinstance(value, str):
        return None
    plain = "".join(c for c in value if c.isprintable()).strip()[:longest]
    return None if not plain or is_absent(plain) or plain.startswith("[") else plain


def is_absent(value: object) -> bool:
    """Whether a tool says that the platform has no such value, as against that reading it failed."""
    return isinstance(value, str) and value.strip().lower() in _ABSENT


def member(value: object, *path: str) -> Json:
    """``value[path[0]][path[1]]...`` of decoded JSON, or ``None`` where a step is missing."""
    for name in path:
        if not isinstance(value, dict):
            return None
        value = value.get(name)
    return value  # type: ignore[return-value]  # decoded JSON in, decoded JSON out


def items(value: object) -> list[dict[str, Json]]:
    """The objects of a JSON list; an empty list for anything else."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def noisy_json(output: str) -> Json:
    """The largest JSON value in a tool's output, with whatever noise stands around it; ``None`` if there is none."""
    best: Json = None
    reach = 0
    decoder = json.JSONDecoder()
    position = 0
    for _ in range(_JSON_TRIES):
        start = _JSON_STARTS.search(output, position)
        if start is None:
            break
        try:
            value, end = decoder.raw_decode(output, start.start())
        except (ValueError, RecursionError):
            position = start.end()
            continue
        if end - start.start() > reach:
            best, reach = value, end - start.start()
        position = end
    return best


def read_small(path: Path) -> str | None:
    """A small file of /proc or /sys, stripped; ``None`` where it cannot be read (EIO, ENODATA, EAGAIN ...)."""
    try:
        with path.open("rb") as stream:
            return stream.read(SYSFS_MAX_BYTES).decode(errors="replace").strip()
    except (OSError, ValueError):
        return None


def folders(path: Path, pattern: str) -> list[Path]:
    """Entries of a folder that match, in the order of their numbers; none where it cannot be read."""
    try:
        found = list(path.glob(pattern))
    except OSError:
        return []
    return sorted(found, key=lambda entry: (int("0" + re.sub(r"\D", "", entry.name)[:9]), entry.name))
