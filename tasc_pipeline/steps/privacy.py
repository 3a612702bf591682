"""Searching a state folder for what must not be in it, in every form in which it could have been written.

A needle is found wherever it stands: in the bytes of a file, in the name of a file or folder, in where a link points, and in
the values of Parquet, DuckDB, SQLite and gzip files once they are decoded. A file that cannot be decoded is named, never
passed over. The page that comes out is for a security team: it says what was searched and how, and never shows a needle.
"""

from __future__ import annotations

import base64
import html
import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote, quote_plus

from tasc_collector.errors import InputError
from tasc_pipeline.steps.watch import counted
from tasc_pipeline.warehouse.plain_contents import Kind, NotDecodedError, decoded_pieces, kind_of, raw_pieces

_JSON_ESCAPE = re.compile(r"(?<!\\)\\u([0-9a-f]{4})")
MIN_NEEDLE = 8
"""Shorter needles would be found by chance."""


@dataclass(frozen=True, slots=True)
class Hit:
    """One place where a needle stands."""

    file: Path
    needle: int
    """Its number in the list, from 1."""
    form: str


@dataclass(slots=True)
class Searched:
    """What a search looked at and what it found."""

    needles: int
    files: Counter[Kind] = field(default_factory=Counter)
    size_bytes: int = 0
    hits: list[Hit] = field(default_factory=list)
    undecoded: list[Path] = field(default_factory=list)
    """Searched as they are, but not inside."""
    left_out: list[Path] = field(default_factory=list)
    links: list[Path] = field(default_factory=list)
    """Symbolic links, which are not followed."""
    texts: tuple[str, ...] = field(default=(), repr=False)
    """The needles, so that a name that holds one is not shown with it."""

    @property
    def clean(self) -> bool:
        """Whether everything was searched and nothing found."""
        return not self.hits and not self.undecoded


def forms(needle: str) -> dict[str, bytes]:
    """Every form in which a text could have been written, of at least 8 bytes each."""
    raw = needle.encode()
    escaped = json.dumps(needle)[1:-1]
    url, paths = quote(needle, safe=""), quote(needle)
    found = {
        "raw": raw,
        "UTF-16": needle.encode("utf-16-le"),
        "UTF-16, big end first": needle.encode("utf-16-be"),
        "hex": raw.hex().encode(),
        "HEX": raw.hex().upper().encode(),
        "URL-coded": url.encode(),
        "URL-coded, lower case": _lower_escapes(url).encode(),
        "URL-coded, slashes kept": paths.encode(),
        "URL-coded, slashes kept, lower case": _lower_escapes(paths).encode(),
        "form-coded": quote_plus(needle).encode(),
        "HTML-escaped": html.escape(needle).encode(),
        "HTML-escaped, decimal quotes": html.escape(needle)
        .replace("&quot;", "&#34;")
        .replace("&#x27;", "&#39;")
        .encode(),
        "HTML-escaped, quotes kept": html.escape(needle, quote=False).encode(),
        "Python text": repr(needle)[1:-1].encode(),
        "Python bytes": repr(raw)[2:-1].encode(),
        "JSON-escaped": escaped.encode(),
        "JSON-escaped, slashes too": escaped.replace("/", "\\/").encode(),
        "JSON-escaped, upper case": _JSON_ESCAPE.sub(lambda found: "\\u" + found[1].upper(), escaped).encode(),
        "JSON-escaped, Unicode kept": json.dumps(needle, ensure_ascii=False)[1:-1].encode(),
        "JSON-escaped, every character": "".join(f"\\u{unit:04x}" for unit in _utf16(needle)).encode(),
        "JSON in JSON": json.dumps(escaped)[1:-1].encode(),
    }
    for offset in range(3):
        encoded = base64.b64encode(b"\0" * offset + raw)
        # the characters at either end depend on the neighbours; what lies between does not
        start, end = (0, 2, 3)[offset], len(encoded) - 4
        found[f"base64 at offset {offset}"] = encoded[start:end]
        found[f"base64url at offset {offset}"] = encoded[start:end].replace(b"+", b"-").replace(b"/", b"_")
    different: dict[bytes, str] = {}
    for name, value in found.items():
        if len(value) >= MIN_NEEDLE:
            different.setdefault(value, name)
    return {name: value for value, name in different.items()}


def _lower_escapes(url: str) -> str:
    head, *rest = url.split("%")
    return head + "".join("%" + part[:2].lower() + part[2:] for part in rest)


def _utf16(text: str) -> Iterator[int]:
    data = text.encode("utf-16-be")
    return (int.from_bytes(data[at : at + 2], "big") for at in range(0, len(data), 2))


def scan(folders: Iterable[Path], needles: Iterable[str], *, leave_out: Iterable[Path] = ()) -> list[Hit]:
    """Where needles stand; see ``search``."""
    return search(folders, needles, leave_out=leave_out).hits


def search(folders: Iterable[Path], needles: Iterable[str], *, leave_out: Iterable[Path] = ()) -> Searched:
    """Search files for needles.

    Args:
        folders: files or folders, searched whole; symbolic links are not followed.
        needles: texts of at least 8 characters.
        leave_out: files that may hold them, such as the operator's own cases.

    Raises:
        InputError: a needle is too short to mean anything, or there is none.
    """
    texts = tuple(needles)
    wanted = [forms(_long_enough(needle)) for needle in texts]
    if not wanted:
        raise InputError("there is nothing to search for", way_out="give texts, one per line, of at least 8 characters")
    skipped = {path.resolve() for path in leave_out}
    result, files = Searched(len(wanted), texts=texts), sorted(_files(folders))
    tell = counted("searching files", len(files))
    for path in files:
        if path.is_symlink():
            result.links.append(path)
            _find(path, (path.name.encode(), os.fsencode(path.readlink())), wanted, result)
        elif path.resolve() in skipped:
            result.left_out.append(path)
        elif path.is_dir():
            _find(path, (path.name.encode(),), wanted, result)
        else:
            _search_file(path, wanted, result)
        tell(1)
    result.hits.sort(key=lambda hit: (str(hit.file), hit.needle, hit.form))
    return result


def _search_file(path: Path, wanted: Sequence[Mapping[str, bytes]], result: Searched) -> None:
    try:
        kind, size_bytes = kind_of(path), path.stat().st_size
    except FileNotFoundError:
        return  # it was replaced while we looked; the folder may be in use
    longest = max(len(value) for spellings in wanted for value in spellings.values())
    result.files[kind] += 1
    result.size_bytes += size_bytes
    _find(path, _pieces(path, kind, longest, result), wanted, result)


def _find(path: Path, pieces: Iterable[bytes], wanted: Sequence[Mapping[str, bytes]], result: Searched) -> None:
    missing = {(number, form): value for number, each in enumerate(wanted, 1) for form, value in each.items()}
    for piece in pieces:
        for found in [key for key, value in missing.items() if value in piece]:
            del missing[found]
            result.hits.append(Hit(path, *found))


def _pieces(path: Path, kind: Kind, overlap: int, result: Searched) -> Iterator[bytes]:
    yield path.name.encode()
    yield from raw_pieces(path, overlap)
    try:
        yield from decoded_pieces(path, kind, overlap)
    except NotDecodedError:
        result.undecoded.append(path)


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
            yield from (path for path in folder.rglob("*") if path.is_file() or path.is_dir() or path.is_symlink())


def page(result: Searched, root: Path, *, searched_at: str) -> str:
    """The result as a page in Markdown for a security team.

    Args:
        result: a search.
        root: the folder that was searched; names are shown relative to it.
        searched_at: when, UTC.
    """
    verdict = (
        "NOTHING WAS FOUND" if result.clean else f"{len(result.hits)} PLACES FOUND" if result.hits else "INCOMPLETE"
    )
    lines = [
        "# Privacy search of a state folder",
        "",
        (
            f"**{verdict}** Searched at {searched_at}: {sum(result.files.values())} files of {result.size_bytes} bytes. "
            f"{result.needles} texts were looked for; they are not shown here."
        ),
        "",
        "| files | read |",
        "|---:|---|",
        *(f"| {result.files[kind]} | {kind} |" for kind in Kind if result.files[kind]),
        "",
        "Every file was searched as it is, by its name and its folders' names, and decoded where its first bytes say that "
        "it is a container; the journal, records, logs and reports are plain bytes. Each text was looked for in these forms: "
        + "; ".join(forms('example \u00e9"\u00bf/?>+ text'))
        + ".",
    ]
    for title, found in (
        ("Found", [f"text {hit.needle}, {hit.form}: {_name(hit.file, root, result)}" for hit in result.hits]),
        (
            "Could not be decoded, searched as they are only",
            [_name(path, root, result) + " (damaged, or in use: search again)" for path in result.undecoded],
        ),
        ("Left out, as asked", [_name(path, root, result) for path in result.left_out]),
        ("Links, not followed", [_name(path, root, result) for path in result.links]),
    ):
        if found:
            lines += ["", f"## {title}", "", *(f"- {item}" for item in found)]
    lines += [
        "",
        (
            "What such a search cannot see: an encrypted copy, something packed within a packed file, a text that was cut "
            "or reworded, memory, swap, and anything outside the folder, such as the operator's own case file."
        ),
    ]
    return "\n".join(lines) + "\n"


def _name(path: Path, root: Path, result: Searched) -> str:
    """The path below the folder, with a number where it holds a needle."""
    name = os.fsencode(path.relative_to(root) if path.is_relative_to(root) else path.name)
    for number, text in enumerate(result.texts, 1):
        for value in forms(text).values():
            name = name.replace(value, f"[text {number}]".encode())
    return name.decode(errors="replace")
