"""Records from bytes and files: bounded, strict, and with a message that names file, line and field.

Rules:

1. A file is a regular file, not a symbolic link, and is read once, up to its bound and no further.
2. Bytes go through the bounded JSON parser first, then the record's schema; the value that was read is kept for
   signatures.
3. A line of an NDJSON file is one record; an empty line is refused, a last line needs no newline.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final, TypeVar

from tasc_collector import limits
from tasc_collector.contracts.base import Parsed, Record, json_object
from tasc_collector.errors import InputError, TascError, WireError
from tasc_collector.wire.json import RECORD_JSON, parse_json

R = TypeVar("R", bound=Record)

_READ_SIZE: Final = 1024 * 1024
_UNREADABLE: Final = ("cannot be read", "check the file and its disk")


def read_record(cls: type[R], data: bytes, *, where: str | None = None) -> Parsed[R]:
    """One record from its bytes.

    Args:
        cls: the record's class.
        data: JSON text, UTF-8.
        where: file or record, for the message; the class's name otherwise.

    Raises:
        InputError: not bounded strict JSON, not an object, or a field breaks its rule.
        DigestMismatch: the record's own digest is not that of its content.
    """
    place = where or cls.__name__
    try:
        value = parse_json(data, RECORD_JSON)
    except WireError as error:
        at = f" at byte {error.offset}" if error.offset is not None else ""
        raise InputError(
            f"not a JSON record{at}", where=place, rule=error.code, way_out="correct the file, or write it again"
        ) from None
    return cls.from_value(json_object(value, where=place), where=place)


def read_record_file(cls: type[R], path: Path) -> Parsed[R]:
    """One record from a file (rule 1).

    Raises:
        InputError: missing, unreadable, a link, no regular file, too large, or as ``read_record``.
        DigestMismatch: as ``read_record``.
    """
    return read_record(cls, read_bounded(path, limits.RECORD_MAX_BYTES), where=path.name)


def read_ndjson_records(cls: type[R], path: Path) -> Iterator[Parsed[R]]:
    """The records of an NDJSON file, one per line (rule 3), in order.

    Raises:
        InputError: as ``read_record_file``; the place names the line.
        DigestMismatch: as ``read_record``.
    """
    data = read_bounded(path, limits.RECORD_FILE_MAX_BYTES)
    lines = data.split(b"\n")
    if lines and not lines[-1]:
        lines.pop()
    for number, line in enumerate(lines, start=1):
        yield read_record(cls, line, where=f"{path.name} line {number}")


def read_bounded(path: Path, max_bytes: int) -> bytes:
    """The bytes of a regular file of at most ``max_bytes``; links are not followed at its name.

    Raises:
        InputError: missing, unreadable, a link, no regular file, or larger.
    """
    descriptor = _opened(path)
    try:
        chunks, size = [], 0
        while chunk := os.read(descriptor, _READ_SIZE):
            size += len(chunk)
            if size > max_bytes:
                raise _refusal(path, f"larger than {max_bytes} bytes", "split it, or name the right file")
            chunks.append(chunk)
    except OSError:
        raise _refusal(path, *_UNREADABLE) from None
    finally:
        os.close(descriptor)
    return b"".join(chunks)


def read_lines(path: Path, max_line_bytes: int) -> Iterator[bytes]:
    """The whole lines of a regular file of any size, without their ends; a last line without one is torn and left out.

    Raises:
        InputError: as ``read_bounded``, but that a line is larger than ``max_line_bytes``.
    """
    with os.fdopen(_opened(path), "rb") as file:
        while True:
            try:
                line = file.readline(max_line_bytes + 1)
            except OSError:
                raise _refusal(path, *_UNREADABLE) from None
            if len(line) > max_line_bytes:
                raise _refusal(path, f"a line is larger than {max_line_bytes} bytes", "restore the file")
            if not line.endswith(b"\n"):
                return
            yield line[:-1]


def _opened(path: Path) -> int:
    """A descriptor of a regular file; links are not followed at its name."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise _open_error(path, error) from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise _refusal(path, "not a regular file", "name the file itself")
    return descriptor


def _open_error(path: Path, error: OSError) -> TascError:
    if isinstance(error, FileNotFoundError):
        return _refusal(path, "no such file", "check the name, or make the file first")
    if isinstance(error, PermissionError):
        return _refusal(path, "may not be read", "give your user the right to read it")
    if path.is_symlink():
        return _refusal(path, "is a symbolic link", "name the file it points to")
    return _refusal(path, "cannot be opened", "check the path")


def _refusal(path: Path, what: str, way_out: str) -> InputError:
    return InputError(what, where=str(path), way_out=way_out)
