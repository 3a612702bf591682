"""How a part is written and read: zstd, page checksums, few large row groups, the same bytes for the same rows.

Without page checksums pyarrow read back wrong data from 223 of 400 single bit flips; with them from none. So every page
has one, every read of ours verifies them, and the manifest holds the SHA-256 of the whole file.

A part of more than one row group is made by two threads. One encodes a row group and appends it to the file; the other takes
the next rows meanwhile, hashes what the file holds so far and has it written to the disk. Groups are encoded one after the
other, each from one piece of memory, so neither the timing nor the way in which rows came in changes a byte.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tasc_collector.errors import InputError
from tasc_pipeline.warehouse.columns import Kind, Table
from tasc_pipeline.warehouse.errors import PartCorruptError

ROW_GROUP_ROWS = 122_880
"""DuckDB's own row group size: one thread reads one group, and 10^7 rows make 82 of them."""
_RECORD_GROUP_ROWS = 15_360
"""The same of a table whose rows hold whole records: a group of envelopes has some 70 MB."""
_ZSTD_LEVEL = 1
"""What encodings leave is soon found: level 3 saves no byte of ``traces``, whose columns then take a fifth more time, and makes
envelopes 2 % larger."""
_ZSTD_LEVELS = {Kind.NUMBER: -1}
"""Half the bytes of a latency look random: this takes a quarter less time than level 1 and 2 % more bytes."""
_DICTIONARY_BYTES = 1 << 18
"""Dictionary of a column in a row group, beyond which its words are stored plainly: some 14,000 case ids, each nine times
in a full group. With more of them a dictionary costs bytes and time."""
_READ_BYTES = 1 << 18
_SYNC_BYTES = 1 << 22
"""New bytes of a part from which the disk is kept busy while more are encoded."""

_ENCODINGS = {
    Kind.INTEGER: "DELTA_BINARY_PACKED",
    Kind.INSTANT: "DELTA_BINARY_PACKED",
    Kind.NUMBER: "BYTE_STREAM_SPLIT",
}
_DICTIONARY = frozenset({Kind.WORD, Kind.WORDS})
_RANGED = frozenset({Kind.INTEGER, Kind.NUMBER, Kind.FLAG, Kind.INSTANT})
"""Least and greatest value are kept of these and of the columns that order rows. Of other text they tell little about a row
group, of identities nothing, and finding them takes a third of the time that encoding text takes."""


@dataclass(frozen=True, slots=True)
class Written:
    """What was written: rows, bytes and their SHA-256 in bare hex."""

    rows: int
    bytes: int
    sha256: str


def writer_options(table: Table) -> dict[str, Any]:  # Any: keyword arguments of pyarrow
    """Options of ``pyarrow.parquet.ParquetWriter`` for a table."""
    return {
        "compression": "zstd",
        "compression_level": {
            _leaf(column.name, column.kind): _ZSTD_LEVELS.get(column.kind, _ZSTD_LEVEL) for column in table.columns
        },
        "use_dictionary": [_leaf(column.name, column.kind) for column in table.columns if column.kind in _DICTIONARY],
        "column_encoding": {
            column.name: _ENCODINGS[column.kind] for column in table.columns if column.kind in _ENCODINGS
        },
        "dictionary_pagesize_limit": _DICTIONARY_BYTES,
        "write_statistics": [
            column.name for column in table.columns if column.kind in _RANGED or column.name in table.sort_by
        ],
        "write_page_checksum": True,
        "version": "2.6",
    }


def row_group_rows(table: Table) -> int:
    """Rows of one row group of a table."""
    return _RECORD_GROUP_ROWS if any(column.kind is Kind.BYTES for column in table.columns) else ROW_GROUP_ROWS


def write_parquet(path: Path, table: Table, batches: Iterable[pa.Table]) -> Written:
    """Write row groups of ``row_group_rows`` from tables that follow each other in sort order.

    Memory stays within three row groups and one input table, however many rows there are. At the end much of the part is on
    the disk, but not all of it: sync it.

    Args:
        path: an empty file.
        table: whose rows they are.
        batches: the rows; taken by the calling thread.

    Raises:
        OSError: the disk refused.
    """
    group_rows, rows = row_group_rows(table), 0
    encoding: Future[None] | None = None
    with path.open("rb", buffering=0) as file:
        hashed = _Hashed(file)
        with (
            pa.OSFile(str(path), "wb") as sink,
            pq.ParquetWriter(sink, table.schema, **writer_options(table)) as writer,
            ThreadPoolExecutor(1, "parquet") as beside,
        ):
            for group in _row_groups(batches, group_rows):
                if encoding is not None:
                    encoding.result()
                encoding = beside.submit(writer.write_table, group, group_rows)
                rows += group.num_rows
                if hashed.catch_up() >= _SYNC_BYTES:
                    os.fsync(file.fileno())
            if encoding is not None:
                encoding.result()
        hashed.catch_up()
        return Written(rows, hashed.size, hashed.hash.hexdigest())


def _row_groups(batches: Iterable[pa.Table], size: int) -> Iterator[pa.Table]:
    """The rows in tables of ``size`` rows, the last of fewer, each column in one piece."""
    held: list[pa.Table] = []
    waiting = 0
    for batch in batches:
        held.append(batch)
        waiting += batch.num_rows
        while waiting >= size:
            group, rest = _cut(held, size)
            held, waiting = [rest], waiting - size
            yield group
    if waiting:
        yield _cut(held, size)[0]


def _cut(held: list[pa.Table], size: int) -> tuple[pa.Table, pa.Table]:
    joined = pa.concat_tables(held)
    return joined.slice(0, size).combine_chunks(), joined.slice(size)


class _Hashed:
    """Size and SHA-256 of a file that grows at its end."""

    def __init__(self, file: io.FileIO) -> None:
        self.hash, self.size = hashlib.sha256(), 0
        self._file, self._buffer = file, memoryview(bytearray(_READ_BYTES))

    def catch_up(self) -> int:
        """Hash what was appended since, and say how many bytes that was."""
        before = self.size
        while read := self._file.readinto(self._buffer):
            self.hash.update(self._buffer[:read])
            self.size += read
        return self.size - before


def read_parquet(path: Path, table: Table, *, sha256: str | None = None) -> pa.Table:
    """The rows of one part, as ``read_groups`` gives them."""
    return pa.concat_tables([table.empty(), *read_groups(path, table, sha256=sha256)])


def read_groups(
    path: Path, table: Table, *, sha256: str | None = None, window_key: str | None = None
) -> Iterator[pa.Table]:
    """The rows of one part a row group at a time, page checksums verified.

    Args:
        path: the part.
        table: whose rows it holds.
        sha256: of the whole file, checked before anything is decoded, where given.
        window_key: leaves out row groups that hold none of its rows, where given.

    Raises:
        PartCorruptError: the file is missing, cut or changed, or not a part of that table.
    """
    if sha256 is not None:
        check_bytes(path, sha256)
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            if not file.schema_arrow.equals(table.schema):
                raise _corrupt(path, f"the part does not hold the columns of {table.schema_id}")
            for index in range(file.num_row_groups):
                if window_key is not None and _is_outside(file.metadata.row_group(index), table, window_key):
                    continue
                yield file.read_row_group(index).replace_schema_metadata(table.schema.metadata)
    except (OSError, pa.ArrowException):
        raise _corrupt(path, "the part cannot be read") from None


def _is_outside(group: pq.RowGroupMetaData, table: Table, window_key: str) -> bool:
    held = group.column(table.schema.get_field_index("window_key")).statistics
    return held is not None and held.has_min_max and not held.min <= window_key <= held.max


def has_columns_of(path: Path, table: Table) -> bool:
    """Whether a file is there and has exactly the table's columns; a file of an older schema has others."""
    try:
        return bool(pq.read_schema(path).names == table.schema.names)
    except (OSError, pa.ArrowInvalid):
        return False


def check_bytes(path: Path, sha256: str) -> None:
    """Compare a file's SHA-256 with the one its manifest lists.

    Raises:
        PartCorruptError: the file is missing or other bytes.
    """
    try:
        with path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        raise _corrupt(path, "the part is missing or cannot be read") from None
    if found != sha256:
        raise _corrupt(path, "the part is not the one that was published")


def sorted_rows(table: Table, rows: pa.Table) -> pa.Table:
    """``rows`` in the table's sort order, nulls last; rows that are already sorted are returned as they are.

    Raises:
        InputError: the columns are not exactly those of the table.
    """
    if _is_sorted(table, rows):
        return rows
    keys = [rows.column(name) for name in table.sort_by]
    ranks = [_ranks(key.combine_chunks()) for key in keys if not is_all(key, key[0])]
    return rows.take(pa.array(np.lexsort(ranks[::-1])))


def following(table: Table, batches: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Pass on tables that are sorted and follow each other in the table's order.

    Raises:
        InputError: the columns are not those of the table, or rows are out of order.
    """
    last = table.empty()
    for batch in batches:
        if not (_is_sorted(table, batch) and _is_sorted(table, pa.concat_tables([last, batch.slice(0, 1)]))):
            raise InputError(
                "rows are out of the table's order", where=table.name, way_out="give the rows in the order of its keys"
            )
        if batch.num_rows:
            last = batch.slice(batch.num_rows - 1)
            yield batch


def _is_sorted(table: Table, rows: pa.Table) -> bool:
    """Whether no row's keys are greater than those of the next; a null is greater than every value."""
    if not rows.schema.equals(table.schema):
        raise InputError(
            f"rows are not those of {table.schema_id}",
            where=table.name,
            way_out="build them with the table's own builder",
        )
    pairs = rows.num_rows - 1
    if pairs < 1:
        return True
    undecided: pa.ChunkedArray | None = None
    for key in (part for name in table.sort_by for part in _comparable(rows.column(name))):
        earlier, later = key.slice(0, pairs), key.slice(1)
        equal = pc.fill_null(pc.equal(earlier, later), fill_value=True)
        if pc.all(equal).as_py():
            continue
        greater = pc.fill_null(pc.greater(earlier, later), fill_value=False)
        if undecided is not None:
            greater, equal = pc.and_(undecided, greater), pc.and_(undecided, equal)
        if pc.any(greater).as_py():
            return False
        undecided = equal
    return True


def _comparable(key: pa.ChunkedArray) -> tuple[pa.ChunkedArray, ...]:
    """A key in parts that are compared one after the other: that it is null comes first and decides."""
    return (key.is_null(), key) if key.null_count else (key,)


def equal_rows(left: Iterable[pa.Table], right: Iterable[pa.Table]) -> int | None:
    """How many rows two sequences of tables hold, however they are cut; None where they do not hold the same ones."""
    ours, theirs = _filled(left), _filled(right)
    one, other, rows = next(ours, None), next(theirs, None), 0
    while one is not None and other is not None:
        size = min(one.num_rows, other.num_rows)
        if not one.slice(0, size).equals(other.slice(0, size)):
            return None
        rows += size
        one = one.slice(size) if size < one.num_rows else next(ours, None)
        other = other.slice(size) if size < other.num_rows else next(theirs, None)
    return rows if one is None and other is None else None


def _filled(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    return (table for table in tables if table.num_rows)


def is_all(column: pa.ChunkedArray, value: object) -> bool:
    """Whether every entry of a column is that value; false where one is null."""
    return bool(pc.all(pc.equal(column, value), skip_nulls=False).as_py())


def _ranks(column: pa.Array) -> np.ndarray:
    if not pa.types.is_string(column.type) and not pa.types.is_fixed_size_binary(column.type):
        numbers = column.cast(pa.int64()) if not pa.types.is_int64(column.type) else column
        return np.asarray(numbers.fill_null(np.iinfo(np.int64).max).to_numpy(zero_copy_only=False))
    encoded = column.dictionary_encode()
    places = np.empty(len(encoded.dictionary) + 1, dtype=np.int64)
    places[np.asarray(pc.array_sort_indices(encoded.dictionary))] = np.arange(len(encoded.dictionary))
    places[-1] = len(encoded.dictionary)
    return np.asarray(places[encoded.indices.fill_null(len(encoded.dictionary)).to_numpy(zero_copy_only=False)])


def _leaf(name: str, kind: Kind) -> str:
    return f"{name}.list.element" if kind is Kind.WORDS else name


def _corrupt(path: Path, what: str) -> PartCorruptError:
    return PartCorruptError(
        what,
        where=f"{path.parent.parent.name}/{path.parent.name}/{path.name}",
        way_out="materialize the window's assets again: the part is derived from the journal",
    )
