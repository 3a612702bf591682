"""Searching a state folder for what must not be in it: raw, base64, hex, URL-coded, JSON-escaped, and inside gzip and Parquet.

A needle is found wherever it stands, in any of these forms; Parquet columns are decompressed first, because pages are zstd.
The report names file and form, never the needle.
"""

from __future__ import annotations

import base64
import gzip
import json
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from tasc_collector.errors import InputError
from tasc_pipeline.warehouse.parquet import plain_bytes

MIN_NEEDLE = 8
"""Shorter needles would be found by chance."""
CHUNK = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Hit:
    """One place where a needle stands."""

    file: Path
    needle: int
    """Its number in the list, from 1."""
    form: str


def forms(needle: str) -> dict[str, bytes]:
    """Every form in which a text could have been written."""
    raw = needle.encode()
    found = {
        "raw": raw,
        "utf-16": needle.encode("utf-16-le"),
        "hex": raw.hex().encode(),
        "url": quote(needle, safe="").encode(),
        "json": json.dumps(needle)[1:-1].encode(),
    }
    for offset in range(3):
        encoded = base64.b64encode(b"\0" * offset + raw)
        # the characters at either end depend on the neighbours; what lies between does not
        start, end = (0, 2, 3)[offset], len(encoded) - (4 if len(raw) + offset % 3 else 0)
        found[f"base64+{offset}"] = encoded[start:end]
        found[f"base64url+{offset}"] = encoded[start:end].replace(b"+", b"-").replace(b"/", b"_")
    return {name: value for name, value in found.items() if len(value) >= MIN_NEEDLE}


def scan(folders: Iterable[Path], needles: Iterable[str], *, leave_out: Iterable[Path] = ()) -> list[Hit]:
    """Search files for needles.

    Args:
        folders: files or folders, searched whole; symbolic links are not followed.
        needles: texts of at least 8 characters.
        leave_out: files that may hold them, such as the operator's own cases.

    Raises:
        InputError: a needle is too short to mean anything.
    """
    wanted = [forms(_long_enough(needle)) for needle in needles]
    skipped = {path.resolve() for path in leave_out}
    hits: list[Hit] = []
    for path in sorted(_files(folders)):
        if path.resolve() in skipped:
            continue
        content = b"\0".join(_contents(path)) + b"\0" + path.name.encode()
        for number, spellings in enumerate(wanted, start=1):
            hits.extend(Hit(path, number, form) for form, value in spellings.items() if value in content)
    return hits


def _long_enough(needle: str) -> str:
    if len(needle) < MIN_NEEDLE:
        raise InputError(
            "this needle is too short",
            rule=f"at least {MIN_NEEDLE} characters",
            way_out="give longer texts, one per line",
        )
    return needle


def _files(folders: Iterable[Path]) -> Iterator[Path]:
    for folder in folders:
        if folder.is_file():
            yield folder
        else:
            yield from (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def _contents(path: Path) -> Iterator[bytes]:
    data = path.read_bytes()
    yield data
    if data[:2] == b"\x1f\x8b":
        try:
            yield gzip.decompress(data)
        except (OSError, EOFError, zlib.error):
            return
    if data[:4] == b"PAR1":
        yield plain_bytes(path)
