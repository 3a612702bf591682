"""What a file says once it is unpacked, for searching: Parquet columns, DuckDB and SQLite rows, gzip, compressed values.

Every file gives its bytes as they are first. A container then gives its values in plain as well, because pages are
compressed and a long value is spread over pages. Nothing is executed: views are read as text, and no file is written.
"""

from __future__ import annotations

import base64
import binascii
import bz2
import gzip
import io
import lzma
import sqlite3
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from pathlib import Path
from urllib.parse import quote

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

PIECE_BYTES = 8 * 1024 * 1024
"""A file is searched piece by piece, so that its size does not matter."""
UNPACKED_MAX = 256 * 1024 * 1024
"""A value that unpacks to more is taken as not decodable."""
ROWS = 1000


class Kind(StrEnum):
    """How a file was read."""

    PARQUET = "Parquet, every column decoded"
    DUCKDB = "DuckDB, every table and view"
    SQLITE = "SQLite, every row, compressed values unpacked"
    GZIP = "gzip, unpacked"
    BZIP2 = "bzip2, unpacked"
    XZ = "xz, unpacked"
    ZIP = "zip, every member unpacked"
    PACKED = "packed in a way that is not unpacked here"
    PLAIN = "as it is"


class NotDecodedError(Exception):
    """The file says that it is of this kind, and cannot be read as such."""


_MAGIC: tuple[tuple[int, bytes, Kind], ...] = (
    (0, b"PAR1", Kind.PARQUET),
    (8, b"DUCK", Kind.DUCKDB),
    (0, b"SQLite format 3\0", Kind.SQLITE),
    (0, b"\x1f\x8b", Kind.GZIP),
    (0, b"BZh", Kind.BZIP2),
    (0, b"\xfd7zXZ\0", Kind.XZ),
    (0, b"PK\x03\x04", Kind.ZIP),
    (0, b"\x28\xb5\x2f\xfd", Kind.PACKED),  # zstd
    (0, b"7z\xbc\xaf\x27\x1c", Kind.PACKED),
    (0, b"\x04\x22\x4d\x18", Kind.PACKED),  # lz4
)


def kind_of(path: Path) -> Kind:
    """What a file is by its first bytes, whatever its name."""
    with path.open("rb") as file:
        head = file.read(32)
    return next((kind for at, magic, kind in _MAGIC if head[at : at + len(magic)] == magic), Kind.PLAIN)


def raw_pieces(path: Path, overlap: int) -> Iterator[bytes]:
    """The file's own bytes; each piece begins with the last ``overlap`` bytes of the one before."""
    with path.open("rb") as file:
        yield from _overlapping(file.read, overlap)


def _overlapping(read: Callable[[int], bytes], overlap: int) -> Iterator[bytes]:
    kept = b""
    while piece := read(PIECE_BYTES):
        yield kept + piece
        kept = (kept + piece)[-overlap:]


def decoded_pieces(path: Path, kind: Kind, overlap: int) -> Iterator[bytes]:
    """The values of a container in plain; nothing for a plain file.

    Raises:
        NotDecodedError: it is damaged, locked or too large to unpack.
    """
    if kind is Kind.PLAIN:
        return
    try:
        yield from _READERS[kind](path, overlap)
    except _UNREADABLE:
        raise NotDecodedError from None


def _parquet(path: Path, _: int) -> Iterator[bytes]:
    file = pq.ParquetFile(path)
    yield str(file.schema_arrow.to_string(show_schema_metadata=True, truncate_metadata=False)).encode()
    for batch in file.iter_batches(batch_size=64 * 1024):
        for column in batch.columns:
            values = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
            yield from _joined(item for value in values.to_pylist() for item in _texts(value))


def _duckdb(path: Path, _: int) -> Iterator[bytes]:
    # a view is never followed to a file
    with duckdb.connect(str(path), read_only=True, config={"enable_external_access": "false"}) as session:
        definitions = session.execute("SELECT sql FROM duckdb_views() UNION ALL SELECT sql FROM duckdb_tables()")
        yield from _joined(item for row in definitions.fetchall() for item in _texts(row))
        tables = session.execute("SELECT schema_name, table_name FROM duckdb_tables()").fetchall()
        for schema, table in tables:
            named = ".".join('"' + name.replace('"', '""') + '"' for name in (schema, table))
            yield from _rows(session.execute(f"SELECT * FROM {named}").fetchmany)  # noqa: S608 - a quoted name


def _sqlite(path: Path, _: int) -> Iterator[bytes]:
    session = sqlite3.connect(f"file:{quote(str(path.absolute()))}?mode=ro", uri=True)
    try:
        session.text_factory = bytes
        names = [row[0].decode() for row in session.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for name in names:
            quoted = name.replace('"', '""')
            yield from _rows(session.execute(f'SELECT * FROM "{quoted}"').fetchmany)  # noqa: S608 - a quoted name
    finally:
        session.close()


def _gzip(path: Path, overlap: int) -> Iterator[bytes]:
    with gzip.open(path) as file:
        yield from _overlapping(file.read, overlap)


def _bzip2(path: Path, overlap: int) -> Iterator[bytes]:
    with bz2.open(path) as file:
        yield from _overlapping(file.read, overlap)


def _xz(path: Path, overlap: int) -> Iterator[bytes]:
    with lzma.open(path) as file:
        yield from _overlapping(file.read, overlap)


def _zip(path: Path, overlap: int) -> Iterator[bytes]:
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            yield name.encode()
            with archive.open(name) as file:
                yield from _overlapping(file.read, overlap)


def _packed(path: Path, _: int) -> Iterator[bytes]:
    raise NotDecodedError


_UNREADABLE = (
    OSError,
    EOFError,
    zlib.error,
    lzma.LZMAError,
    zipfile.BadZipFile,
    RuntimeError,  # an encrypted member, or a compression that Python does not know
    pa.ArrowException,
    duckdb.Error,
    sqlite3.Error,
    MemoryError,
    ValueError,
)
_READERS: dict[Kind, Callable[[Path, int], Iterator[bytes]]] = {
    Kind.PARQUET: _parquet,
    Kind.DUCKDB: _duckdb,
    Kind.SQLITE: _sqlite,
    Kind.GZIP: _gzip,
    Kind.BZIP2: _bzip2,
    Kind.XZ: _xz,
    Kind.ZIP: _zip,
    Kind.PACKED: _packed,
}


def _rows(fetch: Callable[[int], list[tuple[object, ...]]]) -> Iterator[bytes]:
    while rows := fetch(ROWS):
        yield from _joined(item for row in rows for value in row for item in _texts(value))


def _joined(items: Iterable[bytes]) -> Iterator[bytes]:
    buffer = io.BytesIO()
    for item in items:
        buffer.write(item + b"\0")
        if buffer.tell() > PIECE_BYTES:
            yield buffer.getvalue()
            buffer = io.BytesIO()
    yield buffer.getvalue()


def _texts(value: object) -> Iterator[bytes]:
    """A value as bytes, and what it unpacks to: Dagster keeps snapshots as zlib, and cursors as base64 of zlib."""
    match value:
        case None:
            return
        case bytes():
            yield value
            yield from _unpacked(value)
        case str():
            yield from _texts(value.encode())
        case dict():
            for key, item in value.items():
                yield from _texts(key)
                yield from _texts(item)
        case list() | tuple():
            for item in value:
                yield from _texts(item)
        case _:
            yield str(value).encode()


def _unpacked(value: bytes) -> Iterator[bytes]:
    for packed in (value, _from_base64(value)):
        if packed[:1] == b"\x78":  # every zlib stream of a usual window begins so
            opened = zlib.decompressobj()
            try:
                yield opened.decompress(packed, UNPACKED_MAX)
            except zlib.error:
                continue
            if opened.unconsumed_tail:
                raise ValueError


def _from_base64(value: bytes) -> bytes:
    if len(value) < 16 or len(value) % 4:
        return b""
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        return b""
